"""Every layout of modules that sentence-transformers saves, held against its own query and document vectors."""

import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from torch import nn
from worlds.tiny_bert import WORDS, tiny_folder

from airrep.encoder.base import Encoder
from airrep.encoder.folders import DEFAULT, MODELS, SETTINGS, read_layout
from airrep.encoder.load import load_encoder
from airrep.encoder.networks import packed
from airrep.encoder.networks.checkpoints import read_checkpoint
from airrep.errors import ConfigError, DataError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

TEXTS = ["a b c", "", "zebra question : a", "q w e r t y " * 40, "Ä É x Ж 中 b", "a b d"]
WORDY = ("words, cnn", "lstm", "words", "word weights")
Modules = list[nn.Module]


def transformer(folder: Path) -> nn.Module:
    """A tiny random BERT as the module that reads texts."""
    from sentence_transformers.base.modules import Transformer

    return Transformer(str(tiny_folder(folder / "bert", ())))


def pooled(folder: Path, *heads: nn.Module, **pooling: Any) -> Modules:
    """A tiny random BERT, its pooling, and what follows."""
    from sentence_transformers.sentence_transformer.modules import Pooling

    return [transformer(folder), Pooling(16, **pooling), *heads]


def words(folder: Path) -> nn.Module:
    """Vectors of words."""
    from sentence_transformers.sentence_transformer.modules import WordEmbeddings
    from sentence_transformers.sentence_transformer.modules.tokenizer import WhitespaceTokenizer

    return WordEmbeddings(WhitespaceTokenizer(WORDS), torch.randn(len(WORDS), 16))


def static(folder: Path, dimension: int = 16) -> nn.Module:
    """Vectors of tokens, of which a text has the mean."""
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, "[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Whitespace()
    return StaticEmbedding(tokenizer, embedding_dim=dimension)


def dense(**settings: Any) -> nn.Module:
    from sentence_transformers.base.modules import Dense

    return Dense(**({"in_features": 16, "out_features": 12} | settings))


def routed(query: Callable[[Path], Modules], document: Callable[[Path], Modules]) -> Callable[[Path], Modules]:
    from sentence_transformers.base.modules import Router

    def build(folder: Path) -> Modules:
        (folder / "q").mkdir()
        (folder / "d").mkdir()
        return [Router.for_query_document(query(folder / "q"), document(folder / "d"))]

    return build


def with_all_layers(folder: Path) -> nn.Module:
    """A tiny random BERT that gives the states of all its layers."""
    reader = transformer(folder)
    reader.model.config.output_hidden_states = True
    return reader


def layouts() -> dict[str, Callable[[Path], Modules]]:
    from sentence_transformers.base.modules import Normalize
    from sentence_transformers.sentence_transformer import modules as m

    modes = ("cls", "mean", "max", "lasttoken", "weightedmean", "mean_sqrt_len_tokens", ("mean", "max", "cls"))
    activations = {"tanh": nn.Tanh(), "identity": nn.Identity(), "relu": nn.ReLU(), "gelu": nn.GELU()}
    built: dict[str, Callable[[Path], Modules]] = {}
    for mode in modes:
        built[f"pooling {mode}"] = lambda f, mode=mode: pooled(f, pooling_mode=mode)
    for name, activation in activations.items():
        built[f"dense {name}"] = lambda f, a=activation: pooled(f, dense(activation_function=a))
    built["dense residual"] = lambda f: pooled(f, dense(activation_function=nn.Identity(), use_residual=True))
    built["dense tokens"] = lambda f: [transformer(f), dense(module_input_name="token_embeddings"), m.Pooling(12)]
    built["normalize"] = lambda f: pooled(f, Normalize())
    built["dense, normalize, dense"] = lambda f: pooled(
        f,
        dense(activation_function=nn.Identity()),
        Normalize(),
        dense(in_features=12, activation_function=nn.Identity()),
    )
    built["normalize tokens"] = lambda f: [transformer(f), Normalize("token_embeddings"), m.Pooling(16)]
    built["normalize elsewhere"] = lambda f: pooled(f, Normalize("token_embeddings"))
    built["layer norm"] = lambda f: pooled(f, m.LayerNorm(16))
    built["dropout"] = lambda f: pooled(f, m.Dropout(0.5))
    built["prompt left out"] = lambda f: pooled(f, include_prompt=False)
    built["cnn"] = lambda f: [transformer(f), m.CNN(16, 4, [1, 3]), m.Pooling(8)]
    built["words, cnn"] = lambda f: [words(f), m.CNN(16, 4, [1, 3]), m.Pooling(8)]
    built["lstm"] = lambda f: [words(f), m.LSTM(16, 6), m.Pooling(12)]
    built["words"] = lambda f: [words(f), m.Pooling(16)]
    built["word weights"] = lambda f: [words(f), m.WordWeights(WORDS, {"a": 3.0}), m.Pooling(16)]
    built["bag"] = lambda f: [m.BoW(WORDS)]
    built["bag, dense"] = lambda f: [m.BoW(WORDS), dense(in_features=len(WORDS))]
    built["static"] = lambda f: [static(f)]
    built["static, normalize"] = lambda f: [static(f), Normalize()]
    built["router static"] = routed(lambda f: [static(f)], lambda f: pooled(f))
    built["router bert"] = routed(lambda f: pooled(f, dense(out_features=16)), lambda f: pooled(f))
    built["router heads"] = lambda f: [*pooled(f), *routed(lambda _: [dense()], lambda _: [dense()])(f)]

    built["layers weighted"] = lambda f: [with_all_layers(f), m.WeightedLayerPooling(16, 2, 1), m.Pooling(16)]
    return built


def saved(modules: Modules, folder: Path, **settings: Any) -> Path:
    from sentence_transformers import SentenceTransformer

    SentenceTransformer(modules=modules, device="cpu", **settings).save(str(folder))
    return folder


def library(folder: Path) -> "SentenceTransformer":
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu", local_files_only=True, model_kwargs={"dtype": "float32"})


def load(folder: Path, **settings: Any) -> Encoder:
    return load_encoder(folder, precision="float32", device="cpu", **settings)


def assert_as_the_library(folder: Path, texts: list[str] = TEXTS) -> Encoder:
    """Each text's vector is what the library makes of it alone."""
    encoder, theirs = load(folder), library(folder)
    for queries, encode in ((True, theirs.encode_query), (False, theirs.encode_document)):
        wanted = np.array([encode(text, show_progress_bar=False) for text in texts], np.float32)
        np.testing.assert_allclose(encoder.encode_texts(texts, queries=queries), wanted, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(
            encoder.encode_texts(texts[::-1], queries=queries)[::-1], wanted, rtol=1e-4, atol=1e-5
        )
    return encoder


PROMPTS = {"query": "question : ", "document": "z "}


@pytest.mark.parametrize("name", layouts())
def test_vectors_are_the_librarys_own(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    folder = saved(layouts()[name](tmp_path), tmp_path / "saved", prompts=PROMPTS)
    encoder = assert_as_the_library(folder)
    packed = ("pooling mean", "dense identity", "normalize", "dense, normalize, dense")
    assert encoder.packed == (name in packed)
    lengths = {"bag": 0, "bag, dense": 0, "static": 0, "static, normalize": 0, "router static": 0}
    assert encoder.max_tokens == lengths.get(name, 1_000_000 if name in WORDY else 24)


@pytest.mark.parametrize(
    "settings", [{"truncate_dim": 5}, {"default_prompt_name": "query"}, {"similarity_fn_name": "euclidean"}], ids=str
)
def test_settings_of_the_model_hold_as_in_the_library(settings: dict[str, Any], tmp_path: Path) -> None:
    folder = saved(pooled(tmp_path), tmp_path / "saved", prompts={"query": "question : "}, **settings)
    assert assert_as_the_library(folder).dimension == settings.get("truncate_dim", 16)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["static", "pooling cls", "pooling mean", "lstm"])
def test_weights_stored_in_half_the_bytes_are_run_in_float32(name: str, kind: torch.dtype, tmp_path: Path) -> None:
    modules = layouts()[name](tmp_path)
    folder = saved([module.to(kind) for module in modules], tmp_path / "saved")
    whole = saved([module.float() for module in modules], tmp_path / "whole")
    np.testing.assert_allclose(load(folder).encode_texts(TEXTS), library(whole).encode(TEXTS), rtol=1e-4, atol=1e-5)


def test_modules_that_the_library_cannot_run_are_refused_by_name(tmp_path: Path) -> None:
    from sentence_transformers.sentence_transformer import modules as m

    folder = saved([transformer(tmp_path), m.LSTM(16, 6), m.Pooling(12)], tmp_path / "saved")
    told = r"cannot run its modules \(Transformer, LSTM, Pooling\): KeyError: .*Correct the"
    with pytest.raises(DataError, match=told):
        load(folder)
    folder = saved(routed(lambda f: pooled(f), lambda f: pooled(f, dense()))(tmp_path), tmp_path / "routed")
    with pytest.raises(DataError, match=r"have shape \(16,\) for queries and \(12,\) for documents"):
        load(folder)


# Lengths


@pytest.mark.parametrize("name", ["bag", "router static"])
def test_a_longest_text_is_refused_where_whole_texts_are_read(name: str, tmp_path: Path) -> None:
    folder = saved(layouts()[name](tmp_path), tmp_path / "saved")
    told = r"max_tokens cannot be set, since its (BoW|StaticEmbedding) reads whole texts\. Leave"
    with pytest.raises(ConfigError, match=told):
        load(folder, max_tokens=10)


def of_family(kind: str, folder: Path, **sizes: Any) -> Path:
    """A tiny random transformer of another family, with a tokenizer that tells no longest text."""
    import transformers
    from tokenizers.processors import TemplateProcessing

    config = getattr(transformers, f"{kind}Config")(
        vocab_size=40, pad_token_id=0, bos_token_id=2, eos_token_id=3, **sizes
    )
    torch.manual_seed(0)
    getattr(transformers, f"{kind}Model")(config).save_pretrained(folder)
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = TemplateProcessing("[CLS] $A [SEP]", None, [("[CLS]", 2), ("[SEP]", 3)])
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    return folder


COMMON = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
BART = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
FAMILIES = {
    "Roberta": (COMMON | {"max_position_embeddings": 26}, 25),
    "MPNet": (COMMON | {"max_position_embeddings": 26}, 24),
    "Electra": (COMMON | {"max_position_embeddings": 26, "embedding_size": 8}, 26),
    "DistilBert": ({"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 16, "max_position_embeddings": 26}, 26),
    "GPT2": ({"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 26}, 26),
    "OPT": (COMMON | {"max_position_embeddings": 26, "ffn_dim": 16, "word_embed_proj_dim": 16}, 26),
    "Nystromformer": (COMMON | {"max_position_embeddings": 26, "num_landmarks": 2, "segment_means_seq_len": 2}, 26),
    "Bart": (BART | {"max_position_embeddings": 26, "encoder_attention_heads": 2, "decoder_attention_heads": 2}, 26),
    "T5": ({"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}, None),
}


@pytest.mark.parametrize("kind", FAMILIES)
def test_no_text_is_longer_than_the_positions_of_its_transformer(kind: str, tmp_path: Path) -> None:
    sizes, most = FAMILIES[kind]
    folder = of_family(kind, tmp_path / "bare", **sizes)
    encoder, theirs = load(folder), library(folder)
    assert most is None or encoder.max_tokens == most
    if most is not None:
        theirs.max_seq_length = most
        with pytest.raises(ConfigError, match=f"max_tokens is {most + 1}; must be from 3 to {most}"):
            load(folder, max_tokens=most + 1)
    wanted = [theirs.encode(text) for text in TEXTS]
    np.testing.assert_allclose(encoder.encode_texts(TEXTS), wanted, rtol=1e-4, atol=1e-5)


# Kinds


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        (SETTINGS, {"model_type": "SparseEncoder"}, r"a sparse encoder \(SparseEncoder\)"),
        (SETTINGS, {"model_type": "MultiVectorEncoder"}, r"a multi-vector encoder \(MultiVectorEncoder\)"),
        (SETTINGS, {"model_type": "ColBERT"}, r"a multi-vector encoder \(ColBERT\)"),
        (SETTINGS, {"similarity_fn_name": "MaxSim"}, r"a multi-vector encoder \(MaxSim\)"),
        (SETTINGS, {"model_type": "CrossEncoder"}, r"a cross encoder \(CrossEncoder\)"),
        ("modules.json", [{"type": "pylate.models.Dense.Dense"}], r"a multi-vector encoder \(pylate\.models"),
        ("modules.json", [{"type": "sentence_transformers.sparse_encoder.models.SpladePooling"}], "a sparse encoder"),
        ("config.json", {"architectures": ["BertForSequenceClassification"]}, "a cross encoder or classifier"),
        ("config.json", {"architectures": ["HF_ColBERT"]}, r"a multi-vector encoder \(HF_ColBERT\)"),
        ("config.json", {"architectures": ["ColQwen2ForRetrieval"]}, "a multi-vector encoder"),
        ("config.json", {"architectures": ["Qwen3ForCausalLM"]}, "a language model"),
    ],
)
def test_other_kinds_of_models_are_refused_by_name(file: str, content: Any, message: str, tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "model")
    if file == "config.json":
        (folder / "modules.json").unlink()
    stored = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps(stored | content if isinstance(content, dict) else stored + content))
    with pytest.raises(ConfigError, match=f"model: holds {message}.*, not an encoder .* Give the folder of"):
        load(folder)


@pytest.mark.parametrize("kind", ["SparseEncoder", "CrossEncoder", "MultiVectorEncoder"])
def test_models_that_the_library_saves_of_other_kinds_are_refused(kind: str, tmp_path: Path) -> None:
    import sentence_transformers

    getattr(sentence_transformers, kind)(str(tiny_folder(tmp_path / "bert", ())), device="cpu").save(
        str(tmp_path / "m")
    )
    with pytest.raises(ConfigError, match=rf"holds a (sparse|cross|multi-vector) encoder \({kind}\), not an encoder"):
        load(tmp_path / "m")


def test_folders_with_exported_weights_alone_are_refused(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "model", ())
    (folder / "onnx").mkdir()
    (folder / "model.safetensors").rename(folder / "onnx" / "model.onnx")
    told = r"model\.onnx: is an export for ONNX or OpenVINO, and the folder has no model\.safetensors"
    with pytest.raises(DataError, match=told):
        load(folder)


# Tokenizers


def bert_tokenizer(folder: Path, changes: dict[str, Any], **settings: Any) -> Path:
    """A tiny encoder whose tokenizer transformers makes anew from the vocabulary and the settings."""
    tiny_folder(folder, ())
    for name, new in (
        ("tokenizer.json", changes),
        ("tokenizer_config.json", {"tokenizer_class": "BertTokenizer"} | settings),
    ):
        path = folder / name
        path.write_text(json.dumps(json.loads(path.read_text()) | new))
    return folder


NORMALIZER = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None}
PROCESSOR = {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["b", 9]}


@pytest.mark.parametrize(
    ("changes", "settings", "packed"),
    [
        ({}, {}, True),
        ({"normalizer": NORMALIZER | {"lowercase": False}}, {}, False),
        ({"normalizer": NORMALIZER | {"lowercase": True, "strip_accents": False}}, {}, False),
        ({}, {"do_lower_case": False}, False),
        ({}, {"strip_accents": False}, False),
        ({}, {"tokenize_chinese_chars": False}, False),
        ({"pre_tokenizer": {"type": "WhitespaceSplit"}}, {}, False),
        ({"post_processor": PROCESSOR}, {}, False),
        ({}, {"truncation_side": "left"}, False),
        ({}, {"model_max_length": 7}, True),
    ],
)
def test_a_packed_encoder_reads_what_transformers_reads(
    changes: dict[str, Any], settings: dict[str, Any], packed: bool, tmp_path: Path
) -> None:
    folder = bert_tokenizer(tmp_path / "model", changes, **settings)
    assert assert_as_the_library(folder, [*TEXTS, "A B é, x-y", "a\u0301b C\u4e2dd"]).packed == packed


def test_the_shipped_tokenizer_is_known_to_read_as_transformers_does(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = read_layout(MODELS / DEFAULT)
    checkpoint = read_checkpoint(layout)
    assert packed._agrees(layout, checkpoint)
    monkeypatch.setattr(packed, "_agrees", lambda *parts: pytest.fail("transformers was asked"))
    load_encoder(DEFAULT, device="cpu")


def test_trained_encoders_keep_a_tokenizer_that_needs_no_probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_encoder(DEFAULT, device="cpu", max_tokens=100).save(tmp_path / "saved")
    monkeypatch.setattr(packed, "_agrees", lambda *parts: pytest.fail("transformers was asked"))
    assert load(tmp_path / "saved").max_tokens == 100


# Adapters


def adapted(folder: Path, **settings: Any) -> tuple[Path, np.ndarray]:
    """A tiny encoder with an adapter beside its weights, and the vectors that peft makes with it."""
    import peft

    base = tiny_folder(folder / "base", ())
    shutil.copytree(base, folder / "model")
    theirs = library(base)
    torch.manual_seed(0)
    config = peft.LoraConfig(target_modules=["query", "value"], r=2, init_lora_weights=False, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of what peft asks of transformers
        theirs[0].model = peft.get_peft_model(theirs[0].model, config)
    theirs[0].model.save_pretrained(folder / "model")
    return folder / "model", theirs.encode(TEXTS)


@pytest.mark.parametrize("beside", [True, False])
@pytest.mark.parametrize("settings", [{"task_type": "FEATURE_EXTRACTION"}, {"use_dora": True}], ids=str)
def test_a_folder_with_an_adapter_is_run_with_it(settings: dict[str, Any], beside: bool, tmp_path: Path) -> None:
    folder, wanted = adapted(tmp_path, **settings)
    if not beside:
        for name in ("model.safetensors", "config.json"):
            (folder / name).unlink()
    encoder = load(folder)
    np.testing.assert_allclose(encoder.encode_texts(TEXTS), wanted, rtol=1e-4, atol=1e-5)
    assert np.abs(wanted - load(tmp_path / "base").encode_texts(TEXTS)).max() > 0.1
    encoder.save(tmp_path / "saved")
    np.testing.assert_allclose(load(tmp_path / "saved").encode_texts(TEXTS), wanted, rtol=1e-4, atol=1e-5)
    weights = folder / "adapter_model.safetensors"
    save_file({name: tensor * 2 for name, tensor in load_file(weights).items()}, weights)
    assert load(folder).fingerprint != encoder.fingerprint


def test_an_adapter_of_another_model_is_refused(tmp_path: Path) -> None:
    folder, _ = adapted(tmp_path)
    weights = folder / "adapter_model.safetensors"
    stored = load_file(weights)
    save_file({name.replace("encoder.layer", "layers"): tensor for name, tensor in stored.items()}, weights)
    with pytest.raises(DataError, match=r"its adapter does not fit its weights"):
        load(folder)
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(DataError, match=r"its adapter cannot be merged into its weights"):
        load(folder)
