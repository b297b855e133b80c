"""Contrasts of two scores of a row, and blocks of them."""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from airrep.arrays import Features, Mask, Rows, reaches
from airrep.scoring.blocks import Block, MappedBlocks, check_blocks
from airrep.scoring.scores import stream_scores

WORSE = -2.0
"""Deviations from a query's mean at or below which a contrast towards the better answers tells of harm."""
HELD = 2**29
"""Contrasts that are held at most, 2 GiB; of more, each block's are worked out whenever it is read."""


def contrast_scores(answer: np.ndarray, better: np.ndarray) -> np.ndarray:
    """How much a row teaches an answer in place of a better one: (f − f')·(|f| + |f'|), of any shape, float64.

    The difference alone gives a row that shares one common word with an answer as much as one that is about the very
    question, since what both answers share with the row cancels. So it counts times what the row has to do with
    either. Its sign is that of the difference.

    Example:
        >>> contrast_scores(np.array([3.0, 11.0]), np.array([1.0, 9.0]))  # the same difference, nearer to the question
        array([ 8., 40.])
    """
    first, second = np.asarray(answer, np.float64), np.asarray(better, np.float64)
    found: np.ndarray = (first - second) * (np.abs(first) + np.abs(second))
    return found


def contrast_blocks(answers: Features, better: Features, blocks: Sequence[Block], sign: float) -> Sequence[Block]:
    """Blocks whose features are the contrasts ``(b, q)`` of each row, times *sign*; asked by unit vectors.

    Args:
        answers: features of q answers.
        better: features of the better answer to each.
        blocks: the features of all training examples, in order of rows.
        sign: 1, or -1 for what teaches the better answers.
    """
    made = MappedBlocks(blocks, partial(_contrasts, answers, better, sign))
    return list(made) if check_blocks(blocks).rows * answers.shape[0] <= HELD else made


def _contrasts(answers: Features, better: Features, sign: float, block: Block) -> Block:
    alone = [block._replace(start=0)]
    found = np.empty((block.features.shape[0], answers.shape[0]), np.float32)
    pairs = zip(stream_scores(answers, alone), stream_scores(better, alone), strict=True)
    for (rows, first), (_, second) in pairs:
        found[rows] = sign * contrast_scores(first, second).T
    return Block(block.start, found)


def without_worse(blocks: Sequence[Block], keep: Mask) -> Mask:
    """Kept rows but those that teach some worse answer more than any better one.

    With e the contrast towards the better answer in deviations from a query's mean, these are the rows whose least e is
    at or below -2, and further from 0 than their greatest. A row with a wrong answer to one question is near to the
    right answers to others, so its best rank alone would choose it.

    Args:
        blocks: contrasts towards the better answers (:func:`contrast_blocks`).
        keep: ``(n,)``; rows that may count.
    """
    count, total, squares = 0, np.zeros(1), np.zeros(1)
    for values, _ in _kept(blocks, keep):
        count, total, squares = count + len(values), total + values.sum(axis=0), squares + (values**2).sum(axis=0)
    mean = total / max(count, 1)
    deviation = np.sqrt(np.maximum(squares / max(count, 1) - mean**2, 0.0))
    found = keep.copy()
    for values, rows in _kept(blocks, keep):
        effects = np.divide(values - mean, deviation, out=np.zeros_like(values), where=deviation > 0)
        least, greatest = effects.min(axis=1), effects.max(axis=1)
        found[rows[reaches(-least, -WORSE) & reaches(-least - greatest, 0.0)]] = False
    return found


def _kept(blocks: Sequence[Block], keep: Mask) -> Iterator[tuple[np.ndarray, Rows]]:
    """Contrasts ``(b, q)`` float64 of the kept rows of each block, and their numbers."""
    for block in blocks:
        rows = block.start + np.flatnonzero(keep[block.start : block.start + block.features.shape[0]])
        if len(rows):
            yield block.dense()[rows - block.start].astype(np.float64), rows
