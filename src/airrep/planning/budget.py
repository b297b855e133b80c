"""Choose instances, subsets and layers that fit a time budget."""

import math
import re

from pydantic import Field

from airrep.errors import ConfigError
from airrep.runtime.settings import Settings

SIZES = (1000, 700, 500, 350, 250, 150, 100, 64, 32)
LEAST_WEIGHING, WISHED_WEIGHING = 16, 60
"""Subsets that weights of channels are learnt from, where there is no time for an encoder; as many judge."""
WEIGHING_QUERIES, MOST_WEIGHING_QUERIES = 0.2, 150
"""Share of the examples that are queries then, and the most of them."""
MOST_POOL = 30
"""Examples of a pool then, in sizes of a subset: more would be in hardly any subset."""
PAYING_SUBSETS, PAYING_QUERIES = 150, 40
"""Below these an encoder learns its labels by heart, or nobody can tell that it did not (see experiments/LOG.md)."""
LEAST_SUBSETS, WISHED_SUBSETS = 40, 600
WISHED_LAYERS = 2
"""Layers worth having before larger subsets: the projection alone learns little (see experiments/LOG.md)."""
LEAST_HELD_OUT, MOST_HELD_OUT = 20, 100
LEAST_QUERIES, MOST_QUERIES = 20, 400
HELD_OUT_SHARE = 0.4
"""Share of the examples that are not learnt from: half to stop by, half to judge by."""
ENCODE_SHARE, SAFETY = 0.05, 0.95
"""Shares of the time: for encoding every example once, and that which is planned for at all."""
LABEL_SHARES = (0.6, 0.4, 0.2)
"""Shares of the time that labels may take."""
STEP_QUERIES, STEP_SUBSETS = 200, 8
LEAST_STEPS, MOST_STEPS = 80, 2000
LEAST_TRAINING, JUDGING = 0.1, 0.05
"""Shares of the time: for training, however long the labels took, and for judging."""
EVALUATIONS = 20
"""How often the encoder is scored on what it stops by."""
ENCODERS = 3
"""Encoders whose scores are looked at in the end: the start, the trained one, and that of the default channels."""
GRADIENTS = 3
"""Fine-tuning an example costs so much less than its gradients for a channel, and what is learnt of them."""

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
    subsets: int = Field(ge=0)
    """Subsets that the encoder learns from; 0: it is not trained, and weights of channels alone are learnt."""
    held_out_subsets: int = Field(ge=2)
    """Subsets to judge by, and as many to stop the encoder and to weigh channels by."""
    pool: int = Field(ge=0)
    """Examples that the subsets for the encoder are drawn from."""
    held_out_pool: int = Field(ge=2)
    """Examples that the subsets to judge by are drawn from, and as many others to weigh by; none is in `pool`."""
    queries: int = Field(ge=0)
    """Queries that the encoder learns from."""
    held_out_queries: int = Field(ge=1)
    """Queries to judge by, and as many others to weigh by; none is in `queries`."""
    epochs: int = Field(ge=1)
    """Passes of a fine-tune over its subset."""
    train_layers: int | str = Field(default=0)
    """Layers of the encoder that are trained: all, or that many from the top; 0 = its projection alone."""
    steps: int = Field(ge=0)
    """Training steps of the encoder."""
    warms: bool = False
    """Whether gradients are taken after a warm-up on as many examples as a subset has as well."""

    @property
    def trains(self) -> bool:
        """Whether the encoder is trained."""
        return self.subsets > 0 and self.steps > 0

    def pays(self, costs: Costs) -> bool:
        """Whether an encoder may learn more from such labels than weights alone, and the judging tell it."""
        enough = self.subsets >= PAYING_SUBSETS and self.held_out_queries >= PAYING_QUERIES
        return enough and self.layers(costs) >= min(WISHED_LAYERS, costs.layers)

    def label_seconds(self, costs: Costs) -> float:
        """Seconds of one worker that the labels take."""
        tuned = self.size * self.epochs * costs.fine_tune
        learn = self.subsets * (tuned + self.queries * costs.evaluate)
        return learn + 2 * self.held_out_subsets * (tuned + self.held_out_queries * costs.evaluate)

    def train_seconds(self, costs: Costs) -> float:
        """Seconds that channels and the encoder take: encoding all texts once, every step, stopping and judging."""
        steps = self.steps * self.step_seconds(costs) if self.trains else 0.0
        return self.gradient_seconds(costs) + self.fixed_seconds(costs) + steps

    def fixed_seconds(self, costs: Costs) -> float:
        """Seconds of the encoder that do not depend on the number of steps."""
        held_out = drawn(self.held_out_pool, self.size, self.held_out_subsets) + self.held_out_queries
        if not self.trains:
            return costs.encode * 2 * held_out
        learn = drawn(self.pool, self.size, self.subsets) + self.queries
        passes = 2 * ENCODERS + EVALUATIONS * self._trained(costs)
        return costs.encode * (learn + passes * held_out)

    def gradient_seconds(self, costs: Costs) -> float:
        """Seconds that the channels of gradients take on what is weighed and judged by, and a warm-up."""
        once = GRADIENTS * costs.fine_tune * 2 * (self.held_out_pool + self.held_out_queries)
        return 2 * once + self.size * self.epochs * costs.fine_tune if self.warms else once

    def step_seconds(self, costs: Costs) -> float:
        """One training step: forward and backward, three forward passes' worth, of the texts it touches."""
        return 3 * self._trained(costs) * costs.encode * self.step_texts

    @property
    def step_texts(self) -> float:
        """Texts that a training step touches, expected."""
        return drawn(self.pool, self.size, STEP_SUBSETS) + min(STEP_QUERIES, self.queries)

    def _trained(self, costs: Costs) -> float:
        """Share of the encoder that is trained, and computed again in each step."""
        return trained_share(self.train_layers, costs.layers)

    def layers(self, costs: Costs) -> int:
        """Layers that are trained, as a number."""
        return costs.layers if self.train_layers == "all" else int(self.train_layers)

    def pays_from(self, costs: Costs) -> float | None:
        """Examples from which on the trained encoder takes less time than gradients; None if it never does.

        Labels and training take F, the gradients of an example g, and its encoding e: F + n e = n g at n = F / (g - e).
        """
        saved = GRADIENTS * costs.fine_tune - costs.encode
        return (self.label_seconds(costs) + self.train_seconds(costs)) / saved if saved > 0 else None


def trained_share(train_layers: int | str, layers: int) -> float:
    """Share of an encoder that is trained, and computed again in each step."""
    return max((layers if train_layers == "all" else int(train_layers)) / layers, 0.002)


def drawn(pool: int, size: float, subsets: int) -> float:
    """How many examples of a pool are in any of so many random subsets, expected."""
    return float(pool * (1 - (1 - size / pool) ** subsets))


def parse_duration(text: str) -> float:
    """Seconds of a duration such as ``2h``, ``90m``, ``1h30m`` or ``45s`` (ConfigError: it is none)."""
    parts = re.findall(r"(\d+(?:\.\d+)?)([smhd])", text)
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if "".join(number + unit for number, unit in parts) != text or seconds <= 0:
        raise ConfigError(f"budget '{text}': is no duration; expected one such as 2h, 90m or 1h30m. Correct it.")
    return seconds


def time_left(seconds: float, spent: float) -> float:
    """Seconds for training, of a budget of which so many are spent: labels may have taken longer than was measured."""
    return max(LEAST_TRAINING * seconds, (1 - JUDGING) * seconds - spent)


def choose(seconds: float, costs: Costs, examples: int, workers: int, epochs: int) -> LearnPlan:
    """Choose the plan: layers first, then many subsets, then large ones; weights of channels alone if time is short.

    With few subsets an encoder learns them by heart, and its projection alone learns little from any number. Weights
    are few numbers, which few subsets tell. *seconds* are by the clock; *workers* fine-tunes run at once.

    Raises:
        ConfigError: too few examples, or too little time for anything of use.
    """
    check_enough(examples)
    at_hand = seconds, costs, examples, workers, epochs
    found = (_best(*at_hand, warms=True) or _weighing(*at_hand, warms=True)) or (
        _best(*at_hand, warms=False) or _weighing(*at_hand, warms=False)
    )
    if found is None:
        raise ConfigError(_too_little(*at_hand))
    return found


def _best(seconds: float, costs: Costs, examples: int, workers: int, epochs: int, *, warms: bool) -> LearnPlan | None:
    """The best plan that trains an encoder; None where there is not time enough for one that pays."""
    plans = _useful(seconds, costs, examples, workers, epochs, warms=warms)

    def worth(plan: LearnPlan) -> tuple[int, ...]:
        layers = plan.layers(costs)
        return min(layers, WISHED_LAYERS), min(plan.subsets, WISHED_SUBSETS), plan.size, layers, plan.subsets

    return max((plan for plan in plans if plan.pays(costs)), key=worth, default=None)


def _useful(seconds: float, costs: Costs, examples: int, workers: int, epochs: int, *, warms: bool) -> list[LearnPlan]:
    """Plans for each size of subset that there are examples and time for."""
    readable = min(examples, int(ENCODE_SHARE * seconds / costs.encode))
    plans = (_plan_of(size, readable, epochs) for size in SIZES)
    sized = [plan.model_copy(update={"warms": warms}) for plan in plans if plan is not None]
    filled = (_with_subsets(plan, share * seconds * workers, costs) for plan in sized for share in LABEL_SHARES)
    trained = (_with_layers(plan, seconds, costs, workers) for plan in filled if plan.subsets >= LEAST_SUBSETS)
    return [plan for plan in trained if plan is not None]


def _weighing(
    seconds: float, costs: Costs, examples: int, workers: int, epochs: int, *, warms: bool
) -> LearnPlan | None:
    """Learn weights of channels on one half of the examples, and judge on the other; None where nothing fits."""
    filled = []
    for size in SIZES:
        half = min(examples, int(ENCODE_SHARE * seconds / costs.encode * 4)) // 2
        queries = min(MOST_WEIGHING_QUERIES, int(half * WEIGHING_QUERIES))
        if queries < LEAST_QUERIES or half - queries < 3 * size:
            continue
        plan = LearnPlan(
            size=size,
            subsets=0,
            held_out_subsets=WISHED_WEIGHING,
            pool=0,
            held_out_pool=min(half - queries, MOST_POOL * size),
            queries=0,
            held_out_queries=queries,
            epochs=epochs,
            steps=0,
            warms=warms,
        )
        one = (size * epochs * costs.fine_tune + queries * costs.evaluate) / workers
        count = int((SAFETY * seconds - plan.train_seconds(costs)) / (2 * one))
        if count >= LEAST_WEIGHING:
            filled.append(plan.model_copy(update={"held_out_subsets": min(count, WISHED_WEIGHING)}))
    return max(filled, key=lambda plan: (plan.held_out_subsets, plan.size), default=None)


def _plan_of(size: int, examples: int, epochs: int) -> LearnPlan | None:
    """Pools and queries for subsets of this size; None where there are too few examples."""
    held_out = int(examples * HELD_OUT_SHARE / 2)
    learn = examples - 2 * held_out
    queries, held_out_queries = (min(MOST_QUERIES, n // 10) for n in (learn, held_out))
    pool, held_out_pool = learn - queries, held_out - held_out_queries
    if min(queries, held_out_queries) < LEAST_QUERIES or held_out_pool < 3 * size or pool < 3 * size:
        return None
    return LearnPlan(
        size=size,
        subsets=2,
        held_out_subsets=LEAST_HELD_OUT,
        pool=pool,
        held_out_pool=held_out_pool,
        queries=queries,
        held_out_queries=held_out_queries,
        epochs=epochs,
        steps=1,
    )


def held_out_subsets(subsets: int) -> int:
    """Subsets to judge by, a sixth of all within bounds; as many others stop the encoder."""
    return max(LEAST_HELD_OUT, min(MOST_HELD_OUT, subsets // 6))


def _with_subsets(plan: LearnPlan, worker_seconds: float, costs: Costs) -> LearnPlan:
    """As many subsets as there is time for, a part of them to stop and judge by."""
    one = plan.size * plan.epochs * costs.fine_tune + plan.queries * costs.evaluate
    count = int(worker_seconds / one)
    judge = held_out_subsets(count)
    most = 100 * plan.pool // plan.size
    return plan.model_copy(update={"subsets": max(2, min(count - 2 * judge, most)), "held_out_subsets": judge})


def _with_layers(plan: LearnPlan, seconds: float, costs: Costs, workers: int) -> LearnPlan | None:
    """The most layers that leave time for enough steps, and as many steps as fit; None where nothing fits."""
    left = SAFETY * seconds - plan.label_seconds(costs) / workers - plan.gradient_seconds(costs)
    for layers in ("all", 4, 2, 1, 0):
        if isinstance(layers, int) and layers >= costs.layers:
            continue
        tried = plan.model_copy(update={"train_layers": layers})
        steps = int((left - tried.fixed_seconds(costs)) / tried.step_seconds(costs))
        if steps >= LEAST_STEPS:
            return tried.model_copy(update={"steps": min(MOST_STEPS, steps)})
    return None


def check_enough(examples: int) -> None:
    """Refuse data of which no budget makes anything (ConfigError)."""
    least = 2 * math.ceil(max(LEAST_QUERIES / WEIGHING_QUERIES, 3 * SIZES[-1] / (1 - WEIGHING_QUERIES)))
    if examples < least:
        raise ConfigError(
            f"data: {examples:,} examples are too few to adapt to; expected some {least:,} at least. Give more."
        )


def _too_little(seconds: float, costs: Costs, examples: int, workers: int, epochs: int) -> str:
    minutes = 1
    while _weighing(60 * minutes, costs, examples, workers, epochs, warms=False) is None:
        minutes += 1 + minutes // 10
    return (
        f"budget: {max(0.0, seconds):.0f} seconds of it are left to learn in, too little on this machine; expected "
        f"{minutes} minutes or more. "
        "Give more time, more workers or a smaller language model."
    )
