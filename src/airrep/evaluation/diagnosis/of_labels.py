"""Findings on labels alone: why an LDS is low."""

import numpy as np

from airrep.evaluation.diagnosis.findings import (
    Finding,
    LabelStatistics,
    Level,
    characters,
    level_of,
    one_number_lds,
    quantiles,
    spread_text,
    worst,
)
from airrep.evaluation.statistics.ceilings import Ceiling
from airrep.evaluation.statistics.labels import REMEDY, Common, lds_of
from airrep.runtime.metering import clock_text

WANTED_ERROR = 0.025
"""Standard error of the mean LDS that tells 0.05 from 0."""
MOST_BY_CHANCE = 0.5
"""Share of the variance, by chance alone, from which on a component proves nothing."""
_SEEDS_ALIKE = (
    "The seeds give the same losses, so they tell nothing of noise: with subsets no larger than a batch, the order of "
    "the data, all that a seed changes, does not matter."
)


def label_findings(labels: LabelStatistics) -> list[Finding]:
    """All findings on labels."""
    return [look(labels) for look in (effect, spread, reliability, silence, overlap, subset_count, common, length)]


def effect(labels: LabelStatistics) -> Finding:
    """Find out if fine-tuning lowered the queries' losses."""
    drop, name, anchor = labels.drop[~np.isnan(labels.drop)], "what fine-tuning taught", "what-fine-tuning-taught"
    if not len(drop):
        return Finding(name, "unknown", "no base losses", "These labels do not tell the losses before it.", anchor)
    rose = float((drop < 0).mean())
    # A mean loss that did not fall is bad, whatever the share of queries.
    level = worst(level_of(rose, 0.25, 0.5), level_of(-float(drop.mean()), 0.0, 0.0))
    verdict = {
        "good": "Fine-tuning on a subset lowers the loss of most queries.",
        "look": f"Fine-tuning raises the loss of {rose:.0%} of the queries: on these, labels rank harm, not help.",
        "bad": "Fine-tuning on a subset does not lower the loss: the LM knows such texts already, or unlearns.",
    }[level]
    base = labels.per_query(lambda one: np.zeros(len(one.queries)) if one.base_losses is None else one.base_losses)
    values = {"drop": quantiles(drop), "mean_drop": drop.mean(), "mean_base_loss": base.mean(), "share_raised": rose}
    if (change := labels.moved) is not None:
        values["mean_change"] = change.change
        if change.hardly:
            level, verdict = "bad", f"The model hardly moved: {change.sentence}. {REMEDY} {verdict}"
    return Finding(name, level, f"loss falls by {spread_text(drop, 'nats')}", verdict, anchor, values=values)


def spread(labels: LabelStatistics) -> Finding:
    """Spread of the losses over subsets, beside the effects of fine-tuning and of the seed."""
    deviation, drop = labels.deviation, np.abs(labels.drop)
    middle = float(np.nanmedian(deviation))
    against = middle / float(np.nanmedian(drop)) if not np.isnan(drop).all() else float("nan")
    level = level_of(middle, 0.01, 0.001)
    if against < 0.05:
        level = worst(level, "look")
    noise = np.sqrt(labels.variance.noise)
    seeds = "" if np.isnan(noise).all() else f"; between seeds {np.nanmedian(noise):.3f}"
    verdict = {
        "good": f"Subsets differ in what they do to a query: the deviation is {against:.2f} of the median change.",
        "look": "Subsets do nearly the same to a query: rank correlations rest on small differences.",
        "bad": "Losses hardly move from subset to subset; differences of this size are those of rounding.",
    }[level]
    if level == "good" and np.isnan(against):
        verdict = "Subsets differ in what they do to a query."
    values = {"deviation": quantiles(deviation), "seed_deviation": _known(noise), "per_drop": against}
    number = f"{spread_text(deviation, 'nats')}{seeds}"
    return Finding("spread over subsets", level, number, verdict, "spread-over-subsets", values=values)


def _known(values: np.ndarray) -> list[float] | None:
    return None if np.isnan(values).all() else quantiles(values)


def reliability(labels: LabelStatistics) -> Finding:
    """Find out if subsets would keep their ranks when fine-tuned again."""
    name, anchor = "reliability of the labels", "reliability-of-the-labels"
    if labels.seeds < 2:
        return Finding(name, "unknown", "one seed", _label_again(labels), anchor, values={"seeds": 1})
    if all(labels.alike):
        values: dict[str, object] = {"seeds": labels.seeds, "ceiling": None}
        return Finding(name, "look", "not known", _SEEDS_ALIKE, anchor, values=values)
    agreement, ceiling = labels.agreement, labels.ceiling
    if ceiling is None:
        return Finding(name, "bad", "none", "No query's losses vary over the subsets in every seed.", anchor)
    values = {
        "seeds": labels.seeds,
        "halves_spearman": np.nanmean(agreement.spearman),
        "halves_pearson": np.nanmean(agreement.pearson),
        "per_query": quantiles(agreement.spearman),
        "reliability": ceiling.reliability,
        "ceiling": ceiling.lds,
    }
    number = f"{ceiling.reliability:.2f}; noise ceiling of LDS × 100: {100 * ceiling.lds:.1f}"
    level, verdict = _reliable(ceiling)
    return Finding(name, level, number, verdict, anchor, values=values)


def _reliable(ceiling: Ceiling) -> tuple[Level, str]:
    level = level_of(ceiling.reliability, 0.8, 0.5)
    most = f"no method is expected above an LDS of {100 * ceiling.lds:.1f}"
    return level, {
        "good": f"Fine-tuned again, subsets would rank nearly the same; {most}.",
        "look": f"Part of the ranking is chance: {most}. Add seeds.",
        "bad": f"Most of the ranking is chance: {most}. Add seeds.",
    }[level]


def _label_again(labels: LabelStatistics) -> str:
    """Advice for one seed: the command that tells reliability, with its cost."""
    first = labels.instances[0]
    few, sizes = min(8, len(first.subsets)), first.subsets.sizes
    cost = ""
    if labels.seconds is not None:
        cost = f", about {clock_text(2 * few * labels.seconds)} on one core as these labels went"
    return (
        f"One seed does not tell. Sample again with --instances 1 --subsets {few} --size {int(sizes[0])} and the rest "
        f"as it was, and label that with --seeds 2: {2 * few} fine-tunes{cost}."
    )


def silence(labels: LabelStatistics) -> Finding:
    """Number of queries to which the subsets make no difference."""
    silent, constant = labels.silent, int(labels.constant.sum())
    count, share, anchor = int(silent.sum()), float(silent.mean()), "queries-without-signal"
    level = level_of(share, 0.1, 0.3)
    name, number = "queries without signal", f"{count:,} of {len(silent):,} ({share:.0%})"
    values = {"count": count, "share": share, "constant": constant, "tested": labels.seeds > 1}
    if labels.seeds < 2:
        known = "No query's losses are constant" if not constant else f"{constant:,} queries' losses are constant"
        verdict = f"{known}; whether others vary by more than chance takes a second seed."
        return Finding(name, worst(level, "unknown"), f"at least {number}", verdict, anchor, values=values)
    verdict = {
        "good": "Subsets differ by more than seeds do, for nearly all queries (F test, 5 % false discoveries).",
        "look": "For these, subsets are not shown to differ by more than seeds do (F test, 5 % false discoveries).",
        "bad": "For these, subsets are not shown to differ by more than seeds do: they pull the mean LDS towards 0.",
    }[level]
    return Finding(name, level, number, verdict, anchor, values=values)


def overlap(labels: LabelStatistics) -> Finding:
    """Overlap of the subsets, of the instance that has most."""
    found = max(labels.overlaps, key=lambda one: one.observed)
    beyond = found.observed - found.expected
    repeated = found.directions / found.subsets
    level = worst(level_of(found.observed, 0.5, 0.8), "look" if beyond > 0.05 or repeated < 0.5 else "good")
    verdict = "Subsets have little more in common than chance gives them, and differ enough."
    if found.observed >= 0.5:
        verdict = "Subsets share most of their members, so their losses differ little: make them smaller."
    elif beyond > 0.05:
        verdict = "Subsets share more than random draws would: some examples are drawn far more often than others."
    elif repeated < 0.5:
        verdict = "Subsets repeat each other: more examples in the pool tell more than more subsets of this one."
    uses = f"{found.uses[0]:,} to {found.uses[2]:,}, mean {found.uses[1]:.1f}"
    if level == "good":
        verdict += f" A used example is in {uses} of them; the pool was drawn {found.coverage:.1f} times over."
    number = f"{found.observed:.1%} shared, expected {found.expected:.1%}"
    values = {"instances": [one._asdict() for one in labels.overlaps]}
    return Finding("overlap of subsets", level, number, verdict, "overlap-of-subsets", values=values)


def subset_count(labels: LabelStatistics) -> Finding:
    """Find out if there are enough subsets to tell methods apart."""
    name, anchor = "number of subsets", "number-of-subsets"
    if len(labels.common) < len(labels.instances):
        return Finding(name, "unknown", f"{labels.subsets:,}", "Too few losses to tell.", anchor)
    count = len(labels.common)
    error = float(np.sqrt(sum(one.error**2 for one in labels.common))) / count
    fewest = min(one.subsets for one in labels.common)
    # The error falls with the root of m − 1.
    single, wanted = 1 / (fewest - 1) ** 0.5, 1 + int(np.ceil((fewest - 1) * (error / WANTED_ERROR) ** 2))
    level = level_of(error, WANTED_ERROR, 2 * WANTED_ERROR)
    verdict = f"A mean LDS × 100 below {200 * error:.1f} cannot be told from chance"
    verdict += "." if level == "good" else f": label about {wanted:,} subsets of each instance (--subsets {wanted})."
    values = {"error": error, "error_of_a_query": single, "subsets_wanted": wanted, "subsets": fewest}
    number = f"{fewest:,}; LDS × 100 of one query ± {100 * single:.1f}, of all ± {100 * error:.1f}"
    return Finding(name, level, number, verdict, anchor, values=values)


def common(labels: LabelStatistics) -> Finding:
    """Find out if one number of a subset moves all queries."""
    name, anchor = "a common factor", "a-common-factor"
    if not labels.common:
        return Finding(name, "unknown", "none", "Too few queries or losses to tell.", anchor)
    found = max(labels.common, key=_beyond_chance)
    number = f"{found.explained:.0%} of the variance (by chance {found.floor:.0%})"
    values = {"explained": found.explained, "by_chance": found.floor, "alike": found.alike}
    if found.floor >= MOST_BY_CHANCE:
        verdict = "Too few queries or subsets to tell: chance alone gives one component that much."
        return Finding(name, "unknown", number, verdict, anchor, values=values)
    beyond, alike = _beyond_chance(found), float(np.nanmean([one_number_lds(one) for one in labels.instances]))
    level = worst(level_of(beyond, 0.5, 0.75), level_of(alike, 0.3, 0.6) if not np.isnan(alike) else "good")
    verdict = {
        "good": "Queries want different subsets: there is something to attribute.",
        "look": "Much of what subsets do, they do to all queries alike.",
        "bad": "Subsets are simply better or worse, for all queries: LDS mostly asks for one number of each subset.",
    }[level]
    values |= {"beyond_chance": beyond, "one_number_lds": alike}
    verdict += f" A single number a subset, the same for all queries, reaches an LDS × 100 of {100 * alike:+.1f}."
    return Finding(name, level, number, verdict, anchor, values=values)


def _beyond_chance(found: Common) -> float:
    """(explained − floor) / (1 − floor), at least 0; −1, so chosen last, where chance alone may explain half."""
    if found.floor >= MOST_BY_CHANCE:
        return -1.0
    return max(0.0, (found.explained - found.floor) / (1 - found.floor))


def length(labels: LabelStatistics) -> Finding:
    """Find out if subsets with longer responses are simply better or worse."""
    name, anchor = "length of responses", "length-of-responses"
    if len(labels.common) < len(labels.instances):
        return Finding(name, "unknown", "none", "Too few queries or losses to tell.", anchor)
    found = [lds_of(characters(one), one.losses) for one in labels.instances]
    value = float(np.mean(found))
    # A correlation that two standard errors of chance reach is nothing to look at.
    chance = 2 * float(np.sqrt(sum(one.error_alike**2 for one in labels.common))) / len(found)
    level = level_of(abs(value), max(0.15, chance), max(0.3, chance))
    direction = "longer" if value > 0 else "shorter"
    verdict = {
        "good": "How long a subset's responses are decides little of what it does.",
        "look": f"Part of what subsets do is their length: {direction} responses are better for most queries.",
        "bad": f"How good a subset is follows its length: {direction} responses are better for most queries.",
        "unknown": "All subsets are of one length.",
    }[level]
    values = {"lds": value, "by_instance": found, "by_chance": chance}
    number = f"LDS × 100 of length alone {100 * value:+.1f} (by chance ± {100 * chance:.1f})"
    return Finding(name, level, number, verdict, anchor, values=values)
