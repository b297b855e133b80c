"""Fine-tune on sets of examples, or without top ones; study the losses after."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field, field_validator

from airrep.arrays import Rows
from airrep.corpus.corpus import Corpus, Example, of_answers
from airrep.corpus.inputs import CorpusLike, as_corpus
from airrep.errors import ConfigError, DataError, TrainingError, many
from airrep.evaluation.given import IndexesLike, TrainingPool, all_rows, cost_of, named_indexes
from airrep.evaluation.result import Evaluation, Row, as_json, check_names
from airrep.evaluation.select import LmLike, OnTask, kept_answers
from airrep.evaluation.statistics.means import Difference, Estimate, Interval, TaskResamples
from airrep.index.contrast import Question
from airrep.index.index import Index
from airrep.labels.farm import label
from airrep.labels.fine_tuner import Learner, load_first, rendering_of
from airrep.labels.labels import Labels
from airrep.labels.plan import SamplingSettings, open_plan, without, write_plan
from airrep.lm.settings import FineTuneSettings, LmSettings
from airrep.runtime.artifacts import json_digest
from airrep.runtime.engine import Engine, InProcess
from airrep.runtime.seeding import stream
from airrep.runtime.settings import Settings, count_of, count_or_share
from airrep.scoring.topk import top_k
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
    """Engine, retries and progress callback of fine-tunes."""

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
        """JSON values that, together with the texts, decide the losses."""
        self._refuse(list(queries), "queries")

    def _refuse(self, examples: Sequence[Example], what: str) -> None:
        assert self._loaded is not None
        refused = self._loaded.unusable(examples)
        if refused:
            raise DataError(
                f"evaluate: {len(refused):,} of {len(examples):,} {what} cannot be used with the LM "
                f"{self.facts['lm']['name']}; the first: {refused[min(refused)]} Leave these {what} out."
            )

    def losses(self, sets: Sequence[Rows], folder: Path, *, seeds: int, seed: int) -> After:
        """Fine-tune on each set, in the order of its rows; all with the same seeds, so that orders are alike.

        *folder* keeps finished fine-tunes: the same call resumes there. TrainingError: a fine-tune failed.
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
    """Subtract each query's mean over random draws from *found*; also return the mean over queries with its interval.

    The draws are a sample too, which all queries share. So each half of the interval is √(b² + t²), with b from the
    bootstrap over queries and t from Student's t over the draws.
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
    """An evaluation by fine-tunes on the examples that indexes name, with checked arguments."""

    measure: ClassVar[Literal["drop", "trace"]]
    subject: str
    """Digest of all that decides results, without the indexes: rows of equal subjects can be paired."""
    request: Mapping[str, Any]
    """All that decides the result, as JSON values."""

    def __init__(self, indexes: IndexesLike, queries: CorpusLike) -> None:
        """Open the indexes and read the queries; nothing is scored (ConfigError: no index, or only one query)."""
        self.indexes, self.queries = named_indexes(indexes, "evaluate"), of_answers(as_corpus(queries, "queries"))
        if not self.indexes:
            raise ConfigError("evaluate: no index is given. Give at least one.")
        check_names([name for name, _ in self.indexes])
        if len(self.queries) < 2:
            raise ConfigError(
                "evaluate: there is only one query, but a confidence interval needs two. Give more queries."
            )

    def decide(self, pool: TrainingPool, resamples: int, **decisive: Any) -> None:
        of_data = {"measure": self.measure, "queries": self.queries.fingerprint, "pool": pool.fingerprint}
        self.subject = json_digest(of_data | decisive)
        indexes = [index.fingerprint for _, index in self.indexes]
        self.request = {**of_data, **decisive, "indexes": indexes, "resamples": resamples}

    def row(
        self, place: int, estimate: Mapping[str, Any], values: np.ndarray, gap: Difference | None, more: dict[str, Any]
    ) -> Row:
        """Make one index's row from its estimate as JSON, its values by query, and its difference to the first row."""
        name, index = self.indexes[place]
        low, high = estimate["interval"]
        told: dict[str, Any] = {"cost": cost_of(index), "caution": index.attributor.caution, "more": more}
        return Row(name, index.method, estimate["value"], (low, high), values, difference=gap, **told)

    def evaluation(self, rows: Sequence[Row], facts: Mapping[str, Any]) -> Evaluation:
        keys = tuple(("", query.id) for query in self.queries)
        facts = {**facts, "distinct_queries": len(np.unique(self.queries.content_hashes))}
        return Evaluation(self.measure, tuple(rows), keys, self.subject, facts=facts, request=self.request)


DRAWS = 5
"""Random sets of each size, which all queries share."""


class DropSettings(Settings):
    """Settings of an evaluation by dropping the top."""

    drop: tuple[int | str, ...] = (10,)
    """Numbers of examples, or percentages of the pool, to leave out; the first is the row's value."""
    seeds: int = Field(default=1, ge=1)
    """Fine-tunes of each set, each with its own order of the data, averaged."""
    where: str | None = None
    """Filter of training examples; only those that match are fine-tuned on."""
    resamples: int = Field(default=1000, ge=1)
    """Number of bootstrap draws behind each interval."""
    seed: int = Field(default=0, ge=0)
    """Random seed."""

    @field_validator("drop", mode="before")
    @classmethod
    def _several(cls, drop: Any) -> Any:
        """Accept one number, several, or a text with commas between them."""
        given = drop.split(",") if isinstance(drop, str) else drop if isinstance(drop, list | tuple) else [drop]
        found = tuple(count_or_share(one) for one in given)
        if not found or len(set(found)) < len(found):
            raise ValueError("give at least one number of examples to drop, and none twice, such as 10,50 or 1%")
        return found


class Drop(EffectStudy):
    """Effect of leaving out each query's top examples on its loss, beyond the effect of leaving out random ones.

    The LM is fine-tuned on the pool without the k examples that an index ranks first for a query, and on the pool
    without k random ones. The value is the mean over queries of the rise of the query's loss against the random sets,
    in nats per response token: above 0 if the top examples had helped more than random ones. Training examples with the
    texts of queries are left out.

    Example:
        >>> from airrep.evaluation.effects.refits import Drop
        >>> found = Drop([("tfidf", index)], queries, "MODEL", {"drop": 2}, {"epochs": 1}).run()
        >>> found.measure, [row.name for row in found.rows]
        ('drop', ['tfidf'])
    """

    measure = "drop"

    def __init__(
        self,
        indexes: IndexesLike,
        queries: CorpusLike,
        lm: LmLike,
        settings: DropSettings | Mapping[str, Any] | None = None,
        fine_tune: FineTuneSettings | Mapping[str, Any] | None = None,
        running: Running | None = None,
    ) -> None:
        """Read the texts of the indexes, and load the LM; nothing is scored or fine-tuned.

        Indexes and the LM are given as in :func:`airrep.evaluation.select.evaluate_selection`.

        ConfigError: a setting that does not fit, more examples to drop than half of the pool, or only one query.
        DataError: other examples in some index, or a text that the LM cannot read.
        """
        super().__init__(indexes, queries)
        tuning, chosen = FineTuneSettings.given(fine_tune, "fine_tune"), DropSettings.given(settings)
        pools = TrainingPool.of(self.indexes, "prompt", chosen.where)
        own = [~np.isin(pool.hashes, self.queries.content_hashes) for pool in pools]
        self._pools = [replace(pool, keep=pool.keep & other) for pool, other in zip(pools, own, strict=True)]
        self._rows, self._left_out = np.sort(self._pools[0].order), len(pools[0].order) - len(self._pools[0].order)
        self._settings = chosen
        self.counts = [_count(one, len(self._rows)) for one in chosen.drop]
        train = all_rows(self.indexes[0][1]).take(self._rows)
        self._refits = Refits(lm, tuning, train, self.queries, running or Running())
        decisive = {**self._refits.decisive, "drop": self.counts}
        decisive |= chosen.model_dump(mode="json", include={"seeds", "seed"})
        self.decide(self._pools[0], chosen.resamples, **decisive)

    def run(self, out: str | Path | None = None, *, replace: bool = False) -> Evaluation:
        """Rank, fine-tune, compare; with *out* the losses are kept beside it until the evaluation is written.

        The same call resumes with them. ArtifactError: another process writes there, or another request was left
        unfinished there. TrainingError: a fine-tune failed.
        """
        tops = [self._top(index, pool) for (_, index), pool in zip(self.indexes, self._pools, strict=True)]
        n, sets = len(self._rows), dict[tuple[int, ...], int]()

        def number(gone: Rows) -> int:
            return sets.setdefault(tuple(np.sort(gone).tolist()), len(sets))

        random = [[number(self._drawn(k, draw)) for draw in range(DRAWS)] for k in self.counts]
        named = [[[number(top[:k]) for top in one] for k in self.counts] for one in tops]
        with kept_answers(out, self.request, replace=replace) as folder:
            left = [without(n, np.array(gone, np.int64)) for gone in sets]
            after = self._refits.losses(left, folder, seeds=self._settings.seeds, seed=self._settings.seed)
        mean = after.losses.mean(axis=0)
        control = [mean[:, numbers] for numbers in random]
        rows = list[Row]()
        for place, of_k in enumerate(named):
            own = [mean[np.arange(len(numbers)), numbers] for numbers in of_k]  # each query's, without its top examples
            rows.append(self._row(place, own, control, rows[0] if rows else None))
        return self.evaluation(rows, self._facts(after, control, len(sets)))

    def _top(self, index: Index, pool: TrainingPool) -> np.ndarray:
        """Return the places in the pool of each query's top examples, best first, ``(q, k)``."""
        found = top_k(index.ask(Question(self.queries)), max(self.counts), keep=pool.keep).rows
        return np.searchsorted(self._rows, pool.rows_in(self._pools[0], found))

    def _drawn(self, k: int, draw: int) -> Rows:
        return stream(self._settings.seed, "drop", "random", k, draw).choice(len(self._rows), k, replace=False)

    def _row(self, place: int, found: Sequence[np.ndarray], control: Sequence[np.ndarray], first: Row | None) -> Row:
        settings, more, rises = self._settings, dict[str, Any](), list[np.ndarray]()
        plain = TaskResamples.plain(len(self.queries), settings.resamples, settings.seed, bounded=False)
        for k, losses, random in zip(self.counts, found, control, strict=True):
            rise, estimate = against_random(losses, random, settings.resamples, settings.seed)
            rises.append(rise)
            before = None if first is None else np.array(first.more[f"top_{k}"]["per_query"])
            told = None if before is None else plain.difference(rise, before).to_dict()
            more[f"top_{k}"] = as_json({**estimate.to_dict(), "minus_first": told, "per_query": rise.tolist()})
        gap = None if first is None else plain.difference(rises[0], first.per_query)
        return self.row(place, more[f"top_{self.counts[0]}"], rises[0], gap, more)

    def _facts(self, after: After, control: Sequence[np.ndarray], sets: int) -> dict[str, Any]:
        """Return facts on all rows; ``random`` has, for each size, mean and deviation of losses without random ones."""
        return {
            **self._refits.facts,
            "drop": self.counts,
            "examples": len(self._rows),
            "examples_left_out_as_queries": self._left_out,
            "seeds": self._settings.seeds,
            "draws": DRAWS,
            "fine_tunes": sets * self._settings.seeds,
            "before": float(after.base.mean()),
            "random": {
                str(k): {"loss": float(losses.mean()), "deviation": float(np.std(losses.mean(axis=0), ddof=1))}
                for k, losses in zip(self.counts, control, strict=True)
            },
            "where": self._settings.where,
            "resamples": self._settings.resamples,
        }


def _count(asked: int | str, n: int) -> int:
    """Return the number of examples to drop from a pool of n (ConfigError: none, or more than half)."""
    k = count_of(asked, n)
    if not 1 <= k <= n // 2:
        within = f"Remove 1 to {n // 2:,}, because the same number of random examples is removed for comparison."
        advice = within if n > 1 else "Use more examples; those that are also queries do not count."
        raise ConfigError(f"--remove {asked}: is {k:,} of {many(n, 'example')}. {advice}")
    return k
