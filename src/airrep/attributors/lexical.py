"""Attribution by the words that texts share: TF-IDF."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer

from airrep.arrays import SparseFeatures
from airrep.attributors.base import Attributor, OnRows
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import ConfigError, NotFittedError
from airrep.runtime.artifacts import canonical_json, digest
from airrep.runtime.settings import TfidfSettings
from airrep.scoring.pooling import Pool


class TfidfAttributor(Attributor):
    """Unit TF-IDF rows, so that the influence score is the cosine of two texts (scikit-learn's TfidfVectorizer).

    :meth:`fit` learns the vocabulary and the inverse document frequencies of the training corpus; words that are
    not in it count for nothing later.
    """

    name = "tfidf"
    pool: ClassVar[Pool] = "sum"

    def __init__(self, settings: TfidfSettings | None = None) -> None:
        self._settings = settings or TfidfSettings()
        self._vectorizer: TfidfVectorizer | None = None

    @property
    def settings(self) -> TfidfSettings:
        return self._settings

    @property
    def fingerprint(self) -> str:
        vectorizer = self._fitted()
        learnt = [sorted(vectorizer.vocabulary_), [float(value) for value in vectorizer.idf_]]
        return digest({"method": self.name, "settings": self._settings.model_dump(), "learnt": learnt})

    def fit(self, train: Corpus) -> None:
        """Learn the vocabulary and the inverse document frequencies.

        Raises:
            ConfigError: no term occurs in ``min_count`` examples.
        """
        vectorizer = self._new_vectorizer()
        try:
            vectorizer.fit(map(_text, train))
        except ValueError as error:
            raise ConfigError(
                f"tfidf: finds no term in {self._settings.min_count} or more of the training examples; "
                "expected at least one. Lower min_count, or take another method."
            ) from error
        self._vectorizer = vectorizer

    def encode_train(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> SparseFeatures:
        vectorizer = self._fitted()
        if len(examples) == 0:
            return sparse.csr_array(np.empty((0, len(vectorizer.vocabulary_)), dtype=np.float32))
        features = sparse.csr_array(vectorizer.transform(map(_text, examples)))
        features.sort_indices()
        if on_rows is not None:
            on_rows(len(examples))
        return features

    def save_state(self, folder: Path) -> None:
        vectorizer = self._fitted()
        terms = sorted(vectorizer.vocabulary_, key=vectorizer.vocabulary_.__getitem__)
        (folder / "terms.json").write_bytes(canonical_json(terms))
        np.save(folder / "idf.npy", np.asarray(vectorizer.idf_, dtype=np.float64))

    def load_state(self, folder: Path) -> None:
        terms = json.loads((folder / "terms.json").read_bytes())
        vectorizer = self._new_vectorizer(vocabulary=terms)
        vectorizer.idf_ = np.load(folder / "idf.npy", allow_pickle=False)
        self._vectorizer = vectorizer

    def _new_vectorizer(self, vocabulary: list[str] | None = None) -> TfidfVectorizer:
        return TfidfVectorizer(
            ngram_range=(1, self._settings.ngrams),
            min_df=self._settings.min_count,
            vocabulary=vocabulary,
            dtype=np.float32,
        )

    def _fitted(self) -> TfidfVectorizer:
        if self._vectorizer is None:
            raise NotFittedError("tfidf: has not seen the training corpus. Call fit(train) first, or build an index.")
        return self._vectorizer


def _text(example: Example) -> str:
    return f"{example.prompt}\n{example.response}"
