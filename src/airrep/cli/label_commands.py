"""Commands before training: sample, label, warmup."""

from pathlib import Path
from typing import Annotated

import typer

from airrep.cli.options import (
    DATA_HELP,
    AddressOption,
    ConfigOption,
    DataArgument,
    DeviceOption,
    EngineOption,
    GpusOption,
    LmOption,
    PrecisionOption,
    Reading,
    ReplaceOption,
    SetOption,
    WorkersOption,
    make_engine,
    note,
    print_json,
    shared_options,
    typed_values,
)

QueriesOption = Annotated[
    str | None, typer.Option("--queries", help=f"Where queries come from, when not from DATA. {DATA_HELP}")
]


app = typer.Typer()


@app.command("sample")
@shared_options
def sample_command(
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
    from airrep.labels.plan import SamplingSettings

    values = typed_values(
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
    chosen = SamplingSettings.of(values)
    corpus, asked = reading.read(data), None if queries is None else reading.read(queries)
    plan = sampling.sample(corpus, out, chosen, asked, replace=replace)
    count = sum(len(instance.subsets) for instance in plan.instances)
    others = "" if queries is None else f" --queries {queries}"
    following = f"airrep label {out} {data}{others} --lm MODEL"
    note(f"{out}: {len(plan.instances):,} instances, {count:,} subsets; next: {following}")


@app.command("label")
@shared_options
def label_command(
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
    from airrep.labels.plan import open_plan
    from airrep.lm.settings import FineTuneSettings, LmSettings, split_lm_settings

    values = typed_values(config, settings, device=device, precision=precision, max_tokens=max_tokens)
    of_lm, of_tuning = split_lm_settings(values)
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


@app.command("warmup")
@shared_options
def warmup_command(
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
    from airrep.lm.settings import FineTuneSettings, LmSettings, split_lm_settings
    from airrep.lm.warmup import warm_up

    of_lm, of_tuning = split_lm_settings(
        typed_values(config, settings, device=device, precision=precision, max_tokens=max_tokens)
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
