"""Learn a stack: weights for several methods' scores, from labels."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from airrep.arrays import GroupScores
from airrep.attributors.base import Attributor
from airrep.attributors.stack import KIND, Member
from airrep.errors import ConfigError, DataError
from airrep.evaluation.judging import best_of, compare_held_out, held_out_lds, scales, score_features
from airrep.evaluation.statistics.metrics import RESAMPLES
from airrep.labels.instance import LabelledInstance, identity
from airrep.runtime.artifacts import new_artifact
from airrep.runtime.stage import Stage
from airrep.scoring.pooling import ATTENTIONS
from airrep.training.linear.weights import MemberChoice, MemberFeatures, encode_members, weigh

POOLS = ("auto", "sum", *ATTENTIONS)
"""Pools of a stack; auto takes the one that best ranks the labels it learns from."""


@dataclass(frozen=True)
class Stack:
    """A learnt stack."""

    path: Path
    members: tuple[Member, ...]
    report: Mapping[str, Any]
    """``rows``: the stack first, then its members, each with its LDS on the held-out instances; ``better``: whether it
    beats the best of them; ``sentence`` says so."""


@dataclass(frozen=True)
class _GroupScoring:
    """A way of scoring groups, by one member or by several: a row of the report."""

    name: str
    factors: tuple[float, ...]
    """Factor on each member's scores."""
    pool: str = "sum"
    scale: float = 1.0
    """Factor on scores before attention."""

    @property
    def title(self) -> str:
        """Name, pool and scale, for the report."""
        times = f" × {self.scale:.3g}" if self.scale != 1 else ""
        return f"{self.name}, {self.pool}{times}"

    def features(self, encoded: MemberFeatures) -> tuple[np.ndarray, np.ndarray]:
        """Features with its scores as inner products: an example's are its scores, a query's a unit vector.

        Side by side, the members' own would have to be sparse where one of them is, and all would be multiplied again
        for every pool and scale that is tried.
        """
        parts = (np.float32(factor) * encoded.scores[k] for k, factor in enumerate(self.factors) if factor > 0)
        scores = reduce(np.add, parts)
        return np.ascontiguousarray(scores.T), np.eye(len(scores), dtype=np.float32)

    def scores(self, encoded: MemberFeatures) -> GroupScores:
        """Group scores of an instance's subsets."""
        temperature = 1 / self.scale if self.pool in ATTENTIONS else 1.0
        return score_features(*self.features(encoded), encoded.groups, self.pool, temperature)


def learn_stack(
    choices: Sequence[MemberChoice],
    learn: Sequence[LabelledInstance],
    held_out: Sequence[LabelledInstance],
    out: str | Path,
    *,
    pool: str = "auto",
    lineage: Mapping[str, Any] | None = None,
    resamples: int = RESAMPLES,
    replace: bool = False,
) -> Stack:
    """Learn the weights of several methods from labels, and judge the stack on others.

    Each member's scores are divided by their deviation over the training examples of a query; the mean of a query
    moves all groups of one size alike, so it is left in. Weights are the non-negative least-squares fit of
    standardised labels (Eq. 7) by the sums of these scores over the subsets, both less their mean over a query's
    subsets. The pool, and the scale of scores before attention, are then those with the highest LDS on the same
    labels; members by themselves are given theirs in the same way, and are also tried as they are.

    Args:
        choices: the methods.
        learn: instances to learn from; each member's features, and its scores of all examples for all queries, are held
            in memory.
        held_out: instances to judge by, with other queries.
        out: the directory to make.
        pool: the stack's, one of :data:`POOLS`.
        lineage: what the labels were made from, for the manifest.
        resamples: bootstrap draws behind each interval.
        replace: replace a stack that is there.

    Raises:
        ConfigError: no member, no instance to learn from or judge by, or a setting that cannot hold.
        DataError: a held-out query was learnt from, a member scores all examples alike, or none helps.
        ArtifactError: something else is there, or it cannot be written.
    """
    _check(choices, learn, held_out, pool)
    path, made = Path(out), [choice.make() for choice in choices]
    request = {**_request(made, learn, held_out), "pool": pool, "resamples": resamples}
    finished = Stage(path, KIND, "a stack made", request, replace).finished(verify=True)
    if finished is not None:
        return Stack(path, tuple(Member(**member) for member in finished["members"]), finished["report"])
    encoded = [encode_members(made, instance) for instance in learn]
    members = weigh([Member(one["method"], one["settings"]) for one in request["members"]], encoded)
    stack = _tuned(_GroupScoring("stack", tuple(member.weight / member.deviation for member in members)), pool, encoded)
    alone = [form for number in range(len(members)) for form in _alone(made, number, encoded)]
    report = _judge(stack, alone, [encode_members(made, instance) for instance in held_out], resamples)
    learnt = {"members": [dataclasses.asdict(member) for member in members], "report": report}
    shown = {
        "members": ", ".join(f"{member.method} {member.weight:.2f}" for member in members),
        "verdict": report["sentence"],
    }
    form = {"pool": stack.pool, "multiple": stack.scale}
    content = {**learnt, **form, "lineage": dict(lineage or {}), "provenance": {**form, **shown}}
    with new_artifact(path, KIND, {**content, "request": request}, replace=replace):
        pass  # the manifest is the whole artifact
    return Stack(path, members, report)


def _request(
    made: Sequence[Attributor], learn: Sequence[LabelledInstance], held_out: Sequence[LabelledInstance]
) -> dict[str, Any]:
    """Request of a stack, without pool and resamples."""
    return {
        "members": [{"method": one.name, "settings": one.settings.model_dump(mode="json")} for one in made],
        "learn": [identity(instance) for instance in learn],
        "held_out": [identity(instance) for instance in held_out],
    }


def _check(
    choices: Sequence[MemberChoice],
    learn: Sequence[LabelledInstance],
    held_out: Sequence[LabelledInstance],
    pool: str,
) -> None:
    for name, given in (("member", choices), ("instance to learn from", learn), ("held-out instance", held_out)):
        if not given:
            raise ConfigError(f"stack: has no {name}; expected one or more. Name some.")
    if pool not in POOLS:
        expected = ", ".join(POOLS)
        raise ConfigError(f"--pool {pool}: is not for stacks; expected one of: {expected}. Choose one of them.")
    known = {query.content_hash for instance in learn for query in instance.queries}
    for instance in held_out:
        for query in instance.queries:
            if query.content_hash in known:
                raise DataError(
                    f"instance {instance.name}: its query '{query.id}' was learnt from; expected unseen ones. "
                    "Hold out an instance with other queries."
                )


def _tuned(form: _GroupScoring, pool: str, encoded: Sequence[MemberFeatures]) -> _GroupScoring:
    """The form with the pool and scale of the highest LDS on these instances."""
    tried = scales(*form.features(encoded[0]))
    forms = [
        dataclasses.replace(form, pool=one, scale=scale)
        for one in (POOLS[1:] if pool == "auto" else (pool,))
        for scale in (tried if one in ATTENTIONS else [form.scale])
    ]
    losses = [one.instance.losses for one in encoded]
    return best_of(forms, lambda form: (form.scores(one) for one in encoded), losses)


def _alone(made: Sequence[Attributor], number: int, encoded: Sequence[MemberFeatures]) -> list[_GroupScoring]:
    """One member by itself: tuned as the stack is, and with its own pool, scores as they are."""
    name, names = made[number].name, [one.name for one in made]
    title = f"{name} ({number + 1})" if names.count(name) > 1 else name
    plain = _GroupScoring(title, tuple(float(other == number) for other in range(len(made))))
    tuned = _tuned(plain, "auto", encoded)
    as_it_is = dataclasses.replace(plain, pool=made[number].own_pool)
    return [tuned] if tuned == as_it_is else [tuned, as_it_is]


def _judge(
    stack: _GroupScoring, alone: Sequence[_GroupScoring], encoded: Sequence[MemberFeatures], resamples: int
) -> dict[str, Any]:
    """Report: the stack against each of its members, by LDS on held-out instances."""
    instances = [one.instance for one in encoded]
    ours = [stack.scores(one) for one in encoded]
    found = held_out_lds(ours, instances, resamples)
    rows: list[dict[str, Any]] = [{"name": stack.title, "lds": found.to_dict(), "stack_minus_it": None}]
    for form in alone:
        theirs = [form.scores(one) for one in encoded]
        gap = compare_held_out(ours, theirs, instances, resamples).to_dict()
        alone_lds = held_out_lds(theirs, instances, resamples).to_dict()
        rows.append({"name": form.title, "lds": alone_lds, "stack_minus_it": gap})
    best = max(rows[1:], key=lambda row: float(row["lds"]["lds"]))
    # Above chance as well: the better of two methods that see nothing is no success.
    better = min(found.interval.low, best["stack_minus_it"]["interval"][0]) > 0
    names = {"learnt_pool": stack.pool, "held_out": [instance.name for instance in instances]}
    return {"rows": rows, "best": best["name"], "better": better, "sentence": _sentence(best, better), **names}


def _sentence(best: Mapping[str, Any], better: bool) -> str:
    gap = best["stack_minus_it"]
    value, low, high = (f"{100 * number:+.1f}" for number in (gap["difference"], *gap["interval"]))
    measured = f"LDS × 100 {value} against {best['name']}, 95 % interval {low} to {high}"
    if better:
        return f"The stack beats its best member: {measured}."
    return f"The stack is not shown to beat its best member: {measured}."
