"""Shards: immutable pieces of an index on disk, and their blocks."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from airrep.arrays import Encoded, Features, Rows, SparseFeatures, map_array
from airrep.corpus.corpus import Corpus
from airrep.corpus.table import PLACE
from airrep.errors import ArtifactError, DataError
from airrep.runtime.artifacts import (
    canonical_json,
    check_digests,
    check_file,
    describe_files,
    json_digest,
    within_limits,
)
from airrep.runtime.publishing import new_place, write_file
from airrep.runtime.remote.places import Anchored
from airrep.sparse import SparseRows

if TYPE_CHECKING:
    from airrep.scoring.blocks import Block
    from airrep.scoring.columns import Postings

SHARD = "shard.json"
EXAMPLES, PLACES = "examples.arrow", "places.arrow"
POSTINGS = ("columns", "rows", "values")
"""Names of the arrays that hold a channel's sparse features column by column."""
Kind: TypeAlias = Literal["dense", "csr", "postings", "none"]
FLOAT16_MAX = float(np.finfo(np.float16).max)
TINY = 2.0**-20
"""Below this, float16 keeps at most 4 bits of a number."""
_SIEVE = 2**20
"""Size of the table that rules out most ids that are not wanted; a power of 2."""


def shard_name(start: int, attributor: str, corpus: str) -> str:
    """Return the directory name of the shard of a corpus part whose first row is *start*."""
    return f"{start:010d}-{json_digest([start, attributor, corpus])[:16]}"


def id_keys(ids: Iterable[Any]) -> np.ndarray:
    """Hash each id to 64 bits, ascending, ``(n,)`` int64; valid in this process only, as Python salts hashes."""
    return np.sort(np.fromiter(map(hash, ids), np.int64))


class Sieve:
    """Wanted ids, by their keys: one look into a table rules out most other keys."""

    def __init__(self, keys: np.ndarray) -> None:
        """*keys* are from :func:`id_keys`, at least one."""
        self._keys = keys
        self._bits = np.zeros(_SIEVE, np.bool_)
        self._bits[keys & (_SIEVE - 1)] = True

    def holds_some(self, keys: np.ndarray) -> bool:
        """Return whether one of *keys* is wanted."""
        some = keys[self._bits[keys & (_SIEVE - 1)]]
        places = np.minimum(np.searchsorted(self._keys, some), len(self._keys) - 1)
        return bool((self._keys[places] == some).any())


class KeptChannel(NamedTuple):
    """Name, storage format and width of a channel."""

    name: str
    kind: Kind
    """Dense, float16; sparse by row, float32 (csr); sparse by column, float16 (postings); or nothing stored."""
    dimension: int
    """Number of features of a row; 0 if none are stored."""


def folder_of(number: int, channel: str) -> str:
    """Return the folder name of a channel in a shard: its number, and its name as far as file names allow."""
    return f"{number}-{re.sub('[^a-z0-9]+', '-', channel.lower())[:40].strip('-')}"


def write_shard(
    folder: Path, corpus: Corpus, encoded: Encoded, channels: Sequence[KeptChannel], attributor: str
) -> None:
    """Write examples and their features as one shard directory; *attributor* is the method's fingerprint.

    The directory appears under its name only when it is whole; its parent must exist.

    DataError: a feature is not finite, or too large for its stored type. ArtifactError: the shard cannot be written.
    """
    arrays = {
        folder_of(number, one.name): _arrays_of(encoded[one.name], one.kind, corpus)
        for number, one in enumerate(channels)
    }
    with new_place(folder) as temporary:  # replaces a damaged shard that an interrupted run left
        temporary.mkdir()
        for name, own in arrays.items():
            (temporary / name).mkdir()
            for array in own:
                np.save(temporary / name / f"{array}.npy", own[array], allow_pickle=False)
        table = corpus.table.combine_chunks()
        write_table(temporary / EXAMPLES, table.drop_columns([PLACE]))
        if table[PLACE].null_count < len(table):  # in a file of their own, which does not count in fingerprints
            write_table(temporary / PLACES, table.select([PLACE]))
        names = sorted(path.relative_to(temporary).as_posix() for path in temporary.rglob("*") if path.is_file())
        filled = [_filled(own, len(corpus)) for own in arrays.values() if own]
        metadata = corpus.table.column("metadata").to_pylist()
        record = {
            "attributor": attributor,
            "corpus": corpus.fingerprint,
            "rows": len(corpus),
            "channels": [one._asdict() for one in channels],
            "empty": int(np.count_nonzero(~np.any(filled, axis=0))) if filled else 0,
            "fields": sorted({key for text in metadata if text for key in json.loads(text)}),
            "files": describe_files(temporary, names),
        }
        write_file(temporary / SHARD, canonical_json(record))


def _arrays_of(features: Features | None, kind: Kind, corpus: Corpus) -> dict[str, np.ndarray]:
    from airrep.scoring.blocks import error_bounds, quantise
    from airrep.scoring.columns import Postings

    if features is None:
        return {}
    if isinstance(features, np.ndarray):
        _check_storable(features, corpus)
        stored = features.astype(np.float16)
        codes, scales = quantise(stored)
        return {"features": stored, "codes": codes, "scales": scales, "bounds": error_bounds(stored, codes, scales)}
    if kind == "postings":
        postings = Postings.of(features.astype(np.float32, copy=False))
        _check_finite(postings.values, postings.rows, corpus)
        return {"columns": postings.columns, "rows": postings.rows, "values": postings.values}
    data = features.data.astype(np.float32)
    _check_finite(data, features.row_of, corpus)
    return {"data": data, "indices": features.indices.astype(np.int32), "indptr": features.indptr.astype(np.int64)}


def _filled(arrays: Mapping[str, np.ndarray], rows: int) -> np.ndarray:
    """Return whether each row has a stored number that is not 0, and of float16 one above :data:`TINY`, ``(rows,)``."""
    if "features" in arrays:
        return np.asarray((np.abs(arrays["features"]) > TINY).any(axis=1))
    filled = np.zeros(rows, bool)
    if "values" in arrays:
        filled[arrays["rows"][arrays["values"] != 0]] = True
    else:
        filled[np.repeat(np.arange(rows), np.diff(arrays["indptr"]))[arrays["data"] != 0]] = True
    return filled


def _check_finite(values: np.ndarray, rows: np.ndarray, corpus: Corpus) -> None:
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        most = float(np.finfo(values.dtype).max)
        raise DataError(
            f"example '{corpus[int(rows[bad[0]])].id}': a feature is not finite or exceeds {most:.6g}, the largest "
            f"{values.dtype}. Check the settings of the method."
        )


def _check_storable(features: np.ndarray, corpus: Corpus) -> None:
    good = (np.abs(features) <= FLOAT16_MAX).all(axis=1)
    if not good.all():
        row = int(np.argmin(good))
        raise DataError(
            f"example '{corpus[row].id}': a feature is not finite or exceeds {FLOAT16_MAX:.0f}, the largest float16. "
            "Check the model for overflow; try --precision float32, or unit=true."
        )


def write_table(path: Path, table: pa.Table) -> None:
    """Write a table of examples as an arrow file."""
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def read_record(folder: Path) -> dict[str, Any]:
    """Read ``shard.json`` (ArtifactError: there is no finished shard here, or it was altered)."""
    with reading(folder / SHARD):
        record: dict[str, Any] = json.loads((folder / SHARD).read_bytes())
        for entry in record["files"].values():
            entry["bytes"], entry["sha256"]
    return record


def is_whole(folder: Path) -> bool:
    """Return whether a folder holds a finished shard with every byte as it was written."""
    try:
        check_digests(folder, read_record(folder)["files"])
    except ArtifactError:
        return False
    return True


@dataclass(frozen=True)
class Shard:
    """One shard, opened as memory maps when it is first used.

    Each file is checked against its checksum before it is first read; only :meth:`may_have` reads ids unchecked.
    """

    place: Anchored
    start: int
    rows: int
    channels: tuple[KeptChannel, ...]
    files: Mapping[str, Mapping[str, Any]] = field(repr=False)
    """Size and checksum of each file, including ``shard.json``."""

    @property
    def folder(self) -> Path:
        """Directory of the shard."""
        return self.place.path

    def __getstate__(self) -> dict[str, Any]:
        """Leave out keys of ids and memory maps, which are valid in this process only."""
        return {name: value for name, value in vars(self).items() if name not in ("_id_keys", "_blocks")}

    def block(self, channel: str) -> "Block":
        """Return the features of a channel, for scoring (ArtifactError: a file of the channel was altered)."""
        if channel not in self._blocks:
            with self._named(channel):
                self._blocks[channel] = self._opened(channel)
        return self._blocks[channel]

    @cached_property
    def _blocks(self) -> "dict[str, Block]":
        return {}

    @contextmanager
    def _named(self, channel: str) -> Iterator[None]:
        """Name the channel in the error for an altered file, if there are other channels that can be used instead."""
        try:
            yield
        except ArtifactError as error:
            if len(self.channels) == 1:
                raise
            raise ArtifactError(
                f"{error} The file belongs to channel (method) '{channel}'. To use only the other methods, give a "
                f"recipe (list of methods) without '{channel}': --recipe FILE"
            ) from error

    def _opened(self, channel: str) -> "Block":
        from airrep.scoring.blocks import Block

        number, one = next((n, one) for n, one in enumerate(self.channels) if one.name == channel)
        folder = folder_of(number, channel)
        if one.kind == "postings":
            return Block(self.start, self._postings(folder, one.dimension))
        if one.kind == "csr":
            return Block(self.start, self._csr(folder, one.dimension))
        features = self._map(f"{folder}/features")  # a search reads few of them, so check() runs when they are read
        codes, scales, bounds = (self._load(f"{folder}/{name}") for name in ("codes", "scales", "bounds"))
        shapes = [(self.rows, one.dimension), (self.rows, one.dimension), (self.rows,), (self.rows, 2)]
        if [array.shape for array in (features, codes, scales, bounds)] != shapes:
            raise _altered(self.folder / folder)

        def check() -> None:
            with self._named(channel):
                self._check(f"{folder}/features.npy")

        return Block(self.start, features, codes, scales, bounds, check)

    def features(self, rows: Rows | None = None, channels: Sequence[str] | None = None) -> "Encoded":
        """Return features of some rows, numbered from 0 in the shard, as float32 by channel; None means all."""
        from airrep.scoring.columns import Postings

        chosen, found = slice(None) if rows is None else rows, dict[str, Features | None]()
        for one in self.channels:
            if channels is not None and one.name not in channels:
                continue
            if one.kind == "none":
                found[one.name] = None
                continue
            block = self.block(one.name)
            part: Any = block.dense() if one.kind == "dense" else block.features
            found[one.name] = (part.csr() if isinstance(part, Postings) else part)[chosen].astype(np.float32)
        return found

    def _postings(self, folder: str, columns: int) -> "Postings":
        """Load sparse features by column, checked first: a wrong row would crash the process."""
        from airrep.scoring.columns import Postings

        listed, rows, values = (self._load(f"{folder}/{name}") for name in POSTINGS)
        found = Postings(listed, rows, values, (self.rows, columns))
        good = len(listed) == len(rows) == len(values)
        if good and len(rows):
            inside = 0 <= rows.min() <= rows.max() < self.rows and 0 <= listed[0] <= listed[-1] < columns
            good = inside and not (listed[1:] < listed[:-1]).any()
        if not good:
            raise _altered(self.folder / folder)
        return found

    def _csr(self, folder: str, columns: int) -> SparseFeatures:
        """Load a CSR matrix, checked first: a wrong index would crash the process."""
        data, indices, indptr = (self._load(f"{folder}/{name}") for name in ("data", "indices", "indptr"))
        fits = len(indptr) == self.rows + 1 and indptr[0] == 0 and indptr[-1] == len(indices) == len(data)
        if (
            not fits
            or (np.diff(indptr) < 0).any()
            or (len(indices) and not 0 <= indices.min() <= indices.max() < columns)
        ):
            raise _altered(self.folder / folder)
        return SparseRows(data, indices, indptr, (self.rows, columns))

    def may_have(self, wanted: Sieve) -> bool:
        """Return whether the shard may hold a wanted id; a false positive needs a collision of 64-bit keys."""
        return wanted.holds_some(self._id_keys)

    @cached_property
    def _id_keys(self) -> np.ndarray:
        """Keys of the shard's ids; only the ids are read, so the file's checksum is not checked."""
        path = self.folder / EXAMPLES
        with reading(path):
            ids = pa.ipc.open_file(pa.memory_map(str(path))).read_all().column("id")
            ids.validate(full=True)
            keys = id_keys(ids.to_pylist())
        if len(keys) != self.rows:
            raise _altered(path)
        return keys

    def check_all(self) -> None:
        """Check every byte; ArtifactError if one was altered."""
        check_digests(self.folder, self._files)

    @cached_property
    def examples(self) -> Corpus:
        """The shard's examples, read from the memory map on demand."""
        path = self.folder / EXAMPLES
        table = self._table(EXAMPLES)
        if PLACES in self._files:
            places = self._table(PLACES)
            with reading(self.folder / PLACES):
                table = table.append_column(PLACE, places.column(PLACE))
        with reading(path):
            corpus = Corpus(table)
        if len(corpus) != self.rows or any(corpus.table[name].null_count for name in ("id", "prompt", "response")):
            raise _altered(path)
        return corpus

    def _table(self, name: str) -> pa.Table:
        path = self.folder / name
        self._check(name)
        with reading(path):
            table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
            table.validate(full=True)  # a wrong offset would crash the process, or give texts of other rows
        return table

    @cached_property
    def _files(self) -> Mapping[str, Mapping[str, Any]]:
        """Size and checksum of each file, after checking ``shard.json``."""
        self._check(SHARD)
        return self.files

    def _check(self, name: str) -> None:
        files = self.files if name == SHARD else self._files
        if name not in files:
            raise _altered(self.folder / name)
        check_file(self.folder / name, files[name])

    def _load(self, name: str) -> np.ndarray:
        self._check(f"{name}.npy")
        return self._map(name)

    def _map(self, name: str) -> np.ndarray:
        path = self.folder / f"{name}.npy"
        with reading(path):
            return map_array(path)


def _altered(path: Path) -> ArtifactError:
    return ArtifactError(f"{path}: was altered after it was written. Restore it or build it again.")


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn an error while reading an index file into a one-line ArtifactError."""
    try:
        with within_limits(path):
            yield
    except ArtifactError:
        raise
    except Exception as error:  # damaged headers of arrays raise nearly anything
        raise ArtifactError(
            f"{path}: cannot be read: the index was altered, or replaced while it was open. "
            "Open it again; if that fails, build it again."
        ) from error
