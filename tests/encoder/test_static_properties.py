"""What a mean of vectors of word pieces must be, whoever computes it."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from airrep.corpus.corpus import Example
from airrep.encoder.base import Encoder
from airrep.encoder.load import load_encoder
from airrep.errors import ConfigError, DataError

WORDS = ("[UNK]", "a", "cat", "dog", "sat", "ran", "question", "answer", ":", "not")
MODULE = "sentence_transformers.models."
VECTORS = np.random.default_rng(0).standard_normal((len(WORDS), 8)).astype(np.float32)
VECTORS[0] = 0


def folder_of(
    path: Path,
    vectors: np.ndarray = VECTORS,
    words: tuple[str, ...] = WORDS,
    *,
    modules: tuple[str, ...] = ("StaticEmbedding",),
    most: int | None = None,
) -> Path:
    """Write a folder of a static encoder as sentence-transformers lays it out, without that library."""
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, "[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Whitespace()
    if most is not None:
        tokenizer.enable_truncation(most)
    path.mkdir(parents=True)
    for name in modules[1:]:
        (path / name).mkdir()
        (path / name / "config.json").write_text("{}")
    rows = [
        {"idx": number, "name": str(number), "path": name if number else "", "type": MODULE + name}
        for number, name in enumerate(modules)
    ]
    (path / "modules.json").write_text(json.dumps(rows))
    save_file({"embedding.weight": vectors}, path / "model.safetensors")
    tokenizer.save(str(path / "tokenizer.json"))
    return path


@pytest.fixture
def plain(tmp_path: Path) -> Encoder:
    return load_encoder(folder_of(tmp_path / "plain"))


@pytest.fixture
def unit(tmp_path: Path) -> Encoder:
    return load_encoder(folder_of(tmp_path / "unit", modules=("StaticEmbedding", "Normalize")))


def test_a_text_is_the_mean_of_its_pieces(plain: Encoder) -> None:
    found = plain.encode_texts(["a cat sat", "dog dog not"])
    expected = [VECTORS[[1, 2, 4]].mean(axis=0), (2 * VECTORS[3] + VECTORS[9]) / 3]
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_the_order_of_words_changes_nothing(plain: Encoder, unit: Encoder) -> None:
    words = ["a", "cat", "sat", "not", "a", "dog", "ran"]
    orders = [" ".join(np.random.default_rng(seed).permutation(words)) for seed in range(20)]
    for encoder in (plain, unit):
        found = encoder.encode_texts(orders)
        np.testing.assert_allclose(found, np.broadcast_to(found[0], found.shape), atol=1e-6)


def test_the_mean_of_two_texts_is_that_of_both_by_length(plain: Encoder) -> None:
    one, other, both = plain.encode_texts(["a cat", "dog ran not sat a", "a cat dog ran not sat a"])
    np.testing.assert_allclose(both, (2 * one + 5 * other) / 7, atol=1e-6)


def test_a_text_said_again_and_again_is_itself(plain: Encoder) -> None:
    one, long = plain.encode_texts(["cat not", "cat not " * 100_000])
    np.testing.assert_allclose(long, one, atol=1e-5)


def test_the_end_of_a_very_long_text_counts(plain: Encoder) -> None:
    count = 50_000
    (found,) = plain.encode_texts(["cat " * count + "dog " * count])
    np.testing.assert_allclose(found, VECTORS[[2, 3]].mean(axis=0), atol=1e-5)


def test_a_tokenizer_that_cuts_is_obeyed(tmp_path: Path) -> None:
    encoder = load_encoder(folder_of(tmp_path / "cut", most=3))
    first, whole = encoder.encode_texts(["a cat sat", "a cat sat not dog ran"])
    np.testing.assert_array_equal(first, whole)


def test_one_row_does_not_depend_on_those_beside_it(plain: Encoder, unit: Encoder) -> None:
    texts = [" ".join(np.random.default_rng(seed).choice(WORDS[1:], 1 + seed % 40)) for seed in range(700)]
    for encoder in (plain, unit):
        whole = encoder.encode_texts(texts)
        alone = np.concatenate([encoder.encode_texts([text]) for text in texts[::50]])
        np.testing.assert_array_equal(whole[::50], alone)
        np.testing.assert_array_equal(encoder.encode_texts(texts[::-1]), whole[::-1])


def test_vectors_that_are_scaled_have_unit_length(unit: Encoder, plain: Encoder) -> None:
    texts = ["cat", "a cat not a dog", "cat sat"]
    found, means = unit.encode_texts(texts), plain.encode_texts(texts)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(found, means / np.linalg.norm(means, axis=1, keepdims=True), atol=1e-6)


def test_texts_of_nothing_known_are_finite_and_like_no_other(plain: Encoder, unit: Encoder) -> None:
    for encoder in (plain, unit):
        found = encoder.encode_texts(["", "   ", "zebra xylophone", "中文", "cat"])
        assert np.isfinite(found).all()
        np.testing.assert_array_equal(found[:4] @ found.T, np.zeros((4, 5)))


def test_an_empty_prompt_or_response_is_read(plain: Encoder) -> None:
    examples = [Example("", "cat"), Example("cat", ""), Example("", "")]
    found = plain.encode(examples)
    expected = [plain.encode_texts([plain.render(one)])[0] for one in examples]
    np.testing.assert_array_equal(found, expected)
    assert np.isfinite(found).all()


def test_no_texts_give_no_rows(plain: Encoder) -> None:
    assert plain.encode_texts([]).shape == (0, 8)


def test_vectors_are_those_of_sentence_transformers(tmp_path: Path) -> None:
    library = pytest.importorskip("sentence_transformers")
    texts = ["a cat sat", "not a dog , not a cat", "cat " * 50, "Question: a cat\nAnswer: zebra ran"]
    for number, modules in enumerate([("StaticEmbedding",), ("StaticEmbedding", "Normalize")]):
        folder = folder_of(tmp_path / str(number), modules=modules)
        expected = library.SentenceTransformer(str(folder), device="cpu").encode(texts)
        np.testing.assert_allclose(load_encoder(folder).encode_texts(texts), expected, atol=1e-6)


def test_a_saved_encoder_is_the_same(tmp_path: Path, unit: Encoder) -> None:
    unit.save(tmp_path / "saved")
    again = load_encoder(tmp_path / "saved")
    assert again.fingerprint == unit.fingerprint
    texts = ["a cat not", "dog"]
    np.testing.assert_array_equal(again.encode_texts(texts), unit.encode_texts(texts))


def test_the_fingerprint_is_of_what_decides(tmp_path: Path, plain: Encoder) -> None:
    other = VECTORS.copy()
    other[3, 0] += 1e-3
    swapped = (*WORDS[:2], "dog", "cat", *WORDS[4:])
    made = {
        "place": folder_of(tmp_path / "elsewhere" / "same"),
        "a number": folder_of(tmp_path / "number", other),
        "two words": folder_of(tmp_path / "words", words=swapped),
        "length": folder_of(tmp_path / "length", modules=("StaticEmbedding", "Normalize")),
        "cut": folder_of(tmp_path / "cut", most=4),
    }
    prints = {what: load_encoder(folder).fingerprint for what, folder in made.items()}
    assert prints.pop("place") == plain.fingerprint
    assert len({plain.fingerprint, *prints.values()}) == 5


def with_nan(path: Path) -> Path:
    broken = VECTORS.copy()
    broken[4, 2] = np.nan
    return folder_of(path, broken)


def too_few_rows(path: Path) -> Path:
    return folder_of(path, VECTORS[:-1])


def no_matrix(path: Path) -> Path:
    save_file({"other": VECTORS}, folder_of(path) / "model.safetensors")
    return path


def integers(path: Path) -> Path:
    return folder_of(path, VECTORS.astype(np.int64))


def one_axis(path: Path) -> Path:
    return folder_of(path, VECTORS.ravel())


def no_tokenizer(path: Path) -> Path:
    (folder_of(path) / "tokenizer.json").unlink()
    return path


def torn_tokenizer(path: Path) -> Path:
    file = folder_of(path) / "tokenizer.json"
    file.write_text(file.read_text()[:200])
    return path


def torn_matrix(path: Path) -> Path:
    file = folder_of(path) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:100])
    return path


@pytest.mark.parametrize(
    "damage",
    [with_nan, too_few_rows, no_matrix, integers, one_axis, no_tokenizer, torn_tokenizer, torn_matrix],
    ids=lambda one: one.__name__,
)
def test_a_folder_that_does_not_fit_is_refused_in_a_line(damage: Callable[[Path], Path], tmp_path: Path) -> None:
    folder = damage(tmp_path / "broken")
    with pytest.raises((DataError, ConfigError)) as told:
        load_encoder(folder).encode_texts(["a cat not"])
    assert "\n" not in str(told.value)
    assert "broken" in str(told.value)


def test_half_precision_is_read_as_the_numbers_it_holds(tmp_path: Path) -> None:
    halves = VECTORS.astype(np.float16)
    (found,) = load_encoder(folder_of(tmp_path / "half", halves)).encode_texts(["cat " * 5000 + "not " * 5000])
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, halves[[2, 9]].astype(np.float64).mean(axis=0), atol=1e-6)
