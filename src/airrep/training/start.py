"""The encoder that training starts from, its head and its scale."""

import copy
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from airrep.arrays import DenseFeatures, GroupScores
from airrep.encoder.load import load_encoder
from airrep.encoder.networks.bert import UnitLength
from airrep.encoder.networks.packed import Network, Trainable, network_of
from airrep.errors import ConfigError, many
from airrep.evaluation.judging import best_of, scales, score_features
from airrep.runtime.seeding import stream
from airrep.scoring.asked import score_all
from airrep.scoring.blocks import Block
from airrep.scoring.groups import Groups
from airrep.scoring.pooling import TrainedPool
from airrep.scoring.products import ask
from airrep.training.examples import Prepared, TaughtInstance
from airrep.training.linear.weights import fit_ranking
from airrep.training.settings import TrainingSettings
from airrep.training.state import TrainingCheckpoint
from airrep.training.trunk import Trunk, features_of

_MOST_QUERIES, _MOST_SUBSETS, _MOST_INSTANCES = 200, 100, 4
"""Most queries and subsets per instance, and most instances, that scale and first weights are chosen on."""
_MOST_MEMBERS, _LEAST_SUBSETS = 10_000, 8
"""If layers learn, so that examples must be encoded: most members of an instance's subsets in all, and the number of
subsets that are taken even if they have more."""
_LEAST, _LEAST_OF_ENCODER, _MOST = 1e-3, 0.25, 30.0
"""Bounds of weights on scores of standard deviation 1, like that of the labels: 30 fits labels without noise, and an
encoder of weight 0 could not begin to learn."""


def load_start(settings: TrainingSettings) -> Trainable:
    """Load the encoder that training starts from, on the CPU (ConfigError: settings of layers that it lacks)."""
    start = load_trainable(settings.start, device="cpu", max_tokens=settings.max_tokens)
    layers = len(network_of(start).layers)
    if settings.train_layers != "all" and settings.train_layers > layers:
        raise ConfigError(
            f"train_layers={settings.train_layers}: the encoder to start from has {many(layers, 'layer')}. "
            f"Choose 0 to {layers}, or all."
        )
    if settings.dropout and not layers:
        raise ConfigError(
            f"dropout={settings.dropout:g}: the encoder to start from, '{settings.start}', has no layers that dropout "
            "could act on. Remove dropout, or set head_dropout, the dropout of the head."
        )
    return start


def load_trainable(name: str, **settings: Any) -> Trainable:
    """Load an encoder that airrep can train, in float32; *settings* as for :func:`airrep.encoder.load.load_encoder`.

    ConfigError: it cannot be found, or is neither a BERT-type encoder with mean pooling nor static.
    """
    encoder = load_encoder(name, precision="float32", **settings)
    if not isinstance(encoder, Trainable):
        raise ConfigError(
            f"encoder {name}: cannot be trained, since it is neither a BERT-type encoder with mean pooling nor a "
            "static encoder. Use 'default', 'static', or another model of these two kinds."
        )
    return encoder


def with_trainable_head(start: Network, settings: TrainingSettings) -> Network:
    """Copy an encoder, make its last head linear, and scale to unit length before that head if the settings ask."""
    heads: list[nn.Module] = [copy.deepcopy(head) for head in start.heads]
    if not heads or not isinstance(heads[-1], nn.Linear):
        heads.append(_linear(torch.eye(start.dimension)))
    *below, last = heads
    if settings.normalise is False:
        below = [head for head in below if isinstance(head, nn.Linear)]
    elif settings.normalise and all(isinstance(head, nn.Linear) for head in below):
        below.append(UnitLength())
    if isinstance(last, nn.Linear) and settings.dimension is not None:
        # A random projection after the head, whose entries have deviation 1/√dimension.
        drawn = stream(settings.seed, "projection").standard_normal((settings.dimension, last.out_features))
        projection = torch.from_numpy((drawn / np.sqrt(settings.dimension)).astype(np.float32))
        with torch.no_grad():
            last = _linear(projection @ last.weight, None if last.bias is None else projection @ last.bias)
    model = copy.deepcopy(start)
    model.heads = nn.ModuleList([*below, last])
    return model


def _linear(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    outputs, inputs = weight.shape
    # On "meta" nn.Linear draws no initial weights, so the state of torch's generator stays as it was.
    made = nn.Linear(inputs, outputs, bias=True, device="meta").to_empty(device="cpu")
    with torch.no_grad():
        made.weight.copy_(weight)
        made.bias.copy_(torch.zeros(outputs) if bias is None else bias)
    return made


def scale_scores(model: Network, factor: float) -> None:
    """Multiply all influence scores by a factor, in the last head."""
    last = model.heads[-1]
    with torch.no_grad():
        for parameter in last.parameters():  # √factor each: a score is a product of two outputs of the head
            parameter.mul_(factor**0.5)


def begin(trunk: Trunk, instances: Sequence[Prepared], settings: TrainingSettings) -> TrainingCheckpoint:
    """Make a run's first checkpoint: the scale of the start's scores and, with given channels, all weights.

    Scale and weights rank the labels best (:func:`airrep.training.linear.weights.fit_ranking`). NoPairsError: there
    are channels, and no two labels of the sample differ enough to be counted.
    """
    some, scale = instances[:_MOST_INSTANCES], settings.initial_scale
    given = [one for one in some if isinstance(one, TaughtInstance) and one.given is not None]
    parts: Iterable[_Part] = (_Part.of(trunk, instance) for instance in given or some)
    parts = list(parts) if given else parts  # stays lazy: a fixed scale needs no parts
    if scale == "auto":
        scale = _best_scale(parts, settings)
    if not given:
        return TrainingCheckpoint(scale=scale)
    return TrainingCheckpoint(scale=scale, weights=_weights(given, list(parts), scale, settings))


def _weights(
    given: Sequence[TaughtInstance], parts: Sequence["_Part"], scale: float, settings: TrainingSettings
) -> list[float]:
    """Fit weights of the given channels and of the start."""
    own = [part.scores(settings.pool, scale) for part in parts]
    deviation = float(np.sqrt(np.mean([scores.var(axis=1, dtype=np.float64).mean() for scores in own]))) or 1.0
    columns, labels = [], []
    for instance, part, scores in zip(given, parts, own, strict=True):
        assert instance.given is not None
        columns.append(np.concatenate([instance.given[:, part.cells[0], part.cells[1]], scores[None] / deviation]))
        labels.append(instance.labels[part.cells])
    bounds = [*[(_LEAST, _MOST)] * (len(columns[0]) - 1), (_LEAST_OF_ENCODER, _MOST)]
    *found, last = fit_ranking(columns, labels, bounds, t_min=settings.t_min, t_max=settings.t_max).tolist()
    return [*found, last / deviation]


def _best_scale(parts: Iterable["_Part"], settings: TrainingSettings) -> float:
    """Return the factor on all scores, among the means of :func:`scales`, at which the start ranks labels best."""
    if settings.pool == "mean":  # no factor changes the ranks of means, so no part is made
        return 1.0
    tried = list(parts)
    means: list[float] = np.mean(
        [scales(score_all(ask(part.queries[:50], [Block(0, part.train[:1000])]))) for part in tried], axis=0
    ).tolist()

    def score(scale: float) -> Iterator[GroupScores]:
        return (score_features(part.train, part.queries, part.groups, settings.pool, 1 / scale) for part in tried)

    return best_of(means, score, [part.losses for part in tried])


class _Part(NamedTuple):
    """Some queries and subsets of an instance, with the start's features."""

    train: DenseFeatures
    queries: DenseFeatures
    groups: Groups
    """Subsets, as rows of *train*."""
    losses: np.ndarray
    cells: tuple[np.ndarray, ...]
    """Index of these queries and subsets into the instance's matrices ``(q, m)``."""

    @classmethod
    def of(cls, trunk: Trunk, instance: Prepared) -> "_Part":
        """Take evenly spread queries and the first subsets."""
        most = int(_MOST_MEMBERS / instance.subsets.sizes.mean()) if trunk.learns else _MOST_SUBSETS
        chosen = instance.usable_subsets[: max(_LEAST_SUBSETS, min(_MOST_SUBSETS, most))]
        asked = np.flatnonzero(~np.isnan(instance.losses[:, chosen]).all(axis=1))
        if len(asked) > _MOST_QUERIES:
            asked = asked[np.unique(np.linspace(0, len(asked) - 1, _MOST_QUERIES).astype(int))]
        members = [instance.subsets.members(int(j)) for j in chosen]
        used, places = np.unique(np.concatenate(members), return_inverse=True)
        offsets = np.cumsum([0, *map(len, members)])
        groups = Groups(tuple(instance.subsets.names[int(j)] for j in chosen), places, offsets)
        train, queries = instance.train[used], instance.queries[asked]
        cells = np.ix_(asked, chosen)
        return cls(features_of(trunk, train), features_of(trunk, queries), groups, instance.losses[cells], cells)

    def scores(self, pool: TrainedPool, scale: float) -> GroupScores:
        """Return group scores of the start, with member scores multiplied by *scale*."""
        temperature = 1.0 if pool == "mean" else 1 / scale
        return np.float32(scale) * score_features(self.train, self.queries, self.groups, pool, temperature)
