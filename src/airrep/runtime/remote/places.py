"""Places that users name: paths, or URLs of a storage.

A URL such as ``s3://bucket/index`` stays one when a command line turns it into a path, which drops a slash.
"""

import errno
import hashlib
import os
import re
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Self

from airrep.errors import ConfigError, escaped

CACHE = "AIRREP_CACHE"
"""Environment variable: the folder of what can be made or fetched again."""
SHOWN = 60
"""Characters that an error shows of what is too long for a path."""
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.*)", re.DOTALL)

_shown: dict[str, str] = {}
"""Paths that stand for URLs in this process, and the URLs."""


@dataclass(frozen=True)
class Anchored:
    """A path that stays that of the same files when the working directory changes."""

    given: Path = field(compare=False)
    whole: Path

    @classmethod
    def of(cls, path: Path) -> Self:
        """The path of what is there now."""
        return cls(path, path.absolute())

    @property
    def path(self) -> Path:
        """The path as it was given, where that still leads there; the whole one elsewhere."""
        try:
            return self.given if self.given.absolute() == self.whole else self.whole
        except FileNotFoundError:  # the working directory was removed
            return self.whole


def url_of(place: str | PathLike[str]) -> str | None:
    """The URL that a place is; None for a path, also where it is written as ``file://``.

    ConfigError: it is none, or goes up by ``..``, which is a name to some storages and would lead out of the cache.
    """
    match = _URL.fullmatch(_text_of(place))
    if match is None or match[1].lower() == "file":
        return None
    url = f"{match[1].lower()}://{match[2].rstrip('/')}"
    if ".." in url.split("/"):
        raise ConfigError(f"{url}: must not contain '..'. Write the full URL.")
    if (text := os.fspath(place)) != url:
        _shown[text] = url
    return url


def path_of(place: str | PathLike[str]) -> Path:
    """The path that a place is, which is no URL of a storage.

    ConfigError: it is none, is longer than any path, or holds what no path can.
    """
    match = _URL.fullmatch(_text_of(place))
    path = Path(place) if match is None else Path("/" + match[2])
    if match is not None and match[1].lower() == "file":
        stand_for(Path(place), f"file://{path}")
    try:
        path.lstat()
    except ValueError as error:
        raise ConfigError(f"{escaped(str(place))!r}: is not a valid path ({error}). Give another path.") from error
    except OSError as error:  # of any other kind, whoever reads or writes it says more
        if error.errno == errno.ENAMETOOLONG:
            raise ConfigError(
                f"{str(place)[:SHOWN]}…: is too long for a path. Give the name of a file or folder."
            ) from error
    return path


def _text_of(place: Any) -> str:
    if not isinstance(place, str | PathLike):
        raise ConfigError(f"path: is of type {type(place).__name__}, but must be text or a Path.")
    return os.fspath(place)


def here_only(place: str | PathLike[str], what: str) -> Path:
    """The path of something that is kept on this machine alone (ConfigError: it is a URL)."""
    if (url := url_of(place)) is not None:
        raise ConfigError(
            f"{url}: is a URL, but {what} only in a local folder. Give a local path, and copy the folder to the URL "
            "later."
        )
    return path_of(place)


def cache() -> Path:
    """The folder of what can be made or fetched again: AIRREP_CACHE, or ``airrep`` in the user's cache."""
    own, base = os.environ.get(CACHE), os.environ.get("XDG_CACHE_HOME")
    return Path(own) if own else (Path(base) if base else Path.home() / ".cache") / "airrep"


def made_at(url: str) -> Path:
    """The path at which this machine makes what is then published to a URL (ConfigError: it is on the Hub)."""
    not_on_hub(url)
    made = cache() / "made" / hashlib.sha256(url.encode()).hexdigest()[:16] / name_of(url)
    stand_for(made, url)
    return made


def stand_for(path: Path, url: str) -> None:
    """Show a URL wherever a path that stands for it would be shown."""
    _shown[str(path)] = url


def published_from(path: Path) -> str | None:
    """The URL to which what is made at a path is published; None for the path of a user."""
    url = _shown.get(str(path))
    return url if url is not None and made_at(url) == path else None


def name_of(url: str) -> str:
    """The last part of a URL, as the name of a folder; without the revision of a repository of the Hub."""
    return (url.partition("@")[0] if is_hub(url) else url).rpartition("/")[2] or "root"


def is_hub(url: str) -> bool:
    """True if a URL is that of the Hugging Face Hub."""
    return url.startswith("hf://")


def not_on_hub(url: str) -> str:
    """The URL of a storage (ConfigError: it is on the Hub, where nothing is written bit by bit)."""
    if is_hub(url):
        raise ConfigError(
            f"{url}: airrep cannot write directly to the Hugging Face Hub. Give a local path as --out, then run: "
            f"airrep push PATH {url}"
        )
    return url


def shown(text: str) -> str:
    """A text with URLs in place of the paths that stand for them in this process."""
    for path, url in _shown.items():
        text = text.replace(path, url)
    return text
