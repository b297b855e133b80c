"""From texts to means: the layers that learn, over what lies below."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from airrep.arrays import DenseFeatures, GroupScores, Rows
from airrep.encoder.bert import Drop, PackedTokens, SentenceBert
from airrep.errors import ConfigError
from airrep.evaluation.judging import compact, score_features
from airrep.runtime.packing import Batch, pack
from airrep.runtime.train_distributed import Team
from airrep.scoring.pooling import TrainedPool
from airrep.training.activations import Activations, Frozen, casting
from airrep.training.examples import Prepared, Texts
from airrep.training.settings import TrainingSettings

BYTES_A_TOKEN = 80
"""float32 activations that one token leaves in one layer's graph, in bytes for each unit of width."""


@dataclass(frozen=True)
class Trunk:
    """What turns rows of texts into means.

    A chunk is a batch of texts that is computed together; its rows are places in the list that it was cut from.
    """

    model: SentenceBert
    texts: Texts
    team: Team
    precision: str
    chunk_tokens: int
    depth: int | None = None
    """Frozen layers below; None if the embeddings learn too."""
    stored: Activations | None = None
    """Activations after those layers."""

    @property
    def learns(self) -> bool:
        """Whether any layer learns."""
        return self.depth is None or self.depth < len(self.model.layers)

    def chunks(self, rows: Rows) -> list[Batch]:
        """Cut texts into chunks; the same ones whatever the size of the team."""
        return list(pack(self.texts.lengths[rows], self.chunk_tokens))

    def graph_bytes(self, rows: Rows) -> float:
        """Memory that one graph over these texts would need in one process."""
        layers = len(self.model.layers) - (self.depth or 0)
        tokens = int(self.texts.lengths[rows].sum()) / self.team.size
        share = 0.6 if self.precision == "bfloat16" else 1.0
        return tokens * layers * self.model.shape.width * BYTES_A_TOKEN * share

    def means(self, rows: Rows, chunk: Batch, drop: Drop | None = None) -> Float[Tensor, "s h"]:
        """Means of the texts of one chunk of *rows*, with a graph where one is being recorded."""
        with casting(self.precision, self.team.device):
            if self.stored is not None:
                hidden = self.stored.hidden(rows[chunk.rows]).to(self.team.device)
                return self.model.means(hidden, chunk.runs, self.depth or 0, drop)
            placed = Batch(rows[chunk.rows], chunk.lengths)
            hidden = self.model.hidden(PackedTokens.from_batch(placed, self.texts, self.team.device), 0)
            return self.model.means(hidden, chunk.runs, 0, drop)

    def no_means(self, count: int) -> Float[Tensor, "n h"]:
        """Zeros for so many means."""
        weight: Tensor = self.model.embeddings.words.weight
        return weight.new_zeros(count, self.model.shape.width)

    def all_means(self, rows: Rows) -> Float[Tensor, "n h"]:
        """Means of texts without a graph, in every process of the team."""
        if not self.learns and self.stored is not None:
            return torch.from_numpy(self.stored.means(rows)).to(self.team.device)
        found = self.no_means(len(rows))
        for chunk in self.team.share(self.chunks(rows)):
            with torch.no_grad():
                found[torch.from_numpy(chunk.rows)] = self.means(rows, chunk)
        self.team.sum_(found)
        return found

    def learning(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """Names and weights that learn: of the layers above the frozen ones, and of the heads."""
        first = 0 if self.depth is None else self.depth
        frozen = tuple(f"layers.{number}." for number in range(first))
        for name, parameter in self.model.named_parameters():
            if not name.startswith(frozen) and (self.depth is None or not name.startswith("embeddings.")):
                yield name, parameter


def make_trunk(model: SentenceBert, texts: Texts, settings: TrainingSettings, team: Team, folder: Path) -> Trunk:
    """The layers that learn as the settings ask; activations of the others are computed if they are not there yet.

    Raises:
        ConfigError: more layers than there are.
        TrainingError, ArtifactError: as for :class:`airrep.training.activations.Activations`.
    """
    tokens = settings.chunk_tokens or (2048 if team.device == "cpu" else 32768)
    trunk = Trunk(model, texts, team, settings.precision, tokens, _depth(model, settings))
    if trunk.depth is not None:
        frozen = Frozen(model, texts, trunk.depth, settings.activations, settings.precision, tokens, team)
        trunk = replace(trunk, stored=Activations(folder, frozen))
    learning = {id(parameter) for _, parameter in trunk.learning()}
    for parameter in model.parameters():
        parameter.requires_grad_(id(parameter) in learning)
    return trunk


def _depth(model: SentenceBert, settings: TrainingSettings) -> int | None:
    if settings.train_layers == "all":
        return None
    layers = len(model.layers)
    if not 0 <= settings.train_layers <= layers:
        raise ConfigError(
            f"train_layers={settings.train_layers}: the start has {layers} layers; expected 0 to {layers}, or all. "
            "Correct the value."
        )
    return layers - settings.train_layers


@torch.no_grad()
def put_weights(trunk: Trunk, weights: Mapping[str, Tensor]) -> None:
    """Replace the weights that learn."""
    for name, parameter in trunk.learning():
        parameter.copy_(weights[name])


@torch.no_grad()
def features_of(trunk: Trunk, rows: Rows) -> DenseFeatures:
    """Features of some texts as they are now, float32 ``(rows, d)``; repeated rows are encoded once."""
    different, places = np.unique(rows, return_inverse=True)
    features: DenseFeatures = trunk.model.project(trunk.all_means(different)).float().cpu().numpy()
    return features[places]


def score_prepared(trunk: Trunk, instance: Prepared, pool: TrainedPool) -> GroupScores:
    """Group scores of all subsets of an instance for its queries, ``(q, m)``."""
    used, groups = compact(instance.subsets)
    train, queries = features_of(trunk, instance.train[used]), features_of(trunk, instance.queries)
    return score_features(train, queries, groups, pool, device=trunk.team.device)
