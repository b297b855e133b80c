"""Spearman, LDS, intervals, comparisons and the noise ceiling, also in worlds with known truth."""

import math
from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import lds as oracle
from reference import statistics as reference
from reference.statistics import SubsetWorld, TwoWayWorld
from scipy import stats

from airrep import metrics
from airrep.errors import ConfigError, DataError
from airrep.evaluation.judging import score_features
from airrep.evaluation.statistics.bootstrap import Uncertainty
from airrep.evaluation.statistics.labels import mean_ceiling, noise_ceiling, seeds_averaged
from airrep.evaluation.statistics.metrics import Constant, judge, lds, p_value, paired, spearman
from airrep.scoring.groups import Groups

NAN = math.nan


def make_noise(seed: int, q: int, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores and losses that have nothing to do with each other."""
    generator = np.random.default_rng(seed)
    return generator.normal(size=(q, m)).astype(np.float32), generator.normal(3, 0.4, (q, m)).astype(np.float32)


def make_world(generator: np.random.Generator, q: int, m: int, skill: float) -> tuple[np.ndarray, np.ndarray]:
    """Scores and losses with causes in common; the causes that scores see are *skill* like the real ones."""
    causes = generator.normal(size=(3, m))
    seen = skill * causes + math.sqrt(1 - skill**2) * generator.normal(size=(3, m))
    taste = generator.normal(size=(q, 3))
    scores = taste @ seen + 0.7 * generator.normal(size=(q, m))
    return scores, -(taste @ causes + 0.7 * generator.normal(size=(q, m)))


@pytest.mark.parametrize("levels", [2, 5, 10**6])
def test_spearman_is_scipys_with_ties(levels: int) -> None:
    generator = np.random.default_rng(levels)
    one, other = (generator.integers(levels, size=(40, 25)).astype(np.float32) for _ in range(2))
    expected = [stats.spearmanr(a, b).statistic for a, b in zip(one, other, strict=True)]
    np.testing.assert_allclose(spearman(one, other), expected, atol=1e-14)


def test_spearman_of_a_constant_row_is_nan() -> None:
    assert np.isnan(spearman(np.ones((1, 3)), np.arange(3.0)[None])).all()


@given(seed=st.integers(0, 10**6), levels=st.sampled_from([3, 10**6]))
@settings(max_examples=20, deadline=None)
def test_lds_sees_only_the_order_of_scores_and_losses(seed: int, levels: int) -> None:
    generator = np.random.default_rng(seed)
    scores, losses = (generator.integers(levels, size=(4, 9)).astype(np.float64) for _ in range(2))
    losses[:, :3], scores[:, :3] = [0, 1, 2], [0, 2, 1]
    plain = lds(scores, losses, resamples=0)
    assert lds(scores / 8 - 5, losses**3, resamples=0).value == pytest.approx(plain.value, abs=1e-12)
    assert lds(-scores, losses, resamples=0).value == pytest.approx(-plain.value, abs=1e-12)
    columns = generator.permutation(9)
    assert lds(scores[:, columns], losses[:, columns], resamples=0).value == pytest.approx(plain.value, abs=1e-12)
    assert plain.value == pytest.approx(oracle.lds(scores.tolist(), losses.tolist()), abs=1e-12)


def test_in_a_linear_world_the_true_scores_reach_1_and_their_negation_minus_1() -> None:
    generator = np.random.default_rng(0)
    influence = generator.normal(size=(20, 60))
    members = np.stack([generator.choice(60, 15, replace=False) for _ in range(30)])
    scores = influence[:, members].sum(axis=2)
    losses = 3 - 0.01 * scores
    right, wrong = lds(scores, losses), lds(-scores, losses)
    share = 0.025 ** (1 / 20)  # of 20 queries that are all at 1, with 2.5 % chance; the others may be at -1
    assert (right.value, *right.interval) == pytest.approx((1, 2 * share - 1, 1))
    assert (wrong.value, *wrong.interval) == pytest.approx((-1, -1, 1 - 2 * share))
    assert (right.queries, right.dropped, right.subsets, right.missing) == (20, 0, 30, 0)


def test_the_same_seed_gives_the_same_interval_and_more_confidence_a_wider_one() -> None:
    scores, losses = make_noise(1, 30, 20)
    first, again = lds(scores, losses), lds(scores, losses)
    other, narrow = lds(scores, losses, seed=1), lds(scores, losses, confidence=0.5)
    assert first.interval == again.interval != other.interval
    assert first.interval.low < narrow.interval.low < narrow.interval.high < first.interval.high
    assert np.isnan(lds(scores, losses, resamples=0).interval).all()


def test_a_query_that_is_the_same_for_all_widens_nothing_but_shared_subsets_do() -> None:
    scores, losses = make_noise(2, 1, 40)
    one, many = lds(scores, losses), lds(np.repeat(scores, 50, axis=0), np.repeat(losses, 50, axis=0))
    assert many.interval == pytest.approx(one.interval, abs=1e-12)
    assert many.interval.high - many.interval.low > 0.4


@pytest.mark.parametrize(("nan", "expected"), [("drop", 1.0), ("zero", 0.5)])
def test_constant_queries_follow_the_policy_and_are_counted(nan: Constant, expected: float) -> None:
    ramp = np.arange(5.0)
    scores = np.stack([ramp, np.ones(5), ramp, ramp])
    losses = np.stack([-ramp, -ramp, np.full(5, 2.0), -ramp])
    result = lds(scores, losses, nan, resamples=50)
    assert result.value == pytest.approx(expected)
    assert (result.dropped, result.queries) == (2, 2 if nan == "drop" else 4)
    assert np.isnan(result.per_query).tolist() == ([False, True, True, False] if nan == "drop" else [False] * 4)


def test_what_differs_by_rounding_alone_is_constant() -> None:
    """Ranks of float32 noise are no signal; differences of many roundings are."""
    scores, losses = make_noise(5, 4, 12)
    scores[1], losses[2] = 1 + 2e-7 * scores[1], 3 + 2e-7 * losses[2]
    scores[3] = 1 + 1e-5 * scores[3]
    result = lds(scores, losses, resamples=50)
    assert np.isnan(result.per_query).tolist() == [False, True, True, False]
    losses[0, 3] = NAN
    assert np.isnan(lds(scores, losses, resamples=50).per_query).tolist() == [False, True, True, False]


def test_constant_queries_can_be_an_error() -> None:
    scores, losses = make_noise(3, 3, 6)
    scores[1] = 2
    with pytest.raises(DataError, match="query 1: its scores or losses are constant"):
        lds(scores, losses, "raise")
    scores[:] = 2
    with pytest.raises(DataError, match="for every query, the scores or the losses are constant"):
        lds(scores, losses)
    assert lds(scores, losses, "zero").value == 0


def test_subsets_without_losses_are_left_out_and_counted() -> None:
    scores, losses = make_noise(4, 20, 12)
    fewer = lds(np.delete(scores, [2, 7], axis=1), np.delete(losses, [2, 7], axis=1))
    losses[:, [2, 7]] = NAN
    scores[:, 2] = NAN
    result = lds(scores, losses)
    assert (result.value, result.interval) == (fewer.value, fewer.interval)
    assert (result.subsets, result.missing) == (10, 2)


def test_a_comparison_uses_the_same_draws_for_both() -> None:
    generator = np.random.default_rng(6)
    scores, losses = make_world(generator, 30, 40, 0.9)
    worse = scores + 3 * generator.normal(size=scores.shape)
    result = paired(scores, worse, losses)
    assert (result.first, result.second) == (lds(scores, losses).value, lds(worse, losses).value)
    assert result.difference == result.first - result.second
    assert 0 < result.interval.low < result.difference < result.interval.high
    assert result.p_value < 0.01
    apart = lds(scores, losses).interval
    assert result.interval.high - result.interval.low < apart.high - apart.low
    turned = paired(worse, scores, losses)
    assert turned.difference == -result.difference
    assert turned.interval == pytest.approx((-result.interval.high, -result.interval.low))
    assert turned.p_value == result.p_value


def test_a_method_does_not_differ_from_itself() -> None:
    scores, losses = make_noise(7, 10, 10)
    result = paired(scores, scores * 2, losses)
    assert (result.difference, *result.interval, result.p_value) == (0, 0, 0, 1)


def test_a_comparison_leaves_out_queries_that_are_constant_for_either() -> None:
    scores, losses = make_noise(8, 6, 10)
    other = -scores
    other[2] = 0
    result = paired(scores, other, losses)
    assert (result.queries, result.dropped) == (5, 1)
    assert result.first == pytest.approx(-result.second)
    assert paired(scores, other, losses, "zero").queries == 6


def test_several_methods_judged_at_once_are_as_each_by_itself() -> None:
    scores, losses = make_noise(13, 6, 10)
    methods = [scores, -scores + losses, np.round(scores)]
    methods[1][2], losses[4, 3] = 1.0, NAN
    found = judge(methods, losses, [(1, 0), (2, 1)], resamples=40)
    for number, result in enumerate(found.alone):
        alone = lds(methods[number], losses, resamples=40)
        assert (result.value, result.interval, result.dropped) == (alone.value, alone.interval, alone.dropped)
        np.testing.assert_array_equal(result.per_query, alone.per_query)
    for (one, other), result in zip([(1, 0), (2, 1)], found.pairs, strict=True):
        assert vars(result) == vars(paired(methods[one], methods[other], losses, resamples=40))
    assert (found.alone[1].dropped, found.pairs[0].queries) == (1, 5)
    with pytest.raises(DataError, match="second: for every query, the scores or the losses are constant"):
        judge([scores, np.ones_like(scores)], losses, names=["first", "second"])


def test_the_p_value_is_that_of_students_t() -> None:
    unsure = Uncertainty(0.04, 9.0)
    assert p_value(0.5, unsure) == pytest.approx(2 * stats.t.sf(2.5, 9), rel=1e-9)
    assert p_value(-0.5, unsure) == p_value(0.5, unsure)
    assert p_value(0.392, Uncertainty(0.04, math.inf)) == pytest.approx(0.05, abs=1e-4)
    assert p_value(0.0, Uncertainty(0.0, math.inf)) == 1
    assert p_value(0.1, Uncertainty(0.0, math.inf, units=30), resamples=99) == 0.02
    assert p_value(0.1, Uncertainty(0.0, math.inf, units=4), resamples=99) == 0.125
    assert p_value(0.1, Uncertainty(0.0, math.inf, units=1), resamples=99) == 1
    assert p_value(0.1, Uncertainty(NAN, NAN)) == 1


@pytest.mark.parametrize("seeds", [2, 4])
def test_a_perfect_predictor_reaches_the_ceiling_where_half_the_queries_are_noise(seeds: int) -> None:
    generator = np.random.default_rng(seeds)
    truth, noise = generator.normal(size=(300, 100)), np.where(np.arange(300) % 2, 0.1, 5.0)[:, None]
    by_seed = truth + noise * generator.normal(size=(seeds, 300, 100))
    reached = lds(-truth, by_seed.mean(axis=0), resamples=0).value
    mean = float(np.mean([spearman(one, other) for one, other in combinations(by_seed, 2)]))
    assert math.sqrt(seeds * mean / (1 + (seeds - 1) * mean)) > reached + 0.15  # what the root of a mean would say
    assert noise_ceiling(by_seed, averaged=seeds) == pytest.approx(reached, abs=0.03)


def test_subsets_whose_second_seed_is_missing_do_not_change_the_ceiling_of_the_others() -> None:
    generator = np.random.default_rng(6)
    by_seed = generator.normal(size=(100, 40)) + 0.5 * generator.normal(size=(2, 100, 40))
    holes = np.full((2, 100, 80), NAN)
    holes[:, :, ::2], holes[0, :, 1::2] = by_seed, 1.0  # every second subset has one seed
    assert noise_ceiling(holes, averaged=2) == pytest.approx(noise_ceiling(by_seed, averaged=2))
    few = holes[:, :, :14]
    assert noise_ceiling(few) == pytest.approx(noise_ceiling(by_seed[:, :, :7]))


@pytest.mark.parametrize("noise", [2.0, 5.0])
def test_weak_labels_have_a_low_ceiling_and_not_none(noise: float) -> None:
    found, reached = [], []
    for seed in range(4):
        generator = np.random.default_rng(seed)
        truth = generator.normal(size=(200, 80))
        by_seed = truth + noise * generator.normal(size=(2, 200, 80))
        found.append(noise_ceiling(by_seed, averaged=2))
        reached.append(lds(-truth, by_seed.mean(axis=0), resamples=0).value)
    assert np.mean(found) == pytest.approx(np.mean(reached), abs=0.025)


def test_the_ceiling_counts_the_seeds_in_each_half_and_the_queries_that_vary() -> None:
    generator = np.random.default_rng(8)
    truth = generator.normal(size=(200, 80))
    by_seed = truth + np.where(np.arange(200) < 120, 0.3, 3.0)[:, None] * generator.normal(size=(4, 200, 80))
    by_seed[:, 60:120] = 1.0  # half of the good queries do not vary
    by_seed[3, :, 40:] = NAN
    by_seed[2, :, 60:] = NAN
    reached = lds(-truth, np.nanmean(by_seed, axis=0), resamples=0).value
    found = mean_ceiling([by_seed])
    assert found is not None
    assert found.lds == pytest.approx(reached, abs=0.03)


def test_the_ceiling_of_noise_is_near_0_and_few_queries_have_one() -> None:
    generator = np.random.default_rng(3)
    assert noise_ceiling(generator.normal(size=(2, 300, 100)), averaged=2) < 0.12
    truth = generator.normal(size=(7, 500))
    by_seed = truth + generator.normal(size=(2, 7, 500))
    assert noise_ceiling(by_seed, averaged=2) == pytest.approx(
        lds(-truth, by_seed.mean(0), resamples=0).value, abs=0.02
    )


def test_the_reliability_is_the_share_of_the_variance_that_is_not_noise() -> None:
    generator = np.random.default_rng(4)
    by_seed = generator.normal(size=(200, 100)) + generator.normal(size=(4, 200, 100))
    found = mean_ceiling([by_seed])
    assert found is not None
    assert found.reliability == pytest.approx(4 / 5, abs=0.03)
    assert found.lds == pytest.approx(math.sqrt(found.reliability), abs=0.01)


def test_the_noise_ceiling_is_1_for_seeds_that_agree_and_0_for_seeds_that_do_not() -> None:
    losses = make_noise(10, 5, 30)[1]
    assert noise_ceiling(np.stack([losses, losses])) == 1
    assert noise_ceiling(np.stack([losses, -losses])) == 0
    holes = np.stack([losses, losses])
    holes[1, :, 3], holes[0, 2, 4] = NAN, NAN
    assert noise_ceiling(holes) == 1


def test_the_ceiling_of_unfinished_seeds_is_that_of_the_seeds_that_are_there() -> None:
    generator = np.random.default_rng(9)
    truth = generator.normal(size=(300, 60))
    by_seed = truth + generator.normal(size=(4, 300, 60))
    by_seed[1:, :, 20:] = NAN  # most subsets have one seed, the others four
    assert seeds_averaged(by_seed) == pytest.approx(1 / (20 / 60 / 4 + 40 / 60))
    reached = lds(-truth, np.nanmean(by_seed, axis=0), resamples=0).value
    found = mean_ceiling([by_seed])
    assert found is not None
    assert found.lds == pytest.approx(reached, abs=0.015)
    assert noise_ceiling(by_seed, averaged=4) > reached + 0.1


def test_instances_whose_second_seed_tells_nothing_have_no_ceiling() -> None:
    losses = make_noise(10, 5, 30)[1]
    whole, missing, one_subset = (np.stack([losses, losses]) for _ in range(3))
    missing[1], one_subset[1, :, 1:] = NAN, NAN
    assert mean_ceiling([None, missing, one_subset, losses[None]]) is None
    assert mean_ceiling([None, missing, whole]) == (1, 1)
    assert mean_ceiling([]) is None


@pytest.mark.parametrize(
    ("by_seed", "averaged", "error", "message"),
    [
        (
            np.ones((1, 2, 3)),
            1,
            DataError,
            r"losses have shape \(1, 2, 3\), but must have shape .* with at least two seeds",
        ),
        (np.ones((2, 3)), 1, DataError, r"losses have shape \(2, 3\), but must have shape \(seeds, queries, subsets\)"),
        (np.ones((2, 2, 3)), 1, DataError, "no query has two seeds whose losses"),
        (np.ones((2, 2, 3)), 0, ConfigError, "averaged=0: must be at least 1"),
    ],
)
def test_a_ceiling_needs_two_seeds(by_seed: np.ndarray, averaged: int, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        noise_ceiling(by_seed, averaged)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"losses": np.full((4, 6), NAN)}, r"losses: all are missing \(NaN\)"),
        ({"losses": np.ones((4, 5))}, r"group scores: have shape \(4, 6\), but losses have shape \(4, 5\)"),
        ({"group_scores": np.full((4, 6), NAN)}, "group scores: a score is not finite"),
        ({"losses": np.full((4, 6), math.inf)}, "losses: a loss is infinite"),
        ({"group_scores": np.ones((4, 1)), "losses": np.ones((4, 1))}, "fewer than two subsets"),
        ({"losses": np.ones(4)}, r"losses: have shape \(4,\)"),
        ({"nan": "ignore"}, "nan='ignore': must be drop, zero or raise"),
        ({"resamples": -1}, "resamples=-1: must be at least 0"),
        ({"confidence": 95.0}, r"confidence=95\.0: must be a number between 0 and 1"),
    ],
)
def test_bad_arguments_of_the_lds_are_refused(change: dict[str, object], message: str) -> None:
    scores, losses = make_noise(11, 4, 6)
    arguments = {"group_scores": scores, "losses": losses, **change}
    with pytest.raises((DataError, ConfigError), match=message) as caught:
        lds(**arguments)  # every change is wrong in a way that no type shows
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("one", "other"), [((2, 3), (2, 4)), ((3,), (3,)), ((2, 1), (2, 1))])
def test_spearman_needs_two_matrices_of_one_shape(one: tuple[int, ...], other: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match=r"both must have the same shape \(q, m\) with m ≥ 2"):
        spearman(np.ones(one), np.ones(other))
    with pytest.raises(DataError, match="spearman: a value is not finite"):
        spearman(np.full((2, 3), NAN), np.ones((2, 3)))


FORMS: dict[str, Callable[[np.ndarray], Any]] = {
    "lists": np.ndarray.tolist,
    "a tensor": lambda array: torch.from_numpy(array).requires_grad_(),
    "a table": pd.DataFrame,
}


@pytest.mark.parametrize("form", FORMS)
def test_measures_take_numbers_in_any_form(form: str) -> None:
    given = FORMS[form]
    scores, losses = (one.astype(np.float64) for one in make_noise(1, 6, 8))
    np.testing.assert_array_equal(metrics.spearman(given(scores), given(losses)), metrics.spearman(scores, losses))
    assert metrics.lds(given(scores), given(losses)).value == metrics.lds(scores, losses).value
    pair = metrics.paired(given(scores), given(-losses), given(losses))
    assert pair.difference == metrics.paired(scores, -losses, losses).difference
    np.testing.assert_array_equal(metrics.pool_scores(given(scores), "sum"), metrics.pool_scores(scores, "sum"))
    labels = metrics.normalise_losses(losses).labels.astype(np.float64)
    np.testing.assert_array_equal(metrics.normalise_losses(given(losses)).labels, labels)
    wanted = float(metrics.ranking_loss(torch.from_numpy(scores), torch.from_numpy(labels)))
    assert metrics.ranking_loss(given(scores), given(labels)).item() == pytest.approx(wanted)
    by_seed = np.stack([losses, losses + 0.01 * scores])
    seeds = by_seed if form == "a table" else given(by_seed)  # a table has two axes
    assert metrics.noise_ceiling(seeds) == metrics.noise_ceiling(by_seed)


def test_what_is_no_matrix_of_numbers_is_refused() -> None:
    for measure in (metrics.spearman, metrics.lds):
        with pytest.raises(DataError, match="cannot be made into an array: "):
            measure([[1.0, 2.0], [1.0]], [[1.0, 2.0]])
        with pytest.raises(DataError, match=r"are of type .*"):
            measure([["a", "b"]], [[1.0, 2.0]])


def binomial_bounds(share: float, count: int) -> tuple[float, float]:
    """Ends between which an observed share lies in 999 of 1,000 simulations."""
    low, high = stats.binom.interval(0.999, count, share)
    return low / count, high / count


@pytest.mark.parametrize("levels", [3, 8, None])
def test_the_lds_is_the_references_and_scipys_with_ties_and_missing_columns(levels: int | None) -> None:
    random = np.random.default_rng(levels or 0)
    scores, losses = random.normal(size=(2, 15, 24))
    if levels is not None:
        scores, losses = (np.floor(levels * stats.norm.cdf(values)) for values in (scores, losses))
    losses[:, [2, 19]] = np.nan
    losses[[1, 7], [5, 6]] = np.nan
    value, per_query = reference.lds(scores, losses)
    found = lds(scores, losses, resamples=0)
    assert found.value == pytest.approx(value, abs=1e-12)
    np.testing.assert_allclose(found.per_query, per_query, atol=1e-12)
    for one, f, loss in zip(found.per_query, scores, losses, strict=True):
        assert one == pytest.approx(stats.spearmanr(f, -loss, nan_policy="omit").statistic, abs=1e-12)
    assert (found.subsets, found.missing) == (22, 2)


def test_the_packages_own_scorer_reaches_1_in_a_linear_world_whose_influences_are_inner_products() -> None:
    random = np.random.default_rng(1)
    queries, train = random.normal(size=(20, 6)).astype(np.float32), random.normal(size=(90, 6)).astype(np.float32)
    members = {str(j): random.permutation(90)[:12] for j in range(40)}
    exact = queries.astype(np.float64) @ train.astype(np.float64).T
    losses = 5 - np.stack([exact[:, rows].sum(axis=1) for rows in members.values()], axis=1)
    scores = score_features(train, queries, Groups.from_lists(members), "sum")
    assert lds(scores, losses, resamples=0).value == pytest.approx(1.0, abs=1e-4)


def test_noise_has_0_inside_its_interval_about_as_often_as_it_says() -> None:
    world, random, held = TwoWayWorld(40, 20, skill=0.0), np.random.default_rng(2), []
    for _ in range(150):
        (scores,), losses = world.draw(random)
        interval = lds(scores, losses, resamples=60).interval
        held.append(interval.low <= 0 <= interval.high)
    assert np.mean(held) >= binomial_bounds(0.95, 150)[0]
    assert np.mean(held) < 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "world",
    [TwoWayWorld(100, 30, 0.3), TwoWayWorld(50, 100, 0.3), SubsetWorld(60, 40)],
    ids=["100 x 30", "50 x 100", "subsets of a pool"],
)
def test_intervals_hold_the_expectation_over_fresh_queries_and_subsets(world: TwoWayWorld | SubsetWorld) -> None:
    random, count = np.random.default_rng(3), 120
    draws = (world.draw(random) for _ in range(400))
    truth = float(np.mean([lds(scores[0], losses, resamples=0).value for scores, losses in draws]))
    fresh = (world.draw(random) for _ in range(count))
    intervals = [lds(scores[0], losses, resamples=40).interval for scores, losses in fresh]
    held = np.mean([interval.low <= truth <= interval.high for interval in intervals])
    low, high = binomial_bounds(0.95, count)
    assert low <= held <= high
    if isinstance(world, TwoWayWorld):
        assert truth == pytest.approx(world.population(), abs=0.02)


@pytest.mark.slow
def test_p_values_of_equal_methods_are_uniform_near_0_and_power_rises_with_the_difference() -> None:
    world, random, count = TwoWayWorld(60, 30, 0.3), np.random.default_rng(4), 120
    draws = (world.draw(random, 2) for _ in range(count))
    p_values = np.array([paired(*scores, losses, resamples=40).p_value for scores, losses in draws])
    for level in (0.05, 0.2):
        low, high = binomial_bounds(level, count)
        assert low <= (p_values < level).mean() <= high
    powers = []
    for other in (0.3, 0.6, 0.9):
        some = (world.draw_unequal(random, other) for _ in range(40))
        powers.append(np.mean([paired(*scores, losses, resamples=40).p_value < 0.05 for scores, losses in some]))
    assert powers[0] < 0.15 < powers[1] < powers[2]
    assert powers[2] > 0.9


def test_a_paired_difference_of_methods_that_share_their_errors_is_surer_than_of_ones_that_do_not() -> None:
    random, widths = np.random.default_rng(5), {"shared": [], "own": []}
    world = TwoWayWorld(60, 30, 0.3)
    for _ in range(10):
        (one, other), losses = world.draw(random, 2)
        alike = one + 0.3 * random.normal(size=one.shape)
        for name, rival in (("shared", alike), ("own", other)):
            low, high = paired(one, rival, losses, resamples=100).interval
            widths[name].append(high - low)
    assert np.mean(widths["shared"]) < 0.5 * np.mean(widths["own"])


@pytest.mark.parametrize("averaged", [1, 2])
@pytest.mark.parametrize("noise", [0.3, 1.0])
def test_the_noise_ceiling_is_what_the_truth_itself_scores_against_noisy_losses(noise: float, averaged: int) -> None:
    random = np.random.default_rng(6)
    truth = random.normal(size=(300, 200))
    by_seed = 4 + truth + noise * random.normal(size=(2, 300, 200))
    judged = by_seed[0] if averaged == 1 else by_seed.mean(axis=0)
    reached = lds(-truth, judged, resamples=0).value
    exact = float(reference.gaussian_spearman(np.array(1 / math.sqrt(1 + noise**2 / averaged))))
    assert reached == pytest.approx(exact, abs=0.01)
    assert noise_ceiling(by_seed, averaged) == pytest.approx(exact, abs=0.02)
