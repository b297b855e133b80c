"""The encoder against a naive float64 BERT, one text at a time."""

import json
import shutil
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import torch
from reference import bert
from safetensors.numpy import load_file
from safetensors.torch import load_file as load_torch
from safetensors.torch import save_file
from tokenizers import Tokenizer

from airrep.corpus.corpus import Example
from airrep.encoder.load import load_encoder

BUNDLED = Path(str(files("airrep"))) / "models" / "default"

PAIRS = [
    ("What is the capital of France?", "Paris."),
    ("", "no prompt at all"),
    ("Übersetze: café naïve — ½ ﬁ", "coffee, naïve ☕👩‍🚀"),
    ("东京在哪里？", "日本。 مرحبا שלום"),
    ("def f(x):\n\treturn x**2  # [SEP] [PAD] [MASK]", "{prompt} {response}"),
    ("One\u00a0two\u2003three   four", "supercalifragilisticexpialidocious" * 4),
    ("a", "\u200b\u0301zero width 𝔘𝔫𝔦𝔠𝔬𝔡𝔢"),
]
EXAMPLES = [Example(prompt=prompt, response=response, id=f"{i}") for i, (prompt, response) in enumerate(PAIRS)]
TEXTS = [f"Question: {prompt}\nAnswer: {response}" for prompt, response in PAIRS]


def token_ids(folder: Path, text: str, max_tokens: int) -> list[int]:
    """Return the ids of one text, special tokens included, from the folder's ``tokenizer.json``."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_tokens)
    return tokenizer.encode(text).ids


def bundled_vector(text: str, max_tokens: int = 512) -> np.ndarray:
    """Return what the bundled model makes of a text: W · v / ‖v‖ + b, v the mean over BERT's tokens, in float64."""
    stored = load_file(BUNDLED.parent / "untrained" / "model.safetensors") | load_file(BUNDLED / "trained.safetensors")
    tensors = {f"bert.{name}": tensor for name, tensor in stored.items()}
    tensors |= {"projector.weight": np.eye(384), "projector.bias": np.zeros(384)}
    mean = bert.encode(tensors, token_ids(BUNDLED, text, max_tokens), 12)
    head = load_file(BUNDLED / "3_Dense" / "model.safetensors")
    return head["linear.weight"].astype(np.float64) @ (mean / np.linalg.norm(mean)) + head["linear.bias"]


def relative_errors(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Return ‖found − expected‖ / ‖expected‖ of each row."""
    return np.linalg.norm(found - expected, axis=1) / np.linalg.norm(expected, axis=1)


@pytest.fixture(scope="module")
def expected() -> np.ndarray:
    """Return the float64 vectors of the texts under the bundled model."""
    return np.array([bundled_vector(text) for text in TEXTS])


def test_default_encoder_in_float32(expected: np.ndarray) -> None:
    encoder = load_encoder("default", precision="float32", device="cpu")
    together = encoder.encode(EXAMPLES)
    assert (together.dtype, together.shape) == (np.float32, (len(PAIRS), 384))
    assert relative_errors(together, expected).max() <= 1e-5
    alone = np.concatenate([encoder.encode([example]) for example in EXAMPLES])
    assert relative_errors(alone, expected).max() <= 1e-5
    assert relative_errors(encoder.encode_texts(TEXTS[::-1]), expected[::-1]).max() <= 1e-5


def test_default_encoder_in_bfloat16(expected: np.ndarray) -> None:
    found = load_encoder("default", precision="bfloat16", device="cpu").encode(EXAMPLES)
    lengths = np.linalg.norm(found, axis=1) * np.linalg.norm(expected, axis=1)
    assert ((found * expected).sum(axis=1) / lengths).min() >= 0.9999
    assert relative_errors(found, expected).max() <= 0.02


def test_long_texts_keep_their_first_tokens_and_the_closing_one() -> None:
    encoder = load_encoder("default", precision="float32", device="cpu", max_tokens=20)
    text = "Question: " + "many words " * 30 + "\nAnswer: none of this is seen"
    ids = token_ids(BUNDLED, text, 20)
    assert (len(ids), ids[0], ids[-1]) == (20, 101, 102)
    assert relative_errors(encoder.encode_texts([text]), bundled_vector(text, 20)[None]).max() <= 1e-5


def test_prompts_are_cut_to_256_words() -> None:
    encoder = load_encoder("default", precision="float32", device="cpu")
    words = [f"w{i}" for i in range(300)]
    for count, kept in ((255, 255), (256, 256), (257, 256), (300, 256)):
        example = Example(prompt=" ".join(words[:count]), response=" ".join(words), id="x")
        assert encoder.render(example) == f"Question: {' '.join(words[:kept])}\nAnswer: {' '.join(words)}"
    assert [encoder.render(example) for example in EXAMPLES] == TEXTS


def test_untrained_scores_are_five_times_the_cosine() -> None:
    vectors = load_encoder("untrained", precision="float32", device="cpu").encode_texts(TEXTS)
    np.testing.assert_allclose((vectors**2).sum(axis=1), 5.0, rtol=1e-3)


WIDTH, INNER, LAYERS, HEADS, POSITIONS, OUT = 24, 40, 3, 4, 64, 10
"""Sizes of a small random model in the published format."""


def published_shapes() -> dict[str, tuple[int, ...]]:
    """Return the published names of its tensors, with shapes."""
    square, narrow = (WIDTH, WIDTH), (WIDTH,)
    parts = {f"attention.self.{part}": square for part in ("query", "key", "value")}
    parts |= {"attention.output.dense": square, "intermediate.dense": (INNER, WIDTH), "output.dense": (WIDTH, INNER)}
    parts |= {"attention.output.LayerNorm": narrow, "output.LayerNorm": narrow}
    linear = {f"bert.encoder.layer.{i}.{part}": shape for i in range(LAYERS) for part, shape in parts.items()}
    linear |= {"bert.embeddings.LayerNorm": narrow, "bert.pooler.dense": square, "projector": (OUT, WIDTH)}
    shapes = {f"{name}.weight": shape for name, shape in linear.items()}
    shapes |= {f"{name}.bias": shape[:1] for name, shape in linear.items()}
    rows = {"word": 30522, "position": POSITIONS, "token_type": 2}
    return shapes | {f"bert.embeddings.{name}_embeddings.weight": (count, WIDTH) for name, count in rows.items()}


def write_published(folder: Path) -> None:
    """Write a small random model with bfloat16 weights as the published checkpoint has it."""
    generator = torch.Generator().manual_seed(60)
    tensors = {name: torch.randn(shape, generator=generator) * 0.4 for name, shape in published_shapes().items()}
    save_file({name: tensor.bfloat16() for name, tensor in tensors.items()}, folder / "model.safetensors")
    config = {"model_type": "airrep", "hidden_size": WIDTH, "intermediate_size": INNER, "hidden_act": "gelu"}
    config |= {"num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "layer_norm_eps": 1e-12}
    config |= {"max_position_embeddings": POSITIONS, "type_vocab_size": 2, "vocab_size": 30522}
    config |= {"attention_probs_dropout_prob": 0.1, "hidden_dropout_prob": 0.1, "pad_token_id": 0}
    config |= {"position_embedding_type": "absolute", "initializer_range": 0.02, "projection_dim": OUT}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(BUNDLED / name, folder / name)


def test_published_format(tmp_path: Path) -> None:
    """Sharp random attention, large weights, a pooler to ignore, and texts longer than the positions."""
    write_published(tmp_path)
    texts = [*TEXTS, "word " * 500, "a"]
    tensors = {name: t.double().numpy() for name, t in load_torch(tmp_path / "model.safetensors").items()}
    encoder = load_encoder(str(tmp_path), precision="float32", device="cpu")
    assert (encoder.dimension, encoder.max_tokens <= POSITIONS) == (OUT, True)
    expected = [bert.encode(tensors, token_ids(tmp_path, text, encoder.max_tokens), HEADS) for text in texts]
    assert relative_errors(encoder.encode_texts(texts), np.array(expected)).max() <= 1e-5
