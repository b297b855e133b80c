"""Datasets of Hugging Face, and folders of Lance."""

import importlib
import json
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from airrep.corpus.sources.source import RecordSource
from airrep.corpus.sources.tables import BATCH_ROWS, Batch, pieces, rows_of, table_rows
from airrep.corpus.sources.textformats import Numbered
from airrep.errors import ConfigError, DataError, need

SAVED = ("dataset_dict.json", "dataset_info.json")
"""Files by which a folder that ``datasets`` wrote is known: of splits, or of a single one."""


LANCE = "_versions"
"""The folder by which a dataset of Lance is known."""


def is_saved(folder: Path) -> bool:
    """Whether ``datasets`` wrote a folder."""
    return any((folder / name).is_file() for name in SAVED)


def open_saved(folder: Path, split: str | None = None) -> RecordSource:
    """Return the rows of a folder saved by ``datasets``, with splits or without."""
    return RecordSource(str(folder), "row", _saved_dataset(folder, split))


def open_hub(name: str, config: str | None = None, split: str | None = None) -> RecordSource:
    """Return the rows of a dataset of the Hub."""
    return RecordSource(name, "row", _hub_dataset(name, config, split))


def open_lance(folder: Path) -> RecordSource:
    """Return the rows of a dataset of Lance, in its newest version."""
    return RecordSource(str(folder), "row", rows_of(_lance_batches(folder)))


def object_rows(data: Any) -> Iterable[Any]:
    """The rows of a ``Dataset`` of a program, as of its saved folder; other data, and a user's transform, as they are.

    One that is streamed may not know its features; its rows are then as it gives them.
    """
    form = getattr(data, "format", None) if hasattr(data, "with_format") else None
    streamed = form is None and hasattr(data, "with_format") and getattr(data, "features", None)
    if not streamed and (form is None or form["type"] == "custom"):
        return data  # type: ignore[no-any-return]
    return chain.from_iterable(map(table_rows, _arrow(data).iter(BATCH_ROWS)))


def _lance_batches(folder: Path) -> Iterator[Batch]:
    """Yield the rows of a dataset of Lance in parts."""
    need(f"{folder}: reading a Lance dataset", "lance", "lance")
    lance: Any = importlib.import_module("lance")
    try:
        for batch in lance.dataset(str(folder)).to_batches(batch_size=BATCH_ROWS):
            yield from pieces(batch)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(
            f"{folder}: cannot be read as Lance ({reason}); a whole dataset is expected. Get it anew"
        ) from None


def _datasets() -> Any:
    """Import the package ``datasets``."""
    need("reading a Hugging Face dataset", "datasets", "datasets")
    return importlib.import_module("datasets")


def _saved_dataset(folder: Path, split: str | None) -> Numbered:
    """Yield the rows of a folder saved by ``datasets``, with splits or without."""
    splits = _saved_splits(folder)
    if splits is None and split is not None:
        raise ConfigError(f"{folder}: split={split!r} is given, but the folder has no splits. Leave it out")
    chosen = split or "train"
    if splits is not None and chosen not in splits:
        raise DataError(f"{folder}: has no split {chosen!r}; it has {', '.join(splits)}. Choose one with split")
    try:
        dataset = _datasets().load_from_disk(str(folder if splits is None else folder / chosen))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{folder}: cannot be read as a saved dataset ({error}); a whole one is expected") from None
    return _datasetrows_of(dataset)


def _saved_splits(folder: Path) -> list[str] | None:
    """Return the splits of a saved dataset, or None if it is a single one."""
    try:
        return [str(split) for split in json.loads((folder / "dataset_dict.json").read_text())["splits"]]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{folder}: dataset_dict.json cannot be read ({error}); the list of splits is expected"
        ) from None


def _hub_dataset(name: str, config: str | None, split: str | None) -> Numbered:
    """Yield the rows of a dataset of the Hub."""
    chosen = split or "train"
    try:
        dataset = _datasets().load_dataset(name, config, split=chosen)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        which = f"split {chosen!r}" if config is None else f"split {chosen!r} of its config {config!r}"
        raise DataError(
            f"{name}: no such file, and the Hub dataset's {which} cannot be loaded ({reason}). "
            "Check the path, the name, config or split"
        ) from None
    return _datasetrows_of(dataset)


def _datasetrows_of(dataset: Any) -> Numbered:
    """Yield the rows of a dataset as it is stored, images and sounds undecoded."""
    return rows_of(_arrow(dataset).iter(BATCH_ROWS))


def _arrow(dataset: Any) -> Any:
    """A dataset that gives tables of Arrow, of the columns that were chosen."""
    form = getattr(dataset, "format", None)
    return dataset.with_format("arrow") if form is None else dataset.with_format("arrow", columns=form["columns"])
