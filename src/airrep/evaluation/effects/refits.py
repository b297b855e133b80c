"""Fine-tune on given sets of examples, and study the queries' losses after each."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from airrep.arrays import Rows
from airrep.corpus.corpus import Corpus, Example
from airrep.corpus.inputs import CorpusLike, as_corpus
from airrep.errors import ConfigError, DataError, TrainingError
from airrep.evaluation.given import IndexesLike, TrainingPool, cost_of, named_indexes
from airrep.evaluation.result import Evaluation, Row, check_names
from airrep.evaluation.select import LmLike, OnTask
from airrep.evaluation.statistics.means import Difference, Estimate, Interval, TaskResamples
from airrep.labels.farm import label
from airrep.labels.fine_tuner import Learner, load_first, rendering_of
from airrep.labels.labels import Labels
from airrep.labels.plan import SamplingSettings, open_plan, write_plan
from airrep.lm.settings import FineTuneSettings, LmSettings
from airrep.runtime.artifacts.manifests import json_digest
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
        self, lm: LmLike, fine_tune: FineTuneSettings, train: Corpus, queries: Corpus, running: Running
    ) -> None:
        """Load the LM once, to know what decides its losses (DataError: it cannot read a query)."""
        lm = lm if callable(lm) else LmSettings.named(lm).before()
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
    """Return what was found of each query less its mean over the random draws; the mean over queries with its interval.

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


class EffectStudy:
    """An evaluation by fine-tunes on what indexes name, checked."""

    measure: ClassVar[Literal["drop", "trace"]]
    subject: str
    """Digest of all that results depend on but the indexes: rows of equal subjects can be paired."""
    request: Mapping[str, Any]
    """All that decides the result, as JSON values."""

    def __init__(self, indexes: IndexesLike, queries: CorpusLike) -> None:
        """Open the indexes and read the queries; nothing is scored (ConfigError: no index, or one query alone)."""
        self.indexes, self.queries = named_indexes(indexes, "evaluate"), as_corpus(queries, "queries")
        if not self.indexes:
            raise ConfigError("evaluate: expected at least one index. Name some.")
        check_names([name for name, _ in self.indexes])
        if len(self.queries) < 2:
            raise ConfigError("evaluate: there is only one query, and an interval needs two or more. Give more.")

    @property
    def train(self) -> Corpus:
        """All rows of the first index, deleted ones too."""
        return Corpus(pa.concat_tables([shard.examples.table for shard in self.indexes[0][1].shards]))

    def decide(self, pool: TrainingPool, resamples: int, **decisive: Any) -> None:
        """Set subject and request."""
        of_data = {"measure": self.measure, "queries": self.queries.fingerprint, "pool": pool.fingerprint}
        self.subject = json_digest(of_data | decisive)
        indexes = [index.fingerprint for _, index in self.indexes]
        self.request = {**of_data, **decisive, "indexes": indexes, "resamples": resamples}

    def row(
        self, place: int, estimate: Mapping[str, Any], values: np.ndarray, gap: Difference | None, more: dict[str, Any]
    ) -> Row:
        """The row of one index: its estimate as JSON, its values by query, and the difference to the first row."""
        name, index = self.indexes[place]
        low, high = estimate["interval"]
        told: dict[str, Any] = {"cost": cost_of(index), "caution": index.attributor.caution, "more": more}
        return Row(name, index.method, estimate["value"], (low, high), values, difference=gap, **told)

    def evaluation(self, rows: Sequence[Row], facts: Mapping[str, Any]) -> Evaluation:
        """The evaluation of these rows."""
        keys = tuple(("", query.id) for query in self.queries)
        facts = {**facts, "distinct_queries": len(np.unique(self.queries.content_hashes))}
        return Evaluation(self.measure, tuple(rows), keys, self.subject, facts=facts, request=self.request)
