"""Finished fine-tunes of a label directory, one small file each.

``results/<settings>-<key>.npy`` holds the losses ``(q,)`` of one task, float32, as a ``.npy`` file with 32 more
bytes at its end: the sha256 of the file's name and everything before. ``settings`` is 8 hex digits over the LM and
the fine-tuning settings, ``key`` 16 over the texts and the seed as well.

``quarantine/<settings>-<key>.json`` holds the reason why a task was given up.
"""

import hashlib
import io
import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from airrep.errors import ArtifactError
from airrep.labels.plan import LabelTask, Place, npy_bytes
from airrep.runtime.artifacts.digests import canonical_json
from airrep.runtime.artifacts.making import locked
from airrep.runtime.artifacts.manifests import LOCK
from airrep.runtime.engine import Share
from airrep.runtime.publishing import remove_leftovers, write_file, writing
from airrep.shapes import Float32

RESULTS = "results"
QUARANTINE = "quarantine"
SETTINGS_DIGITS = 8
_CHECKSUM_BYTES = hashlib.sha256().digest_size
_PATIENCE_SECONDS = 600.0

QueryLosses = Float32[np.ndarray, " q"]
"""Losses of an instance's queries after one fine-tune."""


@dataclass(frozen=True)
class Quarantined:
    """A fine-tune that was given up."""

    place: Place
    reason: str
    """One line."""
    attempts: int
    """Number of attempts."""


class Ledger:
    """Files of finished tasks and of tasks that were given up."""

    def __init__(self, folder: Path, settings: str, part: Share | None = None) -> None:
        """Open a label directory; *settings* are 8 hex digits, *part* is needed for writing alone."""
        self.folder = folder
        self.settings = settings
        self._part = part or Share()

    def result_path(self, key: str) -> Path:
        """Path of a task's losses."""
        return self.folder / RESULTS / f"{self.settings}-{key}.npy"

    def quarantine_path(self, key: str) -> Path:
        """Path of the reason why a task was given up."""
        return self.folder / QUARANTINE / f"{self.settings}-{key}.json"

    def read(self, key: str, queries: int) -> QueryLosses | None:
        """Read the losses of one task; None without a whole file of them."""
        path = self.result_path(key)
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
        """Write the losses of one task: a reader sees all of the file or none. Returns the file."""
        content, path = npy_bytes(losses), self.result_path(key)
        self._write(path, content + _checksum(path, content))
        with writing(self.quarantine_path(key)):
            self.quarantine_path(key).unlink(missing_ok=True)
        return path

    def _write(self, path: Path, content: bytes) -> None:
        with writing(path):
            path.parent.mkdir(exist_ok=True)
        write_file(path, content)

    def quarantined(self, task: LabelTask) -> Quarantined | None:
        """Read why a task was given up; None if it was not."""
        path = self.quarantine_path(task.key)
        try:
            record = json.loads(path.read_bytes())
            return Quarantined(task.place, str(record["reason"]), int(record["attempts"]))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
            return Quarantined(task.place, "unknown: the file that says it was altered", 0)

    def given_up(self, tasks: Iterable[LabelTask]) -> list[Quarantined]:
        """List the given tasks that failed too often and were given up."""
        return [found for task in tasks if (found := self.quarantined(task)) is not None]

    def give_up(self, task: LabelTask, reason: str, attempts: int) -> Path:
        """Write why a task is given up. Returns the file."""
        record = {**asdict(task.place), "key": task.key, "reason": reason, "attempts": attempts}
        self._write(self.quarantine_path(task.key), canonical_json(record))
        return self.quarantine_path(task.key)

    def check_settings(self) -> None:
        """Refuse results of other settings, which were copied here."""
        for path in self._files():
            if not path.name.startswith((".", f"{self.settings}-")):
                raise ArtifactError(
                    f"{path}: was made with another LM or other fine-tuning settings; expected {self.settings}-… "
                    "as this directory's. Move it to the directory that it belongs to."
                )

    def sweep(self) -> None:
        """Remove what interrupted writes left behind."""
        for folder in (self.folder, self.folder / RESULTS, self.folder / QUARANTINE):
            remove_leftovers(folder)

    def forget(self, keys: Iterable[str]) -> None:
        """Remove the files of tasks whose losses are kept elsewhere."""
        for key in keys:
            self.result_path(key).unlink(missing_ok=True)
            self.quarantine_path(key).unlink(missing_ok=True)
        self.sweep()
        for name in (RESULTS, QUARANTINE):
            with suppress(OSError):  # others' results are still there
                (self.folder / name).rmdir()

    def _files(self) -> Iterator[Path]:
        for name in (RESULTS, QUARANTINE):
            with suppress(FileNotFoundError):  # another part may have sealed the labels and removed it
                yield from sorted((self.folder / name).iterdir())


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
        with waiting_lock(folder):  # while one looks for others, another would find a lock that nobody works under
            held.enter_context(locked(folder, f"{LOCK}-{part.name}", busy))
            _refuse_other_shares(folder, part)
        yield


def _refuse_other_shares(folder: Path, part: Share) -> None:
    """Refuse 3 parts while others work in 10: both would do the same tasks."""
    for path in folder.glob(f"{LOCK}-*of*"):
        of = path.name.rpartition("of")[2]
        busy = (
            f"another process is making these labels in {of} parts, not {part.of}. "
            "Wait until it has finished, or share the work in the same number of parts."
        )
        if of != str(part.of):
            with locked(folder, path.name, busy):
                pass  # nobody holds it


@contextmanager
def waiting_lock(folder: Path) -> Iterator[None]:
    """Hold the lock over what all parts share, waiting ten minutes for the others."""
    with locked(folder, busy="another process is sealing it. Wait until it has finished.", patience=_PATIENCE_SECONDS):
        yield
