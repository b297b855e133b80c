"""An index by gradients in bfloat16 says how near they are to float32, and takes float32 where they are not near."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds.tiny_lms import some_examples, tiny_lm

import airrep
from airrep.attributors.gradient.base import TracinAttributor
from airrep.attributors.gradient.projection import project_gradients, random_projections
from airrep.attributors.settings import TracinSettings
from airrep.corpus.corpus import Corpus
from airrep.index import building


def build(tmp_path: Path, **how: Any) -> airrep.Index:
    """An index of a few examples in bfloat16."""
    settings = {"lm": tiny_lm(tmp_path / "lm"), "precision": "bfloat16", "device": "cpu", "store": "none", "rank": 4}
    return airrep.build_index(Corpus.from_examples(some_examples()), tmp_path / "index", settings=settings, **how)


def test_bfloat16_that_is_near_is_kept_and_told(tmp_path: Path) -> None:
    made = build(tmp_path, method="tracin")
    found = []
    for precision in ("bfloat16", "float32"):
        own = TracinAttributor(TracinSettings(lm=str(tmp_path / "lm"), device="cpu", precision=precision))
        projections = random_projections(own.sites, 8, 0)
        rows = project_gradients(own.lm, own.lm.tokenise(some_examples()), own.sites, projections).features
        found.append(rows / np.linalg.norm(rows, axis=1, keepdims=True))
    noise = made.manifest["float_noise"]
    assert noise["cosine"] == pytest.approx((found[0] * found[1]).sum(1).mean(), abs=1e-5)
    assert 0.98 < noise["cosine"] < 1 - 1e-9
    assert 0.9 < noise["rank_correlation"] <= 1


def test_float32_is_taken_where_bfloat16_is_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(building, "LEAST_LIKENESS", 1.01)
    with caplog.at_level(logging.WARNING):
        made = build(tmp_path, recipe="lm")
    assert "differ too much from float32 (cosine " in caplog.text
    assert made.manifest["settings"]["precision"] == "float32"
    assert {*made.manifest["request"]["execution"].values()} == {"float32"}
    assert made.manifest["float_noise"]["cosine"] < 1
    opened = airrep.open(tmp_path / "index")
    assert len(opened.top(some_examples(1), k=1)[0]) == 1
