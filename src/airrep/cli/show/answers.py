"""Print answers to questions about training data."""

from collections.abc import Iterator
from typing import Any

from rich.text import Text

from airrep.answers.answer import PREDICTION, Answer
from airrep.answers.audit import Audited, AuditResult
from airrep.answers.clean import CleanResult, ExampleFinding
from airrep.answers.explain import Explained, ExplainResult, Lesson
from airrep.answers.harm import HARM, Harmed, HarmResult, SetResult
from airrep.answers.mix import MixResult
from airrep.answers.tokens import Token
from airrep.cli.show.console import out, print_captioned, printable
from airrep.cli.show.hits import (
    CAUSE,
    INDENT,
    MARK,
    SEPARATOR,
    channel_parts,
    deviations_text,
    has_same_words,
    origin_parts,
    print_hit,
    print_lines,
    print_query,
    print_summary,
    print_texts,
    print_verdict,
    print_verdict_counts,
    say,
    say_where_all_are,
    shows_each,
)
from airrep.corpus.corpus import Example
from airrep.index.results.provenance import ZERO, order_in_words
from airrep.reports.answers import answer_tables
from airrep.reports.tables import signed

ALIKE = 2.0
"""Deviations above the mean below which the first example is told not to stand out."""
SAME = 3
"""Phrases printed that a training example has with the better answer."""
TOKENS = 5
"""Words printed that a training example helps, or harms, most; --json tells all."""
FEW, MANY = 5, 100
"""Findings of a kind that are printed, usually and where everything is asked for."""


def print_explained(result: ExplainResult, wide: bool = False) -> None:
    """Print what the answers have in common, and what taught each if they are few, or all is asked for."""
    reasons = any(lesson.why or lesson.tokens for one in result.answers for lesson in one.lessons)
    console, each = out(), shows_each(len(result.answers), wide, reasons)
    if len(result.answers) > 1:
        print_summary(console, result.in_common(), "are among those that taught one most", wide=wide)
        print_verdict_counts(console, [one.verdict for one in result.answers])
    for one in result.answers if each else ():
        _print_lessons(one, result.provenance.rows, wide)
    print_origin(result)
    if not each:
        say_where_all_are(console, len(result.answers))
    elif has_same_words(lesson.why for one in result.answers for lesson in one.lessons):
        say(console, CAUSE)


def _print_lessons(one: Explained, of: int | None, wide: bool) -> None:
    console = out()
    print_query(console, "taught most", one.answer, one.better)
    print_verdict(console, one.verdict)
    for lesson in one.lessons:
        more = _lesson_lines(lesson, one.answer.response)
        facts = _lesson_facts(lesson, wide)
        ranked: dict[str, Any] = {"rank": lesson.rank, "of": of, "why": lesson.why}
        print_hit(console, lesson.example, lesson.row, facts, **ranked, wide=wide, more=more)
    if not any(lesson.answer_score or lesson.better_score for lesson in one.lessons):
        say(console, ZERO)
    elif one.lessons[0].deviations < ALIKE:
        told = "many examples score like the first. Where answers are short, try "
        say(console, told + "airrep clean INDEX --kind label --label response, or an index with --lm")


def _lesson_facts(lesson: Lesson, wide: bool) -> list[str]:
    told = [deviations_text(lesson.deviations)]
    if wide and lesson.better_score is None:
        told.append(f"score {signed(lesson.score)}")
    elif wide and lesson.better_score is not None:
        told.append(f"contrast {signed(lesson.score)}")
        told.append(f"answer {signed(lesson.answer_score)}, better {signed(lesson.better_score)}")
    return told


def _lesson_lines(lesson: Lesson, response: str) -> Iterator[Text]:
    """What is told of a lesson below its texts: the better answer's reasons, and words of the answer."""
    if lesson.better_why is not None:
        line = Text(f"better answer: {channel_parts(lesson.better_why.channels)}", style="dim")
        for place, same in enumerate(lesson.better_why.same_words[:SAME]):
            line.append(SEPARATOR if place else "; same words: ")
            line.append(printable(" ".join(same.text.split()))[:60], style=MARK)
        yield line
    for name, found in _leading_tokens(lesson):
        line = Text(f"{name}: ", style="dim")
        for place, token in enumerate(found):
            line.append(SEPARATOR if place else "")
            line.append(printable(" ".join(response[token.start : token.stop].split()))[:60], style=MARK)
            line.append(f" {signed(token.score)}")
        yield line


def _leading_tokens(lesson: Lesson) -> Iterator[tuple[str, list[Token]]]:
    """The words of the answer that an example helps most, and those it harms most, if any."""
    ranked = sorted(lesson.tokens or (), key=lambda token: -token.score)
    helped = [token for token in ranked if token.score > 0][:TOKENS]
    harmed = [token for token in reversed(ranked) if token.score < 0][:TOKENS]
    for name, found in (("helps the words", helped), ("harms the words", harmed)):
        if found:
            yield name, found


def print_harmful(result: HarmResult, wide: bool = False) -> None:
    """Print what the queries have in common, what harms each if they are few or all is asked for, and the hubs."""
    reasons = any(harm.why for one in result.queries for harm in one.harms)
    console, each = out(), shows_each(len(result.queries), wide, reasons)
    if len(result.queries) > 1:
        print_summary(console, result.in_common(), "are told to harm one", wide=wide)
    for one in result.queries if each else ():
        _print_harms(one, result.provenance.rows, wide)
    if result.hubs:
        say(console, "hubs, among the worst of at least half of the queries: odd in themselves, perhaps")
    for hub in result.hubs[: MANY if wide else FEW]:
        print_hit(console, hub.example, hub.row, [f"{hub.queries:,} queries"], wide=wide)
    print_origin(result)
    if not each:
        say_where_all_are(console, len(result.queries))
    elif has_same_words(harm.why for one in result.queries for harm in one.harms):
        say(console, CAUSE)


def _print_harms(one: Harmed, of: int | None, wide: bool) -> None:
    console = out()
    print_query(console, "harmful for" if one.better is None else "taught most", one.query, one.better)
    if not one.harms:
        say(console, f"no example scores below 0 and {-HARM:g} deviations below the mean: none is told to harm")
    for harm in one.harms:
        facts = [deviations_text(harm.deviations), *(["hub"] if harm.hub else [])]
        facts += [f"score {signed(harm.score)}"] if wide else []
        print_hit(console, harm.example, harm.row, facts, rank=harm.rank, of=of, wide=wide, why=harm.why)


def print_set(result: SetResult, wide: bool = False) -> None:
    """Print what helps, or harms, a set of queries."""
    console = out()
    order = order_in_words(result.least, (hit.score for hit in result.hits))
    print_lines(console, Text(f"{order} for all {result.queries:,} queries together", style="bold"))
    if result.even:
        say(console, f"{result.even:,} more queries tell no examples apart.")
    for hit in result.hits:
        facts = [f"{deviations_text(hit.score)} on average", f"above the mean for {hit.helped:.0%}"]
        print_hit(console, hit.example, hit.row, facts, rank=hit.rank, of=result.provenance.rows, wide=wide)
    print_origin(result)


def print_cleaned(result: CleanResult, wide: bool = False) -> None:
    """Print the findings, kind by kind, with what made them findings."""
    console = out()
    tables = {table.title: table for table in answer_tables(result)}
    for kind, (title, table) in zip((*result.checked, *result.skipped), tables.items(), strict=True):
        found = [one for one in result.findings if one.kind == kind]
        print_lines(console, Text(title, style="bold").append(f". {printable(table.caption)}", style="not bold"))
        for one in found[: MANY if wide else FEW]:
            _print_finding(one, wide)
        _say_more(len(found), MANY if wide else FEW)
    say(console, "Findings are reasons to look, not proof; docs/answers.md tells how often they are right.")


def _print_finding(one: ExampleFinding, wide: bool) -> None:
    console = out()
    value = [f"{one.value:.1f} robust deviations"] if one.kind in ("answer", "outlier") else []
    print_hit(console, one.example, one.row, value, wide=wide, more=[Text(one.reason, style="dim")])
    if one.other is not None:
        _print_like("repeats" if one.kind == "duplicate" else "nearest prompt", one.other, one.other_row)


def _print_like(what: str, example: Example, row: int | None) -> None:
    """Print an example below another that is like it."""
    origin = SEPARATOR.join((*origin_parts(example, row), example.id))
    print_lines(out(), Text(f"{what}: {printable(' '.join(origin.split()))}"), INDENT)
    print_texts(out(), example)


def _say_more(count: int, shown: int) -> None:
    if count > shown:
        wide = "--wide shows more, " if shown < MANY else ""
        say(out(), f"… {count - shown:,} more; {wide}--json and --out RUN have all")


def print_audited(result: AuditResult, wide: bool = False) -> None:
    """Print the items that the training data contain, with the texts."""
    console = out()
    (table,) = answer_tables(result)
    print_lines(console, Text(table.title, style="bold").append(f". {printable(table.caption)}", style="not bold"))
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
    print_hit(out(), one.item, None, facts, wide=wide, more=more)
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
    say(out(), f"{origin.sign}; {origin.units}; method {origin.method}, index {origin.index[:12]}")
    say(out(), PREDICTION)
