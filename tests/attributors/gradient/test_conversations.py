"""What was made when conversations were read as one text is not taken for what they are read as now."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds.old_chats import conversations_as_texts, make_chats
from worlds.small_world import make_corpus
from worlds.tiny_lms import CHAT, tiny_lm, tiny_tokenizer

import airrep
from airrep.attributors.base import fit_method
from airrep.attributors.direct import DirectAttributor
from airrep.attributors.methods import make_attributor
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import ArtifactError
from airrep.index.building import build_index
from airrep.lm.settings import FineTuneSettings, LmSettings
from airrep.lm.warmup import warm_up
from airrep.runtime.metering import measuring

pytestmark = pytest.mark.usefixtures("own_cache")

METHODS: dict[str, dict[str, Any]] = {
    "tracin": {"rank": 3},
    "logra": {"rank": 3},
    "trak": {"rank": 3},
    "influence": {"modules": ("*.1.self_attn.k_proj",), "damping": 2.0},
    "influence by products": {"modules": ("*.1.self_attn.k_proj",), "damping": 2.0, "solver": "cg"},
    "ekfac": {},
}
TEXTS = make_corpus(8)
CHATS = make_chats(8)
MORE = Corpus.from_examples(Example(f"t{n}", "u", f"t{n}") for n in range(2))
BOTH = Corpus.from_examples([*TEXTS, *CHATS])


@pytest.fixture(scope="module")
def lm(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny_lm(tmp_path_factory.mktemp("lm"), tokenizer=tiny_tokenizer(chat=CHAT), max_position_embeddings=512)


ROUNDING = 1e-5
"""What is not in the store is computed in batches of its own, which round otherwise on some processors."""


def make(name: str, folder: str, /, **values: Any) -> Any:
    return make_attributor(name.split()[0], {"lm": folder, **METHODS.get(name, {}), **values})


def scores(method: Any, train: Corpus, queries: Corpus) -> np.ndarray:
    fit_method(method, train)
    if isinstance(method, DirectAttributor):
        return method.score(train, queries)
    found: np.ndarray = method.encode_train(train) @ method.encode_queries(queries).T
    return found


def off(found: np.ndarray, wanted: np.ndarray) -> float:
    """The greatest difference, in greatest scores."""
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


@pytest.mark.parametrize("name", METHODS)
def test_gradients_of_conversations_read_otherwise_are_not_those_of_a_store(name: str, lm: str, tmp_path: Path) -> None:
    wanted = scores(make(name, lm, store="none"), BOTH, CHATS)
    with conversations_as_texts():
        before = scores(make(name, lm), BOTH, CHATS)
    assert off(before, wanted) > 1e-3
    assert off(scores(make(name, lm), BOTH, CHATS), wanted) < ROUNDING


def test_adapter_gradients_of_conversations_read_otherwise_are_not_taken_from_a_store(lm: str, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    settings = LmSettings(lm=lm, precision="float32", device="cpu")
    path = str(warm_up(BOTH, tmp_path / "warm", settings, FineTuneSettings(learning_rate=1e-2, lora_rank=2)).path)
    wanted = scores(make("less", path, dimension=16, store="none"), BOTH, CHATS)
    with conversations_as_texts():
        before = scores(make("less", path, dimension=16), BOTH, CHATS)
    assert off(before, wanted) > 1e-3
    assert off(scores(make("less", path, dimension=16), BOTH, CHATS), wanted) < ROUNDING


@pytest.mark.parametrize("name", METHODS)
def test_other_texts_are_found_as_they_were_stored(name: str, lm: str, tmp_path: Path) -> None:
    with conversations_as_texts():
        before = make(name, lm)
        scores(before, TEXTS, TEXTS)
    with measuring() as meter:
        now = make(name, lm)
        scores(now, TEXTS, TEXTS)
    assert now.fingerprint == before.fingerprint
    assert sum(rows.fresh for rows in meter.spent.rows.values()) == 0


def test_conversations_are_found_where_the_lm_has_no_chat_template(tmp_path: Path) -> None:
    plain = tiny_lm(tmp_path / "plain", max_position_embeddings=512)
    with conversations_as_texts():
        scores(make("logra", plain), BOTH, CHATS)
    with measuring() as meter:
        scores(make("logra", plain), BOTH, CHATS)
    assert sum(rows.fresh for rows in meter.spent.rows.values()) == 0


@pytest.mark.parametrize("name", ["tracin", "rds", "logra"])
def test_an_index_of_conversations_read_otherwise_is_told(
    name: str, lm: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with conversations_as_texts():
        build_index(BOTH, tmp_path / "old", make(name, lm))
        build_index(TEXTS, tmp_path / "texts", make(name, lm))
    told = r"holds an index made with another (rendering \(was None, now messages\)|attributor)"
    with pytest.raises(ArtifactError, match=told):
        build_index(BOTH, tmp_path / "old", make(name, lm))
    with caplog.at_level(logging.WARNING, "airrep"):
        texts = build_index(TEXTS, tmp_path / "texts", make(name, lm))  # finished already
        more = texts.append(make_chats(2, "d")).append(make_chats(2, "g")).append(MORE)
        whole = more.delete([0]).compact().append(make_chats(2, "f"))
        assert len(airrep.Index(whole.path).top(CHATS[0], k=20)) == 15
    assert caplog.text == ""
