"""Tables of answers about training data, and the HTML page of them."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from airrep.answers.audit import Audited, AuditResult
from airrep.answers.clean import CleanResult
from airrep.answers.mix import MixResult
from airrep.answers.proof import Effects, ProofResult
from airrep.answers.texts import STRETCH, Templates
from airrep.answers.together import SetResult
from airrep.corpus.corpus import Example
from airrep.corpus.schemas.conversations import folded
from airrep.errors import many
from airrep.index.contrast import TOWARDS_SIGN
from airrep.index.results.result import Answer, order_in_words
from airrep.reports.page import Exhibit, Section, render_sections
from airrep.reports.tables import NOTHING, Cell, Line, Table, short, short_prompt, signed, together, true_minus

TITLE = "Answers about training data"
SECTIONS = {
    "clean": "What to look at in the data",
    "audit": "What the data share with the evaluation",
    "mix": "How to mix sources",
    "top-of-set": "What helps or harms all queries",
    "proof": "What these rows taught, by fine-tunes",
}


def answers_page(answers: Sequence[Answer], title: str | None, notes: Sequence[str]) -> str:
    """Return answers as one self-contained HTML page."""
    several = len({one.provenance.index for one in answers}) > 1
    signs = dict.fromkeys(one.provenance.sign for one in answers)
    shown = [_section(number, answer, several, len(signs) > 1) for number, answer in enumerate(answers, 1)]
    names = [exhibit.name for section in shown for exhibit in section.exhibits]
    origins = dict.fromkeys((one.provenance.method, one.provenance.index[:12]) for one in answers)
    cautions = dict.fromkeys(one.provenance.caution for one in answers if one.provenance.caution)
    return render_sections(
        shown,
        title=title or TITLE,
        notes=[*notes, *cautions, *dict.fromkeys(one.note for one in answers)],
        facts={
            "Method": ", ".join(dict.fromkeys(method for method, _ in origins)),
            "Index": ", ".join(dict.fromkeys(index for _, index in origins)),
            **({"Sign": next(iter(signs))} if len(signs) == 1 else {}),
        },
        labels={name: f"Table {number}" for number, name in enumerate(names, 1)},
    )


def _section(number: int, answer: Answer, several: bool, signed: bool) -> Section:
    name, origin = f"{answer.kind}-{number}", answer.provenance
    heading = SECTIONS[answer.kind]
    if several:
        heading += f": {origin.method}, index {origin.index[:12]}"
    exhibits = [Exhibit.of(f"{name}-{place}", table) for place, table in enumerate(answer_tables(answer), 1)]
    return Section(name, heading, tuple(exhibits), f"Sign: {origin.sign}." if signed else "")


HEADINGS = {
    "label": "Label: likely wrong",
    "answer": "Answer: unlike those of the nearest prompts",
    "duplicate": "Duplicate: repeats an earlier example",
    "outlier": "Outlier: far from all others",
    "harmful": "Harmful: for many queries",
}
"""Titles of the findings of each kind."""


ROWS, TEXT, REASON = 500, 1500, 300
"""Most lines of a table, characters of a text, and characters of a reason."""


def answer_tables(answer: Answer) -> list[Table]:
    """Return the tables of an answer, at least one, in order."""
    return list(_MAKERS[type(answer)](answer))


def _of_set(result: SetResult) -> Iterator[Table]:
    among = "" if result.provenance.rows is None else f" of {result.provenance.rows:,}"
    lines = [
        _line(hit.example, [_signed(hit.score), f"{hit.helped:.0%}"], f"{hit.rank:,}{among}") for hit in result.hits
    ]
    order = order_in_words(result.least, (hit.score for hit in result.hits))
    title = f"{order.capitalize()} for {together(result.queries)}"
    caption = (
        f"{many(result.even, 'more query gives', 'more queries give')} all examples the same score."
        if result.even
        else ""
    )
    yield _table(title, ("mean effect", "helped", "prompt → response"), lines, caption)


def _cleaned(result: CleanResult) -> Iterator[Table]:
    columns = ("reason", "prompt → response")
    for kind in result.checked:
        found = [one for one in result.findings if one.kind == kind]
        lines = [_line(one.example, [short(one.reason, REASON)], note=_like(one.other)) for one in found]
        caption = f"{len(found):,} of {many(result.examples, 'example')}."
        caption += _not_judged(result.not_judged.get(kind, 0), "example")
        if kind == "duplicate":
            caption += _templates(result.templates, STRETCH, "example")
        yield _table(HEADINGS[kind], columns, lines, caption)
    for name, reason in result.skipped.items():
        why = f"Not checked: {short(reason, REASON)}"
        yield _table(HEADINGS.get(name, name.capitalize()), columns, [], why)


def _audited(result: AuditResult) -> Iterator[Table]:
    lines = []
    for one in result.leaks:
        share = NOTHING if one.text is None else f"{one.text.share:.0%}"
        cosine = NOTHING if one.meaning is None else f"{one.meaning.cosine:.3f}"
        lines.append(_line(one.item, [one.verdict, share, cosine], note=_leak(one)))
    counts = Counter(one.verdict for one in result.items)
    told = ", ".join(f"{count:,} {verdict}" for verdict, count in counts.items())
    caption = f"{many(len(result.items), 'item')}: {told}. {_thresholds(result)}"
    caption += _not_judged(result.not_judged, "item")
    caption += _templates(result.templates, result.settings.order, "item")
    yield _table("Evaluation items", ("verdict", "words", "cosine", "item and what is like it"), lines, caption)


def _templates(found: Templates | None, words: int, one: str) -> str:
    """Return a sentence about text ignored as templates; empty if there was none."""
    if found is None:
        return ""
    return (
        f" Ignored, as they look like templates: {many(found.stretches, 'stretch', 'stretches')} of {words} words, in "
        f"{many(found.texts, one)}. The most frequent one, in {many(found.commonest_texts, 'example')}, is: "
        f"{short(found.commonest, TEXT)}."
    )


def _not_judged(count: int, one: str) -> str:
    """Return a sentence with the number of texts not compared by meaning; empty for none."""
    told = f" Not compared by meaning, as the encoder does not know most of their words: {many(count, one)}."
    return told if count else ""


def _thresholds(result: AuditResult) -> str:
    chosen = result.settings
    words = f"Words: share of an item's {chosen.order}-grams that one example has, contained from "
    words += f"{chosen.contained:.0%}, nearly contained from {chosen.nearly:.0%}"
    meaning = f"meaning: cosine, alike from {chosen.cosine:g}."
    if result.encoder is None:
        meaning = (
            "meaning was not compared, as the index holds no embeddings (build one with the method channels or airrep)."
        )
    return f"{words}; {meaning}"


def _like(other: Example | None, word: str = "") -> str:
    """Return id and text of the example that a finding is compared with; empty for None."""
    return "" if other is None else f"{word}{other.id}: {_text(other)}"


def _leak(found: Audited) -> str:
    text, meaning = found.text, found.meaning
    if text is not None and found.verdict != "alike in meaning":
        of = "" if text.part == "item" else " (prompt)"
        return f"in {text.example.id}{of}: {short(text.words, TEXT)}"
    return _like(None if meaning is None else meaning.example, "like ")


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
    what = "better answer in place of the other" if result.provenance.sign == TOWARDS_SIGN else "query"
    asked = many(result.queries, "query", "queries")
    caption = f"Weight: share of the top {many(result.top, 'example')} for a {what}, mean of {asked}."
    if result.without:
        caption += f" Left out: {many(result.without, 'example')} without the field '{result.by}'."
    yield Table.of_texts((result.by, *columns), rows, title="Weights of sources", caption=caption)


def _proved(result: ProofResult) -> Iterator[Table]:
    columns = ("number", "without the named rows", "without random rows", "difference")
    asked = [(one.answer.id, one.loss, one.contrast) for one in result.queries]
    parts = [("all", result.loss, result.contrast), *asked] if len(asked) > 1 else asked
    lines = [
        Line(Cell(name), tuple(map(Cell, (number, *_shown(effects)))))
        for name, loss, contrast in parts
        for number, effects in (("loss", loss), ("loss minus that of the better answer", contrast))
        if effects is not None
    ]
    told = (
        f"{result.repeats:,} × 3 fine-tunes of {result.lm}. Their data: the named rows ({len(result.rows):,}), as "
        f"many random rows like them, and {result.context:,} other rows. {result.note} Values in nats per token, with "
        "95 % intervals."
    )
    caption = " ".join([told, *(f"{one[:1].upper()}{one[1:]}." for one in result.cautions)])
    yield Table(result.sentence, ("answer", *columns), tuple(lines[:ROWS]), caption, words=True)
    rows = [_line(one.example, (), rank) for rank, one in enumerate(result.rows, 1)]
    yield _table("The named rows", ("prompt → response",), rows)


def _shown(effects: Effects) -> list[str]:
    parts = (effects.without_named, effects.without_random, effects.difference)
    return [f"{_signed(one.value)} ({_signed(one.low)} to {_signed(one.high)})" for one in parts]


def _table(title: str, columns: Iterable[str], lines: list[Line], caption: str = "") -> Table:
    more = f" The first {ROWS:,} of {len(lines):,}." if len(lines) > ROWS else ""
    return Table(title, ("example", *columns), tuple(lines[:ROWS]), caption + more, words=True)


def _line(example: Example, numbers: Iterable[str], rank: str | int | None = None, note: str = "") -> Line:
    name = example.id
    head = name if rank is None else f"{rank}. {name}"
    origin = " · ".join(short(part, 60) for part in (example.place, example.source, example.label) if part)
    return Line(Cell(head, origin), (*map(Cell, numbers), Cell(_text(example), note)))


def _text(example: Example) -> str:
    return f"{short_prompt(folded(example.prompt), TEXT)} → {short(example.response, TEXT)}"


def _signed(value: float) -> str:
    return true_minus(signed(value))


_MAKERS: Mapping[type[Answer], Callable[[Any], Iterable[Table]]] = {
    CleanResult: _cleaned,
    AuditResult: _audited,
    MixResult: _mixed,
    SetResult: _of_set,
    ProofResult: _proved,
}
