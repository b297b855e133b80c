"""Commands of the learning half: warmup, sample, label, train, adapt."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from airrep.cli.options import (
    DATA_HELP,
    AddressOption,
    DataArgument,
    EngineOption,
    GpusOption,
    Reading,
    ReplaceOption,
    WorkersOption,
    make_engine,
    note,
    print_json,
    shared_options,
)
from airrep.cli.teacher_options import NO_TEACHER, TeacherOptions

ConfigOption = Annotated[Path | None, typer.Option(help="YAML file with settings.")]
SetOption = Annotated[list[str] | None, typer.Option("--set", help="One setting, as key=value; may be repeated.")]
QueriesOption = Annotated[
    str | None, typer.Option("--queries", help=f"Where queries come from, when not from DATA. {DATA_HELP}")
]
LmOption = Annotated[str, typer.Option("--lm", help="Target language model: a folder or a Hub id.")]
DeviceOption = Annotated[str | None, typer.Option(help="auto, cpu, cuda or cuda:N.")]
PrecisionOption = Annotated[str | None, typer.Option(help="auto, float32 or bfloat16.")]
START_HELP = "Encoder to start from: 'default', 'untrained', a folder or a Hub id."
LABELS_HELP = "Directories that `airrep label` wrote; DIR#0,3-5 takes some instances of one."

app = typer.Typer()


def _values(config: Path | None, settings: list[str] | None, **flags: Any) -> dict[str, Any]:
    """Settings of a YAML file, then --set, then flags that were given."""
    from airrep.runtime.settings import read_settings

    return read_settings(config, settings or ()) | {name: value for name, value in flags.items() if value is not None}


@app.command()
@shared_options
def sample(
    data: DataArgument,
    out: Annotated[Path, typer.Option(help="Directory to make.")],
    reading: Reading,
    queries: QueriesOption = None,
    instances: Annotated[int | None, typer.Option(help="Cross-validation instances (100).")] = None,
    train_count: Annotated[int | None, typer.Option(help="Examples in each train pool (100,000).")] = None,
    query_count: Annotated[int | None, typer.Option(help="Queries of each instance (10,000).")] = None,
    subsets: Annotated[int | None, typer.Option(help="Subsets of each instance (100).")] = None,
    size: Annotated[int | None, typer.Option(help="Examples in each subset (1,000).")] = None,
    stratify: Annotated[str | None, typer.Option(help="Keep the shares of each source or label.")] = None,
    disjoint: Annotated[bool, typer.Option("--disjoint", help="No example is in two instances.")] = False,
    held_out: Annotated[
        int | None, typer.Option(help="So many instances, the first, share no text with any other.")
    ] = None,
    removals: Annotated[
        int | None, typer.Option(help="Not random subsets, but so many that leave out an example each.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of all draws.")] = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    replace: ReplaceOption = False,
) -> None:
    """Draw instances: queries, train pools without them, and random subsets of the pools."""
    from airrep.labels import sampling

    values = _values(
        config,
        settings,
        instances=instances,
        train_count=train_count,
        query_count=query_count,
        subsets=subsets,
        size=size,
        stratify=stratify,
        seed=seed,
        disjoint_instances=disjoint or None,
        held_out=held_out,
        removals=removals,
        kind=None if removals is None else "removals",
    )
    chosen = sampling.SamplingSettings.of(values)
    corpus, asked = reading.read(data), None if queries is None else reading.read(queries)
    plan = sampling.sample(corpus, out, chosen, asked, replace=replace)
    count = sum(len(instance.subsets) for instance in plan.instances)
    others = "" if queries is None else f" --queries {queries}"
    following = f"airrep label {out} {data}{others} --lm MODEL"
    note(f"{out}: {len(plan.instances):,} instances, {count:,} subsets; next: {following}")


@app.command()
@shared_options
def label(
    plan: Annotated[Path, typer.Argument(metavar="SUBSETS", help="What `airrep sample` made.")],
    data: DataArgument,
    lm: LmOption,
    out: Annotated[Path, typer.Option(help="Directory of the losses.")],
    reading: Reading,
    queries: QueriesOption = None,
    seeds: Annotated[int, typer.Option(min=1, help="Fine-tunes of each subset, each with its own seed.")] = 1,
    part: Annotated[str | None, typer.Option(help="Only this share of the fine-tunes, such as 3/10.")] = None,
    workers: WorkersOption = None,
    engine: EngineOption = "local",
    address: AddressOption = None,
    gpus: GpusOption = 0,
    retries: Annotated[int, typer.Option(min=0, help="How often a failed fine-tune is tried again.")] = 2,
    retry_quarantined: Annotated[
        bool, typer.Option("--retry-quarantined", help="Try fine-tunes again that were given up.")
    ] = False,
    partial: Annotated[bool, typer.Option("--partial", help="Finish without fine-tunes that were given up.")] = False,
    device: DeviceOption = None,
    precision: PrecisionOption = None,
    max_tokens: Annotated[int | None, typer.Option(help="Longest example in tokens; prompts are cut.")] = None,
    config: ConfigOption = None,
    settings: SetOption = None,
) -> None:
    """Fine-tune the LM on every subset and store each query's loss. Run it again to go on after an interruption.

    --config and --set hold settings of the fine-tuning, such as --set learning_rate=1e-4, and of how the LM reads and
    computes, such as --set batch_tokens=4096.
    """
    from airrep.cli.show.learning import TaskMeter, next_step
    from airrep.labels import farm
    from airrep.labels.sampling import open_plan
    from airrep.lm.settings import FineTuneSettings, LmSettings, split_settings

    values = _values(config, settings, device=device, precision=precision, max_tokens=max_tokens)
    of_lm, of_tuning = split_settings(values)
    tuning, model = FineTuneSettings.of(of_tuning), LmSettings.of({**of_lm, "lm": lm})
    corpus, asked = reading.read(data), None if queries is None else reading.read(queries)
    labels = farm.label(
        open_plan(plan),
        corpus,
        asked,
        model,
        tuning,
        out,
        seeds=seeds,
        part=part,
        engine=make_engine(engine, workers, address, gpus),
        retries=retries,
        partial=partial,
        retry_quarantined=retry_quarantined,
        on_task=TaskMeter(),
    )
    read = f"--data {data}" if queries is None else f"--data {data} --data {queries}"
    following = f"airrep train {out} {read} --out ENCODER"
    if labels.plan.settings.kind == "removals":
        following = f"airrep evaluate loo INDEX --labels {out} {read}"
    note(f"{labels!r}; {next_step(labels, following)}")


@app.command()
@shared_options
def warmup(
    data: DataArgument,
    lm: LmOption,
    out: Annotated[Path, typer.Option(help="Folder of the LM to make.")],
    reading: Reading,
    count: Annotated[
        int | None, typer.Option(min=1, help="Examples to train on, drawn at random; all if not given.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the draw and of the order of the examples.")] = 0,
    checkpoints: Annotated[
        int, typer.Option(min=0, help="How often all weights are kept, for TracIn and TRAK; the last time is the end.")
    ] = 0,
    device: DeviceOption = None,
    precision: PrecisionOption = None,
    max_tokens: Annotated[int | None, typer.Option(help="Longest example in tokens; prompts are cut.")] = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    replace: ReplaceOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False,
) -> None:
    """Fine-tune the LM on a sample of the data, as gradient methods want it; the result is an LM for --lm.

    --config and --set hold settings of the fine-tuning, such as --set learning_rate=1e-4, and of how the LM reads and
    computes, such as --set batch_tokens=4096. LESS needs low-rank adapters: --set lora_rank=128 --set lora_alpha=512
    --set epochs=4 are its own. One that is interrupted begins anew.
    """
    from airrep.cli.show.learning import StepMeter, print_warmup, warmup_summary
    from airrep.lm.settings import FineTuneSettings, LmSettings, split_settings
    from airrep.lm.warming import warm_up

    of_lm, of_tuning = split_settings(
        _values(config, settings, device=device, precision=precision, max_tokens=max_tokens)
    )
    tuning, model = FineTuneSettings.of(of_tuning), LmSettings.of({**of_lm, "lm": lm})
    meter, existed = StepMeter(), out.exists()
    made = warm_up(
        reading.read(data),
        out,
        model,
        tuning,
        count=count,
        seed=seed,
        checkpoints=checkpoints,
        replace=replace,
        on_step=meter.fine_tune,
    )
    if as_json:
        print_json(warmup_summary(made))
    else:
        print_warmup(made)
    state = "was finished already" if existed and not replace else "warmed up"
    method = "logra" if made.adapter is None else "less"
    note(f"{out}: {state}; next: airrep index {data} --method {method} --lm {out} --out INDEX")


def _check_parts(labels: Sequence[str] | None, held_out: Sequence[str] | None, teacher: Path | None) -> None:
    """Refuse to learn from nothing."""
    from airrep.errors import ConfigError

    if not labels and teacher is None:
        raise ConfigError("train: there is nothing to learn from; expected labels or a teacher. Give LABELS.")
    if not labels and not held_out:
        raise ConfigError(
            "train: no labels say which step is best; expected some beside a teacher's. Give LABELS, or --held-out."
        )


@app.command()
@shared_options
def train(
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
    from airrep.labels.gather import gather, lineage_of
    from airrep.labels.teaching import TeacherSettings, split_settings
    from airrep.runtime.train_distributed import is_first_process
    from airrep.training.settings import TrainingSettings
    from airrep.training.train import train_encoder

    flags = {"start": start, "train_layers": train_layers, "steps": steps, "device": device, "precision": precision}
    of_training, of_teacher = split_settings(_values(config, settings, **flags, **teaching.settings))
    teaching.check(of_teacher)
    _check_parts(labels, held_out, teaching.teacher)
    chosen, asked = TrainingSettings.of(of_training), TeacherSettings.of(of_teacher, "teacher")
    corpora = [reading.read(path) for path in data or ()]
    lineage = lineage_of(labels or (), held_out or (), test or (), mixed=mixed)
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


@app.command()
@shared_options
def adapt(
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
    from airrep.lm.settings import FineTuneSettings, LmSettings, split_settings
    from airrep.planning.adapt import Adaptation
    from airrep.planning.budget import parse_duration

    of_lm, of_tuning = split_settings(_values(config, settings, device=device))
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
