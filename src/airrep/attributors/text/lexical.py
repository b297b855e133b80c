"""Attribution by words and hashed n-grams: TF-IDF, BM25 and DSIR.

For DSIR, words are runs of letters with their marks, digits and underscores, or runs of other characters without white
space, in lower case. An n-gram is n words in a row with one space between them. Its bucket is SHA-256 of its UTF-8
bytes, read as one integer (first byte highest), modulo the number of buckets. TF-IDF and BM25: see :class:`Terms`.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import chain, islice
from pathlib import Path
from typing import ClassVar, NamedTuple, TypeVar

import numpy as np

from airrep.arrays import SparseFeatures
from airrep.attributors.base import MethodAttributor, OnRows
from airrep.attributors.settings import Bm25Settings, DsirSettings, TfidfSettings
from airrep.corpus.corpus import Corpus, Example, have_spans
from airrep.corpus.places import Places, ends_in, lower_case
from airrep.corpus.views import View, seen_text, seen_texts
from airrep.corpus.words import Words, plain
from airrep.errors import ConfigError, DataError
from airrep.runtime.artifacts import canonical_json, json_digest
from airrep.scoring.pooling import Pool
from airrep.sparse import SparseRows, below

CACHED = 2**19
"""Most n-grams whose buckets are cached; about 150 bytes each."""
BATCH = 4096
"""Texts counted at a time if only the sum is needed."""

_WORDS = {signs: Words(signs, rest=r"[^\w\s]+") for signs in (False, True)}
"""Patterns of words; with *signs*, each character of scripts without spaces between words is a word."""


def bucket_of(ngram: str, buckets: int) -> int:
    """Return the bucket of one n-gram, at least 0 and below *buckets*."""
    return int.from_bytes(sha256(ngram.encode()).digest(), "big") % buckets


def split_words(text: str, signs: bool = False) -> list[str]:
    """Return the words of a text, in lower case; with *signs*, characters of scripts without spaces are words."""
    return _WORDS[signs].findall(plain(text).lower())


def runs_of(words: list[str], longest: int) -> Iterator[str]:
    """Yield all words, then all pairs of neighbouring words with a space between them, and so on up to *longest*."""
    longer = (map(" ".join, zip(*(words[start:] for start in range(n)), strict=False)) for n in range(2, longest + 1))
    return chain(words, *longer)


class Terms:
    """A vocabulary of terms: words of at least two letters or marks, in lower case, and up to *longest* in a row."""

    def __init__(self, names: Sequence[str], signs: bool = False, longest: int = 1) -> None:
        """Take terms in the order of their columns; with *signs*, characters of scripts without spaces are words."""
        self.names = names
        self.longest = longest
        self._words = Words(signs, least=2)
        self._numbers = {name: number for number, name in enumerate(names)}

    def count(self, texts: Iterable[str]) -> SparseFeatures:
        """Count each term in each text, ``(rows, terms)`` CSR float32, columns ascending."""
        return self._counted(texts, self._numbers.get)[0]

    def learnt(self, texts: Iterable[str], least: int = 1) -> tuple["Terms", np.ndarray, np.ndarray]:
        """Return the terms that at least *least* texts have, sorted; the present vocabulary does not matter.

        Also returns how many texts have each term, ``(terms,)`` int64, and how many terms each text has, with repeats
        and rare terms, ``(rows,)`` float32.
        """
        found = _Numbering()
        counts, lengths = self._counted(texts, found.__getitem__)
        having = np.bincount(counts.indices, minlength=len(found))
        names = sorted(name for name, number in found.items() if having[number] >= least)
        other = Terms(names, longest=self.longest)
        other._words = self._words
        return other, having[[found[name] for name in names]], lengths

    def places(self, example: Example, view: View) -> Places:
        """Return where the terms stand in the text that a view shows."""
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
        """Count the terms that have a number; return the counts, and the number of terms in each text."""
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


def within_spans(
    features: SparseFeatures, examples: Sequence[Example], view: View, places: Callable[[Example], Places]
) -> SparseFeatures:
    """Multiply each feature of an n-gram by the share of its places that lies in its example's span.

    Features of the view ``prompt`` stay as they are, since a span is a part of the response.
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
    """Numbers of terms, in the order in which they are first looked up."""

    def __missing__(self, term: str) -> int:
        number = self[term] = len(self)
        return number


class NgramCounter:
    """Counts all word n-grams of a text up to some length in hash buckets."""

    def __init__(self, longest: int = 2, buckets: int = 10_000, signs: bool = False) -> None:
        """Count n-grams of up to *longest* words; n-grams with the same bucket are counted together.

        With *signs*, each character of scripts without spaces between words is a word.
        """
        self.longest, self.buckets, self._signs = longest, buckets, signs
        self._numbers = _BucketCache(buckets)

    def count(self, texts: Iterable[str]) -> SparseFeatures:
        """Count the n-grams of each text, ``(rows, buckets)`` CSR float32; each row depends on its text alone."""
        numbers: list[int] = []
        ends = [0]
        for text in texts:
            numbers.extend(map(self._numbers.__getitem__, runs_of(split_words(text, self._signs), self.longest)))
            ends.append(len(numbers))
        return SparseRows.counts(np.array(numbers, np.int64), np.array(ends), self.buckets)

    def places(self, example: Example, view: View) -> Places:
        """Return where the n-grams of an example stand in the text that a view shows."""
        low, origin = lower_case(seen_text(example, view))
        words = list(_WORDS[self._signs].finditer(low))
        starts = origin[np.array([word.start() for word in words], np.int64)]
        stops = ends_in(origin, [word.end() for word in words])
        count = [len(words) - n + 1 for n in range(1, self.longest + 1) if n <= len(words)]
        ngrams = list(runs_of([word[0] for word in words], self.longest))
        return Places.of(
            example,
            view,
            [self._numbers[ngram] for ngram in ngrams],
            np.array([bucket_of(ngram, 2**64) for ngram in ngrams], np.uint64),
            np.concatenate([starts[:few] for few in count]) if count else [],
            np.concatenate([stops[len(words) - few :] for few in count]) if count else [],
        )

    def total(self, texts: Iterable[str]) -> np.ndarray:
        """Count the n-grams of all texts together, ``(buckets,)`` int64."""
        total, left = np.zeros(self.buckets, dtype=np.int64), iter(texts)
        while batch := list(islice(left, BATCH)):
            total += self.count(batch).sum(axis=0).astype(np.int64)
        return total


class _BucketCache(dict[str, int]):
    """A cache of buckets by n-gram, emptied when it is full."""

    def __init__(self, buckets: int) -> None:
        self.buckets = buckets

    def __missing__(self, ngram: str) -> int:
        if len(self) >= CACHED:
            self.clear()
        number = self[ngram] = bucket_of(ngram, self.buckets)
        return number


def log_ratio(target: np.ndarray, source: np.ndarray, smoothing: float) -> np.ndarray:
    """Return the log ratio of each bucket's probabilities: log(p_target + ε) − log(p_source + ε).

    Its inner product with the counts of a text is the log importance weight of the text (DSIR). *target* holds counts,
    ``(d,)``, or ``(q, d)`` for q targets. ε is the smoothing; with it, probabilities do not add up to 1. DataError: the
    counts of the source or of a target are all 0.
    """
    return _log_shares(target, "target", smoothing) - _log_shares(source, "source", smoothing)


def _log_shares(counts: np.ndarray, what: str, smoothing: float) -> np.ndarray:
    totals = counts.sum(axis=-1, keepdims=True, dtype=np.float64)
    if not (totals > 0).all():
        raise DataError(f"{what}: the texts have no n-grams. Give texts with words.")
    return np.log(counts / totals + smoothing)


T = TypeVar("T", bound=TfidfSettings | Bm25Settings)

TOGETHER = 256
"""Queries whose features are computed at a time: 80 KB each at 10,000 buckets."""


class _Learnt(NamedTuple):
    terms: Terms
    numbers: dict[str, np.ndarray]
    """Numbers learnt from the corpus, by the names of their files."""


class TermsAttributor(MethodAttributor[T]):
    """A method whose features are counts of terms, weighted by numbers that it learns together with the vocabulary."""

    reads_spans = True
    pool: ClassVar[Pool] = "sum"
    learns: ClassVar[tuple[str, ...]]
    """Names of the learnt numbers."""
    longest = 1
    """Number of words in the longest term."""

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

    def _of_query(self, examples: Sequence[Example], on_rows: OnRows | None) -> SparseFeatures:
        """Features of whole queries."""
        return self._counts(examples, on_rows)

    def encode_queries(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> SparseFeatures:
        """φ_query; for a query with a span only terms in it count, scaled by the length of the whole text."""
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
    """TF-IDF rows of length 1, as scikit-learn's TfidfVectorizer makes them: the score is the cosine of two texts.

    :meth:`fit` learns the vocabulary and the inverse document frequencies of the training corpus; words that are
    not in it count nothing later. φ_t = c_t · (1 + log((1 + N)/(1 + n_t))) / norm, for c_t occurrences of term t,
    which n_t of N training examples have.
    """

    name = "tfidf"
    learns = ("idf",)
    symmetric = True

    def __init__(self, settings: TfidfSettings | None = None) -> None:
        super().__init__(settings or TfidfSettings())
        self.longest = self._settings.ngrams

    def fit(self, train: Corpus) -> None:
        """Learn the vocabulary and the inverse document frequencies (ConfigError: no term is frequent enough)."""
        texts = seen_texts(train, self._settings.view)
        terms, having, _ = self._terms([]).learnt(texts, self._settings.min_count)
        if not terms.names:
            raise ConfigError(
                f"tfidf: no term occurs in {self._settings.min_count} or more training examples. Lower min_count, or "
                "use another method."
            )
        # In float32 throughout, so that weights equal those in older indexes.
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
    which n_t of N training examples have; φ_query(x)_t counts the term. n_t, N and the mean length stay those of
    :meth:`fit` when examples are appended to an index.
    """

    name = "bm25"
    learns = ("weights", "mean_length")

    def fit(self, train: Corpus) -> None:
        """Learn the vocabulary, the weight of each term and the mean length (ConfigError: no example has a term)."""
        terms, having, lengths = self._terms([]).learnt(seen_texts(train, self._settings.view))
        if not terms.names:
            raise ConfigError(
                f"bm25: no training example has a word in the part that view={self._settings.view} reads. Set "
                "another view (whole, response or prompt), or use another method."
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


class DsirAttributor(MethodAttributor[DsirSettings]):
    """Data selection with importance resampling (DSIR), query by query.

    φ_train(z) = counts of hashed word n-grams; φ_query(x) = log p_x − log p_source over the buckets. Their product is
    the log importance weight of z: how much likelier a bag-of-n-grams model of the query makes z than the same model of
    the training corpus, which :meth:`fit` counts. Weights add up over the words of z, so long texts have large weights.
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
            raise DataError("dsir: the training examples have no words. Give texts with words.")
        self._source = source

    def encode_train(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> SparseFeatures:
        self._fitted()
        features = self._counter.count(seen_texts(examples, self._settings.view))
        if on_rows is not None:
            on_rows(len(examples))
        return features

    def encode_queries(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> SparseFeatures:
        """φ_query of each example, ``(rows, d)``: a number in almost every bucket.

        DataError: a query has no words, with the view ``whole``.
        """
        parts: list[SparseFeatures] = [self._counter.count([])]
        for start in range(0, len(examples), TOGETHER):
            some = examples[start : start + TOGETHER]
            counts = self._within(some)
            empty = np.flatnonzero(counts.lengths == 0)
            if len(empty) and self._settings.view == "whole":
                raise DataError(f"dsir: query '{some[empty[0]].id}' has no words. Remove the query.")
            parts.append(self._ratios(counts.toarray()))
            if on_rows is not None:
                on_rows(len(some))
        return below(parts)

    def encode_target(self, examples: Sequence[Example]) -> SparseFeatures:
        """φ_query of all queries together as one target, ``(1, d)``, as in the DSIR paper.

        DataError: the queries have no words.
        """
        counts = self._within(examples).sum(axis=0)
        if not counts.any():
            raise DataError("dsir: the queries have no words. Give queries with words.")
        return self._ratios(counts[None])

    def places(self, example: Example) -> Places:
        self._fitted()
        return self._counter.places(example, self._settings.view)

    def _within(self, examples: Sequence[Example]) -> SparseFeatures:
        """Count the n-grams of each query; of a query with a span only those within it."""
        counts = self._counter.count(seen_texts(examples, self._settings.view))
        return within_spans(counts, examples, self._settings.view, self.places)

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
