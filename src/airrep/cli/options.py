"""Options that several commands share."""

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from functools import partial, wraps
from inspect import Parameter as Option
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, TypeAlias, get_args, get_origin, get_type_hints

import typer

from airrep.cli.flags import SetFlag, Setting, SettingsFlags
from airrep.errors import ConfigError, DataError, UnknownSettingError, many

if TYPE_CHECKING:
    from airrep.corpus.corpus import Corpus, Example
    from airrep.evaluation.comparison import Comparison
    from airrep.evaluation.diagnosis import Diagnosis
    from airrep.evaluation.result import Evaluation
    from airrep.index.contrast import Better
    from airrep.index.index import Index
    from airrep.index.results.result import Answer, Result
    from airrep.index.rows import IndexRows
    from airrep.lm.settings import FineTuneSettings, LmSettings
    from airrep.lm.trainer_records.training import TrainingRead
    from airrep.planning.judge import Judgement
    from airrep.runtime.engine import Engine
    from airrep.runtime.tracking import Tracker
    from airrep.training.linear.recipe import Adapted

    Kept: TypeAlias = Answer | Comparison | Diagnosis | Evaluation | Result


DATA_HELP = (
    "JSONL, JSON, CSV, TSV or Parquet (also .gz, .zst), a folder, a saved Hugging Face dataset, a Hub id, or - for "
    "JSON lines on standard input."
)
CHOICE_HELP = "Directories that `airrep label` wrote; DIR#0,3-5 takes only the train/query splits 0, 3, 4 and 5."
SAMPLED_HELP = "Files of the training examples and queries that `airrep sample` drew from; may be repeated."
START_HELP = (
    "Encoder to start from: 'static' (word vectors), 'default' or 'untrained' (transformers), a folder or Hub id."
)

IndexArgument = Annotated[Path, typer.Argument(metavar="INDEX", help="An index directory.")]
DataArgument = Annotated[str, typer.Argument(metavar="DATA", help=DATA_HELP)]
LabelDataOption = Annotated[list[str] | None, f"{SAMPLED_HELP} {DATA_HELP}"]
WhereOption = Annotated[str | None, "Use only training examples that match this filter, such as 'label == \"gsm8k\"'."]
PoolOption = Annotated[
    str | None,
    "Rule that makes the score of a group from the scores of its examples: sum, mean, or another one in "
    "docs/methods.md, such as attention:0.2. Default: the method's.",
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
ReplaceOption = Annotated[bool, "Replace output that exists already."]
PartialOption = Annotated[bool, "Accept labels (measured losses) although some fine-tunes are missing."]
MixedOption = Annotated[
    bool, Setting("Accept labels (measured losses) made with different LMs, fine-tuning settings or precisions.")
]
EncoderOption = Annotated[str | None, "Sentence encoder: 'default', a folder or a Hub id."]
SetOption = Annotated[Mapping[str, Any], SetFlag("One setting, as key=value, or a YAML file of them; may be repeated.")]
ChangedOption = Annotated[
    Mapping[str, Any],
    SetFlag("Change a setting of the index, as key=value: for example lm=NEW-FOLDER if the LM has moved."),
]
RecipeOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|FILE",
        help="Recipe (weights of the methods) to use instead of the index's own. The recipe named 'kind' finds "
        "examples of the same kind as the query.",
    ),
]
BetterOption = Annotated[
    str | None,
    "Better answers: a file with the same prompts, a field of QUERIES, or a text for one prompt. An example then "
    "ranks high if it teaches the answer in QUERIES but not the better answer. select and mix do the opposite: they "
    "look for examples that teach the better answer.",
]
LM_HELP = "Target language model: a folder (a full model, peft adapters or a trainer's checkpoints) or a Hub id."
LmOption = Annotated[str, LM_HELP]
PrecisionOption = Annotated[str | None, "Precision of matrix products: auto, float32 or bfloat16."]
DeviceOption = Annotated[str | None, "Device: auto, cpu, cuda or cuda:N."]
WorkersOption = Annotated[
    int | None,
    typer.Option(min=1, help="Number of worker processes, with one thread each. Default: 1; on Ray as many as fit."),
]
ComputeOptions = Annotated[Mapping[str, Any], SettingsFlags("airrep.lm.settings:LmSettings", ("device", "precision"))]
RetriesOption = Annotated[int, Setting("Number of times a failed fine-tune is tried again.", 0)]


TrackOption = Annotated[str | None, "Log numbers live to trackio, wandb or mlflow; NAME:PROJECT also sets the project."]


def tracker(ctx: typer.Context, asked: str | None) -> "Tracker":
    """Log the numbers of a command, to its end; nothing without *asked*. ConfigError: there is no such logger."""
    from airrep.runtime.tracking import Tracker

    config = {name: value for name, value in ctx.params.items() if name not in ("track", "replace", "as_json")}
    out = ctx.params.get("out") or ctx.params.get("run")
    made = Tracker(asked, " ".join(filter(None, (ctx.info_name, out and Path(out).name))), config, note)
    ctx.call_on_close(lambda: made.finish(failed=_fails()))
    return made


def _fails() -> bool:
    """Tell whether the command that closes now ends by an error; Typer ends others by one of its own, too."""
    error = sys.exc_info()[1]
    return error is not None and getattr(error, "exit_code", 1) != 0


def note(text: str) -> None:
    """Tell the user something beside the results, on one line of stderr; what would steer a terminal is left out."""
    from airrep.runtime.remote.places import shown

    if (metering := sys.modules.get("airrep.runtime.metering")) is not None:
        metering.METER.close()
    typer.echo("".join(c if c.isprintable() else " " for c in shown(text)), err=True)


def print_json(value: Any) -> None:
    """Print one line of JSON on stdout; characters that would steer a terminal are escaped in it."""
    import json

    line = json.dumps(value, ensure_ascii=False, allow_nan=False)
    typer.echo(line if line.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in line))


def _escaped(character: str) -> str:
    """Return a character as JSON writes it in ASCII."""
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[place : place + 2].hex()}" for place in range(0, len(units), 2))


@dataclass(frozen=True)
class ConfigOptions:
    """The option that holds settings without a flag of their own."""

    settings: SetOption = field(default_factory=dict[str, Any])

    def values(self, flags: Mapping[str, Any] | None = None, **named: Any) -> dict[str, Any]:
        """Return settings by name; a flag overrides --set."""
        given = {name: value for name, value in {**(flags or {}), **named}.items() if value is not None}
        values = {**self.settings, **given}
        _tell_checkpoint(values.get("lm"))
        return values

    def of_lm(
        self, lm: str, flags: Mapping[str, Any] | None = None, *, reading: "ReadingOptions", **named: Any
    ) -> "tuple[LmSettings, FineTuneSettings]":
        """Settings of the target LM, which reads as a trainer does if one is named, and of its fine-tuning."""
        from airrep.lm.settings import FineTuneSettings, LmSettings, split_lm_settings

        of_lm, of_tuning = split_lm_settings(reading.lengths | self.values(flags, **named))
        _tell_checkpoint(lm)
        return LmSettings.of({**of_lm, "lm": lm}), FineTuneSettings.of(of_tuning)


TrainingOption = Annotated[
    Path | None,
    "Output folder or config file of your own training. Fine-tunes use its settings; flags and --set override them.",
]


@dataclass(frozen=True)
class TuningOptions(ConfigOptions):
    """Options of commands that fine-tune the target LM: settings, and a training to take them from."""

    training: TrainingOption = None

    def of_lm(
        self, lm: str, flags: Mapping[str, Any] | None = None, *, reading: "ReadingOptions", **named: Any
    ) -> "tuple[LmSettings, FineTuneSettings]":
        """As :meth:`ConfigOptions.of_lm`; says in a line how the fine-tunes train, and where that comes from."""
        model, own = super().of_lm(lm, flags, reading=reading, **named)
        tuning = self.as_trained(lm, own, merged=bool(model.merged))
        if "learning_rate" not in tuning.model_fields_set:
            note(
                f"fine-tunes use airrep's default learning rate: {tuning.summary}. The results hold for this setting. "
                "To train as your model was trained: --training FOLDER, or --set learning_rate=..."
            )
        return model, tuning

    def as_trained(self, lm: str, given: "FineTuneSettings", *, merged: bool) -> "FineTuneSettings":
        """Settings of fine-tuning: what was not given here is as in a training, which is told in a line."""
        read = self._read(lm, merged=merged)
        if read is None:
            return given
        own = given.model_dump(include=given.model_fields_set)
        changed = f"; set on the command line: {', '.join(sorted(own))}" if own else ""
        note(f"fine-tunes use the settings of your training: {read.sentence}{changed}")
        return type(given).of({**read.values, **own})

    def _read(self, lm: str, *, merged: bool) -> "TrainingRead | None":
        """The training that is named, or the one whose files lie beside the LM, if it is not meant as it is."""
        from airrep.lm.trainer_records.training import read_training, training_beside

        if self.training is not None:
            return read_training(self.training)
        try:
            return None if merged else training_beside(lm)
        except ConfigError as error:  # the user did not name this training
            note(
                f"{error} Until this is corrected, fine-tunes ignore the training settings that lie next to the LM {lm}"
            )
            return None


def _tell_checkpoint(lm: object) -> None:
    """Say which checkpoint, or which named adapters, are taken where a folder holds nothing else."""
    if not isinstance(lm, str) or not Path(lm).is_dir():
        return
    from airrep.lm.folders.forms import checkpoints_in, settled

    taken = settled(Path(lm))
    steps = list(checkpoints_in(Path(lm)))
    if taken != Path(lm) and not steps:
        note(f"{lm}: holds no model itself; airrep uses the adapters in its subfolder {taken.name}")
    elif taken != Path(lm):
        note(f"{lm}: holds only checkpoints ({', '.join(map(str, steps))}); airrep uses the last, {steps[-1]}")


@dataclass(frozen=True)
class EngineOptions:
    """Options of the engine: where work runs, and in how many processes."""

    workers: WorkersOption = None
    engine: Annotated[str, Setting("Where the work runs: local (this machine) or ray.")] = "local"
    address: Annotated[str | None, Setting("Address of a Ray cluster. Default: start a local one.")] = None
    gpus: Annotated[float, Setting("GPUs of each worker on Ray; may be a fraction.", 0)] = 0

    def make(self) -> "Engine | None":
        """Return the engine; None to work in this process."""
        from airrep.runtime.metering import cores
        from airrep.runtime.ray_engine import make_engine

        if self.engine != "ray" and (self.address is not None or self.gpus):
            raise ConfigError("--set address= and gpus= work only with Ray. Add --set engine=ray, or leave them out.")
        if self.engine == "local" and self.workers in (None, 1):
            return None
        if self.engine == "local" and (self.workers or 1) > (have := cores()):
            note(
                f"--workers {self.workers}: this machine has {have} cores. On the CPU, use --workers {have}, which is "
                "as fast"
            )
        return make_engine(
            self.engine, workers=self.workers, address=self.address, gpus=self.gpus, where="--set engine="
        )


_OBVIOUS = ("prompt and response",)


def _as_typed(text: str) -> str:
    """Name what Python calls by a keyword as it is typed here: ``prompt_field``, ``turns="all"``."""
    text = re.sub(r"\b(prompt|response|id|label|source)_field\b", r"--\1-field", text)
    text = re.sub(r"\b(turns|preferences|split)=[\"']?(\w+)[\"']?", r"--\1 \2", text)
    text = re.sub(r"\btrained_with\b", "--trained-with", text)
    text = (
        text.replace("read them (airrep.read_corpus) with skip_invalid=True", "add --skip-invalid")
        .replace("with longest_line", "with --longest-line")
        .replace("longest_line=", "--longest-line ")
        .replace("config or split", "--data-config or --split")
        .replace("Leave out config", "Leave out --data-config")
    )
    return re.sub(r"\b(Set|Leave out) split\b", r"\1 --split", text)


def typed(ctx: typer.Context) -> set[str]:
    """Names of the options that were given on the command line, and of what --set gives there."""
    sources = {name: ctx.get_parameter_source(name) for name in ctx.params}
    set_here = {text.partition("=")[0].strip() for text in ctx.params.get("settings") or ()}
    return {name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"} | set_here


def flag_of(ctx: typer.Context, name: str) -> str:
    """An option, or what --set gives, as it is typed."""
    return f"--{name.replace('_', '-')}" if name in ctx.params else f"--set {name}"


FIELDS = ("prompt_field", "response_field", "id_field", "label_field", "source_field")
"""Options of reading that name fields of records."""


@dataclass(frozen=True)
class ReadingOptions:
    """Options of reading a data file."""

    panel: ClassVar = "Reading data"

    prompt_field: Annotated[str | None, "Field that holds the prompt."] = None
    response_field: Annotated[str | None, "Field that holds the response."] = None
    id_field: Annotated[str | None, "Field that holds the id."] = None
    label_field: Annotated[str | None, "Field that holds the label."] = None
    source_field: Annotated[str | None, "Field that names the source."] = None
    turns: Annotated[
        str | None, "Which assistant turns of a conversation become examples: last or all. Default: last."
    ] = None
    preferences: Annotated[
        str,
        "How to read a preference pair: only its chosen answer (chosen), both answers as "
        "two examples (both), or both in one example (pairs).",
    ] = "chosen"
    trained_with: Annotated[
        str | None, "Read rows as this trainer does: trl, axolotl, llamafactory, ms-swift or open-instruct."
    ] = None
    split: Annotated[str | None, "Split to read, such as train, of a dataset or of a folder of files."] = None
    data_config: Annotated[str | None, "Config (subset) of a Hub dataset."] = None
    skip_invalid: Annotated[bool, "Leave out records that cannot be used."] = False
    longest_line: Annotated[int, "Largest size of one line or record, in MiB."] = 64

    @property
    def lengths(self) -> dict[str, Any]:
        """Settings of an LM that say how the trainer cuts long rows; none where none is named."""
        from airrep.corpus.schemas.trainers import trainer_of

        trainer = trainer_of(self.trained_with)
        cut = {} if trainer.cut == "prompt" else {"cut": trainer.cut}
        return cut if trainer.max_tokens is None else {"max_tokens": trainer.max_tokens, **cut}

    def for_queries(self, index: "Index") -> Self:
        """These options for queries of an index: as its records were read, if no trainer is named."""
        if self.trained_with is not None or not index.asking:
            return self
        return replace(self, trained_with=index.asking["trained_with"], turns=self.turns or index.asking["turns"])

    def read(self, path: str, beside: str | None = None) -> "Corpus":
        """Read a corpus, and say as what it was read and how many records were left out.

        *beside* names a field that is read as well, so that it is not told as left out.
        """
        from airrep.corpus.corpus import read_corpus
        from airrep.corpus.schemas.forms import read_beside

        with self._typed():
            corpus = read_corpus(path, **self._named(), progress=True)
        forms = {read_beside(form, beside) if beside else form: count for form, count in corpus.forms.items()}
        told = [f"{count:,} as {_as_typed(form)}" for form, count in forms.items() if form not in _OBVIOUS]
        if told:
            note(f"{path}: {many(len(corpus), 'example')}; records read: {', '.join(told)}")
        if corpus.apart:
            note(f"{path}: {many(len(corpus.apart), 'file was', 'files were')} skipped, the first: {corpus.apart[0]}")
        if corpus.skipped.count:
            note(
                f"{path}: {many(corpus.skipped.count, 'record')} left out, the first: "
                f"{_as_typed(corpus.skipped.messages[0])}"
            )
        return corpus

    def taken(self, path: str, examples: "str | Iterable[Example | str]") -> Iterator[dict[str, Any]]:
        """Yield the records of data that examples were read from."""
        from airrep.corpus.originals import take_records

        with self._typed():
            yield from take_records(path, examples, **self._named())

    def _named(self) -> dict[str, Any]:
        return {"config" if name == "data_config" else name: value for name, value in vars(self).items()}

    @contextmanager
    def _typed(self) -> Iterator[None]:
        """Name options as they are typed in errors."""
        try:
            yield
        except (ConfigError, DataError) as error:
            raise type(error)(_as_typed(str(error))) from None

    def read_if(self, path: str | None, beside: str | None = None) -> "Corpus | None":
        """Read a corpus if a path is given."""
        return None if path is None else self.read(path, beside)


def better_of(better: str | None, reading: ReadingOptions, asked: "Sequence[Example]") -> "Better | None":
    """Return what --better names beside a file of queries: another file, a field of the queries, or a text."""
    from airrep.corpus.inputs import is_place

    if better is None:
        return None
    if any(better in example.metadata for example in asked) or not is_place(better):
        return better
    return reading.read(better)


def typed_example(prompt: str, response: str, where: str, span: str | None = None) -> "Example":
    """An answer that is typed in: its span is marked in it by ``[[`` and ``]]``, or told by its characters."""
    from airrep.corpus.corpus import Example
    from airrep.corpus.spans import check_spans, take_marks, typed_spans

    text, spans = take_marks(response, where) if span is None else (response, typed_spans(span))
    if spans:
        try:
            check_spans(text, spans)
        except DataError as error:
            raise DataError(f"{where}: {error}") from None
    if spans and span is None:
        told = ", ".join(f"'{text[start:stop]}' ({start}:{stop})" for start, stop in spans)
        note(f"{where}: airrep explains only the marked part {told}. If the brackets belong to the text, write \\[[")
    return Example(prompt=prompt, response=text, id="query", span=spans or None)


@dataclass(frozen=True, kw_only=True)
class QueryOptions:
    """Options of commands that ask an index: the index, and the queries."""

    path: IndexArgument
    reading: ReadingOptions
    queries: Annotated[str | None, typer.Argument(metavar="QUERIES", help=f"Queries. {DATA_HELP}")] = None
    prompt: Annotated[str | None, "Prompt of a query that you type."] = None
    response: Annotated[
        str | None, "Response to --prompt. Put [[ ]] around some of its words to ask about only these words."
    ] = None
    better: BetterOption = None
    recipe: RecipeOption = None
    settings: ChangedOption = field(default_factory=dict)

    def opened(self, span: str | None = None) -> "tuple[Index, Sequence[Example], Better | None]":
        """The index, with what has moved and the weights of another recipe; then what :meth:`question` gives."""
        index = open_moved_index(self.path, self.settings, self.recipe)
        return index, *self.question(index, span)

    def question(self, index: "Index", span: str | None = None) -> "tuple[Sequence[Example], Better | None]":
        """The queries of the file, or the one typed in with its *span*; and the better answers if there are any."""
        if span is not None and self.queries is not None:
            raise ConfigError("--span needs --response. Give both, or put a field named span into the file of queries.")
        if (self.queries is None) == (self.prompt is None and self.response is None):
            raise ConfigError("queries: give either a file of queries, or --prompt and --response.")
        if self.queries is not None:
            from airrep.corpus.corpus import with_spans

            reading = self.reading.for_queries(index)
            read = with_spans(reading.read(self.queries, self.better))
            return read, better_of(self.better, reading, read)
        if self.response is None:
            raise ConfigError("queries: --prompt needs --response, the answer to explain. Give both.")
        if not self.response.strip():
            raise ConfigError("queries: --response is blank. Give the answer that the model gave.")
        if self.better is not None and not self.better.strip():
            raise ConfigError("--better is blank. Give the text of a better answer.")
        asked = [typed_example(self.prompt or "", self.response, "--response", span)]
        return asked, None if self.better is None else [self._typed_better(self.better)]

    @staticmethod
    def _typed_better(text: str) -> "Example":
        """A better answer to a query that is typed in: a text, whatever files there are."""
        from airrep.corpus.inputs import is_place

        if is_place(text):
            note(
                f"--better: '{text}' is read as the text of an answer, although a file has this name. To read the "
                "file, give the queries as a file too (QUERIES)"
            )
        return typed_example("", text, "--better")


def open_moved_index(path: Path, settings: Mapping[str, Any] | None = None, recipe: str | None = None) -> "Index":
    """Open an index, taking its encoder, language model or weights from another place if one is named."""
    from airrep.index.index import Index

    moved = {**(settings or {}), **({} if recipe is None else {"recipe": recipe})}
    if "recipe" in moved:
        moved["channels"] = moved.pop("recipe")
    if not moved:
        return Index(path)
    _tell_checkpoint(moved.get("lm"))
    return Index(path).made_with(moved)


@dataclass(frozen=True)
class OutputOptions:
    """Options of a result's output: format, directory."""

    as_json: JsonOption = False
    run: Annotated[
        Path | None,
        typer.Option("--out", metavar="RUN", help="Also write the result here; `airrep report` makes a page of it."),
    ] = None
    replace: ReplaceOption = False

    def check(self, kind: str) -> None:
        """Raise an error, before any work, if the result cannot be written."""
        from airrep.runtime.artifacts import check_free, real_path

        if self.run is not None:
            check_free(real_path(self.run), kind, replace=self.replace)

    def deliver(self, result: "Kept", print_result: Callable[[Any], None], told: str | None = None) -> None:
        """Write a result if asked, and show it."""
        if self.run is not None:
            result.save(self.run, replace=self.replace)
            note(told or f"written to {self.run}; next: airrep report {self.run} --out report.html")
        show(result, print_result, self.as_json)

    def find_or_make(
        self,
        find: "Callable[[Path], Kept | None]",
        make: "Callable[[], Kept]",
        print_result: Callable[[Any], None],
        hint: str = "",
    ) -> None:
        """Show the result that is there already; or make one, write it if asked, and show it."""
        found = find(self.run) if self.run is not None and not self.replace else None
        if found is None:
            self.deliver(make(), print_result, f"{self.run}: written")
        else:
            note(f"{self.run}: was finished already{hint}")
            show(found, print_result, self.as_json)


@dataclass(frozen=True)
class HitOptions(OutputOptions):
    """Options of the output of a result that has training examples in it."""

    wide: Annotated[bool, "Print more: raw scores, longer texts, and the results of every query."] = False

    def deliver(self, result: "Kept", print_result: Callable[..., None], told: str | None = None) -> None:
        """Write a result if asked, and show it."""
        super().deliver(result, partial(print_result, wide=self.wide), told)


def tell_records(index: "IndexRows", prompts: Iterable[str | None], out: Path, file: str = "") -> None:
    """Say of examples that were written what their records have and they have not, and how to get the records."""
    from airrep.corpus.schemas.conversations import holds_turns
    from airrep.corpus.schemas.forms import PAIRED

    count, reading = sum(1 for prompt in prompts if prompt and holds_turns(prompt)), index.reading
    facts = {
        "an example holds one answer of its preference pair": any(
            form.startswith(PAIRED) and "as one" not in form for form in reading.forms
        ),
        f"{many(count, 'prompt joins', 'prompts join')} several messages into one text": count > 0,
        "an example holds one turn of its conversation": reading.options.get("turns") == "all",
    }
    told = [fact for fact, holds in facts.items() if holds]
    if told:
        export = f"airrep export {index.path} --to records --data YOUR-DATA --only {out / file} --out records.jsonl"
        note(f"{out}: {'; '.join(told)}. To write your data's own records for training: {export}")


def typed_pool(text: str | None) -> tuple[str | None, float]:
    """The pool that is typed as NAME or NAME:TEMPERATURE, and its temperature, 1 if none is typed; None without one."""
    if text is None:
        return None, 1.0
    name, _, temperature = text.partition(":")
    try:
        return name, float(temperature or 1)
    except ValueError:
        raise ConfigError(
            f"--pool {text}: the temperature '{temperature}' is not a number. Give one as in attention:0.2."
        ) from None


DryRunOption: TypeAlias = Annotated[
    bool, "Print how much time, memory and disk the command will take, measured on a small sample. Write nothing."
]


def show(found: "Kept | Adapted | Judgement", print_found: Callable[[Any], None], as_json: bool) -> None:
    """Print a result for people, or as JSON."""
    if as_json:
        print_json(found.to_dict())
    else:
        print_found(found)


def shared_options(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take whole option classes, one option for each field, and flags of settings.

    A text beside a type is an option's help; a mapping beside an option class has the help that some fields get here.
    What has a :class:`Setting` beside it is no option: --set takes it, and the command's help tells of it.
    """
    hints = get_type_hints(command, include_extras=True)
    parameters = inspect.signature(command).parameters.values()
    found = [option for one in parameters for option in _options(one.name, hints[one.name], one.default)]
    rare = {one.name: one for one in found if isinstance(_split(one.annotation)[1], Setting)}
    options = [one for one in found if one.name not in rare]
    others = any(one.name == "settings" for one in options)
    if rare and not others:
        options += _options("settings", SetOption, None)

    @wraps(command)
    def wrapper(**values: Any) -> None:
        values |= _taken(values.pop("settings", None) or (), rare, others=others)
        try:
            command(**{one.name: _collect(one.name, hints[one.name], values) for one in parameters})
        except UnknownSettingError as error:
            own = rare if error.name in values["settings"] else ()
            raise UnknownSettingError(error.where, error.name, {*error.known, *own}) from None

    vars(wrapper)["__signature__"] = inspect.Signature(options)
    wrapper.__annotations__ = {option.name: option.annotation for option in options}
    text = re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.cleandoc(command.__doc__ or ""))  # or help would keep these ends
    wrapper.__doc__ = "\n\n".join([text, *map(_told, rare.values())])
    return wrapper


def _taken(texts: Sequence[str], rare: Mapping[str, Option], *, others: bool) -> dict[str, Any]:
    """Return the parameters that only --set gives, and all other settings of --set under "settings"."""
    if not texts:
        return {**{name: one.default for name, one in rare.items()}, "settings": {}}
    from airrep.runtime.settings import read_settings

    given = read_settings(texts)
    taken = {name: _checked(one, given.pop(name)) if name in given else one.default for name, one in rare.items()}
    if given and not others:
        raise ConfigError(f"--set {next(iter(given))}: this command has no such setting. Use one of {', '.join(rare)}.")
    return {**taken, "settings": given}


def _checked(option: Option, value: Any) -> Any:
    """Convert a value of --set to its type; a list may be separated by commas."""
    from pydantic import ConfigDict, TypeAdapter, ValidationError

    kind, setting = _split(option.annotation)
    if any(get_origin(one) is list for one in (kind, *get_args(kind))):
        value = [one.strip() for one in str(value).split(",")] if not isinstance(value, list) else value
    try:
        checked = TypeAdapter(kind, config=ConfigDict(coerce_numbers_to_str=True)).validate_python(value)
    except ValidationError as error:
        raise ConfigError(f"--set {option.name}={value}: {error.errors()[0]['msg'].lower()}.") from None
    for one in checked if isinstance(checked, list) else [checked]:
        if setting.least is not None and one is not None and one < setting.least:
            raise ConfigError(f"--set {option.name}={value}: the value must be {setting.least} or more.")
    return checked


def _told(option: Option) -> str:
    """A line of help on what --set alone takes."""
    default = "" if option.default in (None, False) else f" (default {option.default!r})"
    return f"--set {option.name}=...: {_split(option.annotation)[1].text.removesuffix('.')}{default}."


def _split(hint: Any) -> tuple[Any, Any]:
    """A type, and the first annotation beside it; an empty mapping if there is none."""
    return get_args(hint)[:2] if get_origin(hint) is Annotated else (hint, {})


def _collect(name: str, hint: Any, values: Mapping[str, Any]) -> Any:
    """The value of an option, or an option class made of the values of its fields."""
    kind, beside = _split(hint)
    if isinstance(beside, SettingsFlags):
        return beside.taken(values)
    if not (isinstance(kind, type) and is_dataclass(kind)):
        return values[name]
    hints = get_type_hints(kind, include_extras=True)
    return kind(**{one.name: _collect(one.name, hints[one.name], values) for one in fields(kind)})


def _options(name: str, hint: Any, default: Any, text: str | None = None, panel: str | None = None) -> Iterator[Option]:
    """The options that a parameter stands for; *text* is another help for one."""
    kind, beside = _split(hint)
    if isinstance(beside, SettingsFlags):
        yield from beside.options()
        return
    if isinstance(beside, SetFlag):
        kind, default, beside = list[str] | None, None, typer.Option("--set", help=beside.text)
    if is_dataclass(kind):
        hints, panel = get_type_hints(kind, include_extras=True), getattr(kind, "panel", None)
        for one in fields(kind):
            own = Option.empty if one.default is MISSING else one.default
            yield from _options(one.name, hints[one.name], own, beside.get(one.name), panel)
        return
    if isinstance(beside, str):
        # Without an explicit name, Typer would add a second flag --no-NAME to a bool.
        names = [f"--{name.replace('_', '-')}"] if kind in (bool, bool | None) else []
        beside = typer.Option(*names, help=beside, rich_help_panel=panel)
    if text is not None:
        beside = copy(beside)  # other commands use it too
        beside.help = text
    yield Option(name, Option.KEYWORD_ONLY, default=default, annotation=Annotated[kind, beside])
