"""Reads folders on the Hugging Face Hub at one commit, and pushes folders.

``huggingface_hub`` does all requests and finds the user's token. Its error messages are not shown, because they may
contain a URL that was signed for this user.
"""

import hashlib
import os
import re
import shutil
import sys
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from glob import escape
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from airrep._version import __version__
from airrep.errors import AirRepError, ArtifactError, ConfigError
from airrep.runtime.publishing import file_digest, writing
from airrep.runtime.remote.places import is_hub, url_of
from airrep.runtime.remote.storage import Storage

if TYPE_CHECKING:
    from huggingface_hub import HfApi

AT_ONCE = 64
"""Most files in one commit; the Hub recommends at most about a hundred."""
CARD = "README.md"
LAST = "manifest.json"
_FORM = re.compile(
    r"hf://(?P<kind>models/|datasets/)?(?!models/|datasets/|spaces/|buckets/)"
    r"(?P<name>[\w-][\w.-]*/[\w-][\w.-]*)(?:@(?P<revision>[\w.-]+|refs/pr/\d+))?"
)
_WORD = re.compile(rf"(?P<before>|.*=)(?P<place>{_FORM.pattern})(?P<after>|[/#].*)", re.DOTALL)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_UNREAD = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.h5", "*.msgpack", "*.onnx", "*.ot", "*.gguf", ".*")
"""Files of models that are not downloaded: pickles, which can run any code, and other formats of the same weights."""
_OTHERS = re.compile(r"README\.md|\.gitattributes|(LICEN[CS]E|NOTICE)(\.\w+)?", re.IGNORECASE)
"""Files that a new repository may have before the first push."""
_LONGEST_REASON = 160


class HubPlace(NamedTuple):
    """A repository on the Hub, at a revision or (None) at its newest commit."""

    kind: Literal["model", "dataset"]
    name: str
    revision: str | None = None

    @classmethod
    def of(cls, url: str) -> Self:
        """Parse a URL such as ``hf://owner/name@revision`` (ConfigError: it has another form)."""
        found = _FORM.fullmatch(url)
        if found is None:
            raise ConfigError(
                f"{url}: is not a repository of the Hugging Face Hub. Write hf://owner/name or "
                "hf://datasets/owner/name, and add @revision if you want one."
            )
        return cls("dataset" if found["kind"] == "datasets/" else "model", found["name"], found["revision"])

    @property
    def url(self) -> str:
        """The repository's URL."""
        kind = "datasets/" if self.kind == "dataset" else ""
        return f"hf://{kind}{self.name}" + (f"@{self.revision}" if self.revision else "")

    @property
    def known(self) -> dict[str, Any]:
        """The repository as arguments for functions of huggingface_hub."""
        return {"repo_id": self.name, "repo_type": self.kind}


def pinned(place: str | PathLike[str]) -> str:
    """Return a place unchanged, or with its current commit if it is on the Hub, so that it names fixed files.

    ArtifactError: the Hub does not have the repository, or does not answer; ConfigError: it is not a repository.
    """
    url = url_of(place)
    if url is None or not is_hub(url):
        return os.fspath(place)
    found = HubPlace.of(url)
    fixed = _COMMIT.fullmatch(found.revision or "")
    return found.url if fixed else found._replace(revision=_snapshot(found, [LAST]).name).url


def pinned_in(word: str) -> str:
    """Return a word of a command line with the commit added to a Hub place in it (a folder, a file in it, or the value
    of a setting); other words unchanged. Errors as for :func:`pinned`."""
    found = _WORD.fullmatch(word)
    return word if found is None else found["before"] + pinned(found["place"]) + found["after"]


def _snapshot(place: HubPlace, wanted: Sequence[str] | None) -> Path:
    """Return the folder of a commit in huggingface_hub's cache, with the files that match *wanted*; None: all."""
    from huggingface_hub import snapshot_download

    with told(place), _bars(wanted is None or len(wanted) > 1):
        return Path(
            snapshot_download(
                **place.known,
                revision=place.revision,
                allow_patterns=None if wanted is None else list(wanted),
                ignore_patterns=list(_UNREAD) if wanted is None else None,
                library_name="airrep",
                library_version=__version__,
            )
        )


@contextmanager
def _bars(wanted: bool) -> Iterator[None]:
    """Show huggingface_hub's progress bars inside the block only if *wanted* and in a terminal."""
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    if are_progress_bars_disabled() or (wanted and sys.stderr.isatty()):
        yield
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # huggingface_hub warns if an environment variable forces them
        disable_progress_bars()
    try:
        yield
    finally:
        enable_progress_bars()


def hub_folder(url: str) -> Path:
    """Return a folder in huggingface_hub's cache with the files of a repository without a manifest, such as a model."""
    return _snapshot(HubPlace.of(url), None)


class HubStorage(Storage):
    """A repository on the Hub, read at one commit."""

    def __init__(self, url: str) -> None:
        """Parse the URL without any request (ConfigError: it is not a repository)."""
        self.url = url
        self._place = HubPlace.of(url)

    def exists(self) -> bool:
        """Return True; ArtifactError if the repository does not exist or cannot be read."""
        return bool(_snapshot(self._place, [LAST]))

    def below(self) -> dict[str, Mapping[str, Any]]:
        """Return the names of the repository's files; offline, of the files downloaded before."""
        from huggingface_hub.errors import OfflineModeIsEnabled

        with told(self._place):
            try:
                return {name: {} for name in _listed(_api(), self._place)}
            except OfflineModeIsEnabled:
                folder = _snapshot(self._place, [LAST])
        return {path.relative_to(folder).as_posix(): {} for path in folder.rglob("*") if path.is_file()}

    def read(self, name: str) -> bytes | None:
        """Return the bytes of a small file; None if it does not exist."""
        file = _snapshot(self._place, [escape(name)]) / name
        return file.read_bytes() if file.is_file() else None

    def get(self, names: Iterable[str], folder: Path) -> None:
        """Download files into a folder, several at once, as hard links into huggingface_hub's cache where possible."""
        wanted = list(names)
        if not wanted:
            return
        fetched = _snapshot(self._place, list(map(escape, wanted)))
        with writing(folder):
            for name in wanted:
                source, target = (fetched / name).resolve(), folder / name
                if not source.is_file():
                    raise ArtifactError(f"{self.url}/{name}: is missing. Push the folder again.")
                target.parent.mkdir(parents=True, exist_ok=True)
                target.unlink(missing_ok=True)
                try:
                    os.link(source, target)
                except OSError:  # another disk
                    shutil.copyfile(source, target)


def storage_of(url: str) -> Storage:
    """Return the storage behind a URL."""
    return HubStorage(url) if is_hub(url) else Storage(url)


def _api() -> "HfApi":
    from huggingface_hub import HfApi

    return HfApi(library_name="airrep", library_version=__version__)


def _listed(api: "HfApi", place: HubPlace) -> dict[str, Any]:
    """Return the Hub's entry for each file of a revision, by name."""
    tree = api.list_repo_tree(**place.known, revision=place.revision, recursive=True)
    return {entry.path: entry for entry in tree if hasattr(entry, "blob_id")}


class Pushed(NamedTuple):
    """Result of a push."""

    place: HubPlace
    """The repository at the commit that now holds the folder."""
    sent: int
    """Number of files uploaded; the others were already there."""
    private: bool
    kept_card: bool
    """True if the repository has a card that airrep did not write, which was kept."""


class Push(NamedTuple):
    """A complete folder to push."""

    files: Mapping[str, Path]
    """All files of the folder with its manifest, and the card, by their names in the repository."""
    kind: str
    known: Mapping[str, str]
    """sha256 of files, by name, as far as known."""
    mark: bytes
    """Text that only a card written by airrep contains."""

    def to(self, url: str, *, private: bool) -> Pushed:
        """Push the folder, with the manifest in the last commit; an interrupted push continues.

        A missing repository is created, private if *private*. ConfigError: the URL is not a repository, or has a
        revision. ArtifactError: the repository holds something else, may not be written, or the Hub does not answer.
        """
        place = HubPlace.of(url)
        if place.revision is not None:
            raise ConfigError(
                f"push {url}: a push makes a new revision, so the URL must not name one. Remove @ and what follows."
            )
        api = _api()
        with told(place, "written"), _bars(True):
            head, there, private = _opened(api, place, private)
            before = self._replaceable(place._replace(revision=head), there)
            mine = CARD not in there or self.mark in (HubStorage(f"{place.url}@{head}").read(CARD) or b"")
            names = [name for name in self.files if name != CARD or mine]
            wanted = [name for name in names if not self._is_there(name, there.get(name))]
            gone = sorted((before - {CARD}) & set(there) - set(self.files))
            commit = self._commit(api, place, head, wanted, gone, LAST in there) if wanted or gone else head
        return Pushed(place._replace(revision=commit), len(wanted), private, not mine)

    def _replaceable(self, place: HubPlace, there: Collection[str]) -> set[str]:
        """Return the files of the older version in the repository (ArtifactError: it holds something else)."""
        import json

        content, found = HubStorage(place.url).read(LAST) if LAST in there else None, None
        if content is not None:
            try:
                found = json.loads(content)
                if isinstance(found, dict) and "manifest_sha256" in found and found["kind"] == self.kind:
                    return {LAST, *found["files"]}
            except (ValueError, KeyError, TypeError):
                pass
        kind = found.get("kind") if isinstance(found, dict) else None
        others = [name for name in there if name not in self.files and not _OTHERS.fullmatch(name)]
        if content is None and not others:
            return set()
        what = f"holds a folder of kind '{kind}'" if content is not None else f"holds other files, such as {others[0]}"
        raise ArtifactError(
            f"{place._replace(revision=None).url}: {what}, and nothing is replaced. Give the name of a new "
            "repository; push creates it."
        )

    def _is_there(self, name: str, entry: Any) -> bool:
        if entry is None or entry.size != self.files[name].stat().st_size:
            return False
        if entry.lfs is not None:
            return bool(entry.lfs.sha256 == (self.known.get(name) or file_digest(self.files[name])))
        content = self.files[name].read_bytes()
        return bool(entry.blob_id == hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest())  # as git does

    def _commit(
        self, api: "HfApi", place: HubPlace, head: str, wanted: Sequence[str], gone: Sequence[str], whole: bool
    ) -> str:
        """Commit files in parts, with the manifest in the last; the first of several parts deletes an old manifest."""
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        late = [name for name in (CARD, LAST) if name in wanted]
        early = [name for name in wanted if name not in late]
        parts = [early[at : at + AT_ONCE] for at in range(0, len(early), AT_ONCE)] or [[]]
        for number, part in enumerate(parts, 1):
            last = number == len(parts)
            operations: list[Any] = [
                CommitOperationAdd(path_in_repo=name, path_or_fileobj=str(self.files[name]))
                for name in (*part, *(late if last else ()))
            ]
            if last:
                operations += [CommitOperationDelete(path_in_repo=name) for name in gone]
                if LAST not in late and len(parts) > 1 and whole:
                    operations.append(CommitOperationAdd(path_in_repo=LAST, path_or_fileobj=str(self.files[LAST])))
            elif number == 1 and whole:
                operations.append(CommitOperationDelete(path_in_repo=LAST))
            message = f"airrep push: {self.kind}" + (f", part {number} of {len(parts)}" if len(parts) > 1 else "")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about Arrow files outside a data set, and the card's metadata
                made = api.create_commit(
                    **place.known, operations=operations, commit_message=message, parent_commit=head
                )
            head = str(made.oid)
        return head


def _opened(api: "HfApi", place: HubPlace, private: bool) -> tuple[str, dict[str, Any], bool]:
    """Return commit and files of a repository, created if missing, and True if it is private."""
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    try:
        found = api.repo_info(**place.known)
    except GatedRepoError:
        raise
    except RepositoryNotFoundError:
        api.create_repo(**place.known, private=private)
        found = api.repo_info(**place.known)
    head = str(found.sha)
    return head, _listed(api, place._replace(revision=head)), bool(found.private)


@contextmanager
def told(place: HubPlace, doing: Literal["read", "written"] = "read") -> Iterator[None]:
    """Turn any error of huggingface_hub into a one-line ArtifactError without the original message."""
    from huggingface_hub import errors

    where = f"{place.url}: cannot be {doing}"
    try:
        yield
    except AirRepError:
        raise
    except errors.RevisionNotFoundError as error:
        raise ArtifactError(
            f"{where}: the repository has no revision {place.revision!r} (any more). Give another revision, or none."
        ) from error
    except Exception as error:  # also from the HTTP library and the disk
        raise ArtifactError(f"{where}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """Return what went wrong with the Hub and what to do, for an error message."""
    from huggingface_hub import errors

    if isinstance(error, RuntimeError) and isinstance(error.__cause__, Exception):  # one of several uploads failed
        error = error.__cause__
    status = getattr(getattr(error, "response", None), "status_code", None)
    chain = (error, error.__cause__, error.__context__)
    if any(isinstance(one, errors.OfflineModeIsEnabled) for one in chain):
        return (
            "HF_HUB_OFFLINE is set, and some files are not on this machine. Unset HF_HUB_OFFLINE, or download the "
            "files first."
        )
    if isinstance(error, errors.GatedRepoError) or status == 403:
        return (
            "you do not have permission on the Hub. Ask the owner for it, or log in with a token that has it: hf "
            "auth login"
        )
    if isinstance(error, errors.RepositoryNotFoundError) or status == 401:
        return "the Hub has no such repository, or does not show it to you. Check the name, or log in: hf auth login"
    if status == 412:
        return "someone else changed the repository meanwhile. Run the same command again: it continues from there."
    if isinstance(error, OSError) and error.errno is not None and error.filename is not None:
        return f"{error.strerror} ({error.filename}). Correct that on this machine, then run the same command again."
    if status is not None:
        said = " ".join((getattr(error, "server_message", None) or "").split())[:_LONGEST_REASON].rstrip(".")
        return f"the Hub answers {status}{f' ({said})' if said else ''}. Run the same command again: it goes on."
    return (
        f"the Hub does not answer ({type(error).__name__}). Check the network (HF_ENDPOINT, proxies), then run the "
        "same command again: it goes on."
    )
