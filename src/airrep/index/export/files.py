"""Files that an index is exported to: Parquet, CSV, Lance."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet as pq

from airrep.errors import ArtifactError, need
from airrep.runtime.remote.outputs import is_taken
from airrep.runtime.remote.places import url_of

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


class Writer(ABC):
    """Writes batches of one schema to a file."""

    folder: ClassVar[bool] = False
    """Whether it makes a folder."""

    @abstractmethod
    def write(self, path: Path, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        """Write all batches."""


class ParquetWriter(Writer):
    """Parquet, compressed with zstd; the schema says which index it is of."""

    def __init__(self, origin: Mapping[str, str]) -> None:
        self._origin = {b"airrep": json.dumps(dict(origin), sort_keys=True).encode()}

    def write(self, path: Path, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        texts: Any = [field.name for field in schema if field.type == pa.large_string()]  # vectors never repeat
        marked = schema.with_metadata(self._origin)
        with pq.ParquetWriter(path, marked, compression="zstd", use_dictionary=texts) as writer:
            for batch in batches:
                writer.write_batch(batch.replace_schema_metadata(self._origin))


class CsvWriter(Writer):
    """CSV, texts in quotes; those that a spreadsheet would run as a formula get an apostrophe, unless *exact*."""

    def __init__(self, exact: bool) -> None:
        self._exact = exact
        self.guarded = 0
        """Cells that got an apostrophe."""

    def write(self, path: Path, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        named = pa.schema([field.with_name(self._header(field.name)) for field in schema])
        with path.open("wb") as sink, pyarrow.csv.CSVWriter(sink, named) as writer:
            for batch in batches:
                columns = [self._guarded(column) for column in batch.columns]
                writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=named))

    def _header(self, name: str) -> str:
        guarded = pa.array([name], pa.large_string())
        return str(self._guarded(guarded)[0].as_py())

    def _guarded(self, column: Any) -> Any:
        if self._exact or column.type != pa.large_string():
            return column
        formula = _compute.fill_null(_compute.match_substring_regex(column, FORMULA), False)
        count = int(_compute.sum(formula).as_py() or 0)
        if not count:
            return column
        self.guarded += count
        mark, nothing = (pa.scalar(text, pa.large_string()) for text in ("'", ""))
        marked = _compute.binary_join_element_wise(mark, column, nothing)
        return _compute.if_else(formula, marked, column)


class LanceWriter(Writer):
    """A Lance dataset, by the package pylance."""

    folder = True

    def __init__(self) -> None:
        need("airrep export --to lance", "lance", "lance")

    def write(self, path: Path, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        import lance

        lance.write_dataset(pa.RecordBatchReader.from_batches(schema, batches), str(path), mode="create")
