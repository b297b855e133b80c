"""Make an artifact: fill an unfinished directory, seal it, give it its name."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from airrep.errors import ArtifactError
from airrep.runtime.artifacts.digests import canonical_json
from airrep.runtime.artifacts.locks import locked
from airrep.runtime.artifacts.manifests import seal
from airrep.runtime.artifacts.names import REQUEST, SWAPPED
from airrep.runtime.artifacts.targets import (
    FINISH_FIRST,
    check_free,
    check_replaceable,
    clear,
    discard_old,
    make_partial,
    real_path,
)
from airrep.runtime.artifacts.urls import send
from airrep.runtime.publishing.files import writing
from airrep.runtime.publishing.folders import give_name


@contextmanager
def new_artifact(
    out: Path, kind: str, content: Mapping[str, Any], *, replace: bool = False, keep: Collection[str] = ()
) -> Iterator[Path]:
    """Write a small artifact at once: yields the empty directory to fill, then seals and publishes it.

    Args:
        out: path of the artifact.
        kind: kind of artifact.
        content: values of its manifest, without the files.
        replace: replace an artifact that is there.
        keep: names of files and folders that stay in the directory, left out of the manifest.

    Raises:
        ArtifactError: *out*, or a long stage's unfinished work, exists and *replace* is false; or it cannot be
            written.
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

    At every moment either of them stands under the name, whole.

    Raises:
        ArtifactError: what is there is not an artifact of that kind, or the operating system refused.
    """
    check_replaceable(out, kind)
    with writing(out):
        if out.exists():
            (partial / SWAPPED).touch()
        if give_name(partial, out):
            discard_old(out)
    send(out)
