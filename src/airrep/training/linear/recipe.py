"""Learn a recipe from labels: pools, temperatures and weights of channels."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from airrep.arrays import GroupScores
from airrep.attributors.base import Attributor
from airrep.attributors.methods import channels_before_training, make_attributor
from airrep.attributors.recipes import LEARNT, RECIPE, Channel, placed, unplaced
from airrep.attributors.sums.channels import channel_pooling
from airrep.attributors.sums.relative import relative_weights
from airrep.errors import AirRepError, ConfigError, DataError
from airrep.evaluation.judging import SPREADS, best_of, compare_held_out, held_out_lds, score_instance
from airrep.evaluation.statistics.bootstrap import varies
from airrep.evaluation.statistics.labels import REMEDY, Moved, moved, normalise_losses
from airrep.evaluation.statistics.metrics import RESAMPLES
from airrep.index.results.result import Shown
from airrep.labels.labels import LabelledInstance, identity
from airrep.runtime.artifacts import new_artifact, real_path
from airrep.runtime.stage import Stage
from airrep.scoring.pooling import ATTENTIONS, Pooling
from airrep.training.linear.weights import LEAST, MemberFeatures, NothingRisesError, fit_weights

CHOOSING = 400
"""Bootstrap draws that decide if another pool is better than a channel's own."""


@dataclass(frozen=True, repr=False)
class Adapted(Shown):
    """A recipe that was learnt from labels."""

    path: Path
    channels: tuple[Channel, ...]
    """Channels with a weight above 0, which `airrep index --recipe PATH` uses."""
    report: Mapping[str, Any]
    """``rows``: the sum, each member, each rival, and the sum without each channel, with their LDS on the held-out
    instances and the sum's LDS minus it; ``better``: True if the sum is above chance and beats all members and rivals,
    and the fine-tunes moved the losses enough; ``moved``: how far they did, if known; ``sentence``: the verdict."""

    def _records(self) -> Iterator[dict[str, Any]]:
        for row in self.report["rows"]:
            low, high = row["lds"]["interval"]
            gap = row["sum_minus_it"] and row["sum_minus_it"]["difference"]
            yield {"name": row["name"], "lds": row["lds"]["lds"], "low": low, "high": high, "sum minus it": gap}

    def summary(self) -> str:
        return str(self.report["sentence"])

    def to_dict(self) -> dict[str, Any]:
        return {"channels": [one.model_dump(mode="json") for one in self.channels], **self.report}


class _Judged(NamedTuple):
    """Group scores that make one row of the report."""

    title: str
    scores: Sequence[GroupScores]
    """Group scores of each held-out instance."""
    part: bool = False
    """True if this is a part of the sum, which the sum need not beat."""


class _Part(NamedTuple):
    """Group scores of one channel on one instance: of the subsets, ``(q, m)``, and of random groups."""

    scores: GroupScores
    reference: np.ndarray


class _Member:
    """A method as a channel, with its group scores on all instances; its features are not kept."""

    def __init__(self, channel: Channel, learn: Sequence[LabelledInstance], held_out: Sequence[LabelledInstance]):
        self.title, method = channel.title, make_attributor(channel.method, channel.settings)
        own, features = channel_pooling(channel, method), [MemberFeatures.of(method, one) for one in learn]
        self.tells = _tell([one.pooled(own) for one in features])
        self.pooling = _chosen(own, features) if self.tells else own
        self.learn = [_Part(one.pooled(self.pooling), one.reference_scores(self.pooling)) for one in features]
        features = [MemberFeatures.of(method, one) for one in held_out]
        self.held_out = [_Part(one.pooled(self.pooling), one.reference_scores(self.pooling)) for one in features]
        alike = method.own_pool == self.pooling.text and method.pooling(None, self.pooling.temperature) == self.pooling
        told = {"pool": None if alike else self.pooling.text, "temperature": self.pooling.temperature}
        self.channel = channel.model_copy(update=told)
        self.alone = [_Judged(f"{self.title}, {self.pooling}", [one.scores for one in self.held_out])]
        """The channel alone, with its chosen pool and, if that differs, with its original pool."""
        if own != self.pooling:
            self.alone.append(_Judged(f"{self.title}, {own}", [one.pooled(own) for one in features]))

    def absolute(self) -> "_Member":
        """Copy the member, with its scores, as a channel that is not relative."""
        other = copy(self)
        other.channel = self.channel.model_copy(update={"relative": False})
        return other


def adapt(
    members: Sequence[Channel],
    learn: Sequence[LabelledInstance],
    held_out: Sequence[LabelledInstance],
    out: str | Path,
    *,
    rivals: Mapping[str, Attributor] | None = None,
    lineage: Mapping[str, Any] | None = None,
    resamples: int = RESAMPLES,
    replace: bool = False,
    tell: Callable[[str], None] | None = None,
    tuned: str = "",
) -> Adapted:
    """Learn pools, temperatures and weights of channels from labels, and judge their sum on held-out instances.

    Members that score all subsets alike are left out. A channel keeps the pool it has unless another ranks the labels
    better, with an interval of the paired difference above 0. Weights of 0 or more minimise the ranking loss
    (Eq. 8); sixteen subsets are enough to begin with. A channel of weight 0 is left out.

    Args:
        members: the channels; their weights are not read.
        learn: instances to learn from.
        held_out: instances to judge by, with other queries.
        out: the directory to make.
        rivals: methods that the sum is compared with beside its members, by name.
        lineage: origin of the labels, for the manifest.
        resamples: bootstrap draws behind each interval.
        replace: replace an existing recipe.
        tell: callback that receives a line before each channel is scored.
        tuned: settings of the fine-tunes behind the labels, for the sentence.

    Raises:
        ConfigError: no member, no instance to learn from or judge by, or an invalid setting.
        DataError: a held-out query was learnt from, every member scores all subsets alike, or none helps.
        ArtifactError: something else is there, or it cannot be written.

    Example:
        >>> from airrep.attributors.recipes import Channel
        >>> members = [Channel(method="ngram"), Channel(method="tfidf")]
        >>> adapted = airrep.adapt(members, instances[:1], instances[1:], "runs/adapted")
    """
    _check(members, learn, held_out)
    members, path, rivals = _told_apart(members), real_path(out), rivals or {}
    request = _asked_for(members, path, rivals) | {"resamples": resamples}
    request |= {"learn": [*map(identity, learn)], "held_out": [*map(identity, held_out)]}
    finished = Stage(path, LEARNT, "a recipe learnt", request, replace).finished(verify=True)
    if finished is not None:
        known = tuple(Channel.model_validate(placed(one, path)) for one in finished["channels"])
        return Adapted(path, known, finished["report"])
    every = _scored(members, learn, held_out, tell)
    made, weights = _weighed([one for one in every if one.tells], learn)
    weighed = [one.channel.model_copy(update={"weight": own}) for one, own in zip(made, weights, strict=True)]
    channels = tuple(one for one in weighed if one.weight > 0)
    others, missing = _judged(rivals, held_out)
    report = _report(made, weights, others, learn, held_out, resamples, tuned)
    report |= {"scored_alike": [one.title for one in every if not one.tells], "rivals_missing": missing}
    content = {"report": report, "lineage": dict(lineage or {}), "request": request}
    _write(path, channels, content, replace)
    return Adapted(path, channels, report)


def _asked_for(members: Sequence[Channel], path: Path, rivals: Mapping[str, Attributor]) -> dict[str, Any]:
    """Describe members, without weights, and rivals, for the request."""
    told = {
        name: {"method": one.name, "settings": one.settings.model_dump(mode="json")} for name, one in rivals.items()
    }
    own = [{key: value for key, value in unplaced(one, path).items() if key != "weight"} for one in members]
    return {"members": own, "rivals": told}


def _scored(
    members: Sequence[Channel],
    learn: Sequence[LabelledInstance],
    held_out: Sequence[LabelledInstance],
    tell: Callable[[str], None] | None,
) -> list[_Member]:
    """Score all members, one after another (DataError: every member scores all subsets alike)."""
    found = []
    for number, one in enumerate(members, start=1):
        if tell is not None:
            subsets = sum(len(each.subsets) for each in (*learn, *held_out))
            tell(f"method {number} of {len(members)}, {one.title}: scoring {subsets:,} subsets of training examples")
        found.append(_Member(one, learn, held_out))
    if not any(one.tells for one in found):
        raise DataError(
            "adapt: every method gives all subsets the same score. Choose a recipe (list of methods) with other "
            "methods."
        )
    return found


def _write(path: Path, channels: Sequence[Channel], content: Mapping[str, Any], replace: bool) -> None:
    """Write the artifact with the learnt channels, and a recipe file of them."""
    import yaml

    verdict, listed = content["report"]["sentence"], [unplaced(one, path) for one in channels]
    shown = {"channels": ", ".join(f"{one.title} {one.weight:.3g}" for one in channels), "verdict": verdict}
    head = "# Weights learnt from labels: airrep index DATA --recipe THIS_FILE\n"
    kept = [{name: one for name, one in channel.items() if one not in (None, False, {})} for channel in listed]
    told = {**content, "channels": listed, "provenance": shown}
    with new_artifact(path, LEARNT, told, replace=replace) as folder:
        recipe = head + yaml.safe_dump(kept, sort_keys=False, allow_unicode=True)
        (folder / RECIPE).write_text(recipe, encoding="utf-8")


def _check(members: Sequence[Channel], learn: Sequence[LabelledInstance], held_out: Sequence[LabelledInstance]) -> None:
    tested = "labels of other queries to test on (--held-out)"
    for name, given in (("methods", members), ("labels to learn from (--labels)", learn), (tested, held_out)):
        if not given:
            raise ConfigError(f"adapt: {name} are missing. Give at least one.")
    for instance in (*learn, *held_out):
        normalise_losses(instance.losses)  # refuses labels that do not vary, before any work
    known = np.concatenate([instance.queries.content_hashes for instance in learn])
    for instance in held_out:
        seen = np.flatnonzero(np.isin(instance.queries.content_hashes, known))
        if len(seen):
            raise DataError(
                f"held-out labels (measured losses), instance {instance.name}: query "
                f"'{instance.queries[int(seen[0])].id}' is also in the labels for learning. Hold out labels with "
                "other queries."
            )


def _told_apart(channels: Sequence[Channel]) -> list[Channel]:
    """Check channels, make their names unique by numbers, and make their paths absolute.

    Channels read LMs before fine-tuning, as an index built with the learnt recipe does.
    """
    channels = channels_before_training(channels)
    for one in channels:
        make_attributor(one.method, one.settings)  # refuses a bad channel before any is scored
    titles = [one.title for one in channels]
    return [
        one.complete({}, None).model_copy(update={"name": f"{title} ({number})" if titles.count(title) > 1 else title})
        for number, (title, one) in enumerate(zip(titles, channels, strict=True), start=1)
    ]


def _chosen(own: Pooling, features: Sequence[MemberFeatures]) -> Pooling:
    """Return the pool and temperature that rank the labels best, or the channel's own if it is not clearly worse."""
    losses = [one.instance.losses for one in features]
    tried = dict.fromkeys([own, *_pools(features[0])])

    def scores(pooling: Pooling) -> Iterator[GroupScores]:
        return (one.pooled(pooling) for one in features)

    best = best_of(list(tried), scores, losses)
    if best == own:
        return own
    gap = compare_held_out(list(scores(best)), list(scores(own)), [one.instance for one in features], CHOOSING)
    return best if gap.interval.low > 0 else own


def _pools(features: MemberFeatures) -> Iterator[Pooling]:
    """Yield the pools to try: the sum, and attention at temperatures in proportion to the deviation of the scores."""
    yield Pooling("sum")
    spread = float(np.std(features.scores))
    if spread > 0:
        for kind in ATTENTIONS:
            yield from (Pooling.parse(kind, float(f"{spread / wanted:.3g}")) for wanted in SPREADS)


def _tell(scores: Sequence[GroupScores]) -> bool:
    """Return True if some query's scores differ between subsets by more than rounding."""
    return any(bool(varies(one).any()) for one in scores)


def _weighed(members: list[_Member], learn: Sequence[LabelledInstance]) -> tuple[list[_Member], list[float]]:
    """Weigh members; make all absolute if all are relative, or if the absolute ones alone do not rise with the labels.

    NothingRisesError: no member rises with the labels.
    """
    if not all(one.channel.relative for one in members):
        try:
            return members, _weights(members, learn)
        except NothingRisesError:
            if not any(one.channel.relative for one in members):
                raise
    members = [one.absolute() for one in members]
    return members, _weights(members, learn)


def _weights(members: Sequence[_Member], learn: Sequence[LabelledInstance]) -> list[float]:
    """Fit weights by Eq. 8: first of the absolute channels, then of their sum and the relative channels."""
    losses = [instance.losses for instance in learn]
    absolute = [one for one in members if not one.channel.relative]
    first = iter(fit_weights([[part.scores for part in one.learn] for one in absolute], losses))
    weights = [1.0 if one.channel.relative else next(first) for one in members]
    if len(absolute) == len(members):
        return weights
    parts = [_parts(members, weights, place, "learn") for place in range(len(learn))]
    relative = np.array([bool(one.channel.relative) for one in members])
    sums = [part[~relative].sum(axis=0) for part in parts]
    others = [[part[number] for part in parts] for number in np.flatnonzero(relative)]
    whole, *found = fit_weights([sums, *others], losses)
    whole = max(whole, LEAST * max(found))  # relative weights refer to the sum, so its weight must not be 0
    beside = iter(found)
    return [
        next(beside) / whole if one.channel.relative else w * whole for one, w in zip(members, weights, strict=True)
    ]


def _parts(members: Sequence[_Member], weights: Sequence[float], place: int, part: str) -> np.ndarray:
    """Return weighted group scores of each channel on one instance, ``(channels, q, m)``."""
    channels = [one.channel.model_copy(update={"weight": weight}) for one, weight in zip(members, weights, strict=True)]
    found = [getattr(one, part)[place] for one in members]
    factors = relative_weights(channels, np.stack([one.reference for one in found]))
    return np.stack([one.scores for one in found]) * factors.T[:, :, None]


def _sum(members: Sequence[_Member], weights: Sequence[float]) -> list[GroupScores]:
    """Compute Σ_c w_c g_c on each held-out instance."""
    places = range(len(members[0].held_out))
    return [_parts(members, weights, place, "held_out").sum(axis=0).astype(np.float32) for place in places]


def _judged(
    rivals: Mapping[str, Attributor], held_out: Sequence[LabelledInstance]
) -> tuple[list[_Judged], dict[str, str]]:
    """Score the rivals as they are; also return the error of each rival that cannot score these examples."""
    found, reasons = [], {}
    for name, method in rivals.items():
        try:
            found.append(_Judged(name, [score_instance(method, instance) for instance in held_out]))
        except AirRepError as error:
            reasons[name] = str(error)
    return found, reasons


def _report(
    members: Sequence[_Member],
    weights: Sequence[float],
    rivals: Sequence[_Judged],
    learn: Sequence[LabelledInstance],
    held_out: Sequence[LabelledInstance],
    resamples: int,
    tuned: str,
) -> dict[str, Any]:
    """Compare the sum with members, rivals and itself without each channel, by LDS on held-out instances."""
    ours = _sum(members, weights)
    found = held_out_lds(ours, held_out, resamples)
    rows: list[dict[str, Any]] = [{"name": "sum", "lds": found.to_dict(), "sum_minus_it": None, "part": True}]
    others = [form for one in members for form in one.alone]
    for form in [*others, *rivals, *_ablations(members, weights, learn)]:
        if not _tell(form.scores):
            continue  # equal scores have no LDS
        gap = compare_held_out(ours, form.scores, held_out, resamples).to_dict()
        lds = held_out_lds(form.scores, held_out, resamples).to_dict()
        rows.append({"name": form.title, "lds": lds, "sum_minus_it": gap, "part": form.part})
    against = [row for row in rows[1:] if not row["part"]]
    best = max(against, key=lambda row: float(row["lds"]["lds"]))
    # The sum must be above chance too: to beat methods that predict nothing is no success.
    better = min(found.interval.low, *(row["sum_minus_it"]["interval"][0] for row in against)) > 0
    change = moved(held_out)
    sentence = _sentence(best, better, change, tuned)
    names: dict[str, Any] = {"held_out": [instance.name for instance in held_out]}
    if change is not None:
        names["moved"], better = change.to_dict(), better and not change.hardly
    return {"rows": rows, "best": best["name"], "better": better, "sentence": sentence, **names}


def _ablations(
    members: Sequence[_Member], weights: Sequence[float], learn: Sequence[LabelledInstance]
) -> Iterator[_Judged]:
    """Yield the sum without each of its channels, with new weights."""
    kept = [one for one, weight in zip(members, weights, strict=True) if weight > 0]
    for left_out in kept if len(kept) > 1 else []:
        try:
            others, again = _weighed([one for one in kept if one is not left_out], learn)
        except NothingRisesError:
            continue  # the other channels do not rise with the labels
        yield _Judged(f"sum without {left_out.title}", _sum(others, again), part=True)


def _sentence(best: Mapping[str, Any], better: bool, change: Moved | None, tuned: str) -> str:
    gap = best["sum_minus_it"]
    value, low, high = (f"{100 * number:+.1f}" for number in (gap["difference"], *gap["interval"]))
    measured = (
        f"the recipe's LDS × 100 minus that of the best other method ({best['name']}) is {value} "
        f"(95 % interval {low} to {high})"
    )
    far = f" {change.sentence.capitalize()}." if change is not None and not change.hardly else ""
    holds = far + (f" This holds for fine-tunes with {tuned}." if tuned else "")
    if change is not None and change.hardly:
        return f"Not judged: {change.sentence}. {REMEDY} On these labels: {measured}.{holds}"
    if better:
        return f"Better than every method that it was compared with: {measured}.{holds}"
    if gap["difference"] > 0:
        return f"Not shown to be better than the best other method: {measured}. More subsets may show it.{holds}"
    return f"Not better than the best other method: {measured}. Keep using that method.{holds}"
