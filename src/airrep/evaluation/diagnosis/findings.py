"""Findings, and the statistics of labelled instances they come from."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Self, TypeAlias, get_args

import numpy as np
import pyarrow.compute as pc

from airrep.errors import ConfigError
from airrep.evaluation.statistics.ceilings import Ceiling, mean_ceiling
from airrep.evaluation.statistics.labels import (
    Agreement,
    Common,
    Moved,
    Overlap,
    Variance,
    common_factor,
    moved,
    one_number,
    overlap_of,
    seeds_alike,
    shown,
    split_halves,
    variance_parts,
)
from airrep.evaluation.statistics.metrics import check_losses
from airrep.labels.instance import LabelledInstance, refuse_removals

Level: TypeAlias = Literal["bad", "look", "unknown", "good"]
"""A likely cause of a low LDS; worth a look; not known from the data; nothing to do. Worst first."""
LEVELS: tuple[Level, ...] = get_args(Level)
PAGE = "docs/diagnosis.md"
FALSE_DISCOVERIES = 0.05
"""Share of queries said to have signal that may have none."""


@dataclass(frozen=True)
class Finding:
    """One check of labels or of an index, with its number and verdict."""

    name: str
    """Name of the check."""
    level: Level
    number: str
    """The number that decides, with its unit."""
    verdict: str
    """Meaning of the number, in one sentence or two."""
    anchor: str
    """Heading of its paragraph on the page of advice."""
    about: str = "labels"
    """``"labels"``, or the path of an index."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """JSON values: all numbers behind it."""

    @property
    def advice(self) -> str:
        """Page and heading of the paragraph of advice."""
        return f"{PAGE}#{self.anchor}"

    def to_dict(self) -> dict[str, Any]:
        """A JSON object; numbers that are not known are null."""
        return {**vars(self), "values": jsonable(self.values), "advice": self.advice}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """The inverse of :meth:`to_dict`."""
        return cls(**{name: part for name, part in value.items() if name != "advice"})


class LabelStatistics:
    """Statistics of some labelled instances, each computed once, on first use."""

    def __init__(self, instances: Sequence[LabelledInstance], seconds: float | None = None) -> None:
        """Check the losses; arguments and errors as of :func:`airrep.evaluation.diagnosis.diagnosis.diagnose`."""
        if not instances:
            raise ConfigError("diagnose: expected at least one labelled instance. Name some.")
        for instance in instances:
            refuse_removals(instance)
            check_losses(instance.losses)
        self.instances = tuple(instances)
        self.seconds = seconds

    @property
    def seeds(self) -> int:
        """Fine-tunes of each subset, in the instance that has the fewest."""
        return min(1 if one.by_seed is None else len(one.by_seed) for one in self.instances)

    @property
    def subsets(self) -> int:
        """Subsets of all instances."""
        return sum(len(one.subsets) for one in self.instances)

    def per_query(self, measure: Callable[[LabelledInstance], np.ndarray]) -> np.ndarray:
        """A value of each query, the instances one after the other."""
        return np.concatenate([measure(one) for one in self.instances])

    @cached_property
    def deviation(self) -> np.ndarray:
        """Deviation of each query's losses over the subsets, in nats."""
        return self.per_query(lambda one: np.nanstd(one.losses.astype(np.float64), axis=1, ddof=1))

    @cached_property
    def constant(self) -> np.ndarray:
        """Mask of queries whose losses do not vary."""
        return self.per_query(lambda one: ~(np.nanmax(one.losses, axis=1) > np.nanmin(one.losses, axis=1)))

    @cached_property
    def drop(self) -> np.ndarray:
        """Mean drop of each query's loss by fine-tuning, over subsets; NaN where that is unknown."""
        return self.per_query(_drop)

    @cached_property
    def moved(self) -> Moved | None:
        """Size of the losses' change by fine-tuning, up or down; None if that is unknown."""
        return moved(self.instances)

    @cached_property
    def variance(self) -> Variance:
        """Variance of subsets and of seeds, for each query; NaN in instances with one seed."""
        parts = [variance_parts(one.losses[None] if one.by_seed is None else one.by_seed) for one in self.instances]
        return Variance(*map(np.concatenate, zip(*parts, strict=True)))

    @cached_property
    def agreement(self) -> Agreement:
        """Agreement of the halves of the seeds, for each query; needs several seeds."""
        parts = [split_halves(one.by_seed) for one in self.instances if one.by_seed is not None]
        ranked, plain = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
        return Agreement(ranked, plain, min(part.seeds for part in parts))

    @cached_property
    def ceiling(self) -> Ceiling | None:
        """Mean noise ceiling and reliability of the instances whose seeds differ; None where none has one."""
        pairs = zip(self.instances, self.alike, strict=True)
        return mean_ceiling(None if alike else one.by_seed for one, alike in pairs)

    @cached_property
    def alike(self) -> list[bool]:
        """True for each instance whose seeds change nothing; False if there is one seed."""
        return [one.by_seed is not None and seeds_alike(one.by_seed) for one in self.instances]

    @cached_property
    def silent(self) -> np.ndarray:
        """Mask of queries without a significant signal; with one seed, of queries with constant losses."""
        if self.seeds < 2:
            return self.constant
        silent: np.ndarray = self.constant | ~shown(self.variance.p_values, FALSE_DISCOVERIES)
        return silent

    @cached_property
    def overlaps(self) -> list[Overlap]:
        """Overlap of the subsets of each instance."""
        return [overlap_of(one.subsets, len(one.train)) for one in self.instances]

    @cached_property
    def common(self) -> list[Common]:
        """Common factor of each instance that has enough queries and subsets."""
        return [found for one in self.instances if (found := common_factor(one.losses)) is not None]

    def summary(self) -> dict[str, Any]:
        """Names and sizes of the instances, as JSON values."""
        sizes = sorted({int(size) for one in self.instances for size in one.subsets.sizes})
        return {
            "instances": [one.name for one in self.instances],
            "queries": sum(len(one.queries) for one in self.instances),
            "subsets": self.subsets,
            "seeds": self.seeds,
            "subset_sizes": [sizes[0], sizes[-1]],
            "pools": [len(one.train) for one in self.instances],
        }


def level_of(value: float, look: float, bad: float) -> Level:
    """Grade a number by two thresholds, *bad* being further from the good side than *look*; NaN is unknown."""
    if np.isnan(value):
        return "unknown"
    sign = 1 if bad >= look else -1  # thresholds that fall are for numbers of which more is better
    if sign * value >= sign * bad:
        return "bad"
    return "look" if sign * value >= sign * look else "good"


def worst(*levels: Level) -> Level:
    """The worst of the levels."""
    return min(levels, key=LEVELS.index)


def jsonable(value: Any) -> Any:
    """A value as JSON has it: arrays as lists, NaN and infinities as null."""
    if isinstance(value, Mapping):
        return {str(name): jsonable(part) for name, part in value.items()}
    if isinstance(value, np.ndarray):
        return jsonable(value.tolist())
    if isinstance(value, list | tuple):
        return [jsonable(part) for part in value]
    if isinstance(value, np.generic):
        return jsonable(value.item())
    return None if isinstance(value, float) and not np.isfinite(value) else value


def quantiles(values: np.ndarray) -> list[float]:
    """The 10 %, 50 % and 90 % quantiles, without NaN."""
    return [float(value) for value in np.nanquantile(values, [0.1, 0.5, 0.9])]


def spread_text(values: np.ndarray, unit: str) -> str:
    """A median with the range of the middle 80 %."""
    low, middle, high = quantiles(values)
    return f"{middle:.3f} ({low:.3f} to {high:.3f}) {unit}"


def one_number_lds(instance: LabelledInstance) -> float:
    """LDS of one number a subset, from other seeds than those it is judged by, where there are any."""
    seeds = instance.losses[None] if instance.by_seed is None else instance.by_seed
    first, last = seeds[0], seeds[-1]
    whole = ~(np.isnan(first).any(axis=0) | np.isnan(last).any(axis=0))
    if whole.sum() < 3:
        return float("nan")
    first, last = first[:, whole], last[:, whole]
    return float(np.mean([one_number(first, last), one_number(last, first)]))


def characters(instance: LabelledInstance) -> np.ndarray:
    """Characters of the responses of each subset, ``(m,)``."""
    lengths = pc.utf8_length(instance.train.table["response"]).to_numpy().astype(np.float64)
    subsets = instance.subsets
    return np.add.reduceat(lengths[subsets.rows], subsets.offsets[:-1])


def _drop(instance: LabelledInstance) -> np.ndarray:
    if instance.base_losses is None:
        return np.full(len(instance.queries), np.nan)
    drop: np.ndarray = instance.base_losses.astype(np.float64) - np.nanmean(instance.losses.astype(np.float64), axis=1)
    return drop
