"""The folder of a training run: claimed, finished, opened."""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from airrep._version import __version__
from airrep.encoder.checkpoints import Checkpoint
from airrep.encoder.exports import write_sentence_transformer
from airrep.encoder.model_folders import read_card
from airrep.errors import ArtifactError
from airrep.runtime.artifacts import (
    LOCK,
    MANIFEST,
    canonical_json,
    check_replaceable,
    clear,
    describe_files,
    find_finished,
    locked,
    make_partial,
    publish,
    read_manifest,
    sync,
    write_file,
    write_manifest,
    writing,
)
from airrep.runtime.metering import COSTS
from airrep.training.state import TIMES, load_state
from airrep.training.train_card import render_card

KIND = "encoder"
REQUEST = "request.json"
WORK = "work"
"""Checkpoints and activations, which are gone when the run has finished."""
PACKAGES = ("torch", "numpy", "tokenizers")


@dataclass(frozen=True)
class TrainingResult:
    """A finished training run."""

    path: Path
    """A folder that :func:`airrep.encoder.load.load_encoder` and ``SentenceTransformer`` load."""
    training: Mapping[str, Any]
    """All that the card says of the training: ``results``, ``steps``, ``best_step``, ``scale``, lineage."""

    @property
    def best_step(self) -> int:
        """Steps after which the weights were taken."""
        return int(self.training["best_step"])

    @property
    def held_out_lds(self) -> float | None:
        """LDS on the held-out instances, between −1 and 1; None without any."""
        found = self.training["results"].get("held_out")
        return None if found is None else float(found["trained"]["lds"])

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % interval of :attr:`held_out_lds`."""
        found = self.training["results"].get("held_out")
        return None if found is None else (found["trained"]["interval"][0], found["trained"]["interval"][1])


def open_result(path: Path) -> TrainingResult:
    """Open a finished run.

    Raises:
        ArtifactError: there is none, or it is unfinished or altered.
    """
    read_manifest(path, KIND)
    return TrainingResult(path, read_card(path).training or {})


def is_finished(path: Path, request: Mapping[str, Any]) -> bool:
    """Whether a run with the same request has finished there.

    Raises:
        ArtifactError: something else is there.
    """
    return find_finished(path, KIND, "an encoder trained", request) is not None


@contextmanager
def claimed(path: Path, request: Mapping[str, Any], replace: bool) -> Iterator[Path]:
    """Hold the folder in which a run is made, with what an interrupted one left there.

    Raises:
        ArtifactError: another process works there, another run was begun there, or it cannot be written.
    """
    if replace:
        check_replaceable(path, KIND)
    partial = make_partial(path)
    with locked(partial):
        _claim(partial, request, replace)
        yield partial


def _claim(partial: Path, request: Mapping[str, Any], replace: bool) -> None:
    stored = partial / REQUEST
    content = canonical_json(request)
    if stored.is_file() and _trained_by(stored.read_bytes()) != _trained_by(content):
        begun = load_state(partial / WORK)
        if not replace and begun is not None and begun[0].step > 0:
            raise ArtifactError(
                f"{partial}: holds an unfinished training with other data or settings; nothing is overwritten. "
                "Finish that one with its own command, delete the directory, or pass --replace."
            )
        clear(partial)
    with writing(partial):
        (partial / WORK).mkdir(exist_ok=True)
    write_file(stored, content)


def _trained_by(request: bytes) -> object:
    """What decides the training; what is scored once it is over does not."""
    try:
        content = json.loads(request)
    except ValueError:
        return request
    return {name: content[name] for name in content if name != "test"} if isinstance(content, dict) else content


def finish(partial: Path, path: Path, checkpoint: Checkpoint, request: Mapping[str, Any]) -> None:
    """Write the encoder and its card, seal the folder and give it its name.

    Raises:
        ArtifactError: it cannot be written.
    """
    with writing(path):
        if not (partial / MANIFEST).exists():
            _write_model(partial, checkpoint)
            _seal(partial, checkpoint, request)
        shutil.rmtree(partial / WORK, ignore_errors=True)
    publish(partial, path, KIND)


def _write_model(partial: Path, checkpoint: Checkpoint) -> None:
    made = partial / WORK / "encoder"
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir()
    write_sentence_transformer(checkpoint, made)
    (made / "README.md").write_text(render_card(checkpoint.card.training or {}), encoding="utf-8")
    for child in sorted(made.iterdir()):
        target = partial / child.name
        if target.is_dir():
            shutil.rmtree(target)
        child.replace(target)


def _seal(partial: Path, checkpoint: Checkpoint, request: Mapping[str, Any]) -> None:
    """Write the manifest; times and costs are not in it, so that equal runs have equal manifests."""
    left_out = {LOCK, MANIFEST, TIMES, COSTS}
    files = [file for file in sorted(partial.rglob("*")) if file.is_file() and partial / WORK not in file.parents]
    names = [file.relative_to(partial).as_posix() for file in files]
    for file in files:
        sync(file)
    training = checkpoint.card.training or {}
    content = {
        "request": dict(request),
        "results": training.get("results"),
        "steps": training.get("steps"),
        "best_step": training.get("best_step"),
        "packages": {"airrep": __version__, **{name: version(name) for name in PACKAGES}},
        "files": describe_files(partial, [name for name in names if name not in left_out]),
    }
    write_manifest(partial, KIND, content)
