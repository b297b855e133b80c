"""Model folders: formats that are read and written, and damaged ones that are refused."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
import torch
from huggingface_hub.errors import LocalEntryNotFoundError
from safetensors.torch import load_file, save_file
from worlds.tiny_bert import SHAPE, TEXTS, tiny_checkpoint, tiny_folder, tiny_tokenizer

from airrep.encoder.base import Encoder
from airrep.encoder.folders import read_layout
from airrep.encoder.load import load_encoder
from airrep.encoder.networks.checkpoints import write_airrep
from airrep.errors import ArtifactError, ConfigError, DataError


def load(folder: Path) -> Encoder:
    """Load in float32 on the CPU."""
    return load_encoder(folder, precision="float32", device="cpu")


def edit(path: Path, **changes: object) -> None:
    """Change fields of a JSON file; None takes a field out."""
    content = json.loads(path.read_text("utf-8")) | changes
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}), "utf-8")


def retensor(path: Path, change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]) -> None:
    """Change the tensors of a safetensors file."""
    tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
    save_file(change(tensors), path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny_folder(tmp_path / "model")


# Formats


@pytest.mark.parametrize(
    "heads",
    [(), ((16, 16, True),), ((16, 8, False), (8, 12, True)), (None,), (None, (16, 16, True)), ((16, 8, True), None)],
)
def test_saved_folders_are_sentence_transformers(tmp_path: Path, heads: tuple[Any, ...]) -> None:
    encoder = load(tiny_folder(tmp_path / "model", heads))
    assert encoder.packed
    library = encoder.sentence_transformer()
    assert library.max_seq_length == encoder.max_tokens == SHAPE.positions
    expected = library.encode(TEXTS, show_progress_bar=False)
    np.testing.assert_allclose(encoder.encode_texts(TEXTS), expected, rtol=1e-4, atol=1e-5)
    library.save(str(tmp_path / "theirs"))
    theirs = load(tmp_path / "theirs")
    assert theirs.packed
    np.testing.assert_array_equal(theirs.encode_texts(TEXTS), encoder.encode_texts(TEXTS))


@pytest.mark.parametrize("model_format", ["sentence-transformers", "airrep"])
def test_round_trip(folder: Path, tmp_path: Path, model_format: str) -> None:
    edit(folder / "airrep.json", trained_for_attribution=True, trained_group_sizes=[10, 1000])
    encoder = load_encoder(folder, precision="bfloat16", template="{prompt}|{response}", max_tokens=9)
    encoder.save(tmp_path / "saved", model_format)
    again = load_encoder(tmp_path / "saved", precision="bfloat16")
    assert again.fingerprint == encoder.fingerprint
    assert (again.template, again.max_tokens) == ("{prompt}|{response}", 9)
    assert (again.trained_for_attribution, again.trained_group_sizes) == (True, (10, 1000))
    np.testing.assert_array_equal(again.encode_texts(TEXTS), encoder.encode_texts(TEXTS))


def test_weights_can_be_stored_in_half_the_bytes(folder: Path, tmp_path: Path) -> None:
    encoder = load(folder)
    for storage in ("float16", "bfloat16"):
        encoder.save(tmp_path / storage, storage=storage)
        stored = load_file(tmp_path / storage / "model.safetensors")
        assert {tensor.dtype for tensor in stored.values()} == {getattr(torch, storage)}
        again = load(tmp_path / storage)
        assert {parameter.dtype for parameter in again.sentence_transformer().parameters()} == {torch.float32}
        np.testing.assert_allclose(again.encode_texts(TEXTS), encoder.encode_texts(TEXTS), rtol=0.1, atol=0.1)
        assert again.fingerprint != encoder.fingerprint


def test_published_checkpoints(tmp_path: Path) -> None:
    from transformers import BertConfig, BertModel

    write_airrep(tiny_checkpoint(), tmp_path, torch.bfloat16)
    (tmp_path / "airrep.json").unlink()
    retensor(tmp_path / "model.safetensors", lambda tensors: tensors | {"bert.pooler.dense.bias": torch.ones(16)})
    encoder = load(tmp_path)
    assert (encoder.packed, encoder.trained_for_attribution, encoder.dimension) == (True, True, 16)
    tensors = {name: tensor.float() for name, tensor in load_file(tmp_path / "model.safetensors").items()}
    bert = BertModel(BertConfig(**json.loads((tmp_path / "config.json").read_text("utf-8"))), add_pooling_layer=False)
    own = {name: t for name, t in tensors.items() if ".pooler" not in name and name.startswith("bert.")}
    bert.eval().load_state_dict({name.removeprefix("bert."): t for name, t in own.items()})
    with torch.inference_mode():
        hidden = bert(torch.tensor([[2, 8, 9, 10, 3]])).last_hidden_state.mean(1)
        expected = hidden @ tensors["projector.weight"].T + tensors["projector.bias"]
    np.testing.assert_allclose(encoder.encode_texts(["a b c"]), expected.numpy(), rtol=1e-4, atol=1e-5)


def test_older_folders(folder: Path) -> None:
    expected = load(folder).encode_texts(TEXTS)
    modules = folder / "modules.json"
    content = json.loads(modules.read_text("utf-8"))
    old = [entry | {"type": f"sentence_transformers.models.{entry['type'].rpartition('.')[2]}"} for entry in content]
    modules.write_text(json.dumps(old), "utf-8")
    pooling = {"word_embedding_dimension": 16, "pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling), "utf-8")
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 12, "do_lower_case": false}', "utf-8")
    edit(folder / "config.json", position_embedding_type=None, dtype=None)
    (folder / "airrep.json").unlink()
    encoder = load(folder)
    assert (encoder.packed, encoder.max_tokens, encoder.prompt_words) == (True, 12, 256)
    np.testing.assert_allclose(encoder.encode_texts(TEXTS[:4]), expected[:4], rtol=1e-6)


def test_bare_transformers(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "bare", ())
    expected = load(folder).encode_texts(TEXTS)
    (folder / "modules.json").unlink()
    old = {".weight": ".gamma", ".bias": ".beta"}

    def rename(name: str) -> str:
        stem, dot, kind = name.rpartition(".")
        return f"bert.{stem}{old[dot + kind]}" if stem.endswith("LayerNorm") else f"bert.{name}"

    retensor(folder / "model.safetensors", lambda tensors: {rename(name): t for name, t in tensors.items()})
    encoder = load(folder)
    assert encoder.packed
    np.testing.assert_array_equal(encoder.encode_texts(TEXTS), expected)


CHANGING_NOTHING: list[tuple[str, dict[str, object]]] = [
    ("sentence_bert_config.json", {"max_seq_length": 9, "do_lower_case": False, "config_args": {}}),
    ("config_sentence_transformers.json", {"truncate_dim": None, "prompts": {"query": "a "}}),
]


@pytest.mark.parametrize(
    ("file", "changes"),
    [
        *CHANGING_NOTHING,
        ("config.json", {"hidden_act": "relu"}),
        ("config.json", {"position_embedding_type": "relative_key"}),
        ("sentence_bert_config.json", {"do_lower_case": True}),
        ("1_Pooling/config.json", {"pooling_mode": ["mean", "cls"]}),
        ("2_Dense/config.json", {"activation_function": "torch.nn.modules.activation.Tanh"}),
        ("2_Dense/config.json", {"use_residual": True}),
        ("config_sentence_transformers.json", {"prompts": {"query": "a"}, "default_prompt_name": "query"}),
        ("config_sentence_transformers.json", {"truncate_dim": 8}),
        ("sentence_bert_config.json", {"config_args": {"num_hidden_layers": 1}}),
        ("sentence_bert_config.json", {"tokenizer_args": {"model_max_length": 5}}),
        ("sentence_bert_config.json", {"processing_kwargs": {"text": {"max_length": 5}}}),
        ("2_Dense/config.json", {"module_input_name": "token_embeddings"}),
        ("config.json", {"quantization_config": {"quant_method": "bitsandbytes"}}),
        (
            "1_Pooling/config.json",
            {"pooling_mode": None, "pooling_mode_mean_tokens": False, "pooling_mode_cls_token": 1},
        ),
    ],
)
def test_unusual_folders_are_left_to_the_library(folder: Path, file: str, changes: dict[str, object]) -> None:
    edit(folder / file, **changes)
    runs_packed = (file, changes) in CHANGING_NOTHING
    assert read_layout(folder).format == ("sentence-transformers" if runs_packed else "library")


# Saving


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("there", "there: exists already; nothing is overwritten"),
        ("file/model", "cannot be written: a parent of it is a file, not a directory"),
    ],
)
def test_nothing_is_overwritten(folder: Path, tmp_path: Path, place: str, told: str) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match=told):
        load(folder).save(tmp_path / place)


def test_a_failed_save_leaves_nothing(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path, content: bytes) -> int:
        raise OSError(28, "No space left on device")

    encoder = load(folder)
    before = sorted(tmp_path.iterdir())
    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", fail)
        with pytest.raises(ArtifactError, match=r"new: cannot be written: the disk is full"):
            encoder.save(tmp_path / "new")
    assert sorted(tmp_path.iterdir()) == before
    encoder.save(tmp_path / "new")
    assert load(tmp_path / "new").fingerprint == encoder.fingerprint


@pytest.mark.parametrize("heads", [(None,), ((16, 8, True),), ((16, 16, True), (16, 16, True))])
def test_what_the_published_format_cannot_hold(tmp_path: Path, heads: tuple[Any, ...]) -> None:
    encoder = load(tiny_folder(tmp_path / "model", heads))
    with pytest.raises(ConfigError, match=r"at most one linear layer of 16 x 16, without scaling"):
        encoder.save(tmp_path / "new", "airrep")


# Damaged and unsuitable folders


def test_missing_folders(tmp_path: Path) -> None:
    told = r"nothing/here/at all: there is no such folder\. Give 'default', a folder, or"
    with pytest.raises(ConfigError, match=told):
        load_encoder(tmp_path / "nothing/here/at all")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"file: is a file\. Give the folder"):
        load_encoder(tmp_path / "file")


def test_hub_that_cannot_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(name: str, allow_patterns: list[str]) -> str:
        assert not any("bin" in pattern or "py" in pattern for pattern in allow_patterns)
        raise LocalEntryNotFoundError("offline")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    message = r"^encoder some/model: there is no such folder, and the Hugging Face Hub could not be reached \(Local"
    with pytest.raises(ConfigError, match=message):
        load_encoder("some/model")


def test_models_of_the_hub(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda name, allow_patterns: str(folder))
    encoder = load_encoder("some/model")
    assert (encoder.name, encoder.fingerprint) == ("some/model", load(folder).fingerprint)


def test_folders_that_are_no_model(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"empty: is not a model folder: it has neither modules\.json nor config"):
        load(tmp_path / "empty")
    (folder / "modules.json").write_text("[1]")
    with pytest.raises(DataError, match=r"modules\.json: is not a list of modules"):
        load(folder)
    (folder / "modules.json").write_text("[")
    with pytest.raises(DataError, match=r"modules\.json: is not valid JSON"):
        load(folder)


def test_no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    shutil.rmtree(folder / "2_Dense")
    edit(folder / "config.json", model_type="bert")
    (folder / "modules.json").unlink()
    with pytest.raises(DataError, match=r"model: has no model\.safetensors"):
        load(folder)


def in_two_files(folder: Path) -> Path:
    """Lay the weights out in two files with an index, as large models come; returns the index."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    index = folder / "model.safetensors.index.json"
    places = {name: f"part-{'layer.1' in name:d}.safetensors" for name in tensors}
    for place in set(places.values()):
        save_file({name: tensors[name] for name in tensors if places[name] == place}, folder / place)
    index.write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return index


def test_weights_in_several_files(folder: Path) -> None:
    whole = load(folder)
    in_two_files(folder)
    parts = load(folder)
    assert parts.packed
    assert parts.fingerprint == whole.fingerprint
    np.testing.assert_array_equal(parts.encode_texts(TEXTS), whole.encode_texts(TEXTS))
    np.testing.assert_allclose(parts.sentence_transformer().encode(TEXTS), whole.encode_texts(TEXTS), atol=1e-5)


def test_an_index_of_weights_that_does_not_hold(folder: Path) -> None:
    index = in_two_files(folder)
    places = json.loads(index.read_text())["weight_map"]
    edit(index, weight_map=places | {"embeddings.word_embeddings.weight": "part-1.safetensors"})
    with pytest.raises(DataError, match=r"part-1\.safetensors: lacks tensor embeddings\.word_embeddings\.weight"):
        load(folder)
    edit(index, weight_map=places | {"embeddings.word_embeddings.weight": "part-9.safetensors"})
    with pytest.raises(DataError, match=r"part-9\.safetensors: is missing"):
        load(folder)
    edit(index, weight_map=[])
    with pytest.raises(DataError, match="has no weight_map"):
        load(folder)


def without_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no library see a folder."""

    def never(*arguments: object, **settings: object) -> None:
        pytest.fail("a library was given the folder")

    monkeypatch.setattr("airrep.encoder.networks.unpacked._load_library", never)


@pytest.mark.parametrize("part", [".", "2_Dense", "1_Pooling", "2_Dense/inner"])
@pytest.mark.parametrize("name", ["pytorch_model.bin", "pytorch_model-00001-of-00002.bin", "adapter_model.bin"])
@pytest.mark.parametrize("kind", ["library", "packed", "plain"])
def test_pickled_weights_of_every_kind_of_folder_are_refused_before_a_library_sees_them(
    folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str, name: str, part: str
) -> None:
    without_library(monkeypatch)
    if kind == "library":
        edit(folder / "1_Pooling" / "config.json", pooling_mode="cls")
    if kind == "plain":
        (folder / "modules.json").unlink()
        edit(folder / "config.json", model_type="roberta")
    place = folder / part
    place.mkdir(exist_ok=True)
    if name.startswith("pytorch_model"):
        (place / "model.safetensors").unlink(missing_ok=True)
        (place / "other.safetensors").write_bytes(b"")  # a library looks for the name above alone
    (place / name).write_bytes(b"a pickle")
    with pytest.raises(DataError, match=r"\.bin: holds pickled weights, .* convert the model to safetensors"):
        load(folder)


def test_pickles_beside_safetensors_of_the_same_name_are_no_matter(folder: Path) -> None:
    for part in (".", "2_Dense"):
        (folder / part / "pytorch_model.bin").write_bytes(b"a pickle")
    assert load(folder).packed


def test_modules_outside_the_folder_are_refused(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "2_Dense", tmp_path / "elsewhere")
    modules = json.loads((folder / "modules.json").read_text())
    modules[-1]["path"] = "../elsewhere"
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(DataError, match=r"modules\.json: names a module outside the model's folder"):
        load(folder)


@pytest.mark.parametrize("name", ["config.json", "modules.json", "airrep.json", "tokenizer.json"])
def test_deep_nesting_is_no_json(folder: Path, name: str) -> None:
    (folder / name).write_text('{"a":' * 100_000)
    with pytest.raises(DataError, match=f"{name}: is not valid JSON"):
        load(folder)


@pytest.mark.parametrize("file", ["model.safetensors", "2_Dense/model.safetensors"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite(folder: Path, file: str, value: float) -> None:
    def spoil(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        tensors[sorted(tensors)[0]].view(-1)[3] = value
        return tensors

    retensor(folder / file, spoil)
    with pytest.raises(DataError, match=r"model: weight \S+ has values that are not finite \(NaN or infinite\)"):
        load(folder)


@pytest.mark.parametrize("kept", [0, 100, 5000, -1])
def test_weights_cut_short(folder: Path, kept: int) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:kept])
    with pytest.raises(DataError, match=r"model\.safetensors: is a damaged or incomplete safetensors file \("):
        load(folder)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("config", {"num_hidden_layers": 3}, r"tensor encoder\.layer\.2\.attention\.self\.query\.weight is missing"),
        (
            "config",
            {"num_hidden_layers": 1},
            r"does not fit its config\.json, which has no layer for encoder\.layer\.1\.",
        ),
        ("config", {"intermediate_size": 31}, r"has shape \(32, 16\) instead of \(31, 16\)"),
        ("config", {"vocab_size": 41}, r"word_embeddings\.weight has shape \(40, 16\) instead of \(41, 16\)"),
        ("config", {"num_attention_heads": 3}, r"hidden_size \(16\) is not a multiple of num_attention_heads \(3\)"),
        ("config", {"hidden_size": None}, r"hidden_size is None; must be a whole number, at least 1"),
        ("config", {"layer_norm_eps": "small"}, r"layer_norm_eps is 'small'; must be a number"),
        ("config", {"hidden_act": "relu", "hidden_size": 17}, r"sentence_transformers cannot load it: "),
        ("airrep", {"prompt_words": 0}, r"airrep\.json: prompt_words must be "),
        ("airrep", {"template": 3}, r"airrep\.json: template must be "),
        ("airrep", {"trained_for_attribution": "no"}, r"airrep\.json: trained_for_attribution must be "),
        ("airrep", {"trained_group_sizes": [1]}, r"airrep\.json: trained_group_sizes must be "),
    ],
)
def test_configurations_that_do_not_fit(folder: Path, name: str, changes: dict[str, object], message: str) -> None:
    edit(folder / f"{name}.json", **changes)
    with pytest.raises(DataError, match=message):
        load(folder)


def test_heads_that_do_not_fit(folder: Path, tmp_path: Path) -> None:
    edit(folder / "2_Dense" / "config.json", out_features=8)
    with pytest.raises(DataError, match=r"linear\.weight has shape \(16, 16\) instead of \(8, 16\)"):
        load(folder)
    other = tiny_folder(tmp_path / "other", ((12, 16, True),))
    with pytest.raises(DataError, match=r"a linear head takes 12 features but is given 16"):
        load(other)


def test_published_checkpoints_that_do_not_fit(tmp_path: Path) -> None:
    write_airrep(tiny_checkpoint(), tmp_path)
    edit(tmp_path / "config.json", hidden_act="relu")
    with pytest.raises(ConfigError, match=r"AirRep checkpoint must be a BERT encoder with hidden_act gelu"):
        load(tmp_path)
    edit(tmp_path / "config.json", hidden_act="gelu")
    retensor(
        tmp_path / "model.safetensors", lambda tensors: {k: v for k, v in tensors.items() if k != "projector.bias"}
    )
    with pytest.raises(DataError, match=r"must have projector\.weight and projector\.bias"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"tokenizer\.json: is missing; an encoder needs its tokenizer\. Copy it from"),
        ("{", r"tokenizer\.json: is not valid JSON"),
        ('{"model": 1}', r"its tokenizer\.json cannot be read \("),
        (json.dumps(tiny_tokenizer() | {"post_processor": None}), r"its tokenizer adds no special tokens"),
    ],
)
def test_tokenizers_that_cannot_be_used(folder: Path, content: str | None, message: str) -> None:
    (folder / "tokenizer.json").unlink()
    if content is not None:
        (folder / "tokenizer.json").write_text(content, "utf-8")
    with pytest.raises(DataError, match=message):
        load(folder)


def test_tokenizer_of_another_model(folder: Path) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer["model"]["vocab"]["word"] = 40
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), "utf-8")
    with pytest.raises(DataError, match=r"has token number 40, but its encoder has only 40 embeddings"):
        load(folder)
