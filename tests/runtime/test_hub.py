"""Models that bring program code are refused, unless they are trusted."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds.tiny_bert import TEXTS, tiny_folder
from worlds.tiny_lms import load, some_examples, tiny_lm

from airrep.attributors.methods import make_attributor
from airrep.corpus.corpus import Corpus
from airrep.encoder.load import load_encoder
from airrep.errors import ArtifactError, ConfigError
from airrep.lm.model import load_lm
from airrep.lm.settings import LmSettings
from airrep.lm.warmup import warm_up
from airrep.runtime.hub import check_own_code

LM_CODE = """
from transformers import LlamaConfig, LlamaForCausalLM

class OwnConfig(LlamaConfig):
    model_type = "own"

class OwnLM(LlamaForCausalLM):
    config_class = OwnConfig
"""

MODULE_CODE = """
from sentence_transformers.sentence_transformer.modules import Normalize

class Own(Normalize):
    def forward(self, features, **kwargs):
        features["sentence_embedding"] = 2 * features["sentence_embedding"]
        return features
"""


@pytest.fixture(scope="module", autouse=True)
def code_cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A place of its own for the code that transformers copies."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path_factory.mktemp("modules")))
        patch.setattr(sys, "path", [*sys.path])
        yield


def change(path: Path, **values: Any) -> None:
    """Set values in a JSON file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.fixture
def own_lm(tmp_path: Path) -> Path:
    """A Llama whose configuration asks for code that lies beside it."""
    tiny_lm(tmp_path / "own_lm")
    names = {"AutoConfig": "modeling_own.OwnConfig", "AutoModelForCausalLM": "modeling_own.OwnLM"}
    change(tmp_path / "own_lm" / "config.json", model_type="own", auto_map=names)
    (tmp_path / "own_lm" / "modeling_own.py").write_text(LM_CODE)
    return tmp_path / "own_lm"


@pytest.fixture
def own_encoder(tmp_path: Path) -> Path:
    """An encoder, the last of whose modules is code that lies beside it."""
    folder = tiny_folder(tmp_path / "own_encoder", ((16, 16, True), None))
    entries = json.loads((folder / "modules.json").read_text())
    entries[-1]["type"] = "own_module.Own"
    (folder / "modules.json").write_text(json.dumps(entries))
    (folder / "own_module.py").write_text(MODULE_CODE)
    return folder


def test_an_lm_with_code_is_refused_in_one_line(own_lm: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(own_lm, trust_remote_code=False)
    assert str(caught.value) == (
        f"lm {own_lm}: contains program code (config.json refers to it), which can do anything on this machine and "
        "is not run. Read the code and set trust_remote_code=true, or give another model."
    )


def test_an_lm_with_code_runs_when_it_is_trusted_and_its_code_counts(own_lm: Path, tmp_path: Path) -> None:
    lm = load(own_lm, trust_remote_code=True)
    assert type(lm.model).__name__ == "OwnLM"
    tiny_lm(tmp_path / "plain")
    plain = load(tmp_path / "plain", trust_remote_code=False)
    documents = lm.tokenise(some_examples())
    np.testing.assert_array_equal(lm.losses(documents), plain.losses(documents))
    before = lm.fingerprint
    (own_lm / "modeling_own.py").write_text(LM_CODE + "\nADDED = 1\n")
    assert load(own_lm, trust_remote_code=True).fingerprint != before


def test_a_warm_up_of_an_lm_with_code_is_another_when_the_code_changes(own_lm: Path, tmp_path: Path) -> None:
    settings = {"lm": str(own_lm), "precision": "float32", "device": "cpu"}
    trusted = {**settings, "trust_remote_code": True}
    train, out = Corpus.from_examples(some_examples(6)[1:]), tmp_path / "warm"
    with pytest.raises(ConfigError, match=r"set trust_remote_code=true"):
        warm_up(train, out, settings, {"epochs": 1})
    made = warm_up(train, out, trusted, {"epochs": 1})
    assert warm_up(train, out, trusted, {"epochs": 1}).manifest == made.manifest
    assert type(load(out, trust_remote_code=True).model).__name__ == "OwnLM"
    (own_lm / "modeling_own.py").write_text(LM_CODE + "\nADDED = 2\n")
    with pytest.raises(ArtifactError, match=r"holds a warm-up made with another lm"):
        warm_up(train, out, trusted, {"epochs": 1})


def test_trust_changes_nothing_of_a_model_without_code(tmp_path: Path) -> None:
    tiny_lm(tmp_path / "lm")
    before = load(tmp_path / "lm", trust_remote_code=False).fingerprint
    (tmp_path / "lm" / "train.py").write_text("print('a script that nothing asks for')")
    assert load(tmp_path / "lm", trust_remote_code=True).fingerprint == before
    folder = tiny_folder(tmp_path / "encoder")
    (folder / "train.py").write_text("")
    trusted = load_encoder(folder, trust_remote_code=True)
    assert trusted.packed
    assert trusted.fingerprint == load_encoder(folder).fingerprint


def test_a_tokenizer_with_code_is_refused_too(tmp_path: Path) -> None:
    tiny_lm(tmp_path / "lm")
    change(tmp_path / "lm" / "tokenizer_config.json", auto_map={"AutoTokenizer": ["own.Slow", None]})
    with pytest.raises(ConfigError, match=r"program code \(tokenizer_config\.json refers to it\)"):
        load(tmp_path / "lm", trust_remote_code=False)


def test_an_encoder_with_code_is_refused_in_one_line(own_encoder: Path) -> None:
    with pytest.raises(ConfigError, match=r"program code \(modules\.json refers to it\)"):
        load_encoder(own_encoder)
    with pytest.raises(ConfigError, match=r"set trust_remote_code=true"):
        make_attributor("gte", {"encoder": str(own_encoder)}).encode_train([])


def test_an_encoder_with_code_runs_when_it_is_trusted_and_its_code_counts(own_encoder: Path, tmp_path: Path) -> None:
    encoder = load_encoder(own_encoder, device="cpu", trust_remote_code=True)
    assert not encoder.packed
    plain = load_encoder(tiny_folder(tmp_path / "plain"), device="cpu", precision="float32")
    np.testing.assert_allclose(encoder.encode_texts(TEXTS), 2 * plain.encode_texts(TEXTS), rtol=1e-4, atol=1e-5)
    (own_encoder / "own_module.py").write_text(MODULE_CODE + "\nADDED = 1\n")
    assert load_encoder(own_encoder, device="cpu", trust_remote_code=True).fingerprint != encoder.fingerprint


def test_a_bert_that_asks_for_code_is_not_run_by_ours(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "encoder")
    change(folder / "config.json", auto_map={"AutoModel": "own.Model"})
    with pytest.raises(ConfigError, match=r"program code \(config\.json refers to it\)"):
        load_encoder(folder)


def test_code_that_lies_elsewhere_is_not_fetched(own_lm: Path) -> None:
    change(own_lm / "config.json", auto_map={"AutoConfig": "owner/other--own.Config"})
    told = r"lies in another repository \(owner/other\), which airrep does not download"
    with pytest.raises(ConfigError, match=told):
        load(own_lm, trust_remote_code=True)


def test_the_modules_of_a_router_are_looked_at(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "encoder")
    types = {"0": "sentence_transformers.models.Transformer", "1": "own.Module"}
    (folder / "router_config.json").write_text(json.dumps({"types": types}))
    with pytest.raises(ConfigError, match=r"router_config\.json"):
        check_own_code("encoder", "x", folder, trusted=False)


@pytest.mark.parametrize("content", ["{", "[]", "3", '{"auto_map": {}}', '{"auto_map": null}'])
def test_a_file_that_asks_for_no_code_is_left_to_its_reader(content: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(content)
    assert check_own_code("lm", "x", tmp_path, trusted=False) == []


@pytest.mark.parametrize("trusted", [False, True])
def test_programs_are_fetched_when_trusted(trusted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_lm(tmp_path / "lm")
    tiny_folder(tmp_path / "encoder")
    asked: list[set[str]] = []

    def fetch(name: str, allow_patterns: list[str]) -> str:
        asked.append(set(allow_patterns))
        return str(tmp_path / name.rpartition("/")[2])

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    load_lm(LmSettings(lm="owner/lm", device="cpu", trust_remote_code=trusted))
    load_encoder("owner/encoder", device="cpu", trust_remote_code=trusted)
    assert [("*.py" in patterns) for patterns in asked] == [trusted, trusted]
