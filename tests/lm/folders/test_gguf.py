"""A GGUF file as target LM computes what the LM that it was made from computes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from worlds.tiny_lms import VOCABULARY, load, some_examples, tiny_lm, tiny_network, tiny_tokenizer

from airrep.attributors.gradient.projection import project_gradients
from airrep.attributors.gradient.reading import find_sites
from airrep.attributors.methods import make_attributor
from airrep.corpus.corpus import Corpus
from airrep.errors import ConfigError
from airrep.lm import held
from airrep.lm.packed import Blocks, size_packed
from airrep.lm.settings import FineTuneSettings, LmSettings

CHAT = "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}{% endfor %}"
NAMES = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output"}
NAMES |= {"gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down"}
NAMES |= {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
NAMES |= {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def gguf_name(name: str) -> str:
    """A weight's name in a GGUF file."""
    parts = name.removesuffix(".weight").split(".")
    whole = ".".join(parts)
    return f"{NAMES[whole]}.weight" if whole in NAMES else f"blk.{parts[2]}.{NAMES[parts[-1]]}.weight"


def as_stored(name: str, weight: torch.Tensor) -> np.ndarray:
    """A weight as GGUF has it: rows of the two halves of each head's rotation take turns."""
    heads = {"q_proj": 4, "k_proj": 2}.get(name.split(".")[-2])
    if heads is not None:
        weight = weight.reshape(heads, 2, -1, weight.shape[1]).transpose(1, 2).reshape(weight.shape)
    return weight.detach().numpy()


def write_gguf(
    path: Path,
    chat: str | None = None,
    without: str = "nothing",
    rotated: bool = False,
    quantised: str | None = None,
    **config: Any,
) -> Path:
    """Write a tiny Llama as a GGUF file, weights as float32 or matrices quantised."""
    gguf = pytest.importorskip("gguf")
    network = tiny_network("llama", **config)
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(network.config.hidden_size)
    writer.add_block_count(2)
    writer.add_feed_forward_length(network.config.intermediate_size)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(network.config.rms_norm_eps)
    writer.add_rope_dimension_count(network.config.hidden_size // 4)
    writer.add_vocab_size(VOCABULARY)
    vocabulary = json.loads(tiny_tokenizer().backend_tokenizer.to_str())["model"]["vocab"]
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    tokens += [f"<unused{number}>" for number in range(len(tokens), VOCABULARY - 1)]
    tokens.append("ab")  # transformers reads no GGUF tokenizer without merges
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token.startswith("<") and len(token) > 1 else 1 for token in tokens])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    if chat is not None:
        writer.add_chat_template(chat)
    for name, weight in network.named_parameters():
        if without not in name:
            own, kind = as_stored(name, weight), None
            if quantised is not None and own.ndim == 2:
                kind = gguf.GGMLQuantizationType[quantised]
                own = gguf.quantize(own, kind)
            writer.add_tensor(gguf_name(name), own, raw_dtype=kind)
    if rotated:
        writer.add_tensor("rope_freqs.weight", np.ones(2, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRREP_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("given", ["file", "folder"])
def test_it_computes_what_the_safetensors_do(given: str, tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "q" / "tiny.gguf")
    (file.parent / "mmproj-tiny.gguf").write_bytes(b"of images")
    (file.parent / "config.json").write_text("{}")  # folders of the Hub have one beside such files
    lm, whole = load(file if given == "file" else file.parent), load(Path(tiny_lm(tmp_path / "lm")))
    for (name, weight), (other, wanted) in zip(
        lm.model.named_parameters(), whole.model.named_parameters(), strict=True
    ):
        assert name == other
        assert torch.equal(weight, wanted)
    documents = whole.tokenise(some_examples())
    np.testing.assert_array_equal(lm.losses(documents), whole.losses(documents))
    for text in ("z cde", " y\n", "é"):
        own, wanted = (one.chat.tokenizer(text, add_special_tokens=False).input_ids for one in (lm, whole))
        assert own == wanted


@pytest.mark.parametrize("kind", ["Q5_1", "BF16"])
def test_blocks_that_are_held_give_float32_s_values(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_gguf(tmp_path / "tiny.gguf", quantised=kind, hidden_size=32, intermediate_size=64)
    monkeypatch.setattr(held, "_AT_A_TIME", 100)  # several parts of each weight
    packed = load(file, stored=True)
    of_maps = [module for module in packed.model.modules() if "held" in vars(module)]
    assert len(of_maps) == 2 * 7 + 2
    assert all(isinstance(module.held, Blocks) for module in of_maps)
    large = [each for each in packed.model.parameters() if each.dim() > 1 and each.untyped_storage().nbytes() > 4]
    assert not large
    made = next((tmp_path / "cache" / "gguf").glob("*/model.safetensors"))
    assert made.stat().st_size < 4000  # norms alone
    monkeypatch.setattr("airrep.lm.folders.gguf.write_places", lambda *_: False)  # transformers reads it all by itself
    monkeypatch.setenv("AIRREP_CACHE", str(tmp_path / "whole"))
    whole = load(file, stored=True)
    assert not any("held" in vars(module) for module in whole.model.modules())
    documents = whole.tokenise(some_examples())
    np.testing.assert_allclose(packed.losses(documents), whole.losses(documents), rtol=1e-6)
    gradients = [
        project_gradients(lm, documents, find_sites(lm.model, None, "lm"), None).features for lm in (packed, whole)
    ]
    np.testing.assert_allclose(*gradients, rtol=1e-5, atol=1e-6 * np.abs(gradients[1]).max())
    assert packed.fingerprint == whole.fingerprint
    packed.fine_tune(documents, FineTuneSettings(epochs=1), seed=0)
    whole.fine_tune(documents, FineTuneSettings(epochs=1), seed=0)
    np.testing.assert_allclose(packed.losses(documents), whole.losses(documents), rtol=1e-6)


def test_memory_that_is_promised_counts_blocks(tmp_path: Path) -> None:
    sizes = {"hidden_size": 32, "intermediate_size": 64}
    file = write_gguf(tmp_path / "tiny.gguf", quantised="Q8_0", **sizes)
    folder = LmSettings(lm=str(file)).find().weights
    weights = list(tiny_network("llama", **sizes).parameters())
    matrices, norms = (sum(one.numel() for one in weights if (one.dim() > 1) == matrix) for matrix in (True, False))
    assert size_packed(folder, "lm") == matrices // 32 * 34 + 4 * norms
    assert load(file, stored=True, memory="60GB").plan is not None


@pytest.mark.parametrize("kind", ["Q4_0", "Q5_1", "Q8_0"])
def test_quantised_weights_are_those_that_the_file_gives_back(kind: str, tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    sizes = {"hidden_size": 32, "intermediate_size": 64}
    lm = load(write_gguf(tmp_path / "tiny.gguf", quantised=kind, **sizes))
    quantised = gguf.GGMLQuantizationType[kind]
    for (name, found), whole in zip(
        lm.model.named_parameters(), tiny_network("llama", **sizes).parameters(), strict=True
    ):
        wanted = as_stored(name, whole)
        if whole.dim() == 2:
            wanted = gguf.dequantize(gguf.quantize(wanted, quantised), quantised)
            assert not np.array_equal(wanted, as_stored(name, whole))
        np.testing.assert_array_equal(as_stored(name, found), wanted)
    assert np.isfinite(lm.losses(lm.tokenise(some_examples()))).all()


def test_its_template_counts_and_its_fingerprint_is_the_file_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lm = load(write_gguf(tmp_path / "tiny.gguf", CHAT))
    assert lm.reading["template"] == "chat"
    own = lm.fingerprint
    moved = (tmp_path / "other").with_suffix(".gguf")
    (tmp_path / "tiny.gguf").rename(moved)
    monkeypatch.setenv("AIRREP_CACHE", str(tmp_path / "another cache"))
    assert load(moved).fingerprint == own
    assert load(write_gguf(tmp_path / "tiny.gguf", CHAT, seed=1)).fingerprint != own


def test_its_tokens_are_counted(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "tiny.gguf")
    method = make_attributor("ngram", {"lm": str(file), "device": "cpu"})
    method.fit(Corpus.from_examples(some_examples()))
    assert method.encode_train(some_examples()).nnz > 0


def refusal(name: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load(name)
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(f"lm {name}: ")


def test_of_several_files_one_is_to_be_named(tmp_path: Path) -> None:
    for name in ("tiny-Q4.gguf", "tiny-Q8.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    assert refusal(tmp_path) == (
        f"holds 2 GGUF files (tiny-Q4.gguf, tiny-Q8.gguf). Choose one of them: --lm {tmp_path / 'tiny-Q4.gguf'}"
    )


def test_a_damaged_file_and_one_without_some_weights_are_refused(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "part.gguf", without="down_proj")
    told = refusal(file)
    assert told.startswith("LlamaForCausalLM needs 2 weights that")
    assert "model.layers.0.mlp.down_proj" in told
    (tmp_path / "bad.gguf").write_bytes(b"no such format")
    assert refusal(tmp_path / "bad.gguf").startswith("cannot be read as a GGUF file: ")


def test_scaled_rotations_which_transformers_passes_over_are_refused(tmp_path: Path) -> None:
    assert refusal(write_gguf(tmp_path / "rope.gguf", rotated=True)).startswith(
        "uses RoPE scaling (rope_freqs.weight), which transformers does not read from GGUF"
    )


def test_missing_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF")
    monkeypatch.setattr("airrep.lm.folders.gguf.find_spec", lambda _: None)
    assert refusal(tmp_path / "tiny.gguf") == (
        "is a GGUF file, which needs the package gguf and accelerate. Install it with: pip install gguf accelerate"
    )
