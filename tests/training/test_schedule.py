"""Draws of steps, learning rates, decay and the optimiser's state."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from worlds.tiny_bert import tiny_checkpoint
from worlds.training_world import tiny_settings

from airrep.runtime.devices import Team
from airrep.training.examples import Batches, Cycle, Texts
from airrep.training.settings import TrainingSettings
from airrep.training.state import Optimiser, rate_factor
from airrep.training.trunk import Trunk


def trunk() -> Trunk:
    """All weights of a tiny encoder learn."""
    return Trunk(tiny_checkpoint().model, Texts(np.empty(0, np.int32), np.zeros(1, np.int64)), Team(), "float32", 64)


def give_gradients(trunk: Trunk, size: float, seed: int = 0) -> None:
    """Random gradients for all weights."""
    generator = torch.Generator().manual_seed(seed)
    for _, weight in trunk.learning():
        weight.grad = size * torch.randn(weight.shape, generator=generator)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [0.25, 0.5, 0.75, 1, 1, 1, 1, 1, 1, 1]),
        ("linear", [0.25, 0.5, 0.75, 1, 6 / 7, 5 / 7, 4 / 7, 3 / 7, 2 / 7, 1 / 7]),
    ],
)
def test_rates_rise_and_then_follow_their_schedule(schedule: str, expected: list[float]) -> None:
    settings = TrainingSettings.of({"steps": 10, "warmup_steps": 3, "schedule": schedule})
    assert [rate_factor(step, settings) for step in range(10)] == pytest.approx(expected)


@pytest.mark.parametrize(("steps", "expected"), [(4, [1 / 3, 2 / 3, 1, 0.5]), (1, [1])])
def test_a_short_run_reaches_the_full_rate(steps: int, expected: list[float]) -> None:
    settings = TrainingSettings.of({"steps": steps, "warmup_steps": 100})
    assert [rate_factor(step, settings) for step in range(steps)] == pytest.approx(expected)


def test_a_cosine_ends_near_nothing_and_passes_the_middle() -> None:
    settings = TrainingSettings.of({"steps": 100, "warmup_steps": 0, "schedule": "cosine"})
    assert rate_factor(0, settings) == 1
    assert rate_factor(50, settings) == pytest.approx(0.5)
    assert rate_factor(99, settings) < 0.001


def test_the_head_has_its_own_rate(tmp_path: Path) -> None:
    rates = {"learning_rate": 1e-9, "head_learning_rate": 1e-2, "warmup_steps": 0, "schedule": "constant"}
    own, settings = trunk(), tiny_settings(tmp_path, **rates, weight_decay=0.0)
    before = {name: weight.detach().clone() for name, weight in own.learning()}
    optimiser = Optimiser(own, settings, before)
    give_gradients(own, 1.0)
    optimiser.update(0)
    for name, weight in own.learning():
        moved = float((weight - before[name]).detach().abs().max())
        assert moved == pytest.approx(1e-2 if name.startswith("heads.") else 1e-9, rel=1e-2, abs=3e-7)


def test_long_gradients_are_clipped_and_their_length_is_told(tmp_path: Path) -> None:
    own = trunk()
    optimiser = Optimiser(own, tiny_settings(tmp_path, clip=0.5), {})
    give_gradients(own, 10.0)
    expected = sum(float(weight.grad.square().sum()) for _, weight in own.learning() if weight.grad is not None) ** 0.5
    length, _ = optimiser.update(0)
    assert length == pytest.approx(expected, rel=1e-5)
    give_gradients(own, float("nan"))
    before = {name: weight.detach().clone() for name, weight in own.learning()}
    length, _ = optimiser.update(1)
    assert not np.isfinite(length)
    for name, weight in own.learning():
        torch.testing.assert_close(weight.detach(), before[name], rtol=0, atol=0)


@pytest.mark.parametrize("pulled", [True, False])
def test_matrices_decay_to_the_start_or_to_nothing_and_the_rest_not_at_all(tmp_path: Path, pulled: bool) -> None:
    own = trunk()
    settings = tiny_settings(
        tmp_path, learning_rate=0.1, warmup_steps=0, schedule="constant", weight_decay=0.5, pull_to_start=pulled
    )
    held = {name: weight.detach().clone() for name, weight in own.learning()}
    start = {name: weight + 1 for name, weight in held.items()}
    optimiser = Optimiser(own, settings, start)
    give_gradients(own, 0.0)
    optimiser.update(0)
    for name, weight in own.learning():
        goal = held[name] if weight.ndim < 2 else held[name] + 0.05 if pulled else held[name] * 0.95
        torch.testing.assert_close(weight.detach(), goal)


def test_a_restored_optimiser_goes_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path)
    one, other = trunk(), trunk()
    first = Optimiser(one, settings, {})
    for step in range(3):
        give_gradients(one, 1.0, step)
        first.update(step)
    second = Optimiser(other, settings, {})
    second.restore({name: tensor.clone() for name, tensor in first.state().items()})
    for own, optimiser in ((one, first), (other, second)):
        give_gradients(own, 1.0, 9)
        optimiser.update(3)
    for name, weight in second.weights().items():
        torch.testing.assert_close(weight, first.weights()[name], rtol=0, atol=0)


@given(count=st.integers(1, 30), size=st.integers(1, 40), deals=st.integers(1, 25), seed=st.integers(0, 9))
def test_every_item_comes_equally_often_and_none_twice_in_a_deal(count: int, size: int, deals: int, seed: int) -> None:
    cycle = Cycle(np.arange(10, 10 + count), size, seed, "items")
    dealt = [cycle.deal(number) for number in range(deals)]
    assert all(len(set(deal.tolist())) == len(deal) == min(size, count) for deal in dealt)
    counts = Counter(item for deal in dealt for item in deal.tolist())
    often = [counts.get(item, 0) for item in range(10, 10 + count)]
    assert max(often) - min(often) <= 1


@given(number=st.integers(0, 40))
def test_a_deal_depends_on_its_number_alone(number: int) -> None:
    one, other = (Cycle(np.arange(11), 4, 5, "items") for _ in range(2))
    for before in range(number):
        other.deal(before)
    other.deal(number + 3)
    np.testing.assert_array_equal(one.deal(number), other.deal(number))


def test_instances_take_turns_and_each_has_its_own_cycles() -> None:
    queries = [np.arange(10), np.arange(5, 9), np.arange(7)]
    subsets = [np.arange(6), np.arange(3), np.array([1, 4])]
    batches = Batches(queries, subsets, queries_per_step=4, subsets_per_step=3, seed=1)
    draws = [batches.draw(step) for step in range(30)]
    for turn in range(10):
        assert {draw.instance for draw in draws[3 * turn : 3 * turn + 3]} == {0, 1, 2}
    for draw in draws:
        assert set(draw.queries) <= set(queries[draw.instance])
        assert set(draw.subsets) <= set(subsets[draw.instance])
    used = Counter(row for draw in draws if draw.instance == 0 for row in draw.queries.tolist())
    assert set(used.values()) == {4}


def test_another_seed_gives_another_order() -> None:
    one, other = (Batches([np.arange(50)], [np.arange(9)], 10, 3, seed) for seed in (0, 1))
    assert one.draw(0).queries.tolist() != other.draw(0).queries.tolist()
