"""The tables of an answer, with whole texts."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from airrep.answers.answer import Answer
from airrep.answers.audit import Audited, AuditResult
from airrep.answers.clean import CleanResult
from airrep.answers.explain import Explained, ExplainResult, Lesson
from airrep.answers.harm import HarmResult, SetResult
from airrep.answers.mix import MixResult
from airrep.corpus.corpus import Example
from airrep.index.results import order_in_words
from airrep.index.why import Why
from airrep.reports.page import short
from airrep.reports.tables import Cell, Line, Table, signed, true_minus

TEXT = 1500
"""Characters shown of a text."""
ROWS = 500
"""Lines of a table: the artifact has all of them."""


def answer_tables(answer: Answer) -> list[Table]:
    """The tables of an answer, in order; at least one."""
    return list(_MAKERS[type(answer)](answer))


def _explained(result: ExplainResult) -> Iterator[Table]:
    for one in result.answers:
        contrast = one.better is not None
        numbers = ("answer − better", "deviations", "answer", "better") if contrast else ("score", "deviations")
        lines = [_lesson(lesson, one) for lesson in one.lessons]
        yield _table(f"What taught {one.answer.id}", (*numbers, "prompt → response"), lines, _asked(one))


def _asked(one: Explained) -> str:
    told = f"{short(one.answer.prompt, TEXT)} → {short(one.answer.response, TEXT)}"
    return told if one.better is None else f"{told}, in place of {short(one.better.response, TEXT)}"


def _lesson(lesson: Lesson, one: Explained) -> Line:
    numbers = [_signed(lesson.score), _signed(lesson.deviations, 1)]
    if lesson.better_score is not None:
        numbers += [_signed(lesson.answer_score), _signed(lesson.better_score)]
    notes = [_reasons(lesson.why), _reasons(lesson.better_why, "better answer: ")]
    notes += [
        f"“{short(one.answer.response[token.start : token.stop], 40)}” {_signed(token.score)}"
        for token in sorted(lesson.tokens or (), key=lambda token: -abs(token.score))[:8]
    ]
    return _line(f"{lesson.rank}. {lesson.example.id}", numbers, lesson.example, " · ".join(filter(None, notes)))


def _reasons(why: Why | None, name: str = "") -> str:
    if why is None:
        return ""
    parts = [f"{channel} {_signed(score)}" for channel, score in why.channels.items()]
    words = ", ".join(f"“{short(same.text, 60)}”" for same in why.same_words)
    return name + " · ".join([*parts, *([f"same words: {words}"] if words else [])])


def _harmful(result: HarmResult) -> Iterator[Table]:
    for one in result.queries:
        lines = [
            _line(
                f"{harm.rank}. {harm.example.id}",
                [_signed(harm.deviations, 1), _signed(harm.score)],
                harm.example,
                " · ".join(filter(None, ("a hub" if harm.hub else "", _reasons(harm.why)))),
            )
            for harm in one.harms
        ]
        columns = ("deviations", "score", "prompt → response")
        asked = f"{short(one.query.prompt, TEXT)} → {short(one.query.response, TEXT)}"
        yield _table(f"What harms {one.query.id}", columns, lines, asked if lines else f"{asked}: nothing that is told")
    if result.hubs:
        lines = [_line(hub.example.id, [f"{hub.queries:,}"], hub.example) for hub in result.hubs]
        yield _table(
            "Hubs", ("queries", "prompt → response"), lines, "Among the worst of at least half of the queries."
        )


def _of_set(result: SetResult) -> Iterator[Table]:
    lines = [
        _line(f"{hit.rank}. {hit.example.id}", [_signed(hit.score), f"{hit.helped:.0%}"], hit.example)
        for hit in result.hits
    ]
    order = order_in_words(result.least, (hit.score for hit in result.hits))
    columns = ("mean effect", "helped", "prompt → response")
    yield _table(f"{order.capitalize()} for all {result.queries:,} queries together", columns, lines)


def _cleaned(result: CleanResult) -> Iterator[Table]:
    for kind in result.checked:
        found = [one for one in result.findings if one.kind == kind]
        lines = [_line(one.example.id, [short(one.reason, 300)], one.example) for one in found]
        yield _table(
            kind.capitalize(), ("reason", "prompt → response"), lines, f"{len(found):,} of {result.examples:,}."
        )
    for name, reason in result.skipped.items():
        yield _table(name.capitalize(), ("reason",), [], f"Not looked for: {short(reason, 300)}")


def _audited(result: AuditResult) -> Iterator[Table]:
    lines = []
    for one in result.leaks:
        share = "–" if one.text is None else f"{one.text.share:.0%}"
        cosine = "–" if one.meaning is None else f"{one.meaning.cosine:.3f}"
        lines.append(_line(one.item.id, [one.verdict, share, cosine], one.item, _like(one)))
    columns = ("verdict", "words", "cosine", "item and what is like it")
    yield _table("Evaluation items", columns, lines, f"{len(lines):,} of {len(result.items):,} items.")


def _like(found: Audited) -> str:
    text, meaning = found.text, found.meaning
    if text is not None and found.verdict != "alike in meaning":
        return f"in {text.example.id}: {short(text.words, TEXT)}"
    return "" if meaning is None else f"like {meaning.example.id}: {_text(meaning.example)}"


def _mixed(result: MixResult) -> Iterator[Table]:
    columns = ("examples", "share", "weight", "95 % interval", "weight / share")
    rows = (
        (
            one.name,
            f"{one.examples:,}",
            f"{one.share:.1%}",
            f"{one.weight:.1%}",
            f"{one.low:.1%} to {one.high:.1%}",
            f"{one.lift:.2f}",
        )
        for one in result.sources
    )
    caption = f"Share of the {result.top:,} examples that help a query most, mean of {result.queries:,} queries."
    yield Table.of_texts((result.by, *columns), rows, title="Weights of sources", caption=caption)


def _table(title: str, columns: Iterable[str], lines: list[Line], caption: str = "") -> Table:
    more = f" The first {ROWS:,} of {len(lines):,}." if len(lines) > ROWS else ""
    return Table(title, ("example", *columns), tuple(lines[:ROWS]), caption + more, words=True)


def _line(head: str, numbers: Iterable[str], example: Example, note: str = "") -> Line:
    return Line(Cell(head), (*map(Cell, numbers), Cell(_text(example), note)))


def _text(example: Example) -> str:
    return f"{short(example.prompt, TEXT)} → {short(example.response, TEXT)}"


def _signed(value: float, digits: int = 3) -> str:
    return true_minus(signed(value, digits))


_MAKERS: Mapping[type[Answer], Callable[[Any], Iterable[Table]]] = {
    ExplainResult: _explained,
    CleanResult: _cleaned,
    AuditResult: _audited,
    MixResult: _mixed,
    HarmResult: _harmful,
    SetResult: _of_set,
}
KINDS: Mapping[str, type[Answer]] = {kind.kind: kind for kind in _MAKERS}
"""Answers of which a page can be made, by the kinds of their artifacts."""
