"""Gradients of packed batches are those of one document after another."""

import re
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from reference import gradients as reference
from torch import nn
from worlds.architectures import written
from worlds.double_lms import executed, listed, plain, wide
from worlds.small_world import make_corpus
from worlds.tiny_lms import TYPES, some_examples, tiny_lm, tiny_network, tiny_opt

import airrep
from airrep.attributors.gradient.projection import Covariances, GradientProjector, project_gradients, random_projections
from airrep.attributors.gradient.reading import DocumentPlaces, Site, find_sites, read_gradients, unread
from airrep.attributors.methods import make_attributor
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import ConfigError
from airrep.lm.documents import Documents
from airrep.lm.model import TargetLM, load_lm
from airrep.lm.settings import LmSettings
from airrep.lm.warmup import warm_up
from airrep.runtime.packing import Batch

EXACT = 1e-6
"""Relative to an example's whole gradient; transformers takes norms of Llama and Qwen in float32."""

LAYERS = {"gpt2": "transformer.h.*"}
MLPS = {
    "llama": ("gate_proj", "up_proj", "down_proj"),
    "qwen2": ("gate_proj", "up_proj", "down_proj"),
    "qwen3": ("gate_proj", "up_proj", "down_proj"),
    "gpt2": ("c_fc", "c_proj"),
}


def unlike(found: np.ndarray, wanted: np.ndarray) -> float:
    """Largest length of a row's difference, relative to the row."""
    return float((np.linalg.norm(found - wanted, axis=1) / np.linalg.norm(wanted, axis=1)).max())


def one_by_one(lm: TargetLM, documents: Documents, sites: Sequence[Site], **how: Any) -> np.ndarray:
    """Whole gradients of each document by itself."""
    names = [site.name for site in sites]
    return reference.flat(list(reference.example_gradients(plain(lm), listed(documents), names, **how).values()))


@pytest.fixture
def llama(tmp_path: Path) -> TargetLM:
    """A tiny Llama."""
    return wide(tiny_lm(tmp_path / "llama"))


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize(("objective", "reduction"), [("loss", "mean"), ("loss", "sum"), ("margin", "mean")])
def test_gradients_of_every_linear_map_equal_a_backward_pass_for_each_document(
    tmp_path: Path, kind: str, objective: str, reduction: str
) -> None:
    lm = executed(wide(tiny_lm(tmp_path / "lm", kind)), batch_tokens=40)
    documents = lm.tokenise(some_examples(9))
    sites = find_sites(lm.model, [LAYERS.get(kind, "model.layers.*")], "lm")
    how: Any = {"objective": objective, "reduction": reduction}
    found = project_gradients(lm, documents, sites, None, **how).features
    wanted = one_by_one(lm, documents, sites, **how)
    sign = -1 if objective == "margin" else 1  # less of either is better
    assert len(sites) == 2 * (4 + len(MLPS[kind])) if kind != "gpt2" else 8
    assert found.dtype == np.float64
    assert unlike(found, sign * wanted) < EXACT


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_all_linear_maps_are_those_of_all_layers_without_the_output(tmp_path: Path, kind: str) -> None:
    lm = wide(tiny_lm(tmp_path / "lm", kind))
    every = find_sites(lm.model, ["all-linear"], "lm")
    layers = find_sites(lm.model, [LAYERS.get(kind, "model.layers.*")], "lm")
    assert [site.name for site in every] == [site.name for site in layers]
    assert not any(site.module is lm.model.get_output_embeddings() for site in every)


def test_gradients_equal_a_backward_pass_where_layers_have_names_of_their_own(tmp_path: Path) -> None:
    lm = wide(tiny_opt(tmp_path / "opt"))
    documents = lm.tokenise(some_examples(5))
    sites = find_sites(lm.model, None, "lm")
    assert [site.name.split(".")[-1] for site in sites] == ["fc1", "fc2"] * 2
    assert unlike(project_gradients(lm, documents, sites, None).features, one_by_one(lm, documents, sites)) < EXACT


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_batches_padding_and_order_do_not_matter(tmp_path: Path, kind: str) -> None:
    lm = wide(tiny_lm(tmp_path / "lm", kind))
    documents = lm.tokenise(some_examples(12))
    sites = find_sites(lm.model, None, "lm")
    projections = random_projections(sites, 5, seed=1)
    whole = project_gradients(executed(lm, batch_tokens=10_000), documents, sites, projections)
    for batch_tokens, padding in [(1, 0), (37, 0), (100, 30), (10_000, 10_000), (10_000, 10)]:
        found = project_gradients(
            executed(lm, batch_tokens=batch_tokens, padding=padding), documents, sites, projections
        )
        assert unlike(found.features, whole.features) < EXACT
        np.testing.assert_allclose(found.doubts, whole.doubts, rtol=EXACT)
    order = np.random.default_rng(0).permutation(len(documents))
    shuffled = project_gradients(lm, documents.take(order), sites, projections)
    assert unlike(shuffled.features, whole.features[order]) < EXACT


def test_company_does_not_matter_and_equal_documents_have_equal_gradients(llama: TargetLM) -> None:
    sites = find_sites(llama.model, None, "lm")
    documents = llama.tokenise(some_examples(6))
    twice = documents.take([3, 0, 3, 3, 5, 0])
    found = project_gradients(llama, twice, sites, None).features
    alone = project_gradients(llama, documents.take([3]), sites, None).features
    assert unlike(found[[0, 2, 3]], np.repeat(alone, 3, axis=0)) < EXACT
    assert unlike(found[[1]], found[[5]]) < EXACT


def test_a_document_longer_than_a_batch_and_one_token_responses_are_read(llama: TargetLM) -> None:
    documents = Documents.of([(list(range(3, 63)), 1), ([5, 6], 1), ([9, 8, 7, 6], 3), (list(range(100, 140)), 39)])
    sites = find_sites(llama.model, None, "lm")
    found = project_gradients(executed(llama, batch_tokens=8), documents, sites, None).features
    assert unlike(found, one_by_one(llama, documents, sites)) < EXACT


def test_only_response_tokens_count_and_their_sums_add_up(llama: TargetLM) -> None:
    ids = [7, 9, 30, 41, 8, 12, 77]
    documents = Documents.of([(ids, 1), (ids[:4], 1), (ids, 4)])
    sites = find_sites(llama.model, None, "lm")
    sums = project_gradients(llama, documents, sites, None, reduction="sum").features
    assert unlike(sums[[1]] + sums[[2]], sums[[0]]) < EXACT
    means = project_gradients(llama, documents, sites, None).features
    assert unlike(means * np.array([[6], [3], [3]]), sums) < EXACT


def test_what_was_cut_off_a_prompt_leaves_no_trace(tmp_path: Path) -> None:
    lm = wide(tiny_lm(tmp_path / "lm"), max_tokens=20)
    same_end = "and this is where all of them end"
    examples = [Example(front + same_end, "yes", str(row)) for row, front in enumerate(["", "a fox ", "owls " * 40])]
    documents = lm.tokenise(examples)
    sites = find_sites(lm.model, None, "lm")
    found = project_gradients(lm, documents, sites, None).features
    assert documents.lengths.max() == 20
    assert unlike(found, one_by_one(lm, documents, sites)) < EXACT
    assert unlike(found[[1]], found[[2]]) < EXACT


@pytest.mark.parametrize("kind", ["qwen2", "gpt2"])
def test_projected_gradients_are_products_with_small_matrices_on_both_sides(tmp_path: Path, kind: str) -> None:
    lm = wide(tiny_lm(tmp_path / "lm", kind))
    documents = lm.tokenise(some_examples(5))
    sites = find_sites(lm.model, None, "lm")
    projections = random_projections(sites, 3, seed=4)
    wholes = reference.example_gradients(plain(lm), listed(documents), [site.name for site in sites])
    wanted = [
        reference.project(wholes[name], outward.double().numpy().T, inward.double().numpy().T)
        for name, (inward, outward) in projections.items()
    ]
    found = project_gradients(lm, documents, sites, projections).features
    assert found.shape == (5, len(sites) * 9)
    assert unlike(found, reference.flat(wanted)) < EXACT


def test_random_matrices_keep_inner_products_in_expectation() -> None:
    site = Site("map", nn.Linear(6, 5, bias=False), 6, 5)
    one, other = np.random.default_rng(0).standard_normal((2, 5, 6))
    products = []
    for seed in range(1500):
        inward, outward = (side.double().numpy() for side in random_projections([site], 4, seed)["map"])
        products.append(((outward.T @ one @ inward) * (outward.T @ other @ inward)).sum())
    spread = np.std(products) / np.sqrt(len(products))
    assert abs(np.mean(products) - (one * other).sum()) < 4 * spread


def test_a_maps_random_matrices_depend_on_seed_name_and_widths_alone() -> None:
    first, second = (Site(name, nn.Linear(6, 5), 6, 5) for name in ("first", "second"))
    together = random_projections([first, second], 3, seed=0)
    alone = random_projections([second], 3, seed=0)
    assert all(torch.equal(one, other) for one, other in zip(together["second"], alone["second"], strict=True))
    assert not torch.equal(together["first"][0], together["second"][0])
    assert not torch.equal(together["first"][0][:5], together["first"][1])
    assert not torch.equal(alone["second"][0], random_projections([second], 3, seed=1)["second"][0])


@pytest.mark.parametrize("kind", TYPES)
def test_by_default_exactly_the_linear_maps_of_mlps_are_taken(tmp_path: Path, kind: str) -> None:
    model = load_lm(LmSettings(lm=tiny_lm(tmp_path / "lm", kind), precision="float32", device="cpu")).model
    sites = find_sites(model, None, "lm")
    layers = "transformer.h" if kind == "gpt2" else "model.layers"
    assert [site.name for site in sites] == [f"{layers}.{n}.mlp.{part}" for n in range(2) for part in MLPS[kind]]
    for site in sites:
        shape = tuple(site.module.weight.shape)
        assert (site.width_out, site.width_in) == (shape[::-1] if kind == "gpt2" else shape)


def test_modules_are_found_by_pattern_in_the_models_order_and_once(llama: TargetLM) -> None:
    def names(*patterns: str) -> list[str]:
        return [site.name for site in find_sites(llama.model, patterns, "lm")]

    assert names("*.q_proj", "*.k_proj") == [f"model.layers.{n}.self_attn.{p}_proj" for n in range(2) for p in "qk"]
    assert names("*.k_proj", "*.q_proj", "*.1.*.q_proj") == names("*.q_proj", "*.k_proj")
    assert names("model.layers.1.mlp.up_proj") == ["model.layers.1.mlp.up_proj"]


def test_a_pattern_without_a_linear_map_lists_those_that_there_are(llama: TargetLM) -> None:
    for patterns in [("*.c_fc",), ("*.q_proj", "*.c_fc"), ("model.embed_tokens",), ("",)]:
        with pytest.raises(ConfigError, match=r"^lm tiny: .*model\.layers\.0\.self_attn\.q_proj, .* modules") as caught:
            find_sites(llama.model, patterns, "lm tiny")
        assert patterns[-1] in str(caught.value)
        assert "q_proj or" not in str(caught.value)
    with pytest.raises(ConfigError, match="no linear map"):
        find_sites(nn.Sequential(nn.LayerNorm(3)), None, "lm")


def test_the_output_layer_which_sees_responses_alone_is_refused(llama: TargetLM) -> None:
    documents = llama.tokenise(some_examples(3))
    with pytest.raises(ConfigError, match=r"lm_head.* \d+ of \d+ tokens.*modules"):
        project_gradients(llama, documents, find_sites(llama.model, ["lm_head"], "lm"), None)


def test_a_rank_larger_than_a_map_is_refused_naming_it(llama: TargetLM) -> None:
    sites = find_sites(llama.model, ["*.mlp.*", "*.k_proj"], "lm")
    assert random_projections(sites, 8, seed=0)
    with pytest.raises(ConfigError, match=r"rank=9: model\.layers\.0\.self_attn\.k_proj maps 16 to 8 .* at most 8"):
        random_projections(sites, 9, seed=0)


class Failing(GradientProjector):
    """Breaks down in a backward pass."""

    def take(self, *_: Any) -> None:
        raise RuntimeError("broken")


def hooks(model: nn.Module) -> list[str]:
    """Names of modules with hooks."""
    return [name for name, module in model.named_modules() if module._forward_hooks or module._backward_hooks]


@pytest.mark.parametrize("reader", [GradientProjector, Failing])
def test_the_model_is_left_as_it_was_even_after_an_error(llama: TargetLM, reader: type[GradientProjector]) -> None:
    documents = llama.tokenise(some_examples(3))
    before = {name: weight.clone() for name, weight in llama.model.state_dict().items()}
    sites = find_sites(llama.model, None, "lm")
    llama.model.get_parameter("lm_head.weight").requires_grad_(False)
    frozen = [name for name, each in llama.model.named_parameters() if not each.requires_grad]
    with pytest.raises(RuntimeError, match="broken") if reader is Failing else nullcontext():
        list(read_gradients(llama, documents, sites, reader(sites, None, "cpu")))
    assert all(torch.equal(weight, before[name]) for name, weight in llama.model.state_dict().items())
    assert [name for name, each in llama.model.named_parameters() if not each.requires_grad] == frozen
    assert all(each.grad is None for each in llama.model.parameters())
    assert not hooks(llama.model)
    assert not llama.model.training


def test_reading_that_is_given_up_halfway_leaves_nothing_behind(llama: TargetLM) -> None:
    sites = find_sites(llama.model, None, "lm")
    reading: Iterator[Any] = read_gradients(
        executed(llama, batch_tokens=1), llama.tokenise(some_examples(4)), sites, GradientProjector(sites, None, "cpu")
    )
    next(reading)
    reading.close()
    assert not hooks(llama.model)
    assert all(each.requires_grad for each in llama.model.parameters())


def test_no_documents_give_no_rows(llama: TargetLM) -> None:
    sites = find_sites(llama.model, None, "lm")
    found = project_gradients(llama, Documents.of([]), sites, random_projections(sites, 2, seed=0))
    assert found.features.shape == (0, 6 * 4)
    assert found.doubts.shape == (0,)


def test_doubts_are_the_mean_chance_of_another_token(llama: TargetLM) -> None:
    documents = llama.tokenise(some_examples(7))
    sites = find_sites(llama.model, ["*.0.mlp.up_proj"], "lm")
    wanted = [reference.other_chance(plain(llama), document) for document in listed(documents)]
    for objective in ("loss", "margin"):
        how: Any = {"objective": objective}
        found = project_gradients(executed(llama, batch_tokens=50), documents, sites, None, **how)
        np.testing.assert_allclose(found.doubts, wanted, rtol=1e-6)


def test_an_lm_that_is_sure_or_surely_wrong_gives_finite_gradients(tmp_path: Path) -> None:
    lm = load_lm(LmSettings(lm=tiny_lm(tmp_path / "lm"), precision="float32", device="cpu"))
    with torch.no_grad():
        lm.model.lm_head.weight.mul_(1000)
    documents = lm.tokenise(some_examples(6))
    for objective in ("loss", "margin"):
        how: Any = {"objective": objective}
        found = project_gradients(lm, documents, find_sites(lm.model, None, "lm"), None, **how)
        assert found.features.dtype == np.float32
        assert np.isfinite(found.features).all()
        assert ((found.doubts >= 0) & (found.doubts <= 1)).all()


def test_bfloat16_gives_nearly_the_same_in_float32(tmp_path: Path) -> None:
    folder = tiny_lm(tmp_path / "lm", "qwen2")
    exact, rough = (load_lm(LmSettings(lm=folder, precision=p, device="cpu")) for p in ("float32", "bfloat16"))
    documents = exact.tokenise(some_examples(8))
    found = [project_gradients(lm, documents, find_sites(lm.model, None, "lm"), None).features for lm in (exact, rough)]
    assert found[1].dtype == np.float32
    one, other = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in found)
    assert (one * other).sum(axis=1).min() > 0.99


def test_covariances_are_means_over_all_tokens_of_each_example_by_itself(llama: TargetLM) -> None:
    documents = llama.tokenise(some_examples(6))
    sites = find_sites(llama.model, None, "lm")
    sums = Covariances(sites)
    for _ in read_gradients(executed(llama, batch_tokens=45), documents, sites, sums):
        pass
    for site in sites:
        wanted = reference.kronecker_factors(plain(llama), listed(documents), site.name)
        for found, factor in zip(sums.of(site.name), wanted, strict=True):
            np.testing.assert_allclose(found.numpy(), factor, rtol=0, atol=1e-6 * np.abs(factor).max())
    assert set(sums.tokens.values()) == {int(documents.lengths.sum())}


def test_maps_that_read_the_same_inputs_share_what_is_made_of_them() -> None:
    names = ("query", "key", "down")
    sites = [Site(name, torch.nn.Linear(6, 4), 6, 4) for name in names]
    rng = np.random.default_rng(0)
    sums, places = Covariances(sites), cast(DocumentPlaces, None)
    projected = random_projections(sites, 2, 0)
    projected["key"] = (projected["query"][0].clone(), projected["key"][1])
    projector, seen = GradientProjector(sites, projected, "cpu"), []
    for rows in (5, 7):
        shared, own = (torch.from_numpy(rng.standard_normal((rows, 6)).astype(np.float32)) for _ in range(2))
        inputs = (shared, shared.detach(), own)
        for site, given in zip(sites, inputs, strict=True):
            sums.keep(site, given)
            sums.take(site, torch.empty(0), torch.ones(rows, 4), places)
            wanted = given @ projected[site.name][0]
            torch.testing.assert_close(projector.keep(site, given), wanted)
        seen.append(inputs)
    assert [sums.read_by(name) for name in names] == ["query", "query", "down"]
    assert sums.tokens == dict.fromkeys(names, 12)
    for place, name in enumerate(names):
        rows = torch.cat([each[place] for each in seen])
        torch.testing.assert_close(sums.of(name)[0], rows.T @ rows / 12)
    with pytest.raises(RuntimeError, match="key: this module read .* query"):
        sums.keep(sites[1], seen[0][2])


def test_inputs_that_changed_in_place_are_other_ones() -> None:
    sites, inputs = [Site(name, torch.nn.Linear(3, 2), 3, 2) for name in ("one", "two")], torch.ones(4, 3)
    sums = Covariances(sites)
    sums.keep(sites[0], inputs)
    inputs *= 2
    sums.keep(sites[1], inputs)
    assert sums.read_by("two") == "two"


def test_covariances_of_wide_maps_are_whole_and_leave_out_what_is_not_finite() -> None:
    """They are added up in blocks of rows, of which 600 make five."""
    site = Site("wide", torch.nn.Linear(600, 300), 600, 300)
    rng = np.random.default_rng(0)
    inputs, gradients = (rng.standard_normal((70, width)).astype(np.float32) for width in (600, 300))
    sums = Covariances([site])
    whole = np.ones(70, bool)
    for part, broken in ((slice(0, 40), np.nan), (slice(40, 70), np.inf)):
        own = inputs[part].copy()
        own[3, 599] = broken
        own[4, :2] = np.inf, -np.inf
        whole[[part.start + 3, part.start + 4]] = False
        sums.keep(site, torch.from_numpy(own))
        sums.take(site, torch.empty(0), torch.from_numpy(gradients[part]), cast(DocumentPlaces, None))
    found = [each.numpy() for each in sums.of("wide")]
    for matrix, rows in zip(found, (inputs[whole], gradients), strict=True):
        wanted = rows.T.astype(np.float64) @ rows / len(rows)  # of those that are finite, each side by itself
        np.testing.assert_allclose(matrix, wanted, atol=1e-5)
        np.testing.assert_array_equal(matrix, matrix.T)
    assert sums.tokens["wide"] == whole.sum() == 66


def test_each_site_is_given_once_a_batch_with_the_tokens_in_order(llama: TargetLM) -> None:
    class Recorder:
        def __init__(self) -> None:
            self.pairs: list[tuple[str, torch.Tensor, torch.Tensor, int]] = []

        def keep(self, site: Site, inputs: torch.Tensor) -> torch.Tensor:
            return inputs

        def take(self, site: Site, kept: torch.Tensor, gradients: torch.Tensor, places: DocumentPlaces) -> None:
            self.pairs.append((site.name, kept, gradients, places.count))

    documents = llama.tokenise(some_examples(5))
    sites = find_sites(llama.model, ["*.1.mlp.*"], "lm")
    recorder = Recorder()
    reads = list(read_gradients(executed(llama, batch_tokens=10_000), documents, sites, recorder))
    assert [sorted(reads[0].rows.tolist()), len(reads)] == [[0, 1, 2, 3, 4], 1]
    assert sorted(name for name, *_ in recorder.pairs) == sorted(site.name for site in sites)
    for name, inputs, gradients, count in recorder.pairs:
        pairs = [reference.token_pairs(plain(llama), listed(documents)[row], name) for row in reads[0].rows]
        assert count == 5
        np.testing.assert_allclose(inputs.numpy(), np.concatenate([a for a, _ in pairs]), rtol=0, atol=1e-5)
        np.testing.assert_allclose(gradients.numpy(), np.concatenate([g for _, g in pairs]), rtol=0, atol=1e-6)


def test_a_table_has_each_documents_tokens_and_zeros_behind() -> None:
    places = DocumentPlaces(Batch(np.array([4, 0, 2]), np.array([3, 3, 1])), "cpu")
    rows = torch.arange(1.0, 8.0)[:, None]
    assert places.table(rows)[:, :, 0].tolist() == [[1, 2, 3], [4, 5, 6], [7, 0, 0]]
    even = DocumentPlaces(Batch(np.array([1, 0]), np.array([2, 2])), "cpu")
    assert even.table(rows[:4])[:, :, 0].tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("tuned", [False, True])
def test_a_pairs_gradient_is_that_of_both_responses_by_the_margin(tuned: bool, tmp_path: Path) -> None:
    folder, beta = tiny_lm(tmp_path / "lm"), 0.7
    texts = [("red", "warm", "cold"), ("sea", "blue, deep", "x"), ("say", "a", "bcd")]
    pairs = [Example(asked, good, chat={"rejected": bad}) for asked, good, bad in texts]
    if tuned:
        told = {"lm": folder, "loss": "dpo", "beta": beta}
        warm_up(Corpus.from_examples(pairs), tmp_path / "warm", told, {"learning_rate": 0.02, "batch_examples": 2})
    lm = wide(str(tmp_path / "warm") if tuned else folder, loss="dpo", beta=beta)
    sites = find_sites(lm.model, None, "lm")
    chosen, rejected = (lm.tokenise([pair.sides[side] for pair in pairs]) for side in (0, 1))
    up, down = (one_by_one(lm, side, sites, reduction="sum") for side in (chosen, rejected))
    now, before = (
        [
            np.array([reference.value(model, one, reduction="sum").item() for one in listed(side)])
            for side in (chosen, rejected)
        ]
        for model in (plain(lm), reference.load(folder))
    )
    margins = beta * ((before[0] - now[0]) - (before[1] - now[1]))
    assert (margins.min() > 0.05) if tuned else (margins == 0).all()
    wanted = beta / (1 + np.exp(margins))[:, None] * (up - down)
    asked = lm.tokenise([*pairs, Example("red", "blue")])  # the last is asked about by its response
    found = project_gradients(lm, asked, sites, None).features
    assert unlike(found[:3], wanted) < (1e-5 if tuned else EXACT)
    plainly = one_by_one(lm, asked.take([3]), sites)
    assert unlike(found[3:], plainly) < EXACT


@pytest.fixture(scope="module")
def jetmoe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A mixture whose experts transformers keeps in a form of their own."""
    folder = tmp_path_factory.mktemp("jetmoe")
    written(folder, "jetmoe")
    return str(folder)


@pytest.mark.parametrize("kind", TYPES)
def test_lms_of_linear_maps_have_no_caution(kind: str) -> None:
    assert unread(tiny_network(kind), "logra") == ""


def test_matrices_that_are_not_read_are_named_with_the_share_of_the_others(jetmoe: str) -> None:
    model = airrep.load_lm(jetmoe).model
    read = {site.name: site.width_in * site.width_out for site in find_sites(model, ("all-linear",), "lm")}
    apart = ("embed", "lm_head")
    inner = {n: p for n, p in model.named_parameters() if p.dim() > 1 and not any(word in n for word in apart)}
    told, _, named = unread(model, "logra").partition("the other weights: ")
    assert f"{sum(read.values()) / sum(p.numel() for p in inner.values()):.0%} of the weights" in told
    left = {re.sub(r"\.\d+\.", ".*.", name) for name in inner if name.removesuffix(".weight") not in read}
    assert set(named.removesuffix(".").split(", ")) == left
    assert any("experts" in name for name in left)


def test_an_index_says_what_its_gradients_leave_out(jetmoe: str, tmp_path: Path) -> None:
    own = {"lm": jetmoe, "modules": ["all-linear"], "rank": 2, "store": "none"}
    index = airrep.build_index(make_corpus(6), tmp_path / "index", "tracin", settings=own)
    assert "only linear maps" in index.manifest["caution"]
    assert index.top(make_corpus(2, "q"), 1).provenance.caution == index.manifest["caution"]
    channels = make_attributor("channels", {"lm": jetmoe})
    assert "only linear maps" in channels.caution
    whole = make_attributor("ekfac", {"lm": jetmoe})
    assert whole.caution.startswith("ekfac reads only linear maps")
