"""EK-FAC: its formula, low-rank queries, unit scores, its store, an index of it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from reference import gradients as reference
from worlds.double_lms import listed, plain, wide
from worlds.small_world import make_corpus
from worlds.tiny_lms import tiny_lm

import airrep
from airrep.attributors.gradient.ekfac import EkfacAttributor
from airrep.attributors.gradient.factors import low_rank
from airrep.attributors.gradient.reading import find_sites
from airrep.attributors.methods import make_attributor
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import ConfigError, DataError, NotFittedError, TrainingError

TRAIN, QUERIES = make_corpus(14), make_corpus(4, "q")


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def lm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny_lm(tmp_path_factory.mktemp("lm"), request.param)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRREP_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many examples were scored, call by call."""
    counts: list[int] = []
    inside = EkfacAttributor.pass_by

    def counted(self: Any, train: Any, held: Any) -> Any:
        counts.append(len(train))
        return inside(self, train, held)

    monkeypatch.setattr(EkfacAttributor, "pass_by", counted)
    return counts


def make(lm: str, **settings: Any) -> Any:
    return make_attributor("ekfac", {"lm": lm, "precision": "float32", **settings})


def fitted(lm: str, **settings: Any) -> Any:
    method = make(lm, **settings)
    method.fit(TRAIN)
    return method


def expected(
    lm: str,
    damping: float = 0.1,
    unit: bool = False,
    reduction: str = "sum",
    modules: tuple[str, ...] = ("all-linear",),
) -> np.ndarray:
    """Scores ``(n, q)`` by loops in float64."""
    model = wide(lm)
    names = [site.name for site in find_sites(model.model, modules, "lm")]
    train, queries = listed(model.tokenise(TRAIN)), listed(model.tokenise(QUERIES))
    network, total, lengths = plain(model), 0.0, [0.0, 0.0]
    of_train = reference.example_gradients(network, train, names, "loss", reduction)
    of_queries = reference.example_gradients(network, queries, names, "loss", reduction)
    for name in names:
        A, S = reference.kronecker_factors(network, train, name, reduction)
        one, other = reference.ekfac([of_train[name], of_queries[name]], A, S, damping)
        total = total + one @ other.T
        lengths = [before + (rows**2).sum(1) for before, rows in zip(lengths, (one, other), strict=True)]
    return total / np.sqrt(np.outer(*lengths)) if unit else np.asarray(total)


def close(found: np.ndarray, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3 * np.abs(wanted).max())


@pytest.mark.parametrize(
    "settings", [{}, {"damping": 1.0}, {"unit": True}, {"reduction": "mean"}, {"modules": ("*mlp*",), "damping": 0.01}]
)
def test_scores_are_the_formula(lm: str, settings: dict[str, Any]) -> None:
    close(fitted(lm, **settings).score(TRAIN, QUERIES), expected(lm, **settings))


def test_factors_of_enough_rank_are_the_whole(lm: str) -> None:
    whole = fitted(lm).score(TRAIN, QUERIES)
    close(fitted(lm, query_rank=16).score(TRAIN, QUERIES), whole)
    close(fitted(lm, query_rank=16, unit=True).score(TRAIN, QUERIES), fitted(lm, unit=True).score(TRAIN, QUERIES))
    some = fitted(lm, query_rank=4).score(TRAIN, QUERIES)
    assert np.corrcoef(some.ravel(), whole.ravel())[0, 1] > 0.9


def test_low_rank_is_the_best_approximation() -> None:
    generator = torch.Generator().manual_seed(3)
    matrices = torch.randn(2, 40, 30, generator=generator) * torch.logspace(0, -3, 30)
    left, right = low_rank(matrices, 5)
    assert (left.shape, right.shape) == ((2, 40, 5), (2, 30, 5))
    for matrix, one, other in zip(matrices, left, right, strict=True):
        values = torch.linalg.svdvals(matrix)
        lost = torch.linalg.norm(matrix - one @ other.T)
        assert lost <= 1.01 * torch.linalg.norm(values[5:])


def test_it_conforms(tmp_path: Path) -> None:
    folder = tiny_lm(tmp_path / "long", max_position_embeddings=4096)
    for more in ({}, {"query_rank": 8}, {"unit": True, "store": "none"}):
        airrep.check_attributor(lambda more=more: make(folder, **more))


def test_queries_in_parts_have_the_same_scores(lm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fitted(lm).score(TRAIN, QUERIES)
    method = fitted(lm, store="none")
    monkeypatch.setattr("airrep.attributors.gradient.ekfac.QUERY_NUMBERS", 2 * method._numbers)
    close(method.score(TRAIN, QUERIES), whole)


def test_queries_are_read_a_few_at_a_time(lm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fitted(lm).score(TRAIN, QUERIES)
    monkeypatch.setattr("airrep.attributors.gradient.factors.READ_AT_ONCE", 2)
    assert len(QUERIES) > 2
    close(fitted(lm, store="none").score(TRAIN, QUERIES), whole)


def test_gradients_of_queries_are_factors_for_large_lms(lm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fitted(lm).rank is None
    monkeypatch.setattr("airrep.attributors.gradient.ekfac.WHOLE", 0)
    assert fitted(lm).rank == 16
    assert fitted(lm).fingerprint == fitted(lm, query_rank=16).fingerprint
    assert fitted(lm, query_rank=8).rank == 8


def test_what_was_computed_is_found_again(lm: str, passed: list[int]) -> None:
    first = fitted(lm).score(TRAIN, QUERIES)
    assert passed == [14]
    again = fitted(lm).score([*TRAIN, Example("more", "text", "m")], QUERIES)
    assert passed == [14, 1]
    np.testing.assert_array_equal(again[:-1], first)
    fitted(lm, damping=0.5).score(TRAIN, QUERIES)
    assert passed == [14, 1, 14]
    fitted(lm, store="none").score(TRAIN[:3], QUERIES)
    fitted(lm, store="none").score(TRAIN[:3], QUERIES)
    assert passed[3:] == [3, 3]


def test_an_index_answers_all_questions(lm: str, tmp_path: Path, passed: list[int]) -> None:
    index = airrep.build_index(TRAIN, tmp_path / "index", "ekfac", settings={"lm": lm, "precision": "float32"})
    scores = expected(lm).T
    for hits, row in zip(index.top(QUERIES, k=14), scores, strict=True):
        close(np.array([hit.score for hit in hits]), row[[hit.row for hit in hits]])
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert passed == [14]
    again = airrep.open_index(tmp_path / "index")
    found = again.group_scores(QUERIES, by="label")
    labels = np.array([one.label for one in TRAIN])
    close(found.scores, np.stack([scores[:, labels == name].sum(1) for name in found.names], axis=1))
    gone = again.what_if(QUERIES, remove='label == "label 1"')
    close(gone.change, -scores[:, labels == "label 1"].sum(1))
    assert passed == [14]
    again.append(make_corpus(3, "more"))
    airrep.open_index(tmp_path / "index").top(QUERIES)
    assert passed == [14, 3]
    assert airrep.open_index(tmp_path / "index").empty == 0


def test_an_example_without_a_finite_gradient_scores_nothing(lm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    method = fitted(lm, store="none")
    whole = method.score(TRAIN, QUERIES)
    held = method.held(QUERIES)
    for parts in held.sites.values():
        parts[0][2] = np.inf
    found = method.pass_by(TRAIN, held)
    assert np.isfinite(found).all()
    assert whole.any()


def test_errors_are_one_line(lm: str) -> None:
    with pytest.raises(NotFittedError, match="has not seen the training corpus"):
        make(lm).score(TRAIN, QUERIES)
    with pytest.raises(ConfigError, match="has no linear map named nothing"):
        fitted(lm, modules=("nothing",))
    with pytest.raises(ConfigError, match="pool 'order-2'"):
        make(lm).pooling("order-2")
    with pytest.raises(DataError, match="cannot be read by the LM"):
        make(lm).fit(Corpus.from_examples([Example("a", "word " * 4000, "long")]))
    with pytest.raises(ConfigError, match="damping"):
        make(lm, damping=0.0)
    method = fitted(lm, store="none")
    next(iter(method._factors.values())).eigenvalues[0, 0] = np.nan
    with pytest.raises(TrainingError, match="not finite"):
        method.score(TRAIN, QUERIES)
