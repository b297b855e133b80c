"""Layers that learn, over stored activations of the frozen layers below."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from airrep.arrays import DenseFeatures, GroupScores, Rows, map_array
from airrep.encoder.networks.bert import Drop, PackedTokens, SentenceBert
from airrep.encoder.networks.packed import Network, SentenceBag
from airrep.errors import TrainingError
from airrep.evaluation.judging import compact_subsets, score_features
from airrep.labels.plan import npy_bytes
from airrep.runtime.artifacts import json_digest
from airrep.runtime.devices import Team, autocast
from airrep.runtime.packing import Batch, pack
from airrep.runtime.publishing import write_file, writing
from airrep.scoring.pooling import TrainedPool
from airrep.shapes import Float, Float32
from airrep.training.examples import Prepared, Texts
from airrep.training.linear.weights import LOG_WEIGHTS, Mixture
from airrep.training.settings import TrainingSettings

Storage: TypeAlias = Literal["float16", "float32"]
"""Type of stored hidden states."""
BLOCK = 1024
"""Texts per file of activations; an interruption loses at most the file that is being written."""
_CHECKSUM = hashlib.sha256().digest_size
"""Bytes of the checksum that follows the array in each file."""
BAG_TOKENS = 2**20
"""Tokens per batch of a static encoder: many, since each batch has a gradient as large as the embedding matrix."""
BYTES_A_TOKEN = 80
"""float32 activations that one token leaves in one layer's graph, in bytes for each unit of width."""


@dataclass(frozen=True)
class Frozen:
    """The frozen lower layers of an encoder, and the texts of a run that they read."""

    model: SentenceBert
    texts: Texts
    depth: int
    """Number of frozen layers; if it is all layers, means over tokens are stored in float32, not hidden states."""
    storage: Storage
    precision: str
    chunk_tokens: int
    team: Team

    @property
    def means_only(self) -> bool:
        """True if no layer is left to learn."""
        return self.depth == len(self.model.layers)

    @property
    def dtype(self) -> type[np.floating]:
        """Number type of stored activations."""
        return np.float16 if self.storage == "float16" and not self.means_only else np.float32

    def compute(self, texts: range) -> np.ndarray:
        """Compute hidden states of texts end to end, ``(t, h)``; if no layer learns, their means, ``(texts, h)``."""
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
                f"activations below layer {self.depth}: a value is infinite or NaN in {np.dtype(self.dtype).name}. "
                "Set activations=float32, or start from another encoder."
            )
        return stored

    @torch.inference_mode()
    def _run(self, batch: Batch, texts: range) -> Tensor:
        tokens = PackedTokens.from_batch(batch, self.texts[texts.start : texts.stop], self.team.device)
        with autocast(self.precision, self.team.device):
            hidden = self.model.hidden(tokens, self.depth)
            return self.model.means(hidden, batch.runs, self.depth) if self.means_only else hidden

    def names(self) -> list[str]:
        """Hash all that decides a block's content into its file name, so that runs can share files."""
        kept = ("embeddings.", *(f"layers.{number}." for number in range(self.depth)))
        weights = hashlib.sha256(repr(self.model.shape.epsilon).encode())
        for name, tensor in sorted(self.model.state_dict().items()):
            if name.startswith(kept):
                weights.update(name.encode() + tensor.float().cpu().numpy().tobytes())
        kind = {"depth": self.depth, "dtype": np.dtype(self.dtype).name, "precision": self.precision}
        key = json_digest({**kind, "heads": self.model.shape.heads, "weights": weights.hexdigest()})
        found = []
        for first in range(0, len(self.texts), BLOCK):
            bounds = self.texts.offsets[first : first + BLOCK + 1]
            content = key.encode() + (bounds - bounds[0]).astype("<i8").tobytes()
            content += self.texts.ids[bounds[0] : bounds[-1]].astype("<i4").tobytes()
            found.append(f"{hashlib.sha256(content).hexdigest()[:32]}.npy")
        return found


class Activations:
    """Stored activations, read text by text; the processes of the team divide the writing of missing files."""

    def __init__(self, folder: Path, frozen: Frozen) -> None:
        self._texts, self._means_only = frozen.texts, frozen.means_only
        blocks = [range(first, min(first + BLOCK, len(frozen.texts))) for first in range(0, len(frozen.texts), BLOCK)]
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        wanted = [(folder / name, block) for name, block in zip(frozen.names(), blocks, strict=True)]
        there = {path: _open(path, frozen, block) for path, block in wanted}  # reads each file whole, for its checksum
        missing = [(path, block) for path, block in wanted if there[path] is None]
        frozen.team.wait()  # until all have looked, so that all divide the same list
        for path, block in frozen.team.share(missing):
            content = npy_bytes(frozen.compute(block))
            write_file(path, content + hashlib.sha256(content).digest())  # numpy ignores the checksum behind the array
        frozen.team.wait()
        self._blocks = []
        for path, block in wanted:
            found = _open(path, frozen, block) if there[path] is None else there[path]
            if found is None:
                raise TrainingError(
                    f"{path}: stored activations are missing or damaged. Choose a folder that all processes can read "
                    "(--out, or --set shared=FOLDER), and run the command again."
                )
            self._blocks.append(found)

    def means(self, rows: Rows) -> DenseFeatures:
        """Return means of texts, ``(rows, h)``; only if no layer learns."""
        found = np.empty((len(rows), self._blocks[0].shape[1] if self._blocks else 0), np.float32)
        for number in np.unique(rows // BLOCK):
            here = rows // BLOCK == number
            found[here] = self._blocks[number][rows[here] % BLOCK]
        return found

    def hidden(self, rows: Rows) -> Float32[Tensor, "t h"]:
        """Return hidden states of texts end to end."""
        pieces, offsets = [], self._texts.offsets
        for row in rows.tolist():
            first = offsets[row // BLOCK * BLOCK]
            pieces.append(self._blocks[row // BLOCK][offsets[row] - first : offsets[row + 1] - first])
        return torch.from_numpy(np.concatenate(pieces)).float()


def _open(path: Path, frozen: Frozen, block: range) -> np.ndarray | None:
    """Map a file of activations; None if it is missing, damaged, or of another shape or type."""
    tokens = int(frozen.texts.offsets[block.stop] - frozen.texts.offsets[block.start])
    shape = (len(block) if frozen.means_only else tokens, frozen.model.shape.width)
    try:
        if not _is_whole(path):
            return None
        found = map_array(path, behind=_CHECKSUM)
    except (OSError, ValueError):
        return None
    return found if found.shape == shape and found.dtype == frozen.dtype else None


def _is_whole(path: Path) -> bool:
    """Return True if the file's bytes match its checksum."""
    summed, left = hashlib.sha256(), path.stat().st_size - _CHECKSUM
    with path.open("rb") as stream:
        while left > 0 and (part := stream.read(min(left, 1 << 20))):
            summed.update(part)
            left -= len(part)
        return stream.read() == summed.digest()


@dataclass(frozen=True)
class Trunk:
    """The layers that learn, above stored activations: they turn texts into means over tokens.

    A static encoder has no layers: its token vectors learn, or its head alone. A chunk is a batch of texts that is
    computed together; its rows are places in the list that it was cut from.
    """

    model: Network
    texts: Texts
    team: Team
    precision: str
    chunk_tokens: int
    depth: int | None = None
    """Number of frozen layers below; None if the embeddings learn too."""
    stored: Activations | None = None
    """Activations after the frozen layers."""
    beside: Mixture | None = None
    """Weights of given channels and of the encoder; None if it is trained without channels."""

    @property
    def learns(self) -> bool:
        return self.depth is None or self.depth < len(self.model.layers)

    def chunks(self, rows: Rows) -> list[Batch]:
        """Cut texts into chunks, which do not depend on the size of the team."""
        return list(pack(self.texts.lengths[rows], self.chunk_tokens))

    def graph_bytes(self, rows: Rows) -> float:
        """Estimate the bytes that one graph over these texts needs in one process."""
        layers = len(self.model.layers) - (self.depth or 0)
        tokens = int(self.texts.lengths[rows].sum()) / self.team.size
        # More than half: layer norms and the residual stream stay float32.
        share = 0.6 if self.precision == "bfloat16" else 1.0
        return tokens * layers * self.model.width * BYTES_A_TOKEN * share

    def means(self, rows: Rows, chunk: Batch, drop: Drop | None = None) -> Float[Tensor, "s h"]:
        """Compute the means of one chunk of *rows*, with a graph if torch is recording one."""
        if isinstance(self.model, SentenceBag):
            ids = np.concatenate([np.empty(0, np.int64), *(self.texts[row] for row in rows[chunk.rows].tolist())])
            placed = (torch.from_numpy(part).to(self.team.device) for part in (ids, chunk.lengths))
            return self.model.means(*placed)
        with autocast(self.precision, self.team.device):
            if self.stored is not None:
                hidden = self.stored.hidden(rows[chunk.rows]).to(self.team.device)
                return self.model.means(hidden, chunk.runs, self.depth or 0, drop)
            batch = Batch(rows[chunk.rows], chunk.lengths)
            hidden = self.model.hidden(PackedTokens.from_batch(batch, self.texts, self.team.device), 0)
            return self.model.means(hidden, chunk.runs, 0, drop)

    def no_means(self, count: int) -> Float[Tensor, "n h"]:
        """Return zeros in the shape of *count* means."""
        return next(self.model.embeddings.parameters()).new_zeros(count, self.model.width)

    def all_means(self, rows: Rows) -> Float[Tensor, "n h"]:
        """Return means of texts without a graph, in every process of the team."""
        if not self.learns and self.stored is not None:
            return torch.from_numpy(self.stored.means(rows)).to(self.team.device)
        found = self.no_means(len(rows))
        for chunk in self.team.share(self.chunks(rows)):
            with torch.no_grad():
                found[torch.from_numpy(chunk.rows)] = self.means(rows, chunk)
        self.team.sum_(found)
        return found

    def learning(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """Yield name and value of all weights that learn: above the frozen layers, in the heads, and of channels."""
        first = 0 if self.depth is None else self.depth
        frozen = tuple(f"layers.{number}." for number in range(first))
        for name, parameter in self.model.named_parameters():
            if not name.startswith(frozen) and (self.depth is None or not name.startswith("embeddings.")):
                yield name, parameter
        if self.beside is not None:
            yield LOG_WEIGHTS, self.beside.log_weights


def make_trunk(model: Network, texts: Texts, settings: TrainingSettings, team: Team, folder: Path) -> Trunk:
    """Make the trunk that the settings ask for; compute activations of its frozen layers that are not stored yet."""
    usual = 2048 if team.device == "cpu" else 32768
    tokens = settings.chunk_tokens or (BAG_TOKENS if isinstance(model, SentenceBag) else usual)
    depth = None if settings.train_layers == "all" else len(model.layers) - settings.train_layers
    trunk = Trunk(model, texts, team, settings.precision, tokens, depth)
    if trunk.depth is not None and isinstance(model, SentenceBert):
        frozen = Frozen(model, texts, trunk.depth, settings.activations, settings.precision, tokens, team)
        trunk = replace(trunk, stored=Activations(folder, frozen))
    learning = {id(parameter) for _, parameter in trunk.learning()}
    for parameter in model.parameters():
        parameter.requires_grad_(id(parameter) in learning)
    return trunk


@torch.no_grad()
def put_weights(trunk: Trunk, weights: Mapping[str, Tensor]) -> None:
    """Replace the weights that learn."""
    for name, parameter in trunk.learning():
        parameter.copy_(weights[name])


@torch.no_grad()
def features_of(trunk: Trunk, rows: Rows) -> DenseFeatures:
    """Encode texts with the present weights, float32 ``(rows, d)``; repeated rows are encoded once."""
    different, places = np.unique(rows, return_inverse=True)
    features: DenseFeatures = trunk.model.project(trunk.all_means(different)).float().cpu().numpy()
    return features[places]


def score_prepared(trunk: Trunk, instance: Prepared, pool: TrainedPool) -> GroupScores:
    """Score all subsets of an instance for its queries, ``(q, m)``; a weighted sum if it has given scores."""
    used, groups = compact_subsets(instance.subsets)
    train, queries = features_of(trunk, instance.train[used]), features_of(trunk, instance.queries)
    scores = score_features(train, queries, groups, pool, device=trunk.team.device)
    return scores if trunk.beside is None or instance.given is None else trunk.beside.scores(scores, instance.given)
