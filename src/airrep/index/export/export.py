"""Export of an index to a file for other tools."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet as pq

from airrep._version import __version__
from airrep.errors import ArtifactError, ConfigError, near, need
from airrep.index.export.columns import ExportedColumns
from airrep.index.rows import IndexRows
from airrep.runtime.artifacts.making import real_path
from airrep.runtime.metering import OnProgress, teller
from airrep.runtime.remote.outputs import is_taken, new_place
from airrep.runtime.remote.places import url_of

RECORDS = "records"
"""Of the command line: copies what examples were read from."""
FORMATS = ("embedding-atlas", "parquet", "csv", "lance", RECORDS)
SUFFIXES = (".parquet", ".csv", ".lance", ".tsv", ".json", ".jsonl", ".ndjson", ".arrow", ".xlsx", ".gz", ".zst")
"""By which other tools know a format."""


@dataclass(frozen=True)
class Exported:
    """What was written."""

    path: Path
    rows: int
    columns: tuple[str, ...]
    width: int
    """Numbers of a vector; 0 where none was written."""
    guarded: int = 0
    """Cells of a CSV file that would have been formulas in a spreadsheet, and got an apostrophe."""


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
    file appears under its name when it is whole.

    Args:
        index: the index; no model is needed.
        out: the file to make; of Lance the folder.
        to: ``"parquet"``; ``"embedding-atlas"``, Parquet with a column ``text``; ``"csv"``, without vectors; or
            ``"lance"``, which needs the package pylance.
        where: a filter; only examples that fulfil it are written.
        vectors: whether dense features are written. Methods that count words have none.
        exact: of CSV, whether cells that begin as formulas do are left as they are, though a spreadsheet may run them.
        replace: replace a file that is there.
        progress: called with the numbers of written rows and of all.

    Raises:
        ConfigError: no such format, a file name of another one, a bad filter, or nothing to export.
        ArtifactError: something is there already, the index was altered, or the file cannot be written.
        MissingExtraError: Lance without pylance.
    """
    path = Path(out)
    _check_format(to, exact)
    _check_suffix(path, to)
    check_target(path, folder=to == "lance", replace=replace)
    asked = vectors and to != "csv"
    columns = ExportedColumns(index, index.mask(where), to == "embedding-atlas", asked, dots=to != "lance")
    if not columns.rows:
        raise ConfigError(f"filter {where}: no example fulfils it; expected some. Choose another filter.")
    with new_place(path if url_of(path) else real_path(path), replace=True) as made:
        batches, guarded = _counted(columns, progress), 0
        if to == "csv":
            guarded = write_csv(made, columns.schema, batches, exact)
        elif to == "lance":
            write_lance(made, columns.schema, batches)
        else:
            origin = {"airrep": __version__, "index": index.fingerprint, "method": index.method}
            write_parquet(made, columns.schema, batches, origin)
    return Exported(path, columns.rows, tuple(columns.schema.names), columns.width, guarded)


def _check_format(to: str, exact: bool) -> None:
    if to not in FORMATS:
        raise ConfigError(f"format '{to}': does not exist; expected one of {', '.join(FORMATS)}. {near(to, FORMATS)}")
    if to == RECORDS:
        raise ConfigError(f"format '{to}': copies lines of data. Take them: airrep.corpus.originals.take_records")
    if exact and to != "csv":
        raise ConfigError("exact: is of csv alone; other formats are exact always. Leave it out.")
    if to == "lance":
        need("airrep export --to lance", "lance", "lance")


def _check_suffix(path: Path, to: str) -> None:
    """Refuse the name of another format, as which the file could not be read."""
    suffix = ".parquet" if to == "embedding-atlas" else f".{to}"
    if path.suffix.lower() in SUFFIXES and path.suffix.lower() != suffix:
        name = f"{path.stem.partition('.')[0]}{suffix}"
        raise ConfigError(f"{path}: {to} is not written under this suffix; expected a name such as {name}. Give that.")


def _counted(columns: ExportedColumns, progress: OnProgress | None) -> Iterator[pa.RecordBatch]:
    done, tell = 0, teller(progress, "writing")
    for batch in columns.batches():
        yield batch
        done += batch.num_rows
        if tell is not None:
            tell(done, columns.rows)


FORMULA = r"^[=+\-@\t\r]"
"""What a spreadsheet takes for a formula: the text begins so."""
_compute: Any = pyarrow.compute


def check_target(path: Path, *, folder: bool, replace: bool) -> None:
    """Refuse, before any work, what is there already, and whatever else than an export it would replace.

    ArtifactError: something is there.
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
    """Write Parquet, compressed with zstd; its schema says which index it is of."""
    noted = {b"airrep": json.dumps(dict(origin), sort_keys=True).encode()}
    texts: Any = [field.name for field in schema if field.type == pa.large_string()]  # vectors never repeat
    with pq.ParquetWriter(path, schema.with_metadata(noted), compression="zstd", use_dictionary=texts) as writer:
        for batch in batches:
            writer.write_batch(batch.replace_schema_metadata(noted))


def write_csv(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch], exact: bool) -> int:
    """Write CSV, texts in quotes.

    Returns:
        How many texts got an apostrophe, since a spreadsheet would run them as a formula; none if *exact*.
    """
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
    """A column with an apostrophe before each formula, and how many there are."""
    if column.type != pa.large_string():
        return column, 0
    formula = _compute.fill_null(_compute.match_substring_regex(column, FORMULA), False)
    mark, nothing = (pa.scalar(text, pa.large_string()) for text in ("'", ""))
    marked = _compute.binary_join_element_wise(mark, column, nothing)
    return _compute.if_else(formula, marked, column), int(_compute.sum(formula).as_py() or 0)


def write_lance(path: Path, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """Write a Lance dataset, by the package pylance."""
    import lance

    lance.write_dataset(pa.RecordBatchReader.from_batches(schema, batches), str(path), mode="create")
