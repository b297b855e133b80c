"""Folders of data files or of texts as one source."""

import os
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any, cast

from airrep.corpus.sources.files import LONGEST_LINE, Place, open_file, open_text, reader_of
from airrep.corpus.sources.source import RecordSource
from airrep.errors import DataError
from airrep.runtime.artifacts.manifests import is_made
from airrep.runtime.remote.storage import RemoteData

_TEXTS = (".txt", ".md")
_NO_DATA = ("dataset_infos.json", "dataset_info.json", "dataset_dict.json", "state.json")
"""JSON files that tell of a dataset."""
_SPLIT = re.compile(r"(?:^|[-_./])(train|test|validation|valid|val|dev|eval)(?=[-_./]|$)", re.IGNORECASE)
_SHARD = re.compile(r"[-_.]?\d+(-of-\d+)?$")


def open_folder(folder: Place, split: str | None = None, longest: int = LONGEST_LINE) -> RecordSource:
    """Return the records of all data files below a folder, in the order of their names; else of its text files.

    If the name of every file tells a split, those of one are read, by default of "train". Records without a source
    get the name of their file, numbers of shards left out, if there are several such names.
    """
    known, others = _files(folder)
    files = _of_split(folder, known, split)
    others += [(path, "is of another split") for path in sorted(set(known) - set(files))]
    apart = [f"{_inside(path, folder)}: {why}" for path, why in others]
    names = [_name(_inside(file, folder)) for file in files]
    sources: list[str | None] = list(names) if len(set(names)) > 1 else [None] * len(files)
    opened: list[tuple[int, RecordSource]] = []
    records = _numbered(folder, files, sources, opened, longest)
    return RecordSource(str(folder), "record", records, lambda number: _place(opened, number), tuple(apart))


def _files(folder: Place) -> tuple[list[Place], list[tuple[Place, str]]]:
    """Files to read, and the others below a folder, each with why it is not read."""
    found = sorted(
        path
        for path in (_below(folder) if isinstance(folder, Path) else folder.files())
        if path.name not in _NO_DATA and not any(part.startswith(".") for part in _inside(path, folder).parts)
    )
    data, texts = [path for path in found if reader_of(path) is not None], [path for path in found if _is_text(path)]
    chosen = data or texts
    others = [(path, "is a text beside data, which tells about them") for path in texts if data]
    others += [(path, "its suffix is not known") for path in found if reader_of(path) is None and not _is_text(path)]
    if not chosen:
        raise DataError(
            f"{folder}: is a folder without data files; a data file, a folder of such, or one written by "
            "datasets.save_to_disk is expected. Check the path"
        )
    return chosen, others


def _below(folder: Path) -> Iterator[Path]:
    """Files below a folder, in linked folders too, each folder once; what airrep made there is no data."""
    seen: set[tuple[int, int]] = set()
    for here, inner, names in os.walk(folder, followlinks=True):
        place, status = Path(here), Path(here).stat()
        known = (status.st_dev, status.st_ino) in seen
        seen.add((status.st_dev, status.st_ino))
        if known or (place != folder and is_made(place)):
            inner.clear()
            continue
        yield from (place / name for name in names if (place / name).is_file())


def _inside(path: Place, folder: Place) -> PurePath:
    """A path as seen from the folder that it is in."""
    assert isinstance(path, Path) == isinstance(folder, Path)
    return path.relative_to(cast(Any, folder))


def _is_text(path: PurePath | RemoteData) -> bool:
    packed = path.suffix.lower() in (".gz", ".zst")
    return (path.with_suffix("") if packed else path).suffix.lower() in _TEXTS


def _of_split(folder: Place, files: list[Place], split: str | None) -> list[Place]:
    """Return the files of one split, if their names tell splits."""
    found = [_SPLIT.search(str(_bare(_inside(path, folder)))) for path in files]
    splits = [match[1].lower() for match in found if match is not None]
    all_tell = len(splits) == len(files)
    if split is None and (not all_tell or len(set(splits)) == 1):
        return files
    chosen = split or "train"
    if not all_tell or chosen not in splits:
        has = f"has the splits {', '.join(sorted(set(splits)))}" if all_tell else "its files' names tell no splits"
        raise DataError(f"{folder}: {has}; {chosen!r} is asked for. Choose one with split, or name a file")
    return [path for path, name in zip(files, splits, strict=True) if name == chosen]


def _bare(path: PurePath) -> PurePath:
    """Return a path without suffixes that tell its format."""
    while path.suffix.lower() in (".gz", ".zst") or reader_of(path) is not None or _is_text(path):
        path = path.with_suffix("")
    return path


def _name(path: PurePath) -> str:
    """Return what a file is called beside the numbers of shards."""
    bare = _bare(path)
    return (bare.parent / (_SHARD.sub("", bare.name) or bare.name)).as_posix()


def _numbered(
    folder: Place, files: list[Place], sources: list[str | None], opened: list[tuple[int, RecordSource]], longest: int
) -> Iterator[tuple[int, object]]:
    """Yield the records of all files, numbered through."""
    before = 0
    for file, named in zip(files, sources, strict=True):
        source = (open_text if _is_text(file) else open_file)(file, longest)
        opened.append((before, source))
        number = 0
        for number, record in source.records:
            if isinstance(record, Mapping):
                yield before + number, _described(record, _inside(file, folder), None if _is_text(file) else named)
            else:
                yield before + number, record
        before += number


def _described(record: Mapping[object, object], file: PurePath, named: str | None) -> Mapping[object, object]:
    """Return a record with its source; a text has its file as its id."""
    if _is_text(file):
        return {**record, "id": file.as_posix()}
    return record if named is None or record.get("source") is not None else {**record, "source": named}


def _place(opened: list[tuple[int, RecordSource]], number: int) -> str:
    """Return the file and the place in it of a record."""
    before, source = opened[bisect_right(opened, number - 1, key=lambda part: part[0]) - 1]
    return source.place(number - before)
