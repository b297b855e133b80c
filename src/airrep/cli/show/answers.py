"""Print answers to questions about training data."""

from rich.text import Text

from airrep.answers.audit import Audited, AuditResult
from airrep.answers.clean import CleanResult, ExampleFinding
from airrep.answers.mix import MixResult
from airrep.answers.together import SetResult
from airrep.cli.show.console import print_captioned, printable
from airrep.cli.show.hits import (
    INDENT,
    SEPARATOR,
    deviations_text,
    origin_parts,
    print_hit,
    print_lines,
    print_texts,
    remark,
)
from airrep.corpus.corpus import Example
from airrep.errors import many
from airrep.index.results.result import PREDICTION, Answer, order_in_words
from airrep.reports.answers import answer_tables
from airrep.reports.tables import together

FEW, MANY = 5, 100
"""Findings of a kind that are printed, usually and where everything is asked for."""


def print_set(result: SetResult, wide: bool = False) -> None:
    """Print what helps, or harms, a set of queries."""
    order = order_in_words(result.least, (hit.score for hit in result.hits))
    print_lines(Text(f"{order} for {together(result.queries)}", style="bold"))
    if result.even:
        remark(f"{many(result.even, 'more query gives', 'more queries give')} all examples the same score.")
    for hit in result.hits:
        facts = [f"{deviations_text(hit.score)} on average", f"above the mean for {hit.helped:.0%} of the queries"]
        print_hit(hit.example, hit.row, facts, rank=hit.rank, of=result.provenance.rows, wide=wide)
    print_origin(result)


def print_cleaned(result: CleanResult, wide: bool = False) -> None:
    """Print the findings, kind by kind, with what made them findings."""
    tables = {table.title: table for table in answer_tables(result)}
    for kind, (title, table) in zip((*result.checked, *result.skipped), tables.items(), strict=True):
        found = [one for one in result.findings if one.kind == kind]
        print_lines(Text(title, style="bold").append(f". {printable(table.caption)}", style="not bold"))
        for one in found[: MANY if wide else FEW]:
            _print_finding(one, wide)
        _say_more(len(found), MANY if wide else FEW)
    remark("Findings are reasons to look, not proof; docs/clean.md says how often they are right.")


def _print_finding(one: ExampleFinding, wide: bool) -> None:
    value = [f"{one.value:.1f} robust deviations"] if one.kind in ("answer", "outlier") else []
    print_hit(one.example, one.row, value, wide=wide, more=[Text(one.reason, style="dim")])
    if one.other is not None:
        _print_like("repeats" if one.kind == "duplicate" else "nearest prompt", one.other, one.other_row)


def _print_like(what: str, example: Example, row: int | None) -> None:
    origin = SEPARATOR.join((*origin_parts(example, row), example.id))
    print_lines(Text(f"{what}: {printable(' '.join(origin.split()))}"), INDENT)
    print_texts(example)


def _say_more(count: int, shown: int) -> None:
    if count > shown:
        wide = "--wide shows more, " if shown < MANY else ""
        remark(f"… {count - shown:,} more; {wide}--json and --out RUN have all")


def print_audited(result: AuditResult, wide: bool = False) -> None:
    """Print the items that the training data contain, with the texts."""
    (table,) = answer_tables(result)
    print_lines(Text(table.title, style="bold").append(f". {printable(table.caption)}", style="not bold"))
    shown = MANY if wide else 4 * FEW
    for one in result.leaks[:shown]:
        _print_leak(one, wide)
    _say_more(len(result.leaks), shown)


def _print_leak(one: Audited, wide: bool) -> None:
    facts: list[str] = [one.verdict]
    facts += [] if one.text is None else [f"{one.text.share:.0%} of its words"]
    facts += [] if one.meaning is None else [f"cosine {one.meaning.cosine:.3f}"]
    by_words = one.text is not None and one.verdict != "alike in meaning"
    more = [Text(f"in both: {one.text.words}", style="dim")] if by_words and one.text is not None else []
    print_hit(one.item, None, facts, wide=wide, more=more)
    found = one.text if by_words else one.meaning
    if found is not None:
        of = " (its prompt)" if by_words and one.text is not None and one.text.part != "item" else ""
        _print_like(f"training example{of}", found.example, found.row)


def print_mix(result: MixResult, wide: bool = False) -> None:
    """Print the weights of sources."""
    (table,) = answer_tables(result)
    print_captioned(table, None if wide else 60)
    print_origin(result)


def print_origin(result: Answer) -> None:
    """Print how to read an answer's numbers."""
    origin = result.provenance
    remark(f"{origin.sign}; {origin.units}; method {origin.method}, index {origin.index[:12]}")
    remark(PREDICTION)
