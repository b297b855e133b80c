"""LDS of indexes on labelled instances."""

import dataclasses
import json

import numpy as np
import pytest
from reference import lds as lds_reference
from reference import pooling as reference
from scipy import stats
from worlds.small_world import HashAttributor, make_corpus, tree
from worlds.training_world import planted

from airrep.attributors.base import TrainedGroups
from airrep.corpus.corpus import Corpus
from airrep.errors import ArtifactError, ConfigError, DataError
from airrep.evaluation.comparison import compare_evaluations
from airrep.evaluation.diagnosis import diagnose
from airrep.evaluation.judging import compare_held_out, held_out_lds, score_instance
from airrep.evaluation.lds import LdsStudy, RowFinder, evaluate_lds, facts_of
from airrep.evaluation.result import Evaluation
from airrep.evaluation.statistics.labels import noise_ceiling
from airrep.evaluation.statistics.metrics import lds
from airrep.index.building import build_index
from airrep.index.index import Index
from airrep.labels.labels import LabelledInstance, mean_over_seeds
from airrep.scoring.groups import Groups


def world(seed: int, name: str, method: HashAttributor, pool: str, scale: float = 1.0) -> LabelledInstance:
    """An instance whose losses follow a method's group scores."""
    plain = planted(seed, name, n=40, q=8, m=16, size=8)
    features = method.encode_train(plain.train), method.encode_queries(plain.queries)
    members = [plain.subsets.members(j).tolist() for j in range(len(plain.subsets))]
    scores = reference.group_scores(features[1], features[0], members, pool, 1 / scale)
    noise = 0.3 * scores.std() * np.random.default_rng(seed).standard_normal(scores.shape)
    return dataclasses.replace(plain, losses=(3 - 0.1 * (scores + noise)).astype(np.float32))


def words(seed: int, name: str) -> LabelledInstance:
    """An instance of texts that share words."""
    generator = np.random.default_rng(seed)
    subsets = Groups.from_lists({str(j): generator.choice(40, 8, replace=False) for j in range(16)})
    losses = generator.standard_normal((8, 16)).astype(np.float32)
    return LabelledInstance(name, make_corpus(40, f"{name}-t"), make_corpus(8, f"{name}-q"), subsets, losses)


def score_index(index: Index, instance: LabelledInstance, pool: str) -> np.ndarray:
    return RowFinder(index, [instance]).score(instance, pool)


WORDS, OTHER_WORDS = words(3, "c"), words(4, "d")
ONE, TWO = world(1, "a", HashAttributor(), "attention"), world(2, "b", HashAttributor(), "attention")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Indexes by two methods of a corpus that holds the pools of both instances, backwards and among others."""
    folder = tmp_path_factory.mktemp("indexes")
    everything = Corpus.from_examples([*make_corpus(7, "x"), *list(TWO.train)[::-1], *list(ONE.train)[::-1]])
    texts = Corpus.from_examples([*make_corpus(7, "x"), *WORDS.train, *OTHER_WORDS.train])
    for seed in ("", "other"):
        build_index(everything, folder / f"hash{seed}", HashAttributor(seed), shard_rows=16)
    build_index(texts, folder / "tfidf", "tfidf", shard_rows=16)
    build_index(texts, folder / "hashwords", HashAttributor("words"), shard_rows=16)
    return folder


def _index(folder, seed: str = "") -> Index:
    return Index(folder / f"hash{seed}", HashAttributor(seed))


@pytest.mark.parametrize("pool", ["sum", "attention", "order-1"])
def test_scores_of_an_index_of_more_data_are_those_of_the_instance_itself(folder, pool):
    found = score_index(_index(folder), ONE, pool)
    np.testing.assert_allclose(found, score_instance(HashAttributor(), ONE, pool), rtol=2e-2, atol=2e-2)


def test_rows_and_differences_are_those_of_the_metric(folder):
    indexes = [_index(folder), _index(folder, "other")]
    found = evaluate_lds(indexes, [ONE, TWO], resamples=100, names=["one", "other"])
    scores = [[score_index(_index(folder, seed), one, "attention") for one in (ONE, TWO)] for seed in ("", "other")]
    first, second = found.rows
    expected, gap = held_out_lds(scores[0], [ONE, TWO], 100), compare_held_out(scores[1], scores[0], [ONE, TWO], 100)
    assert (first.name, first.value, first.interval) == ("one", expected.value, expected.interval)
    assert first.more == {"by_instance": dict(expected.by_instance)}
    assert second.difference == (gap.value, gap.interval, gap.p_value)
    assert first.difference is None
    assert found.best is first
    assert first.value > 0.8 > second.value
    assert found.facts["instances"] == ["a", "b"]
    assert (found.facts["queries"], found.facts["subsets"], found.facts["subset_size"]) == (16, 32, [8, 8])
    assert (found.facts["distinct_queries"], found.facts["queries_in_pool"]) == (16, 0)
    assert "shared_queries" not in found.facts


def test_intervals_take_shared_queries_into_account(folder):
    """Two instances of the same queries under other names, with other losses, tell less than two of other queries."""
    losses = np.random.default_rng(3).permutation(ONE.losses, axis=1)
    again = dataclasses.replace(ONE, name="again", losses=losses)
    found = evaluate_lds([_index(folder), _index(folder, "other")], [ONE, again], resamples=50, names=["one", "other"])
    assert found.facts["shared_queries"] == [[1.0, 1.0], [1.0, 1.0]]
    assert (found.facts["queries"], found.facts["distinct_queries"]) == (16, 8)
    matrices = found.matrices
    alone = [lds(matrices[f"1/{name}"], matrices[f"losses/{name}"], resamples=50) for name in ("a", "again")]
    of_queries = [one.uncertainty.queries for one in alone]
    variance = sum(one.uncertainty.variance for one in alone)
    wider = ((variance + 2 * (of_queries[0] * of_queries[1]) ** 0.5) / variance) ** 0.5
    below = np.hypot(*(one.value - one.interval.low for one in alone)) / 2
    assert wider > 1.05
    assert found.rows[1].value - found.rows[1].interval[0] == pytest.approx(wider * below)
    gap, compared = found.rows[1].difference, compare_evaluations([("run", found)], resamples=50).pairs[0]
    assert compared.difference == pytest.approx(-gap.value)
    assert compared.p_value == pytest.approx(gap.p_value)


def test_queries_that_stand_in_their_train_pool_are_counted(folder):
    pool = Corpus.from_examples([*list(ONE.train)[:-2], ONE.queries[0], ONE.queries[3]])
    leaky = dataclasses.replace(ONE, train=pool)
    assert facts_of([leaky])["queries_in_pool"] == 2


def test_values_of_every_query_are_those_of_scipy_and_of_plain_float64(folder):
    """Scores by loops over members, ranks by SciPy: nothing of the package."""
    found = evaluate_lds([_index(folder)], [ONE, TWO], "sum", resamples=20)
    method, expected = HashAttributor(), []
    for instance in (ONE, TWO):
        train, queries = method.encode_train(instance.train), method.encode_queries(instance.queries)
        stored = train.astype(np.float16).astype(np.float64)
        for query, losses in zip(queries.astype(np.float64), instance.losses.astype(np.float64), strict=True):
            sums = [sum(float(query @ stored[row]) for row in instance.subsets.members(j)) for j in range(16)]
            expected.append(stats.spearmanr(sums, -losses).statistic)
            assert expected[-1] == pytest.approx(lds_reference.spearman(sums, (-losses).tolist()))
    np.testing.assert_allclose(found.rows[0].per_query, expected, rtol=1e-12)
    assert found.rows[0].value == pytest.approx(np.mean([np.mean(expected[:8]), np.mean(expected[8:])]))
    assert found.queries[0] == ("a", ONE.queries[0].id)
    assert found.queries[8] == ("b", TWO.queries[0].id)


def test_cost_is_that_of_the_features_as_they_are_stored(folder):
    dense, sparse = (
        evaluate_lds([index], [instance], resamples=20).rows[0].cost
        for index, instance in ((_index(folder), ONE), (Index(folder / "tfidf"), WORDS))
    )
    for name, cost in (("hash", dense), ("tfidf", sparse)):
        files = folder.glob(f"{name}/shards/*/*/*.npy")
        rows = Index(folder / name, HashAttributor() if name == "hash" else None).rows
        assert cost.bytes_per_example == sum(path.stat().st_size for path in files) / rows


def test_the_pool_is_the_method_s_own_unless_another_is_asked_for(folder):
    indexes = [_index(folder, "words"), Index(folder / "tfidf")]
    own = evaluate_lds(indexes, [WORDS], resamples=20)
    found = [(row.method, row.pool, row.temperature) for row in own.rows]
    assert found == [("hash", "attention", 1.0), ("tfidf", "sum", None)]
    flat = evaluate_lds(indexes, [WORDS], "attention", 5.0, resamples=20)
    assert [row.temperature for row in flat.rows] == [5.0, 5.0]
    mean = evaluate_lds(indexes, [WORDS], "order-2", resamples=20)
    assert [row.pool for row in mean.rows] == ["order-2", "order-2"]


def test_temperatures_are_chosen_on_other_instances(folder):
    flat = [world(seed, name, HashAttributor(), "attention", 0.1) for seed, name in ((1, "a"), (2, "b"))]
    plain = evaluate_lds([_index(folder)], flat[1:], resamples=20).rows[0]
    tuned = evaluate_lds([_index(folder)], flat[1:], resamples=20, tune=flat[:1]).rows[0]
    assert tuned.temperature is not None
    assert tuned.temperature > 2
    assert tuned.value > plain.value
    again = evaluate_lds([_index(folder)], [TWO], resamples=20, tune=flat[:1])
    assert again.rows[0].temperature == tuned.temperature
    assert again.facts["tuned_on"] == ["a"]


def test_tuning_leaves_other_pools_alone(folder):
    found = evaluate_lds([Index(folder / "tfidf")], [WORDS], resamples=20, tune=[OTHER_WORDS])
    assert (found.rows[0].pool, found.rows[0].temperature) == ("sum", None)
    assert (found.facts["tuned_on"], found.facts["not_tuned"]) == ([], [found.rows[0].name])


@pytest.mark.parametrize("there", [0, 1, 8])
def test_an_unfinished_second_seed_is_no_error_and_does_not_raise_the_ceiling(folder, there):
    noise = 0.3 * np.random.default_rng(0).standard_normal(ONE.losses.shape)
    by_seed = np.stack([ONE.losses, ONE.losses + noise.astype(np.float32)])
    full = evaluate_lds([_index(folder)], [dataclasses.replace(ONE, by_seed=by_seed)], resamples=20).ceiling
    by_seed[1, :, there:] = np.nan
    instance = dataclasses.replace(ONE, losses=mean_over_seeds(by_seed), by_seed=by_seed)
    found = evaluate_lds([_index(folder)], [instance], resamples=20)
    expected = None if there < 2 else pytest.approx(noise_ceiling(by_seed, 1 / (there / 16 / 2 + (1 - there / 16))))
    assert found.ceiling == expected
    assert found.facts["seeds"] == [2]
    assert there < 2 or found.ceiling < full


def test_labels_of_a_model_that_hardly_moved_are_told(folder):
    base = ONE.losses.mean(axis=1)
    for factor, hardly in ((0.001, True), (1.0, False)):
        losses = (base[:, None] + factor * (ONE.losses - base[:, None]) - factor).astype(np.float32)
        given = dataclasses.replace(ONE, losses=losses, base_losses=base)
        facts = LdsStudy([("hash", _index(folder))], [given]).facts()
        assert ("hardly_moved" in facts) is hardly


def test_copies_of_a_text_are_matched_one_by_one(tmp_path):
    train = make_corpus(6)
    copies = Corpus.from_examples([*train, dataclasses.replace(train[2], id="copy")])
    subsets = Groups.from_lists({"all": range(7), "few": [0, 4]})
    instance = LabelledInstance("a", copies.take([6, 5, 4, 3, 2, 1, 0]), train, subsets, np.zeros((6, 2), np.float32))
    index = build_index(copies, tmp_path / "index", HashAttributor())
    found = RowFinder(index, [instance]).subsets(instance)
    assert found.members(0).tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert found.members(1).tolist() == [2, 6]  # the first copy in the pool is the first in the index
    later = dataclasses.replace(instance, subsets=Groups.from_lists({"later": [4], "both": [4, 0]}))
    both = RowFinder(index, [later]).subsets(later)  # copies that are in no subset count too
    assert [both.members(j).tolist() for j in range(2)] == [[6], [2, 6]]
    plain = build_index(train, tmp_path / "plain", HashAttributor())
    alone = dataclasses.replace(instance, subsets=Groups.from_lists({"later": [4], "again": [4]}))
    assert RowFinder(plain, [alone]).subsets(alone).members(0).tolist() == [2]  # which may lack the first copy
    with pytest.raises(DataError, match='lacks the example "e2" and 0 more .*instance a'):
        RowFinder(plain, [instance]).subsets(instance)


def test_examples_of_no_subset_need_not_be_in_the_index(tmp_path):
    train = make_corpus(12)
    subsets = Groups.from_lists({str(j): [j, j + 2, j + 5] for j in range(4)})
    losses = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)
    instance = LabelledInstance("0", train, make_corpus(2, "q"), subsets, losses)
    index = build_index(train.take(range(9)), tmp_path / "index", HashAttributor())
    assert evaluate_lds([index], [instance], resamples=20).facts["subsets"] == 4
    with pytest.raises(DataError, match=r'lacks the example "e0" and 0 more .*instance 0'):
        evaluate_lds([index.delete([0])], [instance])


def test_removals_are_not_taken_for_random_subsets(folder):
    n = len(ONE.train)
    sets = {"all": range(n), **{str(j): [row for row in range(n) if row != j] for j in range(5)}}
    losses = np.random.default_rng(0).standard_normal((len(ONE.queries), 6)).astype(np.float32)
    removals = dataclasses.replace(ONE, subsets=Groups.from_lists(sets), losses=losses, by_seed=None)
    for judged, tune in (([removals], []), ([TWO], [removals])):
        with pytest.raises(DataError, match="has removals"):
            evaluate_lds([_index(folder)], judged, resamples=20, tune=tune)
    with pytest.raises(DataError, match="has removals"):
        diagnose([removals])


def test_an_instance_without_losses_is_named(folder):
    none = np.full_like(ONE.losses, np.nan)
    bare = dataclasses.replace(ONE, subsets=Groups.from_lists({}), losses=none[:, :0], by_seed=None)
    for instance in (dataclasses.replace(ONE, losses=none, by_seed=None), bare):
        with pytest.raises(DataError, match=f"instance {ONE.name} .*: has no losses"):
            evaluate_lds([_index(folder)], [instance], resamples=20)


def test_groups_unlike_those_trained_on_are_told_of(folder):
    class Trained(HashAttributor):
        trained_groups = TrainedGroups("attention", 1000, 2000)

    index = Index(folder / "hash", Trained())
    caution = evaluate_lds([index], [ONE], resamples=20).rows[0].caution
    assert caution.startswith("These groups have 8 members, but")


def test_an_evaluation_comes_back_from_the_disk_as_it_was(folder, tmp_path):
    by_seed = ONE.losses + np.float32([[[0]], [[0.1]]])
    losses = ONE.losses.copy()
    losses[2, 5] = np.nan
    asked = [dataclasses.replace(ONE, by_seed=by_seed, losses=losses), TWO]
    made = evaluate_lds([_index(folder), _index(folder, "other")], asked, resamples=20, names=["one", "ü"])
    made = dataclasses.replace(made, tags={"role": "tasks"}, command="airrep evaluate")
    back = Evaluation.read(made.save(tmp_path / "run"))
    assert back.to_dict() == json.loads(json.dumps(made.to_dict()))
    assert (back.queries, back.request) == (made.queries, made.request)
    for one, other in zip(back.rows, made.rows, strict=True):
        np.testing.assert_array_equal(one.per_query, other.per_query)
        assert one.difference == other.difference
    assert set(back.matrices) == {"losses/a", "losses/b", "0/a", "0/b", "1/a", "1/b"}
    for name, matrix in made.matrices.items():
        np.testing.assert_array_equal(back.matrices[name], matrix)
    np.testing.assert_array_equal(back.matrices["losses/a"], losses)


def test_the_same_request_finds_what_is_there_and_another_is_told_the_difference(folder, tmp_path):
    out, index = tmp_path / "run", _index(folder)
    evaluate_lds([index], [ONE], resamples=20).save(out)
    before = tree(out)
    found = Evaluation.find(out, LdsStudy([("x", index)], [ONE], resamples=20).request)
    assert isinstance(found, Evaluation)
    changed = dataclasses.replace(ONE, losses=ONE.losses + np.float32(0.5))
    for other, name in (
        (LdsStudy([("x", _index(folder, "other"))], [ONE], resamples=20), "index 1"),
        (LdsStudy([("x", index)], [changed], resamples=20), "instance 1"),
        (LdsStudy([("x", index)], [ONE], "sum", resamples=20), "pool"),
        (LdsStudy([("x", index)], [ONE], temperature=2.0, resamples=20), "temperature"),
        (LdsStudy([("x", index)], [ONE], tune=[TWO], resamples=20), "tuning instance 1"),
        (LdsStudy([("x", index)], [ONE], resamples=30), "resamples"),
    ):
        with pytest.raises(ArtifactError, match=f"holds an evaluation made with another {name} "):
            Evaluation.find(out, other.request)
    with pytest.raises(ArtifactError, match="exists already"):
        evaluate_lds([index], [ONE], resamples=20).save(out)
    assert tree(out) == before
    (out / "scores.safetensors").write_bytes(b"x")
    with pytest.raises(ArtifactError, match="scores.safetensors"):
        Evaluation.find(out, LdsStudy([("x", index)], [ONE], resamples=20).request)


def test_the_subject_is_of_texts_subsets_and_losses_alone(folder):
    def subject(index: Index, instance: LabelledInstance, pool: str = "sum") -> str:
        return evaluate_lds([index], [instance], pool, resamples=20).subject

    base = subject(_index(folder), ONE)
    assert subject(_index(folder, "other"), dataclasses.replace(ONE, name="elsewhere"), "mean") == base
    changed = ONE.losses.copy()
    changed[0, 0] += 1
    assert subject(_index(folder), dataclasses.replace(ONE, losses=changed)) != base
    assert subject(_index(folder), TWO) != base


def test_bad_requests_are_one_line(folder):
    with pytest.raises(ConfigError, match="at least one index and labels"):
        evaluate_lds([], [ONE])
    with pytest.raises(ConfigError, match="a temperature and labels .* to tune it on are both given"):
        evaluate_lds([_index(folder)], [ONE], "attention", 2.0, tune=[TWO])
    with pytest.raises(ConfigError, match="instance a .* are also in --labels\\."):
        evaluate_lds([_index(folder)], [TWO, ONE], tune=[ONE])
    with pytest.raises(ConfigError, match="resamples=0: must be at least 1"):
        evaluate_lds([_index(folder)], [ONE], resamples=0)
    index = _index(folder)
    with pytest.raises(DataError, match="two rows are called 'x'"):
        evaluate_lds([index, index], [ONE], names=["x", "x"])
    assert not index.attributor.encoded  # before any query is
    with pytest.raises(ConfigError, match="evaluate: two instances .* have the name a"):
        evaluate_lds([_index(folder)], [ONE, dataclasses.replace(TWO, name=ONE.name)])
    with pytest.raises(ConfigError, match="pool 'best'"):
        evaluate_lds([_index(folder)], [ONE], "best")
    stranger = planted(9, "elsewhere", n=20, q=3, m=4, size=5)
    with pytest.raises(DataError, match=r"lacks the example .* and 1\d more"):
        evaluate_lds([_index(folder)], [stranger])


def test_the_same_labels_never_count_twice_whatever_they_are_called(folder):
    copy, index = dataclasses.replace(ONE, name="copy/0"), _index(folder)
    with pytest.raises(ConfigError, match="^instances .* a and a have the same examples, subsets and losses"):
        LdsStudy([("x", index)], [ONE, ONE])
    with pytest.raises(ConfigError, match="^instances .* a and copy/0 have the same examples, subsets and losses"):
        evaluate_lds([index], [ONE, TWO, copy])
    with pytest.raises(ConfigError, match=r"instance copy/0 .* are also in --labels \(as a\)"):
        LdsStudy([("x", index)], [ONE], tune=[TWO, copy])
    changed = ONE.losses.copy()
    changed[0, 0] += 1
    other = dataclasses.replace(ONE, losses=changed)  # of the same name, but others
    asked = LdsStudy([("x", index)], [ONE], tune=[other]).request
    assert asked["instance 1"] != asked["tuning instance 1"]


def test_seeds_that_change_nothing_beyond_rounding_tell_no_ceiling(folder):
    rounding = 1e-6 * np.random.default_rng(0).standard_normal((2, *ONE.losses.shape))
    alike = dataclasses.replace(ONE, by_seed=(ONE.losses + rounding).astype(np.float32))
    found = evaluate_lds([_index(folder)], [alike], resamples=20)
    assert (found.ceiling, found.facts["seeds"], found.facts["seeds_alike"]) == (None, [2], [True])
    noisy = TWO.losses + 0.05 * np.random.default_rng(0).standard_normal((2, *TWO.losses.shape))
    other = dataclasses.replace(TWO, by_seed=noisy.astype(np.float32))
    both = evaluate_lds([_index(folder)], [alike, other], resamples=20)
    assert both.ceiling == pytest.approx(noise_ceiling(other.by_seed, averaged=2))
    assert both.facts["seeds_alike"] == [True, False]


def test_subsets_without_any_loss_do_not_count(folder):
    losses = ONE.losses.copy()
    losses[:, [3, 7]] = np.nan
    losses[0, 5] = np.nan
    facts = evaluate_lds([_index(folder)], [dataclasses.replace(ONE, losses=losses), TWO], resamples=20).facts
    assert (facts["subsets"], facts["subsets_left_out"], facts["losses_missing"]) == (14 + 16, 2, 1)


def test_a_sparse_index_is_evaluated_as_a_dense_one(folder):
    method = Index(folder / "tfidf").attributor
    scores = method.encode_queries(WORDS.queries) @ method.encode_train(WORDS.train).T
    groups = np.stack([scores[:, WORDS.subsets.members(j)].sum(axis=1) for j in range(16)], axis=1)
    found = evaluate_lds([Index(folder / "tfidf")], [WORDS], resamples=20).rows[0].value
    assert found == pytest.approx(lds(groups, WORDS.losses, resamples=0).value, abs=0.01)
