"""Print rankings, groups, what-ifs, methods and manifests."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from airrep.attributors.methods import Method
from airrep.cli.show.console import out, print_fields, snippet
from airrep.corpus.corpus import Example
from airrep.index.results import GroupResult, Hits, TopResult, WhatIfResult


def print_top(result: TopResult) -> None:
    """Print the ranking of each query."""
    console = out()
    for hits in result:
        order = "most harmful" if hits.least else "most helpful"
        console.print(f"{order} for {_named(hits.query)}", soft_wrap=True, highlight=False)
        console.print(_hits_table(hits))
    _print_provenance(console, result)


def _named(query: Example) -> str:
    return f"[bold]{snippet(query.id, 40)}[/]: {snippet(query.prompt, 100)}"


def _hits_table(hits: Hits) -> Table:
    table = Table()
    named = any(hit.example.source or hit.example.label for hit in hits)
    table.add_column("#", justify="right")
    table.add_column("score", justify="right")
    table.add_column("id")
    if named:
        table.add_column("source/label")
    table.add_column("prompt → response", overflow="ellipsis")
    for hit in hits:
        example = hit.example
        origin = [snippet("/".join(filter(None, (example.source, example.label))), 30)] if named else []
        text = f"{snippet(example.prompt, 90)} [dim]→[/] {snippet(example.response, 60)}"
        table.add_row(str(hit.rank), f"{hit.score:+.3f}", snippet(example.id, 20), *origin, text)
    return table


def print_groups(result: GroupResult) -> None:
    """Print the groups of each query, most helpful first."""
    console = out()
    sizes = dict(zip(result.names, result.sizes, strict=True))
    for number, query in enumerate(result.queries):
        console.print(f"groups for {_named(query)}", soft_wrap=True, highlight=False)
        table = Table("#", "group", "examples", "score")
        for rank, (name, score) in enumerate(result.ranked(number), start=1):
            table.add_row(str(rank), snippet(name, 60), f"{sizes[name]:,}", f"{score:+.4f}")
        console.print(table)
    _print_provenance(console, result)


def print_what_if(result: WhatIfResult) -> None:
    """Print how each query's group score changes."""
    console = out()
    console.print(f"without {result.removed:,} examples ({result.kept:,} kept)", highlight=False)
    table = Table("query", "prompt", "before", "after", "change")
    for query, change, before, after in zip(result.queries, result.change, result.before, result.after, strict=True):
        row = (f"{before:+.4f}", f"{after:+.4f}", f"{change:+.4f}")
        table.add_row(snippet(query.id, 20), snippet(query.prompt, 80), *row)
    console.print(table)
    _print_provenance(console, result)


def _print_provenance(console: Console, result: TopResult | GroupResult | WhatIfResult) -> None:
    origin = result.provenance
    pool = f", {origin.pooling} pooling" if origin.pooling else ""
    console.print(
        f"[dim]{origin.sign}; {origin.units}{pool}; method {origin.method}, index {origin.index[:12]}[/]",
        highlight=False,
    )
    if origin.caution:
        console.print(f"[dim]{escape(origin.caution)}[/]", highlight=False)


def print_methods(methods: Iterable[Method]) -> None:
    """Print what each method is, needs and costs."""
    console = out()
    for method in methods:
        console.print(f"[bold]{method.name}[/]  {escape(method.summary)}", highlight=False)
        for name, value in (
            ("pool", method.pool),
            ("needs", method.needs),
            ("bytes per example", method.bytes_per_example),
            ("cost", method.cost),
            ("paper", method.paper),
        ):
            console.print(f"    {name:<18}{escape(value)}", highlight=False)


def print_options(method: Method) -> None:
    """Print the settings of a method, for --set and --config."""
    out().print("\nsettings, for --set NAME=VALUE or --config FILE.yaml:", highlight=False)
    for name, default, text in method.options:
        out().print(f"  [bold]{name}[/] ({escape(str(default))})", highlight=False)
        out().print(f"      {escape(' '.join(text.split()))}", highlight=False)


def print_manifest(path: Path, manifest: Mapping[str, Any]) -> None:
    """Print what an artifact holds and was made from."""
    more = _index_fields(manifest) if manifest["kind"] == "index" else manifest.get("provenance", {})
    print_fields({"path": path, "kind": manifest["kind"], "files": size_of(manifest), **more})


def size_of(manifest: Mapping[str, Any]) -> str:
    """Number of an artifact's files, and their size in all."""
    size = sum(entry["bytes"] for entry in manifest["files"].values())
    return f"{len(manifest['files'])}, {size / 1e6:,.1f} MB"


def _index_fields(manifest: Mapping[str, Any]) -> dict[str, Any]:
    corpora = [f"{entry['rows']:,} rows, {entry['fingerprint'][:12]}" for entry in manifest["corpora"]]
    return {
        "method": manifest["method"],
        "settings": ", ".join(f"{name}={value}" for name, value in manifest["settings"].items()),
        "attributor": manifest["attributor"][:12],
        "rows": f"{manifest['rows']:,} of {manifest['dimension']:,} features, {manifest['layout']}",
        "deleted": manifest["deleted"] or "none",
        "corpora": "; ".join(corpora),
        "metadata": ", ".join(manifest["fields"]) or "none",
        "changes": manifest["generation"],
        "packages": ", ".join(f"{name} {version}" for name, version in manifest["packages"].items()),
    }
