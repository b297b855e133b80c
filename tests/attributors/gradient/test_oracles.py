"""Gradient methods give what other libraries gave, and what plain references give.

Numbers of other libraries are those of the scripts in ``oracles/``, which compute them anew.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference import gradients as reference
from safetensors.torch import load_file, save_file
from worlds.frozen_lm import MAPS, QUERIES, TRAIN, frozen_lm, sine_matrices

from airrep.attributors.base import Attributor
from airrep.attributors.gradient.base import LmWeights, TracinAttributor
from airrep.attributors.gradient.logra import LograAttributor
from airrep.attributors.gradient.projection import Covariances, Projections
from airrep.attributors.gradient.reading import find_sites, read_gradients
from airrep.attributors.gradient.run.metagradient import Replay
from airrep.attributors.gradient.trak import TrakAttributor
from airrep.attributors.settings import LograSettings, TracinSettings, TrakSettings
from airrep.corpus.corpus import Corpus
from airrep.lm.model import TargetLM, load_lm
from airrep.lm.settings import FineTuneSettings, LmSettings

CAPTUM = np.array(
    [
        [0.487786404, 0.320438342, 1.10260148, 0.18902786, 0.49468555, -1.18003032, 0.673361831, 0.487786404],
        [0.930164845, 2.42456145, 0.387998937, -0.234557758, -0.648672761, 0.107466862, 0.970197638, 0.930164845],
        [0.330081743, 0.249090187, 0.968612359, 0.0652523737, 0.186139599, 3.64302922, -0.384695161, 0.330081743],
    ]
)
"""captum 0.9.0, TracInCP: inner products of the gradients of all MLP maps, queries by training examples."""

CAPTUM_CHECKPOINTS = np.array(
    [
        [0.17989671, 0.147347279, 0.43083589, 0.0831335244, 0.176076534, -0.416664874, 0.245536761, 0.17989671],
        [0.352297958, 0.977062336, 0.127557322, -0.103806991, -0.240824892, 0.0737209593, 0.350329101, 0.352297958],
        [0.149282981, 0.115823476, 0.371015083, -0.0515899325, 0.0866208659, 1.50406839, -0.107774061, 0.149282981],
    ]
)
"""The same with rate 0.3, plus 0.05 times that of an LM whose weights are all a tenth larger."""

KRONFLUENCE = np.array(
    [
        [1422.75051, 1729.56298, 4347.26195, 1974.60687, 1148.65216, -5580.50044, 3836.44091, 1422.75051],
        [2015.45691, 10074.3023, 2148.80134, -1184.1767, -1092.39024, -189.236808, 4146.96145, 2015.45691],
        [469.224958, 787.302458, 918.14127, -755.531962, 768.800297, 13414.9925, -3659.17233, 469.224958],
    ]
)
"""kronfluence 1.0.1, K-FAC of the empirical Fisher, damping a tenth of each map's mean eigenvalue: scores."""

KRONFLUENCE_TRACES = np.array(
    [
        [7.1824059, 7.1824059, 1.34317441, 9.01916063, 9.01916063, 1.35079519],
        [0.00334939977, 0.00253944918, 0.0226616662, 0.00135725298, 0.00166226723, 0.00935233779],
    ]
)
"""Traces of its covariances of activations and of gradients, by map."""

KRONFLUENCE_ENTRIES = np.array(
    [[0.828347878, 0.0134019679, 0.929242057], [0.000724222392, -8.1125765e-05, 0.00011468008]]
)
"""Entries (0, 0), (0, 1) and (-1, -1) of both covariances of the second map."""

TRAKER = np.array(
    [
        [-0.0876343351, 3.3415936, 3.00784414, 2.68182053, 1.79799981, -3.97876274, -1.9152929, -0.0876343351],
        [0.307874235, 7.45399159, 0.150865, -1.06110288, -0.911769439, -0.145817943, 0.214789815, 0.307874235],
        [1.29627482, -0.254905868, 2.61896511, -2.41072286, -2.41872028, 1.4135044, -5.62279529, 1.29627482],
    ]
)
"""traker 0.3.2 with small matrices of rank 3: scores, its scales (see ``oracles/README.md``) undone."""

TRAKER_GRADIENT = np.array(
    [0.17188761, -0.0470698681, -0.15412553, 1.04993275, -0.631527856, -0.518780708, 0.751404226, -0.198158205]
)
"""Its projected gradient of the first training example's log odds: first numbers."""

MAGIC = np.array(
    [
        [0.00160578, 0.012497145, 0.10217664, 0.081750024, 0.010662476, -0.268168877, -0.062017658, 0.208533135],
        [-0.025655484, 0.111845769, -0.001333177, 0.022511731, -0.001345535, -0.135617565, 0.005166058, 0.123379742],
        [-0.12533139, 0.05077432, 0.109565448, 0.069898151, 0.021101292, -0.170232308, -0.04568586, 0.180140667],
    ]
)
"""bergson 2.5.1, `magic`: slopes of losses behind six steps of AdamW by weights of examples, with the other sign."""

RANK = 3
PAPER: dict[str, Any] = {"modules": None, "sketch": None, "exponent": 1.0, "rank": RANK}
TOKENS = 31.5
"""Mean length of the training examples: airrep's K-FAC is of examples, kronfluence's of tokens."""


class SineTrak(TrakAttributor):
    """TRAK with the small matrices that traker was given."""

    @property
    def projections(self) -> Projections:
        return {site.name: sine_matrices(site.name, site.width_in, site.width_out, RANK) for site in self.sites}


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """The tiny LM."""
    return frozen_lm(tmp_path / "lm")


def scores(method: Attributor, fit: bool = True) -> np.ndarray:
    """Of all queries and training examples."""
    if fit:
        method.fit(Corpus.from_examples(TRAIN))
    return np.asarray(method.encode_queries(QUERIES), float) @ np.asarray(method.encode_train(TRAIN), float).T


def unlike(found: np.ndarray, wanted: np.ndarray) -> float:
    """Largest difference, relative to the largest value."""
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


def settings(kind: type, folder: str, **changes: Any) -> Any:
    """Settings without a store."""
    return kind(**{"lm": folder, "store": "none", "device": "cpu", "precision": "float32", **changes})


def grown(folder: str, out: Path, times: float) -> Path:
    """A checkpoint with larger weights."""
    tensors = load_file(f"{folder}/model.safetensors")
    save_file({name: tensor * times for name, tensor in tensors.items()}, out)
    return out


def listed(lm: TargetLM, examples: Any) -> list[reference.Document]:
    """Documents as the reference takes them."""
    documents = lm.tokenise(examples)
    return [(documents.sequence(row).tolist(), int(documents.starts[row])) for row in range(len(documents))]


def features(folder: str, rank: int | None = None, objective: str = "loss") -> tuple[np.ndarray, np.ndarray]:
    """Plain gradients of queries and training examples, projected if a rank is given."""
    model, lm = reference.load(folder), load_lm(LmSettings(lm=folder, device="cpu", precision="float32"))
    found = []
    for examples in (QUERIES, TRAIN):
        blocks = reference.example_gradients(model, listed(lm, examples), MAPS, objective)
        if rank is not None:
            for name, block in blocks.items():
                inward, outward = sine_matrices(name, block.shape[2], block.shape[1], rank)
                blocks[name] = reference.project(block, outward.double().numpy().T, inward.double().numpy().T)
        found.append(reference.flat(list(blocks.values())))
    return found[0], found[1]


def test_tracin_is_captums(folder: str) -> None:
    assert (
        unlike(scores(TracinAttributor(settings(TracinSettings, folder, modules=None, rank=None, unit=False))), CAPTUM)
        < 1e-5
    )


def test_tracin_over_checkpoints_is_captums(folder: str, tmp_path: Path) -> None:
    method = TracinAttributor(settings(TracinSettings, folder, modules=None, rank=None, unit=False))
    method.weights = (LmWeights(None, 0.3), LmWeights(grown(folder, tmp_path / "next.safetensors", 1.1), 0.05))
    assert unlike(scores(method), CAPTUM_CHECKPOINTS) < 1e-5


def test_kronecker_factors_are_kronfluences(folder: str) -> None:
    lm = load_lm(LmSettings(lm=folder, device="cpu", precision="float32"))
    sites = find_sites(lm.model, None, "lm")
    sums = Covariances(sites)
    for _ in read_gradients(lm, lm.tokenise(TRAIN), sites, sums):
        pass
    traces = np.array([[float(each.trace()) for each in sums.of(name)] for name in MAPS]).T
    np.testing.assert_allclose(traces, KRONFLUENCE_TRACES, rtol=1e-5)
    for found, wanted in zip(sums.of(MAPS[1]), KRONFLUENCE_ENTRIES, strict=True):
        np.testing.assert_allclose([found[0, 0], found[0, 1], found[-1, -1]], wanted, rtol=1e-4)


def test_logra_without_projection_is_kronfluences_kfac(folder: str) -> None:
    method = LograAttributor(settings(LograSettings, folder, **{**PAPER, "rank": None}, unit=False, damping=0.1))
    assert unlike(scores(method) * TOKENS, KRONFLUENCE) < 1e-4


def test_a_run_followed_back_is_bergsons_magic(folder: str) -> None:
    lm = load_lm(LmSettings(lm=folder, device="cpu", precision="float32"))
    lm.model.double()
    chosen = FineTuneSettings(batch_examples=3, learning_rate=0.02, epsilon=1e-3, clip=None)
    found = Replay(lm, lm.tokenise(TRAIN), chosen, 3).influence(lm.tokenise(QUERIES))
    assert unlike(found.T, MAGIC) < 1e-5  # a norm in float32


def test_trak_is_trakers(folder: str) -> None:
    method = SineTrak(settings(TrakSettings, folder, rank=RANK, damping=0.1))
    assert unlike(scores(method), TRAKER) < 1e-4
    assert unlike(-method.gradients(TRAIN).rows[0, :8], TRAKER_GRADIENT) < 1e-5


def test_trak_over_checkpoints_averages_scores_and_chances_by_themselves(folder: str, tmp_path: Path) -> None:
    method = SineTrak(settings(TrakSettings, folder, rank=RANK, damping=0.1))
    method.weights = (LmWeights(None, 1.0), LmWeights(grown(folder, tmp_path / "next.safetensors", 1.1), 2.0))
    products, others = [], []
    lm = load_lm(LmSettings(lm=folder, device="cpu", precision="float32"))
    for times in (1.0, 1.1):
        grown(folder, Path(folder) / "model.safetensors", times)
        queries, train = features(folder, RANK, "margin")
        damping = 0.1 * np.trace(train.T @ train) / train.shape[1]
        products.append(reference.fisher_products(queries, train, train, damping) * len(TRAIN))
        others.append([reference.other_chance(reference.load(folder), each) for each in listed(lm, TRAIN)])
    grown(folder, Path(folder) / "model.safetensors", 1 / 1.1)
    assert unlike(scores(method), np.mean(products, axis=0) * np.mean(others, axis=0)) < 1e-4


def test_logra_is_the_product_with_the_whole_kronecker_inverse_behind_leading_directions(folder: str) -> None:
    method = LograAttributor(settings(LograSettings, folder, **PAPER, damping=0.2, unit=False))
    found = scores(method)
    model, train = reference.load(folder), listed(method.lm, TRAIN)
    queries = listed(method.lm, QUERIES)
    total = np.zeros_like(found)
    for name in MAPS:
        A, S = reference.kronecker_factors(model, train, name, "mean")
        P_in, P_out = reference.directions(A, RANK), reference.directions(S, RANK)
        A, S = P_in @ A @ P_in.T, TOKENS * P_out @ S @ P_out.T
        blocks = [
            reference.project(reference.example_gradients(model, each, [name], reduction="mean")[name], P_out, P_in)
            for each in (queries, train)
        ]
        damping = 0.2 * np.kron(S, A).trace() / RANK**2
        total += reference.kronecker_products(blocks[0], blocks[1], A, S, damping)
    assert unlike(found, total) < 1e-4
    unit = LograAttributor(settings(LograSettings, folder, **PAPER, damping=0.2))
    assert np.abs(scores(unit)).max() < 1 + 1e-6
    np.testing.assert_allclose(np.linalg.norm(unit.encode_train(TRAIN), axis=1), 1, rtol=1e-6)
