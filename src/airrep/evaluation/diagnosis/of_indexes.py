"""Findings on an index and its scores: why its LDS is low."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from airrep.arrays import GroupScores
from airrep.attributors.base import span
from airrep.evaluation.diagnosis.of_labels import Finding, LabelStatistics, Level, find, level_of, worst
from airrep.evaluation.judging import held_out_lds
from airrep.evaluation.lds import RowFinder
from airrep.evaluation.statistics.bootstrap import varies
from airrep.evaluation.statistics.metrics import RESAMPLES, lds
from airrep.index.index import Index
from airrep.labels.instance import LabelledInstance
from airrep.scoring.asked import Asked, score_blocks
from airrep.scoring.pooling import Pooling, PoolLike, exponents

QUERIES, SUBSETS = 50, 20
"""Queries and subsets of the first instance for which attention is measured: members are scored one by one."""
FLAT = 1e-5
"""Deviation of a query's group scores, as a share of their size, that float32 hardly resolves."""
LEAST = 5
"""Queries below which a part is not judged."""


@dataclass(frozen=True)
class AttentionWeights:
    """Spread of attention's weight over the members of a subset."""

    deviation: float
    """Deviation of member scores, divided by the temperature."""
    members: float
    """Members that count: mean over queries and subsets of exp(entropy of the weights)."""
    size: float
    """Mean members of a subset."""


class IndexScores:
    """Scores of one index on some labelled instances."""

    def __init__(self, index: Index, instances: Sequence[LabelledInstance], pool: PoolLike | None, t: float) -> None:
        """Score all subsets; arguments and errors as of :func:`index_findings`."""
        self.index, self.instances = index, tuple(instances)
        self.pooling: Pooling = index.attributor.pooling(pool, t)
        self._finder = RowFinder(index, instances)
        self.queries = [index.ask(one.queries) for one in instances]
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
    def weights(self) -> AttentionWeights:
        """Weights of attention, over some queries and subsets of the first instance."""
        subsets = self._finder.subsets(self.instances[0])
        part = subsets.part(0, min(len(subsets), SUBSETS))
        chosen = np.linspace(0, len(self.instances[0].queries) - 1, QUERIES).astype(int)
        rows, places = np.unique(part.rows, return_inverse=True)
        scores = self._members(self.queries[0].chosen(np.unique(chosen)), rows)
        groups = [scores[:, places[part.offsets[j] : part.offsets[j + 1]]] for j in range(len(part))]
        sizes = [exponents(group, self.pooling.kind) / self.pooling.temperature for group in groups]
        counted = np.mean([_effective(size) for size in sizes])
        deviation = float(np.std(scores)) / self.pooling.temperature
        return AttentionWeights(deviation, float(counted), float(part.sizes.mean()))

    def _members(self, asked: Asked, rows: np.ndarray) -> np.ndarray:
        """Scores of some rows of the index, ``(q, b)`` float64."""
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
    """All findings on one index of any data that contains the train pools; the pool is the method's own when None.

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
    """The LDS, beside its noise ceiling."""
    about = scored.index.path
    if scored.constant:
        verdict = "Scores, or losses, are the same for all subsets."
        return find("LDS", "bad", "none", verdict, anchor="lds", about=about)
    judged = held_out_lds(scored.scores, scored.instances, resamples)
    level: Level = "bad" if judged.interval.low <= 0 else level_of(judged.value / (ceiling or 1.0), 0.5, 0.0)
    verdict = {
        "good": "The method sees more than half of what can be seen.",
        "look": "The method sees part of what can be seen; the findings below say what may hold it back.",
        "bad": "The method is not shown to see anything: its interval reaches 0.",
    }[level]
    low, high = judged.interval
    most = "" if ceiling is None else f" of at most {100 * ceiling:.1f}"
    number = f"{100 * judged.value:+.1f} ({100 * low:+.1f} to {100 * high:+.1f}){most}"
    values = {**judged.to_dict(), "ceiling": ceiling, "pool": str(scored.pooling)}
    return find("LDS", level, number, f"{verdict} Pool: {scored.pooling}.", values, anchor="lds", about=about)


def flatness(scored: IndexScores) -> Finding:
    """Find out if group scores vary at all."""
    share = float(scored.flat.mean())
    hardly = "For these, group scores hardly differ from subset to subset: ranks come from rounding."
    verdicts = {"good": "Group scores differ from subset to subset.", "look": hardly, "bad": hardly}
    number = f"{int(scored.flat.sum()):,} of {len(scored.flat):,} queries ({share:.0%})"
    level, values = level_of(share, 0.02, 0.2), {"share": share, "threshold": FLAT}
    return find("nearly constant group scores", level, number, verdicts, values, about=scored.index.path)


def emptiness(scored: IndexScores) -> Finding:
    """Find out if features are all 0, so that the method sees nothing."""
    index, queries = scored.index, len(scored.flat)
    shares = index.empty / max(1, index.rows), scored.empty_queries / max(1, queries)
    verdicts = {
        "good": "The method sees something in nearly every text.",
        "look": "The method sees nothing in these texts; they score 0 with everything.",
        "bad": "The method sees nothing in many texts; they score 0 with everything.",
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
    verdict = said or "Nothing speaks against these groups."
    level: Level = "look" if said else "good"
    return find(name, level, number, verdict, anchor="trained-groups", about=scored.index.path)


def attention(scored: IndexScores) -> Finding:
    """Find out if attention is neither a mean nor a maximum."""
    found = scored.weights
    share = found.members / found.size
    low = level_of(found.members, 3.0, 1.5) if found.size > 10 else "good"  # in small subsets few members can count
    level = worst(low, level_of(share, 0.95, 1.01))  # no share is above 1: a mean is never bad, only worth a look
    verdicts = {
        "good": "Attention prefers some members without forgetting the others.",
        "look": "The temperature is so high that attention is a mean."
        if share >= 0.95
        else "The temperature is so low that attention looks at a few members alone.",
        "bad": "The temperature is so low that attention is a maximum.",
    }
    number = f"{found.members:.1f} of {found.size:.0f} members count; scores deviate by {found.deviation:.2f}"
    values = {**vars(found), "temperature": scored.pooling.temperature}
    return find("attention", level, number, verdicts, values, about=scored.index.path)


def places(scored: IndexScores, labels: LabelStatistics) -> list[Finding]:
    """LDS by parts of the queries: effect of fine-tuning, spread of their losses, label and source."""
    drop, thirds = labels.drop, np.nanquantile(labels.deviation, [1 / 3, 2 / 3])
    cuts = {
        "effect of fine-tuning": np.where(np.isnan(drop), "unknown", np.where(drop < 0, "loss raised", "loss lowered")),
        "spread over subsets": np.array(["least", "middle", "most"])[np.digitize(labels.deviation, thirds)],
    }
    for field in ("label", "source"):
        columns = [one.queries.table[field].to_pylist() for one in scored.instances]
        cuts[f"{field} of the query"] = np.array([value or "(none)" for column in columns for value in column])
    return [found for cut, names in cuts.items() if (found := _place(scored, cut, names)) is not None]


def _place(scored: IndexScores, cut: str, names: np.ndarray) -> Finding | None:
    """LDS of the queries of each name, and of which of them it is clearly below that of all others."""
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
    """The queries that count, their LDS, and by how many standard errors z it is above all others'; 0 where few."""
    inside = (names == name) & ~np.isnan(per_query)
    here, rest = per_query[inside], per_query[(names != name) & ~np.isnan(per_query)]
    value, z = (float(here.mean()) if len(here) else float("nan")), 0.0
    if min(len(here), len(rest)) >= LEAST:
        error = np.sqrt(here.var(ddof=1) / len(here) + rest.var(ddof=1) / len(rest))
        z = float((value - rest.mean()) / error) if error > 0 else 0.0
    return {"name": name, "queries": len(here), "lds": value, "z": z}


def _effective(size: np.ndarray) -> float:
    """exp(−Σ w log w) with w = softmax(size), mean over queries; *size* ``(q, k)``."""
    weights = np.exp(size - size.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    logs = np.log(np.where(weights > 0, weights, 1.0))
    return float(np.exp(-(weights * logs).sum(axis=1)).mean())
