"""LDS of indexes on labelled instances, side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from airrep.arrays import Features, GroupScores
from airrep.artifacts import digest
from airrep.errors import ConfigError
from airrep.evaluation import Difference, Evaluation, Row
from airrep.held_out import Losses, difference_over, lds_over, scales
from airrep.index import Index
from airrep.labelled import LabelledInstance
from airrep.matching import RowFinder
from airrep.metrics import RESAMPLES, Judged, judge, lds, mean_ceiling
from airrep.pooling import Pooling, PoolLike
from airrep.reuse import identity
from airrep.row_costs import cost_of

SAMPLE = 1000
"""Rows of an index that tell how widely its scores spread."""


@dataclass(frozen=True, eq=False)
class Contender:
    """One index with its group scores, before it is judged."""

    name: str
    index: Index
    pooling: Pooling
    scores: Sequence[GroupScores]
    """Of each instance, ``(q, m)``; higher = more helpful."""
    sizes: Sequence[int] | None
    """Members of the groups; None where groups are not of the kind that an encoder is trained on."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """As :attr:`Row.more`."""


def evaluate_lds(
    indexes: Sequence[Index],
    instances: Sequence[LabelledInstance],
    pool: PoolLike | None = None,
    temperature: float = 1.0,
    *,
    tune: Sequence[LabelledInstance] = (),
    resamples: int = RESAMPLES,
    names: Sequence[str] | None = None,
) -> Evaluation:
    """LDS of each index's group scores on labelled subsets: mean over queries of Spearman(f(x, S_j), −ℓ_j(x)).

    An index may hold any corpus that contains the train pools; their examples are found by content. Queries are
    encoded by the index's method.

    Args:
        indexes: the first is the one that the others are compared with.
        instances: queries, subsets and losses to judge by.
        pool: of all indexes; each method's own when None.
        temperature: of attention.
        tune: other instances; each index whose pool is attention takes the temperature of the highest LDS on these,
            among those that bring the deviation of its scores to 1/8 to 8.
        resamples: bootstrap draws behind each interval.
        names: of the rows; the paths of the indexes if None.

    Raises:
        ConfigError: no index, no instance, both a temperature and instances to tune on, one to judge by among these, or
            a pool that does not fit.
        DataError: an index lacks an example of a train pool, scores that are not finite or all constant, or two rows
            of one name.
    """
    request = lds_request(indexes, instances, pool, temperature, tune=tune, resamples=resamples)
    contenders = []
    for name, index in zip(names or [str(index.path) for index in indexes], indexes, strict=True):
        pooling = index.attributor.pooling(pool, temperature)
        finder = RowFinder(index, [*instances, *tune])
        if tune and pooling.kind == "attention":
            pooling = _best_temperature(finder, tune, pooling)
        scores = [finder.score(instance, pooling) for instance in instances]
        sizes = [size for instance in instances for size in instance.subsets.sizes.tolist()]
        contenders.append(Contender(name, index, pooling, scores, sizes))
    losses = {f"losses/{instance.name}": instance.losses for instance in instances}
    return Evaluation(
        "lds",
        judge_rows(contenders, instances, resamples),
        query_keys(instances),
        subject_of("lds", instances),
        mean_ceiling(instance.by_seed for instance in instances),
        {**facts_of(instances), "tuned_on": [instance.name for instance in tune], "resamples": resamples},
        request=request,
        matrices={**losses, **score_matrices(contenders, instances)},
    )


def lds_request(
    indexes: Sequence[Index],
    instances: Sequence[LabelledInstance],
    pool: PoolLike | None = None,
    temperature: float = 1.0,
    *,
    tune: Sequence[LabelledInstance] = (),
    resamples: int = RESAMPLES,
) -> dict[str, Any]:
    """What decides :func:`evaluate_lds`, as JSON values; arguments and errors as there, but nothing is scored."""
    if not indexes or not instances:
        raise ConfigError("evaluate: expected at least one index and one labelled instance. Name some.")
    if resamples < 1:
        raise ConfigError(f"resamples={resamples}: expected 1 or more. Correct the value.")
    _check_tuning(temperature, instances, tune)
    return {
        "measure": "lds",
        **{f"index {number}": index.fingerprint for number, index in enumerate(indexes, start=1)},
        **{f"instance {number}": identity(instance) for number, instance in enumerate(instances, start=1)},
        **{f"tuning instance {number}": identity(instance) for number, instance in enumerate(tune, start=1)},
        "pool": None if pool is None else str(Pooling.parse(pool)),
        "temperature": temperature,
        "resamples": resamples,
    }


def _check_tuning(temperature: float, instances: Sequence[LabelledInstance], tune: Sequence[LabelledInstance]) -> None:
    if temperature != 1 and tune:
        raise ConfigError("evaluate: expected a temperature or instances to tune it on, not both. Choose one.")
    judged = {instance.name for instance in instances}
    both = next((instance.name for instance in tune if instance.name in judged), None)
    if both is not None:
        raise ConfigError(f"instance {both}: is to be judged by, so it cannot be tuned on. Tune on another one.")


def subject_of(measure: Literal["lds", "loo"], instances: Sequence[LabelledInstance]) -> str:
    """Digest of the texts, subsets and losses that rows are judged on."""
    return digest({"measure": measure, "instances": [identity(instance) for instance in instances]})


def query_keys(instances: Sequence[LabelledInstance]) -> tuple[tuple[str, str], ...]:
    """Instance and id of each query, instance after instance."""
    return tuple((instance.name, str(id_)) for instance in instances for id_ in instance.queries.ids.to_pylist())


def facts_of(instances: Sequence[LabelledInstance]) -> dict[str, Any]:
    """What holds for all rows; ``subset_size`` is the least and the greatest."""
    sizes = np.concatenate([instance.subsets.sizes for instance in instances])
    return {
        "instances": [instance.name for instance in instances],
        "queries": sum(len(instance.queries) for instance in instances),
        "subsets": sum(len(instance.subsets) for instance in instances),
        "subset_size": [int(sizes.min()), int(sizes.max())],
        "pool_size": [len(instance.train) for instance in instances],
        "seeds": [1 if instance.by_seed is None else len(instance.by_seed) for instance in instances],
    }


def score_matrices(contenders: Sequence[Contender], instances: Sequence[Losses]) -> dict[str, np.ndarray]:
    """Group scores of each row and instance, by the names that they have in an evaluation."""
    return {
        f"{number}/{instance.name}": scores
        for number, contender in enumerate(contenders)
        for scores, instance in zip(contender.scores, instances, strict=True)
    }


def judge_rows(contenders: Sequence[Contender], instances: Sequence[Losses], resamples: int) -> tuple[Row, ...]:
    """Values, intervals and paired differences to the first row."""
    pairs = [(number, 0) for number in range(1, len(contenders))]
    judged = [
        judge(
            [contender.scores[place] for contender in contenders],
            instance.losses,
            pairs,
            resamples=resamples,
            names=[contender.name for contender in contenders],
        )
        for place, instance in enumerate(instances)
    ]
    names = [instance.name for instance in instances]
    return tuple(_row(number, contender, judged, names, resamples) for number, contender in enumerate(contenders))


def _row(number: int, contender: Contender, judged: Sequence[Judged], names: Sequence[str], resamples: int) -> Row:
    """One row, over all instances."""
    pooling, attributor = contender.pooling, contender.index.attributor
    found = lds_over(names, [one.alone[number] for one in judged])
    gap = difference_over([one.pairs[number - 1] for one in judged], resamples) if number else None
    trained, sizes = attributor.trained_groups, contender.sizes
    more = "" if trained is None or sizes is None else trained.caution(list(sizes), str(pooling))
    return Row(
        name=contender.name,
        method=contender.index.method,
        value=found.value,
        interval=found.interval,
        per_query=np.concatenate([one.alone[number].per_query for one in judged]),
        pool=pooling.text,
        temperature=pooling.temperature if pooling.kind == "attention" else None,
        difference=None if gap is None else Difference(gap.value, gap.interval, gap.p_value),
        cost=cost_of(contender.index),
        caution=" ".join(filter(None, (attributor.caution, more))),
        more={"by_instance": dict(found.by_instance), **contender.more},
    )


def _best_temperature(finder: RowFinder, tune: Sequence[LabelledInstance], pooling: Pooling) -> Pooling:
    """The pool with the temperature of the highest LDS; the first of equals."""
    asked = [finder.index.encode_queries(instance.queries) for instance in tune]
    tried = [Pooling.parse(pooling.text, 1 / factor) for factor in scales(_sample(finder.index), asked[0])]

    def value(one: Pooling) -> float:
        found = (finder.score(instance, one, queries) for instance, queries in zip(tune, asked, strict=True))
        values = [lds(f, instance.losses, resamples=0).value for f, instance in zip(found, tune, strict=True)]
        return float(np.mean(values))

    return max(tried, key=value)


def _sample(index: Index) -> Features:
    """Features of the first rows, float32."""
    features: Features = index.blocks[0].features[:SAMPLE].astype(np.float32)
    return features
