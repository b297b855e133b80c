"""Commands that train an encoder: train, adapt."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airrep.cli import options
from airrep.cli.flags import SettingsFlags
from airrep.cli.options import note, open_moved_index, shared_options, show
from airrep.errors import LM, ConfigError, need

if TYPE_CHECKING:
    from airrep.corpus.corpus import Corpus
    from airrep.labels.instance import LabelledInstance
    from airrep.labels.teacher import TeacherSettings, Teaching
    from airrep.training.result import TrainingResult


app = typer.Typer()


@dataclass(frozen=True)
class TeacherOptions:
    """Options of the teacher: an index whose group scores the encoder learns from first."""

    teacher: Annotated[
        Path | None,
        typer.Option(metavar="INDEX", help="Learn first from the group scores that an index gives random subsets."),
    ] = None
    settings: Annotated[
        Mapping[str, Any],
        SettingsFlags(
            "airrep.labels.teacher:TeacherSettings",
            ("steps", "sizes", "instances", "pool", "temperature"),
            prefix="teacher_",
        ),
    ] = field(default_factory=dict)
    teacher_queries: Annotated[str | None, "Where the teacher's queries come from, when not from the index."] = None

    def check(self, settings: Mapping[str, Any]) -> None:
        """Refuse options and *settings* of a teacher where there is none."""
        asked = [*settings, *(["queries"] if self.teacher_queries else [])]
        if self.teacher is None and asked:
            raise ConfigError(f"teacher_{asked[0]}: is set, and there is no teacher. Give an index with --teacher.")

    def teach(
        self, settings: "TeacherSettings", reading: options.ReadingOptions, unseen: Sequence["LabelledInstance"]
    ) -> "Teaching | None":
        """The teacher's labels, which hold nothing of *unseen*; None without a teacher."""
        if self.teacher is None:
            return None
        from airrep.cli.show.console import Meter
        from airrep.labels.teacher import teach
        from airrep.runtime.devices import is_first_process

        queries = reading.read_if(self.teacher_queries)
        tell = note if is_first_process() else None
        with Meter("the teacher's queries") as meter:
            index = open_moved_index(self.teacher)
            return teach(index, settings, queries=queries, unseen=unseen, tell=tell, progress=meter)


@dataclass(frozen=True)
class LabelOptions:
    """Options of labels: to learn from, to choose the best step by, and to test on."""

    data: options.LabelDataOption = None
    labels: Annotated[
        list[str] | None, typer.Argument(metavar="LABELS...", help=f"What to learn from. {options.LABELS_HELP}")
    ] = None
    held_out: Annotated[list[str] | None, "Labels of other examples, to choose the best step by."] = None
    test: Annotated[list[str] | None, "Labels of yet other examples, scored once at the end."] = None

    @property
    def all(self) -> list[list[str]]:
        """Labels to learn from, to choose by and to test on."""
        return [part or [] for part in (self.labels, self.held_out, self.test)]

    def check(self, teacher: Path | None) -> None:
        """Refuse to train without labels or teacher, and with a teacher without labels to choose the best step by."""
        if not self.labels and teacher is None:
            raise ConfigError("train: there is nothing to learn from; expected labels or a teacher. Give LABELS.")
        if not self.labels and not self.held_out:
            raise ConfigError(
                "train: no labels say which step is best; expected some beside a teacher's. Give LABELS, or --held-out."
            )

    def gather(
        self, reading: options.ReadingOptions, corpora: "Sequence[Corpus]", partial: bool
    ) -> "list[list[LabelledInstance]]":
        """The labelled instances to learn from, to choose by and to test on."""
        from airrep.labels.gather import gather

        named = [choice for part in self.all for choice in part]
        return [gather(part, corpora, partial=partial, beside=named, read=reading.read) for part in self.all]


TrainingOptions = Annotated[
    Mapping[str, Any],
    SettingsFlags("airrep.training.settings:TrainingSettings", ("start", "train_layers", "steps")),
]


@app.command("train")
@shared_options
def train_command(
    out: Annotated[Path, "Folder of the trained encoder."],
    reading: options.ReadingOptions,
    parts: LabelOptions,
    learning: TrainingOptions,
    teaching: TeacherOptions,
    beside: Annotated[
        str | None,
        typer.Option(
            metavar="RECIPE",
            help="Train beside channels: 'default', or a YAML file with a list of them; their weights learn too.",
        ),
    ] = None,
    device: options.DeviceOption = None,
    precision: options.PrecisionOption = None,
    activations: Annotated[Path | None, "Directory of activations that several runs share."] = None,
    partial: options.PartialOption = False,
    mixed: options.MixedOption = False,
    *,
    configuring: options.ConfigOptions,
    replace: options.ReplaceOption = False,
) -> None:
    """Train an encoder to rank subsets by their losses. Run it again to go on after an interruption.

    --config and --set hold settings of the training, such as --set learning_rate=3e-5, and those of the teacher, such
    as --set teacher_subsets=2000. With --beside, the folder has channels.yaml, the recipe of all that was trained
    together. With --teacher and --held-out, LABELS may be left out. Under `torchrun` the work of
    each step is shared by its processes.
    """
    need("airrep train", "lm", "torch")
    from airrep.cli.show.learning import StepMeter
    from airrep.labels.gather import label_lineage
    from airrep.labels.teacher import TeacherSettings, split_teacher_settings
    from airrep.training.beside.recipe import read_beside
    from airrep.training.settings import TrainingSettings
    from airrep.training.train import train_encoder

    flags = {"device": device, "precision": precision, **teaching.settings}
    of_training, of_teacher = split_teacher_settings(configuring.values(learning, **flags))
    teaching.check(of_teacher)
    parts.check(teaching.teacher)
    chosen, asked = TrainingSettings.of(of_training), TeacherSettings.of(of_teacher, "teacher")
    given = () if beside is None else read_beside(beside)
    corpora = [reading.read(path) for path in parts.data or ()]
    lineage = label_lineage(*parts.all, mixed=mixed)
    learn, choose, judge = parts.gather(reading, corpora, partial)
    first = teaching.teach(asked, reading, [*choose, *judge])
    most = (chosen.steps if learn else 0) + (0 if first is None else first.steps)
    result = train_encoder(
        learn,
        choose,
        out,
        chosen,
        test=judge,
        teaching=first,
        beside=given,
        lineage=lineage,
        activations=activations,
        progress=StepMeter(most),
        replace=replace,
    )
    _report(out, result)


def _report(out: Path, result: "TrainingResult") -> None:
    """Print how the training went, in the first process alone."""
    from airrep.cli.show.learning import print_training
    from airrep.runtime.devices import is_first_process

    if not is_first_process():
        return
    print_training(result)
    if result.recipe is not None:
        note(f"{out}: trained; next: airrep index DATA --method channels --set channels={result.recipe} --out INDEX")
    elif result.best_step:
        view = result.training["settings"].get("view")
        seen = f" --set view={view}" if view else ""
        note(f"{out}: trained; next: airrep index DATA --encoder {out}{seen} --out INDEX")
    else:
        note(f"{out}: no step ranked the held-out subsets better than the start, whose weights it has")


@app.command("adapt")
@shared_options
def adapt_command(
    data: options.DataArgument,
    lm: options.LmOption,
    out: Annotated[Path, "Directory for all that is made."],
    reading: options.ReadingOptions,
    queries: Annotated[str | None, f"What to judge on; random rows of DATA if not given. {options.DATA_HELP}"] = None,
    budget: Annotated[str, "Time by the clock, such as 2h or 90m."] = "2h",
    workers: options.WorkersOption = None,
    start: Annotated[str, options.START_HELP] = "default",
    merged: options.MergedOption = False,
    device: options.DeviceOption = None,
    *,
    configuring: options.TuningOptions,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdict as JSON on stdout.")] = False,
) -> None:
    """Learn channels for your data and LM within a time budget, and say honestly whether they are worth using.

    Measures this machine and chooses how much to label; fine-tunes the LM on random subsets; learns from the losses how
    to weigh and pool channels and, where there is time, an encoder; compares on examples and queries that took no
    part: random rows, or your --queries. --training takes the settings of the fine-tuning from your own training, since
    a verdict holds for the training that it was measured on; --config and --set hold them too, and those of how the LM
    reads and computes. Run it again to go on.
    """
    need("airrep adapt", "lm", *LM)
    from airrep.cli.show.evaluations import next_of_stack, print_stack
    from airrep.cli.show.learning import StepMeter, TaskMeter
    from airrep.planning.adapt import Adaptation
    from airrep.planning.budget import parse_duration
    from airrep.runtime.metering import cores
    from airrep.runtime.remote.places import here_only

    here_only(out, "an adaptation is made")
    model, tuning = configuring.of_lm(lm, reading=reading, merged=merged or None, device=device)
    seconds = parse_duration(budget)
    adaptation = Adaptation(
        reading.read(data),
        model,
        tuning,
        out,
        queries=reading.read_if(queries),
        start=start,
        engine=options.EngineOptions(workers).make(),
        workers=min(workers or 1, cores()),  # by which the time is reckoned: more do not go faster
        on_task=TaskMeter(),
        on_step=StepMeter(),
    )
    made = adaptation.run(seconds, note)
    show(made, print_stack, as_json)
    note(next_of_stack(made, made.path))
