"""Means with intervals: values, variances, coverage, calibration; ratios."""

import itertools
import math

import numpy as np
import pytest
from reference import classification
from scipy import stats

from airrep.errors import DataError
from airrep.evaluation.statistics.means import TaskResamples, fieller, paired_ratio, task_means

TASKS = ("a",) * 5 + ("b",) * 9 + ("c",) * 2


def test_a_mean_weighs_tasks_alike() -> None:
    values = np.random.default_rng(0).random(16)
    across, within = (TaskResamples(TASKS, level, 200, 0) for level in (True, False))
    expected = np.mean([values[:5].mean(), values[5:14].mean(), values[14:].mean()])
    assert across.estimate(values).value == pytest.approx(expected, rel=1e-14)
    assert within.estimate(values).value == pytest.approx(expected, rel=1e-14)
    assert TaskResamples.plain(16, 200, 0).estimate(values).value == pytest.approx(values.mean(), rel=1e-14)
    assert task_means(values, TASKS)["c"] == pytest.approx(values[14:].mean(), rel=1e-14)


def test_draws_have_the_unbiased_variance_of_each_level() -> None:
    values = np.random.default_rng(1).random(16) * 0.2 + np.repeat([0.1, 0.5, 0.7], [5, 9, 2])
    within, between = classification.two_level_variance(values, TASKS)
    low, high = TaskResamples(TASKS, False, 4000, 0).estimate(values).interval
    assert (high - low) / 2 == pytest.approx(1.96 * within**0.5, rel=0.1)
    draws = TaskResamples(TASKS, True, 4000, 0)._draws(values, 0.4)
    assert draws.mean() == pytest.approx(0.4)
    assert draws.var() == pytest.approx(between * (4.302653 / 1.959964) ** 2, rel=1e-6)  # Student's t, 2 degrees


def test_missing_values_are_left_out_of_means_and_of_both_sides_of_a_difference() -> None:
    values = np.array([1.0, np.nan, 0.0, 1.0, 1.0, 0.0])
    other = np.array([0.0, 1.0, np.nan, 1.0, 1.0, 1.0])
    plain = TaskResamples.plain(6, 100, 0)
    assert plain.estimate(values).value == pytest.approx(0.6)
    assert plain.difference(values, other).value == pytest.approx(0.0)
    assert task_means(values, "aabbbb") == {"a": 1.0, "b": 0.5}
    with pytest.raises(DataError, match="values of all queries are missing"):
        plain.estimate(np.full(6, np.nan))


@pytest.mark.parametrize("value", [0.0, 0.4, 1.0])
@pytest.mark.parametrize(("tasks", "units"), [(("a",) * 8, 8), (("a", "a", "b", "b", "c", "c"), 3)])
def test_equal_values_have_an_interval_for_what_others_may_be(value: float, tasks: tuple[str, ...], units: int) -> None:
    """With 2.5 % chance only a share 0.025^(1/n) of queries, or of tasks, has this value; the rest lies in 0 to 1."""
    found = TaskResamples(tasks, True, 50, 0).estimate(np.full(len(tasks), value))
    share = 0.025 ** (1 / units)
    assert found.value == pytest.approx(value)
    assert found.interval == pytest.approx((share * value, 1 - share * (1 - value)))


def test_a_share_has_the_exact_interval() -> None:
    ends = []
    for wrong in range(4):
        values = np.r_[np.zeros(wrong), np.ones(20 - wrong)]
        ends.append(TaskResamples.plain(20, 1000, 0).estimate(values).interval)
    assert ends[1] == pytest.approx((0.7513, 0.9987), abs=1e-4)  # Clopper and Pearson
    assert [low for low, _ in ends] == sorted((low for low, _ in ends), reverse=True)
    assert ends[0] == pytest.approx((0.8316, 1.0), abs=1e-4)


def test_equal_values_differ_by_nothing_and_one_sided_gaps_surely() -> None:
    plain = TaskResamples.plain(40, 500, 0)
    values = np.tile([0.0, 1.0], 20)
    same = plain.difference(values, values)
    assert (same.value, same.p_value) == (0, 1)
    assert same.interval == pytest.approx((-1.959964 * (2 / 42) ** 0.5 / 42**0.5, 1.959964 * 2**0.5 / 42))
    gap = plain.difference(np.ones(40), values)
    assert (gap.value, gap.p_value) == (0.5, pytest.approx(2 * 0.5**20))
    assert gap.interval[0] > 0.2


def test_p_values_of_accuracies_are_those_of_the_exact_sign_test_and_intervals_agree() -> None:
    """McNemar, with each binomial tail summed up; the interval excludes 0 where p < 0.05, and holds the difference."""
    plain = TaskResamples.plain(60, 10, 0)
    for b, c in itertools.product(range(22), repeat=2):
        first, second = np.zeros(60), np.zeros(60)
        first[:b], second[b : b + c] = 1, 1
        gap = plain.difference(first, second)
        tail = math.fsum(math.comb(b + c, k) for k in range(min(b, c) + 1)) / 2 ** (b + c)
        assert gap.value == pytest.approx((b - c) / 60, abs=1e-15)
        assert gap.p_value == pytest.approx(min(1.0, 2 * tail))
        low, high = gap.interval
        assert -1 <= low <= gap.value <= high <= 1
        assert (low > 0 or high < 0) == (gap.p_value < 0.05), (b, c)


@pytest.mark.parametrize(("queries", "discordant"), [(100, 0.02), (100, 0.05), (400, 0.02)])
def test_equally_good_classifiers_seldom_differ_where_few_queries_tell_them_apart(queries: int, discordant: float):
    chance, plain, found = np.random.default_rng(0), TaskResamples.plain(queries, 200, 0), []
    for _ in range(400):
        apart, side = chance.random(queries) < discordant, chance.random(queries) < 0.5
        first, second = np.where(apart, side, True), np.where(apart, ~side, True)
        found.append(plain.difference(first.astype(float), second.astype(float)))
    assert np.mean([gap.p_value < 0.05 for gap in found]) <= 0.05
    assert np.mean([gap.interval[0] <= 0 <= gap.interval[1] for gap in found]) >= 0.95


@pytest.mark.parametrize("accuracies", [(0.98, 0.98), (0.98, 0.95), (1.0, 0.96)])
def test_intervals_of_differences_of_high_accuracies_hold_the_truth(accuracies: tuple[float, float]) -> None:
    chance, plain, held = np.random.default_rng(1), TaskResamples.plain(200, 200, 0), 0
    for _ in range(400):
        first, second = (chance.random(200) < accuracy for accuracy in accuracies)
        low, high = plain.difference(first.astype(float), second.astype(float)).interval
        held += low <= accuracies[0] - accuracies[1] <= high
    assert held / 400 >= 0.93


@pytest.mark.parametrize("queries", [3, 6])
def test_few_f1_values_of_one_task_are_compared_by_student_s_t(queries: int) -> None:
    chance = np.random.default_rng(2)
    for across in (False, True):
        one = TaskResamples(("a",) * queries, across, 200, 0)
        found = []
        for _ in range(300):
            first, second = np.clip(0.5 + 0.1 * chance.standard_normal((2, queries)), 0, 1)
            gap, expected = one.difference(first, second), stats.ttest_rel(first, second)
            assert gap.p_value == pytest.approx(expected.pvalue)
            assert gap.interval == pytest.approx(tuple(np.clip(expected.confidence_interval(), -1, 1)))
            found.append(gap.p_value < 0.05)
        assert 0.015 <= np.mean(found) <= 0.085


def test_tasks_are_compared_by_the_less_sure_of_queries_and_tasks() -> None:
    values = np.random.default_rng(5).random(16) * 0.2 + np.repeat([0.1, 0.5, 0.7], [5, 9, 2])
    other = np.full(16, 0.3)
    within, between = classification.two_level_variance(values - other, TASKS)
    for across, variance, freedom in ((False, within, 13), (True, between, 2)):
        gap = TaskResamples(TASKS, across, 50, 0).difference(values, other)
        assert gap.p_value == pytest.approx(2 * stats.t.sf(abs(gap.value) / variance**0.5, freedom))
        half = stats.t.ppf(0.975, freedom) * variance**0.5
        assert gap.interval == pytest.approx((max(-1, gap.value - half), min(1, gap.value + half)))


def test_nothing_can_be_known_from_one_query() -> None:
    for tasks in (("a",), tuple("abc")):
        few = TaskResamples(tasks, False, 100, 0)
        values = np.linspace(0.2, 0.4, len(tasks))
        assert few.difference(values + 0.1, values) == (pytest.approx(0.1), (-1, 1), 1)
        assert few.estimate(values) == (pytest.approx(values.mean()), (0, 1))
    right = TaskResamples.plain(1, 100, 0).difference(np.ones(1), np.zeros(1))
    assert (right.value, right.p_value) == (1, 1)
    assert right.interval[0] < 0


def test_gaps_that_are_all_the_same_are_as_sure_as_their_number() -> None:
    first, second = np.linspace(0.4, 0.6, 4), np.linspace(0.2, 0.4, 4)
    gap = TaskResamples(("a",) * 4, True, 100, 0).difference(first, second)
    share = 0.025**0.25
    assert gap == (pytest.approx(0.2), pytest.approx((0.2 * share - (1 - share), 0.2 * share + 1 - share)), 0.125)
    assert TaskResamples.plain(4, 100, 0).difference(first, first) == (0, (0, 0), 1)


@pytest.mark.parametrize("tasks", [4, 12])
def test_intervals_over_tasks_hold_the_truth_as_often_as_they_say(tasks: int) -> None:
    """Tasks differ (deviation 0.1), queries differ more (0.2); other tasks are drawn in each world."""
    chance = np.random.default_rng(3)
    held, rejected, worlds = 0, 0, 200
    names = tuple(f"{number:02}" for number in range(tasks) for _ in range(10))
    draws = TaskResamples(names, True, 200, 0)
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
    draws, worlds = TaskResamples.plain(150, 300, 0), 400
    held = 0
    for _ in range(worlds):
        low, high = draws.estimate((chance.random(150) < 0.8).astype(float)).interval
        held += low <= 0.8 <= high
    assert 0.92 <= held / worlds <= 0.98


def test_the_ends_are_where_the_numerator_is_just_told_apart() -> None:
    a, b, h_a, h_b, shared = 4.6, 3.0, 0.42, 0.31, 0.05
    ends = fieller(a, b, (h_a, h_b), shared)
    assert ends is not None
    assert ends[0] < a / b < ends[1]
    for ratio in ends:
        half = math.sqrt(h_a**2 + ratio**2 * h_b**2 - 2 * ratio * shared)
        assert abs(a - ratio * b) == pytest.approx(half)


def test_without_errors_the_interval_is_the_ratio() -> None:
    assert fieller(6.0, 4.0, (0.0, 0.0)) == (1.5, 1.5)


def test_a_denominator_that_may_be_nothing_has_no_interval() -> None:
    assert fieller(1.0, 0.2, (0.1, 0.3)) is None
    assert paired_ratio((1.0, 0.1), (0.2, 0.3), 0.1) is None
    assert paired_ratio((-1.0, 0.1), (2.0, 0.3), 0.1) is None
    assert paired_ratio((1.0, 0.1), (0.0, 0.0), 0.1) is None


def test_values_that_err_alike_have_a_narrow_ratio() -> None:
    found = paired_ratio((4.0, 0.5), (2.0, 0.25), 0.25)
    apart = paired_ratio((4.0, 0.5), (2.0, 0.25), math.hypot(0.5, 0.25))
    assert found is not None
    assert apart is not None
    assert found[0] == apart[0] == 2.0
    assert found[1] == pytest.approx((2.0, 2.0))  # twice the value, twice the error, the same one
    assert apart[1] == fieller(4.0, 2.0, (0.5, 0.25))


def test_the_interval_covers_the_truth_where_errors_are_shared() -> None:
    numbers = np.random.default_rng(0)
    z, covered, draws = 1.96, 0, 4000
    a, b, s_a, s_b, correlation = 4.5, 3.0, 0.4, 0.35, 0.4
    spread = math.sqrt(s_a**2 + s_b**2 - 2 * correlation * s_a * s_b)
    for one, two in numbers.standard_normal((draws, 2)):
        seen = a + s_a * one, b + s_b * (correlation * one + math.sqrt(1 - correlation**2) * two)
        found = paired_ratio((seen[0], z * s_a), (seen[1], z * s_b), z * spread)
        assert found is not None
        covered += found[1][0] <= a / b <= found[1][1]
    assert 0.94 < covered / draws < 0.96
