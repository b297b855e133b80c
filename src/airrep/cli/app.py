"""The command line: one command per stage."""

import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airrep._version import __version__
from airrep.cli import diagnosis_commands, evaluating_commands, plan_commands
from airrep.cli import label_commands as learning_commands
from airrep.cli.options import (
    AddressOption,
    Asking,
    DataArgument,
    Delivery,
    EncoderOption,
    EngineOption,
    GpusOption,
    IndexArgument,
    PoolOption,
    Reading,
    ReplaceOption,
    TargetOption,
    TemperatureOption,
    WhereOption,
    WorkersOption,
    make_engine,
    note,
    open_index,
    print_json,
    shared_options,
)
from airrep.errors import AirRepError, ConfigError

if TYPE_CHECKING:
    from airrep.scoring.pooling import Pooling

INTERRUPTED = 130

app = typer.Typer(
    name="airrep",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"airrep {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Which training examples, and which groups of them, made a fine-tuned language model behave as it does."""


@app.command()
@shared_options
def index(
    train: DataArgument,
    out: Annotated[Path, typer.Option(help="Directory to make.")],
    reading: Reading,
    method: Annotated[str, typer.Option(help="Attribution method; see `airrep methods`.")] = "airrep",
    encoder: EncoderOption = None,
    lm: TargetOption = None,
    precision: Annotated[str | None, typer.Option(help="auto, float32 or bfloat16.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or cuda:N.")] = None,
    config: Annotated[Path | None, typer.Option(help="YAML file with settings of the method.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="One setting, as key=value.")] = None,
    shard_rows: Annotated[int, typer.Option(help="Examples in one shard: what an interruption can lose.")] = 4096,
    workers: WorkersOption = None,
    engine: EngineOption = "local",
    address: AddressOption = None,
    gpus: GpusOption = 0,
    replace: ReplaceOption = False,
) -> None:
    """Encode training data into an index. After an interruption run it again: it goes on where it stopped."""
    from airrep.cli.show.console import Meter
    from airrep.index.building import build_index
    from airrep.runtime.settings import read_settings

    flags = {"encoder": encoder, "lm": lm, "precision": precision, "device": device}
    values = read_settings(config, settings or ()) | {name: value for name, value in flags.items() if value is not None}
    corpus, existed = reading.read(train), out.exists()
    with Meter("encoding") as meter:
        built = build_index(
            corpus,
            out,
            method,
            settings=values,
            shard_rows=shard_rows,
            replace=replace,
            progress=meter,
            engine=make_engine(engine, workers, address, gpus),
        )
    state = "was finished already" if existed and not replace else "built"
    note(f"{out}: {state}: {len(built):,} examples, method {built.method}; next: airrep top {out} QUERIES")
    if built.empty:
        note(f"{out}: the features of {built.empty:,} examples are all 0, so they score 0 with every query")


@app.command()
@shared_options
def append(
    path: IndexArgument,
    more: DataArgument,
    reading: Reading,
    encoder: EncoderOption = None,
    lm: TargetOption = None,
) -> None:
    """Add examples to an index."""
    from airrep.cli.show.console import Meter
    from airrep.index import editing

    opened, corpus = open_index(path, encoder, lm), reading.read(more)
    with Meter("encoding") as meter:
        now = editing.append(opened, corpus, progress=meter)
    note(f"{path}: {len(now) - len(opened):,} examples added, {len(now):,} in all")


@app.command()
def delete(
    path: IndexArgument,
    where: WhereOption = None,
    ids: Annotated[list[str] | None, typer.Option("--id", help="Id of an example; may be repeated.")] = None,
) -> None:
    """Delete examples from an index; `airrep compact` frees their room."""
    from airrep.index import editing

    if (where is None) == (not ids):
        raise ConfigError("delete: expected --where or --id. Say which examples to delete.")
    opened = open_index(path)
    now = editing.delete(opened, opened.where(where) if where else opened.rows_of(ids or []))
    note(f"{path}: {len(opened) - len(now):,} examples deleted, {len(now):,} left")


@app.command()
def compact(path: IndexArgument) -> None:
    """Rewrite an index without its deleted examples."""
    from airrep.cli.show.console import Meter
    from airrep.index import editing

    with Meter("compacting") as meter:
        now = editing.compact(open_index(path), progress=meter)
    note(f"{path}: {len(now):,} examples in {len(now.shards)} shards")


@app.command()
@shared_options
def top(
    asking: Asking,
    delivery: Delivery,
    k: Annotated[int, typer.Option("-k", help="How many training examples for each query.")] = 10,
    least: Annotated[bool, typer.Option("--least", help="The most harmful instead of the most helpful.")] = False,
    where: WhereOption = None,
) -> None:
    """Find the training examples that help, or harm, each query most."""
    from airrep.cli.show.console import Meter, print_top

    delivery.check("top")
    opened, asked = asking.index(), asking.asked()
    with Meter("encoding queries") as meter:
        result = opened.top(asked, k, least=least, where=where, progress=meter)
    delivery.deliver(result, print_top)


@app.command()
@shared_options
def group(
    asking: Asking,
    delivery: Delivery,
    by: Annotated[str | None, typer.Option(help="A field whose values are the groups, such as source.")] = None,
    groups: Annotated[
        Path | None, typer.Option(help="JSON of groups: names with lists of ids or rows, or a list of such lists.")
    ] = None,
    pool: PoolOption = None,
    temperature: TemperatureOption = 1.0,
) -> None:
    """Score groups of training examples for each query."""
    from airrep.cli.show.console import Meter, print_groups
    from airrep.index.index import read_groups

    delivery.check("group")
    chosen_pool = _pool(pool, temperature)
    if by is not None and groups is None:
        chosen: Any = by
    elif groups is not None and by is None:
        chosen = read_groups(groups)
    else:
        raise ConfigError("group: expected one of --by FIELD and --groups FILE. Say what the groups are.")
    opened, asked = asking.index(), asking.asked()
    with Meter("encoding queries") as meter:
        result = opened.group_scores(asked, chosen, chosen_pool, temperature=temperature, progress=meter)
    delivery.deliver(result, print_groups)


def _pool(name: str | None, temperature: float) -> "Pooling | None":
    """The pool that was typed in, checked before any work; None for the method's own."""
    from airrep.scoring.pooling import Pooling

    return None if name is None else Pooling.parse(name, temperature, f"--pool {name}")


@app.command()
@shared_options
def what_if(
    asking: Asking,
    delivery: Delivery,
    remove: Annotated[str | None, typer.Option(help="Filter of the examples to leave out.")] = None,
    keep: Annotated[str | None, typer.Option(help="Filter of the only examples to keep.")] = None,
    pool: PoolOption = None,
    temperature: TemperatureOption = 1.0,
) -> None:
    """Score what leaving part of the training data out would do to each query."""
    from airrep.cli.show.console import Meter, print_what_if

    delivery.check("what-if")
    chosen_pool = _pool(pool, temperature)
    chosen = {name: text for name, text in (("remove", remove), ("keep", keep)) if text is not None}
    if len(chosen) != 1:
        raise ConfigError("what-if: expected one of --remove and --keep. Give one filter.")
    opened, asked = asking.index(), asking.asked()
    rows = {name: opened.where(text) for name, text in chosen.items()}
    for name, text in chosen.items():
        if not len(rows[name]):
            raise ConfigError(f"--{name} {text}: no example fulfils it; expected some. Choose another filter.")
    with Meter("encoding queries") as meter:
        result = opened.what_if(asked, pool=chosen_pool, temperature=temperature, progress=meter, **rows)
    delivery.deliver(result, print_what_if)


@app.command()
@shared_options
def select(
    asking: Asking,
    count: Annotated[int, typer.Option(help="How many training examples to pick.")],
    out: Annotated[Path, typer.Option(help="JSONL file to write.")],
    where: WhereOption = None,
    drop_duplicates: Annotated[
        bool, typer.Option("--drop-duplicates", help="Of equal texts pick only the first.")
    ] = False,
    by_weight: Annotated[
        bool, typer.Option("--resample", help="Draw by importance weight for all queries together; needs a dsir index.")
    ] = False,
    seed: Annotated[int | None, typer.Option(help="Of the draws of --resample; 0 if not given.")] = None,
    replace: ReplaceOption = False,
) -> None:
    """Pick the training examples with the best rank for any query (min-rank), and say why for each."""
    from airrep.cli.show.console import Meter
    from airrep.index.picking import check_writable, resample
    from airrep.index.picking import select as pick

    if seed is not None and not by_weight:
        raise ConfigError("--seed: belongs to --resample; ranks need no chance. Add --resample, or leave it out.")
    check_writable(out, replace=replace)
    opened, asked = asking.index(), asking.asked()
    if by_weight:
        drawn = resample(opened, asked, count, seed=seed or 0, where=where, drop_duplicates=drop_duplicates)
        drawn.write(out, replace=replace)
        note(f"{out}: {len(drawn):,} examples, drawn by importance weight with seed {seed or 0}")
        return
    with Meter("encoding queries") as meter:
        selection = pick(opened, asked, count, where=where, drop_duplicates=drop_duplicates, progress=meter)
    selection.write(out, replace=replace)
    note(f"{out}: {len(selection):,} examples, the last at rank {selection[-1].rank} for its query")


@app.command()
def report(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Results of top, group and what-if; or evaluations, comparisons, plans."),
    ],
    out: Annotated[Path, typer.Option(help="HTML page to write.")],
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    figures: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Of evaluations: also write each figure as SVG and PNG here.")
    ] = None,
    no_figures: Annotated[
        bool, typer.Option("--no-figures", help="Of evaluations: tables alone, which need no matplotlib.")
    ] = False,
    curve: Annotated[
        list[str] | None,
        typer.Option(metavar="TAG", help="Of evaluations: draw values against a numeric tag; may be repeated."),
    ] = None,
    join: Annotated[
        bool, typer.Option("--join", help="Of evaluations: those of the same tags, queries and labels become one.")
    ] = False,
    replace: ReplaceOption = False,
) -> None:
    """Write one self-contained HTML page from results of top, group and what-if, or from evaluations."""
    from airrep.reports.sources import are_evaluations

    if are_evaluations(runs):
        from airrep.reports.evaluations import write_evaluation_report

        write_evaluation_report(
            runs, out, figures=figures, draw=not no_figures, curves=curve or (), join=join, title=title, replace=replace
        )
        note(f"{out}: written; open it in a browser" + (f"; figures in {figures}" if figures is not None else ""))
        return
    from airrep.index.results import read_result
    from airrep.reports.results import write_report

    if figures is not None or no_figures or curve or join:
        raise ConfigError(
            "report: --figures, --no-figures, --curve and --join are for evaluations; "
            "expected none of them here. Leave them out."
        )
    write_report([read_result(run) for run in runs], out, title=title, replace=replace)
    note(f"{out}: written; open it in a browser")


@app.command()
def show(
    path: Annotated[Path, typer.Argument(metavar="DIR", help="A directory that airrep wrote.")],
    verify: Annotated[bool, typer.Option("--verify", help="Check every byte against its checksum.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the manifest as JSON.")] = False,
) -> None:
    """Show what a directory holds, and what it was made from; of unfinished labels, what is missing; of evaluations
    and comparisons, their tables."""
    from airrep.cli.show.console import print_manifest
    from airrep.labels.labels import holds_labels
    from airrep.runtime.artifacts import check_digests, check_sizes, read_manifest

    if holds_labels(path):
        _show_labels(path, verify=verify, as_json=as_json)
        return
    manifest = read_manifest(path)
    (check_digests if verify else check_sizes)(path, manifest["files"])
    if as_json:
        print_json(manifest)
    else:
        print_manifest(path, manifest)
        _print_result(path, manifest["kind"])
    if verify:
        _note_whole(path, manifest)


def _show_labels(path: Path, *, verify: bool, as_json: bool) -> None:
    from airrep.cli.show.learning import print_labels
    from airrep.labels.labels import open_labels

    labels = open_labels(path)
    if as_json:
        print_json(labels.summary())
    else:
        print_labels(labels)
    if verify:
        labels.verify()
        _note_whole(path, labels.state)


def _print_result(path: Path, kind: str) -> None:
    """The tables of an evaluation or a comparison."""
    if kind in ("evaluation", "comparison"):
        from airrep.cli.show.result_console import print_result

        print_result(path)


def _note_whole(path: Path, manifest: Mapping[str, Any]) -> None:
    note(f"{path}: whole: {len(manifest['files'])} files have the checksums of the manifest")


@app.command()
def methods(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Only this one, with its settings.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False,
) -> None:
    """List the attribution methods: what each needs and costs."""
    from airrep.attributors.methods import METHODS, method_named
    from airrep.cli.show.console import print_methods, print_options

    chosen = list(METHODS.values()) if name is None else [method_named(name)]
    if as_json:
        print_json([method.to_dict() for method in chosen])
        return
    print_methods(chosen)
    if name is not None:
        print_options(chosen[0])


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Directory for what the demo makes.")] = Path("airrep-demo"),
    learn: Annotated[
        bool, typer.Option("--learn", help="Train the encoder too, on labels from a small language model: minutes.")
    ] = False,
    replace: ReplaceOption = False,
) -> None:
    """Try airrep on real data that comes with it: no network, under two minutes."""
    if learn:
        from airrep.cli.learning_demo import run_learning_demo

        run_learning_demo(out / "learning")
        return
    from airrep.cli.demo import run_demo

    run_demo(out, replace=replace)


app.add_typer(learning_commands.app)
app.add_typer(evaluating_commands.app)
app.add_typer(diagnosis_commands.app)
app.add_typer(plan_commands.app)


def main() -> None:
    """Run the command line; every expected failure is one line on stderr and exit status 1.

    A reader of stdout that stops early, such as ``head``, ends the process as it ends other Unix tools.
    """
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        app(prog_name="airrep")
    except SystemExit as ended:
        if ended.code == INTERRUPTED:
            note("airrep: interrupted; run the same command again to go on")
        raise
    except (AirRepError, OSError) as error:
        note(f"airrep: error: {error}")
        sys.exit(1)


if __name__ == "__main__":
    main()
