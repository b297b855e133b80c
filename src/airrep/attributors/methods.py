"""The methods of training data attribution, by name."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

from airrep.attributors.base import Attributor, parts_of
from airrep.attributors.installed import InstalledMethod, Package, installed_method, installed_methods, one_line
from airrep.attributors.recipes import Channel, ChannelsSettings
from airrep.attributors.settings import METHOD_SETTINGS, refuse_dropped
from airrep.errors import LM, ConfigError, near, nearest, need
from airrep.lm.folders.forms import meant
from airrep.runtime.settings import Settings, read_yaml

Meant: TypeAlias = Callable[[str, bool | None, str | None, bool], bool | None]

TRAINED = ("less", "metagradient", "influence")
"""Methods that read a trained LM: the warm-up of LESS or of a metagradient, or the minimum that influence assumes."""


@dataclass(frozen=True)
class Refused:
    """A method of another package that cannot be used."""

    name: str
    package: Package
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object that `airrep show methods --json` prints for it."""
        return {"name": self.name, "package": self.package._asdict(), "error": self.reason}


FACTS = {
    "summary": "",
    "pool": "sum",
    "needs": "not told",
    "bytes_per_example": "not told",
    "cost": "not told",
    "paper": "",
}
"""Facts that `airrep show methods` prints of each method, with the text for methods that do not state them."""


@dataclass(frozen=True)
class Method:
    """An attribution method: its name, its settings, and where its class is."""

    name: str
    settings: type[Settings]
    place: str
    """``module:class``, imported only when needed: some modules load torch."""
    modules: tuple[str, ...] = ()
    """Modules of the extra ``lm`` that the method needs."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    installed: InstalledMethod | None = None
    """The entry point of another package's method; None for airrep's own methods."""

    @classmethod
    def of_package(cls, found: InstalledMethod) -> "Method":
        """Import another package's method and describe it.

        ConfigError: the method cannot be used; the reason is one line.
        """
        if found.name in METHODS:
            raise ConfigError(f"{found}: a method of airrep has the same name. Rename the entry point in the package.")
        factory = found.factory
        return cls(found.name, factory.settings, ":".join(factory.place), installed=found)

    @property
    def facts(self) -> dict[str, str]:
        """The texts that `airrep show methods` prints, by the names of :data:`FACTS`."""
        if self.installed is not None:
            factory = self.installed.factory
            own = {**FACTS, "summary": factory.summary, "pool": "its own"}
            return {name: one_line(factory.fact(name, text)) for name, text in own.items()}
        return {**FACTS, **read_yaml(Path(__file__).with_name("methods.yaml"))[self.name]}

    @property
    def package(self) -> Package | None:
        """The package that the method comes from; None for airrep's own methods."""
        return None if self.installed is None else self.installed.package

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object that `airrep show methods --json` prints for it."""
        from pydantic import TypeAdapter

        plain = TypeAdapter(Any).dump_python
        more = {} if self.package is None else {"package": self.package._asdict()}
        settings = {
            name: {"default": plain(default, mode="json"), "help": text} for name, default, text in self.options
        }
        return {"name": self.name, **self.facts, "settings": settings, **more}

    @property
    def options(self) -> tuple[tuple[str, Any, str], ...]:
        """Name, default and meaning of each setting; the default of a required setting is None."""
        fields, meanings = self.settings.model_fields.items(), self.settings.meanings()
        return tuple(
            (
                name,
                self.defaults.get(name, None if known.is_required() else known.get_default(call_default_factory=True)),
                meanings.get(name, ""),
            )
            for name, known in fields
        )

    def make(self, settings: Settings) -> Attributor:
        if self.installed is not None:
            return self.installed.make(settings)
        need(f"method {self.name}", "lm", *self.modules)
        module, _, attribute = self.place.partition(":")
        return getattr(import_module(module), attribute)(settings)


_PLACES = {
    "airrep": "encoder:AirRepAttributor",
    "gte": "encoder:EmbeddingAttributor",
    "tfidf": "text.lexical:TfidfAttributor",
    "bm25": "text.lexical:Bm25Attributor",
    "ngram": "text.ngram_lm:NgramAttributor",
    "rds": "language:RdsAttributor",
    "dsir": "text.lexical:DsirAttributor",
    "tracin": "gradient.base:TracinAttributor",
    "logra": "gradient.logra:LograAttributor",
    "ekfac": "gradient.ekfac:EkfacAttributor",
    "trak": "gradient.trak:TrakAttributor",
    "dsdm": "gradient.trak:DsdmAttributor",
    "less": "gradient.run.less:LessAttributor",
    "metagradient": "gradient.run.metagradient:MetagradientAttributor",
    "influence": "gradient.influence:InfluenceAttributor",
    "datamodels": "datamodels:DatamodelsAttributor",
    "channels": "sums.channels:ChannelsAttributor",
    "precomputed": "precomputed:PrecomputedAttributor",
}
_READ_LM = ("rds", "tracin", "logra", "ekfac", "trak", "dsdm", "less", "metagradient", "influence")
_DEFAULTS = {"airrep": {"encoder": "default"}, "gte": {"encoder": "thenlper/gte-small"}}

METHODS: Mapping[str, Method] = {
    name: Method(
        name,
        METHOD_SETTINGS.get(name, ChannelsSettings),
        f"{__package__}.{place}",
        LM if name in _READ_LM else (),
        _DEFAULTS.get(name, {}),
    )
    for name, place in _PLACES.items()
}
"""airrep's own methods, by the name that users type."""


def method_named(name: str) -> Method:
    """Return the method of this name, airrep's own or an installed package's.

    ConfigError: the method does not exist, two packages declare it, or its package is broken.
    """
    if name in METHODS:
        return METHODS[name]
    refuse_dropped(name, {})
    found = installed_method(name)
    if found is None:
        known = [*METHODS, *installed_methods()]
        meant = near(name, known, "See: airrep show methods")
        raise ConfigError(f"method '{name}': does not exist; expected one of {nearest(name, known)}. {meant}")
    return Method.of_package(found)


def is_known(name: str) -> bool:
    """Return whether a method of this name exists, without importing a package."""
    return name in METHODS or name in installed_methods()


def methods_of_packages() -> Iterator[Method | Refused]:
    """Yield the methods that installed packages declare, sorted by name; a method that cannot be used as Refused."""
    for name, several in installed_methods().items():
        for found in several:
            try:
                if found.name not in METHODS:
                    installed_method(name)  # refuses a name that two packages declare
                yield Method.of_package(found)
            except ConfigError as error:
                yield Refused(found.name, found.package, str(error))


def packages_of(attributor: Attributor) -> dict[str, dict[str, str]]:
    """Return the packages, by method name, that an attributor's method or its channels' methods come from."""
    names = {part.name for part in parts_of(attributor)} - set(METHODS)
    declared = installed_methods() if names else {}
    return {name: declared[name][0].package._asdict() for name in sorted(names) if name in declared}


def make_attributor(name: str, values: Mapping[str, Any] | None = None) -> Attributor:
    """Make an attributor from its method's name and settings; other settings take the method's defaults.

    Raises:
        ConfigError: the method or a setting does not exist, or a value is not valid.

    Example:
        >>> method = airrep.make_attributor("ngram", {"tokenizer": "words"})
        >>> method.name, str(method.pooling())
        ('ngram', 'ngram-lm')
    """
    method = method_named(name)
    if not isinstance(values or {}, Mapping):
        raise ConfigError(f"method '{name}': settings must be a dict, not {values!r}.")
    refuse_dropped(name, values or {})
    where = "recipe" if name == "channels" else f"method '{name}'"
    settings = method.settings.of({**method.defaults, **(values or {})}, where)
    return method.make(settings)


def before_training(method: Attributor) -> Attributor:
    """Return the method with its LMs as before fine-tuning, without adapters (:func:`airrep.lm.folders.forms.meant`).

    An LM that is meant to be trained stays as it is: for methods in :data:`TRAINED`, with ``checkpoints=all``, and for
    channels with ``warmed``. ConfigError: an LM seems to be trained already, or is not found.
    """
    chosen = _before_training(method.name, method.settings, how := cache(meant))
    if isinstance(chosen, ChannelsSettings):
        channels = tuple(_channel_before_training(one, how) for one in chosen.channels)
        chosen = chosen.model_copy(update={"channels": channels})
    return method if chosen == method.settings else method_named(method.name).make(chosen)


def channels_before_training(channels: Sequence[Channel]) -> tuple[Channel, ...]:
    """Change channels as :func:`before_training` changes a method, with the same errors."""
    how = cache(meant)  # it logs, so once for each LM
    return tuple(_channel_before_training(one, how) for one in channels)


def _channel_before_training(channel: Channel, how: Meant) -> Channel:
    known = METHOD_SETTINGS.get(channel.method)
    if known is None or channel.warmed or channel.settings.get("lm") is None:
        return channel
    own = known.of(channel.settings, where=f"channel {channel.title}")
    chosen = _before_training(channel.method, own, how)
    if chosen == own:
        return channel
    return channel.model_copy(update={"settings": chosen.model_dump(mode="json", exclude_unset=True)})


def _before_training(name: str, settings: Settings, how: Meant) -> Settings:
    lm = getattr(settings, "lm", None)
    trained = name in TRAINED or getattr(settings, "checkpoints", "final") == "all"
    if lm is None or trained or "merged" not in type(settings).model_fields:
        return settings
    need(f"lm {lm}", "lm", *LM)  # before anything is fetched from the Hub
    said, base, trusted = (getattr(settings, key, None) for key in ("merged", "base", "trust_remote_code"))
    merged = how(lm, said, base, bool(trusted))
    return settings if merged == said else settings.model_copy(update={"merged": merged})
