"""One step's exact gradient: pooled group scores, and each example encoded once.

A step computes the means of all texts, then the loss and its gradient on features and heads, then takes the gradient
on the means back through the layers. If one graph over the step fits the memory budget, the layers run once. If not,
they run twice (gradient cache): without a graph, then chunk by chunk with one, so that memory is that of one chunk
however many subsets there are. The gradient is the same in both cases.

With s_ui = ⟨query i, member u⟩, w_u = exp(|s_u| − max) and sums over the members of subset j, attention (Eq. 6) is
f_j = Σ w s / Σ w. Each member is scored once however many subsets hold it. With g_j the gradient on f_j,

    ∂/∂s_u = w_u · [(1 + sign(s_u) s_u) a_u − sign(s_u) b_u],   a_u = Σ_j∋u g_j / Σw_j,   b_u = Σ_j∋u g_j f_j / Σw_j.

Signed attention has w_u = exp(s_u − max), and 1 in place of sign(s_u).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from airrep.arrays import GroupScores, Rows
from airrep.encoder.networks.bert import Drop
from airrep.errors import TrainingError
from airrep.runtime.seeding import stream_seed
from airrep.scoring.pooling import TrainedPool, exponents
from airrep.shapes import Float
from airrep.sparse import SparseRows
from airrep.training.examples import StepDraw, TaughtInstance
from airrep.training.linear.weights import NAME, GivenScores, Mixture
from airrep.training.ranking_loss import NoPairsError, ranking_loss
from airrep.training.settings import TrainingSettings
from airrep.training.trunk import Trunk

COLUMNS = 64
"""Queries scored at a time."""
KEPT = 2**28
"""Most bytes of member scores kept for the backward pass; larger scores are computed again."""
FADED = {torch.float32: 2.0**-100, torch.float64: 2.0**-900}
"""Least Σw of a subset whose members' weights have not been lost to underflow."""


class Membership(NamedTuple):
    """Membership of examples in subsets, in both directions."""

    members: Tensor
    """``(total,)`` members, subset after subset."""
    offsets: Tensor
    """``(m + 1,)``, the place where each subset begins."""
    subsets: Tensor
    """``(total,)`` subsets, member after member."""
    starts: Tensor
    """``(u + 1,)``, the place where each member begins."""

    @classmethod
    def of(cls, subsets: Sequence[Rows], members: int, device: str = "cpu") -> Self:
        """Membership of subsets given as lists of members 0 … *members* − 1; repeats count."""
        flat = np.concatenate(subsets)
        offsets = np.cumsum([0, *map(len, subsets)])
        by_member = SparseRows(np.ones(len(flat), np.int8), flat, offsets, (len(subsets), members)).T
        arrays = (flat, offsets, by_member.indices, by_member.indptr)
        return cls(*(torch.from_numpy(array.astype(np.int64)).to(device) for array in arrays))

    @property
    def sizes(self) -> Tensor:
        """Members of each subset, ``(m,)``."""
        return self.offsets.diff()

    def gather(self, values: Float[Tensor, "u w"]) -> Float[Tensor, "m w"]:
        """Sum over the members of each subset."""
        return _sums(self.members, values, self.offsets)

    def spread(self, values: Float[Tensor, "m w"]) -> Float[Tensor, "u w"]:
        """Sum over the subsets of each member."""
        return _sums(self.subsets, values, self.starts)


def _sums(chosen: Tensor, values: Tensor, offsets: Tensor) -> Tensor:
    return torch.nn.functional.embedding_bag(chosen, values, offsets, mode="sum", include_last_offset=True)


class PooledScores:
    """Group scores of a step's queries, ``f`` ``(q, m)``, from the features of all examples in some subset.

    TrainingError: scores differ by so much that attention cannot be computed, or are not finite.
    """

    def __init__(
        self, queries: Float[Tensor, "q d"], members: Float[Tensor, "u d"], membership: Membership, pool: TrainedPool
    ) -> None:
        self._queries, self._members, self._membership = queries.detach(), members.detach(), membership
        self._pool: TrainedPool = pool
        held = self._queries.shape[0] * self._members.shape[0] * self._members.element_size()
        self._kept: dict[int, Tensor] | None = {} if held <= KEPT else None
        none = self._queries.new_empty(0, len(membership.sizes))
        self.f = torch.cat([none, *(_pooled(scores, membership, pool).t() for _, scores in self._scored())])

    def gradients(self, g: Float[Tensor, "q m"]) -> tuple[Float[Tensor, "q d"], Float[Tensor, "u d"]]:
        """Gradients on the features of queries and members, from that on the group scores."""
        on_queries, on_members = torch.empty_like(self._queries), torch.zeros_like(self._members)
        for part, scores in self._scored():
            on_scores = _backward(scores, g[part].t().contiguous(), self._membership, self._pool)
            on_queries[part] = on_scores.t() @ self._members
            on_members.addmm_(on_scores, self._queries[part])
        return on_queries, on_members

    def _scored(self) -> Iterator[tuple[slice, Float[Tensor, "u w"]]]:
        """Yield the scores of all members for ``COLUMNS`` queries at a time."""
        for first in range(0, len(self._queries), COLUMNS):
            part = slice(first, first + COLUMNS)
            scores = None if self._kept is None else self._kept.get(first)
            if scores is None:
                scores = self._members @ self._queries[part].t()
            if self._kept is not None:
                self._kept[first] = scores
            yield part, scores


def _pooled(scores: Float[Tensor, "u w"], membership: Membership, pool: TrainedPool) -> Float[Tensor, "m w"]:
    if pool == "mean":
        return membership.gather(scores) / membership.sizes[:, None]
    weights, below = _weights(scores, membership, pool)
    return (membership.gather(weights * scores) / below).to(scores.dtype)


def _backward(
    scores: Float[Tensor, "u w"], g: Float[Tensor, "m w"], membership: Membership, pool: TrainedPool
) -> Float[Tensor, "u w"]:
    if pool == "mean":
        return membership.spread(g / membership.sizes[:, None])
    weights, below = _weights(scores, membership, pool)
    f = membership.gather(weights * scores) / below
    share = g / below
    a, b = membership.spread(share), membership.spread(share * f)
    steepness = scores * a - b
    if pool == "attention":
        steepness *= scores.sign()
    return (weights * (a + steepness)).to(scores.dtype)


def _weights(
    scores: Float[Tensor, "u w"], membership: Membership, pool: TrainedPool
) -> tuple[Float[Tensor, "u w"], Float[Tensor, "m w"]]:
    """Return exp(|s| − max), signed: exp(s − max), and its sums over subsets; in float64 if float32 loses a subset."""
    size = exponents(scores, pool)
    weights = (size - size.amax(dim=0)).exp_()
    below = membership.gather(weights)
    if bool((below >= FADED[scores.dtype]).all() & scores.amin().isfinite()):
        return weights, below
    if scores.dtype == torch.float32:
        return _weights(scores.double(), membership, pool)
    raise TrainingError(
        f"group scores (pool '{pool}') cannot be computed: the examples' scores are not finite, or differ by more "
        "than about 100. Lower learning_rate or head_learning_rate, or set clip."
    )


class StepTexts(NamedTuple):
    """Texts of a step, each once; places of its queries and members among them; labels and given scores."""

    rows: Rows
    """Numbers of the texts, ascending."""
    queries: Rows
    """``(q,)`` places of the queries."""
    subsets: list[Rows]
    """Places of each subset's members."""
    labels: GroupScores
    """``(q, m)``, higher = better."""
    given: GivenScores | None
    """``(c, q, m)`` group scores beside the encoder's."""

    @classmethod
    def of(cls, instance: TaughtInstance, draw: StepDraw) -> "StepTexts":
        members = [instance.train[instance.subsets.members(int(j))] for j in draw.subsets]
        asked = instance.queries[draw.queries]
        rows = np.unique(np.concatenate([asked, *members]))
        subsets = [np.searchsorted(rows, part) for part in members]
        cells = np.ix_(draw.queries, draw.subsets)
        given = None if instance.given is None else instance.given[:, cells[0], cells[1]]
        return cls(rows, np.searchsorted(rows, asked), subsets, instance.labels[cells], given)


@dataclass(frozen=True)
class Dropout:
    """Dropout masks of one step, the same in both passes of the gradient cache."""

    rate: float
    seed: int
    step: int
    device: str

    def of(self, *name: str | int) -> Drop | None:
        """Make the dropout of one part of the step, with its own random numbers; None if the rate is 0."""
        if not self.rate:
            return None
        generator = torch.Generator(self.device).manual_seed(stream_seed(self.seed, "dropout", self.step, *name))

        def drop(values: Tensor) -> Tensor:
            kept = torch.rand(values.shape, generator=generator, device=values.device) >= self.rate
            return values * (kept.to(values.dtype) / (1 - self.rate))

        return drop


class LayerPass:
    """Forward and backward pass through the layers that learn; *single_graph* keeps the graph of the forward pass."""

    def __init__(self, trunk: Trunk, rows: Rows, single_graph: bool, dropout: Dropout) -> None:
        self._trunk, self._rows, self._dropout = trunk, rows, dropout
        self._single = single_graph and trunk.learns
        chunks = list(enumerate(trunk.chunks(rows))) if trunk.learns else []
        self._mine, self._parts = trunk.team.share(chunks), list[Tensor]()

    def forward(self) -> Float[Tensor, "n h"]:
        """Return means of all texts, in every process."""
        trunk = self._trunk
        if not trunk.learns:
            return trunk.all_means(self._rows)
        means = trunk.no_means(len(self._rows))
        for number, chunk in self._mine:
            with torch.set_grad_enabled(self._single):
                part = trunk.means(self._rows, chunk, self._dropout.of("layers", number))
            if self._single:
                self._parts.append(part)
            means[torch.from_numpy(chunk.rows)] = part.detach()
        trunk.team.sum_(means)
        return means

    def backward(self, gradient: Float[Tensor, "n h"]) -> None:
        """Add this process's share of the gradient to the layers' weights."""
        for number, chunk in self._mine:
            if self._single:
                part = self._parts.pop(0)  # frees each graph after its backward pass
            else:
                part = self._trunk.means(self._rows, chunk, self._dropout.of("layers", number))
            torch.autograd.backward(part, gradient[torch.from_numpy(chunk.rows)])


def add_gradients(
    trunk: Trunk, instance: TaughtInstance, draw: StepDraw, settings: TrainingSettings, step: int
) -> tuple[float | None, StepTexts]:
    """Add the gradient of one step's loss to all weights that learn, the same in every process of the team.

    Returns the ranking loss (Eq. 8), mean over counted pairs, in nats, and the texts of the step. If no pair counts,
    the loss is None and no gradient is added.
    """
    texts, device = StepTexts.of(instance, draw), trunk.team.device
    dropout = Dropout(settings.dropout, settings.seed, step, device)
    head_drop = Dropout(settings.head_dropout, settings.seed, step, device).of("head")
    single = trunk.graph_bytes(texts.rows) <= settings.memory_budget * 2**30
    layers = LayerPass(trunk, texts.rows, single, dropout)
    means = layers.forward().requires_grad_(trunk.learns)
    features = trunk.model.project(means, head_drop)
    found = _loss_gradient(trunk, features.detach(), texts, settings)
    if found is None:
        return None, texts
    loss, on_features = found
    torch.autograd.backward(features, on_features)
    if means.grad is not None:
        layers.backward(means.grad)
    _sum_gradients(trunk)
    return loss, texts


def _loss_gradient(
    trunk: Trunk, features: Float[Tensor, "n d"], texts: StepTexts, settings: TrainingSettings
) -> tuple[float, Float[Tensor, "n d"]] | None:
    """Return the loss and its gradient on features; None if no pair counts. Each process scores part of the queries."""
    team, device = trunk.team, features.device
    asked = torch.from_numpy(texts.queries).to(device)
    places, columns = np.unique(np.concatenate(texts.subsets), return_inverse=True)
    ends = np.cumsum([len(part) for part in texts.subsets])[:-1]
    held = torch.from_numpy(places).to(device)
    membership = Membership.of(np.split(columns, ends), len(places), str(device))
    mine = asked[team.part(len(asked))]
    pooled = PooledScores(features[mine], features[held], membership, settings.pool)
    f = features.new_zeros(texts.labels.shape)
    f[team.part(len(asked))] = pooled.f
    team.sum_(f)
    try:
        loss, g = _ranking_gradient(f, texts, trunk.beside, settings)
    except NoPairsError:  # the few subsets of this draw have nearly equal labels
        return None
    on_queries, on_members = pooled.gradients(g[team.part(len(asked))])
    total = torch.zeros_like(features).index_add_(0, mine, on_queries).index_add_(0, held, on_members)
    team.sum_(total)
    return loss, total


def _ranking_gradient(
    f: Float[Tensor, "q m"], texts: StepTexts, beside: Mixture | None, settings: TrainingSettings
) -> tuple[float, Float[Tensor, "q m"]]:
    """Return the loss and its gradient on the encoder's group scores; set the gradient of the channels' weights."""
    f.requires_grad_()
    mixed, learning = f, [f]
    if beside is not None and texts.given is not None:
        mixed, learning = beside(f, torch.from_numpy(texts.given).to(f)), [f, beside.log_weights]
    loss = ranking_loss(mixed, torch.from_numpy(texts.labels).to(f), settings.t_min, settings.t_max)
    if not torch.isfinite(loss):
        raise TrainingError("the loss is not finite. Lower learning_rate or head_learning_rate, or set clip.")
    g, *on_weights = torch.autograd.grad(loss, learning)
    if beside is not None and on_weights:
        beside.log_weights.grad = on_weights[0]
    return float(loss.detach()), g


def _sum_gradients(trunk: Trunk) -> None:
    """Sum gradients over the processes; for heads and channel weights each process has the whole gradient, so only
    that of the first counts."""
    if trunk.team.size == 1:
        return
    for name, parameter in trunk.learning():
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        if name.startswith(("heads.", NAME)) and not trunk.team.first:
            gradient.zero_()
        trunk.team.sum_(gradient)
        parameter.grad = gradient
