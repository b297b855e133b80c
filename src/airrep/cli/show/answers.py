"""Print what taught an answer, and what harms."""

from rich.table import Table
from rich.text import Text

from airrep.answers.answer import PREDICTION, Answer
from airrep.answers.explain import Explained, ExplainResult, Lesson
from airrep.answers.harm import HARM, HarmResult, SetResult
from airrep.cli.show.console import out, snippet
from airrep.cli.show.why import CAUSE, MARK, channel_parts, told_hit
from airrep.corpus.corpus import Example

SAME = 3
"""Phrases printed that a training example has with the better answer."""


def print_explained(result: ExplainResult) -> None:
    """Print what taught each answer."""
    for one in result.answers:
        out().print(f"taught most {_answered(one)}", soft_wrap=True, highlight=False)
        contrast = one.better is not None
        numbers = ("answer − better", "deviations", "answer", "better") if contrast else ("score", "deviations")
        table = Table("#", *numbers, "id", "prompt → response")
        for lesson in one.lessons:
            parts = [f"{lesson.score:+.3f}", f"{lesson.deviations:+.1f}"]
            if lesson.better_score is not None:
                parts += [f"{lesson.answer_score:+.3f}", f"{lesson.better_score:+.3f}"]
            table.add_row(str(lesson.rank), *parts, snippet(lesson.example.id, 20), _lesson_text(lesson))
        out().print(table)
    print_origin(result)
    if any(lesson.why for one in result.answers for lesson in one.lessons):
        out().print(f"[dim]{CAUSE}[/]", highlight=False)


def _answered(one: Explained) -> str:
    answer = f"[bold]{snippet(one.answer.id, 40)}[/]: {snippet(one.answer.prompt, 100)} [dim]→[/] "
    answer += snippet(one.answer.response, 100)
    return answer if one.better is None else f"{answer} [dim]in place of[/] {snippet(one.better.response, 100)}"


def _lesson_text(lesson: Lesson) -> str | Text:
    if lesson.why is None:
        return text_of(lesson.example)
    line = told_hit(lesson.example, lesson.why)
    if lesson.better_why is not None:
        line.append(f"\nbetter answer: {channel_parts(lesson.better_why.channels)}", style="dim")
        for place, same in enumerate(lesson.better_why.same_words[:SAME]):
            line.append(" · " if place else "\nsame words as the better answer: ", style="dim")
            line.append(snippet(same.text, 60), style=MARK)
    return line


def text_of(example: Example) -> str:
    """A training example in one line."""
    return f"{snippet(example.prompt, 90)} [dim]→[/] {snippet(example.response, 60)}"


def print_harmful(result: HarmResult) -> None:
    """Print what harms each query, and the hubs."""
    for one in result.queries:
        out().print(
            f"harmful for [bold]{snippet(one.query.id, 40)}[/]: {snippet(one.query.prompt, 100)}", soft_wrap=True
        )
        if not one.harms:
            told = f"no example scores below 0 and {-HARM:g} deviations below the mean: none is told to harm"
            out().print(f"[dim]{told}[/]", highlight=False)
            continue
        table = Table("#", "deviations", "score", "id", "prompt → response")
        for harm in one.harms:
            text = text_of(harm.example) + (" [bold](hub)[/]" if harm.hub else "")
            numbers = (f"{harm.deviations:+.1f}", f"{harm.score:+.3f}")
            table.add_row(str(harm.rank), *numbers, snippet(harm.example.id, 20), text)
        out().print(table)
    if result.hubs:
        out().print(
            "hubs, among the worst of at least half of the queries: odd in themselves, perhaps", highlight=False
        )
        table = Table("queries", "id", "prompt → response")
        for hub in result.hubs:
            table.add_row(f"{hub.queries:,}", snippet(hub.example.id, 20), text_of(hub.example))
        out().print(table)
    print_origin(result)


def print_set(result: SetResult) -> None:
    """Print what helps, or harms, a set of queries."""
    order = "most harmful" if result.least else "most helpful"
    left = f" ({result.even:,} more tell no examples apart)" if result.even else ""
    out().print(f"{order} for all {result.queries:,} queries together{left}", highlight=False)
    table = Table("#", "mean effect", "helped", "id", "prompt → response")
    for hit in result.hits:
        numbers = (f"{hit.score:+.3f}", f"{hit.helped:.0%}")
        table.add_row(str(hit.rank), *numbers, snippet(hit.example.id, 20), text_of(hit.example))
    out().print(table)
    print_origin(result)


def print_origin(result: Answer) -> None:
    """Print how to read an answer's numbers."""
    origin = result.provenance
    told = f"{origin.sign}; {origin.units}; method {origin.method}, index {origin.index[:12]}"
    out().print(f"[dim]{told}[/]", highlight=False)
    out().print(f"[dim]{PREDICTION}[/]", highlight=False)
