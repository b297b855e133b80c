"""The storage behind a URL: files, streams of data, one-line errors.

fsspec accesses it, configured as in fsspec's documentation: ``AWS_ENDPOINT_URL``, ``AWS_PROFILE``, ``FSSPEC_S3_…``.
"""

import errno
import io
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal

from airrep.errors import AirRepError, ArtifactError, ConfigError, DataError, need
from airrep.runtime.publishing import writing

_REFUSED = ("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "UnauthorizedSSOTokenError")
_NO_BUCKET = "bucket does not exist"
"""Part of S3's message if the bucket itself is missing."""
_FULL = (errno.ENOSPC, errno.EDQUOT)
_LONGEST_REASON = 160
_READ_SIZE = 1 << 20
_BLOCK = 1 << 23
"""Bytes of one request while a file is streamed."""


class Storage:
    """The file system of a URL, and the path in it. Failed reads and writes raise ArtifactError."""

    def __init__(self, url: str) -> None:
        """Make no request yet (MissingExtraError: fsspec is not installed; ConfigError: it does not know the URL)."""
        self.url = url
        scheme = url.partition(":")[0]
        need(url, "remote", "fsspec.core")
        from fsspec.core import url_to_fs  # here, since most users name no URL

        try:
            # No cached listings: files that other processes write must be seen.
            self.files, self.path = url_to_fs(url, use_listings_cache=False)
        except ImportError as error:
            if scheme in ("s3", "s3a"):
                need(url, "remote", "s3fs")
            raise ConfigError(f"{url}: {_line(error)}. Install that package where airrep is installed.") from error
        except ValueError as error:
            raise ConfigError(
                f"{url}: {_line(error)}. Give a path, or the URL of a storage, such as s3://BUCKET/PATH."
            ) from error

    def at(self, name: str) -> str:
        """Return the path of a file below the URL."""
        return f"{self.path.rstrip('/')}/{name}"

    def exists(self) -> bool:
        """Return True if a file or folder exists at the URL."""
        with telling(self.url):
            return bool(self.files.exists(self.path))

    def below(self) -> dict[str, Mapping[str, Any]]:
        """Return the storage's entry for each file below the URL, by its name relative to the URL."""
        start = self.path.strip("/") + "/"  # some storages begin paths with a slash
        with telling(self.url):
            found: Mapping[str, Mapping[str, Any]] = self.files.find(self.path, detail=True)
        names = {path.lstrip("/").removeprefix(start): entry for path, entry in found.items()}
        return {name: names[name] for name in sorted(names) if is_inside(name)}

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a small file below the URL; None if it does not exist."""
        with telling(f"{self.url}/{name}"):
            try:
                return bytes(self.files.cat_file(self.at(name)))
            except FileNotFoundError as error:
                if _NO_BUCKET in str(error):
                    raise
                return None

    def get(self, names: Iterable[str], folder: Path) -> None:
        """Fetch files below the URL into a folder, several at once."""
        wanted = list(names)
        with writing(folder), telling(self.url):
            if wanted:
                self.files.get([self.at(name) for name in wanted], [str(folder / name) for name in wanted])

    def put(self, folder: Path, names: Iterable[str]) -> None:
        """Upload files of a folder below the URL, several at once."""
        wanted = list(names)
        with telling(self.url, "written"):
            self._make_folders(wanted)
            if wanted:
                self.files.put([str(folder / name) for name in wanted], [self.at(name) for name in wanted])

    def write(self, name: str, content: bytes) -> None:
        """Upload one small file below the URL."""
        with telling(f"{self.url}/{name}", "written"):
            self._make_folders([name])
            self.files.pipe_file(self.at(name), content)

    def remove(self, names: Iterable[str]) -> None:
        """Remove files below the URL."""
        for name in names:
            with telling(f"{self.url}/{name}", "written"):
                self.files.rm_file(self.at(name))

    def _make_folders(self, names: Iterable[str]) -> None:
        """Make the parent folders of files, except on S3, which has no folders and might create a bucket."""
        if not hasattr(self.files, "call_s3"):
            for folder in {self.at(name).rpartition("/")[0] for name in names}:
                self.files.makedirs(folder, exist_ok=True)


class RemoteData:
    """A file or folder at a URL with the methods of paths that readers use; nothing is stored on disk."""

    def __init__(self, url: str) -> None:
        """Make no request yet; errors as for :class:`Storage`."""
        self._url = url
        self._storage = Storage(url)
        self._place = PurePosixPath(self._storage.path)
        self.name, self.suffix = self._place.name, self._place.suffix

    def __str__(self) -> str:
        return self._url

    def __lt__(self, other: "RemoteData") -> bool:
        return self._url < other._url

    def __truediv__(self, name: str) -> "RemoteData":
        return RemoteData(f"{self._url}/{name}")

    def with_suffix(self, suffix: str) -> PurePosixPath:
        """Return the path with another suffix, for its name only."""
        return self._place.with_suffix(suffix)

    def relative_to(self, folder: "RemoteData") -> PurePosixPath:
        """Return the path relative to a folder."""
        return self._place.relative_to(folder._place)

    def exists(self) -> bool:
        """Return True if a file or folder exists at the URL (DataError: the storage does not answer)."""
        with telling(self._url, kind=DataError):
            return bool(self._storage.files.exists(self._storage.path))

    def is_dir(self) -> bool:
        """Return True if the URL is a folder; errors as for :meth:`exists`."""
        with telling(self._url, kind=DataError):
            return bool(self._storage.files.isdir(self._storage.path))

    def files(self) -> list["RemoteData"]:
        """Return all files below the URL; errors as for :meth:`exists`."""
        with telling(self._url, kind=DataError):
            return [RemoteData(f"{self._url}/{name}") for name in self._storage.below()]

    def open(self) -> IO[bytes]:
        """Open a file as a stream of bytes; DataError, now or during reading, if the storage fails."""
        with telling(self._url, kind=DataError):
            stream = self._storage.files.open(self._storage.path, "rb", block_size=_BLOCK)
        return io.BufferedReader(_Told(stream, self._url), _READ_SIZE)


class _Told(io.RawIOBase):
    """A stream whose errors become one-line DataErrors."""

    def __init__(self, stream: Any, url: str) -> None:
        self._stream, self._url = stream, url

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with telling(self._url, kind=DataError):
            found = self._stream.read(len(buffer))
        buffer[: len(found)] = found
        return len(found)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        with telling(self._url, kind=DataError):
            return int(self._stream.seek(offset, whence))

    def tell(self) -> int:
        return int(self._stream.tell())

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()


def is_inside(name: str) -> bool:
    """Return True if a relative name stays inside its folder."""
    return bool(name) and not name.startswith("/") and "\0" not in name and ".." not in name.split("/")


@contextmanager
def telling(
    url: str, doing: Literal["read", "written"] = "read", kind: type[ArtifactError] | type[DataError] = ArtifactError
) -> Iterator[None]:
    """Turn any error of a storage into a one-line error; a full local disk is left to the code that writes there."""
    try:
        yield
    except AirRepError:
        raise
    except FileNotFoundError as error:
        missing = "there is no such bucket" if _NO_BUCKET in str(error) else "it does not exist"
        raise kind(f"{url}: cannot be {doing}: {missing}. Check the bucket and the path.") from error
    except Exception as error:  # each storage has errors of its own
        if doing == "read" and isinstance(error, OSError) and error.errno in _FULL:
            raise
        if isinstance(error, PermissionError) or type(error).__name__ in _REFUSED:
            raise kind(
                f"{url}: cannot be {doing}: no permission ({_line(error)}). Check your permissions there, and the "
                "credentials of this process (for S3: AWS_PROFILE, or AWS_ACCESS_KEY_ID with its secret)."
            ) from error
        raise kind(
            f"{url}: cannot be {doing}: {_line(error)}. Check the address and the network (for S3: AWS_ENDPOINT_URL), "
            "then run the same command again."
        ) from error


def _line(error: BaseException) -> str:
    text = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    return text if len(text) <= _LONGEST_REASON else text[:_LONGEST_REASON] + "…"
