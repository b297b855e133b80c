"""EK-FAC's scores against kronfluence's, with the empirical Fisher; then the time of both on a larger LM.

The larger one has random weights, 4 layers, 256 wide, as the LM of 4.5M that experiments use; its MLP maps are taken.
Both compute in float32 on one thread. kronfluence gets examples in order of length, padded batch by batch, as suits it.
"""

import logging
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from kfac import SHARE, Responses
from kronfluence.analyzer import Analyzer, prepare_model
from kronfluence.arguments import FactorArguments, ScoreArguments
from kronfluence.utils.dataset import DataLoaderKwargs
from torch.utils.data import TensorDataset
from world import QUERIES, TRAIN, Comparison, World, documents_of, make_world, padded
from worlds.tiny_lms import tiny_network, tiny_tokenizer

from airrep.attributors.gradient.ekfac import EkfacAttributor
from airrep.attributors.settings import EkfacSettings
from airrep.corpus.corpus import Corpus, Example
from airrep.lm.model import load_lm
from airrep.lm.settings import LmSettings

LAYERS, WIDE, HIDDEN = 4, 256, 768
EXAMPLES, ASKED, BATCH, ROUNDS = 48, 8, 16, 2
SHARE_OF_TIME = 0.5
"""Asked of the CPU time of ours, as a share of kronfluence's; it is told and fails nothing, as machines differ."""


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


class LargerResponses(Responses):
    """The losses of the larger LM."""

    def get_influence_tracked_modules(self) -> list[str]:
        return [f"model.layers.{n}.mlp.{part}_proj" for n in range(LAYERS) for part in ("gate", "up", "down")]


def larger_lm(folder: Path) -> str:
    """Write an LM of random weights and its tokenizer; returns the folder."""
    torch.manual_seed(0)
    shape = {
        "hidden_size": WIDE,
        "intermediate_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "max_position_embeddings": 512,
    }
    tiny_network("llama", **shape).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return str(folder)


def texts(count: int, seed: int) -> list[Example]:
    """Examples of 20 to 200 letters, each a token, a third of them response."""
    drawn = random.Random(seed)
    lengths = sorted((drawn.randrange(20, 200) for _ in range(count)), reverse=True)

    def letters(number: int) -> str:
        return "".join(drawn.choices("abcdefghijklmnopqrst", k=number))

    return [Example(letters(2 * n // 3), letters(n // 3), f"{seed}-{row}") for row, n in enumerate(lengths)]


def larger_ours(folder: str, train: list[Example], queries: list[Example]) -> np.ndarray:
    """Scores ``(n, q)`` by airrep; the LM is loaded, as in the other."""
    method = OfMeans(EkfacSettings(lm=folder, modules=None, damping=SHARE, store="none", device="cpu"))
    method.fit(Corpus.from_examples(train))
    return method.score(train, queries).astype(float)


def larger_theirs(folder: str, train: list[Example], queries: list[Example]) -> np.ndarray:
    """Return the same by kronfluence."""
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    lm = load_lm(LmSettings(lm=folder, device="cpu"))
    kept = DataLoaderKwargs(collate_fn=padded)
    sides: list[Any] = [documents_of(lm, each) for each in (train, queries)]
    task = LargerResponses()
    with tempfile.TemporaryDirectory() as out:
        analyzer = Analyzer("oracle", prepare_model(model, task), task, cpu=True, output_dir=out, disable_tqdm=True)
        analyzer.set_dataloader_kwargs(kept)
        factors = FactorArguments(strategy="ekfac", use_empirical_fisher=True)
        analyzer.fit_all_factors("ekfac", sides[0], per_device_batch_size=BATCH, factor_args=factors)
        sizes = {"per_device_query_batch_size": ASKED, "per_device_train_batch_size": BATCH}
        asked = ScoreArguments(damping_factor=None)
        analyzer.compute_pairwise_scores("s", "ekfac", sides[1], sides[0], score_args=asked, **sizes)
        scores: np.ndarray = analyzer.load_pairwise_scores("s")["all_modules"].double().numpy().T
        return scores


def hold_times(held: Comparison) -> None:
    """Scores of the larger LM by both, in turns, and the ratio of their CPU times."""
    train, queries = texts(EXAMPLES, 0), texts(ASKED, 1)
    sides: Sequence[Callable[[str, list[Example], list[Example]], np.ndarray]] = (larger_ours, larger_theirs)
    spent: list[list[float]] = []
    with tempfile.TemporaryDirectory() as place:
        folder = larger_lm(Path(place))
        for _ in range(ROUNDS):
            scores, seconds = [], []
            for side in sides:
                begun = time.process_time()
                scores.append(side(folder, train, queries))
                seconds.append(time.process_time() - begun)
            spent.append(seconds)
    held.hold("--method ekfac, 4 layers of 256, float32", *scores, 1e-3)
    ours, theirs = (statistics.median(each) for each in zip(*spent, strict=True))
    ratio = statistics.median(one / other for one, other in spent)
    met = ratio <= SHARE_OF_TIME
    sys.stdout.write(
        f"{'':22} seconds of CPU, {EXAMPLES} examples, {ASKED} queries: {ours:.1f} of {theirs:.1f}, {ratio:.2f} times "
        f"(asked: {SHARE_OF_TIME})  {'ok' if met else 'MISSED'}\n"
    )


def main() -> int:
    world, held = make_world(), Comparison("kronfluence")
    held.hold("--method ekfac", method_scores(world), kronfluence_scores(world), 1e-3)
    torch.set_num_threads(1)
    hold_times(held)
    return held.status


if __name__ == "__main__":
    sys.exit(main())
