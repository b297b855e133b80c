"""Places that users give: local paths, or URLs of a storage.

A URL such as ``s3://bucket/index`` is still recognised after a conversion to a Path, which drops a slash.
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
"""Environment variable with the cache folder, whose content can be made or fetched again."""
SHOWN = 60
"""Characters that an error shows of a text that is too long for a path."""
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.*)", re.DOTALL)

_shown: dict[str, str] = {}
"""Local paths that stand for URLs in this process, with the URLs."""


@dataclass(frozen=True)
class Anchored:
    """A path that still names the same files after the working directory changed."""

    given: Path = field(compare=False)
    whole: Path

    @classmethod
    def of(cls, path: Path) -> Self:
        """Anchor a path in the current working directory."""
        return cls(path, path.absolute())

    @property
    def path(self) -> Path:
        """The path as given if it still names the same files; otherwise the absolute path."""
        try:
            return self.given if self.given.absolute() == self.whole else self.whole
        except FileNotFoundError:  # the working directory was removed
            return self.whole


def url_of(place: str | PathLike[str]) -> str | None:
    """Return a place as a URL; None for a local path, also in the form ``file://``.

    ConfigError: the place is neither text nor a path, or contains ``..``, which could lead out of the cache.
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
    """Return a place, which is not the URL of a storage, as a local path.

    ConfigError: the place is neither text nor a path, is too long, or has characters that no path may have.
    """
    match = _URL.fullmatch(_text_of(place))
    path = Path(place) if match is None else Path("/" + match[2])
    if match is not None and match[1].lower() == "file":
        stand_for(Path(place), f"file://{path}")
    try:
        path.lstat()
    except ValueError as error:
        raise ConfigError(f"{escaped(str(place))!r}: is not a valid path ({error}). Give another path.") from error
    except OSError as error:  # other errors are reported when the path is read or written
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
    """Return the path of something that can only be kept on this machine (ConfigError: it is a URL)."""
    if (url := url_of(place)) is not None:
        raise ConfigError(
            f"{url}: is a URL, but {what} only in a local folder. Give a local path, and copy the folder to the URL "
            "later."
        )
    return path_of(place)


def cache() -> Path:
    """Return the cache folder: AIRREP_CACHE, or ``airrep`` in the user's cache folder."""
    own, base = os.environ.get(CACHE), os.environ.get("XDG_CACHE_HOME")
    return Path(own) if own else (Path(base) if base else Path.home() / ".cache") / "airrep"


def made_at(url: str) -> Path:
    """Return the local path where a folder is made before its upload to a URL (ConfigError: it is on the Hub)."""
    not_on_hub(url)
    made = cache() / "made" / hashlib.sha256(url.encode()).hexdigest()[:16] / name_of(url)
    stand_for(made, url)
    return made


def stand_for(path: Path, url: str) -> None:
    """Let :func:`shown` replace a path by the URL that it stands for."""
    _shown[str(path)] = url


def published_from(path: Path) -> str | None:
    """Return the URL that the folder made at a path is uploaded to; None for a user's own path."""
    url = _shown.get(str(path))
    return url if url is not None and made_at(url) == path else None


def name_of(url: str) -> str:
    """Return the last part of a URL as a folder name, without the revision of a Hub repository."""
    return (url.partition("@")[0] if is_hub(url) else url).rpartition("/")[2] or "root"


def is_hub(url: str) -> bool:
    """Return True if a URL is on the Hugging Face Hub."""
    return url.startswith("hf://")


def not_on_hub(url: str) -> str:
    """Return the URL unchanged (ConfigError: it is on the Hub, which takes only complete pushes)."""
    if is_hub(url):
        raise ConfigError(
            f"{url}: airrep cannot write directly to the Hugging Face Hub. Give a local path as --out, then run: "
            f"airrep push PATH {url}"
        )
    return url


def shown(text: str) -> str:
    """Return a text in which each path that stands for a URL is replaced by the URL."""
    for path, url in _shown.items():
        text = text.replace(path, url)
    return text
