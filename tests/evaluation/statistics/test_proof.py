"""What is claimed of the LDS, its intervals, comparisons and ceiling, in worlds with known truth."""

import math

import numpy as np
import pytest
from reference import statistics as reference
from reference.statistics import SubsetWorld, TwoWayWorld
from scipy import stats

from airrep.evaluation.statistics.labels import noise_ceiling
from airrep.evaluation.statistics.metrics import lds, paired


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


def test_true_sums_of_influence_score_exactly_1_in_a_linear_world_and_their_negation_minus_1() -> None:
    _, sums, losses, _ = reference.linear_world(q=30, n=120, m=40, k=15, seed=0)
    assert lds(sums, losses, resamples=0).value == pytest.approx(1.0, abs=1e-12)
    assert lds(-sums, losses, resamples=0).value == pytest.approx(-1.0, abs=1e-12)
    result = lds(sums, losses, resamples=200)
    assert result.interval.high == pytest.approx(1.0, abs=1e-9)
    assert result.interval.low == pytest.approx(
        2 * 0.025 ** (1 / 30) - 1
    )  # no draw differs: as sure as 30 queries can be


def test_the_packages_own_scorer_reaches_1_in_a_linear_world_whose_influences_are_inner_products() -> None:
    from airrep.evaluation.judging import score_features
    from airrep.scoring.groups import Groups

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
