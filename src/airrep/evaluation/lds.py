"""LDS of indexes on labelled instances, side by side."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from airrep.arrays import GroupScores
from airrep.errors import ConfigError, DataError, many
from airrep.evaluation.given import IndexesLike, InstancesLike, Named, cost_of, labelled_instances, named_indexes
from airrep.evaluation.judging import best_of, difference_over, lds_over, scales, shared_queries
from airrep.evaluation.result import Evaluation, Row, check_names
from airrep.evaluation.statistics.labels import REMEDY, Ceiling, mean_ceiling, moved, seeds_alike, signal_to_noise
from airrep.evaluation.statistics.metrics import RESAMPLES, judge
from airrep.index.contrast import Question
from airrep.index.index import Index
from airrep.labels.labels import (
    LabelledInstance,
    distinct,
    identity,
    leaves_little_out,
    mean_over_seeds,
    refuse_removals,
)
from airrep.runtime.artifacts import json_digest
from airrep.scoring.asked import Asked, score_blocks
from airrep.scoring.group_scores import group_scores
from airrep.scoring.groups import Groups
from airrep.scoring.pooling import CHANNELS, Pooling, PoolLike


class RowFinder:
    """Finds the examples of instances in an index by their texts; the index is read once."""

    def __init__(self, index: Index, instances: Sequence[LabelledInstance]) -> None:
        self.index = index
        # Only members of subsets are scored, so an index may lack the rest of the train pool.
        used = [one.train.content_hashes[np.unique(one.subsets.rows)].tolist() for one in instances]
        self._rows: dict[bytes, list[int]] = {text: [] for texts in used for text in texts}
        for shard in index.shards:
            for row, text in enumerate(shard.examples.content_hashes.tolist(), shard.start):
                if index.live[row] and (rows := self._rows.get(text)) is not None:
                    rows.append(row)

    def score(self, instance: LabelledInstance, pool: PoolLike, asked: Asked | None = None) -> GroupScores:
        """Score an instance's subsets, ``(q, m)``, higher = more helpful; errors as in :meth:`subsets`."""
        asked = asked or self.index.ask(Question(instance.queries))
        return group_scores(asked, self.subsets(instance), pool, examples=len(instance.train))

    def subsets(self, instance: LabelledInstance) -> Groups:
        """Return the subsets as rows of the index; the n-th copy of a text in the pool is its n-th copy in the index.

        If the index has fewer copies than the pool, only copies that are in a subset count. DataError: an example is
        not in the index, or was deleted.
        """
        used, rows = np.unique(instance.subsets.rows), np.full(len(instance.train), -1, np.int64)
        copies: dict[bytes, list[int]] = {}
        for place, text in enumerate(instance.train.content_hashes.tolist()):
            if text in self._rows:
                copies.setdefault(text, []).append(place)
        for text, places in copies.items():
            known = self._rows[text]
            chosen = places if len(places) <= len(known) else np.intersect1d(places, used)[: len(known)]
            rows[chosen] = known[: len(chosen)]
        missing = used[rows[used] < 0]
        if len(missing):
            raise DataError(
                f'{self.index.path}: lacks the example "{instance.train[int(missing[0])].id}" and '
                f"{many(len(missing) - 1, 'more training example')} of instance {instance.name} (train/query split). "
                "Build the index from the data that the labels (measured losses) were made from."
            )
        return Groups(instance.subsets.names, rows[instance.subsets.rows], instance.subsets.offsets)


@dataclass(frozen=True, eq=False)
class Contender:
    """One index with its group scores, before it is judged."""

    name: str
    index: Index
    pooling: Pooling
    scores: Sequence[GroupScores]
    """Group scores of each instance, ``(q, m)``; higher = more helpful."""
    sizes: Sequence[int] | None
    """Sizes of the groups; None if encoders are not trained on groups of this kind."""
    more: Mapping[str, Any] = field(default_factory=dict)


def evaluate_lds(
    indexes: IndexesLike,
    instances: InstancesLike,
    pool: PoolLike | None = None,
    temperature: float = 1.0,
    *,
    tune: InstancesLike = (),
    resamples: int = RESAMPLES,
    names: Sequence[str] | str | None = None,
) -> Evaluation:
    """Measure each index's LDS on labelled subsets: the mean over queries of Spearman(f(x, S_j), −ℓ_j(x)).

    For subsets that leave out at most a tenth of their pool, f is minus the pooled score of the left-out examples, by
    ``sum`` unless *pool* is given (:class:`LeftOutStudy`).

    An index may hold any corpus that contains the train pools; their examples are found by content. Queries are
    encoded by the index's method.

    Args:
        indexes: indexes, their paths, or pairs ``(name, index)``; or one alone. The others are compared with the first.
        instances: queries, subsets and losses to judge by; or one instance alone.
        pool: the pool of all indexes; each method's own if None.
        temperature: the temperature of attention; if *pool* is None, 1 stands for each method's own.
        tune: other instances to tune on. Each index whose pool is attention takes the temperature with the highest LDS
            on them, from its own and others that bring the deviation of its scores to 1/8 to 8.
        resamples: bootstrap draws behind each interval.
        names: names of the rows; None takes the names of the pairs, or else the paths of the indexes.

    Raises:
        ConfigError: no index, no instance, an instance that is given twice by its content or is both tuned and judged
            on, both a temperature and instances to tune on, or a pool that does not fit.
        DataError: an index lacks an example of a train pool, scores that are not finite or all constant, an instance
            is made of removals or has no losses, or two rows of one name.

    Example:
        >>> found = airrep.evaluate_lds([index], instances, names=["tfidf"])
        >>> found.measure, [row.name for row in found.rows]
        ('lds', ['tfidf'])
    """
    opened, judged = named_indexes(indexes, "evaluate", names), labelled_instances(instances, "evaluate")
    tuned = labelled_instances(tune, "evaluate: tune")
    return lds_study(judged)(opened, judged, pool, temperature, tune=tuned, resamples=resamples).run()


@dataclass(eq=False)
class LdsStudy:
    """An evaluation by LDS, checked; :attr:`request` holds all that decides its result."""

    measure: ClassVar[Literal["lds", "loo"]] = "lds"
    own_pool: ClassVar[PoolLike | None] = None
    """Pool if the user names none; None for each method's own."""
    sign: ClassVar[int] = 1
    """Factor on the losses of :attr:`scored`, so that higher scores go with lower values."""
    more_request: ClassVar[Mapping[str, Any]] = {}
    """Further entries of :attr:`request` that decide the result."""

    indexes: Named
    instances: Sequence[LabelledInstance]
    pool: PoolLike | None = None
    temperature: float = 1.0
    _: KW_ONLY
    tune: Sequence[LabelledInstance] = ()
    resamples: int = RESAMPLES

    def __post_init__(self) -> None:
        """Digest every instance once; nothing is scored. Fields and errors are as in :func:`evaluate_lds`."""
        # Without an own pool, the last term keeps an empty text, so that it is refused later.
        self.asked_pool, self.pool = self.pool, self.pool or self.own_pool or self.pool
        self._check()
        # These digests make request and subject, and show an instance given twice, or both tuned and judged on.
        judged, tuned = distinct(self.instances), [identity(instance) for instance in self.tune]
        self._check_tuning(judged, tuned)
        self.request: Mapping[str, Any] = {
            "measure": self.measure,
            **{f"index {number}": index.fingerprint for number, (_, index) in enumerate(self.indexes, start=1)},
            **{f"instance {number}": content for number, content in enumerate(judged, start=1)},
            **{f"tuning instance {number}": content for number, content in enumerate(tuned, start=1)},
            "pool": None if self.pool is None else str(Pooling.parse(self.pool)),
            "temperature": self.temperature,
            "resamples": self.resamples,
            **self.more_request,
        }
        self.subject = json_digest({"measure": self.measure, "instances": list(judged)})
        check_names([name for name, _ in self.indexes])

    def _check(self) -> None:
        everything = (*self.instances, *self.tune)
        if self.temperature != 1 and self.own_pool is not None and self.asked_pool is None:
            raise ConfigError(
                "evaluate: temperature has no effect, because scores are summed for these measured losses (--pool "
                "sum). Remove temperature, or add --pool attention."
            )
        if self.measure == "lds":
            for instance in everything:
                refuse_removals(instance)
        if not self.indexes or not self.instances:
            raise ConfigError("evaluate: at least one index and labels (measured losses) are needed. Give both.")
        if self.resamples < 1:
            raise ConfigError(f"resamples={self.resamples}: must be at least 1.")
        bare = next((instance.name for instance in everything if not np.isfinite(instance.losses).any()), None)
        if bare is not None:
            raise DataError(
                f"instance {bare} (train/query split): has no losses. Finish the run of `airrep label`, or give "
                "other labels (measured losses)."
            )

    def _check_tuning(self, judged: Mapping[str, str], tuned: Sequence[str]) -> None:
        """Refuse an instance both tuned and judged on, whatever its name; *judged* maps contents to names."""
        if self.temperature != 1 and self.tune:
            raise ConfigError(
                "evaluate: a temperature and labels (measured losses) to tune it on are both given. Leave one of them "
                "out."
            )
        for instance, name in zip(self.tune, map(judged.get, tuned), strict=True):
            if name is not None:
                alias = "" if name == instance.name else f" (as {name})"
                raise ConfigError(
                    f"--tune: the labels of instance {instance.name} (a train/query split) are also in "
                    f"--labels{alias}. Give other labels to --tune."
                )

    @property
    def scored(self) -> Sequence[LabelledInstance]:
        """Instances whose groups the indexes score."""
        return self.instances

    @cached_property
    def ceiling(self) -> Ceiling | None:
        """Noise ceiling; None without seeds that differ."""
        return mean_ceiling(telling_seeds(self.scored))

    def run(self) -> Evaluation:
        contenders = [self.contender(name, index) for name, index in self.indexes]
        scores = {
            f"{number}/{instance.name}": f
            for number, contender in enumerate(contenders)
            for f, instance in zip(contender.scores, self.scored, strict=True)
        }
        return Evaluation(
            self.measure,
            self._rows(contenders),
            tuple((one.name, str(id_)) for one in self.scored for id_ in one.queries.ids.to_pylist()),
            self.subject,
            None if self.ceiling is None else self.ceiling.lds,
            {**self.facts(), **self._tuning(contenders), "resamples": self.resamples},
            request=self.request,
            matrices={**{f"losses/{one.name}": one.losses for one in self.scored}, **scores},
        )

    def contender(self, name: str, index: Index) -> Contender:
        """Score all groups with one index."""
        pooling = index.attributor.pooling(self.pool, self.temperature)
        finder = RowFinder(index, [*self.scored, *self.tune])
        if self.tune and pooling.attends:
            pooling = _tuned(finder, self.tune, pooling)
        scores = [finder.score(instance, pooling) for instance in self.scored]
        sizes = [size for instance in self.scored for size in instance.subsets.sizes.tolist()]
        return Contender(name, index, pooling, scores, sizes)

    def facts(self) -> dict[str, Any]:
        """Return facts on all rows; ``hardly_moved`` is a warning that the fine-tunes hardly moved the losses."""
        change = moved(self.instances)
        hardly = {} if change is None or not change.hardly else {"hardly_moved": f"{change.sentence}. {REMEDY}"}
        return facts_of(self.instances) | hardly

    def noise_facts(self) -> dict[str, Any]:
        """Return how far chance between seeds hides the effects; None without seeds that differ."""
        known = [by_seed for by_seed in telling_seeds(self.scored) if by_seed is not None]
        reliability = None if self.ceiling is None else self.ceiling.reliability
        return {"signal_to_noise": signal_to_noise(known) if known else None, "reliability": reliability}

    def _tuning(self, contenders: Sequence[Contender]) -> dict[str, Any]:
        """Return the instances that temperatures were chosen on, if any, and rows whose pools have no temperature."""
        kept = [one.name for one in contenders if self.tune and not one.pooling.attends]
        tuned = [] if len(kept) == len(contenders) else [instance.name for instance in self.tune]
        return {"tuned_on": tuned, **({"not_tuned": kept} if kept else {})}

    def _rows(self, contenders: Sequence[Contender]) -> tuple[Row, ...]:
        pairs, names = [(number, 0) for number in range(1, len(contenders))], [one.name for one in contenders]
        judged = [
            judge(scores, self.sign * instance.losses, pairs, resamples=self.resamples, names=names)
            for instance, *scores in zip(self.scored, *(one.scores for one in contenders), strict=True)
        ]
        shared, rows = shared_queries(self.scored), []
        for number, one in enumerate(contenders):
            alone = [of_instance.alone[number] for of_instance in judged]
            found = lds_over([instance.name for instance in self.scored], alone, shared)
            trained = one.index.attributor.trained_groups
            more = "" if trained is None or one.sizes is None else trained.caution(list(one.sizes), str(one.pooling))
            row = Row(
                name=one.name,
                method=one.index.method,
                value=found.value,
                interval=found.interval,
                per_query=np.concatenate([result.per_query for result in alone]),
                pool=one.pooling.text,
                temperature=one.pooling.temperature if one.pooling.attends else None,
                cost=cost_of(one.index),
                caution=" ".join(filter(None, (one.index.attributor.caution, more))),
                more={"by_instance": dict(found.by_instance), **one.more},
            )
            gaps = [of_instance.pairs[number - 1] for of_instance in judged] if number else []
            rows.append(replace(row, difference=difference_over(gaps, self.resamples, shared)) if gaps else row)
        return tuple(rows)


class LeftOutStudy(LdsStudy):
    """LDS on subsets that leave out little of their pool, such as 1 %, predicted from the left-out examples.

    For a sum this equals the prediction from the kept examples, but for a constant and rounding. A mean, or attention,
    over 99 % of a pool says nothing about single examples. So the prediction is −pool(scores of left-out examples),
    and the pool is ``sum`` unless the user names another.
    """

    own_pool: ClassVar[PoolLike | None] = "sum"
    more_request: ClassVar[Mapping[str, Any]] = {"prediction": "left out"}

    def _check(self) -> None:
        kept = next((one.name for one in self.instances if not leaves_little_out(one)), None)
        if kept is not None:
            raise DataError(
                f"instance {kept} (train/query split): the fine-tunes of the other instances leave out a few training "
                "examples (at most a tenth), but some of its own do not. Evaluate this instance in a separate run."
            )
        if self.tune:
            raise ConfigError(
                "evaluate: these fine-tunes each leave out only a few examples. From their losses, --tune cannot "
                "choose a temperature. Remove --tune, or set a temperature yourself: --pool attention:0.2"
            )
        super()._check()

    @cached_property
    def scored(self) -> Sequence[LabelledInstance]:
        return [_left_out(instance) for instance in self.instances]

    def contender(self, name: str, index: Index) -> Contender:
        found = super().contender(name, index)
        sizes = None if self.asked_pool is None else found.sizes
        return replace(found, scores=[-f for f in found.scores], sizes=sizes)

    def facts(self) -> dict[str, Any]:
        """Return facts on all rows; ``left_out`` is the least and the greatest number of left-out examples."""
        sizes = np.concatenate([one.subsets.sizes for one in self.scored])
        return {**super().facts(), "left_out": [int(sizes.min()), int(sizes.max())], **self.noise_facts()}


def _left_out(instance: LabelledInstance) -> LabelledInstance:
    """Replace an instance's subsets by the examples that they leave out.

    If some seeds lack some losses, each seed's mean over the subsets that all seeds have is subtracted first, since
    seeds differ by more than the effect of few examples.
    """
    everyone, subsets = np.arange(len(instance.train)), instance.subsets
    rows = [np.setdiff1d(everyone, subsets.members(j)) for j in range(len(subsets))]
    found = replace(instance, subsets=Groups.from_lists(dict(zip(subsets.names, rows, strict=True))))
    if instance.by_seed is None or not np.isnan(instance.by_seed).any():
        return found
    by_seed = instance.by_seed.astype(np.float64)
    whole = ~np.isnan(by_seed).any(axis=(0, 1))
    if not whole.any():
        return found
    levels = by_seed[:, :, whole].mean(axis=2, keepdims=True)
    plain = (by_seed - levels + levels.mean(axis=0)).astype(np.float32)
    return replace(found, losses=mean_over_seeds(plain), by_seed=plain)


def lds_study(instances: Sequence[LabelledInstance]) -> type[LdsStudy]:
    """Choose the study of random subsets: by the left-out examples if some subsets leave out little."""
    return LeftOutStudy if any(map(leaves_little_out, instances)) else LdsStudy


def telling_seeds(instances: Sequence[LabelledInstance]) -> list[np.ndarray | None]:
    """Return each instance's losses by seed, ``(s, q, m)``; None if it has one seed, or seeds change nothing."""
    every = [instance.by_seed for instance in instances]
    return [None if by_seed is None or seeds_alike(by_seed) else by_seed for by_seed in every]


def facts_of(instances: Sequence[LabelledInstance]) -> dict[str, Any]:
    """Return facts on all rows; ``subset_size`` is the least and the greatest.

    Only subsets with a loss of some query count; ``losses_missing`` counts the losses that these subsets lack.
    ``queries_in_pool`` counts queries whose texts are in their own train pool: methods that find equal texts have an
    advantage there. ``shared_queries`` comes from :func:`airrep.evaluation.judging.shared_queries`.
    """
    shared = shared_queries(instances)
    known = [np.isfinite(instance.losses) for instance in instances]
    there = np.concatenate([one.any(axis=0) for one in known])
    sizes = np.concatenate([instance.subsets.sizes for instance in instances])[there]
    return {
        "instances": [instance.name for instance in instances],
        "queries": sum(len(instance.queries) for instance in instances),
        "distinct_queries": len({text for instance in instances for text in instance.query_texts}),
        "queries_in_pool": sum(
            int(np.isin(one.queries.content_hashes, one.train.content_hashes).sum()) for one in instances
        ),
        **({} if shared is None else {"shared_queries": shared.tolist()}),
        "subsets": int(there.sum()),
        "subsets_left_out": int((~there).sum()),
        "losses_missing": sum(int((~one[:, one.any(axis=0)]).sum()) for one in known),
        "subset_size": [int(sizes.min()), int(sizes.max())],
        "pool_size": [len(instance.train) for instance in instances],
        "seeds": [1 if instance.by_seed is None else len(instance.by_seed) for instance in instances],
        "seeds_alike": [instance.by_seed is not None and seeds_alike(instance.by_seed) for instance in instances],
    }


SPREAD_QUERIES, SPREAD_ROWS = 50, 1000
"""Queries and examples on which the deviation of scores is measured."""


def _tuned(finder: RowFinder, tune: Sequence[LabelledInstance], pooling: Pooling) -> Pooling:
    asked = [finder.index.ask(Question(instance.queries)) for instance in tune]
    _, some = next(score_blocks(asked[0].chosen(slice(SPREAD_QUERIES)), block_rows=SPREAD_ROWS))
    own = [] if pooling == CHANNELS else [pooling]
    tried = list(dict.fromkeys([*own, *(Pooling.parse(pooling.text, 1 / scale) for scale in scales(some))]))

    def score(one: Pooling) -> Iterator[GroupScores]:
        return (finder.score(instance, one, queries) for instance, queries in zip(tune, asked, strict=True))

    return best_of(tried, score, [instance.losses for instance in tune])
