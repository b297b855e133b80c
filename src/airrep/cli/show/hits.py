"""Print training examples: places, texts, why they score as they do."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, groupby
from typing import Any

from rich.text import Text

from airrep.answers.spread import top_beside_spread
from airrep.attributors.by_token import standing_out
from airrep.cli.show.console import out, printable
from airrep.corpus.corpus import Example
from airrep.corpus.places import Span
from airrep.corpus.schemas.conversations import folded, last_message
from airrep.corpus.spans import with_marks
from airrep.errors import ConfigError, many
from airrep.index.index import Index
from airrep.index.results.hits import Copied, Hit, Verdict, record_of
from airrep.index.results.kinds import Shared, Summary
from airrep.index.results.result import shortened
from airrep.index.why import Why
from airrep.reports.tables import signed

INDENT = 3
"""Columns by which texts are indented below the head of their hit."""
SHORT, LONG = 2, 12
"""Most lines of a prompt or response, normally and with *wide*."""
MOST = 6
"""Most lines of a query."""
TOLD = 5
"""Most shared words printed for a hit."""
COPIES = 3
"""Most rows named that contain words of the answer but are not hits."""
SEPARATOR = " · "
EACH, REASONED = 3, 20
"""With more queries than this, each is shown only with *wide*; the second number holds if reasons are shown."""
EXAMPLES = 5
"""Most training examples shown that several queries have in common."""
NAMES = 5
"""Most sources, labels and openings shown."""
MARK = "bold underline"
PARTS = (
    "Each word and each pair (answer ← example) has a part of the score. Marked words have an eighth or more of the "
    "largest part. A part is shown at the token that was predicted, but earlier tokens may have caused it."
)
CAUSE = "'same words' are the words that the lexical part of the score counted; they need not be its cause"
BEFORE = 20
"""Characters shown before the first mark of a text that is cut."""


def deviations_text(value: float) -> str:
    """Return deviations as text for a hit."""
    return f"{value:+.1f} deviations"


def origin_parts(example: Example, row: int | None = None) -> list[str]:
    """Return the place in the file, or the row in the index, then source and label."""
    place = example.place or (f"row {row}" if row is not None else "")
    label = f"label {example.label}" if example.label else ""
    return [*filter(None, (place, example.source, label))]


def print_hit(
    example: Example,
    row: int | None,
    facts: Sequence[str],
    *,
    rank: int | None = None,
    of: int | None = None,
    wide: bool = False,
    why: Why | None = None,
    query: Example | None = None,
    more: Iterable[Text] = (),
) -> None:
    """Print one training example: a head line, its texts, and further lines.

    Args:
        example: the example.
        row: its row in the index.
        facts: texts after its origin, such as its deviations.
        rank: its rank; None for an example without a rank.
        of: number of ranked examples, if known.
        wide: print longer texts, and the row.
        why: the reasons for its score.
        query: the query, needed if the reasons have pairs of words.
        more: further lines.
    """
    parts = [*origin_parts(example, row), *facts]
    parts += [f"row {row}"] if wide and example.place and row is not None else []
    head = Text("" if rank is None else f"#{rank}", style="bold")
    head.append(f" of {of:,}" if of is not None else "", style="dim")
    for part in map(_one_line, parts):
        head.append(SEPARATOR if head else "").append(part)
    head.append(SEPARATOR if head else "").append(_one_line(example.id), style="dim")
    print_lines(head, hang=INDENT)
    print_texts(example, why=why, lines=LONG if wide else SHORT)
    for line in chain(() if why is None else _reasons(why, query, example), more):
        print_lines(line, INDENT, None if wide else SHORT)


def print_texts(example: Example, *, why: Why | None = None, lines: int = SHORT) -> None:
    """Print a prompt and its response, at most *lines* lines of each."""
    spans = [span for same in why.same_words[:TOLD] for span in same.example] if why is not None else []
    if why is not None and why.tokens is not None:
        spans = [word.span for word in standing_out(why.tokens.example, why.tokens.of_example)]
    length = lines * max(out().width - INDENT, 20)
    of_prompt, of_response = ([span for span in spans if span.field == field] for field in ("prompt", "response"))
    if example.prompt.strip():  # one without marks is shown without its system prompt
        prompt = example.prompt if of_prompt else folded(example.prompt)
        print_lines(marked(prompt, of_prompt, length), INDENT, lines)
    response = Text("→ ", style="dim").append_text(marked(example.response, of_response, length))
    print_lines(response, INDENT, lines)


def _reasons(why: Why, query: Example | None, example: Example) -> Iterable[Text]:
    """Return lines with each channel's part of a score, then the words and pairs of words with the largest parts."""
    predicted = f" ({', '.join(why.predicted)}: predicted)" if why.predicted else ""
    parts = SEPARATOR.join(f"{shortened(name, 40)} {signed(score)}" for name, score in why.channels.items())
    yield Text(f"{parts}{printable(predicted)}", style="dim")
    if why.same_words:
        yield _scored("same words", [("", _one_line(one.text)[:60], one.score) for one in why.same_words[:TOLD]])
    if why.tokens is not None and query is not None:
        told = standing_out(why.tokens.example, why.tokens.of_example)
        best = sorted(told, key=lambda word: -abs(word.score))[:TOLD]
        yield _scored("words", [("", _word(example, word.span), word.score) for word in best])
        pairs = why.tokens.pairs(TOLD)
        yield _scored("pairs", [(f"{_word(query, asked)} ← ", _word(example, had), part) for asked, had, part in pairs])


def _scored(what: str, parts: Iterable[tuple[str, str, float]]) -> Text:
    """Return a line of words, each with the text before it and its part of a score."""
    line = Text(f"{what}: ", style="dim")
    for place, (before, word, score) in enumerate(parts):
        line.append(f"{SEPARATOR if place else ''}{before}").append(word, style=MARK)
        line.append(f" {signed(score)}", style="dim")
    return line


def _word(example: Example, span: Span) -> str:
    text: str = getattr(example, span.field)
    return _one_line(text[span.start : span.stop])[:40]


def print_query(what: str, query: Example, better: Example | None = None) -> None:
    """Print the query, and the better answer if there is one."""
    line = Text(f"{what} ").append(_one_line(query.id)[:40], style="bold").append(": ")
    line.append(f"{_one_line(folded(query.prompt))} → " if query.prompt.strip() else "")
    line.append(_one_line(with_marks(query.response, query.span)))
    if better is not None:
        line.append(" in place of ", style="dim").append(_one_line(better.response))
    print_lines(line, lines=MOST, hang=INDENT)


def print_copied(copied: Sequence[Copied], ranks: Mapping[int, int]) -> None:
    """Print the passages of an answer that examples contain word for word, with these examples; *ranks* is by row."""
    if not copied:
        print_lines(Text("Copied: no training example has four words of this answer in a row.", style="dim"))
    for one in copied:
        line = Text("Copied: ").append(f"“{shortened(one.text, 80)}”", style=MARK)
        rows = [f"#{ranks[place.row]}" for place in one.places if place.row in ranks]
        rows = rows or [f"row {place.row}" for place in one.places[:COPIES]]
        count = f" {one.words} words, in {many(one.examples, 'example')}: "
        more = ", …" if one.examples > len(rows) else ""
        print_lines(line.append(f"{count}{', '.join(rows)}{more}", style="dim"), hang=INDENT)


def _one_line(text: str) -> str:
    return printable(" ".join(text[:4000].split()))


def print_lines(text: Text, indent: int = 0, lines: int | None = None, hang: int = 0) -> None:
    """Print a text wrapped and indented, at most *lines* lines; lines after the first are indented by *hang* more."""
    console = out()
    width = max(console.width - max(indent, hang), 20)
    wrapped = list(text.wrap(console, width))
    if lines is not None and len(wrapped) > lines:
        wrapped = wrapped[:lines]
        wrapped[-1].rstrip()
        wrapped[-1].truncate(width - 1)
        wrapped[-1].append("…")
    for number, line in enumerate(wrapped):
        line.rstrip()
        shown = Text(" " * (indent or (hang if number else 0))).append_text(line)
        console.print(shown, no_wrap=True, overflow="ignore", crop=False, highlight=False)


def remark(text: str) -> None:
    """Print a remark of airrep, dim and wrapped."""
    print_lines(Text(printable(text), style="dim"))


def marked(text: str, spans: Sequence[Span], length: int) -> Text:
    """Return a text on one line, cut to about *length* characters around its first marks.

    If the text has several messages, the last is shown if it has marks or none has.
    """
    begin = last_message(text, length)
    if spans and all(span.start < begin for span in spans):
        begin = 0
    first = min((span.start for span in spans if span.start >= begin), default=begin)
    start = first - BEFORE if first + BEFORE > begin + length else begin  # else the mark is seen from there on
    window = text[start : start + 4 * length]
    signs: list[tuple[str, bool]] = [("…", False), *([(" ", False)] if start == begin else [])] if start else []
    for place, sign in enumerate(window, start):
        mark = any(span.start <= place < span.stop for span in spans)
        if not sign.isspace():
            signs.append((sign, mark))
        elif signs and signs[-1][0] != " ":
            signs.append((" ", mark))
    if len(signs) > length or start + len(window) < len(text):
        signs = [*signs[: length - 1], ("…", False)]
    line = Text()
    for mark, group in groupby(signs, key=lambda pair: pair[1]):
        line.append(printable("".join(sign for sign, _ in group)), style=MARK if mark else "")
    return line


def shows_each(queries: int, wide: bool, reasons: bool = False) -> bool:
    """Return True if queries are shown one by one; *reasons* is True if reasons of scores are shown."""
    return wide or queries <= (REASONED if reasons else EACH)


def print_summary(summary: Summary, verb: str, *, scored: str = "deviations", wide: bool) -> None:
    """Print what several queries have in common; *verb* says what the examples are to them."""
    first = summary.first if wide else summary.first[:EXAMPLES]
    told = f"{summary.queries:,} queries; {many(summary.examples, 'different example')} {verb}"
    print_lines(Text(told, style="bold"))
    count = len(summary.first)
    openings = [Shared(f"“{one.name}”", one.examples) for one in summary.openings]
    for name, shares in (("source", summary.sources), ("label", summary.labels), ("first words", openings)):
        if shares:
            print_lines(Text(f"top {count} over all queries, by {name}: {_shares(shares)}"), hang=3)
    several = [one for one in first if one.queries > 1]
    if not several:
        remark("No example ranks high for more than one query.")
    for rank, one in enumerate(several, 1):
        mean = f"{deviations_text(one.mean)} on average" if scored == "deviations" else f"mean score {signed(one.mean)}"
        facts = (f"for {one.queries:,} of {many(summary.queries, 'query', 'queries')}", mean)
        print_hit(one.example, one.row, facts, rank=rank, wide=wide)


def print_verdict_counts(verdicts: Sequence[Verdict | None]) -> None:
    """Print for how many of several queries something stands out."""
    counts = Counter(verdict.kind for verdict in verdicts if verdict is not None)
    if counts:
        told = f"An example stands out for {many(counts['stands out'], 'query', 'queries')}"
        told += f"; the evidence is weak for {counts['weak']:,}"
        print_lines(Text(f"{told}; nothing here taught the other {counts['nothing']:,}.", style="bold"))


def _shares(shares: Sequence[Shared]) -> str:
    named = SEPARATOR.join(f"{_one_line(one.name)[:60]} {one.examples}" for one in shares[:NAMES])
    return named + (f"{SEPARATOR}… {len(shares) - NAMES} more" if len(shares) > NAMES else "")


def say_where_all_are(queries: int) -> None:
    """Say how to see each query."""
    remark(f"To see each of the {queries:,} queries, add --wide, --json, or --out RUN for `airrep report`.")


def neighbours(index: Index, row: int, k: int) -> list[Hit]:
    """Return the k examples that help an example most if it is the query, without the example itself.

    ConfigError: the method can only score the queries that it was built with.
    """
    if not k:
        return []
    found = top_beside_spread(index, [index.example(row)], min(k + 1, len(index)))
    return [hit for hit in found[0] if hit.row != row][:k]


def example_to_dict(index: Index, row: int, k: int) -> dict[str, Any]:
    """Return an example and its neighbours as JSON values."""
    near = [
        {"score": hit.score, "deviations": hit.deviations, "row": hit.row, "example": record_of(hit.example)}
        for hit in neighbours(index, row, k)
    ]
    return {"row": row, "example": record_of(index.example(row)), "neighbours": near}


def print_example(index: Index, row: int, k: int, wide: bool = False) -> None:
    """Print an example in full, and its neighbours."""
    example = index.example(row)
    head = " · ".join(map(printable, [*origin_parts(example, row), f"row {row}", example.id]))
    print_lines(Text(" ".join(head.split()), style="bold"), hang=INDENT)
    for name, value in example.metadata.items():
        print_lines(Text(f"{printable(name)}: {printable(str(value))}", style="dim"), hang=INDENT)
    _print_whole("prompt", example.prompt)
    _print_whole("response", example.response)
    try:
        _print_neighbours(index, example, neighbours(index, row, k), wide)
    except ConfigError as error:
        remark(f"no neighbours: {error}")


def _print_whole(name: str, text: str) -> None:
    remark(name)
    for line in text.split("\n"):
        print_lines(Text(printable(line.expandtabs())), INDENT)


def _print_neighbours(index: Index, example: Example, near: list[Hit], wide: bool) -> None:
    if near:
        told = f"nearest to {printable(example.id)} of {many(len(index), 'example')}"
        print_lines(Text(told, style="bold"))
    for rank, hit in enumerate(near, 1):
        facts = [deviations_text(hit.deviations or 0.0), *([f"score {signed(hit.score)}"] if wide else [])]
        print_hit(hit.example, hit.row, facts, rank=rank, of=len(index) - 1, wide=wide)
