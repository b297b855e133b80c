"""Long stages: find a finished artifact, or make it, resuming interrupted work."""

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airrep.errors import ArtifactError
from airrep.runtime.artifacts import (
    FINISH_FIRST,
    REQUEST,
    bring,
    canonical_json,
    check_digests,
    check_replaceable,
    clear,
    locked,
    make_partial,
    publish,
    read_manifest,
    real_path,
    send,
    tidy,
)
from airrep.runtime.publishing import remove_leftovers, write_file, writing
from airrep.runtime.remote.places import shown

MOST_LISTED = 3
"""Most items of a list that an error shows."""


@dataclass(frozen=True)
class Stage:
    """A long stage that makes one artifact for one request.

    Run ``if stage.finished() is None: with stage.making() as folder: ...``, where the body fills the folder and seals
    it last. After an interruption at any moment, the same lines resume the work.
    """

    out: str | Path
    kind: str
    made: str
    """Noun and participle for error messages, such as ``"an index made"``."""
    request: Mapping[str, Any]
    """Everything that determines the artifact, as JSON values; the manifest has it under ``request``."""
    replace: bool = False
    """Replace another artifact of the kind, and unfinished work for another request."""
    holds_work: Callable[[Path], bool] | None = None
    """Returns True if an unfinished directory has work worth keeping; None: every run starts over."""
    other: str = ""
    """Description of another request's unfinished work in errors; empty: :attr:`made` and the first difference."""
    ignoring: Collection[str] = ()
    """Parts of the request that do not affect unfinished work."""
    keep: Collection[str] = ()
    """Names of files and folders that stay when another request's unfinished work is cleared."""
    shown: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict
    """Function that renames the parts of a request for error messages."""

    @property
    def path(self) -> Path:
        """Path of the artifact, finished or not."""
        return real_path(self.out)

    def finished(self, *, verify: bool = False) -> dict[str, Any] | None:
        """Return the manifest of the finished artifact for the request; None if the artifact is not made yet.

        *verify* checks every byte. ArtifactError: the path holds something else, an artifact for another request, or
        an altered artifact.
        """
        tidy(self.path)
        there = not self.replace and bring(self.path)
        check_replaceable(self.path, self.kind)
        if self.replace or not self.path.exists():
            return None
        manifest = read_manifest(self.path, self.kind)
        refuse_difference(self.path, self.made, self.shown(manifest["request"]), self.shown(self.request))
        if verify:
            check_digests(self.path, manifest["files"])
        if not there:
            send(self.path)  # an interrupted run may have made it without uploading it
        return manifest

    @contextmanager
    def making(self) -> Iterator[Path]:
        """Yield the locked directory in which to make the artifact, and publish it after the body has sealed it.

        ArtifactError: as for :meth:`resuming`, or the path holds something else.
        """
        check_replaceable(self.path, self.kind)
        with self.resuming() as partial:
            yield partial
            read_manifest(partial, self.kind)  # an unsealed directory must not get the name
            publish(partial, self.path, self.kind)

    @contextmanager
    def resuming(self) -> Iterator[Path]:
        """Yield the locked directory ``OUT.partial``, with the work of an interrupted run for the same request.

        ArtifactError: another process works there, it holds another request's work, or it cannot be written.
        """
        partial = make_partial(self.path)
        with locked(partial):
            remove_leftovers(partial)
            if self.holds_work is None:
                with writing(self.path):
                    clear(partial)
            else:
                self._claim(partial, self.holds_work)
            yield partial

    def _claim(self, partial: Path, holds_work: Callable[[Path], bool]) -> None:
        content, begun = canonical_json(self.request), partial / REQUEST
        old, new = {}, json.loads(content)  # both from JSON, which has no tuples
        if begun.is_file():
            with suppress(ValueError):  # a damaged request equals no request
                found = json.loads(begun.read_bytes())
                old = found if isinstance(found, dict) else {}
        if begun.is_file() and self._deciding(old) != self._deciding(new):
            if holds_work(partial) and not self.replace:
                if self.other:
                    raise ArtifactError(f"{partial}: holds {self.other}. {FINISH_FIRST}")
                refuse_difference(partial, self.made, old, new, FINISH_FIRST)
            clear(partial, self.keep)
        write_file(begun, content)

    def _deciding(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in request.items() if name not in self.ignoring}


def refuse_difference(
    where: Path,
    made: str,
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    instead: str = "Give another path, or pass --replace.",
) -> None:
    """Raise ArtifactError if the old request at *where* differs from the new one; the message names the difference.

    *made* says what is at *where*, as in :attr:`Stage.made`, and *instead* what to do.
    """
    was, now = dict(_leaves(old)), dict(_leaves(new))
    name = next((name for name in {**now, **was} if was.get(name) != now.get(name)), None)
    if name is not None:
        raise ArtifactError(
            f"{shown(str(where))}: holds {made} with another {name} "
            f"(was {_short(was.get(name))}, now {_short(now.get(name))}); nothing is overwritten. {instead}"
        )


def _leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _short(value: object) -> str:
    if isinstance(value, list | tuple) and value:
        return ", ".join([*map(_short, value[:MOST_LISTED]), *(["…"] if len(value) > MOST_LISTED else [])])
    text = str(value)
    return text if len(text) < 40 else text[:12]
