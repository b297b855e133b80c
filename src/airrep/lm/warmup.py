"""Finished warm-ups: LMs that were fine-tuned on a sample.

A warm-up is a directory of kind ``warm-up`` that is a Hugging Face causal LM: it can be given wherever an LM is
asked for, and then reads examples as it did in training. Beside the LM it may hold

- ``checkpoints/step-NNNNNN.safetensors``: all weights after some of the steps, the last of them those of the LM;
- ``adapter/``: the low-rank adapters in peft's format, as they were before they became part of the LM's weights, and
  with them ``moments.safetensors``: Adam's moments of each of their numbers, which LESS needs;
- ``losses.npy``: of each step, mean nats per response token.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64

from airrep.errors import ConfigError
from airrep.lm.files import WARM_UP, digests, is_warm_up
from airrep.lm.model import TargetLM
from airrep.lm.settings import FineTuneSettings
from airrep.runtime.artifacts import check_sizes, digest, read_manifest

ADAPTER = "adapter"
CHECKPOINTS = "checkpoints"
LOSSES = "losses.npy"


class Checkpoint(NamedTuple):
    """Weights after some step of a warm-up."""

    path: Path
    """A file that :meth:`airrep.lm.model.TargetLM.load_weights` takes."""
    rate: float
    """Mean learning rate of the steps since the checkpoint before: TracIn's weight of it."""


@dataclass(frozen=True)
class Warmup:
    """A finished warm-up.

    Attributes:
        path: its folder, which is an LM.
        manifest: how it was made.
    """

    path: Path
    manifest: Mapping[str, Any]

    @property
    def base(self) -> Mapping[str, str]:
        """The LM that it began from: ``name``, ``fingerprint``, and ``files``, a digest of its files."""
        found: Mapping[str, str] = self.manifest["base"]
        return found

    @property
    def fine_tune(self) -> FineTuneSettings:
        """Settings of the fine-tune."""
        return FineTuneSettings.of(self.manifest["request"]["fine_tune"], str(self.path))

    @property
    def adapter(self) -> Path | None:
        """The folder of its adapters and their moments, if it was trained with some."""
        return self.path / ADAPTER if self.fine_tune.lora_rank is not None else None

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """What was kept, in the order of training; the last are the LM's own weights."""
        return tuple(Checkpoint(self.path / entry["file"], entry["rate"]) for entry in self.manifest["checkpoints"])

    @property
    def loss_per_step(self) -> Float64[np.ndarray, " steps"]:
        """Of each step's examples before it, mean nats per response token."""
        losses: np.ndarray = np.load(self.path / LOSSES, allow_pickle=False)
        return losses


def open_warmup(folder: str | Path) -> Warmup | None:
    """Open the warm-up of a folder; None if the folder is no warm-up, but another LM, say.

    Raises:
        ArtifactError: it was altered, or files are missing.
    """
    path = Path(folder)
    if not is_warm_up(path):
        return None
    manifest = read_manifest(path, WARM_UP)
    check_sizes(path, manifest["files"])
    return Warmup(path, manifest)


def checkpoints_of(lm: TargetLM) -> tuple[Checkpoint, ...]:
    """The checkpoints that an LM's warm-up kept.

    Raises:
        ConfigError: it is no warm-up, or kept none.
        ArtifactError: it was altered, or files are missing.
    """
    warmup = open_warmup(lm.folder)
    if warmup is None or not warmup.checkpoints:
        raise ConfigError(
            f"lm {lm.name}: has no checkpoints; expected what `airrep warmup --checkpoints 4` writes. "
            "Run that, or use checkpoints=final."
        )
    return warmup.checkpoints


def files_digest(folder: Path) -> str:
    """64 hex digits over all files that decide what an LM reads and computes."""
    return digest(digests(folder))
