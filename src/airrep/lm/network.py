"""Passes of a causal LM over packed documents: losses, fine-tunes, hidden states, answers.

For a pair of responses c and r to one prompt, with Δ = log p − log p of the LM before the fine-tune:

* ``dpo``: −log σ(β(Δ(c) − Δ(r))) (Rafailov et al. 2023, Eq. 7); the argument of σ is the pair's margin.
* ``orpo``: −log p(c)/|c| − β log σ(log odds(c) − log odds(r)) (Hong et al. 2024, Eq. 6). In the odds p/(1 − p), log p
  is the mean log likelihood of a token. ORPO needs no LM before the fine-tune.
* ``kto``: 1 − σ(±β(Δ(y) − z)) for one response y, + if y is wanted, − if not (Ethayarajh et al. 2024, Eq. 8). z is the
  mean Δ of mismatched prompts and responses of the optimizer step, at least 0; no gradient passes through z.
* ``weighted``: the loss of the response, times the example's weight; with advantages, GRPO's policy gradient.

A step lowers the mean over its examples; only log likelihoods are averaged over all response tokens of the step, as
with ``sft``. trl's trainers do the same, except that its ORPO trainer counts the prompt's tokens too.
"""

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from itertools import repeat, takewhile
from typing import Any, Literal, NamedTuple, Self, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from airrep.arrays import Rows
from airrep.errors import AirRepError, ConfigError, TrainingError, first_line, many
from airrep.lm.attention import PackedDocuments, library_attention, reads_packed
from airrep.lm.documents import PAIRED, REFERRED, Documents
from airrep.lm.settings import FineTuneSettings, LossName
from airrep.runtime.devices import ResolvedPrecision, autocast, without_cudnn
from airrep.runtime.packing import pack
from airrep.runtime.seeding import stream
from airrep.shapes import Float, Float64, Int64


@dataclass(frozen=True, eq=False)
class Preference:
    """A loss of preferences, with what it needs to know about documents besides their tokens."""

    loss: LossName
    beta: float
    factors: Float64[np.ndarray, " n"]
    """Factor of each document's loss, as :func:`factor_of` returns it."""
    reference: Float64[np.ndarray, "n 2"] | None = None
    """Log likelihoods of both responses before the fine-tune; None takes those that the LM gives now."""
    drift: float = 0.0
    """z of KTO: the mean gain in log likelihood of mismatched responses, at least 0."""

    def take(self, rows: Rows) -> Self:
        """Return the loss for some of the documents."""
        reference = None if self.reference is None else self.reference[rows]
        return replace(self, factors=self.factors[rows], reference=reference)

    def reads(self, batch: PackedDocuments) -> Float[Tensor, " count"]:
        """Return 1 for each document that has what the loss reads, such as a rejected response; else 0."""
        factors = torch.from_numpy(np.isfinite(self.factors)).to(batch.ids.device)
        if self.loss not in PAIRED:
            return factors.float()
        return torch.bincount(batch.owners, batch.sides.float(), len(factors)).gt(0).float()

    def of(self, each: Float[Tensor, " r"], batch: PackedDocuments) -> Float[Tensor, " count"]:
        """Return each document's loss without its log likelihood term, from the losses of *each* response token."""
        sums, tokens = side_sums(each, batch, len(self.factors))
        factors = torch.from_numpy(np.nan_to_num(self.factors)).to(sums)
        if self.loss == "orpo":
            means = sums / tokens.clamp(min=1)
            odds = means - torch.log(-torch.expm1(means.clamp(max=-1e-7)))
            return -self.beta * functional.logsigmoid(odds[:, 0] - odds[:, 1])
        before = sums.detach() if self.reference is None else torch.from_numpy(self.reference).to(sums)
        gains = sums - before
        if self.loss == "dpo":
            return -functional.logsigmoid(self.beta * (gains[:, 0] - gains[:, 1]))
        if self.loss == "kto":
            return 1 - torch.sigmoid(factors * self.beta * (gains[:, 0] - self.drift))
        return torch.zeros_like(factors)

    def shares(self, device: Any) -> Float[Tensor, " count"]:
        """Return the weight that each document's loss gives to its mean negative log likelihood per token."""
        plain = {"orpo": np.ones_like(self.factors), "weighted": np.nan_to_num(self.factors)}
        return torch.from_numpy(plain.get(self.loss, np.zeros_like(self.factors))).float().to(device)

    def whole(
        self, each: Float[Tensor, " r"], batch: PackedDocuments, reduction: Literal["mean", "sum"] = "mean"
    ) -> Float[Tensor, " count"]:
        """Return the loss of each document by itself, from the losses of *each* response token.

        For a document that lacks what the loss reads, return the mean or sum of its response tokens' losses.
        """
        sums, tokens = side_sums(each, batch, len(self.factors))
        mean = -sums[:, 0] / tokens[:, 0]
        response = -sums[:, 0] if reduction == "sum" else mean
        if self.loss == "weighted":  # the weight says how much is learnt, not what the loss is
            return response
        own = self.of(each, batch) + self.shares(each.device) * mean
        return torch.where(self.reads(batch) > 0, own, response)


def side_sums(
    each: Float[Tensor, " r"], batch: PackedDocuments, count: int
) -> tuple[Float[Tensor, "count 2"], Float[Tensor, "count 2"]]:
    """Return the log likelihoods of both responses of each document, and their numbers of tokens."""
    place = 2 * batch.owners + batch.sides
    sums = each.new_zeros(2 * count).index_add(0, place, -each)
    return sums.view(count, 2), torch.bincount(place, minlength=2 * count).view(count, 2).to(each)


def mismatched(documents: Documents) -> Documents:
    """Pair each prompt with the response of the document before it, and the first prompt with the last response."""
    count = len(documents)
    found = []
    for row in range(count):
        start, before = int(documents.starts[row]), (row - 1) % count
        response = documents.sequence(before)[documents.starts[before] :]
        found.append((np.concatenate([documents.sequence(row)[:start], response]), start))
    return Documents.of(found)


Refer: TypeAlias = Callable[[Documents], Float64[np.ndarray, "n 2"]]
"""Function that returns the log likelihoods of both responses of each document before the fine-tune."""


IDLE = "airrep_idle"
"""Attribute of a model: names of linear maps that it never calls, since it multiplies with their weights itself."""

_PIECE = 2**20
"""Logits that are worked on at once: few enough for a processor's cache."""

_SIGNS = ("DefaultCPUAllocator", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")
"""Words of an error that say memory is short."""


@dataclass(frozen=True, slots=True)
class Execution:
    """Device, precision and batches of an LM; they change results only by rounding."""

    device: str
    """A device of torch, such as ``"cpu"``."""
    precision: ResolvedPrecision
    """Type of matrix products; weights stay as they are."""
    batch_tokens: int
    """Tokens of a micro-batch."""
    padding: int
    """Most free places in one call of attention; see :meth:`PackedDocuments.from_batch`."""

    def autocast(self) -> AbstractContextManager[object]:
        """Run matrix products in :attr:`precision` inside the context."""
        return autocast(self.precision, self.device)


def token_losses(model: Any, batch: PackedDocuments) -> Float[Tensor, " r"]:
    """Return the cross-entropy of each response token given all tokens before it, in nats; see :func:`token_logits`.

    It can be differentiated once.
    """
    return losses_of(token_logits(model, batch), batch.targets)


def losses_of(logits: Float[Tensor, "r v"], targets: Int64[Tensor, " r"]) -> Float[Tensor, " r"]:
    """Return the cross-entropy of each row of logits, in nats; it overwrites them, and can be differentiated once."""
    losses: Tensor = _CrossEntropy.apply(logits, targets)  # type: ignore[no-untyped-call]
    return losses


class _CrossEntropy(torch.autograd.Function):
    """Cross-entropy of logits in their own memory, which then holds probabilities, and at last the gradient.

    torch's own holds three more copies of the logits. With a large vocabulary, these need more memory than all layers.
    """

    @staticmethod
    def forward(ctx: Any, logits: Float[Tensor, "r v"], targets: Int64[Tensor, " r"]) -> Float[Tensor, " r"]:
        rows, losses = logits.detach(), logits.new_empty(len(logits))
        step = max(1, _PIECE // rows.shape[1])
        for part, own, found in zip(rows.split(step), targets.split(step), losses.split(step), strict=True):
            part.sub_(part.amax(dim=1, keepdim=True))
            chosen = part.gather(1, own[:, None])
            total = part.exp_().sum(dim=1, keepdim=True)
            part.div_(total)
            torch.sub(total.log(), chosen, out=found[:, None])
        ctx.save_for_backward(rows, targets)
        return losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, factors: Float[Tensor, " r"]) -> tuple[Float[Tensor, "r v"], None]:
        rows, targets = ctx.saved_tensors
        rows.mul_(factors[:, None]).scatter_add_(1, targets[:, None], -factors[:, None])
        return rows, None


def token_logits(model: Any, batch: PackedDocuments) -> Float[Tensor, "r v"]:
    """Return the logits for each response token given all tokens before it, float32 or float64.

    A model with the attention of :mod:`airrep.lm.attention` reads a packed batch; other models read one document.
    """
    keeps_few = "logits_to_keep" in inspect.signature(model.forward).parameters
    keep = {"logits_to_keep": batch.predictors} if keeps_few else {}
    with without_cudnn():
        logits: Tensor = _run(model, **_inputs(model, batch), **keep).logits.squeeze(0)  # indexing would copy gradients
    rows = logits if len(logits) == len(batch.predictors) else logits[batch.predictors]  # if all are given
    return rows.to(torch.promote_types(logits.dtype, torch.float32))


def _run(model: Any, **inputs: Any) -> Any:
    """Run one forward pass; turn errors of the LM's own code into a one-line ConfigError."""
    try:
        return model(**inputs)
    except AirRepError:
        raise
    except Exception as error:
        if _tells_of_memory(error):
            raise
        raise ConfigError(
            f"lm {model.name_or_path}: a {type(model).__name__} cannot be run: {type(error).__name__}: "
            f"{first_line(error)}. Correct its files, or give another LM."
        ) from error


def _inputs(model: Any, batch: PackedDocuments) -> dict[str, Any]:
    """Inputs of a forward pass; for documents read one at a time, the usual inputs of transformers."""
    inputs = {"input_ids": batch.ids, "use_cache": False}
    if reads_packed(model):
        return inputs | {"position_ids": batch.positions, "spans": batch.spans}
    if sum(span.sequences for span in batch.spans) != 1:
        raise ValueError(
            "this model reads one document at a time, but the batch has several. Pass one document a batch."
        )
    return inputs


@contextmanager
def idle_maps_noted(model: Any) -> Iterator[None]:
    """Record, as :data:`IDLE`, the linear maps that do not map each input vector to one output in the context."""
    from transformers.pytorch_utils import Conv1D

    maps = {name: each for name, each in model.named_modules() if isinstance(each, torch.nn.Linear | Conv1D)}
    ran: set[torch.nn.Module] = set()

    def note(module: torch.nn.Module, inputs: tuple[Any, ...], outputs: Any) -> None:
        width = module.out_features if isinstance(module, torch.nn.Linear) else module.nf
        if isinstance(outputs, Tensor) and outputs.shape == (*inputs[0].shape[:-1], width):  # a router returns more
            ran.add(module)

    hooks = [each.register_forward_hook(note) for each in maps.values()]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
    setattr(model, IDLE, frozenset(name for name, each in maps.items() if each not in ran))


def last_states(model: Any, batch: PackedDocuments) -> Float[Tensor, "t h"]:
    """Return the last hidden state of each token, after the final norm."""
    with without_cudnn():
        states: Tensor = model.base_model(**_inputs(model, batch)).last_hidden_state
    return states[0]


def hidden_states(model: Any, batch: PackedDocuments, layer: int, name: str) -> Float[Tensor, "t h"]:
    """Return the hidden state of each token after a layer; later layers are not computed.

    Layer -1 is the last one, after the final norm; 0 is the embeddings; k is the output of layer k. The last layer's
    number means the same as -1, as in transformers.
    """
    if layer == -1:
        return last_states(model, batch)
    blocks = _blocks(model, name)
    count = len(blocks)
    if not 0 <= layer <= count:
        raise ConfigError(
            f"lm {name}: layer is {layer}, but the LM has {many(count, 'layer')}. Choose -1 (the last layer), 0 (the "
            f"embeddings), or 1 to {count}."
        )
    if layer == count:
        return last_states(model, batch)
    # A layer's input is the output of the layer before; only an exception ends a forward pass early.
    hook = blocks[layer].register_forward_pre_hook(_stop, with_kwargs=True)
    try:
        last_states(model, batch)
    except _ReachedError as reached:
        return reached.states[0]
    finally:
        hook.remove()
    raise ConfigError(f"lm {name}: the LM never runs layer {layer}. Use layer=-1 (the last layer).")


class _ReachedError(Exception):
    """Ends a forward pass where its hidden states are known."""

    def __init__(self, states: Tensor) -> None:
        super().__init__()
        self.states = states


def _stop(_module: torch.nn.Module, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
    """End the forward pass with the input of a layer."""
    raise _ReachedError(positional[0] if positional else named["hidden_states"])


def _blocks(model: Any, name: str) -> torch.nn.ModuleList:
    count = getattr(model.config, "num_hidden_layers", None)
    for module in model.base_model.modules():
        if isinstance(module, torch.nn.ModuleList) and len(module) == count:
            return module
    raise ConfigError(f"lm {name}: airrep cannot find the layers of a {type(model).__name__}. Use layer=-1 (the last).")


def recompute_activations(model: Any, name: str) -> None:
    """Keep no activations inside layers while training; the backward pass makes them again."""
    newer = getattr(model, "activation_checkpointing_enable", None)  # the older name is deprecated
    enable = model.gradient_checkpointing_enable if newer is None else newer
    try:
        enable({"use_reentrant": False})
    except ValueError as error:
        raise ConfigError(f"lm {name}: cannot recompute activations. Use checkpointing=false.") from error


@contextmanager
def memory_named(what: str, advice: str = "Lower batch_tokens.") -> Iterator[None]:
    """Turn a lack of memory into a one-line TrainingError, which ends with what to do."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:  # a lack of device memory is a RuntimeError
        if not _tells_of_memory(error):
            raise
        raise TrainingError(f"{what}: memory is short. {advice}") from error


def _tells_of_memory(error: Exception) -> bool:
    kinds = (torch.OutOfMemoryError, MemoryError)
    return isinstance(error, kinds) or any(sign in str(error) for sign in _SIGNS)


def generate(
    model: Any, prompts: Sequence[Sequence[int]], stops: Sequence[int], new_tokens: int, batch_prompts: int
) -> list[list[int]]:
    """Return the token ids of greedy answers, at most *new_tokens* each, without the token of *stops* that ends them.

    Every prompt must have at least one token; *batch_prompts* prompts at a time limit memory.
    """
    from transformers import GenerationConfig

    answers: list[list[int]] = [[] for _ in prompts]
    order = np.argsort([-len(prompt) for prompt in prompts], kind="stable")
    # transformers takes what a call does not set, such as a repetition penalty or beams, from the model's settings.
    own, model.generation_config = model.generation_config, GenerationConfig()
    try:
        with library_attention(model):
            for first in range(0, len(order), batch_prompts):
                rows = order[first : first + batch_prompts]
                found = _answer(model, [prompts[row] for row in rows], stops, new_tokens)
                for row, answer in zip(rows, found, strict=True):
                    answers[row] = answer
    finally:
        model.generation_config = own
    return answers


def _answer(model: Any, prompts: list[Sequence[int]], stops: Sequence[int], new_tokens: int) -> list[list[int]]:
    """Answer prompts together: padded at the front, the padding masked."""
    from transformers import GenerationConfig

    longest = max(map(len, prompts))
    ids: Rows = np.zeros((len(prompts), longest), np.int64)
    mask = np.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = prompt
        mask[row, longest - len(prompt) :] = 1
    greedy = GenerationConfig(  # padding is masked, so any token will do for it
        do_sample=False, max_new_tokens=new_tokens, eos_token_id=list(stops) or None, pad_token_id=0, use_cache=True
    )
    found = model.generate(
        input_ids=torch.from_numpy(ids).to(model.device),
        attention_mask=torch.from_numpy(mask).to(model.device),
        generation_config=greedy,
    )
    return [list(takewhile(lambda token: token not in stops, answer)) for answer in found[:, longest:].tolist()]


@dataclass(frozen=True, slots=True)
class FineTuneReport:
    """Record of a fine-tune."""

    steps: int
    """Optimizer steps."""
    loss_per_step: tuple[float, ...]
    """Loss of each step's examples before the step, mean nats per response token."""


@dataclass(frozen=True, slots=True)
class StepDone:
    """One optimizer step of a fine-tune, just taken."""

    step: int
    """Number of the step, from 1, of all *steps*."""
    steps: int
    loss: float
    """Loss of the step's examples before the step, mean nats per response token."""
    rate: float
    optimizer: torch.optim.AdamW
    """The optimizer, with the moments of each weight."""


OnStep: TypeAlias = Callable[[StepDone], None]
"""Function that is called after each step, with the weights as the step left them."""


def fine_tune(
    model: Any,
    documents: Documents,
    settings: FineTuneSettings,
    seed: int,
    execution: Execution,
    on_step: OnStep | None = None,
    goals: Sequence["Goal"] | None = None,
) -> FineTuneReport:
    """Train all weights that require a gradient, in place, with AdamW.

    A step lowers L = (1 / R) Σ ℓ over the R response tokens of its examples, as transformers does, or the loss that
    *goals* has for the step. Gradients are summed over micro-batches, whose number changes them only by rounding. The
    seed decides the order of examples.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    rate, decay = settings.learning_rate, settings.weight_decay
    optimizer = torch.optim.AdamW(
        parameters, lr=rate, betas=settings.betas, eps=settings.epsilon, weight_decay=decay, fused=True
    )
    orders = list(order_of(len(documents), settings, seed))
    if not any(settings.rate_at(step, len(orders)) for step in range(len(orders))):
        raise ConfigError(
            f"fine-tune: warmup_steps={settings.warmup_steps} keeps the learning rate at 0 for the whole "
            f"fine-tune of {many(len(orders), 'step')}. Lower warmup_steps, or train for more steps."
        )
    losses: list[float] = []
    for step, (rows, goal) in enumerate(zip(orders, goals or repeat(None, len(orders)), strict=True)):
        rate = settings.rate_at(step, len(orders))
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = accumulate(model, documents.take(rows), execution, goal)
        norm = torch.nn.utils.clip_grad_norm_(parameters, settings.clip or math.inf)
        losses.append(_finite(loss, norm, step + 1))
        optimizer.step()
        optimizer.zero_grad()
        if on_step is not None:
            on_step(StepDone(step + 1, len(orders), losses[-1], rate, optimizer))
    return FineTuneReport(len(orders), tuple(losses))


def order_of(count: int, settings: FineTuneSettings, seed: int) -> Iterator[Rows]:
    """Yield the rows of each step's examples; every epoch has its own permutation, drawn from *seed*."""
    for epoch in range(settings.epochs):
        order = stream(seed, "order", epoch).permutation(count)
        for first in range(0, count, settings.batch_examples):
            yield order[first : first + settings.batch_examples]


class Goal(NamedTuple):
    """The loss that one step of a fine-tune on preferences lowers."""

    preference: Preference
    mixed: Documents | None
    """Mismatched documents, from which KTO computes z; None for other losses."""
    before: Float64[np.ndarray, "n 2"] | None
    """Log likelihoods of *mixed* before the fine-tune."""


def goals_of(
    documents: Documents, settings: FineTuneSettings, seed: int, preference: Preference, refer: Refer
) -> Iterator[Goal]:
    """Yield the loss of each step of :func:`fine_tune`; *refer* is called for the log likelihoods that steps need."""
    if preference.loss in REFERRED:
        preference = replace(preference, reference=refer(documents))
    for rows in order_of(len(documents), settings, seed):
        mixed = mismatched(documents.take(rows)) if preference.loss == "kto" else None
        yield Goal(preference.take(rows), mixed, None if mixed is None else refer(mixed))


def accumulate(model: Any, documents: Documents, execution: Execution, goal: Goal | None = None) -> Tensor:
    """Add the gradient of the mean loss over all response tokens of some documents; return that mean in nats.

    With a *goal*, take its loss, whose preference term is a mean over the documents. With shares, each token's loss is
    multiplied by its share, and the divisor is still the number of response tokens: nothing is learnt of a token of
    share 0, and other tokens weigh as before.
    """
    chosen = documents.response_lengths if documents.borders is None else documents.borders - documents.starts
    tokens, count = int(chosen.sum()), len(documents)
    preference = None if goal is None else goal.preference
    if goal is not None and goal.mixed is not None and goal.before is not None:
        with torch.no_grad():
            gains = likelihoods(model, goal.mixed, execution) - goal.before
        preference = replace(goal.preference, drift=max(0.0, float(gains[:, 0].mean())))
    total = torch.zeros((), device=execution.device)
    for batch in pack(documents.lengths, execution.batch_tokens):
        packed = PackedDocuments.from_batch(documents, batch, execution.device, execution.padding)
        with execution.autocast():
            each = token_losses(model, packed)
        if preference is None:
            loss = (each if packed.shares is None else each * packed.shares).sum() / tokens
        else:
            own = preference.take(batch.rows)
            sums, _ = side_sums(each, packed, len(batch.rows))
            loss = own.of(each, packed).sum() / count - (own.shares(each.device) * sums[:, 0]).sum() / tokens
        torch.autograd.backward(loss)
        total += loss.detach()
    return total


def likelihoods(model: Any, documents: Documents, execution: Execution) -> Float64[np.ndarray, "n 2"]:
    """Return the log likelihood of each document's response and rejected response (0 without one), in nats."""
    found = np.zeros((len(documents), 2))
    for batch in pack(documents.lengths, execution.batch_tokens):
        packed = PackedDocuments.from_batch(documents, batch, execution.device, execution.padding)
        with execution.autocast():
            each = token_losses(model, packed)
        found[batch.rows] = side_sums(each.double(), packed, len(batch.rows))[0].detach().cpu().numpy()
    return found


def _finite(loss: Tensor, norm: Tensor, step: int) -> float:
    """Return the loss of a step, counted from 1, as a number; TrainingError if loss or gradient is not finite."""
    # One transfer from the device for both.
    found, length = torch.stack([loss.double(), norm.double()]).tolist()
    if not np.isfinite(found + length):
        what = "loss" if not math.isfinite(found) else "gradient"
        raise TrainingError(
            f"fine-tune, step {step}: the {what} is not finite. Lower learning_rate, or use precision=float32."
        )
    return float(found)
