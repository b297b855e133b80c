"""Finished warm-ups tell where they came from, and other folders are none."""

from pathlib import Path

import numpy as np
import pytest
from worlds.tiny_lms import some_examples, tiny_lm

from airrep.corpus.corpus import Corpus, Example
from airrep.errors import ArtifactError, ConfigError
from airrep.lm.folders.forms import find_lm
from airrep.lm.model import load_lm
from airrep.lm.settings import FineTuneSettings, LmSettings
from airrep.lm.warmup import Warmup, checkpoints_of, open_warmup, warm_up


@pytest.fixture
def base(tmp_path: Path) -> str:
    """The folder of a tiny LM."""
    return tiny_lm(tmp_path / "lm")


@pytest.fixture
def warmup(base: str, tmp_path: Path) -> Warmup:
    """A warm-up of it, without adapters or checkpoints."""
    train = Corpus.from_examples(Example(f"why {each.prompt}", each.response, each.id) for each in some_examples(5))
    return warm_up(train, tmp_path / "warm", settings(base), FineTuneSettings(batch_examples=2))


def settings(folder: str | Path) -> LmSettings:
    """Of an LM on the CPU."""
    return LmSettings(lm=str(folder), precision="float32", device="cpu")


def test_whole_numbers_of_numpy_are_whole_numbers(base: str, tmp_path: Path) -> None:
    train = Corpus.from_examples(Example(f"why {each.prompt}", each.response, each.id) for each in some_examples(5))
    made = [
        warm_up(train, tmp_path / name, settings(base), {"batch_examples": 2}, count=kind(4), seed=kind(3))
        for name, kind in (("one", int), ("other", np.int64))
    ]
    assert made[0].manifest["request"] == made[1].manifest["request"]


def test_an_lm_without_checkpoints_says_what_makes_some(base: str, warmup: Warmup) -> None:
    for folder in (base, warmup.path):
        with pytest.raises(ConfigError, match="has no checkpoints"):
            checkpoints_of(load_lm(settings(folder)))
    assert open_warmup(base) is None


def test_the_base_is_recorded_by_name_and_by_its_files(base: str, warmup: Warmup) -> None:
    assert warmup.base == {
        "name": base,
        "fingerprint": load_lm(settings(base)).fingerprint,
        "files": find_lm(base).digest(),
    }


def test_a_folder_with_a_manifest_of_something_else_is_an_lm_like_any_other(base: str) -> None:
    (Path(base) / "manifest.json").write_text('{"made": "elsewhere"}')
    assert load_lm(settings(base)).max_tokens == 64
    assert open_warmup(base) is None


def test_a_warm_up_with_a_file_missing_is_refused(warmup: Warmup) -> None:
    assert open_warmup(warmup.path) == warmup
    (warmup.path / "losses.npy").unlink()
    with pytest.raises(ArtifactError, match=r"losses\.npy: is missing"):
        open_warmup(warmup.path)
