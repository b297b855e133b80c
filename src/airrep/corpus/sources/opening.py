"""The source that a path or a name stands for."""

import re
from os import PathLike
from pathlib import Path

from airrep.corpus.sources.files import LONGEST_LINE, open_file, open_input, reader_of
from airrep.corpus.sources.folders import open_folder
from airrep.corpus.sources.source import RecordSource
from airrep.corpus.sources.tables import LANCE, SAVED, is_saved, open_hub, open_lance, open_saved
from airrep.errors import ConfigError, DataError, escaped, near_path
from airrep.runtime.artifacts.making import fetched
from airrep.runtime.artifacts.manifests import is_made
from airrep.runtime.remote.places import path_of, url_of
from airrep.runtime.remote.storage import RemoteData

LONGEST_NAME = 80
"""Characters of the name of no file that an error shows."""


def open_source(
    path: str | PathLike[str], split: str | None = None, config: str | None = None, longest: int = LONGEST_LINE
) -> RecordSource:
    """Return the records of a file, a folder of files, one saved by ``datasets`` or Lance, or a dataset of the Hub.

    A line, or a record of a text file that spans lines, has at most *longest* MiB.

    A damaged file raises its DataError while its records are read, not here.
    """
    if (url := url_of(path)) is not None:
        return _open_url(RemoteData(url), split, config, longest)
    place, name = path_of(path), str(path)
    if name == "-":
        return open_input(longest)
    if not name.strip():
        raise DataError(
            "data: the name is empty; a file, a folder or a Hub id is expected. Check the variable it is of"
        )
    if not _exists(place):
        if _may_be_hub_id(name):
            return open_hub(name, config, split)
        shown = escaped(name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…")
        raise DataError(f"{shown}: no such file or folder; a data file is expected. {_instead(place, name)}")
    if config is not None:
        raise ConfigError(
            f"{name}: config={config!r} is given for what is on disk; only datasets of the Hub have configs. "
            "Leave it out"
        )
    if place.is_dir() and is_made(place):
        raise DataError(
            f"{name}: is a directory that airrep made of data, and no data; a data file is expected. Give that which "
            "it was made of"
        )
    is_lance = (place / LANCE).is_dir()
    if place.is_dir() and not is_lance:
        return open_saved(place, split) if is_saved(place) else open_folder(place, split, longest)
    if split is not None:
        what = "Lance" if is_lance else "a file"
        raise ConfigError(f"{name}: split={split!r} is given for {what}; only datasets have splits. Leave it out")
    return open_lance(place) if is_lance else open_file(place, longest)


def _instead(place: Path, name: str) -> str:
    """Suggest an input in place of a missing file: one of a similar name, or a text passed as text."""
    is_text = reader_of(place) is None and (" " in name or "/" not in name)
    typed = "; a text is given as --prompt and --response, or in Python as Example(prompt, response)" if is_text else ""
    return near_path(place, f"Check the path{typed}")


def _open_url(place: RemoteData, split: str | None, config: str | None, longest: int) -> RecordSource:
    """Return the records of what is at a URL, read as they come; a dataset saved there is fetched first."""
    if config is not None:
        raise ConfigError(f"{place}: config={config!r} is given; only datasets of the Hub have configs. Leave it out")
    if place.is_dir():
        if split is None and (place / LANCE).exists():
            return open_lance(fetched(str(place), loose=True))
        if not any((place / name).exists() for name in SAVED):
            return open_folder(place, split, longest)
        return open_saved(fetched(str(place), loose=True), split)
    if not place.exists():
        raise DataError(f"{place}: there is no such file or folder; a data file is expected. Check the URL")
    if split is not None:
        raise ConfigError(f"{place}: split={split!r} is given for a file; only datasets have splits. Leave it out")
    return open_file(place, longest)


def _may_be_hub_id(name: str) -> bool:
    """Tell "org/name" from a path that is merely missing: a data file's, or inside a folder that is there."""
    # A missing file in a folder that is there was mistyped: nobody wants the Hub to be asked for it.
    if re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", name) is None:
        return False
    return reader_of(Path(name)) is None and not Path(name).parent.exists()


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:  # a name that is too long, a folder that may not be entered
        raise DataError(
            f"{str(path)[:100]}: cannot be looked for: {error.strerror}; the path of a data file is expected. Check it"
        ) from error
