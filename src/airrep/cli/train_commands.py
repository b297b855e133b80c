"""Commands that train an encoder: train, adapt."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airrep.cli.options import (
    DATA_HELP,
    LABELS_HELP,
    START_HELP,
    ConfigOption,
    DataArgument,
    DeviceOption,
    LmOption,
    PrecisionOption,
    Reading,
    ReplaceOption,
    SetOption,
    WorkersOption,
    make_engine,
    note,
    open_moved_index,
    print_json,
    shared_options,
    typed_values,
)

if TYPE_CHECKING:
    from airrep.labels.instance import LabelledInstance
    from airrep.labels.teacher import TeacherSettings, Teaching


app = typer.Typer()


@dataclass(frozen=True)
class TeacherOptions:
    """Which index teaches, and how."""

    teacher: Annotated[
        Path | None,
        typer.Option(metavar="INDEX", help="Learn first from the group scores that an index gives random subsets."),
    ] = None
    teacher_steps: Annotated[int | None, typer.Option(help="Most steps on these (500).")] = None
    teacher_sizes: Annotated[
        str | None, typer.Option(help="Sizes of these subsets, such as 1,10,100 (100); 1 ranks single examples.")
    ] = None
    teacher_instances: Annotated[int | None, typer.Option(help="Draws of queries and subsets from the index (20).")] = (
        None
    )
    teacher_queries: Annotated[
        str | None, typer.Option(help="Where the teacher's queries come from, when not from the index.")
    ] = None
    teacher_pool: Annotated[str | None, typer.Option(help="How the teacher pools; its method's own if not given.")] = (
        None
    )
    teacher_temperature: Annotated[float | None, typer.Option(help="Of the teacher's attention.")] = None

    @property
    def settings(self) -> dict[str, Any]:
        """Those that are settings, by their names there."""
        return {name: value for name, value in vars(self).items() if name not in ("teacher", "teacher_queries")}

    def check(self, settings: Mapping[str, Any]) -> None:
        """Refuse to ask a teacher that is none.

        Raises:
            ConfigError: something is set, here or among the teacher's *settings*, and there is no teacher.
        """
        from airrep.errors import ConfigError

        asked = [*settings, *(["queries"] if self.teacher_queries else [])]
        if self.teacher is None and asked:
            raise ConfigError(f"teacher_{asked[0]}: is set, and there is no teacher. Give an index with --teacher.")

    def teach(
        self, settings: "TeacherSettings", reading: Reading, unseen: Sequence["LabelledInstance"]
    ) -> "Teaching | None":
        """The teacher's labels; None without a teacher. Nothing of *unseen* is among them."""
        if self.teacher is None:
            return None
        from airrep.cli.show.console import Meter
        from airrep.labels.teacher import teach
        from airrep.runtime.devices import is_first_process

        queries = None if self.teacher_queries is None else reading.read(self.teacher_queries)
        tell = note if is_first_process() else None
        with Meter("the teacher's queries") as meter:
            index = open_moved_index(self.teacher)
            return teach(index, settings, queries=queries, unseen=unseen, tell=tell, progress=meter)


NO_TEACHER = TeacherOptions()


def _check_parts(labels: Sequence[str] | None, held_out: Sequence[str] | None, teacher: Path | None) -> None:
    """Refuse to learn from nothing."""
    from airrep.errors import ConfigError

    if not labels and teacher is None:
        raise ConfigError("train: there is nothing to learn from; expected labels or a teacher. Give LABELS.")
    if not labels and not held_out:
        raise ConfigError(
            "train: no labels say which step is best; expected some beside a teacher's. Give LABELS, or --held-out."
        )


@app.command("train")
@shared_options
def train_command(
    out: Annotated[Path, typer.Option(help="Folder of the trained encoder.")],
    reading: Reading,
    data: Annotated[
        list[str] | None, typer.Option("--data", help=f"The data of the labels; may be repeated. {DATA_HELP}")
    ] = None,
    labels: Annotated[
        list[str] | None, typer.Argument(metavar="[LABELS...]", help=f"What to learn from. {LABELS_HELP}")
    ] = None,
    held_out: Annotated[
        list[str] | None, typer.Option("--held-out", help="Labels of other examples, to choose the best step by.")
    ] = None,
    test: Annotated[
        list[str] | None, typer.Option("--test", help="Labels of yet other examples, scored once at the end.")
    ] = None,
    start: Annotated[str | None, typer.Option(help=START_HELP)] = None,
    train_layers: Annotated[str | None, typer.Option(help="all, or how many layers from the top; 0 = head.")] = None,
    steps: Annotated[int | None, typer.Option(help="Most training steps (2,000), beside --teacher-steps.")] = None,
    teaching: TeacherOptions = NO_TEACHER,
    device: DeviceOption = None,
    precision: PrecisionOption = None,
    activations: Annotated[Path | None, typer.Option(help="Directory of activations that several runs share.")] = None,
    partial: Annotated[bool, typer.Option("--partial", help="Accept unfinished labels.")] = False,
    mixed: Annotated[
        bool, typer.Option("--mixed", help="Accept labels of several LMs, fine-tunings or precisions.")
    ] = False,
    config: ConfigOption = None,
    settings: SetOption = None,
    replace: ReplaceOption = False,
) -> None:
    """Train an encoder to rank subsets by their losses. Run it again to go on after an interruption.

    --config and --set hold settings of the training, such as --set learning_rate=3e-5, and those of the teacher, such
    as --set teacher_subsets=2000. With --teacher and --held-out, LABELS may be left out. Under `torchrun` the work of
    each step is shared by its processes.
    """
    from airrep.cli.show.learning import StepMeter, print_training
    from airrep.labels.gather import gather, label_lineage
    from airrep.labels.teacher import TeacherSettings, split_teacher_settings
    from airrep.runtime.devices import is_first_process
    from airrep.training.settings import TrainingSettings
    from airrep.training.train import train_encoder

    flags = {"start": start, "train_layers": train_layers, "steps": steps, "device": device, "precision": precision}
    of_training, of_teacher = split_teacher_settings(typed_values(config, settings, **flags, **teaching.settings))
    teaching.check(of_teacher)
    _check_parts(labels, held_out, teaching.teacher)
    chosen, asked = TrainingSettings.of(of_training), TeacherSettings.of(of_teacher, "teacher")
    corpora = [reading.read(path) for path in data or ()]
    lineage = label_lineage(labels or (), held_out or (), test or (), mixed=mixed)
    named = [*(labels or ()), *(held_out or ()), *(test or ())]
    learn, choose, judge = (
        gather(part or (), corpora, partial=partial, beside=named, read=reading.read)
        for part in (labels, held_out, test)
    )
    taught = teaching.teach(asked, reading, [*choose, *judge])
    most = (chosen.steps if learn else 0) + (0 if taught is None else taught.steps)
    result = train_encoder(
        learn,
        choose,
        out,
        chosen,
        test=judge,
        teaching=taught,
        lineage=lineage,
        activations=activations,
        progress=StepMeter(most),
        replace=replace,
    )
    if not is_first_process():
        return
    print_training(result)
    if result.best_step:
        note(f"{out}: trained; next: airrep index DATA --encoder {out} --out INDEX")
    else:
        note(f"{out}: no step ranked the held-out subsets better than the start, whose weights it has")


@app.command("adapt")
@shared_options
def adapt_command(
    data: DataArgument,
    lm: LmOption,
    out: Annotated[Path, typer.Option(help="Directory for all that is made.")],
    reading: Reading,
    budget: Annotated[str, typer.Option(help="Time by the clock, such as 2h or 90m.")] = "2h",
    workers: WorkersOption = None,
    start: Annotated[str, typer.Option(help=START_HELP)] = "default",
    device: DeviceOption = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdict as JSON on stdout.")] = False,
) -> None:
    """Train an encoder for your data and LM within a time budget, and say honestly whether it is worth using.

    Measures this machine, chooses how much to sample, label and train, runs it, and compares on examples and queries
    that were not trained on. --config and --set hold settings of the fine-tuning, and of how the LM reads and
    computes. Run it again to go on.
    """
    from airrep.cli.show.learning import StepMeter, TaskMeter, print_verdict
    from airrep.lm.settings import FineTuneSettings, LmSettings, split_lm_settings
    from airrep.planning.adapt import Adaptation
    from airrep.planning.budget import parse_duration

    of_lm, of_tuning = split_lm_settings(typed_values(config, settings, device=device))
    model, tuning = LmSettings.of({**of_lm, "lm": lm}), FineTuneSettings.of(of_tuning)
    seconds = parse_duration(budget)
    adaptation = Adaptation(
        reading.read(data),
        model,
        tuning,
        out,
        start=start,
        engine=make_engine("local", workers, None, 0),
        workers=workers or 1,
        on_task=TaskMeter(),
        on_step=StepMeter(),
    )
    verdict = adaptation.run(seconds, note)
    if as_json:
        print_json(verdict.to_dict())
    else:
        print_verdict(verdict)
