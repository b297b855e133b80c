"""Comparison of evaluations: every pair of rows, tested."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from airrep.errors import ArtifactError, ConfigError, DataError, many, near
from airrep.evaluation.given import EvaluationsLike, named_evaluations
from airrep.evaluation.judging import difference_over
from airrep.evaluation.result import Evaluation, Kept, Row, as_json
from airrep.evaluation.statistics.means import Difference, Interval, TaskResamples, paired_ratio
from airrep.evaluation.statistics.metrics import RESAMPLES, judge
from airrep.runtime.artifacts import json_digest

Named = Sequence[tuple[str, Evaluation]]
"""Evaluations with the names of their runs."""


class ComparedRow(NamedTuple):
    """One row of one run."""

    name: str
    """Name of the row, with its run's name if two rows have the same name."""
    run: str
    method: str
    pool: str | None
    temperature: float | None
    value: float
    interval: tuple[float, float]
    dropped: int


class ComparedPair(NamedTuple):
    """One row minus another, over the queries that count for both."""

    one: str
    other: str
    difference: float
    """Value of *one* minus value of *other*."""
    interval: Interval
    """95 %, paired; not adjusted."""
    p_value: float
    """Two-sided, for a difference of 0."""
    adjusted: float
    """After Holm, over all pairs here."""
    ratio: float | None = None
    """Value of *one* over value of *other*; None if either is not above 0, or the interval of *other* holds 0."""
    ratio_interval: Interval | None = None
    """95 %, paired (:func:`airrep.evaluation.statistics.means.paired_ratio`)."""


@dataclass(frozen=True, repr=False)
class Comparison(Kept):
    """Comparison of the rows of evaluations with one measure and subject."""

    kind = "comparison"
    measure: str
    subject: str
    rows: tuple[ComparedRow, ...]
    """Best first."""
    pairs: tuple[ComparedPair, ...]
    to: str | None
    """The row that the others are compared with; None for all pairs."""
    resamples: int
    command: str = ""
    queries: int | None = None
    """Number of different queries that all rows were judged on; None in comparisons of older versions."""
    request: Mapping[str, Any] = field(default_factory=dict)

    def _records(self) -> Iterator[dict[str, Any]]:
        for pair in self.pairs:
            told = {name: value for name, value in pair._asdict().items() if "interval" not in name}
            yield {**told, **dict(zip(("low", "high"), pair.interval, strict=True))}

    def summary(self) -> str:
        best = f"{self.rows[0].name} {100 * self.rows[0].value:.1f}"
        return f"{self.measure} × 100, {many(len(self.rows), 'row')}, {many(len(self.pairs), 'pair')}, the best: {best}"

    def to_dict(self) -> dict[str, Any]:
        own = {name: value for name, value in vars(self).items() if name != "request"}
        parts = {"rows": [row._asdict() for row in self.rows], "pairs": [pair._asdict() for pair in self.pairs]}
        return as_json({**own, **parts})

    def _manifest(self) -> dict[str, Any]:
        return {"measure": self.measure, "provenance": {"command": self.command}}


def compare_evaluations(
    runs: EvaluationsLike, to: str | None = None, *, resamples: int | None = None, command: str = ""
) -> Comparison:
    """Test every pair of rows: difference, 95 % interval, two-sided p-value, p-value adjusted after Holm, and ratio.

    Rows of lds and loo are compared over resamples of queries and subsets, both at once
    (:func:`airrep.evaluation.statistics.metrics.paired`); instances are independent but for queries that they share.
    Rows of other measures are compared without draws, by McNemar's exact test or Student's t
    (:meth:`airrep.evaluation.statistics.means.TaskResamples.difference`).

    Args:
        runs: evaluations of one measure and one subject, or their paths, each alone or as ``(name, evaluation)``; or
            one alone. Rows and errors show the names.
        to: compare only with the row of this name.
        resamples: bootstrap draws of lds and loo; 1,000 if None.
        command: the command line, which the result keeps.

    Raises:
        ConfigError: no row of that name, fewer than two rows, or a run named twice.
        DataError: runs of different measures or subjects, or two rows without a query that counts for both.
        ArtifactError: a run without the matrices that its rows are paired from.

    Example:
        >>> found = airrep.classify([("tfidf", index), ("again", index)], queries)
        >>> comparison = airrep.compare_evaluations([("run", found)], to="tfidf", resamples=100)
    """
    runs = named_evaluations(runs)
    request = comparison_request(runs, to, resamples)  # first, as it refuses runs that cannot be compared
    contestants = sorted(_contestants(runs), key=lambda one: -one.side.value)
    sides, first = tuple(one.side for one in contestants), runs[0][1]
    reference = None if to is None else _find(sides, to)
    numbers = range(len(sides))
    pairs = [*combinations(numbers, 2)] if reference is None else [(n, reference) for n in numbers if n != reference]
    draws = resamples or RESAMPLES
    over_subsets = first.measure in ("lds", "loo")
    gaps = _over_subsets(contestants, pairs, draws) if over_subsets else _over_queries(contestants, pairs)
    found = [
        ComparedPair(sides[i].name, sides[j].name, *gap, p, *_ratio(sides[i], sides[j], gap))
        for (i, j), gap, p in zip(pairs, gaps, holm([gap.p_value for gap in gaps]), strict=True)
    ]
    name = None if reference is None else sides[reference].name
    return Comparison(
        first.measure, first.subject, sides, tuple(found), name, draws, command, first.distinct_queries, request
    )


def _ratio(one: ComparedRow, other: ComparedRow, gap: Difference) -> tuple[float, Interval] | tuple[None, None]:
    halves = [(ends[1] - ends[0]) / 2 for ends in (one.interval, other.interval, gap.interval)]
    return paired_ratio((one.value, halves[0]), (other.value, halves[1]), halves[2]) or (None, None)


def comparison_request(runs: Named, to: str | None = None, resamples: int | None = None) -> dict[str, Any]:
    """Return the request of :func:`compare_evaluations` as JSON values; arguments and errors are the same."""
    _check(runs)
    rows = {f"run {number}": _content(run) for number, (_, run) in enumerate(runs, start=1)}
    first = runs[0][1]
    return {"measure": first.measure, "subject": first.subject, **rows, "to": to, "resamples": resamples}


def _content(run: Evaluation) -> str:
    """Return a digest of the parts of a run that are compared or shown."""
    rows = [[row.name, row.method, row.pool, str(row.temperature)] for row in run.rows]
    shown = np.array([(row.value, *row.interval) for row in run.rows])
    values = {f"row {number}": row.per_query for number, row in enumerate(run.rows)}
    arrays = {name: _digest_of(array) for name, array in {**run.matrices, **values, "shown": shown}.items()}
    return json_digest([rows, arrays, run.facts.get("instances"), run.facts.get("clusters")])


def _digest_of(array: np.ndarray) -> str:
    """Return a digest of an array's shape and numbers; all NaN are equal."""
    numbers = np.where(np.isnan(array), np.nan, array.astype(np.float64))
    return json_digest([list(array.shape), hashlib.sha256(numbers.tobytes()).hexdigest()])


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values so that the chance of any false finding among them is bounded (Holm's step-down procedure).

    The k-th least of n is multiplied by n − k + 1; none is below an earlier one, or above 1.
    """
    order = np.argsort(p_values, kind="stable")
    factors = len(order) - np.arange(len(order))
    steps = np.minimum(np.maximum.accumulate(np.asarray(p_values)[order] * factors), 1.0)
    adjusted = np.empty(len(order))
    adjusted[order] = steps
    return [float(p) for p in adjusted]


class _Contestant(NamedTuple):
    """A row to compare, with the run that holds its values per query."""

    side: ComparedRow
    run: Evaluation
    row: Row
    number: int
    """Number of the row in its run."""

    def matrix(self, name: str, place: int) -> np.ndarray:
        """Return the matrix of this name, ``losses`` or a row's number, for instance number *place*."""
        instance = self.run.facts["instances"][place]
        found = self.run.matrices.get(f"{name}/{instance}")
        if found is None:
            raise ArtifactError(f"{self.side.run}: lacks the matrix {name}/{instance}. Run the evaluation again.")
        return found


def _check(runs: Named) -> None:
    twice = next((name for i, (name, _) in enumerate(runs) if name in [other for other, _ in runs[:i]]), None)
    if twice is not None:
        raise ConfigError(f"compare: {twice} is given twice. Give each run once.")
    if sum(len(run.rows) for _, run in runs) < 2:
        raise ConfigError(
            "compare: the evaluations hold only one result in all. Give another evaluation to compare with."
        )
    name, first = runs[0]
    for other, run in runs[1:]:
        if run.measure != first.measure:
            raise DataError(
                f"{other}: measures {run.measure}, but {name} measures {first.measure}. Compare only runs with the "
                "same measure."
            )
        if run.subject != first.subject:
            raise DataError(
                f"{other} and {name} cannot be compared: their queries, training data or labels differ (fingerprints "
                f"{run.subject[:12]} and {first.subject[:12]}). Evaluate both on the same data."
            )


def _contestants(runs: Named) -> Iterator[_Contestant]:
    names = [row.name for _, run in runs for row in run.rows]
    for run_name, run in runs:
        for number, row in enumerate(run.rows):
            name = row.name if names.count(row.name) == 1 else f"{row.name} ({run_name})"
            seen = (row.method, row.pool, row.temperature, row.value, row.interval, row.dropped)
            yield _Contestant(ComparedRow(name, run_name, *seen), run, row, number)


def _find(sides: Sequence[ComparedRow], name: str) -> int:
    found = next((number for number, side in enumerate(sides) if side.name == name), None)
    if found is None:
        known = [side.name for side in sides]
        meant = near(name, known, "Name one of these.")
        raise ConfigError(f"--to {name}: no row has this name. The rows are: {', '.join(known)}. {meant}")
    return found


def _over_subsets(
    contestants: Sequence[_Contestant], pairs: Sequence[tuple[int, int]], resamples: int
) -> list[Difference]:
    """Compute differences over queries and subsets, from the matrices."""
    names, first = [one.side.name for one in contestants], contestants[0]
    sign = 1 if first.run.measure == "lds" else -1  # higher scores go with lower losses, but with higher effects
    judged = []
    for place in range(len(first.run.facts["instances"])):
        scores = [one.matrix(str(one.number), place) for one in contestants]
        losses = sign * first.matrix("losses", place)
        judged.append(judge(scores, losses, pairs, resamples=resamples, names=names).pairs)
    shared = first.run.facts.get("shared_queries")
    together = None if shared is None else np.array(shared)
    return [difference_over(over_instances, resamples, together) for over_instances in zip(*judged, strict=True)]


def _over_queries(contestants: Sequence[_Contestant], pairs: Sequence[tuple[int, int]]) -> list[Difference]:
    """Compute differences over queries, and over tasks if they have any, from the values per query."""
    # Differences over queries are closed forms: the draws and their seed have no effect.
    run = contestants[0].run
    tasks = run.facts.get("clusters", [""] * len(run.queries))
    drawn = TaskResamples(tuple(map(str, tasks)), "clusters" in run.facts, RESAMPLES, 0, run.measure != "drop")
    return [drawn.difference(contestants[i].row.per_query, contestants[j].row.per_query) for i, j in pairs]
