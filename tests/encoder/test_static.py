"""Static encoders: against their definition and their library, independence from execution, bad input, no torch."""

import json
import logging
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer
from worlds.tiny_bert import TEXTS, WORDS, tiny_tokenizer

from airrep.attributors.methods import make_attributor
from airrep.corpus.corpus import Example
from airrep.encoder import tokens
from airrep.encoder.cards import Card
from airrep.encoder.folders import MODELS
from airrep.encoder.load import load_encoder
from airrep.encoder.static import LinearHead, StaticEncoder, StoredStatic, cut_after, read_tensors, write_tensors
from airrep.encoder.tokens import PieceTokenizer
from airrep.errors import ConfigError, DataError, MissingExtraError

KNOWN = [*(text for text in TEXTS if text not in ("", "zebra")), "a 😀 b", "b a c", "z z z z"]
"""Texts of some known piece."""


def matrix(width: int = 16, seed: int = 0) -> np.ndarray:
    """Vectors of the tiny vocabulary."""
    return np.random.default_rng(seed).standard_normal((len(WORDS), width)).astype(np.float32)


def head(outputs: int = 6) -> LinearHead:
    """A random linear head."""
    generator = np.random.default_rng(1)
    return LinearHead(
        generator.standard_normal((outputs, 16)).astype(np.float32),
        generator.standard_normal(outputs).astype(np.float32),
    )


def stored(normalise: bool = True, linear: LinearHead | None = None, **changes: Any) -> StoredStatic:
    """A tiny static encoder as it is stored."""
    tokenizer = tiny_tokenizer() | changes.pop("tokenizer", {})
    return StoredStatic(matrix(), tokenizer, Card(**changes), normalise, linear)


def saved(folder: Path, **parts: Any) -> Path:
    """Its folder."""
    StaticEncoder("tiny", stored(**parts)).save(folder)
    return folder


def library_of(folder: Path) -> Any:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu", local_files_only=True)


@pytest.mark.parametrize("linear", [None, head()])
@pytest.mark.parametrize("normalise", [True, False])
def test_features_are_the_mean_of_vectors_and_what_sentence_transformers_makes(
    normalise: bool, linear: LinearHead | None, tmp_path: Path
) -> None:
    encoder = load_encoder(saved(tmp_path / "tiny", normalise=normalise, linear=linear))
    assert isinstance(encoder, StaticEncoder)
    tokenizer, rows = Tokenizer.from_str(json.dumps(tiny_tokenizer())), matrix().astype(np.float64)
    means = np.stack([rows[tokenizer.encode(text, add_special_tokens=False).ids].mean(axis=0) for text in KNOWN])
    if normalise:
        means /= np.linalg.norm(means, axis=1, keepdims=True)
    if linear is not None:
        means = means @ linear.weight.T.astype(np.float64) + linear.bias
    found = encoder.encode_texts(KNOWN)
    assert (found.dtype, encoder.dimension) == (np.float32, means.shape[1])
    np.testing.assert_allclose(found, means, atol=2e-6)
    np.testing.assert_allclose(found, library_of(tmp_path / "tiny").encode(KNOWN), atol=2e-6)
    np.testing.assert_allclose(found, encoder.sentence_transformer().encode(KNOWN), atol=2e-6)


def test_the_bundled_one_is_the_library_s_too() -> None:
    encoder = load_encoder("static")
    lines = (MODELS.parent / "data" / "train.jsonl").read_text("utf-8").splitlines()[:200]
    texts = [encoder.render(Example(one["prompt"], one["response"])) for one in map(json.loads, lines)]
    texts += [
        "naïve café ﬁ ½ 中文字 日本語テキスト İstanbul ΣΊΣΥΦΟΣ",
        "NUL \x00 and \u200b zero\x1cfield\x85next",
        "x" * 300,
    ]
    library = library_of(MODELS / "static").float()  # it computes in the type that is stored
    np.testing.assert_allclose(encoder.encode_texts(texts), library.encode(texts), atol=1e-6)
    assert (encoder.precision, encoder.device, encoder.max_tokens) == ("float32", "cpu", 0)


@pytest.mark.parametrize("place", ["", "0_StaticEmbedding", "."])
@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
def test_a_folder_of_the_library_loads(place: str, kind: str, tmp_path: Path) -> None:
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Normalize
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    tokenizer = Tokenizer.from_str(json.dumps(tiny_tokenizer()))
    tokenizer.enable_padding()  # which the library undoes
    weights = torch.from_numpy(matrix()).to(getattr(torch, kind))
    library = SentenceTransformer(modules=[StaticEmbedding(tokenizer, weights), Normalize()], device="cpu")
    folder = tmp_path / "saved"
    library.save(str(folder))
    if place:
        (folder / place).mkdir(exist_ok=True)
        for name in ("model.safetensors", "tokenizer.json"):
            (folder / name).replace(folder / place / name)
        modules = folder / "modules.json"
        modules.write_text(modules.read_text().replace('"path": ""', f'"path": "{place}"'))
    encoder = load_encoder(folder)
    assert isinstance(encoder, StaticEncoder)
    np.testing.assert_allclose(encoder.encode_texts(KNOWN), library.float().encode(KNOWN), atol=1e-6)


@pytest.mark.parametrize("parts", [{"mapping"}, {"weights"}, {"mapping", "weights"}, set()])
def test_shared_and_weighed_rows_of_model2vec_are_read_as_by_the_library(parts: set[str], tmp_path: Path) -> None:
    folder, generator = saved(tmp_path / "tiny"), np.random.default_rng(5)
    tensors = {"embeddings": matrix()[:9] if "mapping" in parts else matrix()}
    if "mapping" in parts:
        tensors["mapping"] = generator.integers(0, 9, len(WORDS))
    if "weights" in parts:
        tensors["weights"] = generator.random(len(WORDS))
    save_file(tensors, folder / "model.safetensors")
    np.testing.assert_allclose(load_encoder(folder).encode_texts(KNOWN), library_of(folder).encode(KNOWN), atol=1e-6)


@pytest.mark.parametrize("direction", ["Right", "Left"])
def test_texts_are_cut_where_the_tokenizer_cuts_them(direction: str, tmp_path: Path) -> None:
    cut = cut_after({"truncation": {"direction": direction}}, 3)
    folder, texts = saved(tmp_path / "tiny", tokenizer=cut), ["a b c d e f", "a b c", "z"]
    encoder = load_encoder(folder)
    assert encoder.max_tokens == 3
    np.testing.assert_allclose(encoder.encode_texts(texts), library_of(folder).encode(texts), atol=1e-6)
    whole = load_encoder(saved(tmp_path / "whole"), max_tokens=3)
    kept = "a b c" if direction == "Right" else "d e f"
    np.testing.assert_array_equal(encoder.encode_texts(texts[:1]), encoder.encode_texts([kept]))
    np.testing.assert_array_equal(whole.encode_texts(texts[:1]), whole.encode_texts(["a b c"]))
    assert (encoder.fingerprint == whole.fingerprint) == (direction == "Right")
    assert load_encoder(tmp_path / "whole").fingerprint != whole.fingerprint
    whole.save(tmp_path / "again")
    assert load_encoder(tmp_path / "again").fingerprint == whole.fingerprint


# Execution


@pytest.mark.parametrize("linear", [None, head()])
def test_no_bit_depends_on_what_is_encoded_beside(linear: LinearHead | None, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(2)
    texts = [" ".join(generator.choice(WORDS[5:], size)) for size in generator.integers(1, 300, 200)]
    expected = StaticEncoder("tiny", stored(linear=linear)).encode_texts(texts)
    encoder = StaticEncoder("tiny", stored(linear=linear))
    alone = np.concatenate([encoder.encode_texts([text]) for text in texts])
    order = generator.permutation(len(texts))
    turned = encoder.encode_texts([texts[place] for place in order])
    for size in (1, 7, 1000):
        monkeypatch.setattr("airrep.encoder.static._CHUNK", size)
        np.testing.assert_array_equal(encoder.encode_texts(texts), expected)
    np.testing.assert_array_equal(alone, expected)
    np.testing.assert_array_equal(turned, expected[order])


def test_texts_of_the_same_words_tie_whatever_their_order() -> None:
    encoder = load_encoder("static")
    one, other, third = encoder.encode_texts(["the dog bit the man", "the man bit the dog", "the man fed the dog"])
    np.testing.assert_array_equal(one, other)
    assert one @ third < 0.99 * (one @ one)


TOKENIZER = json.loads((MODELS / "static" / "tokenizer.json").read_text("utf-8"))
WHOLE, PARTS = Tokenizer.from_str(json.dumps(TOKENIZER)), PieceTokenizer(TOKENIZER, "static")
MARKS = [
    "a", "Z", "é", "e\u0301", "\u0301", "İ", "Σ", "ς", "ﬁ", "中", "한", "[CLS]", "[", "]", "#", "'", ".", "x" * 120,
]  # fmt: skip
SPACES = [" ", "\t", "\n", "\r", "\x00", "\x0b", "\x1c", "\x85", "\xa0", "\u200b", "\u2028", "\ufffd", "😀", "question"]


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.lists(st.sampled_from([*MARKS, *SPACES, " "]), max_size=30).map("".join), st.text(max_size=100)))
def test_words_are_tokenised_one_by_one_as_whole_texts_are(text: str) -> None:
    assert PARTS([text]).ids.tolist() == WHOLE.encode(text, add_special_tokens=False).ids


def test_few_words_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a  b\nc d\t" * 40 + "x" * 90 + " z"
    expected = PieceTokenizer(tiny_tokenizer(), "tiny")([text, "a", text]).ids
    monkeypatch.setattr(tokens, "_MOST", 300)
    tokenizer = PieceTokenizer(tiny_tokenizer(), "tiny")
    np.testing.assert_array_equal(tokenizer([text, "a", text]).ids, expected)
    for letter in "qwertyuiop":
        tokenizer([letter * 20])
    assert len(tokenizer._known) < 8


def test_a_tokenizer_that_reads_across_spaces_reads_whole_texts(tmp_path: Path) -> None:
    from tokenizers import models, pre_tokenizers

    made = Tokenizer(models.BPE({"▁a": 0, "a": 1, "▁": 2, "b": 3}, [("▁", "a")]))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    encoder = StaticEncoder.of("meta", matrix()[:4], json.loads(made.to_str()), normalise=False)
    np.testing.assert_allclose(encoder.encode_texts(["aa a"])[0], matrix()[[0, 1, 0]].mean(axis=0), atol=1e-6)


# What it does not know


def test_texts_of_no_known_piece_have_no_features_and_this_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    encoder = StaticEncoder("tiny", stored(linear=head()))
    with caplog.at_level(logging.WARNING):
        features = encoder.encode_texts(["😀", "a 😀", "", "😀 🎉 x!", " \u200b"])
        encoder.encode_texts(["🎉"])
    assert features.any(axis=1).tolist() == [False, True, False, True, False]
    [told] = [record.getMessage() for record in caplog.records]
    assert "encoder tiny: some texts have no word piece that is in its vocabulary" in told
    shares = encoder.unknown_shares([Example("", "😀"), Example("", "a b"), Example("", "a 😀")])
    assert shares.tolist() == [1, 0, 0.5]


def test_empty_texts_alone_are_no_news(caplog: pytest.LogCaptureFixture) -> None:
    assert not StaticEncoder("tiny", stored()).encode_texts(["", " "]).any()
    assert StaticEncoder("tiny", stored()).encode_texts([]).shape == (0, 16)
    assert not caplog.records


# Folders


def test_a_folder_keeps_all_that_decides_features(tmp_path: Path) -> None:
    first = StaticEncoder("tiny", stored(linear=head(), template="{prompt} : {response}", prompt_words=3))
    folder = tmp_path / "one"
    first.save(folder)
    found = load_encoder(folder, device="cuda", precision="bfloat16", batch_tokens=1)
    assert found.fingerprint == first.fingerprint
    assert (found.template, found.prompt_words) == ("{prompt} : {response}", 3)
    changed = [
        StaticEncoder("tiny", stored()),
        StaticEncoder("tiny", stored(normalise=False)),
        StaticEncoder("tiny", stored(linear=head())),
        StaticEncoder.of("tiny", matrix(seed=1), tiny_tokenizer()),
        StaticEncoder.of("tiny", matrix(), tiny_tokenizer() | {"normalizer": None}),
        load_encoder(folder, query_prompt="question : "),
        first,
    ]
    assert len({one.fingerprint for one in changed}) == len(changed)
    other = load_encoder(folder, template="{response}")
    assert other.render(Example("a", "b")) == "b"


@pytest.mark.parametrize(("storage", "error"), [("float16", 1e-3), ("bfloat16", 1e-2)])
def test_smaller_types_are_stored_and_read_as_float32(storage: Any, error: float, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file as load_torch

    encoder = StaticEncoder("tiny", stored())
    encoder.save(tmp_path / "small", storage=storage)
    small = load_encoder(tmp_path / "small")
    assert isinstance(small, StaticEncoder)
    expected = torch.from_numpy(matrix()).to(getattr(torch, storage))
    tensors = load_torch(tmp_path / "small" / "model.safetensors")
    assert torch.equal(tensors["embedding.weight"], expected)
    np.testing.assert_array_equal(small.checkpoint.matrix, expected.float().numpy())
    np.testing.assert_allclose(small.encode_texts(KNOWN), encoder.encode_texts(KNOWN), atol=error)
    assert small.encode_texts(KNOWN).dtype == np.float32
    small.save(tmp_path / "whole")
    assert load_encoder(tmp_path / "whole").fingerprint == small.fingerprint


def test_what_a_format_cannot_hold_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"saving tiny: the airrep format holds only BERT-type encoders"):
        StaticEncoder("tiny", stored()).save(tmp_path / "out", "airrep")
    large = StaticEncoder.of("tiny", matrix() * 1e5, tiny_tokenizer())
    with pytest.raises(ConfigError, match="has weights above 65,504, which float16 cannot hold"):
        large.save(tmp_path / "out", storage="float16")
    assert not list(tmp_path.iterdir())


def test_its_own_prompts_stand_before_texts(tmp_path: Path) -> None:
    folder = saved(tmp_path / "tiny")
    own = json.loads((folder / "config_sentence_transformers.json").read_text())
    (folder / "config_sentence_transformers.json").write_text(json.dumps(own | {"prompts": {"query": "question : "}}))
    encoder, library = load_encoder(folder), library_of(folder)
    assert not encoder.symmetric
    np.testing.assert_allclose(encoder.encode_texts(KNOWN, queries=True), library.encode_query(KNOWN), atol=1e-6)
    np.testing.assert_allclose(encoder.encode_texts(KNOWN), library.encode(KNOWN), atol=1e-6)


def test_vectors_that_the_library_cuts_off_are_left_to_it(tmp_path: Path) -> None:
    folder = saved(tmp_path / "tiny")
    own = json.loads((folder / "config_sentence_transformers.json").read_text())
    (folder / "config_sentence_transformers.json").write_text(json.dumps(own | {"truncate_dim": 5}))
    encoder = load_encoder(folder, device="cpu")
    assert (type(encoder).__name__, encoder.dimension) == ("LibraryEncoder", 5)


# Bad input


def rewrite(change: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]) -> Callable[[Path], object]:
    """A damage of the matrix, as sentence_transformers would write it: without metadata."""

    def damage(folder: Path) -> None:
        path = folder / "model.safetensors"
        save_file(change(load_file(path)), path)

    return damage


def other_tokenizer(folder: Path) -> None:
    content = tiny_tokenizer()
    content["model"]["vocab"] = {word: number for number, word in enumerate(reversed(WORDS))}
    (folder / "tokenizer.json").write_text(json.dumps(content))


def with_row(value: float) -> Callable[[Path], object]:
    def change(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        tensors["embedding.weight"][3, 2] = value
        return tensors

    return rewrite(change)


def of_model2vec(**tensors: np.ndarray) -> Callable[[Path], object]:
    return rewrite(lambda _: {"embeddings": matrix(), **tensors})


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "rows too few": (
        rewrite(lambda t: {"embedding.weight": t["embedding.weight"][:-3]}),
        r"do not fit its tokenizer \(which has token number 33, but there are vectors for 31 tokens",
    ),
    "another tokenizer": (other_tokenizer, "its word vectors do not fit its tokenizer"),
    "NaN": (with_row(np.nan), "its matrix has values that are not finite"),
    "infinite": (with_row(-np.inf), "its matrix has values that are not finite"),
    "whole numbers": (rewrite(lambda t: {"embedding.weight": matrix().astype(np.int8)}), "has type int8"),
    "one axis": (rewrite(lambda t: {"embedding.weight": matrix()[0]}), r"shape \(16,\); must be .* with 2 axes"),
    "no numbers": (rewrite(lambda t: {"embedding.weight": matrix()[:, :0].copy()}), "its vectors have 0 numbers"),
    "other names": (rewrite(lambda t: {"weight": matrix()}), "lacks tensor embedding.weight"),
    "mapping outside": (
        of_model2vec(mapping=np.array([0, 99])),
        r"mapping must hold row numbers of embeddings \(0 to 33\)",
    ),
    "mapping below": (
        of_model2vec(mapping=np.array([-1, 0])),
        r"mapping must hold row numbers of embeddings \(0 to 33\)",
    ),
    "weights too few": (of_model2vec(weights=np.ones(3)), r"weights has 3 numbers for 34 word pieces"),
    "cut short": (
        lambda folder: (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-9]),
        "is a damaged or incomplete safetensors file",
    ),
    "no matrix": (lambda folder: (folder / "model.safetensors").unlink(), "model.safetensors: is missing"),
    "no tokenizer": (lambda folder: (folder / "tokenizer.json").unlink(), "tokenizer.json: is missing"),
    "no JSON": (lambda folder: (folder / "tokenizer.json").write_text("{"), "is not valid JSON"),
    "no tokenizer in it": (lambda folder: (folder / "tokenizer.json").write_text("{}"), "json cannot be read"),
    "head's shape": (
        lambda folder: save_file({"linear.weight": np.ones((6, 15), np.float32)}, folder / "2_Dense/model.safetensors"),
        r"tensor linear.weight is not of shape \(6, 16\)",
    ),
    "no head": (lambda folder: (folder / "2_Dense" / "model.safetensors").unlink(), "is missing"),
    "no config": (lambda folder: (folder / "2_Dense" / "config.json").unlink(), "config.json: is missing"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_folders_are_refused_in_one_line(name: str, tmp_path: Path) -> None:
    damage, expected = DAMAGES[name]
    folder = saved(tmp_path / "tiny", linear=head())
    damage(folder)
    with pytest.raises(DataError, match=expected) as caught:
        load_encoder(folder)
    assert "\n" not in str(caught.value)


def test_a_head_that_takes_other_vectors_is_refused() -> None:
    wide = LinearHead(np.ones((3, 20), np.float32), np.zeros(3, np.float32))
    with pytest.raises(DataError, match="its vectors have 16 numbers each; the next module needs 20"):
        StaticEncoder("tiny", stored(linear=wide))


def test_rows_without_a_token_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = saved(tmp_path / "tiny")
    rewrite(lambda t: {"embedding.weight": np.concatenate([matrix(), matrix()[:6]])})(folder)
    assert load_encoder(folder).encode_texts(["a"]).any()
    assert "it has 40 vectors, but its tokenizer has 34 tokens" in caplog.text


@pytest.mark.parametrize("name", ["batch_tokens", "max_tokens"])
def test_numbers_that_cannot_hold_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"{name} is 0; must be at least 1"):
        load_encoder(saved(tmp_path / "tiny"), **{name: 0})


def test_tensors_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    tensors = {"a": matrix(), "b": np.zeros((0, 3), np.float32), "ä": np.float32([[1.5]])}
    write_tensors(tmp_path / "x.safetensors", tensors, "float32", {"by": "hand"})
    found, metadata = read_tensors(tmp_path / "x.safetensors")
    assert metadata == {"format": "pt", "by": "hand"}
    assert found.keys() == tensors.keys()
    for name, array in tensors.items():
        np.testing.assert_array_equal(found[name], array)
        np.testing.assert_array_equal(load_file(tmp_path / "x.safetensors")[name], array)


# Without torch

BLOCKED = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "transformers", "sentence_transformers"}:
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)
sys.meta_path.insert(0, Absent())
import numpy as np
from airrep.corpus.corpus import Example
from airrep.encoder.load import load_encoder
"""


def run(code: str, *arguments: str) -> str:
    command = [sys.executable, "-c", BLOCKED + code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_it_needs_neither_torch_nor_transformers(tmp_path: Path) -> None:
    folder = saved(tmp_path / "tiny", linear=head())
    shutil.copytree(folder, tmp_path / "other")
    code = """
encoder = load_encoder("static")
np.save(sys.argv[2], encoder.encode([Example("What is the capital of France?", "Paris.")]))
tiny = load_encoder(sys.argv[1])
tiny.encode_texts(["a b", "😀"], queries=True)
tiny.save(sys.argv[1] + "-again")
print(load_encoder(sys.argv[1] + "-again").fingerprint == tiny.fingerprint)
"""
    assert run(code, str(tmp_path / "other"), str(tmp_path / "features.npy")) == "True"
    expected = load_encoder("static").encode([Example("What is the capital of France?", "Paris.")])
    np.testing.assert_array_equal(np.load(tmp_path / "features.npy"), expected)


def test_others_say_in_one_line_what_they_need() -> None:
    code = """
from airrep.errors import MissingExtraError
for ask in (lambda: load_encoder("default"), lambda: load_encoder("static").sentence_transformer()):
    try:
        ask()
    except MissingExtraError as error:
        print(error)
"""
    lines = run(code).splitlines()
    assert len(lines) == 2
    assert all(line.endswith("pip install 'airrep[encoders]'") for line in lines)
    assert issubclass(MissingExtraError, ImportError)


def test_the_method_airrep_reads_with_it() -> None:
    method = make_attributor("airrep", {"encoder": "static"})
    examples = [Example("What is 2 plus 2?", "4"), Example("Who wrote Hamlet?", "Shakespeare")]
    features = method.encode_train(examples)
    assert features.shape == (2, 128)
    np.testing.assert_array_equal(features, load_encoder("static").encode(examples))
    view = make_attributor("airrep", {"encoder": "static", "view": "response"})
    assert not np.allclose(view.encode_train(examples), features)
