"""Attribution by differentiating through a whole fine-tune with AdamW."""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from airrep.arrays import Rows
from airrep.attributors.direct import QueryScorer
from airrep.attributors.gradient.run.warmed import ReadsWarmup
from airrep.attributors.gradient.store import QUERY_NUMBERS, ScoresByParts, ScoreStore, store_folder, with_key
from airrep.attributors.settings import MetagradientSettings
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import ConfigError, first_line
from airrep.lm.attention import PackedDocuments
from airrep.lm.documents import Documents
from airrep.lm.model import TargetLM
from airrep.lm.network import accumulate, order_of, token_logits
from airrep.lm.settings import FineTuneSettings
from airrep.lm.warmup import sample_rows
from airrep.runtime.artifacts import json_digest
from airrep.runtime.metering import OnProgress
from airrep.runtime.packing import pack
from airrep.runtime.seeding import stream, stream_seed
from airrep.scoring.pooling import Pool
from airrep.shapes import Float32, Float64

NORM_EPSILON = 1e-6
"""``clip_grad_norm_`` of torch adds this to the norm of the gradients before dividing by it."""


class AdamState(NamedTuple):
    """Weights between two steps, and Adam's moments: three lists with a tensor for each parameter, of its shape."""

    weights: list[Tensor]
    first: list[Tensor]
    second: list[Tensor]

    @classmethod
    def zeros(cls, weights: Sequence[Tensor]) -> "AdamState":
        """Return a state of zeros with the shapes of the weights."""
        return cls(*([torch.zeros_like(each) for each in weights] for _ in range(3)))


class AdamStep(NamedTuple):
    """Everything that decides one step, except the state and the gradients."""

    settings: FineTuneSettings
    number: int
    """Counted from 0."""
    rate: float

    @property
    def _corrections(self) -> tuple[float, float]:
        """1 − β₁ᵗ and 1 − β₂ᵗ, by which moments are divided."""
        one, two = (1 - beta ** (self.number + 1) for beta in self.settings.betas)
        return one, two

    def _clipped(self, gradients: Sequence[Tensor]) -> tuple[float, float]:
        """Return the norm of all gradients together, and the factor that clipping multiplies them by."""
        norm = float(torch.stack([each.norm() for each in gradients]).norm())
        most = self.settings.clip
        return norm, 1.0 if most is None else min(1.0, most / (norm + NORM_EPSILON))

    def forward(self, state: AdamState, gradients: Sequence[Tensor]) -> None:
        """Take the step, in place, as :class:`torch.optim.AdamW` does after ``clip_grad_norm_``."""
        chosen, (one, two) = self.settings, self._corrections
        _, scale = self._clipped(gradients)
        for weight, first, second, gradient in zip(*state, gradients, strict=True):
            scaled = gradient * scale
            weight.mul_(1 - self.rate * chosen.weight_decay)
            first.lerp_(scaled, 1 - chosen.betas[0])
            second.mul_(chosen.betas[1]).addcmul_(scaled, scaled, value=1 - chosen.betas[1])
            weight.addcdiv_(first, (second / two).sqrt_().add_(chosen.epsilon), value=-self.rate / one)

    def back(self, adjoint: AdamState, before: AdamState, gradients: Sequence[Tensor]) -> list[Tensor]:
        """Propagate an adjoint back through the step, in place: from ∂L/∂(state after) to ∂L/∂(state before).

        Returns λ = ∂L/∂g for the step's gradients g. As g depends on the weights θ, the caller must still add λᵀ ∂g/∂θ
        to the adjoint of the weights. Where all gradients so far were zero, ∂/∂v is taken as 0.
        """
        chosen, (one, two) = self.settings, self._corrections
        (beta, gamma), (norm, scale) = chosen.betas, self._clipped(gradients)
        found: list[Tensor] = []
        for moved, first, second, m, v, gradient in zip(*adjoint, *before[1:], gradients, strict=True):
            scaled = gradient * scale
            m = m.lerp(scaled, 1 - beta)
            root = (v * gamma).addcmul_(scaled, scaled, value=1 - gamma).div_(two).sqrt_()
            under = root + chosen.epsilon
            step = moved * (self.rate / one)
            first.sub_(step / under)
            by_root = step * m / (under * under) / (2 * two * root)
            second.add_(torch.where(root > 0, by_root, 0.0))
            found.append(first * (1 - beta) + second * scaled * (2 * (1 - gamma)))
            first.mul_(beta)
            second.mul_(gamma)
            moved.mul_(1 - self.rate * chosen.weight_decay)
        if scale == 1.0:
            return found
        # ∂L/∂g from ∂L/∂(clipped gradients): the clipped g c / (|g| + ε) also depends on |g|
        along = float(torch.stack([(one * g).sum() for one, g in zip(found, gradients, strict=True)]).sum())
        share = along * scale / (norm * (norm + NORM_EPSILON))
        return [one * scale - g * share for one, g in zip(found, gradients, strict=True)]


ADJOINTS = 4
"""Tensors as large as the trained weights that are held for each query: three of its adjoint, and λ."""

ONCE = ("derivative for", "double backward", "differentiate twice")
"""Words in torch's errors for an operation without a second derivative."""


class _Taken(NamedTuple):
    """A step, the state before it and its gradients."""

    step: AdamStep
    rows: Rows
    """Examples of the step's batch."""
    guests: Rows
    """Examples outside the fine-tune whose slopes are computed at this step."""
    before: AdamState
    gradients: list[Tensor]


class Replay:
    """A fine-tune of an LM, repeated: θ₀ → θ₁ → … → θ_T by AdamW, and then differentiated from end to start.

    With weight w_z of example z, step t lowers L_t = Σ_z w_z ℓ_z / R_t over its batch, R_t being the number of response
    tokens in the batch. The influence of z on a query's loss ℓ_x(θ_T) is −∂ℓ_x/∂w_z at w = 1. To first order, the loss
    rises by it if z is left out, with the effects on all later steps. It is computed by reverse-mode differentiation
    through the run, with one adjoint for each query, as large as weights and moments (Maclaurin et al. 2015; MAGIC,
    arXiv 2504.16430). Each step needs a product with the Hessian of L_t, and so a second backward pass.

    An example outside the run has a slope too, at w = 0: it joins one random step t. With |B_t| of the run's n
    examples in step t, it counts T |B_t| / n times there, which in the mean of draws is one batch in each epoch.

    States are stored on disk at every ⌈√T⌉th step; the states between are computed again when they are needed.
    """

    def __init__(
        self, lm: TargetLM, documents: Documents, settings: FineTuneSettings, seed: int, members: Rows | None = None
    ) -> None:
        """Take the LM before the fine-tune; *seed* is that of :meth:`TargetLM.fine_tune`.

        *members* are the rows of the documents in the fine-tune, ascending; None: all.
        """
        self._lm, self._documents, self._settings, self._seed = lm, documents, settings, seed
        self._members = np.arange(len(documents)) if members is None else members
        orders = list(order_of(len(self._members), settings, seed))
        self._steps = [
            (AdamStep(settings, number, settings.rate_at(number, len(orders))), self._members[rows])
            for number, rows in enumerate(orders)
        ]
        others = np.setdiff1d(np.arange(len(documents)), self._members)
        turns = stream(seed, "guests").permutation(len(others)) % max(1, len(orders))
        self._guests = [others[turns == number] for number in range(len(orders))]

    @torch.inference_mode(False)
    def influence(self, queries: Documents) -> Float64[np.ndarray, "n q"]:
        """Return the influence of each training example on each query's loss, in nats; higher = more helpful.

        ConfigError: the LM's code has no second derivative.
        """
        lm, found = self._lm, np.zeros((len(self._documents), len(queries)))
        try:
            with (
                lm.training(self._settings, self._seed),
                sdpa_kernel(SDPBackend.MATH),  # its backward pass can be differentiated
                TemporaryDirectory(prefix="airrep-run-") as folder,
            ):
                parameters = [each for each in lm.model.parameters() if each.requires_grad]
                states = _States(Path(folder), math.ceil(math.sqrt(len(self._steps))), lm.execution.device)
                self._forward(parameters, states)
                ends = [self._gradients(parameters, queries.take([row])) for row in range(len(queries))]
                adjoints = [AdamState.zeros(parameters)._replace(weights=end) for end in ends]  # after the last step
                for taken in self._backward(parameters, states):
                    for rows, slopes in self._back(parameters, taken, adjoints):
                        found[rows] -= slopes
                _put(parameters, states.read(len(self._steps))[0])
        finally:
            lm.reset()
        return found

    def _forward(self, parameters: list[Tensor], states: "_States") -> None:
        """Repeat the fine-tune; store the first state of each stretch, and the last state."""
        state = AdamState.zeros(parameters)._replace(weights=[each.data for each in parameters])
        for step, rows in self._steps:
            if step.number % states.stride == 0:
                states.keep(step.number, state)
            step.forward(state, self._gradients(parameters, self._documents.take(rows)))
        states.keep(len(self._steps), state)

    def _backward(self, parameters: list[Tensor], states: "_States") -> Iterator[_Taken]:
        """Yield the steps from the last to the first; the LM then has the weights before the step."""
        for first in reversed(range(0, len(self._steps), states.stride)):
            stretch = self._steps[first : first + states.stride]
            state, _ = states.read(first)
            _put(parameters, state)
            state = state._replace(weights=[each.data for each in parameters])
            for step, rows in stretch:
                gradients = self._gradients(parameters, self._documents.take(rows))
                states.keep(step.number, state, gradients)
                step.forward(state, gradients)
            for step, rows in reversed(stretch):
                before, gradients = states.read(step.number)
                _put(parameters, before)
                yield _Taken(step, rows, self._guests[step.number], before, gradients)

    def _gradients(self, parameters: list[Tensor], documents: Documents) -> list[Tensor]:
        """Return gradients of the mean loss over all response tokens; zeros for unused parameters."""
        accumulate(self._lm.model, documents, self._lm.execution)
        found = [torch.zeros_like(each) if each.grad is None else each.grad for each in parameters]
        for each in parameters:
            each.grad = None
        return found

    def _back(
        self, parameters: list[Tensor], taken: _Taken, adjoints: Sequence[AdamState]
    ) -> Iterator[tuple[Rows, Float64[np.ndarray, "rows q"]]]:
        """Propagate the adjoints back through a step, in place; yield ∂ℓ_x/∂w_z of its examples and its guests."""
        tokens = float(self._documents.take(taken.rows).response_lengths.sum())
        leads = [taken.step.back(each, taken.before, taken.gradients) for each in adjoints]
        yield taken.rows, self._slopes(parameters, taken.rows, tokens, leads, adjoints)
        if len(taken.guests):
            times = len(self._steps) * len(taken.rows) / len(self._members)
            yield taken.guests, self._slopes(parameters, taken.guests, tokens / times, leads)

    def _slopes(
        self,
        parameters: list[Tensor],
        rows: Rows,
        divisor: float,
        leads: Sequence[list[Tensor]],
        adjoints: Sequence[AdamState] = (),
    ) -> Float64[np.ndarray, "rows q"]:
        """Return λ·∂g/∂w_z of examples, their losses over *divisor*; add λᵀ ∂g/∂θ to *adjoints*, if given."""
        lm, documents = self._lm, self._documents.take(rows)
        found = np.zeros((len(documents), len(leads)))
        for batch in pack(documents.lengths, lm.execution.batch_tokens):
            packed = PackedDocuments.from_batch(documents, batch, lm.execution.device, lm.execution.padding)
            with lm.execution.autocast():
                losses = functional.cross_entropy(token_logits(lm.model, packed), packed.targets, reduction="none")
            weights = torch.ones(len(batch.rows), dtype=losses.dtype, device=losses.device, requires_grad=True)
            loss = (weights[packed.owners] * losses).sum() / divisor
            gradients = torch.autograd.grad(loss, parameters, create_graph=True, allow_unused=True)
            reached = {n: one for n, one in enumerate(gradients) if one is not None and one.requires_grad}
            by = [weights, *parameters] if adjoints else [weights]
            for query, lead in enumerate(leads):
                by_weight, *by_parameters = self._second(list(reached.values()), [lead[n] for n in reached], by)
                found[batch.rows, query] = cast(Tensor, by_weight).double().cpu().numpy()
                if adjoints:
                    for own, more in zip(adjoints[query].weights, by_parameters, strict=True):
                        if more is not None:
                            own.add_(more)
        return found

    def _second(self, gradients: list[Tensor], leads: list[Tensor], by: list[Tensor]) -> Sequence[Tensor | None]:
        """Return the derivatives of Σ λ·g by *by*, None for unused ones (ConfigError: the LM's code has none)."""
        try:
            found = torch.autograd.grad(gradients, by, leads, retain_graph=True, allow_unused=True)
        except RuntimeError as error:
            if not any(words in str(error) for words in ONCE):
                raise
            raise self._once(first_line(error)) from error
        if found[0] is None:
            raise self._once("a function in its code cuts gradients off")
        return found

    def _once(self, why: str) -> ConfigError:
        return ConfigError(f"lm {self._lm.name}: cannot be differentiated twice: {why}. Use another method.")


def _put(parameters: list[Tensor], state: AdamState) -> None:
    with torch.no_grad():
        for parameter, weight in zip(parameters, state.weights, strict=True):
            parameter.copy_(weight)


class _States:
    """States of a fine-tune on disk."""

    def __init__(self, folder: Path, stride: int, device: str) -> None:
        """Use a folder; *stride* is the number of steps from one stored state to the next."""
        self._folder, self.stride, self._device = folder, stride, device

    def keep(self, number: int, state: AdamState, gradients: Sequence[Tensor] = ()) -> None:
        """Write the state before a step, and the step's gradients."""
        parts = {**state._asdict(), "gradients": gradients}
        save_file(
            {f"{part}.{place}": each.contiguous() for part, rows in parts.items() for place, each in enumerate(rows)},
            self._path(number),
        )

    def read(self, number: int) -> tuple[AdamState, list[Tensor]]:
        found = load_file(self._path(number), self._device)
        counts = {name: sum(key.startswith(f"{name}.") for key in found) for name in (*AdamState._fields, "gradients")}
        *state, gradients = ([found[f"{name}.{n}"] for n in range(count)] for name, count in counts.items())
        return AdamState(*state), gradients

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:06}.safetensors"


STEADY = 1e-6
"""Least epsilon of AdamW for which slopes of the first steps also predict larger changes."""
KEYS = "keys"
"""Name of the examples' keys among the arrays that an index stores."""
MEMBERS = "members"
"""Name of the rows of a fine-tune on a sample, among these arrays."""


class MetagradientAttributor(ReadsWarmup[MetagradientSettings], ScoresByParts[MetagradientSettings]):
    """Score = −∂ℓ_x(θ_T)/∂w_z: how a query's loss after a whole fine-tune changes with the weight of an example.

    θ_T are the weights that the warm-up's fine-tune ends with, and w_z multiplies the loss of example z in it. The
    fine-tune is repeated, with its own data, order and seed, and differentiated from end to start: see
    :class:`Replay`. Each copy of a text that the data have several times scores the mean over the copies.

    If the warm-up was on a sample of n of N examples (``count``), w_z is 1 for these and 0 for the others. The effect
    of z is the integral of the slope from w_z = 0 to 1, by the trapezoidal rule the mean of the slopes at both ends. So
    slopes are multiplied by N / 2n in the sample, and by N / 2(N − n) outside it: the mean over samples is this mean.
    """

    name = "metagradient"
    wanted = "is not a warm-up made by airrep. Make one: airrep warmup DATA --lm MODEL --out DIR"
    units = "decrease of the query's loss (nats) per unit of the example's weight in the fine-tune"
    reads_spans = True
    pool: ClassVar[Pool] = "sum"
    _last: tuple[tuple[str, ...], dict[str, np.ndarray]] | None = None

    @property
    def reader(self) -> str:
        return self.lm.fingerprint

    @property
    def fingerprint(self) -> str:
        return json_digest({"method": self.name, "learnt": self.learnt_key})

    @cached_property
    def caution(self) -> str:
        """A warning if epsilon is so small that the first steps follow signs of gradients, whose slope is of no use."""
        if self.warmup.fine_tune.epsilon >= STEADY:
            return ""
        return (
            f"The fine-tune of {self.warmup.path} used AdamW with epsilon {self.warmup.fine_tune.epsilon:.0e}, so its "
            "first steps followed only the signs of gradients. Scores then predict worse. Run: airrep warmup DATA --lm "
            "MODEL --out DIR --set epsilon=1e-5"
        )

    @property
    def _request(self) -> dict[str, Any]:
        """The warm-up's record of all that decides the fine-tune."""
        return self.warmup.manifest["request"]

    @property
    def _seed(self) -> int:
        """The seed of the fine-tune's order."""
        return stream_seed(self._request["seed"], "warm-up")

    def unusable(self, examples: Sequence[Example]) -> Mapping[int, str]:
        """Add, once an index has learnt from the fine-tune's data, examples that were not among these."""
        refused = dict(super().unusable(examples))
        if self._learnt is not None:
            known = {bytes(key).hex() for key in self._learnt[KEYS]}
            others = ((row, one) for row, one in enumerate(examples) if row not in refused)
            refused |= {row: self._unknown(one) for row, one in others if self.lm.key(one) not in known}
        return refused

    def _unknown(self, example: Example) -> str:
        return (
            f"example '{example.id}' was not in the fine-tune of {self.warmup.path}. Run `airrep warmup` on all "
            "data, then build the index again."
        )

    def fit(self, train: Corpus, progress: OnProgress | None = None) -> None:  # noqa: ARG002 - nothing takes long
        """Check that the corpus is the fine-tune's, and keep its tokens.

        ConfigError: the fine-tune was on other data, or its loss is not ``sft``.
        """
        if self.lm.settings.loss != "sft":
            raise ConfigError(
                f"{self.name}: supports only fine-tunes with loss=sft, not loss={self.lm.settings.loss}. Use --recipe "
                "lm"
            )
        super().fit(train)
        if self._request["corpus"] != train.fingerprint:
            raise ConfigError(
                f"{self.name}: {self.warmup.path} was not fine-tuned on exactly these {len(train):,} examples. With "
                "--dry-run, only some examples are read: remove it. Otherwise fine-tune again: airrep warmup DATA "
                "--lm MODEL --out DIR"
            )
        documents = self.lm.tokenise(train)
        keys = np.frombuffer(bytes.fromhex("".join(map(self.lm.key, train))), np.uint8).reshape(len(train), -1)
        arrays = {name: np.asarray(getattr(documents, name)) for name in ("ids", "offsets", "starts")}
        decisive = {"fine_tune": self._request["fine_tune"], "seed": self._request["seed"]}
        if (count := self._request["count"]) is not None:
            arrays[MEMBERS] = sample_rows(train, count, self._request["seed"])
            decisive["count"] = count
        key = json_digest({"run": decisive, "corpus": self.lm.corpus_key(train), "lm": self.lm.fingerprint})
        self.take_learnt(with_key(with_key({**arrays, KEYS: keys}, key), self.reader, "reader"))

    @property
    def at_once(self) -> int:
        weights: int = sum(each.numel() for each in self.lm.model.parameters())
        return min(QUERY_NUMBERS, self.lm.sums) // (ADJOINTS * weights)

    def scorer(self, queries: Sequence[Example]) -> QueryScorer:
        """Return a scorer for some queries (ConfigError, when called: an example is not in the fine-tune's data)."""
        key = json_digest({"scores": self.fingerprint, **self.execution})
        store = ScoreStore(store_folder(None), key, queries, self.lm.key)

        def followed(missing: Sequence[Example], chosen: Sequence[int]) -> np.ndarray:
            rows = self._followed([queries[place] for place in chosen])
            if (other := next((one for one in missing if self.lm.key(one) not in rows), None)) is not None:
                raise ConfigError(f"{self.name}: {self._unknown(other)}")
            return np.stack([rows[self.lm.key(one)] for one in missing])

        return lambda train, on_rows=None: store.rows(train, followed, on_rows)

    def _followed(self, queries: Sequence[Example]) -> dict[str, Float32[np.ndarray, " q"]]:
        """Return scores of all examples of the fine-tune by their keys, cached for the last queries."""
        asked = tuple(map(self.lm.key, queries))
        if self._last is None or self._last[0] != asked:
            learnt, tuning = self._fitted(), self.warmup.fine_tune
            documents = Documents(learnt["ids"], learnt["offsets"], learnt["starts"])
            run = Replay(self.lm, documents, tuning, self._seed, learnt.get(MEMBERS))
            scores = run.influence(self.lm.tokenise(queries)) * _shares(len(documents), learnt.get(MEMBERS))
            rows: dict[str, list[int]] = {}
            for row, key in enumerate(learnt[KEYS]):
                rows.setdefault(bytes(key).hex(), []).append(row)
            self._last = asked, {key: scores[own].mean(axis=0).astype(np.float32) for key, own in rows.items()}
        return self._last[1]


def _shares(count: int, members: Rows | None) -> Float64[np.ndarray, "n 1"]:
    """Return factors of slopes, so that those at weights 0 and 1 count equally in a mean over samples."""
    inside = np.isin(np.arange(count), np.arange(count) if members is None else members)
    if inside.all():
        return np.ones((count, 1))
    shares: np.ndarray = count / 2 / np.where(inside, inside.sum(), (~inside).sum())
    return shares[:, None]
