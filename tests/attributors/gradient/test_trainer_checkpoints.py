"""Checkpoints of a trainer serve gradient methods as those of a warm-up do."""

import json
from pathlib import Path

import numpy as np
import pytest
from worlds.tiny_lms import some_examples, tiny_lm, tiny_network, tiny_tokenizer

from airrep.attributors.methods import make_attributor
from airrep.corpus.corpus import Corpus
from airrep.errors import ConfigError

RATES = {3: 0.5, 6: 0.125}


def trainer_output(folder: Path) -> Path:
    """Two checkpoints, with one tokenizer around them; the second is cut into shards."""
    for step in RATES:
        checkpoint = folder / f"checkpoint-{step}"
        tiny_network(seed=step).save_pretrained(checkpoint, max_shard_size="50GB" if step == 3 else "20KB")
        history = [{"step": at, "learning_rate": rate} for at, rate in RATES.items() if at <= step]
        (checkpoint / "trainer_state.json").write_text(json.dumps({"log_history": history}))
        (checkpoint / "optimizer.pt").write_bytes(b"\x80\x04never read")
    tiny_tokenizer().save_pretrained(folder)
    return folder


def features(lm: Path | str, checkpoints: str = "final") -> np.ndarray:
    """TracIn's features of a few examples."""
    settings = {"lm": str(lm), "checkpoints": checkpoints, "store": "none", "device": "cpu", "rank": 4}
    return np.asarray(make_attributor("tracin", settings).encode_train(some_examples(5)))


def test_each_checkpoint_counts_with_its_rate(tmp_path: Path) -> None:
    out = trainer_output(tmp_path / "out")
    parts = [features(out / f"checkpoint-{step}") * np.sqrt(rate) for step, rate in RATES.items()]
    np.testing.assert_allclose(features(out, "all"), np.concatenate(parts, axis=1), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(features(out / "checkpoint-3", "all"), parts[0], rtol=1e-5, atol=1e-7)


def test_a_checkpoint_of_another_shape_is_refused(tmp_path: Path) -> None:
    out = trainer_output(tmp_path / "out")
    tiny_network(hidden_size=32).save_pretrained(out / "checkpoint-3")
    with pytest.raises(ConfigError, match=r"checkpoint-3: are not those of a LlamaForCausalLM of this shape"):
        features(out, "all")


def test_an_lm_without_checkpoints_is_told_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"has no checkpoints; expected what `airrep warmup --set checkpoints=4` writes"
    ):
        features(tiny_lm(tmp_path / "lm"), "all")


def test_ngrams_count_the_tokens_of_a_checkpoint_or_of_the_base_of_adapters(tmp_path: Path) -> None:
    out = trainer_output(tmp_path / "out")
    corpus = Corpus.from_examples(some_examples(6)[1:4])
    found = []
    adapters = tmp_path / "adapter"
    adapters.mkdir()
    (adapters / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": tiny_lm(tmp_path / "lm")}))
    (adapters / "adapter_model.safetensors").write_bytes(b"")
    for tokenizer in (tmp_path / "lm", out, out / "checkpoint-3", adapters):
        method = make_attributor("ngram", {"tokenizer": str(tokenizer)})
        method.fit(corpus)
        found.append(method.fingerprint)
    assert len(set(found)) == 1
