"""Commands that ask an index: top, group, what-if, select, serve."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airrep.cli import options
from airrep.cli.options import note, shared_options
from airrep.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from airrep.scoring.pooling import Pooling

app = typer.Typer()


@app.command("top")
@shared_options
def top_command(
    asking: options.QueryOptions,
    delivery: options.OutputOptions,
    k: Annotated[int, typer.Option("-k", help="How many training examples for each query.")] = 10,
    least: Annotated[bool, "The most harmful instead of the most helpful."] = False,
    where: options.WhereOption = None,
    why: Annotated[bool, "Tell what each channel gave to a score, and which words of both texts are the same."] = False,
) -> None:
    """Find the training examples that help, or harm, each query most."""
    from airrep.cli.show.console import Meter
    from airrep.cli.show.results import print_top

    delivery.check("top")
    opened, asked = asking.index(), asking.asked()
    with Meter("encoding queries") as meter:
        result = opened.top(asked, k, least=least, where=where, why=why, progress=meter)
    delivery.deliver(result, print_top)


@app.command("group")
@shared_options
def group_command(
    asking: options.QueryOptions,
    delivery: options.OutputOptions,
    by: Annotated[str | None, "A field whose values are the groups, such as source."] = None,
    groups: Annotated[Path | None, "JSON of groups: names with lists of ids or rows, or a list of such lists."] = None,
    pool: options.PoolOption = None,
    temperature: options.TemperatureOption = 1.0,
    why: Annotated[bool, "Tell what each channel gave to a score."] = False,
) -> None:
    """Score groups of training examples for each query."""
    from airrep.cli.show.console import Meter
    from airrep.cli.show.results import print_groups
    from airrep.scoring.groups import read_groups

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
        result = opened.group_scores(asked, chosen, chosen_pool, temperature=temperature, why=why, progress=meter)
    delivery.deliver(result, partial(print_groups, general=opened.attributor.caution))


def _pool(name: str | None, temperature: float) -> "Pooling | None":
    """The pool that was named, checked before any work; None: the method's own."""
    from airrep.scoring.pooling import Pooling

    return None if name is None else Pooling.parse(name, temperature, f"--pool {name}")


@app.command("what-if")
@shared_options
def what_if_command(
    asking: options.QueryOptions,
    delivery: options.OutputOptions,
    remove: Annotated[str | None, "Filter of the examples to leave out."] = None,
    keep: Annotated[str | None, "Filter of the only examples to keep."] = None,
    pool: options.PoolOption = None,
    temperature: options.TemperatureOption = 1.0,
    why: Annotated[bool, "Tell the change of each channel."] = False,
) -> None:
    """Score what leaving part of the training data out would do to each query."""
    from airrep.cli.show.console import Meter
    from airrep.cli.show.results import print_what_if

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
        result = opened.what_if(
            asked,
            remove=rows.get("remove"),
            keep=rows.get("keep"),
            pool=chosen_pool,
            temperature=temperature,
            why=why,
            progress=meter,
        )
    delivery.deliver(result, partial(print_what_if, general=opened.attributor.caution))


@app.command("select")
@shared_options
def select_command(
    asking: options.QueryOptions,
    count: Annotated[int, "How many training examples to pick."],
    out: Annotated[Path, "JSONL file to write."],
    where: options.WhereOption = None,
    drop_duplicates: Annotated[bool, "Of equal texts pick only the first."] = False,
    by_weight: Annotated[
        bool, typer.Option("--resample", help="Draw by importance weight for all queries together; needs a dsir index.")
    ] = False,
    seed: Annotated[int | None, "Of the draws of --resample; 0 if not given."] = None,
    replace: options.ReplaceOption = False,
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


@app.command("serve")
@shared_options
def serve_command(
    path: options.IndexArgument,
    reading: options.ReadingOptions,
    queries: Annotated[str | None, f"Queries to choose from on the page. {options.DATA_HELP}"] = None,
    beside: Annotated[
        Path | None, typer.Option(metavar="INDEX", help="Another index of the same examples, to compare with.")
    ] = None,
    host: Annotated[str, "Address to serve; another than the default lets other machines in."] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 for any that is free.")] = 8766,
    token: Annotated[str | None, "Token that the page must bring; one made by chance if not given."] = None,
    no_token: Annotated[bool, "Let everybody on this machine ask."] = False,
    encoder: options.EncoderOption = None,
    lm: options.TargetOption = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="A setting that is another now, as key=value: where a model has moved to, say."),
    ] = None,
) -> None:
    """Explore an index on a page in the browser, served by this machine; Ctrl-C ends it."""
    serving, explorer_class = _explorer_parts()
    from airrep.cli.show.console import Meter, say

    secret = serving.choose_token(token, no_token, host)
    with serving.listen(host, port) as open_socket:
        moved = options.open_moved_index(path, settings, encoder=encoder, lm=lm)
        other = None if beside is None else options.open_moved_index(beside)
        explorer = explorer_class(moved, reading.read_if(queries), other)
        with Meter("encoding queries") as meter:
            explorer.prepare(meter)
        note(f"{path}: {len(moved):,} examples, method {moved.method}; open the page in a browser, Ctrl-C ends it")
        serving.serve(explorer, host, open_socket, secret, say)


def _explorer_parts() -> tuple[Any, Any]:
    """Module that serves, and the explorer; MissingExtraError where FastAPI or uvicorn is not installed."""
    try:
        from airrep.explorer import serving
        from airrep.explorer.explorer import Explorer
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("fastapi", "uvicorn", "starlette"):
            raise
        raise MissingExtraError("airrep serve", "explorer") from error
    return serving, Explorer
