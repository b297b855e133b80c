"""Resampled rank correlations against ranking the drawn values one by one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import lds as oracle

from airrep.evaluation.statistics import bootstrap
from airrep.evaluation.statistics.bootstrap import (
    Draws,
    Ranking,
    Resamples,
    blocks,
    bootstrap_spread,
    resample_sets,
    uncertainty,
)


def make_worlds(seed: int, q: int, m: int, missing: float, levels: int) -> list[np.ndarray]:
    """Scores of two methods, and minus the losses, with ties where there are few levels."""
    generator = np.random.default_rng(seed)
    worlds = [generator.integers(levels, size=(q, m)).astype(np.float64) for _ in range(3)]
    worlds[2][generator.random((q, m)) < missing] = np.nan
    return worlds


def resampled(methods: list[np.ndarray], truth: np.ndarray, draws: Resamples, *, zero: bool = False) -> Draws:
    return resample_sets(methods, truth, draws, [range(len(methods))], zero=zero)[0]


def drawn(counts: np.ndarray) -> list[int]:
    """The numbers that were drawn, repeats and all."""
    return np.repeat(np.arange(len(counts)), counts.astype(int)).tolist()


@given(
    seed=st.integers(0, 10**6),
    shape=st.tuples(st.integers(1, 6), st.integers(2, 12)),
    missing=st.sampled_from([0.0, 0.2]),
    levels=st.sampled_from([1, 3, 10**6]),
    zero=st.booleans(),
    cells=st.sampled_from([1, 20, 2**16]),
)
@settings(max_examples=40, deadline=None)
def test_each_resample_is_the_lds_of_the_drawn_queries_and_subsets(
    seed: int, shape: tuple[int, int], missing: float, levels: int, zero: bool, cells: int
) -> None:
    scores, _, truth = make_worlds(seed, *shape, missing, levels)
    draws = Resamples.draw(seed, 4, *shape)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bootstrap, "CELLS", cells)
        found = resampled([scores], truth, draws, zero=zero)
    every = Resamples(np.ones_like(draws.queries), np.ones_like(draws.subsets))
    for values, by_query, by_subset in (
        (found.both, draws.queries, draws.subsets),
        (found.queries, draws.queries, every.subsets),
        (found.subsets, every.queries, draws.subsets),
    ):
        expected = [
            oracle.resampled_lds(
                scores.tolist(), (-truth).tolist(), drawn(queries), drawn(subsets), "zero" if zero else "drop"
            )
            for queries, subsets in zip(by_query, by_subset, strict=True)
        ]
        np.testing.assert_allclose(values[0], expected, rtol=1e-9, atol=1e-12)


def test_methods_compared_are_seen_over_the_same_draws_and_queries() -> None:
    one, other, truth = make_worlds(1, 9, 15, 0.1, 10**6)
    draws = Resamples.draw(0, 20, 9, 15)
    together = resampled([one, other], truth, draws)
    alone = resampled([one], truth, draws)
    np.testing.assert_allclose(together.both[0], alone.both[0], rtol=1e-12)
    other[3] = 1.0
    without = np.delete(np.arange(9), 3)
    left = Resamples(draws.queries[:, without], draws.subsets)
    np.testing.assert_allclose(
        resampled([one, other], truth, draws), resampled([one[without], other[without]], truth[without], left)
    )


def test_sets_of_methods_leave_out_their_own_queries_as_if_each_was_drawn_by_itself() -> None:
    one, other, truth = make_worlds(2, 8, 10, 0.1, 4)
    third = one[::-1].copy()
    other[3] = 1.0
    draws = Resamples.draw(0, 15, 8, 10)
    methods = [one, other, third]
    sets = [(0,), (1,), (2, 0), (1, 2)]
    together = resample_sets(methods, truth, draws, sets, zero=False)
    for numbers, found in zip(sets, together, strict=True):
        alone = resampled([methods[number] for number in numbers], truth, draws)
        np.testing.assert_array_equal(found, alone)


def test_the_uncertainty_of_few_queries_and_subsets_has_few_degrees_of_freedom() -> None:
    by_subset = np.random.default_rng(1).normal(size=(1, 8)).repeat(30, axis=0)
    found = uncertainty(cell_draws(by_subset, 0), 30, 8)
    assert found.freedom == pytest.approx(7, rel=0.05)
    assert found.variance == pytest.approx(by_subset[0].var(ddof=1) / 8, rel=0.15)
    by_query = np.random.default_rng(1).normal(size=(12, 1)).repeat(30, axis=1)
    assert uncertainty(cell_draws(by_query, 0), 12, 30).freedom == pytest.approx(11, rel=0.05)


def test_draws_depend_on_the_seed_alone_and_each_holds_as_many_as_there_are() -> None:
    draws, again, other = (Resamples.draw(seed, 50, 7, 11) for seed in (0, 0, 1))
    assert np.array_equal(draws.queries, again.queries)
    assert not np.array_equal(draws.queries, other.queries)
    assert (draws.queries.sum(axis=1) == 7).all()
    assert (draws.subsets.sum(axis=1) == 11).all()
    assert np.array_equal(draws.subsets, Resamples.draw(0, 50, 99, 11).subsets)
    assert np.array_equal(draws.subsets[:20], Resamples.draw(0, 20, 7, 11).subsets)


def test_midranks_are_exact_whatever_the_size_of_values() -> None:
    values = np.array([[1e300, -1e300, 5e-324, 5e-324, 0.0]])
    ranking = Ranking(values)
    assert (ranking.under(np.ones(5)).ranks.take(ranking.places) + 0.5).tolist() == [[5.0, 1.0, 3.5, 3.5, 2.0]]


def test_a_resample_of_one_subset_alone_has_no_correlation() -> None:
    (block,) = blocks([np.array([[1.0, 2.0]])], np.array([[3.0, 4.0]]))
    assert np.isnan(block.spearman(np.array([2.0, 0.0]))).all()
    assert block.spearman(np.array([1.0, 1.0])).tolist() == [[1.0]]


def cell_draws(cells: np.ndarray, seed: int) -> Draws:
    """Means of a matrix over resampled rows, columns, and both."""
    q, m = cells.shape
    drawn = Resamples.draw(seed, 1000, q, m)
    return Draws(
        np.einsum("rq,qm,rm->r", drawn.queries, cells, drawn.subsets) / (q * m),
        drawn.queries @ cells.mean(axis=1) / q,
        drawn.subsets @ cells.mean(axis=0) / m,
    )


def test_noise_of_single_cells_is_counted_once() -> None:
    generator, raw, corrected = np.random.default_rng(0), [], []
    for seed in range(10):
        cells = generator.normal(size=(60, 50))
        draws = cell_draws(cells, seed)
        values = bootstrap_spread(draws, cells.mean(), 60, 50)
        assert values.mean() == pytest.approx(cells.mean())
        raw.append(draws.both.var() * 3000)
        corrected.append(values.var() * 3000)
    assert np.mean(raw) == pytest.approx(3, rel=0.2)
    assert 0.9 < np.mean(corrected) < 1.4  # never below either axis alone, so a little above 1


def test_few_subsets_widen_the_spread_as_students_t_does() -> None:
    cells = np.random.default_rng(1).normal(size=(1, 5)).repeat(40, axis=0)
    values = bootstrap_spread(cell_draws(cells, 0), cells.mean(), 40, 5)
    assert values.var() == pytest.approx(cells[0].var(ddof=1) / 5 * 2, rel=0.15)


def test_without_any_draw_there_is_no_spread() -> None:
    nothing = np.array([np.nan, np.nan])
    assert bootstrap_spread(Draws(nothing, nothing, nothing), 0.5, 3, 2).shape == (0,)
    same = np.array([0.5, 0.5])
    assert bootstrap_spread(Draws(same, same, same), 0.5, 3, 2).tolist() == [0.5, 0.5]
