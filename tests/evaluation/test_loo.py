"""Leave-one-out against naive loops."""

import dataclasses
import math

import numpy as np
import pytest
from reference import group_influence
from reference import lds as reference
from scipy import stats
from worlds.small_world import HashAttributor
from worlds.training_world import planted

from airrep.attributors.base import TrainedGroups
from airrep.errors import ConfigError, DataError
from airrep.evaluation.comparison import compare_evaluations
from airrep.evaluation.lds import evaluate_lds
from airrep.evaluation.loo import LooStudy, evaluate_loo, removals_of
from airrep.evaluation.result import Evaluation
from airrep.evaluation.statistics.labels import noise_ceiling, signal_to_noise
from airrep.evaluation.statistics.metrics import lds
from airrep.index.building import build_index
from airrep.index.index import Index
from airrep.labels.labels import LabelledInstance, mean_over_seeds
from airrep.scoring.groups import Groups

N, Q, K = 24, 5, 9


def world(name: str, seed: int, *, size: int = 1, seeds: int = 2, levels: int | None = None) -> LabelledInstance:
    """The whole pool and K removals, with losses that follow the removed examples' scores and ties where asked for."""
    plain, generator = planted(seed, name, n=N, q=Q, m=2, size=5), np.random.default_rng(seed)
    order = generator.permutation(N)
    left_out = [order[size * j : size * (j + 1)] for j in range(K)]
    members = {"0": np.arange(N)} | {str(j): np.delete(np.arange(N), rows) for j, rows in enumerate(left_out, start=1)}
    method = HashAttributor()
    scores = method.encode_queries(plain.queries).astype(float) @ method.encode_train(plain.train).astype(float).T
    effects = np.stack([np.zeros(Q), *(scores[:, rows].sum(axis=1) for rows in left_out)], axis=1)
    by_seed = 3 + 0.1 * effects + 0.1 * generator.standard_normal((seeds, Q, 1 + K)) + generator.random((seeds, Q, 1))
    by_seed = (by_seed if levels is None else np.round(by_seed * levels) / levels).astype(np.float32)
    several = by_seed if seeds > 1 else None
    losses = by_seed.mean(axis=0, dtype=np.float64).astype(np.float32)
    subsets = Groups.from_lists(members)
    return dataclasses.replace(plain, subsets=subsets, losses=losses, by_seed=several)


def index_of(tmp_path, *instances: LabelledInstance, seed: str = "") -> Index:
    corpora = [example for instance in instances for example in instance.train]
    from airrep.corpus.corpus import Corpus

    build_index(Corpus.from_examples(corpora), tmp_path / f"index{seed}", HashAttributor(seed), shard_rows=10)
    return Index(tmp_path / f"index{seed}", HashAttributor(seed))


def stored_scores(instance: LabelledInstance) -> np.ndarray:
    """Influence scores ``(q, n)`` float64 of features as an index keeps them."""
    method = HashAttributor()
    train = method.encode_train(instance.train).astype(np.float16).astype(np.float64)
    return method.encode_queries(instance.queries).astype(np.float64) @ train.T


def naive(instance: LabelledInstance) -> tuple[list[float], list[float]]:
    """Spearman and Pearson of each query, by loops."""
    scores = stored_scores(instance)
    by_seed = instance.losses[None] if instance.by_seed is None else instance.by_seed
    spearman, linear = [], []
    for x in range(Q):
        effects, predictions = [], []
        for j in range(1, 1 + K):
            kept = set(instance.subsets.members(j).tolist())
            predictions.append(sum(float(scores[x, row]) for row in range(N) if row not in kept))
            effects.append(sum(float(one[x, j]) - float(one[x, 0]) for one in by_seed) / len(by_seed))
        spearman.append(reference.spearman(predictions, effects))
        linear.append(reference.pearson(predictions, effects))
        assert spearman[-1] == pytest.approx(stats.spearmanr(predictions, effects).statistic)
    return spearman, linear


@pytest.mark.parametrize(("size", "levels"), [(1, None), (2, None), (1, 2)])
def test_correlations_are_those_of_loops_and_of_scipy_also_with_ties(tmp_path, size, levels):
    instances = [world("a", 1, size=size, levels=levels), world("b", 2, size=size, levels=levels)]
    if levels:
        assert len(np.unique(instances[0].losses[0])) < 1 + K
    found = evaluate_loo([index_of(tmp_path, *instances)], instances, resamples=20).rows[0]
    expected = [naive(instance) for instance in instances]
    np.testing.assert_allclose(found.per_query, [*expected[0][0], *expected[1][0]], rtol=1e-9)
    assert found.value == pytest.approx(np.mean([np.mean(spearman) for spearman, _ in expected]))
    assert found.more["pearson"] == pytest.approx(np.mean([np.mean(linear) for _, linear in expected]), rel=1e-4)
    assert found.value > 0.3  # what helped is missed: both above 0


def test_intervals_are_those_of_queries_and_removals_drawn_anew(tmp_path):
    instance = world("a", 1)
    found = evaluate_loo([index_of(tmp_path, instance)], [instance], resamples=50)
    removed = removals_of(instance)
    expected = lds(found.matrices["0/a"], -removed.losses.astype(float), resamples=50)
    assert (found.rows[0].value, found.rows[0].interval) == (expected.value, expected.interval)
    np.testing.assert_array_equal(found.matrices["losses/a"], removed.losses.astype(float))
    of_means = instance.losses[:, 1:].astype(float) - instance.losses[:, :1]
    np.testing.assert_allclose(removed.losses.astype(float), of_means, atol=1e-6)  # of complete seeds the same


def test_the_pool_is_sum_whatever_the_method_s_own_and_another_can_be_asked_for(tmp_path):
    """Of one removed example alone, attention is its score too; its groups are not what an encoder was trained on."""

    class Trained(HashAttributor):
        trained_groups = TrainedGroups("attention", 1000, 2000)

    single, double = world("a", 1), world("a", 1, size=2)
    index = Index(index_of(tmp_path, single).path, Trained())
    assert index.attributor.pooling().kind == "attention"
    plain = evaluate_loo([index], [single], resamples=20)
    assert (plain.rows[0].pool, plain.rows[0].caution) == ("sum", "")
    attended = evaluate_loo([index], [single], "attention", resamples=20)
    np.testing.assert_allclose(attended.matrices["0/a"], plain.matrices["0/a"], rtol=1e-5)
    assert attended.rows[0].caution.startswith("These groups have 1 members, but")
    asked = evaluate_loo([index], [double], "order-2", resamples=20).matrices["0/a"]
    train = HashAttributor().encode_train(double.train).astype(np.float16).astype(np.float64)
    queries = HashAttributor().encode_queries(double.queries).astype(np.float64)
    members = [np.setdiff1d(np.arange(N), double.subsets.members(j)).tolist() for j in range(1, 1 + K)]
    np.testing.assert_allclose(asked, group_influence.group_scores(queries, train, members, N, 2), rtol=1e-4)


@pytest.mark.parametrize("pool", [None, "sum", "order-2"])
def test_what_if_predicts_by_the_change_of_the_whole_pool(tmp_path, pool):
    instance = world("a", 1, size=2)
    index = index_of(tmp_path, instance)
    found = evaluate_loo([index], [instance], pool, what_if=True, resamples=20)
    texts = [example.prompt for example in instance.train]
    rows = {example.prompt: row for row, example in enumerate(index.examples(range(N)))}
    expected = []
    for j in range(1, 1 + K):
        left_out = np.setdiff1d(np.arange(N), instance.subsets.members(j))
        removed = [rows[texts[row]] for row in left_out.tolist()]
        expected.append(-index.what_if(instance.queries, remove=removed, pool=pool).change)
    np.testing.assert_allclose(found.matrices["0/a"], np.stack(expected, axis=1), rtol=1e-4, atol=1e-6)
    row, effects = found.rows[0], found.matrices["losses/a"]
    assert row.pool == (pool or index.attributor.pooling().text)
    assert row.more["same_sign"] == np.mean(
        [np.sign(a) == np.sign(b) for a, b in zip(found.matrices["0/a"].ravel(), effects.ravel(), strict=True)]
    )
    assert row.more["largest"] == np.mean(
        [a.argmax() == b.argmax() for a, b in zip(found.matrices["0/a"], effects, strict=True)]
    )
    assert found.facts["helped"] == np.mean(effects > 0)
    assert row.value == pytest.approx(
        np.mean([reference.spearman(*pair) for pair in zip(found.matrices["0/a"], effects, strict=True)])
    )


def test_what_if_of_sums_is_the_sum_of_what_is_removed_and_its_request_says_so(tmp_path):
    instance = world("a", 1)
    index = index_of(tmp_path, instance)
    plain, told = (evaluate_loo([index], [instance], "sum", what_if=what_if, resamples=20) for what_if in (False, True))
    np.testing.assert_allclose(plain.matrices["0/a"], told.matrices["0/a"], rtol=1e-4, atol=1e-5)
    assert (plain.subject, plain.request | {"prediction": "what-if"}) == (told.subject, told.request)
    assert "same_sign" not in plain.rows[0].more
    attending = evaluate_loo([index], [instance], "attention", 0.5, what_if=True, resamples=20).rows[0]
    assert (attending.pool, attending.temperature) == ("attention", 0.5)


def test_what_if_leaves_out_missing_losses_and_says_where_all_are_missing(tmp_path):
    instance = world("a", 1)
    index = index_of(tmp_path, instance)
    holes, bare = instance.losses.copy(), instance.losses.copy()
    holes[:, 4] = holes[2, 0] = bare[:, 0] = np.nan
    some, none = (dataclasses.replace(instance, losses=losses, by_seed=None) for losses in (holes, bare))
    found = evaluate_loo([index], [some], what_if=True, resamples=20)
    f, effects = (np.delete(np.delete(found.matrices[name], 3, axis=1), 2, axis=0) for name in ("0/a", "losses/a"))
    assert found.rows[0].more["largest"] == np.mean(f.argmax(axis=1) == effects.argmax(axis=1))
    assert found.rows[0].more["same_sign"] == np.mean((f > 0) == (effects > 0))
    with pytest.raises(DataError, match="all are missing"):
        evaluate_loo([index], [none], what_if=True)


def test_the_ceiling_and_the_reliability_are_those_of_the_seeds(tmp_path):
    instance, single = world("a", 1, seeds=3), world("b", 2, seeds=1)
    index = index_of(tmp_path, instance, single)
    found = evaluate_loo([index], [instance], resamples=20)
    assert found.ceiling == pytest.approx(noise_ceiling(instance.by_seed[:, :, 1:], averaged=3))
    assert found.facts["reliability"] == pytest.approx(found.ceiling**2)
    assert found.facts["signal_to_noise"] == pytest.approx(signal_to_noise([instance.by_seed[:, :, 1:]]))
    assert (found.facts["removals"], found.facts["removal_size"], found.facts["seeds"]) == (K, [1, 1], [3])
    alone = evaluate_loo([index], [single], resamples=20)
    assert alone.ceiling is alone.facts["reliability"] is alone.facts["signal_to_noise"] is None


def naive_ratio(by_seed: np.ndarray) -> float:
    """The definition, by loops over queries, seeds and removals."""
    seeds, queries, removals = by_seed.shape
    signal = chance = 0.0
    for x in range(queries):
        plain = [[float(by_seed[s, x, j]) - float(by_seed[s, x].mean()) for j in range(removals)] for s in range(seeds)]
        mean = [sum(plain[s][j] for s in range(seeds)) / seeds for j in range(removals)]
        between = sum(value**2 for value in mean) / (removals - 1)
        within = sum((plain[s][j] - mean[j]) ** 2 for s in range(seeds) for j in range(removals))
        within /= (seeds - 1) * (removals - 1) * seeds
        signal, chance = signal + between - within, chance + within
    return signal / chance


def test_the_signal_to_noise_ratio_is_its_definition_and_finds_what_was_planted():
    generator = np.random.default_rng(0)
    small = generator.standard_normal((3, 4, 6))
    assert signal_to_noise([small]) == pytest.approx(naive_ratio(small))
    effects, common = generator.standard_normal((2000, 30)), 5 * generator.standard_normal((4, 2000, 1))
    for deviation in (0.5, 1.0, 2.0):
        noisy = effects + common + deviation * generator.standard_normal((4, 2000, 30))
        assert signal_to_noise([noisy]) == pytest.approx(1 / (deviation**2 / 4), rel=0.03)
    assert signal_to_noise([generator.standard_normal((2, 3000, 20))]) == pytest.approx(0, abs=0.02)
    holes = small.copy()
    holes[1, 2, 3] = np.nan
    assert signal_to_noise([holes]) == pytest.approx(naive_ratio(np.delete(small, 3, axis=2)))
    assert signal_to_noise([np.stack([small[0], small[0]])]) is None
    assert signal_to_noise([holes[:, :, 3:4]]) is None


@pytest.mark.parametrize("pool", [None, "attention"])
def test_lds_of_subsets_that_leave_little_out_is_by_what_they_leave_out(tmp_path, pool):
    """By loops: Spearman of less the sum over what is left out, and of less the losses; for a sum that is the LDS."""
    instance = world("a", 1, size=2)
    kept = {str(j): instance.subsets.members(j) for j in range(1, 1 + K)}
    parts = {"losses": instance.losses[:, 1:], "by_seed": instance.by_seed[:, :, 1:]}
    random = dataclasses.replace(instance, subsets=Groups.from_lists(kept), **parts)
    index, scores = index_of(tmp_path, instance), stored_scores(instance)
    found = evaluate_lds([index], [random], pool, resamples=20)
    expected, of_sums = [], []
    for x in range(Q):
        less, whole = [], []
        for members in kept.values():
            gone = [float(scores[x, row]) for row in range(N) if row not in set(members.tolist())]
            weights = np.exp(np.abs(gone)) if pool else np.ones(len(gone))
            less.append(-float(np.dot(weights, gone)) / (weights.sum() if pool else 1))
            whole.append(math.fsum(float(scores[x, row]) for row in members))
        losses = [-float(loss) for loss in random.losses[x]]
        expected.append(reference.spearman(less, losses))
        of_sums.append(reference.spearman(whole, losses))
    np.testing.assert_allclose(found.rows[0].per_query, expected, rtol=1e-9)
    assert (expected == pytest.approx(of_sums)) == (pool is None)
    assert (found.measure, found.rows[0].pool) == ("lds", pool or "sum")
    assert (found.facts["left_out"], found.facts["subset_size"]) == ([2, 2], [N - 2, N - 2])
    assert found.facts["signal_to_noise"] == pytest.approx(signal_to_noise([random.by_seed]))
    assert found.ceiling == pytest.approx(noise_ceiling(random.by_seed, 2))
    holes = random.by_seed.copy()
    holes[1, :, 4] = np.nan  # that seed is of another level, which must not look like an effect
    mean = np.array(
        [reference.spearman([-f for f in found.matrices["0/a"][x]], _levelled(holes[:, x])) for x in range(Q)]
    )
    lacking = dataclasses.replace(random, losses=mean_over_seeds(holes), by_seed=holes)
    np.testing.assert_allclose(evaluate_lds([index], [lacking], pool, resamples=20).rows[0].per_query, mean, rtol=1e-6)


def _levelled(losses: np.ndarray) -> list[float]:
    """Means over seeds of one query's losses less the seed's mean over the subsets that all seeds have, ``(s, m)``."""
    whole = [j for j in range(losses.shape[1]) if not np.isnan(losses[:, j]).any()]
    less = [[float(value) - math.fsum(map(float, seed[whole])) / len(whole) for value in seed] for seed in losses]
    columns = zip(*less, strict=True)
    return [float(np.mean([value for value in column if not math.isnan(value)])) for column in columns]


def test_subsets_that_leave_little_out_are_not_judged_with_others_nor_tuned(tmp_path):
    instance, small = world("a", 1), planted(2, "b", n=N, q=Q, m=K, size=5)
    kept = Groups.from_lists({str(j): instance.subsets.members(j) for j in range(1, 1 + K)})
    random = dataclasses.replace(instance, subsets=kept, losses=instance.losses[:, 1:], by_seed=None)
    index = index_of(tmp_path, instance, small)
    with pytest.raises(DataError, match="^instance b .*at most a tenth"):
        evaluate_lds([index], [random, small])
    with pytest.raises(ConfigError, match="--tune cannot choose a temperature"):
        evaluate_lds([index], [random], tune=[small])
    with pytest.raises(ConfigError, match="temperature has no effect"):
        evaluate_lds([index], [random], temperature=2.0)


def test_missing_losses_leave_out_what_they_concern(tmp_path):
    instance = world("a", 1)
    losses = instance.losses.copy()
    losses[2, 0] = losses[:, 4] = np.nan
    instance = dataclasses.replace(instance, losses=losses, by_seed=None)
    found = evaluate_loo([index_of(tmp_path, instance)], [instance], resamples=20)
    row = found.rows[0]
    assert (row.dropped, np.isnan(row.per_query).tolist()) == (1, [False, False, True, False, False])
    assert np.isnan(found.matrices["losses/a"][2]).all()
    without = dataclasses.replace(
        instance,
        subsets=Groups.from_lists({str(j): instance.subsets.members(j) for j in range(1 + K) if j != 4}),
        losses=np.delete(losses, 4, axis=1),
    )
    fewer = evaluate_loo([Index(tmp_path / "index", HashAttributor())], [without], resamples=20).rows[0]
    np.testing.assert_allclose(row.per_query, fewer.per_query)
    assert row.more["pearson"] == pytest.approx(fewer.more["pearson"])


def seeds_apart(tmp_path) -> tuple[LabelledInstance, LabelledInstance]:
    """Labels with seeds that differ by far more than removals do; with and without what was not finished."""
    whole = world("a", 1)
    by_seed = whole.by_seed + np.array([0, 20], np.float32)[:, None, None]
    holes = by_seed.copy()
    order = 1 + np.argsort(whole.losses[:, 1:].mean(axis=0))
    # of one seed those of the greatest effects, of the other one
    holes[1, :, order[5:]] = holes[0, :, order[2]] = np.nan
    holes[1, 3, 0] = np.nan  # a query without a loss with all examples
    one, other = (dataclasses.replace(whole, losses=mean_over_seeds(part), by_seed=part) for part in (by_seed, holes))
    return one, other


def test_effects_are_taken_within_each_seed_so_unfinished_seeds_rank_nothing(tmp_path):
    whole, holes = seeds_apart(tmp_path)
    removals = removals_of(holes)
    for x in range(Q):
        for j in range(1, 1 + K):
            of_seeds = [float(one[x, j]) - float(one[x, 0]) for one in holes.by_seed.astype(np.float64)]
            there = [effect for effect in of_seeds if not np.isnan(effect)]
            expected = sum(there) / len(there) if there else np.nan
            assert removals.losses[x, j - 1] == pytest.approx(expected, abs=1e-6, nan_ok=True)
    index = index_of(tmp_path, whole)
    complete = evaluate_loo([index], [whole], resamples=20)
    partly = evaluate_loo([index], [holes], resamples=20)
    of_means = lds(-complete.matrices["0/a"], holes.losses[:, 1:] - holes.losses[:, :1], resamples=0).value
    assert complete.rows[0].value > 0.3
    assert partly.rows[0].value > 0.3 > of_means
    assert 0 < partly.ceiling < complete.ceiling


def test_comparing_stored_effects_gives_the_differences_of_the_evaluation(tmp_path):
    _, holes = seeds_apart(tmp_path)
    indexes = [index_of(tmp_path, holes), index_of(tmp_path, holes, seed="other")]
    made = evaluate_loo(indexes, [holes], resamples=50, names=["true", "false"])
    made.save(tmp_path / "run")
    back = Evaluation.read(tmp_path / "run")
    assert back.request == LooStudy(list(zip("xy", indexes, strict=True)), [holes], resamples=50).request
    (pair,) = compare_evaluations([("run", back)], "true", resamples=50).pairs
    gap = made.rows[1].difference
    assert gap.value < 0
    assert (pair.one, pair.difference, pair.p_value) == ("false", pytest.approx(gap.value), pytest.approx(gap.p_value))


def test_a_seed_without_the_fine_tune_on_all_examples_is_left_out_and_the_ratio_is_that_of_the_others(tmp_path):
    whole = world("a", 1, seeds=3)
    holes = whole.by_seed.copy()
    holes[1, :, 0] = np.nan
    lacking = dataclasses.replace(whole, losses=mean_over_seeds(holes), by_seed=holes)
    others = dataclasses.replace(whole, losses=mean_over_seeds(holes[::2]), by_seed=holes[::2])
    index = index_of(tmp_path, whole)
    found, fewer = (evaluate_loo([index], [one], resamples=20) for one in (lacking, others))
    np.testing.assert_array_equal(found.matrices["losses/a"], fewer.matrices["losses/a"])
    assert (found.facts["seeds"], found.facts["seeds_left_out"], fewer.facts["seeds_left_out"]) == ([2], [[1]], [[]])
    assert found.facts["signal_to_noise"] == pytest.approx(signal_to_noise([holes[::2, :, 1:]]))
    assert found.ceiling == fewer.ceiling


@pytest.mark.parametrize("begun", [False, True])
def test_seeds_that_tell_nothing_tell_no_ceiling_and_no_ratio(tmp_path, begun):
    """A second one that was not begun, and some that change nothing beyond rounding."""
    instance, generator = world("a", 1), np.random.default_rng(0)
    by_seed = instance.losses + 1e-6 * generator.standard_normal(instance.by_seed.shape)
    by_seed[1] = by_seed[1] if begun else np.nan
    alike = dataclasses.replace(instance, losses=mean_over_seeds(by_seed), by_seed=by_seed.astype(np.float32))
    found = evaluate_loo([index_of(tmp_path, alike)], [alike], resamples=20)
    assert found.ceiling is found.facts["reliability"] is found.facts["signal_to_noise"] is None
    assert found.facts["seeds_alike"] == [begun]


def test_removals_without_losses_do_not_count_and_none_counts_twice(tmp_path):
    instance = world("a", 1)
    losses, by_seed = instance.losses.copy(), instance.by_seed.copy()
    losses[:, 4], by_seed[:, :, 4] = np.nan, np.nan
    holes, index = dataclasses.replace(instance, losses=losses, by_seed=by_seed), index_of(tmp_path, instance)
    facts = evaluate_loo([index], [holes], resamples=20).facts
    assert (facts["removals"], facts["removals_left_out"]) == (K - 1, 1)
    with pytest.raises(ConfigError, match="^instances .* a and copy/0 have the same examples, subsets and losses"):
        evaluate_loo([index], [holes, dataclasses.replace(holes, name="copy/0")])


def test_other_subsets_and_pools_are_refused(tmp_path):
    instance = world("a", 1)
    index = index_of(tmp_path, instance)
    random = dataclasses.replace(planted(1, "a", n=N, q=Q, m=4, size=5))
    for wrong in (
        random,
        dataclasses.replace(
            instance, subsets=Groups.from_lists({"0": range(N), "1": range(1, N)}), losses=instance.losses[:, :2]
        ),
        dataclasses.replace(
            instance,
            subsets=Groups.from_lists({"0": range(N), "1": range(1, N), "2": range(N)}),
            losses=instance.losses[:, :3],
        ),
    ):
        with pytest.raises(DataError, match="instance a .*: its first fine-tune must"):
            evaluate_loo([index], [wrong])
    with pytest.raises(ConfigError, match="temperature has no effect"):
        evaluate_loo([index], [instance], temperature=2.0)
    with pytest.raises(ConfigError, match="at least one index and labels"):
        evaluate_loo([], [instance])
