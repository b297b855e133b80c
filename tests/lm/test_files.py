"""A target LM that cannot be used is refused in one line."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError
from safetensors.torch import load_file, save_file
from transformers import (
    BertConfig,
    BertLMHeadModel,
    T5Config,
    T5ForConditionalGeneration,
    XLNetConfig,
    XLNetLMHeadModel,
)
from worlds.tiny_lms import VOCABULARY, load, some_examples, tiny_lm, tiny_network, tiny_tokenizer

from airrep.corpus.corpus import Example
from airrep.errors import ConfigError
from airrep.lm.files import load_tokenizer
from airrep.lm.folders.forms import find_lm

_SHAPE = {"vocab_size": VOCABULARY, "hidden_size": 16}
_LAYERS = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}


def refusal(lm: Path | str, **settings: Any) -> str:
    """Why an LM is refused, without its name."""
    with pytest.raises(ConfigError) as caught:
        load(lm, **settings)
    message = str(caught.value)
    assert message.startswith(f"lm {lm}: ")
    assert "\n" not in message
    return message.removeprefix(f"lm {lm}: ")


def test_a_name_that_is_neither_folder_nor_id_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none") == (
        "there is no such folder. Give a folder, or owner/name on the Hugging Face Hub. Check the path."
    )
    (tmp_path / "file").write_text("")
    assert refusal(tmp_path / "file").startswith("this is a file. Give a folder")
    assert refusal(tmp_path / "fiel").endswith("Did you mean 'file'?")


def hub_error(kind: type[HfHubHTTPError], status: int | None) -> Exception:
    """An error of the Hub's library, without the answer of a server that its constructor needs."""
    error = kind.__new__(kind, "refused")
    error.response = None if status is None else SimpleNamespace(status_code=status)
    return error


TRANSPORT = next(base for base in HfHubHTTPError.__mro__ if base.__module__.startswith("httpx"))
UNASKED = (
    "there is no such folder, and the Hugging Face Hub could not be reached ({}). Fetch it elsewhere (hf download)"
)
GATED = "access to it is restricted on the Hugging Face Hub, and you do not have access (yet). Request access"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ConnectionError("no route"), UNASKED.format("ConnectionError")),
        (hub_error(HfHubHTTPError, 500), UNASKED.format("HfHubHTTPError")),
        (type("ProxyError", (TRANSPORT,), {})("x"), UNASKED.format("ProxyError")),
        (hub_error(RepositoryNotFoundError, None), "there is no such folder, and the Hugging Face Hub has no such"),
        (hub_error(GatedRepoError, None), GATED),
        (hub_error(HfHubHTTPError, 401), GATED),
        (hub_error(HfHubHTTPError, 403), GATED),
    ],
)
def test_what_the_hub_refuses_is_one_line(error: Exception, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> str:
        raise error

    monkeypatch.setattr("huggingface_hub.snapshot_download", fail)
    assert refusal("owner/name").startswith(reason)


def test_an_id_gives_the_fetched_lm_and_no_pickles_or_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, asked = tiny_lm(tmp_path / "lm"), []

    def fetch(name: str, allow_patterns: list[str]) -> str:
        asked.extend(allow_patterns)
        return folder

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    lm = load("owner/name")
    assert (lm.name, lm.fingerprint) == ("owner/name", load(folder).fingerprint)
    assert "*.safetensors" in asked
    assert not {"*", "*.bin", "*.py", "*.pt"} & set(asked)


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors"])
def test_a_folder_without_configuration_or_weights_is_refused(missing: str, tmp_path: Path) -> None:
    tiny_lm(tmp_path / "lm")
    (tmp_path / "lm" / missing).unlink()
    name = "config.json" if missing == "config.json" else "*.safetensors"
    assert refusal(tmp_path / "lm").startswith(f"its folder has no {name}. Give a folder with a Hugging Face causal LM")


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (
            lambda: BertLMHeadModel(BertConfig(**_SHAPE, **_LAYERS)),
            "a BertLMHeadModel changes a token's loss when more tokens follow it",
        ),
        (
            lambda: T5ForConditionalGeneration(
                T5Config(vocab_size=9, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2)
            ),
            "cannot be loaded as a causal LM: Unrecognized configuration class",
        ),
        (
            lambda: XLNetLMHeadModel(XLNetConfig(vocab_size=VOCABULARY, d_model=16, n_layer=1, n_head=2, d_inner=8)),
            "a XLNetLMHeadModel changes a token's loss when more tokens follow it",
        ),
    ],
    ids=["bert", "t5", "xlnet"],
)
def test_lms_of_another_kind_are_refused(make: Callable[[], Any], reason: str, tmp_path: Path) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = make()
        for parameter in model.parameters():
            parameter.data.normal_(0, 0.4)
    model.save_pretrained(tmp_path / "lm")
    tiny_tokenizer().save_pretrained(tmp_path / "lm")
    assert refusal(tmp_path / "lm").startswith(reason)


def rewrite(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    """Change the weights of a saved LM."""
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def test_a_missing_weight_is_not_filled_with_random_numbers(tmp_path: Path) -> None:
    tiny_lm(tmp_path / "lm")
    rewrite(tmp_path / "lm", lambda tensors: tensors.__delitem__("model.layers.0.mlp.up_proj.weight"))
    assert refusal(tmp_path / "lm") == (
        "LlamaForCausalLM needs 1 weight that the folder lacks or has in another shape; the first is "
        "model.layers.0.mlp.up_proj.weight. Give a folder with a complete causal LM."
    )


def test_a_weight_that_is_not_finite_is_refused(tmp_path: Path) -> None:
    tiny_lm(tmp_path / "lm")
    rewrite(tmp_path / "lm", lambda tensors: tensors["model.norm.weight"].fill_(float("nan")))
    assert refusal(tmp_path / "lm").startswith("weight model.norm.weight is not finite (NaN or infinite)")


def test_a_cut_off_file_of_weights_is_refused(tmp_path: Path) -> None:
    tiny_lm(tmp_path / "lm")
    path = tmp_path / "lm" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    size = path.stat().st_size
    wanted = f"{path.name} has {size:,} bytes, but its header describes {size + 100:,}. Download it again."
    assert refusal(tmp_path / "lm") == wanted


@pytest.mark.parametrize(
    ("file", "content"),
    [
        *(("config.json", content) for content in ("{}", '{"model_type": "unheard-of"}')),
        *(("tokenizer.json", content) for content in ("{", "{}", '{"a": 1}', "[]")),
    ],
)
def test_a_damaged_file_is_refused(file: str, content: str, tmp_path: Path) -> None:
    tiny_lm(tmp_path / "lm")
    (tmp_path / "lm" / file).write_text(content)
    told = "cannot be loaded as a causal LM" if file == "config.json" else "its tokenizer cannot be loaded"
    assert refusal(tmp_path / "lm").startswith(f"{told}: ")


@pytest.mark.parametrize(("content", "told"), [("{", "cannot be read as JSON"), ("[]", "is not a JSON object")])
def test_a_configuration_that_is_no_object_is_refused(content: str, told: str, tmp_path: Path) -> None:
    path = Path(tiny_lm(tmp_path / "lm")) / "config.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match=told) as caught:
        load(path.parent)
    assert str(caught.value).startswith(str(path))


def test_an_lm_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    tiny_network().save_pretrained(tmp_path / "lm")
    assert refusal(tmp_path / "lm") == (
        "there is no tokenizer.json in this folder. Save the tokenizer there: "
        f"tokenizer.save_pretrained({str(tmp_path / 'lm')!r})"
    )


def test_more_tokens_than_positions_are_refused(tmp_path: Path) -> None:
    tiny_lm(tmp_path / "lm")
    assert load(tmp_path / "lm").max_tokens == 64
    assert load(tmp_path / "lm", max_tokens=32).max_tokens == 32
    assert refusal(tmp_path / "lm", max_tokens=65) == "max_tokens is 65, but the LM has 64 positions. Lower max_tokens."
    tiny_lm(tmp_path / "long", max_position_embeddings=9000)
    assert load(tmp_path / "long").max_tokens == 2048


def test_sharded_and_half_precision_weights_are_loaded_as_float32(tmp_path: Path) -> None:
    tiny_network().half().save_pretrained(tmp_path / "lm", max_shard_size="20KB")
    tiny_tokenizer().save_pretrained(tmp_path / "lm")
    lm = load(tmp_path / "lm")
    assert len(list((tmp_path / "lm").glob("*.safetensors"))) > 1
    assert {parameter.dtype for parameter in lm.model.parameters()} == {torch.float32}
    assert len(lm.losses(lm.tokenise(some_examples()))) == 12


def test_digests_cover_what_is_read_and_leave_out_the_rest(tmp_path: Path) -> None:
    tiny_lm(tmp_path / "lm")
    before = find_lm(str(tmp_path / "lm")).digests()
    assert {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"} <= before.keys()
    (tmp_path / "lm" / "README.md").write_text("words")
    (tmp_path / "lm" / "generation_config.json").write_text("{}")
    assert find_lm(str(tmp_path / "lm")).digests() == before
    config = json.loads((tmp_path / "lm" / "config.json").read_text())
    (tmp_path / "lm" / "config.json").write_text(json.dumps({**config, "rms_norm_eps": 1e-3}))
    assert find_lm(str(tmp_path / "lm")).digests() != before


def test_rows_that_cannot_be_tokenised_are_told_beforehand(tmp_path: Path) -> None:
    tiny_lm(tmp_path / "lm")
    lm = load(tmp_path / "lm")
    examples = some_examples(3)
    assert lm.unusable(examples) == {}
    found = lm.unusable([*examples, Example("why", "x" * 99, "long"), Example("why", "", "none")])
    assert list(found) == [3, 4]
    assert found[3].startswith('example "long": its response has 101 tokens, but max_tokens=64 leaves room for 63')


def test_rows_are_tried_one_by_one_only_near_one_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_lm(tmp_path / "lm")
    lm, calls = load(tmp_path / "lm"), []
    tokenise = lm.chat.tokenise
    monkeypatch.setattr(lm.chat, "tokenise", lambda examples: calls.append(len(examples)) or tokenise(examples))
    many = some_examples(600)
    assert lm.unusable(many) == {}
    assert calls == [256, 256, 88]
    many[550] = Example("why", "", "none")
    calls.clear()
    assert list(lm.unusable(many)) == [550]
    assert calls == [256, 256, 88, *[1] * 88]


@pytest.mark.parametrize(("kind", "told"), [("GPT2TokenizerFast", True), ("PreTrainedTokenizerFast", False)])
def test_a_tokenizer_that_transformers_makes_anew_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str, told: bool
) -> None:
    """The file's rule, lower case, is kept by one class and lost by the other."""
    folder = Path(tiny_lm(tmp_path / "lm"))
    for name, change in (
        ("tokenizer.json", {"normalizer": {"type": "Lowercase"}}),
        ("tokenizer_config.json", {"tokenizer_class": kind}),
    ):
        path = folder / name
        path.write_text(json.dumps(json.loads(path.read_text()) | change))
    tokenizer = load_tokenizer(folder, str(folder))
    assert (tokenizer.tokenize("A") == ["a"]) is not told
    messages = [record.getMessage() for record in caplog.records if "tokenizer.json" in record.getMessage()]
    expected = (
        f"lm {folder}: transformers {transformers.__version__} splits texts by the rules of GPT2Tokenizer, not "
        "of tokenizer.json. If you trained by the file, as transformers 4 does, set tokenizer_class to "
        "TokenizersBackend in tokenizer_config.json (this does not help where model_type is qwen2)."
    )
    assert messages == ([expected] if told else [])
