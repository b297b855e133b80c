"""Attribution by BM25, the ranking of text search."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from airrep.arrays import SparseFeatures
from airrep.attributors.base import MethodAttributor, OnRows
from airrep.attributors.settings import Bm25Settings
from airrep.attributors.text.ngrams import runs_of
from airrep.corpus.corpus import Corpus, Example, have_spans
from airrep.corpus.places import Places, ends_in, lower_case
from airrep.corpus.views import View, seen_text, seen_texts
from airrep.corpus.words import Words, plain
from airrep.errors import ConfigError
from airrep.runtime.artifacts.manifests import canonical_json, json_digest
from airrep.scoring.pooling import Pool
from airrep.sparse import SparseRows


class Terms:
    """A vocabulary of terms: words of two letters or marks or more, in lower case, and so many of them in a row."""

    def __init__(self, names: Sequence[str], signs: bool = False, longest: int = 1) -> None:
        """Take the terms in the order of their columns; with *signs* those of scripts without spaces are words each."""
        self.names = names
        self.longest = longest
        self._words = Words(signs, least=2)
        self._numbers = {name: number for number, name in enumerate(names)}

    def count(self, texts: Iterable[str]) -> SparseFeatures:
        """How often each text has each term, ``(rows, terms)`` CSR float32, columns ascending."""
        return self._counted(texts, self._numbers.get)[0]

    def learnt(self, texts: Iterable[str], least: int = 1) -> "LearntTerms":
        """The terms that so many texts have at least, in the order of their characters; none of a vocabulary before."""
        found = _Numbering()
        counts, lengths = self._counted(texts, found.__getitem__)
        having = np.bincount(counts.indices, minlength=len(found))
        names = sorted(name for name, number in found.items() if having[number] >= least)
        other = Terms(names, longest=self.longest)
        other._words = self._words
        return LearntTerms(other, having[[found[name] for name in names]], lengths)

    def places(self, example: Example, view: View) -> Places:
        """Where the terms stand in the text that a view shows."""
        low, origin = lower_case(seen_text(example, view))
        words = list(self._words.finditer(low))
        columns, starts, ends = [], [], []
        for length in range(1, self.longest + 1):
            for first in range(len(words) - length + 1):
                column = self._numbers.get(" ".join(word[0] for word in words[first : first + length]))
                if column is not None:
                    columns.append(column)
                    starts.append(int(origin[words[first].start()]))
                    ends.append(words[first + length - 1].end())
        return Places.of(example, view, columns, columns, starts, ends_in(origin, ends))

    def _counted(self, texts: Iterable[str], number: Callable[[str], int | None]) -> tuple[SparseFeatures, np.ndarray]:
        """Counts of what has a number, and how much of it each text has."""
        lengths: list[int] = []

        def numbers() -> Iterator[list[int]]:
            for text in texts:
                words = self._words.findall(plain(text).lower())
                found = [column for column in map(number, runs_of(words, self.longest)) if column is not None]
                lengths.append(len(found))
                yield found

        columns = np.fromiter(chain.from_iterable(numbers()), np.int32)
        width = len(self.names) or int(columns.max(initial=-1)) + 1
        counts = SparseRows.counts(columns, np.cumsum([0, *lengths]), width)
        return counts, np.array(lengths, np.float32)


class LearntTerms(NamedTuple):
    """Terms of a corpus."""

    terms: Terms
    having: np.ndarray
    """``(terms,)`` int64: how many texts have each."""
    lengths: np.ndarray
    """``(rows,)`` float32: how many terms each text has, repeats and rare ones counted."""


def within_spans(
    features: SparseFeatures, examples: Sequence[Example], view: View, places: Callable[[Example], Places]
) -> SparseFeatures:
    """Features that are counts times something, each by the share of its places that lies in its example's span.

    Those of the prompt alone stay as they are: it has no part that is asked about.
    """
    if view == "prompt" or not have_spans(examples):
        return features
    data = features.data.astype(np.float64)
    for row, example in enumerate(examples):
        if example.span is not None:
            cells = slice(features.indptr[row], features.indptr[row + 1])
            own, found = places(example), features.indices[cells]
            touched = np.bincount(np.searchsorted(found, own.columns), own.shares(example), len(found))
            data[cells] *= touched / np.maximum(np.bincount(np.searchsorted(found, own.columns), None, len(found)), 1)
    return features.with_data(data.astype(np.float32))


class _Numbering(dict[str, int]):
    """Numbers of terms, in the order in which they are first asked for."""

    def __missing__(self, term: str) -> int:
        number = self[term] = len(self)
        return number


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
    reads_spans = True
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
        """φ_query: how often the query has each term; of one with a span, there."""
        return within_spans(self._counts(examples, on_rows), examples, self._settings.view, self.places)

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
