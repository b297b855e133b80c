"""Exact influence: both solvers agree, with naive solving and with training again."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from reference import gradients as reference
from scipy import linalg
from scipy.optimize import minimize
from worlds import frozen_lm
from worlds.double_lms import SMALL, listed, naive_loss, wide
from worlds.tiny_lms import tiny_lm, tiny_tokenizer

import airrep
from airrep.attributors.gradient.influence import Hessian, InfluenceAttributor
from airrep.attributors.gradient.projection import project_gradients
from airrep.attributors.gradient.reading import find_sites
from airrep.attributors.methods import make_attributor
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import ConfigError, DataError, NotFittedError, TrainingError
from airrep.lm.attention import PackedDocuments
from airrep.lm.documents import Documents
from airrep.lm.model import TargetLM
from airrep.lm.network import token_losses
from airrep.runtime.packing import pack

LAST = "model.layers.1.mlp.down_proj"

TRAIN = Corpus.from_examples(frozen_lm.TRAIN)
QUERIES = Corpus.from_examples(frozen_lm.QUERIES)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A tiny Llama with maps of 48 weights in its MLPs."""
    return tiny_lm(tmp_path / "lm", **SMALL)


def influence(folder: str, **settings: Any) -> InfluenceAttributor:
    found = make_attributor("influence", {"lm": folder, "store": "none", "device": "cpu", "damping": 3.0, **settings})
    assert isinstance(found, InfluenceAttributor)
    return found


def fitted(folder: str, **settings: Any) -> InfluenceAttributor:
    found = influence(folder, **settings)
    found.fit(TRAIN)
    return found


def scores(attributor: InfluenceAttributor) -> np.ndarray:
    return np.asarray(attributor.encode_queries(QUERIES) @ attributor.encode_train(TRAIN).T)


def close(found: np.ndarray, wanted: np.ndarray, tolerance: float = 1e-5) -> bool:
    """Relative to the largest."""
    return bool(np.abs(found - wanted).max() <= tolerance * np.abs(wanted).max())


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["cg", "explicit"])
def test_it_conforms(tmp_path: Path, solver: str) -> None:
    folder = tiny_lm(tmp_path / "lm", **SMALL, max_position_embeddings=4096)
    settings = {"lm": folder, "solver": solver, "damping": 3.0, "store": str(tmp_path / "store"), "device": "cpu"}
    airrep.check_attributor(lambda: make_attributor("influence", settings))


def test_scores_of_both_solvers_equal_those_of_the_naive_hessian(folder: str) -> None:
    lm = wide(folder)
    train, queries = lm.tokenise(TRAIN), lm.tokenise(QUERIES)
    loss, weights = naive_loss(lm, train, find_sites(lm.model, [LAST], "lm"), "mean")
    hessian = torch.autograd.functional.hessian(loss, weights, vectorize=True).numpy()
    g_train, g_queries = (naive_gradients(folder, each) for each in (train, queries))
    wanted = g_queries @ np.linalg.solve(hessian + 3 * np.eye(48), g_train.T)
    for settings in ({"solver": "explicit"}, {"solver": "cg", "batch_tokens": 20}, {"modules": [LAST]}):
        assert close(scores(fitted(folder, **settings)), wanted)


def naive_gradients(folder: str, documents: Documents, reduction: str = "mean") -> np.ndarray:
    """Gradients of one document after another, ``(n, 48)``."""
    model = reference.load(folder)
    found = reference.example_gradients(model, listed(documents), [LAST], "loss", reduction)
    return reference.flat(list(found.values()))


class Losses:
    """Losses of some documents, as functions of the last map's weights."""

    def __init__(self, lm: TargetLM, documents: Documents) -> None:
        self._lm, self._documents = lm, documents
        self._sites = find_sites(lm.model, [LAST], "lm")
        (self._batch,) = pack(documents.lengths, 10_000)
        self._packed = PackedDocuments.from_batch(documents, self._batch)

    def each(self, point: np.ndarray) -> np.ndarray:
        """Of each document."""
        with torch.no_grad():
            self._sites[0].module.weight.copy_(torch.from_numpy(point).reshape(8, 6))
            losses = token_losses(self._lm.model, self._packed).numpy()
        owners, found = self._packed.owners.numpy(), np.zeros(len(self._documents))
        found[self._batch.rows] = np.bincount(owners, losses) / np.bincount(owners)
        return found

    def gradients(self) -> np.ndarray:
        """Of each document, where :meth:`each` was asked for last."""
        return project_gradients(self._lm, self._documents, self._sites, None).features


@pytest.mark.slow
def test_influence_predicts_what_training_again_without_each_example_does(tmp_path: Path, folder: str) -> None:
    lm, damping = wide(folder), 0.1
    train, queries = (Losses(lm, lm.tokenise(each)) for each in (TRAIN, QUERIES))
    start = lm.model.get_submodule(LAST).weight.detach().flatten().numpy().copy()

    def trained(counts: np.ndarray, first: np.ndarray) -> np.ndarray:
        """Weights of least loss, summed over some documents over n, plus damping / 2 times their squared way."""

        def objective(point: np.ndarray) -> tuple[float, np.ndarray]:
            away, losses = point - start, train.each(point)
            value = counts @ losses / 8 + damping / 2 * away @ away
            return value, counts @ train.gradients() / 8 + damping * away

        return minimize(objective, first, jac=True, method="L-BFGS-B", options={"ftol": 1e-14, "gtol": 1e-7}).x

    best = trained(np.ones(8), start)
    before = queries.each(best)
    write_weights(lm, best, tmp_path / "trained")
    predicted = scores(fitted(str(tmp_path / "trained"), damping=damping)) / 8
    rises = np.stack([queries.each(trained(1 - one, best)) - before for one in np.eye(8)], axis=1)
    assert np.corrcoef(predicted.ravel(), rises.ravel())[0, 1] > 0.98
    assert close(predicted, rises, 0.2)


def write_weights(lm: TargetLM, point: np.ndarray, folder: Path) -> None:
    """Write an LM whose last map is another; it stays in float64."""
    with torch.no_grad():
        lm.model.get_submodule(LAST).weight.copy_(torch.from_numpy(point).reshape(8, 6))
    lm.model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)


def test_an_index_answers_as_the_attributor_and_needs_no_corpus(folder: str, tmp_path: Path) -> None:
    settings = {"lm": folder, "store": str(tmp_path / "store"), "device": "cpu", "damping": 3.0}
    for solver in ("cg", "explicit"):
        built = airrep.build_index(TRAIN, tmp_path / solver, "influence", settings={**settings, "solver": solver})
        found = airrep.Index(built.path).group_scores(QUERIES, [[0], [3], [5, 6]])
        wanted = scores(fitted(folder, solver=solver))
        sums = np.stack([wanted[:, 0], wanted[:, 3], wanted[:, 5] + wanted[:, 6]], axis=1)
        assert close(found, sums, 2e-3)  # features at rest are float16


def test_order_k_pools_take_the_explicit_solver_alone(folder: str) -> None:
    attributor = fitted(folder, solver="explicit")
    assert str(attributor.pooling("order-2")) == "order-2"
    with pytest.raises(ConfigError, match="pool 'order.*encodes queries"):
        fitted(folder).pooling("order-2")


def test_the_explicit_features_are_whitened_by_the_damped_hessian(folder: str) -> None:
    attributor = fitted(folder, solver="explicit")
    lm = wide(folder)
    documents = lm.tokenise(TRAIN)
    hessian = Hessian(lm, documents, find_sites(lm.model, [LAST], "lm")).matrix()
    gradients = naive_gradients(folder, documents)
    root = linalg.sqrtm(linalg.inv(hessian + 3 * np.eye(48))).real
    features = attributor.encode_train(TRAIN).astype(np.float64)
    white = gradients @ root
    assert close(features @ features.T, white @ white.T)


def test_training_features_fit_float16_whatever_the_size_of_gradients(folder: str) -> None:
    features = fitted(folder).encode_train(TRAIN)
    assert np.abs(features).max() == pytest.approx(1024, rel=1e-6)
    rounded = features.astype(np.float16).astype(np.float32)
    np.testing.assert_allclose(rounded, features, rtol=1e-3, atol=1e-6)


def test_a_second_damping_takes_the_hessian_and_solutions_that_are_kept(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = {"store": str(tmp_path / "store")}
    first, asked = fitted(folder, solver="explicit", **kept), fitted(folder, **kept)
    wanted = scores(asked)

    def fail(*_: object) -> np.ndarray:
        raise AssertionError("computed again")

    monkeypatch.setattr("airrep.attributors.gradient.influence.Hessian.products", fail)
    monkeypatch.setattr("airrep.attributors.gradient.base.project_gradients", fail)
    second = fitted(folder, solver="explicit", damping=2.0, **kept)
    assert first.fingerprint != second.fingerprint
    assert close(scores(first), wanted)
    np.testing.assert_array_equal(scores(fitted(folder, **kept)), wanted)


def test_the_fingerprint_tells_what_decides_features_and_nothing_else(folder: str) -> None:
    def of(**settings: Any) -> str:
        return fitted(folder, **settings).fingerprint

    same = {of(), of(batch_tokens=30), of(modules=[LAST])}
    others = [of(damping=4.0), of(tolerance=1e-3), of(solver="explicit"), of(modules=["*up*"])]
    assert len(same) == 1
    assert len(same | set(others)) == 5
    assert of(solver="explicit", tolerance=1e-3) == others[2]
    shorter = influence(folder)
    shorter.fit(TRAIN[:-1])
    assert shorter.fingerprint not in same


def test_a_hessian_that_is_not_positive_definite_names_damping(folder: str) -> None:
    said = r"hessian: is not positive definite with damping=0, .* Raise damping above [\d.e-]+, or train the LM"
    with pytest.raises(TrainingError, match=said):
        fitted(folder, solver="explicit", damping=0)
    with pytest.raises(TrainingError, match=said):
        fitted(folder, damping=0).encode_queries(QUERIES)


def test_too_many_weights_are_refused_with_their_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tiny_lm(tmp_path / "lm", hidden_size=64, intermediate_size=65)
    with pytest.raises(ConfigError, match=r"influence: 4,160 weights are too many .* 4,096.* solver=cg"):
        fitted(folder, solver="explicit")
    monkeypatch.setattr("airrep.attributors.gradient.influence.MOST", 4000)
    with pytest.raises(ConfigError, match=r"influence: 4,160 weights are too many; the limit is 4,000"):
        fitted(folder)


def test_what_cannot_be_attributed_is_refused(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"has no linear map named nothing; it has model\.layers\.0"):
        fitted(folder, modules=["nothing"])
    with pytest.raises(ConfigError, match="modules: .*lm_head"):
        fitted(folder, modules=["lm_head"])
    with pytest.raises(ConfigError, match="influence: checkpointing=true"):
        influence(folder, checkpointing=True)
    with pytest.raises(NotFittedError, match=r"influence: has not seen .* fit\(train\)"):
        influence(folder).encode_queries(QUERIES)
    with pytest.raises(DataError, match=r'influence: the LM cannot read 1 of 1 example\. .*"long"'):
        influence(folder).fit(Corpus.from_examples([Example("a", "b" * 100, "long")]))
    monkeypatch.setattr("airrep.attributors.gradient.influence.ITERATIONS", 1)
    with pytest.raises(TrainingError, match=r"conjugate gradients: after 1 iterations .* Raise damping"):
        fitted(folder).encode_queries(QUERIES)


def test_gradients_that_are_all_zero_are_refused(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "airrep.attributors.gradient.reading.DocumentPlaces.products", lambda _, g, a: g.new_zeros(len(g), 8, 6)[:1]
    )
    with pytest.raises(TrainingError, match="influence: all gradients are zero or not finite. Name other modules"):
        fitted(folder)


def test_progress_is_told_while_fitting(folder: str) -> None:
    attributor, told = influence(folder, solver="explicit"), []
    attributor.fit(TRAIN, lambda done, total: told.append((done, total)))
    assert told[-1] == (8, 8)
