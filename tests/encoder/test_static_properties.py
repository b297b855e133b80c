"""What a mean of vectors of word pieces must be, whoever computes it."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from airrep.encoder.base import Encoder
from airrep.encoder.load import load_encoder

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


def test_vectors_that_are_scaled_have_unit_length(unit: Encoder, plain: Encoder) -> None:
    texts = ["cat", "a cat not a dog", "cat sat"]
    found, means = unit.encode_texts(texts), plain.encode_texts(texts)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(found, means / np.linalg.norm(means, axis=1, keepdims=True), atol=1e-6)


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
