"""Print training examples: places, texts, why they score as they do."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, groupby

from rich.console import Console
from rich.text import Text

from airrep.attributors.by_token import standing_out
from airrep.cli.show.console import printable
from airrep.corpus.corpus import Example
from airrep.corpus.places import Span
from airrep.corpus.schemas.conversations import folded, last_message
from airrep.corpus.spans import with_marks
from airrep.index.results.hits import Copied, Verdict
from airrep.index.results.summary import Shared, Summary
from airrep.index.why import Why
from airrep.reports.tables import signed

INDENT = 3
"""Columns that texts stand behind the heads of their hits."""
SHORT, LONG = 2, 12
"""Lines of a prompt, and of a response, usually and where everything is asked for."""
MOST = 6
"""Lines of a query."""
TOLD = 5
"""Same words that are printed of a hit."""
COPIES = 3
"""Rows that hold words of the answer and are no hits, of which so many are named."""
SEPARATOR = " · "
EACH, REASONED = 3, 20
"""Of more queries each is shown only if all is asked for; the same where reasons are."""
EXAMPLES = 5
"""Training examples shown, of those that several queries have in common."""
NAMES = 5
"""Sources, labels and openings shown."""
MARK = "bold underline"
PARTS = (
    "words and pairs (answer ← example) are parts of the score; marked words have an eighth or more of what the first "
    "has; a part stands at the token that is predicted, and may come from what was read before it"
)
CAUSE = "same words are what the lexical part of the score saw; they need not be its cause"
BEFORE = 20
"""Characters shown before the first mark of a text that is cut."""


def deviations_text(value: float) -> str:
    """Deviations, as they stand behind a hit."""
    return f"{value:+.1f} deviations"


def origin_parts(example: Example, row: int | None = None) -> list[str]:
    """Place in the file, or row in the index, then source and label."""
    place = example.place or (f"row {row}" if row is not None else "")
    label = f"label {example.label}" if example.label else ""
    return [*filter(None, (place, example.source, label))]


def print_hit(
    console: Console,
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
    """Print one training example: a line that says what it is, its texts below, and what else is told of it.

    Args:
        console: where to.
        example: the example.
        row: its row in the index.
        facts: what is told behind its origin, such as its deviations.
        rank: its rank; None where there is none.
        of: how many examples were ranked, where that is known.
        wide: print longer texts, and the row.
        why: what makes up its score.
        query: what was asked about, where pairs of words are told.
        more: further lines.
    """
    parts = [*origin_parts(example, row), *facts]
    parts += [f"row {row}"] if wide and example.place and row is not None else []
    head = Text("" if rank is None else f"#{rank}", style="bold")
    head.append(f" of {of:,}" if of is not None else "", style="dim")
    for part in map(_one_line, parts):
        head.append(SEPARATOR if head else "").append(part)
    head.append(SEPARATOR if head else "").append(_one_line(example.id), style="dim")
    print_lines(console, head, hang=INDENT)
    print_texts(console, example, why=why, lines=LONG if wide else SHORT)
    for line in chain(() if why is None else _reasons(why), () if why is None else _words(why, query, example), more):
        print_lines(console, line, INDENT, None if wide else SHORT)


def print_texts(console: Console, example: Example, *, why: Why | None = None, lines: int = SHORT) -> None:
    """Print a prompt and its response, so many lines of each."""
    spans = [span for same in why.same_words[:TOLD] for span in same.example] if why is not None else []
    if why is not None and why.tokens is not None:
        spans = [word.span for word in standing_out(why.tokens.example, why.tokens.of_example)]
    length = lines * max(console.width - INDENT, 20)
    if example.prompt.strip():
        print_lines(console, _text(example, "prompt", spans, length), INDENT, lines)
    response = Text("→ ", style="dim").append_text(_text(example, "response", spans, length))
    print_lines(console, response, INDENT, lines)


def _text(example: Example, field: str, spans: Iterable[Span], length: int) -> Text:
    """One of the texts with its marks; a prompt without marks is shown without its system prompt."""
    own = [span for span in spans if span.field == field]
    text: str = getattr(example, field)
    return marked(folded(text) if field == "prompt" and not own else text, own, length)


def _reasons(why: Why) -> Iterable[Text]:
    predicted = f" ({', '.join(why.predicted)}: predicted)" if why.predicted else ""
    yield Text(f"{channel_parts(why.channels)}{printable(predicted)}", style="dim")
    if why.same_words:
        line = Text("same words: ", style="dim")
        for place, same in enumerate(why.same_words[:TOLD]):
            line.append(SEPARATOR if place else "").append(_one_line(same.text)[:60], style=MARK)
            line.append(f" {signed(same.score)}", style="dim")
        yield line


def _words(why: Why, query: Example | None, example: Example) -> Iterable[Text]:
    """The words that have most of a score, and the pairs of words of both texts that have."""
    if why.tokens is None or query is None:
        return
    told = standing_out(why.tokens.example, why.tokens.of_example)
    best = sorted(told, key=lambda word: -abs(word.score))[:TOLD]
    line = Text("words: ", style="dim")
    for place, word in enumerate(best):
        line.append(SEPARATOR if place else "").append(_word(example, word.span), style=MARK)
        line.append(f" {signed(word.score)}", style="dim")
    yield line
    line = Text("pairs: ", style="dim")
    for place, (asked, had, part) in enumerate(why.tokens.pairs(TOLD)):
        line.append(SEPARATOR if place else "").append(f"{_word(query, asked)} ← ").append(
            _word(example, had), style=MARK
        )
        line.append(f" {signed(part)}", style="dim")
    yield line


def _word(example: Example, span: Span) -> str:
    text: str = getattr(example, span.field)
    return _one_line(text[span.start : span.stop])[:40]


def print_query(console: Console, what: str, query: Example, better: Example | None = None) -> None:
    """Print what is asked about: the query, and the better answer if there is one."""
    line = Text(f"{what} ").append(_one_line(query.id)[:40], style="bold").append(f": {one_line(query)}")
    if better is not None:
        line.append(" in place of ", style="dim").append(_one_line(better.response))
    print_lines(console, line, lines=MOST, hang=INDENT)


def print_copied(console: Console, copied: Sequence[Copied] | None, ranks: Mapping[int, int]) -> None:
    """Print what of an answer stands in the data word for word, and in which examples, by the *ranks* of rows."""
    if copied is None:
        return
    if not copied:
        print_lines(console, Text("Copied: no training example has four words in a row of this answer.", style="dim"))
    for one in copied:
        line = Text("Copied: ").append(f"“{printable(_cut(one.text, 80))}”", style=MARK)
        rows = [f"#{ranks[place.row]}" for place in one.places if place.row in ranks]
        rows = rows or [f"row {place.row}" for place in one.places[:COPIES]]
        count = f" {one.words} words, in {one.examples:,} example{'s' * (one.examples > 1)}: "
        more = ", …" if one.examples > len(rows) else ""
        print_lines(console, line.append(f"{count}{', '.join(rows)}{more}", style="dim"), hang=INDENT)


def print_verdict(console: Console, verdict: Verdict | None) -> None:
    """Print whether anything stands out, where that was judged."""
    if verdict is not None:
        print_lines(console, Text(printable(verdict.text), style="bold"), hang=INDENT)


def one_line(example: Example) -> str:
    """Prompt and response of a query, its span marked."""
    arrow = " → " if example.prompt.strip() else ""
    return f"{_one_line(folded(example.prompt))}{arrow}{_one_line(with_marks(example.response, example.span))}"


def _one_line(text: str) -> str:
    return printable(" ".join(text[:4000].split()))


def print_lines(console: Console, text: Text, indent: int = 0, lines: int | None = None, hang: int = 0) -> None:
    """Print a text wrapped to the width, at most so many lines of it, behind an indent; *hang* indents the others."""
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


def say(console: Console, text: str) -> None:
    """Print a sentence of ours, dim, wrapped."""
    print_lines(console, Text(printable(text), style="dim"))


def has_same_words(whys: Iterable[Why | None]) -> bool:
    """Whether there are words to mark."""
    return any(why is not None and why.same_words for why in whys)


def channel_parts(channels: Mapping[str, float]) -> str:
    """What each channel gave, in one line."""
    return " · ".join(f"{printable(_cut(name, 40))} {signed(score)}" for name, score in channels.items())


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def marked(text: str, spans: Sequence[Span], length: int) -> Text:
    """A text on one line, cut to about *length* characters around its first marks.

    Of several messages the last is shown, if it has marks or none has.
    """
    begin = last_message(text, length)
    if spans and all(span.start < begin for span in spans):
        begin = 0
    first = min((span.start for span in spans if span.start >= begin), default=begin)
    start = first - BEFORE if first + BEFORE > begin + length else begin  # else the mark is seen from there on
    window = text[start : start + 4 * length]
    signs: list[tuple[str, bool]] = [("…", False), *([(" ", False)] if start == begin else [])] if start else []
    marks = _flags(spans, start, len(window))
    for sign, mark in zip(window, marks, strict=True):
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


def _flags(spans: Iterable[Span], start: int, count: int) -> list[bool]:
    """Whether each of *count* characters from *start* on is marked."""
    flags = [False] * count
    for span in spans:
        first, last = max(span.start - start, 0), min(span.stop - start, count)
        if first < last:  # a negative *last* would count from the end
            flags[first:last] = [True] * (last - first)
    return flags


def shows_each(queries: int, wide: bool, reasons: bool = False) -> bool:
    """Whether queries are shown one by one, given whether reasons of their scores are known."""
    return wide or queries <= (REASONED if reasons else EACH)


def print_summary(console: Console, summary: Summary, verb: str, *, scored: str = "deviations", wide: bool) -> None:
    """Print what several queries have in common; *verb* says what the examples are to them."""
    first = summary.first if wide else summary.first[:EXAMPLES]
    told = f"{summary.queries:,} queries; {summary.examples:,} different examples {verb}"
    print_lines(console, Text(told, style="bold"))
    count = len(summary.first)
    openings = [Shared(f"“{one.name}”", one.examples) for one in summary.openings]
    for name, shares in (("source", summary.sources), ("label", summary.labels), ("opening", openings)):
        if shares:
            print_lines(console, Text(f"{name} of the first {count} over all queries: {_shares(shares)}"), hang=3)
    several = [one for one in first if one.queries > 1]
    if not several:
        say(console, "No example ranks high for more than one query.")
    for rank, one in enumerate(several, 1):
        mean = f"{deviations_text(one.mean)} on average" if scored == "deviations" else f"mean score {signed(one.mean)}"
        facts = (f"for {one.queries:,} of {summary.queries:,} queries", mean)
        print_hit(console, one.example, one.row, facts, rank=rank, wide=wide)


def print_verdict_counts(console: Console, verdicts: Sequence[Verdict | None]) -> None:
    """Print for how many of several queries something stands out."""
    counts = Counter(verdict.kind for verdict in verdicts if verdict is not None)
    if counts:
        told = f"Something stands out for {counts['stands out']:,}, weakly for {counts['weak']:,}"
        print_lines(console, Text(f"{told}; nothing here taught {counts['nothing']:,}.", style="bold"))


def _shares(shares: Sequence[Shared]) -> str:
    named = SEPARATOR.join(f"{snippet_plain(one.name)} {one.examples}" for one in shares[:NAMES])
    return named + (f"{SEPARATOR}… {len(shares) - NAMES} more" if len(shares) > NAMES else "")


def snippet_plain(text: str) -> str:
    """A name as it is printed."""
    return one_line(Example("", text))[:60]


def say_where_all_are(console: Console, queries: int) -> None:
    """Say how to see each query."""
    say(console, f"Each of the {queries:,} queries: --wide, --json, or --out RUN for airrep report.")
