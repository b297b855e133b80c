"""Products of queries with stored features, exact and approximate with error bounds."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Any

import numpy as np
import simsimd

from airrep.arrays import Features, SparseFeatures, filled_rows
from airrep.errors import DataError
from airrep.scoring.asked import ROUNDING, Asked, BoundedScores, Kept, check_size
from airrep.scoring.blocks import (
    PIECE_ROWS,
    Block,
    Narrow,
    Piece,
    check_blocks,
    check_queries,
    piece_rows,
    pieces_of,
    quantise,
    spans_of,
)
from airrep.scoring.columns import ByColumn, Postings, SparseMatrix, SparseProducts, select_cells
from airrep.scoring.devices import CPU, TINY, Device, device_of, widened
from airrep.scoring.gains import gain_scores
from airrep.scoring.group_scores import linear_scores
from airrep.scoring.groups import Groups
from airrep.scoring.orders import order_scores
from airrep.scoring.pooling import SUM, Pooling
from airrep.sparse import below

FEW = 16 if simsimd.get_capabilities()["ice"] else 6
"""Most queries that are multiplied with int8 codes in place: more if the processor multiplies int8 fast (VNNI)."""
PAIRS, NUMBERS = 2048, 2**21
"""Most rows, and most of their numbers in float64, that exact inner products read at a time."""
SCORES, CODES = 2**19, 2**26
"""Most scores, and most int8 codes (64 MiB), of a piece whose codes are read in place."""


class DenseScan:
    """Approximate products of queries with dense features, by int8 codes if the features have them.

    Few queries are quantised too, and multiplied with the codes in place. For more queries, a few rows of codes at a
    time are widened to float32, which takes a quarter of the time that features take.
    """

    def __init__(self, queries: np.ndarray, device: Device) -> None:
        d, wide = queries.shape[1], queries.astype(np.float64)
        self.device, self.asked = device, device.queries(queries)
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

    def look(self, piece: Piece, blocks: Sequence[Block]) -> BoundedScores:
        """Compute approximate scores of a piece of the blocks."""
        block = blocks[piece.number]
        values = np.empty((len(piece.rows), len(self.norm)), np.float32)
        if block.codes is None or block.scales is None or block.bounds is None:
            rows = piece.dense(blocks, device=self.device)
            norms = self.device.norms(rows) * np.float32(1 + 1e-4)
            check_size(float(norms.max()) * float(self.norm.max()), piece)
            self.device.multiply(rows, self.asked, values)
            return BoundedScores(values, self.slack, np.stack([norms, np.zeros_like(norms)]))
        codes, steps, bounds = (piece.take(part) for part in (block.codes, block.scales, block.bounds))
        check_size(float(bounds[:, 0].max()) * float(self.norm.max()), piece)
        if self.few:
            simsimd.cdist(codes, self.codes, "dot", out=values)
            values *= (steps[:, None] * self.unit).astype(np.float32)
            return BoundedScores(values, self.coded_slack, bounds.T)
        count = max(1, self.device.numbers // codes.shape[1])  # rows, which stay in the cache between both steps
        room = np.empty(codes[:count].shape, np.float32)
        for start in range(0, len(codes), count):
            part = slice(start, start + count)
            self.device.multiply(self.device.rows(codes[part], room), self.asked, values[part])
            values[part] *= steps[part, None]
        return BoundedScores(values, self.slack, bounds.T)


class DenseAsked(Asked):
    """Dense queries with the dense features that they are multiplied with."""

    final = False

    def __init__(
        self,
        queries: np.ndarray,
        blocks: Sequence[Block],
        pooling: Pooling = SUM,
        scale: float = 1,
        device: str = "cpu",
    ) -> None:
        self.queries, self.blocks, self.pooling, self.scale = queries, blocks, pooling, scale
        self.spans, self._device = spans_of(blocks), device_of(device)

    def __len__(self) -> int:
        return len(self.queries)

    def chosen(self, queries: slice | np.ndarray) -> "DenseAsked":
        return self._like(queries=self.queries[queries])

    def joined(self, others: Sequence["DenseAsked"]) -> "DenseAsked":
        return self._like(queries=np.concatenate([one.queries for one in (self, *others)]))

    def over(self, kept: Kept, channel: str) -> "DenseAsked":
        blocks = kept.blocks(channel)
        return self._like(blocks=blocks, spans=spans_of(blocks))

    @property
    def filled(self) -> np.ndarray:
        return filled_rows(self.queries)

    def rows_at_once(self, most: int) -> int:
        return piece_rows(self.blocks, most)

    def rows_scanned(self) -> int:
        rows = piece_rows(self.blocks)
        if self.blocks[0].codes is None or not takes_codes(self.queries, self._device):
            return rows
        count, d = self.queries.shape
        return max(rows, min(SCORES // max(1, int(count)), CODES // max(1, int(d))))

    @cached_property
    def _wide(self) -> np.ndarray:
        return self.queries.astype(np.float64)

    @cached_property
    def _scan(self) -> DenseScan:
        return DenseScan(self.queries, self._device)

    @cached_property
    def _ready(self) -> Any:
        return self._device.queries(self.queries)

    @cached_property
    def _norms(self) -> np.ndarray:
        return np.asarray(np.linalg.norm(self._wide, axis=1))

    def scores(self, piece: Piece) -> np.ndarray:
        return piece.dense(self.blocks, np.float64) @ self._wide.T

    def bounded(self, piece: Piece) -> BoundedScores:
        return self._scan.look(piece, self.blocks)

    def rough(self, piece: Piece, out: np.ndarray) -> tuple[float, float]:
        rows, bounds = piece.dense(self.blocks, device=self._device), self.blocks[piece.number].bounds

        def greatest() -> float:
            norms = self._device.norms(rows) if bounds is None else piece.take(bounds)[:, 0]
            return _checked(float(norms.max()), piece)

        norm = piece.once((id(self.blocks), "norm"), greatest)
        self._device.multiply(rows, self._ready, out)
        most = norm * float(self._norms.max(initial=0))
        return most, most

    def exact(self, query: np.ndarray, row: np.ndarray) -> np.ndarray:
        return inner_products(self._wide, self.blocks, query, row)

    def of_row(self, row: int) -> np.ndarray:
        return self.exact(np.arange(len(self)), np.full(len(self), row))

    def refined(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        product, error = rough_products(self._wide, self.blocks, rows)
        return product, error[:, None] * self._norms

    def groups(
        self, groups: Groups, pool: Pooling | None = None, *, exact: bool = False, examples: int | None = None
    ) -> np.ndarray:
        pooling = pool or self.pooling
        if pooling.kind == "order":
            return order_scores(self.queries, self.blocks, groups, pooling, examples or self.rows, self.scale)
        if pooling.kind == "diminishing" or (pooling.linear and not exact):
            return linear_scores(self.queries, self.blocks, groups, pooling)
        return super().groups(groups, pooling, exact=exact)


class SparseAsked(Asked):
    """Sparse queries with sparse features; if :attr:`final`, the order of sums does not depend on the piece."""

    def __init__(
        self, queries: SparseFeatures, blocks: Sequence[Block], pooling: Pooling = SUM, scale: float = 1
    ) -> None:
        self.queries, self.blocks, self.pooling, self.scale = queries, blocks, pooling, scale
        self.spans = spans_of(blocks)
        self._stored = Narrow(queries, blocks)
        self._narrow = self._stored.queries
        self.final = not isinstance(blocks[0].features, Postings)

    def __len__(self) -> int:
        return self.queries.shape[0]

    def chosen(self, queries: slice | np.ndarray) -> "SparseAsked":
        return self._like(queries=self.queries[queries], _narrow=self._narrow[queries])

    def joined(self, others: Sequence["SparseAsked"]) -> "SparseAsked":
        return SparseAsked(below([one.queries for one in (self, *others)]), self.blocks, self.pooling, self.scale)

    def over(self, kept: Kept, channel: str) -> "SparseAsked":
        return SparseAsked(self.queries, kept.blocks(channel), self.pooling, self.scale)

    @property
    def filled(self) -> np.ndarray:
        return filled_rows(self.queries)

    def rows_scanned(self) -> int:
        return super().rows_scanned() if self.final else max(PIECE_ROWS, SCORES // max(1, len(self)))

    @cached_property
    def _products(self) -> SparseProducts:
        return SparseProducts(self._narrow)

    def _rows(self, piece: Piece) -> SparseMatrix:
        return piece.once(id(self._stored), lambda: self._stored.read(piece))

    def scores(self, piece: Piece) -> np.ndarray:
        return self._products.scores(self._rows(piece))

    def bounded(self, piece: Piece) -> BoundedScores:
        rows = self._rows(piece)
        if not isinstance(rows, ByColumn):
            return super().bounded(piece)
        values, off = self._products.rough(rows)
        check_size(float(np.abs(values).max(initial=0)), piece)
        return BoundedScores(values, off[None], np.empty((0, len(values)), np.float32))

    def exact(self, query: np.ndarray, row: np.ndarray) -> np.ndarray:
        rows, place = np.unique(row, return_inverse=True)
        return self.refined(rows)[0][place, query]

    def refined(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Compute exact scores, with errors of 0: sums are in the order of columns."""
        found, columns = np.empty((len(rows), len(self))), self._stored.columns
        for place, piece in pieces_of(self.spans, len(rows), rows):
            features = self.blocks[piece.number].features
            assert columns is not None
            assert not isinstance(features, np.ndarray)
            found[place] = self._products.scores(select_cells(features, piece.rows - piece.start, columns))
        return found, np.zeros_like(found)

    def of_row(self, row: int) -> np.ndarray:
        return super().of_row(row) if self.final else self.refined(np.array([row]))[0][0]

    def rough(self, piece: Piece, out: np.ndarray) -> tuple[float, float]:
        rows = self._rows(piece)
        norm = piece.once((id(self._stored), "norm"), lambda: _checked(longest_row(rows), piece))
        out[...] = self._products.scores(rows)
        return norm * longest_row(self._narrow), 0.0

    def products(self, query: int, row: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the ascending columns that both a query and a row have, and the products of their numbers, float64."""
        number = bisect_right(self.spans, row, key=attrgetter("start")) - 1
        columns, order = np.unique(self.queries[[query]].indices, return_index=True)
        place = np.array([row - self.spans[number].start])
        features = self.blocks[number].features
        assert not isinstance(features, np.ndarray)
        cells = select_cells(features, place, columns).astype(np.float64)
        values = self.queries[[query]].data[order][cells.indices].astype(np.float64) * cells.data
        some = np.flatnonzero(values)
        return columns[cells.indices[some]].astype(np.int64), values[some]

    def groups(
        self, groups: Groups, pool: Pooling | None = None, *, exact: bool = False, examples: int | None = None
    ) -> np.ndarray:
        pooling = pool or self.pooling
        if pooling.kind == "ngram-lm":
            return gain_scores(self.queries, self.blocks, groups)
        if pooling.kind == "order":
            return order_scores(self.queries, self.blocks, groups, pooling, examples or self.rows, self.scale)
        return super().groups(groups, pooling, exact=exact)


def ask(
    queries: Features, blocks: Sequence[Block], pooling: Pooling = SUM, *, scale: float = 1, device: str = "cpu"
) -> Asked:
    """Prepare queries to be scored against stored features; queries are ``(q, d)`` float32, or CSR like the blocks.

    *blocks* are the features of all training examples, in order of rows; *pooling* is the default pool of group scores;
    order-k pools divide the stored features by *scale*; *device* computes dense products. DataError: queries and blocks
    do not fit together, or a feature is not finite.
    """
    check_blocks(blocks)
    queries = check_queries(queries, blocks)
    if isinstance(queries, np.ndarray):
        return DenseAsked(queries, blocks, pooling, scale, device)
    return SparseAsked(queries, blocks, pooling, scale)


def _checked(norm: float, piece: Piece) -> float:
    """Return *norm*, the greatest of a row, which bounds scores by Cauchy-Schwarz; refuse it if not finite."""
    if not np.isfinite(norm):
        raise DataError(
            f"{piece}: a feature is not finite, or is far too large. Check the model that made the features."
        )
    return norm


def takes_codes(queries: np.ndarray, device: Device) -> bool:
    """Return whether queries are multiplied with int8 codes in place: few, on the CPU, and sums fit into int32."""
    return len(queries) <= FEW and queries.shape[1] < 2**17 and device is CPU


def inner_products(queries: np.ndarray, blocks: Sequence[Block], query: np.ndarray, row: np.ndarray) -> np.ndarray:
    """Compute dense inner products of pairs (*query*, *row*): float64 sums in one fixed order; queries are float64."""
    scores = np.empty(len(row))
    order = np.argsort(row, kind="stable")
    for start, stop, features in _features_of(blocks, row[order]):
        part = order[start:stop]
        with np.errstate(over="ignore"):
            scores[part] = (queries[query[part]] * features).sum(axis=1)
    return scores


def rough_products(queries: np.ndarray, blocks: Sequence[Block], rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute dense inner products of all queries, float64, with ascending rows, ``(len(rows), q)``; sums in any order.

    Also returns ``(len(rows),)`` bounds on their distance from :func:`inner_products`, per unit of query norm.
    """
    scores, error = np.empty((len(rows), len(queries))), np.empty(len(rows))
    for start, stop, features in _features_of(blocks, rows):
        with np.errstate(over="ignore", invalid="ignore"):
            np.matmul(features, queries.T, out=scores[start:stop])
        error[start:stop] = np.linalg.norm(features, axis=1) * (queries.shape[1] * 2.0**-51)
    return scores, error


def _features_of(blocks: Sequence[Block], rows: np.ndarray) -> Iterator[tuple[int, int, np.ndarray]]:
    """Yield dense features of ascending rows in parts: start, stop, and ``(stop - start, d)`` float64."""
    first = 0
    while first < len(rows):
        block = blocks[bisect_right(blocks, int(rows[first]), key=attrgetter("start")) - 1]
        features = block.dense()
        last = int(np.searchsorted(rows, block.start + len(features)))
        step = min(PAIRS, max(1, NUMBERS // features.shape[1]))
        for start in range(first, last, step):
            stop = min(start + step, last)
            some = features[rows[start:stop] - block.start]
            yield start, stop, widened(some, np.empty(some.shape))
        first = last


def longest_row(rows: SparseMatrix) -> float:
    """Return the greatest Euclidean norm of a row."""
    matrix = rows.columns if isinstance(rows, ByColumn) else rows
    squares = matrix.with_data(matrix.data.astype(np.float64) ** 2).sum(axis=0 if isinstance(rows, ByColumn) else 1)
    if isinstance(rows, ByColumn) and rows.frequent is not None:
        _, codes, steps = rows.frequent
        squares = squares + steps**2 @ codes.astype(np.float64) ** 2
    return float(np.sqrt(squares.max()))
