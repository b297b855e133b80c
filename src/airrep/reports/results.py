"""Results of top, group and what-if as one HTML page."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeAlias
from urllib.parse import quote

from jinja2 import Environment

from airrep._version import __version__
from airrep.answers.answer import Answer
from airrep.answers.reading import read_result
from airrep.corpus.places import Span
from airrep.corpus.schemas.conversations import last_message, system_end
from airrep.errors import ConfigError
from airrep.index.results.kinds import TopResult, WhatIfResult
from airrep.index.results.result import Result
from airrep.reports import results_data as data
from airrep.reports.answers import write_answer_report
from airrep.reports.page import asset, check_page_free, environment, mark_places, page_bytes, policy
from airrep.reports.result_tables import Scale, changes_table, groups_table, shares_tables
from airrep.reports.tables import short, visible
from airrep.runtime.publishing import writing
from airrep.runtime.remote.outputs import write_output

TITLE = "Training data attribution"
TEXT_LIMITS = (4_000, 2_000, 1_000, 600, 400)
"""Characters shown of each text: the first with which the page keeps to its budget, or the last."""
TEXT_BUDGET = 8_000_000
"""Characters of all texts of a page together, so that the page of a thousand queries can still be opened."""
PAGE_QUERIES = 1000
"""Queries of one page; of more, the report has several."""
EXCERPT = 320
"""Characters of a longer text that are seen before it is unfolded."""


Given: TypeAlias = Result | Answer | Mapping[str, Any] | str | Path
"""A result as callers give it: itself, its JSON form (not of answers), or its path."""


def write_report(
    results: Sequence[Given] | Given,
    out: str | Path,
    *,
    title: str | None = None,
    notes: Sequence[str] = (),
    replace: bool = False,
) -> Path:
    """Write results as one HTML page that needs nothing else: no network, no other file, no script.

    Runs are brought together by the ids of their queries. The same results give the same bytes. Of more than
    1,000 queries, each page has 1,000, those after the first in files beside it: ``report-2.html`` and so on.

    Args:
        results: runs of top, group and what-if over one index, as objects, directories that they were written to, or in
            their JSON form; or answers (:func:`airrep.mix` and the like), as objects or directories; or one alone.
        out: the file to write; missing directories are made.
        title: heading of the page.
        notes: sentences set apart at its top, such as what is known about the method.
        replace: whether a file that is there already may be replaced.

    Returns:
        The path of the page, or of the first.

    Raises:
        ConfigError: there are no results, they come from different indexes, an id means two queries, or answers stand
            among results.
        DataError: one is not the JSON form of a result.
        ArtifactError: a directory holds no result; or a file exists and *replace* is false, it is a directory, or it
            cannot be written.

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
                "report: results of top, group or what-if stand among answers; expected one of both alone. Write one "
                "page for each."
            )
        return write_answer_report(answers, out, title=title, notes=notes, replace=replace)
    report = _Report.of([one for one in given if not isinstance(one, Answer)], path.name, title, notes)
    for name in report.names:
        check_page_free(path.with_name(name), replace)
    for number in reversed(range(len(report.names))):  # the first page, which leads to the others, last
        write_output(path.with_name(report.names[number]), page_bytes(report.render(number)))
    if replace:
        _remove_later(path, len(report.names))
    return path


def _read(results: Sequence[Given] | Given) -> list[Result | Answer | Mapping[str, Any]]:
    """What is given, read where it is a path."""
    several = [results] if isinstance(results, Result | Answer | Mapping | str | Path) else results
    return [read_result(one) if isinstance(one, str | Path) else one for one in several]


def _remove_later(path: Path, pages: int) -> None:
    """Remove pages of the report that was here before, behind the last of the new one: those that lead back to it."""
    back = f'<a href="{quote(path.name)}">1 to '.encode()
    for number in count(pages + 1):
        page = path.with_name(f"{path.stem}-{number}{path.suffix}")
        with writing(page):
            if not page.is_file() or back not in page.read_bytes():
                return
            page.unlink()


@dataclass(frozen=True)
class _Report:
    """Results brought together, on one page or several."""

    title: str
    notes: Sequence[str]
    runs: Sequence[data.Run]
    parts: Sequence[data.QueryPart]
    names: Sequence[str]
    """Of the files of its pages."""

    @classmethod
    def of(
        cls, results: Sequence[Result | Mapping[str, Any]], name: str, title: str | None, notes: Sequence[str]
    ) -> Self:
        """The report of some results, whose first page has the file name *name*."""
        runs = data.read_runs(results)
        parts, file = data.merge(runs), Path(name)
        pages = range(2, -(-len(parts) // PAGE_QUERIES) + 1)
        names = [name, *(f"{file.stem}-{number}{file.suffix}" for number in pages)]
        return cls(title or TITLE, [*notes, *_cautions(runs)], runs, parts, names)

    def render(self, page: int) -> str:
        """The text of a page, numbered from 0."""
        first = page * PAGE_QUERIES
        shown = self.parts[first : first + PAGE_QUERIES]
        styles, script = [asset("report.css"), asset("evaluations.css")], asset("report.js")
        return (
            _environment()
            .get_template("report.html.j2")
            .render(
                title=self.title,
                notes=self.notes,
                runs=self.runs,
                parts=self.parts,
                shown=shown,
                page=page,
                pages=self._pages(page),
                names=_names(self.runs),
                numbers=self._numbers,
                place=partial(self._place, page),
                fields=self._fields,
                limit=_text_limit(shown),
                styles=styles,
                several=len({run.provenance.sign for run in self.runs}) > 1,
                of_query=lambda name: self._place(page, self._numbers[name]),
                script=script,
                policy=policy(styles, [script]),
                version=__version__,
            )
        )

    def _pages(self, page: int) -> "list[PageLink]":
        """What leads to each page, if there are several."""
        firsts = range(0, len(self.parts), PAGE_QUERIES)
        links = [
            PageLink("" if number == page else quote(name), first + 1, min(first + PAGE_QUERIES, len(self.parts)))
            for number, (name, first) in enumerate(zip(self.names, firsts, strict=True))
        ]
        return links if len(links) > 1 else []

    def _place(self, page: int, number: int) -> str:
        """Where query *number* stands, as seen from a page."""
        other = (number - 1) // PAGE_QUERIES
        return f"{'' if other == page else quote(self.names[other])}#q{number}"

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {part.query.id: part.number for part in self.parts}

    @cached_property
    def _fields(self) -> list[str]:
        return _fields(self.runs)


class PageLink(NamedTuple):
    """The way to one of several pages."""

    name: str
    """File, as it stands in a link; none for the page itself."""
    first: int
    last: int
    """Numbers of its queries."""


class Prose(NamedTuple):
    """A text cut for display."""

    head: str
    rest: str
    """What is seen after unfolding."""
    left_out: int
    """Characters that the page does not hold."""


def cut(text: str, limit: int, head: int = EXCERPT) -> Prose:
    """Cut a text to *limit* characters, of which about *head* are seen at first."""
    shown = visible(text[:limit])
    left_out = max(len(text) - limit, 0)
    if len(shown) <= head * 5 // 4:
        return Prose(shown, "", left_out)
    space = max(shown.rfind(" ", 0, head), shown.rfind("\n", 0, head))
    split = space + 1 if space > head // 2 else head
    return Prose(shown[:split], shown[split:], left_out)


class Apart(NamedTuple):
    """A prompt of several messages, those before the last one apart."""

    before: str
    """What is seen of them after unfolding."""
    left_out: int
    """Characters before the last message that the page does not hold."""
    last: str
    name: str
    """What the messages before it are."""
    start: int
    """Where the last begins in the prompt; 0 for one that is shown from its beginning."""


def apart(prompt: str, limit: int, head: int = EXCERPT) -> Apart:
    """Take a prompt apart, so that of a long one its last message is seen at first, and no system prompt.

    Both parts have *limit* characters.
    """
    start, system = last_message(prompt, head * 5 // 4), system_end(prompt)
    name = "before the last message" if start > system else "of the system prompt"
    start = max(start, system)
    before = prompt[: min(start, max(limit - (len(prompt) - start), 0))]
    return Apart(before, start - len(before), prompt[start:], name, start)


def shifted(spans: Iterable[Span], start: int) -> list[Span]:
    """Stretches of a text as they stand in the part of it that begins at *start*."""
    return [replace(span, start=span.start - start, stop=span.stop - start) for span in spans]


def _cautions(runs: Sequence[data.Run]) -> list[str]:
    """Each caution once; not those that others begin with, which say more."""
    found = dict.fromkeys(run.provenance.caution for run in runs if run.provenance.caution)
    return [one for one in found if not any(other != one and other.startswith(one) for other in found)]


@cache
def _environment() -> Environment:
    """The templates, with what this page needs in them."""
    made = environment().overlay()
    made.filters = made.filters | {"apart": apart, "cut": cut, "mark_places": mark_places, "shifted": shifted}
    made.filters |= {"contrast": data.is_contrast}
    tables = {"shares": shares_tables, "groups_table": groups_table, "changes_table": changes_table}
    own = {"data": data, "Scale": Scale, "EXCERPT": EXCERPT, "TEXT_LIMIT": TEXT_LIMITS[0], **tables}
    made.globals = made.globals | own
    return made


def _text_limit(parts: Sequence[data.QueryPart]) -> int:
    """Characters shown of each text: the most with which the page keeps to its budget."""
    examples = [part.query for part in parts] + [hit.example for part in parts for hit in part.hits]
    lengths = [len(text) for example in examples for text in (example.prompt, example.response)]
    fitting = (limit for limit in TEXT_LIMITS if sum(min(length, limit) for length in lengths) <= TEXT_BUDGET)
    return next(fitting, TEXT_LIMITS[-1])


def _fields(runs: Sequence[data.Run]) -> list[str]:
    """Which of source and label any hit has."""
    hits = [hit for run in runs if isinstance(run, TopResult) for hit in data.all_hits(run)]
    return [name for name in ("source", "label") if any(getattr(hit.example, name) is not None for hit in hits)]


def _names(runs: Sequence[data.Run]) -> list[str]:
    """The heading of each run; runs that would have one name are numbered."""
    bare = [_name(run) for run in runs]
    return [
        name if bare.count(name) == 1 else f"{name} ({bare[: place + 1].count(name)})"
        for place, name in enumerate(bare)
    ]


def _name(run: data.Run) -> str:
    if isinstance(run, TopResult) and data.is_contrast(run):
        return "What teaches the better answers" if run.least else "What taught the answers"
    if isinstance(run, TopResult):
        return "Most harmful examples" if run.least else "Most helpful examples"
    if isinstance(run, WhatIfResult):
        told = f": {short(run.removal, 120)}" if run.removal else ""
        return f"What if {run.removed:,} of {run.removed + run.kept:,} examples were left out{told}"
    more = len(run.groups) - 3
    listed = ", ".join(short(group.name, 24) for group in run.groups[:3])
    return f"Groups: {listed}" + (f" and {more} more" if more > 0 else "")
