"""The training examples nearest to each query, and their vote."""

from collections.abc import Iterator

import numpy as np

from airrep.arrays import Rows
from airrep.attributors.base import OnProgress
from airrep.corpus.corpus import Corpus
from airrep.evaluation.pool import TrainingPool
from airrep.index.index import Index
from airrep.scoring.scores import top_k

CHUNK = 1024
"""Queries ranked at a time: bounds memory, does not change results."""
NOBODY = -1
"""The class of an example without label: equal to none, itself included."""


def ranked(
    index: Index,
    queries: Corpus,
    hashes: np.ndarray,
    pool: TrainingPool,
    k: int,
    progress: OnProgress | None = None,
) -> Iterator[tuple[Rows, np.ndarray]]:
    """The top k examples of each query, those with its own texts passed over, some queries at a time.

    Args:
        index: the index.
        queries: what is asked.
        hashes: ``(q,)`` content hashes of the queries.
        pool: of the index; what may be ranked.
        k: how many.
        progress: told about queries.

    Yields:
        Numbers of queries, and the rows of their top k, ``(these, k)``, best first, ties by row.
    """
    copies, done = pool.copies(hashes), 0
    for extra in np.unique(copies).tolist():
        alike = np.flatnonzero(copies == extra)
        for start in range(0, len(alike), CHUNK):
            part = alike[start : start + CHUNK]
            features = index.encode_queries(queries.take(part))
            rows = top_k(features, index.blocks, k + extra, keep=pool.keep).rows
            own = pool.hashes[rows] == hashes[part, None]
            yield part, np.take_along_axis(rows, np.argsort(own, axis=1, kind="stable")[:, :k], axis=1)
            done += len(part)
            if progress is not None:
                progress(done, len(queries))


def vote(classes: np.ndarray) -> np.ndarray:
    """The class that most of each query's examples have, ``(q,)``; of equals the one that comes first.

    Args:
        classes: ``(q, k)`` of the examples, best first; :data:`NOBODY` has no vote.

    Returns:
        Classes; :data:`NOBODY` less 1, which equals none, where nobody votes.
    """
    votes = np.zeros(classes.shape, np.int64)
    for place in range(classes.shape[1]):
        votes += classes == classes[:, place, None]
    votes[classes == NOBODY] = 0
    elected = np.take_along_axis(classes, votes.argmax(axis=1)[:, None], axis=1)[:, 0]
    return np.where(votes.max(axis=1) > 0, elected, NOBODY - 1)
