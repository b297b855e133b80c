"""Products with the Hessian equal derivatives of the plain loss; solving with it is exact."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import linalg
from scipy.special import expit
from torch import Tensor
from torch.autograd.functional import hvp
from worlds.double_lms import SMALL, executed, naive_loss, wide
from worlds.tiny_lms import some_examples, tiny_lm, tiny_opt

from airrep.attributors.gradient.influence import WHOLE, Hessian, check_size, factor, solve
from airrep.attributors.gradient.projection import project_gradients
from airrep.attributors.gradient.reading import Site, find_sites
from airrep.errors import ConfigError, TrainingError
from airrep.lm.documents import Documents
from airrep.lm.model import TargetLM

EXACT = 1e-6
"""Relative; transformers takes norms of Llama and Qwen in float32."""

SITES = {
    "llama": ("model.layers.0.mlp.up_proj", "model.layers.1.self_attn.k_proj"),
    "qwen2": ("model.layers.0.self_attn.q_proj", "model.layers.1.mlp.down_proj"),
    "qwen3": ("model.layers.0.self_attn.v_proj", "model.layers.1.mlp.gate_proj"),
    "gpt2": ("transformer.h.0.attn.c_proj", "transformer.h.1.mlp.c_fc"),
}


def tiny(folder: Path, kind: str = "llama") -> TargetLM:
    """An LM with few weights."""
    return wide(tiny_lm(folder, kind, **({"n_inner": 6} if kind == "gpt2" else SMALL)))


def chosen(lm: TargetLM, *patterns: str) -> tuple[Site, ...]:
    return find_sites(lm.model, patterns, "lm")


def unlike(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


def some_vectors(count: int, dimension: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((count, dimension))


@pytest.mark.parametrize(
    ("kind", "reduction"), [("llama", "mean"), ("qwen2", "sum"), ("qwen3", "mean"), ("gpt2", "mean"), ("gpt2", "sum")]
)
def test_products_equal_those_of_documents_read_one_by_one(tmp_path: Path, kind: str, reduction: str) -> None:
    lm = executed(tiny(tmp_path / "lm", kind), batch_tokens=30)
    documents = lm.tokenise(some_examples(4))
    sites = chosen(lm, *SITES[kind])
    hessian = Hessian(lm, documents, sites, reduction)
    vectors = some_vectors(2, hessian.dimension)
    loss, weights = naive_loss(lm, documents, sites, reduction)
    wanted = [hvp(loss, weights, torch.from_numpy(vector))[1].numpy() for vector in vectors]
    found = hessian.products(vectors)
    assert found.dtype == np.float64
    assert unlike(found, np.stack(wanted)) < EXACT


def test_the_matrix_equals_the_hessian_of_documents_read_one_by_one(tmp_path: Path) -> None:
    lm = tiny(tmp_path / "lm")
    documents = lm.tokenise(some_examples(4))
    sites = chosen(lm, *SITES["llama"])
    found = Hessian(lm, documents, sites).matrix()
    wanted = torch.autograd.functional.hessian(*naive_loss(lm, documents, sites), vectorize=True)
    np.testing.assert_array_equal(found, found.T)
    assert unlike(found, wanted.numpy()) < EXACT


def test_products_equal_differences_of_gradients(tmp_path: Path) -> None:
    lm = tiny(tmp_path / "lm", "gpt2")  # which computes in float64 throughout
    documents = lm.tokenise(some_examples(4))
    sites = chosen(lm, *SITES["gpt2"])
    hessian = Hessian(lm, documents, sites)
    vector = some_vectors(1, hessian.dimension)
    ends = [project_moved(lm, documents, sites, sign * 2e-5 * vector[0]) for sign in (1, -1)]
    assert unlike(hessian.products(vector)[0], (ends[0] - ends[1]) / 4e-5) < EXACT


def project_moved(lm: TargetLM, documents: Documents, sites: Sequence[Site], step: np.ndarray) -> np.ndarray:
    """The mean gradient where the weights are a step away."""
    starts = [site.module.weight.detach().clone() for site in sites]
    parts = torch.from_numpy(step).split([start.numel() for start in starts])
    with torch.no_grad():
        for site, start, part in zip(sites, starts, parts, strict=True):
            site.module.weight += part.reshape(start.T.shape).T
    mean = project_gradients(lm, documents, sites, None).features.mean(axis=0)
    with torch.no_grad():
        for site, start in zip(sites, starts, strict=True):
            site.module.weight.copy_(start)
    return mean


def test_layers_with_names_of_their_own_have_a_hessian(tmp_path: Path) -> None:
    lm = wide(tiny_opt(tmp_path / "opt"))
    documents = lm.tokenise(some_examples(3))
    sites = chosen(lm, "*.0.fc2")
    vectors = some_vectors(1, 384)
    loss, weights = naive_loss(lm, documents, sites)
    wanted = hvp(loss, weights, torch.from_numpy(vectors[0]))[1].numpy()
    assert unlike(Hessian(lm, documents, sites).products(vectors)[0], wanted) < EXACT


def test_batches_padding_order_and_company_do_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lm = tiny(tmp_path / "lm")
    documents = lm.tokenise(some_examples(9))
    sites = chosen(lm, *SITES["llama"])
    vectors = some_vectors(3, 80)
    whole = Hessian(executed(lm, batch_tokens=10_000), documents, sites).products(vectors)
    for batch_tokens, padding in [(1, 0), (100, 30), (10_000, 10_000)]:
        run = executed(lm, batch_tokens=batch_tokens, padding=padding)
        assert unlike(Hessian(run, documents, sites).products(vectors), whole) < EXACT
    shuffled = documents.take(np.random.default_rng(0).permutation(9))
    assert unlike(Hessian(lm, shuffled, sites).products(vectors), whole) < EXACT
    monkeypatch.setattr("airrep.attributors.gradient.influence.HELD", 1)
    alone = Hessian(lm, documents, sites).products(vectors)
    assert unlike(alone, whole) < EXACT


def test_the_lm_stays_as_it_was_and_in_its_precision(tmp_path: Path) -> None:
    lm = wide(tiny_lm(tmp_path / "lm", **SMALL))
    lm.model.float()
    before = {name: weight.clone() for name, weight in lm.model.state_dict().items()}
    documents, told = lm.tokenise(some_examples(3)), []
    hessian = Hessian(lm, documents, chosen(lm, "*.1.mlp.down_proj"), on_documents=told.append)
    assert hessian.products(np.zeros((0, 48))).shape == (0, 48)
    assert hessian.products(some_vectors(1, 48)).dtype == np.float64
    assert sum(told) == 6
    assert all(weight.dtype == torch.float32 for weight in lm.model.parameters())
    assert all(torch.equal(weight, before[name]) for name, weight in lm.model.state_dict().items())
    assert all(weight.requires_grad for weight in lm.model.parameters())


def test_too_many_weights_for_a_matrix_are_refused_naming_the_way_out(tmp_path: Path) -> None:
    check_size(WHOLE)
    with pytest.raises(ConfigError, match=r"^hessian: 4,097 weights are too many .* limit is 4,096.* solver=cg\.$"):
        check_size(WHOLE + 1)


def test_a_lack_of_memory_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lm = tiny(tmp_path / "lm")
    hessian = Hessian(lm, lm.tokenise(some_examples(2)), chosen(lm, "*.1.mlp.down_proj"))

    def fail(*_: object) -> Tensor:
        raise torch.OutOfMemoryError

    monkeypatch.setattr("airrep.attributors.gradient.influence.token_logits", fail)
    with pytest.raises(TrainingError, match="hessian: memory is short"):
        hessian.matrix()


def positive(size: int, least: float = 0.1) -> np.ndarray:
    """A symmetric matrix whose eigenvalues are known."""
    vectors = linalg.qr(some_vectors(size, size))[0]
    return (vectors * np.linspace(least, 3, size)) @ vectors.T


def test_both_ways_of_solving_equal_the_inverse() -> None:
    matrix, rights = positive(30), some_vectors(4, 30)
    rights[2] = 0
    wanted = np.linalg.solve(matrix + 0.2 * np.eye(30), rights.T).T
    lower = factor(matrix, 0.2)
    np.testing.assert_array_equal(lower, np.tril(lower))
    np.testing.assert_allclose(linalg.cho_solve((lower, True), rights.T).T, wanted, rtol=1e-10, atol=1e-12)
    found = solve(lambda rows: rows @ matrix, rights, 0.2, 1e-12, 100)
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-11)
    assert not found[2].any()


def test_each_row_is_solved_to_its_own_tolerance_whatever_its_size_and_company() -> None:
    matrix, rights = positive(40), some_vectors(5, 40) * np.array([1e-9, 1, 1e9, 3, 1e-30])[:, None]
    asked = []

    def product(rows: np.ndarray) -> np.ndarray:
        asked.append(len(rows))
        return rows @ matrix

    found = solve(product, rights, 0.0, 1e-6, 100)
    left = np.linalg.norm(found @ matrix - rights, axis=1) / np.linalg.norm(rights, axis=1)
    assert left.max() < 1.01e-6
    assert asked[-1] <= asked[0] == 5
    alone = np.concatenate([solve(product, row[None], 0.0, 1e-6, 100) for row in rights])
    np.testing.assert_allclose(alone, found, rtol=1e-6, atol=0)


def test_a_hessian_that_bends_down_is_refused_naming_damping() -> None:
    matrix = positive(20, least=-0.5)
    said = r"hessian: is not positive definite with damping=0\.1, .* is -0\.5\. Raise damping above 0\.5"
    with pytest.raises(TrainingError, match=said):
        factor(matrix, 0.1)
    downwards = linalg.eigh(matrix)[1][:, 0]
    with pytest.raises(TrainingError, match=said):
        solve(lambda rows: rows @ matrix, downwards[None], 0.1, 1e-6, 100)
    factor(matrix, 0.51)


def test_steps_that_do_not_suffice_and_numbers_that_are_none_are_refused() -> None:
    matrix, rights = positive(30, least=1e-3), some_vectors(2, 30)
    with pytest.raises(TrainingError, match=r"conjugate gradients: after 3 iterations .* Raise damping"):
        solve(lambda rows: rows @ matrix, rights, 0.0, 1e-6, 3)
    with pytest.raises(TrainingError, match="hessian: is not finite"):
        solve(lambda rows: rows * np.nan, rights, 0.0, 1e-6, 3)
    with pytest.raises(TrainingError, match="hessian: is not finite"):
        factor(matrix * np.inf, 0.0)


def test_influence_on_logistic_regression_predicts_training_again_without_each_example() -> None:
    rng, damping, n = np.random.default_rng(1), 0.02, 60
    inputs = rng.standard_normal((n, 6))
    labels = (inputs @ rng.standard_normal(6) + rng.standard_normal(n) > 0).astype(float)
    queries = rng.standard_normal((20, 6))

    def trained(counts: np.ndarray) -> np.ndarray:
        weights = np.zeros(6)
        for _ in range(30):
            chances = expit(inputs @ weights)
            gradient = inputs.T @ (counts * (chances - labels)) / n + damping * weights
            weights -= np.linalg.solve(bends(counts * chances * (1 - chances)) + damping * np.eye(6), gradient)
        return weights

    def bends(by: np.ndarray) -> np.ndarray:
        return (inputs * by[:, None]).T @ inputs / n

    best = trained(np.ones(n))
    chances = expit(inputs @ best)
    gradients = inputs * (chances - labels)[:, None]
    hessian = bends(chances * (1 - chances))
    of_queries = queries * (expit(queries @ best) - 1)[:, None]  # the loss of the label 1
    solved = solve(lambda rows: rows @ hessian, of_queries, damping, 1e-10, 100)
    lower = factor(hessian, damping)
    white = [linalg.solve_triangular(lower, rows.T, lower=True).T for rows in (of_queries, gradients)]
    predicted = solved @ gradients.T / n
    np.testing.assert_allclose(white[0] @ white[1].T / n, predicted, rtol=1e-6, atol=1e-12)

    def rises(share: float) -> np.ndarray:
        """By how much losses rise where a share of each example is left out, over the share."""
        again = np.stack([-np.log(expit(queries @ trained(1 - share * one))) for one in np.eye(n)], axis=1)
        return (again + np.log(expit(queries @ best))[:, None]) / share

    assert np.corrcoef(predicted.ravel(), rises(1).ravel())[0, 1] > 0.98
    assert unlike(predicted, rises(0.01)) < 0.01
    assert unlike(predicted, rises(0.001)) < 0.001
