"""Encoders: the bundled one against its library, independence from execution, settings, errors."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from worlds.tiny_bert import TEXTS, tiny_folder, tiny_model

from airrep.corpus.corpus import Example
from airrep.encoder.base import Encoder
from airrep.encoder.cards import read_card
from airrep.encoder.folders import MODELS
from airrep.encoder.load import load_encoder
from airrep.encoder.networks import bert
from airrep.encoder.networks.bert import PackedTokens
from airrep.errors import ConfigError, DataError
from airrep.runtime.devices import ROW_STEP, linear
from airrep.runtime.packing import pack

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

REAL = [
    "Question: What is the capital of France?\nAnswer: Paris.",
    (
        "Question: Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May. "
        "How many clips did Natalia sell altogether?\nAnswer: 48 / 2 = 24. 48 + 24 = 72. The answer is 72."
    ),
    "",
    "naïve café ﬁ ½ 中文字 日本語テキスト 😀👩‍👩‍👧 ﷽ İstanbul ΣΊΣΥΦΟΣ",
    "NUL \x00 and \u200b zero width, line\r\nbreak\x1cfield\x85next",
    "[SEP] [MASK] [CLS] as text",
    "x" * 300,
    "word " * 2000,
    " ".join(["e\u0301"] * 700),
    *(f"Question: What is {number} times {number + 1}?\nAnswer: {number * (number + 1)}" for number in range(20)),
]


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return load_encoder(precision="float32", device="cpu")


@pytest.fixture(scope="module")
def library() -> "SentenceTransformer":
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(MODELS / "default"), device="cpu", local_files_only=True)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def cls(tiny: Path, tmp_path: Path) -> Path:
    """An encoder that its library runs."""
    shutil.copytree(tiny, tmp_path / "cls")
    config = tmp_path / "cls" / "1_Pooling" / "config.json"
    config.write_text(config.read_text("utf-8").replace('"mean"', '"cls"'), "utf-8")
    return tmp_path / "cls"


def errors(found: np.ndarray, expected: np.ndarray) -> float:
    """Largest distance of two rows, relative to the length of the second."""
    return float((np.linalg.norm(found - expected, axis=1) / np.linalg.norm(expected, axis=1)).max())


def test_the_default_is_whole(encoder: Encoder) -> None:
    assert (encoder.name, encoder.packed, encoder.dimension, encoder.max_tokens) == ("default", True, 384, 512)
    assert encoder.template == "Question: {prompt}\nAnswer: {response}"
    assert encoder.prompt_words == 256
    assert encoder.trained_for_attribution
    assert (encoder.trained_group_sizes, encoder.trained_pool) == ((100, 100), "attention")
    for name in ("default", "untrained", "static"):
        assert {"LICENSE", "NOTICE", "README.md"} <= {path.name for path in (MODELS / name).iterdir()}
    assert sum(path.stat().st_size for path in MODELS.rglob("*")) < 80e6


def test_the_default_was_trained_from_the_other_one_that_comes_along(encoder: Encoder) -> None:
    start = load_encoder("untrained", precision="float32", device="cpu")
    assert not start.trained_for_attribution
    old, new = (dict(one.checkpoint.model.named_parameters()) for one in (start, encoder))
    changed = {".".join(name.split(".")[:2]) for name in old if not torch.equal(old[name], new[name])}
    assert changed == {"layers.4", "layers.5", "heads.1"}
    card = read_card(MODELS / "default").training
    assert card is not None
    assert card["start"]["fingerprint"] == start.fingerprint
    assert card["results"]["test"]["gain"]["interval"][0] > 0


def test_the_default_is_a_sentence_transformer(encoder: Encoder, library: "SentenceTransformer") -> None:
    assert library.max_seq_length == encoder.max_tokens
    assert library.similarity_fn_name == "dot"
    assert next(library.parameters()).dtype == torch.float32
    expected = library.encode(REAL, show_progress_bar=False)
    assert errors(encoder.encode_texts(REAL), expected) < 1e-5


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_execution_does_not_matter(precision: str) -> None:
    encoder = load_encoder(precision=precision, device="cpu")
    texts = [*REAL[:7], *REAL[9:14]]
    expected = encoder.encode_texts(texts)
    tolerance = 1e-5 if precision == "float32" else 1e-2
    for batch_tokens in (1, 100, 10_000):
        other = load_encoder(precision=precision, device="cpu", batch_tokens=batch_tokens)
        assert errors(other.encode_texts(texts), expected) < tolerance
    assert errors(encoder.encode_texts(texts[::-1])[::-1], expected) < tolerance
    assert errors(np.concatenate([encoder.encode_texts([text]) for text in texts]), expected) < tolerance


def test_windows_do_not_matter(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = load_encoder(tiny, precision="float32", device="cpu")
    expected = encoder.encode_texts(TEXTS * 5)
    done: list[int] = []
    monkeypatch.setattr("airrep.encoder.base._WINDOW", 7)
    assert errors(encoder.encode_texts(TEXTS * 5, done.append), expected) < 1e-5
    assert sum(done) == 5 * len(TEXTS)
    assert len(done) >= 5


def test_the_same_call_gives_the_same_bytes(encoder: Encoder) -> None:
    assert encoder.encode_texts(REAL[:7]).tobytes() == encoder.encode_texts(REAL[:7]).tobytes()


def test_equal_texts_tie_exactly_and_are_encoded_once(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airrep.encoder.base._WINDOW", 16)
    encoder, done = load_encoder(tiny, device="cpu", batch_tokens=40), []
    texts = [TEXTS[place % len(TEXTS)] for place in np.random.default_rng(0).permutation(90)]
    features = encoder.encode_texts(texts, done.append)
    first = [texts.index(text) for text in texts]
    np.testing.assert_array_equal(features, features[first])
    assert sum(done) == len(texts)
    apart = encoder.encode_texts(TEXTS)
    np.testing.assert_allclose(features, apart[[TEXTS.index(text) for text in texts]], atol=1e-5)


def test_nothing_gives_nothing(encoder: Encoder) -> None:
    for features in (encoder.encode_texts([]), encoder.encode([])):
        assert (features.shape, features.dtype) == ((0, 384), np.float32)


@pytest.mark.parametrize("text", ["word two " * 120_000, "x" * 1_000_000, "\n\t " * 350_000 + "end", "\x00 " * 500_000])
def test_a_text_of_a_megabyte(encoder: Encoder, text: str) -> None:
    words = " ".join(text.split()[:600])
    np.testing.assert_array_equal(encoder.encode_texts([text]), encoder.encode_texts([words]))


def test_rendering(tiny: Path) -> None:
    encoder = load_encoder(tiny, template="{response}<-{prompt} {x}")
    example = Example(prompt="  {response} of\n two ", response="{prompt}", id="1")
    assert encoder.render(example) == "{prompt}<-  {response} of\n two  {x}"
    long = Example(prompt="a\n" * 256 + " rest of it", response="b", id="2")
    assert encoder.render(long) == "b<-" + ("a\n" * 256).rstrip() + " {x}"
    np.testing.assert_array_equal(encoder.encode([long]), encoder.encode_texts([encoder.render(long)]))


def test_shares_of_texts_that_the_vocabulary_lacks(encoder: Encoder) -> None:
    """Of the tokens or of the characters, whichever is more; the template's own words do not count."""
    answers = ["plain words", "hello 😀", "😀 🎉 x", "กขฃคฅฆงจฉช plain", "", "[CLS] " * 600]
    shares = encoder.unknown_shares([Example("", answer) for answer in answers])
    assert shares.tolist() == pytest.approx([0, 1 / 2, 2 / 3, 10 / 15, 0, 0], abs=0.01)
    assert encoder.unknown_shares([Example("😀", "🎉"), Example("🚀 " * 300, "known")]).tolist() == [
        1,
        pytest.approx(256 / 257, abs=0.01),
    ]
    assert encoder.unknown_shares([]).shape == (0,)


def test_shares_of_unknown_texts_of_an_encoder_run_by_its_library(cls: Path, tiny: Path) -> None:
    examples = [Example("", text) for text in ["😀 🎉", *TEXTS]]
    library, packed = (load_encoder(folder, device="cpu") for folder in (cls, tiny))
    assert (library.packed, packed.packed) == (False, True)
    shares = library.unknown_shares(examples)
    assert shares[0] == 1
    assert 0 in shares
    library.encode(examples)  # leaves its tokenizer in another state
    np.testing.assert_array_equal(shares, packed.unknown_shares(examples))
    np.testing.assert_array_equal(shares, library.unknown_shares(examples))


def test_global_state_is_left_alone(tiny: Path) -> None:
    before = (torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_rng_state())
    load_encoder(tiny, precision="bfloat16", device="cpu").encode_texts(TEXTS)
    after = (torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_rng_state())
    assert before[:3] == after[:3]
    assert torch.equal(before[3], after[3])


def test_packed_encoders_need_no_large_library() -> None:
    program = (
        "import sys; from airrep.encoder.load import load_encoder; load_encoder(device='cpu').encode_texts(['a']); "
        "print(sorted({'transformers', 'sentence_transformers', 'huggingface_hub'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_network_can_be_trained() -> None:
    model = tiny_model()
    sequences = [np.array([2, 9, 3]), np.array([2, 9, 8, 3]), np.array([2, 7, 3])]
    [batch] = pack(np.array([3, 4, 3]), 100)
    features = model(PackedTokens.from_batch(batch, sequences))
    features.square().sum().backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert all(gradient is not None and bool(gradient.isfinite().all()) for gradient in gradients.values())
    weight = model.layers[0].qkv.weight
    step = 1e-2
    with torch.no_grad():
        moved = [_moved(model, weight, sign * step, PackedTokens.from_batch(batch, sequences)) for sign in (1, -1)]
    slope = (moved[0] - moved[1]) / (2 * step)
    assert slope == pytest.approx(float(weight.grad[3, 5]), rel=1e-2, abs=1e-3)


@pytest.mark.parametrize("lengths", [[8] * (ROW_STEP // 8), [11, 11, 9], [5, 3], [12, 12, 12]])
def test_batches_are_filled_up_to_few_numbers_of_tokens_and_features_stay(lengths: list[int]) -> None:
    model, sequences = tiny_model(), [np.arange(2, 2 + length) % 20 for length in lengths]
    (batch,) = pack(np.array(lengths), 1000)
    tokens = PackedTokens.from_batch(batch, sequences)
    filled = tokens.filled()
    assert len(filled.ids) == len(filled.positions) == sum(run.sequences * run.length for run in filled.runs)
    assert len(filled.ids) % ROW_STEP == 0
    with torch.inference_mode():
        torch.testing.assert_close(model(filled)[: len(lengths)], model(tokens))


def test_no_batch_on_a_cpu_makes_a_program_of_its_own(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, met = load_encoder(tiny, precision="float32", device="cpu", batch_tokens=2 * ROW_STEP), set()
    monkeypatch.setattr(bert, "linear", lambda x, *others: met.add(len(x)) or linear(x, *others))
    features = encoder.encode_texts([f"{'word ' * count}" for count in range(40)])
    assert features.shape[0] == 40
    assert met
    assert all(count % ROW_STEP == 0 for count in met)


def test_autocast_leaves_attention_float32_and_gradients_their_direction(monkeypatch: pytest.MonkeyPatch) -> None:
    model, sequences = tiny_model(), [np.arange(2, 2 + length) for length in (7, 7, 5, 3)]
    (batch,) = pack(np.array([len(ids) for ids in sequences]), 100)
    tokens = PackedTokens.from_batch(batch, sequences)
    met: list[torch.dtype] = []
    plain = torch.nn.functional.scaled_dot_product_attention

    def attention(query: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        met.append(query.dtype)
        return plain(query, *others)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", attention)
    gradients = []
    for lowered in (False, True):
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=lowered):
            model(tokens).square().sum().backward()
        gradients.append(model.layers[0].qkv.weight.grad.flatten())
    assert len(met) > 2
    assert set(met) == {torch.float32}
    assert torch.cosine_similarity(*gradients, dim=0) > 0.999


def _moved(model: torch.nn.Module, weight: torch.Tensor, step: float, tokens: PackedTokens) -> float:
    """Sum of squares of the features after one weight moved."""
    weight[3, 5] += step
    value = float(model(tokens).double().square().sum())
    weight[3, 5] -= step
    return value


def test_fingerprint(tiny: Path, tmp_path: Path) -> None:
    encoder = load_encoder(tiny)
    assert len(encoder.fingerprint) == 64
    shutil.copytree(tiny, tmp_path / "copy")
    same = [
        load_encoder(tmp_path / "copy"),
        load_encoder(str(tiny), precision="bfloat16", batch_tokens=7),
        load_encoder(tiny, template=encoder.template, max_tokens=encoder.max_tokens),
    ]
    assert {other.fingerprint for other in same} == {encoder.fingerprint}
    others = [
        encoder,
        load_encoder(tiny, template="{prompt} {response}"),
        load_encoder(tiny, max_tokens=encoder.max_tokens - 1),
        load_encoder(tiny_folder(tmp_path / "seed", seed=1)),
        load_encoder(tiny_folder(tmp_path / "unit", (None, (16, 16, True)))),
    ]
    assert len({other.fingerprint for other in others}) == len(others)


def test_any_other_architecture_is_run_by_its_library(cls: Path, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    encoder = load_encoder(cls, device="cpu", max_tokens=10)
    assert (encoder.packed, encoder.precision, encoder.dimension, encoder.max_tokens) == (False, "float32", 16, 10)
    library = SentenceTransformer(str(cls), device="cpu")
    library.max_seq_length = 10
    expected = library.encode(TEXTS, show_progress_bar=False)
    done: list[int] = []
    assert errors(encoder.encode_texts(TEXTS, done.append), expected) < 1e-6
    assert sum(done) == len(TEXTS)
    assert encoder.encode_texts([]).shape == (0, 16)
    encoder.save(tmp_path / "saved")
    assert errors(load_encoder(tmp_path / "saved", device="cpu").encode_texts(TEXTS), expected) < 1e-6
    with pytest.raises(ConfigError, match="only BERT-type encoders can be saved in the airrep format"):
        encoder.save(tmp_path / "published", "airrep")
    assert not (tmp_path / "published").exists()
    shutil.copytree(cls, tmp_path / "moved")
    moved = load_encoder(tmp_path / "moved", device="cpu", max_tokens=10)
    assert moved.fingerprint == encoder.fingerprint
    assert moved.fingerprint != load_encoder(tmp_path / "moved", device="cpu", max_tokens=11).fingerprint


def test_queries_of_a_router_take_their_own_way(tiny: Path, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Dense, Router
    from torch import nn

    routes = [Dense(16, 8, activation_function=nn.Identity()) for _ in range(2)]
    router = Router.for_query_document(query_modules=[routes[0]], document_modules=[routes[1]])
    library = SentenceTransformer(modules=[*SentenceTransformer(str(tiny), device="cpu"), router], device="cpu")
    library.save(str(tmp_path / "routed"))
    encoder = load_encoder(tmp_path / "routed", device="cpu")
    found = [encoder.encode_texts(TEXTS, queries=queries) for queries in (True, False)]
    np.testing.assert_allclose(found[0], library.encode_query(TEXTS), atol=1e-6)
    np.testing.assert_allclose(found[1], library.encode_document(TEXTS), atol=1e-6)
    assert np.abs(found[0] - found[1]).max() > 0.1
    assert not encoder.symmetric
    assert load_encoder(tiny).symmetric


def test_weights_that_run_rounded_are_saved_whole(cls: Path, tmp_path: Path) -> None:
    rounded = load_encoder(cls, device="cpu", precision="bfloat16", max_tokens=9)
    rounded.save(tmp_path / "saved")
    exact = load_encoder(cls, device="cpu", max_tokens=9).encode_texts(TEXTS)
    assert errors(load_encoder(tmp_path / "saved", device="cpu").encode_texts(TEXTS), exact) == 0
    for wrong in (-1, 0, 2, 25):
        with pytest.raises(ConfigError, match=f"max_tokens is {wrong}; must be from 3 to 24"):
            load_encoder(cls, device="cpu", max_tokens=wrong)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_tokens": 0}, r"batch_tokens is 0; must be at least 1"),
        ({"max_tokens": 2}, r"max_tokens is 2; must be from 3 to 24"),
        ({"max_tokens": 25}, r"max_tokens is 25; must be from 3 to 24"),
        ({"template": "{question}"}, r"the template '\{question\}' must contain \{prompt\} or \{response\}"),
    ],
)
def test_settings_that_cannot_hold(tiny: Path, settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_encoder(tiny, **settings)


def test_texts_that_cannot_be_encoded(tiny: Path) -> None:
    encoder = load_encoder(tiny)
    with pytest.raises(DataError, match=r"^text 1: is not valid Unicode: .* at character 1"):
        encoder.encode_texts(["a", "b\ud800"])
    with pytest.raises(DataError, match=r"^texts: is a single string"):
        encoder.encode_texts("a")


def test_features_that_are_not_finite_are_an_error(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = load_encoder(tiny)
    broken = np.full((1, 16), np.nan, np.float32)
    monkeypatch.setattr(encoder, "_encode_window", lambda texts, _: iter([(np.arange(len(texts)), broken)]))
    with pytest.raises(DataError, match=r"makes features that are not finite"):
        encoder.encode_texts(["a"])
