"""EK-FAC's eigenvalues and scores against kronfluence's, with the empirical Fisher."""

import logging
import sys
import tempfile

import numpy as np
import torch
from kfac import SHARE, Responses
from kronfluence.analyzer import Analyzer, prepare_model
from kronfluence.arguments import FactorArguments, ScoreArguments
from torch.utils.data import TensorDataset
from world import QUERIES, TRAIN, Comparison, World, make_world

from airrep.attributors.gradient.whole.ekfac import EkfacAttributor
from airrep.attributors.settings import EkfacSettings
from airrep.corpus.corpus import Corpus


class OfMeans(EkfacAttributor):
    """EK-FAC of mean losses, as kronfluence has them here."""

    reduction = "mean"


def kronfluence_scores(world: World) -> np.ndarray:
    """Scores ``(n, q)`` of the same maps in float64; damping is a tenth of each map's mean eigenvalue."""
    logging.disable(logging.WARNING)
    double = torch.float64
    task = Responses()
    train, queries = TensorDataset(*world.padded(world.train)), TensorDataset(*world.padded(world.queries))
    with tempfile.TemporaryDirectory() as folder:
        model = prepare_model(world.model, task)
        analyzer = Analyzer("oracle", model, task, cpu=True, output_dir=folder, disable_tqdm=True)
        factors = FactorArguments(
            strategy="ekfac",
            use_empirical_fisher=True,
            activation_covariance_dtype=double,
            gradient_covariance_dtype=double,
            per_sample_gradient_dtype=double,
            lambda_dtype=double,
        )
        analyzer.fit_all_factors("ekfac", train, per_device_batch_size=3, factor_args=factors)
        asked = ScoreArguments(
            damping_factor=None, per_sample_gradient_dtype=double, precondition_dtype=double, score_dtype=double
        )
        analyzer.compute_pairwise_scores(
            "scores",
            "ekfac",
            queries,
            train,
            per_device_query_batch_size=2,
            per_device_train_batch_size=4,
            score_args=asked,
        )
        scores: np.ndarray = analyzer.load_pairwise_scores("scores")["all_modules"].double().numpy().T
        return scores


def method_scores(world: World) -> np.ndarray:
    """Scores ``(n, q)`` of the method ekfac as users call it, in float32."""
    settings = EkfacSettings(
        lm=world.folder,
        modules=None,
        damping=SHARE,
        store="none",
        device="cpu",
        precision="float32",
    )
    method = OfMeans(settings)
    method.fit(Corpus.from_examples(TRAIN))
    return method.score(TRAIN, QUERIES).astype(float)


def main() -> int:
    world, held = make_world(), Comparison("kronfluence")
    held.hold("--method ekfac", method_scores(world), kronfluence_scores(world), 1e-3)
    return held.status


if __name__ == "__main__":
    sys.exit(main())
