"""Means with bootstrap intervals: values, variances, coverage, calibration."""

import numpy as np
import pytest
from reference import classification

from airrep.errors import DataError
from airrep.means import Resamples, task_means

TASKS = ("a",) * 5 + ("b",) * 9 + ("c",) * 2


def test_a_mean_weighs_tasks_alike() -> None:
    values = np.random.default_rng(0).random(16)
    across, within = (Resamples(TASKS, level, 200, 0) for level in (True, False))
    expected = np.mean([values[:5].mean(), values[5:14].mean(), values[14:].mean()])
    assert across.estimate(values).value == pytest.approx(expected, rel=1e-14)
    assert within.estimate(values).value == pytest.approx(expected, rel=1e-14)
    assert Resamples.plain(16, 200, 0).estimate(values).value == pytest.approx(values.mean(), rel=1e-14)
    assert task_means(values, TASKS)["c"] == pytest.approx(values[14:].mean(), rel=1e-14)


def test_draws_have_the_unbiased_variance_of_each_level() -> None:
    values = np.random.default_rng(1).random(16) * 0.2 + np.repeat([0.1, 0.5, 0.7], [5, 9, 2])
    within, between = classification.two_level_variance(values, TASKS)
    low, high = Resamples(TASKS, False, 4000, 0).estimate(values).interval
    assert (high - low) / 2 == pytest.approx(1.96 * within**0.5, rel=0.1)
    draws = Resamples(TASKS, True, 4000, 0)._draws(values, 0.4)
    assert draws.mean() == pytest.approx(0.4)
    assert draws.var() == pytest.approx(between * (4.302653 / 1.959964) ** 2, rel=1e-6)  # Student's t, 2 degrees


def test_missing_values_are_left_out_of_means_and_of_both_sides_of_a_difference() -> None:
    values = np.array([1.0, np.nan, 0.0, 1.0, 1.0, 0.0])
    other = np.array([0.0, 1.0, np.nan, 1.0, 1.0, 1.0])
    plain = Resamples.plain(6, 100, 0)
    assert plain.estimate(values).value == pytest.approx(0.6)
    assert plain.difference(values, other).value == pytest.approx(0.0)
    assert task_means(values, "aabbbb") == {"a": 1.0, "b": 0.5}
    with pytest.raises(DataError, match="no query has a value"):
        plain.estimate(np.full(6, np.nan))


def test_a_unanimous_share_has_the_exact_interval() -> None:
    plain = Resamples.plain(20, 100, 0)
    assert plain.estimate(np.ones(20)) == (1.0, (pytest.approx(0.025 ** (1 / 20)), 1.0))
    assert plain.estimate(np.zeros(20)) == (0.0, (0.0, pytest.approx(1 - 0.025 ** (1 / 20))))


def test_equal_values_differ_by_nothing_and_one_sided_gaps_surely() -> None:
    plain = Resamples.plain(40, 500, 0)
    values = np.tile([0.0, 1.0], 20)
    assert plain.difference(values, values) == (0.0, (0.0, 0.0), 1.0)
    gap = plain.difference(np.ones(40), values)
    assert (gap.value, gap.p_value) == (0.5, pytest.approx(2 / 501))
    assert gap.interval[0] > 0.2


def test_the_paired_p_value_of_accuracies_is_near_that_of_the_exact_sign_test() -> None:
    """McNemar: 25 against 10 discordant queries of 200, exact binomial p = 0.0167."""
    first, second = np.zeros(200), np.zeros(200)
    first[:25], second[25:35] = 1, 1
    assert Resamples.plain(200, 4000, 0).difference(first, second).p_value == pytest.approx(0.0167, abs=0.012)


@pytest.mark.parametrize("tasks", [4, 12])
def test_intervals_over_tasks_hold_the_truth_as_often_as_they_say(tasks: int) -> None:
    """Tasks differ (deviation 0.1), queries differ more (0.2); other tasks are drawn in each world."""
    chance = np.random.default_rng(3)
    held, rejected, worlds = 0, 0, 200
    names = tuple(f"{number:02}" for number in range(tasks) for _ in range(10))
    draws = Resamples(names, True, 200, 0)
    for _ in range(worlds):
        means = 0.5 + 0.1 * chance.standard_normal(tasks)
        values = np.repeat(means, 10) + 0.2 * chance.standard_normal(10 * tasks)
        other = np.repeat(means, 10) + 0.2 * chance.standard_normal(10 * tasks)
        low, high = draws.estimate(values).interval
        held += low <= 0.5 <= high
        rejected += draws.difference(values, other).p_value <= 0.05
    assert 0.92 <= held / worlds <= 0.985
    assert rejected / worlds <= 0.08


def test_plain_intervals_hold_the_truth_as_often_as_they_say() -> None:
    chance = np.random.default_rng(4)
    draws, worlds = Resamples.plain(150, 300, 0), 400
    held = 0
    for _ in range(worlds):
        low, high = draws.estimate((chance.random(150) < 0.8).astype(float)).interval
        held += low <= 0.8 <= high
    assert 0.92 <= held / worlds <= 0.98
