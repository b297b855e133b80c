"""Attribution by words and hashed n-grams: TF-IDF, BM25 and DSIR."""

import json
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple, TypeVar

import numpy as np

from airrep.arrays import SparseFeatures
from airrep.attributors.base import MethodAttributor, OnRows
from airrep.attributors.settings import Bm25Settings, DsirSettings, TfidfSettings
from airrep.attributors.text.ngrams import NgramCounter, Terms, log_ratio, within_spans
from airrep.corpus.corpus import Corpus, Example
from airrep.corpus.places import Places
from airrep.corpus.views import seen_texts
from airrep.errors import ConfigError, DataError
from airrep.runtime.artifacts.manifests import canonical_json, json_digest
from airrep.scoring.pooling import Pool
from airrep.sparse import SparseRows, below

T = TypeVar("T", bound=TfidfSettings | Bm25Settings)

TOGETHER = 256
"""Queries whose features are worked out at a time: 80 KB each at 10,000 buckets."""


class _Learnt(NamedTuple):
    terms: Terms
    numbers: dict[str, np.ndarray]
    """Numbers that are learnt of the terms, by their names as files."""


class TermsAttributor(MethodAttributor[T]):
    """A method whose features are counts of a vocabulary's terms, times numbers that it learns with the vocabulary."""

    reads_spans = True
    pool: ClassVar[Pool] = "sum"
    learns: ClassVar[tuple[str, ...]]
    """Names of these numbers."""
    longest = 1
    """Words of the longest term."""

    def __init__(self, settings: T) -> None:
        super().__init__(settings)
        self._learnt: _Learnt | None = None

    @property
    def fingerprint(self) -> str:
        terms, numbers = self.check_fitted(self._learnt)
        learnt = [terms.names, *(each.tolist() for each in numbers.values())]
        return json_digest({"method": self.name, "settings": self._settings.model_dump(), "learnt": learnt})

    def _terms(self, names: list[str]) -> Terms:
        return Terms(names, self._settings.signs, self.longest)

    def _counts(self, examples: Sequence[Example], on_rows: OnRows | None) -> SparseFeatures:
        counts = self.check_fitted(self._learnt).terms.count(seen_texts(examples, self._settings.view))
        if on_rows is not None:
            on_rows(len(examples))
        return counts

    @abstractmethod
    def _of_query(self, examples: Sequence[Example], on_rows: OnRows | None) -> SparseFeatures:
        """Features of whole queries."""

    def encode_queries(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> SparseFeatures:
        """φ_query; of a query with a span what lies there, by the length of the whole."""
        return within_spans(self._of_query(examples, on_rows), examples, self._settings.view, self.places)

    def places(self, example: Example) -> Places:
        return self.check_fitted(self._learnt).terms.places(example, self._settings.view)

    def save_state(self, folder: Path) -> None:
        terms, numbers = self.check_fitted(self._learnt)
        (folder / "terms.json").write_bytes(canonical_json(terms.names))
        for name, each in numbers.items():
            np.save(folder / f"{name}.npy", each.astype(np.float64))

    def load_state(self, folder: Path) -> None:
        terms = self._terms(json.loads((folder / "terms.json").read_bytes()))
        numbers = {name: np.load(folder / f"{name}.npy", allow_pickle=False) for name in self.learns}
        self._learnt = _Learnt(terms, numbers)


class TfidfAttributor(TermsAttributor[TfidfSettings]):
    """Unit TF-IDF rows, so that the influence score is the cosine of two texts, as scikit-learn's TfidfVectorizer.

    :meth:`fit` learns the vocabulary and the inverse document frequencies of the training corpus; words that are
    not in it count for nothing later. φ_t = c_t · (1 + log((1 + N)/(1 + n_t))) / norm, for c_t occurrences of term t,
    which n_t of N training examples have.
    """

    name = "tfidf"
    learns = ("idf",)

    def __init__(self, settings: TfidfSettings | None = None) -> None:
        super().__init__(settings or TfidfSettings())
        self.longest = self._settings.ngrams

    @property
    def symmetric(self) -> bool:
        return True

    def fit(self, train: Corpus) -> None:
        """Learn the vocabulary and the inverse document frequencies (ConfigError: too few examples have any term)."""
        texts = seen_texts(train, self._settings.view)
        terms, having, _ = self._terms([]).learnt(texts, self._settings.min_count)
        if not terms.names:
            raise ConfigError(
                f"tfidf: finds no term in {self._settings.min_count} or more of the training examples; "
                "expected at least one. Lower min_count, or take another method."
            )
        # In float32 throughout: so were the weights that indexes have.
        weights = np.log(np.float32(len(train) + 1) / (having.astype(np.float32) + np.float32(1))) + np.float32(1)
        self._learnt = _Learnt(terms, {"idf": weights})

    def encode_train(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> SparseFeatures:
        features = self._counts(examples, on_rows)
        features.data *= self.check_fitted(self._learnt).numbers["idf"][features.indices].astype(np.float32)
        row = features.row_of
        lengths = np.sqrt(np.bincount(row, features.data * features.data, features.shape[0]))
        features.data = (features.data / lengths[row]).astype(np.float32)
        return features

    def _of_query(self, examples: Sequence[Example], on_rows: OnRows | None) -> SparseFeatures:
        return self.encode_train(examples, on_rows)


class Bm25Attributor(TermsAttributor[Bm25Settings]):
    """BM25 of each training example for the words of the query.

    φ_train(z)_t = log(1 + (N − n_t + ½)/(n_t + ½)) · c_t/(c_t + k(1 − b + b|z|/mean)) for c_t occurrences of term t,
    which n_t of N training examples have; φ_query(x)_t counts the term. Search libraries score a
    corpus once and for all; here examples can be appended, by what :meth:`fit` saw of the first ones.
    """

    name = "bm25"
    learns = ("weights", "mean_length")

    def __init__(self, settings: Bm25Settings | None = None) -> None:
        super().__init__(settings or Bm25Settings())

    def fit(self, train: Corpus) -> None:
        """Learn the vocabulary, how many examples have each term, and their mean length (ConfigError: none has one)."""
        terms, having, lengths = self._terms([]).learnt(seen_texts(train, self._settings.view))
        if not terms.names:
            raise ConfigError(
                f"bm25: no training example has a word in the view '{self._settings.view}'; expected at least one. "
                "Take another view, or another method."
            )
        weights = np.log1p((len(train) - having + 0.5) / (having + 0.5))
        self._learnt = _Learnt(terms, {"weights": weights, "mean_length": np.array(float(lengths.sum() / len(train)))})

    def encode_train(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> SparseFeatures:
        known, settings = self.check_fitted(self._learnt).numbers, self._settings
        counts = self._counts(examples, on_rows).astype(np.float64)
        lengths = counts.sum(axis=1) / known["mean_length"]
        room = settings.saturation * (1 - settings.length + settings.length * lengths[counts.row_of])
        data = known["weights"][counts.indices] * counts.data / (counts.data + room)
        return counts.with_data(data.astype(np.float32))

    def _of_query(self, examples: Sequence[Example], on_rows: OnRows | None) -> SparseFeatures:
        return self._counts(examples, on_rows)


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
        """Count the n-grams of the training corpus (DataError: it has no words)."""
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
