"""Datasets of Hugging Face: saved folders, and those of the Hub."""

import importlib
import json
from pathlib import Path
from typing import Any

from airrep.corpus.sources.files import BATCH_ROWS, rows_of
from airrep.corpus.sources.source import RecordSource
from airrep.corpus.sources.textformats import Numbered
from airrep.errors import ConfigError, DataError, MissingExtraError

SAVED = ("dataset_dict.json", "dataset_info.json")
"""Files by which a folder that ``datasets`` wrote is known: of splits, or of a single one."""


def is_saved(folder: Path) -> bool:
    """Whether ``datasets`` wrote a folder."""
    return any((folder / name).is_file() for name in SAVED)


def open_saved(folder: Path, split: str | None = None) -> RecordSource:
    """Return the rows of a folder saved by ``datasets``, with splits or without."""
    return RecordSource(str(folder), "row", _saved_dataset(folder, split))


def open_hub(name: str, config: str | None = None, split: str | None = None) -> RecordSource:
    """Return the rows of a dataset of the Hub."""
    return RecordSource(name, "row", _hub_dataset(name, config, split))


def _datasets() -> Any:
    """Import the package ``datasets``."""
    try:
        return importlib.import_module("datasets")
    except ImportError:
        raise MissingExtraError("reading a Hugging Face dataset", "datasets") from None


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
    return rows_of(dataset.with_format("arrow").iter(BATCH_ROWS))
