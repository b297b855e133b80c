"""Files that an index is exported to: Parquet, CSV, Lance."""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet as pq

from airrep.errors import ArtifactError
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
