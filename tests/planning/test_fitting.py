"""Subsets that fit data and budget."""

import pytest

from airrep.errors import ConfigError
from airrep.planning.budget import AtHand, Costs
from airrep.planning.judge import LEAST_SUBSETS, MOST_SUBSETS, WISHED_SUBSETS, fit_budget

COSTS = Costs(fine_tune=0.02, evaluate=0.005, encode=0.002, layers=6)


@pytest.mark.parametrize("examples", [30, 100, 688, 100_000])
@pytest.mark.parametrize("minutes", [10, 30, 300])
def test_plans_fit(examples: int, minutes: int) -> None:
    plan = fit_budget(AtHand(60 * minutes, COSTS, examples), 40)
    assert 2 * plan.size < plan.pool <= examples
    assert LEAST_SUBSETS <= plan.subsets <= MOST_SUBSETS
    assert plan.seconds <= 60 * minutes
    assert plan.subsets * (plan.size * 2 * 0.02 + 40 * 0.005) <= plan.seconds


def test_more_time_gives_more_and_then_larger_subsets() -> None:
    plans = [fit_budget(AtHand(60 * minutes, COSTS, 5000), 40) for minutes in (3, 10, 30, 100, 1000)]
    subsets = [min(plan.subsets, WISHED_SUBSETS) for plan in plans]
    assert subsets == sorted(subsets)
    assert [plan.size for plan in plans] == sorted(plan.size for plan in plans)
    assert plans[-1].size == 1000
    assert fit_budget(AtHand(600, COSTS, 5000, workers=4), 40).size > plans[1].size


def test_gradients_are_a_rival_where_they_take_a_small_part() -> None:
    assert fit_budget(AtHand(36_000, COSTS, 688), 40).gradients
    assert not fit_budget(AtHand(120, COSTS, 688), 40).gradients


@pytest.mark.parametrize("seconds", [-3.0, 1.0, 20.0])
def test_too_little_time_is_refused_with_what_is_needed(seconds: float) -> None:
    with pytest.raises(ConfigError, match=r"expected (\d+) minutes or more") as caught:
        fit_budget(AtHand(seconds, COSTS, 688), 40)
    minutes = int(str(caught.value).split("expected ")[1].split()[0])
    assert fit_budget(AtHand(60 * minutes, COSTS, 688), 40).subsets >= LEAST_SUBSETS
    with pytest.raises(ConfigError, match="29 training examples can be drawn"):
        fit_budget(AtHand(3600, COSTS, 29), 40)
