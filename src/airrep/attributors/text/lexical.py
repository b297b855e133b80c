"""Attribution by words and hashed n-grams: TF-IDF and DSIR."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from airrep.arrays import SparseFeatures
from airrep.attributors.base import MethodAttributor, OnRows
from airrep.attributors.settings import DsirSettings, TfidfSettings
from airrep.attributors.text.bm25 import Terms, within_spans
from airrep.attributors.text.ngrams import NgramCounter, log_ratio
from airrep.corpus.corpus import Corpus, Example
from airrep.corpus.places import Places
from airrep.corpus.views import seen_texts
from airrep.errors import ConfigError, DataError
from airrep.runtime.artifacts.manifests import canonical_json, json_digest
from airrep.scoring.pooling import Pool
from airrep.sparse import SparseRows, below

TOGETHER = 256
"""Queries whose features are worked out at a time: 80 KB each at 10,000 buckets."""


class _Learnt(NamedTuple):
    terms: Terms
    weights: np.ndarray
    """``(d,)``: the inverse document frequency of each term."""


class TfidfAttributor(MethodAttributor[TfidfSettings]):
    """Unit TF-IDF rows, so that the influence score is the cosine of two texts, as scikit-learn's TfidfVectorizer.

    :meth:`fit` learns the vocabulary and the inverse document frequencies of the training corpus; words that are
    not in it count for nothing later. φ_t = c_t · (1 + log((1 + N)/(1 + n_t))) / norm, for c_t occurrences of term t,
    which n_t of N training examples have.
    """

    name = "tfidf"
    reads_spans = True
    pool: ClassVar[Pool] = "sum"

    def __init__(self, settings: TfidfSettings | None = None) -> None:
        super().__init__(settings or TfidfSettings())
        self._learnt: _Learnt | None = None

    @property
    def fingerprint(self) -> str:
        known = self.check_fitted(self._learnt)
        learnt = [known.terms.names, known.weights.tolist()]
        return json_digest({"method": self.name, "settings": self._settings.model_dump(), "learnt": learnt})

    def fit(self, train: Corpus) -> None:
        """Learn the vocabulary and the inverse document frequencies.

        Raises:
            ConfigError: no term occurs in ``min_count`` examples.
        """
        texts = seen_texts(train, self._settings.view)
        terms, having, _ = self._terms([]).learnt(texts, self._settings.min_count)
        if not terms.names:
            raise ConfigError(
                f"tfidf: finds no term in {self._settings.min_count} or more of the training examples; "
                "expected at least one. Lower min_count, or take another method."
            )
        # In float32 throughout: so were the weights that indexes have.
        weights = np.log(np.float32(len(train) + 1) / (having.astype(np.float32) + np.float32(1))) + np.float32(1)
        self._learnt = _Learnt(terms, weights)

    def encode_train(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> SparseFeatures:
        terms, weights = self.check_fitted(self._learnt)
        features = terms.count(seen_texts(examples, self._settings.view))
        features.data *= weights[features.indices].astype(np.float32)
        row = features.row_of
        lengths = np.sqrt(np.bincount(row, features.data * features.data, features.shape[0]))
        features.data = (features.data / lengths[row]).astype(np.float32)
        if on_rows is not None:
            on_rows(len(examples))
        return features

    def encode_queries(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> SparseFeatures:
        """φ_query: the same; of a query with a span what lies there, by the length of the whole."""
        return within_spans(self.encode_train(examples, on_rows), examples, self._settings.view, self.places)

    @property
    def symmetric(self) -> bool:
        return True

    def places(self, example: Example) -> Places:
        return self.check_fitted(self._learnt).terms.places(example, self._settings.view)

    def save_state(self, folder: Path) -> None:
        known = self.check_fitted(self._learnt)
        (folder / "terms.json").write_bytes(canonical_json(known.terms.names))
        np.save(folder / "idf.npy", known.weights.astype(np.float64))

    def load_state(self, folder: Path) -> None:
        terms = json.loads((folder / "terms.json").read_bytes())
        self._learnt = _Learnt(self._terms(terms), np.load(folder / "idf.npy", allow_pickle=False))

    def _terms(self, names: list[str]) -> Terms:
        return Terms(names, self._settings.signs, self._settings.ngrams)


class DsirAttributor(MethodAttributor[DsirSettings]):
    """Data selection with importance resampling (DSIR), query by query.

    φ_train(z) = counts of hashed word n-grams; φ_query(x) = log p_x − log p_source over the buckets. Their product is
    the log importance weight of z: how much likelier a bag-of-n-grams model of the query makes it than one of the
    training corpus, which :meth:`fit` counts. Weights add up over the words of z, so long texts have large ones.
    """

    name = "dsir"
    reads_spans = True
    pool: ClassVar[Pool] = "sum"

    def __init__(self, settings: DsirSettings | None = None) -> None:
        super().__init__(settings or DsirSettings())
        self._counter = NgramCounter(self._settings.ngrams, self._settings.buckets, self._settings.signs)
        self._source: np.ndarray | None = None

    @property
    def fingerprint(self) -> str:
        learnt = self._fitted().tolist()
        return json_digest({"method": self.name, "settings": self._settings.model_dump(), "learnt": learnt})

    def fit(self, train: Corpus) -> None:
        """Count the n-grams of the training corpus.

        Raises:
            DataError: it has no words.
        """
        source = self._counter.total(seen_texts(train, self._settings.view))
        if not source.any():
            raise DataError("dsir: finds no word in the training examples; expected at least one. Give texts.")
        self._source = source

    def encode_train(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> SparseFeatures:
        self._fitted()
        features = self._counter.count(seen_texts(examples, self._settings.view))
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
        return below(parts)

    def encode_target(self, examples: Sequence[Example]) -> SparseFeatures:
        """φ of all queries as one target, ``(1, d)``: DSIR as its authors have it.

        Raises:
            NotFittedError: :meth:`fit` has not seen the training corpus.
            DataError: the queries have no words.
        """
        counts = self._within(examples).sum(axis=0)
        if not counts.any():
            raise DataError("dsir: finds no word in the queries; expected at least one. Give queries with words.")
        return self._ratios(counts[None])

    def places(self, example: Example) -> Places:
        self._fitted()
        return self._counter.places(example, self._settings.view)

    def _within(self, examples: Sequence[Example]) -> SparseFeatures:
        """Counts of what is asked about of each query."""
        counts = self._counter.count(seen_texts(examples, self._settings.view))
        return within_spans(counts, examples, self._settings.view, self.places)

    def _query_counts(self, examples: Sequence[Example]) -> np.ndarray:
        counts = self._within(examples)
        empty = np.flatnonzero(counts.lengths == 0)
        if len(empty) and self._settings.view == "whole":
            raise DataError(
                f"dsir: query '{examples[empty[0]].id}' has no words; expected at least one. Leave the query out."
            )
        dense: np.ndarray = counts.toarray()
        return dense

    def _ratios(self, counts: np.ndarray) -> SparseFeatures:
        ratios = np.zeros(counts.shape, np.float32)  # 0 for a view that shows nothing
        some = counts.any(axis=1)
        ratios[some] = log_ratio(counts[some], self._fitted(), self._settings.smoothing)
        return SparseRows.of(ratios)

    def save_state(self, folder: Path) -> None:
        np.save(folder / "source.npy", self._fitted())

    def load_state(self, folder: Path) -> None:
        self._source = np.load(folder / "source.npy", allow_pickle=False)

    def _fitted(self) -> np.ndarray:
        return self.check_fitted(self._source)
