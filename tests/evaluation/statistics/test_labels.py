"""Signal, noise, overlap and common factors of losses, against plain references and simulations."""

import dataclasses
import math

import numpy as np
import pytest
from reference import statistics as reference
from scipy import stats
from worlds.small_world import make_corpus

from airrep.evaluation.statistics.labels import (
    LEAST_SHARE,
    chance_errors,
    common_factor,
    lds_of,
    lengthened,
    moved,
    one_number,
    overlap_of,
    pearson,
    seeds_alike,
    shown,
    split_halves,
    variance_parts,
)
from airrep.evaluation.statistics.metrics import lds
from airrep.labels.labels import LabelledInstance
from airrep.scoring.groups import Groups


def test_pearson_is_over_what_is_known_of_rows_that_vary() -> None:
    one = np.array([[0.1, 0.1, 0.1], [1.0, 2.0, 4.0], [1.0, 2.0, 3.0]])
    other = np.array([[1.0, 2.0, 3.0], [0.3, 0.3, 0.3], [2.0, np.nan, 6.0]])
    np.testing.assert_allclose(pearson(one, other, ~np.isnan(other)), [np.nan, np.nan, 1.0])
    random = np.random.default_rng(0).normal(size=(2, 5, 7))
    expected = [stats.pearsonr(a, b).statistic for a, b in zip(*random, strict=True)]
    np.testing.assert_allclose(pearson(*random), expected)


def test_the_variance_of_subsets_and_seeds_is_the_textbooks() -> None:
    losses = np.random.default_rng(0).normal(3, 1, size=(3, 6, 9))
    found = variance_parts(losses)
    for q in range(6):
        f, left, right = reference.between_within(losses[:, q])
        anova = stats.f_oneway(*losses[:, q].T)
        assert f == pytest.approx(anova.statistic)
        assert found.p_values[q] == pytest.approx(stats.f.sf(f, left, right)) == pytest.approx(anova.pvalue)


def test_missing_seeds_and_subsets_are_left_out_of_the_variance() -> None:
    losses = np.random.default_rng(1).normal(size=(3, 2, 8))
    losses[2, :, 3] = losses[:, :, 5] = np.nan
    found = variance_parts(losses)
    for q in range(2):
        groups = [column[~np.isnan(column)] for column in losses[:, q].T]
        anova = stats.f_oneway(*(group for group in groups if len(group)))
        assert found.p_values[q] == pytest.approx(anova.pvalue)


def test_seeds_are_alike_where_they_differ_by_less_than_a_thousandth_of_what_subsets_do() -> None:
    random = np.random.default_rng(5)
    truth, noise = 3 + random.normal(size=(4, 20)), random.normal(size=(3, 4, 20))
    assert seeds_alike(truth + 5e-4 * noise)
    assert not seeds_alike(truth + 5e-3 * noise)
    holes = truth + 5e-4 * noise
    holes[2, :, :7] = holes[:, :, 9] = np.nan
    assert seeds_alike(holes)
    holes[1:] = np.nan  # no second seed has begun, so nothing is told
    assert not seeds_alike(holes)
    assert not seeds_alike(np.full((2, 3, 5), 4.0))


@pytest.mark.parametrize(("equal", "alike"), [(4, True), (3, False), (2, False)])
def test_seeds_are_alike_where_most_losses_are_equal_to_the_last_bit(equal: int, alike: bool) -> None:
    generator = np.random.default_rng(0)
    losses = np.repeat(generator.standard_normal((1, 9, 6)), 2, axis=0)
    losses[1, :, equal:] += 0.1 * generator.standard_normal((9, 6 - equal))
    assert seeds_alike(losses) == alike


def test_signal_and_noise_are_told_apart() -> None:
    random = np.random.default_rng(2)
    losses = random.normal(0, 0.4, size=(40, 500)) + random.normal(0, 0.2, size=(2, 40, 500))
    found = variance_parts(losses)
    assert found.signal.mean() == pytest.approx(0.16, rel=0.05)
    assert found.noise.mean() == pytest.approx(0.04, rel=0.05)


def test_the_f_test_of_pure_noise_is_calibrated_and_constant_queries_have_no_signal() -> None:
    losses = np.random.default_rng(3).normal(size=(2, 2000, 20))
    losses[:, 0] = 1.5
    p_values = variance_parts(losses).p_values
    assert p_values[0] == 1
    assert 0.035 < (p_values < 0.05).mean() < 0.065
    assert (variance_parts(np.stack([losses[0, 1:], losses[0, 1:]])).p_values == 0).all()  # seeds that agree wholly
    one_seed = variance_parts(losses[:1])
    assert np.isnan([one_seed.p_values, one_seed.signal, one_seed.noise]).all()
    assert not shown(one_seed.p_values, 0.05).any()


@pytest.mark.parametrize("seed", range(5))
def test_effects_are_shown_by_the_step_up_rule(seed: int) -> None:
    p_values = np.random.default_rng(seed).random(40) ** 4
    expected = reference.step_up(p_values, 0.1)
    assert 0 < expected.sum() < 40
    np.testing.assert_array_equal(shown(p_values, 0.1), expected)
    with_unknown = np.insert(p_values, 3, np.nan)
    np.testing.assert_array_equal(np.delete(shown(with_unknown, 0.1), 3), expected)


def test_halves_of_two_seeds_are_the_seeds() -> None:
    losses = np.random.default_rng(6).normal(size=(2, 4, 12)).round(1)
    losses[1, 2, 5] = np.nan
    found = split_halves(losses)
    for q in range(4):
        both = ~np.isnan(losses[:, q]).any(axis=0)
        assert found.spearman[q] == pytest.approx(reference.spearman(losses[0, q], losses[1, q]))
        assert found.pearson[q] == pytest.approx(reference.pearson(losses[0, q, both], losses[1, q, both]))
    assert found.seeds == 1


def test_halves_of_four_seeds_are_all_three_ways_to_pair_them() -> None:
    losses = np.random.default_rng(7).normal(size=(4, 1, 12))
    ways = [((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3), (1, 2))]
    expected = [reference.spearman(losses[list(a), 0].mean(axis=0), losses[list(b), 0].mean(axis=0)) for a, b in ways]
    found = split_halves(losses)
    assert found.spearman[0] == pytest.approx(np.mean(expected))
    assert found.seeds == 2


@pytest.mark.parametrize("seeds", [3, 5, 12])
def test_the_corrected_reliability_is_that_of_the_mean_of_all_seeds(seeds: int) -> None:
    random = np.random.default_rng(seeds)
    truth = random.normal(size=(15, 300))
    found = split_halves(truth + random.normal(size=(seeds, 15, 300)))
    reliability = lengthened(float(found.pearson.mean()), seeds / found.seeds)
    assert reliability == pytest.approx(seeds / (seeds + 1), abs=0.02)
    assert (lengthened(-0.3, 2), lengthened(1.0, 2)) == (0, 1)


def test_overlap_is_counted_as_sets_are() -> None:
    random = np.random.default_rng(8)
    members = [set(random.permutation(30)[:size].tolist()) for size in (6, 9, 6, 8)]
    groups = Groups.from_lists({str(j): sorted(one) for j, one in enumerate(members)})
    found = overlap_of(groups, 30)
    pairs = [(a, b) for i, a in enumerate(members) for j, b in enumerate(members) if i != j]
    assert found.observed == pytest.approx(np.mean([len(a & b) / math.sqrt(len(a) * len(b)) for a, b in pairs]))
    assert found.expected == pytest.approx(np.mean([math.sqrt(len(a) * len(b)) / 30 for a, b in pairs]))
    counts = [sum(row in one for one in members) for row in range(30)]
    used = [count for count in counts if count]
    assert found.uses == (min(used), pytest.approx(np.mean(used)), max(used))
    assert found.used == pytest.approx(len(used) / 30)
    assert found.coverage == pytest.approx(29 / 30)
    assert math.isnan(overlap_of(Groups.from_lists({"0": [1, 2]}), 4).observed)


def test_disjoint_subsets_look_in_as_many_directions_as_there_are_and_copies_in_one() -> None:
    apart = Groups.from_lists({str(j): range(10 * j, 10 * j + 10) for j in range(20)})
    assert overlap_of(apart, 10**6).directions == pytest.approx(20, rel=1e-3)
    copies = Groups.from_lists({str(j): range(10) for j in range(20)})
    assert overlap_of(copies, 100).directions == pytest.approx(1)
    assert overlap_of(copies, 100).observed == pytest.approx(1)


def test_more_subsets_than_examples_look_in_no_more_directions_than_there_are_examples() -> None:
    random = np.random.default_rng(9)
    many = Groups.from_lists({str(j): random.permutation(20)[:8] for j in range(400)})
    assert overlap_of(many, 20).directions < 20


def test_the_first_component_explains_what_is_common() -> None:
    random = np.random.default_rng(10)
    quality = random.normal(size=400)
    losses = 3 + math.sqrt(0.6) * quality + math.sqrt(0.4) * random.normal(size=(80, 400))
    found = common_factor(losses)
    assert found is not None
    assert found.explained == pytest.approx(0.6, abs=0.03)
    assert found.alike == 1


def test_queries_with_nothing_in_common_explain_what_chance_gives_and_a_contrast_is_not_alike() -> None:
    random = np.random.default_rng(11)
    found = common_factor(random.normal(size=(60, 100)))
    assert found is not None
    assert found.explained == pytest.approx(found.floor, rel=0.1)
    sides = np.where(np.arange(60) < 30, 1, -1)[:, None]
    contrast = common_factor(sides * random.normal(size=100) + 0.1 * random.normal(size=(60, 100)))
    assert contrast is not None
    assert contrast.explained > 0.9
    assert contrast.alike == pytest.approx(0.5)


def test_a_common_factor_needs_queries_that_vary_and_whole_subsets() -> None:
    losses = np.random.default_rng(12).normal(size=(3, 6))
    losses[:, 4] = np.nan
    found = common_factor(losses)
    assert found is not None
    assert found.subsets == 5
    assert common_factor(losses[:, :2]) is None
    losses[1:] = 2.0
    assert common_factor(losses) is None


@pytest.mark.slow
@pytest.mark.parametrize("common", [0.0, 1.0])
def test_the_error_of_the_mean_lds_is_that_of_scores_that_know_nothing(common: float) -> None:
    random, q, m = np.random.default_rng(13), 40, 25
    taste = common + random.normal(size=(q, 3))
    predicted, reached, alike = [], [], []
    for _ in range(300):
        losses, scores = (taste @ random.normal(size=(3, m)) + random.normal(size=(q, m)) for _ in range(2))
        predicted.append(chance_errors(losses))
        reached.append(lds(scores, losses, resamples=0).value)
        alike.append(lds_of(random.normal(size=m), losses))
    error, error_alike = np.sqrt(np.mean(np.square(predicted), axis=0))
    assert error == pytest.approx(np.std(reached), rel=0.15)
    assert error_alike == pytest.approx(np.std(alike), rel=0.15)


def test_one_number_is_the_mean_of_the_other_queries() -> None:
    losses = np.random.default_rng(14).normal(size=(4, 9))
    z = (losses - losses.mean(axis=1, keepdims=True)) / losses.std(axis=1, keepdims=True)
    expected = [reference.spearman(losses[q], np.delete(z, q, axis=0).mean(axis=0)) for q in range(4)]
    assert one_number(losses, losses) == pytest.approx(np.mean(expected))
    assert math.isnan(one_number(losses[:1], losses[:1]))
    assert one_number(losses[:1].repeat(3, axis=0), losses[:1].repeat(3, axis=0)) == pytest.approx(1)


def test_the_lds_of_a_list_of_numbers_is_that_of_scores_equal_for_all_queries() -> None:
    random = np.random.default_rng(15)
    number, losses = random.normal(size=12), random.normal(size=(5, 12))
    assert lds_of(number, losses) == pytest.approx(reference.lds(np.tile(number, (5, 1)), losses)[0])
    assert math.isnan(lds_of(np.ones(12), losses))


SUBSETS = Groups.from_lists({"0": [0, 1], "1": [2, 3]})


def instance(change: np.ndarray, noise: float | None = None) -> LabelledInstance:
    """Losses that begin at 4 nats and change by so many, ``(q, m)``; with two seeds apart by twice the *noise*."""
    losses = (4 + change).astype(np.float32)
    seeds = None if noise is None else np.stack([losses - noise, losses + noise])
    base = np.full(len(change), 4, np.float32)
    return LabelledInstance("0", make_corpus(4), make_corpus(len(change), "q"), SUBSETS, losses, base, seeds)


def test_the_change_counts_up_and_down() -> None:
    found = moved([instance(np.array([[0.5, -0.5], [-0.4, -0.2]]))])
    assert found is not None
    assert (found.before, found.after, found.change) == (4.0, pytest.approx(3.85), pytest.approx(0.4))
    assert not found.hardly
    assert "moved the queries' losses by 0.400 nats, 10.0% (4.000 to 3.850)" in found.sentence


@pytest.mark.parametrize(("times", "hardly"), [(0.9, True), (1.1, False)])
def test_a_share_of_the_loss_decides(times: float, hardly: bool) -> None:
    change = np.full((3, 2), -4 * LEAST_SHARE * times)
    found = moved([instance(change), dataclasses.replace(instance(change), name="1")])
    assert found is not None
    assert found.hardly is hardly


@pytest.mark.parametrize(("noise", "hardly"), [(0.5, True), (0.1, False)])
def test_what_chance_moves_as_far_has_hardly_moved(noise: float, hardly: bool) -> None:
    found = moved([instance(np.full((3, 2), -0.3), noise)])
    assert found is not None
    assert found.noise == pytest.approx(noise * 2**0.5, rel=1e-3)
    assert found.hardly is hardly
    assert found.to_dict()["hardly"] is hardly


def test_without_losses_before_nothing_is_told() -> None:
    bare = dataclasses.replace(instance(np.zeros((1, 2))), base_losses=None)
    assert moved([bare]) is None
    assert moved([instance(np.zeros((1, 2))), bare]) is None
    assert moved([]) is None
    assert moved([dataclasses.replace(bare, base_losses=np.array([np.nan], np.float32))]) is None


def test_missing_fine_tunes_are_left_out() -> None:
    found = moved([instance(np.array([[-0.5, np.nan], [-0.3, np.nan]]))])
    assert found is not None
    assert found.change == pytest.approx(0.4)
