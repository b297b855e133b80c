"""Ratios: Fieller's interval against its definition, and its coverage where errors are shared."""

import math

import numpy as np
import pytest

from airrep.evaluation.statistics.means import fieller, paired_ratio


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
    found, apart = (
        paired_ratio((4.0, 0.5), (2.0, 0.25), 0.25),
        paired_ratio((4.0, 0.5), (2.0, 0.25), math.hypot(0.5, 0.25)),
    )
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
