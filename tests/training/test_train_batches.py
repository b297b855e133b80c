"""Draws of steps: balanced, without repeats, and dependent on the step alone."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from airrep.training.examples import Batches, Cycle


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
