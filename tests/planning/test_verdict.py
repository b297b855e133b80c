"""Whether a trained encoder is called better."""

import copy

import numpy as np
import pytest
from worlds.tiny_bert import tiny_folder
from worlds.training_world import planted

from airrep.evaluation.judging import HeldOutDifference, HeldOutLds
from airrep.evaluation.statistics.metrics import Interval
from airrep.planning.adapt import load_packed
from airrep.planning.verdict import Rival, Verdict, judge_on_instance
from airrep.training.start import scale_scores


def _verdict(*gaps: tuple[float, float, float], own: float = 0.3) -> Verdict:
    def level(value: float) -> HeldOutLds:
        return HeldOutLds(value, Interval(value - 0.05, value + 0.05), {"0": value}, 10, 10)

    rows = [Rival("trained", 1.0, level(own), None)]
    for number, (low, value, high) in enumerate(gaps):
        gap = HeldOutDifference(value, Interval(low, high), 0.5)
        rows.append(Rival(f"rival {number}", 2.0, level(own - value), gap))
    return Verdict("runs/encoder", tuple(rows))


def test_better_than_all_rivals_with_intervals_clear_of_0_is_recommended():
    verdict = _verdict((0.02, 0.1, 0.2), (0.01, 0.05, 0.1))
    assert verdict.better
    assert verdict.sentence.endswith("Use it: airrep index DATA --encoder runs/encoder")


def test_an_interval_that_reaches_0_is_not_called_better():
    verdict = _verdict((0.02, 0.1, 0.2), (-0.01, 0.05, 0.1))
    assert not verdict.better
    assert verdict.sentence.startswith("Ahead of rival 1, but an interval reaches 0")


def test_a_better_rival_is_recommended_by_name():
    verdict = _verdict((0.02, 0.1, 0.2), (-0.2, -0.1, -0.05))
    assert not verdict.better
    assert verdict.sentence.startswith("Not better: rival 1 ranks unseen subsets as well or better.")


def test_beating_rivals_without_ranking_anything_is_not_better():
    assert not _verdict((0.02, 0.1, 0.2), own=0.04).better


@pytest.fixture(scope="module")
def encoders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("encoders")
    for seed in (0, 1):
        tiny_folder(folder / str(seed), ((16, 16, True),), seed=seed)
    return [load_packed(str(folder / str(seed))) for seed in (0, 1)]


def test_an_encoder_is_not_better_than_itself(encoders):
    stop, last = planted(0, "stop", m=12), planted(1, "last", m=12)
    verdict = judge_on_instance(encoders[0], {"untrained": encoders[0]}, stop, last, "here")
    trained, untrained = verdict.rows
    assert [row.name for row in verdict.rows] == ["trained", "untrained"]  # TF-IDF sees no word that is shared
    assert untrained.difference is not None
    assert untrained.lds.value - trained.lds.value == pytest.approx(-untrained.difference.value, abs=1e-9)
    assert not verdict.better


def test_a_rivals_temperature_is_chosen_without_the_instance_that_is_judged_by(encoders):
    stop, last = planted(0, "stop", m=12), planted(1, "last", m=12)
    turned = planted(1, "last", m=12)
    object.__setattr__(turned, "losses", np.ascontiguousarray(turned.losses[:, ::-1]))
    scales = [
        [row.scale for row in judge_on_instance(encoders[0], {"untrained": encoders[1]}, stop, instance, "here").rows]
        for instance in (last, turned)
    ]
    assert scales[0] == scales[1]


def test_a_rival_with_large_scores_is_tried_flatter(encoders):
    """Scores of raw vectors may be thousands of times too sharp for attention."""
    stop, last = planted(0, "stop", m=12), planted(1, "last", m=12)
    sharp = copy.deepcopy(encoders[1])
    scale_scores(sharp.checkpoint.model, 1e4)
    rows = [judge_on_instance(encoders[0], {"rival": one}, stop, last, "here").rows[1] for one in (encoders[1], sharp)]
    assert rows[1].scale < 1
    assert rows[1].lds.value == pytest.approx(rows[0].lds.value, abs=0.05)
