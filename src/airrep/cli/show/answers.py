"""Print answers to questions about training data."""

from collections.abc import Iterator

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from airrep.answers.answer import PREDICTION, Answer
from airrep.answers.audit import AuditResult
from airrep.answers.clean import CleanResult
from airrep.answers.explain import Explained, ExplainResult, Lesson
from airrep.answers.harm import HARM, HarmResult, SetResult
from airrep.answers.mix import MixResult
from airrep.answers.tokens import Token
from airrep.cli.show.console import out, print_table, printable, prompt_snippet, snippet
from airrep.cli.show.summaries import is_long, print_common, say_where_all_are
from airrep.cli.show.why import CAUSE, MARK, channel_parts, told_hit
from airrep.corpus.corpus import Example
from airrep.index.results.provenance import ZERO
from airrep.reports.answers.tables import TERMINAL, answer_tables
from airrep.reports.tables import signed

ALIKE = 2.0
"""Deviations above the mean below which the first example is told not to stand out."""
SAME = 3
"""Phrases printed that a training example has with the better answer."""
TOKENS = 5
"""Words printed that a training example helps, or harms, most; --json tells all."""


def print_explained(result: ExplainResult) -> None:
    """Print what taught each answer."""
    long = is_long(len(result.answers))
    for one in () if long else result.answers:
        out().print(f"taught most {_answered(one)}", soft_wrap=True, highlight=False)
        contrast = one.better is not None
        numbers = ("answer − better", "deviations", "answer", "better") if contrast else ("score", "deviations")
        table = Table("#", *numbers, "id", "prompt → response")
        for lesson in one.lessons:
            parts = [signed(lesson.score), f"{lesson.deviations:+.1f}"]
            if lesson.better_score is not None:
                parts += [signed(lesson.answer_score), signed(lesson.better_score)]
            text = _lesson_text(lesson, one.answer.response)
            table.add_row(str(lesson.rank), *parts, snippet(lesson.example.id, 20), text)
        out().print(table)
        if not any(lesson.answer_score or lesson.better_score for lesson in one.lessons):
            out().print(f"[dim]{ZERO}[/]", highlight=False)
        elif one.lessons[0].deviations < ALIKE:
            told = "none stands out: many examples score like the first. Where answers are short, try "
            told += "airrep clean INDEX --kind label --label response, or an index with --lm"
            out().print(f"[dim]{told}[/]", highlight=False, soft_wrap=True)
    if long:
        print_common(out(), [one.lessons for one in result.answers], "are among those that taught most")
        say_where_all_are(out(), len(result.answers), report=False)
    print_origin(result)
    if not long and any(lesson.why for one in result.answers for lesson in one.lessons):
        out().print(f"[dim]{CAUSE}[/]", highlight=False)


def _answered(one: Explained) -> str:
    answer = f"[bold]{snippet(one.answer.id, 40)}[/]: {prompt_snippet(one.answer.prompt, 100)} [dim]→[/] "
    answer += snippet(one.answer.response, 100)
    return answer if one.better is None else f"{answer} [dim]in place of[/] {snippet(one.better.response, 100)}"


def _lesson_text(lesson: Lesson, response: str) -> Text:
    line = Text.from_markup(text_of(lesson.example)) if lesson.why is None else told_hit(lesson.example, lesson.why)
    if lesson.better_why is not None:
        line.append(f"\nbetter answer: {channel_parts(lesson.better_why.channels)}", style="dim")
        for place, same in enumerate(lesson.better_why.same_words[:SAME]):
            line.append(" · " if place else "\nsame words as the better answer: ", style="dim")
            line.append(snippet(same.text, 60), style=MARK)
    for name, found in _leading_tokens(lesson):
        line.append(f"\n{name}: ", style="dim")
        for place, token in enumerate(found):
            line.append(" · " if place else "", style="dim")
            line.append(printable(" ".join(response[token.start : token.stop].split()))[:60], style=MARK)
            line.append(f" {signed(token.score)}", style="dim")
    return line


def _leading_tokens(lesson: Lesson) -> Iterator[tuple[str, list[Token]]]:
    """The words of the answer that an example helps most, and those it harms most, if any."""
    ranked = sorted(lesson.tokens or (), key=lambda token: -token.score)
    helped = [token for token in ranked if token.score > 0][:TOKENS]
    harmed = [token for token in reversed(ranked) if token.score < 0][:TOKENS]
    for name, found in (("helps the words", helped), ("harms the words", harmed)):
        if found:
            yield name, found


def text_of(example: Example) -> str:
    """A training example in one line."""
    return f"{prompt_snippet(example.prompt, 90)} [dim]→[/] {snippet(example.response, 60)}"


def print_harmful(result: HarmResult) -> None:
    """Print what harms each query, and the hubs."""
    long = is_long(len(result.queries))
    for one in () if long else result.queries:
        out().print(
            f"harmful for [bold]{snippet(one.query.id, 40)}[/]: {prompt_snippet(one.query.prompt, 100)}", soft_wrap=True
        )
        if not one.harms:
            told = f"no example scores below 0 and {-HARM:g} deviations below the mean: none is told to harm"
            out().print(f"[dim]{told}[/]", highlight=False)
            continue
        table = Table("#", "deviations", "score", "id", "prompt → response")
        for harm in one.harms:
            text = Text.from_markup(text_of(harm.example)) if harm.why is None else told_hit(harm.example, harm.why)
            if harm.hub:
                text.append(" (hub)", style="bold")
            numbers = (f"{harm.deviations:+.1f}", signed(harm.score))
            table.add_row(str(harm.rank), *numbers, snippet(harm.example.id, 20), text)
        out().print(table)
    if long:
        print_common(out(), [one.harms for one in result.queries], "are told to harm one", least=True)
        say_where_all_are(out(), len(result.queries), report=False)
    if result.hubs:
        out().print(
            "hubs, among the worst of at least half of the queries: odd in themselves, perhaps", highlight=False
        )
        table = Table("queries", "id", "prompt → response")
        for hub in result.hubs[: TERMINAL.rows]:
            table.add_row(f"{hub.queries:,}", snippet(hub.example.id, 20), text_of(hub.example))
        out().print(table)
    print_origin(result)
    if any(harm.why for one in result.queries for harm in one.harms):
        out().print(f"[dim]{CAUSE}[/]", highlight=False)


def print_set(result: SetResult) -> None:
    """Print what helps, or harms, a set of queries."""
    _print_tables(result)
    print_origin(result)


def print_cleaned(result: CleanResult) -> None:
    """Print the findings, kind by kind."""
    _print_tables(result)
    out().print("[dim]Findings are reasons to look, not proof; docs/answers.md tells how often they are right.[/]")


def print_audited(result: AuditResult) -> None:
    """Print the items that the training data contain, with the texts."""
    _print_tables(result)


def print_mix(result: MixResult) -> None:
    """Print the weights of sources."""
    _print_tables(result)
    print_origin(result)


def _print_tables(result: Answer) -> None:
    """Print the tables that a page of the answer has, with shorter texts."""
    for table in answer_tables(result, TERMINAL):
        caption = f". {table.caption}" if table.caption else ""
        told = f"[bold]{escape(printable(table.title))}[/]{escape(printable(caption))}"
        out().print(told, highlight=False, soft_wrap=True)
        if table.lines:
            print_table(table)


def print_origin(result: Answer) -> None:
    """Print how to read an answer's numbers."""
    origin = result.provenance
    told = f"{origin.sign}; {origin.units}; method {origin.method}, index {origin.index[:12]}"
    out().print(f"[dim]{told}[/]", highlight=False)
    out().print(f"[dim]{PREDICTION}[/]", highlight=False)
