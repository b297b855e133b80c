"""Forecasts of cost: a small sample, measured, times the number of examples."""

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from airrep.attributors.gradient.store import stored_in
from airrep.corpus.corpus import Corpus
from airrep.errors import ConfigError
from airrep.index.rows import IndexRows
from airrep.labels.labels import LabelledInstance
from airrep.labels.plan import SubsetPlan
from airrep.lm.settings import FineTuneSettings, LmSettings
from airrep.planning.budget import Costs, drawn, trained_share
from airrep.runtime.engine import one_thread
from airrep.runtime.metering import IndexCost, index_cost, peak_memory
from airrep.runtime.seeding import stream
from airrep.training.settings import TrainingSettings

MEASURED = 64
"""Examples that are fine-tuned on, evaluated and encoded to measure the machine."""
FIRST, FEWEST, MOST = 16, 48, 4096
"""Examples of the first index, which warms up, and of the second, which is measured."""
SECONDS = 5.0
"""Time that the second index may take."""

Build = Callable[[Corpus, Path], object]
"""Builds an index of some examples at a path."""


@dataclass(frozen=True)
class Forecast:
    """Forecast of what some examples will take, from what a few of them took."""

    examples: int
    measured: int
    """Number of examples that were measured."""
    seconds: float
    """One example, on one core or on the accelerator."""
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


def forecast_index(train: Corpus, build: Build, seed: int = 0) -> Forecast:
    """Build two indexes of random examples in a temporary folder, and read what they cost.

    Learning from the corpus is a line through both: a part that does not depend on the data, and one that does.
    """
    if len(train) < 2:
        raise ConfigError(f"--dry-run: {len(train)} example; expected 2 or more to measure on. Leave --dry-run out.")
    rows = stream(seed, "dry run").permutation(len(train))
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
    """Examples that a method learns from at most, the largest sample of its channels; None if from all."""
    own = index.manifest["settings"]
    settings = [own, *(channel.get("settings", {}) for channel in own.get("channels") or ())]
    return max((size for one in settings if isinstance(size := one.get("sample"), int)), default=None)


def measure_lm(corpus: Corpus, lm: LmSettings, tuning: FineTuneSettings, seed: int) -> tuple[float, float]:
    """Seconds of one worker for fine-tuning once on an example, and for the loss of a query."""
    from airrep.lm.model import load_lm

    target, some = load_lm(lm), _sample(corpus, seed)
    documents = target.tokenise(some.without(target.unusable(some)))
    once = tuning.model_copy(update={"epochs": 1})
    with one_thread():
        target.losses(documents)  # what is done for the first time takes longer
        evaluate = _seconds(lambda: target.losses(documents))
        tune = _seconds(lambda: target.fine_tune(documents, once, seed))
    return max(1e-6, tune / len(documents)), max(1e-6, evaluate / len(documents))


def measure_encoder(corpus: Corpus, start: str, seed: int) -> tuple[float, int]:
    """Seconds of one worker for encoding a text, and the number of layers of the encoder."""
    from airrep.encoder.networks.trainable import network_of
    from airrep.training.start import load_trainable

    encoder, examples = load_trainable(start), list(_sample(corpus, seed))
    with one_thread():
        encoder.encode(examples[:4])
        seconds = _seconds(lambda: encoder.encode(examples))
    return max(1e-6, seconds / len(examples)), max(1, len(network_of(encoder).layers))


def measure_machine(corpus: Corpus, lm: LmSettings, tuning: FineTuneSettings, start: str, seed: int) -> Costs:
    """Return what one worker of this machine needs, from a few fine-tuned, evaluated and encoded examples."""
    tune, evaluate = measure_lm(corpus, lm, tuning, seed)
    encode, layers = measure_encoder(corpus, start, seed)
    return Costs(fine_tune=tune, evaluate=evaluate, encode=encode, layers=layers)


def _sample(corpus: Corpus, seed: int) -> Corpus:
    rows = stream(seed, "adapt", "measure").permutation(len(corpus))[:MEASURED]
    return corpus.take(sorted(rows))


def _seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def forecast_labels(
    plan: SubsetPlan, train: Corpus, lm: LmSettings, tuning: FineTuneSettings, fine_tunes: int
) -> Forecast:
    """Fine-tune and evaluate the LM on a few examples; *fine_tunes* says how many subsets are trained on in all."""
    tune, evaluate = measure_lm(train, lm.before(), tuning, plan.settings.seed)
    sizes = [len(plan.subset_rows(i, j)) for i in range(len(plan)) for j in range(plan.subset_count)]
    queries = np.mean([len(plan.query_rows(i)) for i in range(len(plan))])
    seconds = np.mean(sizes) * tuning.epochs * tune + queries * evaluate
    bytes_each = 4.0 * float(queries)  # a loss is a float32
    return Forecast(fine_tunes, min(MEASURED, len(train)), float(seconds), bytes=bytes_each, memory=peak_memory())


def forecast_training(
    learn: Sequence[LabelledInstance], held_out: Sequence[LabelledInstance], settings: TrainingSettings
) -> Forecast:
    """Encode a few texts; count those that steps and evaluations touch. The forecast's examples are steps."""
    if not learn:
        raise ConfigError("--dry-run: there are no labels to learn from. Give LABELS.")
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
