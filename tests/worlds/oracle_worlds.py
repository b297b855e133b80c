"""Small worlds of features, blocks and groups for the oracle tests.

Where results must be exact to rounding, features are small integers: their inner products are exact in
float32 in any order of summation.
"""

from collections.abc import Sequence

import numpy as np

from airrep.scoring.blocks import Block, quantise
from airrep.scoring.groups import Groups
from airrep.sparse import SparseRows


def integers(seed: int, rows: int, d: int, greatest: int = 3) -> np.ndarray:
    """Return features that float16 holds exactly."""
    return np.random.default_rng(seed).integers(-greatest, greatest + 1, (rows, d)).astype(np.float32)


def cut(features: np.ndarray, cuts: Sequence[int] = (), codes: bool = False, dtype: type = np.float16) -> list[Block]:
    """Return the rows as blocks that begin at 0 and at each of *cuts*."""
    starts = [0, *cuts]
    parts = [features[a:b].astype(dtype) for a, b in zip(starts, [*cuts, len(features)], strict=True)]
    rounded = [quantise(part) if codes else (None, None) for part in parts]
    return [Block(start, part, *pair) for start, part, pair in zip(starts, parts, rounded, strict=True)]


def sparse_cut(features: np.ndarray, cuts: Sequence[int]) -> list[Block]:
    """Return the rows as CSR blocks that begin at 0 and at each of *cuts*."""
    starts = [0, *cuts]
    ends = [*cuts, len(features)]
    return [Block(a, SparseRows.of(features[a:b])) for a, b in zip(starts, ends, strict=True)]


def grouped(members: Sequence[Sequence[int]]) -> Groups:
    """Return row lists as Groups."""
    offsets = np.cumsum([0, *map(len, members)]).astype(np.int64)
    return Groups(
        tuple(f"g{j}" for j in range(len(members))),
        np.concatenate([np.asarray(rows, np.int64) for rows in members]),
        offsets,
    )


def random_members(seed: int, count: int, n: int) -> list[list[int]]:
    """Return overlapping row lists in no order, the first with one row, the second with all."""
    generator = np.random.default_rng(seed)
    sizes = [1, n, *generator.integers(1, n // 2, count - 2)]
    return [generator.permutation(n)[:size].tolist() for size in sizes]
