"""Building an index on an engine: the same bytes as in this process."""

import os
import pickle
from collections.abc import Sequence
from pathlib import Path

import pytest
from worlds.small_world import HashAttributor, make_corpus, tree

import airrep
from airrep.arrays import DenseFeatures
from airrep.attributors.base import OnRows
from airrep.corpus.corpus import Example
from airrep.errors import ArtifactError, TrainingError
from airrep.index.encoding import NewShard
from airrep.runtime.engine import Engine, InProcess, LocalProcesses

TRAIN = make_corpus(50)


class ChangingAttributor(HashAttributor):
    """Is another one in another process."""

    def __init__(self) -> None:
        super().__init__()
        self.home = os.getpid()

    @property
    def fingerprint(self) -> str:
        return ("a" if os.getpid() == self.home else "b") * 64


class FailingAttributor(HashAttributor):
    """Finds no memory for one example."""

    def encode_train(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> DenseFeatures:
        if any(example.id == "e20" for example in examples):
            raise TrainingError("encoding: memory is short")
        return super().encode_train(examples, on_rows)


@pytest.mark.parametrize(
    ("method", "engine"),
    [
        ("tfidf", InProcess()),
        ("hash", LocalProcesses(2)),
        pytest.param("tfidf", LocalProcesses(2), marks=pytest.mark.slow),
    ],
)
def test_every_engine_gives_the_same_bytes(tmp_path: Path, method: str, engine: Engine) -> None:
    chosen = HashAttributor() if method == "hash" else method
    airrep.build_index(TRAIN, tmp_path / "alone", chosen, shard_rows=8)
    steps: list[tuple[int, int | None]] = []
    airrep.build_index(
        TRAIN, tmp_path / "there", chosen, shard_rows=8, engine=engine, progress=lambda *step: steps.append(step)
    )
    assert tree(tmp_path / "there") == tree(tmp_path / "alone")
    assert steps[-1] == (50, 50)
    assert len(steps) == 7


def test_an_interrupted_build_goes_on_with_another_engine(tmp_path: Path) -> None:
    def stop(done: int, total: int | None) -> None:
        if done > 20:
            raise KeyboardInterrupt

    attributor = HashAttributor()
    with pytest.raises(KeyboardInterrupt):
        airrep.build_index(TRAIN, tmp_path / "index", attributor, shard_rows=8, engine=InProcess(), progress=stop)
    attributor.encoded.clear()
    airrep.build_index(TRAIN, tmp_path / "index", attributor, shard_rows=8)
    assert len(attributor.encoded) == 50 - 24
    airrep.build_index(TRAIN, tmp_path / "alone", HashAttributor(), shard_rows=8)
    assert tree(tmp_path / "index") == tree(tmp_path / "alone")


def test_a_shard_takes_only_its_own_rows_to_a_worker() -> None:
    shard = NewShard(2000, "name", make_corpus(5000)[2000:2010])
    sent = pickle.dumps(shard)
    assert pickle.loads(sent) == shard
    assert len(sent) < 10_000


def test_a_worker_with_another_model_is_refused(tmp_path: Path) -> None:
    told = "method 'hash': a worker process and the main process use different models"
    with pytest.raises(ArtifactError, match=told):
        airrep.build_index(TRAIN, tmp_path / "index", ChangingAttributor(), engine=LocalProcesses(1))


def test_a_shard_that_fails_again_and_again_ends_the_build(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="examples from row 16: cannot be encoded: encoding: memory is short"):
        airrep.build_index(TRAIN, tmp_path / "index", FailingAttributor(), shard_rows=8, engine=InProcess())


@pytest.mark.slow
def test_the_shipped_encoder_gives_the_same_bytes(tmp_path: Path) -> None:
    airrep.build_index(TRAIN, tmp_path / "here", shard_rows=16, engine=InProcess())
    airrep.build_index(TRAIN, tmp_path / "there", shard_rows=16, engine=LocalProcesses(2))
    assert tree(tmp_path / "there") == tree(tmp_path / "here")
