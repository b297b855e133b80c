"""The state of a page: an index, perhaps another beside it, queries, facets."""

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence

from airrep.attributors.base import OnProgress
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import ConfigError
from airrep.explorer.facets import Facets
from airrep.explorer.requests import QueryRef
from airrep.explorer.served import ServedIndex, check_same_corpus
from airrep.index.contrast import Better, Question, answered
from airrep.index.index import Index

MOST_QUERIES = 5000
"""Queries of a file, at most: each example is scored for all of them."""
REMEMBERED = 100
"""Queries that were asked, and are kept."""


class Explorer:
    """Everything that questions are asked of; nothing of it is ever written to disk."""

    def __init__(
        self,
        index: Index,
        queries: Corpus | None = None,
        beside: Index | None = None,
        better: Better | None = None,
    ) -> None:
        """Open the indexes to be served; *better* has better answers to the queries, if there are any."""
        if queries is not None and len(queries) > MOST_QUERIES:
            raise ConfigError(
                f"--queries: holds {len(queries):,} examples; expected at most {MOST_QUERIES:,}. Give a part of them."
            )
        if beside is not None:
            check_same_corpus(index, beside)
        self.indexes = tuple(ServedIndex(one) for one in (index, beside) if one is not None)
        self.file = None if queries is None else index.question(queries, better)
        """The queries of the file, with the better answers to them."""
        self.facets = Facets(self.indexes[0])
        self._asked: OrderedDict[str, Question] = OrderedDict()
        self._noting = threading.Lock()

    def prepare(self, progress: OnProgress | None = None) -> None:
        """Load the models, read the facets, and encode the queries of the file, before the first question comes."""
        self.facets.prepare()
        for index in self.indexes:
            index.attributor.load()
            if self.file is not None:
                index.ask_file(self.file, progress)

    def index(self, number: int) -> ServedIndex:
        """One of the indexes, as it is on disk now; ArtifactError if it was changed or replaced."""
        if number >= len(self.indexes):
            raise ConfigError(f"index {number}: is not served; expected 0 to {len(self.indexes) - 1}.")
        found = self.indexes[number]
        found.check_unchanged()
        return found

    def question(self, ref: QueryRef) -> Question:
        """The query that is meant, and the better answer to it if there is one; ConfigError if there is no such."""
        if ref.number is not None:
            if self.file is None or ref.number >= len(self.file.queries):
                raise ConfigError(f"query number {ref.number}: is not in the file of queries. Choose another.")
            found = one_of(self.file, ref.number)
        elif ref.key is not None:
            asked = dict(self.asked())
            if ref.key not in asked:
                raise ConfigError("query: is not among those that were asked last. Type it in again.")
            found = asked[ref.key]
        elif ref.prompt is None or ref.response is None:
            raise ConfigError("query: expected a prompt and a response. Fill in both.")
        else:
            found = Question([query_of(ref.prompt, ref.response)])
        if ref.better is None:
            return found
        if not ref.better.strip():
            raise ConfigError("better answer: is blank; expected its text, or none. Leave it out.")
        query = found.queries[0]
        return Question.of([query], [answered(query, query_of(query.prompt, ref.better).response)])

    def of_file(self) -> Iterator[Question]:
        """Each query of the file."""
        if self.file is not None:
            yield from (one_of(self.file, number) for number in range(len(self.file.queries)))

    def remember(self, question: Question) -> None:
        """Keep a query that was typed in among those asked last."""
        key = key_of(question)
        with self._noting:
            self._asked.pop(key, None)
            self._asked[key] = question
            while len(self._asked) > REMEMBERED:
                self._asked.popitem(last=False)

    def asked(self) -> Sequence[tuple[str, Question]]:
        """Keys and queries that were asked, the last first."""
        with self._noting:
            return list(reversed(self._asked.items()))


def key_of(question: Question) -> str:
    """What tells a query with its better answer from others."""
    return "-".join(one.content_hash for one in question.all)


def one_of(question: Question, number: int) -> Question:
    """One query of several, with its own better answer."""
    better = question.better and question.better[number : number + 1]
    return Question(question.queries[number : number + 1], better)


def query_of(prompt: str, response: str) -> Example:
    """A query that was typed in; DataError if a text is blank or cannot be stored."""
    return Corpus.from_examples([Example(prompt=prompt, response=response, id="query")])[0]
