"""Plans that fit a time budget."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airrep.errors import ConfigError
from airrep.planning import judge
from airrep.planning.budget import (
    LEAST_WEIGHING,
    PAYING_SUBSETS,
    WISHED_SUBSETS,
    WISHED_WEIGHING,
    AtHand,
    Costs,
    choose,
    parse_duration,
    time_left,
)

FAST = Costs(fine_tune=0.02, evaluate=0.005, encode=0.002, layers=6)
COSTS = Costs(fine_tune=0.01, evaluate=0.003, encode=0.01, layers=6)


@pytest.mark.parametrize(
    ("text", "seconds"), [("45s", 45), ("90m", 5400), ("2h", 7200), ("1h30m", 5400), ("1.5h", 5400), ("1d", 86400)]
)
def test_a_duration_is_read_in_seconds(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "2", "h", "0h", "-1h", "2 h", "two hours", "2h!"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(ConfigError, match=r"is not a duration"):
        parse_duration(text)


@given(
    hours=st.floats(0.02, 48),
    examples=st.integers(240, 500_000),
    workers=st.integers(1, 16),
    fine_tune=st.floats(1e-4, 5e-2),
)
def test_a_plan_fits_its_examples_and_its_budget(hours, examples, workers, fine_tune):
    costs = COSTS.model_copy(update={"fine_tune": fine_tune, "evaluate": fine_tune / 3})
    seconds = 3600 * hours
    try:
        plan = choose(AtHand(seconds, costs, examples, workers, epochs=2))
    except ConfigError:
        return  # too little time, which tests of its own are about
    assert plan.pool + plan.queries + 2 * (plan.held_out_pool + plan.held_out_queries) <= examples
    assert plan.size < plan.held_out_pool
    assert plan.held_out_subsets >= LEAST_WEIGHING
    if plan.trains:
        assert plan.size < plan.pool
        assert plan.subsets >= PAYING_SUBSETS
    assert plan.label_seconds(costs) / workers + plan.train_seconds(costs) <= seconds


def test_layers_come_before_large_subsets():
    """Long texts and many examples: with subsets of 1,000 there is no time for anything but the projection."""
    costs = Costs(fine_tune=0.0035, evaluate=0.0012, encode=0.019, layers=6)
    for hours, examples in ((2, 15_000), (8, 24_000)):
        plan = choose(AtHand(3600 * hours, costs, examples, 2, 2))
        assert plan.layers(costs) >= 2
        assert plan.subsets >= WISHED_SUBSETS
        assert plan.label_seconds(costs) / 2 + plan.train_seconds(costs) >= 0.5 * 3600 * hours


def test_more_time_gives_larger_or_more_subsets_and_more_layers():
    short, long = (choose(AtHand(hours * 3600, COSTS, 50_000, 2, 2)) for hours in (1, 40))
    assert long.size * long.subsets > 10 * short.size * short.subsets
    assert short.train_layers != "all"
    assert long.train_layers == "all"


def test_training_gets_what_the_labels_left_but_always_some_time():
    assert time_left(1000, 600) == pytest.approx(350)
    assert time_left(1000, 2000) == 100


def test_three_minutes_are_enough_for_weights_of_a_thousand_short_examples():
    costs = Costs(fine_tune=0.004, evaluate=0.001, encode=0.01, layers=6)
    plan = choose(AtHand(180, costs, 1000, 2, 2))
    assert not plan.trains
    assert plan.held_out_subsets == WISHED_WEIGHING
    assert 2 * (plan.held_out_pool + plan.held_out_queries) <= 1000


def test_gradients_after_a_warm_up_are_read_where_there_is_time_for_them():
    plans = []
    for seconds in range(20, 600, 5):
        with contextlib.suppress(ConfigError):
            plans.append(choose(AtHand(seconds, COSTS, 50_000, 1, 2)))
    warms = [plan.warms for plan in plans]
    assert warms == sorted(warms)
    assert set(warms) == {False, True}
    first = plans[warms.index(True)]
    without = first.model_copy(update={"warms": False})
    tuned = first.size * first.epochs * COSTS.fine_tune
    assert first.gradient_seconds(COSTS) == pytest.approx(2 * without.gradient_seconds(COSTS) + tuned)


def test_too_little_time_says_how_much_is_needed_and_that_is_enough():
    with pytest.raises(ConfigError, match=r"budget: only 5 seconds are left .* too few on this machine") as caught:
        choose(AtHand(5, COSTS, 50_000, 1, 2))
    minutes = int(str(caught.value).split("expected ")[1].split(" ")[0])
    assert choose(AtHand(60 * minutes, COSTS, 50_000, 1, 2)).held_out_subsets >= LEAST_WEIGHING


def test_too_few_examples_says_how_many_are_needed():
    with pytest.raises(ConfigError, match=r"data: 200 examples are too few to adapt to") as caught:
        choose(AtHand(7200, COSTS, 200, 1, 2))
    needed = int(str(caught.value).split("expected some ")[1].split(" ")[0].replace(",", ""))
    assert choose(AtHand(7200, COSTS, needed, 1, 2)).held_out_subsets >= LEAST_WEIGHING


@pytest.mark.parametrize("examples", [30, 100, 688, 100_000])
@pytest.mark.parametrize("minutes", [10, 30, 300])
def test_plans_fit(examples: int, minutes: int) -> None:
    plan = judge.fit_budget(AtHand(60 * minutes, FAST, examples), 40)
    assert 2 * plan.size < plan.pool <= examples
    assert judge.LEAST_SUBSETS <= plan.subsets <= judge.MOST_SUBSETS
    assert plan.seconds <= 60 * minutes
    assert plan.subsets * (plan.size * 2 * 0.02 + 40 * 0.005) <= plan.seconds


def test_more_time_gives_more_and_then_larger_subsets() -> None:
    plans = [judge.fit_budget(AtHand(60 * minutes, FAST, 5000), 40) for minutes in (3, 10, 30, 100, 1000)]
    subsets = [min(plan.subsets, judge.WISHED_SUBSETS) for plan in plans]
    assert subsets == sorted(subsets)
    assert [plan.size for plan in plans] == sorted(plan.size for plan in plans)
    assert plans[-1].size == 1000
    assert judge.fit_budget(AtHand(600, FAST, 5000, workers=4), 40).size > plans[1].size


def test_gradients_are_a_rival_where_they_take_a_small_part() -> None:
    assert judge.fit_budget(AtHand(36_000, FAST, 688), 40).gradients
    assert not judge.fit_budget(AtHand(120, FAST, 688), 40).gradients


@pytest.mark.parametrize("seconds", [-3.0, 1.0, 20.0])
def test_too_little_time_is_refused_with_what_is_needed(seconds: float) -> None:
    with pytest.raises(ConfigError, match=r"expected (\d+) minutes or more") as caught:
        judge.fit_budget(AtHand(seconds, FAST, 688), 40)
    minutes = int(str(caught.value).split("expected ")[1].split()[0])
    assert judge.fit_budget(AtHand(60 * minutes, FAST, 688), 40).subsets >= judge.LEAST_SUBSETS
    with pytest.raises(ConfigError, match="29 training examples can be drawn"):
        judge.fit_budget(AtHand(3600, FAST, 29), 40)
