"""Print rankings, groups, what-ifs, methods and manifests."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from airrep.attributors.methods import Method, Refused
from airrep.attributors.recipes import short_text
from airrep.cli.show.console import out, print_fields, printable, prompt_snippet, snippet
from airrep.cli.show.summaries import (
    add_both_ends,
    is_long,
    print_common_hits,
    print_group_means,
    print_mean_change,
    say_where_all_are,
)
from airrep.cli.show.why import CAUSE, has_same_words, marked_query, told_hit
from airrep.corpus.corpus import Example
from airrep.index.results.hits import Hits
from airrep.index.results.kinds import GroupResult, TopResult, WhatIfResult
from airrep.index.results.provenance import ZERO, order_in_words
from airrep.reports.tables import bytes_text, signed
from airrep.runtime.remote.places import shown


def print_top(result: TopResult) -> None:
    """Print the ranking of each query."""
    console = out()
    for hits in () if is_long(len(result)) else result:
        order = order_in_words(hits.least, (hit.score for hit in hits))
        if has_same_words(hits):
            named = Text.from_markup(f"{order} for [bold]{snippet(hits.query.id, 40)}[/]: ")
            console.print(named.append_text(marked_query(hits)), soft_wrap=True)
        else:
            console.print(f"{order} for {_named(hits.query)}", soft_wrap=True, highlight=False)
        console.print(_hits_table(hits))
        if not any(hit.score for hit in hits):
            console.print(f"[dim]{ZERO}[/]", highlight=False)
    if len(result) > 1:
        print_common_hits(console, result)
    _print_provenance(console, result)
    _say_if_long(console, len(result))
    if any(map(has_same_words, result)) and not is_long(len(result)):
        console.print(f"[dim]{CAUSE}[/]", highlight=False)


def _named(query: Example) -> str:
    return f"[bold]{snippet(query.id, 40)}[/]: {prompt_snippet(query.prompt, 100)}"


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
        text: str | Text = f"{prompt_snippet(example.prompt, 90)} [dim]→[/] {snippet(example.response, 60)}"
        if hit.why is not None:
            text = told_hit(example, hit.why)
        table.add_row(str(hit.rank), signed(hit.score), snippet(example.id, 20), *origin, text)
    return table


def print_groups(result: GroupResult, general: str = "") -> None:
    """Print the groups of each query, most helpful first; of the caution, what is not said in *general*."""
    console = out()
    sizes = dict(zip(result.names, result.sizes, strict=True))
    for number, query in enumerate(() if is_long(len(result.queries)) else result.queries):
        console.print(f"groups for {_named(query)}", soft_wrap=True, highlight=False)
        parts = {channel: dict(zip(result.names, part[number], strict=True)) for channel, part in _told(result)}
        table = Table("#", "group", "examples", "score", *(snippet(channel, 40) for channel in parts))
        rows = [
            [
                str(rank),
                snippet(name, 60),
                f"{sizes[name]:,}",
                signed(score, 4),
                *(signed(p[name], 4) for p in parts.values()),
            ]
            for rank, (name, score) in enumerate(result.ranked(number), start=1)
        ]
        add_both_ends(table, rows)
        console.print(table)
    if len(result.queries) > 1:
        print_group_means(console, result)
    if not result.scores.any():
        console.print(f"[dim]{ZERO}[/]", highlight=False)
    _print_provenance(console, result, general)
    _say_if_long(console, len(result.queries))


def _told(result: GroupResult | WhatIfResult) -> Iterable[tuple[str, np.ndarray]]:
    """What each channel gave, where that was asked for."""
    return (result.channels or {}).items()


def print_what_if(result: WhatIfResult, general: str = "") -> None:
    """Print how each query's group score changes; of the caution, what is not said in *general*."""
    console = out()
    named = f"{snippet(result.removal, 100)}: " if result.removal else ""
    console.print(f"{named}{result.removed:,} examples left out, {result.kept:,} kept", highlight=False)
    parts = dict(_told(result))
    table = Table("query", "prompt", "before", "after", "change", *(snippet(channel, 40) for channel in parts))
    for place, query in enumerate(() if is_long(len(result.queries)) else result.queries):
        numbers = (result.before, result.after, result.change, *parts.values())
        row = (signed(one[place], 4) for one in numbers)
        table.add_row(snippet(query.id, 20), prompt_snippet(query.prompt, 80), *row)
    if table.row_count:
        console.print(table)
    if len(result.queries) > 1:
        print_mean_change(console, result)
    if not result.before.any() and not result.after.any():
        console.print(f"[dim]{ZERO}[/]", highlight=False)
    _print_provenance(console, result, general)
    _say_if_long(console, len(result.queries))


def _say_if_long(console: Console, queries: int) -> None:
    if is_long(queries):
        say_where_all_are(console, queries)


def _print_provenance(
    console: Console, result: TopResult | GroupResult | WhatIfResult, general: str | None = None
) -> None:
    """Print how to read the scores. What is *general* about the method is told with the index, not each time."""
    origin = result.provenance
    pool = f", {origin.pooling} pooling" if origin.pooling else ""
    console.print(
        f"[dim]{origin.sign}; {origin.units}{pool}; method {origin.method}, index {origin.index[:12]}[/]",
        highlight=False,
    )
    caution = "" if general is None else origin.caution.removeprefix(general).strip()
    if caution:
        console.print(f"[dim]{escape(caution)}[/]", highlight=False)


def print_methods(methods: Iterable[Method | Refused]) -> None:
    """Print what each method is, needs and costs; of those that cannot be used, why."""
    console = out()
    for method in methods:
        if isinstance(method, Refused):
            console.print(f"[bold]{escape(method.name)}[/]  cannot be used", highlight=False)
            console.print(f"    {'error':<18}{escape(printable(method.reason))}", highlight=False, soft_wrap=True)
            continue
        console.print(f"[bold]{escape(method.name)}[/]  {escape(method.summary)}", highlight=False)
        if method.package is not None:
            console.print(f"    {'package':<18}{escape(str(method.package))}", highlight=False)
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
    print_fields({"path": shown(str(path)), "kind": manifest["kind"], "files": size_of(manifest), **more})


def size_of(manifest: Mapping[str, Any]) -> str:
    """Number of an artifact's files, and their size in all."""
    size = sum(entry["bytes"] for entry in manifest["files"].values())
    return f"{len(manifest['files'])}, {bytes_text(size)}"


def _packages(manifest: Mapping[str, Any]) -> str:
    """The packages that bring methods which airrep has not."""
    return ", ".join(f"{one['name']} {one['version']}" for one in manifest.get("method_packages", {}).values())


def _corpus_text(entry: Mapping[str, Any]) -> str:
    times = f" by {entry['appends']:,} appends" if "appends" in entry else ""
    return f"{entry['rows']:,} rows{times}, {entry['fingerprint'][:12]}"


def _index_fields(manifest: Mapping[str, Any]) -> dict[str, Any]:
    corpora = [_corpus_text(entry) for entry in manifest["corpora"]]
    return {
        "method": manifest["method"],
        **({"of packages": packages} if (packages := _packages(manifest)) else {}),
        "settings": ", ".join(f"{name}={value}" for name, value in short_text(manifest["settings"]).items()),
        "attributor": manifest["attributor"][:12],
        "rows": f"{manifest['rows']:,} of {manifest['dimension']:,} features, {manifest['layout']}",
        "deleted": manifest["deleted"] or "none",
        "corpora": "; ".join(corpora),
        "metadata": ", ".join(manifest["fields"]) or "none",
        "changes": manifest["generation"],
        **({"caution": manifest["caution"]} if manifest.get("caution") else {}),
        "packages": ", ".join(f"{name} {version}" for name, version in manifest["packages"].items()),
    }
