"""Adapters that peft wrote are merged into their base, and compute what peft computes with them."""

import json
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM
from worlds.tiny_lms import load, some_examples, tiny_lm, tiny_network, tiny_tokenizer, write_adapters

from airrep.corpus.corpus import Example
from airrep.errors import ConfigError, MissingExtraError
from airrep.lm.documents import Documents
from airrep.lm.model import TargetLM

peft = pytest.importorskip("peft")
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")  # peft asks for it

KINDS: dict[str, dict[str, Any]] = {
    "lora": {},
    "rslora": {"use_rslora": True},
    "dora": {"use_dora": True},
    "head": {"modules_to_save": ["lm_head"]},
    "embeddings": {"modules_to_save": ["embed_tokens"]},
    "bias": {"bias": "lora_only"},
    "one layer": {"layers_to_transform": [1]},
    "tokens": {"trainable_token_indices": [5, 6]},
    "parameters": {"target_parameters": ["mlp.down_proj.weight"], "target_modules": ["q_proj"]},
    "ranks": {"rank_pattern": {"q_proj": 2}, "alpha_pattern": {"v_proj": 3}},
}


def losses_of(model: Any, lm: TargetLM, documents: Documents | None = None) -> np.ndarray:
    """Losses by transformers alone, one document after the other; without documents, of the examples."""
    documents = lm.tokenise(some_examples()) if documents is None else documents
    found = []
    for row in range(len(documents)):
        part = documents.take(np.array([row]))
        ids, response = torch.tensor(part.ids), int(part.response_lengths[0])
        with torch.no_grad():
            logits = model(input_ids=ids[None].long()).logits[0].double()
        chances = torch.log_softmax(logits[:-1], 1).gather(1, ids[1:, None].long())[:, 0]
        found.append(-chances[-response:].mean().item())
    return np.array(found)


@pytest.mark.parametrize("kind", KINDS)
def test_merged_adapters_compute_what_peft_does(kind: str, tmp_path: Path) -> None:
    base = tiny_lm(tmp_path / "base")
    model = write_adapters(base, tmp_path / "adapter", **KINDS[kind])
    lm = load(tmp_path / "adapter")
    documents = lm.tokenise(some_examples())
    np.testing.assert_allclose(lm.losses(documents), losses_of(model, lm), rtol=1e-4)
    assert not np.allclose(lm.losses(documents), load(base).losses(documents), rtol=1e-2)
    assert {name for name, _ in lm.model.named_parameters()} == {n for n, _ in tiny_network().named_parameters()}
    assert all(parameter.requires_grad for parameter in lm.model.parameters())


def test_gpt2_whose_maps_are_transposed_is_merged_too(tmp_path: Path) -> None:
    base = tiny_lm(tmp_path / "gpt2", "gpt2")
    model = write_adapters(base, tmp_path / "adapter")
    lm = load(tmp_path / "adapter")
    np.testing.assert_allclose(lm.losses(lm.tokenise(some_examples())), losses_of(model, lm), rtol=1e-4)


@pytest.mark.filterwarnings("ignore::UserWarning")  # peft, which trains and writes them, tells of tied weights
@pytest.mark.parametrize(
    ("target", "other", "more"),
    [
        ("lm_head", "model.embed_tokens", {}),
        ("lm_head", "model.embed_tokens", {"use_dora": True}),
        ("embed_tokens", "lm_head", {}),
    ],
)
def test_adapters_of_a_tied_weight_are_refused(target: str, other: str, more: dict[str, Any], tmp_path: Path) -> None:
    """Merged, they would change both layers; in a copy of the LM in which each has its own they change one."""
    model = write_adapters(
        tiny_lm(tmp_path / "base", "qwen2"), tmp_path / "adapter", target_modules=[target, "q_proj"], **more
    )
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "adapter")
    message = str(caught.value)
    named = f"{'model.' * (target != 'lm_head')}{target}"
    assert f"its adapters change {named}, which shares its weight with {other}" in message
    assert message.endswith("--set base=MODEL")
    assert "\n" not in message
    lm = load(tmp_path / "adapter", base=untied(tmp_path / "base", tmp_path / "untied"))
    np.testing.assert_allclose(lm.losses(lm.tokenise(some_examples())), losses_of(model, lm), rtol=1e-4)


def untied(base: Path, out: Path) -> str:
    """Write an LM again with a weight of its own for the output layer."""
    model = AutoModelForCausalLM.from_pretrained(base)
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    model.config.tie_word_embeddings = False
    model.save_pretrained(out)
    tiny_tokenizer().save_pretrained(out)
    return str(out)


@pytest.mark.filterwarnings("ignore::UserWarning")  # peft, which trains and writes them, tells of tied weights
@pytest.mark.parametrize("config", [{}, {"target_modules": ["lm_head"], "modules_to_save": ["embed_tokens"]}])
def test_adapters_that_leave_no_weight_twice_are_merged_into_a_tied_lm(config: dict[str, Any], tmp_path: Path) -> None:
    model = write_adapters(tiny_lm(tmp_path / "base", "qwen2"), tmp_path / "adapter", **config)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # what peft tells of tied weights does not hold here
        lm = load(tmp_path / "adapter")
    np.testing.assert_allclose(lm.losses(lm.tokenise(some_examples())), losses_of(model, lm), rtol=1e-4)


ROWS = len(tiny_tokenizer())
ADDED = [Example("a <|x|>", "b <|y|> c", "added")]


def write_resized(tmp_path: Path, rows: int, kind: str = "llama", **config: Any) -> tuple[str, Any]:
    """Write adapters on an LM with added tokens, and say as their base the LM without; return that LM, and peft's."""
    base = tiny_lm(tmp_path / "base", kind, vocab_size=ROWS)
    resized = AutoModelForCausalLM.from_pretrained(base)
    resized.resize_token_embeddings(rows)
    resized.save_pretrained(tmp_path / "resized")
    model = write_adapters(str(tmp_path / "resized"), tmp_path / "adapter", **config)
    model.peft_config["default"].base_model_name_or_path = base  # peft compares the vocabularies
    model.save_pretrained(tmp_path / "adapter")
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens(["<|x|>", "<|y|>"])
    tokenizer.save_pretrained(tmp_path / "adapter")
    return base, model


@pytest.mark.filterwarnings("ignore::UserWarning")  # peft tells that it saves the embeddings
@pytest.mark.parametrize("kind", ["llama", "qwen2"])  # qwen2 has one weight for embeddings and the output layer
@pytest.mark.parametrize("rows", [ROWS + 8, ROWS - 10])
@pytest.mark.parametrize("saved", [None, ["embed_tokens", "lm_head"]])
def test_a_base_of_other_embeddings_is_resized(saved: list[str] | None, rows: int, kind: str, tmp_path: Path) -> None:
    _, model = write_resized(tmp_path, rows, kind, modules_to_save=saved)
    lm = load(tmp_path / "adapter")
    assert [len(layer.weight) for layer in (lm.model.get_input_embeddings(), lm.model.lm_head)] == [rows, rows]
    assert lm.model.config.vocab_size == rows
    documents = Documents.of([(np.array([5, rows - 1, 7, rows - 2]), 1), (np.array([rows - 3, 9]), 1)])
    np.testing.assert_allclose(lm.losses(documents), losses_of(model, lm, documents), rtol=1e-4)


@pytest.mark.filterwarnings("ignore::UserWarning")  # peft tells that it saves the embeddings
def test_another_base_with_another_vocabulary_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _, model = write_resized(tmp_path, ROWS + 8, modules_to_save=["embed_tokens", "lm_head"])
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if ".modules_to_save." in name:
                weight += 0.3 * weight.std() * torch.randn(weight.shape)  # as training changes them
    model.save_pretrained(tmp_path / "adapter")
    load(tmp_path / "adapter")
    load(tmp_path / "adapter", base=tiny_lm(tmp_path / "other", seed=1, vocab_size=ROWS - 3))
    messages = [record.getMessage() for record in caplog.records if record.name == "airrep.lm.lora"]
    assert len(messages) == 1
    told = (
        rf"model\.embed_tokens\.weight of its adapters \({ROWS + 8} tokens\) hardly resembles .* \({ROWS - 3} tokens\)"
    )
    assert re.search(told + r".*--set base=MODEL$", messages[0])


@pytest.mark.filterwarnings("ignore::UserWarning")  # peft tells that it saves the embeddings
def test_added_tokens_whose_embeddings_are_unknown_are_refused_with_the_way_out(tmp_path: Path) -> None:
    base, model = write_resized(tmp_path, ROWS + 2)
    load(tmp_path / "adapter").tokenise(ADDED)
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "adapter", merged=False).tokenise(ADDED)
    told = rf"token id 259, .* only {ROWS} embeddings.* copy of their base, {base}, .*\(261\).* --set base=FOLDER$"
    assert re.search(told, str(caught.value))
    copy = load(tmp_path / "adapter", merged=False, base=str(tmp_path / "resized"))
    assert np.isfinite(copy.losses(copy.tokenise(ADDED))).all()
    path = tmp_path / "adapter" / "adapter_model.safetensors"
    stored = load_file(path)
    save_file({name: tensor for name, tensor in stored.items() if "lm_head" not in name}, path)
    with pytest.raises(ConfigError, match=r"has no rows of lm_head\.weight for these tokens.*save_embedding_layers"):
        load(tmp_path / "adapter")
    model.save_pretrained(tmp_path / "adapter", save_embedding_layers=False)
    with pytest.raises(ConfigError, match=r"token id 259, .*adapters do not hold.*save_embedding_layers=True"):
        load(tmp_path / "adapter").tokenise(ADDED)
    whole = load(tmp_path / "adapter", base=str(tmp_path / "resized"))
    np.testing.assert_allclose(whole.losses(whole.tokenise(some_examples())), losses_of(model, whole), rtol=1e-4)


def test_the_fingerprint_is_of_adapters_and_base(tmp_path: Path) -> None:
    base = tiny_lm(tmp_path / "base")
    write_adapters(base, tmp_path / "adapter")
    first = load(tmp_path / "adapter").fingerprint
    write_adapters(base, tmp_path / "again")
    assert load(tmp_path / "again").fingerprint == first != load(base).fingerprint
    moved = tiny_lm(tmp_path / "moved")
    assert load(tmp_path / "adapter", base=moved).fingerprint == first
    other = tiny_lm(tmp_path / "other", seed=1)
    assert load(tmp_path / "adapter", base=other).fingerprint != first


def test_the_adapters_own_tokenizer_counts(tmp_path: Path) -> None:
    write_adapters(tiny_lm(tmp_path / "base"), tmp_path / "adapter")
    assert load(tmp_path / "adapter").reading["template"] == "plain"
    tiny_tokenizer(chat="{% for m in messages %}{{ m['content'] }}{% endfor %}").save_pretrained(tmp_path / "adapter")
    assert load(tmp_path / "adapter").reading["template"] == "chat"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"peft_type": "IA3"}, "its adapters are of type 'IA3'"),
        ({"peft_type": None}, "its adapters are of type 'None'"),
        ({"peft_type": "\n" * 2**20}, "its adapters are of type '"),
        ({"init_lora_weights": "pissa_niter_4"}, "initialised with 'pissa_niter_4', which changes the base too"),
        ({"megatron_config": {"a": 1}, "megatron_core": "os"}, "airrep refuses megatron_config"),
        ({"r": 5}, "adapter_model.safetensors cannot be loaded into a LlamaForCausalLM: "),
        ({"r": "x"}, "adapter_model.safetensors cannot be loaded into a LlamaForCausalLM: "),
        ({"target_modules": ["nowhere"]}, "adapter_model.safetensors cannot be loaded into a LlamaForCausalLM: "),
        ({"target_modules": ["q_proj", "k_proj", "v_proj", "down_proj"]}, "so this weight would be random"),
        ({"target_modules": ["q_proj", "v_proj"]}, "does not fit into this LM, so the adapters belong to another"),
    ],
)
def test_adapters_that_do_not_fit_are_refused_in_one_line(changes: dict[str, Any], reason: str, tmp_path: Path) -> None:
    write_adapters(tiny_lm(tmp_path / "base"), tmp_path / "adapter")
    path = tmp_path / "adapter" / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "adapter")
    message = str(caught.value)
    assert message.startswith(f"lm {tmp_path / 'adapter'}: ")
    assert reason in message
    assert "\n" not in message
    assert len(message) < 1000


@pytest.mark.filterwarnings("ignore::UserWarning")  # peft takes a bias of its own for damage
@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (
            {"alora_invocation_tokens": [40, 41]},
            "were trained with alora_invocation_tokens: they act only after certain tokens",
        ),
        ({"layer_replication": [[0, 2], [0, 2]]}, "were trained with layer_replication: they belong to an LM"),
        ({"lora_bias": True}, "add a bias (lora_bias) to model.layers.0.self_attn.q_proj, a layer without a bias"),
    ],
)
def test_what_cannot_be_merged_is_named(config: dict[str, Any], reason: str, tmp_path: Path) -> None:
    write_adapters(tiny_lm(tmp_path / "base"), tmp_path / "adapter", **config)
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "adapter")
    message = str(caught.value)
    assert f"its adapters {reason}" in message
    assert message.endswith("Give the LM before training instead, which is the base of the adapters.")
    assert "\n" not in message


@pytest.mark.filterwarnings("ignore::UserWarning")  # peft takes a bias of its own for damage
def test_a_bias_of_adapters_is_merged_into_layers_that_have_one(tmp_path: Path) -> None:
    base = tiny_lm(tmp_path / "base", "qwen2")
    model = write_adapters(base, tmp_path / "adapter", lora_bias=True, target_modules=["q_proj", "v_proj"])
    lm = load(tmp_path / "adapter")
    np.testing.assert_allclose(lm.losses(lm.tokenise(some_examples())), losses_of(model, lm), rtol=1e-4)


def test_damaged_or_infinite_adapters_are_refused(tmp_path: Path) -> None:
    write_adapters(tiny_lm(tmp_path / "base"), tmp_path / "adapter")
    path = tmp_path / "adapter" / "adapter_model.safetensors"
    stored = load_file(path)
    name = next(iter(stored))
    save_file({**stored, name: stored[name] * float("nan")}, path)
    with pytest.raises(ConfigError, match=r"^lm .*: weight .* in adapter_model\.safetensors is not finite"):
        load(tmp_path / "adapter")
    path.write_bytes(b"no tensors")
    with pytest.raises(ConfigError, match=r"adapter_model\.safetensors cannot be read: .*Save the adapters again\.$"):
        load(tmp_path / "adapter")


def test_adapters_of_a_wider_lm_are_refused(tmp_path: Path) -> None:
    tiny_lm(tmp_path / "base")
    write_adapters(tiny_lm(tmp_path / "wide", hidden_size=32), tmp_path / "adapter")
    told = r"cannot be loaded into a LlamaForCausalLM: .*size mismatch for .*--set base=MODEL$"
    with pytest.raises(ConfigError, match=told):
        load(tmp_path / "adapter", base=str(tmp_path / "base"))


def test_without_peft_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_adapters(tiny_lm(tmp_path / "base"), tmp_path / "adapter")
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'airrep\[peft\]'$"):
        load(tmp_path / "adapter")
