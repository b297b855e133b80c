"""Command-line options that several commands share."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from airrep.errors import ConfigError

if TYPE_CHECKING:
    from airrep.corpus.corpus import Corpus
    from airrep.index.index import Index
    from airrep.index.results import Result
    from airrep.runtime.engine import Engine

READING = "Reading data"
DATA_HELP = "JSONL, JSON, CSV, TSV or Parquet (also .gz, .zst), a saved Hugging Face dataset, or a Hub id."

IndexArgument = Annotated[Path, typer.Argument(metavar="INDEX", help="An index directory.")]
DataArgument = Annotated[str, typer.Argument(metavar="DATA", help=DATA_HELP)]
WhereOption = Annotated[
    str | None, typer.Option("--where", help="Only training examples that fulfil this, such as 'label == \"gsm8k\"'.")
]
PoolOption = Annotated[
    str | None,
    typer.Option(
        "--pool",
        help="sum, mean, attention, signed-attention, top-K (mean of the K highest), order-K or order-inf (effect of "
        "removal); the method's own if not given.",
    ),
]
TemperatureOption = Annotated[float, typer.Option(help="Of attention: the larger, the flatter.")]
ReplaceOption = Annotated[bool, typer.Option("--replace", help="Replace what is there.")]
EncoderOption = Annotated[
    str | None, typer.Option("--encoder", help="Sentence encoder: 'default', a folder or a Hub id.")
]
TargetOption = Annotated[
    str | None, typer.Option("--lm", help="Language model of methods that read one: a folder or a Hub id.")
]
WorkersOption = Annotated[
    int | None,
    typer.Option(min=1, help="Processes at once, of one thread each: 1 if not given; on Ray, as many as fit."),
]
ConfigOption = Annotated[Path | None, typer.Option(help="YAML file with settings.")]
SetOption = Annotated[list[str] | None, typer.Option("--set", help="One setting, as key=value; may be repeated.")]
LmOption = Annotated[str, typer.Option("--lm", help="Target language model: a folder or a Hub id.")]
DeviceOption = Annotated[str | None, typer.Option(help="auto, cpu, cuda or cuda:N.")]
PrecisionOption = Annotated[str | None, typer.Option(help="auto, float32 or bfloat16.")]
START_HELP = "Encoder to start from: 'default', 'untrained', a folder or a Hub id."
LABELS_HELP = "Directories that `airrep label` wrote; DIR#0,3-5 takes some instances of one."

EngineOption = Annotated[str, typer.Option(help="Where work runs: local (this machine) or ray.")]
AddressOption = Annotated[str | None, typer.Option(help="Address of a Ray cluster; a new local one if not given.")]
GpusOption = Annotated[float, typer.Option(min=0, help="GPUs of each worker on Ray; may be a fraction.")]


def note(text: str) -> None:
    """Tell the user something beside the results, on one line of stderr; what would steer a terminal is left out."""
    typer.echo("".join(c if c.isprintable() else " " for c in text), err=True)


@dataclass(frozen=True)
class Reading:
    """How to read a data file."""

    prompt_field: Annotated[str | None, typer.Option(help="Field of the prompt.", rich_help_panel=READING)] = None
    response_field: Annotated[str | None, typer.Option(help="Field of the response.", rich_help_panel=READING)] = None
    id_field: Annotated[str | None, typer.Option(help="Field of the id.", rich_help_panel=READING)] = None
    label_field: Annotated[str | None, typer.Option(help="Field of the label.", rich_help_panel=READING)] = None
    source_field: Annotated[str | None, typer.Option(help="Field of the source.", rich_help_panel=READING)] = None
    split: Annotated[str | None, typer.Option(help="Split of a Hugging Face dataset.", rich_help_panel=READING)] = None
    skip_invalid: Annotated[
        bool,
        typer.Option("--skip-invalid", help="Leave out records that cannot be used.", rich_help_panel=READING),
    ] = False

    def read(self, path: str) -> "Corpus":
        """Read a corpus, and say how many records were left out."""
        from airrep.cli.show.console import Meter
        from airrep.corpus.corpus import read_corpus

        with Meter("reading") as meter:
            corpus = read_corpus(path, **vars(self), progress=meter)
        if corpus.skipped.count:
            note(f"{path}: {corpus.skipped.count:,} records left out, the first: {corpus.skipped.messages[0]}")
        return corpus


@dataclass(frozen=True)
class Asking(Reading):
    """Which index is asked, and about which queries."""

    path: IndexArgument = Path()
    queries: Annotated[str | None, typer.Argument(metavar="QUERIES", help=f"Queries. {DATA_HELP}")] = None
    prompt: Annotated[str | None, typer.Option(help="One query, typed in: its prompt.")] = None
    response: Annotated[str | None, typer.Option(help="One query, typed in: its response.")] = None
    encoder: EncoderOption = None
    lm: TargetOption = None
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="A setting that is another now, as key=value: where a model has moved to, say."),
    ] = None

    def asked(self) -> "Corpus":
        """The queries of the file, or the one that was typed in."""
        from airrep.corpus.corpus import Corpus, Example

        if (self.queries is None) == (self.prompt is None and self.response is None):
            raise ConfigError("queries: expected a file, or --prompt and --response. Give one of the two.")
        if self.queries is not None:
            reading = {field.name: getattr(self, field.name) for field in fields(Reading)}
            return Reading(**reading).read(self.queries)
        if self.prompt is None or self.response is None:
            raise ConfigError("queries: --prompt and --response belong together. Give both.")
        return Corpus.from_examples([Example(prompt=self.prompt, response=self.response, id="query")])

    def index(self) -> "Index":
        """The index, with the encoder or language model that was named if one was."""
        return open_moved_index(self.path, self.encoder, self.lm, self.settings or ())


def open_moved_index(
    path: Path, encoder: str | None = None, lm: str | None = None, settings: Sequence[str] = ()
) -> "Index":
    """Open an index, taking its encoder or language model from another place if one is named."""
    from airrep.attributors.methods import make_attributor
    from airrep.index.index import Index
    from airrep.runtime.settings import read_settings

    index = Index(path)
    named = {name: value for name, value in (("encoder", encoder), ("lm", lm)) if value is not None}
    moved = read_settings(None, settings) | named
    return Index(path, make_attributor(index.method, {**index.manifest["settings"], **moved})) if moved else index


@dataclass(frozen=True)
class Delivery:
    """Where a result goes."""

    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False
    run: Annotated[
        Path | None, typer.Option("--out", help="Also write the result here, for `airrep report`.", metavar="RUN")
    ] = None
    replace: ReplaceOption = False

    def check(self, kind: str) -> None:
        """Check, before any work, that the result may be written."""
        from airrep.runtime.artifacts import check_free, real_path

        if self.run is not None:
            check_free(real_path(self.run), kind, replace=self.replace)

    def deliver(self, result: "Result", show: Callable[[Any], None]) -> None:
        """Write a result if asked, and print it."""
        if self.run is not None:
            result.write(self.run, replace=self.replace)
            note(f"written to {self.run}; next: airrep report {self.run} --out report.html")
        if self.as_json:
            print_json(result.to_dict())
        else:
            show(result)


def make_engine(name: str, workers: int | None, address: str | None = None, gpus: float = 0) -> "Engine | None":
    """The engine of that name; None for this process alone.

    Args:
        name: ``"local"`` or ``"ray"``.
        workers: processes at once; None is one locally, and as many as fit on Ray.
        address: of a Ray cluster.
        gpus: of each worker on Ray.

    Raises:
        ConfigError: there is none, or a flag belongs to another one.
    """
    if name == "ray":
        from airrep.runtime.ray_engine import RayEngine

        return RayEngine(address=address, workers=workers, gpus=gpus)
    if name != "local":
        raise ConfigError(f"--engine {name}: does not exist; expected local or ray. Choose one of them.")
    if address is not None or gpus:
        raise ConfigError("--address, --gpus: belong to Ray. Add --engine ray, or leave them out.")
    if workers is None or workers == 1:
        return None
    from airrep.runtime.processes import LocalProcesses

    return LocalProcesses(workers)


def typed_values(config: Path | None, settings: list[str] | None, **flags: Any) -> dict[str, Any]:
    """Settings of a YAML file, then --set, then flags that were given."""
    from airrep.runtime.settings import read_settings

    return read_settings(config, settings or ()) | {name: value for name, value in flags.items() if value is not None}


def print_json(value: Any) -> None:
    """Print one line of JSON on stdout."""
    import json

    typer.echo(json.dumps(value, ensure_ascii=False, allow_nan=False))


def shared_options(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take whole option classes: each such parameter becomes one option for each of its fields."""
    hints = get_type_hints(command, include_extras=True)
    own = inspect.signature(command).parameters
    classes = {name: hints[name] for name in own if is_dataclass(hints[name])}

    @wraps(command)
    def wrapper(**values: Any) -> None:
        for name, kind in classes.items():
            values[name] = kind(**{field.name: values.pop(field.name) for field in fields(kind)})
        command(**values)

    parameters = [
        parameter
        for name in own
        for parameter in (_field_parameters(classes[name]) if name in classes else [_own(own[name], hints[name])])
    ]
    vars(wrapper)["__signature__"] = inspect.Signature(parameters)
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapper


def _own(parameter: inspect.Parameter, hint: Any) -> inspect.Parameter:
    return parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hint)


def _field_parameters(kind: type) -> list[inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    required = ("path",)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.name in required or field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in sorted(fields(kind), key=lambda field: field.name not in required)
    ]
