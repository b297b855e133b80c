"""Choose subsets that fit the data and the budget."""

import math
from dataclasses import dataclass

from airrep.errors import ConfigError
from airrep.labels.plan import SamplingSettings
from airrep.planning.budget import GRADIENTS, MOST_POOL, SAFETY, SIZES, Costs

LEAST_SUBSETS, WISHED_SUBSETS, MOST_SUBSETS = 20, 100, 300
"""Subsets below which nothing is told, from which on larger ones are better, and the most."""
LEAST_EXAMPLES = 30
"""Training examples below which there are no subsets that differ."""
POOL = 3
"""Sizes of a subset that its pool has at least, so that subsets differ."""
SMALLEST = SIZES[-1]
TEXT_RIVALS = 3
"""Passes over the texts that encoding them for methods of words takes, in encodings by an encoder."""
GRADIENT_SHARE = 0.2
"""Share of the budget that gradients of the LM may take as a rival."""


@dataclass(frozen=True)
class JudgingPlan:
    """How much is drawn and fine-tuned, and whether there is time for gradients as a rival."""

    size: int
    pool: int
    subsets: int
    gradients: bool
    seconds: float
    """All of it, by the clock, as measured."""

    def sampling(self, seed: int) -> SamplingSettings:
        """Settings of the draw; all queries are asked."""
        return SamplingSettings(
            instances=1, train_count=self.pool, query_count=None, subsets=self.subsets, size=self.size, seed=seed
        )


def fit_budget(
    seconds: float, costs: Costs, examples: int, queries: int, *, workers: int = 1, epochs: int = 2
) -> JudgingPlan:
    """The most subsets up to those that are wished for, then the largest, then more of them.

    Args:
        seconds: what is left of the budget, by the clock.
        costs: what this machine needs.
        examples: training examples that can be drawn.
        queries: texts whose losses are taken.
        workers: fine-tunes that run at once.
        epochs: passes of a fine-tune over its subset.

    Raises:
        ConfigError: too few examples, or too little time for the fewest subsets.
    """
    check_examples(examples)
    plans = [_of_size(size, seconds, costs, examples, queries, workers, epochs) for size in _sizes(examples)]
    fitting = [plan for plan in plans if plan.subsets >= LEAST_SUBSETS]
    if not fitting:
        least = min(_least_seconds(plan.size, costs, examples, queries, workers, epochs) for plan in plans)
        raise ConfigError(
            f"budget: {max(0.0, seconds):.0f} seconds of it are left for fine-tunes, too little for "
            f"{LEAST_SUBSETS} of the smallest on this machine; expected {math.ceil(least / 60) + 1} minutes or more. "
            "Give more time, more workers or a smaller language model."
        )
    return max(fitting, key=lambda plan: (min(plan.subsets, WISHED_SUBSETS), plan.size, plan.subsets))


def check_examples(examples: int) -> None:
    """Refuse data of which no budget makes anything (ConfigError)."""
    if examples < LEAST_EXAMPLES:
        raise ConfigError(
            f"judge: {examples:,} training examples can be drawn; expected {LEAST_EXAMPLES} or more that the LM can "
            "read and that are no query. Index more."
        )


def _sizes(examples: int) -> list[int]:
    return [size for size in SIZES if POOL * size <= examples] or [examples // POOL]


def _of_size(
    size: int, seconds: float, costs: Costs, examples: int, queries: int, workers: int, epochs: int
) -> JudgingPlan:
    pool = min(examples, MOST_POOL * size)
    gradients = _gradients(pool, costs, queries)
    has_gradients = gradients <= GRADIENT_SHARE * seconds
    fixed = _fixed(pool, costs, queries) + gradients * has_gradients
    one = _one(size, costs, queries, workers, epochs)
    subsets = max(0, min(MOST_SUBSETS, int((SAFETY * seconds - fixed) / one)))
    return JudgingPlan(size, pool, subsets, has_gradients, subsets * one + fixed)


def _least_seconds(size: int, costs: Costs, examples: int, queries: int, workers: int, epochs: int) -> float:
    fixed = _fixed(min(examples, MOST_POOL * size), costs, queries)
    return (LEAST_SUBSETS * _one(size, costs, queries, workers, epochs) + fixed) / SAFETY


def _one(size: int, costs: Costs, queries: int, workers: int, epochs: int) -> float:
    """Seconds of a fine-tune and its losses, by the clock."""
    return (size * epochs * costs.fine_tune + queries * costs.evaluate) / workers


def _fixed(pool: int, costs: Costs, queries: int) -> float:
    return TEXT_RIVALS * costs.encode * (pool + queries)


def _gradients(pool: int, costs: Costs, queries: int) -> float:
    return GRADIENTS * costs.fine_tune * (pool + queries)
