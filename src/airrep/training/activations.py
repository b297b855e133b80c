"""What frozen layers make of texts, computed once and kept on disk."""

import hashlib
import io
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor

from airrep.arrays import DenseFeatures, Rows
from airrep.encoder.bert import PackedTokens, SentenceBert
from airrep.errors import TrainingError
from airrep.runtime.artifacts import digest, write_file, writing
from airrep.runtime.packing import Batch, pack
from airrep.runtime.train_distributed import Team
from airrep.training.examples import Texts

Storage: TypeAlias = Literal["float16", "float32"]
"""Type of stored hidden states."""

BLOCK = 1024
"""Texts in one file: what an interruption can lose."""


def casting(precision: str, device: str) -> AbstractContextManager[object]:
    """The context in which layers run: autocast for bfloat16, nothing for float32."""
    if precision == "bfloat16":
        return torch.autocast(torch.device(device).type, torch.bfloat16)
    return nullcontext()


@dataclass(frozen=True)
class Frozen:
    """The lower layers of an encoder, which stay as they are, and what they read."""

    model: SentenceBert
    texts: Texts
    depth: int
    """How many layers; if all, the means over tokens are kept in place of hidden states, and in float32."""
    storage: Storage
    precision: str
    chunk_tokens: int
    team: Team

    @property
    def means_only(self) -> bool:
        """Whether no layer is left to learn."""
        return self.depth == len(self.model.layers)

    @property
    def dtype(self) -> type[np.floating]:
        """Type of what is stored."""
        return np.float16 if self.storage == "float16" and not self.means_only else np.float32

    def compute(self, texts: range) -> np.ndarray:
        """Hidden states of some texts end to end, ``(t, h)``, or their means, ``(texts, h)``."""
        lengths = self.texts.lengths[texts.start : texts.stop]
        starts = np.cumsum(lengths) - lengths
        count = len(texts) if self.means_only else int(lengths.sum())
        found = np.empty((count, self.model.shape.width), np.float32)
        for batch in pack(lengths, self.chunk_tokens):
            places = batch.rows if self.means_only else np.repeat(starts[batch.rows], batch.lengths) + batch.positions
            found[places] = self._run(batch, texts).float().cpu().numpy()
        with np.errstate(over="ignore"):
            stored = found.astype(self.dtype)
        if not np.isfinite(stored).all():
            raise TrainingError(
                f"activations below layer {self.depth}: one is not finite in {np.dtype(self.dtype).name}; expected "
                "ordinary numbers. Set activations=float32, or start from another encoder."
            )
        return stored

    @torch.inference_mode()
    def _run(self, batch: Batch, texts: range) -> Tensor:
        tokens = PackedTokens.from_batch(batch, self.texts[texts.start : texts.stop], self.team.device)
        with casting(self.precision, self.team.device):
            hidden = self.model.hidden(tokens, self.depth)
            return self.model.means(hidden, batch.runs, self.depth) if self.means_only else hidden

    def names(self) -> list[str]:
        """A file name for each block of texts, by what decides its content."""
        kind = {"depth": self.depth, "dtype": np.dtype(self.dtype).name, "precision": self.precision}
        key = digest({**kind, "heads": self.model.shape.heads, "weights": _lower_digest(self.model, self.depth)})
        return [f"{self._content(key, first)}.npy" for first in range(0, len(self.texts), BLOCK)]

    def _content(self, key: str, first: int) -> str:
        bounds = self.texts.offsets[first : first + BLOCK + 1]
        summed = hashlib.sha256(key.encode())
        summed.update((bounds - bounds[0]).astype("<i8").tobytes())
        summed.update(self.texts.ids[bounds[0] : bounds[-1]].astype("<i4").tobytes())
        return summed.hexdigest()[:32]


def _lower_digest(model: SentenceBert, depth: int) -> str:
    kept = ("embeddings.", *(f"layers.{number}." for number in range(depth)))
    summed = hashlib.sha256(repr(model.shape.epsilon).encode())
    for name, tensor in sorted(model.state_dict().items()):
        if name.startswith(kept):
            summed.update(name.encode())
            summed.update(tensor.float().cpu().numpy().tobytes())
    return summed.hexdigest()


class Activations:
    """Stored activations, read text by text.

    Args:
        folder: where the files are, and where missing ones are written, each process of the team its share.
        frozen: what makes them.

    Raises:
        TrainingError: an activation is not finite in the stored type.
        ArtifactError: a file cannot be written.
    """

    def __init__(self, folder: Path, frozen: Frozen) -> None:
        self._texts, self._means_only = frozen.texts, frozen.means_only
        blocks = [range(first, min(first + BLOCK, len(frozen.texts))) for first in range(0, len(frozen.texts), BLOCK)]
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        wanted = [(folder / name, block) for name, block in zip(frozen.names(), blocks, strict=True)]
        missing = [(path, block) for path, block in wanted if _open(path, frozen, block) is None]
        frozen.team.wait()
        for path, block in frozen.team.share(missing):
            write_file(path, _to_bytes(frozen.compute(block)))
        frozen.team.wait()
        self._blocks = [_expect(path, frozen, block) for path, block in wanted]

    def means(self, rows: Rows) -> DenseFeatures:
        """Means of some texts, ``(rows, h)``; only where no layer is left to learn."""
        found = np.empty((len(rows), self._blocks[0].shape[1] if self._blocks else 0), np.float32)
        for number in np.unique(rows // BLOCK):
            here = rows // BLOCK == number
            found[here] = self._blocks[number][rows[here] % BLOCK]
        return found

    def hidden(self, rows: Rows) -> Float32[Tensor, "t h"]:
        """Hidden states of some texts end to end."""
        return torch.from_numpy(np.concatenate([self._hidden(int(row)) for row in rows])).float()

    def _hidden(self, row: int) -> np.ndarray:
        number, offsets = row // BLOCK, self._texts.offsets
        first = offsets[number * BLOCK]
        piece: np.ndarray = self._blocks[number][offsets[row] - first : offsets[row + 1] - first]
        return piece


def _open(path: Path, frozen: Frozen, block: range) -> np.ndarray | None:
    """Map a file of activations; None where there is none that fits."""
    tokens = int(frozen.texts.offsets[block.stop] - frozen.texts.offsets[block.start])
    shape = (len(block) if frozen.means_only else tokens, frozen.model.shape.width)
    try:
        found: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return found if found.shape == shape and found.dtype == frozen.dtype else None


def _expect(path: Path, frozen: Frozen, block: range) -> np.ndarray:
    found = _open(path, frozen, block)
    if found is None:
        raise TrainingError(
            f"{path}: stored activations are missing or damaged; every process must see the same folder. "
            "Give a shared one, and run the same command again."
        )
    return found


def _to_bytes(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()
