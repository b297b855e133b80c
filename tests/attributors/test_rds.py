"""RDS: features are the hidden states of the LM, and an index answers with them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds.tiny_lms import some_examples, tiny_lm

import airrep
from airrep.attributors.base import Attributor
from airrep.attributors.methods import make_attributor
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import ConfigError
from airrep.lm.model import load_lm
from airrep.lm.settings import LmSettings


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A tiny LM with room for long examples."""
    return tiny_lm(tmp_path / "lm", max_position_embeddings=4096)


def rds(folder: str, **settings: Any) -> Attributor:
    """The method with an LM, in float32 on the CPU."""
    return make_attributor("rds", {"lm": folder, "precision": "float32", "device": "cpu", **settings})


@pytest.mark.parametrize(
    "settings", [{}, {"layer": 1, "tokens": "last"}, {"layer": 0, "precision": "bfloat16"}], ids=str
)
def test_rds_conforms(settings: dict[str, Any], folder: str) -> None:
    airrep.check_attributor(lambda: rds(folder, **settings))


def test_features_are_the_hidden_states_of_the_lm(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airrep.attributors.language._WINDOW", 5)
    lm = load_lm(LmSettings(lm=folder, precision="float32", device="cpu"))
    examples, done = some_examples(12), []
    documents = lm.tokenise(examples)
    for layer, tokens in ((-1, "mean"), (1, "last")):
        found = rds(folder, layer=layer, tokens=tokens).encode_train(examples, done.append)
        np.testing.assert_allclose(found, lm.hidden_states(documents, layer, tokens), rtol=1e-5, atol=1e-6)
    assert done == [5, 5, 2] * 2


def test_the_fingerprint_covers_lm_layer_and_tokens_and_no_execution(folder: str, tmp_path: Path) -> None:
    other = tiny_lm(tmp_path / "other", seed=1, max_position_embeddings=4096)
    different = [
        rds(folder),
        rds(folder, layer=1),
        rds(folder, tokens="last"),
        rds(folder, max_tokens=64),
        rds(folder, template="plain text {prompt} {response}"),
        rds(other),
    ]
    assert len({each.fingerprint for each in different}) == len(different)
    same = rds(folder, batch_tokens=64, precision="bfloat16")
    assert same.fingerprint == different[0].fingerprint
    assert (dict(same.execution), dict(different[0].execution)) == ({"precision": "bfloat16"}, {"precision": "float32"})


def test_an_index_answers_like_the_attributor(folder: str, tmp_path: Path) -> None:
    train = Corpus.from_examples(Example(f"p{number}", "abcdefghij"[: 1 + number], f"e{number}") for number in range(9))
    settings = {"lm": folder, "precision": "float32", "device": "cpu"}
    index = airrep.build_index(train, tmp_path / "index", "rds", settings=settings, shard_rows=4)
    features = rds(folder).encode_train(train)
    scores = features[:2] @ features.T
    for row, hits in zip(scores, airrep.Index(index.path).top(train[:2], k=3), strict=True):
        np.testing.assert_allclose([hit.score for hit in hits], np.sort(row)[::-1][:3], rtol=1e-2)
    result = index.group_scores(train[:2], [range(4), range(9)])
    assert result.provenance.pool == "sum"
    np.testing.assert_allclose(result.scores[:, 1], scores.sum(axis=1), rtol=1e-2)


def test_a_layer_that_is_not_there_is_refused_with_their_number(folder: str) -> None:
    with pytest.raises(ConfigError) as caught:
        rds(folder, layer=3).encode_train(some_examples(2))
    assert str(caught.value) == f"lm {folder}: layer is 3, but it has 2 layers; expected -1 to 2. Correct it."
    with pytest.raises(ConfigError, match="layer is -2, but it has 2 layers"):
        rds(folder, layer=-2).encode_train(some_examples(2))
