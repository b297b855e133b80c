"""Sums, means and diminishing means of groups, by the sums of their features."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airrep.errors import ConfigError, DataError
from airrep.scoring import group_scores as pooling_scores
from airrep.scoring.blocks import Block
from airrep.scoring.group_scores import by_channel, group_scores
from airrep.scoring.groups import Groups
from airrep.scoring.pooling import Pooling, pool_scores
from airrep.scoring.products import ask
from airrep.sparse import SparseRows

N, D = 60, 6
MEMBERS = ([3], [0, 1, 2, 5], list(range(0, N, 2)), list(range(N)), [7, 8, 50], [59])


def world(seed: int = 0) -> tuple[np.ndarray, np.ndarray, Groups]:
    """Queries, features of which many point the same way, and groups that overlap."""
    generator = np.random.default_rng(seed)
    train = generator.normal(size=(N, D)) + 2 * np.eye(D)[generator.integers(0, 2, N)]
    train[8] = 0
    groups = Groups.from_lists({str(number): rows for number, rows in enumerate(MEMBERS)})
    return generator.normal(size=(5, D)).astype(np.float32), train.astype(np.float16), groups


def expected(queries: np.ndarray, train: np.ndarray, members: list[int]) -> np.ndarray:
    """The plain definition, pair by pair."""
    wide = train.astype(np.float64)
    total = np.zeros(len(queries))
    for i in members:
        likeness = 0.0
        for j in members:
            norms = np.linalg.norm(wide[i]) * np.linalg.norm(wide[j])
            if i != j and norms > 0:
                likeness += float(wide[i] @ wide[j]) / float(norms)
        share = np.log1p(likeness) / likeness if likeness > 0 else 1.0
        total += share * (queries.astype(np.float64) @ wide[i])
    return total / len(members)


def all_expected(queries: np.ndarray, train: np.ndarray) -> np.ndarray:
    return np.stack([expected(queries, train, members) for members in MEMBERS], axis=1)


@pytest.mark.parametrize("small", [{}, {"ROWS": 7}, {"SUMS": 2 * D}, {"QUERIES": 2}, {"ROWS": 3, "SUMS": 1}], ids=str)
@pytest.mark.parametrize("cuts", [(), (1,), (20, 21, 59)], ids=str)
def test_a_diminishing_mean_is_its_definition_whatever_the_blocks_and_steps(
    small: dict[str, int], cuts: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in small.items():
        monkeypatch.setattr(pooling_scores, name, value)
    queries, train, groups = world()
    blocks = [Block(a, train[a:b]) for a, b in zip([0, *cuts], [*cuts, N], strict=True)]
    found = group_scores(ask(queries, blocks), groups, "diminishing")
    np.testing.assert_allclose(found, all_expected(queries, train), rtol=1e-6, atol=1e-7)
    exact = by_channel(ask(queries, blocks), groups, Pooling("diminishing"), "all", exact=True)["all"]
    np.testing.assert_allclose(exact, all_expected(queries, train), rtol=1e-12, atol=1e-14)


def test_a_group_of_one_has_the_score_of_its_member() -> None:
    queries, train, groups = world()
    found = group_scores(ask(queries, [Block(0, train)]), groups, "diminishing")
    np.testing.assert_allclose(found[:, 0], queries @ train[3].astype(np.float32), rtol=1e-5)


def test_copies_add_ever_less() -> None:
    queries, train = np.ones((1, D), np.float32), np.ones((9, D), np.float32)
    groups = Groups.from_lists({str(size): range(size) for size in (1, 2, 5, 9)})
    found = 1 / D * group_scores(ask(queries, [Block(0, train)]), groups, "diminishing")[0]
    np.testing.assert_allclose(found, [1, np.log(2), np.log(5) / 4, np.log(9) / 8], rtol=1e-6)
    assert (np.diff(found * [1, 2, 5, 9]) > 0).all()  # a copy more is never harm


def test_members_that_have_nothing_in_common_or_point_apart_count_in_full() -> None:
    queries, train = np.array([[3.0, 1.0]], np.float32), np.array([[1, 0], [0, 1], [-1, 0]], np.float32)
    groups = Groups.from_lists({"across": [0, 1], "apart": [0, 2]})
    found = group_scores(ask(queries, [Block(0, train)]), groups, "diminishing")
    np.testing.assert_allclose(found, [[2.0, 0.0]], atol=1e-7)


@given(st.integers(0, 2**32 - 1), st.floats(0.01, 100))
@settings(max_examples=20, deadline=None)
def test_the_length_of_features_scales_scores_and_tells_nothing_of_likeness(seed: int, scale: float) -> None:
    queries, train, groups = world(seed)
    wide = train.astype(np.float32)
    once = group_scores(ask(queries, [Block(0, wide)]), groups, "diminishing")
    scaled = group_scores(ask(queries, [Block(0, wide * np.float32(scale))]), groups, "diminishing")
    np.testing.assert_allclose(scaled, once * scale, rtol=1e-4, atol=1e-5 * scale)


def test_it_is_refused_where_features_are_sparse_or_scores_are_all_there_is() -> None:
    queries, train, groups = world()
    thin = SparseRows.of(train.astype(np.float32))
    with pytest.raises(ConfigError, match="pool 'diminishing'"):
        group_scores(ask(SparseRows.of(queries), [Block(0, thin)]), groups, "diminishing")
    with pytest.raises(ConfigError, match="pool 'diminishing': needs features, not scores"):
        pool_scores(np.ones((1, 3)), "diminishing")
    with pytest.raises(ConfigError, match="temperature 2: belongs to attention, not to diminishing pooling"):
        group_scores(ask(queries, [Block(0, train)]), groups, "diminishing", temperature=2)
    train[4] = np.inf
    with pytest.raises(DataError, match="not finite"):
        group_scores(ask(queries, [Block(0, train)]), groups, "diminishing")
