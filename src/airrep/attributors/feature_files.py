"""Readers of feature files that other tools wrote: .npy, TRAK, LogIX.

- ``.npy``: one array, ``(n, d)``.
- TRAK (the package traker): a folder with ``metadata.json`` and, for each checkpoint, ``<id>/features.mmap``,
  ``<id>/out_to_loss.mmap`` and, for each experiment, ``<id>/<experiment>_grads.mmap``; all are .npy files by another
  name. Its score of training example z and target x is [mean_c φ_c(z)·g_c(x)] · [mean_c Q_c(z)] over checkpoints c.
- LogIX (the package logix-ai): a folder with raw bytes in ``log_rank_R_chunk_K.mmap`` and, in
  ``log_rank_R_chunk_K_metadata.json``, for each example its ``data_id``, ``dtype``, ``offset`` in bytes, and the
  ``path`` (module, kind of log) and ``shape`` of each array, which lie one after another.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from airrep.arrays import DenseFeatures, Rows
from airrep.errors import DataError
from airrep.runtime.artifacts.digests import file_digest, json_digest

_CHUNK = re.compile(r"log_rank_(\d+)_chunk_(\d+)\.mmap")
_BLOCK_BYTES = 2**26
"""Bytes of float32 features that are read at a time."""


@dataclass(frozen=True)
class FeatureFile:
    """Features that lie in files, read row by row.

    Attributes:
        path: the path that the user gave.
        rows: number of rows.
        dimension: number of features of a row.
        files: all files that are read.
        read: rows as they are stored, ``(k, d)``.
        ids: of the rows, where the file has them.
        ordered: whether the rows are in the order of the corpus that they were made of.
    """

    path: Path
    rows: int
    dimension: int
    files: tuple[Path, ...]
    read: Callable[[Rows], np.ndarray]
    ids: tuple[str, ...] | None = None
    ordered: bool = True

    @cached_property
    def fingerprint(self) -> str:
        """64 hex digits over the content of the files."""
        return json_digest([file_digest(path) for path in self.files])

    def take(self, rows: Rows) -> DenseFeatures:
        """Features of the given rows: float32, ``(k, d)``.

        Raises:
            DataError: one is not finite, or beyond float32.
        """
        with np.errstate(over="ignore"):
            features = np.asarray(self.read(rows), np.float32)
        good = np.isfinite(features).all(axis=1)
        if not good.all():
            raise DataError(
                f"{self.path}: row {int(rows[np.argmin(good)])} has a feature that is not finite (NaN or infinite) in "
                "float32; expected ordinary numbers. Make the features again, or leave that example out."
            )
        return features

    def largest(self) -> float:
        """The largest absolute value of all.

        Raises:
            DataError: a feature is not finite.
        """
        step = max(1, _BLOCK_BYTES // (4 * max(1, self.dimension)))
        blocks = (np.arange(first, min(first + step, self.rows)) for first in range(0, self.rows, step))
        return max((float(np.abs(self.take(block)).max(initial=0.0)) for block in blocks), default=0.0)


def open_train_features(path: Path) -> FeatureFile:
    """Open features of training examples: a ``.npy`` file, the folder of a TRAK store, or that of a LogIX log.

    Raises:
        DataError: it is none of them, unfinished or damaged.
    """
    if is_trak_store(path):
        return _trak_train(path)
    return _open(path, "the folder of a TRAK store, or the folder of a LogIX log")


def open_query_features(path: Path) -> FeatureFile:
    """Open features of queries: a ``.npy`` file, ``STORE/scores/NAME.mmap`` of a TRAK store, or a LogIX log.

    Raises:
        DataError: it is none of them, unfinished or damaged.
    """
    if path.suffix == ".mmap" and path.parent.name == "scores" and is_trak_store(path.parent.parent):
        return _trak_targets(path)
    return _open(path, "STORE/scores/NAME.mmap of a TRAK store, or the folder of a LogIX log")


def is_trak_store(path: Path) -> bool:
    """Whether a folder is a TRAK store: its metadata.json has traker's own keys."""
    record = path / "metadata.json"
    return record.is_file() and "JL dimension" in record.read_text(encoding="utf-8", errors="replace")


def _open(path: Path, others: str) -> FeatureFile:
    if path.is_dir() and any(_CHUNK.fullmatch(each.name) for each in path.iterdir()):
        return _logix(path)
    if not path.is_file() or path.suffix != ".npy":
        kind = "is not such a file" if path.exists() else "there is no such file"
        raise DataError(f"{path}: {kind}; expected features as .npy, {others}. Check the path.")
    array = _table(path)
    return FeatureFile(path, len(array), array.shape[1], (path,), array.__getitem__)


def _table(path: Path, rows: int | None = None) -> np.ndarray:
    """An array of floating-point numbers in two dimensions, mapped from the disk."""
    try:
        array: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path}: cannot be read as .npy: {_first_line(error)}. Write it with numpy.save.") from error
    if array.ndim != 2 or array.dtype.kind != "f" or array.dtype.itemsize > 8:
        raise DataError(
            f"{path}: holds {array.dtype} of shape {array.shape}; expected float16, float32 or float64 of shape "
            "(examples, features). Write it with numpy.save."
        )
    if rows is not None and len(array) != rows:
        raise DataError(f"{path}: has {len(array):,} rows; expected {rows:,}. Make the store again.")
    return array


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read as JSON: {_first_line(error)}. Restore it.") from error


def _trak_train(store: Path) -> FeatureFile:
    """φ_c(z) of all checkpoints side by side, times the mean of Q_c(z), over their number."""
    folders = _trak_folders(store)
    files = [(folder / "features.mmap", folder / "out_to_loss.mmap") for folder in folders]
    features = [_table(path) for path, _ in files]
    chances = [_table(path, len(features[0])) for _, path in files]
    if any(len(each) != len(features[0]) for each in features) or any(each.shape[1] != 1 for each in chances):
        raise DataError(f"{store}: its checkpoints have other numbers of examples. Make the store again.")

    def read(rows: Rows) -> np.ndarray:
        # one division by the number of checkpoints for each of the two means
        chance = sum(each[rows].astype(np.float32) for each in chances) / len(folders) ** 2
        scaled: np.ndarray = _beside(features, rows) * chance
        return scaled

    width = sum(each.shape[1] for each in features)
    return FeatureFile(store, len(features[0]), width, tuple(path for pair in files for path in pair), read)


def _beside(arrays: Sequence[np.ndarray], rows: Rows) -> np.ndarray:
    return np.concatenate([array[rows].astype(np.float32) for array in arrays], axis=1)


def _trak_targets(scores: Path) -> FeatureFile:
    """g_c(x) of all checkpoints side by side, of the targets of an experiment."""
    files = tuple(folder / f"{scores.stem}_grads.mmap" for folder in _trak_folders(scores.parent.parent))
    grads = [_table(path) for path in files]
    if any(len(each) != len(grads[0]) for each in grads):
        raise DataError(f"{scores}: its checkpoints have other numbers of targets. Score the targets again.")
    width = sum(each.shape[1] for each in grads)
    return FeatureFile(scores, len(grads[0]), width, files, lambda rows: _beside(grads, rows))


def _trak_folders(store: Path) -> list[Path]:
    """Folders of the checkpoints whose features are ready, in the order of their ids."""
    ready: dict[int, bool] = {}
    for path in store.glob("id_*.json"):
        content = _json(path)
        if not isinstance(content, dict) or not all(key.isdigit() for key in content):
            raise DataError(f"{path}: is not a record of checkpoints of a TRAK store. Restore it.")
        ready |= {int(key): bool(value.get("is_finalized")) for key, value in content.items()}
    if not ready or not all(ready.values()):
        which = ", ".join(str(key) for key, done in sorted(ready.items()) if not done) or "any"
        raise DataError(
            f"{store}: features of checkpoint {which} are not ready. Call finalize_features of traker first."
        )
    return [store / str(key) for key in sorted(ready)]


def _logix(folder: Path) -> FeatureFile:
    """Gradients of all modules side by side."""
    found = filter(None, (_CHUNK.fullmatch(path.name) for path in folder.iterdir()))
    names = sorted(found, key=lambda match: (int(match[1]), int(match[2])))
    chunks = [_logix_chunk(folder / match[0]) for match in names]
    arrays = [array for array, _ in chunks]
    if len({array.shape[1] for array in arrays}) > 1:
        raise DataError(f"{folder}: its chunks have other modules or ranks. Log all examples in one run.")
    starts = np.array([0, *accumulate(map(len, arrays))])

    def read(rows: Rows) -> np.ndarray:
        owners = np.searchsorted(starts, rows, side="right") - 1
        wide = np.empty((len(rows), arrays[0].shape[1]), np.result_type(*arrays))
        for number in np.unique(owners):
            wide[owners == number] = arrays[number][rows[owners == number] - starts[number]]
        return wide

    files = tuple(path for match in names for path in (folder / match[0], _metadata_of(folder / match[0])))
    ids = tuple(each for _, part in chunks for each in part)
    one_rank = len({match[1] for match in names}) == 1  # several processes share examples out among them
    return FeatureFile(folder, int(starts[-1]), arrays[0].shape[1], files, read, ids, one_rank)


def _metadata_of(chunk: Path) -> Path:
    return chunk.with_name(f"{chunk.stem}_metadata.json")


def _logix_chunk(path: Path) -> tuple[np.ndarray, list[str]]:
    """Features of a chunk as a table mapped from the disk, and the ids of its rows."""
    entries = _json(_metadata_of(path))
    try:
        layout = _logix_layout(entries)
        kind = np.dtype(entries[0]["dtype"])
        offsets = [int(entry["offset"]) for entry in entries]
        width = sum(int(np.prod(shape)) for _, shape in layout)
        names = [str(entry["data_id"]) for entry in entries]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise DataError(f"{_metadata_of(path)}: is not the record of a LogIX log. Restore it.") from error
    regular = all(offset == number * width * kind.itemsize for number, offset in enumerate(offsets))
    if kind.kind != "f" or not regular or path.stat().st_size != len(entries) * width * kind.itemsize:
        raise DataError(f"{path}: is not as its record says, or not floating-point. Log the examples again.")
    others = sorted({kinds[-1] for kinds, _ in layout if kinds[-1] != "grad"})
    if others:
        raise DataError(f"{path}: logs '{others[0]}'; expected gradients ('grad') alone. Log those.")
    return np.memmap(path, kind, "r", shape=(len(entries), width)), names


def _logix_layout(entries: Sequence[Mapping[str, Any]]) -> list[tuple[Sequence[str], Sequence[int]]]:
    """Module and kind, and shape, of each array of an example: the same for all."""
    first, same = entries[0], ("path", "shape", "dtype")
    if any(entry[key] != first[key] for entry in entries for key in same):
        raise ValueError
    return list(zip(first["path"], first["shape"], strict=True))
