"""Group scores and full scores: no strategy changes them."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import pooling
from worlds.pretend_card import pretended_card

from airrep.errors import ConfigError, DataError
from airrep.scoring import group_scores as groupscores
from airrep.scoring.asked import score_blocks
from airrep.scoring.blocks import Block, Piece
from airrep.scoring.group_scores import group_scores
from airrep.scoring.groups import Groups
from airrep.scoring.pooling import pool_scores
from airrep.scoring.products import DenseAsked, ask
from airrep.sparse import SparseRows

POOLS = ("sum", "mean", "attention", "signed-attention")


def world(seed: int, q: int, n: int, d: int, size: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Queries and training features; scores are about as large as *size*."""
    generator = np.random.default_rng(seed)
    queries = generator.normal(size=(q, d)) * size / d**0.5
    return queries.astype(np.float32), generator.normal(size=(n, d)).astype(np.float16)


def random_groups(seed: int, m: int, n: int) -> Groups:
    generator = np.random.default_rng(seed)
    lists = {f"g{j}": generator.choice(n, generator.integers(1, n // 2), replace=False) for j in range(m)}
    return Groups.from_lists(lists)


def expected_scores(queries: np.ndarray, train: np.ndarray, groups: Groups, pool: str) -> np.ndarray:
    lists = [groups.members(j).tolist() for j in range(len(groups))]
    return pooling.group_scores(queries, train, lists, pool)


def cut(train: np.ndarray, cuts: Sequence[int]) -> list[Block]:
    return [Block(a, train[a:b]) for a, b in zip([0, *cuts], [*cuts, len(train)], strict=True)]


SIZES = {"ROWS": 5, "COLUMNS": 3, "QUERIES": 4, "SUMS": 40}
"""Steps so small that a little world takes many."""


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("small", [(), ("ROWS",), ("COLUMNS",), ("QUERIES", "COLUMNS"), tuple(SIZES)], ids=str)
def test_the_size_of_steps_does_not_matter(pool: str, small: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    queries, train = world(1, 11, 60, 8, 4.0)
    groups = random_groups(2, 9, 60)
    for name in small:
        monkeypatch.setattr(groupscores, name, SIZES[name])
    expected = expected_scores(queries, train, groups, pool)
    for cuts in ((), (1, 2, 31, 59)):
        found = group_scores(ask(queries, cut(train, cuts)), groups, pool)
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.floats(0.01, 3000),
    st.floats(0.1, 10),
    st.lists(st.integers(1, 39), max_size=5, unique=True),
    st.sampled_from(("attention", "signed-attention")),
)
def test_attention_is_its_definition(seed: int, size: float, temperature: float, cuts: list[int], pool: str) -> None:
    queries, train = world(seed, 3, 40, 6, size)
    groups = random_groups(seed, 6, 40)
    scores = queries.astype(np.float64) @ train.astype(np.float64).T
    found = group_scores(ask(queries, cut(train, sorted(cuts))), groups, pool, temperature=temperature)
    for j in range(len(groups)):
        members = scores[:, groups.members(j)]
        # Scores in float32 are off by about 1e-7 of their size, and so are the exponents.
        size_of_scores = np.abs(members).max(axis=1)
        slack = 1e-6 * size_of_scores * (1 + np.minimum(size_of_scores / temperature, 600))
        assert np.all(np.abs(found[:, j] - pool_scores(members, pool, temperature)) <= slack + 1e-6)
        assert np.all(found[:, j] >= members.min(axis=1) - slack - 1e-6)
        assert np.all(found[:, j] <= members.max(axis=1) + slack + 1e-6)


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_rows_in_no_group_are_not_looked_at(pool: str, kind: str) -> None:
    queries, train = world(3, 4, 30, 8)
    groups = Groups.from_lists({"a": [3, 4, 20], "b": [4, 29]})
    expected = expected_scores(queries, train, groups, pool)
    poisoned = np.full_like(train, np.nan)
    poisoned[[3, 4, 20, 29]] = train[[3, 4, 20, 29]]
    blocks = cut(poisoned, (4, 10))
    if kind == "sparse":
        blocks = [Block(b.start, SparseRows.of(b.features.astype(np.float32))) for b in blocks]
        queries = SparseRows.of(queries)
    np.testing.assert_allclose(group_scores(ask(queries, blocks), groups, pool), expected, rtol=1e-5, atol=1e-5)


def test_each_example_is_multiplied_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    rough = DenseAsked.rough

    def counting(asked: DenseAsked, piece: Piece, out: np.ndarray) -> tuple[float, float]:
        seen.extend(piece.rows.tolist())
        return rough(asked, piece, out)

    monkeypatch.setattr(DenseAsked, "rough", counting)
    queries, train = world(4, 20, 50, 4)
    groups = Groups.from_lists({str(j): range(j, j + 10) for j in range(25)})
    group_scores(ask(queries, cut(train, (7,))), groups, "attention")
    assert seen == list(range(34))


def test_groups_all_far_below_nought_are_not_worked_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Signed attention over scores around -300 sets its maximum there."""
    monkeypatch.setattr(groupscores, "_Float64Pool", None)
    queries, train = world(5, 6, 40, 3)
    train[:, 0], queries[:, 0] = 30, -10
    groups = random_groups(5, 6, 40)
    for cuts in ((), (1, 20)):
        found = group_scores(ask(queries, cut(train, cuts)), groups, "signed-attention")
        assert found.max() < -250
        np.testing.assert_allclose(found, expected_scores(queries, train, groups, "signed-attention"), rtol=1e-5)


@pytest.mark.parametrize("far", [-80, -300, -900, -5e4])
@pytest.mark.parametrize("temperature", [0.05, 1.0])
@pytest.mark.parametrize("cuts", [(), (1, 20), (39,)])
def test_signed_attention_is_its_definition_below_nought(far: float, temperature: float, cuts: tuple[int, ...]) -> None:
    queries, train = world(6, 5, 40, 3)
    queries[:, 0], train[:, 0] = 1, far
    train[-1, 0] = 0  # one example, seen last, lies far above all others
    groups = Groups.from_lists({"low": range(10), "mixed": [3, 20, 39], "one": [7]})
    found = group_scores(ask(queries, cut(train, cuts)), groups, "signed-attention", temperature=temperature)
    scores = queries.astype(np.float64) @ train.astype(np.float64).T
    for j in range(len(groups)):
        expected = pool_scores(scores[:, groups.members(j)], "signed-attention", temperature)
        np.testing.assert_allclose(found[:, j], expected, rtol=1e-6, atol=1e-5)


def test_only_faded_groups_are_worked_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Group b lies 300 below group a for the first query alone."""
    again: list[int] = []

    class Counting(groupscores._Float64Pool):
        def add(self, scores: np.ndarray) -> None:
            again.append(scores.shape[1])
            super().add(scores)

    monkeypatch.setattr(groupscores, "_Float64Pool", Counting)
    train = np.array([[400.0, 0.0], [399.0, 0.0], [1.0, 1.0], [-2.0, 1.0]], dtype=np.float32)
    groups = Groups.from_lists({"a": [0, 1], "b": [2, 3]})
    queries = np.array([[1.0, 0.0], [0.0, 1.0], [0.1, 0.0]], dtype=np.float32)
    found = group_scores(ask(queries, cut(train, ())), groups, "attention")
    assert again == [1]
    np.testing.assert_allclose(found, expected_scores(queries, train, groups, "attention"), rtol=1e-6)


@pytest.mark.parametrize("size", [1.0, 50.0])
def test_a_card_scores_groups_as_the_processor_does(size: float) -> None:
    queries, train = world(5, 6, 200, 16, size)
    groups = random_groups(6, 8, 200)
    with pretended_card():
        here, there = (
            group_scores(ask(queries, cut(train, ()), device=device), groups, "attention") for device in ("cpu", "cuda")
        )
    # Products in float32 round differently; attention takes exp of them, so that large scores differ by more.
    np.testing.assert_allclose(there, here, rtol=1e-6 * (9 + size), atol=1e-6 * size)


@pytest.mark.parametrize("pool", POOLS)
def test_memory_maps(tmp_path: Path, pool: str) -> None:
    queries, train = world(7, 3, 40, 8)
    groups = random_groups(8, 5, 40)
    np.save(tmp_path / "features.npy", train)
    for mode in ("r", "c"):
        mapped = np.load(tmp_path / "features.npy", mmap_mode=mode)
        found = group_scores(ask(queries, [Block(0, mapped)]), groups, pool)
        np.testing.assert_array_equal(found, group_scores(ask(queries, [Block(0, train)]), groups, pool))


def test_sums_keep_what_cancels() -> None:
    """A million and its opposite, a thousand times each, must not swallow the small member."""
    train = np.array([[1000.0], [-1000.0]] * 1000 + [[1e-3]], dtype=np.float16)
    groups = Groups.from_lists({"all": range(2001)})
    found = group_scores(ask(np.array([[1000.0]], np.float32), [Block(0, train)]), groups, "sum")
    np.testing.assert_allclose(found, [[1000 * float(np.float16(1e-3))]], rtol=1e-6)


QUERIES, FEATURES = np.ones((2, 3), np.float32), np.ones((4, 3), np.float16)
GROUPS = Groups.from_lists({"a": [0, 1], "b": [3]})
BROKEN = np.where(np.arange(4)[:, None] == 3, np.inf, FEATURES).astype(np.float16)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"pool": "mean", "temperature": 2.0}, ConfigError, "temperature 2.0: pool mean .* has no temperature"),
        ({"groups": Groups.from_lists({"a": [4]})}, ConfigError, "row 4 does not exist. The last row is 3"),
        ({"groups": Groups.from_lists({})}, ConfigError, "groups is empty"),
        ({"queries": QUERIES[:, :2]}, DataError, r"queries: shape is 2x2; it must be \(queries, 3\)"),
        ({"queries": SparseRows.of(QUERIES)}, DataError, "features must be dense"),
        ({"queries": QUERIES * np.float32(3e38)}, DataError, "too large|exceeds float32|not finite"),
        ({"blocks": [Block(0, BROKEN)]}, DataError, "not finite"),
        ({"blocks": []}, DataError, "blocks is empty"),
    ],
)
@pytest.mark.parametrize("pool", POOLS)
def test_bad_input(changes: dict[str, object], error: type[Exception], message: str, pool: str) -> None:
    settings = {"queries": QUERIES, "blocks": [Block(0, FEATURES)], "groups": GROUPS, "pool": pool} | changes
    with pytest.raises(error, match=message):
        group_scores(ask(settings.pop("queries"), settings.pop("blocks")), **settings)


def test_full_scores_check_what_they_get() -> None:
    with pytest.raises(ConfigError, match="block_rows is 0"):
        score_blocks(ask(QUERIES, [Block(0, FEATURES)]), block_rows=0)
    with pytest.raises(DataError, match="queries: shape is 2x2"):
        score_blocks(ask(QUERIES[:, :2], [Block(0, FEATURES)]))
    with pytest.raises(DataError, match="rows 2 to 3: a feature is not finite"):
        list(score_blocks(ask(QUERIES, [Block(0, BROKEN)]), block_rows=2))
