"""Real runs below a folder, the newest of each kind."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from airrep.errors import AirRepError, ConfigError
from airrep.labels.labels import holds_labels
from airrep.labels.request import REQUEST
from airrep.planning.plan_checks import RealRun, real_run
from airrep.planning.wish import Wish
from airrep.runtime.artifacts import MANIFEST

DEPTH, MOST = 4, 5000
"""How deep below a folder runs are looked for, and in how many folders at most."""


def runs_against(wish: Wish, given: Sequence[Path]) -> list[RealRun]:
    """Real runs to compare a plan with: those given, and the newest ones of folders that are given.

    Raises:
        ConfigError: a run that is not planned for or whose cost is not known, or a folder without any that could serve.
        ArtifactError: there is no such run, or it was altered.
    """
    found: list[RealRun] = []
    for path in given:
        if not path.is_dir() or (path / MANIFEST).exists() or holds_labels(path):
            found.append(real_run(wish, path))
            continue
        below = list(last_runs(wish, path).values())
        if not below:
            raise ConfigError(
                f"{path}: no index, labels or encoder below it is planned for and has a known cost. Name a run."
            )
        found.extend(below)
    return found


def last_runs(wish: Wish, folder: Path) -> dict[Path, RealRun]:
    """The newest run of each planned method, of labels and of training below a folder, by path.

    Indexes and labels of another LM or encoder, and runs that cannot be compared, are passed over.
    """
    newest: dict[str, tuple[Path, RealRun]] = {}
    for path in sorted(_runs(folder), key=_written, reverse=True):
        try:
            run = real_run(wish, path)
        except AirRepError:
            continue
        if run.same_model:
            newest.setdefault(run.subject, (path, run))
    return dict(newest[subject] for subject in sorted(newest))


def _runs(folder: Path) -> Iterator[Path]:
    """What airrep wrote, finished, and labels in the making; hidden folders and links are not entered."""
    for looked, (name, folders, files) in enumerate(os.walk(folder)):
        path = Path(name)
        if MANIFEST in files or REQUEST in files:
            folders.clear()
            if path.suffix != ".partial":
                yield path
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        if len(path.relative_to(folder).parts) >= DEPTH:
            folders.clear()
        if looked >= MOST:
            return


def _written(path: Path) -> float:
    """When the last of its files was added."""
    return path.stat().st_mtime
