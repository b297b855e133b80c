"""Effects of leaving rows out, over repeats, and the verdict."""

import numpy as np

from airrep.answers.proof import Effect, Effects, Verdict
from airrep.evaluation.proof.trial import WHOLE, WITHOUT_NAMED, WITHOUT_RANDOM
from airrep.evaluation.statistics.labels import REMEDY, Moved
from airrep.shapes import Float

CONFIDENCE = 0.95
PLAIN = 0.05
"""Nats per token from which on two digits are told, below three."""


def effects_of(losses: Float[np.ndarray, "n 3"], overlap: float) -> Effects:
    """Effects on one number, from its values after the fine-tunes of each repeat.

    Were the named rows nothing but another random set, the mean d̄ of the n differences of a repeat would have the
    variance σ² (1 + 1/n): that of the set itself, which is the same in all repeats, and that of the mean. So the
    interval of the difference is d̄ ± t s √(1 + 1/n), Student's t with n − 1 degrees of freedom: that of one further
    draw, not that of a mean, which any set would leave in the end.

    Args:
        losses: with the subsets in the order of :mod:`airrep.evaluation.proof.trial`.
        overlap: share of the others that a random set takes: sets of few others are alike, and vary less by 1 − that.
    """
    named = losses[:, WITHOUT_NAMED] - losses[:, WHOLE]
    random = losses[:, WITHOUT_RANDOM] - losses[:, WHOLE]
    difference = losses[:, WITHOUT_NAMED] - losses[:, WITHOUT_RANDOM]
    n = len(losses)
    of_set = float(np.sqrt((1 + 1 / n) / (1 - overlap)))
    return Effects(_around(named, n**-0.5), _around(random, of_set), _around(difference, of_set))


def _around(values: Float[np.ndarray, " n"], factor: float) -> Effect:
    """The mean, and so many deviations times Student's t on both sides."""
    from scipy import stats

    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1)) * float(np.std(values, ddof=1)) * factor
    mean = float(np.mean(values))
    return Effect(mean, mean - half, mean + half)


def verdict_of(effects: Effects, moved: Moved) -> Verdict:
    """Conclude from the effects, and tell if the fine-tunes moved the answers' losses at all."""
    if effects.difference.low > 0 and effects.without_named.low > 0:
        return "taught"
    if effects.difference.high < 0 and effects.without_named.high < 0:
        return "held back"
    return "not moved" if moved.hardly else "not shown"


def sentence_of(
    verdict: Verdict, loss: Effects, contrast: Effects | None, rows: int, answers: int, moved: Moved
) -> str:
    """The verdict in words."""
    these, random = _rows(rows, "these"), _rows(rows, "random")
    answer = "the answer's loss" if answers == 1 else f"the loss of the {answers:,} answers"
    told = (
        f"Without {these} {answer} {_changes(loss.without_named)}; without {random} it {_changes(loss.without_random)}"
    )
    if contrast is not None:
        told = (
            f"Without {these} {_falls_behind(contrast.without_named, answers)} against the better "
            f"one{'s' * (answers > 1)}; without {random} {_number(contrast.without_random)} (the loss by itself "
            f"{_changes(loss.without_named)}; {_number(loss.without_random)})"
        )
    it = "it" if answers == 1 else "them"
    it += " in place of the better" if contrast is not None else ""
    which = "this row" if rows == 1 else "these rows"
    end = {
        "taught": f"{which} taught {it}",
        "held back": f"{which} kept the model from {it}",
        "not shown": f"that is no more than random rows do, so it is not shown that {which} taught {it}",
        "not moved": (
            f"nothing is shown, since the fine-tunes hardly moved the loss at all ({moved.before:.2f} before, "
            f"{moved.after:.2f} after). {REMEDY.rstrip('.')}"
        ),
    }[verdict]
    return f"{told}: {end}."


def _rows(count: int, kind: str) -> str:
    if kind == "random":
        return "1 random row" if count == 1 else f"{count:,} random rows"
    return "this row" if count == 1 else f"these {count:,} rows"


def _changes(effect: Effect) -> str:
    return f"{'rises' if effect.value >= 0 else 'falls'} by {_number(effect, abs(effect.value))}"


def _falls_behind(effect: Effect, answers: int) -> str:
    verb = "lose" if effect.value >= 0 else "gain"
    told = f"the answer {verb}s" if answers == 1 else f"the {answers:,} answers {verb}"
    return f"{told} {_number(effect, abs(effect.value))}"


def _number(effect: Effect, shown: float | None = None) -> str:
    """A value with its ends; a fall is told as a positive number, with its ends turned likewise."""
    low, high = effect.low, effect.high
    if shown is not None and effect.value < 0:
        low, high = -high, -low
    value = effect.value if shown is None else shown
    digits = 2 if max(abs(value), abs(low), abs(high)) >= PLAIN else 3
    return f"{value:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"
