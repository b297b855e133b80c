"""Results of top, group and what-if as one HTML page."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote

from jinja2 import Environment

from airrep._version import __version__
from airrep.answers.reading import read_result
from airrep.corpus.corpus import Example
from airrep.corpus.places import Span
from airrep.corpus.schemas.conversations import last_message, system_end
from airrep.errors import ConfigError, DataError
from airrep.index.results.hits import Hit, Hits
from airrep.index.results.kinds import GroupResult, QueryChange, QueryScores, TopResult, WhatIfResult
from airrep.index.results.result import Answer, Result
from airrep.reports import result_tables
from airrep.reports.answers import answers_page
from airrep.reports.citing import origin_tables
from airrep.reports.page import asset, check_page_free, environment, mark_places, page_bytes, policy
from airrep.reports.result_tables import Run, Scale, all_hits, changes_table, groups_table, is_contrast, shares_tables
from airrep.reports.sources import check_once
from airrep.reports.tables import short, visible
from airrep.runtime.publishing import writing
from airrep.runtime.remote.outputs import write_output

TITLE = "Training data attribution"
TEXT_LIMITS = (4_000, 2_000, 1_000, 600, 400)
"""Limits on the characters of each text; the first one that keeps the page within its budget is used, or the last."""
TEXT_BUDGET = 8_000_000
"""Most characters of all texts on a page, so that a browser can open a page of a thousand queries."""
PAGE_QUERIES = 1000
"""Most queries on one page; a report of more queries has several pages."""
EXCERPT = 320
"""Characters of a longer text that are shown before it is unfolded."""

_KINDS: Mapping[str, type[Run]] = {kind.kind: kind for kind in (TopResult, GroupResult, WhatIfResult)}
Given: TypeAlias = Result | Answer | Mapping[str, Any] | str | Path
"""A result as an object, in its JSON form (but not an answer), or as a path."""


def write_report(
    results: Sequence[Given] | Given,
    out: str | Path,
    *,
    title: str | None = None,
    notes: Sequence[str] = (),
    replace: bool = False,
) -> Path:
    """Write results as a self-contained HTML page, which needs no network and no other file.

    Results are joined by the ids of their queries. The same results give the same bytes. A report of more than
    1,000 queries has further pages in files beside the first: ``report-2.html`` and so on, 1,000 queries each.

    Args:
        results: results of top, group and what-if from one index, as objects, directories that they were written to, or
            in JSON form; or answers (such as of :func:`airrep.mix`), as objects or directories; or a single one.
        out: the file to write; missing directories are made.
        title: heading of the page.
        notes: sentences at the top of the page, such as what is known about the method.
        replace: True replaces an existing file.

    Returns:
        The path of the (first) page.

    Raises:
        ConfigError: there are no results, a result is given twice, indexes differ, an id has two different queries, or
            answers and results are mixed.
        DataError: a mapping is not the JSON form of a result.
        ArtifactError: a directory has no result; or a file exists and *replace* is false, is a directory, or cannot be
            written.

    Example:
        >>> path = airrep.write_report([index.top(queries, k=3)], "report.html")
        >>> path.exists()
        True
    """
    path = Path(out)
    check_page_free(path, replace)
    given = _read(results)
    answers = [one for one in given if isinstance(one, Answer)]
    if answers:
        if len(answers) < len(given):
            raise ConfigError(
                "report: results of `airrep top`, `airrep group` or `airrep what-if` cannot share a page with results "
                "of other commands. Write two reports."
            )
        write_output(path, page_bytes(answers_page(answers, title, notes)))
        return path
    runs = read_runs([one for one in given if not isinstance(one, Answer)])
    parts = merge(runs)
    pages = range(2, -(-len(parts) // PAGE_QUERIES) + 1)
    names = [path.name, *(f"{path.stem}-{number}{path.suffix}" for number in pages)]
    for name in names:
        check_page_free(path.with_name(name), replace)
    for name, text in _pages(runs, parts, names, title or TITLE, notes):
        write_output(path.with_name(name), page_bytes(text))
    if replace:
        _remove_later(path, len(names))
    return path


def _read(results: Sequence[Given] | Given) -> list[Result | Answer | Mapping[str, Any]]:
    """Read those that are given as paths (ConfigError: a path is given twice)."""
    several = [results] if isinstance(results, Result | Answer | Mapping | str | Path) else results
    check_once(several)
    return [read_result(one) if isinstance(one, str | Path) else one for one in several]


def _remove_later(path: Path, pages: int) -> None:
    """Remove an older report's pages beyond the new last page; such pages link back to the first page."""
    back = f'<a href="{quote(path.name)}">1 to '.encode()
    for number in count(pages + 1):
        page = path.with_name(f"{path.stem}-{number}{path.suffix}")
        with writing(page):
            if not page.is_file() or back not in page.read_bytes():
                return
            page.unlink()


@dataclass
class QueryPart:
    """Results of the runs for one query; ``number`` counts from 1 in the order of first appearance."""

    number: int
    query: Example
    better: Example | None = None
    """The better answer, if a run has one."""
    entries: list[tuple[int, Hits | QueryScores | QueryChange]] = field(default_factory=list)
    """For each run with this query: number of the run, from 0, and its result."""

    @property
    def hits(self) -> list[Hit]:
        """Hits of the query in all runs."""
        return [hit for _, entry in self.entries if isinstance(entry, Hits) for hit in entry.hits]


def read_runs(results: Sequence[Result | Mapping[str, Any]]) -> list[Run]:
    """Check the JSON forms of some results, and put them in the order: helpful, harmful, groups, what-ifs."""
    if not results:
        raise ConfigError("report: no results were given. Give at least one that was made with --out.")
    runs = [_run(result, f"report: result {number}") for number, result in enumerate(results, 1)]
    first = runs[0].provenance.index
    for index in (run.provenance.index for run in runs):
        if index != first:
            raise ConfigError(
                f"report: the results come from different indexes, or from one index with different --recipe options "
                f"({first[:12]} and {index[:12]}). Write a separate report for each."
            )
    kinds = list(_KINDS)
    return sorted(runs, key=lambda run: (kinds.index(run.kind), isinstance(run, TopResult) and run.least))


def _run(result: Result | Mapping[str, Any], name: str) -> Run:
    """Return a result, read from its JSON form if needed."""
    if isinstance(result, TopResult | GroupResult | WhatIfResult):
        return result
    kind = str(result.get("kind")) if isinstance(result, Mapping) else "none"
    if not isinstance(result, Mapping) or kind not in _KINDS:
        raise DataError(f"{name}: is of kind {kind[:40]!r}, but must be one of {', '.join(_KINDS)}.")
    return _KINDS[kind].from_dict(result, name)


def merge(runs: Sequence[Run]) -> list[QueryPart]:
    """Join the runs' results of each query by its id (ConfigError: one id has different texts)."""
    parts: dict[str, QueryPart] = {}
    for place, run in enumerate(runs):
        for entry in run.entries:
            part = parts.setdefault(entry.query.id, QueryPart(len(parts) + 1, entry.query))
            _check_same(part.query, entry.query)
            part.better = part.better or entry.better
            if entry.better is not None and part.better is not None:
                _check_same(part.better, entry.better)
            part.entries.append((place, entry))
    if not parts:
        raise ConfigError("report: the runs hold no queries. Give a run with at least one query.")
    return list(parts.values())


def _check_same(one: Example, other: Example) -> None:
    if (one.prompt, one.response, one.span) != (other.prompt, other.response, other.span):
        raise ConfigError(
            f"report: query '{one.id[:80]}' has different texts in two runs. Write one report for each query file."
        )


def _pages(
    runs: Sequence[Run], parts: Sequence[QueryPart], names: Sequence[str], title: str, notes: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield file names and texts of the pages, last page first, because the first page links to the others."""
    numbers = {part.query.id: part.number for part in parts}
    styles, script = [asset("report.css"), asset("evaluations.css")], asset("report.js")
    common = {
        "title": title,
        "notes": [*notes, *_cautions(runs)],
        "runs": runs,
        "parts": parts,
        "names": _names(runs),
        "numbers": numbers,
        "fields": _fields(runs),
        "several": len({run.provenance.sign for run in runs}) > 1,
        "origin": origin_tables([run for run in runs if isinstance(run, TopResult)]),
        "styles": styles,
        "script": script,
        "policy": policy(styles, [script]),
        "version": __version__,
    }
    firsts = range(0, len(parts), PAGE_QUERIES)
    for page in reversed(range(len(names))):
        files = ["" if number == page else quote(name) for number, name in enumerate(names)]

        def place(number: int, files: Sequence[str] = files) -> str:
            return f"{files[(number - 1) // PAGE_QUERIES]}#q{number}"

        links = [
            (file, first + 1, min(first + PAGE_QUERIES, len(parts))) for file, first in zip(files, firsts, strict=True)
        ]
        shown = parts[firsts[page] : firsts[page] + PAGE_QUERIES]
        own = {"page": page, "pages": links if len(links) > 1 else [], "shown": shown, "limit": _text_limit(shown)}
        own |= {"place": place, "of_query": lambda name, place=place: place(numbers[name])}
        yield names[page], _environment().get_template("report.html.j2").render(**common, **own)


class Prose(NamedTuple):
    """A text cut for display."""

    head: str
    rest: str
    """Text shown after unfolding."""
    left_out: int
    """Number of characters that the page does not contain."""


def cut(text: str, limit: int, head: int = EXCERPT) -> Prose:
    """Cut a text to *limit* characters, of which about *head* are shown before unfolding."""
    shown = visible(text[:limit])
    left_out = max(len(text) - limit, 0)
    if len(shown) <= head * 5 // 4:
        return Prose(shown, "", left_out)
    space = max(shown.rfind(" ", 0, head), shown.rfind("\n", 0, head))
    split = space + 1 if space > head // 2 else head
    return Prose(shown[:split], shown[split:], left_out)


class Apart(NamedTuple):
    """A prompt of several messages, split before its last message."""

    before: str
    """Text before the last message, shown after unfolding."""
    left_out: int
    """Number of characters before the last message that the page does not contain."""
    last: str
    name: str
    """Description of the text before it."""
    start: int
    """Position of the last message in the prompt; 0 if the prompt is not split."""


def apart(prompt: str, limit: int, head: int = EXCERPT) -> Apart:
    """Split a prompt, so that only the last message of a long prompt, and no system prompt, is shown at first.

    The two parts have at most *limit* characters together, unless the last message is longer.
    """
    start, system = last_message(prompt, head * 5 // 4), system_end(prompt)
    name = "before the last message" if start > system else "of the system prompt"
    start = max(start, system)
    before = prompt[: min(start, max(limit - (len(prompt) - start), 0))]
    return Apart(before, start - len(before), prompt[start:], name, start)


def shifted(spans: Iterable[Span], start: int) -> list[Span]:
    """Shift spans of a text to the part of it that begins at *start*."""
    return [replace(span, start=span.start - start, stop=span.stop - start) for span in spans]


def _cautions(runs: Sequence[Run]) -> list[str]:
    """Return the distinct cautions, without those that are the beginning of a longer caution."""
    found = dict.fromkeys(run.provenance.caution for run in runs if run.provenance.caution)
    return [one for one in found if not any(other != one and other.startswith(one) for other in found)]


@cache
def _environment() -> Environment:
    made = environment().overlay()
    made.filters = made.filters | {"apart": apart, "cut": cut, "mark_places": mark_places, "shifted": shifted}
    made.filters |= {"contrast": is_contrast}
    tables = {"shares": shares_tables, "groups_table": groups_table, "changes_table": changes_table}
    own = {"data": result_tables, "Scale": Scale, "EXCERPT": EXCERPT, "TEXT_LIMIT": TEXT_LIMITS[0], **tables}
    made.globals = made.globals | own
    return made


def _text_limit(parts: Sequence[QueryPart]) -> int:
    """Return the largest limit on each text's characters that keeps the page within its budget."""
    examples = [part.query for part in parts] + [hit.example for part in parts for hit in part.hits]
    lengths = [len(text) for example in examples for text in (example.prompt, example.response)]
    fitting = (limit for limit in TEXT_LIMITS if sum(min(length, limit) for length in lengths) <= TEXT_BUDGET)
    return next(fitting, TEXT_LIMITS[-1])


def _fields(runs: Sequence[Run]) -> list[str]:
    """Return those of "source" and "label" that some hit has."""
    hits = [hit for run in runs if isinstance(run, TopResult) for hit in all_hits(run)]
    return [name for name in ("source", "label") if any(getattr(hit.example, name) is not None for hit in hits)]


def _names(runs: Sequence[Run]) -> list[str]:
    """Return the heading of each run, numbered if several would be equal."""
    bare = [_name(run) for run in runs]
    return [
        name if bare.count(name) == 1 else f"{name} ({bare[: place + 1].count(name)})"
        for place, name in enumerate(bare)
    ]


def _name(run: Run) -> str:
    if isinstance(run, TopResult) and is_contrast(run):
        return "What teaches the better answers" if run.least else "What taught the answers"
    if isinstance(run, TopResult):
        return "Most harmful examples" if run.least else "Most helpful examples"
    if isinstance(run, WhatIfResult):
        told = f": {short(run.removal, 120)}" if run.removal else ""
        return f"What if {run.removed:,} of {run.removed + run.kept:,} examples were left out{told}"
    more = len(run.groups) - 3
    listed = ", ".join(short(group.name, 24) for group in run.groups[:3])
    return f"Groups: {listed}" + (f" and {more} more" if more > 0 else "")
