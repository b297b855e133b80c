"""All influence scores over stored features, streamed."""

from collections.abc import Iterator, Sequence

import numpy as np

from airrep.arrays import Features, Mask, MixedFeatures, Rows, Scores, whole_number
from airrep.errors import ConfigError, DataError
from airrep.scoring.blocks import (
    PIECE_ROWS,
    Block,
    block_of,
    check_blocks,
    check_queries,
    narrow,
    piece_rows,
    pieces,
    room_for,
)
from airrep.scoring.columns import SparseProducts
from airrep.scoring.devices import device_of
from airrep.scoring.products import ready

CELLS = 2**22
"""Scores in float64 that are held at a time, 32 MiB."""


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
        ConfigError: *block_rows* is below 1, or no whole number.
        DataError: queries and blocks do not fit together, or a feature or score is not finite.
    """
    if whole_number("block_rows", block_rows) < 1:
        raise ConfigError(f"block_rows {block_rows}: is below 1. Ask for one row at a time or more.")
    check_blocks(blocks)  # here, not in the generator, which would wait for its first step
    fit, blocks = narrow(check_queries(queries, blocks), blocks)
    return _stream(fit, blocks, piece_rows(blocks, block_rows), device)


def score_all(queries: Features, train: Features) -> Scores:
    """All influence scores of features in memory, ``(q, n)`` float32."""
    return np.concatenate([scores for _, scores in score_blocks(queries, [block_of(0, train)])], axis=1)


def stream_scores(
    queries: Features, blocks: Sequence[Block], keep: Mask | None = None
) -> Iterator[tuple[Rows, np.ndarray]]:
    """Influence scores of all kept rows, in order of rows, a part at a time; memory does not grow with the rows.

    Yields:
        Row numbers ``(b,)``, and float64 scores ``(q, b)``; higher = more helpful.

    Raises:
        DataError: queries and blocks do not fit together.
    """
    fit, size = check_queries(queries, blocks), min(piece_rows(blocks), max(1, CELLS // queries.shape[0]))
    fit, narrowed = narrow(fit, blocks, size)
    asked = ready(fit, "float32", 0.0, "cpu")
    every = np.arange(fit.shape[0])
    for piece in pieces(narrowed, size, keep):
        yield piece.rows, asked.exact(piece, every).T


def _stream(queries: Features, blocks: Sequence[Block], size: int, device: str) -> Iterator[tuple[int, np.ndarray]]:
    place, room = device_of(device), room_for(blocks, size)
    dense = queries.dense if isinstance(queries, MixedFeatures) else queries
    asked = place.queries(dense) if isinstance(dense, np.ndarray) else None
    products = None
    if isinstance(queries, MixedFeatures):
        products = SparseProducts(queries.sparse)
    elif not isinstance(queries, np.ndarray):
        products = SparseProducts(queries)
    for piece in pieces(blocks, size):
        scores = np.zeros((queries.shape[0], len(piece.rows)), np.float32)
        if asked is not None:
            place.multiply(piece.dense(room, place), asked, scores.T)
        if products is not None:
            scores += products.scores(piece.sparse()).T.astype(np.float32)
        if not np.isfinite(scores).all():
            raise DataError(f"{piece}: a score is not finite; expected numbers. Check the model for overflow.")
        yield int(piece.rows[0]), scores
