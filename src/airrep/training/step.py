"""One step's exact gradient, each example encoded once.

Means of all texts first, then the loss and its gradient on features and heads, then the gradient on the means back
through the layers. Where one graph over the step fits the memory budget, the layers run once; otherwise by gradient
cache: without a graph first, then again chunk by chunk with one, so that memory is that of one chunk however many
subsets there are. Either way it is the same gradient.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from airrep.arrays import GroupScores, Rows
from airrep.encoder.networks.bert import Drop
from airrep.errors import TrainingError
from airrep.runtime.seeding import stream_seed
from airrep.shapes import Float
from airrep.training.examples import StepDraw, TaughtInstance
from airrep.training.linear.beside import NAME, GivenScores, Mixture
from airrep.training.pooled_gradients import Membership, PooledScores
from airrep.training.ranking_loss import NoPairsError, ranking_loss
from airrep.training.settings import TrainingSettings
from airrep.training.trunk import Trunk


class StepTexts(NamedTuple):
    """The texts of a step, each once, and where its queries and members are among them."""

    rows: Rows
    """Texts, ascending."""
    queries: Rows
    """``(q,)`` places of the queries."""
    subsets: list[Rows]
    """Places of each subset's members."""

    @classmethod
    def of(cls, instance: TaughtInstance, draw: StepDraw) -> "StepTexts":
        """Look up the texts of a draw."""
        members = [instance.train[instance.subsets.members(int(j))] for j in draw.subsets]
        asked = instance.queries[draw.queries]
        rows = np.unique(np.concatenate([asked, *members]))
        return cls(rows, np.searchsorted(rows, asked), [np.searchsorted(rows, part) for part in members])


@dataclass(frozen=True)
class Dropout:
    """Dropout masks of one step, the same in both passes of the gradient cache."""

    rate: float
    seed: int
    step: int
    device: str

    def of(self, *name: str | int) -> Drop | None:
        """A dropout of its own for a part of the step; None where nothing is dropped."""
        if not self.rate:
            return None
        generator = torch.Generator(self.device).manual_seed(stream_seed(self.seed, "dropout", self.step, *name))

        def drop(values: Tensor) -> Tensor:
            kept = torch.rand(values.shape, generator=generator, device=values.device) >= self.rate
            return values * (kept.to(values.dtype) / (1 - self.rate))

        return drop


class LayerPass:
    """Forward and backward pass through the layers that learn; with *single_graph* the graph of the first is kept."""

    def __init__(self, trunk: Trunk, rows: Rows, single_graph: bool, dropout: Dropout) -> None:
        self._trunk, self._rows, self._dropout = trunk, rows, dropout
        self._single = single_graph and trunk.learns
        chunks = list(enumerate(trunk.chunks(rows))) if trunk.learns else []
        self._mine, self._parts = trunk.team.share(chunks), list[Tensor]()

    def forward(self) -> Float[Tensor, "n h"]:
        """Means of all texts, in every process."""
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
                part = self._parts.pop(0)  # let go of each graph when its backward pass is done
            else:
                part = self._trunk.means(self._rows, chunk, self._dropout.of("layers", number))
            torch.autograd.backward(part, gradient[torch.from_numpy(chunk.rows)])


def add_gradients(
    trunk: Trunk, instance: TaughtInstance, draw: StepDraw, settings: TrainingSettings, step: int
) -> tuple[float | None, StepTexts]:
    """Add the gradient of one step's loss to all weights that learn, the same in every process of the team.

    Returns:
        The ranking loss (Eq. 8), mean over counted pairs, in nats, or None where none is counted and nothing is
        added; and the texts of the step.
    """
    texts, team = StepTexts.of(instance, draw), trunk.team
    dropout = Dropout(settings.dropout, settings.seed, step, team.device)
    head_drop = Dropout(settings.head_dropout, settings.seed, step, team.device).of("head")
    single = trunk.graph_bytes(texts.rows) <= settings.memory_budget * 2**30
    layers = LayerPass(trunk, texts.rows, single, dropout)
    means = layers.forward().requires_grad_(trunk.learns)
    features = trunk.model.project(means, head_drop)
    found = _loss_gradient(trunk, features.detach(), texts, _Wanted.of(instance, draw), settings)
    if found is None:
        return None, texts
    loss, on_features = found
    torch.autograd.backward(features, on_features)
    if means.grad is not None:
        layers.backward(means.grad)
    _sum_gradients(trunk)
    return loss, texts


def _loss_gradient(
    trunk: Trunk, features: Float[Tensor, "n d"], texts: StepTexts, wanted: "_Wanted", settings: TrainingSettings
) -> tuple[float, Float[Tensor, "n d"]] | None:
    """Loss of features and its gradient, if any pair counts; each process scores its part of the queries."""
    team, device = trunk.team, features.device
    asked = torch.from_numpy(texts.queries).to(device)
    places, columns = np.unique(np.concatenate(texts.subsets), return_inverse=True)
    ends = np.cumsum([len(part) for part in texts.subsets])[:-1]
    held = torch.from_numpy(places).to(device)
    membership = Membership.of(np.split(columns, ends), len(places), str(device))
    mine = asked[team.part(len(asked))]
    pooled = PooledScores(features[mine], features[held], membership, settings.pool)
    f = features.new_zeros(wanted.labels.shape)
    f[team.part(len(asked))] = pooled.f
    team.sum_(f)
    try:
        loss, g = _ranking_gradient(f, wanted, trunk.beside, settings)
    except NoPairsError:  # a draw of few subsets, whose labels are alike
        return None
    on_queries, on_members = pooled.gradients(g[team.part(len(asked))])
    total = torch.zeros_like(features).index_add_(0, mine, on_queries).index_add_(0, held, on_members)
    team.sum_(total)
    return loss, total


class _Wanted(NamedTuple):
    """Labels of a step, and what is given beside the encoder."""

    labels: GroupScores
    """``(q, m)``, higher = better."""
    given: GivenScores | None
    """``(c, q, m)``"""

    @classmethod
    def of(cls, instance: TaughtInstance, draw: StepDraw) -> "_Wanted":
        cells = np.ix_(draw.queries, draw.subsets)
        given = None if instance.given is None else instance.given[:, cells[0], cells[1]]
        return cls(instance.labels[cells], given)


def _ranking_gradient(
    f: Float[Tensor, "q m"], wanted: _Wanted, beside: Mixture | None, settings: TrainingSettings
) -> tuple[float, Float[Tensor, "q m"]]:
    """Loss, and its gradient on the encoder's group scores; that on the weights of channels is added to them."""
    f.requires_grad_()
    mixed, learning = f, [f]
    if beside is not None and wanted.given is not None:
        mixed, learning = beside(f, torch.from_numpy(wanted.given).to(f)), [f, beside.log_weights]
    loss = ranking_loss(mixed, torch.from_numpy(wanted.labels).to(f), settings.t_min, settings.t_max)
    if not torch.isfinite(loss):
        raise TrainingError(
            "the loss is not finite; expected a number. Lower learning_rate or head_learning_rate, or set clip."
        )
    g, *on_weights = torch.autograd.grad(loss, learning)
    if beside is not None and on_weights:
        beside.log_weights.grad = on_weights[0]
    return float(loss.detach()), g


def _sum_gradients(trunk: Trunk) -> None:
    """Sum what the processes found; heads and weights of channels have the whole gradient in every process, so the
    first one's counts."""
    if trunk.team.size == 1:
        return
    for name, parameter in trunk.learning():
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        if name.startswith(("heads.", NAME)) and not trunk.team.first:
            gradient.zero_()
        trunk.team.sum_(gradient)
        parameter.grad = gradient
