"""Contrasts of two scores of a row, and blocks of them that are ranked as features are."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from airrep.arrays import Features
from airrep.scoring.blocks import Block, MappedBlocks, check_blocks
from airrep.scoring.scores import stream_scores

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
