"""Columns of token n-grams: counts of texts and a corpus, places in a text."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from airrep.attributors.settings import MOST_ORDERS
from airrep.attributors.text.tokens import MARK, FoundTokens, TokenBatch
from airrep.sparse import counted

TOGETHER = 2**23
"""N-grams that are sorted and counted at a time, four bytes each."""
_PART = 2**24
"""Columns of a table that are searched at a time."""


class Background(NamedTuple):
    """Counts of n-grams in the training corpus."""

    columns: np.ndarray
    """``(k,)`` int32, ascending: the columns of n-grams that occur twice or more."""
    counts: np.ndarray
    """``(k,)`` int64: how often each occurs."""
    totals: np.ndarray
    """``(orders, 2)`` int64: the number of n-grams of each order, and of different n-grams."""

    def frequency(self, columns: np.ndarray, smoothing: float) -> np.ndarray:
        """Return smoothed relative frequencies; an n-gram that is not listed is taken to occur once."""
        counts = np.ones(len(columns))
        if len(self.columns):
            place = np.minimum(np.searchsorted(self.columns, columns), len(self.columns) - 1)
            counts = np.where(self.columns[place] == columns, self.counts[place], 1)
        # An order without n-grams in the corpus is taken to have one, since appended examples may bring some.
        whole, different = self.totals.clip(min=1).T
        return np.asarray((counts + smoothing) / (whole + smoothing * different)[order_of(columns)])


def tally(parts: Iterable[np.ndarray], kinds: int) -> Background:
    """Count the columns of a corpus, given in parts with repeats, ``(k,)`` int32 each; *kinds* is the number of orders.

    A small corpus is sorted. For a large one, a table has one byte for each column, and the rest of larger counts is
    kept beside it. So memory grows only with the number of n-grams that occur twice or more.
    """
    table: _Table | None = None
    none = np.empty(0, np.int32)
    waiting = [none]
    for part in parts:
        waiting.append(part)
        if sum(map(len, waiting)) >= TOGETHER:
            table = table or _Table(kinds)
            table.add(*counted(np.concatenate(waiting)))
            waiting = [none]
    columns, counts = counted(np.concatenate(waiting))
    if table is not None:
        table.add(columns, counts)
        return table.background()
    order, often = order_of(columns), counts > 1  # n-grams that occur once, which are most, are not listed
    totals = np.stack([np.bincount(order, counts, kinds), np.bincount(order, minlength=kinds)], axis=1)
    return Background(columns[often], counts[often], totals.astype(np.int64))


class _Table:
    """Counts of all columns: the last byte of each count in a table, the rest of large counts in lists."""

    def __init__(self, kinds: int) -> None:
        self._low = np.zeros((kinds, BUCKETS), np.uint8)
        self._high = [(np.empty(0, np.int32), np.empty(0, np.int64))]

    def add(self, columns: np.ndarray, counts: np.ndarray) -> None:
        """Add counts of different columns."""
        low, places = self._low.ravel(), columns - (LENGTH + 1)
        sums = low[places] + counts
        low[places] = sums.astype(np.uint8)
        over = np.flatnonzero(sums >> 8)
        self._high.append((columns[over], sums[over] >> 8))

    def background(self) -> Background:
        found, sums = (np.concatenate(part) for part in zip(*self._high, strict=True))
        high, place = np.unique(found, return_inverse=True)
        more = np.bincount(place, sums, len(high)).astype(np.int64) << 8
        totals = np.array([[part.sum(dtype=np.int64), np.count_nonzero(part)] for part in self._low])
        order, gone = order_of(high), self._low.ravel()[high - (LENGTH + 1)] == 0  # to the last byte
        for row, part in enumerate((more, gone)):
            totals[:, row] += np.bincount(order, part, len(totals)).astype(np.int64)
        parts = enumerate(self._low.reshape(-1, _PART))  # columns whose last byte is above 1, found part by part
        often = [np.flatnonzero(part > 1).astype(np.int32) + np.int32(LENGTH + 1 + n * _PART) for n, part in parts]
        columns = np.union1d(np.concatenate(often), high)
        counts = self._low.ravel()[columns - (LENGTH + 1)].astype(np.int64)
        counts[np.searchsorted(columns, high)] += more
        return Background(columns, counts, totals)


BITS = 26
BUCKETS = 2**BITS
"""Columns of each order: few enough for 32-bit numbers, many enough that n-grams of a corpus rarely share one."""
LENGTH = 0
"""Column of an example's length; the columns of n-grams follow."""
COLUMNS = 1 + MOST_ORDERS * BUCKETS

_START, _END = 0, 1
_ODD = np.uint64(0x9E3779B97F4A7C15)


class Counted(NamedTuple):
    """Counts of n-grams of some examples, column by column."""

    columns: np.ndarray
    """``(k,)`` int32, ascending: the column of each n-gram of each example."""
    rows: np.ndarray
    """``(k,)`` int32, ascending within a column: the example."""
    counts: np.ndarray
    """``(k,)`` how often it occurs; or, with weights of tokens, the sum of the weights of its last tokens."""
    lengths: np.ndarray
    """``(rows,)`` int64: tokens of each example and the end symbol; 0 for an example without tokens."""

    @property
    def shares(self) -> np.ndarray:
        """Each count as a share of its example's length, ``(k,)``."""
        return np.asarray(self.counts / self.lengths[self.rows])


class NgramPlaces(NamedTuple):
    """All n-grams of one text that have a token, repeats included, and where they stand in it."""

    columns: np.ndarray
    """``(k,)`` int64, as in :func:`count_ngrams`."""
    ngrams: np.ndarray
    """``(k,)`` uint64, equal for equal n-grams."""
    starts: np.ndarray
    """``(k,)`` int64."""
    stops: np.ndarray
    """``(k,)`` int64."""


class _Series(NamedTuple):
    """Texts with tokens, joined in one array, each between a start and an end symbol."""

    symbols: np.ndarray
    """``(k,)`` uint64."""
    texts: np.ndarray
    """``(k,)`` int64: the number of the text that a symbol belongs to, ascending."""

    @classmethod
    def of(cls, tokens: TokenBatch) -> "_Series":
        lengths = tokens.lengths
        filled = np.flatnonzero(lengths)
        texts = np.repeat(filled, lengths[filled] + 2)
        inner = np.ones(len(texts), bool)
        last = np.cumsum(lengths[filled] + 2) - 1
        symbols = np.full(len(texts), _START, np.uint64)
        symbols[last] = _END
        inner[last] = inner[last - lengths[filled] - 1] = False
        symbols[inner] = tokens.numbers
        return cls(symbols, texts)


class _Ngrams(NamedTuple):
    """The n-grams of one kind in a series, in their order."""

    codes: np.ndarray
    """``(k,)`` uint64: a 64-bit hash of each."""
    last: np.ndarray
    """``(k,)`` int64: place of its last symbol in the series."""


def count_ngrams(
    tokens: TokenBatch,
    orders: Sequence[int],
    skip: bool = False,
    weights: Sequence[np.ndarray] | None = None,
    shares: Sequence[np.ndarray] | None = None,
) -> Counted:
    """Count each n-gram of each text, or add up the *weights* of its last tokens.

    A text begins with one start symbol, which stands for the prompt, and ends with one end symbol. Nothing predicts
    the start symbol, so it is not an n-gram of order 1. Each order has columns of its own, by its place in *orders*;
    with *skip*, pairs with one token between them have the columns after these. A text without tokens has no n-gram.

    *weights* has an array for each text: a number for each token, and one for the end symbol. *shares* has the same
    shape: the share of each token that lies in a span. With *shares*, an occurrence counts times the mean share of its
    tokens, so that the counts of spans that divide a text add up to the text's counts.
    """
    series = _Series.of(tokens)
    columns, last = _columns(series, orders, skip)
    text_bits = np.uint64(len(tokens).bit_length())
    keys = columns.astype(np.uint64) << text_bits | series.texts[last].astype(np.uint64)
    worth = None if weights is None else _of_symbols(series, weights)[last]
    if shares is not None:
        worth = _of_ngrams(series, shares, orders, skip) * (1.0 if worth is None else worth)
        some = worth > 0
        keys, worth = keys[some], worth[some]
    if worth is None:
        different, counts = counted(keys)
    else:
        different, place = np.unique(keys, return_inverse=True)
        counts = np.bincount(place, worth, len(different))
    columns = (different >> text_bits).astype(np.int32)
    rows = (different - (columns.astype(np.uint64) << text_bits)).astype(np.int32)
    return Counted(columns, rows, counts, np.where(tokens.lengths > 0, tokens.lengths + 1, 0))


def ngram_columns(tokens: TokenBatch, orders: Sequence[int], skip: bool = False) -> np.ndarray:
    """Return the columns of all n-grams of some texts, as in :func:`count_ngrams`, with repeats, ``(k,)`` int32."""
    return _columns(_Series.of(tokens), orders, skip)[0]


def ngram_places(found: FoundTokens, orders: Sequence[int], skip: bool = False) -> NgramPlaces:
    """Return the n-grams of :func:`count_ngrams` with their places; start and end symbols have no characters.

    A pair with a gap has two places, as the token between may differ. N-grams with a mark of
    :func:`airrep.attributors.text.tokens.mark_copied` have no place, as the copied words may differ.
    """
    none = np.empty(0, np.int64)
    parts = [NgramPlaces(none, none.astype(np.uint64), none, none)]
    codes = [one.codes for one in _kinds(_Series.of(TokenBatch.of([found.numbers])), orders, skip)]
    marks = np.concatenate([[0], np.cumsum(found.numbers == MARK)])
    for place, (code, order) in enumerate(zip(codes, orders, strict=False)):
        first = np.arange(len(code)) - (0 if order == 1 else 1)  # a start symbol stands before the tokens
        last = np.minimum(first + order, len(found.numbers)) - 1  # and an end symbol behind them
        first = np.maximum(first, 0)
        some = (first <= last) & (marks[last + 1] == marks[first])
        starts, stops = found.starts[first[some]], found.stops[last[some]]
        parts.append(NgramPlaces(_columns_of(code[some], place), code[some], starts, stops))
    if skip:
        parts += _gap_places(found, codes[-1], len(orders))
    return NgramPlaces(*map(np.concatenate, zip(*parts, strict=True)))


def _gap_places(found: FoundTokens, code: np.ndarray, place: int) -> Iterator[NgramPlaces]:
    """Yield the places of the first and of the last tokens of pairs with a gap, with different n-gram numbers."""
    count = len(found.numbers)
    marked = np.concatenate([[False], found.numbers == MARK, [False]])
    plain = ~(marked[:-2] | marked[2:])
    for end in (0, 1):
        token = np.arange(len(code)) - 1 + 2 * end
        some = plain & (token >= 0) & (token < count)
        names = code[some] ^ np.uint64(end)
        yield NgramPlaces(_columns_of(code[some], place), names, found.starts[token[some]], found.stops[token[some]])


def order_of(columns: np.ndarray) -> np.ndarray:
    """Return the place of each column's order among the orders, int64."""
    return (columns.astype(np.int64) - 1) // BUCKETS


def _columns(series: _Series, orders: Sequence[int], skip: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the column of each n-gram, int32, and the place of its last symbol in the series."""
    columns, last = [np.empty(0, np.int32)], [np.empty(0, np.int64)]
    for place, found in enumerate(_kinds(series, orders, skip)):
        columns.append(_columns_of(found.codes, place))
        last.append(found.last)
    return np.concatenate(columns, dtype=np.int32, casting="unsafe"), np.concatenate(last)


def _of_symbols(series: _Series, weights: Sequence[np.ndarray]) -> np.ndarray:
    """Return the weight of each symbol; 0 for start symbols."""
    found = np.zeros(len(series.symbols))
    some = np.unique(series.texts)
    found[series.symbols != _START] = np.concatenate([np.empty(0), *(weights[text] for text in some.tolist())])
    return found


def _of_ngrams(series: _Series, shares: Sequence[np.ndarray], orders: Sequence[int], skip: bool) -> np.ndarray:
    """Return the mean share of each n-gram's symbols, without start symbols, in the order of :func:`_columns`."""
    own, real = _of_symbols(series, shares), (series.symbols != _START).astype(np.float64)
    found = [np.empty(0)]
    for place, ngrams in enumerate(_kinds(series, orders, skip)):
        back = range(orders[place]) if place < len(orders) else (0, 2)
        found.append(sum(own[ngrams.last - n] for n in back) / sum(real[ngrams.last - n] for n in back))
    return np.concatenate(found)


def _kinds(series: _Series, orders: Sequence[int], skip: bool) -> Iterator[_Ngrams]:
    """Yield the n-grams of each order, then the pairs with a gap."""
    symbols, texts = series
    codes = [_mixed(symbols)]
    for order in range(2, max(orders, default=1) + 1):  # from the n-grams that are one symbol shorter
        codes.append(_mixed(codes[-1][:-1] ^ symbols[order - 1 :]))
    for order in orders:
        whole = texts[order - 1 :] == texts[: max(0, len(texts) - order + 1)]
        places = np.flatnonzero(whole & (symbols != _START) if order == 1 else whole)
        yield _Ngrams(codes[order - 1][places], places + order - 1)
    if skip:
        places = np.flatnonzero(texts[2:] == texts[:-2])
        yield _Ngrams(_mixed(codes[0][:-2] ^ symbols[2:])[places], places + 2)


def _columns_of(code: np.ndarray, place: int) -> np.ndarray:
    return 1 + place * BUCKETS + (code >> np.uint64(64 - BITS)).astype(np.int64)


def _mixed(code: np.ndarray) -> np.ndarray:
    """Mix 64 bits reversibly (SplitMix64); the overflow is intended."""
    with np.errstate(over="ignore"):
        code = code + _ODD
        code ^= code >> np.uint64(30)
        code *= np.uint64(0xBF58476D1CE4E5B9)
        code ^= code >> np.uint64(27)
        code *= np.uint64(0x94D049BB133111EB)
        code ^= code >> np.uint64(31)
    return code
