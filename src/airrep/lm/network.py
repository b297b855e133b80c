"""Passes of a causal LM over packed documents: losses, fine-tunes, hidden states, answers.

For a pair of responses c and r to one prompt, with Δ = log p − log p of the LM before the fine-tune:

* ``dpo``: −log σ(β(Δ(c) − Δ(r))) (Rafailov et al. 2023, Eq. 7); what stands in σ is the pair's margin.
* ``orpo``: −log p(c)/|c| − β log σ(log odds(c) − log odds(r)) (Hong et al. 2024, Eq. 6), the odds p/(1 − p) being those
  of the mean log likelihood of a token. No LM before is needed.
* ``kto``: 1 − σ(±β(Δ(y) − z)) of one response, + if it is wanted, − if not (Ethayarajh et al. 2024, Eq. 8). z is the
  mean Δ of mismatched prompts and responses of the optimizer step, 0 at least, and no gradient passes through it.
* ``weighted``: the loss of the response, times the example's weight; with advantages, GRPO's gradient of a policy.

A step lowers the mean over its examples, but for log likelihoods, which are a mean over all response tokens of the
step, as in a fine-tune on responses. So do trl's trainers, but that theirs of ORPO counts the prompt's tokens too.
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
from torch.nn import functional

from airrep.arrays import Rows
from airrep.errors import AirRepError, ConfigError, TrainingError, first_line
from airrep.lm.attention import PackedDocuments, library_attention, reads_packed
from airrep.lm.documents import PAIRED, REFERRED, Documents
from airrep.lm.settings import FineTuneSettings, LossName
from airrep.runtime.devices import ResolvedPrecision, autocast, without_cudnn
from airrep.runtime.packing import pack
from airrep.runtime.seeding import stream
from airrep.shapes import Float, Float64


@dataclass(frozen=True, eq=False)
class Preference:
    """A loss of preferences, and what it needs to know of some documents beside their tokens."""

    loss: LossName
    beta: float
    factors: Float64[np.ndarray, " n"]
    """As of :func:`factor_of`."""
    reference: Float64[np.ndarray, "n 2"] | None = None
    """Log likelihoods of both responses under the LM before the fine-tune; None: those that the LM gives now."""
    drift: float = 0.0
    """z of KTO."""

    def take(self, rows: Rows) -> Self:
        """That of some documents."""
        reference = None if self.reference is None else self.reference[rows]
        return replace(self, factors=self.factors[rows], reference=reference)

    def reads(self, batch: PackedDocuments) -> Float[Tensor, " count"]:
        """1 for each document that has what the loss reads, 0 for those whose response alone is asked about."""
        factors = torch.from_numpy(np.isfinite(self.factors)).to(batch.ids.device)
        if self.loss not in PAIRED:
            return factors.float()
        return torch.bincount(batch.owners, batch.sides.float(), len(factors)).gt(0).float()

    def of(self, each: Float[Tensor, " r"], batch: PackedDocuments) -> Float[Tensor, " count"]:
        """The part of each document's loss that is no log likelihood; *each* are losses of its response tokens."""
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
        """How much of each document's negative log likelihood, a token's mean, is in its loss."""
        plain = {"orpo": np.ones_like(self.factors), "weighted": np.nan_to_num(self.factors)}
        return torch.from_numpy(plain.get(self.loss, np.zeros_like(self.factors))).float().to(device)

    def whole(
        self, each: Float[Tensor, " r"], batch: PackedDocuments, reduction: Literal["mean", "sum"] = "mean"
    ) -> Float[Tensor, " count"]:
        """The loss of each document by itself; of one that lacks what the loss reads, that of its response.

        The latter is the mean, or sum, over tokens.
        """
        sums, tokens = side_sums(each, batch, len(self.factors))
        mean = -sums[:, 0] / tokens[:, 0]
        response = -sums[:, 0] if reduction == "sum" else mean
        if self.loss == "weighted":  # a weight is the example's, not a part of what is asked about
            return response
        own = self.of(each, batch) + self.shares(each.device) * mean
        return torch.where(self.reads(batch) > 0, own, response)


def side_sums(
    each: Float[Tensor, " r"], batch: PackedDocuments, count: int
) -> tuple[Float[Tensor, "count 2"], Float[Tensor, "count 2"]]:
    """Log likelihood of both responses of each document, and their tokens."""
    place = 2 * batch.owners + batch.sides
    sums = each.new_zeros(2 * count).index_add(0, place, -each)
    return sums.view(count, 2), torch.bincount(place, minlength=2 * count).view(count, 2).to(each)


def drift_of(now: Float64[np.ndarray, "n 2"], before: Float64[np.ndarray, "n 2"]) -> float:
    """z of KTO: the mean gain of mismatched responses, 0 at least."""
    return max(0.0, float((now - before)[:, 0].mean()))


def mismatched(documents: Documents) -> Documents:
    """Each prompt with the response of the document before, the first with that of the last."""
    count = len(documents)
    found = []
    for row in range(count):
        start, before = int(documents.starts[row]), (row - 1) % count
        response = documents.sequence(before)[documents.starts[before] :]
        found.append((np.concatenate([documents.sequence(row)[:start], response]), start))
    return Documents.of(found)


Refer: TypeAlias = Callable[[Documents], Float64[np.ndarray, "n 2"]]
"""Log likelihoods of both responses of each document under the LM before the fine-tune."""


IDLE = "airrep_idle"
"""Attribute of a model: names of linear maps that it does not run as such, but multiplies with their weights itself."""

_SIGNS = ("DefaultCPUAllocator", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")
"""Words of an error that say memory is short."""


@dataclass(frozen=True, slots=True)
class Execution:
    """Device, precision and batches of an LM: none of them changes results beyond rounding."""

    device: str
    """A device of torch, such as ``"cpu"``."""
    precision: ResolvedPrecision
    """Type of matrix products; weights stay as they are."""
    batch_tokens: int
    """Tokens of a micro-batch."""
    padding: int
    """Free places that one call of attention may have."""

    def autocast(self) -> AbstractContextManager[object]:
        """Run matrix products in the precision."""
        return autocast(self.precision, self.device)


def token_losses(model: Any, batch: PackedDocuments) -> Float[Tensor, " r"]:
    """Cross-entropy of each response token given all before it, in nats; arguments as for :func:`token_logits`."""
    return functional.cross_entropy(token_logits(model, batch), batch.targets, reduction="none")


def token_logits(model: Any, batch: PackedDocuments) -> Float[Tensor, "r v"]:
    """Logits of each response token given all before it, float32 or float64.

    A model with the attention of :mod:`airrep.lm.attention` reads a packed batch; another reads one document.
    """
    keeps_few = "logits_to_keep" in inspect.signature(model.forward).parameters
    keep = {"logits_to_keep": batch.predictors} if keeps_few else {}
    with without_cudnn():
        logits: Tensor = _run(model, **_inputs(model, batch), **keep).logits[0]
    rows = logits if len(logits) == len(batch.predictors) else logits[batch.predictors]  # of all tokens, or those kept
    return rows.to(torch.promote_types(logits.dtype, torch.float32))


def _run(model: Any, **inputs: Any) -> Any:
    """One forward pass; what the code of the LM itself raises becomes a one-line ConfigError."""
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
        raise ValueError("a model that reads one document at a time was given several")
    return inputs


@contextmanager
def idle_maps_noted(model: Any) -> Iterator[None]:
    """Note which linear maps give no vector of their width for each of theirs in the context, as :data:`IDLE`."""
    from transformers.pytorch_utils import Conv1D

    maps = {name: each for name, each in model.named_modules() if isinstance(each, torch.nn.Linear | Conv1D)}
    ran: set[torch.nn.Module] = set()

    def note(module: torch.nn.Module, inputs: tuple[Any, ...], outputs: Any) -> None:
        width = module.out_features if isinstance(module, torch.nn.Linear) else module.nf
        if isinstance(outputs, Tensor) and outputs.shape == (*inputs[0].shape[:-1], width):  # a router gives more
            ran.add(module)

    hooks = [each.register_forward_hook(note) for each in maps.values()]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
    setattr(model, IDLE, frozenset(name for name, each in maps.items() if each not in ran))


def last_states(model: Any, batch: PackedDocuments) -> Float[Tensor, "t h"]:
    """Last hidden state of each token, behind the final norm."""
    with without_cudnn():
        states: Tensor = model.base_model(**_inputs(model, batch)).last_hidden_state
    return states[0]


def hidden_states(model: Any, batch: PackedDocuments, layer: int, name: str) -> Float[Tensor, "t h"]:
    """Hidden states of each token after a layer; layers above are not computed, and none but the last is kept.

    -1 is the last, behind the final norm; 0 the embeddings; k that behind layer k. The last layer's own number is the
    last too, as transformers counts.
    """
    if layer == -1:
        return last_states(model, batch)
    blocks = _blocks(model, name)
    count = len(blocks)
    if not 0 <= layer <= count:
        raise ConfigError(
            f"lm {name}: layer is {layer}, but the LM has {count} layers. Choose a layer from -1 (the last) to {count}."
        )
    if layer == count:
        return last_states(model, batch)
    # The layer's input is what the layer before gives; an exception is the only way out of a forward pass.
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
    """End the forward pass with what a layer is given."""
    raise _ReachedError(positional[0] if positional else named["hidden_states"])


def _blocks(model: Any, name: str) -> torch.nn.ModuleList:
    """The layers of an LM, first to last."""
    count = getattr(model.config, "num_hidden_layers", None)
    for module in model.base_model.modules():
        if isinstance(module, torch.nn.ModuleList) and len(module) == count:
            return module
    raise ConfigError(f"lm {name}: airrep cannot find the layers of a {type(model).__name__}. Use layer=-1 (the last).")


def recompute_activations(model: Any, name: str) -> None:
    """Keep no activations inside layers while training; the backward pass makes them again."""
    newer = getattr(model, "activation_checkpointing_enable", None)  # the older name is going away
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
    except (MemoryError, RuntimeError) as error:  # a lack of the device's is a RuntimeError
        if not _tells_of_memory(error):
            raise
        raise TrainingError(f"{what}: memory is short. {advice}") from error


def _tells_of_memory(error: Exception) -> bool:
    kinds = (torch.OutOfMemoryError, MemoryError)
    return isinstance(error, kinds) or any(sign in str(error) for sign in _SIGNS)


def generate(
    model: Any, prompts: Sequence[Sequence[int]], stops: Sequence[int], new_tokens: int, batch_prompts: int
) -> list[list[int]]:
    """Token ids of the most likely next tokens, one after the other (greedy), without the token of *stops* at the end.

    Every prompt has a token at least; *batch_prompts* at a time bound memory.
    """
    from transformers import GenerationConfig

    answers: list[list[int]] = [[] for _ in prompts]
    order = np.argsort([-len(prompt) for prompt in prompts], kind="stable")
    # transformers fills what a call leaves open with the model's own settings: a repetition penalty, or beams.
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
    """Loss of each step's examples before it, mean nats per response token."""


@dataclass(frozen=True, slots=True)
class StepDone:
    """One optimizer step of a fine-tune, just taken."""

    step: int
    """Number of the step, from 1, of all *steps*."""
    steps: int
    loss: float
    """Loss of the step's examples before it, mean nats per response token."""
    rate: float
    optimizer: torch.optim.AdamW
    """With the moments of each weight."""


OnStep: TypeAlias = Callable[[StepDone], None]
"""Told of each step while the weights are those behind it."""


def fine_tune(
    model: Any,
    documents: Documents,
    settings: FineTuneSettings,
    seed: int,
    execution: Execution,
    on_step: OnStep | None = None,
    goals: Sequence["Goal"] | None = None,
) -> FineTuneReport:
    """Train all weights that ask for a gradient, in place, with AdamW.

    A step lowers L = (1 / R) Σ ℓ over the R response tokens of its examples, as transformers does, or its own of
    *goals*. Its gradient is summed over micro-batches; how many there are changes it by rounding alone. The seed
    decides the order of examples.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    rate, decay = settings.learning_rate, settings.weight_decay
    optimizer = torch.optim.AdamW(
        parameters, lr=rate, betas=settings.betas, eps=settings.epsilon, weight_decay=decay, fused=True
    )
    orders = list(order_of(len(documents), settings, seed))
    if not any(settings.rate_at(step, len(orders)) for step in range(len(orders))):
        raise ConfigError(
            f"fine-tune: warmup_steps={settings.warmup_steps} keeps the learning rate at 0 in all {len(orders)} steps. "
            "Lower warmup_steps, or train for more steps."
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
    """Rows of each step's examples: every epoch a permutation of its own, drawn from *seed*."""
    for epoch in range(settings.epochs):
        order = stream(seed, "order", epoch).permutation(count)
        for first in range(0, count, settings.batch_examples):
            yield order[first : first + settings.batch_examples]


class Goal(NamedTuple):
    """The loss that one step of a fine-tune on preferences lowers."""

    preference: Preference
    mixed: Documents | None
    """Mismatched documents, of which KTO takes its z."""
    before: Float64[np.ndarray, "n 2"] | None
    """Their log likelihoods before the fine-tune."""


def goals_of(
    documents: Documents, settings: FineTuneSettings, seed: int, preference: Preference, refer: Refer
) -> Iterator[Goal]:
    """Return what each step of :func:`fine_tune` lowers; *refer* is asked here for all that the LM before it says."""
    if preference.loss in REFERRED:
        preference = replace(preference, reference=refer(documents))
    for rows in order_of(len(documents), settings, seed):
        mixed = mismatched(documents.take(rows)) if preference.loss == "kto" else None
        yield Goal(preference.take(rows), mixed, None if mixed is None else refer(mixed))


def accumulate(model: Any, documents: Documents, execution: Execution, goal: Goal | None = None) -> Tensor:
    """Add to the gradients that of the mean loss over all response tokens of some documents; return that mean, nats.

    With a *goal* it is the loss of that, whose preferences are a mean over the documents. Where documents have shares,
    a token's loss counts by its share, and the divisor stays that of all: nothing is learnt of a token of share 0, and
    the others weigh as before.
    """
    chosen = documents.response_lengths if documents.borders is None else documents.borders - documents.starts
    tokens, count = int(chosen.sum()), len(documents)
    preference = None if goal is None else goal.preference
    if goal is not None and goal.mixed is not None and goal.before is not None:
        with torch.no_grad():
            now = likelihoods(model, goal.mixed, execution)
        preference = replace(goal.preference, drift=drift_of(now, goal.before))
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
    """Log likelihood of the response of each document, and of the rejected one of a pair, in nats; 0 without one."""
    found = np.zeros((len(documents), 2))
    for batch in pack(documents.lengths, execution.batch_tokens):
        packed = PackedDocuments.from_batch(documents, batch, execution.device, execution.padding)
        with execution.autocast():
            each = token_losses(model, packed)
        found[batch.rows] = side_sums(each.double(), packed, len(batch.rows))[0].detach().cpu().numpy()
    return found


def _finite(loss: Tensor, norm: Tensor, step: int) -> float:
    """The loss of a step, counted from 1, as a number; refuses one that is not finite, and such a gradient."""
    # One transfer from the device for both.
    found, length = torch.stack([loss.double(), norm.double()]).tolist()
    if not np.isfinite(found + length):
        what = "loss" if not math.isfinite(found) else "gradient"
        raise TrainingError(
            f"fine-tune, step {step}: the {what} is not finite. Lower learning_rate, or use precision=float32."
        )
    return float(found)
