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
from airrep.index.contrast import Question
from airrep.index.index import Index
from airrep.labels.labels import LabelledInstance, mean_over_seeds
from airrep.scoring.group_scores import by_channel
from airrep.scoring.groups import Groups
from airrep.scoring.pooling import Pooling, PoolLike


def removals_of(instance: LabelledInstance) -> LabelledInstance:
    """Replace an instance's subsets by the K sets of removed examples, and its losses by the effects of removals.

    Effects are ``(q, K)`` nats: e_sj = L_sj − L_s0, the loss without the examples minus the loss with all, mean over
    the seeds that have both; above 0 = the examples helped; NaN where no seed has both. ``by_seed`` has the effects of
    each seed that has any. DataError: subset 0 is not the whole pool, another leaves nothing out, or fewer than two
    others.
    """
    n = len(instance.train)
    left_out = [np.setdiff1d(np.arange(n), instance.subsets.members(j)) for j in range(len(instance.subsets))]
    whole, *others = [len(rows) == 0 for rows in left_out]
    if not whole or any(others) or len(others) < 2:
        raise DataError(
            f"instance {instance.name} (train/query split): its first fine-tune must use all training examples, and "
            "at least two more must each leave some out. Use labels (measured losses) made from `airrep sample "
            "--removals K`."
        )
    sets = Groups.from_lists({instance.subsets.names[j]: rows for j, rows in enumerate(left_out) if j})
    effects = _effects(instance)
    known = np.delete(effects, _unknown_seeds(effects), axis=0).astype(np.float32)
    by_seed = known if len(known) > 1 else None
    return replace(instance, subsets=sets, losses=mean_over_seeds(effects), by_seed=by_seed)


def _effects(instance: LabelledInstance) -> np.ndarray:
    """Return the effects of removals for each seed, ``(s, q, K)`` float64."""
    losses = (instance.losses[None] if instance.by_seed is None else instance.by_seed).astype(np.float64)
    return losses[..., 1:] - losses[..., :1]


def _unknown_seeds(effects: np.ndarray) -> np.ndarray:
    return np.flatnonzero(np.isnan(effects).all(axis=(1, 2)))


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

    The effect e_j(x) is the query's loss after removal j minus its loss with all examples, in nats, mean over the seeds
    that have both. The prediction f is the sum of the influence scores of the removed examples: to first order, effects
    of removals add up. With *what_if* the prediction is that of :meth:`airrep.Index.what_if` for the whole pool,
    f(x, S) − f(x, S∖R_j). Each row's ``more`` then has the share of effects with the predicted sign, and of queries
    whose largest effect is predicted to be the largest. ``more`` always has Pearson's correlation. The facts have the
    labels' reliability and signal-to-noise ratio (:func:`airrep.evaluation.statistics.labels.signal_to_noise`), unless
    seeds change nothing. The matrices ``losses/INSTANCE`` hold the effects. Other arguments and errors are as for
    :func:`airrep.evaluation.lds.evaluate_lds`.

    Args:
        instances: instances with the whole pool as subset 0, then removals; or one instance alone.
        pool: turns the scores of the removed examples into one; ``sum`` if None. With *what_if*, it turns the scores of
            the whole pool into one, and None takes the method's own.
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
    """An evaluation by leave-one-out, with checked arguments."""

    measure = "loo"
    own_pool: ClassVar[PoolLike | None] = "sum"
    sign = -1  # losses are effects here: higher scores go with higher effects

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
        """Return facts on all rows: ``removal_size`` is least and greatest, ``removed`` describes sources or labels."""
        facts = facts_of(self.scored)
        renamed = {"subsets": "removals", "subsets_left_out": "removals_left_out", "subset_size": "removal_size"}
        named = {name: facts.pop(old) for old, name in renamed.items()}
        # Removals of whole sources or labels have their names, others numbers.
        numbers = any(name.isdecimal() for one in self.scored for name in one.subsets.names)
        wholes = {} if numbers else {"removed": [_removed(one) for one in self.scored]}
        seeds = {"seeds_left_out": [_unknown_seeds(_effects(one)).tolist() for one in self.instances]}
        return {**facts, **named, **seeds, **self.noise_facts(), **wholes}


class WhatIfStudy(LooStudy):
    """Leave-one-out study that predicts effects by the change of the whole pool's group score."""

    own_pool = None
    more_request: ClassVar[Mapping[str, Any]] = {"prediction": "what-if"}

    def contender(self, name: str, index: Index) -> Contender:
        found = super().contender(name, index)
        pairs = [(f, one.losses) for f, one in zip(found.scores, self.scored, strict=True)]
        same_sign = _share([((f > 0) == (effects > 0))[~np.isnan(effects)] for f, effects in pairs])
        return replace(found, more={**found.more, "same_sign": same_sign, "largest": _largest(pairs)})

    def _scores(self, name: str, index: Index) -> Contender:
        pooling = index.attributor.pooling(self.pool, self.temperature)
        if pooling.kind == "order":  # the pool "order" scores removals directly
            return super()._scores(name, index)
        finder = RowFinder(index, self.instances)
        return Contender(name, index, pooling, [_changes(finder, one, pooling) for one in self.instances], None)

    def facts(self) -> dict[str, Any]:
        """Return facts on all rows; ``helped`` is the share of effects above 0."""
        effects = np.concatenate([one.losses.ravel() for one in self.scored])
        helped = float((effects[~np.isnan(effects)] > 0).mean())
        return {**super().facts(), **self.more_request, "helped": helped}


def _removed(one: LabelledInstance) -> list[dict[str, Any]]:
    """Describe each removed set: name, number of examples, mean effect on queries in nats, share of effects above 0."""
    found, columns = [], one.losses.T.astype(np.float64)
    for name, size, effects in zip(one.subsets.names, one.subsets.sizes, columns, strict=True):
        known = effects[~np.isnan(effects)]
        mean, helped = (float(known.mean()), float((known > 0).mean())) if len(known) else (None, None)
        found.append({"name": name, "examples": int(size), "effect": mean, "helped": helped})
    return found


def _changes(finder: RowFinder, instance: LabelledInstance, pooling: Pooling) -> GroupScores:
    """Compute f(x, S) − f(x, S∖R_j) for all removals, ``(q, K)`` float32."""
    index = finder.index
    parts = by_channel(
        index.ask(Question(instance.queries)), finder.subsets(instance), pooling, index.method, exact=True
    )
    whole = np.sum(list(parts.values()), axis=0)
    return (whole[:, :1] - whole[:, 1:]).astype(np.float32)


def _largest(pairs: Sequence[tuple[GroupScores, np.ndarray]]) -> float | None:
    """Return the share of queries whose largest effect is predicted to be the largest.

    *pairs* are predictions and effects, ``(q, K)``.
    Removals without any loss do not count, nor queries that lack a loss of another removal.
    """
    found = []
    for f, effects in pairs:
        there = ~np.isnan(effects).all(axis=0)
        whole = ~np.isnan(effects[:, there]).any(axis=1)
        predicted, known = (part[whole][:, there] for part in (f, effects))
        found.append(predicted.argmax(axis=1) == known.argmax(axis=1) if there.any() else np.empty(0, bool))
    return _share(found)


def _share(found: Sequence[np.ndarray]) -> float | None:
    """Return the share of True values; None if there are no values."""
    known = np.concatenate(found)
    return float(known.mean()) if len(known) else None


def _mean_pearson(scores: Sequence[GroupScores], removals: Sequence[LabelledInstance]) -> float | None:
    """Average Pearson's correlation over queries, then over instances; None if nothing varies."""
    found = (pearson(f, one.losses, ~np.isnan(one.losses)) for f, one in zip(scores, removals, strict=True))
    means = [known.mean() for each in found if len(known := each[~np.isnan(each)])]
    return float(np.mean(means)) if means else None
