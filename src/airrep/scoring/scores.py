"""All influence scores over stored features, streamed."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from airrep.arrays import Features, SparseFeatures
from airrep.errors import ConfigError, DataError
from airrep.scoring.blocks import (
    PIECE_ROWS,
    Block,
    Piece,
    check_blocks,
    check_queries,
    piece_rows,
    pieces,
    room_for,
)
from airrep.scoring.columns import narrow


def score_blocks(
    queries: Features, blocks: Sequence[Block], *, block_rows: int = PIECE_ROWS, device: str = "cpu"
) -> Iterator[tuple[int, np.ndarray]]:
    """All influence scores ⟨φ_query(x), φ_train(z)⟩, streamed in order of rows.

    Args:
        queries: ``(q, d)`` float32, or CSR as the blocks.
        blocks: the features of all training examples, in order of rows.
        block_rows: at most so many rows at a time.
        device: device of the products.

    Yields:
        The number of the first row, and scores ``(q, b)`` float32; higher = more helpful.

    Raises:
        ConfigError: *block_rows* is below 1.
        DataError: queries and blocks do not fit together, or a feature or score is not finite.
    """
    if block_rows < 1:
        raise ConfigError(f"block_rows {block_rows}: is below 1. Ask for one row at a time or more.")
    check_blocks(blocks)  # here, not in the generator, which would wait for its first step
    fit, blocks = narrow(check_queries(queries, blocks), blocks)
    return _stream(fit, blocks, piece_rows(blocks, block_rows), device)


def _stream(queries: Features, blocks: Sequence[Block], size: int, device: str) -> Iterator[tuple[int, np.ndarray]]:
    room = room_for(blocks, size, device)
    for piece in pieces(blocks, size):
        scores = _dense(queries, piece, room) if isinstance(queries, np.ndarray) else _sparse(queries, piece)
        if not np.isfinite(scores).all():
            raise DataError(f"{piece}: a score is not finite; expected numbers. Check the model for overflow.")
        yield int(piece.rows[0]), scores


def _dense(queries: np.ndarray, piece: Piece, room: torch.Tensor) -> np.ndarray:
    return torch.mm(torch.from_numpy(queries).to(room.device), piece.dense(room).t()).cpu().numpy()


def _sparse(queries: SparseFeatures, piece: Piece) -> np.ndarray:
    scores: np.ndarray = (piece.csr() @ queries.astype(np.float64).T).toarray().T.astype(np.float32, order="C")
    return scores
