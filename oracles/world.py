"""The tiny world of all oracles: one LM, its documents, and padded batches of them for other libraries."""

import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from reference import gradients as plain
from torch.nn import functional
from worlds.frozen_lm import MAPS, QUERIES, TRAIN, frozen_lm, sine_matrices

from airrep.corpus.corpus import Example
from airrep.lm.model import TargetLM, load_lm
from airrep.lm.settings import LmSettings

__all__ = [
    "IGNORED",
    "MAPS",
    "QUERIES",
    "TRAIN",
    "Comparison",
    "Padded",
    "World",
    "documents_of",
    "make_world",
    "mean_losses",
    "padded",
    "sine_matrices",
]

IGNORED = -100
"""Label of a token that is no part of a response."""


class Padded(NamedTuple):
    """Documents filled up behind, which causal attention never sees from in front."""

    ids: torch.Tensor
    mask: torch.Tensor
    labels: torch.Tensor


class World(NamedTuple):
    """One LM twice: airrep's, and as transformers loads it, in float64; with the documents of both sides."""

    folder: str
    lm: TargetLM
    model: Any
    train: list[plain.Document]
    queries: list[plain.Document]

    def padded(self, documents: Sequence[plain.Document]) -> Padded:
        """Ids, mask and labels of some documents, to one length for all of this world."""
        return padded(documents, max(len(ids) for ids, _ in [*self.train, *self.queries]))


def padded(documents: Sequence[plain.Document], longest: int = 0) -> Padded:
    """Ids, mask and labels of some documents, to the length of the longest, or more."""
    longest = max([longest, *(len(ids) for ids, _ in documents)])
    free = [longest - len(ids) for ids, _ in documents]
    ids = [list(ids) + [0] * more for (ids, _), more in zip(documents, free, strict=True)]
    mask = [[1] * len(each) + [0] * more for (each, _), more in zip(documents, free, strict=True)]
    labels = [
        [IGNORED] * start + list(each[start:]) + [IGNORED] * more
        for (each, start), more in zip(documents, free, strict=True)
    ]
    return Padded(torch.tensor(ids), torch.tensor(mask), torch.tensor(labels))


def make_world() -> World:
    """Write the LM into a fresh folder and load it on both sides."""
    folder = frozen_lm(Path(tempfile.mkdtemp()))
    lm = load_lm(LmSettings(lm=folder, device="cpu", precision="float32"))
    lm.model.double()
    return World(folder, lm, plain.load(folder), documents_of(lm, TRAIN), documents_of(lm, QUERIES))


def documents_of(lm: TargetLM, examples: Sequence[Example]) -> list[plain.Document]:
    """Token ids of each example, and where its response starts."""
    documents = lm.tokenise(examples)
    return [(documents.sequence(row).tolist(), int(documents.starts[row])) for row in range(len(documents))]


def mean_losses(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean loss of each document's response, ``(b,)``, from padded logits ``(b, t, v)`` and labels ``(b, t)``."""
    each = functional.cross_entropy(logits[:, :-1].transpose(1, 2), labels[:, 1:], reduction="none")
    return each.sum(1) / (labels[:, 1:] != IGNORED).sum(1)


class Comparison:
    """Largest relative difference of some results to those of a library; says so, and gives the exit status."""

    def __init__(self, library: str) -> None:
        self.package = library
        self.failed = 0

    def hold(self, what: str, ours: np.ndarray, theirs: np.ndarray, tolerance: float) -> None:
        """Compare two arrays, relative to the greatest value of theirs."""
        difference = float(np.abs(np.asarray(ours) - np.asarray(theirs)).max() / np.abs(theirs).max())
        verdict = "ok" if difference <= tolerance else "DIFFERS"
        self.failed += verdict != "ok"
        named = f"{self.package} {version(self.package)}"
        sys.stdout.write(f"{named:22} {what:58} {difference:8.1e}  (at most {tolerance:.0e})  {verdict}\n")

    @property
    def status(self) -> int:
        """Exit status: 0 if all agreed."""
        return int(self.failed > 0)
