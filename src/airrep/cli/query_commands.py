"""Commands that ask an index: top, group, what-if, select, serve, mcp."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airrep.cli import options
from airrep.cli.flags import Setting
from airrep.cli.options import note, print_json
from airrep.errors import ConfigError, many, need

if TYPE_CHECKING:
    from airrep.corpus.corpus import Example
    from airrep.index.contrast import Better
    from airrep.index.index import Index
    from airrep.index.selection import SelectionResult
    from airrep.scoring.pooling import Pooling

app = typer.Typer()
LOCAL = "127.0.0.1"
"""Address that this machine alone reaches."""


@app.command("top")
def top_command(
    asking: options.QueryOptions,
    delivery: options.HitOptions,
    k: Annotated[int, typer.Option("-k", help="Number of training examples to show for each query, at most.")] = 10,
    least: Annotated[bool, "Show the most harmful examples instead of the most helpful."] = False,
    aggregate: Annotated[bool, "Give one ranking for all queries together, each with the same weight."] = False,
    where: options.WhereOption = None,
    why: Annotated[
        bool, "Show what each channel (method) added to a score, and which words the query and the example share."
    ] = False,
    tokens: Annotated[bool, "Show which words of an example taught which words of the answer. Includes --why."] = False,
    span: Annotated[
        str | None,
        typer.Option(
            metavar="START:END",
            help="Ask about only these characters of --response. You can also mark them with [[ ]].",
        ),
    ] = None,
) -> None:
    """Find the training examples that taught an answer.

    With --better, find the examples that taught this answer but not the better answer. Each answer gets a verdict: an
    example stands out, the evidence is weak, or nothing here taught the answer.
    """
    from airrep.answers.verdict import top
    from airrep.cli.show.results import print_top

    if (why or tokens) and aggregate:
        named = "--tokens" if tokens else "--why"
        raise ConfigError(
            f"top: {named} explains the hits of one query, but --aggregate ranks for all. Leave one of them out."
        )
    delivery.check("top-of-set" if aggregate else "top")
    opened, asked, better = asking.opened(span)
    how: dict[str, Any] = {"better": better, "least": least, "where": where}
    if aggregate:
        from airrep.answers.together import top_of_set
        from airrep.cli.show.answers import print_set  # here: it loads what prints all other answers

        delivery.deliver(top_of_set(opened, asked, k, **how, progress=True), print_set)
    else:
        delivery.deliver(top(opened, asked, k, **how, why=why, tokens=tokens, progress=True), print_top)


@app.command("group")
def group_command(
    asking: options.QueryOptions,
    delivery: options.HitOptions,
    by: Annotated[
        str,
        typer.Option(
            metavar="FIELD|FILE",
            help="How to form the groups. A field, such as source: one group for each value. A .json file: an object "
            "from group names to lists of ids or row numbers, or a list of lists. 'cluster': similar examples.",
        ),
    ],
    pool: options.PoolOption = None,
    why: Annotated[bool, "Show what each channel (method) added to a score."] = False,
) -> None:
    """Score groups of training examples for each query."""
    from airrep.answers.likeness.clusters import CLUSTER, find_clusters
    from airrep.cli.show.results import print_groups
    from airrep.scoring.groups import read_groups

    delivery.check("group")
    chosen_pool = _pool(pool)
    chosen: Any = read_groups(Path(by)) if by.endswith(".json") else by
    opened, asked, better = asking.opened()
    if by == CLUSTER and CLUSTER not in opened.fields:
        chosen = find_clusters(opened).groups(opened)
    settings: dict[str, Any] = {"better": better, "why": why}
    result = opened.group_scores(asked, chosen, chosen_pool, **settings, progress=True)
    delivery.deliver(result, partial(print_groups, general=opened.attributor.caution))


def _pool(typed: str | None) -> "Pooling | None":
    """The pool that was typed, checked before any work; None: the method's own."""
    from airrep.scoring.pooling import Pooling

    name, temperature = options.typed_pool(typed)
    return None if name is None else Pooling.parse(name, temperature, f"--pool {typed}")


@app.command("what-if")
def what_if_command(
    asking: options.QueryOptions,
    delivery: options.HitOptions,
    remove: Annotated[str | None, "Leave out the examples that match this filter."] = None,
    keep: Annotated[str | None, "Keep only the examples that match this filter."] = None,
    pool: options.PoolOption = None,
    why: Annotated[bool, "Show how much the score of each channel (method) changes."] = False,
) -> None:
    """Predict how leaving out part of the training data would affect the answer to each query."""
    from airrep.cli.show.results import print_what_if

    delivery.check("what-if")
    chosen_pool = _pool(pool)
    if (remove is None) == (keep is None):
        raise ConfigError("what-if: give either --remove FILTER or --keep FILTER.")
    opened, asked, better = asking.opened()
    how: dict[str, Any] = {"remove": remove, "keep": keep, "pool": chosen_pool, "why": why}
    result = opened.what_if(asked, better=better, **how, progress=True)
    delivery.deliver(result, partial(print_what_if, general=opened.attributor.caution))


@dataclass(frozen=True)
class PickOptions:
    """Options of which examples are picked, by rank or at random."""

    count: Annotated[int | None, "Number of training examples to pick. Default: as many as fit into --tokens."] = None
    where: options.WhereOption = None
    drop_duplicates: Annotated[bool, Setting("Pick only the first of several examples with the same texts.")] = False
    diversity: Annotated[
        float, Setting("Penalty for examples that resemble earlier picks: a number from 0 to below 1.")
    ] = 0.0
    by: Annotated[str | None, "Field by which --most limits examples, such as source."] = None
    most: Annotated[
        list[str] | None,
        "Most examples to pick for each value of the field --by, such as 500; or for one value, such as forum=500. "
        "May be repeated.",
    ] = None
    tokens: Annotated[int | None, "Token budget. Picking stops before it would be exceeded."] = None
    tokenizer: Annotated[
        str | None,
        Setting(
            "Units of --tokens: words (and punctuation marks), subwords (the default), or the tokens of a model, given "
            "by its folder or Hub id."
        ),
    ] = None
    resample: Annotated[
        bool,
        Setting(
            "true draws examples at random by importance weight, for all queries. Needs an index of --method dsir."
        ),
    ] = False
    seed: Annotated[int | None, Setting("With resample=true: random seed. Default: 0.", 0)] = None

    def check(self, *, contrast: bool) -> None:
        """Refuse options that do not go together, before any work."""
        if self.seed is not None and not self.resample:
            raise ConfigError("--set seed= works only with --set resample=true. Add that, or leave seed out.")
        if self.tokenizer is not None and self.tokens is None:
            raise ConfigError("--set tokenizer= works only with --tokens. Add --tokens, or leave tokenizer out.")
        others = (self.diversity, self.by, self.most, self.tokens is not None, contrast)
        if self.resample and (self.count is None or any(others)):
            raise ConfigError(
                "--set resample=true needs --count, and refuses diversity, --by, --most, --tokens and --better. Add "
                "--count, and remove the refused options."
            )
        _quotas(self.most)

    def pick(
        self, index: "Index", queries: "Sequence[Example]", better: "Better | None"
    ) -> "tuple[SelectionResult[Any], str]":
        """The examples, and how they were chosen, in words."""
        from airrep.index.results.result import ZERO
        from airrep.index.selection import resample, select

        alike: dict[str, Any] = {"where": self.where, "drop_duplicates": self.drop_duplicates}
        if self.resample:
            drawn = resample(index, queries, self.count or 0, seed=self.seed or 0, **alike)
            return drawn, f"drawn by importance weight with seed {self.seed or 0}"
        how: dict[str, Any] = {name: getattr(self, name) for name in ("diversity", "by", "tokens", "tokenizer")}
        how |= {"most": _quotas(self.most), "better": better}
        picked = select(index, queries, self.count, **how, **alike, progress=True)
        told = f"the last at rank {picked[-1].rank} for the query that ranks it best"
        told += "" if any(one.score for one in picked) else f"; {ZERO}"
        total = sum(one.tokens or 0 for one in picked)
        return picked, told if self.tokens is None else f"{total:,} tokens in all, {told}"


@app.command("select")
def select_command(
    asking: options.QueryOptions,
    picking: PickOptions,
    out: Annotated[Path | None, "JSONL file to write; may be left out with --json."] = None,
    as_json: options.JsonOption = False,
    replace: options.ReplaceOption = False,
) -> None:
    """Pick the training examples that rank best for any of the queries (min-rank), and say why each was picked."""
    from airrep.index.selection import check_selection

    picking.check(contrast=asking.better is not None)
    if out is not None:
        check_selection(out, replace=replace)
    elif not as_json:
        raise ConfigError("select: give --out FILE, --json, or both, to say where the examples go.")
    opened, asked, better = asking.opened()
    selection, how = picking.pick(opened, asked, better)
    if out is not None:
        selection.save(out, replace=replace)
        note(f"{out}: {many(len(selection), 'example')}, {how}")
        options.tell_records(opened, (one.example.prompt for one in selection), out)
    if as_json:
        print_json(selection.to_dict())


def _quotas(most: list[str] | None) -> int | dict[str, int] | None:
    """Quotas of values by name, or one for each; None for none."""
    named: dict[str, int] = {}
    for text in most or ():
        name, equals, number = text.rpartition("=")
        if not number.isdecimal():
            raise ConfigError(f"--most {text}: must be a number, or VALUE=NUMBER for one value of the field --by.")
        if not equals and len(most or ()) > 1:
            raise ConfigError(
                f"--most {text}: limits every value of the field --by, so --most cannot be repeated. Remove the other "
                "--most, or write each --most as VALUE=NUMBER."
            )
        if not equals:
            return int(number)
        if name in named:
            raise ConfigError(f"--most {text}: '{name}' has a limit already. Give one --most for each value.")
        named[name] = int(number)
    return named or None


@app.command("serve")
def serve_command(
    path: options.IndexArgument,
    reading: options.ReadingOptions,
    queries: Annotated[str | None, f"Queries that the page offers. {options.DATA_HELP}"] = None,
    better: Annotated[
        str | None, "Better answers to the queries: a file with the same prompts, or a field of --queries."
    ] = None,
    beside: Annotated[
        Path | None, typer.Option(metavar="INDEX", help="Another index of the same examples, to compare with.")
    ] = None,
    host: Annotated[str, "Address to listen on. Any but the default lets other machines connect."] = LOCAL,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes any free port.")] = 8766,
    token: Annotated[
        str | None,
        Setting("Access token of the page. Default: a random one. 'none' opens it to every user of this machine."),
    ] = None,
    api: Annotated[bool, "Serve only the HTTP routes for programs, without the page."] = False,
    recipe: options.RecipeOption = None,
    *,
    settings: options.ChangedOption,
) -> None:
    """Explore an index in the browser, on a page that this machine serves. Ctrl-C ends it."""
    need("airrep serve", "explorer", "fastapi", "starlette", "uvicorn")
    from airrep.cli.show.console import say
    from airrep.corpus.corpus import with_spans
    from airrep.explorer import security, serving
    from airrep.explorer.explorer import Explorer

    if better is not None and queries is None:
        raise ConfigError("serve: --better needs --queries. Give both, or type better answers on the page.")
    secret = security.choose_token(token, host)
    with security.listen(host, port) as open_socket:
        moved = options.open_moved_index(path, settings, recipe)
        other = None if beside is None else options.open_moved_index(beside)
        read = reading.for_queries(moved)
        asked = None if queries is None else with_spans(read.read(queries, better))
        explorer = Explorer(moved, asked, other, options.better_of(better, read, asked or ()))
        explorer.prepare(True)
        note(
            f"{path}: serving {many(len(moved), 'example')}, method {moved.method}, until you press Ctrl-C. Open this "
            "address in a browser:"
        )
        serving.serve(explorer, host, open_socket, secret, say, page=not api)


@app.command("mcp")
def mcp_command(
    paths: Annotated[
        list[Path], typer.Argument(metavar="INDEX...", help="Index directories. Agents call each by its folder's name.")
    ],
    host: Annotated[str, "Address to listen on, with --port. Any but the default lets other machines connect."] = LOCAL,
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="Serve over HTTP on this port; 0 takes any free port. Default: serve on stdin and stdout.",
        ),
    ] = None,
    token: Annotated[
        str | None, Setting("Access token for HTTP clients. Default: a random one. 'none' turns it off.")
    ] = None,
    *,
    settings: options.ChangedOption,
) -> None:
    """Let agents query indexes over the Model Context Protocol (MCP). They can read these indexes and nothing else."""
    need("airrep mcp", "mcp", "mcp")  # which brings starlette and uvicorn
    from airrep.cli.show.console import say
    from airrep.explorer import agents, security
    from airrep.explorer.explorer import Explorer

    if port is None and (token is not None or host != LOCAL):
        raise ConfigError("mcp: --host and --set token= work only over HTTP. Add --port, or leave them out.")
    explorers = agents.named([Explorer(options.open_moved_index(path, settings)) for path in paths], paths)
    for explorer in explorers.values():
        explorer.prepare()
    served = agents.make_server(explorers)
    told = ", ".join(f"{name} ({many(len(explorer.indexes[0]), 'example')})" for name, explorer in explorers.items())
    if port is None:
        note(f"serving {told} on standard input and output")
        agents.serve_stdio(served)
        return
    secret = security.choose_token(token, host)
    with security.listen(host, port) as open_socket:
        rules = security.Rules.of(host, open_socket, secret)
        note(f"serving {told}. Clients send the token as Authorization: Bearer TOKEN. Ctrl-C ends the server")
        say(security.address_of(host, rules.port, secret, agents.PATH))
        agents.serve_http(served, rules, open_socket)
