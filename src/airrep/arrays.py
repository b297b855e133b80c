"""Array types, with axes named by what they count.

``q`` queries, ``n`` training examples (rows), ``m`` groups or subsets, ``d`` features, ``b`` rows of a block.
Arrays in memory are float32 NumPy; an index may store them as float16 or int8.
"""

import math
import operator
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, overload

import numpy as np
import pyarrow as pa

from airrep.errors import ConfigError, DataError
from airrep.shapes import Bool, Float32, Int64
from airrep.sparse import SparseRows, below

ALIKE = 1e-5
"""Cosines that differ by less count as equal, because processors and batch sizes round differently."""
NumbersLike: TypeAlias = Any
"""Numbers as an array, nested lists, a table or a tensor: what ``np.asarray`` takes, and tensors of any device."""


def as_numbers(values: NumbersLike, what: str) -> np.ndarray:
    """Return numbers as an array, with NaN for masked ones; errors call them *what*.

    Raises:
        DataError: the values are not numbers, or rows differ in length.
    """
    try:
        found = np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{what}: cannot be made into an array: {str(error).splitlines()[0]}. Give rows of numbers."
        ) from error
    if np.ma.is_masked(values) and found.dtype.kind in "biuf":
        found = np.where(np.ma.getmaskarray(values), np.nan, found)
    if found.dtype.kind not in "biuf":
        raise DataError(f"{what}: must be numbers, but are of type {found.dtype}. Give rows of numbers.")
    return found


def whole_number(what: str, count: Any) -> int:
    """Return an integer of any type as a Python int (ConfigError: not an integer)."""
    try:
        return operator.index(count)
    except TypeError as error:
        raise ConfigError(f"{what} is {count!r}, but must be a whole number.") from error


DenseFeatures: TypeAlias = Float32[np.ndarray, "rows d"]
"""Features of examples, one row each."""

SparseFeatures: TypeAlias = SparseRows
"""Features of lexical methods: float32, ``(rows, d)``."""


Features: TypeAlias = DenseFeatures | SparseFeatures
"""Features of examples from an attributor; the inner product of two rows is an influence score."""

Encoded: TypeAlias = Mapping[str, Features | None]
"""Features by channel; None for a method that stores no features."""

Scores: TypeAlias = Float32[np.ndarray, "q n"]
"""Influence scores; higher = more helpful."""

GroupScores: TypeAlias = Float32[np.ndarray, "q m"]
"""Group scores; higher = more helpful."""

Rows: TypeAlias = Int64[np.ndarray, " k"]
"""Row numbers in a corpus or an index."""

Mask: TypeAlias = Bool[np.ndarray, " n"]
"""One truth value for each row."""


def numbers_of(features: Features) -> np.ndarray:
    """Return the stored numbers of features as a flat array."""
    return features.ravel() if isinstance(features, np.ndarray) else features.data


def filled_rows(features: Features) -> np.ndarray:
    """Return True for each row with a feature other than 0, ``(rows,)``."""
    if isinstance(features, np.ndarray):
        return np.asarray(features.any(axis=1))
    return features.with_data(features.data != 0).sum(axis=1) > 0


def stack_rows(parts: Sequence[Features]) -> Features:
    """Stack the rows of at least one part; all parts must be dense, or all sparse."""
    if isinstance(parts[0], np.ndarray):
        return np.concatenate([part for part in parts if isinstance(part, np.ndarray)])
    return below([part for part in parts if isinstance(part, SparseRows)])


def reaches(values: np.ndarray, threshold: float) -> Mask:
    """Return True for each value at or above a threshold, or below it by at most :data:`ALIKE` (rounding)."""
    return values >= threshold - ALIKE


def descending(values: np.ndarray) -> Rows:
    """Return positions of values, greatest first; values equal after rounding to :data:`ALIKE` keep their order."""
    return np.argsort(-np.round(values / ALIKE), kind="stable")


@overload
def unit_rows(features: np.ndarray) -> np.ndarray: ...
@overload
def unit_rows(features: SparseFeatures) -> SparseFeatures: ...
def unit_rows(features: DenseFeatures | SparseFeatures) -> DenseFeatures | SparseFeatures:
    """Scale rows to Euclidean length 1; rows of zeros stay zero."""
    if isinstance(features, np.ndarray):
        lengths = np.linalg.norm(features, axis=1, keepdims=True)
        return np.divide(features, lengths, out=np.zeros_like(features), where=lengths > 0)
    lengths = np.sqrt(features.with_data(features.data**2).sum(axis=1))
    return features.scaled(np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0))


class _Compute:
    """The functions of ``pyarrow.compute``, imported at first use because the import is slow and rarely needed."""

    def __getattr__(self, name: str) -> Any:
        from pyarrow import compute

        return getattr(compute, name)


compute: Any = _Compute()


def map_array(path: Path, behind: int = 0) -> np.ndarray:
    """Memory-map the array of a ``.npy`` file, read-only; the last *behind* bytes of the file are not part of it.

    Python's own maps keep a file descriptor each, and a process may have about a thousand, so Arrow maps the file.

    Raises:
        OSError: the file cannot be opened.
        ValueError: it is not an array file, or its length differs from its header.
    """
    with path.open("rb") as stream:
        if np.lib.format.read_magic(stream) != (1, 0):
            raise ValueError(
                "the header of the .npy file is not of version 1.0. Restore the file from a copy, or build it again"
            )
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
        begin, size = stream.tell(), os.fstat(stream.fileno()).st_size
    stop = size - behind
    if dtype.hasobject or stop != begin + dtype.itemsize * math.prod(shape):
        raise ValueError("the size of the array file differs from its header. Restore the file")
    if stop == begin:
        return np.empty(shape, dtype)
    with pa.memory_map(str(path)) as mapped:  # closed at once: the buffer keeps the map but no descriptor
        content = np.frombuffer(memoryview(mapped.read_buffer()), np.uint8)
    return content[begin:stop].view(dtype).reshape(shape, order="F" if fortran else "C")
