"""Attribution by a weighted sum of channels, each with its own pool."""

import logging
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, get_args

import numpy as np

from airrep.arrays import Encoded, Features
from airrep.attributors.base import Attributor, OnProgress, OnRows, SeveralMethods, fit_method, sample_of, sentences
from airrep.attributors.direct import DirectAttributor
from airrep.attributors.encoder import EmbeddingAttributor
from airrep.attributors.methods import make_attributor
from airrep.attributors.recipes import Channel, ChannelsSettings
from airrep.attributors.sums.candidates import CandidatesAsked, Read
from airrep.attributors.sums.relative import REFERENCE, Reference, relative_weights
from airrep.corpus.corpus import Corpus, Example, wholes
from airrep.corpus.views import View, something_seen
from airrep.errors import ConfigError, caution, many
from airrep.lm.documents import factors_of
from airrep.lm.folders.forms import LmFiles
from airrep.lm.settings import LmSettings, LossName
from airrep.runtime.artifacts import json_digest
from airrep.scoring.asked import Asked, Kept, ScoresAsked, SumAsked, score_all
from airrep.scoring.pooling import CHANNELS, Pool, Pooling, PoolLike

WEIGHING = ("pool", "temperature", "weight", "relative", "candidates")
"""Settings of a channel that do not change the features of training examples."""
HOW = ("device", "precision", "batch_tokens", "memory", "store")
"""Settings of a method that change how features are computed, not which features."""

_log = logging.getLogger(__name__)


class ChannelsAttributor(SeveralMethods[ChannelsSettings]):
    """f(x, S) = Σ_c w_c g_c(x, S) over channels c: each pools the scores of its own features in its own way.

    A single example is a group of one. Each channel stores and scores its own features; the weights are applied last
    (:class:`airrep.scoring.asked.SumAsked`).

    The weight of a relative channel is w (1 − ρ(x)) σ(x) / σ_c(x). Here σ_c(x) is the standard deviation of its
    scores for query x over random groups of the training corpus, σ(x) that of the sum of the channels that are not
    relative, and ρ(x) the correlation of both.
    """

    name = "channels"
    reads_pairs = True  # each channel encodes pairs in its own way
    pool: ClassVar[Pool] = "sum"
    symmetric = False

    def __init__(self, settings: ChannelsSettings | None = None) -> None:
        super().__init__(settings or ChannelsSettings())
        self.channels = self._settings.channels
        self._relative = any(channel.relative and channel.weight > 0 for channel in self.channels)
        self._reference: Reference | None = None

    @property
    def weights(self) -> list[tuple[object, ...]]:
        """Weight, pool, temperature and ``relative`` of each channel, and its ``candidates`` if they are set."""
        return _weights(self.channels)

    def weights_of(self, recipe: Sequence[Channel]) -> list[tuple[object, ...]]:
        """Return the :attr:`weights` after :meth:`reweighed`, with the same errors, before anything is loaded."""
        return _weights(self._weighed(recipe))

    @cached_property
    def parts(self) -> tuple[Attributor, ...]:
        """The method of each channel; encoders that differ only in their view share one model."""
        made = tuple(make_attributor(one.method, one.settings) for one in self.channels)
        models: dict[str, EmbeddingAttributor] = {}
        for channel, one in zip(self.channels, made, strict=True):
            if isinstance(one, EmbeddingAttributor):
                first = models.setdefault(json_digest(one.settings.model_dump(mode="json", exclude={"view"})), one)
                one.shared = None if first is one else first
            if channel.candidates is not None and not isinstance(one, DirectAttributor):
                raise ConfigError(
                    f"channel (method) {channel.title}: candidates={channel.candidates} works only with methods that "
                    f"store no features, such as ekfac, but {one.name} stores them. Remove candidates."
                )
        return made

    @property
    def counted(self) -> tuple[bool, ...]:
        return tuple(channel.weight > 0 for channel in self.channels)

    def unusable(self, examples: Sequence[Example]) -> Mapping[int, str]:
        return {row: reason for part in self.parts for row, reason in part.unusable(examples).items()}

    def rendering(self, examples: Iterable[Example]) -> Mapping[str, str]:
        return {name: value for part in self.parts for name, value in part.rendering(examples).items()}

    @property
    def execution(self) -> Mapping[str, str]:
        return {
            f"{number}.{name}": value for number, one in enumerate(self.parts) for name, value in one.execution.items()
        }

    def load(self) -> Mapping[str, str]:
        for one in self.parts:
            one.load()
        return self.execution

    def float_noise(self, train: Corpus) -> Mapping[str, float]:
        """Return the noise of the channel that differs most from float32."""
        found = [noise for one in self.parts if (noise := one.float_noise(train))]
        return min(found, key=lambda noise: min(noise.values()), default={})

    def unseen(self, examples: Sequence[Example]) -> dict[str, int]:
        """Count, by channel name, the examples of which the channel's view shows nothing, so that they score 0."""
        views: list[View] = [getattr(one.settings, "view", "whole") for one in self.parts]
        shown = {view: int(something_seen(examples, view).sum()) for view in set(views)}
        lacking = [(one.title, len(examples) - shown[view]) for one, view in zip(self.channels, views, strict=True)]
        return {title: count for title, count in lacking if count}

    @cached_property
    def _pools(self) -> tuple[Pooling, ...]:
        return tuple(map(channel_pooling, self.channels, self.parts))

    def pooling(self, pool: PoolLike | None = None, temperature: float = 1.0) -> Pooling:
        """Return each channel's own pool when *pool* is None; otherwise one pool over members' summed scores.

        ConfigError: the pool or temperature does not exist, or needs the features of a single method.
        """
        if pool is None and temperature != 1:
            raise ConfigError(
                f"temperature {temperature}: has an effect only with a pool (a way to score a group). Also give "
                "pool='attention' or pool='signed-attention', or remove the temperature."
            )
        return CHANNELS if pool is None or pool == CHANNELS else super().pooling(pool, temperature)

    def fit(self, train: Corpus, progress: OnProgress | None = None) -> None:
        """Fit every channel; if one is relative, encode a sample of the corpus for its random groups as well.

        ConfigError: the LM after a warm-up does not fit the LM before it, or a channel's method raises one.
        """
        self._check_warmed()
        for one in self.parts:
            fit_method(one, train, progress)
        if self._relative:
            examples = sample_of(train, REFERENCE, 0)
            self._reference = Reference.of(self.encode(examples), examples)

    def _check_warmed(self) -> None:
        """Compare each LM after a warm-up with the LM before it, and log a warning if they do not seem to match."""
        read = [(one.warmed, one.settings) for one in self.channels if one.settings.get("lm") is not None]
        own = self._settings.model_dump(exclude={"channels"}, exclude_none=True)
        before = next((one for warmed, one in read if not warmed), own if self._settings.lm is not None else None)
        for after in (own for warmed, own in read if warmed):
            from airrep.lm.warmup import check_after  # here, since few recipes read an LM after a warm-up

            told = "" if before is None else check_after(_lm_files(before), _lm_files(after), before.get("template"))
            if told:
                caution(_log, told)

    def save_state(self, folder: Path) -> None:
        """Write the state of each channel; its file names begin with the channel's number."""
        for number, one in enumerate(self.parts):
            with tempfile.TemporaryDirectory() as own:
                one.save_state(Path(own))
                for path in Path(own).iterdir():
                    shutil.copyfile(path, folder / f"{number}-{path.name}")
        if self._reference is not None:
            self._reference.save(folder)

    def load_state(self, folder: Path) -> None:
        for number, one in enumerate(self.parts):
            paths = list(folder.glob(f"{number}-*"))
            if paths:  # most methods have no state to read
                with tempfile.TemporaryDirectory() as own:
                    for path in paths:
                        shutil.copyfile(path, Path(own) / path.name.partition("-")[2])
                    one.load_state(Path(own))
        self._reference = Reference.load(folder, [one.title for one in self.channels])

    def reweighed(self, recipe: Sequence[Channel]) -> "ChannelsAttributor":
        """Return these channels with a recipe's pools, temperatures and weights; channels that it lacks get weight 0.

        What was learnt is shared, and features of training examples stay as they are. ConfigError: the recipe has a
        channel that is missing here, or one of these channels twice.
        """
        channels = self._weighed(recipe)
        other = ChannelsAttributor(ChannelsSettings(channels=channels))
        other.__dict__["parts"] = self.parts
        other._reference = None if self._reference is None else replace(self._reference)  # without cached scores
        if other._relative and self._reference is None:
            raise ConfigError(
                "channels: this recipe (list of methods) scales a method with relative: true, but the index was built "
                "with a recipe without relative: true. Build an index with this recipe."
            )
        return other

    def computed_as(self, recipe: Sequence[Channel]) -> "ChannelsAttributor":
        """Return the same channels, not fitted, with each one's device, precision and memory as in a recipe.

        ConfigError: as for :meth:`reweighed`.
        """
        chosen = self._matched(recipe)
        channels = tuple(_computed_as(one, chosen.get(one.title)) for one in self.channels)
        return self if channels == self.channels else ChannelsAttributor(ChannelsSettings(channels=channels))

    def _weighed(self, recipe: Sequence[Channel]) -> tuple[Channel, ...]:
        """Return the channels with the pools and weights of a recipe."""
        chosen = self._matched(recipe)
        return tuple(_reweighed(one, chosen.get(one.title)) for one in self.channels)

    def _matched(self, recipe: Sequence[Channel]) -> dict[str, Channel]:
        """Match recipe channels to own channels by method and settings, preferring equal names; keys are own names."""
        keys = {one.title: _identity(part) for one, part in zip(self.channels, self.parts, strict=True)}
        wanted = [(one, _identity(make_attributor(one.method, one.settings))) for one in recipe]
        chosen: dict[str, Channel] = {}
        for one, key in sorted(wanted, key=lambda pair: keys.get(pair[0].title) != pair[1]):
            fitting = [title for title, own in keys.items() if own == key]
            free = [title for title in fitting if title not in chosen]
            if not free:
                raise self._unmatched(one, [chosen[title].title for title in fitting])
            chosen[one.title if one.title in free else free[0]] = one
        return chosen

    def _unmatched(self, wanted: Channel, taken: Sequence[str]) -> ConfigError:
        """Return the error for a recipe's channel without a match; *taken* names channels that have its matches."""
        if taken:
            named = " and ".join(f"'{title}'" for title in (*taken, wanted.title))
            return ConfigError(
                f"channels: in the recipe (list of methods), {named} have the same method and settings, but the index "
                f"has fewer such methods. Remove '{wanted.title}' from the recipe, or build an index with this recipe."
            )
        return ConfigError(
            f"channels: the index has no method '{wanted.title}' with the settings in the recipe (list of "
            f"methods){self._difference(wanted)}. The index has {', '.join(one.title for one in self.channels)}. "
            f"Build an index with this recipe, or remove '{wanted.title}' from the recipe."
        )

    def _difference(self, wanted: Channel) -> str:
        """Name a method or setting in which a channel differs from the one of the same name here; empty without one."""
        named = next(
            (part for one, part in zip(self.channels, self.parts, strict=True) if one.title == wanted.title), None
        )
        made = make_attributor(wanted.method, wanted.settings)
        if named is None:
            return ""
        if named.name != made.name:
            return f" (method {made.name}; in the index {named.name})"
        here, there = (one.settings.model_dump(mode="json", exclude={*HOW}) for one in (named, made))
        name = next(key for key in sorted({*here, *there}) if here.get(key) != there.get(key))
        return f" ({name}={there.get(name)!r}; in the index {here.get(name)!r})"

    @property
    def fingerprint(self) -> str:
        known = [(channel.weight, str(pool)) for channel, pool in zip(self.channels, self._pools, strict=True)]
        parts: dict[str, Any] = {
            "method": self.name,
            "channels": known,
            "parts": [one.features_fingerprint for one in self.parts],
        }
        if any(channel.candidates is not None for channel in self.channels):
            parts["candidates"] = [channel.candidates for channel in self.channels]
        if self._relative:
            relative = [channel.relative and "apart" for channel in self.channels]  # as in older fingerprints
            parts["relative"] = [relative, self.check_fitted(self._reference).key]
        return json_digest(parts)

    @property
    def caution(self) -> str:
        told = [one.caution for one, counts in zip(self.parts, self.counted, strict=True) if counts]
        told += [_of_candidates(one) for one in self.channels if one.weight > 0 and one.candidates is not None]
        return " ".join(dict.fromkeys(one for text in told for one in sentences(text)))

    def _in_turn(self, numbers: Sequence[int], on_rows: OnRows | None) -> list[tuple[int, OnRows | None]]:
        """Return the numbers of some channels in the order in which they encode, each with its callback.

        Methods that lead come first. Only the last of these reports rows, or the last of all if none leads.
        """
        leading = [number for number in numbers if self.parts[number].leads]
        order = leading + [number for number in numbers if number not in leading]
        telling = (leading or order)[-1:]
        return [(number, on_rows if number in telling else None) for number in order]

    def encode(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> Encoded:
        found: dict[str, Features | None] = {}
        losses: list[LossName] = [getattr(one.settings, "loss", "sft") for one in self.parts]
        loss = next((one for one in losses if one in ("kto", "weighted")), None)
        for number, done in self._in_turn(range(len(self.parts)), on_rows):
            channel, part, pool = self.channels[number], self.parts[number], self._pools[number]
            (features,) = part.encode(examples, done).values()
            if loss is not None and features is not None and not hasattr(part.settings, "loss"):
                features = part.times(features, factors_of(examples, loss))  # as the loss weighs the LM's channels
            found[channel.title] = features
            if pool.kind == "diminishing" and not isinstance(features, np.ndarray):
                raise ConfigError(
                    f"channel (method) {channel.title}: pool '{pool}' (a way to score a group) works only with dense "
                    "features, such as those of logra or an encoder. This method stores counts. Set another pool, "
                    "such as mean."
                )
        return {channel.title: found[channel.title] for channel in self.channels}

    def ask(
        self,
        queries: Sequence[Example],
        kept: Kept,
        on_rows: OnRows | None = None,
        channel: str | None = None,  # noqa: ARG002
    ) -> SumAsked:
        """Ask every channel, with its weight for each query; a channel of weight 0 reads neither queries nor files.

        A query with a span has the weights of its whole answer, so that scores of all spans add up to the answer's.
        """
        counted = [number for number, one in enumerate(self.channels) if one.weight > 0]
        channels = [self.channels[number] for number in counted]
        asked = self._asked(counted, queries, kept, on_rows)
        full = wholes(queries) if self._relative else None
        weights = self._weights_for(channels, asked if full is None else self._asked(counted, full, kept, None), kept)
        cheap = [place for place, one in enumerate(channels) if one.candidates is None]
        titles = [channels[place].title for place in cheap]
        picking = SumAsked({title: asked[title] for title in titles}, weights[:, cheap], CHANNELS)
        for one in channels:
            whole = asked[one.title]
            if one.candidates is not None and isinstance(whole, ScoresAsked):
                rows = whole.rows if kept.live is None else int(kept.live.sum())
                asked[one.title] = CandidatesAsked.of(whole, picking, one.count_of(rows), self._read(picking, whole))
        return SumAsked(asked, weights, CHANNELS)

    def _asked(
        self, counted: Sequence[int], queries: Sequence[Example], kept: Kept, on_rows: OnRows | None
    ) -> dict[str, Asked]:
        """Ask some channels; a channel with candidates scores nothing yet."""
        found: dict[str, Asked] = {}
        for number, done in self._in_turn(counted, on_rows):
            one, part, pool = self.channels[number], self.parts[number], self._pools[number]
            if one.candidates is not None:
                found[one.title] = ScoresAsked(part, queries, kept, one.title, pool)
            else:
                found[one.title] = part.ask(queries, kept, done, one.title).pooled_by(pool)
        return {title: found[title] for title in (self.channels[number].title for number in counted)}

    def _read(self, cheap: SumAsked, dear: ScoresAsked) -> Read:
        """Score the reference's few examples by both sides; empty without a relative channel."""
        if not self._relative:
            return Read(*np.empty((2, len(cheap), 0)))
        few = self.check_fitted(self._reference).few.kept
        return Read(score_all(cheap.over(few, "")), score_all(dear.over(few, dear.channel)))

    def _weights_for(self, channels: Sequence[Channel], asked: Mapping[str, Asked], kept: Kept) -> np.ndarray:
        """Return the weight of each channel for each query, ``(q, c)``."""
        count = len(next(iter(asked.values())))
        if not self._relative:
            return np.tile([one.weight for one in channels], (count, 1))
        reference = self.check_fitted(self._reference)
        rows = next(iter(asked.values())).rows if kept.live is None else int(kept.live.sum())
        dear = np.array([one.count_of(rows) < rows for one in channels])
        if not dear.any():
            return relative_weights(channels, reference.scores(asked))
        weights = relative_weights(channels, reference.few.scores(asked))
        rest = [one for one, few in zip(channels, dear.tolist(), strict=True) if not few]
        weights[:, ~dear] = relative_weights(rest, reference.scores({one.title: asked[one.title] for one in rest}))
        return weights


def _weights(channels: Sequence[Channel]) -> list[tuple[object, ...]]:
    told = [(one.weight, one.pool, one.temperature, one.relative) for one in channels]
    return [(*own, one.candidates) if one.candidates else own for own, one in zip(told, channels, strict=True)]


def _of_candidates(channel: Channel) -> str:
    """Return a warning for readers of a channel that scores only candidates."""
    count = channel.candidates
    first = many(count, "example") if isinstance(count, int) else f"{count} examples"
    return (
        f"For each query, channel (method) '{channel.title}' scores only the {first} that the other methods rank "
        "first. The scores of all other examples are predicted from these methods' scores."
    )


def _lm_files(settings: Mapping[str, Any]) -> LmFiles:
    """Find the files of the LM that a channel reads."""
    return LmSettings.of({name: one for name, one in settings.items() if name in LmSettings.model_fields}).find()


def _reweighed(channel: Channel, wanted: Channel | None) -> Channel:
    """Copy the pool and weights of *wanted* to a channel; None: weight 0."""
    if wanted is None:
        return channel.model_copy(update={"weight": 0.0})
    return channel.model_copy(update={name: getattr(wanted, name) for name in WEIGHING})


def _computed_as(channel: Channel, wanted: Channel | None) -> Channel:
    """Copy the settings of :data:`HOW` from *wanted* to a channel."""
    how = {} if wanted is None else {name: value for name, value in wanted.settings.items() if name in HOW}
    return channel.model_copy(update={"settings": {**channel.settings, **how}}) if how else channel


def _identity(method: Attributor) -> str:
    """Return a key that is equal for channels with equal features, but for their last digits."""
    # ``rendered`` is left out: a recipe may weigh an index's channel however the index renders examples.
    settings = method.settings.model_dump(mode="json", exclude={*HOW, "rendered"})
    return json_digest({"method": method.name, "settings": settings})


def channel_pooling(channel: Channel, method: Attributor) -> Pooling:
    """Return the pool that a channel names, or else its method's own.

    ConfigError: the pool does not exist, or does not pool members' scores.
    """
    found = method.pooling(channel.pool, channel.temperature)
    if found.kind not in get_args(Pool):
        raise ConfigError(
            f"channel (method) {channel.title}: pool '{found}' (a way to score a group) does not work in a recipe. "
            "Set another pool, such as attention."
        )
    return found
