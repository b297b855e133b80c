"""The command plan: what a corpus will take on this machine."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from airrep.cli.options import DATA_HELP, Reading, ReplaceOption, note, print_json, shared_options
from airrep.errors import ConfigError

if TYPE_CHECKING:
    from airrep.planning.plan_request import PlanRequest
    from airrep.planning.real_runs import RealRun

app = typer.Typer()


@app.command("plan")
@shared_options
def plan_command(
    lm: Annotated[str, typer.Option("--lm", help="Target language model: a folder or a Hub id.")],
    reading: Reading,
    data: Annotated[str | None, typer.Argument(metavar="[DATA]", help=f"Data to plan for. {DATA_HELP}")] = None,
    examples: Annotated[
        int | None,
        typer.Option(help="Examples of the corpus, when not those of DATA; their texts are taken as typical."),
    ] = None,
    method: Annotated[
        list[str] | None, typer.Option("--method", help="Method to compare with; may be repeated (logra, tracin).")
    ] = None,
    encoder: Annotated[str, typer.Option(help="Sentence encoder: 'default', a folder or a Hub id.")] = "default",
    subsets: Annotated[int, typer.Option(help="Subsets to learn from.")] = 600,
    size: Annotated[int, typer.Option(help="Examples in each.")] = 100,
    queries: Annotated[int, typer.Option(help="Queries whose losses are noted after each fine-tune.")] = 400,
    steps: Annotated[int, typer.Option(help="Training steps of the encoder.")] = 300,
    train_layers: Annotated[str, typer.Option(help="Layers that are trained: all, or that many from the top.")] = "2",
    workers: Annotated[int, typer.Option(min=1, help="Processes at once, of one thread each.")] = 1,
    seconds: Annotated[float, typer.Option(help="How long to measure; starting processes comes on top.")] = 60.0,
    against: Annotated[
        list[Path] | None,
        typer.Option(
            "--against",
            metavar="RUN",
            help="A real index, labels or encoder to predict as well, or a folder of such: the newest of each; "
            "repeatable. Not given: the newest below the current folder.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the random sample of texts.")] = 0,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or cuda:N.")] = None,
    config: Annotated[Path | None, typer.Option(help="YAML file with settings.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="One setting of a method, or of fine-tuning, as key=value.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Also write the plan here.", metavar="RUN")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False,
    replace: ReplaceOption = False,
) -> None:
    """Measure this machine for a minute; predict time, memory, disk, and when training the encoder pays.

    Methods are measured on a random sample of the texts. Times are seconds of one core; more workers share them.
    """
    import sys

    from airrep.cli.show.plan import print_plan
    from airrep.evaluation.result import command_line
    from airrep.planning.plan import KIND
    from airrep.planning.plan_request import PlanRequest, run_benchmarks
    from airrep.planning.predict import make_plan
    from airrep.planning.real_runs import runs_against
    from airrep.runtime.artifacts import check_free, real_path
    from airrep.runtime.settings import read_settings

    if out is not None:
        check_free(real_path(out), KIND, replace=replace)
    if data is None and examples is None:
        raise ConfigError("plan: expected DATA or --examples. Say what is to be planned for.")
    texts = reading.read(data or _bundled())
    wish = PlanRequest.of(
        texts,
        len(texts) if examples is None else examples,
        lm,
        read_settings(config, settings or ()) | ({} if device is None else {"device": device}),
        methods=tuple(method or ("logra", "tracin")),
        encoder=encoder,
        subsets=subsets,
        size=size,
        queries=queries,
        steps=steps,
        train_layers=train_layers,
        workers=workers,
        seconds=seconds,
        seed=seed,
    )
    runs = runs_against(wish, against) if against else _newest(wish)
    measures = run_benchmarks(wish, note)
    made = make_plan(wish, measures, command_line(sys.argv[1:]), [run.compare(measures) for run in runs])
    if out is not None:
        made.write(out, replace=replace)
        note(f"{out}: written")
    if as_json:
        print_json(made.to_dict())
    else:
        print_plan(made)


def _newest(wish: "PlanRequest") -> list["RealRun"]:
    """Real runs below the current folder."""
    from airrep.planning.real_runs import last_runs

    found = last_runs(wish, Path())
    if found:
        note(f"plan: will be compared with {', '.join(map(str, found))}; --against names others")
    return list(found.values())


def _bundled() -> str:
    """Data that comes along."""
    from airrep.cli.demo import DATA

    note("plan: no DATA, so the texts that come with airrep are taken as typical of the corpus")
    return str(DATA / "train.jsonl")
