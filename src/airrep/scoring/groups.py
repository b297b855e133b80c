"""Groups of training examples, as row numbers."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from airrep.arrays import Mask, Rows
from airrep.errors import ConfigError, DataError, check_unicode
from airrep.sparse import SparseRows

Labels: TypeAlias = "Sequence[str | None] | pa.Array[Any] | pa.ChunkedArray[Any]"
SPARSE, ALWAYS = 64, 2**16
"""Rows are sorted, not marked in a mask, if the greatest exceeds 64 times their number (at least 2**16)."""
NO_LABEL = "(none)"
"""Name of the group of rows without a label."""
_FORM = 'Write {"name": [ids or rows], …} or [[ids or rows], …].'


@dataclass(frozen=True, eq=False)
class Groups:
    """Named groups of rows, which may overlap; a row is at most once in a group.

    The members of group j are ``rows[offsets[j] : offsets[j + 1]]``, ascending. ConfigError: a name comes twice or is
    not valid Unicode, a group is empty or holds a row twice, a row number is negative, or the offsets do not fit.
    """

    names: tuple[str, ...]
    """A name for each group, all different."""
    rows: Rows
    """``(total,)`` int64 row numbers, group after group."""
    offsets: np.ndarray
    """``(m + 1,)`` int64, where each group begins, and where the last group ends."""

    def __post_init__(self) -> None:
        """Check the groups, and sort the rows of each."""
        rows, offsets = np.asarray(self.rows), np.asarray(self.offsets)
        if not all(array.ndim == 1 and np.issubdtype(array.dtype, np.integer) for array in (rows, offsets)):
            raise ConfigError("groups: rows and offsets must be flat lists of whole numbers.")
        fit = len(offsets) == len(self.names) + 1 and offsets[0] == 0 and offsets[-1] == len(rows)
        if not fit or (np.diff(offsets) < 0).any():
            raise ConfigError(
                f"groups: offsets must be {len(self.names) + 1} numbers that rise from 0 to {len(rows)}. Build the "
                "groups with Groups.from_lists."
            )
        empty = np.flatnonzero(np.diff(offsets) == 0)
        if len(empty):
            raise ConfigError(f"group '{self.names[empty[0]]}' has no members. Remove the group, or add members.")
        for name in self.names:
            check_unicode("group", name)
        if len(set(self.names)) < len(self.names):
            twice = next(name for i, name in enumerate(self.names) if name in self.names[:i])
            raise ConfigError(f"group '{twice}': two groups have this name. Rename one of them.")
        object.__setattr__(self, "rows", self._ordered(rows.astype(np.int64), offsets))
        object.__setattr__(self, "offsets", offsets.astype(np.int64))

    def _ordered(self, rows: Rows, offsets: np.ndarray) -> Rows:
        rises = rows[1:] > rows[:-1]
        rises[offsets[1:-1] - 1] = True  # where a group begins
        if not rises.all():  # most groups are in order already
            rows = self._sorted(rows, offsets)
        if len(rows) and rows.min() < 0:
            name = self.names[int(np.searchsorted(offsets, rows.argmin(), side="right")) - 1]
            raise ConfigError(f"group '{name}': holds row {rows.min()}; expected 0 or more. Correct the row number.")
        return rows

    def _sorted(self, rows: Rows, offsets: np.ndarray) -> Rows:
        owner = np.repeat(np.arange(len(self.names)), np.diff(offsets))
        rows = rows[np.lexsort((rows, owner))]
        twice = np.flatnonzero((np.diff(rows) == 0) & (np.diff(owner) == 0))
        if len(twice):
            name = self.names[owner[twice[0]]]
            raise ConfigError(f"group '{name}': holds row {rows[twice[0]]} twice. Give each member once.")
        return rows

    def __len__(self) -> int:
        """Number of groups."""
        return len(self.names)

    @property
    def sizes(self) -> np.ndarray:
        """Number of members of each group, ``(m,)`` int64."""
        return np.diff(self.offsets)

    def members(self, group: int) -> Rows:
        """Return the rows of one group, ascending."""
        return self.rows[self.offsets[group] : self.offsets[group + 1]]

    def part(self, first: int, last: int) -> "Groups":
        """Return groups *first* to *last*, without *last*."""
        bounds = self.offsets[first : last + 1]
        return Groups(self.names[first:last], self.rows[bounds[0] : bounds[-1]], bounds - bounds[0])

    @cached_property  # since each channel needs it
    def membership(self) -> tuple[Rows, SparseRows]:
        """The rows that are in some group, ascending, and a matrix with ones at ``(place of a row, group)``."""
        used, column = _distinct(self.rows)
        return used, SparseRows(np.ones(len(column), np.int8), column, self.offsets, (len(self), len(used))).T

    @classmethod
    def from_lists(cls, members: Mapping[str, Sequence[int] | np.ndarray]) -> "Groups":
        """Make groups from the row numbers of their members."""
        lists = [_row_numbers(name, rows) for name, rows in members.items()]
        offsets = np.cumsum([0, *map(len, lists)], dtype=np.int64)
        return cls(tuple(members), np.concatenate([np.empty(0, np.int64), *lists]), offsets)

    @classmethod
    def from_labels(cls, labels: "Labels", *, keep: Mask | None = None) -> "Groups":
        """Make a group for each label, in order of first appearance; rows without a label form the group ``(none)``.

        *labels* has a label for each row; *keep* ``(n,)`` masks the rows to put into groups, and None keeps all.
        """
        names, codes = _encoded(labels)
        rows = np.arange(len(codes))
        if keep is not None:
            rows, codes = np.flatnonzero(keep), codes[keep]
        first = np.full(len(names), len(codes))
        first[codes[::-1]] = np.arange(len(codes))[::-1]  # of equal codes, the last written stays
        counts = np.bincount(codes, minlength=len(names))
        found = np.argsort(first, kind="stable")[: np.count_nonzero(counts)]
        place = np.empty(len(names), np.uint16 if len(names) <= 2**16 else np.int64)  # 16 bits are sorted far faster
        place[found] = np.arange(len(found))
        order = np.argsort(place[codes], kind="stable")
        return cls(
            tuple(names[code] for code in found.tolist()), rows[order], np.concatenate([[0], np.cumsum(counts[found])])
        )


def _distinct(rows: Rows) -> tuple[Rows, np.ndarray]:
    """Return the different rows, ascending, and each given row's place among them."""
    most = int(rows.max(initial=-1)) + 1
    if most > SPARSE * max(len(rows), ALWAYS):
        used, place = np.unique(rows, return_inverse=True)
        return used, place
    present = np.zeros(most, dtype=bool)  # a million rows in 10 ms, where sorting or hashing them takes a second
    present[rows] = True
    return np.flatnonzero(present), (np.cumsum(present) - 1)[rows]


def _encoded(labels: "Labels") -> tuple[list[str], np.ndarray]:
    """Return the different labels, and for each row the number of its label among them; no text is copied."""
    if not isinstance(labels, pa.Array | pa.ChunkedArray):
        labels = pa.array(labels, pa.large_string())
    column = labels if isinstance(labels, pa.ChunkedArray) else pa.chunked_array([labels])
    if column.null_count:
        column = pa.chunked_array([chunk.fill_null(NO_LABEL) for chunk in column.chunks])
    chunks: list[Any] = column.dictionary_encode().chunks
    if not chunks:
        return [], np.empty(0, np.int32)
    names = [str(name) for name in chunks[-1].dictionary.to_pylist()]
    return names, np.concatenate([np.from_dlpack(chunk.indices) for chunk in chunks])  # to_numpy would import pandas


def _row_numbers(name: str, rows: Sequence[int] | np.ndarray) -> Rows:
    array = np.asarray(rows)
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise ConfigError(f"group '{name}': members have type {array.dtype}; they must be row numbers.")
    return array.astype(np.int64, copy=False)


def read_groups(path: str | Path) -> dict[str, list[Any]]:
    """Read groups from JSON: an object of names and lists, or a list of lists, of ids or row numbers.

    DataError: the file is missing, not JSON, or of another form.
    """
    try:
        groups = json.loads(Path(path).read_bytes(), object_pairs_hook=_named_once)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}. Give the path of a JSON file.") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: is not valid JSON ({error}). {_FORM}") from error
    named = dict(enumerate(groups)) if isinstance(groups, list) else groups
    if not isinstance(named, dict) or not named:
        raise DataError(f"{path}: does not hold groups of ids or of row numbers. {_FORM}")
    for name, members in named.items():
        if not _is_member_list(members):
            raise DataError(f"{path}: group '{name}' must be a list of at least one id, or of row numbers. {_FORM}")
    found = {str(name): members for name, members in named.items()}
    try:
        json.dumps(groups, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise DataError(f"{path}: contains a lone surrogate, so it is not valid Unicode. Remove it.") from error
    return found


def _named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return groups by name; ValueError if a name occurs twice, since the members of one group would be lost."""
    groups = dict(pairs)
    if len(groups) < len(pairs):
        raise ValueError(f"the name '{Counter(name for name, _ in pairs).most_common(1)[0][0]}' occurs twice")
    return groups


def _is_member_list(members: object) -> bool:
    """Return whether *members* is a list of ids alone, or of row numbers alone."""
    if not isinstance(members, list) or not members:
        return False
    return all(isinstance(member, str) for member in members) or all(type(member) is int for member in members)
