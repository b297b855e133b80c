"""An index that is served: queries are encoded once, changes on disk noticed."""

import threading
from bisect import bisect_right
from collections import OrderedDict
from operator import attrgetter
from pathlib import Path

import numpy as np

from airrep.arrays import Features
from airrep.attributors.base import OnProgress
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import ArtifactError, ConfigError
from airrep.index.index import Index, Queries
from airrep.scoring.topk import top_k

KEPT = 128
"""Queries whose features are kept, one by one."""


class ServedIndex(Index):
    """An index that several threads ask.

    Models are not made for several threads, so they encode for one at a time. The features of single queries are
    kept: one query is asked for its examples, its groups and its what-ifs.
    """

    def __init__(self, index: Index) -> None:
        """Open the same directory again, with the same attributor."""
        super().__init__(index.path, index.given)
        self.changes = index.changes
        self._encoding = threading.Lock()
        self._encoded: OrderedDict[tuple[str, str], Features] = OrderedDict()
        self._file: Features | None = None
        self._places: dict[tuple[str, str], int] = {}
        self._state = _state_of(self.path)

    def check_unchanged(self) -> None:
        """Refuse to answer from an index that is another one on disk by now (ArtifactError)."""
        if _state_of(self.path) != self._state:
            raise ArtifactError(
                f"{self.path}: was changed or replaced while it is served; expected the index as it was opened. "
                "Stop `airrep serve` and start it again."
            )

    def encode_queries(self, queries: Queries, progress: OnProgress | None = None) -> Features:
        """Features of queries, ``(q, d)``, float32; those of a single query are kept."""
        if isinstance(queries, Example) or len(queries) != 1:
            with self._encoding:
                return super().encode_queries(queries, progress)
        key = (queries[0].prompt, queries[0].response)
        place = self._places.get(key)
        if place is not None and self._file is not None:  # the same numbers as in a list of the file's queries
            self._hold(queries)
            return self._file[[place]]
        with self._encoding:
            found = self._encoded.pop(key, None)
            if found is None:
                found = super().encode_queries(queries, progress)
            else:
                self.hold_scores(queries)
            self._encoded[key] = found
            while len(self._encoded) > KEPT:
                self._encoded.popitem(last=False)
            return found

    def encode_file(self, queries: Corpus, progress: OnProgress | None = None) -> Features:
        """Features of all queries of the file, which is always the same; encoded once."""
        if self._file is None:
            self._file = super().encode_queries(queries, progress)
            self._places = {(query.prompt, query.response): place for place, query in enumerate(queries)}
        self._hold(queries)
        return self._file

    def _hold(self, queries: Queries) -> None:
        with self._encoding:
            self.hold_scores(queries)

    def score_row(self, features: Features, row: int) -> np.ndarray:
        """Influence scores of one row for queries given by their features, ``(q,)`` float32."""
        block = self.blocks[bisect_right(self.shards, row, key=attrgetter("start")) - 1]
        only = np.zeros(block.features.shape[0], dtype=bool)
        only[row - block.start] = True
        scores: np.ndarray = top_k(features, [block._replace(start=0)], 1, keep=only).scores[:, 0]
        return scores


def _state_of(path: Path) -> tuple[int, int, int] | None:
    """What tells one manifest from the one that replaces it; None where there is none any more."""
    try:
        found = (path / "manifest.json").stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def check_same_corpus(index: Index, beside: Index) -> None:
    """Refuse two indexes that do not have the same examples in the same rows (ConfigError)."""
    corpora = [[corpus["fingerprint"] for corpus in one.manifest["corpora"]] for one in (index, beside)]
    if corpora[0] != corpora[1] or index.rows != beside.rows or not np.array_equal(index.deleted, beside.deleted):
        raise ConfigError(
            f"--beside {beside.path}: has other examples than {index.path}; expected the same, in the same order. "
            "Build both from one file."
        )


def query_of(prompt: str, response: str) -> Example:
    """A query that was typed in; DataError if a text is blank or cannot be stored."""
    return Corpus.from_examples([Example(prompt=prompt, response=response, id="query")])[0]
