"""Random subsets and removals: without repeats, stable in number, fair to strata."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airrep.errors import DataError
from airrep.labels.sampling import draw_removal, draw_subset, draw_without_repeats, quotas
from airrep.runtime.seeding import stream

STRATA = np.repeat(np.arange(6), [1, 1, 2, 5, 11, 20])


@given(seed=st.integers(0, 100), j=st.integers(0, 50), size=st.integers(1, 40), stratified=st.booleans())
@settings(max_examples=50, deadline=None)
def test_a_subset_holds_different_rows_of_its_pool_in_order(seed: int, j: int, size: int, stratified: bool) -> None:
    rows = draw_subset(seed, 0, j, 40, size, STRATA if stratified else None)
    assert (rows.dtype, len(rows)) == (np.int64, size)
    assert (np.diff(rows) > 0).all()
    assert 0 <= rows[0] <= rows[-1] < 40


def test_a_subset_depends_on_seed_instance_and_number_alone() -> None:
    again, first = (draw_subset(3, 1, 2, 100, 10) for _ in range(2))
    assert np.array_equal(first, again)
    others = [draw_subset(*name, 100, 10) for name in ((4, 1, 2), (3, 2, 2), (3, 1, 3), (3, 2, 1))]
    assert not any(np.array_equal(first, other) for other in others)


@given(
    counts=st.lists(st.integers(1, 30), min_size=1, max_size=12).map(np.array),
    share=st.floats(0, 1),
    seed=st.integers(0, 1000),
)
@settings(max_examples=100, deadline=None)
def test_each_stratum_gets_its_share_rounded_up_or_down(counts: np.ndarray, share: float, seed: int) -> None:
    size = max(1, int(share * counts.sum()))
    places = quotas(np.random.default_rng(seed), counts, size)
    assert places.sum() == size
    assert (places <= counts).all()
    assert (np.abs(places - size * counts / counts.sum()) < 1).all()


@pytest.mark.parametrize("strata", [None, STRATA])
def test_every_row_is_as_likely_as_any_other_even_in_a_rare_stratum(strata: np.ndarray | None) -> None:
    times = np.zeros(40)
    for j in range(2000):
        times[draw_subset(0, 0, j, 40, 10, strata)] += 1
    expected, deviation = 500, np.sqrt(2000 * 0.25 * 0.75)
    assert np.abs(times - expected).max() < 4 * deviation


def test_stratified_subsets_keep_the_proportions_of_the_pool() -> None:
    for j in range(50):
        counts = np.bincount(STRATA[draw_subset(0, 0, j, 40, 20, STRATA)], minlength=6)
        assert counts[2] == 1
        assert counts[5] == 10
        assert counts[0] + counts[1] + counts[3] + counts[4] == 9


def test_names_of_strata_do_not_matter() -> None:
    plain = draw_without_repeats(stream(0, "x"), 40, 10, STRATA)
    assert np.array_equal(plain, draw_without_repeats(stream(0, "x"), 40, 10, STRATA * 7 - 3))


def test_removals_have_no_row_in_common_and_more_of_them_leave_the_first_as_they_are() -> None:
    removals = [draw_removal(5, 0, j, 20, 3) for j in range(7)]
    assert removals[0].tolist() == []
    together = np.concatenate(removals)
    assert len(np.unique(together)) == len(together) == 18
    assert all((np.diff(rows) > 0).all() for rows in removals)
    assert np.array_equal(removals[4], draw_removal(5, 0, 4, 20, 3))
    assert not np.array_equal(removals[4], draw_removal(5, 1, 4, 20, 3))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 0, 0, 5, 6), "draw: 6 of 5 examples; expected between 1 and 5. Lower the size"),
        ((0, 0, 0, 5, 0), "draw: 0 of 5 examples"),
        ((0, 0, 0, 5, 2, np.arange(4)), r"strata: are \(4,\); expected \(5,\), one for each example"),
    ],
)
def test_draws_that_cannot_be_are_refused(arguments: tuple[int, ...], message: str) -> None:
    with pytest.raises(DataError, match=message):
        draw_subset(*arguments)
    with pytest.raises(DataError, match="removals: 4 of 3 need 12 examples; the pool has 10"):
        draw_removal(0, 0, 4, 10, 3)
