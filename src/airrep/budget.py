"""Choose instances, subsets and layers that fit a time budget."""

import re

from pydantic import Field

from airrep.config import Settings
from airrep.errors import ConfigError

SIZES = (1000, 700, 500, 350, 250, 150, 100, 64, 32)
POOL_OF_SUBSETS = 10
LEAST_SUBSETS, WISHED_SUBSETS = 40, 400
LEAST_HELD_OUT, MOST_HELD_OUT = 20, 100
LEAST_QUERIES, MOST_QUERIES = 20, 400
HELD_OUT_SHARE = 0.4
"""Share of the examples that are not learnt from: half to stop by, half to judge by."""
LABEL_SHARE, TRAIN_SHARE = 0.65, 0.2
STEP_QUERIES, STEP_SUBSETS = 200, 8
LEAST_STEPS, MOST_STEPS = 100, 2000

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Costs(Settings):
    """What this machine needs, in seconds of one worker."""

    fine_tune: float = Field(gt=0)
    """One training example, once."""
    evaluate: float = Field(gt=0)
    """The loss of one query."""
    encode: float = Field(gt=0)
    """The features of one text."""
    layers: int = Field(ge=1)
    """Transformer layers of the encoder."""


class LearnPlan(Settings):
    """How much is sampled, labelled and trained."""

    size: int = Field(ge=2)
    """Examples in a subset."""
    subsets: int = Field(ge=2)
    """Subsets to learn from."""
    held_out_subsets: int = Field(ge=2)
    """Subsets to judge by, and as many to stop by."""
    pool: int = Field(ge=2)
    """Examples that the subsets to learn from are drawn from."""
    held_out_pool: int = Field(ge=2)
    """Examples that the subsets to judge by are drawn from, and as many others to stop by; none is in `pool`."""
    queries: int = Field(ge=1)
    """Queries to learn from."""
    held_out_queries: int = Field(ge=1)
    """Queries to judge by, and as many others to stop by; none is in `queries`."""
    epochs: int = Field(ge=1)
    """Passes of a fine-tune over its subset."""
    train_layers: int | str = Field(default=0)
    """Layers of the encoder that are trained: all, or that many from the top; 0 = its projection alone."""
    steps: int = Field(ge=1)
    """Training steps of the encoder."""

    def label_seconds(self, costs: Costs) -> float:
        """Seconds of one worker that the labels take."""
        tuned = self.size * self.epochs * costs.fine_tune
        learn = self.subsets * (tuned + self.queries * costs.evaluate)
        return learn + 2 * self.held_out_subsets * (tuned + self.held_out_queries * costs.evaluate)

    def train_seconds(self, costs: Costs) -> float:
        """Seconds of one worker that the encoder's training takes, its first encoding included."""
        everything = self.pool + self.queries + 2 * (self.held_out_pool + self.held_out_queries)
        return everything * costs.encode + self.steps * _step_seconds(self, costs)


def parse_duration(text: str) -> float:
    """Seconds of a duration such as ``2h``, ``90m``, ``1h30m`` or ``45s``.

    Raises:
        ConfigError: it is none, or nothing.
    """
    parts = re.findall(r"(\d+(?:\.\d+)?)([smhd])", text)
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if "".join(number + unit for number, unit in parts) != text or seconds <= 0:
        raise ConfigError(f"budget '{text}': is no duration; expected one such as 2h, 90m or 1h30m. Correct it.")
    return seconds


def choose(seconds: float, costs: Costs, examples: int, workers: int, epochs: int) -> LearnPlan:
    """Choose the plan: the largest subsets of which there can be many, then as many layers as there is time for.

    Many subsets matter more than large ones or many queries: with few the encoder learns them by heart.

    Args:
        seconds: the budget, by the clock.
        costs: what this machine needs.
        examples: examples at hand; part of them become queries.
        workers: fine-tunes that run at once.
        epochs: passes of a fine-tune over its subset.

    Raises:
        ConfigError: too few examples, or too little time for anything of use.
    """
    plans = [_plan_of(size, seconds * workers, costs, examples, epochs) for size in SIZES]
    useful = [plan for plan in plans if plan is not None and plan.subsets >= LEAST_SUBSETS]
    if not useful:
        raise ConfigError(_too_little(seconds, costs, examples, workers, epochs))
    plenty = (plan for plan in useful if plan.subsets >= WISHED_SUBSETS)
    return _with_layers(next(plenty, useful[-1]), seconds, costs)


def _plan_of(size: int, seconds: float, costs: Costs, examples: int, epochs: int) -> LearnPlan | None:
    """As many subsets of this size as there is time for; None where there are too few examples."""
    held_out = int(examples * HELD_OUT_SHARE / 2)
    learn = examples - 2 * held_out
    queries, held_out_queries = (min(MOST_QUERIES, n // 10) for n in (learn, held_out))
    pool, held_out_pool = learn - queries, held_out - held_out_queries
    if min(queries, held_out_queries) < LEAST_QUERIES or held_out_pool < 3 * size or pool < 3 * size:
        return None
    one = size * epochs * costs.fine_tune + queries * costs.evaluate
    count = int(seconds * LABEL_SHARE / one)
    judge = max(LEAST_HELD_OUT, min(MOST_HELD_OUT, count // 6))
    most = 100 * pool // size
    return LearnPlan(
        size=size,
        subsets=max(2, min(count - 2 * judge, most)),
        held_out_subsets=judge,
        pool=pool,
        held_out_pool=held_out_pool,
        queries=queries,
        held_out_queries=held_out_queries,
        epochs=epochs,
        steps=LEAST_STEPS,
    )


def _too_little(seconds: float, costs: Costs, examples: int, workers: int, epochs: int) -> str:
    smallest = _plan_of(SIZES[-1], seconds * workers, costs, examples, epochs)
    if smallest is None:
        least = int(max(3 * SIZES[-1] + LEAST_QUERIES, 10 * LEAST_QUERIES) / HELD_OUT_SHARE * 2) + 2
        return f"data: {examples:,} examples are too few to adapt to; expected some {least:,} at least. Give more."
    need = smallest.model_copy(update={"subsets": LEAST_SUBSETS, "held_out_subsets": LEAST_HELD_OUT})
    minutes = need.label_seconds(costs) / LABEL_SHARE / workers / 60
    return (
        f"budget: {seconds / 60:.0f} minutes are too little on this machine; expected {minutes:.0f} or more. "
        "Give more time, more workers or a smaller language model."
    )


def _with_layers(plan: LearnPlan, seconds: float, costs: Costs) -> LearnPlan:
    """The most layers that leave time for enough steps, and the number of steps."""
    for layers in ("all", 4, 2, 1, 0):
        tried = plan.model_copy(update={"train_layers": layers})
        steps = int(seconds * TRAIN_SHARE / _step_seconds(tried, costs))
        if isinstance(layers, int) and layers >= costs.layers:
            continue
        if steps >= LEAST_STEPS or layers == 0:
            return tried.model_copy(update={"steps": max(1, min(MOST_STEPS, steps))})
    return plan


def _step_seconds(plan: LearnPlan, costs: Costs) -> float:
    """One training step: forward and backward, three forward passes' worth, of the texts it touches."""
    layers = costs.layers if plan.train_layers == "all" else int(plan.train_layers)
    share = max(layers / costs.layers, 0.002)
    drawn = STEP_SUBSETS * plan.size
    unique = plan.pool * (1 - (1 - plan.size / plan.pool) ** STEP_SUBSETS)
    texts = min(drawn, unique) + min(STEP_QUERIES, plan.queries)
    return 3 * share * costs.encode * texts
