"""Fine-tune without each query's top examples, against as many random ones."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pydantic import Field, field_validator

from airrep.arrays import Rows
from airrep.corpus.corpus import Corpus
from airrep.corpus.inputs import CorpusLike, as_corpus
from airrep.errors import ConfigError
from airrep.evaluation.effects.refits import After, Refits, Running, against_random, refuse_few
from airrep.evaluation.given import IndexesLike, Named, TrainingPool, cost_of, named_indexes
from airrep.evaluation.result import Evaluation, Row, as_json, check_names
from airrep.evaluation.select import LmLike, LoadLike, kept_answers
from airrep.evaluation.statistics.means import TaskResamples
from airrep.index.index import Index
from airrep.labels.plan import without
from airrep.lm.settings import FineTuneSettings, LmSettings
from airrep.runtime.artifacts.manifests import json_digest
from airrep.runtime.ray_engine import make_engine
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


def evaluate_drop(
    indexes: IndexesLike,
    queries: CorpusLike,
    lm: LmLike,
    settings: DropSettings | Mapping[str, Any] | None = None,
    fine_tune: FineTuneSettings | Mapping[str, Any] | None = None,
    *,
    out: str | Path | None = None,
    engine: Any = None,
) -> Evaluation:
    """Measure what leaving out each query's top examples does to its loss, beyond what random ones do.

    The LM is fine-tuned on the pool without the k examples that an index ranks first for a query, and on the pool
    without k random ones. The value is the mean over queries of the rise of the query's loss against the random sets,
    in nats per response token: above 0 if the examples had helped more than random ones.

    Args:
        indexes: of the same training examples, or their paths, each alone or as ``(name, index)``.
        queries: prompts with the answers whose loss counts. Training examples with their texts are left out.
        lm: the target LM before fine-tuning, as :func:`airrep.evaluation.select.evaluate_selection` takes it.
        settings: or a dict of some of them.
        fine_tune: settings of the fine-tunes, or a dict of some of them.
        out: where the evaluation will be written; losses are kept beside it, and the same call goes on with them.
        engine: where fine-tunes run: ``"local"``, ``"ray"`` or an engine; in this process if None.

    Raises:
        ConfigError: a setting that does not fit, more examples to drop than half of the pool, or one query alone.
        DataError: other examples in some index, or a text that the LM cannot read.
        ArtifactError: another process writes there, or another request was left unfinished there.
        TrainingError: a fine-tune failed.

    Example:
        >>> from airrep.evaluation.effects.drop import evaluate_drop
        >>> found = evaluate_drop([("tfidf", index)], queries, "MODEL", {"drop": 2}, {"epochs": 1})
        >>> found.measure, [row.name for row in found.rows]
        ('drop', ['tfidf'])
    """
    model = lm if callable(lm) else LmSettings.named(lm).before()
    tuning, chosen = FineTuneSettings.given(fine_tune, "fine_tune"), DropSettings.given(settings)
    asked, running = as_corpus(queries, "queries"), Running(make_engine(engine))
    return Drop(named_indexes(indexes, "evaluate"), asked, model, tuning, chosen, running).run(out)


class Drop:
    """An evaluation by dropping the top, checked; :attr:`request` holds all that decides its result."""

    def __init__(
        self,
        indexes: Named,
        queries: Corpus,
        lm: LoadLike,
        fine_tune: FineTuneSettings,
        settings: DropSettings,
        running: Running,
    ) -> None:
        """Read the texts of the indexes, and load the LM; nothing is scored or fine-tuned."""
        if not indexes:
            raise ConfigError("evaluate: expected at least one index. Name some.")
        check_names([name for name, _ in indexes])
        refuse_few(queries)
        pools = TrainingPool.of(indexes, "prompt", settings.where)
        own = [~np.isin(pool.hashes, queries.content_hashes) for pool in pools]
        self._pools = [replace(pool, keep=pool.keep & other) for pool, other in zip(pools, own, strict=True)]
        self._rows, self._left_out = np.sort(self._pools[0].order), len(pools[0].order) - len(self._pools[0].order)
        self._indexes, self._queries, self._settings = indexes, queries, settings
        self.counts = [_count(one, len(self._rows)) for one in settings.drop]
        train = Corpus(pa.concat_tables([shard.examples.table for shard in indexes[0][1].shards])).take(self._rows)
        self._refits = Refits(lm, fine_tune, train, queries, running)
        decisive = {
            "measure": "drop",
            **self._refits.decisive,
            "queries": queries.fingerprint,
            "pool": self._pools[0].fingerprint,
            "drop": self.counts,
            **settings.model_dump(mode="json", include={"seeds", "seed"}),
        }
        self.subject = json_digest(decisive)
        """Digest of LM, fine-tuning, queries, pool and settings: rows of equal subjects can be paired."""
        self.request: Mapping[str, Any] = {
            **decisive,
            "indexes": [index.fingerprint for _, index in indexes],
            "resamples": settings.resamples,
        }

    def run(self, out: str | Path | None = None, *, replace: bool = False) -> Evaluation:
        """Rank, fine-tune, compare; with *out* the losses are kept beside it until the evaluation is written."""
        tops = [self._top(index, pool) for (_, index), pool in zip(self._indexes, self._pools, strict=True)]
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
        for (name, index), of_k in zip(self._indexes, named, strict=True):
            rows.append(self._row(name, index, [_own(mean, one) for one in of_k], control, rows[0] if rows else None))
        keys = tuple(("", query.id) for query in self._queries)
        facts = self._facts(after, control, len(sets))
        return Evaluation("drop", tuple(rows), keys, self.subject, facts=facts, request=self.request)

    def _top(self, index: Index, pool: TrainingPool) -> np.ndarray:
        """Places in the pool of each query's top examples, best first, ``(q, k)``."""
        found = top_k(index.ask(self._queries), max(self.counts), keep=pool.keep).rows
        # Pools of the same texts have the same text at each place of their orders.
        place = np.empty(len(pool.hashes), np.int64)
        place[pool.order] = np.searchsorted(self._rows, self._pools[0].order)
        places: np.ndarray = place[found]
        return places

    def _drawn(self, k: int, draw: int) -> Rows:
        return stream(self._settings.seed, "drop", "random", k, draw).choice(len(self._rows), k, replace=False)

    def _row(
        self, name: str, index: Index, found: Sequence[np.ndarray], control: Sequence[np.ndarray], first: Row | None
    ) -> Row:
        settings, more, rises = self._settings, dict[str, Any](), list[np.ndarray]()
        plain = TaskResamples.plain(len(self._queries), settings.resamples, settings.seed, bounded=False)
        for k, losses, random in zip(self.counts, found, control, strict=True):
            rise, estimate = against_random(losses, random, settings.resamples, settings.seed)
            rises.append(rise)
            before = None if first is None else np.array(first.more[f"top_{k}"]["per_query"])
            gap = None if before is None else plain.difference(rise, before).to_dict()
            more[f"top_{k}"] = as_json({**estimate.to_dict(), "minus_first": gap, "per_query": rise.tolist()})
        value, interval = more[f"top_{self.counts[0]}"]["value"], more[f"top_{self.counts[0]}"]["interval"]
        return Row(
            name,
            index.method,
            value,
            (interval[0], interval[1]),
            rises[0],
            difference=None if first is None else plain.difference(rises[0], first.per_query),
            cost=cost_of(index),
            caution=index.attributor.caution,
            more=more,
        )

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
            "distinct_queries": len(np.unique(self._queries.content_hashes)),
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
