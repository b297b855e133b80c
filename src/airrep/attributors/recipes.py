"""Recipes of channels: read, checked; the default one."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import Field, ValidationInfo, field_validator, model_validator

from airrep.attributors.installed import installed_method
from airrep.attributors.settings import (
    METHOD_SETTINGS,
    TOKENIZERS,
    Grouping,
    LograSettings,
    MapWeight,
    tokens_of,
    whole_folder,
)
from airrep.encoder.folders import BUNDLED, STATIC
from airrep.errors import ConfigError
from airrep.lm.folders.forms import ADAPTER_CONFIG, settled_name
from airrep.runtime.artifacts.manifests import read_manifest
from airrep.runtime.artifacts.urls import fetched
from airrep.runtime.settings import Settings, read_yaml

MOST_CHANNELS = 16
"""More would only cost: what one knows, the others know."""
DEFAULT, KIND, CONTRAST = "default", "kind", "contrast"
"""Recipes that airrep ships: of effect; of kind, with other weights for the same channels of text; of a bad answer less
a better one, with a channel more."""
SUMS = ("channels",)
SMOOTHING, GAP_WEIGHT = 3.0, 0.5
"""Of the n-grams of the default channels: a rare n-gram of the corpus tells less than its share says."""
WORDS_WEIGHT = 0.3
"""Of n-grams of words, those copied from the prompt as one mark."""
ENCODER_WEIGHT, ENCODER_TEMPERATURE = 0.3, 1.5
"""Of signed attention over scores of the static encoder, whose spread says by itself where it knows little. Those of
the encoder `default` are as large, so both suit it too."""
KIND_WEIGHTS = (0.1, 0.03, 1.0)
"""Of the same channels where a query's kind is asked for: by the others one shared rare n-gram outweighs all else."""
TFIDF_WEIGHT, TFIDF_TEMPERATURE = 10.0, 0.3
"""Of TF-IDF of prompt and response where answers are subtracted, pooled by signed attention. It knows the subject where
the answer is put in other words: 10 to 30 did best on planted rows, 3 less well. By its own pool, the sum, it would
outweigh the others in groups (experiments/contrast)."""
GRADIENT_WEIGHT = 5.6
"""Of the gradients of a target LM that is not fine-tuned yet, by LoGra as it was measured to do best, members of a
group that are alike counting for less. It is times 1 − ρ: text that says what the gradients say is worth more beside
them than text that does not."""
EKFAC_WEIGHT, EKFAC_EXPONENT = 28.0, 0.75
"""Of whole gradients by EK-FAC, the mean of a group's members. The weight is times 1 − ρ and is large, since over the
random groups of 16 that tell relative sizes a mean varies more than over the hundreds that are asked about. Text would
be outweighed in large groups by the sum, which grows where counts saturate. The exponent lies between that of influence
functions, 1, and that of AdamW's first steps, 1/2. Beside LoGra each keeps its own weight."""
WARMED: dict[str, Any] = {"name": "warmed gradients", "warmed": True, "weight": 4.0}
"""Of the channel that reads the LM after a warm-up, as LoGra reads that before it. What a subset does to a loss comes
of all steps of a fine-tune: gradients before say what the first steps do, these what later ones do. On the model of
4.5M parameters 4 is best on average."""
FACTORS_RANK = 3
"""Of the factors of whole gradients that an index keeps."""
Gradients = Literal["none", "logra", "ekfac", "both", "factors"]
GRADIENTS: tuple[Gradients, ...] = get_args(Gradients)
"""Ways in which the default channels can read gradients."""
OF_LM = ("max_tokens", "cut", "template", "batch_tokens")
"""Settings that an LM is read with; encoders have others of these names."""
_COMMON = ("lm", "base", "merged", "device", "precision", *OF_LM)
"""Settings that channels share."""
_OF_BEFORE = ("lm", "base", "merged")
"""Of these, those that say which LM is the one before a warm-up."""
RECIPE = "channels.yaml"
"""Name of a recipe in a folder."""
LARGEST_WEIGHT = 1e30
"""Of a channel: above it ordinary scores do not fit in float32."""
LARGEST = 2**20
"""Bytes of a recipe that are read at most."""
LEARNT = "recipe"
"""Kind of the artifact in which `airrep adapt` keeps a recipe that it learnt."""


class Channel(Settings):
    """One channel: a method with its settings, the view among them, a pool and a weight."""

    added = ("relative", "warmed")

    method: str
    """Its method, any but channels."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Settings of the method."""
    pool: str | None = None
    """How the scores of a group's members are pooled; None takes the method's own pool."""
    temperature: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Of attention: the larger, the flatter."""
    weight: float = Field(default=1.0, ge=0, le=LARGEST_WEIGHT, allow_inf_nan=False)
    """Factor on its group scores; 0: it counts nothing."""
    relative: bool | Literal["apart"] = False
    """Whether, for each query, its scores are first brought to the deviation that the sum of the channels that are not
    relative has, over random groups of the training corpus. So a weight holds for methods whose scores differ in
    size from LM to LM. 'apart': and then multiplied by 1 − ρ, the correlation of both over these groups, so that it
    counts for more where it says what the others do not."""
    warmed: bool = False
    """Whether it reads the LM as it is after a warm-up, where that is set for all channels."""
    name: str | None = None
    """Name in results; None takes method and view."""

    @field_validator("relative", mode="before")
    @classmethod
    def _known(cls, relative: object) -> object:
        if relative not in (True, False, "apart"):
            raise ValueError("expected true, false or apart")
        return relative

    @model_validator(mode="after")
    def _reads_lm(self) -> "Channel":
        known = METHOD_SETTINGS.get(self.method)
        if self.warmed and known is not None and "lm" not in known.model_fields:
            raise ValueError(f"warmed: {self.method} reads no language model; expected false")
        return self

    @field_validator("method")
    @classmethod
    def _no_sum(cls, method: str) -> str:
        if method in SUMS:
            raise ValueError("expected a method that is no sum of others, unlike channels")
        return method

    def with_common(self, common: Mapping[str, Any], tokenizer: str | None) -> "Channel":
        """The channel with those of some settings that its method has, paths made whole; ConfigError for bad ones."""
        known = METHOD_SETTINGS.get(self.method) or _settings_of_package(self.method)
        if known is None:
            return self
        reads = "lm" in known.model_fields
        given = {
            name: value for name, value in common.items() if name in known.model_fields and (reads or name not in OF_LM)
        }
        if tokenizer is not None and "tokenizer" in known.model_fields and self.settings.get("tokenizer") != "words":
            given["tokenizer"] = tokenizer
        checked = known.of({**self.settings, **given}, where=f"channel {self.title}")
        return self.model_copy(update={"settings": checked.model_dump(mode="json", exclude_unset=True)})

    @property
    def title(self) -> str:
        """The name in results."""
        view = self.settings.get("view")
        return self.name or (f"{self.method} {view}" if view else self.method)


def _settings_of_package(method: str) -> type[Settings] | None:
    """Settings of a method that another package brings; None if there is no such method."""
    found = installed_method(method)
    return None if found is None else found.factory.settings


class ChannelsSettings(Settings):
    """Settings of a sum of channels."""

    added = (
        "lm",
        "base",
        "merged",
        "warmed",
        "encoder",
        "device",
        "precision",
        "max_tokens",
        "cut",
        "template",
        "batch_tokens",
        "gradients",
        "map_weights",
    )

    tokenizer: str | None = Field(default=None, min_length=1)
    """Folder or Hub id of a model, best the target LM, whose tokens are counted by all channels but those of words;
    None: that of the LM, or the pieces of the LM that comes with airrep."""
    lm: str | None = Field(default=None, min_length=1)
    """Target LM, a folder or a Hub id: the default channels count its tokens, less if it expects them already, and its
    gradients are a channel more."""
    base: str | None = Field(default=None, min_length=1)
    """The LM that its adapters belong to, where it has some and that LM has moved."""
    merged: bool | None = None
    """Whether the LM is meant as it is, adapters merged, fine-tuned or not; None: a new index leaves adapters out, and
    refuses an LM that a trainer's files lie beside. That after a warm-up is always meant as it is."""
    warmed: str | None = Field(default=None, min_length=1)
    """The same LM after a warm-up, a folder or a Hub id: the directions of its gradients are a channel more, beside
    those of the LM before it or, with gradients=none, in their place."""
    encoder: str | None = Field(default=None, min_length=1)
    """Sentence encoder, a folder or a Hub id, in place of the channels' own, where that has moved, or else in place of
    the one that comes with airrep."""
    device: str | None = None
    """Of all channels that compute on one: auto, cpu, cuda or cuda:N."""
    precision: str | None = None
    """Likewise: auto, float32 or bfloat16."""
    max_tokens: int | None = Field(default=None, ge=8)
    """Longest example that the LM reads, in all channels that ask it; None: its positions, at most 2048. A response
    that is longer cannot be read."""
    cut: Literal["prompt", "end", "shares", "drop"] | None = None
    """Likewise, what the LM does not read of a longer example: None or 'prompt', the front of its prompt; 'end', the
    end, as trl does; 'shares', the ends of prompt and response, as LLaMA-Factory does; 'drop', all of it."""
    template: str | None = None
    """Likewise, how the LM reads examples: None follows the form of each row; 'chat', 'plain', or a text with {prompt}
    and {response}."""
    batch_tokens: int | None = Field(default=None, ge=1)
    """Tokens that the LM reads in one packed micro-batch, in all channels that ask it: bounds memory, changes results
    by rounding alone. None suits the device."""
    gradients: Gradients | None = None
    """How the default channels read the LM's gradients: 'logra', or None, keeps them small in the index; 'ekfac' takes
    them whole, which predicts better, and reads all examples again for each new question; 'both' adds the two up, which
    predicts best; 'factors' keeps factors of rank 3 of whole ones in the index, large: nearly as good on many tasks,
    worse than text alone on many answers to few questions; 'none' leaves them out, so that the LM reads each example
    once, forward."""
    map_weights: dict[str, MapWeight] | Grouping | None = None
    """Weights of linear maps in these gradients, as `airrep methods logra` says; 'maps' for `airrep stack`,
    which learns a weight for each."""
    channels: tuple[Channel, ...] = Field(
        default_factory=lambda: default_channels(), min_length=1, max_length=MOST_CHANNELS
    )
    """The channels: 'default'; 'kind', the same of text with weights that find examples of the query's kind, not of
    effect; 'contrast', those of text and TF-IDF, for a new index that is asked for bad answers less better ones; a YAML
    file with a list of them (or its folder), what `airrep adapt` made, or the list itself. They are kept with the
    index."""

    @model_validator(mode="before")
    @classmethod
    def _read(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Read a recipe that is named."""
        channels, how, maps = values.get("channels", DEFAULT), values.get("gradients"), values.get("map_weights")
        named = next((name for name in ("gradients", "map_weights") if values.get(name) is not None), None)
        if named is not None and (channels != DEFAULT or values.get("lm") is None):
            raise ValueError(
                f"{named}: are those of the LM in the default channels; expected an lm and no channels, or for an "
                "index that exists --set channels=default as well"
            )
        if channels == DEFAULT:
            lm, warmed = (None if values.get(name) is None else str(values[name]) for name in ("lm", "warmed"))
            tokenizer = None if values.get("tokenizer") in (None, *TOKENIZERS) else str(values["tokenizer"])
            how_read: Any = how if how in GRADIENTS else "logra"
            channels = default_channels(lm, how_read, maps, warmed=warmed, tokenizer=tokenizer)
        else:
            channels = _named_channels(channels)
        read = values.get("lm") is not None or _read_lm(channels)
        if values.get("warmed") is not None and not (read and _has_warmed(channels)):
            raise ValueError(
                "warmed: is read by a channel more; expected an lm as well, the one before the warm-up, and channels "
                "that have such a channel, as the default ones do. An index without it is built again"
            )
        unread = next((name for name in OF_LM if values.get(name) is not None), None)
        if unread is not None and values.get("lm") is None and not _read_lm(channels):
            raise ValueError(f"{unread}: belongs to an lm, and no channel reads one; expected an lm")
        told = {"map_weights", *(("gradients",) if how in GRADIENTS else ())}  # the channels say it from now on
        return {**{name: value for name, value in values.items() if name not in told}, "channels": channels}

    @field_validator("tokenizer", "lm", "warmed")
    @classmethod
    def _whole_path(cls, name: str | None) -> str | None:
        return name if name is None or name in TOKENIZERS else settled_name(name)

    @field_validator("warmed")
    @classmethod
    def _no_lm_itself(cls, warmed: str | None, known: ValidationInfo) -> str | None:
        if warmed is not None and warmed == known.data.get("lm"):
            raise ValueError("is the lm itself; expected that after a warm-up, as `airrep warmup` makes it")
        return warmed

    @field_validator("encoder")
    @classmethod
    def _whole_folder(cls, name: str | None) -> str | None:
        return name if name is None or name in BUNDLED else whole_folder(name)

    @field_validator("channels")
    @classmethod
    def _complete(cls, channels: tuple[Channel, ...], known: ValidationInfo) -> tuple[Channel, ...]:
        """Put what is set for all where it belongs, and check that names differ."""
        common = {name: known.data[name] for name in _COMMON if known.data.get(name) is not None}
        lm = known.data.get("lm")
        tokenizer = known.data.get("tokenizer") or (lm and tokens_of(lm, known.data.get("base")))
        titles = [channel.title for channel in channels]
        twice = next((title for title in titles if titles.count(title) > 1), None)
        if twice is not None:
            raise ValueError(f"expected channels of different names; two are called '{twice}'")
        if not any(channel.weight > 0 for channel in channels):
            raise ValueError("expected a weight above 0; all are 0")
        if all(channel.relative for channel in channels if channel.weight > 0):
            raise ValueError("expected one whose weight is not relative; set relative: false for one")
        after = _of_warmed(common, known.data.get("warmed"))
        lacking = next((one for one in channels if one.warmed and "lm" not in {*one.settings, *after}), None)
        if lacking is not None:
            raise ValueError(f"expected warmed as well (--warmed FOLDER): {lacking.title} reads the LM after a warm-up")
        return tuple(
            channel.with_common(after if channel.warmed else common, tokenizer)
            for channel in _with_encoder(channels, known)
        )


def _of_warmed(common: Mapping[str, Any], warmed: str | None) -> dict[str, Any]:
    """What is set for all, for channels that read the LM after a warm-up: adapters of that are of the LM before."""
    rest, lm = {name: value for name, value in common.items() if name not in _OF_BEFORE}, common.get("lm")
    if warmed is None:
        return rest
    adapted = lm is not None and (Path(warmed) / ADAPTER_CONFIG).is_file() and not (Path(lm) / ADAPTER_CONFIG).is_file()
    return {**rest, "lm": warmed, **({"base": lm} if adapted else {})}


def _has_warmed(channels: object) -> bool:
    """Whether some channel of a recipe, as it stands in a file or as it is made, reads the LM after a warm-up."""
    return any(
        one.warmed if isinstance(one, Channel) else isinstance(one, Mapping) and bool(one.get("warmed"))
        for one in _listed(channels)
    )


def _with_encoder(channels: Sequence[Channel], known: ValidationInfo) -> Sequence[Channel]:
    """Channels with the encoder that is set for all, where they have one of their own, or else the shipped one."""
    given, named, own = known.data.get("encoder"), set(map(_encoder_of, channels)) - {None}, own_encoders(channels)
    if given is None:
        return channels
    if not named:
        raise ValueError("encoder: belongs to channels that embed texts, and none does; expected one of method airrep")
    if len(own) > 1:
        raise ValueError(
            f"encoder: would stand for several ({', '.join(sorted(own))}); expected channels of one encoder. Name each "
            "in a recipe"
        )
    return [
        channel.model_copy(update={"settings": {**channel.settings, "encoder": given}})
        if _encoder_of(channel) in (own or named)
        else channel
        for channel in channels
    ]


def asked_settings(known: Mapping[str, Any], changes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Settings of an index with changes; by another recipe without what that has no channel for.

    An encoder, or a warmed-up LM, that is set for all channels is left out where the recipe has none.

    Raises:
        ConfigError: as of :meth:`ChannelsSettings.of`.
    """
    values = {**known, **changes}
    if "channels" not in changes:
        return values
    default, asked = values["channels"] == DEFAULT, _named_channels(values["channels"])
    kept = {
        "encoder": bool(own_encoders(asked)) or (default and known.get("encoder") is not None),
        "warmed": default or _has_warmed(asked),
    }
    return {name: one for name, one in values.items() if kept.get(name, True)}


def _named_channels(channels: object) -> object:
    """The channels of a recipe that is named, or what is given in place of a name."""
    if channels == DEFAULT:
        return default_channels()
    if channels == KIND:
        return kind_channels()
    if channels == CONTRAST:
        return contrast_channels()
    return read_channels(os.fspath(channels)) if isinstance(channels, str | os.PathLike) else channels


def own_encoders(channels: object) -> set[str]:
    """The encoders of channels but those that come with airrep."""
    found = (own.get("encoder") for own in _settings_in(channels))
    return {str(name) for name in found if name is not None and name not in BUNDLED}


def _encoder_of(channel: Channel) -> str | None:
    """The encoder of a channel of a sentence encoder; None for others."""
    known = METHOD_SETTINGS.get(channel.method)
    field = None if known is None else known.model_fields.get("encoder")
    return None if field is None else str(channel.settings.get("encoder", field.default))


def default_channels(
    lm: str | None = None,
    gradients: Gradients = "logra",
    map_weights: object = None,
    *,
    warmed: str | None = None,
    tokenizer: str | None = None,
) -> tuple[Channel, ...]:
    """The channels that airrep ships: two counting language models of the response, and its encoder.

    One counts tokens, the other words and what is copied from the prompt. With a target LM what that expects already
    counts less, and its gradients are a channel more: the directions in which they point, by LoGra; or whole ones, by
    EK-FAC, as they pass or as factors; or one of each; with weights of linear maps, if given. With the LM as it is
    after a warm-up the directions of its gradients as well.
    """
    text = _text_channels(lm or tokenizer)
    if lm is None:
        return text
    after = () if warmed is None else (_gradient_channel(warmed, "logra", map_weights).model_copy(update=WARMED),)
    if gradients == "none":
        return (*text, *after)
    if gradients != "both":
        return (*text, _gradient_channel(lm, gradients, map_weights), *after)
    whole = _gradient_channel(lm, "ekfac", map_weights).model_copy(update={"name": "whole gradients"})
    return (*text, _gradient_channel(lm, "logra", map_weights), *after, whole)


def _text_channels(model: str | None) -> tuple[Channel, ...]:
    """N-grams of a model's tokens, as a trainer learns them, or of subwords, n-grams of words, and the encoder."""
    tokens: dict[str, Any] = {"tokenizer": "subwords"} if model is None else {"tokenizer": model, "rendered": True}
    return (
        Channel(
            method="ngram",
            settings={**tokens, "smoothing": SMOOTHING, "skip": GAP_WEIGHT, "space": True},
            name="n-grams of tokens",
        ),
        Channel(
            method="ngram",
            settings={"tokenizer": "words", "smoothing": SMOOTHING, "copied": True},
            weight=WORDS_WEIGHT,
            name="n-grams of words",
        ),
        Channel(
            method="airrep",
            settings={"encoder": STATIC},
            pool="signed-attention",
            temperature=ENCODER_TEMPERATURE,
            weight=ENCODER_WEIGHT,
            name="encoder",
        ),
    )


def _gradient_channel(lm: str, gradients: Gradients, map_weights: object) -> Channel:
    """The LM's gradients, by LoGra or EK-FAC."""
    weights = {} if map_weights is None else {"map_weights": map_weights}
    shared: dict[str, Any] = {"name": "gradients", "relative": "apart"}
    if gradients == "logra":
        settings = {**LograSettings.measured, "lm": lm, **weights}
        pool = settings.pop("pool")
        return Channel(method="logra", settings=settings, pool=pool, weight=GRADIENT_WEIGHT, **shared)
    rank = {"rank": FACTORS_RANK} if gradients == "factors" else {}
    settings = {"lm": lm, "exponent": EKFAC_EXPONENT, **rank, **weights}
    return Channel(method="ekfac", settings=settings, pool="mean", weight=EKFAC_WEIGHT, **shared)


def kind_channels() -> tuple[Channel, ...]:
    """The default channels of text, weighed so that an example of the query's kind has the highest score.

    Effect and kind are two questions: n-grams that few share say what a loss will be, not what kind a text is of, so
    the encoder leads here. Any index of the default channels can be asked so.
    """
    return tuple(
        channel.model_copy(update={"weight": weight})
        for channel, weight in zip(default_channels(), KIND_WEIGHTS, strict=True)
    )


def contrast_channels() -> tuple[Channel, ...]:
    """The default channels of text, and TF-IDF of prompt and response, for bad answers less better ones.

    The default channels hardly see the prompt. Where a bad answer is put in other words, its subject tells which of the
    rows with the same wrong word taught it.
    """
    words = Channel(
        method="tfidf",
        pool="signed-attention",
        temperature=TFIDF_TEMPERATURE,
        weight=TFIDF_WEIGHT,
        name="words of prompt and response",
    )
    return (*default_channels(), words)


def short_text(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as they are shown: of channels, written as JSON, no more than weights and names."""
    channels = settings.get("channels")
    if not isinstance(channels, list | tuple):
        return dict(settings)
    known = (Channel.model_validate(one) for one in channels)
    return {**settings, "channels": " + ".join(f"{one.weight:.3g} × {one.title}" for one in known)}


def _read_lm(channels: object) -> bool:
    """Whether some channel of a recipe has an LM."""
    return any(own.get("lm") is not None for own in _settings_in(channels))


def _settings_in(channels: object) -> Iterator[Mapping[str, Any]]:
    """Settings of each channel of a recipe, as it stands in a file or as it is made."""
    for one in _listed(channels):
        own = one.settings if isinstance(one, Channel) else isinstance(one, Mapping) and one.get("settings")
        if isinstance(own, Mapping):
            yield own


def _listed(channels: object) -> Sequence[object]:
    return channels if isinstance(channels, list | tuple) else ()


def read_channels(name: str) -> object:
    """The list of channels in a YAML file, in ``channels.yaml`` in a folder, or in what `airrep adapt` learnt.

    An encoder's folder that begins with a dot, such as ``.`` or ``./encoder``, is found from the file's own folder.

    Raises:
        ConfigError: the file cannot be read, is too large, or is no list.
        ArtifactError: a directory holds something else.
    """
    path = fetched(name)
    if not path.exists():
        raise ConfigError(
            f"channels={name}: there is no such file; expected {DEFAULT}, {KIND}, {CONTRAST} or a YAML file. Check it."
        )
    if path.is_dir():
        if not (path / RECIPE).exists():
            return _learnt_channels(path)
        path = path / RECIPE
    if path.is_file() and path.stat().st_size > LARGEST:
        raise ConfigError(
            f"{path}: has {path.stat().st_size:,} bytes; expected a list of at most {MOST_CHANNELS} channels."
        )
    content = read_yaml(path)
    channels = content.get("channels") if isinstance(content, dict) else content
    if not isinstance(channels, list):
        raise ConfigError(f"{path}: is no list of channels; expected lines such as '- method: ngram'. Correct it.")
    return tuple(placed(channel, path.parent) for channel in channels)


def placed(channel: object, folder: Path, names: Sequence[str] = ("encoder",)) -> object:
    """A channel whose encoder's folder, if it begins with a dot, is found from the recipe's folder."""
    settings = channel.get("settings") if isinstance(channel, Mapping) else None
    if not isinstance(channel, Mapping) or not isinstance(settings, Mapping):
        return channel
    near = {name: one for name, one in settings.items() if name in names and str(one).startswith(".")}
    found = {name: str((folder / str(one)).resolve()) for name, one in near.items()}
    return {**channel, "settings": {**settings, **found}} if found else channel


MOVED = ("encoder", "lm", "tokenizer")
"""Settings of a channel whose folder may stand beside what was learnt."""


def unplaced(channel: Channel, folder: Path) -> dict[str, Any]:
    """A channel for :func:`placed`, as JSON: a model beside *folder* is named from there, so both may move."""
    folder, kept = folder.resolve(), (*BUNDLED, *TOKENIZERS)
    named = {name: one for name, one in channel.settings.items() if name in MOVED and isinstance(one, str)}
    own = {name: Path(one).resolve() for name, one in named.items() if one not in kept and Path(one).is_dir()}
    beside = {name: os.path.relpath(one, folder) for name, one in own.items() if one.is_relative_to(folder.parent)}
    return channel.model_copy(update={"settings": {**channel.settings, **beside}}).model_dump(mode="json")


def _learnt_channels(path: Path) -> object:
    return tuple(placed(channel, path, MOVED) for channel in read_manifest(path, LEARNT)["channels"])
