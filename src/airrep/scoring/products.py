"""Products of queries with rows: exact, and approximate with error bounds."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, get_args

import numpy as np
import simsimd

from airrep.arrays import Features, MixedFeatures, SparseFeatures
from airrep.errors import ConfigError, DataError
from airrep.scoring.blocks import Block, Piece, quantise
from airrep.scoring.columns import ByColumn, SparseMatrix, SparseProducts
from airrep.scoring.devices import CPU, Device, device_of, widened
from airrep.sparse import distinct

Precision: TypeAlias = Literal["float32", "bfloat16"]
"""Type that products on a card are worked out in; the processor's are float32."""
ROUNDING = 2.0**-21
"""Covers the float32 roundings of a scaled product, and of the final score."""
FEW = 16
"""At most so many queries are multiplied one by one, with codes and columns where these lie."""
PAIRS, NUMBERS = 2048, 2**21
"""Rows, and numbers of theirs in float64, that exact inner products are worked out of at a time."""
TINY = 2.0**-120
"""Covers what float32 rounds to 0."""
WIDE = 8192
"""Scores compared with their limits at a time."""


def check_precision(precision: str) -> None:
    """Refuse all but float32 and bfloat16."""
    if precision not in get_args(Precision):
        raise ConfigError(f"precision '{precision}': does not exist; expected float32 or bfloat16. Choose one.")


class LoadedRows(NamedTuple):
    """Features of a piece, and their greatest norm: by Cauchy-Schwarz a bound on scores."""

    features: Any
    """Dense ones as their device holds them, or sparse ones."""
    norm: float
    sparse: SparseMatrix | None = None
    """Sparse ones beside dense ones."""


def load(piece: Piece, room: np.ndarray, device: Device) -> LoadedRows:
    """Read the features of a piece, dense ones into *room*; refuses norms that are not finite in float32."""
    features, more, norms = None, None, []
    if isinstance(piece.block.features, np.ndarray):
        features = piece.dense(room, device)
        norms.append(float(device.norms(features).max()))
    if features is None or piece.block.sparse is not None:
        more = piece.sparse()
        norms.append(longest_row(more))
    norm = float(np.hypot.reduce(norms))
    if not np.isfinite(norm):
        raise DataError(
            f"{piece}: a feature is not finite, or far too large; expected ordinary numbers. "
            "Check the model that made them."
        )
    return LoadedRows(more if features is None else features, norm, more)


class DenseQueries:
    """Some dense queries, ready to be multiplied with rows.

    ``norm`` is the greatest of their norms, ``rounded_norm`` that of the part whose products are rounded to float32.
    """

    def __init__(self, queries: np.ndarray, precision: Precision, most: float, device: Device) -> None:
        self.count, self.device, self.most, self.queries = len(queries), device, most, queries
        self.norm = self.rounded_norm = float(np.linalg.norm(queries.astype(np.float64), axis=1).max())
        self._asked = device.queries(queries)
        self._rounded = device.queries(queries, rounded=True) if precision == "bfloat16" else self._asked

    def multiply(self, rows: LoadedRows, out: np.ndarray) -> None:
        """Write scores ``(b, w)``."""
        asked = self._rounded if rows.norm * self.norm <= self.most else self._asked
        self.device.multiply(rows.features, asked, out)

    def exact(self, piece: Piece, some: np.ndarray) -> np.ndarray:
        """Scores of a piece for some queries, float64 ``(b, some)``."""
        room = np.empty((len(piece.rows), self.queries.shape[1]))
        scores: np.ndarray = piece.dense(room) @ self.queries[some].astype(np.float64).T
        return scores


class SparseQueries:
    """Some CSR queries, ready to be multiplied with rows."""

    def __init__(self, queries: SparseFeatures, device: Device) -> None:
        self.count, self.device = queries.shape[0], device
        self.queries, self.rounded_norm = queries, 0.0
        self.products = SparseProducts(queries)
        self.norm = longest_row(queries)

    def multiply(self, rows: LoadedRows, out: np.ndarray) -> None:
        """Write scores ``(b, w)``."""
        out[...] = self.products.scores(rows.features)

    def exact(self, piece: Piece, some: np.ndarray) -> np.ndarray:
        """Scores of a piece for some queries, float64 ``(b, some)``."""
        part: SparseFeatures = self.queries[some]
        return SparseProducts(part).scores(piece.sparse())


class MixedQueries:
    """Some queries of several channels, ready to be multiplied with rows; a score is the sum over both kinds."""

    def __init__(self, queries: MixedFeatures, precision: Precision, most: float, device: Device) -> None:
        self.dense = DenseQueries(queries.dense, precision, most, device)
        self.sparse = SparseQueries(queries.sparse, device)
        self.count, self.device, self.rounded_norm = self.dense.count, device, self.dense.norm
        self.norm = float(np.hypot(self.dense.norm, self.sparse.norm))

    def multiply(self, rows: LoadedRows, out: np.ndarray) -> None:
        """Write scores ``(b, w)``."""
        assert rows.sparse is not None
        self.dense.multiply(rows, out)
        out += self.sparse.products.scores(rows.sparse)

    def exact(self, piece: Piece, some: np.ndarray) -> np.ndarray:
        """Scores of a piece for some queries, float64 ``(b, some)``."""
        scores: np.ndarray = self.dense.exact(piece, some) + self.sparse.exact(piece, some)
        return scores


ReadyQueries: TypeAlias = DenseQueries | SparseQueries | MixedQueries


def ready(queries: Features, precision: Precision, most: float, device: str) -> ReadyQueries:
    """Make queries ready for products; dense ones that may exceed *most* are never worked out in bfloat16."""
    place = device_of(device)
    if isinstance(queries, MixedFeatures):
        return MixedQueries(queries, precision, most, place)
    if isinstance(queries, np.ndarray):
        return DenseQueries(queries, precision, most, place)
    return SparseQueries(queries, place)


@dataclass(frozen=True)
class BoundedScores:
    """Approximate scores of a piece: true ones are within ``bounds.T @ slack[:2] + slack[2]`` of ``values``."""

    values: np.ndarray
    """``(b, q)`` float32."""
    slack: np.ndarray
    """``(3, q)`` float64."""
    bounds: np.ndarray
    """``(2, b)`` float32: norm, norm of the rounding error."""
    known: np.ndarray | None = None
    """``(b, q)`` float64: the part of the scores that is exact; the values have it too."""

    @cached_property
    def widest(self) -> np.ndarray:
        """The largest error for each query, ``(q,)``."""
        most = np.array([column.max() for column in self.bounds], np.float64)  # numpy is slow at both at once
        widest: np.ndarray = most @ self.slack[:2] + self.slack[2]
        return widest

    def least_of_best(self, k: int) -> np.ndarray:
        """Score that at least k rows of the piece are known to reach, ``(q,)``: k of its first rows, if it has many."""
        first = self.values[: max(WIDE, 32 * k)]
        place = len(first) - k
        kth: np.ndarray = np.partition(first, place, axis=0)[place]
        known: np.ndarray = kth - self.widest
        return known

    def above(self, floor: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray] | None:
        """Pairs that may exceed the floor ``(q,)`` of their query: query, row, score, error bound, exact part."""
        with np.errstate(over="ignore"):
            limit = np.nextafter((floor - self.widest).astype(np.float32), np.float32(-np.inf))
        place = np.flatnonzero(_reached(self.values, limit))
        if not len(place):  # as mostly, once good rows were seen
            return None
        row, query = np.divmod(place, len(limit))
        score = self.values[row, query].astype(np.float64)
        norm, off = self.bounds[0, row], self.bounds[1, row]
        error = norm * self.slack[0, query] + off * self.slack[1, query] + self.slack[2, query]
        chosen = score + error > floor[query]
        row, query = row[chosen], query[chosen]
        known = np.zeros(len(query)) if self.known is None else self.known[row, query]
        return query.astype(np.uint8), row, score[chosen], error[chosen], known


def _reached(values: np.ndarray, limit: np.ndarray) -> np.ndarray:
    """Whether each value ``(b, q)`` reaches the limit ``(q,)`` of its column."""
    b, q = values.shape
    if q == 1:
        return values >= limit
    together = max(1, WIDE // q)  # rows: numpy compares few long rows twice as fast as many short ones
    whole = b - b % together
    found = np.empty((b, q), bool)
    wide = (values[:whole].reshape(-1, together * q), np.tile(limit, together))
    np.greater_equal(*wide, out=found[:whole].reshape(-1, together * q))
    np.greater_equal(values[whole:], limit, out=found[whole:])
    return found


class Scan(Protocol):
    """A few queries, ready to be held against pieces."""

    def look(self, piece: Piece) -> BoundedScores:
        """Approximate scores of a piece."""


class DenseScan:
    """Dense features, by their codes where there are some.

    Few queries are quantised too and multiplied with the codes where these lie. For more of them codes are widened
    once, which takes a quarter of the time that features take.
    """

    def __init__(self, queries: np.ndarray, room: np.ndarray, device: Device) -> None:
        d, wide = queries.shape[1], queries.astype(np.float64)
        self.room, self.device, self.asked = room, device, device.queries(queries)
        self.norm = np.linalg.norm(wide, axis=1)
        rounding = 1.01 * d * 2.0**-24 + ROUNDING + device.slack
        self.tiny = np.full(len(queries), d * TINY)
        self.slack = np.stack([self.norm * rounding, self.norm * (1 + rounding), self.tiny])
        self.few = takes_codes(queries, device)
        if self.few:
            self.codes, scales = quantise(queries)
            self.unit = scales.astype(np.float64)
            rounded = self.codes * self.unit[:, None]
            off, size = np.linalg.norm(wide - rounded, axis=1), np.linalg.norm(rounded, axis=1)
            self.coded_slack = np.stack([off * (1 + 1e-9) + size * ROUNDING, size * (1 + ROUNDING), self.tiny])

    def look(self, piece: Piece) -> BoundedScores:
        block = piece.block
        if block.codes is None or block.scales is None:
            rows = piece.dense(self.room, self.device)
            norms = self.device.norms(rows) * np.float32(1 + 1e-4)
            return self._float32(piece, rows, None, np.stack([norms, np.zeros_like(norms)], axis=1))
        steps = piece.take(block.scales)
        bounds = _wide_bounds(piece.take(block.codes), steps) if block.bounds is None else piece.take(block.bounds)
        if self.few:
            return self._int8(piece, piece.take(block.codes), steps, bounds)
        return self._float32(piece, piece.dense(self.room, self.device, coded=True), steps, bounds)

    def _int8(self, piece: Piece, codes: np.ndarray, steps: np.ndarray, bounds: np.ndarray) -> BoundedScores:
        _check_size(float(bounds[:, 0].max()) * float(self.norm.max()), piece)
        values = np.empty((len(codes), len(self.codes)), np.float32)
        simsimd.cdist(codes, self.codes, "dot", out=values)
        values *= (steps[:, None] * self.unit).astype(np.float32)
        return BoundedScores(values, self.coded_slack, bounds.T)

    def _float32(self, piece: Piece, rows: Any, steps: np.ndarray | None, bounds: np.ndarray) -> BoundedScores:
        _check_size(float(bounds[:, 0].max()) * float(self.norm.max()), piece)
        values = np.empty((len(piece.rows), len(self.norm)), np.float32)
        self.device.multiply(rows, self.asked, values)
        if steps is not None:
            values *= steps[:, None]
        return BoundedScores(values, self.slack, bounds.T)


class SparseScan:
    """CSR features: float64 products, rounded; exact, since no order of sums depends on the piece."""

    def __init__(self, queries: SparseFeatures) -> None:
        self.products = SparseProducts(queries)
        self.slack = np.zeros((3, queries.shape[0]))

    def look(self, piece: Piece) -> BoundedScores:
        wide = self.products.scores(piece.sparse())
        _check_size(np.abs(wide).max(), piece)
        scores = wide.astype(np.float32, order="C")
        return BoundedScores(scores, self.slack, np.zeros((2, len(scores)), np.float32))


class MixedScan:
    """Features of several channels: sparse parts exactly, dense ones with a bound."""

    def __init__(self, queries: MixedFeatures, room: np.ndarray, device: Device) -> None:
        self.dense = DenseScan(queries.dense, room, device)
        self.products = SparseProducts(queries.sparse)

    def look(self, piece: Piece) -> BoundedScores:
        bounded, known = self.dense.look(piece), self.products.scores(piece.sparse())
        wide = bounded.values + known
        greatest = np.abs(wide).max(axis=0)
        _check_size(greatest.max(), piece)
        slack = bounded.slack.copy()
        slack[2] += greatest * ROUNDING  # of the sum, which is kept in float32
        return BoundedScores(wide.astype(np.float32, order="C"), slack, bounded.bounds, known)


def scan_of(queries: Features, room: np.ndarray, device: Device) -> Scan:
    """The scan that suits the features."""
    if isinstance(queries, MixedFeatures):
        sparse_alone = queries.dense.shape[1] == 0
        return SparseScan(queries.sparse) if sparse_alone else MixedScan(queries, room, device)
    return DenseScan(queries, room, device) if isinstance(queries, np.ndarray) else SparseScan(queries)


def _check_size(greatest: float, piece: Piece) -> None:
    if not greatest <= float(np.finfo(np.float32).max):
        raise DataError(
            f"{piece}: a feature is not finite, or too large for scores in float32; expected ordinary numbers. "
            "Check the model that made them."
        )


def _wide_bounds(codes: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Norms from the codes alone: a feature is at most half a step off its code."""
    residual = steps * np.float32(0.5001 * codes.shape[1] ** 0.5)
    norms = np.linalg.norm(codes.astype(np.float32), axis=1)
    return np.stack([norms * steps * np.float32(1.0001) + residual, residual], axis=1)


def takes_codes(queries: Features, device: Device) -> bool:
    """Whether queries are multiplied with int8 codes where these lie: the processor's sums of them fit into int32."""
    few = isinstance(queries, np.ndarray) and len(queries) <= FEW and queries.shape[1] < 2**17
    return few and device is CPU


def inner_products(queries: np.ndarray, blocks: Sequence[Block], query: np.ndarray, row: np.ndarray) -> np.ndarray:
    """Inner products of pairs (*query*, *row*), dense: float64 sums in one fixed order; queries are float64."""
    scores = np.empty(len(row))
    order = np.argsort(row, kind="stable")
    for start, stop, features in _features_of(blocks, row[order]):
        part = order[start:stop]
        with np.errstate(over="ignore"):
            scores[part] = (queries[query[part]] * features).sum(axis=1)
    return scores


def rough_products(queries: np.ndarray, blocks: Sequence[Block], rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Inner products of all queries, float64, with some rows, ascending, dense: sums in any order, ``(len(rows), q)``.

    Returns:
        the products, and ``(len(rows),)`` how far they may be from :func:`inner_products`, over the query's norm.
    """
    scores, error = np.empty((len(rows), len(queries))), np.empty(len(rows))
    for start, stop, features in _features_of(blocks, rows):
        with np.errstate(over="ignore", invalid="ignore"):
            np.matmul(features, queries.T, out=scores[start:stop])
        error[start:stop] = np.linalg.norm(features, axis=1) * (queries.shape[1] * 2.0**-51)
    return scores, error


def _features_of(blocks: Sequence[Block], rows: np.ndarray) -> Iterator[tuple[int, int, np.ndarray]]:
    """Dense features of rows, ascending, in float64, a part at a time: first and last place, ``(stop - start, d)``."""
    starts = np.array([block.start for block in blocks])
    owner = np.searchsorted(starts, rows, side="right") - 1
    for b in distinct(owner):
        first, last = np.searchsorted(owner, [b, b + 1]).tolist()
        features = blocks[b].dense()
        step = min(PAIRS, max(1, NUMBERS // features.shape[1]))
        for start in range(first, last, step):
            stop = min(start + step, last)
            some = features[rows[start:stop] - starts[b]]
            yield start, stop, widened(some, np.empty(some.shape))


def longest_row(rows: SparseMatrix) -> float:
    """The greatest length of a row."""
    matrix = rows.columns if isinstance(rows, ByColumn) else rows
    squares = matrix.with_data(matrix.data.astype(np.float64) ** 2)
    return float(np.sqrt(squares.sum(axis=0 if isinstance(rows, ByColumn) else 1).max()))
