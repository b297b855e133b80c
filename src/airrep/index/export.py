"""Export of an index to a file for other tools."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet as pq

from airrep._version import __version__
from airrep.arrays import Mask
from airrep.corpus.fields import TEXT_FIELDS
from airrep.errors import ArtifactError, ConfigError, near, need
from airrep.index.rows import TEXTS, IndexRows
from airrep.index.shards import KeptChannel, Shard
from airrep.runtime.artifacts import real_path
from airrep.runtime.metering import OnProgress, teller
from airrep.runtime.remote.outputs import is_taken, new_place
from airrep.runtime.remote.places import url_of

PIECE_ROWS = 4096
"""Most rows in memory at once."""
PIECE_NUMBERS = 2**21
"""Most numbers of vectors in memory at once, 8 MiB of float32."""
MOST_FIELDS = 500
"""Most metadata fields that get a column each; if there are more, one column holds all as JSON."""
ROW, TEXT, VECTOR, METADATA, CHAT = "row", "text", "vector", "metadata", "chat"
"""Names of columns that are not fields of an example."""
_TEXT = ("prompt", "response")
_EXACT = 2**53
"""Largest whole number up to which a column of floats holds all whole numbers exactly."""
_LARGEST = 2**63 - 1
_compute: Any = pyarrow.compute  # its type stubs refuse large_string


@dataclass(frozen=True)
class ExportedColumns:
    """Rows to export from an index, as batches of one schema.

    Columns are ``row``, the fields of examples, ``chat`` (JSON) if some examples have one, ``text`` (prompt and
    response) if requested, one column for each metadata field, and ``vector``, the dense features in float32, if
    requested and stored.
    """

    index: IndexRows
    keep: Mask
    """Rows to export."""
    text: bool = False
    vectors: bool = True
    dots: bool = True
    """True if column names may contain dots."""

    @property
    def rows(self) -> int:
        """Number of rows to export."""
        return int(np.count_nonzero(self.keep))

    @cached_property
    def width(self) -> int:
        """Number of dense features of a row; 0 if there are none, or they are not requested."""
        return sum(one.dimension for one in self._dense) if self.vectors else 0

    @cached_property
    def _fields(self) -> list[str]:
        """Fields of examples, without prompt and response if they were left out of the index."""
        return [name for name in TEXT_FIELDS if self.index.manifest.get(TEXTS, True) or name not in _TEXT]

    @property
    def _dense(self) -> list[KeptChannel]:
        return [one for one in self.index.channels if one.kind == "dense"]

    @cached_property
    def chats(self) -> bool:
        """True if some example has a chat entry: messages, or a form, beyond its texts."""
        return any(shard.examples.table[CHAT].null_count < shard.rows for shard in self._shards())

    @cached_property
    def metadata(self) -> Mapping[str, tuple[str, pa.DataType]]:
        """Name and type of the column of each metadata field; empty if there are too many fields."""
        fields = self.index.fields
        if len(fields) > MOST_FIELDS:
            return {}
        kinds: dict[str, set[str]] = {name: set() for name in fields}
        for shard in self._shards():
            for text in _compute.unique(shard.examples.table[METADATA]).to_pylist():
                for name, value in json.loads(text or "{}").items():
                    kinds.setdefault(name, set()).add(_kind(value))
        names = _column_names(fields, self.dots)
        return {name: (names[name], _type_of(kinds[name])) for name in fields}

    @cached_property
    def schema(self) -> pa.Schema:
        """Names and types of all columns."""
        columns: list[tuple[str, pa.DataType]] = [(ROW, pa.int64())]
        columns += [(name, pa.large_string()) for name in self._fields]
        columns += [(CHAT, pa.large_string())] if self.chats else []
        columns += [(TEXT, pa.large_string())] if self.text else []
        columns += list(self.metadata.values())
        columns += [] if self.metadata or not self.index.fields else [(METADATA, pa.large_string())]
        columns += [(VECTOR, pa.list_(pa.float32(), self.width))] if self.width else []
        return pa.schema(columns)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in batches, in the order of the index."""
        step = max(1, min(PIECE_ROWS, PIECE_NUMBERS // max(self.width, 1)))
        for shard in self._shards():
            wanted = np.flatnonzero(self.keep[shard.start : shard.start + shard.rows])
            for first in range(0, len(wanted), step):
                yield self._batch(shard, wanted[first : first + step])

    def _shards(self) -> Iterator[Shard]:
        """Yield the shards, each opened anew, so that its memory maps are released with it."""
        return (replace(shard) for shard in self.index.shards)

    def _batch(self, shard: Shard, rows: np.ndarray) -> pa.RecordBatch:
        table = shard.examples.table.take(pa.array(rows))
        columns: list[Any] = [pa.array(rows + shard.start, pa.int64())]
        columns += [_whole(table[name]) for name in self._fields]
        columns += [_whole(table[CHAT])] if self.chats else []
        if self.text:  # prompt and response
            between = pa.scalar("\n\n", pa.large_string())
            columns.append(_compute.binary_join_element_wise(*(_whole(table[name]) for name in _TEXT), between))
        columns += self._metadata_of(table)
        if self.width:
            features = [shard.block(one.name).dense()[rows] for one in self._dense]
            numbers = np.concatenate(features, axis=1, dtype=np.float32).reshape(-1)
            columns.append(pa.FixedSizeListArray.from_arrays(pa.array(numbers), self.width))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _metadata_of(self, table: pa.Table) -> Iterator[Any]:
        if not self.metadata:
            yield from [_whole(table[METADATA])] if self.index.fields else []
            return
        known: dict[str, dict[str, Any]] = {}  # rows of one source often have equal metadata
        records = []
        for text in (text or "{}" for text in table[METADATA].to_pylist()):
            if text not in known:
                known[text] = json.loads(text)
            records.append(known[text])
        for name, (_, kind) in self.metadata.items():
            yield pa.array(_values(records, name, kind), kind)


def _whole(column: Any) -> Any:
    """Return a column of a table as one array."""
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _values(records: Sequence[Mapping[str, Any]], name: str, kind: pa.DataType) -> list[Any]:
    """Return the values of one field, None if a record lacks it; in a text column, other types as JSON."""
    values = [record.get(name) for record in records]
    if kind != pa.large_string():
        return values
    return [
        value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False) for value in values
    ]


def _kind(value: object) -> str:
    """Return the type of a JSON value, as far as columns distinguish types."""
    if value is None:
        return "null"
    if isinstance(value, bool):  # before numbers, as Python's True is an int
        return "bool"
    if isinstance(value, int):
        return "int" if abs(value) <= _EXACT else "large" if abs(value) <= _LARGEST else "other"
    return "float" if isinstance(value, float) else "other"


def _type_of(kinds: Iterable[str]) -> pa.DataType:
    """Return the type of a column with values of these kinds; text if no other type holds all."""
    found = set(kinds) - {"null"}
    if found == {"bool"}:
        return pa.bool_()
    if found and found <= {"int", "large"}:
        return pa.int64()
    return pa.float64() if found and found <= {"int", "float"} else pa.large_string()


def _column_names(fields: Sequence[str], dots: bool) -> dict[str, str]:
    """Return a column name for each metadata field: its own, unless the name is taken, ignoring case."""
    taken = {name.casefold() for name in (ROW, *TEXT_FIELDS, CHAT, TEXT, VECTOR, METADATA)}
    names = {}
    for field in fields:
        plain = field if dots else field.replace(".", "_")
        name = plain if plain and plain.casefold() not in taken else f"{METADATA}_{plain}"
        while name.casefold() in taken:
            name += "_"
        taken.add(name.casefold())
        names[field] = name
    return names


RECORDS = "records"
"""Command-line format that copies the records that examples were read from."""
CITATIONS = "citations"
"""Command-line format that cites examples in JSON-LD."""
FORMATS = ("embedding-atlas", "parquet", "csv", "lance", RECORDS, CITATIONS)
SUFFIXES = (".parquet", ".csv", ".lance", ".tsv", ".json", ".jsonl", ".ndjson", ".arrow", ".xlsx", ".gz", ".zst")
"""Suffixes by which other tools recognise a format."""


@dataclass(frozen=True)
class Exported:
    """Path and contents of a written export."""

    path: Path
    rows: int
    columns: tuple[str, ...]
    width: int
    """Length of a vector; 0 if no vectors were written."""
    guarded: int = 0
    """Number of CSV cells that got an apostrophe, because a spreadsheet would take them for formulas."""


def export_index(
    index: IndexRows,
    out: str | Path,
    to: str = "parquet",
    *,
    where: str | None = None,
    vectors: bool = True,
    exact: bool = False,
    replace: bool = False,
    progress: OnProgress | None = None,
) -> Exported:
    """Write the examples of an index to a file: texts, metadata, and dense features as vectors.

    Deleted examples are left out. Rows are read and written piece by piece, so memory does not grow with the index. The
    file appears under its name only when it is whole.

    Args:
        index: the index; no model is needed.
        out: the file to make; for Lance, the folder.
        to: ``"parquet"``; ``"embedding-atlas"``, Parquet with a column ``text``; ``"csv"``, without vectors; or
            ``"lance"``, which needs the package pylance.
        where: a filter; only examples that match it are written.
        vectors: True to write dense features. Methods that count words have none.
        exact: for CSV, True to leave cells that begin like formulas as they are, though a spreadsheet may run them.
        replace: replace an existing file.
        progress: called with the numbers of written rows and of all.

    Raises:
        ConfigError: no such format, a file name of another format, an invalid filter, or nothing to export.
        ArtifactError: *out* exists already, the index was altered, or the file cannot be written.
        MissingExtraError: Lance without pylance.
    """
    path = Path(out)
    _check_format(to, exact, path)
    check_target(path, folder=to == "lance", replace=replace)
    asked = vectors and to != "csv"
    if to == "embedding-atlas" and not index.manifest.get(TEXTS, True):
        raise ConfigError(
            f"{index.path}: has no texts to show in embedding-atlas. Export it with --to parquet instead."
        )
    columns = ExportedColumns(index, index.kept(where), to == "embedding-atlas", asked, dots=to != "lance")
    with new_place(path if url_of(path) else real_path(path), replace=True) as made:
        batches, guarded = _counted(columns, progress), 0
        if to == "csv":
            guarded = write_csv(made, columns.schema, batches, exact)
        elif to == "lance":
            import lance

            lance.write_dataset(pa.RecordBatchReader.from_batches(columns.schema, batches), str(made), mode="create")
        else:
            origin = {"airrep": __version__, "index": index.fingerprint, "method": index.method}
            write_parquet(made, columns.schema, batches, origin)
    return Exported(path, columns.rows, tuple(columns.schema.names), columns.width, guarded)


def _check_format(to: str, exact: bool, path: Path) -> None:
    """Refuse a format that export does not write, and a path with the suffix of another: it could not be read."""
    if to not in FORMATS:
        raise ConfigError(f"format '{to}': does not exist; expected one of {', '.join(FORMATS)}. {near(to, FORMATS)}")
    others = {RECORDS: "airrep.corpus.originals.take_records", CITATIONS: "airrep.reports.citing.citations"}
    if to in others:
        raise ConfigError(f"format '{to}': export does not write it. Call {others[to]} instead.")
    if exact and to != "csv":
        raise ConfigError(
            "exact: works only with csv, the only format that changes cells that look like formulas. Leave exact out."
        )
    if to == "lance":
        need("airrep export --to lance", "lance", "lance")
    suffix = ".parquet" if to == "embedding-atlas" else f".{to}"
    if path.suffix.lower() in SUFFIXES and path.suffix.lower() != suffix:
        name = f"{path.stem.partition('.')[0]}{suffix}"
        raise ConfigError(f"{path}: a file of format {to} cannot have this suffix. Use a name such as {name}.")


def _counted(columns: ExportedColumns, progress: OnProgress | None) -> Iterator[pa.RecordBatch]:
    done, tell = 0, teller(progress, "exporting")
    for batch in columns.batches():
        yield batch
        done += batch.num_rows
        tell(done, columns.rows)


FORMULA = r"^[=+\-@\t\r]"
"""Pattern of the beginning of a text that a spreadsheet takes for a formula."""


def check_target(path: Path, *, folder: bool, replace: bool) -> None:
    """Refuse, before any work, a path that exists; with *replace*, refuse only what is not an export.

    ArtifactError: the path is refused.
    """
    url = url_of(path)
    if not is_taken(path):
        return
    if not replace:
        raise ArtifactError(
            f"{url or path}: exists already; nothing is overwritten. Give another path, or pass --replace."
        )
    if url is not None:
        return
    ours = (path / "_versions").is_dir() if folder else path.is_file()
    if not ours:
        kind = "a Lance dataset" if folder else "a file"
        raise ArtifactError(f"{path}: is not {kind}, so it is not replaced. Give another path.")


def write_parquet(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch], origin: Mapping[str, str]) -> None:
    """Write Parquet, compressed with zstd; its schema names the index it comes from."""
    noted = {b"airrep": json.dumps(dict(origin), sort_keys=True).encode()}
    texts: Any = [field.name for field in schema if field.type == pa.large_string()]  # vectors never repeat
    with pq.ParquetWriter(path, schema.with_metadata(noted), compression="zstd", use_dictionary=texts) as writer:
        for batch in batches:
            writer.write_batch(batch.replace_schema_metadata(noted))


def write_csv(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch], exact: bool) -> int:
    """Write CSV, with texts in quotes; return how many got an apostrophe, as they look like formulas, 0 if *exact*."""
    guard: Callable[[Any], tuple[Any, int]] = (lambda column: (column, 0)) if exact else _guarded
    header = [guard(pa.array([name], pa.large_string())) for name in schema.names]
    named = pa.schema([field.with_name(name[0].as_py()) for field, (name, _) in zip(schema, header, strict=True)])
    guarded = sum(count for _, count in header)
    with path.open("wb") as sink, pyarrow.csv.CSVWriter(sink, named) as writer:
        for batch in batches:
            columns = [guard(column) for column in batch.columns]
            guarded += sum(count for _, count in columns)
            writer.write_batch(pa.RecordBatch.from_arrays([column for column, _ in columns], schema=named))
    return guarded


def _guarded(column: Any) -> tuple[Any, int]:
    """Put an apostrophe before each formula of a column; also return how many there are."""
    if column.type != pa.large_string():
        return column, 0
    formula = _compute.fill_null(_compute.match_substring_regex(column, FORMULA), False)
    mark, nothing = (pa.scalar(text, pa.large_string()) for text in ("'", ""))
    marked = _compute.binary_join_element_wise(mark, column, nothing)
    return _compute.if_else(formula, marked, column), int(_compute.sum(formula).as_py() or 0)
