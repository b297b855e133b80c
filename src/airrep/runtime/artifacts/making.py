"""Make artifacts: hold their places, fill unfinished directories, seal, name, send and fetch them."""

import json
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import Any

from airrep.errors import ArtifactError
from airrep.runtime.artifacts.manifests import (
    HISTORY,
    LOCK,
    MANIFEST,
    PARTIAL,
    REQUEST,
    SWAPPED,
    canonical_json,
    partial_path,
    read_manifest,
    seal,
)
from airrep.runtime.publishing import give_name, remove_leftovers, temporary_folder, writing
from airrep.runtime.remote.hub import pinned
from airrep.runtime.remote.outputs import (
    check_ours,
    fetch_listed,
    fetch_whole,
    is_taken,
    manifest_at,
    publish_folder,
    take_over,
)
from airrep.runtime.remote.places import made_at, path_of, published_from, shown, url_of

FINISH_FIRST = "Finish that one with its own command, delete the directory, or pass --replace."


@contextmanager
def new_artifact(
    out: Path, kind: str, content: Mapping[str, Any], *, replace: bool = False, keep: Collection[str] = ()
) -> Iterator[Path]:
    """Write a small artifact at once: yields the empty directory to fill, then seals and publishes it.

    The manifest has the *content* and the files, but none named in *keep*, which stay from before. ArtifactError:
    *out*, or a long stage's unfinished work, exists and *replace* is false; or it cannot be written.
    """
    out = real_path(out)
    check_free(out, kind, replace=replace)
    partial = make_partial(out)
    with locked(partial), writing(out):
        begun = partial / REQUEST  # hours of another command's work may lie there
        if not replace and begun.exists() and begun.read_bytes() != canonical_json(content.get("request")):
            raise ArtifactError(f"{partial}: holds the unfinished work of another command. {FINISH_FIRST}")
        clear(partial, keep)
        yield partial
        seal(partial, kind, content, without=keep)
        publish(partial, out, kind)


def publish(partial: Path, out: Path, kind: str) -> None:
    """Give a finished directory its name, in place of an older one of the same kind if there is any.

    At every moment either of them stands under the name, whole. ArtifactError: what is there is not an artifact of that
    kind, or the operating system refused.
    """
    check_replaceable(out, kind)
    with writing(out):
        if out.exists():
            (partial / SWAPPED).touch()
        if give_name(partial, out):
            _discard_old(out)
    send(out)


@contextmanager
def locked(
    folder: Path,
    name: str = LOCK,
    busy: str = "another process is writing there. Wait until it has finished.",
    patience: float = 0.0,
) -> Iterator[None]:
    """Hold a lock file of a directory; the system frees it when the process ends, however it ends.

    ArtifactError: another process holds it for *patience* seconds, told by *busy*; or nothing may be written there.
    """
    from filelock import FileLock, Timeout  # here: it loads asyncio, and most commands lock nothing

    lock = FileLock(folder / name, timeout=patience)
    with writing(folder):
        _refuse_link(folder / name)
        try:
            lock.acquire()
        except Timeout as error:
            raise ArtifactError(f"{folder}: {busy}") from error
    try:
        yield
    finally:
        lock.release()


def _refuse_link(path: Path) -> None:
    """Refuse a symbolic link where airrep makes its own files and directories (ArtifactError)."""
    if path.is_symlink():  # to what another user may have chosen
        raise ArtifactError(
            f"{path}: is a symbolic link, which airrep did not make. Remove it, or choose another --out."
        )


def make_partial(out: Path) -> Path:
    """Make, or find, the directory in which *out* is being built.

    ArtifactError: a directory of that name is there that airrep did not make, or it cannot be made.
    """
    partial = partial_path(out)
    tidy(out)
    with writing(out):
        _refuse_link(partial)
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
    if out.parent.is_dir():
        remove_leftovers(out.parent)
        with suppress(OSError):
            _discard_old(out)


def _discard_old(out: Path) -> None:
    """Remove the older version that lies where its successor was built, if one does."""
    partial = partial_path(out)
    if not (out / SWAPPED).exists():
        return
    with suppress(ArtifactError):  # where another process has begun anew: it empties the directory itself
        if partial.is_dir() and not partial.is_symlink():
            with locked(partial), temporary_folder(partial.parent) as own:  # at once it is gone from its name
                partial.rename(own / partial.name)
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


def fetched(path: str | PathLike[str], *, loose: bool = False) -> Path:
    """Path at which an artifact is read: the path itself; of a URL the copy of what is there now, checked.

    *loose* takes what is at a URL though it has no manifest: a model, or unfinished labels. ArtifactError: at the URL
    is nothing, half of an artifact or an altered one, or its storage does not answer.
    """
    url = url_of(path)
    if url is None:
        return path_of(path)
    try:
        url = pinned(url)
        copy = fetch_whole(url, lambda folder: read_manifest(folder)["files"], HISTORY)
        if copy is None and loose:
            copy = fetch_listed(url)
    except ArtifactError as error:
        raise ArtifactError(shown(str(error))) from error
    if copy is not None:
        return copy
    if not is_taken(url):
        raise ArtifactError(f"{url}: does not exist; expected what airrep published there. Check the URL.")
    raise ArtifactError(
        f"{url}: has no {MANIFEST}, so it is unfinished, or an upload to it did not end. "
        "Run the command that was making it again."
    )


def bring(out: Path) -> bool:
    """Have at a path what is at the URL to which it is published; whether something is there.

    ArtifactError: it is altered, or the storage does not give it.
    """
    url = published_from(out)
    if url is None or manifest_at(url) is None:
        return False
    copy = fetched(url)
    if not out.exists() or (out / MANIFEST).read_bytes() != (copy / MANIFEST).read_bytes():
        take_over(copy, out)
    return True


def send(out: Path) -> None:
    """Publish a finished artifact to the URL that its path stands for, if any (ArtifactError: it is not taken)."""
    url = published_from(out)
    if url is None:
        return
    try:
        publish_folder(out, url, list(read_manifest(out)["files"]))
    except ArtifactError as error:
        raise ArtifactError(
            f"{shown(str(error))} What was made is kept on this machine: the same command sends it."
        ) from error
