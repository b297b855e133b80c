"""The storage behind a URL, and its errors in one line.

fsspec reaches it; how, is set as its own documentation says: ``AWS_ENDPOINT_URL``, ``AWS_PROFILE``, ``FSSPEC_S3_…``.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from airrep.errors import AirRepError, ArtifactError, ConfigError, DataError, need

_REFUSED = ("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "UnauthorizedSSOTokenError")
_NO_BUCKET = "bucket does not exist"
"""What S3 says where not only a file is missing."""
_LONGEST_REASON = 160


class Storage:
    """The file system of a URL, and the path in it."""

    def __init__(self, url: str) -> None:
        """Nothing is asked yet.

        Raises:
            MissingExtraError: without fsspec, or the package that fsspec takes for S3.
            ConfigError: a storage that fsspec does not know, or for which it lacks a package.
        """
        self.url = url
        scheme = url.partition(":")[0]
        need(url, "remote", "fsspec.core")
        from fsspec.core import url_to_fs  # here, since most users name no URL

        try:
            # What others write must be seen.
            self.files, self.path = url_to_fs(url, use_listings_cache=False)
        except ImportError as error:
            if scheme in ("s3", "s3a"):
                need(url, "remote", "s3fs")
            raise ConfigError(f"{url}: {_line(error)}. Install that package beside airrep.") from error
        except ValueError as error:
            raise ConfigError(
                f"{url}: {_line(error)}; expected a path, or a URL of a storage such as s3://. Correct it."
            ) from error

    def at(self, name: str) -> str:
        """The path of a file below the URL."""
        return f"{self.path.rstrip('/')}/{name}"

    def below(self) -> dict[str, Mapping[str, Any]]:
        """Files below the URL, by their names from there; what the storage says of each."""
        start = self.path.rstrip("/") + "/"
        found: Mapping[str, Mapping[str, Any]] = self.files.find(self.path, detail=True)
        names = {_slashed(path, start).removeprefix(start): entry for path, entry in found.items()}
        return {name: names[name] for name in sorted(names) if is_inside(name)}

    def read(self, name: str) -> bytes | None:
        """Bytes of a small file below the URL; None if it is not there.

        Raises:
            ArtifactError: it cannot be read.
        """
        with telling(f"{self.url}/{name}"):
            try:
                return bytes(self.files.cat_file(self.at(name)))
            except FileNotFoundError as error:
                if _NO_BUCKET in str(error):
                    raise
                return None


def is_inside(name: str) -> bool:
    """Whether a name stays in its folder wherever that is."""
    return bool(name) and not name.startswith("/") and "\0" not in name and ".." not in name.split("/")


def _slashed(path: str, start: str) -> str:
    return "/" + path if start.startswith("/") and not path.startswith("/") else path


@contextmanager
def telling(
    url: str, doing: Literal["read", "written"] = "read", kind: type[ArtifactError] | type[DataError] = ArtifactError
) -> Iterator[None]:
    """Turn whatever a storage says into a one-line error.

    Args:
        url: what it is asked for.
        doing: what is done there.
        kind: class of the error.
    """
    try:
        yield
    except AirRepError:
        raise
    except FileNotFoundError as error:
        missing = "there is no such bucket" if _NO_BUCKET in str(error) else "it is not there"
        raise kind(f"{url}: cannot be {doing}: {missing}. Check the bucket and the path.") from error
    except Exception as error:  # each storage has errors of its own
        if isinstance(error, PermissionError) or type(error).__name__ in _REFUSED:
            raise kind(
                f"{url}: cannot be {doing}: no permission ({_line(error)}). Check the rights there, and the "
                "credentials that this process has (of S3: AWS_PROFILE, or AWS_ACCESS_KEY_ID with its secret)."
            ) from error
        raise kind(
            f"{url}: cannot be {doing}: {_line(error)}. Check the address and the network (of S3: AWS_ENDPOINT_URL), "
            "then run the same command again."
        ) from error


def _line(error: BaseException) -> str:
    """An error as part of a line."""
    text = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    return text if len(text) <= _LONGEST_REASON else text[:_LONGEST_REASON] + "…"
