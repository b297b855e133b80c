"""TracIn, LoGra, TRAK and DsDm as methods: their formulas, their store, their index, their errors."""

import json
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from worlds.small_world import make_corpus
from worlds.tiny_lms import some_examples, tiny_lm, tiny_network, tiny_tokenizer

import airrep
from airrep.attributors.gradient.base import GradientAttributor
from airrep.attributors.gradient.projection import project_gradients, random_projections
from airrep.attributors.gradient.reading import find_sites
from airrep.attributors.methods import make_attributor
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import ConfigError, DataError, NotFittedError, TrainingError
from airrep.lm.settings import FineTuneSettings, LmSettings
from airrep.lm.warmup import warm_up

pytestmark = pytest.mark.usefixtures("own_cache")

PAPER: dict[str, Any] = {"modules": None, "sketch": None, "exponent": 1.0}
METHODS: dict[str, dict[str, Any]] = {
    "tracin": {"modules": None}, "logra": PAPER, "logra, sketched": {"sketch": 20},
    "logra as it is": {**PAPER, "unit": False}, "trak": {}, "dsdm": {},
    "logra without a store": {"store": "none"},
}  # fmt: skip


@pytest.fixture(scope="module")
def lm(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny_lm(tmp_path_factory.mktemp("lm"), max_position_embeddings=4096)


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many examples' gradients were computed, call by call."""
    counts: list[int] = []
    compute = GradientAttributor._compute

    def counted(self: Any, examples: Any, weights: Any) -> Any:
        counts.append(len(examples))
        return compute(self, examples, weights)

    monkeypatch.setattr(GradientAttributor, "_compute", counted)
    return counts


def make(name: str, folder: str, /, **values: Any) -> Any:
    return make_attributor(re.split("[ ,]", name)[0], {"lm": folder, "rank": 3, **METHODS.get(name, {}), **values})


def raw(lm: str, examples: Corpus, rank: int | None = 3, **more: Any) -> tuple[np.ndarray, np.ndarray]:
    model = airrep.load_lm(LmSettings(lm=lm))
    sites = find_sites(model.model, None, "lm")
    projections = None if rank is None else random_projections(sites, rank, 0)
    found = project_gradients(model, model.tokenise(examples), sites, projections, **more)
    return found.features.astype(np.float64), found.doubts.astype(np.float64)


@pytest.mark.parametrize("name", METHODS)
def test_every_gradient_method_conforms(name: str, lm: str) -> None:
    airrep.check_attributor(lambda: make(name, lm))


SWITCHED_OFF: dict[str, dict[str, Any]] = {
    **{name: {"rank": 3} for name in ("tracin", "logra", "trak", "dsdm")},
    "ekfac": {},
    "influence": {"damping": 3.0, "modules": ["*.0.mlp.down_proj"]},
}


@pytest.mark.parametrize("switch", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", SWITCHED_OFF)
def test_gradients_that_are_switched_off_are_switched_on(
    name: str, switch: Any, lm: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    train, scores = make_corpus(6), []
    for context in (nullcontext, switch):
        monkeypatch.setenv("AIRREP_CACHE", str(tmp_path / context.__name__))
        with context():
            out, settings = tmp_path / f"index-{context.__name__}", {"lm": lm, **SWITCHED_OFF[name]}
            index = airrep.build_index(train, out, name, settings=settings)
            scores.append(index.scores(train))
    np.testing.assert_array_equal(scores[0], scores[1])


def test_tracin_is_the_cosine_of_projected_gradients(lm: str) -> None:
    train = make_corpus(6)
    features = make("tracin", lm).encode_train(train)
    gradients, _ = raw(lm, train)
    np.testing.assert_allclose(features @ features.T, cosine(gradients), atol=1e-5)
    whole = make("tracin", lm, rank=None, unit=False).encode_train(train)
    np.testing.assert_allclose(whole, raw(lm, train, None)[0], rtol=1e-4, atol=1e-7)


def cosine(rows: np.ndarray) -> np.ndarray:
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return units @ units.T


def test_trak_and_dsdm_are_their_formulas(lm: str) -> None:
    train, queries = make_corpus(12), make_corpus(3, "q")
    for name, objective in (("trak", "margin"), ("dsdm", "loss")):
        method = make(name, lm, damping=0.2)
        method.fit(train)
        gradients, doubts = raw(lm, train, objective=objective)
        asked, _ = raw(lm, queries, objective=objective)
        fisher = gradients.T @ gradients / len(gradients)
        inverse = np.linalg.inv(fisher + 0.2 * np.trace(fisher) / len(fisher) * np.eye(len(fisher)))
        expected = asked @ inverse @ gradients.T * (doubts if name == "trak" else 1.0)
        features = method.encode_train(train)
        np.testing.assert_allclose(method.encode_queries(queries) @ features.T, expected, rtol=2e-3, atol=2e-3)
        assert 0.05 < np.linalg.norm(features, axis=1).mean() < 20, "they fit float16"


def test_nothing_is_computed_twice_on_the_same_lm(lm: str, computed: list[int], tmp_path: Path) -> None:
    train, queries = make_corpus(20), make_corpus(3, "q")
    airrep.build_index(train, tmp_path / "tracin", "tracin", settings={"lm": lm, "rank": 3, "modules": None})
    assert computed == [20]
    dsdm = airrep.build_index(train, tmp_path / "dsdm", "dsdm", settings={"lm": lm, "rank": 3})
    assert computed == [20], "TracIn and DsDm share gradients of the same maps"
    airrep.build_index(train, tmp_path / "trak", "trak", settings={"lm": lm, "rank": 3})
    assert computed == [20, 20], "those of the margin are others"
    for _ in range(2):
        airrep.build_index(train, tmp_path / "logra", "logra", settings={"lm": lm, "rank": 3}, replace=True)
    assert computed == [20, 20, 20], "directions, curvature and gradients of LoGra are found again"
    dsdm.top(queries, k=1)
    airrep.Index(tmp_path / "tracin").top(queries, k=1)
    assert computed == [20, 20, 20, 3]


def test_an_index_answers_like_the_method(lm: str, tmp_path: Path) -> None:
    train, queries = make_corpus(20), make_corpus(3, "q")
    for name in ("logra", "trak"):
        chosen: dict[str, Any] = {"modules": ["all-linear"]}
        chosen |= {"exponent": 1.0, "sketch": None} if name == "logra" else {}
        airrep.build_index(train, tmp_path / name, name, settings={"lm": lm, "rank": 3, **chosen}, shard_rows=8)
        method = make(name, lm, **chosen)
        method.fit(train)
        scores = method.encode_queries(queries) @ method.encode_train(train).T
        opened = airrep.Index(tmp_path / name)
        for row, hits in zip(scores, opened.top(queries, k=5), strict=True):
            np.testing.assert_allclose([hit.score for hit in hits], np.sort(row)[::-1][:5], rtol=2e-2, atol=2e-3)
        more = opened.append(make_corpus(2, "more"))
        assert len(more) == 22
        attention = more.group_scores(queries, "label", pool="attention").scores
        assert np.isfinite(attention).all()


def test_the_index_of_another_method_or_lm_is_refused(lm: str, tmp_path: Path) -> None:
    train = make_corpus(8)
    airrep.build_index(train, tmp_path / "index", "tracin", settings={"lm": lm, "rank": 3})
    other = tiny_lm(tmp_path / "other", seed=1, max_position_embeddings=4096)
    for attributor in (make("tracin", other), make("tracin", lm, rank=2), make("dsdm", lm)):
        if attributor.name == "dsdm":
            attributor.fit(train)
        with pytest.raises(airrep.errors.ArtifactError, match=r"was built with another model or other settings"):
            airrep.Index(tmp_path / "index", attributor).top(train, k=1)


@pytest.mark.parametrize(
    ("name", "own"),
    [("logra", {"rank": 3}), ("ekfac", {}), ("influence", {"modules": ["*.0.mlp.up_proj"], "damping": 10.0})],
)
def test_what_was_learnt_of_one_lm_is_not_asked_with_another(name: str, own: dict, lm: str, tmp_path: Path) -> None:
    train = make_corpus(8)
    settings = {"lm": lm, "device": "cpu", "precision": "float32", **own}
    index = airrep.build_index(train, tmp_path / "index", name, settings=settings)
    other = tiny_lm(tmp_path / "other", seed=1, max_position_embeddings=4096)
    with pytest.raises(airrep.errors.ArtifactError, match=r"was built with another model or other settings"):
        index.made_with({"lm": other}).top(train, k=1)


def test_checkpoints_are_summed_by_learning_rate(lm: str, tmp_path: Path) -> None:
    train = make_corpus(16)
    tuning = FineTuneSettings(epochs=2, batch_examples=4, learning_rate=1e-2, schedule="linear")
    warm = warm_up(train, tmp_path / "warm", LmSettings(lm=lm), tuning, checkpoints=2)
    folder = str(warm.path)
    tracin = make("tracin", folder, checkpoints="all")
    found = tracin.encode_train(train)
    expected = np.zeros((16, 16))
    model = airrep.load_lm(LmSettings(lm=folder))
    sites = find_sites(model.model, None, "lm")
    for checkpoint in warm.checkpoints:
        model.load_weights(checkpoint.path)
        rows = project_gradients(model, model.tokenise(train), sites, random_projections(sites, 3, 0)).features
        expected += checkpoint.rate * cosine(rows.astype(np.float64))
    np.testing.assert_allclose(found @ found.T, expected, atol=1e-6)
    last, final = make("tracin", folder).encode_train(train), found[:, found.shape[1] // 2 :]
    np.testing.assert_allclose(cosine(final), last @ last.T, atol=1e-5)
    airrep.check_attributor(lambda: make("trak", folder, checkpoints="all"))
    settings = {"lm": folder, "rank": 3, "checkpoints": "all"}
    index = airrep.build_index(train, tmp_path / "index", "trak", settings=settings)
    moved = warm.path.rename(tmp_path / "moved")
    with pytest.raises(ConfigError, match="--set lm=FOLDER"):
        airrep.Index(index.path).top(train, k=1)
    moved.rename(warm.path)
    with pytest.raises(ConfigError, match=r"has no checkpoints.*airrep warmup"):
        make("tracin", lm, checkpoints="all").encode_train(train)


def test_a_zero_gradient_is_counted_and_never_nan(tmp_path: Path) -> None:
    train = make_corpus(6)
    settings = {"lm": dead_lm(tmp_path, "down_proj.weight", 0.0), "rank": 3, "modules": ["*gate_proj"]}
    index = airrep.build_index(train, tmp_path / "index", "tracin", settings=settings)
    assert index.empty == 6
    np.testing.assert_array_equal(index.group_scores(train, "label").scores, 0.0)
    assert airrep.build_index(train, tmp_path / "tfidf", "tfidf").empty == 0


def test_gradients_too_small_for_float16_are_counted_too(tmp_path: Path) -> None:
    train = make_corpus(6)
    settings = {"lm": dead_lm(tmp_path, "down_proj.weight", 1e-7), "rank": 3, "modules": ["*gate_proj"]}
    found = [
        airrep.build_index(train, tmp_path / str(unit), "tracin", settings={**settings, "unit": unit})
        for unit in (True, False)
    ]
    assert found[1].shards[0].features(slice(None))["tracin"].any(axis=1).all()  # not 0, but with few digits
    assert [index.empty for index in found] == [0, 6]


def dead_lm(tmp_path: Path, weight: str, value: float) -> str:
    """An LM one of whose weights is the same everywhere."""
    folder = tiny_lm(tmp_path / "lm", max_position_embeddings=512)
    model = airrep.load_lm(LmSettings(lm=folder)).model
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(weight):
                parameter.fill_(value)
    model.save_pretrained(tmp_path / "dead")
    for path in Path(folder).glob("tokenizer*"):
        (tmp_path / "dead" / path.name).write_bytes(path.read_bytes())
    return str(tmp_path / "dead")


def test_a_map_without_gradients_is_named(tmp_path: Path) -> None:
    folder = dead_lm(tmp_path, "down_proj.weight", 0.0)
    with pytest.raises(TrainingError, match=r"has a gradient at model\.layers\.0\.mlp\.gate"):
        make("logra", folder).fit(make_corpus(6))


def test_an_example_whose_gradient_overflows_is_zero_and_spoils_no_other(tmp_path: Path) -> None:
    folder = tiny_lm(tmp_path / "lm", max_position_embeddings=512)
    train = Corpus.from_examples([*make_corpus(5), Example("~", "answer", id="overflows")])
    method = make("logra", folder)
    letter = int(method.lm.chat.tokenizer("~")["input_ids"][-1])
    with torch.no_grad():
        method.lm.model.get_input_embeddings().weight[letter] = torch.inf
    method.fit(train)
    features = method.encode_train(train)
    assert np.isfinite(features).all()
    np.testing.assert_array_equal(np.abs(features).max(axis=1) > 0, [True] * 5 + [False])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"modules": ["*.experts.*"]},
            r"has no linear map named \*\.experts\.\*; it has model\.layers\.0.* and 3 more",
        ),
        ({"rank": 17}, r"rank=17: model\.layers\.0\.mlp\.gate_proj maps 16 to 24 numbers, so rank can be at most 16"),
        ({"rank": 10**6}, r"rank=1000000: .* at most 16"),
        ({"modules": ["lm_head"]}, r"lm_head.* \d+ of \d+ tokens"),
        ({"checkpointing": True}, r"checkpointing=true saves no memory here"),
        ({"rank": 0}, r"rank=0: input should be greater than or equal to 1"),
        ({"lm": "no/such/place"}, r"lm no/such/place: there is no such folder"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(lm: str, values: dict, message: str) -> None:
    for name in ("tracin", "logra"):
        with pytest.raises(ConfigError, match=message) as caught:
            method = make(name, lm, **values)
            method.fit(make_corpus(4))
            method.encode_train(make_corpus(4))
        assert "\n" not in str(caught.value)


def test_unreadable_examples_are_found_before_the_first_gradient(lm: str, computed: list[int]) -> None:
    train = Corpus.from_examples([*make_corpus(3), Example("long", "word " * 3000, id="too long")])
    with pytest.raises(DataError, match=r'tracin: the LM cannot read 1 of 4 examples\. .*"too long"'):
        make("tracin", lm).fit(train)
    assert computed == []


@pytest.mark.parametrize("name", ["logra", "trak", "dsdm"])
def test_methods_that_learn_say_so(name: str, lm: str) -> None:
    with pytest.raises(NotFittedError, match=rf"{name}: has not seen the training corpus\. Call fit"):
        make(name, lm).encode_train(make_corpus(2))


def test_too_many_features_for_a_fisher_matrix_are_refused(lm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airrep.attributors.gradient.trak.FISHER_NUMBERS", 100)
    with pytest.raises(ConfigError, match=r"matrices of 54 features need more than 8 GiB"):
        make("trak", lm).fit(make_corpus(3))


@pytest.mark.parametrize("name", METHODS)
def test_bfloat16_changes_scores_by_its_rounding_alone(name: str, lm: str) -> None:
    train = make_corpus(8)
    found = []
    for precision in ("float32", "bfloat16"):
        method = make(name, lm, precision=precision, **({} if name == "tracin" else {"damping": 1.0}))
        method.fit(train)
        found.append(method.encode_queries(train) @ method.encode_train(train).T)
    assert np.corrcoef(found[0].ravel(), found[1].ravel())[0, 1] > 0.98


def test_small_damping_keeps_its_digits(lm: str) -> None:
    train, queries = make_corpus(8), make_corpus(2, "q")
    method = make("dsdm", lm, damping=1e-5)
    method.fit(train)
    gradients, asked = raw(lm, train)[0], raw(lm, queries)[0]
    fisher = gradients.T @ gradients / len(gradients)
    ridge = 1e-5 * np.trace(fisher) / len(fisher)
    dual = np.linalg.inv(gradients @ gradients.T / len(gradients) + ridge * np.eye(len(gradients)))
    expected = asked @ gradients.T @ dual  # (F + r)⁻¹ Gᵀ = Gᵀ (G Gᵀ / n + r)⁻¹
    scores = method.encode_queries(queries) @ method.encode_train(train).T
    np.testing.assert_allclose(scores, expected, atol=2e-2 * np.abs(expected).max())


def test_a_singular_fisher_matrix_without_damping_is_refused(lm: str) -> None:
    for count in (2, 3, 4):
        with pytest.raises(TrainingError, match=r"curvature: is zero, singular.* Raise damping"):
            make("trak", lm, damping=0.0).fit(make_corpus(count))


RATES = {3: 0.5, 6: 0.125}


def trainer_output(folder: Path) -> Path:
    """Two checkpoints, with one tokenizer around them; the second is cut into shards."""
    for step in RATES:
        checkpoint = folder / f"checkpoint-{step}"
        tiny_network(seed=step).save_pretrained(checkpoint, max_shard_size="50GB" if step == 3 else "20KB")
        history = [{"step": at, "learning_rate": rate} for at, rate in RATES.items() if at <= step]
        (checkpoint / "trainer_state.json").write_text(json.dumps({"log_history": history}))
        (checkpoint / "optimizer.pt").write_bytes(b"\x80\x04never read")
    tiny_tokenizer().save_pretrained(folder)
    return folder


def features(lm: Path | str, checkpoints: str = "final") -> np.ndarray:
    """TracIn's features of a few examples."""
    settings = {"lm": str(lm), "checkpoints": checkpoints, "store": "none", "device": "cpu", "rank": 4}
    return np.asarray(make_attributor("tracin", settings).encode_train(some_examples(5)))


def test_each_checkpoint_counts_with_its_rate(tmp_path: Path) -> None:
    out = trainer_output(tmp_path / "out")
    parts = [features(out / f"checkpoint-{step}") * np.sqrt(rate) for step, rate in RATES.items()]
    np.testing.assert_allclose(features(out, "all"), np.concatenate(parts, axis=1), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(features(out / "checkpoint-3", "all"), parts[0], rtol=1e-5, atol=1e-7)


def test_a_checkpoint_of_another_shape_is_refused(tmp_path: Path) -> None:
    out = trainer_output(tmp_path / "out")
    tiny_network(hidden_size=32).save_pretrained(out / "checkpoint-3")
    with pytest.raises(ConfigError, match=r"checkpoint-3: do not fit this LlamaForCausalLM"):
        features(out, "all")


def test_an_lm_without_checkpoints_is_told_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no checkpoints\. Run `airrep warmup --set checkpoints=4`"):
        features(tiny_lm(tmp_path / "lm"), "all")


def test_ngrams_count_the_tokens_of_a_checkpoint_or_of_the_base_of_adapters(tmp_path: Path) -> None:
    out = trainer_output(tmp_path / "out")
    corpus = Corpus.from_examples(some_examples(6)[1:4])
    found = []
    adapters = tmp_path / "adapter"
    adapters.mkdir()
    (adapters / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": tiny_lm(tmp_path / "lm")}))
    (adapters / "adapter_model.safetensors").write_bytes(b"")
    for tokenizer in (tmp_path / "lm", out, out / "checkpoint-3", adapters):
        method = make_attributor("ngram", {"tokenizer": str(tokenizer)})
        method.fit(corpus)
        found.append(method.fingerprint)
    assert len(set(found)) == 1


@pytest.mark.parametrize("name", ["trak", "dsdm"])
def test_appended_examples_that_a_method_has_not_learnt_from_are_told(
    name: str, lm: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train = make_corpus(6)
    settings = {"lm": lm, "rank": 3}
    index = airrep.build_index(train, tmp_path / name, name, settings=settings)
    index = index.append(make_corpus(2, "more"))
    assert f"{name} learnt its Fisher matrix without them" in caplog.text
    caplog.clear()
    airrep.build_index(train, tmp_path / "tracin", "tracin", settings=settings).append(make_corpus(2, "more"))
    assert "Fisher" not in caplog.text
    channels = [{"method": name}, {"method": "tfidf"}]
    summed = airrep.build_index(train, tmp_path / "sum", recipe=channels, settings=settings)
    summed.append(make_corpus(2, "more"))
    assert f"{name} learnt its Fisher matrix without them" in caplog.text
