"""Attribution by BM25, the ranking of text search."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from airrep.arrays import SparseFeatures
from airrep.attributors.base import MethodAttributor, OnRows
from airrep.attributors.settings import Bm25Settings
from airrep.attributors.text.terms import Terms
from airrep.corpus.corpus import Corpus, Example
from airrep.corpus.places import Places
from airrep.corpus.views import seen_texts
from airrep.errors import ConfigError
from airrep.runtime.artifacts.digests import canonical_json, json_digest
from airrep.scoring.pooling import Pool


class _Learnt(NamedTuple):
    terms: Terms
    weights: np.ndarray
    """``(d,)`` float64: the inverse document frequency of each term."""
    mean_length: float
    """Mean number of terms of a training example."""


class Bm25Attributor(MethodAttributor[Bm25Settings]):
    """BM25 of each training example for the words of the query.

    φ_train(z)_t = log(1 + (N − n_t + ½)/(n_t + ½)) · c_t/(c_t + k(1 − b + b|z|/mean)) for c_t occurrences of term t,
    which n_t of N training examples have; φ_query(x)_t counts the term. Search libraries score a
    corpus once and for all; here examples can be appended, by what :meth:`fit` saw of the first ones.
    """

    name = "bm25"
    pool: ClassVar[Pool] = "sum"

    def __init__(self, settings: Bm25Settings | None = None) -> None:
        super().__init__(settings or Bm25Settings())
        self._learnt: _Learnt | None = None

    @property
    def fingerprint(self) -> str:
        known = self.check_fitted(self._learnt)
        learnt = [known.terms.names, known.weights.tolist(), known.mean_length]
        return json_digest({"method": self.name, "settings": self._settings.model_dump(), "learnt": learnt})

    def fit(self, train: Corpus) -> None:
        """Learn the vocabulary, how many examples have each term, and their mean length.

        Raises:
            ConfigError: no example has a term.
        """
        terms, having, lengths = Terms([], self._settings.signs).learnt(seen_texts(train, self._settings.view))
        if not terms.names:
            raise ConfigError(
                f"bm25: no training example has a word in the view '{self._settings.view}'; expected at least one. "
                "Take another view, or another method."
            )
        weights = np.log1p((len(train) - having + 0.5) / (having + 0.5))
        self._learnt = _Learnt(terms, weights, float(lengths.sum() / len(train)))

    def encode_train(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> SparseFeatures:
        known, settings = self.check_fitted(self._learnt), self._settings
        counts = self._counts(examples, on_rows).astype(np.float64)
        lengths = counts.sum(axis=1) / known.mean_length
        room = settings.saturation * (1 - settings.length + settings.length * lengths[counts.row_of])
        data = known.weights[counts.indices] * counts.data / (counts.data + room)
        return counts.with_data(data.astype(np.float32))

    def encode_queries(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> SparseFeatures:
        """φ_query: how often the query has each term."""
        return self._counts(examples, on_rows)

    def _counts(self, examples: Sequence[Example], on_rows: OnRows | None) -> SparseFeatures:
        counts = self.check_fitted(self._learnt).terms.count(seen_texts(examples, self._settings.view))
        if on_rows is not None:
            on_rows(len(examples))
        return counts

    def places(self, example: Example) -> Places:
        return self.check_fitted(self._learnt).terms.places(example, self._settings.view)

    def save_state(self, folder: Path) -> None:
        known = self.check_fitted(self._learnt)
        (folder / "terms.json").write_bytes(canonical_json(known.terms.names))
        np.save(folder / "weights.npy", known.weights)
        np.save(folder / "mean_length.npy", np.float64(known.mean_length))

    def load_state(self, folder: Path) -> None:
        terms = json.loads((folder / "terms.json").read_bytes())
        weights, mean = (np.load(folder / f"{name}.npy", allow_pickle=False) for name in ("weights", "mean_length"))
        self._learnt = _Learnt(Terms(terms, self._settings.signs), weights, float(mean))
