"""Fine-tune on given sets of examples; the losses of queries after each."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from airrep.arrays import Rows
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import ConfigError, DataError, TrainingError
from airrep.evaluation.select import OnTask
from airrep.evaluation.statistics.means import Estimate, Interval, TaskResamples
from airrep.labels.farm import label
from airrep.labels.fine_tuner import Learner, load_first, rendering_of
from airrep.labels.labels import Labels
from airrep.labels.plan import SamplingSettings, open_plan, write_plan
from airrep.lm.settings import FineTuneSettings, LmSettings
from airrep.runtime.engine import Engine, InProcess
from airrep.shapes import Float64

SUBSETS, LABELS = "subsets", "labels"
"""Parts of the folder of answers: the sets that are fine-tuned on, and the losses after each."""


class After(NamedTuple):
    """Losses of queries, mean nats per response token."""

    losses: Float64[np.ndarray, "s q m"]
    """After a fine-tune on each set, in each order of the data."""
    base: Float64[np.ndarray, " q"]
    """Before any fine-tune."""


@dataclass(frozen=True)
class Running:
    """Where fine-tunes run, how often a failed one is tried again, and who is told of each."""

    engine: Engine | None = None
    retries: int = 2
    on_task: OnTask | None = None


class Refits:
    """A target LM that is fine-tuned on given sets of examples, checked."""

    def __init__(
        self,
        lm: "LmSettings | Any",
        fine_tune: FineTuneSettings,
        train: Corpus,
        queries: Corpus,
        running: Running,
    ) -> None:
        """Load the LM once, to know what decides its losses (DataError: it cannot read a query)."""
        self._lm, self.fine_tune, self.train, self.queries, self._running = lm, fine_tune, train, queries, running
        first = load_first(lm, running.engine or InProcess())
        self._loaded: Learner[Any] | None = first.lm
        self.facts: dict[str, Any] = {
            "lm": {"name": first.name, "fingerprint": first.lm.fingerprint},
            "fine_tune": fine_tune.model_dump(mode="json"),
        }
        """The LM and its fine-tuning, for readers."""
        self.decisive: Mapping[str, Any] = {
            "lm": first.lm.fingerprint,
            **first.lm.reading,
            "precision": first.precision,
            "fine_tune": fine_tune.model_dump(mode="json"),
            **rendering_of(first.lm, train, queries),
        }
        """JSON values that decide losses, beside the texts."""
        self._refuse(list(queries), "queries")

    def _refuse(self, examples: Sequence[Example], what: str) -> None:
        assert self._loaded is not None
        refused = self._loaded.unusable(examples)
        if refused:
            raise DataError(
                f"evaluate: {len(refused):,} of {len(examples):,} {what} cannot be used with the LM "
                f"{self.facts['lm']['name']}; the first: {refused[min(refused)]} Leave them out."
            )

    def losses(self, sets: Sequence[Rows], folder: Path, *, seeds: int, seed: int) -> After:
        """Fine-tune on each set, in the order of its rows; all with the same seeds, so that orders are alike.

        What is finished lies in *folder*: the same call goes on there. TrainingError: a fine-tune failed.
        """
        if self._loaded is not None:
            self._refuse(list(self.train.take(np.unique(np.concatenate(sets)))), "training examples")
            self._loaded = None  # workers, or this process again, load their own
        counts = {"instances": 1, "train_count": None, "query_count": None, "subsets": len(sets)}
        settings = SamplingSettings.of({"kind": "paired", **counts, "size": max(map(len, sets)), "seed": seed})
        corpora = {"train": self.train.fingerprint, "queries": self.queries.fingerprint}
        rows = {"train": [np.arange(len(self.train))], "queries": [np.arange(len(self.queries))], "members": list(sets)}
        write_plan(folder / SUBSETS, {**corpora, "settings": settings.model_dump(mode="json")}, rows, replace=True)
        how = self._running
        running: dict[str, Any] = {"engine": how.engine, "retries": how.retries, "on_task": how.on_task}
        texts = (open_plan(folder / SUBSETS), self.train, self.queries)
        try:
            made = label(
                *texts, self._lm, self.fine_tune, folder / LABELS, seeds=seeds, retry_quarantined=True, **running
            )
        except TrainingError:
            made = Labels(folder / LABELS)
            if not made.quarantined:
                raise
        if not made.complete:
            failed = made.quarantined
            raise TrainingError(
                f"evaluate: fine-tunes failed ({len(failed)}), the first: {failed[0].reason} What is finished is kept "
                "beside --out. Run the same command again."
            )
        [one] = made.instances(self.train, self.queries)
        losses = one.losses[None] if one.by_seed is None else one.by_seed
        assert one.base_losses is not None
        return After(losses.astype(np.float64), one.base_losses.astype(np.float64))


def against_random(
    found: Float64[np.ndarray, " q"], random: Float64[np.ndarray, "q r"], resamples: int, seed: int
) -> tuple[Float64[np.ndarray, " q"], Estimate]:
    """What was found of each query less its mean over the random draws; the mean over queries with its interval.

    The draws are a sample too, and the same for all queries: each end is the root of the summed squares of the
    bootstrap's over queries and of Student's t over the draws.
    """
    from scipy import stats

    more = found - random.mean(axis=1)
    value, ends = TaskResamples.plain(len(more), resamples, seed, bounded=False).estimate(more)
    draws = random.shape[1]
    chance = 0.0
    if draws > 1:
        deviation = float(np.std(random.mean(axis=0), ddof=1))
        chance = float(stats.t.ppf(0.975, draws - 1)) * deviation / math.sqrt(draws)
    return more, Estimate(
        value, Interval(value - math.hypot(value - ends.low, chance), value + math.hypot(ends.high - value, chance))
    )


def refuse_few(queries: Corpus) -> None:
    """Refuse fewer queries than an interval needs (ConfigError)."""
    if len(queries) < 2:
        raise ConfigError("evaluate: there is one query alone; expected two or more, for an interval. Give more.")
