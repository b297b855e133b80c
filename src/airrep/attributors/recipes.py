"""Recipes: YAML files that list the channels of an index, read and checked."""

import math
import os
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from pydantic import Field, ValidationInfo, field_validator, model_validator

from airrep.attributors.installed import installed_method, installed_methods
from airrep.attributors.settings import (
    METHOD_SETTINGS,
    TOKENIZERS,
    refuse_dropped,
    tokens_of,
    whole_encoder,
    whole_model,
)
from airrep.encoder.folders import BUNDLED
from airrep.errors import ConfigError, UnknownSettingError, near, nearest
from airrep.lm.folders.forms import ADAPTER_CONFIG
from airrep.lm.settings import LmReading
from airrep.runtime.artifacts import fetched
from airrep.runtime.settings import Settings, read_yaml
from airrep.scoring.pooling import Pooling

MOST_CHANNELS = 16
"""Most channels of a recipe: more would take time, and add little to the others."""
SHIPPED = Path(__file__).parents[1] / "recipes"
"""Folder of the recipes that come with airrep."""
OF_LM = ("max_tokens", "cut", "template", "batch_tokens", "memory")
"""Settings of how an LM reads examples; encoders have different settings with the same names."""
_COMMON = ("lm", "device", "precision", *LmReading.model_fields)
"""Settings that channels share."""
_OF_BEFORE = ("lm", "base", "merged")
"""Shared settings that choose the LM before a warm-up."""
RECIPE = "channels.yaml"
"""Name of the recipe's file in a folder that holds a recipe."""
LARGEST_WEIGHT = 1e30
"""Largest weight of a channel: above it ordinary scores do not fit in float32."""
KEEPS_NOTHING = ("ekfac",)
"""Methods that store no features and read all examples again for each new question."""
LARGEST = 2**20
"""Largest size of a recipe's file, in bytes."""
LEARNT = "recipe"
"""Kind of the artifact that holds a recipe learnt from labels."""


class Channel(Settings):
    """One channel: a method with its settings, a pool and a weight."""

    method: str
    """Name of the method; any but channels."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Settings of the method."""
    pool: str | None = None
    """How the scores of a group's members are pooled; None takes the method's own pool."""
    temperature: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Temperature of attention: the larger, the flatter."""
    weight: float = Field(default=1.0, ge=0, le=LARGEST_WEIGHT, allow_inf_nan=False)
    """Factor on the channel's scores, of examples and of groups; 0 leaves the channel out."""
    relative: bool = False
    """Scale the channel's scores, for each query, to the size of the sum of the channels that are not relative, so that
    one weight suits LMs whose gradients differ in size. The scores are also multiplied by 1 − ρ, where ρ is their
    correlation with that sum, so that a channel counts for more where it says what the others do not. Sizes and ρ are
    measured on random groups of the training corpus."""
    warmed: bool = False
    """Read the LM after a warm-up, which --warmed names."""
    candidates: int | str | None = None
    """Number of examples, or a share such as '1%', that the channel scores for each query: those that the other
    channels rank first. The other examples' scores are predicted from the other channels' scores. None: all examples
    are scored. Only for channels that store no features (ekfac)."""
    name: str | None = None
    """Name in results; None takes method and view."""

    added: ClassVar[tuple[str, ...]] = ("candidates",)

    @field_validator("candidates", mode="before")
    @classmethod
    def _some(cls, candidates: object) -> object:
        count, share = type(candidates) is int and candidates >= 1, isinstance(candidates, str) and _percent(candidates)
        if candidates is None or count or 0 < share <= 100:
            return candidates
        raise ValueError("candidates must be a number of examples, at least 1, or a share such as '1%'")

    def count_of(self, examples: int) -> int:
        """Return how many of *examples* the channel scores."""
        if self.candidates is None:
            return examples
        if isinstance(self.candidates, int):
            return min(self.candidates, examples)
        return math.ceil(examples * _percent(self.candidates) / 100)

    @field_validator("method")
    @classmethod
    def _no_sum(cls, method: str) -> str:
        if method == "channels":
            raise ValueError(
                "a recipe (list of methods) cannot contain the method 'channels', which is itself a sum of methods. "
                "List the methods of this sum one by one"
            )
        return method

    @model_validator(mode="after")
    def _reads_lm(self) -> "Channel":
        if self.warmed and self.method in METHOD_SETTINGS and not self.has("lm"):
            raise ValueError(f"warmed: must be false, because {self.method} reads no language model")
        return self

    def has(self, setting: str) -> bool:
        """Return whether the method has a setting of this name."""
        known = self.known
        return known is not None and setting in known.model_fields

    @cached_property
    def known(self) -> type[Settings] | None:
        """The settings class of the method, airrep's or another package's; None if the method does not exist."""
        if self.method in METHOD_SETTINGS:
            return METHOD_SETTINGS[self.method]
        found = installed_method(self.method)
        return None if found is None else found.factory.settings

    @property
    def encoder(self) -> str | None:
        """The encoder of a channel that embeds texts; None for others."""
        known = self.known
        field = None if known is None or not self.has("encoder") else known.model_fields["encoder"]
        return None if field is None else str(self.settings.get("encoder", field.default))

    def with_settings(self, settings: Mapping[str, Any]) -> "Channel":
        """Return a copy of the channel with these settings as well."""
        return self.model_copy(update={"settings": {**self.settings, **settings}})

    def complete(self, common: Mapping[str, Any], tokenizer: str | None) -> "Channel":
        """Return a copy with the common settings that its method has, and whole paths (ConfigError: a bad setting)."""
        known = self.known
        if known is None:
            return self
        given = {
            name: value for name, value in common.items() if self.has(name) and (self.has("lm") or name not in OF_LM)
        }
        if tokenizer is not None and self.has("tokenizer") and self.settings.get("tokenizer") != "words":
            given["tokenizer"] = tokenizer
        checked = known.of({**self.settings, **given}, where=f"channel {self.title}")
        return self.model_copy(update={"settings": checked.model_dump(mode="json", exclude_unset=True)})

    @property
    def title(self) -> str:
        """The name in results."""
        view = self.settings.get("view")
        return self.name or (f"{self.method} {view}" if view else self.method)


def _percent(share: str) -> float:
    """Return a share such as "1%" in percent; NaN if the text is not a share."""
    try:
        return float(share.removesuffix("%")) if share.endswith("%") else math.nan
    except ValueError:
        return math.nan


RecipeLike: TypeAlias = str | os.PathLike[str] | Sequence[Channel | Mapping[str, Any]]
"""A shipped recipe's name, a YAML file or its folder, or channels."""


class ChannelsSettings(LmReading):
    """Settings of an index built with a recipe: the channels, and settings for all of them.

    Any other setting goes to each channel whose method has it.
    """

    tokenizer: str | None = Field(default=None, min_length=1)
    """Folder or Hub id of a model, best the target LM, whose tokens are counted, except by channels that count words.
    None: the LM's tokens, or those of the LM that comes with airrep."""
    lm: str | None = Field(default=None, min_length=1)
    """Target LM before fine-tuning, a folder or a Hub id, for the recipe's channels that read an LM.
    Its tokens are counted, less if it expects them already."""
    warmed: str | None = Field(default=None, min_length=1)
    """The LM after a warm-up, a folder or a Hub id, for the recipe's channels with warmed: true."""
    encoder: str | None = Field(default=None, min_length=1)
    """Sentence encoder, a folder or a Hub id, in place of the one that channels of the recipe name, such as one that
    has moved, or else in place of the one that comes with airrep."""
    device: str | None = None
    """Device of all channels that compute on one: auto, cpu, cuda or cuda:N."""
    precision: str | None = None
    """Precision of all channels that read an LM: auto, float32 or bfloat16."""
    channels: tuple[Channel, ...] = Field(
        default_factory=lambda: read_channels("text"), min_length=1, max_length=MOST_CHANNELS
    )
    """The channels. They are kept with the index."""

    @model_validator(mode="before")
    @classmethod
    def _read(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Read a recipe that is named, or take the one that suits the LMs that are given."""
        refuse_dropped("channels", values)
        named = values.get("channels")
        channels = listed(default_recipe(values) if named is None else named)
        own = {name: value for name, value in values.items() if name not in cls.model_fields}
        channels, others = _distributed(channels, own)
        if "candidates" in others:
            raise ConfigError(
                "recipe (list of methods): the setting 'candidates' works only with methods that store no features, "
                "such as ekfac. Use --recipe lm-whole, or remove 'candidates'."
            )
        if unknown := next((name for name in others if name not in cls.model_fields), None):
            of_channels = (one for channel in channels for one in (channel.known.model_fields if channel.known else ()))
            raise UnknownSettingError("recipe (list of methods)", unknown, {*cls.model_fields, *of_channels})
        read = values.get("lm") is not None or any(one.settings.get("lm") is not None for one in channels)
        if values.get("warmed") is not None and not (read and any(one.warmed for one in channels)):
            raise ValueError(
                "warmed works only with lm and a recipe that reads the fine-tuned LM. Set recipe to lm-warm or "
                "lm-whole-warm, and lm to the original LM, which `airrep warmup` fine-tuned"
            )
        unread = next((name for name in OF_LM if values.get(name) is not None), None)
        if unread is not None and not read:
            raise ValueError(
                f"{unread}: has no effect, because no language model is given. Set lm (--lm MODEL), or remove {unread}"
            )
        return {**{name: one for name, one in values.items() if name not in own}, **others, "channels": channels}

    _whole_paths = field_validator("tokenizer", "lm", "warmed")(whole_model)
    _whole_folder = field_validator("encoder")(whole_encoder)

    @field_validator("channels")
    @classmethod
    def _complete(cls, channels: tuple[Channel, ...], known: ValidationInfo) -> tuple[Channel, ...]:
        """Check the channels, and give each of them the common settings that its method has."""
        _check_sum(channels)
        common = {name: known.data[name] for name in _COMMON if known.data.get(name) is not None}
        lm = known.data.get("lm")
        tokenizer = known.data.get("tokenizer") or (lm and tokens_of(lm, known.data.get("base")))
        after = _of_warmed(common, known.data.get("warmed"))
        slots = {False: common, True: after}
        lacking = _unfilled(channels, slots)
        if lacking is not None and lacking.warmed:
            raise ValueError(
                f"method '{lacking.title}' of the recipe needs the LM that `airrep warmup` wrote. Add --warmed FOLDER"
            )
        if lacking is not None:
            raise ValueError(
                f"method '{lacking.title}' of the recipe reads the LM that your fine-tuning starts from. Set lm too: "
                "--lm MODEL"
            )
        return tuple(one.complete(slots[one.warmed], tokenizer) for one in _with_encoder(channels, known))


def _unfilled(channels: Sequence[Channel], slots: Mapping[bool, Collection[str]]) -> Channel | None:
    """Return the first channel without the LM that it needs; *slots* has settings by ``warmed`` (True: after it)."""
    for one in channels:
        field = None if one.known is None else one.known.model_fields.get("lm")
        if field and "lm" not in {*one.settings, *slots[one.warmed]} and (one.warmed or field.is_required()):
            return one
    return None


def _check_sum(channels: Sequence[Channel]) -> None:
    titles = [channel.title for channel in channels]
    twice = next((title for title in titles if titles.count(title) > 1), None)
    if twice is not None:
        raise ValueError(f"two channels (methods) have the name '{twice}'. Give each its own name")
    if not any(channel.weight > 0 for channel in channels):
        raise ValueError("no method of the recipe has a weight above 0. Set a weight above 0 for at least one method")
    if all(channel.relative for channel in channels if channel.weight > 0):
        raise ValueError(
            "the methods of a recipe cannot all have 'relative: true', which scales a method's scores to those of the "
            "other methods. Set 'relative: false' for one method with a weight above 0"
        )
    if all(channel.relative or channel.candidates is not None for channel in channels if channel.weight > 0):
        raise ValueError(
            "candidates: every method has 'candidates' or 'relative', which both need the scores of another method. "
            "Remove 'candidates' and 'relative' from at least one method of the recipe"
        )


def _distributed(channels: Sequence[Channel], own: Mapping[str, Any]) -> tuple[tuple[Channel, ...], dict[str, Any]]:
    """Give settings to the channels whose methods have them; return the channels, and the settings left over.

    ``candidates`` goes to channels whose methods store no features.
    """
    placed = [one.with_settings({name: value for name, value in own.items() if one.has(name)}) for one in channels]
    others = {name: value for name, value in own.items() if not any(one.has(name) for one in channels)}
    if "candidates" in others and any(one.method in KEEPS_NOTHING for one in placed):
        some = {"candidates": others.pop("candidates")}
        placed = [
            Channel.of(one.model_dump() | some, "recipe") if one.method in KEEPS_NOTHING else one for one in placed
        ]
    return tuple(placed), others


def _of_warmed(common: Mapping[str, Any], warmed: str | None) -> dict[str, Any]:
    """Return common settings for channels that read the LM after a warm-up; its adapters need the LM before."""
    rest, lm = {name: value for name, value in common.items() if name not in _OF_BEFORE}, common.get("lm")
    if warmed is None:
        return rest
    if lm is not None and (Path(lm) / ADAPTER_CONFIG).is_file():
        lm = None if common.get("merged") else common.get("base")
    adapted = lm is not None and (Path(warmed) / ADAPTER_CONFIG).is_file()
    return {**rest, "lm": warmed, **({"base": lm} if adapted else {})}


def _with_encoder(channels: Sequence[Channel], known: ValidationInfo) -> Sequence[Channel]:
    """Put the encoder that is set for all into the channels that name their own; if none does, into all that embed."""
    given, named, own = known.data.get("encoder"), {one.encoder for one in channels} - {None}, own_encoders(channels)
    if given is None:
        return channels
    if not named:
        raise ValueError(
            "encoder: has no effect, because no method of the recipe uses an encoder. Add the method "
            "named airrep, which uses an encoder, to the recipe"
        )
    if len(own) > 1:
        raise ValueError(
            f"encoder: would replace several encoders of the recipe ({', '.join(sorted(own))}). Leave encoder "
            "out, and name the encoder of each method in the recipe"
        )
    return [one.with_settings({"encoder": given}) if one.encoder in (own or named) else one for one in channels]


def asked_settings(known: Mapping[str, Any], changes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an index's settings with changes, such as another recipe.

    An encoder or a warmed-up LM of the index is left out if the new recipe has no channel for it. ConfigError: a
    channel of the new recipe reads an LM that the index was built without.
    """
    if "channels" not in changes:
        return {**known, **changes}
    asked, given = listed(changes["channels"]), {**known, **changes}
    slots = {after: ["lm"] if given.get(name) else [] for after, name in ((False, "lm"), (True, "warmed"))}
    lacking = _unfilled(asked, slots)
    if lacking is not None:
        flag = "--warmed FOLDER" if lacking.warmed else "--lm MODEL"
        raise ConfigError(
            f"recipe (list of methods): its method '{lacking.title}' reads a language model, but the index was built "
            f"without {flag.split()[0]}. Build a new index (airrep index DATA --recipe ... {flag}), or remove "
            "--recipe."
        )
    shipped = isinstance(changes["channels"], str) and changes["channels"] in shipped_recipes()
    kept = {
        "encoder": bool(own_encoders(asked)) or (shipped and known.get("encoder") is not None),
        "warmed": any(one.warmed for one in asked),
    }
    return {name: one for name, one in given.items() if kept.get(name, True)}


def own_encoders(channels: Sequence[Channel]) -> set[str]:
    """Return the encoders that channels name, except those that come with airrep."""
    found = (one.settings.get("encoder") for one in channels)
    return {str(name) for name in found if name is not None and name not in BUNDLED}


def default_recipe(settings: Mapping[str, Any]) -> str:
    """Return the name of the recipe that is used if none is named."""
    if settings.get("lm") is None:
        return "text"
    return "lm" if settings.get("warmed") is None else "lm-warm"


def shipped_recipes() -> tuple[str, ...]:
    """Names of the recipes that come with airrep."""
    names = (path.relative_to(SHIPPED).with_suffix("").as_posix() for path in SHIPPED.rglob("*.yaml"))
    return tuple(sorted(names, key=lambda name: (name.startswith("papers/"), name)))


def recipe_of(channels: Sequence[Channel]) -> str:
    """Return the name of the shipped recipe that these channels come from; without one, the channels' own names.

    Example:
        >>> recipe_of(read_channels("kind"))
        'kind'
    """
    weighed = [one.model_dump(exclude={"settings", "candidates"}) for one in channels]
    for name in shipped_recipes():
        known = listed(name)
        if [one.model_dump(exclude={"settings", "candidates"}) for one in known] == weighed and all(
            own.settings.get(setting) == value
            for one, own in zip(known, channels, strict=True)
            for setting, value in one.settings.items()
            if setting not in ("tokenizer", "encoder")  # options replace these; further settings do not matter
        ):
            return name
    return f"of its own ({', '.join(one.title for one in channels)})"


def recipe_text(name: str | None = None) -> str:
    """Return the text of a shipped recipe's file; without a name, a line for each: name and first line of the file.

    ConfigError: the recipe does not exist.
    """
    if name is None:
        first = {one: (SHIPPED / f"{one}.yaml").read_text("utf-8").partition("\n")[0] for one in shipped_recipes()}
        return "\n".join(f"{one:<15} {line.removeprefix('# ')}" for one, line in first.items()) + "\n"
    if name not in shipped_recipes():
        listed(name)  # raises if it is not a recipe at all
        raise ConfigError(
            f"recipe {name}: cannot be shown, because it does not come with airrep. Open its YAML file to read it."
        )
    return (SHIPPED / f"{name}.yaml").read_text("utf-8")


def listed(recipe: object) -> tuple[Channel, ...]:
    """Return the channels of a recipe: a shipped name, a YAML file, a folder, or a list of channels.

    ConfigError: the recipe does not exist, or one of its channels is not valid.
    """
    if isinstance(recipe, str | os.PathLike):
        return read_channels(os.fspath(recipe))
    if not isinstance(recipe, list | tuple):
        raise ConfigError(f"recipe is {recipe!r}; it must be a list of methods, such as [{{'method': 'ngram'}}].")
    return tuple(
        one if isinstance(one, Channel) else _channel(one, f"channel {number}") for number, one in enumerate(recipe, 1)
    )


def _channel(value: object, where: str) -> Channel:
    """Read one channel of a recipe (ConfigError: one of its names or values is not valid)."""
    if not isinstance(value, Mapping):
        raise ConfigError(
            f"{where}: {value!r} is not a method with its settings. Write lines such as '- method: ngram'."
        )
    one = Channel.of({"method": "", **{str(name): own for name, own in value.items()}}, where)
    refuse_dropped(one.method, one.settings, f"{where}: ")
    if one.known is None:
        known = (*METHOD_SETTINGS, *installed_methods())
        told = f"method '{one.method}': does not exist; expected one of {nearest(one.method, known)}"
        raise ConfigError(f"{where}: {told}. {near(one.method, known, 'See: airrep show methods')}")
    names = one.known.model_fields
    odd = next((name for name in one.settings if name not in names), None)
    if odd is not None:
        raise UnknownSettingError(f"{where}: {one.method}", odd, names)
    if one.pool is not None:
        Pooling.parse(one.pool, where=f"{where}: pool {one.pool}")
    return one


def short_text(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that have a value, for display; channels as text of their weights and names."""
    given = {name: value for name, value in settings.items() if value is not None}
    channels = given.get("channels")
    if not isinstance(channels, list | tuple):
        return given
    known = (Channel.model_validate(one) for one in channels)
    return {**given, "channels": " + ".join(f"{one.weight:.3g} × {one.title}" for one in known)}


def read_channels(name: str) -> tuple[Channel, ...]:
    """Return the channels of a shipped recipe, of a YAML file, or of a folder with ``channels.yaml``.

    The channels have no LM yet unless the file names one. A model's folder that begins with a dot, such as ``.`` or
    ``./encoder``, is found from the file's own folder.

    Example:
        >>> [channel.title for channel in read_channels("text")]
        ['n-grams of tokens', 'n-grams of words', 'encoder']

    Raises:
        ConfigError: the recipe does not exist, cannot be read, is too large, or has no channels.
        ArtifactError: a directory holds something else.
    """
    path = SHIPPED / f"{name}.yaml" if name in shipped_recipes() else fetched(name)
    if not path.exists():
        told = near(name, shipped_recipes(), "See: airrep show recipes")
        raise ConfigError(
            f"recipe {name}: does not exist; expected {', '.join(shipped_recipes())}, or a YAML file that lists "
            f"methods. {told}"
        )
    path = path / RECIPE if path.is_dir() else path
    if not path.is_file():
        raise ConfigError(
            f"recipe {name}: the folder has no {RECIPE}. Give a YAML file that lists methods, or make the recipe again."
        )
    if path.stat().st_size > LARGEST:
        raise ConfigError(
            f"{path}: has {path.stat().st_size:,} bytes, but a recipe (list of methods) may have at most {LARGEST:,} "
            "bytes. Give a smaller file."
        )
    content = read_yaml(path)
    channels = content.get("channels") if isinstance(content, dict) else content
    if not isinstance(channels, list):
        raise ConfigError(f"{path}: is not a recipe (list of methods). Write lines such as '- method: ngram'.")
    made = [_channel(placed(one, path.parent), f"{path}: channel {number}") for number, one in enumerate(channels, 1)]
    try:
        _check_sum(made)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}. Correct the recipe.") from error
    return tuple(made)


MOVED = ("encoder", "lm", "tokenizer")
"""Settings of a channel that may name a folder relative to the recipe's."""


def placed(channel: object, folder: Path) -> object:
    """Return a channel with whole paths; folders of models that begin with a dot are relative to the recipe's."""
    settings = channel.get("settings") if isinstance(channel, Mapping) else None
    if not isinstance(channel, Mapping) or not isinstance(settings, Mapping):
        return channel
    near = {name: one for name, one in settings.items() if name in MOVED and str(one).startswith(".")}
    found = {name: str((folder / str(one)).resolve()) for name, one in near.items()}
    return {**channel, "settings": {**settings, **found}} if found else channel


def unplaced(channel: Channel, folder: Path) -> dict[str, Any]:
    """Undo :func:`placed`, as JSON: a model beside *folder* gets a relative path, so that both can be moved."""
    folder, kept = folder.resolve(), (*BUNDLED, *TOKENIZERS)
    named = {name: one for name, one in channel.settings.items() if name in MOVED and isinstance(one, str)}
    own = {name: Path(one).resolve() for name, one in named.items() if one not in kept and Path(one).is_dir()}
    beside = {name: os.path.relpath(one, folder) for name, one in own.items() if one.is_relative_to(folder.parent)}
    return channel.with_settings(beside).model_dump(mode="json")
