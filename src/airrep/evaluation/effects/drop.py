"""Fine-tune without each query's top examples, against as many random ones."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field, field_validator

from airrep.arrays import Rows
from airrep.corpus.inputs import CorpusLike
from airrep.errors import ConfigError
from airrep.evaluation.effects.refits import After, EffectStudy, Refits, Running, against_random
from airrep.evaluation.given import IndexesLike, TrainingPool
from airrep.evaluation.result import Evaluation, Row, as_json
from airrep.evaluation.select import LmLike, kept_answers
from airrep.evaluation.statistics.means import TaskResamples
from airrep.index.index import Index
from airrep.labels.plan import without
from airrep.lm.settings import FineTuneSettings
from airrep.runtime.seeding import stream
from airrep.runtime.settings import Settings, count_of, count_or_share
from airrep.scoring.topk import top_k

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
        """One number, several, or a text with commas between them."""
        given = drop.split(",") if isinstance(drop, str) else drop if isinstance(drop, list | tuple) else [drop]
        found = tuple(count_or_share(one) for one in given)
        if not found or len(set(found)) < len(found):
            raise ValueError("expected different numbers of examples, such as 10,50 or 1%")
        return found


class Drop(EffectStudy):
    """Effect of leaving out each query's top examples on its loss, beyond that of random ones.

    The LM is fine-tuned on the pool without the k examples that an index ranks first for a query, and on the pool
    without k random ones. The value is the mean over queries of the rise of the query's loss against the random sets,
    in nats per response token: above 0 if the examples had helped more than random ones. Training examples with the
    texts of queries are left out.

    Example:
        >>> from airrep.evaluation.effects.drop import Drop
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

        Indexes and the LM are as of :func:`airrep.evaluation.select.evaluate_selection`.

        ConfigError: a setting that does not fit, more examples to drop than half of the pool, or one query alone.
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
        self._refits = Refits(lm, tuning, self.train.take(self._rows), self.queries, running or Running())
        decisive = {**self._refits.decisive, "drop": self.counts}
        decisive |= chosen.model_dump(mode="json", include={"seeds", "seed"})
        self.decide(self._pools[0], chosen.resamples, **decisive)

    def run(self, out: str | Path | None = None, *, replace: bool = False) -> Evaluation:
        """Rank, fine-tune, compare; with *out* the losses are kept beside it until the evaluation is written.

        The same call goes on with them. ArtifactError: another process writes there, or another request was left
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
            rows.append(self._row(place, [_own(mean, one) for one in of_k], control, rows[0] if rows else None))
        return self.evaluation(rows, self._facts(after, control, len(sets)))

    def _top(self, index: Index, pool: TrainingPool) -> np.ndarray:
        """Places in the pool of each query's top examples, best first, ``(q, k)``."""
        found = top_k(index.ask(self.queries), max(self.counts), keep=pool.keep).rows
        places: np.ndarray = np.searchsorted(self._rows, pool.rows_in(self._pools[0], found))
        return places

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
        """Facts on all rows; ``random`` has each size's mean loss without random examples, and its deviation."""
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


def _own(mean: np.ndarray, numbers: Sequence[int]) -> np.ndarray:
    """Loss of each query after the fine-tune without its own top examples, ``(q,)``; *mean* is ``(q, m)``."""
    found: np.ndarray = mean[np.arange(len(numbers)), numbers]
    return found


def _count(asked: int | str, n: int) -> int:
    """Examples to drop from a pool of n (ConfigError: none, or more than half)."""
    k = count_of(asked, n)
    if not 1 <= k <= n // 2:
        raise ConfigError(
            f"--remove {asked}: is {k:,} of a pool of {n:,} examples; expected 1 to {n // 2:,}, since random ones are "
            "left out to compare with. Correct the number."
        )
    return k
