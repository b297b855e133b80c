"""The command that predicts costs: plan."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airrep.cli import options
from airrep.cli.flags import SettingsFlags
from airrep.cli.options import note, shared_options
from airrep.errors import ConfigError

if TYPE_CHECKING:
    from airrep.planning.plan_request import PlanRequest
    from airrep.planning.real_runs import RealRun

app = typer.Typer()


OF_LEARNING = {"subsets", "size", "queries", "steps", "train_layers", "training"}
"""Options that say how much is learnt from labels."""
PlanOptions = Annotated[
    Mapping[str, Any],
    SettingsFlags(
        "airrep.planning.plan_request:PlanRequest",
        ("subsets", "size", "queries", "steps", "train_layers", "seconds"),
        mode="own",
    ),
]


@app.command("plan")
@shared_options
def plan_command(
    ctx: typer.Context,
    reading: options.ReadingOptions,
    data: Annotated[str | None, typer.Argument(metavar="DATA", help=f"Data to plan for. {options.DATA_HELP}")] = None,
    lm: Annotated[
        str | None,
        f"{options.LM_HELP[:-1]}; without it no labels, no training and no method that reads one are planned.",
    ] = None,
    merged: options.MergedOption = False,
    examples: Annotated[
        int | None, "Examples of the corpus, when not those of DATA; their texts are taken as typical."
    ] = None,
    method: Annotated[
        list[str] | None,
        "Method to plan for, beside the encoder; may be repeated; channels, with --lm also logra, if not given.",
    ] = None,
    *,
    encoder: Annotated[str, "Sentence encoder: 'default', a folder or a Hub id."] = "default",
    planned: PlanOptions,
    workers: Annotated[int, typer.Option(min=1, help="Processes at once, of one thread each.")] = 1,
    against: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="RUN",
            help="A real index, labels or encoder to predict as well, or a folder of such: of each the newest, "
            "those of the same settings and texts first; repeatable. Not given: the newest below the current folder.",
        ),
    ] = None,
    seed: Annotated[int, "Of the random sample of texts."] = 0,
    device: options.DeviceOption = None,
    configuring: Annotated[
        options.TuningOptions, {"settings": "One setting of a method, or of fine-tuning, as key=value."}
    ],
    out: Annotated[Path | None, typer.Option(help="Also write the plan here.", metavar="RUN")] = None,
    as_json: options.JsonOption = False,
    replace: options.ReplaceOption = False,
) -> None:
    """Measure this machine for a minute; predict time, memory, disk, and when training the encoder pays.

    Methods are measured on a random sample of the texts. Times are seconds of one core; more workers share them.
    """
    from airrep.cli.show.plan import print_plan
    from airrep.evaluation.result import command_line
    from airrep.planning.plan import KIND
    from airrep.planning.plan_request import PlanRequest, needs_lm, run_benchmarks
    from airrep.planning.predict import NO_LM, make_plan
    from airrep.planning.real_runs import runs_against

    delivery = options.OutputOptions(as_json, out, replace)
    delivery.check(KIND)
    if data is None and examples is None:
        raise ConfigError("plan: expected DATA or --examples. Say what is to be planned for.")
    options.tell_workers(workers)
    texts = reading.read(data or _bundled())
    count, values = (
        len(texts) if examples is None else examples,
        configuring.values(merged=merged or None, device=device),
    )
    named: dict[str, Any] = {**planned, "encoder": encoder, "workers": workers, "seed": seed}
    lm = lm or values.pop("lm", None)
    unused = sorted(options.typed(ctx) & OF_LEARNING)
    if lm is None and unused:
        name = unused[0].replace("_", "-")
        raise ConfigError(f"--{name}: belongs to labels and training, which need an LM. Give --lm, or leave it out.")
    if lm is not None:
        values |= _of_training(configuring, lm, values)
    usual = tuple(name for name in PlanRequest.methods if lm is not None or not needs_lm(name))
    wish = PlanRequest.of(texts, count, lm, values, methods=tuple(method or usual), **named)
    if lm is None:
        note(f"plan: {NO_LM}; give --lm to plan for these too")
    runs = runs_against(wish, against) if against else _newest(wish)
    measures = run_benchmarks(wish, note)
    made = make_plan(wish, measures, command_line(sys.argv[1:]), [run.compare(measures) for run in runs])
    delivery.deliver(made, print_plan, f"{out}: written")


def _of_training(configuring: options.TuningOptions, lm: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of fine-tuning, those of a training among them."""
    from airrep.lm.settings import FineTuneSettings

    own = FineTuneSettings.of({name: values[name] for name in FineTuneSettings.model_fields if name in values})
    tuning = configuring.as_trained(lm, own, merged=bool(values.get("merged")))
    return tuning.model_dump(include=tuning.model_fields_set)


def _newest(wish: "PlanRequest") -> list["RealRun"]:
    """Real runs below the current folder."""
    from airrep.planning.real_runs import last_runs

    found = last_runs(wish, Path())
    if found:
        note(f"plan: will be compared with {', '.join(map(str, found))}; --against names others")
    return list(found.values())


def _bundled() -> str:
    """Path of the training data that comes with airrep."""
    from airrep.cli.demo import DATA

    note("plan: no DATA, so the texts that come with airrep are taken as typical of the corpus")
    return str(DATA / "train.jsonl")
