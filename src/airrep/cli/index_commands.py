"""Commands that build and change an index."""

from pathlib import Path
from typing import Annotated

import typer

from airrep.cli.options import (
    AddressOption,
    DataArgument,
    EncoderOption,
    EngineOption,
    GpusOption,
    IndexArgument,
    Reading,
    ReplaceOption,
    TargetOption,
    WhereOption,
    WorkersOption,
    make_engine,
    note,
    open_moved_index,
    shared_options,
)
from airrep.errors import ConfigError

app = typer.Typer()


@app.command("index")
@shared_options
def index_command(
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


@app.command("append")
@shared_options
def append_command(
    path: IndexArgument,
    more: DataArgument,
    reading: Reading,
    encoder: EncoderOption = None,
    lm: TargetOption = None,
) -> None:
    """Add examples to an index."""
    from airrep.cli.show.console import Meter
    from airrep.index import editing

    opened, corpus = open_moved_index(path, encoder, lm), reading.read(more)
    with Meter("encoding") as meter:
        now = editing.append(opened, corpus, progress=meter)
    note(f"{path}: {len(now) - len(opened):,} examples added, {len(now):,} in all")


@app.command("delete")
def delete_command(
    path: IndexArgument,
    where: WhereOption = None,
    ids: Annotated[list[str] | None, typer.Option("--id", help="Id of an example; may be repeated.")] = None,
) -> None:
    """Delete examples from an index; `airrep compact` frees their room."""
    from airrep.index import editing

    if (where is None) == (not ids):
        raise ConfigError("delete: expected --where or --id. Say which examples to delete.")
    opened = open_moved_index(path)
    now = editing.delete(opened, opened.where(where) if where else opened.rows_of(ids or []))
    note(f"{path}: {len(opened) - len(now):,} examples deleted, {len(now):,} left")


@app.command("compact")
def compact_command(path: IndexArgument) -> None:
    """Rewrite an index without its deleted examples."""
    from airrep.cli.show.console import Meter
    from airrep.index import editing

    with Meter("compacting") as meter:
        now = editing.compact(open_moved_index(path), progress=meter)
    note(f"{path}: {len(now):,} examples in {len(now.shards)} shards")
