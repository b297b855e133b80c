"""The state of a page: an index, perhaps another beside it, queries, facets."""

import threading
from collections import OrderedDict
from collections.abc import Sequence

from airrep.attributors.base import OnProgress
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import ConfigError
from airrep.explorer.facets import Facets
from airrep.explorer.requests import QueryRef
from airrep.explorer.served import ServedIndex, check_same_corpus, query_of
from airrep.index.index import Index

MOST_QUERIES = 5000
"""Queries of a file, at most: each example is scored for all of them."""
REMEMBERED = 100
"""Queries that were asked, and are kept."""


class Explorer:
    """Everything that questions are asked of; nothing of it is ever written to disk."""

    def __init__(self, index: Index, queries: Corpus | None = None, beside: Index | None = None) -> None:
        """Open the indexes to be served.

        Raises:
            ConfigError: too many queries, or the other index is of other examples.
        """
        if queries is not None and len(queries) > MOST_QUERIES:
            raise ConfigError(
                f"--queries: holds {len(queries):,} examples; expected at most {MOST_QUERIES:,}. Give a part of them."
            )
        if beside is not None:
            check_same_corpus(index, beside)
        self.indexes = tuple(ServedIndex(one) for one in (index, beside) if one is not None)
        self.queries = queries
        self.facets = Facets(self.indexes[0])
        self._asked: OrderedDict[str, Example] = OrderedDict()
        self._noting = threading.Lock()

    def prepare(self, progress: OnProgress | None = None) -> None:
        """Load the models, read the facets, and encode the queries of the file, before the first question comes."""
        self.facets.prepare()
        for index in self.indexes:
            index.attributor.load()
            if self.queries is not None:
                index.encode_file(self.queries, progress)

    def index(self, number: int) -> ServedIndex:
        """One of the indexes, as it is on disk now.

        Raises:
            ConfigError: there is no such index.
            ArtifactError: it was changed or replaced.
        """
        if number >= len(self.indexes):
            raise ConfigError(f"index {number}: is not served; expected 0 to {len(self.indexes) - 1}.")
        found = self.indexes[number]
        found.check_unchanged()
        return found

    def query(self, ref: QueryRef) -> Example:
        """The query that is meant.

        Raises:
            ConfigError: no such query.
            DataError: a text is blank.
        """
        if ref.number is not None:
            if self.queries is None or ref.number >= len(self.queries):
                raise ConfigError(f"query number {ref.number}: is not in the file of queries. Choose another.")
            return self.queries[ref.number]
        if ref.key is not None:
            with self._noting:
                found = self._asked.get(ref.key)
            if found is None:
                raise ConfigError("query: is not among those that were asked last. Type it in again.")
            return found
        if ref.prompt is None or ref.response is None:
            raise ConfigError("query: expected a prompt and a response. Fill in both.")
        return query_of(ref.prompt, ref.response)

    def remember(self, query: Example) -> None:
        """Keep a query that was typed in among those asked last."""
        with self._noting:
            self._asked.pop(query.content_hash, None)
            self._asked[query.content_hash] = query
            while len(self._asked) > REMEMBERED:
                self._asked.popitem(last=False)

    def asked(self) -> Sequence[tuple[str, Example]]:
        """Keys and queries that were asked, the last first."""
        with self._noting:
            return list(reversed(self._asked.items()))
