"""Files of a label directory: the request, finished fine-tunes, and the seal.

``results/<settings>-<key>.npy`` holds the losses ``(q,)`` of one task, float32, as a ``.npy`` file with 32 more
bytes at its end: the sha256 of the file's name and everything before. ``settings`` is 8 hex digits over the LM and
the fine-tuning settings, ``key`` 16 over the texts and the seed as well.

``quarantine/<settings>-<key>.json`` holds the reason why a task was given up. ``request.json`` decides whether runs
may be joined or resumed.
"""

import hashlib
import io
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from airrep.corpus.schemas.conversations import RENDERING
from airrep.errors import AirRepError, ArtifactError
from airrep.labels.plan import LabelTask, Place, SubsetPlan, npy_bytes, open_plan
from airrep.runtime.artifacts import (
    LOCK,
    MANIFEST,
    REQUEST,
    canonical_json,
    describe_files,
    json_digest,
    locked,
    read_manifest,
    versions,
    write_manifest,
)
from airrep.runtime.engine import Share
from airrep.runtime.publishing import new_place, remove_leftovers, write_file, writing
from airrep.runtime.stage import refuse_difference
from airrep.shapes import Float32

KIND = "labels"
GROWING = ("instances", "subsets", "removals", "seeds")
"""Settings that may grow from one run to the next: finished tasks keep their keys and losses."""
RESULTS, QUARANTINE = "results", "quarantine"
SETTINGS_DIGITS = 8
_CHECKSUM_BYTES = hashlib.sha256().digest_size
_PATIENCE_SECONDS = 600.0

QueryLosses = Float32[np.ndarray, " q"]
"""Losses of an instance's queries after one fine-tune."""
Read: TypeAlias = Callable[[LabelTask], QueryLosses | None]
"""Function that reads the losses of a task; None if the task has none."""


@dataclass(frozen=True)
class Quarantined:
    """A fine-tune that was given up."""

    place: Place
    reason: str
    """The last error, in one line."""
    attempts: int


class Ledger:
    """Files of finished tasks and of tasks that were given up, in a label directory; *settings* are 8 hex digits."""

    def __init__(self, folder: Path, settings: str) -> None:
        self.folder, self._settings = folder, settings

    def _result(self, key: str) -> Path:
        return self.folder / RESULTS / f"{self._settings}-{key}.npy"

    def _reason(self, key: str) -> Path:
        return self.folder / QUARANTINE / f"{self._settings}-{key}.json"

    def read(self, key: str, queries: int) -> QueryLosses | None:
        """Read the losses of one task; None if there is no complete file."""
        path = self._result(key)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        array, checksum = content[:-_CHECKSUM_BYTES], content[-_CHECKSUM_BYTES:]
        if _checksum(path, array) != checksum:  # cut in a copy, say: the task is simply done again
            return None
        losses: np.ndarray = np.load(io.BytesIO(array), allow_pickle=False)
        return losses if losses.shape == (queries,) and losses.dtype == np.float32 else None

    def write(self, key: str, losses: QueryLosses) -> Path:
        """Write the losses of one task, and return the file; a reader sees the whole file or none."""
        content, path = npy_bytes(losses), self._result(key)
        _write(path, content + _checksum(path, content))
        with writing(self._reason(key)):
            self._reason(key).unlink(missing_ok=True)
        return path

    def quarantined(self, task: LabelTask) -> Quarantined | None:
        """Read why a task was given up; None if it was not."""
        try:
            record = json.loads(self._reason(task.key).read_bytes())
            return Quarantined(task.place, str(record["reason"]), int(record["attempts"]))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
            return Quarantined(task.place, "unknown: the file with the reason was altered", 0)

    def given_up(self, tasks: Iterable[LabelTask]) -> list[Quarantined]:
        """List the given tasks that failed too often and were given up."""
        return [found for task in tasks if (found := self.quarantined(task)) is not None]

    def give_up(self, task: LabelTask, reason: str, attempts: int) -> Path:
        """Write why a task is given up, and return the file."""
        record = {**asdict(task.place), "key": task.key, "reason": reason, "attempts": attempts}
        _write(self._reason(task.key), canonical_json(record))
        return self._reason(task.key)

    def check_settings(self) -> None:
        """Refuse results of other settings, which somebody copied here."""
        for name in (RESULTS, QUARANTINE):
            with suppress(FileNotFoundError):  # another part may have sealed the labels and removed it
                for path in sorted((self.folder / name).iterdir()):
                    if not path.name.startswith((".", f"{self._settings}-")):
                        raise ArtifactError(
                            f"{path}: comes from fine-tunes of a different LM or with different settings (in this "
                            f"folder, file names begin with {self._settings}). Move the file to its own folder."
                        )

    def sweep(self) -> None:
        """Remove what interrupted writes left behind."""
        for folder in (self.folder, self.folder / RESULTS, self.folder / QUARANTINE):
            remove_leftovers(folder)

    def forget(self, keys: Iterable[str]) -> None:
        """Remove the files of tasks whose losses are kept elsewhere."""
        for key in keys:
            self._result(key).unlink(missing_ok=True)
            self._reason(key).unlink(missing_ok=True)
        self.sweep()
        for name in (RESULTS, QUARANTINE):
            with suppress(OSError):  # results of other tasks are still there
                (self.folder / name).rmdir()


def _write(path: Path, content: bytes) -> None:
    with writing(path):
        path.parent.mkdir(exist_ok=True)
    write_file(path, content)


def _checksum(path: Path, content: bytes) -> bytes:
    return hashlib.sha256(path.name.encode() + b"\0" + content).digest()


@contextmanager
def holding(folder: Path, part: Share) -> Iterator[None]:
    """Hold the right to write one part of a label directory."""
    busy = (
        f"another process is making these labels (part {part}). "
        "Wait until it has finished, or give each process its own --part."
    )
    with ExitStack() as held:
        with waiting_lock(
            folder
        ):  # the check takes other parts' locks, which a process that starts now would take for work
            held.enter_context(locked(folder, f"{LOCK}-{part.name}", busy))
            _refuse_other_shares(folder, part)
        yield


def _refuse_other_shares(folder: Path, part: Share) -> None:
    """Refuse another number of parts than running processes use, since tasks would then be done twice."""
    for path in folder.glob(f"{LOCK}-*of*"):
        of = path.name.rpartition("of")[2]
        busy = (
            f"another process is making these labels in {of} parts, not {part.of}. "
            f"Wait until it has finished, or work in {of} parts here too (--part)."
        )
        if of != str(part.of):
            with locked(folder, path.name, busy):
                pass  # nobody holds it


@contextmanager
def waiting_lock(folder: Path) -> Iterator[None]:
    """Hold the lock over what all parts share, waiting ten minutes for the others."""
    with locked(folder, busy="another process is finishing it. Wait until that has ended.", patience=_PATIENCE_SECONDS):
        yield


@dataclass(frozen=True)
class LabelRequest:
    """A request for labels, with the tasks that it consists of.

    Not a :class:`~airrep.runtime.stage.Stage`: a label directory is filled in place, by several processes at once, and
    sealed by whichever finishes last, so there is no unfinished directory for one of them to hold and rename.
    """

    decisive: Mapping[str, Any]
    """LM, fine-tuning, corpora and sampling, which may not change in a directory."""
    counts: Mapping[str, int]
    """Values of :data:`GROWING`."""
    plan: SubsetPlan
    tasks: Sequence[LabelTask]

    @property
    def settings(self) -> str:
        """8 hex digits over the LM and how it is fine-tuned, the first part of the names of results."""
        return json_digest(training_part(self.decisive))[:SETTINGS_DIGITS]

    @property
    def state(self) -> dict[str, Any]:
        """Content of ``request.json``, and of the manifest without the results."""
        return {
            **self.decisive,
            "counts": dict(self.counts),
            "plan": self.plan.fingerprint,
            "settings": self.settings,
            "plan_folder": f"plan-{self.plan.fingerprint[:12]}",
            "keys": keys_name(self._keys()),
        }

    def _keys(self) -> list[str]:
        return [task.key for task in self.tasks]

    def check(self, folder: Path) -> None:
        """Refuse a directory that holds other labels, more labels, or something else (ArtifactError); write nothing."""
        sealed = read_manifest(folder, KIND) if (folder / MANIFEST).is_file() else {}
        old = read_state(folder)
        if not sealed and old is None and any(not path.name.startswith(".") for path in folder.iterdir()):
            raise ArtifactError(
                f"{folder}: holds other files, so no labels (measured losses) are written there. Give another path."
            )
        if old is not None:
            before, now = _comparable({name: old.get(name) for name in self.decisive}, self.decisive)
            instead = "Give another path, or the settings and data that these labels were made with."
            refuse_difference(folder, "labels made", before, now, instead)
        for name, count in sealed.get("counts", {}).items():
            if self.counts.get(name, 0) < count:
                raise ArtifactError(
                    f"{folder}: holds finished labels (measured losses) with {name}={count}, but now {name} is "
                    f"{self.counts.get(name)}. Give another path, or {name}={count} or more."
                )

    def claim(self, folder: Path) -> None:
        """Begin these labels in a directory, or resume them; errors are those of :meth:`check`."""
        self.check(folder)
        _write_once(folder / REQUEST, canonical_json(self.state))
        self.keep(folder)

    def keep(self, folder: Path) -> None:
        """Write the subsets and the keys, so that the labels can be read without the plan's directory."""
        state = self.state
        _keep_plan(self.plan, folder / state["plan_folder"])
        _write_once(folder / state["keys"], npy_bytes(np.array(self._keys(), dtype="S16")))


def keys_name(keys: Sequence[str]) -> str:
    return f"keys-{json_digest(keys)[:12]}.npy"


def _comparable(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the parts of two requests that must be equal: the LM's fingerprint, for example, but not its name."""
    # The fingerprint covers reading settings too; they come first, so that the error names them and not the weights.
    was, now = (dict(each["lm"]) if isinstance(each["lm"], Mapping) else {} for each in (old, new))
    known = ("name", "fingerprint")
    reading = [name for name in now if name in was and name not in known] if was.get("name") == now.get("name") else []
    for lm, each in ((was, old), (now, new)):
        yield {**{f"lm.{name}": lm[name] for name in reading}, **each, "lm": lm.get("fingerprint")}


def training_part(state: Mapping[str, Any]) -> dict[str, Any]:
    """LM, precision and fine-tuning, which decide losses for every subset and query."""
    decisive = {name: state[name] for name in ("precision", "fine_tune", RENDERING) if name in state}
    return {"lm": state["lm"]["fingerprint"], **decisive}


def read_state(folder: Path) -> dict[str, Any] | None:
    """Read ``request.json``; None without one (ArtifactError: it was altered)."""
    path = folder / REQUEST
    try:
        state: dict[str, Any] = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except NotADirectoryError as error:
        raise ArtifactError(f"{folder}: is a file. Give the folder that `airrep label` wrote.") from error
    except (ValueError, OSError, RecursionError) as error:
        raise ArtifactError(
            f"{path}: cannot be read as JSON ({type(error).__name__}). Restore the file from a copy."
        ) from error
    if not isinstance(state, dict) or state.get("kind") != KIND:
        raise ArtifactError(
            f"{path}: does not describe labels (measured losses). Give a folder that `airrep label` wrote."
        )
    return state


def is_label_file(name: str) -> bool:
    """True if a file below a label directory is a part of the labels, which a mirror copies."""
    first, inside, _ = name.partition("/")
    if any(part.startswith(".") for part in name.split("/")):
        return False
    if inside:
        return first in (RESULTS, QUARANTINE) or first.startswith("plan-")
    return name in (MANIFEST, REQUEST) or fnmatch(name, "*-*.npy") or fnmatch(name, "times*.jsonl")


def _write_once(path: Path, content: bytes) -> None:
    if not path.is_file() or path.read_bytes() != content:
        write_file(path, content)


def _keep_plan(plan: SubsetPlan, target: Path) -> None:
    """Copy the subsets, unless a whole copy is there."""
    if _holds_plan(target, plan):
        return
    with new_place(target) as copy:
        copy.mkdir()
        for path in sorted(plan.path.iterdir()):
            if not path.name.startswith("."):
                shutil.copyfile(path, copy / path.name)
        if not _holds_plan(copy, plan):
            raise ArtifactError(f"{plan.path}: was altered since it was opened. Restore it, or run `airrep sample`.")


def _holds_plan(folder: Path, plan: SubsetPlan) -> bool:
    try:
        return folder.is_dir() and open_plan(folder).fingerprint == plan.fingerprint
    except (AirRepError, OSError, ValueError, KeyError, TypeError):
        return False  # a damaged copy fails in any of these ways; it is made anew


def seal_labels(ledger: Ledger, request: LabelRequest, read: Read, given_up: Sequence[Quarantined]) -> None:
    """Write the losses of every instance as arrays, then the manifest, which makes the directory finished.

    Arrays are named by their content, so that an older manifest's arrays stay whole until it is replaced. Result files,
    and files that no manifest names, are removed last. Losses of tasks that were given up are NaN.
    """
    folder, state = ledger.folder, request.state
    request.keep(folder)
    arrays = [_write_instance(folder, request, number, read) for number in range(len(request.plan))]
    names = [name for entry in arrays for name in entry.values()]
    plan_files = sorted(f"{state['plan_folder']}/{path.name}" for path in (folder / state["plan_folder"]).iterdir())
    content = {
        **state,
        "arrays": arrays,
        "tasks": len(request.tasks),
        "quarantined": [asdict(entry) for entry in given_up],
        "packages": versions("torch", "transformers", "numpy"),
        "files": describe_files(folder, [*sorted(names), state["keys"], *plan_files]),
    }
    write_manifest(folder, KIND, content)
    tidy(ledger, request, given_up)


def losses_of(
    tasks: Iterable[LabelTask], number: int, shape: tuple[int, int, int], read: Read
) -> tuple[Float32[np.ndarray, "s q m"], QueryLosses]:
    """Return one instance's losses, and ``(q,)`` before any fine-tune; NaN where they are missing."""
    losses, base = np.full(shape, np.nan, np.float32), np.full(shape[1], np.nan, np.float32)
    for task in tasks:
        if task.place.instance != number or (found := read(task)) is None:
            continue
        if task.place.subset is None:
            base = found
        else:
            losses[task.place.seed, :, task.place.subset] = found
    return losses, base


def _write_instance(folder: Path, request: LabelRequest, number: int, read: Read) -> dict[str, str]:
    shape = request.counts["seeds"], len(request.plan.query_rows(number)), request.plan.subset_count
    losses, base = losses_of(request.tasks, number, shape, read)
    return {
        "losses": _write_array(folder, f"losses-{number}", losses),
        "base": _write_array(folder, f"base-{number}", base),
    }


def _write_array(folder: Path, stem: str, array: np.ndarray) -> str:
    content = npy_bytes(array)
    name = f"{stem}-{hashlib.sha256(content).hexdigest()[:12]}.npy"
    write_file(folder / name, content)
    return name


def tidy(ledger: Ledger, request: LabelRequest, given_up: Sequence[Quarantined]) -> None:
    """Remove files that a new manifest makes superfluous: results, and the arrays and plans of an older manifest."""
    kept = {entry.place for entry in given_up}
    ledger.forget(task.key for task in request.tasks if task.place not in kept)
    wanted = read_state(ledger.folder) or {}  # its files stay: another process may be adding labels
    named = {name.split("/")[0] for name in read_manifest(ledger.folder, KIND)["files"]}
    named |= {wanted.get("keys"), wanted.get("plan_folder")}
    for pattern in ("losses-*.npy", "base-*.npy", "keys-*.npy", "plan-*"):
        for path in ledger.folder.glob(pattern):
            if path.is_dir() and path.name not in named:
                shutil.rmtree(path)
            elif path.name not in named:
                path.unlink(missing_ok=True)
