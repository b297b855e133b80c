"""Commands that train an encoder: train, adapt."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from airrep.cli import options
from airrep.cli.flags import Setting, SettingsFlags
from airrep.cli.options import DryRunOption, note, show
from airrep.errors import LM, ConfigError, need

if TYPE_CHECKING:
    from airrep.labels.labels import LabelledInstance
    from airrep.planning.adapt import Adaptation
    from airrep.runtime.tracking import Tracker
    from airrep.training.linear.recipe import Adapted
    from airrep.training.result import TrainingResult


app = typer.Typer()


@dataclass(frozen=True)
class LabelOptions:
    """Options of labels: to learn from, to choose the best step by, and to test on."""

    labels: Annotated[
        list[str],
        typer.Argument(metavar="LABELS...", help=f"Labels (measured losses) to learn from. {options.CHOICE_HELP}"),
    ]
    data: options.LabelDataOption = None
    held_out: Annotated[
        list[str] | None,
        "Labels (measured losses) made from examples that LABELS does not contain. airrep keeps the version "
        "of the encoder whose scores fit these labels best.",
    ] = None
    test: Annotated[
        list[str] | None,
        "Labels (measured losses) made from examples that neither LABELS nor --held-out contains. The trained encoder "
        "is tested on these labels once, at the end.",
    ] = None
    partial: options.PartialOption = False
    mixed: options.MixedOption = False

    @property
    def all(self) -> list[list[str]]:
        """Labels to learn from, to choose by and to test on."""
        return [part or [] for part in (self.labels, self.held_out, self.test)]

    def gather(self, reading: options.ReadingOptions) -> "list[list[LabelledInstance]]":
        """The labelled instances to learn from, to choose by and to test on."""
        from airrep.labels.gather import gather

        corpora = [reading.read(path) for path in self.data or ()]
        how: dict[str, Any] = {"partial": self.partial, "read": reading.read}
        named = [choice for part in self.all for choice in part]
        return [gather(part, corpora, beside=named, **how) for part in self.all]


TrainingOptions = Annotated[
    Mapping[str, Any], SettingsFlags("airrep.training.settings:TrainingSettings", ("start", "steps"))
]


@app.command("train")
def train_command(
    ctx: typer.Context,
    out: Annotated[Path, "Folder to write the trained encoder to."],
    reading: options.ReadingOptions,
    parts: LabelOptions,
    learning: TrainingOptions,
    method: Annotated[
        Literal["encoder", "datamodels"],
        "'datamodels' trains one linear regression for each query instead of an encoder. The regressions work only for "
        "the queries and examples of LABELS, which must be a single train/query split, such as DIR#0.",
    ] = "encoder",
    precision: options.PrecisionOption = None,
    device: options.DeviceOption = None,
    shared: Annotated[Path | None, Setting("Folder where several runs share stored activations.")] = None,
    track: options.TrackOption = None,
    *,
    configuring: options.ConfigOptions,
    replace: options.ReplaceOption = False,
    dry_run: DryRunOption = False,
) -> None:
    """Train an encoder to rank subsets of the data by losses from `airrep label`. If interrupted, run it again.

    --set changes settings of the training, such as --set learning_rate=3e-5. Under `torchrun` the processes
    share the work of each step.
    """
    values = configuring.values(learning, precision=precision, device=device)
    if method == "datamodels":
        beside = {"--set shared": shared, "--set mixed": parts.mixed, "--dry-run": dry_run, "--track": track}
        _fit_datamodels(out, parts, reading, values, beside, replace=replace)
        return
    need("airrep train", "lm", "torch")
    from airrep.cli.show.learning import StepMeter
    from airrep.labels.gather import label_lineage
    from airrep.training.settings import TrainingSettings
    from airrep.training.train import train_encoder

    chosen = TrainingSettings.of(values)
    tracker = options.tracker(ctx, None if dry_run else track)
    lineage = label_lineage(*parts.all, mixed=parts.mixed)
    learn, choose, judge = parts.gather(reading)
    if dry_run:
        from airrep.cli.show.results import print_forecast
        from airrep.planning.budget import forecast_training

        print_forecast(forecast_training(learn, [*choose, *judge], chosen), "step", "steps")
        return
    result = train_encoder(
        learn,
        choose,
        out,
        chosen,
        test=judge,
        lineage=lineage,
        activations=shared,
        progress=StepMeter(chosen.steps, tracker.log),
        replace=replace,
    )
    _report(out, result)


def _fit_datamodels(
    out: Path,
    parts: LabelOptions,
    reading: options.ReadingOptions,
    values: dict[str, Any],
    beside: Mapping[str, Any],
    *,
    replace: bool,
) -> None:
    """Regress losses on membership; *beside* are options of training an encoder alone, which are refused."""
    from airrep.cli.show.evaluations import print_datamodels
    from airrep.labels.gather import label_lineage
    from airrep.training.linear.datamodels import RegressionSettings, fit_datamodels, the_only

    given = {"--held-out": parts.held_out, "--test": parts.test, **beside}
    for name in (name for name, value in given.items() if value):
        raise ConfigError(f"train: {name} is only for training an encoder, not for --method datamodels. Leave it out.")
    chosen = RegressionSettings.of(values)
    judged, _, _ = parts.gather(reading)
    instance = the_only(judged, ", ".join(parts.labels))
    print_datamodels(fit_datamodels(instance, out, chosen, lineage=label_lineage(parts.labels), replace=replace))
    note(f"{out}: next: airrep index {out / 'train.jsonl'} --method datamodels --set weights={out} --out INDEX")


def _report(out: Path, result: "TrainingResult") -> None:
    """Print how the training went, in the first process alone."""
    from airrep.cli.show.learning import print_training
    from airrep.runtime.devices import is_first_process

    if not is_first_process():
        return
    print_training(result)
    if result.best_step:
        view = result.training["settings"].get("view")
        seen = f" --set view={view}" if view else ""
        note(f"{out}: trained; next: airrep index DATA --encoder {out}{seen} --out INDEX")
    else:
        note(
            f"{out}: training did not improve how the encoder ranks the held-out subsets, so the folder holds the "
            "encoder from before training. Train with more labels (measured losses)"
        )


@dataclass(frozen=True)
class GivenLabels:
    """Options of labels that are there already, from which weights are learnt without a fine-tune."""

    labels: Annotated[
        list[str] | None,
        "Learn from these labels (measured losses) instead of running fine-tunes; may be repeated. "
        f"{options.CHOICE_HELP}",
    ] = None
    held_out: Annotated[
        list[str] | None, "With --labels: labels (measured losses) for other queries, on which the result is tested."
    ] = None
    recipe: Annotated[
        str | None, "With --labels: recipe (list of methods) to learn weights for, a name or a YAML file."
    ] = None

    def learn(self, reading: options.ReadingOptions, data: list[str], lm: str | None, out: Path) -> "Adapted":
        """The weights of channels, learnt from the labels and judged by those held out."""
        need("airrep adapt", "lm", "torch")
        from airrep.attributors.recipes import ChannelsSettings
        from airrep.labels.gather import gather, label_lineage
        from airrep.training.linear.recipe import adapt

        named = {"channels": self.recipe, "lm": lm}
        chosen = ChannelsSettings.of({name: value for name, value in named.items() if value is not None}, "adapt")
        corpora, parts = [reading.read(one) for one in data], (self.labels or [], self.held_out or [])
        learn, judge = (gather(part, corpora, beside=[*parts[0], *parts[1]], read=reading.read) for part in parts)
        return adapt(chosen.channels, learn, judge, out, lineage=label_lineage(*parts), tell=note)


JUDGED_HELP = (
    "Queries on which airrep tests the result. Default: random rows of DATA. With --labels, repeat --queries for "
    f"each file of queries that `airrep sample` read. {options.DATA_HELP}"
)


@app.command("adapt")
def adapt_command(
    ctx: typer.Context,
    data: options.DataArgument,
    out: Annotated[Path, "Directory for all results."],
    reading: options.ReadingOptions,
    given: GivenLabels,
    lm: Annotated[str | None, options.LM_HELP] = None,
    queries: Annotated[list[str] | None, JUDGED_HELP] = None,
    budget: Annotated[str, "Time limit, such as 2h or 90m."] = "2h",
    workers: options.WorkersOption = None,
    start: Annotated[str, Setting(options.START_HELP)] = "default",
    device: options.DeviceOption = None,
    track: options.TrackOption = None,
    *,
    configuring: options.TuningOptions,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON on stdout.")] = False,
    dry_run: DryRunOption = False,
) -> None:
    """Learn, within a time budget, how to weigh methods for your data and LM, and say if this beats the defaults.

    The command measures this machine's speed and fine-tunes the LM on random subsets. From the losses it learns a
    weight for each method. If there is time, it also trains an encoder.

    The result is tested on examples and queries that were not used for learning: random rows, or your --queries.

    --training reads the settings of the fine-tuning from your trainer's folder or config file. --set changes one
    setting. The result holds only for this fine-tuning. After an interruption, run the same command again to go on.

    With --labels and --held-out, airrep learns from losses that `airrep label` has measured, and fine-tunes
    nothing. The losses of sixteen subsets are enough to begin with.
    """
    from airrep.cli.show.evaluations import print_adapted

    if given.labels and dry_run:
        raise ConfigError(
            "adapt: --dry-run estimates the time of fine-tunes, but --labels runs no fine-tunes. Leave out one of "
            "these two options."
        )
    tracker, asked = options.tracker(ctx, None if dry_run else track), queries or []
    if given.labels:
        made = given.learn(reading, [data, *asked], lm, out)
    else:
        if lm is None or given.held_out or given.recipe:
            what = "no --lm to fine-tune is given" if lm is None else "--held-out and --recipe work only with --labels"
            raise ConfigError(f"adapt: {what}. Give --lm alone, or --labels with --held-out.")
        if len(asked) > 1:
            raise ConfigError(f"adapt: without --labels, give one --queries, not {len(asked)}. Join the files.")
        from airrep.planning.budget import parse_duration

        tell = typer.echo if dry_run else note
        how: dict[str, Any] = {"queries": asked, "start": start, "workers": workers, "tell": tell}
        adaptation = _adaptation(data, lm, out, reading, configuring, device, tracker, **how)
        if dry_run:
            adaptation.forecast(parse_duration(budget))
            return
        made = adaptation.run(parse_duration(budget))
    tracker.log({f"held-out LDS/{row['name']}": row["lds"]["lds"] for row in made.report["rows"]})
    show(made, print_adapted, as_json)
    advice = "next" if made.report["better"] else "to use it anyway"
    note(f"{made.path}: {advice}: airrep index DATA --recipe {made.path} --out INDEX")


def _adaptation(
    data: str,
    lm: str,
    out: Path,
    reading: options.ReadingOptions,
    configuring: options.TuningOptions,
    device: str | None,
    tracker: "Tracker",
    *,
    queries: list[str],
    start: str,
    workers: int | None,
    tell: "Callable[[str], None]",
) -> "Adaptation":
    need("airrep adapt", "lm", *LM)
    from airrep.cli.show.learning import StepMeter, TaskMeter
    from airrep.planning.adapt import Adaptation
    from airrep.runtime.metering import cores
    from airrep.runtime.remote.places import here_only

    here_only(out, "an adaptation is made")
    model, tuning = configuring.of_lm(lm, reading=reading, device=device)
    return Adaptation(
        reading.read(data),
        model,
        tuning,
        out,
        queries=reading.read_if(queries[0] if queries else None),
        start=start,
        engine=options.EngineOptions(workers).make(),
        workers=min(workers or 1, cores()),  # by which the time is reckoned: more do not go faster
        tell=tell,
        on_task=TaskMeter(tracker.log),
        on_step=StepMeter(track=tracker.log),
    )
