"""Artifacts at URLs: fetched, brought to a path, sent."""

from os import PathLike
from pathlib import Path

from airrep.errors import ArtifactError
from airrep.runtime.artifacts.manifests import read_manifest
from airrep.runtime.artifacts.names import HISTORY, MANIFEST
from airrep.runtime.remote.folders import fetch_listed, fetch_whole, manifest_at, publish_folder, take_over
from airrep.runtime.remote.outputs import is_taken
from airrep.runtime.remote.places import path_of, published_from, shown, url_of


def fetched(path: str | PathLike[str], *, loose: bool = False) -> Path:
    """Path at which an artifact is read: the path itself; of a URL the copy of what is there now, checked.

    Args:
        path: path or URL.
        loose: take what is at a URL though it has no manifest: a model, or unfinished labels.

    Raises:
        ArtifactError: at the URL is nothing, half of an artifact or an altered one, or its storage does not answer.
    """
    url = url_of(path)
    if url is None:
        return path_of(path)
    try:
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
    """Publish a finished artifact to the URL that its path stands for, if it stands for one.

    ArtifactError: the storage does not take it.
    """
    url = published_from(out)
    if url is None:
        return
    try:
        publish_folder(out, url, list(read_manifest(out)["files"]))
    except ArtifactError as error:
        raise ArtifactError(
            f"{shown(str(error))} What was made is kept on this machine: the same command sends it."
        ) from error
