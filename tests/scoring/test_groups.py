"""Groups of rows: checks and ways to make them."""

import numpy as np
import pyarrow as pa
import pytest

from airrep.errors import ConfigError
from airrep.scoring.groups import Groups


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
        ({"a": [1], "b": []}, "group 'b': has no members; expected at least one"),
        ({"a": [3, 1, 3]}, "group 'a': holds row 3 twice"),
        ({"a": [0], "b": [5, -2]}, "group 'b': holds row -2; expected 0 or more"),
        ({"a": [0.5]}, "group 'a': its members are not row numbers"),
    ],
)
def test_bad_lists(members: dict[str, list[int]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Groups.from_lists(members)


@pytest.mark.parametrize(
    ("names", "rows", "offsets", "message"),
    [
        (("a", "a"), [0, 1], [0, 1, 2], "group 'a': comes twice"),
        (("a",), [0, 1], [0, 1], "offsets do not cut 2 rows into 1 groups"),
        (("a", "b"), [0, 1], [0, 2], "offsets do not cut 2 rows into 2 groups"),
        (("a", "b"), [0, 1], [0, 3, 2], "offsets do not cut"),
        (("a",), [[0, 1]], [0, 2], "rows and offsets are not lists of whole numbers"),
    ],
)
def test_bad_arrays(names: tuple[str, ...], rows: list[int], offsets: list[int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Groups(names, np.array(rows), np.array(offsets))


def test_the_mask_must_fit_the_labels() -> None:
    with pytest.raises(ConfigError, match=r"keep: is \(1,\); expected \(2,\)"):
        Groups.from_labels(["a", "b"], keep=np.array([True]))


@pytest.mark.parametrize("far", [0, 10**9])
def test_membership_tells_each_row_once(far: int) -> None:
    groups = Groups.from_lists({"a": [5, 2], "b": [2, 9 + far], "c": [0]})
    rows, membership = groups.membership()
    assert rows.tolist() == [0, 2, 5, 9 + far]
    assert membership.toarray().T.tolist() == [[0, 1, 1, 0], [0, 1, 0, 1], [1, 0, 0, 0]]


def test_a_negative_row_is_named_with_its_group() -> None:
    with pytest.raises(ConfigError, match="group 'b': holds row -1"):
        Groups.from_lists({"a": [5, 2], "b": [-1, 3], "c": [0]})
