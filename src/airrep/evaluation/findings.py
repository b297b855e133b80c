"""Findings on labels: what holds an LDS back, whatever the method."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import pyarrow.compute as pc

from airrep.errors import ConfigError, many
from airrep.evaluation.lds import telling_seeds
from airrep.evaluation.statistics.labels import (
    REMEDY,
    Agreement,
    Ceiling,
    Common,
    Moved,
    Overlap,
    Variance,
    common_factor,
    lds_of,
    mean_ceiling,
    moved,
    one_number,
    overlap_of,
    shown,
    split_halves,
    variance_parts,
)
from airrep.evaluation.statistics.metrics import check_losses
from airrep.labels.labels import LabelledInstance, refuse_removals
from airrep.runtime.metering import clock_text

Level: TypeAlias = Literal["bad", "look", "unknown", "good"]
"""In order: a likely cause of a low LDS; worth a look; not known from the data; nothing to do."""
LEVELS: tuple[Level, ...] = get_args(Level)
PAGE = "docs/diagnosis.md"
FALSE_DISCOVERIES = 0.05
"""Expected share of queries without signal among those that are reported with signal."""
WANTED_ERROR = 0.025
"""Standard error of the mean LDS at which 0.05 differs clearly from 0."""
MOST_BY_CHANCE = 0.5
"""Share of the variance that chance alone explains, from which on a component proves nothing."""


@dataclass(frozen=True)
class Finding:
    """One check of labels or of an index, with its number and verdict."""

    name: str
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
        """Return a JSON object; unknown numbers are null."""
        return {**vars(self), "values": jsonable(self.values), "advice": self.advice}


def find(
    name: str,
    level: Level,
    number: str,
    verdict: str | Mapping[str, str],
    values: Mapping[str, Any] | None = None,
    *,
    anchor: str = "",
    about: object = "labels",
) -> Finding:
    """Make a finding; *verdict* may be one for each level, and *anchor* is the name with hyphens by default."""
    told = verdict if isinstance(verdict, str) else verdict[level]
    return Finding(name, level, number, told, anchor or name.replace(" ", "-"), str(about), values or {})


class LabelStatistics:
    """Statistics of labelled instances, each computed once, on first use."""

    def __init__(self, instances: Sequence[LabelledInstance], seconds: float | None = None) -> None:
        """Check the losses; arguments and errors as for :func:`airrep.evaluation.diagnosis.diagnose`."""
        if not instances:
            raise ConfigError(
                "diagnose: no labels (measured losses) are given. Pass airrep.open(LABELS).instances(TRAIN)."
            )
        for instance in instances:
            refuse_removals(instance)
            check_losses(instance.losses)
        self.instances, self.seconds = tuple(instances), seconds
        self.seeds = min(1 if one.by_seed is None else len(one.by_seed) for one in instances)
        """Fine-tunes of each subset, in the instance that has the fewest."""
        self.subsets = sum(len(one.subsets) for one in instances)

    def per_query(self, measure: Callable[[LabelledInstance], np.ndarray]) -> np.ndarray:
        """Return a value of each query, instance after instance."""
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
    def telling(self) -> list[np.ndarray | None]:
        """Losses by seed of each instance; None if it has one seed, or seeds change nothing."""
        return telling_seeds(self.instances)

    @cached_property
    def ceiling(self) -> Ceiling | None:
        """Mean noise ceiling and reliability of the instances whose seeds differ; None if no instance has any."""
        return mean_ceiling(self.telling)

    @cached_property
    def silent(self) -> np.ndarray:
        """Mask of queries without a significant signal; with one seed, of queries with constant losses."""
        if self.seeds < 2:
            return self.constant
        return self.constant | ~shown(self.variance.p_values, FALSE_DISCOVERIES)

    @cached_property
    def overlaps(self) -> list[Overlap]:
        return [overlap_of(one.subsets, len(one.train)) for one in self.instances]

    @cached_property
    def common(self) -> list[Common]:
        """Common factor of each instance that has enough queries and subsets."""
        return [found for one in self.instances if (found := common_factor(one.losses)) is not None]

    def summary(self) -> dict[str, Any]:
        """Return names and sizes of the instances, as JSON values."""
        sizes = sorted({int(size) for one in self.instances for size in one.subsets.sizes})
        return {
            "instances": [one.name for one in self.instances],
            "queries": sum(len(one.queries) for one in self.instances),
            "subsets": self.subsets,
            "seeds": self.seeds,
            "subset_sizes": [sizes[0], sizes[-1]],
            "pools": [len(one.train) for one in self.instances],
        }


def _drop(instance: LabelledInstance) -> np.ndarray:
    if instance.base_losses is None:
        return np.full(len(instance.queries), np.nan)
    return instance.base_losses.astype(np.float64) - np.nanmean(instance.losses.astype(np.float64), axis=1)


def level_of(value: float, look: float, bad: float) -> Level:
    """Grade a number by two thresholds, *bad* being further from the good side than *look*; NaN is unknown."""
    if np.isnan(value):
        return "unknown"
    sign = 1 if bad >= look else -1  # falling thresholds are for numbers where more is better
    if sign * value >= sign * bad:
        return "bad"
    return "look" if sign * value >= sign * look else "good"


def worst(*levels: Level) -> Level:
    return min(levels, key=LEVELS.index)


def jsonable(value: Any) -> Any:
    """Turn a value into JSON: arrays as lists, NaN and infinities as null."""
    if isinstance(value, Mapping):
        return {str(name): jsonable(part) for name, part in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return jsonable(value.tolist())
    if isinstance(value, list | tuple):
        return [jsonable(part) for part in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _quantiles(values: np.ndarray) -> list[float]:
    return [float(value) for value in np.nanquantile(values, [0.1, 0.5, 0.9])]


def _spread_text(values: np.ndarray) -> str:
    low, middle, high = _quantiles(values)
    return f"{middle:.3f} ({low:.3f} to {high:.3f}) nats"


def label_findings(labels: LabelStatistics) -> list[Finding]:
    return [look(labels) for look in (effect, spread, reliability, silence, overlap, subset_count, common, length)]


def effect(labels: LabelStatistics) -> Finding:
    """Find out if fine-tuning lowered the queries' losses."""
    drop, name = labels.drop[~np.isnan(labels.drop)], "what fine-tuning taught"
    if not len(drop):
        return find(
            name, "unknown", "no base losses", "The labels (measured losses) lack the losses before fine-tuning."
        )
    rose = float((drop < 0).mean())
    # A mean loss that did not fall is bad, whatever the share of queries.
    level = worst(level_of(rose, 0.25, 0.5), level_of(-float(drop.mean()), 0.0, 0.0))
    verdict = {
        "good": "Fine-tuning on a subset lowers the loss of most queries.",
        "look": f"Fine-tuning raises the loss of {rose:.0%} of the queries: their measured losses rank harm, not help.",
        "bad": "Fine-tuning on a subset does not lower the loss: the LM knows such texts already, or gets worse.",
    }[level]
    base = labels.per_query(lambda one: np.zeros(len(one.queries)) if one.base_losses is None else one.base_losses)
    values = {"drop": _quantiles(drop), "mean_drop": drop.mean(), "mean_base_loss": base.mean(), "share_raised": rose}
    if (change := labels.moved) is not None:
        values["mean_change"] = change.change
        if change.hardly:
            level, verdict = "bad", f"The model hardly moved: {change.sentence}. {REMEDY} {verdict}"
    return find(name, level, f"loss falls by {_spread_text(drop)}", verdict, values)


def spread(labels: LabelStatistics) -> Finding:
    """Compare the spread of losses over subsets with the effects of fine-tuning and of the seed."""
    deviation, drop = labels.deviation, np.abs(labels.drop)
    middle = float(np.nanmedian(deviation))
    against = middle / float(np.nanmedian(drop)) if not np.isnan(drop).all() else float("nan")
    level = level_of(middle, 0.01, 0.001)
    if against < 0.05:
        level = worst(level, "look")
    noise = np.sqrt(labels.variance.noise)
    one_seed = np.isnan(noise).all()
    seeds = "" if one_seed else f"; between seeds {np.nanmedian(noise):.3f}"
    beside = "" if np.isnan(against) else f": the deviation is {against:.2f} of the median change"
    verdict = {
        "good": f"The loss of a query depends on the subset{beside}.",
        "look": "The loss of a query is nearly the same for all subsets: rank correlations rest on small differences.",
        "bad": "The loss of a query is the same for all subsets: differences of this size come from rounding.",
    }
    seed_deviation = None if one_seed else _quantiles(noise)
    values = {"deviation": _quantiles(deviation), "seed_deviation": seed_deviation, "per_drop": against}
    return find("spread over subsets", level, f"{_spread_text(deviation)}{seeds}", verdict, values)


def reliability(labels: LabelStatistics) -> Finding:
    """Find out if subsets would keep their ranks when fine-tuned again."""
    name, ceiling = "reliability of the labels", labels.ceiling
    if labels.seeds < 2:
        return find(name, "unknown", "one seed", _label_again(labels), {"seeds": 1})
    if all(one is None for one in labels.telling):
        verdict = (
            "The seeds give the same losses, so they do not show the noise. A seed changes only the order of the data, "
            "which has no effect on subsets that fit in one batch."
        )
        return find(name, "look", "not known", verdict, {"seeds": labels.seeds, "ceiling": None})
    if ceiling is None:
        return find(name, "bad", "none", "No query has losses that vary over the subsets in every seed.")
    agreement, most = labels.agreement, f"no method is expected to have an LDS above {100 * ceiling.lds:.1f}"
    values = {
        "seeds": labels.seeds,
        "halves_spearman": np.nanmean(agreement.spearman),
        "halves_pearson": np.nanmean(agreement.pearson),
        "per_query": _quantiles(agreement.spearman),
        "reliability": ceiling.reliability,
        "ceiling": ceiling.lds,
    }
    number = f"{ceiling.reliability:.2f}; noise ceiling of LDS × 100: {100 * ceiling.lds:.1f}"
    verdicts = {
        "good": f"If the subsets were fine-tuned again, their ranks would be nearly the same; {most}.",
        "look": f"Part of the ranking is chance: {most}. Add seeds.",
        "bad": f"Most of the ranking is chance: {most}. Add seeds.",
    }
    return find(name, level_of(ceiling.reliability, 0.8, 0.5), number, verdicts, values)


def _label_again(labels: LabelStatistics) -> str:
    """Advise for labels with one seed: name the command that measures reliability, and its cost."""
    first = labels.instances[0]
    few, sizes = min(8, len(first.subsets)), first.subsets.sizes
    cost = ""
    if labels.seconds is not None:
        cost = f", about {clock_text(2 * few * labels.seconds)} on one core by the speed of these labels"
    return (
        f"Two seeds are needed. Run `airrep sample` again with --instances 1 --subsets {few} --size {int(sizes[0])} "
        f"and all else as before, then `airrep label` with --seeds 2: {2 * few} fine-tunes{cost}."
    )


def silence(labels: LabelStatistics) -> Finding:
    """Count the queries to which the subsets make no difference."""
    silent, constant = labels.silent, int(labels.constant.sum())
    count, share, name = int(silent.sum()), float(silent.mean()), "queries without signal"
    level, number = level_of(share, 0.1, 0.3), f"{count:,} of {len(silent):,} ({share:.0%})"
    values = {"count": count, "share": share, "constant": constant, "tested": labels.seeds > 1}
    if labels.seeds < 2:
        known = "No query's losses are constant"
        if constant:
            known = f"The losses of {many(constant, 'query', 'queries')} are constant"
        verdict = f"{known}; only a second seed shows whether the others vary by more than chance."
        return find(name, worst(level, "unknown"), f"at least {number}", verdict, values)
    verdicts = {
        "good": "For nearly all queries, subsets differ by more than seeds do (F test, 5 % false discoveries).",
        "look": "For these queries, subsets are not shown to differ more than seeds (F test, 5 % false discoveries).",
        "bad": "For these queries, subsets are not shown to differ more than seeds: they pull the mean LDS towards 0.",
    }
    return find(name, level, number, verdicts, values)


def overlap(labels: LabelStatistics) -> Finding:
    """Measure the overlap of subsets, in the instance that has most."""
    found = max(labels.overlaps, key=lambda one: one.observed)
    beyond = found.observed - found.expected
    repeated = found.directions / found.subsets
    level = worst(level_of(found.observed, 0.5, 0.8), "look" if beyond > 0.05 or repeated < 0.5 else "good")
    verdict = "Subsets share hardly more examples than by chance, and differ enough."
    if found.observed >= 0.5:
        verdict = "Subsets share most of their examples, so their losses differ little: make the subsets smaller."
    elif beyond > 0.05:
        verdict = "Subsets share more than random draws would: some examples are drawn far more often than others."
    elif repeated < 0.5:
        verdict = "Subsets repeat each other: a larger pool would help more than more subsets of this pool."
    if level == "good":
        uses = f"{found.uses[0]:,} to {found.uses[2]:,} subsets (mean {found.uses[1]:.1f})"
        verdict += f" A used example is in {uses}; the pool was drawn {found.coverage:.1f} times over."
    number = f"{found.observed:.1%} shared, expected {found.expected:.1%}"
    return find("overlap of subsets", level, number, verdict, {"instances": [one._asdict() for one in labels.overlaps]})


def subset_count(labels: LabelStatistics) -> Finding:
    """Find out if there are enough subsets to tell methods apart."""
    name, count = "number of subsets", len(labels.common)
    if count < len(labels.instances):
        return find(name, "unknown", f"{labels.subsets:,}", "Too few losses to tell.")
    error = float(np.sqrt(sum(one.error**2 for one in labels.common))) / count
    fewest = min(one.subsets for one in labels.common)
    # The error falls with the root of m − 1.
    single, wanted = 1 / (fewest - 1) ** 0.5, 1 + int(np.ceil((fewest - 1) * (error / WANTED_ERROR) ** 2))
    level = level_of(error, WANTED_ERROR, 2 * WANTED_ERROR)
    verdict = f"A mean LDS × 100 below {200 * error:.1f} cannot be told from chance"
    verdict += (
        "."
        if level == "good"
        else f": measure losses of about {wanted:,} subsets of each instance (train/query split): --subsets {wanted}."
    )
    values = {"error": error, "error_of_a_query": single, "subsets_wanted": wanted, "subsets": fewest}
    number = f"{fewest:,}; LDS × 100 of one query ± {100 * single:.1f}, of all ± {100 * error:.1f}"
    return find(name, level, number, verdict, values)


def common(labels: LabelStatistics) -> Finding:
    """Find out if one number for each subset explains the losses of all queries."""
    if not labels.common:
        return find("a common factor", "unknown", "none", "Too few queries or losses to tell.")
    found = max(labels.common, key=_beyond_chance)
    number = f"{found.explained:.0%} of the variance (by chance {found.floor:.0%})"
    values = {"explained": found.explained, "by_chance": found.floor, "alike": found.alike}
    if found.floor >= MOST_BY_CHANCE:
        verdict = "Too few queries or subsets to tell: by chance alone, one component would explain as much."
        return find("a common factor", "unknown", number, verdict, values)
    beyond, alike = _beyond_chance(found), float(np.nanmean([_one_number_lds(one) for one in labels.instances]))
    level = worst(level_of(beyond, 0.5, 0.75), level_of(alike, 0.3, 0.6) if not np.isnan(alike) else "good")
    verdict = {
        "good": "Different subsets help different queries, so there is something to attribute.",
        "look": "Much of the effect of a subset is the same for all queries.",
        "bad": "A subset is better or worse for all queries alike: the LDS mostly asks for one number for each subset.",
    }[level]
    values |= {"beyond_chance": beyond, "one_number_lds": alike}
    verdict += f" One number for each subset, the same for all queries, has an LDS × 100 of {100 * alike:+.1f}."
    return find("a common factor", level, number, verdict, values)


def _beyond_chance(found: Common) -> float:
    """Return (explained − floor) / (1 − floor), at least 0; if the floor is half or more, −1, to be chosen last."""
    if found.floor >= MOST_BY_CHANCE:
        return -1.0
    return max(0.0, (found.explained - found.floor) / (1 - found.floor))


def _one_number_lds(instance: LabelledInstance) -> float:
    """Return the LDS of one number for each subset, from other seeds than it is judged by, if there are several."""
    seeds = instance.losses[None] if instance.by_seed is None else instance.by_seed
    first, last = seeds[0], seeds[-1]
    whole = ~(np.isnan(first).any(axis=0) | np.isnan(last).any(axis=0))
    if whole.sum() < 3:
        return float("nan")
    first, last = first[:, whole], last[:, whole]
    return float(np.mean([one_number(first, last), one_number(last, first)]))


def length(labels: LabelStatistics) -> Finding:
    """Find out if subsets with longer responses are simply better or worse."""
    if len(labels.common) < len(labels.instances):
        return find("length of responses", "unknown", "none", "Too few queries or losses to tell.")
    found = [lds_of(_characters(one), one.losses) for one in labels.instances]
    value = float(np.mean(found))
    # A correlation within two standard errors of chance is not worth a look.
    chance = 2 * float(np.sqrt(sum(one.error_alike**2 for one in labels.common))) / len(found)
    direction = "longer" if value > 0 else "shorter"
    verdicts = {
        "good": "The length of a subset's responses explains little of its effect.",
        "look": f"Part of the effect of a subset is its length: {direction} responses are better for most queries.",
        "bad": f"The effect of a subset follows its length: {direction} responses are better for most queries.",
        "unknown": "The responses of all subsets are of the same length.",
    }
    number = f"LDS × 100 of length alone {100 * value:+.1f} (by chance ± {100 * chance:.1f})"
    level = level_of(abs(value), max(0.15, chance), max(0.3, chance))
    values = {"lds": value, "by_instance": found, "by_chance": chance}
    return find("length of responses", level, number, verdicts, values)


def _characters(instance: LabelledInstance) -> np.ndarray:
    """Count the characters of each subset's responses, ``(m,)``."""
    lengths = pc.utf8_length(instance.train.table["response"]).to_numpy().astype(np.float64)
    return np.add.reduceat(lengths[instance.subsets.rows], instance.subsets.offsets[:-1])
