"""Products of a few queries with the rows of a piece."""

from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import torch
from scipy.sparse.linalg import norm as sparse_norm

from airrep.arrays import Features, SparseFeatures
from airrep.errors import ConfigError, DataError
from airrep.scoring.blocks import Piece

Precision: TypeAlias = Literal["float32", "bfloat16"]
"""What products are worked out in."""


def check_precision(precision: str) -> None:
    """Refuse what is no precision.

    Raises:
        ConfigError: it is neither float32 nor bfloat16.
    """
    if precision not in get_args(Precision):
        raise ConfigError(f"precision '{precision}': does not exist; expected float32 or bfloat16. Choose one.")


class LoadedRows(NamedTuple):
    """Features of a piece, and their greatest norm: by Cauchy-Schwarz a bound on scores."""

    features: Any
    norm: float


class DenseQueries:
    """Some dense queries, ready to be multiplied with rows."""

    def __init__(self, queries: np.ndarray, precision: Precision, most: float, device: str) -> None:
        self.count, self.device, self.most = len(queries), device, most
        self.queries = torch.from_numpy(queries).to(device)
        self.norm = float(np.linalg.norm(queries.astype(np.float64), axis=1).max())
        self.rounded = self.queries.bfloat16() if precision == "bfloat16" else None

    def multiply(self, rows: LoadedRows, out: torch.Tensor) -> None:
        """Write scores ``(b, w)``."""
        if self.rounded is not None and rows.norm * self.norm <= self.most:
            out.copy_(torch.mm(rows.features.bfloat16(), self.rounded.t()))
        else:
            torch.mm(rows.features, self.queries.t(), out=out)

    def exact(self, piece: Piece, some: np.ndarray) -> np.ndarray:
        """Scores of a piece for some queries, float64 ``(b, some)``."""
        room = torch.empty(len(piece.rows), self.queries.shape[1], dtype=torch.float64)
        return torch.mm(piece.dense(room), self.queries.cpu()[some].double().t()).numpy()


class SparseQueries:
    """Some CSR queries, ready to be multiplied with rows."""

    def __init__(self, queries: SparseFeatures, device: str) -> None:
        self.count, self.device = queries.shape[0], device
        self.queries = queries.astype(np.float64)
        self.norm = float(sparse_norm(self.queries, axis=1).max())

    def multiply(self, rows: LoadedRows, out: torch.Tensor) -> None:
        """Write scores ``(b, w)``."""
        out.copy_(torch.from_numpy((rows.features @ self.queries.T).toarray()))

    def exact(self, piece: Piece, some: np.ndarray) -> np.ndarray:
        """Scores of a piece for some queries, float64 ``(b, some)``."""
        scores: np.ndarray = (piece.csr() @ self.queries[some].T).toarray()
        return scores


def load(piece: Piece, room: torch.Tensor) -> LoadedRows:
    """Read the features of a piece, dense ones into *room*.

    Raises:
        DataError: one is not finite, or their norm is beyond float32.
    """
    features: Any
    if isinstance(piece.block.features, np.ndarray):
        features = piece.dense(room)
        norm = float(torch.linalg.vector_norm(features, dim=1).max())
    else:
        features = piece.csr()
        norm = float(sparse_norm(features, axis=1).max())
    if not np.isfinite(norm):
        raise DataError(
            f"rows {piece.rows[0]} to {piece.rows[-1]}: a feature is not finite, or far too large; expected "
            "ordinary numbers. Check the model that made them."
        )
    return LoadedRows(features, norm)


ReadyQueries: TypeAlias = DenseQueries | SparseQueries


def ready(queries: Features, precision: Precision, most: float, device: str) -> ReadyQueries:
    """Make queries ready; dense products that may exceed *most* are never worked out in bfloat16."""
    if isinstance(queries, np.ndarray):
        return DenseQueries(queries, precision, most, device)
    return SparseQueries(queries, device)
