"""Means of the highest scores of groups, streamed."""

import numpy as np
import pytest
from reference import pooling
from scipy import sparse

from airrep.errors import DataError
from airrep.scoring.blocks import Block, Piece
from airrep.scoring.group_scores import group_scores
from airrep.scoring.groups import Groups
from airrep.scoring.pools import tops


def world(seed: int, q: int = 7, n: int = 80, d: int = 6) -> tuple[np.ndarray, np.ndarray, list[list[int]]]:
    """Queries, features, and groups of 1 to n members."""
    generator = np.random.default_rng(seed)
    sizes = [1, 2, 5, 40, n, 3, 17]
    members = [generator.choice(n, size, replace=False).tolist() for size in sizes]
    return (
        generator.normal(size=(q, d)).astype(np.float32),
        generator.normal(size=(n, d)).astype(np.float16),
        members,
    )


def named(members: list[list[int]]) -> Groups:
    return Groups.from_lists({f"g{j}": rows for j, rows in enumerate(members)})


@pytest.mark.parametrize("k", [1, 2, 5, 39, 200])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("small", [False, True])
def test_it_is_the_mean_of_the_highest(k: int, kind: str, small: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    queries, train, members = world(k)
    if small:
        for name, size in {"ROWS": 3, "SPAN": 11, "COLUMNS": 4, "HELD": 30, "GATHERED": 50}.items():
            monkeypatch.setattr(tops, name, size)
    expected = pooling.group_scores(queries, train, members, f"top-{k}")
    blocks = [Block(0, train[:33]), Block(33, train[33:])]
    if kind == "sparse":
        blocks = [Block(block.start, sparse.csr_array(block.features.astype(np.float32))) for block in blocks]
        queries = sparse.csr_array(queries)
    np.testing.assert_allclose(group_scores(queries, blocks, named(members), f"top-{k}"), expected, atol=2e-6)


def test_each_example_is_multiplied_once_for_some_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    load = tops.load

    def counting(piece: Piece, room: object, device: object) -> object:
        seen.extend(piece.rows.tolist())
        return load(piece, room, device)

    monkeypatch.setattr(tops, "load", counting)
    queries, train, _ = world(4)
    group_scores(queries, [Block(0, train)], named([list(range(j, j + 10)) for j in range(25)]), "top-2")
    assert seen == list(range(34))


@pytest.mark.parametrize("sign", [-1, 1])
def test_a_score_that_overflows_is_told(sign: int) -> None:
    """Also where it is the least of all scores, as a place without a member is."""
    train = np.array([[1e30], [1.0]], np.float32)
    with pytest.raises(DataError, match="group scores: one is not finite"):
        group_scores(np.array([[sign * 1e20]], np.float32), [Block(0, train)], named([[0, 1]]), "top-2")


def test_what_is_held_does_not_grow_with_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many rows there are, at most SPAN scores a query are there at a time, and K a query and group."""
    monkeypatch.setattr(tops, "SPAN", 16)
    shapes: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    hold = tops._hold

    def watching(held: object, scores: object, membership: object) -> None:
        shapes.append((tuple(held.shape), tuple(scores.shape)))
        hold(held, scores, membership)

    monkeypatch.setattr(tops, "_hold", watching)
    queries, train, members = world(5)
    group_scores(queries, [Block(0, train)], named(members), "top-4")
    assert len(shapes) == 5
    assert all(held == (7, 7, 4) and scores[0] <= 16 for held, scores in shapes)
