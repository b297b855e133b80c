"""An artifact's target: its path, the artifact it replaces, its unfinished directory."""

import json
import shutil
from collections.abc import Collection
from contextlib import suppress
from os import PathLike
from pathlib import Path

from airrep.errors import ArtifactError
from airrep.runtime.artifacts.locks import locked, refuse_link
from airrep.runtime.artifacts.names import LOCK, MANIFEST, PARTIAL, SWAPPED, partial_path
from airrep.runtime.publishing.files import remove_leftovers, writing
from airrep.runtime.publishing.folders import discard
from airrep.runtime.remote.folders import check_ours, manifest_at
from airrep.runtime.remote.places import made_at, path_of, published_from, shown, url_of

FINISH_FIRST = "Finish that one with its own command, delete the directory, or pass --replace."


def make_partial(out: Path) -> Path:
    """Make, or find, the directory in which *out* is being built.

    ArtifactError: a directory of that name is there that airrep did not make, or it cannot be made.
    """
    partial = partial_path(out)
    tidy(out)
    with writing(out):
        refuse_link(partial)
        partial.mkdir(parents=True, exist_ok=True)
        # Every directory that airrep began has its lock file.
        if any(partial.iterdir()) and not (partial / LOCK).exists():
            raise ArtifactError(
                f"{partial}: was not written by airrep, but is in the way. Move it, or choose another --out."
            )
    return partial


def clear(folder: Path, keep: Collection[str] = ()) -> None:
    """Empty a folder that is held by :func:`locked`, but for its lock and what is to be kept."""
    for child in folder.iterdir():
        if child.name in keep:
            continue
        if child.is_dir() and not child.is_symlink():
            shutil.rmtree(child)
        elif child.name != LOCK:
            child.unlink()


def tidy(out: Path) -> None:
    """Remove what a killed writer of *out* left beside it, as far as that is allowed; unfinished work stays."""
    if not out.parent.is_dir():
        return
    remove_leftovers(out.parent)
    with suppress(OSError):
        discard_old(out)


def discard_old(out: Path) -> None:
    """Remove the older version that lies where its successor was built, if one does."""
    partial = partial_path(out)
    if not (out / SWAPPED).exists():
        return
    with suppress(ArtifactError):  # where another process has begun anew: it empties the directory itself
        if partial.is_dir() and not partial.is_symlink():
            with locked(partial):
                discard(partial)
    (out / SWAPPED).unlink(missing_ok=True)


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
    """True if nothing is there yet, at the path or at the URL where it is published."""
    url = published_from(out)
    return not out.exists() if url is None else manifest_at(url) is None


def check_free(out: Path, kind: str, *, replace: bool) -> None:
    """Check, before any work, that an artifact may be written.

    ArtifactError: *out* exists and *replace* is false, or it is not an artifact of that kind.
    """
    tidy(out)
    if not replace and not is_free(out):
        raise ArtifactError(
            f"{shown(str(out))}: exists already; nothing is overwritten. Give another path, or pass --replace."
        )
    check_replaceable(out, kind)


def check_replaceable(out: Path, kind: str) -> None:
    """Refuse to replace anything but an artifact of the same kind (ArtifactError: *out* is something else)."""
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
