"""Every pair of rows, tested."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from worlds.made_evaluations import WORLDS, Truth, evaluation, over_queries, world
from worlds.small_world import tree

from airrep.errors import ArtifactError, ConfigError, DataError
from airrep.evaluation.comparison import Comparison, compare_evaluations, comparison_request, holm
from airrep.evaluation.judging import compare_held_out
from airrep.evaluation.result import Evaluation
from airrep.evaluation.statistics.means import paired_ratio
from airrep.evaluation.statistics.metrics import paired


@pytest.mark.parametrize("measure", ["lds", "loo"])
def test_pairs_over_subsets_are_the_paired_differences_of_the_matrices(measure):
    runs = [("x", evaluation(WORLDS, ["bad", "good"], measure)), ("y", evaluation(WORLDS, ["middling"], measure))]
    found = compare_evaluations(runs, resamples=60)
    assert [row.name for row in found.rows] == ["good", "middling", "bad"]
    assert [(pair.one, pair.other) for pair in found.pairs] == [
        ("good", "middling"), ("good", "bad"), ("middling", "bad"),
    ]  # fmt: skip
    for pair in found.pairs:
        one, other = ([scores[name] for _, scores in WORLDS] for name in (pair.one, pair.other))
        expected = compare_held_out(one, other, [truth for truth, _ in WORLDS], resamples=60)
        assert pair.difference == pytest.approx(expected.value)
        assert pair.interval == pytest.approx(tuple(expected.interval))
        assert pair.p_value == pytest.approx(expected.p_value)
    assert [pair.adjusted for pair in found.pairs] == holm([pair.p_value for pair in found.pairs])
    assert found.pairs[1].p_value < 0.01
    assert found.pairs[1].difference > 0


def test_a_ratio_knows_what_its_values_share():
    run = evaluation(WORLDS, ["good", "middling"])
    rows = tuple(dataclasses.replace(row, interval=(row.value - 0.1, row.value + 0.1)) for row in run.rows)
    found = compare_evaluations([("x", dataclasses.replace(run, rows=rows))], resamples=60)
    (pair,), (good, middling) = found.pairs, found.rows
    half = (pair.interval[1] - pair.interval[0]) / 2
    assert f"{len(run.queries)} queries, 2 rows, the best" in run.summary()
    assert "2 rows, 1 pair, the best" in found.summary()
    assert (pair.ratio, pair.ratio_interval) == paired_ratio((good.value, 0.1), (middling.value, 0.1), half)
    assert compare_evaluations([("x", run)], resamples=60).pairs[0].ratio is None  # the second may be 0


def test_only_pairs_with_one_row_can_be_asked_for():
    runs = [("x", evaluation(WORLDS, ["bad", "good", "middling"]))]
    found = compare_evaluations(runs, "middling", resamples=20)
    assert [(pair.one, pair.other) for pair in found.pairs] == [("good", "middling"), ("bad", "middling")]
    assert found.pairs[1].difference < 0
    with pytest.raises(ConfigError, match="--to best: no row has this name"):
        compare_evaluations(runs, "best")


def test_rows_of_one_name_are_told_apart_by_their_runs():
    runs = [("x", evaluation(WORLDS, ["good", "bad"])), ("y", evaluation(WORLDS, ["good"]))]
    found = compare_evaluations(runs, resamples=20)
    assert [row.name for row in found.rows] == ["good (x)", "good (y)", "bad"]
    assert (found.pairs[0].difference, found.pairs[0].p_value) == (0, 1)


def test_instances_are_paired_in_their_order_whatever_their_names():
    renamed = [(Truth(name, truth.losses), scores) for name, (truth, scores) in zip("zy", WORLDS, strict=True)]
    runs = [("x", evaluation(WORLDS, ["good"])), ("y", evaluation(renamed, ["bad"]))]
    plain = compare_evaluations([("x", evaluation(WORLDS, ["good", "bad"]))], resamples=20)
    assert compare_evaluations(runs, resamples=20).pairs == plain.pairs


def test_means_over_queries_are_compared_query_by_query():
    generator = np.random.default_rng(0)
    right = (generator.random(200) < 0.5).astype(float)
    better = np.where(generator.random(200) < 0.2, 1.0, right)
    better[3] = np.nan
    found = compare_evaluations([("x", over_queries({"plain": right, "better": better}))])
    (pair,) = found.pairs
    gaps = np.delete(better - right, 3)
    assert pair.one == "better"
    assert pair.difference == pytest.approx(gaps.mean())
    half = (pair.interval[1] - pair.interval[0]) / 2
    assert half == pytest.approx(1.96 * gaps.std(ddof=1) / np.sqrt(199), rel=0.05)
    assert pair.p_value < 0.001


def test_tasks_are_drawn_whole_where_the_evaluation_has_some():
    """One task that is far better says little about tasks, however many queries it has."""
    tasks = [f"t{x // 40}" for x in range(200)]
    base = np.full(200, 0.5)
    better = base + np.where(np.arange(200) < 40, 0.3, 0.0) + 0.001 * np.random.default_rng(0).standard_normal(200)
    by_task = compare_evaluations([("x", over_queries({"a": base, "b": better}, tasks))]).pairs[0]
    plain = compare_evaluations([("x", over_queries({"a": base, "b": better}))]).pairs[0]
    assert by_task.difference == pytest.approx(plain.difference)
    assert plain.p_value < 0.01
    assert by_task.p_value > 0.1


def test_holm_is_the_textbook_procedure():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([0.02]) == [0.02]
    generator = np.random.default_rng(0)
    for _ in range(50):
        p = generator.random(6) ** 3
        order = sorted(range(6), key=lambda k: p[k])
        rejected: set[int] = set()
        for rank, k in enumerate(order):
            if p[k] > 0.05 / (6 - rank):
                break
            rejected.add(k)
        assert {k for k, adjusted in enumerate(holm(p.tolist())) if adjusted <= 0.05} == rejected


def test_runs_that_cannot_be_paired_are_refused():
    one, other = evaluation(WORLDS, ["good"]), evaluation(WORLDS, ["bad"])
    with pytest.raises(ConfigError, match="the evaluations hold only one result"):
        compare_evaluations([("x", one)])
    with pytest.raises(ConfigError, match="compare: x is given twice"):
        compare_evaluations([("x", one), ("x", other)])
    with pytest.raises(DataError, match="^y: measures loo, but x measures lds"):
        compare_evaluations([("x", one), ("y", evaluation(WORLDS, ["bad"], "loo"))])
    elsewhere = dataclasses.replace(other, subject="elsewhere")
    with pytest.raises(DataError, match=r"^y and x cannot be compared: .* \(fingerprints elsewhere and same\)"):
        compare_evaluations([("x", one), ("y", elsewhere)])
    with pytest.raises(ArtifactError, match="^y: lacks the matrix 0/1"):
        compare_evaluations([("x", one), ("y", dataclasses.replace(other, matrices={}))])


def test_a_comparison_comes_back_from_the_disk_and_is_found_by_its_request(tmp_path: Path):
    runs = [("x", evaluation(WORLDS, ["bad", "good"]))]
    made = compare_evaluations(runs, resamples=20, command="airrep compare x")
    made.save(tmp_path / "run")
    assert Comparison.read(tmp_path / "run") == made
    assert json.loads((tmp_path / "run" / "result.json").read_text()) == made.to_dict()
    before = tree(tmp_path / "run")
    assert Comparison.find(tmp_path / "nowhere", made.request) is None
    assert isinstance(Comparison.find(tmp_path / "run", comparison_request(runs, resamples=20)), Comparison)
    with pytest.raises(ArtifactError, match="holds a comparison made with another to "):
        Comparison.find(tmp_path / "run", comparison_request(runs, "good", 20))
    with pytest.raises(ArtifactError, match="exists already"):
        made.save(tmp_path / "run")
    assert tree(tmp_path / "run") == before


def test_a_run_replaced_by_one_of_other_values_is_another_comparison(tmp_path: Path):
    """Such as one that was finished without some fine-tunes, and has them now; its own request is the same."""
    values = {"a": np.arange(6.0), "b": np.arange(6.0) ** 2}
    lacking = over_queries({**values, "b": np.where(np.arange(6) == 2, np.nan, values["b"])})
    whole = over_queries(values)
    assert lacking.request == whole.request
    compare_evaluations([("x", lacking)], resamples=20).save(tmp_path / "run")
    assert Comparison.find(tmp_path / "run", comparison_request([("x", lacking)], resamples=20)) is not None
    with pytest.raises(ArtifactError, match="holds a comparison made with another run 1"):
        Comparison.find(tmp_path / "run", comparison_request([("x", whole)], resamples=20))
    one, other = evaluation(WORLDS, ["bad", "good"]), evaluation(WORLDS, ["bad", "good"])
    assert comparison_request([("x", one)]) == comparison_request([("x", other)])
    changed = {**other.matrices, "1/1": other.matrices["1/1"] * np.float32(1.01)}
    other = dataclasses.replace(other, matrices=changed)
    assert comparison_request([("x", one)]) != comparison_request([("x", other)])
    one.save(tmp_path / "stored")
    stored = Evaluation.read(tmp_path / "stored")
    assert comparison_request([("x", stored)]) == comparison_request([("x", one)])


@pytest.mark.slow
@pytest.mark.parametrize(("instances", "q", "m"), [(1, 15, 20), (2, 10, 16)])
def test_equal_methods_get_small_p_values_as_rarely_as_they_should(instances: int, q: int, m: int):
    """The methods differ by chance alone, in queries, subsets and cells; two instances are independent."""
    p_values, count = [], 80
    for number in range(count):
        worlds = [world(1000 * number + i, {"one": 1.0, "other": 1.0}, q, m) for i in range(instances)]
        run = evaluation(worlds, ["one", "other"])
        p_values.append(compare_evaluations([("x", run)], resamples=40).pairs[0].p_value)
    for level in (0.05, 0.2, 0.5):
        low, high = stats.binom.interval(0.995, count, level)
        assert low <= np.sum(np.array(p_values) < level) <= high


def test_a_paired_p_value_may_be_smaller_than_the_draws_can_count():
    """So that it survives the correction for many pairs."""
    truth, scores = world(3, {"one": 5.0, "other": 0.0}, 60, 80)
    assert paired(scores["one"], scores["other"], truth.losses, resamples=50).p_value < 1e-4
