"""Random subsets and removals, as row numbers."""

from dataclasses import dataclass

import numpy as np

from airrep.arrays import Rows
from airrep.errors import DataError
from airrep.runtime.seeding import stream
from airrep.scoring.groups import Groups
from airrep.shapes import Int64


@dataclass(frozen=True, eq=False)
class Instance:
    """One cross-validation draw: a train pool, queries that are not in it, and subsets of it."""

    name: str
    """Its number, ``"0"`` and on."""
    train: Int64[np.ndarray, " n"]
    """Rows of the train corpus that form the pool, ``n``, ascending."""
    queries: Int64[np.ndarray, " q"]
    """Rows of the query corpus, ``q``, ascending."""
    subsets: Groups
    """``m`` subsets as rows of the *pool*, 0 to n − 1: row ``r`` is row ``train[r]`` of the train corpus."""


def draw_subset(seed: int, instance: int, j: int, n: int, size: int, strata: np.ndarray | None = None) -> Rows:
    """Draw subset *j* of a pool: a sample without repeats that depends on (seed, instance, j) alone.

    More subsets or instances therefore leave the earlier ones as they are.

    Args:
        seed: the root seed.
        instance: number of the cross-validation draw.
        j: number of the subset.
        n: examples in the pool.
        size: examples in the subset.
        strata: ``(n,)`` the stratum of each row of the pool, whole numbers; a plain draw without it.

    Returns:
        ``(size,)`` int64 rows of the pool, ascending.
    """
    return draw_without_repeats(stream(seed, "subset", instance, j), n, size, strata)


def draw_removal(seed: int, instance: int, j: int, n: int, size: int) -> Rows:
    """Draw the rows that removal *j* leaves out: block j − 1 of one shuffled pool; none for j = 0.

    Removals of one instance have no row in common.

    Returns:
        ``(size,)`` int64 rows of the pool, ascending; ``(0,)`` for j = 0.

    Raises:
        DataError: the pool has too few examples for this many removals.
    """
    if j * size > n:
        raise DataError(
            f"removals: {j} of {size} need {j * size} examples; the pool has {n}. Lower removals or removal_size."
        )
    if j == 0:
        return np.empty(0, np.int64)
    shuffled = stream(seed, "removals", instance).permutation(n)
    return np.sort(shuffled[(j - 1) * size : j * size]).astype(np.int64)


def draw_without_repeats(generator: np.random.Generator, n: int, size: int, strata: np.ndarray | None = None) -> Rows:
    """Draw *size* of *n* rows without repeats; each row is as likely as any other.

    With strata, each gets ⌊size · its share⌋ places, and the places left over go to different strata by a
    systematic draw in proportion to the remainders: a stratum's count is always within one of its exact share,
    and rare strata are not shut out, as they would be if the greatest remainders always won.

    Returns:
        ``(size,)`` int64, ascending.

    Raises:
        DataError: a size that cannot be had, or strata that do not fit.
    """
    if not 0 < size <= n:
        raise DataError(f"draw: {size} of {n} examples; expected between 1 and {n}. Lower the size.")
    if strata is None:
        return np.sort(generator.choice(n, size, replace=False, shuffle=False)).astype(np.int64)
    if strata.shape != (n,):
        raise DataError(f"strata: are {strata.shape}; expected ({n},), one for each example of the pool. Make them so.")
    _, codes, counts = np.unique(strata, return_inverse=True, return_counts=True)
    places = quotas(generator, counts, size)
    # A stratum's sample is its rows with the least random keys.
    keys = generator.random(n)
    order = np.lexsort((keys, codes))
    rank = np.arange(n) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.sort(order[rank < np.repeat(places, counts)]).astype(np.int64)


def quotas(generator: np.random.Generator, counts: np.ndarray, size: int) -> np.ndarray:
    """Places of each stratum, ``(strata,)`` int64, together *size*, at most all examples.

    Each gets its exact share, ``size · counts / n``, rounded down or up; on average the share itself.
    """
    n = int(counts.sum())
    whole, remainder = np.divmod(counts.astype(np.int64) * size, n)
    order = generator.permutation(len(counts))
    # One random start, then equal steps along the remainders: a mark at every multiple of n is a place.
    marks = np.concatenate([[0], np.cumsum(remainder[order])]) + generator.integers(n)
    whole[order] += np.diff(marks // n)
    places: np.ndarray = whole
    return places
