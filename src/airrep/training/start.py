"""The encoder that training starts from, its head and its scale."""

import copy
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from airrep.arrays import DenseFeatures, GroupScores
from airrep.encoder.bert import SentenceBert, UnitLength
from airrep.encoder.load import PackedEncoder, load_encoder
from airrep.errors import ConfigError
from airrep.evaluation.judging import best_of, scales, score_features
from airrep.runtime.seeding import stream
from airrep.scoring.groups import Groups
from airrep.training.examples import Prepared
from airrep.training.settings import TrainingSettings
from airrep.training.trunk import Trunk, features_of

_MOST_QUERIES, _MOST_SUBSETS, _MOST_INSTANCES = 200, 100, 4
"""Limits of the sample that the scale is chosen on: queries and subsets of an instance, and instances."""
_MOST_MEMBERS, _LEAST_SUBSETS = 10_000, 8
"""Most members of an instance's subsets where the examples must be encoded, and subsets that are taken even so."""


def load_start(settings: TrainingSettings) -> PackedEncoder:
    """Load the encoder that training starts from, in float32 on the CPU.

    Raises:
        ConfigError: it does not run packed, or cannot be found.
    """
    encoder = load_encoder(settings.start, precision="float32", device="cpu", max_tokens=settings.max_tokens)
    if not isinstance(encoder, PackedEncoder):
        raise ConfigError(
            f"start {settings.start}: is not a BERT-type encoder with mean pooling, so airrep cannot train it; "
            "expected one that `airrep` runs packed. Use 'default', or another model."
        )
    return encoder


def with_trainable_head(start: SentenceBert, settings: TrainingSettings) -> SentenceBert:
    """A copy of an encoder whose last head is linear, scaled to unit length or not, as the settings ask."""
    heads: list[nn.Module] = [copy.deepcopy(head) for head in start.heads]
    if not heads or not isinstance(heads[-1], nn.Linear):
        heads.append(_linear(torch.eye(start.dimension)))
    *below, last = heads
    if settings.normalise is False:
        below = [head for head in below if isinstance(head, nn.Linear)]
    elif settings.normalise and all(isinstance(head, nn.Linear) for head in below):
        below.append(UnitLength())
    if isinstance(last, nn.Linear) and settings.dimension is not None:
        last = _projected(last, settings.dimension, settings.seed)
    model = copy.deepcopy(start)
    model.heads = nn.ModuleList([*below, last])
    return model


def _linear(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    outputs, inputs = weight.shape
    # On "meta" nn.Linear draws no first weights, so torch's generator stays as it was.
    made = nn.Linear(inputs, outputs, bias=True, device="meta").to_empty(device="cpu")
    with torch.no_grad():
        made.weight.copy_(weight)
        made.bias.copy_(torch.zeros(outputs) if bias is None else bias)
    return made


def _projected(head: nn.Linear, dimension: int, seed: int) -> nn.Linear:
    """A head followed by a random projection, whose entries have deviation 1/√dimension."""
    drawn = stream(seed, "projection").standard_normal((dimension, head.out_features)) / np.sqrt(dimension)
    projection = torch.from_numpy(drawn.astype(np.float32))
    with torch.no_grad():
        bias = None if head.bias is None else projection @ head.bias
        return _linear(projection @ head.weight, bias)


def scale_scores(model: SentenceBert, factor: float) -> None:
    """Multiply all influence scores by a factor, in the last head."""
    last = model.heads[-1]
    with torch.no_grad():
        for parameter in last.parameters():  # √factor each: a score is a product of two outputs of the head
            parameter.mul_(factor**0.5)


def best_scale(trunk: Trunk, instances: Sequence[Prepared], settings: TrainingSettings) -> float:
    """The factor on all scores at which the start ranks the labels of the instances best.

    The factors tried are the means over instances of :func:`airrep.evaluation.judging.scales`.
    """
    if settings.pool == "mean":  # whose ranks no factor changes
        return 1.0
    tried = [_sampled(trunk, instance) for instance in instances[:_MOST_INSTANCES]]
    means: list[float] = np.mean([scales(train, queries) for train, queries, _, _ in tried], axis=0).tolist()

    def score(scale: float) -> Iterator[GroupScores]:
        return (score_features(train, asked, groups, settings.pool, 1 / scale) for train, asked, groups, _ in tried)

    return best_of(means, score, [losses for *_, losses in tried])


def _sampled(trunk: Trunk, instance: Prepared) -> tuple[DenseFeatures, DenseFeatures, Groups, np.ndarray]:
    """Features of train examples and queries, subsets and losses of a part of an instance."""
    most = int(_MOST_MEMBERS / instance.subsets.sizes.mean()) if trunk.learns else _MOST_SUBSETS
    chosen = instance.usable_subsets[: max(_LEAST_SUBSETS, min(_MOST_SUBSETS, most))]
    asked = np.flatnonzero(~np.isnan(instance.losses[:, chosen]).all(axis=1))
    asked = asked[np.unique(np.linspace(0, len(asked) - 1, _MOST_QUERIES).astype(int))] if len(asked) else asked
    members = [instance.subsets.members(int(j)) for j in chosen]
    used, places = np.unique(np.concatenate(members), return_inverse=True)
    offsets = np.cumsum([0, *map(len, members)])
    groups = Groups(tuple(instance.subsets.names[int(j)] for j in chosen), places, offsets)
    train, queries = instance.train[used], instance.queries[asked]
    return features_of(trunk, train), features_of(trunk, queries), groups, instance.losses[np.ix_(asked, chosen)]
