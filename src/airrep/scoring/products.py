"""Products of queries with rows: exact, and approximate with error bounds."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, get_args

import numpy as np
import torch
from scipy.sparse.linalg import norm as sparse_norm

from airrep.arrays import Features, MixedFeatures, PowerColumns, SparseFeatures
from airrep.errors import ConfigError, DataError
from airrep.runtime.devices import multiply
from airrep.scoring.blocks import Block, Piece, as_tensor, quantise
from airrep.scoring.columns import SparseProducts

Precision: TypeAlias = Literal["float32", "bfloat16"]
"""Type that products are worked out in."""
ROUNDING = 2.0**-21
"""Covers the float32 roundings of a scaled int8 product, and of the final score."""
INPUTS = 2.0**-8 + 2.0**-16
"""Covers inputs rounded to bfloat16 or TF32, which programs may have allowed torch to do in float32 products."""
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
    """Dense ones as a tensor, or sparse ones."""
    norm: float
    sparse: SparseFeatures | None = None
    """Sparse ones beside dense ones."""


def load(piece: Piece, room: torch.Tensor) -> LoadedRows:
    """Read the features of a piece, dense ones into *room*; refuses norms that are not finite in float32."""
    features, more, norms = None, None, []
    if isinstance(piece.block.features, np.ndarray):
        features = piece.dense(room)
        norms.append(float(torch.linalg.vector_norm(features, dim=1).max()))
    if features is None or piece.block.sparse is not None:
        more = piece.csr()
        norms.append(float(sparse_norm(more, axis=1).max()))
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

    def __init__(self, queries: np.ndarray, precision: Precision, most: float, device: str) -> None:
        self.count, self.device, self.most = len(queries), device, most
        self.queries = torch.from_numpy(queries).to(device)
        self.norm = self.rounded_norm = float(np.linalg.norm(queries.astype(np.float64), axis=1).max())
        self.rounded = self.queries.bfloat16() if precision == "bfloat16" else None

    def multiply(self, rows: LoadedRows, out: torch.Tensor) -> None:
        """Write scores ``(b, w)``."""
        if self.rounded is not None and rows.norm * self.norm <= self.most:
            out.copy_(torch.mm(rows.features.bfloat16(), self.rounded.t()))
        else:
            multiply(rows.features, self.queries, out)

    def exact(self, piece: Piece, some: np.ndarray) -> np.ndarray:
        """Scores of a piece for some queries, float64 ``(b, some)``."""
        room = torch.empty(len(piece.rows), self.queries.shape[1], dtype=torch.float64)
        return torch.mm(piece.dense(room), self.queries.cpu()[some].double().t()).numpy()


class SparseQueries:
    """Some CSR queries, ready to be multiplied with rows."""

    def __init__(self, queries: SparseFeatures, device: str, powers: Sequence[PowerColumns] = ()) -> None:
        self.count, self.device, self.powers = queries.shape[0], device, powers
        self.queries, self.rounded_norm = queries, 0.0
        self.products = SparseProducts(queries, powers)
        # Powers are bounded by nothing known here, so that attention over them looks at each score.
        self.norm = float("inf") if len(powers) else float(sparse_norm(queries.astype(np.float64), axis=1).max())

    def multiply(self, rows: LoadedRows, out: torch.Tensor) -> None:
        """Write scores ``(b, w)``."""
        out.copy_(torch.from_numpy(self.products.scores(rows.features)))

    def exact(self, piece: Piece, some: np.ndarray) -> np.ndarray:
        """Scores of a piece for some queries, float64 ``(b, some)``."""
        part: SparseFeatures = self.queries[some]
        return SparseProducts(part, self.powers).scores(piece.csr())


class MixedQueries:
    """Some queries of several channels, ready to be multiplied with rows; a score is the sum over both kinds."""

    def __init__(self, queries: MixedFeatures, precision: Precision, most: float, device: str) -> None:
        self.dense = DenseQueries(queries.dense, precision, most, device)
        self.sparse = SparseQueries(queries.sparse, device, queries.powers)
        self.count, self.device, self.rounded_norm = self.dense.count, device, self.dense.norm
        self.norm = float(np.hypot(self.dense.norm, self.sparse.norm))

    def multiply(self, rows: LoadedRows, out: torch.Tensor) -> None:
        """Write scores ``(b, w)``."""
        assert rows.sparse is not None
        self.dense.multiply(rows, out)
        out += torch.from_numpy(self.sparse.products.scores(rows.sparse)).to(out)

    def exact(self, piece: Piece, some: np.ndarray) -> np.ndarray:
        """Scores of a piece for some queries, float64 ``(b, some)``."""
        scores: np.ndarray = self.dense.exact(piece, some) + self.sparse.exact(piece, some)
        return scores


ReadyQueries: TypeAlias = DenseQueries | SparseQueries | MixedQueries


def ready(queries: Features, precision: Precision, most: float, device: str) -> ReadyQueries:
    """Make queries ready for products; dense ones that may exceed *most* are never worked out in bfloat16."""
    if isinstance(queries, MixedFeatures):
        return MixedQueries(queries, precision, most, device)
    if isinstance(queries, np.ndarray):
        return DenseQueries(queries, precision, most, device)
    return SparseQueries(queries, device)


@dataclass(frozen=True)
class BoundedScores:
    """Approximate scores of a piece: true ones are within ``bounds.T @ slack[:2] + slack[2]`` of ``values * unit``."""

    values: np.ndarray
    """``(b, q)`` float32: rows first, as int8 products are half as fast the other way."""
    unit: np.ndarray
    """``(q,)`` float64."""
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
        known: np.ndarray = kth * self.unit - self.widest
        return known

    def above(self, floor: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray] | None:
        """Pairs that may exceed the floor ``(q,)`` of their query: query, row, score, error bound, exact part."""
        with np.errstate(over="ignore"):
            limit = np.nextafter(((floor - self.widest) / self.unit).astype(np.float32), np.float32(-np.inf))
        place = np.flatnonzero(_reached(self.values, limit))
        if not len(place):  # as mostly, once good rows were seen
            return None
        row, query = np.divmod(place, len(limit))
        score = self.values[row, query] * self.unit[query]
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
    """Dense features: int8 products where there are codes and the processor is fast at them, or float32."""

    def __init__(self, queries: np.ndarray, room: torch.Tensor) -> None:
        d = queries.shape[1]
        self.room, self.plain = room, torch.from_numpy(queries).to(room.device)
        self.wide, self.tiny = queries.astype(np.float64), np.full(len(queries), d * TINY)
        self.int8 = takes_codes(d, room.device.type)
        if self.int8:
            codes, scales = quantise(queries)
            self.codes, self.unit = torch.from_numpy(np.ascontiguousarray(codes.T)), scales.astype(np.float64)
            rounded = codes * self.unit[:, None]
            off, size = np.linalg.norm(self.wide - rounded, axis=1), np.linalg.norm(rounded, axis=1)
            self.slack = np.stack([off * (1 + 1e-9) + size * ROUNDING, size * (1 + ROUNDING), self.tiny])

    @cached_property
    def norm(self) -> np.ndarray:
        """Norm of each query, ``(q,)`` float64."""
        norm: np.ndarray = np.linalg.norm(self.wide, axis=1)
        return norm

    @cached_property
    def plain_slack(self) -> np.ndarray:
        """Slack of float32 products, ``(3, q)``."""
        return np.stack([self.norm * (1.01 * self.wide.shape[1] * 2.0**-24 + INPUTS), 0 * self.norm, self.tiny])

    def look(self, piece: Piece) -> BoundedScores:
        if self.int8 and piece.block.codes is not None and piece.block.scales is not None:
            return self._int8(piece, piece.block.codes, piece.block.scales)
        return self._float32(piece)

    def _int8(self, piece: Piece, codes: np.ndarray, scales: np.ndarray) -> BoundedScores:
        rows, steps = as_tensor(piece.take(codes)), piece.take(scales)
        bounds = piece.block.bounds
        bounds = _wide_bounds(rows, steps) if bounds is None else piece.take(bounds)
        values = torch._int_mm(rows, self.codes).float().mul_(as_tensor(steps)[:, None])
        return BoundedScores(values.numpy(), self.unit, self.slack, bounds.T)

    def _float32(self, piece: Piece) -> BoundedScores:
        rows = piece.dense(self.room)
        norms = torch.linalg.vector_norm(rows, dim=1).cpu().numpy() * np.float32(1 + 1e-4)
        _check_size(norms.max() * self.norm.max(), piece)
        values = multiply(rows, self.plain, rows.new_empty(len(rows), len(self.plain)))
        one = np.ones(len(self.tiny))
        return BoundedScores(values.cpu().numpy(), one, self.plain_slack, np.stack([norms, 0 * norms]))


class SparseScan:
    """CSR features: float64 products, rounded; exact, since no order of sums depends on the piece."""

    def __init__(self, queries: SparseFeatures, powers: Sequence[PowerColumns] = ()) -> None:
        self.products = SparseProducts(queries, powers)
        self.unit, self.slack = np.ones(queries.shape[0]), np.zeros((3, queries.shape[0]))

    def look(self, piece: Piece) -> BoundedScores:
        wide = self.products.scores(piece.csr())
        _check_size(np.abs(wide).max(), piece)
        scores = wide.astype(np.float32, order="C")
        return BoundedScores(scores, self.unit, self.slack, np.zeros((2, len(scores)), np.float32))


class MixedScan:
    """Features of several channels: sparse parts exactly, dense ones with a bound."""

    def __init__(self, queries: MixedFeatures, room: torch.Tensor) -> None:
        self.dense, self.products = DenseScan(queries.dense, room), SparseProducts(queries.sparse, queries.powers)

    def look(self, piece: Piece) -> BoundedScores:
        bounded, known = self.dense.look(piece), self.products.scores(piece.csr())
        wide = bounded.values * bounded.unit + known
        greatest = np.abs(wide).max(axis=0)
        _check_size(greatest.max(), piece)
        slack = bounded.slack.copy()
        slack[2] += greatest * ROUNDING  # of the sum, which is kept in float32
        return BoundedScores(wide.astype(np.float32, order="C"), np.ones(wide.shape[1]), slack, bounded.bounds, known)


def scan_of(queries: Features, room: torch.Tensor) -> Scan:
    """The scan that suits the features."""
    if isinstance(queries, MixedFeatures):
        sparse_alone = queries.dense.shape[1] == 0
        return SparseScan(queries.sparse, queries.powers) if sparse_alone else MixedScan(queries, room)
    return DenseScan(queries, room) if isinstance(queries, np.ndarray) else SparseScan(queries)


def _check_size(greatest: float, piece: Piece) -> None:
    if not greatest <= np.finfo(np.float32).max:
        raise DataError(
            f"{piece}: a feature is not finite, or too large for scores in float32; expected ordinary numbers. "
            "Check the model that made them."
        )


def _wide_bounds(codes: torch.Tensor, scales: np.ndarray) -> np.ndarray:
    """Norms from the codes alone: a feature is at most half a step off its code."""
    residual = scales * (0.5001 * codes.shape[1] ** 0.5)
    return np.stack([torch.linalg.vector_norm(codes.float(), dim=1).numpy() * scales * 1.0001 + residual, residual], 1)


def takes_codes(d: int, device: str) -> bool:
    """Whether rows of so many features are scanned by their int8 codes, where they have some."""
    return device == "cpu" and 16 <= d < 2**17 and fast_int8()


@cache
def fast_int8() -> bool:
    """Whether this processor multiplies int8 in hardware, and torch exactly.

    Sums of torch's product saturate without VNNI, also where the processor has it and ``ONEDNN_MAX_CPU_ISA`` holds it
    back; a product of greatest numbers tells.
    """
    supported = getattr(torch.cpu, "_is_vnni_supported", None)  # not public: without it, products are float32
    if not hasattr(torch, "_int_mm") or supported is None or not supported():
        return False
    greatest = torch.full((32, 32), 127, dtype=torch.int8)
    return bool((torch._int_mm(greatest, greatest) == 32 * 127**2).all())


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
    for b in np.unique(owner):
        first, last = np.searchsorted(owner, [b, b + 1]).tolist()
        features = blocks[b].dense()
        step = min(PAIRS, max(1, NUMBERS // features.shape[1]))
        for start in range(first, last, step):
            stop = min(start + step, last)
            yield start, stop, features[rows[start:stop] - starts[b]].astype(np.float64)
