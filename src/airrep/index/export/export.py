"""Export of an index to a file for other tools."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from airrep._version import __version__
from airrep.errors import ConfigError, near, need
from airrep.index.export.columns import ExportedColumns
from airrep.index.export.files import check_target, write_csv, write_lance, write_parquet
from airrep.index.rows import IndexRows
from airrep.runtime.artifacts.making import real_path
from airrep.runtime.metering import OnProgress, teller
from airrep.runtime.remote.outputs import new_place
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
