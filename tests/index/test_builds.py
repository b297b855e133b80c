"""Two builds of one index agree, whatever the order of the data, batches, shards, appends or the processor's rounding.

Every method and shipped recipe is built here, but for those whose features are given or learnt from labels.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from worlds.small_world import make_corpus
from worlds.tiny_lms import tiny_lm

import airrep
from airrep.attributors.base import fit_method
from airrep.attributors.conformance import agree, single_scores
from airrep.attributors.methods import METHODS, make_attributor
from airrep.corpus.corpus import Corpus
from airrep.errors import ArtifactError

TRAIN, QUERIES = make_corpus(28), make_corpus(6, "q")
GIVEN = {"precomputed", "datamodels", "less", "metagradient"}
"""Methods whose features are given, learnt from labels, or of a warm-up."""
SKETCHED = {"rank": 12, "sketch": 60, "exponent": 0.5, "modules": ["all-linear"]}
TEXT: dict[str, dict[str, Any]] = {
    "airrep": {}, "gte": {"encoder": "default"}, "tfidf": {}, "bm25": {}, "ngram": {"tokenizer": "words"}, "dsir": {},
    "channels": {}, "channels of kind": {"channels": "kind"},
}  # fmt: skip
READING: dict[str, dict[str, Any]] = {
    "rds": {},
    "tracin": {"rank": 4},
    "logra": {"rank": 4},
    "logra, sketched": SKETCHED,
    "logra, sketched, of few examples": {**SKETCHED, "rank": 16, "sample": 2},
    "logra, unsketched": {"rank": 4, "sketch": None},
    "ekfac": {},
    "trak": {"rank": 3},
    "dsdm": {"rank": 3},
    "influence": {"damping": 10.0},
    "channels with an LM": {},
    "channels with whole gradients": {"channels": "lm-whole"},
}
ALL = {**TEXT, **READING}


@pytest.fixture(scope="module")
def lm(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny_lm(tmp_path_factory.mktemp("lm"), max_position_embeddings=4096)


@contextmanager
def other_rounding() -> Iterator[None]:
    """Every result of a module differs by some 1e-6 of itself, as on another processor."""
    random = torch.Generator().manual_seed(1)

    def turn(_module: Any, _inputs: Any, outputs: Any) -> Any:
        if isinstance(outputs, torch.Tensor) and outputs.is_floating_point():
            return outputs * (1 + 1e-6 * torch.randn(outputs.shape, generator=random))
        return None

    hook = torch.nn.modules.module.register_module_forward_hook(turn)
    try:
        yield
    finally:
        hook.remove()


def settings_of(case: str, lm: str) -> dict[str, Any]:
    reads = {"lm": lm, "precision": "float32"} if case in READING else {}
    return {**reads, **ALL[case]}


def made(case: str, lm: str, **changes: Any) -> airrep.Attributor:
    name = case.split(",")[0].split()[0]
    return make_attributor(name, {**settings_of(case, lm), **changes})


def fitted(case: str, lm: str, train: Corpus, **changes: Any) -> airrep.Attributor:
    method = made(case, lm, **changes)
    fit_method(method, train)
    return method


def indexed(index: airrep.Index) -> np.ndarray:
    return index.scores(QUERIES)


def test_every_method_is_built_here() -> None:
    assert {case.split(",")[0].split()[0] for case in ALL} == set(METHODS) - GIVEN


@pytest.mark.parametrize("case", ALL)
def test_builds_agree(case: str, lm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builds: dict[str, tuple[Corpus, dict[str, Any], Any]] = {
        "once": (TRAIN, {}, nullcontext),
        "order": (TRAIN.take(np.random.default_rng(3).permutation(len(TRAIN))), {}, nullcontext),
        "rounding": (TRAIN, {}, other_rounding),
        **({"batches": (TRAIN, {"batch_tokens": 60}, nullcontext)} if case in READING else {}),
    }
    found = {}
    for name, (train, changes, rounding) in builds.items():
        monkeypatch.setenv("AIRREP_CACHE", str(tmp_path / name))
        with rounding():
            found[name] = single_scores(fitted(case, lm, train, **changes), TRAIN, QUERIES)
    for name, scores in found.items():
        assert agree(scores, found["once"]), name
    assert np.ptp(found["once"], axis=1).all()


@pytest.mark.parametrize("case", ALL)
def test_parts_score_as_their_method(case: str, lm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small shards, and examples appended to what was learnt of the first ones."""
    monkeypatch.setenv("AIRREP_CACHE", str(tmp_path / "cache"))
    first = TRAIN.take(np.arange(18))
    index = airrep.build_index(first, tmp_path / "index", made(case, lm), shard_rows=7)
    index = index.append(TRAIN.take(np.arange(18, len(TRAIN))))
    whole = airrep.build_index(first, tmp_path / "whole", made(case, lm))
    assert agree(indexed(index)[:, :18], indexed(whole))
    if case != "channels with whole gradients":  # which an index alone asks for
        wanted = single_scores(fitted(case, lm, first), TRAIN, QUERIES)
        assert agree(indexed(index), wanted)
    monkeypatch.setattr("airrep.index.building.fit", None)  # a finished index is recognised without learning again
    again = airrep.build_index(first, tmp_path / "whole", made(case, lm))
    np.testing.assert_array_equal(indexed(again), indexed(whole))


def test_a_finished_index_of_other_data_is_refused_unlearnt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, path = tiny_lm(tmp_path / "lm"), tmp_path / "index"
    airrep.build_index(TRAIN, path, "logra", settings={"lm": folder, "rank": 4, "store": "none"})
    np.save(tmp_path / "x.npy", np.eye(28, dtype=np.float32))
    airrep.build_index(TRAIN, tmp_path / "given", "precomputed", settings={"train": str(tmp_path / "x.npy")})
    np.save(tmp_path / "x.npy", 2 * np.eye(28, dtype=np.float32))
    with pytest.raises(ArtifactError, match="another attributor"):
        airrep.build_index(TRAIN, tmp_path / "given", "precomputed", settings={"train": str(tmp_path / "x.npy")})
    monkeypatch.setattr("airrep.index.building.fit", None)
    with pytest.raises(ArtifactError, match="another corpus"):
        airrep.build_index(TRAIN[:20], path, "logra", settings={"lm": folder, "rank": 4, "store": "none"})
    tiny_lm(tmp_path / "lm", seed=1)
    with pytest.raises(ArtifactError, match="another attributor"):
        airrep.build_index(TRAIN, path, "logra", settings={"lm": folder, "rank": 4, "store": "none"})
    (path / "state" / "state.safetensors").write_bytes(b"")
    with pytest.raises(ArtifactError, match="state.safetensors"):
        airrep.build_index(TRAIN, path, "logra", settings={"lm": folder, "rank": 4, "store": "none"})
