"""Where an artifact is written: its real path, and whether it may be replaced."""

import json
from os import PathLike
from pathlib import Path

from airrep.errors import ArtifactError
from airrep.runtime.artifacts.names import MANIFEST, PARTIAL
from airrep.runtime.artifacts.unfinished import tidy
from airrep.runtime.remote.folders import check_ours, manifest_at
from airrep.runtime.remote.places import made_at, path_of, published_from, shown, url_of


def real_path(out: str | PathLike[str]) -> Path:
    """Path that an artifact is written to: the target of a symbolic link, or the path itself.

    Of a URL the place where it is made on this machine; :func:`publish` sends it to the URL.
    """
    url = url_of(out)
    if url is not None:
        return made_at(url)
    if not str(out):
        raise ArtifactError("out: is an empty path; expected the name of a folder or file. Give one.")
    path = path_of(out)  # publishing renames directories, which would replace the link and leave its target
    path = path.resolve() if path.is_symlink() or not path.name else path
    if not path.name:
        raise ArtifactError(f"{path}: has no name of its own; expected a folder below it. Give another path.")
    if path.suffix == PARTIAL:
        raise ArtifactError(f"{path}: names that end in {PARTIAL} are those of unfinished work. Give another name.")
    return path


def is_free(out: Path) -> bool:
    """Whether nothing is there yet: at a path that is written to, or at the URL to which what it has is published."""
    url = published_from(out)
    return not out.exists() if url is None else manifest_at(url) is None


def check_free(out: Path, kind: str, *, replace: bool) -> None:
    """Check, before any work, that an artifact may be written.

    Raises:
        ArtifactError: *out* exists and *replace* is false, or it is not an artifact of that kind.
    """
    tidy(out)
    if not replace and not is_free(out):
        raise ArtifactError(
            f"{shown(str(out))}: exists already; nothing is overwritten. Give another path, or pass --replace."
        )
    check_replaceable(out, kind)


def check_replaceable(out: Path, kind: str) -> None:
    """Refuse to replace anything but an artifact of the same kind.

    Raises:
        ArtifactError: *out* is something else.
    """
    url, manifest = published_from(out), None
    if url is None and not out.exists():
        return
    if url is not None and MANIFEST not in check_ours(url):
        return
    try:
        manifest = json.loads((out / MANIFEST).read_bytes() if url is None else manifest_at(url) or b"")
    except ArtifactError:
        raise
    except (OSError, ValueError, RecursionError):
        pass
    where = url or out
    if not isinstance(manifest, dict) or "manifest_sha256" not in manifest:
        raise ArtifactError(f"{where}: was not written by airrep, so it is not replaced. Give another path.")
    if manifest.get("kind") != kind:
        raise ArtifactError(
            f"{where}: is of kind '{manifest.get('kind')}', not '{kind}', so it is not replaced. Give another path."
        )
