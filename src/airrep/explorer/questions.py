"""Answers the page's questions as JSON values, independent of HTTP."""

import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from airrep._version import __version__
from airrep.answers.clean import CleanResult
from airrep.answers.clean import clean as find_wrong
from airrep.answers.copied import copied
from airrep.answers.spread import top_beside_spread
from airrep.answers.texts import find_row
from airrep.answers.verdict import verdicts
from airrep.arrays import Mask
from airrep.attributors.by_token import WordScores
from airrep.corpus.corpus import Example
from airrep.corpus.places import Span
from airrep.corpus.schemas.conversations import DOTS, last_message, message_at, system_end
from airrep.corpus.spans import as_typed, with_marks
from airrep.errors import AirRepError, ConfigError
from airrep.explorer.answers import Citation
from airrep.explorer.explorer import Explorer, ServedIndex, contrast_of, key_of, ranked_part
from airrep.explorer.requests import (
    DEEPEST,
    PAGE,
    TEXT,
    CleanRequest,
    CopiedRequest,
    ExampleRequest,
    Filters,
    GroupRequest,
    ListRequest,
    RowsRequest,
    SelectRequest,
    SummaryRequest,
    TokensRequest,
    TopRequest,
    WhatIfRequest,
)
from airrep.index.contrast import Question
from airrep.index.results.citations import cite
from airrep.index.results.kinds import FIRST, GroupResult, WhatIfResult, effect_text
from airrep.index.selection import Pick
from airrep.index.selection import select as pick
from airrep.index.why import Reasons, Scored, Why, check_tokens

SHOWN = 1200
"""Most characters of a text in a list; opening an example shows all of them."""
SEEN = 420
"""Most characters that the page shows before an example is opened."""
LISTED = 160
"""Most characters of a query in a list."""
COPIES = 5
"""Most examples listed for a copied passage."""
BASKET = "basket.jsonl"
"""File with the ids of a command's examples if there are many."""
HELPED = 25
"""Most queries listed for an example, from each end."""
LISTED_QUERIES = 50
"""Queries on one page of a list."""
MOST_CLEANED = 100_000
"""Most examples checked for findings, because all of their texts are in memory at once."""
NAMED = 50
"""Most examples that a command names itself; above that it reads a file."""
NO_FILTERS = Filters().model_dump_json()


def about(explorer: Explorer) -> dict[str, Any]:
    """Return what is served, and how to read its numbers."""
    return {
        "version": __version__,
        "indexes": [_about_index(index) for index in explorer.indexes],
        "examples": len(explorer.indexes[0]),
        "fields": explorer.facets.shown,
        "queries": 0 if explorer.file is None else len(explorer.file.queries),
        "better": explorer.file is not None and explorer.file.better is not None,
        "limits": {"page": PAGE, "deepest": DEEPEST, "text": TEXT},
    }


def _about_index(index: ServedIndex) -> dict[str, Any]:
    provenance = index.provenance(index.attributor.pooling())
    return {
        "name": index.path.resolve().name,
        "method": index.method,
        "pool": provenance.pooling,
        "units": provenance.units,
        "sign": provenance.sign,
        "caution": provenance.caution,
        "fingerprint": index.fingerprint[:12],
    }


def count(explorer: Explorer, asked: Filters) -> dict[str, Any]:
    """Return the number of examples that match the filters, and the counts of all field values."""
    explorer.index(0)
    mask = explorer.facets.mask(asked.where, asked.facets)
    return {"matching": int(mask.sum()), "facets": explorer.facets.counts(asked.where, asked.facets)}


def list_queries(explorer: Explorer, asked: ListRequest) -> dict[str, Any]:
    """Return the queries that were typed in, and a page of the file's queries."""
    wanted = asked.text.casefold()
    typed = [{"key": key, **_listed(question)} for key, question in explorer.asked() if _holds(question, wanted)]
    found: list[dict[str, Any]] = [
        {"number": number, **_listed(question)}
        for number, question in enumerate(explorer.of_file())
        if _holds(question, wanted)
    ]
    return {"asked": typed, "total": len(found), "queries": found[asked.start : asked.start + LISTED_QUERIES]}


def _holds(question: Question, wanted: str) -> bool:
    return any(wanted in f"{one.prompt}\n{one.response}".casefold() for one in question.all)


def _listed(question: Question) -> dict[str, Any]:
    better = {} if question.better is None else {"better": cut(question.better[0].response, LISTED)}
    return {**_beginning(question.queries[0]), **better}


def _beginning(example: Example) -> dict[str, Any]:
    return {
        "prompt": cut(shown_prompt(example.prompt, LISTED), LISTED),
        "response": cut(with_marks(example.response, example.span), LISTED),
        "source": example.source,
    }


def top(explorer: Explorer, asked: TopRequest) -> dict[str, Any]:
    """Return a part of the ranking of training examples that help a query most, or least, with reasons."""
    page = asked.page
    index, question = explorer.index(asked.index), explorer.question(asked.query)
    keep = explorer.facets.mask(asked.where, asked.facets)
    matching = int(keep.sum())
    if asked.query.number is None:
        explorer.remember(question)
    last = min(page.stop, matching, DEEPEST)
    told = []
    if asked.start < last:
        found = ranked_part(index.ranking(question, keep, DEEPEST), asked.start, last, least=asked.least)
        told = Answers(index, question).hits(found, asked.start)
        if asked.cite:
            told = [{**hit, **_cited(index, hit["row"])} for hit in told]
    return {
        "query": {**query_json(question), "key": key_of(question), "number": asked.query.number},
        "matching": matching,
        "hits": told,
        "more": last < min(matching, DEEPEST),
        "verdict": verdict_json(index, question, keep) if matching and not (asked.least or asked.start) else None,
    }


def rank_together(explorer: Explorer, asked: Sequence[TopRequest | ExampleRequest]) -> None:
    """Rank all rows for several queries in one pass over the index; the rankings are cached for each question."""
    alike: dict[str, list[TopRequest | ExampleRequest]] = defaultdict(list)
    for one in asked:
        filters = one.model_dump_json(include={"where", "facets"}) if isinstance(one, TopRequest) else NO_FILTERS
        alike[f"{one.index} {filters}"].append(one)
    for some in alike.values():
        first = some[0] if isinstance(some[0], TopRequest) else Filters()
        with suppress(AirRepError):  # raised again when the question itself is answered
            index, keep = explorer.index(some[0].index), explorer.facets.mask(first.where, first.facets)
            questions = list(_understood(explorer, index, some))
            if keep.any() and len(questions) > 1:
                index.rank_together(questions, keep, DEEPEST)


def _understood(
    explorer: Explorer, index: ServedIndex, asked: Iterable[TopRequest | ExampleRequest]
) -> Iterator[Question]:
    """Yield the valid questions about a query without a better answer, encoded."""
    for one in asked:
        with suppress(AirRepError):
            question = None if one.query is None else explorer.question(one.query)
            if question is not None and question.better is None:
                index.ask(question)
                yield question


def copied_words(explorer: Explorer, asked: CopiedRequest) -> dict[str, Any]:
    """Return the longest passages of the response that examples contain word for word, with some of these examples."""
    index, question = explorer.index(asked.index), explorer.question(asked.query)
    (found,) = copied(index, question.queries[:1], explorer.facets.mask(asked.where, asked.facets))
    told: list[dict[str, Any]] = [
        {
            "text": one.text,
            "words": one.words,
            "examples": one.examples,
            "first": [{"row": place.row, "id": index.example(place.row).id} for place in one.places[:COPIES]],
        }
        for one in found
    ]
    return {"copied": told}


def groups(explorer: Explorer, asked: GroupRequest) -> dict[str, Any]:
    """Return the group scores of a field's values, most helpful first."""
    index, question = explorer.index(asked.index), explorer.question(asked.query)
    members = explorer.facets.groups(asked.by)
    result = index.group_scores(question.queries, members, better=question.better, why=True)
    order = np.argsort(-result.scores[0], kind="stable").tolist()
    channels = {name: part[0].tolist() for name, part in (result.channels or {}).items()}
    told = [
        {
            "value": result.names[place],
            "size": result.sizes[place],
            "score": float(result.scores[0, place]),
            "channels": {name: part[place] for name, part in channels.items()},
        }
        for place in order
    ]
    return {"by": asked.by, "groups": told, **_read(question, result)}


def _read(question: Question, result: GroupResult | WhatIfResult) -> dict[str, Any]:
    """Return how to read group scores; ``better`` is True if they contrast the answer with a better one."""
    provenance = result.provenance
    return {"better": question.better is not None, "pool": provenance.pooling, "caution": provenance.caution}


def what_if(explorer: Explorer, asked: WhatIfRequest) -> dict[str, Any]:
    """Return the predicted change of the training data's score for a query if a basket of examples is left out."""
    index, question = explorer.index(asked.index), explorer.question(asked.query)
    removed = _basket(explorer, index, asked)
    result = index.what_if(question.queries, remove=removed, better=question.better, why=True)
    return {
        "change": float(result.change[0]),
        "meaning": effect_text(float(result.change[0]), better=question.better is not None),
        "before": float(result.before[0]),
        "after": float(result.after[0]),
        "removed": result.removed,
        "kept": result.kept,
        "channels": {name: float(part[0]) for name, part in (result.channels or {}).items()},
        **_read(question, result),
    }


def _basket(explorer: Explorer, index: ServedIndex, asked: WhatIfRequest) -> Mask:
    """Return the mask of a basket: its rows and ids, rows with one of its values, and rows that match its filter."""
    chosen: Mask = np.zeros(index.rows, dtype=bool)
    chosen[_live_rows(index, [*asked.rows, *(find_row(index, name) for name in asked.ids)])] = True
    if asked.where.strip():
        chosen |= index.mask(asked.where)
    for name, values in asked.facets.items():
        chosen |= explorer.facets.facet(name).members(values) & index.live
    return chosen


def prove(explorer: Explorer, asked: WhatIfRequest) -> dict[str, Any]:
    """Return the command that tests what the examples of a basket taught, with their ids if a file must list them."""
    index, question = explorer.index(asked.index), explorer.question(asked.query)
    ids = [index.example(row).id for row in np.flatnonzero(_basket(explorer, index, asked)).tolist()]
    if not ids:
        raise ConfigError("examples: none are chosen. Choose at least one, by a row, an id or a filter.")
    listed = len(ids) > NAMED
    return {
        "command": prove_command(index, question, None if listed else ids),
        "examples": len(ids),
        "ids": ids if listed else [],
        "file": BASKET,
    }


def summary(explorer: Explorer, asked: SummaryRequest) -> dict[str, Any]:
    """Return properties that the top examples of all queries of the file share."""
    index = explorer.index(asked.index)
    if explorer.file is None or len(explorer.file.queries) < 2:
        raise ConfigError("summary: needs several queries. Serve a file of them with --queries.")
    asked_all = explorer.file
    found = top_beside_spread(index, asked_all.queries, min(FIRST, len(index)), asked_all.better).in_common()
    names = ("id", "label", "place")
    first = [
        {**vars(one), "example": {**_beginning(one.example), **{name: getattr(one.example, name) for name in names}}}
        for one in found.first
    ]
    shares = {"source": found.sources, "label": found.labels, "opening": found.openings}
    told = {name: [[one.name, one.examples] for one in some] for name, some in shares.items()}
    return {"queries": found.queries, "first": first, "shares": told}


def example(explorer: Explorer, asked: ExampleRequest) -> dict[str, Any]:
    """Return one training example in full, the reasons for its score, and the queries that it helps most and least."""
    index = explorer.index(asked.index)
    if (asked.row is None) == (asked.id is None):
        raise ConfigError("example: needs either a row or an id. Give one of the two.")
    row = find_row(index, asked.id) if asked.id is not None else asked.row or 0
    _live_rows(index, [row])
    told: dict[str, Any] = {"row": row, **example_json(index.example(row), None)}
    if asked.query is not None:
        told |= Answers(index, explorer.question(asked.query)).of_row(row)
    cited = _cited(index, row) if asked.cite else {}
    return told | _helped(explorer, index, row) | cited


def _cited(index: ServedIndex, row: int) -> dict[str, Any]:
    told = vars(cite(index.example(row), row, index.fingerprint, index.made))
    return {"citation": {name: told[name] for name in Citation.model_fields}}


def tokens(explorer: Explorer, asked: TokensRequest) -> dict[str, Any]:
    """Return the score of one training example for a query, split over pairs of words."""
    index, question = explorer.index(asked.index), explorer.question(asked.query)
    _live_rows(index, [asked.row])
    check_tokens(index.attributor)
    found = Answers(index, question).tokens(asked.row)
    texts = {
        "query": _worded(question.queries[0], found.query),
        "example": _worded(index.example(asked.row), found.example),
    }
    return {**texts, "scores": found.scores, "rest": found.rest}


def _helped(explorer: Explorer, index: ServedIndex, row: int) -> dict[str, Any]:
    """Return the queries for which one example has its highest and lowest scores."""
    scored: list[tuple[float, dict[str, Any], Question]] = [
        (index.score_of(question, row), {"key": key}, question) for key, question in explorer.asked()
    ]
    if explorer.file is not None:
        scores = contrast_of(explorer.file, index.score_row(index.ask_file(explorer.file), row)).tolist()
        pairs = enumerate(zip(scores, explorer.of_file(), strict=True))
        scored += [(score, {"number": number}, question) for number, (score, question) in pairs]
    ordered = sorted(scored, key=lambda one: -one[0])
    helped, harmed = ordered[:HELPED], ordered[HELPED:][-HELPED:]
    return {"queries": len(ordered), "helped": _told(helped), "harmed": _told(reversed(harmed))}


def _told(scored: Iterable[tuple[float, Mapping[str, Any], Question]]) -> list[dict[str, Any]]:
    return [{"score": score, **ref, **_listed(question)} for score, ref, question in scored]


def rows(explorer: Explorer, asked: RowsRequest) -> dict[str, Any]:
    """Return ids and beginnings of some examples, for a basket given in the page's address."""
    index = explorer.index(0)
    found = [(row, index.example(row)) for row in _live_rows(index, asked.rows).tolist()]
    told: list[dict[str, Any]] = [{"row": row, "id": one.id, **_beginning(one)} for row, one in found]
    return {"rows": told}


def select(explorer: Explorer, asked: SelectRequest) -> dict[str, Any]:
    """Return training examples that some query ranks highest, the best first, each with its query and rank."""
    index, page = explorer.index(asked.index), asked.page
    typed = [explorer.question(ref) for ref in asked.queries]
    found = explorer.once(asked, lambda: _picks(index, typed or list(explorer.of_file()), asked))
    told = [
        {
            "row": pick.row,
            "id": pick.example.id,
            "rank": pick.rank,
            "query": pick.query,
            "score": pick.score,
            "redundancy": pick.redundancy,
            **_beginning(pick.example),
        }
        for pick in found[page]
    ]
    return {"total": len(found), "picks": told, "more": page.stop < len(found)}


def _picks(index: ServedIndex, questions: Sequence[Question], asked: SelectRequest) -> tuple[Pick, ...]:
    if not questions:
        raise ConfigError("select: there are no queries. Give at least one, or start the server with --queries.")
    queries = [
        replace(one.queries[0], id=f"query {number}") if asked.queries else one.queries[0]
        for number, one in enumerate(questions)
    ]
    better = [one.better[0] for one in questions if one.better is not None]
    if better and len(better) < len(queries):
        raise ConfigError("select: only some queries have a better answer. Give one for every query, or for none.")
    how: dict[str, Any] = {"diversity": asked.diversity, "drop_duplicates": asked.drop_duplicates}
    try:
        return pick(index, queries, asked.total, better=better or None, where=asked.where or None, **how).picks
    except ConfigError as error:  # count is the size of a page here
        raise ConfigError(str(error).replace("select: count is", "select: total is")) from None


def clean(explorer: Explorer, asked: CleanRequest) -> dict[str, Any]:
    """Return training examples that are likely wrong, repeated, odd or harmful, with the reason of each finding."""
    index, page = explorer.index(asked.index), asked.page
    found = explorer.once(asked, lambda: _findings(explorer, index, asked))
    told = [
        {
            **{name: getattr(one, name) for name in ("kind", "value", "reason", "row", "other_row")},
            **_beginning(one.example),
            "id": one.example.id,
            "other_id": None if one.other is None else one.other.id,
        }
        for one in found.findings[page]
    ]
    counts = {kind: found.count(kind) for kind in found.checked}
    more, total = page.stop < len(found.findings), len(found.findings)
    examples = {"examples": found.examples, "skipped": found.skipped}
    return {"total": total, "counts": counts, **examples, "findings": told, "more": more}


def _findings(explorer: Explorer, index: ServedIndex, asked: CleanRequest) -> CleanResult:
    matching = int(index.mask(asked.where or None).sum())
    if matching > MOST_CLEANED:
        raise ConfigError(
            f"clean: {matching:,} examples match the filter, but at most {MOST_CLEANED:,} can be checked here. Narrow "
            "the filter, or run airrep clean in a terminal."
        )
    queries, better = (None, None) if explorer.file is None else (explorer.file.queries, explorer.file.better)
    return find_wrong(index, queries, better=better, kinds=asked.kinds, label=asked.label, where=asked.where or None)


def _live_rows(index: ServedIndex, numbers: list[int]) -> np.ndarray:
    checked = index.check_rows(np.array(numbers))
    gone = checked[~index.live[checked]]
    if len(gone):
        raise ConfigError(f"row {gone[0]}: was deleted from {index.path}. Leave it out.")
    return checked


class Answers:
    """Answers of one index about one query, or about an answer in contrast to a better one."""

    def __init__(self, index: ServedIndex, question: Question) -> None:
        self._index, self._question = index, question
        self._asked = index.ask(question)
        self._reasons = Reasons(index, index.attributor)

    def hits(self, found: Sequence[tuple[int, float, float]], start: int) -> list[dict[str, Any]]:
        """Return examples for a list, given their rows, scores and deviations; ranks begin after *start*."""
        told = []
        reasons = self._why([Scored(row, score) for row, score, _ in found])
        for rank, ((row, score, deviations), why) in enumerate(zip(found, reasons, strict=True), start + 1):
            example = self._index.example(row)
            numbers = {"rank": rank, "row": row, "score": score, "deviations": deviations}
            own = {**numbers, **self._parts(row), **example_json(example, why=why)}
            told.append({**own, **why_json(self._question.queries[0], example, why)})
        return told

    def of_row(self, row: int) -> dict[str, Any]:
        """Return score, deviations and reasons of one example, for its full texts."""
        score = self._index.score_of(self._question, row)
        spread = self._index.ranking(self._question, self._index.live, DEEPEST).spread
        (why,) = self._why([Scored(row, score)])
        told = why_json(self._question.queries[0], self._index.example(row), why, None)
        return {"score": score, "deviations": spread.of_one(score), **self._parts(row), **told}

    def tokens(self, row: int) -> WordScores:
        """Return the score of one example, split over pairs of words."""
        (why,) = self._why([Scored(row, self._index.score_of(self._question, row))], tokens=True)
        assert why.tokens is not None
        return why.tokens

    def _why(self, scored: Sequence[Scored], *, tokens: bool = False) -> list[Why]:
        return self._question.reasons(self._reasons, self._asked, 0, scored, tokens=tokens)

    def _parts(self, row: int) -> dict[str, float]:
        """Return the separate scores for the answer and the better answer; empty without a better answer."""
        if self._question.better is None:
            return {}
        answer, better = self._index.score_row(self._asked, row).tolist()
        return {"answer_score": answer, "better_score": better}


def verdict_json(index: ServedIndex, question: Question, keep: Mask) -> dict[str, Any] | None:
    """Return the verdict on whether any row in *keep* stands out; None if the method cannot judge."""
    ends = None if question.better is not None else index.ranking(question, keep, DEEPEST)
    ((found,), _) = verdicts(index, question, index.ask(question), keep, ends)
    return None if found is None else {"kind": found.kind, "text": found.text}


def prove_command(index: ServedIndex, question: Question, ids: Sequence[str] | None) -> str:
    """Return the command that tests with fine-tunes what examples taught; without *ids* it reads them from a file."""
    query = question.queries[0]
    rows = ["--from", BASKET] if ids is None else [word for one in ids for word in ("--rows", one)]
    better = [] if question.better is None else ["--better", as_typed(question.better[0].response, None)]
    lm = str(index.manifest["settings"].get("lm") or "MODEL")
    asked = ["--prompt", query.prompt, "--response", as_typed(query.response, query.span), *better]
    return shlex.join(["airrep", "prove", str(index.path), *rows, "--lm", lm, *asked])


def example_json(example: Example, length: int | None = SHOWN, why: Why | None = None) -> dict[str, Any]:
    """Return an example's fields, with texts cut to *length* characters, or in full if *length* is None.

    Pass the same *why* as to :func:`why_json`, so that both show the same part of a conversation.
    """
    prompt = shown_prompt(example.prompt, length, _first_same(why))
    return {
        "id": example.id,
        "prompt": cut(prompt, length),
        "response": cut(example.response, length),
        "lengths": {"prompt": len(prompt), "response": len(example.response)},
        "system": _units(prompt[: system_end(prompt)]),
        "place": example.place,
        "label": example.label,
        "source": example.source,
        "metadata": dict(example.metadata),
    }


def query_json(question: Question) -> dict[str, Any]:
    """Return a query in full, with the better answer and the span, in characters, or None for either."""
    better = None if question.better is None else question.better[0].response
    span = question.queries[0].span
    return {**example_json(question.queries[0], None), "better": better, "span": span}


def shown_prompt(prompt: str, length: int | None, same: Sequence[Span] = ()) -> str:
    """Return a prompt for a list: without its system prompt, and only the last message if it is too long.

    If that part has none of the *same* words, it begins with the message that has the first of these places.
    """
    if length is None:
        return prompt
    start = max(last_message(prompt, min(length, SEEN)), system_end(prompt))
    if start and same and all(span.start < start for span in same):
        start = message_at(prompt, same[0].start)
    return DOTS + prompt[start:] if start else prompt


def _first_same(why: Why | None) -> list[Span]:
    """Return places in a training example's prompt of words shared with the query, largest contributions first."""
    shared = () if why is None else why.same_words
    return [span for same in shared for span in same.example if span.field == "prompt"]


def cut(text: str, length: int | None) -> str:
    """Return the first *length* characters of a text; all of it for None."""
    return text if length is None else text[:length]


def why_json(query: Example, example: Example, why: Why, length: int | None = SHOWN) -> dict[str, Any]:
    """Return the parts of a score: channels, and shared words with their places in both texts as shown."""
    prompt = shown_prompt(example.prompt, length, _first_same(why))
    return {
        "channels": why.channels,
        "words": [
            {
                "text": same.text,
                "score": same.score,
                "query": _places(query, query.prompt, same.query, None),
                "example": _places(example, prompt, same.example, length),
            }
            for same in why.same_words
        ],
    }


def _worded(example: Example, words: Sequence[Span]) -> dict[str, Any]:
    texts = {"prompt": example.prompt, "response": example.response}
    return {**texts, "words": _places(example, example.prompt, words, None)}


def _places(example: Example, prompt: str, spans: Iterable[Span], length: int | None) -> list[list[Any]]:
    """Return field, start and stop of each place that is shown, in UTF-16 units, which JavaScript counts.

    *prompt* is the example's prompt from :func:`shown_prompt`, before it is cut.
    """
    told: list[list[Any]] = []
    for span in spans:
        whole = getattr(example, span.field)
        text = prompt if span.field == "prompt" else whole
        before = len(whole) - len(text)  # characters left out at the beginning
        text = cut(text, length)
        start, stop = span.start - before, span.stop - before
        if (len(DOTS) if before else 0) <= start < len(text):
            told.append([span.field, _units(text[:start]), _units(text[:stop])])
    return told


def _units(text: str) -> int:
    """Return the length in UTF-16 units; characters outside the basic plane count twice."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
