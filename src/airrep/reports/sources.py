"""Reads, names and joins the evaluations, comparisons and diagnoses of a report."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from airrep.errors import ConfigError
from airrep.evaluation.comparison import Comparison, Named, compare_evaluations
from airrep.evaluation.diagnosis import Diagnosis
from airrep.evaluation.result import Evaluation, Measure, Row
from airrep.evaluation.statistics.means import Difference
from airrep.runtime.artifacts import fetched, read_manifest

_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?")
"""Numbers with commas between thousands; ``0,5`` does not match."""
KINDS = (Evaluation.kind, Comparison.kind, Diagnosis.kind)
"""Kinds of artifacts that a report of evaluations is made from."""


Given: TypeAlias = str | Path | Evaluation
"""A run as a path or an evaluation object."""


def join_evaluations(runs: Named) -> list[tuple[str, Evaluation]]:
    """Join runs with equal measure, subject and tags into one evaluation each, named after its first run.

    Differences are then from the first row of all, tested as in `airrep compare`. Facts and noise ceiling are those
    of the first run. ConfigError: no runs can be joined, or two runs to join have a row with the same name.
    """
    found: dict[tuple[object, ...], list[tuple[str, Evaluation]]] = {}
    for name, run in runs:
        found.setdefault((run.measure, run.subject, *sorted(run.tags.items())), []).append((name, run))
    if len(found) == len(runs) > 1:
        raise ConfigError(
            "--set join=true: no two evaluations have the same queries, losses and --tag values. Remove join."
        )
    return [(same[0][0], _join(same) if len(same) > 1 else same[0][1]) for same in found.values()]


def _join(runs: Named) -> Evaluation:
    _check_names(runs)
    first = runs[0][1]
    gaps = {
        pair.one: Difference(pair.difference, pair.interval, pair.p_value)
        for pair in compare_evaluations(runs, first.rows[0].name).pairs
    }
    rows = [row for _, run in runs for row in run.rows]
    matrices, before = dict(first.matrices), 0  # names of matrices begin with the row's number; losses are shared
    for _, run in runs:
        for name, matrix in run.matrices.items():
            row, _, instance = name.partition("/")
            if row != "losses":
                matrices[f"{int(row) + before}/{instance}"] = matrix
        before += len(run.rows)
    return replace(
        first,
        rows=tuple(replace(row, difference=gaps.get(row.name)) for row in rows),
        command=" && ".join(run.command for _, run in runs if run.command),
        matrices=matrices,
    )


def _check_names(runs: Named) -> None:
    known: dict[str, str] = {}
    for name, run in runs:
        for row in run.rows:
            if row.name in known:
                raise ConfigError(
                    f"--set join=true: the evaluations {known[row.name]} and {name} both have a row '{row.name}', but "
                    "one table needs different row names. Leave one evaluation out, or run it again with another NAME: "
                    "airrep evaluate NAME=INDEX ..."
                )
        known |= {row.name: name for row in run.rows}


@dataclass(frozen=True, eq=False)
class ReportSource:
    """An evaluation with its name, and its label as a column or panel."""

    name: str
    evaluation: Evaluation
    label: str = ""
    """Heading that distinguishes it from other evaluations in a table or figure."""
    rows: Mapping[str, Row] = field(init=False)
    """The evaluation's rows by their names."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", {row.name: row for row in self.evaluation.rows})

    @property
    def role(self) -> str:
        """The tag ``role``, or the name if there is no such tag."""
        return self.evaluation.tags.get("role", self.name)

    @property
    def subsets(self) -> int | None:
        """Number of subsets in all instances of the labels; None for measures without subsets."""
        return self.evaluation.facts.get("subsets")

    @property
    def dropped(self) -> tuple[int, int]:
        """Smallest and largest number of queries left out by a row."""
        found = [row.dropped for row in self.evaluation.rows]
        return min(found, default=0), max(found, default=0)


class Point(NamedTuple):
    """A source at a value of a curve's tag."""

    at: float
    source: ReportSource


@dataclass
class Sources:
    """The artifacts of one page, by kind."""

    evaluations: list[ReportSource] = field(default_factory=list)
    """Evaluations in the given order, not joined."""
    comparisons: list[tuple[str, Comparison]] = field(default_factory=list)
    diagnoses: list[tuple[str, Diagnosis]] = field(default_factory=list)
    curves: Sequence[str] = ()
    """All tags that curves are drawn of; one evaluation may be a point of several curves."""
    joined: list[ReportSource] | None = None
    """Evaluations joined by :func:`join_evaluations`; None shows the given ones."""

    @cached_property
    def panels(self) -> dict[Measure, list[ReportSource]]:
        """The labelled evaluations for each measure's table.

        Evaluations with a curve's tag are left out if the measure has others.
        """
        found: dict[Measure, list[ReportSource]] = {}
        for source in self._shown:
            found.setdefault(source.evaluation.measure, []).append(source)
        return {measure: label_panels(self._off_curves(sources)) for measure, sources in found.items()}

    @property
    def _shown(self) -> list[ReportSource]:
        return self.evaluations if self.joined is None else self.joined

    def _off_curves(self, sources: list[ReportSource]) -> list[ReportSource]:
        """Return the sources without a curve's tag; all sources if each has one."""
        return [one for one in sources if not set(self.curves) & one.evaluation.tags.keys()] or sources

    def curve(self, measure: Measure, tag: str) -> list[tuple[str, list[Point]]]:
        """Return the evaluations with a numeric tag, grouped by role and other tags, ordered by the tag's value."""
        measured = [source for source in self._shown if source.evaluation.measure == measure]
        tagged = [source for source in measured if tag in source.evaluation.tags]
        groups: dict[str, list[Point]] = {}
        for source in tagged:
            role = source.evaluation.tags.get("role")
            label = ", ".join([*([role] if role else []), *_telling(source, tagged, tag, self.curves)])
            groups.setdefault(label, []).append(Point(_number(source, tag), source))
        for label, points in groups.items():
            points.sort(key=lambda point: point.at)
            _check_apart(label, tag, points)
        return list(groups.items())


def read_sources(runs: Sequence[Given] | Given, *, join: bool = False, curves: Sequence[str] = ()) -> Sources:
    """Read the artifacts of a report and check every byte; evaluation objects are taken unchanged.

    With *join*, evaluations with equal subject and tags are shown as one (:func:`join_evaluations`); *curves* are
    tags that curves are drawn of. ConfigError: there are no runs, a run is given twice, results are among them, or
    joined rows have the same name. ArtifactError: a run cannot be read, or is of another kind.
    """
    runs = [runs] if isinstance(runs, Given) else runs
    if not runs:
        raise ConfigError("report: no evaluations were given. Give at least one that was made with --out.")
    check_once(runs)
    opened = [run if isinstance(run, Evaluation) else fetched(run) for run in runs]
    kinds = {path: str(read_manifest(path)["kind"]) for path in opened if not isinstance(path, Evaluation)}
    _check_kinds(kinds)
    sources = Sources(curves=curves)
    for name, run in zip(run_names(opened), opened, strict=True):
        if isinstance(run, Evaluation):
            sources.evaluations.append(ReportSource(name, run))
        elif kinds[run] == Comparison.kind:
            sources.comparisons.append((name, Comparison.read(run)))
        elif kinds[run] == Diagnosis.kind:
            sources.diagnoses.append((name, Diagnosis.read(run)))
        else:
            sources.evaluations.append(ReportSource(name, Evaluation.read(run)))
    if join:
        named = [(one.name, one.evaluation) for one in sources.evaluations]
        sources.joined = [ReportSource(*one) for one in join_evaluations(named)]
    return sources


def _check_kinds(kinds: Mapping[Path, str]) -> None:
    """Raise ConfigError if results of top, group or what-if are among evaluations."""
    found = next((path for path in kinds if kinds[path] in KINDS), None)
    other = next((path for path in kinds if kinds[path] not in KINDS), None)
    if found and other:
        raise ConfigError(
            f"report: {found} is of kind '{kinds[found]}' and {other} of kind '{kinds[other]}', which cannot share a "
            "page. Write one report for each."
        )


def check_once(runs: Iterable[object]) -> None:
    """Raise ConfigError if a path or an object is given twice."""
    seen: dict[Path | int, str] = {}
    for number, run in enumerate(runs, 1):
        path, name = (Path(run).resolve(), str(run)) if isinstance(run, str | Path) else (id(run), f"result {number}")
        if path in seen:
            also = "" if seen[path] == name else f", also as {seen[path]}"
            raise ConfigError(f"report: {name} is given twice{also}. Remove one of the two.")
        seen[path] = name


def run_names(runs: Sequence[Given]) -> list[str]:
    """Return names of runs: the last part of a path, the whole path if several end alike, or a number."""
    paths = [None if isinstance(run, Evaluation) else Path(run) for run in runs]
    last = [path.name for path in paths if path is not None]
    return [
        f"evaluation {number}" if path is None else path.name if last.count(path.name) == 1 else str(path)
        for number, path in enumerate(paths, 1)
    ]


def label_panels(sources: Sequence[ReportSource]) -> list[ReportSource]:
    """Label sources by role, then by the tags and pools that differ in a role, then by name where labels are equal."""
    labels = [", ".join([source.role, *_telling(source, sources), *_pooled(source, sources)]) for source in sources]
    return [
        replace(source, label=label if labels.count(label) == 1 or label == source.name else f"{label} ({source.name})")
        for label, source in zip(labels, sources, strict=True)
    ]


def _telling(
    source: ReportSource, others: Sequence[ReportSource], curve: str = "", curves: Sequence[str] = ()
) -> list[str]:
    """Return a source's tags, except the curve's, that other sources of its role lack or have with another value."""
    own = source.evaluation.tags
    same = [other.evaluation.tags for other in others if other.evaluation.tags.get("role") == own.get("role")]
    # lacking only the tag of another curve does not make a source different
    values = {tag: {one.get(tag) for one in same if tag in one or tag not in curves} for tag in own}
    return [f"{tag}={own[tag]}" for tag in sorted(own.keys() - {"role", curve}) if len(values[tag]) > 1]


def _pooled(source: ReportSource, others: Sequence[ReportSource]) -> list[str]:
    """Return the pool of a source if another source of its role pools a row of the same name differently."""
    own = {row.name: row.pool for row in source.evaluation.rows}
    same = [row for other in others if other.role == source.role for row in other.evaluation.rows]
    if all(own.get(row.name, row.pool) == row.pool for row in same):
        return []
    kinds = {pool or "" for pool in own.values()}
    return [f"pool {kinds.pop()}" if len(kinds) == 1 else "own pools"]


def _number(source: ReportSource, tag: str) -> float:
    text = source.evaluation.tags[tag]
    try:
        value = float(text.replace(",", "") if _THOUSANDS.fullmatch(text.strip()) else text)
    except ValueError:
        value = float("nan")
    if not np.isfinite(value):
        raise ConfigError(
            f"--set curve={tag}: {source.name} has the tag {tag}={text[:40]}, which is not a number. Remove that run "
            "from the report, or plot over another tag."
        )
    return value


def _check_apart(label: str, tag: str, points: Sequence[Point]) -> None:
    for one, other in pairwise(points):
        if one.at == other.at:
            where = f" of {label}" if label else ""
            raise ConfigError(
                f"--set curve={tag}: {one.source.name} and {other.source.name}{where} have the same number {one.at:g} "
                f"on the horizontal axis. Leave one out, or evaluate it again with another number: --tag {tag}=NUMBER"
            )


def panel_rows(panels: Sequence[ReportSource]) -> list[str]:
    """Return the names of all panels' rows in order of first appearance."""
    return list(dict.fromkeys(name for panel in panels for name in panel.rows))
