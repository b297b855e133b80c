"""Attribution by a sum of channels, each pooled by itself."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
from scipy import sparse

from airrep.arrays import DenseFeatures, Features, MixedFeatures, PowerColumns, SparseFeatures
from airrep.attributors.base import Attributor, OnRows, SeveralMethods
from airrep.attributors.encoder import EmbeddingAttributor
from airrep.attributors.methods import make_attributor
from airrep.attributors.recipes import Channel, ChannelsSettings
from airrep.corpus.corpus import Example
from airrep.errors import ConfigError
from airrep.runtime.artifacts import json_digest
from airrep.scoring.pooling import AnyPooling, ChannelPool, ChannelPooling, Pool, Pooling, PoolLike

POOLS = ("sum", "mean", "attention", "signed-attention", "ngram-lm", "power", "top")
"""Kinds of pools that a channel may have."""


class ChannelsAttributor(SeveralMethods[ChannelsSettings]):
    """f(x, S) = Σ_c w_c g_c(x, S) over channels c: each pools the scores of its own representation in its own way.

    A single example is a group of one. Features are those of all channels side by side, dense ones dense and sparse
    ones sparse. Weights are in the features of queries: since all pools but powers keep factors, w g_T(s) = g_wT(w s)
    with the temperature T of attention times w; a power p takes the p-th root of w.
    """

    name = "channels"
    pool: ClassVar[Pool] = "sum"

    def __init__(self, settings: ChannelsSettings | None = None) -> None:
        super().__init__(settings or ChannelsSettings())

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The channels."""
        return self._settings.channels

    @cached_property
    def parts(self) -> tuple[Attributor, ...]:
        """The method of each channel; encoders that differ by their view alone are one model."""
        made = tuple(make_attributor(channel.method, channel.settings) for channel in self.channels)
        models: dict[str, EmbeddingAttributor] = {}
        for one in made:
            if isinstance(one, EmbeddingAttributor):
                first = models.setdefault(json_digest(one.settings.model_dump(mode="json", exclude={"view"})), one)
                if first is not one:
                    one.share_encoder(first)
        return made

    @cached_property
    def _pools(self) -> tuple[Pooling, ...]:
        return tuple(map(pooling_of, self.channels, self.parts))

    @property
    def symmetric(self) -> bool:
        return False

    def pooling(self, pool: PoolLike | None = None, temperature: float = 1.0) -> AnyPooling:
        """Each channel's own pool when None; otherwise one pool over the summed scores of members.

        Raises:
            ConfigError: there is no such pool or temperature, or it needs the features of one method.
            NotFittedError: nothing was learnt yet, so that the number of features is not known.
        """
        if isinstance(pool, ChannelPooling):
            return pool
        if pool is not None or temperature != 1:
            return super().pooling(pool, temperature)
        places = _places([one.encode_train([]) for one in self.parts])
        parts = zip(self.channels, self._pools, places, strict=True)
        return ChannelPooling(
            tuple(
                ChannelPool(channel.title, _weighed(pooling, channel.weight), place.dense, place.start, place.stop)
                for channel, pooling, place in parts
            )
        )

    @property
    def fingerprint(self) -> str:
        known = [(channel.weight, str(pool)) for channel, pool in zip(self.channels, self._pools, strict=True)]
        return json_digest({"method": self.name, "channels": known, "parts": [one.fingerprint for one in self.parts]})

    @property
    def caution(self) -> str:
        return " ".join(dict.fromkeys(filter(None, (one.caution for one in self.parts))))

    def encode_train(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> MixedFeatures:
        return self._beside([one.encode_train(examples, done) for one, done in self.in_turn(on_rows)])

    def encode_queries(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> MixedFeatures:
        """φ_query of each channel times its weight."""
        parts = [one.encode_queries(examples, done) for one, done in self.in_turn(on_rows)]
        factors = [_factor(channel.weight, pool) for channel, pool in zip(self.channels, self._pools, strict=True)]
        scaled = [_times(part, factor) for part, factor in zip(parts, factors, strict=True)]
        return self._beside(scaled)

    def _beside(self, parts: Sequence[Features]) -> MixedFeatures:
        """Features of all channels side by side."""
        places = _places(parts)
        dense = [part for part in parts if isinstance(part, np.ndarray)]
        sparse_parts = [part for part in parts if isinstance(part, sparse.csr_array)]
        rows = parts[0].shape[0]
        powers = tuple(
            PowerColumns(place.start, place.stop, pool.k)
            for place, pool in zip(places, self._pools, strict=True)
            if pool.kind == "power" and pool.k is not None
        )
        return MixedFeatures(
            np.concatenate(dense, axis=1) if dense else np.empty((rows, 0), np.float32),
            _side_by_side(sparse_parts, rows),
            powers,
        )


class _Place(NamedTuple):
    """Where a channel's features stand."""

    dense: bool
    start: int
    stop: int


def _places(parts: Sequence[Features]) -> tuple[_Place, ...]:
    ends, found = {True: 0, False: 0}, []
    for part in parts:
        dense = isinstance(part, np.ndarray)
        found.append(_Place(dense, ends[dense], ends[dense] + part.shape[1]))
        ends[dense] += part.shape[1]
    return tuple(found)


def _side_by_side(parts: Sequence[SparseFeatures], rows: int) -> SparseFeatures:
    """Sparse features side by side; columns ascend in each row."""
    if not parts:
        return sparse.csr_array(np.empty((rows, 0), np.float32))
    width = sum(part.shape[1] for part in parts)
    if width >= 2**31:
        raise ConfigError(f"channels: have {width:,} sparse columns; expected fewer than 2^31. Take fewer channels.")
    joined: SparseFeatures = sparse.hstack(parts, format="csr", dtype=np.float32)
    joined.sort_indices()
    return joined


def pooling_of(channel: Channel, method: Attributor) -> Pooling:
    """A channel's pool: its own, or its method's.

    Raises:
        ConfigError: there is no such pool, or it is not for channels.
    """
    found = method.pooling(channel.pool, channel.temperature)
    if not isinstance(found, Pooling) or found.kind not in POOLS:
        raise ConfigError(
            f"channel {channel.title}: has the pool '{found}'; expected one that scores members, such as attention. "
            "Take another pool."
        )
    return found


def _weighed(pooling: Pooling, weight: float) -> Pooling:
    """The pool of scores that are multiplied by the weight already."""
    return replace(pooling, temperature=pooling.temperature * weight) if pooling.attends else pooling


def _factor(weight: float, pooling: Pooling) -> float:
    return weight ** (1 / pooling.k) if pooling.kind == "power" and pooling.k is not None else weight


def _times(features: Features, factor: float) -> DenseFeatures | SparseFeatures:
    if isinstance(features, MixedFeatures):
        raise ConfigError("channels: have channels as a channel; expected methods. Name the inner ones themselves.")
    scaled: DenseFeatures | SparseFeatures = features * np.float32(factor)
    return scaled
