"""State of the served page: one or two indexes, queries, facets, caches."""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from pydantic import BaseModel

from airrep.answers.chance import chances_of
from airrep.answers.likeness.clusters import Layout, lay_out
from airrep.answers.spread import Ends, ends_of
from airrep.arrays import Mask
from airrep.attributors.base import OnProgress
from airrep.corpus.corpus import Corpus, Example
from airrep.corpus.spans import Spans, check_spans
from airrep.errors import ArtifactError, ConfigError
from airrep.explorer.facets import Facets
from airrep.explorer.requests import QueryRef
from airrep.index.contrast import Better, Question, answered
from airrep.index.index import Index, Queries
from airrep.scoring.asked import Asked, even_pairs, joined
from airrep.scoring.contrast import contrast_scores

T = TypeVar("T")
KEPT = 128
"""Single queries whose features are cached."""
RANKED = 64
"""Rankings that are cached, about 70 kB each; more than one pass of questions makes."""
LONG = 16
"""Selections and lists of findings that are cached."""
Texts = tuple[tuple[str, str, Spans | None], ...]
"""Prompt, response and the response's spans of each query."""


def ranked_part(ends: Ends, start: int, stop: int, *, least: bool) -> list[tuple[int, float, float]]:
    """Return row, score and deviations from the mean for ranks *start* to *stop* from one end of a ranking."""
    values = ends.scores[least][0, start:stop]
    effects = ends.spread.effects(values[None])[0]
    numbers = np.stack([values, effects]).astype(np.float32)  # float32 gives the same digits for all shardings
    rows = ends.rows[least][0, start:stop].tolist()
    return [(row, *pair) for row, pair in zip(rows, numbers.T.tolist(), strict=True)]


class ServedIndex(Index):
    """An index for several threads.

    Models are not thread-safe, so they encode for one thread at a time. The features of single queries are cached,
    because the page asks the same query for its examples, groups and what-ifs.
    """

    def __init__(self, index: Index) -> None:
        """Open the same directory again, with the same attributor."""
        super().__init__(index.path, index.given)
        self.changes = index.changes
        self._encoding, self._laying_out = threading.Lock(), threading.Lock()
        self._layout: Layout | None = None
        self._kept: OrderedDict[Texts, Asked] = OrderedDict()
        self._rankings: OrderedDict[tuple[Texts, bytes], Ends] = OrderedDict()
        self._file: Asked | None = None
        self._places: dict[tuple[str, str, Spans | None], int] = {}
        self.state = _state_of(self.path)

    def ask(self, queries: Queries | Question, progress: OnProgress | None = None) -> Asked:
        """Encode queries as :meth:`Index.ask` does; cache the result for one query, or an answer and a better one."""
        question = queries if isinstance(queries, Question) else self.question(queries)
        key = texts_of(question.all)
        places = [self._places[one] for one in key if one in self._places]
        if len(places) == len(key) and self._file is not None:  # take these from the encoded file of queries
            return self._even(question, self._file.chosen(np.array(places)))
        with self._encoding:
            if len(key) > 2:
                return super().ask(question, progress)
            found = self._kept.pop(key, None) or super().ask(Question(question.all), progress)
            _keep(self._kept, key, found, KEPT)
            return self._even(question, found)

    @staticmethod
    def _even(question: Question, asked: Asked) -> Asked:
        return asked if question.better is None else even_pairs(asked)

    def ask_file(self, question: Question, progress: OnProgress | None = None) -> Asked:
        """Encode all queries of the file and their better answers at the first call; later return the cached result."""
        if self._file is None:
            self._file = super().ask(Question(question.all), progress)
            self._places = {one: place for place, one in enumerate(texts_of(question.all))}
        return self._even(question, self._file)

    def ranking(self, question: Question, keep: Mask, most: int) -> Ends:
        """Return the *most* top and bottom rows in *keep* for one query, with the spread of all scores in *keep*."""
        key = self._ranking_key(question, keep)
        with self._encoding:
            found = self._rankings.pop(key, None)
        found = found or ends_of(question.ranked(self.ask(question)), keep, most)
        with self._encoding:
            _keep(self._rankings, key, found, RANKED)
        return found

    def rank_together(self, questions: Sequence[Question], keep: Mask, most: int) -> None:
        """Make rankings for several queries in one pass over the rows, and cache them for :meth:`ranking`."""
        wanted = {self._ranking_key(one, keep): one for one in questions}
        with self._encoding:
            missing = {key: one for key, one in wanted.items() if key not in self._rankings}
        asked = joined([one.ranked(self.ask(one)) for one in missing.values()])
        if asked is None:
            return
        ends = ends_of(asked, keep, most)
        with self._encoding:
            for place, key in enumerate(missing):
                _keep(self._rankings, key, ends.of_one(place), RANKED)

    @staticmethod
    def _ranking_key(question: Question, keep: Mask) -> tuple[Texts, bytes]:
        return texts_of(question.all), hashlib.sha256(keep.tobytes()).digest()

    def layout(self) -> Layout:
        """Return the places of all examples on the map, made at the first call; concurrent calls wait for it."""
        with self._laying_out:
            self._layout = self._layout or lay_out(self)
            return self._layout

    def score_of(self, question: Question, row: int) -> float:
        """Return the score of one row for one query, or its contrast with the better answer."""
        return float(contrast_of(question, self.score_row(self.ask(question), row))[0])

    def score_row(self, asked: Asked, row: int) -> np.ndarray:
        """Return the influence scores of one row, ``(q,)`` float32."""
        return asked.of_row(row).astype(np.float32)


def contrast_of(question: Question, scores: np.ndarray) -> np.ndarray:
    """Return the scores that rows are ranked by, ``(q,)``: contrasts if there are better answers, else *scores*."""
    if question.better is None:
        return scores
    q = len(question.queries)
    return contrast_scores(scores[:q], scores[q:])


def texts_of(queries: Queries) -> Texts:
    """Return the texts and spans that identify queries."""
    return tuple((query.prompt, query.response, query.span) for query in queries)


def _keep(kept: OrderedDict[Any, Any], key: Any, value: Any, most: int) -> None:
    """Add a value to a cache, and drop the oldest values above *most*."""
    kept[key] = value
    while len(kept) > most:
        kept.popitem(last=False)


def _state_of(path: Path) -> tuple[int, int, int] | None:
    """Return inode, time and size of an index's manifest, which change if it is replaced; None if it is gone."""
    try:
        found = (path / "manifest.json").stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def check_same_corpus(index: Index, beside: Index) -> None:
    """Raise ConfigError unless two indexes have the same examples in the same rows."""
    corpora = [[corpus["fingerprint"] for corpus in one.manifest["corpora"]] for one in (index, beside)]
    if corpora[0] != corpora[1] or index.rows != beside.rows or not np.array_equal(index.deleted, beside.deleted):
        raise ConfigError(
            f"--beside {beside.path}: must have the same examples as {index.path}, in the same order. Build both "
            "indexes from one file."
        )


MOST_QUERIES = 5000
"""Most queries of a file, because each example is scored for all of them."""
REMEMBERED = 100
"""Most typed-in queries that are kept."""


class Explorer:
    """Indexes, queries and caches that questions are answered from; nothing is written to disk."""

    def __init__(
        self,
        index: Index,
        queries: Corpus | tuple[Example, ...] | None = None,
        beside: Index | None = None,
        better: Better | None = None,
    ) -> None:
        """Open the indexes to serve; *better* has better answers to the queries."""
        if queries is not None and len(queries) > MOST_QUERIES:
            raise ConfigError(
                f"--queries: holds {len(queries):,} examples, but at most {MOST_QUERIES:,} are allowed. Give fewer."
            )
        if beside is not None:
            check_same_corpus(index, beside)
        self.indexes = tuple(ServedIndex(one) for one in (index, beside) if one is not None)
        self.file = None if queries is None else index.question(queries, better)
        """The queries of the file, with the better answers to them."""
        self.facets = Facets(self.indexes[0])
        self._asked: OrderedDict[str, Question] = OrderedDict()
        self._long: OrderedDict[str, Any] = OrderedDict()
        self._noting = threading.Lock()

    def prepare(self, progress: OnProgress | None = None) -> None:
        """Load models, read facets, encode the file's queries, and compute the reference scores of verdicts.

        Without this call, the first question would take longer than others.
        """
        self.facets.prepare()
        for index in self.indexes:
            index.attributor.load()
            if self.file is not None:
                index.ask_file(self.file, progress)
            chances_of(index, contrast=False)
            if self.file is not None and self.file.better is not None:
                chances_of(index, contrast=True)

    def index(self, number: int) -> ServedIndex:
        """Return an index (ConfigError: no such number; ArtifactError: it was changed or replaced on disk)."""
        if number >= len(self.indexes):
            raise ConfigError(f"index {number}: is not served; expected 0 to {len(self.indexes) - 1}.")
        found = self.indexes[number]
        if _state_of(found.path) != found.state:
            raise ArtifactError(
                f"{found.path}: was changed or replaced while it was served. Stop `airrep serve` and start it again."
            )
        return found

    def question(self, ref: QueryRef) -> Question:
        """Return the query of a reference, with a better answer if there is one (ConfigError: it is not valid)."""
        texts = ref.prompt if ref.response is None else ref.response
        if [ref.number, ref.key, texts].count(None) < 2:
            raise ConfigError("query: is given twice. Give only its number, only its key, or only its texts.")
        if ref.number is not None:
            if self.file is None or ref.number >= len(self.file.queries):
                raise ConfigError(f"query number {ref.number}: is not in the file of queries. Choose another.")
            found = one_of(self.file, ref.number)
        elif ref.key is not None:
            asked = dict(self.asked())
            if ref.key not in asked:
                raise ConfigError("query: is no longer stored on the server. Type it in again.")
            found = asked[ref.key]
        elif ref.prompt is None or ref.response is None or not ref.response.strip():
            raise ConfigError("query: needs a prompt and a response. Fill in both.")
        else:
            found = self.indexes[0].question(query_of(ref.prompt, ref.response))
        if ref.span is not None:
            found = with_span(found, ref.span)
        if ref.better is None:
            return found
        if not ref.better.strip():
            raise ConfigError("better answer: is blank. Type its text, or remove it.")
        query = found.queries[0]
        return Question.of([query], [answered(query, query_of(query.prompt, ref.better).response)])

    def once(self, asked: BaseModel, make: Callable[[], T]) -> T:
        """Return the full result of a paged question, made at its first page and cached for later pages."""
        key = f"{type(asked).__name__} {asked.model_dump_json(exclude={'start', 'count'})}"
        with self._noting:
            found = self._long.pop(key, None)
        made: T = make() if found is None else found
        with self._noting:
            _keep(self._long, key, made, LONG)
        return made

    def of_file(self) -> Iterator[Question]:
        """Yield each query of the file."""
        if self.file is not None:
            yield from (one_of(self.file, number) for number in range(len(self.file.queries)))

    def remember(self, question: Question) -> None:
        """Keep a typed-in query; the oldest ones above :data:`REMEMBERED` are dropped."""
        key = key_of(question)
        with self._noting:
            self._asked.pop(key, None)
            _keep(self._asked, key, question, REMEMBERED)

    def asked(self) -> Sequence[tuple[str, Question]]:
        """Return keys and typed-in queries, the latest first."""
        with self._noting:
            return list(reversed(self._asked.items()))


def key_of(question: Question) -> str:
    """Return a key that identifies a query with its better answer."""
    return "-".join(f"{one.content_hash}{one.span or ''}" for one in question.all)


def one_of(question: Question, number: int) -> Question:
    """Return one of several queries, with its better answer."""
    better = question.better and question.better[number : number + 1]
    return Question(question.queries[number : number + 1], better)


def with_span(question: Question, span: list[list[int]]) -> Question:
    """Return a question about a part of its response, or about all of the response if *span* is empty."""
    query = question.queries[0].whole
    query = replace(query, span=check_spans(query.response, span)) if span else query
    better = None if question.better is None else [question.better[0].whole]
    return Question([query]) if better is None else Question.of([query], better)


def query_of(prompt: str, response: str) -> Example:
    """Return a typed-in query (DataError: the response is blank, or a text cannot be stored)."""
    return Corpus.from_examples([Example(prompt=prompt, response=response, id="query")])[0]
