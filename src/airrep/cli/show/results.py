"""Print rankings, groups, what-ifs, methods and manifests."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.text import Text

from airrep.attributors.methods import Method, Refused
from airrep.attributors.recipes import Channel, recipe_of, short_text
from airrep.cli.show.console import out, print_captioned, print_fields, print_table, printable
from airrep.cli.show.hits import (
    CAUSE,
    INDENT,
    PARTS,
    deviations_text,
    print_copied,
    print_hit,
    print_lines,
    print_query,
    print_summary,
    print_verdict_counts,
    remark,
    say_where_all_are,
    shows_each,
)
from airrep.errors import many
from airrep.index.results.hits import Hits
from airrep.index.results.kinds import GroupResult, TopResult, WhatIfResult
from airrep.index.results.result import ZERO, Provenance, order_in_words
from airrep.reports.result_tables import changes_table, changes_text, groups_table, rank_groups
from airrep.reports.tables import bytes_text, seconds_text, short, signed
from airrep.runtime.remote.places import shown

if TYPE_CHECKING:
    from airrep.planning.budget import Forecast


def print_top(result: TopResult, wide: bool = False) -> None:
    """Print what the queries have in common, and the ranking of each query if there are few or *wide* is set."""
    several = len(result) > 1
    order = order_in_words(result.least, (hit.score for hits in result for hit in hits))
    told = all(hit.deviations is not None for hits in result for hit in hits)
    if several:
        scored = "deviations" if told else "scores"
        print_summary(result.in_common(), f"are among the {order} for at least one", scored=scored, wide=wide)
        print_verdict_counts([hits.verdict for hits in result])
    each = shows_each(len(result), wide, any(hit.why is not None for hits in result for hit in hits))
    for hits in result if each else ():
        _print_hits(hits, wide)
    _print_provenance(result, told=told)
    if not each:
        say_where_all_are(len(result))
    elif any(hit.why is not None and hit.why.same_words for hits in result for hit in hits):
        remark(CAUSE)
    if each and any(hit.why is not None and hit.why.tokens is not None for hits in result for hit in hits):
        remark(PARTS)


def _print_hits(hits: Hits, wide: bool) -> None:
    order = order_in_words(hits.least, (hit.score for hit in hits))
    taught = "teaches the better answer most, for" if hits.least else "taught the answer most, for"
    print_query(f"{order} for" if hits.better is None else taught, hits.query, hits.better)
    if hits.verdict is not None:
        print_lines(Text(printable(hits.verdict.text), style="bold"), hang=INDENT)
    for hit in hits:
        facts = [] if hit.deviations is None else [deviations_text(hit.deviations)]
        facts += [f"score {signed(hit.score)}"] if wide or hit.deviations is None else []
        ranked: dict[str, Any] = {"rank": hit.rank, "of": hits.provenance.rows}
        print_hit(hit.example, hit.row, facts, **ranked, wide=wide, why=hit.why, query=hits.query)
    if hits.copied is not None:
        print_copied(hits.copied, {hit.row: hit.rank for hit in hits})
    if not any(hit.score for hit in hits):
        remark(ZERO)


def print_groups(result: GroupResult, general: str = "", wide: bool = False) -> None:
    """Print the groups, most helpful first, and the part of the caution that is not in *general*."""
    each = shows_each(len(result.entries), wide, result.channels is not None)
    if len(result.entries) > 1:
        print_captioned(groups_table(result, result.entries))
    for entry in result.entries if each else ():
        print_query("groups for", entry.query, entry.better)
        print_table(groups_table(result, [entry]))
    if not result.scores.any():
        remark(ZERO)
    elif result.better is not None:
        _print_first_to_drop(result)
    _print_provenance(result, general)
    if not each:
        say_where_all_are(len(result.entries))


def _print_first_to_drop(result: GroupResult) -> None:
    """Say which group teaches the answers most in place of the better ones."""
    first = rank_groups(result.groups, result.scores)[0]
    if first.score <= 0:
        remark("No group teaches the given answers in place of the better ones, so there is no group to drop.")
        return
    told = f"Drop this first: {printable(short(first.group.name, 60))}. It teaches the answers most in place of the "
    told += f"better ones, for {first.first:,} of {many(len(result.entries), 'query', 'queries')}."
    print_lines(Text(told, style="bold"))


def print_what_if(result: WhatIfResult, general: str = "", wide: bool = False) -> None:
    """Print how each query's group score changes, and the part of the caution that is not in *general*."""
    named = f"{result.removal}: " if result.removal else ""
    print_lines(Text(f"{printable(named)}{many(result.removed, 'example')} left out, {result.kept:,} kept"))
    each = shows_each(len(result.entries), wide, result.channels is not None)
    if each:
        print_captioned(changes_table(result, result.entries))
    else:
        remark(changes_text(result.entries, contrast=result.better is not None))
    if not result.before.any() and not result.after.any():
        remark(ZERO)
    _print_provenance(result, general)
    if not each:
        say_where_all_are(len(result.entries))


def _print_provenance(
    result: TopResult | GroupResult | WhatIfResult, general: str | None = None, *, told: bool = False
) -> None:
    """Print how to read the scores, without the *general* caution, which is printed when the index is built."""
    origin = result.provenance
    units = (
        "" if origin.units == Provenance.units else f"; {origin.units}"
    )  # the usual ones say nothing to most readers
    units = f"; deviations from the mean score of the ranked examples{units}" if told else units
    pool = f", {origin.pooling} pooling" if origin.pooling not in ("", "channels") else ""
    method = "sum over the recipe's methods" if origin.method == "channels" else f"method {origin.method}"
    remark(f"{origin.sign}{units}{pool}; {method}, index {origin.index[:12]}")
    caution = "" if general is None else origin.caution.removeprefix(general).strip()
    if caution:
        remark(caution)


def print_methods(methods: Iterable[Method | Refused]) -> None:
    """Print what each method is, needs and costs; for a method that cannot be used, print why."""
    console = out()
    for method in methods:
        if isinstance(method, Refused):
            console.print(f"[bold]{escape(method.name)}[/]  cannot be used", highlight=False)
            console.print(f"    {'error':<18}{escape(printable(method.reason))}", highlight=False, soft_wrap=True)
            continue
        facts = method.facts
        console.print(f"[bold]{escape(method.name)}[/]  {escape(facts.pop('summary'))}", highlight=False)
        if method.package is not None:
            console.print(f"    {'package':<18}{escape(str(method.package))}", highlight=False)
        for name, value in facts.items():
            console.print(f"    {name.replace('_', ' '):<18}{escape(value)}", highlight=False)


def print_options(method: Method) -> None:
    """Print the settings of a method, which --set takes."""
    out().print("\nsettings, for --set NAME=VALUE or --set FILE.yaml:", highlight=False)
    for name, default, text in method.options:
        out().print(f"  [bold]{name}[/] ({escape(str(default))})", highlight=False)
        out().print(f"      {escape(' '.join(text.split()))}", highlight=False)


def print_manifest(path: Path, manifest: Mapping[str, Any]) -> None:
    """Print what an artifact holds and was made from."""
    more = _index_fields(path, manifest) if manifest["kind"] == "index" else manifest.get("provenance", {})
    known = {name: value for name, value in more.items() if value not in (None, "")}
    print_fields({"path": shown(str(path)), "kind": manifest["kind"], "files": size_of(manifest), **known})


def size_of(manifest: Mapping[str, Any]) -> str:
    """Return the number of an artifact's files and their total size."""
    size = sum(entry["bytes"] for entry in manifest["files"].values())
    return f"{len(manifest['files'])}, {bytes_text(size)}"


def _corpus_text(entry: Mapping[str, Any]) -> str:
    times = f" by {entry['appends']:,} appends" if "appends" in entry else ""
    return f"{many(entry['rows'], 'row')}{times}, {entry['fingerprint'][:12]}"


def _features_text(name: str, kind: str, dimension: int) -> str:
    return (
        f"{name}: none kept" if kind == "none" else f"{name}: {dimension:,}, {'dense' if kind == 'dense' else 'sparse'}"
    )


def _index_fields(path: Path, manifest: Mapping[str, Any]) -> dict[str, Any]:
    from airrep.index.rows import refuse_earlier

    refuse_earlier(path, manifest)
    corpora = [_corpus_text(entry) for entry in manifest["corpora"]]
    channels = [Channel.model_validate(one) for one in manifest["settings"].get("channels", ())]
    packages = ", ".join(f"{one['name']} {one['version']}" for one in manifest.get("method_packages", {}).values())
    return {
        "method": manifest["method"],
        **({"recipe": recipe_of(channels)} if manifest["method"] == "channels" else {}),
        **({"method packages": packages} if packages else {}),
        "settings": ", ".join(f"{name}={value}" for name, value in short_text(manifest["settings"]).items()),
        "attributor": manifest["attributor"][:12],
        "rows": f"{manifest['rows']:,}",
        "features": "; ".join(_features_text(**one) for one in manifest["channels"]),
        "deleted": manifest["deleted"] or "none",
        "corpora": "; ".join(corpora),
        "metadata": ", ".join(manifest["fields"]) or "none",
        "changes": manifest["generation"],
        **({"caution": manifest["caution"]} if manifest.get("caution") else {}),
        "packages": ", ".join(f"{name} {version}" for name, version in manifest["packages"].items()),
    }


def print_forecast(found: "Forecast", one: str, many: str, workers: int | None = None) -> None:
    """Print the cost forecast for all examples, and for one example.

    Args:
        found: the forecast.
        one: what one of them is called, such as ``"example"``.
        many: what several are called.
        workers: processes that share the work; each has one core.
    """
    time = f"{seconds_text(found.seconds)} for each {one}, {seconds_text(found.total)} in all on one core"
    if (workers or 1) > 1:
        time += f", {seconds_text(found.fixed + found.seconds * found.examples / (workers or 1))} on {workers}"
    fields = {many: f"{found.examples:,}; measured on {found.measured:,}", "time": time}
    if found.fixed:
        fields["first"] = f"{seconds_text(found.fixed)} of this time pass before the first {one}"
    if found.bytes:
        fields["disk"] = f"{bytes_text(found.bytes)} for each {one}, {bytes_text(found.bytes * found.examples)} in all"
    if found.memory is not None:
        fields["memory"] = f"{bytes_text(found.memory)} for each process"
    print_fields(fields)
