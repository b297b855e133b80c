"""The start's head and its temperature."""

from pathlib import Path

import numpy as np
import pytest
import torch
from worlds.tiny_bert import tiny_checkpoint, tiny_model
from worlds.training_world import planted, tiny_settings

from airrep.encoder.networks.packed import PackedEncoder
from airrep.errors import ConfigError
from airrep.evaluation.statistics.metrics import lds
from airrep.runtime.devices import Team
from airrep.training.examples import Collector
from airrep.training.start import begin, load_trainable, scale_scores, with_trainable_head
from airrep.training.trunk import Trunk, score_prepared


def test_an_encoder_that_does_not_run_packed_cannot_be_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airrep.training.start.load_encoder", lambda *_, **__: object())
    with pytest.raises(
        ConfigError, match="encoder other: is neither a BERT-type encoder with mean pooling nor a static"
    ):
        load_trainable("other")


def test_scores_are_multiplied_by_the_factor() -> None:
    model = tiny_model(((16, 16, True),)).double()
    means = torch.randn(4, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    before = model.project(means)
    scale_scores(model, 9.0)
    torch.testing.assert_close(model.project(means) @ model.project(means).T, 9 * before @ before.T)


@pytest.mark.parametrize("factor", [1 / 64, 1.0, 64.0])
def test_the_scale_is_the_best_on_the_training_labels_whatever_the_start_s(tmp_path: Path, factor: float) -> None:
    checkpoint = tiny_checkpoint((None, (16, 16, True)))
    collector = Collector(PackedEncoder("tiny", checkpoint, "float32", "cpu", 512))
    taught = collector.prepare_taught(planted(5, "a"), "std")
    scale_scores(checkpoint.model, factor)
    trunk = Trunk(checkpoint.model, collector.texts(), Team(), "float32", 512)

    def at(scale: float) -> float:
        scale_scores(checkpoint.model, scale)
        value = lds(score_prepared(trunk, taught, "attention"), taught.losses, resamples=0).value
        scale_scores(checkpoint.model, 1 / scale)
        return value

    def begun(**changes: object) -> float:
        return begin(trunk, [taught], tiny_settings(tmp_path, initial_scale="auto", **changes)).scale

    chosen = begun()
    assert at(chosen) >= max(at(1.0), at(chosen * 2), at(chosen / 2)) - 1e-6
    assert begun(pool="mean") == 1  # no factor changes its ranks


def test_a_head_keeps_the_start_s_features(tmp_path: Path) -> None:
    start = tiny_model(((16, 16, True),))
    means = torch.randn(3, 16)
    kept = with_trainable_head(start, tiny_settings(tmp_path, normalise=None))
    torch.testing.assert_close(kept.project(means), start.project(means))
    assert kept.heads[0].weight is not start.heads[0].weight


def test_a_random_projection_nearly_keeps_inner_products(tmp_path: Path) -> None:
    start = tiny_model(((16, 16, False),))
    means = torch.randn(30, 16, generator=torch.Generator().manual_seed(0))
    wide = with_trainable_head(start, tiny_settings(tmp_path, normalise=None, dimension=20_000)).project(means)
    plain = start.project(means)
    np.testing.assert_allclose((wide @ wide.T).detach(), (plain @ plain.T).detach(), rtol=0.1, atol=1.0)
