"""Fine-tunes that hardly moved the queries' losses are told apart from those that did."""

import dataclasses

import numpy as np
import pytest
from worlds.small_world import make_corpus

from airrep.evaluation.statistics.labels import LEAST_SHARE, moved
from airrep.labels.instance import LabelledInstance
from airrep.scoring.groups import Groups

SUBSETS = Groups.from_lists({"0": [0, 1], "1": [2, 3]})


def instance(change: np.ndarray, noise: float | None = None) -> LabelledInstance:
    """Losses that begin at 4 nats and change by so many, ``(q, m)``; with two seeds apart by twice the *noise*."""
    losses = (4 + change).astype(np.float32)
    seeds = None if noise is None else np.stack([losses - noise, losses + noise])
    base = np.full(len(change), 4, np.float32)
    return LabelledInstance("0", make_corpus(4), make_corpus(len(change), "q"), SUBSETS, losses, base, seeds)


def test_the_change_counts_up_and_down() -> None:
    found = moved([instance(np.array([[0.5, -0.5], [-0.4, -0.2]]))])
    assert found is not None
    assert (found.before, found.after, found.change) == (4.0, pytest.approx(3.85), pytest.approx(0.4))
    assert not found.hardly
    assert "moved the queries' losses by 0.400 nats, 10.0% (4.000 to 3.850)" in found.sentence


@pytest.mark.parametrize(("times", "hardly"), [(0.9, True), (1.1, False)])
def test_a_share_of_the_loss_decides(times: float, hardly: bool) -> None:
    change = np.full((3, 2), -4 * LEAST_SHARE * times)
    found = moved([instance(change), dataclasses.replace(instance(change), name="1")])
    assert found is not None
    assert found.hardly is hardly


@pytest.mark.parametrize(("noise", "hardly"), [(0.5, True), (0.1, False)])
def test_what_chance_moves_as_far_has_hardly_moved(noise: float, hardly: bool) -> None:
    found = moved([instance(np.full((3, 2), -0.3), noise)])
    assert found is not None
    assert found.noise == pytest.approx(noise * 2**0.5, rel=1e-3)
    assert found.hardly is hardly
    assert found.to_dict()["hardly"] is hardly


def test_without_losses_before_nothing_is_told() -> None:
    bare = dataclasses.replace(instance(np.zeros((1, 2))), base_losses=None)
    assert moved([bare]) is None
    assert moved([instance(np.zeros((1, 2))), bare]) is None
    assert moved([]) is None
    assert moved([dataclasses.replace(bare, base_losses=np.array([np.nan], np.float32))]) is None


def test_missing_fine_tunes_are_left_out() -> None:
    found = moved([instance(np.array([[-0.5, np.nan], [-0.3, np.nan]]))])
    assert found is not None
    assert found.change == pytest.approx(0.4)
