"""Gather finished fine-tunes into arrays and write the manifest."""

import hashlib
import io
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

import numpy as np

from airrep._version import __version__
from airrep.labels.ledger import Ledger, Quarantined, QueryLosses
from airrep.labels.request import KIND, LabelRequest, read_state
from airrep.labels.tasks import LabelTask
from airrep.runtime.artifacts import describe_files, read_manifest, write_file, write_manifest

PACKAGES = ("torch", "transformers", "numpy")

Read = Callable[[LabelTask], QueryLosses | None]
"""Where a task's losses come from."""


def seal(ledger: Ledger, request: LabelRequest, read: Read, given_up: Sequence[Quarantined]) -> None:
    """Write the losses of every instance as arrays, then the manifest, which makes the directory finished.

    Arrays are named by what they hold, so that those of an older manifest stay whole until it is replaced. The
    single result files are removed in the end, and so is all that no manifest names.

    Args:
        ledger: the directory.
        request: the labels.
        read: the losses of each task; None for those that were given up.
        given_up: these, whose losses are NaN.

    Raises:
        ArtifactError: the operating system refused.
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
        "packages": {"airrep": __version__, **{name: version(name) for name in PACKAGES}},
        "files": describe_files(folder, [*sorted(names), state["keys"], *plan_files]),
    }
    write_manifest(folder, KIND, content)
    tidy(ledger, request, given_up)


def _write_instance(folder: Path, request: LabelRequest, number: int, read: Read) -> dict[str, str]:
    """Write ``(s, q, m)`` losses and ``(q,)`` losses before any fine-tune of one instance; returns their names."""
    queries = len(request.plan.query_rows(number))
    losses = np.full((request.counts["seeds"], queries, request.plan.subset_count), np.nan, np.float32)
    base = np.full(queries, np.nan, np.float32)
    for task in request.tasks:
        if task.place.instance != number or (found := read(task)) is None:
            continue
        if task.place.subset is None:
            base = found
        else:
            losses[task.place.seed, :, task.place.subset] = found
    return {
        "losses": _write_array(folder, f"losses-{number}", losses),
        "base": _write_array(folder, f"base-{number}", base),
    }


def _write_array(folder: Path, stem: str, array: np.ndarray) -> str:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    name = f"{stem}-{hashlib.sha256(stream.getvalue()).hexdigest()[:12]}.npy"
    write_file(folder / name, stream.getvalue())
    return name


def tidy(ledger: Ledger, request: LabelRequest, given_up: Sequence[Quarantined]) -> None:
    """Remove what a manifest makes superfluous: single results, and arrays and plans of an older one.

    What ``request.json`` names stays: another process may be at more labels than these.
    """
    kept = {entry.place for entry in given_up}
    ledger.forget(task.key for task in request.tasks if task.place not in kept)
    wanted = read_state(ledger.folder) or {}
    named = {name.split("/")[0] for name in read_manifest(ledger.folder, KIND)["files"]}
    named |= {wanted.get("keys"), wanted.get("plan_folder")}
    for pattern in ("losses-*.npy", "base-*.npy", "keys-*.npy", "plan-*"):
        for path in ledger.folder.glob(pattern):
            if path.is_dir() and path.name not in named:
                shutil.rmtree(path)
            elif path.name not in named:
                path.unlink(missing_ok=True)
