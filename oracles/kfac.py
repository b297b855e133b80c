"""LoGra's Kronecker factors and preconditioned scores against kronfluence's K-FAC."""

import logging
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from kronfluence.analyzer import Analyzer, prepare_model
from kronfluence.arguments import FactorArguments, ScoreArguments
from kronfluence.task import Task
from torch.utils.data import TensorDataset
from world import MAPS, QUERIES, TRAIN, Comparison, World, make_world, mean_losses

from airrep.attributors.gradient.curvature import Kronecker
from airrep.attributors.gradient.logra import LograAttributor
from airrep.attributors.gradient.projection import Covariances, project_gradients
from airrep.attributors.gradient.reading import find_sites, read_gradients
from airrep.attributors.settings import LograSettings
from airrep.corpus.corpus import Corpus

SHARE = 0.1
"""Damping as a share of the mean eigenvalue, on both sides: kronfluence's own heuristic."""


class Responses(Task):
    """Each example's mean loss over its response: what is trained on, and what is asked about."""

    def compute_train_loss(self, batch: Any, model: Any, sample: bool = False) -> torch.Tensor:
        assert not sample, "the empirical Fisher matrix takes the labels that there are"
        ids, mask, labels = batch
        return mean_losses(model(input_ids=ids, attention_mask=mask).logits, labels).sum()

    def compute_measurement(self, batch: Any, model: Any) -> torch.Tensor:
        return self.compute_train_loss(batch, model)

    def get_influence_tracked_modules(self) -> list[str]:
        return list(MAPS)

    def get_attention_mask(self, batch: Any) -> torch.Tensor:
        return batch[1]


def kronfluence_results(world: World) -> tuple[Mapping[str, Mapping[str, torch.Tensor]], np.ndarray]:
    """Sums and counts of covariances by map, and scores ``(q, n)``."""
    logging.disable(logging.WARNING)
    double = torch.float64
    task = Responses()
    train, queries = TensorDataset(*world.padded(world.train)), TensorDataset(*world.padded(world.queries))
    with tempfile.TemporaryDirectory() as folder:
        model = prepare_model(world.model, task)
        analyzer = Analyzer("oracle", model, task, cpu=True, output_dir=folder, disable_tqdm=True)
        factors = FactorArguments(
            strategy="kfac",
            use_empirical_fisher=True,
            activation_covariance_dtype=double,
            gradient_covariance_dtype=double,
            per_sample_gradient_dtype=double,
        )
        analyzer.fit_all_factors("kfac", train, per_device_batch_size=3, factor_args=factors)
        asked = ScoreArguments(
            damping_factor=None, per_sample_gradient_dtype=double, precondition_dtype=double, score_dtype=double
        )
        analyzer.compute_pairwise_scores(
            "scores",
            "kfac",
            queries,
            train,
            per_device_query_batch_size=2,
            per_device_train_batch_size=4,
            score_args=asked,
        )
        covariances = analyzer.load_covariance_matrices("kfac")
        return covariances, analyzer.load_pairwise_scores("scores")["all_modules"].double().numpy()


def airrep_results(world: World) -> tuple[Covariances, np.ndarray]:
    """Covariances, and scores ``(q, n)``, in float64."""
    lm = world.lm
    sites = find_sites(lm.model, None, "oracle")
    sums = Covariances(sites)
    for _ in read_gradients(lm, lm.tokenise(TRAIN), sites, sums):
        pass
    train, queries = (project_gradients(lm, lm.tokenise(each), sites, None).features for each in (TRAIN, QUERIES))
    ends = np.cumsum([site.width_in * site.width_out for site in sites])[:-1]
    total = np.zeros((len(queries), len(train)))
    for site, one, other in zip(sites, np.split(queries, ends, axis=1), np.split(train, ends, axis=1), strict=True):
        inputs, outputs = (each.numpy() for each in sums.of(site.name))
        factors = Kronecker.of(inputs, outputs, sums.tokens[site.name] / len(TRAIN))
        shape = (-1, site.width_out, site.width_in)
        white = [factors.whiten(each.reshape(shape), SHARE).reshape(len(each), -1) for each in (one, other)]
        total += white[0] @ white[1].T
    return sums, total


def method_scores(world: World) -> np.ndarray:
    """Scores of the method logra as users call it, in float32."""
    settings = LograSettings(
        lm=world.folder,
        modules=None,
        rank=None,
        sketch=None,
        exponent=1.0,
        sample=1000,
        unit=False,
        damping=SHARE,
        store="none",
        device="cpu",
        precision="float32",
    )
    method = LograAttributor(settings)
    method.fit(Corpus.from_examples(TRAIN))
    return method.encode_queries(QUERIES).astype(float) @ method.encode_train(TRAIN).astype(float).T


def main() -> int:
    world, held = make_world(), Comparison("kronfluence")
    sums, ours = airrep_results(world)
    theirs, scores = kronfluence_results(world)
    for side, short in enumerate(("activation", "gradient")):
        mine = [sums.of(name)[side].numpy() for name in MAPS]
        other = [
            (theirs[f"{short}_covariance"][name] / theirs[f"num_{short}_covariance_processed"][name]).numpy()
            for name in MAPS
        ]
        for name, one, two in zip(MAPS, mine, other, strict=True):
            held.hold(f"{short} factor of {name.removeprefix('model.')}", one, two, 1e-9)
    tokens = sum(len(ids) for ids, _ in world.train) / len(world.train)
    held.hold(f"scores, times {tokens} tokens an example, float64", ours * tokens, scores, 1e-9)
    held.hold("--method logra, rank none, unit false, times the same", method_scores(world) * tokens, scores, 1e-5)
    return held.status


if __name__ == "__main__":
    sys.exit(main())
