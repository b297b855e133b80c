"""TracIn against captum's TracInCP: raw inner products of per-example gradients."""

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from captum.influence import TracInCP
from world import MAPS, QUERIES, TRAIN, Comparison, World, make_world, mean_losses

from airrep.attributors.gradient.base import TracinAttributor
from airrep.attributors.gradient.projection import project_gradients
from airrep.attributors.gradient.reading import find_sites
from airrep.attributors.settings import TracinSettings
from airrep.corpus.corpus import Corpus

ONE = {"first": 1.0}
RATES = {"first": 0.3, "second": 0.05}
"""Learning rates of two checkpoints."""
GROWN = {"first": 1.0, "second": 1.1}
"""The second has all weights a tenth larger."""


class Logits(torch.nn.Module):
    """The LM as captum calls it."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=ids, attention_mask=mask).logits


class Losses(torch.nn.Module):
    """One loss for each example of a batch."""

    reduction = "none"

    def forward(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return mean_losses(logits, labels)


def captum_scores(world: World, checkpoints: Mapping[str, float]) -> np.ndarray:
    """Inner products of the gradients of all MLP maps, summed over checkpoints with their rates: ``(q, n)``."""
    model = Logits(world.model)
    base = {name: weight.clone() for name, weight in model.state_dict().items()}

    def enter(module: Any, checkpoint: str) -> float:
        module.load_state_dict({name: weight * GROWN[checkpoint] for name, weight in base.items()})
        return checkpoints[checkpoint]

    dataset = torch.utils.data.TensorDataset(*world.padded(world.train))
    layers = [f"model.{name}" for name in MAPS]
    method = TracInCP(model, dataset, list(checkpoints), enter, layers=layers, loss_fn=Losses(), batch_size=3)
    scores = method.influence(tuple(world.padded(world.queries)))
    model.load_state_dict(base)
    return scores.detach().numpy()


def airrep_scores(world: World, checkpoints: Mapping[str, float]) -> np.ndarray:
    """Return the same from airrep's packed gradients, in float64."""
    sites = find_sites(world.lm.model, None, "oracle")
    base = {name: weight.clone() for name, weight in world.lm.model.state_dict().items()}
    total = np.zeros((len(QUERIES), len(TRAIN)))
    for checkpoint, rate in checkpoints.items():
        world.lm.model.load_state_dict({name: weight * GROWN[checkpoint] for name, weight in base.items()})
        train, queries = (
            project_gradients(world.lm, world.lm.tokenise(examples), sites, None).features
            for examples in (TRAIN, QUERIES)
        )
        total += rate * queries @ train.T
    world.lm.model.load_state_dict(base)
    return total


def method_scores(world: World) -> np.ndarray:
    """Scores of the method tracin as users call it, in float32."""
    method = TracinAttributor(
        TracinSettings(
            lm=world.folder, modules=None, rank=None, unit=False, store="none", device="cpu", precision="float32"
        )
    )
    method.fit(Corpus.from_examples(TRAIN))
    return method.encode_queries(QUERIES).astype(float) @ method.encode_train(TRAIN).astype(float).T


def main() -> int:
    world, held = make_world(), Comparison("captum")
    held.hold("one checkpoint, float64", airrep_scores(world, ONE), captum_scores(world, ONE), 1e-9)
    held.hold("two checkpoints by their rates, float64", airrep_scores(world, RATES), captum_scores(world, RATES), 1e-9)
    held.hold("--method tracin, rank none, unit false", method_scores(world), captum_scores(world, ONE), 1e-5)
    return held.status


if __name__ == "__main__":
    sys.exit(main())
