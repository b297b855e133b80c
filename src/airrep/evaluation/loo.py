"""Leave-one-out: how well scores predict the effects of removing examples."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from airrep.arrays import GroupScores
from airrep.errors import DataError
from airrep.evaluation.given import IndexesLike, InstancesLike, labelled_instances, named_indexes
from airrep.evaluation.lds import Contender, LdsStudy, RowFinder, facts_of
from airrep.evaluation.result import Evaluation
from airrep.evaluation.statistics.labels import pearson
from airrep.evaluation.statistics.metrics import RESAMPLES
from airrep.index.index import Index
from airrep.labels.labels import LabelledInstance, mean_over_seeds
from airrep.scoring.group_scores import by_channel
from airrep.scoring.groups import Groups
from airrep.scoring.pooling import Pooling, PoolLike


def removals_of(instance: LabelledInstance) -> LabelledInstance:
    """The instance with the removed examples, K sets, in place of its subsets, and effects in place of its losses.

    Effects are ``(q, K)`` nats: the mean over seeds of e_sj = L_sj − L_s0, the loss without the examples less that with
    all, over the seeds that have both; above 0 = they had helped; NaN where no seed has both. Those of each seed are
    there too. DataError: subset 0 is not the whole pool, the others leave nothing out, or there are less than two.
    """
    n = len(instance.train)
    left_out = [np.setdiff1d(np.arange(n), instance.subsets.members(j)) for j in range(len(instance.subsets))]
    whole, *others = [len(rows) == 0 for rows in left_out]
    if not whole or any(others) or len(others) < 2:
        raise DataError(
            f"instance {instance.name}: is not made of removals: the first subset must be the whole train pool, and at "
            "least two others must leave examples out. Use labels of `airrep sample --removals K`."
        )
    sets = Groups.from_lists({instance.subsets.names[j]: rows for j, rows in enumerate(left_out) if j})
    losses = instance.losses if instance.by_seed is None else instance.by_seed
    effects = losses[..., 1:].astype(np.float64) - losses[..., :1]
    if instance.by_seed is None:
        return replace(instance, subsets=sets, losses=effects.astype(np.float32))
    return replace(instance, subsets=sets, losses=mean_over_seeds(effects), by_seed=effects.astype(np.float32))


def evaluate_loo(
    indexes: IndexesLike,
    instances: InstancesLike,
    pool: PoolLike | None = None,
    temperature: float = 1.0,
    *,
    what_if: bool = False,
    resamples: int = RESAMPLES,
    names: Sequence[str] | str | None = None,
) -> Evaluation:
    """Measure leave-one-out: the mean over queries of Spearman(f(x, R_j), e_j(x)) over the removed sets R_j.

    The effect e_j(x) is the query's loss after removal j less that with all examples, in nats: of each seed, then the
    mean over the seeds that have both. The prediction f is the sum of the influence scores of the removed examples: to
    first order, effects of removals add up. With *what_if* the prediction is what :meth:`airrep.Index.what_if` says of
    the whole pool, f(x, S) − f(x, S∖R_j); the shares of effects whose sign it has, and of queries whose largest effect
    it says is that, are in each row's ``more``. Pearson's correlation is there too; the labels' signal-to-noise ratio
    (:func:`airrep.evaluation.statistics.labels.signal_to_noise`) and reliability are in the facts, unless seeds change
    nothing. The matrices ``losses/INSTANCE`` hold the effects. Other arguments and errors are as of
    :func:`airrep.evaluation.lds.evaluate_lds`.

    Args:
        instances: with the whole pool as subset 0, and removals; or one instance alone.
        pool: turns the scores of the removed examples into one; ``sum`` when None. With *what_if*, turns those of the
            whole pool into one; the method's own when None.
        what_if: predict by the change of the whole pool's group score.

    Example:
        >>> from airrep.evaluation.loo import evaluate_loo
        >>> found = evaluate_loo([index], removals, names=["tfidf"])
        >>> found.measure, [row.name for row in found.rows]
        ('loo', ['tfidf'])
    """
    opened, judged = named_indexes(indexes, "evaluate", names), labelled_instances(instances, "evaluate")
    study = WhatIfStudy if what_if else LooStudy
    return study(opened, judged, pool, temperature, resamples=resamples).run()


class LooStudy(LdsStudy):
    """An evaluation by leave-one-out, checked."""

    measure = "loo"
    own_pool: ClassVar[PoolLike | None] = "sum"
    sign = -1  # losses are effects, which scores rank as they are

    @cached_property
    def scored(self) -> Sequence[LabelledInstance]:
        return [removals_of(instance) for instance in self.instances]

    def contender(self, name: str, index: Index) -> Contender:
        found = self._scores(name, index)
        return replace(found, more={"pearson": _mean_pearson(found.scores, self.scored)})

    def _scores(self, name: str, index: Index) -> Contender:
        found = super().contender(name, index)
        return replace(found, sizes=None) if self.asked_pool is None else found

    def facts(self) -> dict[str, Any]:
        """Facts on all rows; ``removal_size`` is the least and the greatest, ``removed`` what each whole source was."""
        facts = facts_of(self.scored)
        renamed = {"subsets": "removals", "subsets_left_out": "removals_left_out", "subset_size": "removal_size"}
        named = {name: facts.pop(old) for old, name in renamed.items()}
        # Removals of whole sources or labels have their names, others numbers.
        numbers = any(name.isdecimal() for one in self.scored for name in one.subsets.names)
        wholes = {} if numbers else {"removed": [_removed(one) for one in self.scored]}
        return {**facts, **named, **self.noise_facts(), **wholes}


class WhatIfStudy(LooStudy):
    """Leave-one-out study that predicts effects by what-if of the whole pool."""

    own_pool = None
    more_request: ClassVar[Mapping[str, Any]] = {"prediction": "what-if"}

    def contender(self, name: str, index: Index) -> Contender:
        found = super().contender(name, index)
        pairs = [(f, one.losses) for f, one in zip(found.scores, self.scored, strict=True)]
        return replace(found, more={**found.more, "same_sign": _same_sign(pairs), "largest": _largest(pairs)})

    def _scores(self, name: str, index: Index) -> Contender:
        pooling = index.attributor.pooling(self.pool, self.temperature)
        if pooling.kind == "order":  # it scores removals as they are
            return super()._scores(name, index)
        finder = RowFinder(index, self.instances)
        return Contender(name, index, pooling, [_changes(finder, one, pooling) for one in self.instances], None)

    def facts(self) -> dict[str, Any]:
        """Facts on all rows; ``helped`` is the share of effects above 0."""
        effects = np.concatenate([one.losses.ravel() for one in self.scored])
        helped = float((effects[~np.isnan(effects)] > 0).mean())
        return {**super().facts(), **self.more_request, "helped": helped}


def _removed(one: LabelledInstance) -> list[dict[str, Any]]:
    """Each removed set: its name, its examples, the mean of its effects on queries, in nats, and the share above 0."""
    found, columns = [], one.losses.T.astype(np.float64)
    for name, size, effects in zip(one.subsets.names, one.subsets.sizes, columns, strict=True):
        known = effects[~np.isnan(effects)]
        mean, helped = (float(known.mean()), float((known > 0).mean())) if len(known) else (None, None)
        found.append({"name": name, "examples": int(size), "effect": mean, "helped": helped})
    return found


def _changes(finder: RowFinder, instance: LabelledInstance, pooling: Pooling) -> GroupScores:
    """f(x, S) − f(x, S∖R_j) of all removals, ``(q, K)`` float32."""
    index = finder.index
    parts = by_channel(index.ask(instance.queries), finder.subsets(instance), pooling, index.method, exact=True)
    whole = np.sum(list(parts.values()), axis=0)
    changes: GroupScores = (whole[:, :1] - whole[:, 1:]).astype(np.float32)
    return changes


def _same_sign(pairs: Sequence[tuple[GroupScores, np.ndarray]]) -> float | None:
    """Share of effects whose sign the prediction has; pairs of predictions and effects, ``(q, K)``."""
    return _share([((f > 0) == (effects > 0))[~np.isnan(effects)] for f, effects in pairs])


def _largest(pairs: Sequence[tuple[GroupScores, np.ndarray]]) -> float | None:
    """Share of queries whose largest effect is predicted to be it.

    Removals without any loss do not count, nor queries that lack one of the others.
    """
    found = []
    for f, effects in pairs:
        there = ~np.isnan(effects).all(axis=0)
        whole = ~np.isnan(effects[:, there]).any(axis=1)
        predicted, known = (part[whole][:, there] for part in (f, effects))
        found.append(predicted.argmax(axis=1) == known.argmax(axis=1) if there.any() else np.empty(0, bool))
    return _share(found)


def _share(found: Sequence[np.ndarray]) -> float | None:
    """Share of what holds, None where nothing is known."""
    known = np.concatenate(found)
    return float(known.mean()) if len(known) else None


def _mean_pearson(scores: Sequence[GroupScores], removals: Sequence[LabelledInstance]) -> float | None:
    """Mean over instances of the mean over queries of Pearson's correlation; None where none varies."""
    found = (pearson(f, one.losses, ~np.isnan(one.losses)) for f, one in zip(scores, removals, strict=True))
    means = [known.mean() for each in found if len(known := each[~np.isnan(each)])]
    return float(np.mean(means)) if means else None
