"""Data at a URL, with what readers use of paths."""

import io
from pathlib import PurePosixPath
from typing import IO, Any

from airrep.errors import DataError
from airrep.runtime.remote.storage import Storage, telling

_READ_SIZE = 1 << 20
_BLOCK = 1 << 23
"""Bytes that are asked for at once."""


class RemoteData:
    """A file or a folder at a URL, read as it comes; nothing of it is kept on the disk."""

    def __init__(self, url: str, storage: Storage | None = None) -> None:
        """Nothing is asked yet; errors as of :class:`Storage`."""
        self._url = url
        self._storage = storage or Storage(url)
        self._place = PurePosixPath(self._storage.path)

    def __str__(self) -> str:
        return self._url

    def __lt__(self, other: "RemoteData") -> bool:
        return self._url < other._url

    @property
    def name(self) -> str:
        """Last part of the URL."""
        return self._place.name

    @property
    def suffix(self) -> str:
        """End of the name, from its last dot on."""
        return self._place.suffix

    def __truediv__(self, name: str) -> "RemoteData":
        return RemoteData(f"{self._url}/{name}")

    def with_suffix(self, suffix: str) -> PurePosixPath:
        """The path with another end, as a name."""
        return self._place.with_suffix(suffix)

    def relative_to(self, folder: "RemoteData") -> PurePosixPath:
        """The path as seen from a folder."""
        return self._place.relative_to(folder._place)

    def exists(self) -> bool:
        """Whether there is a file, or a file below it (DataError where that cannot be known)."""
        with telling(self._url, kind=DataError):
            return bool(self._storage.files.exists(self._storage.path))

    def is_dir(self) -> bool:
        """Whether files are below it; errors as of :meth:`exists`."""
        with telling(self._url, kind=DataError):
            return bool(self._storage.files.isdir(self._storage.path))

    def files(self) -> list["RemoteData"]:
        """All files below it; errors as of :meth:`exists`."""
        with telling(self._url, kind=DataError):
            return [RemoteData(f"{self._url}/{name}") for name in self._storage.below()]

    def open(self) -> IO[bytes]:
        """The bytes of a file, as a stream.

        Raises:
            DataError: now or while it is read, if the storage does not give them.
        """
        with telling(self._url, kind=DataError):
            stream = self._storage.files.open(self._storage.path, "rb", block_size=_BLOCK)
        return io.BufferedReader(_Told(stream, self._url), _READ_SIZE)


class _Told(io.RawIOBase):
    """A stream whose errors are told in one line."""

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
