"""The methods of training data attribution, by name."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any, TypeAlias

from airrep.attributors.base import Attributor, SeveralMethods
from airrep.attributors.installed import InstalledMethod, Package, installed_method, installed_methods, one_line
from airrep.attributors.recipes import Channel, ChannelsSettings
from airrep.attributors.settings import METHOD_SETTINGS, refuse_dropped
from airrep.errors import LM, ConfigError, near, need
from airrep.lm.folders.forms import meant
from airrep.runtime.settings import Settings

Meant: TypeAlias = Callable[[str, bool | None, str | None, bool], bool | None]

TRAINED = ("less", "influence")
"""Methods whose LM is trained already: on the way, with adapters and moments, or to a minimum of its loss."""


@dataclass(frozen=True)
class Refused:
    """A method of another package that cannot be used."""

    name: str
    package: Package
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """The JSON object that `airrep show methods --json` prints."""
        return {"name": self.name, "package": self.package.to_dict(), "error": self.reason}


@dataclass(frozen=True)
class Method:
    """A method's entry: facts for `airrep show methods`, settings, and the place of its class."""

    name: str
    summary: str
    needs: str
    bytes_per_example: str
    cost: str
    settings: type[Settings]
    location: tuple[str, str]
    """Module and name of the class, which is imported when it is needed: some load torch."""
    pool: str = "sum"
    paper: str = ""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    modules: tuple[str, ...] = ()
    """Of the extra lm, which it cannot do without."""
    installed: InstalledMethod | None = None
    """Where another package brings it: what makes it."""

    @classmethod
    def of_package(cls, found: InstalledMethod) -> "Method":
        """The entry of another package's method, which is imported for it.

        Raises:
            ConfigError: the method cannot be used; the reason is one line.
        """
        if found.name in METHODS:
            raise ConfigError(f"{found}: has the name of a method of airrep. Rename the entry point in the package.")
        factory = found.factory
        return cls(
            name=found.name,
            summary=one_line(factory.summary),
            pool=one_line(factory.fact("pool", "its own")),
            needs=one_line(factory.fact("needs", "not told")),
            bytes_per_example=one_line(factory.fact("bytes_per_example", "not told")),
            cost=one_line(factory.fact("cost", "not told")),
            paper=one_line(factory.fact("paper", "")),
            settings=factory.settings,
            location=factory.place,
            installed=found,
        )

    @property
    def package(self) -> Package | None:
        """The package that brings it; None for those of airrep."""
        return None if self.installed is None else self.installed.package

    def to_dict(self) -> dict[str, Any]:
        """The JSON object that `airrep show methods --json` prints."""
        from pydantic import TypeAdapter

        plain = TypeAdapter(Any).dump_python
        shown = ("name", "summary", "pool", "needs", "bytes_per_example", "cost", "paper")
        more = {} if self.package is None else {"package": self.package.to_dict()}
        return {name: getattr(self, name) for name in shown} | {
            "settings": {
                name: {"default": plain(default, mode="json"), "help": text} for name, default, text in self.options
            },
            **more,
        }

    @property
    def options(self) -> tuple[tuple[str, Any, str], ...]:
        """Name, default and meaning of each setting; the default is None where it must be given."""
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
        """The attributor of these settings."""
        if self.installed is not None:
            return self.installed.make(settings)
        need(f"method {self.name}", "lm", *self.modules)
        module, attribute = self.location
        attributor: Attributor = getattr(import_module(module), attribute)(settings)
        return attributor


_DENSE = "3 per dimension, and 12"
_RANKED = "rank² × modules: 13,836 for the 72 MLP maps of a 0.5B Qwen2.5 at rank 8"
_RANKED_ALL = "rank² × modules: 32,268 for the 168 linear maps of a 0.5B Qwen2.5 at rank 8"
_BACKWARD = "about 2.5 forward passes of the LM"

METHODS: Mapping[str, Method] = {
    method.name: method
    for method in (
        Method(
            name="airrep",
            summary="sentence encoder with attention pooling, trained to rank subsets by what fine-tuning on them does",
            pool="attention",
            needs="nothing (the encoder is shipped), or --encoder MODEL",
            bytes_per_example=f"{_DENSE}: 1,164 at 384 dimensions",
            cost="1 forward pass of the encoder",
            paper="AirRep, arXiv 2505.18513",
            settings=METHOD_SETTINGS["airrep"],
            defaults={"encoder": "default"},
            location=("airrep.attributors.encoder", "AirRepAttributor"),
        ),
        Method(
            name="gte",
            summary="any sentence encoder as it is, with the prompts of its card, scores summed over a group",
            needs="an encoder from the Hub (thenlper/gte-small), or --encoder MODEL",
            bytes_per_example=f"{_DENSE}: 1,164 at 384 dimensions",
            cost="1 forward pass of the encoder",
            paper="GTE, arXiv 2308.03281",
            settings=METHOD_SETTINGS["gte"],
            defaults={"encoder": "thenlper/gte-small"},
            location=("airrep.attributors.encoder", "EmbeddingAttributor"),
        ),
        Method(
            name="tfidf",
            summary="unit TF-IDF rows, scores summed over a group",
            needs="nothing",
            bytes_per_example="8 for each distinct term of the text",
            cost="no model",
            paper="Spärck Jones 1972",
            settings=METHOD_SETTINGS["tfidf"],
            location=("airrep.attributors.text.lexical", "TfidfAttributor"),
        ),
        Method(
            name="bm25",
            summary="BM25 of the examples for the query's words, scores summed over a group",
            needs="nothing",
            bytes_per_example="8 for each distinct term of the text",
            cost="no model",
            paper="Robertson and Zaragoza 2009",
            settings=METHOD_SETTINGS["bm25"],
            location=("airrep.attributors.text.bm25", "Bm25Attributor"),
        ),
        Method(
            name="ngram",
            summary="counting language model of the responses: how much likelier a group makes the query's n-grams",
            pool="ngram-lm",
            needs="nothing; best the target LM's tokenizer: --set tokenizer=MODEL",
            bytes_per_example="8 for each different n-gram of the response, of all orders",
            cost="no model",
            paper="ours",
            settings=METHOD_SETTINGS["ngram"],
            location=("airrep.attributors.text.ngram_lm", "NgramAttributor"),
        ),
        Method(
            name="rds",
            summary="hidden states of a language model, averaged over the tokens",
            needs="--lm MODEL",
            bytes_per_example=f"{_DENSE}, the LM's width",
            cost="1 forward pass of the LM, less for lower layers",
            paper="Hanawa et al., arXiv 2006.04528",
            settings=METHOD_SETTINGS["rds"],
            location=("airrep.attributors.language", "RdsAttributor"),
            modules=LM,
        ),
        Method(
            name="dsir",
            summary="hashed n-gram counts, weighed by how much likelier the query makes them than the corpus",
            needs="nothing",
            bytes_per_example="8 for each distinct bucket of the text",
            cost="no model",
            paper="DSIR, arXiv 2302.03169",
            settings=METHOD_SETTINGS["dsir"],
            location=("airrep.attributors.text.lexical", "DsirAttributor"),
        ),
        Method(
            name="tracin",
            summary="unit projected gradients of a warmed-up LM",
            pool="signed-attention at temperature 0.3",
            needs="--lm MODEL, best before it is fine-tuned; the papers warm it up",
            bytes_per_example=f"{_DENSE}, {_RANKED_ALL}",
            cost=_BACKWARD,
            paper="TracIn, arXiv 2002.08484",
            settings=METHOD_SETTINGS["tracin"],
            location=("airrep.attributors.gradient.base", "TracinAttributor"),
            modules=LM,
        ),
        Method(
            name="logra",
            summary="unit projected gradients, corrected by Kronecker-factored curvature",
            pool="diminishing",
            needs="--lm MODEL, best before it is fine-tuned; the papers warm it up",
            bytes_per_example=f"{_DENSE}: 49,164 at a sketch of 16,384; with --set sketch=null {_RANKED_ALL}",
            cost=f"{_BACKWARD}; twice that for the sample that curvature is learnt from",
            paper="LoGra, arXiv 2405.13954",
            settings=METHOD_SETTINGS["logra"],
            location=("airrep.attributors.gradient.logra", "LograAttributor"),
            modules=LM,
        ),
        Method(
            name="ekfac",
            summary="influence of whole gradients, with EK-FAC curvature of all linear maps",
            needs="--lm MODEL, best before it is fine-tuned",
            bytes_per_example="0 (scores are computed when a query is asked about)",
            cost=f"{_BACKWARD} for each set of queries; twice that to fit",
            paper="EK-FAC influence, arXiv 2308.03296",
            settings=METHOD_SETTINGS["ekfac"],
            location=("airrep.attributors.gradient.whole.ekfac", "EkfacAttributor"),
            modules=LM,
        ),
        Method(
            name="trak",
            summary="projected gradients of the log odds, corrected by raw Fisher matrix and output probability",
            needs="--lm MODEL, best from `airrep warmup`",
            bytes_per_example=f"{_DENSE}, {_RANKED}",
            cost=_BACKWARD,
            paper="TRAK, arXiv 2303.14186",
            settings=METHOD_SETTINGS["trak"],
            location=("airrep.attributors.gradient.trak", "TrakAttributor"),
            modules=LM,
        ),
        Method(
            name="dsdm",
            summary="projected gradients of the loss, corrected by the raw Fisher matrix",
            needs="--lm MODEL, best from `airrep warmup`",
            bytes_per_example=f"{_DENSE}, {_RANKED}",
            cost=_BACKWARD,
            paper="DsDm, arXiv 2401.12926",
            settings=METHOD_SETTINGS["dsdm"],
            location=("airrep.attributors.gradient.trak", "DsdmAttributor"),
            modules=LM,
        ),
        Method(
            name="less",
            summary="unit adapter gradients, corrected by Adam's moments on the training side",
            needs="--lm of `airrep warmup --set lora_rank=128`, and the extra peft",
            bytes_per_example=f"{_DENSE}: 24,588 at 8,192 dimensions",
            cost="2.4 to 4 forward passes of the LM, growing with lora_rank",
            paper="LESS, arXiv 2402.04333",
            settings=METHOD_SETTINGS["less"],
            location=("airrep.attributors.gradient.less", "LessAttributor"),
            modules=LM,
        ),
        Method(
            name="influence",
            summary="the influence function with the exact Hessian of chosen modules; small LMs alone",
            needs="--lm MODEL, at or near a minimum of its loss; more damping otherwise",
            bytes_per_example=f"{_DENSE}, one for each weight",
            cost="2 forward passes; each batch of queries reads the corpus some 10 to 100 times (solver=cg)",
            paper="Koh and Liang, arXiv 1703.04730",
            settings=METHOD_SETTINGS["influence"],
            location=("airrep.attributors.gradient.influence", "InfluenceAttributor"),
            modules=LM,
        ),
        Method(
            name="datamodels",
            summary="for each query a regression of its losses on who was in the subset",
            needs="labels: what `airrep train --method datamodels` made of them",
            bytes_per_example=f"{_DENSE}, one for each query",
            cost="no model, but one fine-tune for each subset before",
            paper="Datamodels, arXiv 2202.00622",
            settings=METHOD_SETTINGS["datamodels"],
            location=("airrep.attributors.datamodels", "DatamodelsAttributor"),
        ),
        Method(
            name="channels",
            summary="sum of several methods, each with a view, a pool and a weight of its own",
            pool="each channel's own",
            needs="nothing, or what its channels need",
            bytes_per_example="the sum of its channels'",
            cost="the sum of its channels'",
            paper="ours",
            settings=ChannelsSettings,
            location=("airrep.attributors.sums.channels", "ChannelsAttributor"),
        ),
        Method(
            name="precomputed",
            summary="features from a file: .npy or .safetensors",
            pool="sum, or --set pool=...",
            needs="--set train=FILE, and --set queries=FILE --set query_data=DATA for queries",
            bytes_per_example=_DENSE,
            cost="no model",
            settings=METHOD_SETTINGS["precomputed"],
            location=("airrep.attributors.precomputed", "PrecomputedAttributor"),
        ),
    )
}
"""Every method by the name that users type."""


def method_named(name: str) -> Method:
    """The method of a name: one of airrep's, or that of an installed package.

    Raises:
        ConfigError: there is none, two packages declare it, or its package is broken.
    """
    if name in METHODS:
        return METHODS[name]
    refuse_dropped(name, {})
    found = installed_method(name)
    if found is None:
        known = [*METHODS, *installed_methods()]
        meant = near(name, known, "See: airrep show methods")
        raise ConfigError(f"method '{name}': does not exist; expected one of {', '.join(known)}. {meant}")
    return Method.of_package(found)


def is_known(name: str) -> bool:
    """Whether there is a method of this name; no package is imported."""
    return name in METHODS or name in installed_methods()


def methods_of_packages() -> Iterator[Method | Refused]:
    """The methods that installed packages declare, in the order of names; those that cannot be used with the reason."""
    for name, several in installed_methods().items():
        for found in several:
            try:
                if found.name not in METHODS:
                    installed_method(name)  # refuses what two packages declare
                yield Method.of_package(found)
            except ConfigError as error:
                yield Refused(found.name, found.package, str(error))


def packages_of(attributor: Attributor) -> dict[str, dict[str, str]]:
    """The packages that bring an attributor's method, or methods that it adds up, by the methods' names."""
    parts = attributor.parts if isinstance(attributor, SeveralMethods) else [attributor]
    names = {part.name for part in parts} - set(METHODS)
    declared = installed_methods() if names else {}
    return {name: declared[name][0].package.to_dict() for name in sorted(names) if name in declared}


def default_method(settings: Mapping[str, Any]) -> str:
    """The method that is meant where none is named: the encoder alone if one is set, else channels."""
    return "airrep" if "encoder" in settings else "channels"


def make_attributor(name: str, values: Mapping[str, Any] | None = None) -> Attributor:
    """Make an attributor from its method's name and settings; what is not set takes the method's default.

    Raises:
        ConfigError: no such method, no such setting, or a value that cannot hold.

    Example:
        >>> method = airrep.make_attributor("ngram", {"tokenizer": "words"})
        >>> method.name, str(method.pooling())
        ('ngram', 'ngram-lm')
    """
    method = method_named(name)
    if not isinstance(values or {}, Mapping):
        raise ConfigError(f"method '{name}': its settings are {values!r}; expected a dict of some. Give one.")
    refuse_dropped(name, values or {})
    settings = method.settings.of({**method.defaults, **(values or {})}, where=f"method '{name}'")
    return method.make(settings)


def before_training(method: Attributor) -> Attributor:
    """A method that reads LMs as they are before they are fine-tuned; see :func:`airrep.lm.folders.forms.meant`.

    Those of methods whose LM is to be trained already, and of channels that are of an LM after a warm-up, stay.

    Raises:
        ConfigError: an LM was trained already, or cannot be had.
    """
    chosen = _before_training(method.name, method.settings, how := cache(meant))
    if isinstance(chosen, ChannelsSettings):
        channels = tuple(_channel_before_training(one, how) for one in chosen.channels)
        chosen = chosen.model_copy(update={"channels": channels})
    return method if chosen == method.settings else method_named(method.name).make(chosen)


def channels_before_training(channels: Sequence[Channel]) -> tuple[Channel, ...]:
    """Channels as :func:`before_training` has methods; the same errors."""
    how = cache(meant)  # which tells of an LM once
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
    need(f"lm {lm}", "lm", *LM)  # before the Hub is asked
    said, base, trusted = (getattr(settings, key, None) for key in ("merged", "base", "trust_remote_code"))
    merged = how(lm, said, base, bool(trusted))
    return settings if merged == said else settings.model_copy(update={"merged": merged})
