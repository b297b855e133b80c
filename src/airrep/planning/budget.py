"""Choose labels and layers that fit a time budget; measure what work costs."""

import math
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from pydantic import Field

from airrep.attributors.gradient.store import stored_in
from airrep.corpus.corpus import Corpus
from airrep.errors import ConfigError, many
from airrep.index.rows import IndexRows
from airrep.labels.labels import LabelledInstance
from airrep.labels.plan import SubsetPlan
from airrep.lm.settings import FineTuneSettings, LmSettings
from airrep.runtime.engine import one_thread
from airrep.runtime.metering import IndexCost, index_cost, peak_memory
from airrep.runtime.seeding import stream
from airrep.runtime.settings import Settings
from airrep.training.settings import TrainingSettings

if TYPE_CHECKING:
    from airrep.lm.model import TargetLM

SIZES = (1000, 700, 500, 350, 250, 150, 100, 64, 32)
LEAST_WEIGHING, WISHED_WEIGHING = 16, 60
"""Least and wished number of subsets to weigh channels on if no encoder is trained; as many more judge."""
WEIGHING_QUERIES, MOST_WEIGHING_QUERIES = 0.2, 150
"""Share of the examples that are queries if no encoder is trained, and the most queries."""
MOST_POOL = 30
"""Most examples of a pool, in multiples of the subset size: more would be in hardly any subset."""
PAYING_SUBSETS, PAYING_QUERIES = 150, 40
"""Fewest subsets and held-out queries for an encoder: with fewer it memorises its labels (see experiments/LOG.md)."""
WISHED_SUBSETS = 600
WISHED_LAYERS = 2
"""Layers worth having before larger subsets: the projection alone learns little (see experiments/LOG.md)."""
LEAST_HELD_OUT, MOST_HELD_OUT = 20, 100
LEAST_QUERIES, MOST_QUERIES = 20, 400
HELD_OUT_SHARE = 0.4
"""Share of the examples that are not learnt from: half to stop by, half to judge by."""
ENCODE_SHARE, SAFETY = 0.05, 0.95
"""Shares of the time: most for encoding every example once, and most that a plan uses in all."""
LABEL_SHARES = (0.6, 0.4, 0.2)
"""Shares of the time for labels, each of which is tried."""
STEP_QUERIES, STEP_SUBSETS = 200, 8
LEAST_STEPS, MOST_STEPS = 80, 2000
LEAST_TRAINING, JUDGING = 0.1, 0.05
"""Shares of the time: least for training, however long the labels took, and for judging."""
EVALUATIONS = 20
"""Number of evaluations on the held-out instance that early stopping uses."""
ENCODERS = 3
"""Encoders that are scored in the end: the start, the trained one, and that of the default channels."""
GRADIENTS = 3
"""Cost of an example's gradients for a channel, and of what is learnt from them, in fine-tunes on this example."""

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Costs(Settings):
    """Times of this machine, in seconds of one worker."""

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
    """True if gradients are also taken after a fine-tune on as many examples as a subset has."""

    @property
    def trains(self) -> bool:
        """True if the encoder is trained."""
        return self.subsets > 0 and self.steps > 0

    def label_seconds(self, costs: Costs) -> float:
        """Return the seconds of one worker that the labels take."""
        tuned = self.size * self.epochs * costs.fine_tune
        learn = self.subsets * (tuned + self.queries * costs.evaluate)
        return learn + 2 * self.held_out_subsets * (tuned + self.held_out_queries * costs.evaluate)

    def train_seconds(self, costs: Costs) -> float:
        """Return the seconds of channels and encoder: gradients, encoding all texts, every step, stopping, judging."""
        steps = self.steps * self.step_seconds(costs) if self.trains else 0.0
        return self.gradient_seconds(costs) + self.fixed_seconds(costs) + steps

    def fixed_seconds(self, costs: Costs) -> float:
        """Return the encoder's seconds that do not depend on the number of steps."""
        held_out = drawn(self.held_out_pool, self.size, self.held_out_subsets) + self.held_out_queries
        if not self.trains:
            return costs.encode * 2 * held_out
        learn = drawn(self.pool, self.size, self.subsets) + self.queries
        passes = 2 * ENCODERS + EVALUATIONS * trained_share(self.train_layers, costs.layers)
        return costs.encode * (learn + passes * held_out)

    def gradient_seconds(self, costs: Costs) -> float:
        """Return the seconds of gradients of all held-out texts; if ``warms``, twice these and a fine-tune."""
        once = GRADIENTS * costs.fine_tune * 2 * (self.held_out_pool + self.held_out_queries)
        return 2 * once + self.size * self.epochs * costs.fine_tune if self.warms else once

    def step_seconds(self, costs: Costs) -> float:
        """Return the seconds of one training step: three forward passes over the texts that are expected in it."""
        texts = drawn(self.pool, self.size, STEP_SUBSETS) + min(STEP_QUERIES, self.queries)
        return 3 * trained_share(self.train_layers, costs.layers) * costs.encode * texts

    def layers(self, costs: Costs) -> int:
        """Return the number of layers that are trained."""
        return costs.layers if self.train_layers == "all" else int(self.train_layers)

    def pays_from(self, costs: Costs) -> float | None:
        """Return from how many examples on the trained encoder takes less time than gradients; None if never.

        Labels and training take F, the gradients of an example g, and its encoding e: F + n e = n g at n = F / (g - e).
        """
        saved = GRADIENTS * costs.fine_tune - costs.encode
        return (self.label_seconds(costs) + self.train_seconds(costs)) / saved if saved > 0 else None


def trained_share(train_layers: int | str, layers: int) -> float:
    """Return the share of an encoder that is trained, and computed again in each step."""
    return max((layers if train_layers == "all" else int(train_layers)) / layers, 0.002)


def drawn(pool: int, size: float, subsets: int) -> float:
    """Return how many examples of a pool are expected to be in at least one of *subsets* random subsets."""
    return float(pool * (1 - (1 - size / pool) ** subsets))


def parse_duration(text: str) -> float:
    """Return the seconds of a duration such as ``2h``, ``90m``, ``1h30m`` or ``45s`` (ConfigError: not a duration)."""
    parts = re.findall(r"(\d+(?:\.\d+)?)([smhd])", text)
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if "".join(number + unit for number, unit in parts) != text or seconds <= 0:
        raise ConfigError(f"budget '{text}': is not a duration. Write it as in 2h, 90m or 1h30m.")
    return seconds


def time_left(seconds: float, spent: float) -> float:
    """Return the seconds of a budget that are left for training, if labels took longer than measured too."""
    return max(LEAST_TRAINING * seconds, (1 - JUDGING) * seconds - spent)


class AtHand(NamedTuple):
    """Limits that a plan has to fit: time by the clock, and examples."""

    seconds: float
    costs: Costs
    examples: int
    workers: int = 1
    """Fine-tunes that run at once."""
    epochs: int = 2

    def one(self, size: int, queries: int) -> float:
        """Return one worker's seconds for a fine-tune on a subset and the losses of *queries* queries."""
        return size * self.epochs * self.costs.fine_tune + queries * self.costs.evaluate


def choose(hand: AtHand) -> LearnPlan:
    """Choose the plan: layers first, then many subsets, then large ones; weights of channels alone if time is short.

    With few subsets an encoder memorises them, and its projection alone learns little however many there are. Weights
    are few numbers, so few subsets are enough. ConfigError: too few examples, or too little time for any plan.
    """
    check_enough(hand.examples)
    for warms in (True, False):
        found = _best(hand, warms) or _weighing(hand, warms)
        if found is not None:
            return found
    raise _too_short(hand)


def check_affordable(hand: AtHand, likely: Costs) -> None:
    """Raise ConfigError if not even the smallest plan fits; the costs at hand are the least possible ones.

    *likely* costs say how much time is needed.
    """
    if _weighing(hand._replace(examples=LEAST_EXAMPLES), False) is None:
        raise _too_short(hand._replace(costs=likely))


def _too_short(hand: AtHand) -> ConfigError:
    minutes = 1
    while _weighing(hand._replace(seconds=60 * minutes), False) is None:
        minutes += 1 + minutes // 10
    return ConfigError(
        f"budget: only {max(0.0, hand.seconds):.0f} seconds are left for learning, too few on this machine. Give at "
        f"least {minutes} minutes, more workers or a smaller language model."
    )


def _best(hand: AtHand, warms: bool) -> LearnPlan | None:
    """Return the best plan that trains an encoder; None if time allows too few subsets, queries or layers."""
    readable = min(hand.examples, int(ENCODE_SHARE * hand.seconds / hand.costs.encode))
    sized = [_plan_of(size, readable, hand.epochs, warms) for size in SIZES]
    filled = [_with_subsets(plan, share, hand) for plan in sized if plan is not None for share in LABEL_SHARES]
    paying = [one for one in filled if one.subsets >= PAYING_SUBSETS and one.held_out_queries >= PAYING_QUERIES]
    plans = [plan for one in paying if (plan := _with_layers(one, hand)) is not None]

    def worth(plan: LearnPlan) -> tuple[int, ...]:
        layers = plan.layers(hand.costs)
        return min(layers, WISHED_LAYERS), min(plan.subsets, WISHED_SUBSETS), plan.size, layers, plan.subsets

    deep = [plan for plan in plans if plan.layers(hand.costs) >= min(WISHED_LAYERS, hand.costs.layers)]
    return max(deep, key=worth, default=None)


def _plan_of(size: int, examples: int, epochs: int, warms: bool) -> LearnPlan | None:
    """Plan pools and queries for subsets of this size; None if there are too few examples."""
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
        warms=warms,
    )


def _with_subsets(plan: LearnPlan, share: float, hand: AtHand) -> LearnPlan:
    """Set as many subsets as *share* of the time allows: about a sixth to judge by, as many to stop by."""
    count = int(share * hand.seconds * hand.workers / hand.one(plan.size, plan.queries))
    judge = max(LEAST_HELD_OUT, min(MOST_HELD_OUT, count // 6))
    most = 100 * plan.pool // plan.size
    return plan.model_copy(update={"subsets": max(2, min(count - 2 * judge, most)), "held_out_subsets": judge})


def _with_layers(plan: LearnPlan, hand: AtHand) -> LearnPlan | None:
    """Choose the most layers that leave time for enough steps, and as many steps as fit; None if nothing fits."""
    costs = hand.costs
    left = SAFETY * hand.seconds - plan.label_seconds(costs) / hand.workers - plan.gradient_seconds(costs)
    for layers in ("all", 4, 2, 1, 0):
        if isinstance(layers, int) and layers >= costs.layers:
            continue
        tried = plan.model_copy(update={"train_layers": layers})
        steps = int((left - tried.fixed_seconds(costs)) / tried.step_seconds(costs))
        if steps >= LEAST_STEPS:
            return tried.model_copy(update={"steps": min(MOST_STEPS, steps)})
    return None


def _weighing(hand: AtHand, warms: bool) -> LearnPlan | None:
    """Plan to weigh channels on one half of the examples and to judge on the other half; None if nothing fits."""
    half = min(hand.examples, int(ENCODE_SHARE * hand.seconds / hand.costs.encode * 4)) // 2
    queries = min(MOST_WEIGHING_QUERIES, int(half * WEIGHING_QUERIES))
    filled = []
    for size in SIZES:
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
            epochs=hand.epochs,
            steps=0,
            warms=warms,
        )
        one = hand.one(size, queries) / hand.workers
        count = int((SAFETY * hand.seconds - plan.train_seconds(hand.costs)) / (2 * one))
        if count >= LEAST_WEIGHING:
            filled.append(plan.model_copy(update={"held_out_subsets": min(count, WISHED_WEIGHING)}))
    return max(filled, key=lambda plan: (plan.held_out_subsets, plan.size), default=None)


LEAST_EXAMPLES = 2 * math.ceil(max(LEAST_QUERIES / WEIGHING_QUERIES, 3 * SIZES[-1] / (1 - WEIGHING_QUERIES)))


def check_enough(examples: int) -> None:
    """Raise ConfigError if there are too few examples for any budget."""
    if examples < LEAST_EXAMPLES:
        raise ConfigError(
            f"data: {many(examples, 'example is', 'examples are')} too few to learn how to weigh methods. Give "
            f"at least {LEAST_EXAMPLES:,}."
        )


MEASURED, GLANCED = 64, 4
"""Examples that are fine-tuned on, evaluated and encoded to measure the machine; those that are evaluated before."""
TUNE = 4
"""Likely cost of a fine-tune on an example, in losses of an example; it only tells how much time is needed."""
FIRST, FEWEST, MOST = 16, 48, 4096
"""Examples of the first index, which warms up, and least and most of the second, which is measured."""
SECONDS = 5.0
"""Seconds that the second index may take."""

Build = Callable[[Corpus, Path], object]
"""Builds an index of some examples at a path."""
Check = Callable[[Costs, Costs], None]
"""Refuses a budget, given the least possible costs and the likely costs."""


@dataclass(frozen=True)
class Forecast:
    """Forecast of what some examples will take, from what a few of them took."""

    examples: int
    measured: int
    """Number of examples that were measured."""
    seconds: float
    """Seconds of one example, on one core or on the accelerator."""
    fixed: float = 0.0
    """Seconds before the first example."""
    bytes: float = 0.0
    """Disk space of one example."""
    memory: int | None = None
    """Peak memory of the process in bytes; None where the system does not report it."""

    @property
    def total(self) -> float:
        """Seconds of all examples."""
        return self.fixed + self.seconds * self.examples


def forecast_index(train: Corpus, build: Build) -> Forecast:
    """Build two indexes of random examples in a temporary folder, and read what they cost.

    The time to learn from the corpus is a line through both: a fixed part, and a part for each example.
    """
    if len(train) < 2:
        raise ConfigError(f"--dry-run: needs at least 2 examples to measure, not {len(train)}. Leave --dry-run out.")
    rows = stream(0, "dry run").permutation(len(train))
    with tempfile.TemporaryDirectory() as folder, stored_in(Path(folder) / "gradients"):
        some = rows[: min(FIRST, len(rows) // 2)]
        first = _built(train.take(some), build, Path(folder) / "first")
        wanted = np.clip(SECONDS / max(first.seconds_per_example or 0.0, 1e-6), FEWEST, MOST)
        more = rows[len(some) :][: int(wanted)]
        second = _built(train.take(more), build, Path(folder) / "second")
        disk = sum(path.stat().st_size for path in Path(folder, "second", "shards").rglob("*") if path.is_file())
        sample = _sample_size(IndexRows(Path(folder) / "second"))
    low, high = (cost.fit_seconds or 0.0 for cost in (first, second))
    growth = max(0.0, (high - low) / (len(more) - len(some))) if len(more) > len(some) else 0.0
    start = max(0.0, high - growth * len(more))
    fit = growth * min(len(train), sample or len(train))
    each = second.seconds_per_example or 0.0
    return Forecast(len(train), len(more), each, start + fit, disk / len(more), second.memory)


def _built(some: Corpus, build: Build, out: Path) -> IndexCost:
    build(some, out)
    cost = index_cost(out)
    assert cost is not None
    return cost


def _sample_size(index: IndexRows) -> int | None:
    """Return the most examples that a method learns from, by its own sample or those of its channels; None: all."""
    own = index.manifest["settings"]
    settings = [own, *(channel.get("settings", {}) for channel in own.get("channels") or ())]
    return max((size for one in settings if isinstance(size := one.get("sample"), int)), default=None)


def measure_lm(
    corpus: Corpus, lm: "LmSettings | TargetLM", tuning: FineTuneSettings, seed: int, check: Check = lambda *_: None
) -> tuple[float, float]:
    """Measure the seconds of one worker for fine-tuning once on an example, and for the loss of a query.

    *check* can refuse a budget before all is measured: by the losses of a few examples on a CPU, which may be wrong by
    a factor of 2, then by the losses of all that are measured. A fine-tune on an example takes longer than its loss.
    """
    from airrep.lm.model import TargetLM, load_lm

    target = lm if isinstance(lm, TargetLM) else load_lm(lm)
    documents = target.tokenise(_sample(corpus, seed, target))
    once = tuning.model_copy(update={"epochs": 1})
    with one_thread():
        on_cpu = target.execution.device == "cpu"
        target.losses(documents.take([0]) if on_cpu else documents)  # the first call takes longer, on a GPU of any size
        if on_cpu:  # on a GPU, a few examples take as long as many
            few = documents.take(range(min(GLANCED, len(documents))))
            about = _seconds(lambda: target.losses(few)) * documents.lengths.mean() / few.lengths.sum()
            check(_costs_of_lm(about / 2, about / 2), _costs_of_lm(TUNE * about, about))
        evaluate = max(1e-6, _seconds(lambda: target.losses(documents)) / len(documents))
        check(_costs_of_lm(evaluate, evaluate), _costs_of_lm(TUNE * evaluate, evaluate))
        tune = max(1e-6, _seconds(lambda: target.fine_tune(documents, once, seed)) / len(documents))
    return tune, evaluate


def _costs_of_lm(tune: float, evaluate: float) -> Costs:
    """Return costs before the encoder is measured, which takes next to nothing beside most LMs."""
    return Costs(fine_tune=tune, evaluate=evaluate, encode=1e-6, layers=1)


def measure_encoder(corpus: Corpus, start: str, seed: int) -> tuple[float, int]:
    """Measure the seconds of one worker for encoding a text; also return the encoder's number of layers."""
    from airrep.encoder.networks.packed import network_of
    from airrep.training.start import load_trainable

    encoder, examples = load_trainable(start), list(_sample(corpus, seed))
    with one_thread():
        encoder.encode(examples[:4])
        seconds = _seconds(lambda: encoder.encode(examples))
    return max(1e-6, seconds / len(examples)), max(1, len(network_of(encoder).layers))


def measure_machine(
    corpus: Corpus,
    lm: "LmSettings | TargetLM",
    tuning: FineTuneSettings,
    start: str,
    seed: int,
    check: Check = lambda *_: None,
) -> Costs:
    """Measure the times of one worker on this machine: evaluate, fine-tune on and encode a few examples.

    *check* is called as in :func:`measure_lm`, and before the encoder is loaded.
    """
    tune, evaluate = measure_lm(corpus, lm, tuning, seed, check)
    check(known := _costs_of_lm(tune, evaluate), known)
    encode, layers = measure_encoder(corpus, start, seed)
    return Costs(fine_tune=tune, evaluate=evaluate, encode=encode, layers=layers)


def _sample(corpus: Corpus, seed: int, lm: "TargetLM | None" = None) -> Corpus:
    """Draw examples at random, which the LM can read (ConfigError: there are none)."""
    rows, refused = stream(seed, "adapt", "measure").permutation(len(corpus)), dict[int, str]()
    for first in range(0, len(rows), MEASURED):
        some = corpus.take(sorted(rows[first : first + MEASURED]))
        refused = {} if lm is None else lm.unusable(some)
        if len(refused) < len(some):
            return some.without(refused)
    reason = next(iter(refused.values()), "")
    raise ConfigError(f"data: the LM cannot read any of {many(len(corpus), 'example')}. A reason: {reason}")


def _seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def forecast_labels(
    plan: SubsetPlan, train: Corpus, lm: LmSettings, tuning: FineTuneSettings, fine_tunes: int
) -> Forecast:
    """Fine-tune and evaluate the LM on a few examples; *fine_tunes* is the number of fine-tunes to forecast."""
    tune, evaluate = measure_lm(train, lm.before(), tuning, plan.settings.seed)
    sizes = [len(plan.subset_rows(i, j)) for i in range(len(plan)) for j in range(plan.subset_count)]
    queries = np.mean([len(plan.query_rows(i)) for i in range(len(plan))])
    seconds = np.mean(sizes) * tuning.epochs * tune + queries * evaluate
    bytes_each = 4.0 * float(queries)  # a loss is a float32
    return Forecast(fine_tunes, min(MEASURED, len(train)), float(seconds), bytes=bytes_each, memory=peak_memory())


def forecast_training(
    learn: Sequence[LabelledInstance], held_out: Sequence[LabelledInstance], settings: TrainingSettings
) -> Forecast:
    """Encode a few texts and count the texts of all steps and evaluations. The forecast's ``examples`` are steps."""
    if not learn:
        raise ConfigError(
            "--dry-run: no labels (measured losses) are given. Give LABELS, directories that `airrep label` wrote."
        )
    encode, layers = measure_encoder(learn[0].train, settings.start, settings.seed)
    share = trained_share(settings.train_layers, layers)
    texts, judged = (sum(len(one.train) + len(one.queries) for one in part) for part in (learn, held_out))
    steps = [
        drawn(len(one.train), float(np.mean(one.subsets.sizes)), settings.subsets_per_step)
        + min(settings.queries_per_step, len(one.queries))
        for one in learn
    ]
    evaluations = settings.steps / settings.evaluate_every
    fixed = encode * (texts + judged * (2 + evaluations * share))
    step = 3 * share * encode * float(np.mean(steps))
    return Forecast(settings.steps, min(MEASURED, len(learn[0].train)), step, fixed, memory=peak_memory())
