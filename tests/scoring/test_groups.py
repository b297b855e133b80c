"""Groups of rows: checks, ways to make them, sums of their features."""

import numpy as np
import pyarrow as pa
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


def as_lists(groups: Groups) -> dict[str, list[int]]:
    return {name: groups.members(j).tolist() for j, name in enumerate(groups.names)}


def test_lists_may_overlap_and_come_in_any_order() -> None:
    groups = Groups.from_lists({"b": [4, 1, 2], "a": np.array([2], dtype=np.int32)})
    assert as_lists(groups) == {"b": [1, 2, 4], "a": [2]}
    assert (len(groups), groups.sizes.tolist()) == (2, [3, 1])
    assert (groups.rows.dtype, groups.offsets.dtype) == (np.int64, np.int64)
    assert as_lists(groups.part(1, 2)) == {"a": [2]}


LABELS = ["x", None, "y", "x", "(none)", "y"]


@pytest.mark.parametrize(
    "labels", [LABELS, pa.array(LABELS), pa.chunked_array([LABELS[:2], LABELS[2:]], pa.large_string())]
)
def test_labels_part_the_rows(labels: object) -> None:
    assert as_lists(Groups.from_labels(labels)) == {"x": [0, 3], "(none)": [1, 4], "y": [2, 5]}
    keep = np.array([False, True, False, True, False, True])
    assert as_lists(Groups.from_labels(labels, keep=keep)) == {"(none)": [1], "x": [3], "y": [5]}


def test_many_labels() -> None:
    labels = [str(i * 7919 % 1000) for i in range(100_000)]
    groups = Groups.from_labels(labels)
    assert len(groups) == 1000
    assert all(labels[row] == name for name, rows in as_lists(groups).items() for row in rows)
    assert np.array_equal(np.sort(groups.rows), np.arange(100_000))


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"a": [1], "b": []}, "group 'b' has no members"),
        ({"a": [3, 1, 3]}, "group 'a': holds row 3 twice"),
        ({"a": [0], "b": [5, -2]}, "group 'b': holds row -2; expected 0 or more"),
        ({"a": [0.5]}, "group 'a': members have type float64"),
    ],
)
def test_bad_lists(members: dict[str, list[int]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Groups.from_lists(members)


@pytest.mark.parametrize(
    ("names", "rows", "offsets", "message"),
    [
        (("a", "a"), [0, 1], [0, 1, 2], "group 'a': two groups"),
        (("a",), [0, 1], [0, 1], "offsets must be 2 numbers that rise from 0 to 2"),
        (("a", "b"), [0, 1], [0, 2], "offsets must be 3 numbers that rise from 0 to 2"),
        (("a", "b"), [0, 1], [0, 3, 2], "offsets must be 3 numbers"),
        (("a",), [[0, 1]], [0, 2], "rows and offsets must be flat lists"),
    ],
)
def test_bad_arrays(names: tuple[str, ...], rows: list[int], offsets: list[int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Groups(names, np.array(rows), np.array(offsets))


@pytest.mark.parametrize("far", [0, 10**9])
def test_membership_tells_each_row_once(far: int) -> None:
    groups = Groups.from_lists({"a": [5, 2], "b": [2, 9 + far], "c": [0]})
    rows, membership = groups.membership
    assert rows.tolist() == [0, 2, 5, 9 + far]
    assert membership.toarray().T.tolist() == [[0, 1, 1, 0], [0, 1, 0, 1], [1, 0, 0, 0]]


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
    with pytest.raises(ConfigError, match="pool 'diminishing': .* needs the features"):
        pool_scores(np.ones((1, 3)), "diminishing")
    with pytest.raises(ConfigError, match="temperature 2: pool diminishing .* has no temperature"):
        group_scores(ask(queries, [Block(0, train)]), groups, "diminishing", temperature=2)
    train[4] = np.inf
    with pytest.raises(DataError, match="not finite"):
        group_scores(ask(queries, [Block(0, train)]), groups, "diminishing")
