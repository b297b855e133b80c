"""TRAK against traker, with the same small matrices as its projector."""

import logging
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from trak import TRAKer
from trak.modelout_functions import AbstractModelOutput
from trak.projectors import AbstractProjector, ProjectionType
from world import IGNORED, MAPS, QUERIES, TRAIN, Comparison, World, make_world, sine_matrices

from airrep.attributors.gradient.projection import Projections
from airrep.attributors.gradient.reading import find_sites
from airrep.attributors.gradient.trak import TrakAttributor
from airrep.attributors.settings import TrakSettings
from airrep.corpus.corpus import Corpus

RANK = 3
SHARE = 0.1
"""Damping as a share of the mean eigenvalue."""


class LogOdds(AbstractModelOutput):
    """log p − log(1 − p), averaged over a response; its loss moves by 1 − p of each token."""

    def __init__(self) -> None:
        """Nothing to set."""

    @staticmethod
    def get_output(
        model: Any, weights: Any, buffers: Any, ids: torch.Tensor, _mask: torch.Tensor, labels: torch.Tensor
    ) -> torch.Tensor:
        """Compute one document. Padding lies behind it, where causal attention does not look: no mask is needed."""
        held = {**weights, **buffers}
        logits = torch.func.functional_call(model, held, kwargs={"input_ids": ids[None], "use_cache": False}).logits[0]
        counted = (labels[1:] != IGNORED).to(logits)
        chosen = torch.arange(logits.shape[1]) == ids[1:, None]
        right = (logits[:-1] * chosen).sum(1)
        others = logits[:-1].masked_fill(chosen, -torch.inf).logsumexp(1)
        return ((right - others) * counted).sum() / counted.sum()

    def get_out_to_loss_grad(self, model: Any, _weights: Any, _buffers: Any, batch: Any) -> torch.Tensor:
        """1 − p, averaged over the response: from one loss for each token."""
        ids, mask, labels = batch
        with torch.no_grad():
            logits = model(input_ids=ids, attention_mask=mask).logits
        each = [mean_doubt(logits[row], labels[row]) for row in range(len(ids))]
        return torch.stack(each)[:, None]


def mean_doubt(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean chance of another token over the response of one document."""
    places = torch.nonzero(labels[1:] != IGNORED)[:, 0]
    chances = torch.softmax(logits[places], dim=1)[torch.arange(len(places)), labels[places + 1]]
    return (1 - chances).mean()


class Sines(TrakAttributor):
    """TRAK with small matrices that traker is given too."""

    @property
    def projections(self) -> Projections:
        """Sines."""
        return {site.name: sine_matrices(site.name, site.width_in, site.width_out, RANK) for site in self.sites}


class BothSides(AbstractProjector):
    """P_out G P_inᵀ of each linear map."""

    def __init__(self, projections: Projections) -> None:
        super().__init__(0, len(MAPS) * RANK**2, 0, ProjectionType.normal, "cpu")
        self.projections = projections

    def project(self, grads: Mapping[str, torch.Tensor], **_model: int) -> torch.Tensor:
        """Blocks of all maps side by side."""
        found = []
        for name in MAPS:
            inward, outward = self.projections[name]
            found.append((outward.T @ grads[f"{name}.weight"].float() @ inward).flatten(1))
        return torch.cat(found, dim=1)


def traker_results(world: World, projections: Projections) -> tuple[np.ndarray, np.ndarray]:
    """Projected gradients of the training examples, and scores ``(q, n)`` with all that traker scales undone."""
    logging.disable(logging.WARNING)
    model = world.model.float()
    wanted = [f"{name}.weight" for name in MAPS]
    parameters = sum(model.get_parameter(name).numel() for name in wanted)
    with tempfile.TemporaryDirectory() as folder:

        def start(folder: str, damping: float) -> TRAKer:
            traker = TRAKer(
                model=model,
                task=LogOdds(),
                train_set_size=len(TRAIN),
                save_dir=folder,
                device="cpu",
                projector=BothSides(projections),
                use_half_precision=False,
                grad_wrt=wanted,
                lambda_reg=damping,
                logging_level=logging.CRITICAL,
            )
            traker.load_checkpoint(model.state_dict(), model_id=0)
            traker.featurize(tuple(world.padded(world.train)), num_samples=len(TRAIN))
            return traker

        traker = start(f"{folder}/first", 0.0)
        features = np.array(traker.saver.current_store["grads"], np.float64) * np.sqrt(parameters)
        mean_eigenvalue = np.trace(features.T @ features) / features.shape[1]
        traker = start(f"{folder}/second", SHARE * mean_eigenvalue / parameters)
        traker.finalize_features()
        traker.start_scoring_checkpoint("oracle", model.state_dict(), model_id=0, num_targets=len(QUERIES))
        traker.score(tuple(world.padded(world.queries)), num_samples=len(QUERIES))
        scores = np.array(traker.finalize_scores("oracle"), np.float64).T
    inverse = np.linalg.inv(features.T @ features + SHARE * mean_eigenvalue * np.eye(features.shape[1]))
    return features, scores * parameters * np.abs(inverse).mean() * len(TRAIN)


def method_results(world: World) -> tuple[np.ndarray, np.ndarray]:
    """Projected gradients and scores of the method trak as users call it, in float32."""
    settings = TrakSettings(lm=world.folder, rank=RANK, damping=SHARE, store="none", device="cpu", precision="float32")
    method = Sines(settings)
    method.fit(Corpus.from_examples(TRAIN))
    scores = method.encode_queries(QUERIES).astype(float) @ method.encode_train(TRAIN).astype(float).T
    return method.gradients(TRAIN).rows, scores


def main() -> int:
    world, held = make_world(), Comparison("traker")
    sites = find_sites(world.lm.model, None, "oracle")
    projections = {site.name: sine_matrices(site.name, site.width_in, site.width_out, RANK) for site in sites}
    features, scores = traker_results(world, projections)
    ours, our_scores = method_results(world)
    held.hold("projected gradients of log odds, with the other sign", -ours, features, 1e-5)
    held.hold("--method trak, its scale of the inverse undone", our_scores, scores, 1e-4)
    return held.status


if __name__ == "__main__":
    sys.exit(main())
