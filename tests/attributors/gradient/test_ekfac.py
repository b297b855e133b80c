"""EK-FAC: its formula, low-rank queries, unit scores, its store, an index of it."""

from collections.abc import Sequence
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
from airrep.attributors.gradient.factors import HeldGradients, low_rank
from airrep.attributors.gradient.reading import DocumentPlaces, find_sites
from airrep.attributors.methods import make_attributor
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import ArtifactError, ConfigError, DataError, NotFittedError, TrainingError

pytestmark = pytest.mark.usefixtures("own_cache")

TRAIN, QUERIES = make_corpus(14), make_corpus(4, "q")


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def lm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny_lm(tmp_path_factory.mktemp("lm"), request.param)


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
    rank: int | None = None,
    exponent: float = 1.0,
) -> np.ndarray:
    """Scores ``(n, q)`` by loops in float64; with a rank, of the nearest matrices of that rank."""
    model = wide(lm)
    names = [site.name for site in find_sites(model.model, modules, "lm")]
    train, queries = listed(model.tokenise(TRAIN)), listed(model.tokenise(QUERIES))
    network, total, lengths = plain(model), 0.0, [0.0, 0.0]
    of_train = reference.example_gradients(network, train, names, "loss", reduction)
    of_queries = reference.example_gradients(network, queries, names, "loss", reduction)
    for name in names:
        A, S = reference.kronecker_factors(network, train, name, reduction)
        of_both = [of_train[name], of_queries[name]]
        one, other = reference.ekfac(of_both, A, S, damping, exponent)
        if rank is not None:
            one = reference.ekfac([*of_both, truncated(of_train[name], len(S), rank)], A, S, damping, exponent)[2]
        total = total + one @ other.T
        lengths = [before + (rows**2).sum(1) for before, rows in zip(lengths, (one, other), strict=True)]
    return total / np.sqrt(np.outer(*lengths)) if unit else np.asarray(total)


def truncated(rows: np.ndarray, outward: int, rank: int) -> np.ndarray:
    """The nearest matrices of a rank, ``(n, o·i)``."""
    left, values, right = np.linalg.svd(rows.reshape(len(rows), outward, -1), full_matrices=False)
    values[:, rank:] = 0
    return np.asarray(((left * values[:, None]) @ right).reshape(rows.shape))


def close(found: np.ndarray, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3 * np.abs(wanted).max())


@pytest.mark.parametrize(
    "settings",
    [
        *({}, {"damping": 1.0}, {"unit": True}, {"modules": ("*mlp*",), "damping": 0.01}),
        *({"exponent": 0.5}, {"exponent": 0.5, "unit": True}, {"exponent": 0.0}),
    ],
)
def test_scores_are_the_formula(lm: str, settings: dict[str, Any]) -> None:
    close(fitted(lm, **settings).score(TRAIN, QUERIES), expected(lm, **settings))


def test_an_exponent_is_kept_with_the_index_and_none_is_that_of_influence(lm: str, tmp_path: Path) -> None:
    for name, given in (("root", {"exponent": 0.5}), ("usual", {})):
        index = airrep.build_index(TRAIN, tmp_path / name, make(lm, **given))
        assert index.manifest["settings"]["exponent"] == given.get("exponent", 1.0)
        hits = airrep.Index(tmp_path / name).top(list(QUERIES), len(TRAIN))
        found = [[hit.score for hit in sorted(own, key=lambda hit: hit.row)] for own in hits]
        close(np.array(found).T, expected(lm, **given))
    with pytest.raises(ArtifactError, match="another attributor"):
        airrep.build_index(TRAIN, tmp_path / "usual", make(lm, exponent=0.5))


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
    assert fitted(lm).held_rank is None
    monkeypatch.setattr("airrep.attributors.gradient.ekfac.WHOLE", 0)
    assert fitted(lm).held_rank == 16
    assert fitted(lm).fingerprint == fitted(lm, query_rank=16).fingerprint
    assert fitted(lm, query_rank=8).held_rank == 8


@pytest.mark.parametrize("rank", [None, 16])
def test_queries_are_held_in_the_precision_of_products(lm: str, rank: int | None) -> None:
    exact = fitted(lm, query_rank=rank)
    held = exact.held(QUERIES)
    halved = HeldGradients(exact._factors, exact._inverse, rank, torch.bfloat16)
    halved.read(exact.lm, exact.lm.tokenise(QUERIES), exact.sites, "sum")
    assert {part.dtype for parts in held.sites.values() for part in parts} == {torch.float32}
    assert {part.dtype for parts in halved.sites.values() for part in parts} == {torch.bfloat16}
    wanted, found = exact.pass_by(TRAIN, held), exact.pass_by(TRAIN, halved)
    assert np.linalg.norm(found - wanted) < 2**-6 * np.linalg.norm(wanted)
    low = fitted(lm, query_rank=rank, precision="bfloat16").held(QUERIES)
    assert {part.dtype for parts in low.sites.values() for part in parts} == {torch.bfloat16}


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


def test_queries_that_were_scored_among_others_are_found_again(lm: str, passed: list[int]) -> None:
    whole = fitted(lm).score(TRAIN, QUERIES)
    first, second, third, fourth = QUERIES
    twice = Example(first.prompt, first.response, "twice")
    found = fitted(lm).score(TRAIN, [third, first, twice])
    np.testing.assert_array_equal(found, whole[:, [2, 0, 0]])
    assert fitted(lm).score(TRAIN[3:5], [fourth]).tolist() == whole[3:5, 3:].tolist()
    assert passed == [14]
    more = Example("another prompt", "and response", "more")
    beside = fitted(lm).score(TRAIN, [more, second])  # the new one alone is scored
    assert passed == [14, 14]
    np.testing.assert_array_equal(beside[:, 1], whole[:, 1])
    close(beside[:, 0], fitted(lm, store="none").score(TRAIN, [more])[:, 0])
    del passed[:]
    np.testing.assert_array_equal(fitted(lm).score(TRAIN, [*QUERIES, more]), np.c_[whole, beside[:, 0]])
    assert passed == []
    added = Example("a training example", "more", "added")
    assert fitted(lm).score([*TRAIN, added], [first]).shape == (15, 1)
    assert passed == [15]  # no list of queries has all of these examples
    assert fitted(lm).score([], [first, more]).shape == (0, 2)
    assert fitted(lm).score(TRAIN, []).shape == (14, 0)


def test_an_interrupted_pass_of_queries_goes_on(lm: str, passed: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airrep.attributors.gradient.store.CHUNK", 5)
    fitted(lm).score(TRAIN[:5], QUERIES)
    fitted(lm).score(TRAIN[:5], QUERIES[2:])
    assert passed == [5]
    fitted(lm).score(TRAIN, QUERIES)
    assert passed == [5, 5, 4]
    fitted(lm).score(TRAIN, QUERIES[2:])
    assert passed == [5, 5, 4]


def test_a_list_of_queries_that_was_altered_is_named(lm: str, tmp_path: Path) -> None:
    fitted(lm, store=str(tmp_path)).score(TRAIN, QUERIES)
    held = list(tmp_path.glob("*/*-*.safetensors"))
    assert len(held) == 1
    held[0].write_bytes(held[0].read_bytes()[:-1] + b"?")
    with pytest.raises(ArtifactError, match=f"{held[0].name}: was altered after it was written. Delete the file"):
        fitted(lm, store=str(tmp_path)).score(TRAIN, QUERIES[:2])


def test_an_index_answers_all_questions(lm: str, tmp_path: Path, passed: list[int]) -> None:
    index = airrep.build_index(TRAIN, tmp_path / "index", "ekfac", settings={"lm": lm, "precision": "float32"})
    scores = expected(lm).T
    for hits, row in zip(index.top(QUERIES, k=14), scores, strict=True):
        close(np.array([hit.score for hit in hits]), row[[hit.row for hit in hits]])
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert passed == [14]
    again = airrep.Index(tmp_path / "index")
    found = again.group_scores(QUERIES, by="label")
    labels = np.array([one.label for one in TRAIN])
    close(found.scores, np.stack([scores[:, labels == name].sum(1) for name in found.names], axis=1))
    gone = again.what_if(QUERIES, remove='label == "label 1"')
    close(gone.change, -scores[:, labels == "label 1"].sum(1))
    assert passed == [14]
    again.append(make_corpus(3, "more"))
    airrep.Index(tmp_path / "index").top(QUERIES)
    assert passed == [14, 3]
    assert airrep.Index(tmp_path / "index").empty == 0


@pytest.mark.parametrize("held_at_once", [2, 100])
def test_gradients_of_queries_are_taken_once_for_all_shards(
    lm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held_at_once: int
) -> None:
    settings = {"lm": lm, "precision": "float32", "store": "none"}
    index = airrep.build_index(TRAIN, tmp_path / "index", "ekfac", settings=settings, shard_rows=4)
    assert len(index.shards) == 4
    monkeypatch.setattr("airrep.attributors.gradient.ekfac.QUERY_NUMBERS", held_at_once * index.attributor._numbers)
    read: list[int] = []
    held = EkfacAttributor.held

    def counted(self: EkfacAttributor, queries: Sequence[Example]) -> HeldGradients:
        read.append(len(queries))
        return held(self, queries)

    monkeypatch.setattr(EkfacAttributor, "held", counted)
    scores = index.scores(QUERIES)
    assert sum(read) == len(QUERIES)
    assert max(read) == min(held_at_once, len(QUERIES))
    close(scores, expected(lm).T)


def test_an_example_without_a_finite_gradient_scores_nothing(lm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    method = fitted(lm, store="none")
    whole = method.score(TRAIN, QUERIES)
    held = method.held(QUERIES)
    for parts in held.sites.values():
        parts[0][2] = np.inf
    found = method.pass_by(TRAIN, held)
    assert np.isfinite(found).all()
    assert whole.any()


@pytest.mark.parametrize("rank", [None, 2])
def test_a_query_without_finite_gradient_is_nothing(lm: str, rank: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    method = fitted(lm, query_rank=rank, store="none")
    whole = method.held(QUERIES)
    products = DocumentPlaces.products

    def broken(self: Any, gradients: Any, inputs: Any) -> Any:
        found = products(self, gradients, inputs).clone()
        found[0, 0, 0] = np.nan
        return found

    monkeypatch.setattr(DocumentPlaces, "products", broken)
    found = method.held(QUERIES)
    gone = (found.lengths == 0).numpy()
    assert 1 <= gone.sum() < len(QUERIES)
    monkeypatch.undo()
    scores = method.pass_by(TRAIN, found)
    assert not scores[:, gone].any()
    close(scores[:, ~gone], method.pass_by(TRAIN, whole)[:, ~gone])


def test_errors_are_one_line(lm: str) -> None:
    with pytest.raises(NotFittedError, match="has not seen the training corpus"):
        make(lm).score(TRAIN, QUERIES)
    with pytest.raises(ConfigError, match="has no linear map named nothing"):
        fitted(lm, modules=("nothing",))
    with pytest.raises(ConfigError, match="pool 'order-2'"):
        make(lm).pooling("order-2")
    with pytest.raises(DataError, match="the LM cannot read"):
        make(lm).fit(Corpus.from_examples([Example("a", "word " * 4000, "long")]))
    with pytest.raises(ConfigError, match="damping"):
        make(lm, damping=0.0)
    method = fitted(lm, store="none")
    next(iter(method._factors.values())).eigenvalues[0, 0] = np.nan
    with pytest.raises(TrainingError, match="not finite"):
        method.score(TRAIN, QUERIES)


def test_examples_that_cannot_be_read_are_not_appended(lm: str, tmp_path: Path) -> None:
    """No features are computed of them, so without a check the next question would be the first to fail."""
    index = airrep.build_index(TRAIN, tmp_path / "index", "ekfac", settings={"lm": lm})
    more = Corpus.from_examples([*QUERIES, Example("a", "word " * 4000, "long")])
    with pytest.raises(DataError, match=r"^append: cannot use 1 of 5 examples.*\"long\".*--skip-invalid"):
        index.append(more)
    assert len(airrep.open(tmp_path / "index")) == len(TRAIN)
    assert len(index.append(more, skip_invalid=True)) == len(TRAIN) + len(QUERIES)


def test_weighted_answers_need_a_weight_only_in_the_data(lm: str, tmp_path: Path) -> None:
    """A query has the loss of its response; no copy of it can be scored for a verdict."""
    data = Corpus.from_records([{**one.to_dict(), "reward": number / 7} for number, one in enumerate(TRAIN)])
    index = airrep.build_index(data, tmp_path / "index", "ekfac", settings={"lm": lm, "loss": "weighted"})
    with pytest.raises(DataError, match='example "q0" has no advantage or reward'):
        index.append(QUERIES[:1])
    assert len(airrep.open(tmp_path / "index")) == len(TRAIN)
    for better in (None, ["another answer"] * len(QUERIES)):
        found = airrep.top(index, QUERIES, k=2, better=better)
        assert [(len(hits), hits.verdict) for hits in found] == [(2, None)] * len(QUERIES)


def test_one_method_opens_two_indexes_one_after_the_other(lm: str, tmp_path: Path) -> None:
    """Curvature is not put together from two corpora."""
    other = Corpus.from_examples([Example(f"about {n}", f"said {n * n} times") for n in range(9)])
    settings = {"lm": lm, "precision": "float32"}
    for name, data in (("one", TRAIN), ("other", other)):
        airrep.build_index(data, tmp_path / name, "ekfac", settings=settings)

    def scores(index: airrep.Index) -> np.ndarray:
        return index.scores(QUERIES)

    alone = [scores(airrep.Index(tmp_path / name)) for name in ("one", "other")]
    method = make(lm, store="none")
    both = [airrep.Index(tmp_path / name, method) for name in ("one", "other")]
    for _ in range(2):
        for index, wanted in zip(both, alone, strict=True):
            np.testing.assert_allclose(scores(index), wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())
