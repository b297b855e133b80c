"""Min-rank selection against naive float64 loops, on hostile inputs."""

from collections.abc import Sequence

import numpy as np
import pytest
from reference import pooling, selection
from worlds.oracle_worlds import cut, integers, sparse_cut

from airrep.scoring.products import ask
from airrep.scoring.topk import Selection, first_of_each, min_rank
from airrep.sparse import SparseRows


def check(found: Selection, scores: np.ndarray, kept: Sequence[int], count: int) -> None:
    """Compare with the oracle over the rows *kept*."""
    expected = selection.min_rank(scores[:, list(kept)], count)
    assert found.rows.tolist() == [kept[row] for row, _, _ in expected]
    assert found.ranks.tolist() == [rank for _, rank, _ in expected]
    assert found.queries.tolist() == [query for _, _, query in expected]
    np.testing.assert_array_equal(found.scores, scores[found.queries, found.rows])


WORLDS = {
    "many ties": (integers(40, 7, 3, 1), integers(41, 60, 3, 1)),
    "few ties": (integers(42, 7, 8, 50), integers(43, 60, 8, 50)),
    "one query": (integers(44, 1, 3, 2), integers(45, 60, 3, 2)),
    "equal queries": (np.repeat(integers(46, 1, 4), 9, axis=0), integers(47, 60, 4)),
    "a query and its opposite": (np.array([[1.0], [-1.0]], np.float32), integers(48, 60, 1, 20)),
    "zero queries": (np.zeros((4, 3), np.float32), integers(49, 60, 3)),
    "more queries than rows": (integers(50, 150, 5), integers(51, 60, 5)),
    "few distinct rows": (integers(52, 7, 4), np.tile(integers(53, 3, 4), (20, 1))),
}


@pytest.mark.parametrize("codes", [False, True])
@pytest.mark.parametrize("cuts", [(), (1, 2, 31), tuple(range(4, 60, 4))])
@pytest.mark.parametrize("world", WORLDS)
def test_min_rank(world: str, cuts: tuple[int, ...], codes: bool) -> None:
    queries, train = WORLDS[world]
    scores = pooling.influence_scores(queries, train)
    for count in (1, 7, 8, 33, 60):
        check(min_rank(ask(queries, cut(train, cuts, codes)), count), scores, range(60), count)


@pytest.mark.parametrize("world", ["many ties", "few ties", "equal queries"])
def test_rows_left_out_are_not_ranked(world: str) -> None:
    queries, train = WORLDS[world]
    scores = pooling.influence_scores(queries, train)
    keep = np.random.default_rng(54).random(60) < 0.3
    kept = np.flatnonzero(keep).tolist()
    for count in (1, 5, len(kept)):
        check(min_rank(ask(queries, cut(train, (9, 10))), count, keep), scores, kept, count)


def test_repeated_content_is_ranked_once() -> None:
    queries, train = WORLDS["few ties"]
    scores = pooling.influence_scores(queries, train)
    keys = [f"{key}" for key in np.random.default_rng(55).integers(0, 25, 60)]
    keep = np.arange(60) % 3 != 0
    first = [row for row in range(60) if keep[row] and not any(keys[row] == keys[r] for r in range(row) if keep[r])]
    for count in (1, 6, len(first)):
        found = min_rank(ask(queries, cut(train, (9, 10))), count, first_of_each(np.array(keys), keep, 60))
        check(found, scores, first, count)


def test_min_rank_of_sparse_features() -> None:
    train, queries = integers(56, 60, 20), integers(57, 5, 20)
    train[np.random.default_rng(58).random(train.shape) < 0.95] = 0.0
    scores = pooling.influence_scores(queries, train)
    for count in (3, 60):
        found = min_rank(ask(SparseRows.of(queries), sparse_cut(train, (4, 5))), count)
        check(found, scores, range(60), count)
