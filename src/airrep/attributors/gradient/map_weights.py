"""Weights of linear maps in the scores of gradient methods."""

import copy
import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

import numpy as np

from airrep.arrays import DenseFeatures, Features
from airrep.attributors.base import MethodAttributor, OnRows
from airrep.attributors.settings import Grouping, MapWeightSettings
from airrep.corpus.corpus import Example
from airrep.errors import ConfigError
from airrep.shapes import Float32

if TYPE_CHECKING:
    from airrep.attributors.gradient.reading import Site

S = TypeVar("S", bound=MapWeightSettings)
HELD_SCORES = 2**27
"""Scores by group that are held at a time, 512 MiB."""
REST = "*"
"""Stands for all maps that no other pattern fits."""
MapGroups: TypeAlias = Mapping[str, Sequence[int]]
"""Places of linear maps by a pattern of their names."""
Weights: TypeAlias = Mapping[str, float] | Grouping
"""Weights by pattern, or groups that all weigh 1."""


class WeighsMaps(MethodAttributor[S]):
    """A method whose score is a sum over linear maps m, s = Σ_m w_m s_m, with a weight for each group of maps.

    Weights are in what is made of queries alone, so that an index can be asked with any.
    """

    @property
    @abstractmethod
    def sites(self) -> "tuple[Site, ...]":
        """The linear maps whose gradients are taken."""

    @abstractmethod
    def scores_by_group(
        self, train: Sequence[Example], queries: Sequence[Example], groups: MapGroups
    ) -> Iterator[tuple[slice, Float32[np.ndarray, "g n q"]]]:
        """Scores of which each group of linear maps counts alone, with weight 1; for some queries at a time.

        Raises:
            NotFittedError: the method learns from the training corpus and has not seen it.
        """

    @cached_property
    def map_weights(self) -> Float32[np.ndarray, " maps"] | None:
        """The weight of each linear map; None: all weigh 1.

        Raises:
            ConfigError: a pattern that no map has, a map that has two, or no weight above 0.
        """
        wanted = self.settings.map_weights
        if not isinstance(wanted, dict):
            return None
        found = np.ones(len(self.sites), np.float32)
        for pattern, places in _groups(self.sites, tuple(wanted), self.name).items():
            found[places] = wanted[pattern]
        if not found.any():
            raise ConfigError(f"{self.name}: map_weights are 0 for all linear maps; expected one above 0. Raise one.")
        return found

    @property
    def weighing(self) -> dict[str, object]:
        """The field of a fingerprint that weights decide; none where all weigh 1."""
        wanted = self.settings.map_weights
        return {"map_weights": wanted} if isinstance(wanted, dict) else {}

    def check_weights(self) -> None:
        """Raise the errors of :attr:`map_weights`, before any work."""
        _ = self.map_weights

    @property
    def map_groups(self) -> MapGroups:
        """All linear maps, by the patterns of the settings and ``*`` for what these leave out; ConfigError likewise."""
        wanted = self.settings.map_weights
        patterns = _patterns(self.sites, wanted) if isinstance(wanted, str) else tuple(wanted or ())
        found = _groups(self.sites, patterns, self.name)
        complete = sum(map(len, found.values())) == len(self.sites)
        return found if complete else _groups(self.sites, (*patterns, REST), self.name)

    def with_map_weights(self, weights: Weights | None) -> Self:
        """The same method with other weights; what was learnt is shared with it.

        Raises:
            ConfigError: weights below 0, or not finite.
        """
        other = copy.copy(self)
        told: dict[str, Any] = {**self.settings.model_dump(mode="json", exclude_unset=True), "map_weights": weights}
        other._settings = type(self.settings).of(told, self.name)
        for cached in ("map_weights", "_columns"):  # of these weights: the second numbers queries that were scored
            other.__dict__.pop(cached, None)
        return other


class WeighsBlocks(WeighsMaps[S]):
    """One whose features are blocks of numbers, one for each linear map; those of queries are weighed."""

    @property
    @abstractmethod
    def widths(self) -> Sequence[int]:
        """Numbers of each linear map in the features at one set of weights of the LM."""

    @property
    def symmetric(self) -> bool:
        return not isinstance(self.settings.map_weights, dict)

    def encode_queries(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> DenseFeatures:
        """φ_train, each linear map's part times its weight."""
        rows = _dense(self.encode_train(examples, on_rows))
        return rows if self.map_weights is None else rows * self._by_column(self.map_weights, rows.shape[1])

    def scores_by_group(
        self, train: Sequence[Example], queries: Sequence[Example], groups: MapGroups
    ) -> Iterator[tuple[slice, Float32[np.ndarray, "g n q"]]]:
        rows, asked = _dense(self.encode_train(train)), _dense(self.encode_train(queries))
        places = np.arange(len(self.sites))
        columns = [
            np.flatnonzero(self._by_column(np.isin(places, own).astype(np.float32), rows.shape[1]))
            for own in groups.values()
        ]
        for part in parts_of(len(queries), len(groups) * len(train)):
            yield part, np.stack([rows[:, own] @ asked[part, own].T for own in columns])

    def _by_column(self, weights: Float32[np.ndarray, " maps"], columns: int) -> Float32[np.ndarray, " d"]:
        """The weight of each feature."""
        once = np.repeat(weights, self.widths)
        return np.tile(once, columns // len(once))  # several checkpoints have such features side by side


def _dense(features: Features) -> DenseFeatures:
    assert isinstance(features, np.ndarray)
    return features


def parts_of(queries: int, scores: int, most: int | None = None) -> Iterator[slice]:
    """Queries, of so many scores each, in parts that can be held: of *most* queries at most."""
    size = max(1, min(HELD_SCORES // max(1, scores), queries if most is None else most))
    return (slice(first, min(first + size, queries)) for first in range(0, queries, size))


def _groups(sites: "Sequence[Site]", patterns: Sequence[str], where: str) -> dict[str, list[int]]:
    """Places of linear maps by the pattern that fits their names; ``*`` has those that no other fits.

    Raises:
        ConfigError: a pattern that no map has, or a map that has two. An error begins with *where*.
    """
    found: dict[str, list[int]] = {pattern: [] for pattern in patterns}
    for place, site in enumerate(sites):
        fitting = [one for one in patterns if one != REST and fnmatchcase(site.name, one)]
        if len(fitting) > 1:
            raise ConfigError(
                f"{where}: map_weights: '{fitting[0]}' and '{fitting[1]}' both fit {site.name}; expected one weight "
                "for a linear map. Make the patterns apart, or use '*' for all others."
            )
        if fitting or REST in found:
            found[fitting[0] if fitting else REST].append(place)
    empty = next((pattern for pattern, places in found.items() if not places), None)
    if empty is not None:
        from airrep.attributors.gradient.reading import listed  # torch, which sums without gradients do not need

        maps = "other linear map" if empty == REST else "linear map"
        raise ConfigError(
            f"{where}: map_weights: '{empty}' fits no {maps} whose gradients are taken; they are {listed(sites)}. "
            "Correct the pattern."
        )
    return found


def _patterns(sites: "Sequence[Site]", grouping: Grouping) -> tuple[str, ...]:
    """The patterns of a grouping. A layer is named by the first number in a name; a kind leaves numbers open."""
    names = [site.name for site in sites]
    if grouping == "maps":
        return tuple(names)
    if grouping == "kinds":
        return tuple(dict.fromkeys(re.sub(r"\.\d+(?=\.|$)", ".*", name) for name in names))
    return tuple(dict.fromkeys(re.sub(r"(?<=\.)(\d+)\..*", r"\1.*", name) for name in names))
