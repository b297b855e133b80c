"""Commands before training: sample, label, warmup."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airrep.cli import options
from airrep.cli.flags import Setting, SettingsFlags
from airrep.cli.options import DryRunOption, note, print_json
from airrep.errors import LM, ConfigError, many, need

if TYPE_CHECKING:
    from airrep.corpus.corpus import Corpus
    from airrep.labels.labels import Labels
    from airrep.labels.plan import SubsetPlan
    from airrep.lm.settings import FineTuneSettings, LmSettings

QueriesOption = Annotated[str | None, f"Data that the queries are drawn from. Default: DATA. {options.DATA_HELP}"]

app = typer.Typer()


SamplingOptions = Annotated[
    Mapping[str, Any],
    SettingsFlags(
        "airrep.labels.plan:SamplingSettings",
        ("instances", "train_count", "query_count", "subsets", "size", "held_out", "removals"),
    ),
]


@app.command("sample")
def sample_command(
    data: options.DataArgument,
    out: Annotated[Path, "Directory to write the subsets to."],
    reading: options.ReadingOptions,
    queries: QueriesOption = None,
    *,
    drawing: SamplingOptions,
    configuring: options.ConfigOptions,
    write: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Also write subsets and queries here as JSONL, for other trainers."),
    ] = None,
    replace: options.ReplaceOption = False,
) -> None:
    """Draw the random subsets of your data that `airrep label` fine-tunes on, and the queries to measure."""
    from airrep.labels import sampling
    from airrep.labels.outside import LIST, write_subset_files
    from airrep.labels.plan import SamplingSettings

    values = configuring.values(drawing)
    kind = {"kind": "removals"} if values.get("removals") or values.get("removals_by") else {}
    idle = next((name for name in ("subsets", "size") if kind and values.get(name) is not None), None)
    if idle is not None:
        raise ConfigError(f"--{idle} works only with random subsets, not with --removals. Remove --{idle}.")
    chosen = SamplingSettings.of(values | kind)
    corpus, asked = reading.read(data), reading.read_if(queries)
    plan = sampling.sample(corpus, out, chosen, asked, replace=replace)
    count = sum(len(instance.subsets) for instance in plan.instances)
    others = "" if queries is None else f" --queries {queries}"
    following = f"airrep label {out} {data}{others} --lm MODEL --out LABELS"
    if write is not None:
        write_subset_files(plan, corpus, asked, write, replace=replace)
        note(f"{write}: wrote the subsets and queries as JSONL; {LIST} lists the files")
        following = f"train on each subset, then: airrep label {out} {data}{others} --import LOSSES --out LABELS"
    note(f"{out}: {_drawn(plan, count)}; next: {following}")


def _drawn(plan: "SubsetPlan", count: int) -> str:
    """Return what was drawn, with what fits the data where nothing was given, and how many fine-tunes that is."""
    from airrep.reports.tables import span_text

    first = plan.instance(0)
    size = span_text(first.subsets.sizes.tolist())
    told = f"{many(len(plan), 'instance')}, each of {many(len(first.train), 'example')} and "
    told += many(len(first.queries), "query", "queries")
    return f"{told}; {many(count, 'subset')} of {size}, so {many(count, 'fine-tune')} with one seed"


@dataclass(frozen=True)
class ElsewhereOptions:
    """Options of losses that another trainer makes."""

    imported: Annotated[
        Path | None,
        typer.Option(
            "--import",
            metavar="LOSSES",
            help="Losses of another trainer: JSONL rows with subset, query and loss, or .npy (subsets, queries).",
        ),
    ] = None
    command: Annotated[
        str | None,
        "Command of another trainer, such as 'my_train.sh {train} {queries} {losses}'. airrep runs the command once "
        "for each subset, and uses no shell.",
    ] = None

    def __bool__(self) -> bool:
        """Tell whether another trainer makes them."""
        return self.imported is not None or self.command is not None

    def check(self, lm: str | None, part: str | None, settings: Mapping[str, Any], *, dry_run: bool) -> None:
        """Check that losses come from one place, and that nothing is set that another trainer would not see."""
        if not self:
            need("airrep label", "lm", *LM)
            if lm is None:
                raise ConfigError(
                    "label: no model to fine-tune is given. Add --lm MODEL; or use another trainer, with --import "
                    "LOSSES or --command COMMAND."
                )
            return
        if dry_run:
            raise ConfigError("label: --dry-run cannot be used with --import or --command. Leave one of them out.")
        if self.imported is not None and self.command is not None:
            raise ConfigError("label: --import and --command both give the losses. Leave one of them out.")
        if settings:
            raise ConfigError(
                f"label: {', '.join(sorted(settings))}: these settings have no effect with --import or --command. "
                "Set them in the other trainer."
            )
        if self.imported is not None and part is not None:
            raise ConfigError("label: --part divides the fine-tunes, but --import runs none. Leave --part out.")


@dataclass(frozen=True)
class TaskOptions:
    """Options of the fine-tunes: how many, which of them, and what becomes of those that fail."""

    seeds: Annotated[int, typer.Option(min=1, help="Number of fine-tunes for each subset, each with its own seed.")] = 1
    part: Annotated[str | None, "Run only this part of the fine-tunes, such as 3/10 for the third of ten parts."] = None
    retries: options.RetriesOption = 2
    retry_quarantined: Annotated[bool, Setting("Try again the fine-tunes that failed for good.")] = False
    partial: Annotated[bool, "Finish without the fine-tunes that failed for good."] = False


@app.command("label")
def label_command(
    ctx: typer.Context,
    plan: Annotated[Path, typer.Argument(metavar="SUBSETS", help="Directory that `airrep sample` wrote.")],
    data: options.DataArgument,
    out: Annotated[Path, "Directory to write the losses to."],
    reading: options.ReadingOptions,
    lm: Annotated[str | None, f"{options.LM_HELP} With --import or --command, only a name to record."] = None,
    queries: QueriesOption = None,
    *,
    elsewhere: ElsewhereOptions,
    tasks: TaskOptions,
    running: options.EngineOptions,
    track: options.TrackOption = None,
    computing: options.ComputeOptions,
    configuring: options.TuningOptions,
    dry_run: DryRunOption = False,
) -> None:
    """Fine-tune the LM on every subset and store each query's loss. After an interruption, run it again to go on.

    --training reads the settings of the fine-tuning from your trainer's folder or config file. --set changes one
    setting of the fine-tuning, such as --set learning_rate=1e-4, or of the LM, such as --set batch_tokens=4096.
    """
    from airrep.cli.show.learning import TaskMeter, next_step
    from airrep.labels.plan import open_plan

    training = {} if configuring.training is None else {"training": configuring.training}
    elsewhere.check(lm, tasks.part, configuring.values(computing) | training, dry_run=dry_run)
    tracker = options.tracker(ctx, None if dry_run else track)
    engine = running.make()
    corpora = (open_plan(plan), reading.read(data), reading.read_if(queries))
    model = None if elsewhere else configuring.of_lm(lm or "", computing, reading=reading)
    if dry_run and model is not None:
        _print_forecast(*corpora, model, (tasks.seeds, tasks.part, running.workers))
        return
    meter = TaskMeter(tracker.log)
    how: dict[str, Any] = {**vars(tasks), "engine": engine, "on_task": meter, "progress": meter.begin}
    labels = _labelled(corpora, model, elsewhere, lm, out, how)
    read = f"--data {data}" if queries is None else f"--data {data} --data {queries}"
    following = f"airrep train {out} {read} --out ENCODER"
    if labels.plan.settings.kind == "removals":
        whole = "" if labels.plan.settings.removals_by is None else " --set what_if=true"
        following = f"airrep evaluate INDEX --labels {out} {read}{whole}"
    note(f"{labels!r}; {next_step(labels, following)}")


def _labelled(
    corpora: "tuple[SubsetPlan, Corpus, Corpus | None]",
    model: "tuple[LmSettings, FineTuneSettings] | None",
    elsewhere: ElsewhereOptions,
    lm: str | None,
    out: Path,
    how: Mapping[str, Any],
) -> "Labels":
    if model is None:
        from airrep.labels.outside import import_labels, label_by_command

        if elsewhere.command is not None:
            return label_by_command(*corpora, elsewhere.command, out, lm=lm, **how)
        several = {name: how[name] for name in ("seeds", "partial")}
        return import_labels(*corpora, elsewhere.imported or "", out, lm=lm, **several)
    from airrep.labels.farm import label

    return label(*corpora, *model, out, **how)


def _print_forecast(
    plan: "SubsetPlan",
    train: "Corpus",
    queries: "Corpus | None",
    trained: "tuple[LmSettings, FineTuneSettings]",
    share: tuple[int, str | None, int | None],
) -> None:
    from airrep.cli.show.results import print_forecast
    from airrep.planning.budget import forecast_labels
    from airrep.runtime.engine import Share

    plan.check_corpora(train, queries)
    seeds, part, workers = share
    fine_tunes = len(range(len(plan) * plan.subset_count * seeds)[Share.parse(part or "1/1", "--part").part])
    print_forecast(forecast_labels(plan, train, *trained, fine_tunes), "fine-tune", "fine-tunes", workers)


@dataclass(frozen=True)
class WarmupOptions:
    """Options of the warm-up: its examples, and the checkpoints that are kept."""

    count: Annotated[
        int | None, typer.Option(min=1, help="Number of examples to train on, drawn at random. Default: all.")
    ] = None
    seed: Annotated[int, Setting("Random seed for the choice and the order of the examples.", 0)] = 0
    checkpoints: Annotated[
        int, Setting("Number of checkpoints to keep, for TracIn and TRAK; the last one is the final model.", 0)
    ] = 0


@app.command("warmup")
def warmup_command(
    data: options.DataArgument,
    lm: options.LmOption,
    out: Annotated[Path, "Folder to write the fine-tuned LM to."],
    reading: options.ReadingOptions,
    *,
    warming: WarmupOptions,
    computing: options.ComputeOptions,
    configuring: options.TuningOptions,
    replace: options.ReplaceOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Fine-tune the LM briefly on a sample of the data, for `airrep index --warmed`.

    Use the settings that your own model was fine-tuned with. --training reads these settings from your trainer's folder
    or config file. --set changes one setting, such as --set learning_rate=1e-4.

    Set --count to about the size of the groups that you will score with `airrep group`, such as --count 100.

    The method LESS needs adapters: add --set lora_rank=128 --set lora_alpha=512 --set epochs=4. After an interruption,
    the warm-up starts from the beginning.
    """
    need("airrep warmup", "lm", *LM)
    from airrep.cli.show.console import print_fields
    from airrep.cli.show.learning import StepMeter, warmup_summary
    from airrep.lm.warmup import warm_up
    from airrep.runtime.artifacts import is_free, real_path

    model, tuning = configuring.of_lm(lm, computing, reading=reading)
    meter, existed = StepMeter(), not is_free(real_path(out))
    made = warm_up(reading.read(data), out, model, tuning, **vars(warming), replace=replace, on_step=meter.fine_tune)
    if as_json:
        print_json(warmup_summary(made))
    else:
        print_fields({"path": made.path, **made.manifest["provenance"]})
    state = "was finished already" if existed and not replace else "warmed up"
    how = f"--lm {lm} --warmed {out}" if made.adapter is None else f"--method less --lm {out}"
    note(f"{out}: {state}; next: airrep index {data} {how} --out INDEX")
