"""Diagnose labels and indexes: why an LDS is low."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from airrep.arrays import GroupScores
from airrep.attributors.base import span
from airrep.evaluation.findings import (
    LEVELS,
    Finding,
    LabelStatistics,
    Level,
    find,
    jsonable,
    label_findings,
    level_of,
    worst,
)
from airrep.evaluation.given import IndexesLike, InstancesLike, labelled_instances, named_indexes
from airrep.evaluation.judging import held_out_lds
from airrep.evaluation.lds import RowFinder
from airrep.evaluation.result import Kept
from airrep.evaluation.statistics.bootstrap import varies
from airrep.evaluation.statistics.metrics import RESAMPLES, lds
from airrep.index.contrast import Question
from airrep.index.index import Index
from airrep.labels.labels import LabelledInstance, distinct, identity
from airrep.runtime.metering import read_label_times
from airrep.scoring.asked import Asked, score_blocks
from airrep.scoring.pooling import Pooling, PoolLike, exponents

QUERIES, SUBSETS = 50, 20
"""Queries and subsets of the first instance for which attention is measured: members are scored one by one."""
FLAT = 1e-5
"""Deviation of a query's group scores, as a share of their size, that float32 hardly resolves."""
LEAST = 5
"""Least number of queries for a part to be judged."""


@dataclass(frozen=True, repr=False)
class Diagnosis(Kept):
    """Findings on what may hold an LDS back, worst first."""

    kind = "diagnosis"
    findings: tuple[Finding, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    """JSON values: instances, queries, subsets, seeds, sizes."""
    command: str = ""
    request: Mapping[str, Any] = field(default_factory=dict)

    def _records(self) -> Iterator[dict[str, Any]]:
        for one in self.findings:
            yield {name: getattr(one, name) for name in ("about", "name", "level", "number", "verdict", "advice")}

    def summary(self) -> str:
        return self.sentence

    @property
    def sentence(self) -> str:
        """The outcome in one sentence."""
        counts = {level: sum(found.level == level for found in self.findings) for level in LEVELS}
        if not counts["bad"] and not counts["look"]:
            return f"No finding explains a low LDS; {counts['unknown']} are unknown."
        first = self.findings[0]
        causes = f"Findings: {counts['bad']} likely to lower the LDS, {counts['look']} worth a look"
        return f"{causes}, {counts['unknown']} unknown. Begin with {first.name} ({first.about}): {first.advice}"

    def to_dict(self) -> dict[str, Any]:
        found = [one.to_dict() for one in self.findings]
        return {"sentence": self.sentence, "facts": dict(self.facts), "command": self.command, "findings": found}

    def _manifest(self) -> dict[str, Any]:
        shown = {f"{found.about}: {found.name}": f"{found.level}: {found.number}" for found in self.findings}
        return {"provenance": {"command": self.command, **shown}}


def diagnose(
    instances: InstancesLike,
    indexes: IndexesLike = (),
    pool: PoolLike | None = None,
    temperature: float = 1.0,
    *,
    seconds: float | None = None,
    resamples: int = RESAMPLES,
    command: str = "",
) -> Diagnosis:
    """Look for what may hold an LDS back, in labels and in indexes.

    Args:
        instances: queries, subsets and losses; or one instance alone.
        indexes: indexes of any data that contains the train pools, or their paths; or one alone.
        pool: the pool of all indexes; each method's own if None.
        temperature: the temperature of attention.
        seconds: seconds of one fine-tune, if known.
        resamples: bootstrap draws behind each index's interval.
        command: the command line, which the result keeps.

    Raises:
        ConfigError: no instance, an instance given twice by its content, or a pool that does not fit.
        DataError: an instance of removals, losses that cannot be used, an index that lacks an example, or scores that
            are not finite.

    Example:
        >>> from airrep.evaluation.diagnosis import diagnose
        >>> found = diagnose(instances[:1], resamples=100)
        >>> isinstance(found.sentence, str)
        True
    """
    judged = labelled_instances(instances, "diagnose")
    opened = [index for _, index in named_indexes(indexes, "diagnose")]
    labels = LabelStatistics(judged, seconds)
    request = diagnosis_request(judged, opened, pool, temperature)
    findings = label_findings(labels)
    for index in opened:
        findings += index_findings(index, labels, pool, temperature, resamples=resamples)
    ordered = sorted(findings, key=lambda one: LEVELS.index(one.level))
    return Diagnosis(tuple(ordered), jsonable(labels.summary()), command, request)


def diagnosis_request(
    instances: Sequence[LabelledInstance], indexes: Sequence[Index], pool: PoolLike | None, temperature: float
) -> dict[str, Any]:
    """Return the request of a diagnosis (ConfigError: an instance is given twice)."""
    distinct(instances)
    digests = {str(number): _digest(instance) for number, instance in enumerate(instances)}
    prints = {str(number): index.fingerprint for number, index in enumerate(indexes)}
    asked = None if pool is None else str(pool)
    return {"labels": digests, "indexes": prints, "pool": asked, "temperature": temperature}


def _digest(instance: LabelledInstance) -> str:
    """Return 64 hex digits over an instance with all its losses."""
    found = sha256(identity(instance).encode())
    for array in (instance.base_losses, instance.by_seed):
        found.update(b" none" if array is None else f" {array.shape} ".encode() + np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def seconds_of_fine_tunes(folders: Sequence[str | Path]) -> float | None:
    """Return the median seconds of a fine-tune that label directories recorded; None if none did."""
    lines = [line for folder in folders for line in read_label_times(Path(folder))]
    taken = [line["seconds"] for line in lines if "subset" in str(line["task"])]
    return statistics.median(taken) if taken else None


class IndexScores:
    """Scores of one index on labelled instances."""

    def __init__(self, index: Index, instances: Sequence[LabelledInstance], pool: PoolLike | None, t: float) -> None:
        """Score all subsets; arguments and errors as for :func:`index_findings`."""
        self.index, self.instances = index, tuple(instances)
        self.pooling: Pooling = index.attributor.pooling(pool, t)
        self._finder = RowFinder(index, instances)
        self.queries = [index.ask(Question(one.queries)) for one in instances]
        pairs = zip(instances, self.queries, strict=True)
        self.scores: list[GroupScores] = [self._finder.score(one, self.pooling, asked) for one, asked in pairs]

    @cached_property
    def flat(self) -> np.ndarray:
        """Mask ``(q,)`` of queries whose group scores are equal for all subsets, as far as float32 can tell."""
        wide = [scores.astype(np.float64) for scores in self.scores]
        return np.concatenate([part.std(axis=1) <= FLAT * np.abs(part).mean(axis=1) for part in wide])

    @cached_property
    def constant(self) -> bool:
        """True if some instance has no query whose scores and losses both vary."""
        pairs = zip(self.scores, self.instances, strict=True)
        return any(not (varies(f) & varies(one.losses, ~np.isnan(one.losses))).any() for f, one in pairs)

    @cached_property
    def per_query(self) -> np.ndarray:
        """Spearman of each query, ``(q,)``; NaN where scores or losses are constant."""
        pairs = zip(self.scores, self.instances, strict=True)
        return np.concatenate([lds(f, one.losses, resamples=0).per_query for f, one in pairs])

    @cached_property
    def empty_queries(self) -> int:
        """Queries whose features are all 0."""
        return sum(int(np.count_nonzero(~asked.filled)) for asked in self.queries)

    @cached_property
    def weights(self) -> dict[str, float]:
        """Statistics of attention, over some queries and subsets of the first instance.

        ``deviation`` of member scores, divided by the temperature; ``members`` that count, the mean over queries and
        subsets of exp(entropy of the weights); ``size``, the mean members of a subset.
        """
        subsets = self._finder.subsets(self.instances[0])
        part = subsets.part(0, min(len(subsets), SUBSETS))
        chosen = np.linspace(0, len(self.instances[0].queries) - 1, QUERIES).astype(int)
        rows, places = np.unique(part.rows, return_inverse=True)
        scores = self._members(self.queries[0].chosen(np.unique(chosen)), rows)
        groups = [scores[:, places[part.offsets[j] : part.offsets[j + 1]]] for j in range(len(part))]
        sizes = [exponents(group, self.pooling.kind) / self.pooling.temperature for group in groups]
        counted = np.mean([_effective(size) for size in sizes])
        deviation = float(np.std(scores)) / self.pooling.temperature
        return {"deviation": deviation, "members": float(counted), "size": float(part.sizes.mean())}

    def _members(self, asked: Asked, rows: np.ndarray) -> np.ndarray:
        """Return the scores of some rows of the index, ``(q, b)`` float64."""
        parts = []
        for start, scores in score_blocks(asked):
            here = rows[(rows >= start) & (rows < start + scores.shape[1])] - start
            parts.append(scores[:, here].astype(np.float64))
        return np.concatenate(parts, axis=1)


def index_findings(
    index: Index,
    labels: LabelStatistics,
    pool: PoolLike | None = None,
    temperature: float = 1.0,
    *,
    resamples: int = RESAMPLES,
) -> list[Finding]:
    """Return all findings on one index whose data contains the train pools; *pool* is the method's own if None.

    ConfigError: a pool that does not fit. DataError: the index lacks an example, or a score is not finite.
    """
    scored = IndexScores(index, labels.instances, pool, temperature)
    ceiling = None if labels.ceiling is None else labels.ceiling.lds
    findings = [reach(scored, ceiling, resamples), flatness(scored), emptiness(scored), training(scored)]
    if scored.pooling.attends:
        findings.append(attention(scored))
    if not scored.constant:
        findings += places(scored, labels)
    return findings


def reach(scored: IndexScores, ceiling: float | None, resamples: int) -> Finding:
    """Compare the LDS with its noise ceiling."""
    about = scored.index.path
    if scored.constant:
        verdict = "Scores, or losses, are the same for all subsets."
        return find("LDS", "bad", "none", verdict, anchor="lds", about=about)
    judged = held_out_lds(scored.scores, scored.instances, resamples)
    level: Level = "bad" if judged.interval.low <= 0 else level_of(judged.value / (ceiling or 1.0), 0.5, 0.0)
    verdict = {
        "good": "The method reaches more than half of the LDS that is possible.",
        "look": "The method reaches less than half of the LDS that is possible; see the findings below for causes.",
        "bad": "The method is not shown to predict anything: the interval of its LDS reaches 0.",
    }[level]
    low, high = judged.interval
    most = "" if ceiling is None else f" of at most {100 * ceiling:.1f}"
    number = f"{100 * judged.value:+.1f} ({100 * low:+.1f} to {100 * high:+.1f}){most}"
    values = {**judged.to_dict(), "ceiling": ceiling, "pool": str(scored.pooling)}
    return find("LDS", level, number, f"{verdict} Pool: {scored.pooling}.", values, anchor="lds", about=about)


def flatness(scored: IndexScores) -> Finding:
    """Find out if group scores vary at all."""
    share = float(scored.flat.mean())
    hardly = "For these queries, group scores hardly differ between subsets: their ranks come from rounding."
    verdicts = {"good": "Group scores differ from subset to subset.", "look": hardly, "bad": hardly}
    number = f"{int(scored.flat.sum()):,} of {len(scored.flat):,} queries ({share:.0%})"
    level, values = level_of(share, 0.02, 0.2), {"share": share, "threshold": FLAT}
    return find("nearly constant group scores", level, number, verdicts, values, about=scored.index.path)


def emptiness(scored: IndexScores) -> Finding:
    """Find out if features are all 0, or too small for float16, so that the method sees nothing."""
    index, queries = scored.index, len(scored.flat)
    shares = index.empty / max(1, index.rows), scored.empty_queries / max(1, queries)
    verdicts = {
        "good": "The method finds something in nearly every text.",
        "look": "The method finds nothing, or too little for float16, in these texts: they score 0 or inexactly.",
        "bad": "The method finds nothing, or too little for float16, in many texts: they score 0 or inexactly.",
    }
    number = f"{index.empty:,} of {index.rows:,} rows, {scored.empty_queries:,} of {queries:,} queries"
    level = worst(*(level_of(share, 0.01, 0.2) for share in shares))
    values = {"rows": index.empty, "queries": scored.empty_queries}
    return find("features that are all 0", level, number, verdicts, values, about=index.path)


def training(scored: IndexScores) -> Finding:
    """Find out if the features were trained for groups of this size and for this pool."""
    attributor, name = scored.index.attributor, "trained for such groups"
    sizes = [size for one in scored.instances for size in one.subsets.sizes.tolist()]
    trained = attributor.trained_groups
    more = "" if trained is None else trained.caution(sizes, str(scored.pooling))
    said = " ".join(filter(None, (attributor.caution, more)))
    known = "not trained on groups" if trained is None else f"trained on {span(trained.smallest, trained.largest)}"
    number = f"{span(min(sizes), max(sizes))} members; {known}"
    verdict = said or "The method has no known problem with such groups."
    level: Level = "look" if said else "good"
    return find(name, level, number, verdict, anchor="trained-groups", about=scored.index.path)


def attention(scored: IndexScores) -> Finding:
    """Find out if attention is neither a mean nor a maximum."""
    members, size, deviation = (scored.weights[name] for name in ("members", "size", "deviation"))
    share = members / size
    low = level_of(members, 3.0, 1.5) if size > 10 else "good"  # in small subsets few members can count
    level = worst(low, level_of(share, 0.95, 1.01))  # no share is above 1: a mean is never bad, only worth a look
    verdicts = {
        "good": "Attention gives some members more weight and still counts the others.",
        "look": "The temperature is so high that attention is nearly a mean."
        if share >= 0.95
        else "The temperature is so low that attention looks at only a few members.",
        "bad": "The temperature is so low that attention is nearly a maximum.",
    }
    number = f"{members:.1f} of {size:.0f} members count; scores deviate by {deviation:.2f}"
    values = {**scored.weights, "temperature": scored.pooling.temperature}
    return find("attention", level, number, verdicts, values, about=scored.index.path)


def places(scored: IndexScores, labels: LabelStatistics) -> list[Finding]:
    """Compare the LDS of parts of the queries: by effect of fine-tuning, spread of losses, label and source."""
    drop, thirds = labels.drop, np.nanquantile(labels.deviation, [1 / 3, 2 / 3])
    cuts = {
        "effect of fine-tuning": np.where(np.isnan(drop), "unknown", np.where(drop < 0, "loss raised", "loss lowered")),
        "spread over subsets": np.array(["least", "middle", "most"])[np.digitize(labels.deviation, thirds)],
    }
    for column_name in ("label", "source"):
        columns = [one.queries.table[column_name].to_pylist() for one in scored.instances]
        cuts[f"{column_name} of the query"] = np.array([value or "(none)" for column in columns for value in column])
    return [found for cut, names in cuts.items() if (found := _place(scored, cut, names)) is not None]


def _place(scored: IndexScores, cut: str, names: np.ndarray) -> Finding | None:
    """Find parts of the queries whose LDS is clearly below the rest; None with fewer than two parts to judge."""
    table = [_part(scored.per_query, names, name) for name in sorted(set(names.tolist()))]
    judged = sorted((part for part in table if part["queries"] >= LEAST), key=lambda part: part["lds"])
    if len(judged) < 2:
        return None
    low, high = judged[0], judged[-1]
    behind = [part["name"] for part in judged if part["z"] < -3]
    verdict = "No part is clearly behind the rest."
    if behind:
        verdict = f"Clearly behind the rest: {', '.join(behind[:5])}{' …' if len(behind) > 5 else ''}."
    number = f"{100 * low['lds']:+.1f} ({low['name']}) to {100 * high['lds']:+.1f} ({high['name']})"
    level: Level = "look" if behind else "good"
    about = scored.index.path
    return find(f"LDS by {cut}", level, number, verdict, {"parts": table}, anchor="lds-by-part", about=about)


def _part(per_query: np.ndarray, names: np.ndarray, name: str) -> dict[str, Any]:
    """Return a part's queries, its LDS, and z, the standard errors that it is above the rest, 0 if either is small."""
    inside = (names == name) & ~np.isnan(per_query)
    here, rest = per_query[inside], per_query[(names != name) & ~np.isnan(per_query)]
    value, z = (float(here.mean()) if len(here) else float("nan")), 0.0
    if min(len(here), len(rest)) >= LEAST:
        error = np.sqrt(here.var(ddof=1) / len(here) + rest.var(ddof=1) / len(rest))
        z = float((value - rest.mean()) / error) if error > 0 else 0.0
    return {"name": name, "queries": len(here), "lds": value, "z": z}


def _effective(size: np.ndarray) -> float:
    """Return exp(−Σ w log w) with w = softmax(size), mean over queries; *size* is ``(q, k)``."""
    from scipy.special import entr, softmax

    return float(np.exp(entr(softmax(size, axis=1)).sum(axis=1)).mean())
