"""Attribution by hashed n-grams and importance weights: DSIR."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
from scipy import sparse

from airrep.arrays import SparseFeatures
from airrep.attributors.base import Attributor, OnRows
from airrep.attributors.ngrams import NgramCounter, log_ratio
from airrep.attributors.settings import DsirSettings
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import DataError, NotFittedError
from airrep.runtime.artifacts import digest
from airrep.scoring.pooling import Pool

TOGETHER = 256
"""Queries whose features are worked out at a time: 80 KB each at 10,000 buckets."""


class DsirAttributor(Attributor):
    """Data selection with importance resampling (DSIR), query by query.

    φ_train(z) = counts of hashed word n-grams; φ_query(x) = log p_x − log p_source over the buckets. Their product is
    the log importance weight of z: how much likelier a bag-of-n-grams model of the query makes it than one of the
    training corpus, which :meth:`fit` counts. Weights add up over the words of z, so long texts have large ones.
    """

    name = "dsir"
    pool: ClassVar[Pool] = "sum"

    def __init__(self, settings: DsirSettings | None = None) -> None:
        self._settings = settings or DsirSettings()
        self._counter = NgramCounter(self._settings.ngrams, self._settings.buckets)
        self._source: np.ndarray | None = None

    @property
    def settings(self) -> DsirSettings:
        return self._settings

    @property
    def fingerprint(self) -> str:
        learnt = self._fitted().tolist()
        return digest({"method": self.name, "settings": self._settings.model_dump(), "learnt": learnt})

    def fit(self, train: Corpus) -> None:
        """Count the n-grams of the training corpus.

        Raises:
            DataError: it has no words.
        """
        source = self._counter.total(map(_text, train))
        if not source.any():
            raise DataError("dsir: finds no word in the training examples; expected at least one. Give texts.")
        self._source = source

    def encode_train(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> SparseFeatures:
        self._fitted()
        features = self._counter.count(map(_text, examples))
        if on_rows is not None:
            on_rows(len(examples))
        return features

    def encode_queries(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> SparseFeatures:
        """φ_query of each example, ``(rows, d)``: a number in almost every bucket.

        Raises:
            NotFittedError: :meth:`fit` has not seen the training corpus.
            DataError: a query has no words.
        """
        parts: list[SparseFeatures] = [self._counter.count([])]
        for start in range(0, len(examples), TOGETHER):
            some = examples[start : start + TOGETHER]
            parts.append(self._ratios(self._query_counts(some)))
            if on_rows is not None:
                on_rows(len(some))
        features: SparseFeatures = sparse.vstack(parts, format="csr")
        return features

    def encode_target(self, examples: Sequence[Example]) -> SparseFeatures:
        """φ of all queries as one target, ``(1, d)``: DSIR as its authors have it.

        Raises:
            NotFittedError: :meth:`fit` has not seen the training corpus.
            DataError: the queries have no words.
        """
        counts = self._counter.total(map(_text, examples))
        if not counts.any():
            raise DataError("dsir: finds no word in the queries; expected at least one. Give queries with words.")
        return self._ratios(counts[None])

    def _query_counts(self, examples: Sequence[Example]) -> np.ndarray:
        counts = self._counter.count(map(_text, examples))
        empty = np.flatnonzero(np.diff(counts.indptr) == 0)
        if len(empty):
            raise DataError(
                f"dsir: query '{examples[empty[0]].id}' has no words; expected at least one. Leave the query out."
            )
        dense: np.ndarray = counts.toarray()
        return dense

    def _ratios(self, counts: np.ndarray) -> SparseFeatures:
        ratios = log_ratio(counts, self._fitted(), self._settings.smoothing)
        features: SparseFeatures = sparse.csr_array(ratios.astype(np.float32))
        return features

    def save_state(self, folder: Path) -> None:
        np.save(folder / "source.npy", self._fitted())

    def load_state(self, folder: Path) -> None:
        self._source = np.load(folder / "source.npy", allow_pickle=False)

    def _fitted(self) -> np.ndarray:
        if self._source is None:
            raise NotFittedError("dsir: has not seen the training corpus. Call fit(train) first, or build an index.")
        return self._source


def _text(example: Example) -> str:
    return f"{example.prompt}\n{example.response}"
