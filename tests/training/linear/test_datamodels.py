"""Datamodels on planted worlds where the truth is linear."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from worlds.small_world import tree

from airrep import check_attributor
from airrep.attributors import conformance
from airrep.attributors.methods import make_attributor
from airrep.corpus.corpus import Corpus, Example, read_corpus
from airrep.errors import ArtifactError, ConfigError, DataError
from airrep.evaluation.judging import score_instance
from airrep.evaluation.statistics.metrics import lds
from airrep.index.building import build_index
from airrep.index.index import Index
from airrep.labels.labels import LabelledInstance
from airrep.scoring.groups import Groups
from airrep.sparse import SparseRows
from airrep.training.linear import datamodels
from airrep.training.linear.datamodels import RegressionSettings, RidgePath, r_squared, the_only


def linear_world(n: int = 30, q: int = 12, m: int = 120, noise: float = 0.01, seed: int = 0):
    """An instance whose −losses are sums of planted weights, ``(n, q)``, over the members."""
    generator = np.random.default_rng(seed)
    weights = generator.standard_normal((n, q)) * 0.1
    members = {str(j): generator.choice(n, n // 3, replace=False) for j in range(m)}
    rewards = np.array([weights[rows].sum(axis=0) for rows in members.values()]).T
    losses = 3 - rewards + noise * generator.standard_normal(rewards.shape)
    train, queries = (Corpus.from_examples(_examples(prefix, count)) for prefix, count in (("t", n), ("q", q)))
    subsets = Groups.from_lists(members)
    return LabelledInstance("0", train, queries, subsets, losses.astype(np.float32)), weights


def fit_datamodels(*arguments, **options):
    """Datamodels whose intervals are drawn quickly."""
    return datamodels.fit_datamodels(*arguments, **{"resamples": 40, **options})


def _examples(prefix: str, count: int) -> list[Example]:
    return [Example(f"prompt {prefix}{number}", f"response {number}", f"{prefix}{number}") for number in range(count)]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    instance, weights = linear_world()
    out = tmp_path_factory.mktemp("world") / "dm"
    return instance, weights, fit_datamodels(instance, out)


def test_planted_weights_are_recovered_and_unseen_subsets_ranked(world):
    instance, weights, made = world
    method = make_attributor("datamodels", {"weights": str(made.path)})
    found = method.encode_train(instance.train) @ method.encode_queries(instance.queries).T
    centred = weights - weights.mean(axis=0)  # subsets of one size tell nothing of a constant
    np.testing.assert_allclose(found - found.mean(axis=0), centred, atol=0.02)
    assert made.lds > 0.95
    assert made.report["r_squared"] > 0.95
    fresh, _ = linear_world(noise=0.0, m=50)
    assert lds(score_instance(method, fresh), fresh.losses, resamples=0).value > 0.95


def test_settings_are_given_as_a_dict_too(world, tmp_path):
    made = fit_datamodels(world[0], tmp_path / "dm", {"folds": 4})
    assert made.report == fit_datamodels(world[0], tmp_path / "other", RegressionSettings(folds=4)).report
    with pytest.raises(ConfigError, match="settings: 'alpha' is not a setting here; expected one of folds, seed"):
        fit_datamodels(world[0], tmp_path / "dm", {"alpha": 1})
    kept = json.loads((made.path / "manifest.json").read_text())["request"]["settings"]
    assert kept == {"penalty": "ridge", "folds": 4, "seed": 0}
    assert fit_datamodels(world[0], tmp_path / "dm", {"folds": 4, "penalty": "ridge"}).report == made.report
    with pytest.raises(ConfigError, match="^penalty=lasso: was removed.* Leave penalty out.$"):
        fit_datamodels(world[0], tmp_path / "dm", {"penalty": "lasso"})


def test_the_report_has_intervals_around_its_values(world):
    report = world[2].report
    for value, interval in (("lds", "interval"), ("r_squared", "r_squared_interval")):
        low, high = report[interval]
        assert low <= report[value] <= high
    assert (report["queries"], report["subsets"], report["left_out"]) == (12, 120, 0)


def test_noise_is_not_taken_for_skill(tmp_path):
    instance, _ = linear_world(noise=0.0)
    losses = np.random.default_rng(1).standard_normal(instance.losses.shape).astype(np.float32)
    made = fit_datamodels(dataclasses.replace(instance, losses=losses), tmp_path / "dm")
    low, high = made.report["interval"]
    assert low < 0 < high
    assert abs(made.lds) < 0.1
    assert made.report["r_squared"] < 0.02


@pytest.mark.parametrize("number", [0, 7, 14])
def test_ridge_is_scikit_learn_s(number):
    generator = np.random.default_rng(0)
    design = (generator.random((20, 50)) < 0.3).astype(np.float64)
    targets = generator.standard_normal((3, 20))
    path = RidgePath(SparseRows.of(design))
    chosen = np.full(3, number)
    exact = Ridge(alpha=path.penalties(chosen)[0]).fit(design, targets.T)
    np.testing.assert_allclose(path.weights(targets, chosen), exact.coef_.T, atol=1e-6)
    seen, asked = np.arange(15), np.arange(15, 20)
    part = Ridge(alpha=path.penalties(chosen)[0]).fit(design[seen], targets[:, seen].T)
    slopes = list(path.slopes(seen, asked, targets))[number]
    np.testing.assert_allclose(slopes, (part.predict(design[asked]) - targets[:, seen].mean(axis=1)).T, atol=1e-8)


def test_r_squared_of_the_truth_is_1_and_of_the_mean_0():
    targets = np.random.default_rng(0).standard_normal((5, 30))
    assert r_squared(targets, targets, 50)[0] == 1
    mean = np.broadcast_to(targets.mean(axis=1, keepdims=True), targets.shape)
    assert r_squared(mean, targets, 50)[0] == pytest.approx(0)


def test_an_index_of_datamodels_answers_about_its_own_queries_alone(world, tmp_path):
    instance, weights, made = world
    train = read_corpus(made.path / "train.jsonl")
    assert train == instance.train
    index = build_index(train, tmp_path / "index", "datamodels", settings={"weights": str(made.path)})
    query = read_corpus(made.path / "queries.jsonl")[3]
    assert index.top(query, 1)[0].row == int(weights[:, 3].argmax())
    with pytest.raises(DataError, match=r'^query "new": is not among the examples that .* knows only these. Use'):
        index.top(Example("new", "one", "new"), 1)


def test_an_index_keeps_weights_that_are_far_below_float16(tmp_path):
    """One query's losses vary ten million times less than those of the others."""
    instance, _ = linear_world(n=12, q=4, m=40)
    losses = instance.losses.copy()
    losses[3] = (losses[3] - 3) * 1e-7
    made = fit_datamodels(dataclasses.replace(instance, losses=losses), tmp_path / "dm")
    settings, queries = {"weights": str(made.path)}, instance.queries
    index = build_index(instance.train, tmp_path / "index", "datamodels", settings=settings)
    method = make_attributor("datamodels", settings)
    exact = method.encode_queries(queries) @ method.encode_train(instance.train).T
    assert 0 < np.abs(exact[3]).max() < 1e-6
    for opened in (index, Index(index.path)):
        found = opened.scores(queries)
        for own, wanted in zip(found, exact, strict=True):
            np.testing.assert_allclose(own, wanted, rtol=2e-3, atol=1e-3 * np.abs(wanted).max())


def test_an_index_of_an_earlier_version_has_the_scores_it_had(tmp_path, monkeypatch):
    """Such an index has weights plain, and no state."""
    instance, _ = linear_world(n=12, q=4, m=40)
    made = fit_datamodels(instance, tmp_path / "dm")
    settings = {"weights": str(made.path)}
    with monkeypatch.context() as earlier:
        earlier.setattr("airrep.attributors.datamodels.shift_of", lambda _: 0)
        index = build_index(instance.train, tmp_path / "index", "datamodels", settings=settings)
    assert not (index.path / "state").exists()
    weights = make_attributor("datamodels", settings)
    expected = weights.encode_queries(instance.queries) @ weights.encode_train(instance.train).T
    found = Index(index.path).scores(instance.queries)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-6)


def test_a_training_example_that_took_no_part_is_refused_before_any_work(world, tmp_path):
    more = Corpus.from_examples([*world[0].train, Example("new", "one", "new")])
    with pytest.raises(DataError, match=r'^training example "new": is not among the examples that'):
        build_index(more, tmp_path / "index", "datamodels", settings={"weights": str(world[2].path)})


def test_datamodels_conform(tmp_path):
    corpus = conformance._corpus()
    generator = np.random.default_rng(0)
    subsets = Groups.from_lists({str(j): generator.choice(len(corpus), 4, replace=False) for j in range(12)})
    losses = generator.standard_normal((len(corpus), 12)).astype(np.float32)
    fit_datamodels(LabelledInstance("0", corpus, corpus, subsets, losses), tmp_path / "dm")
    check_attributor(lambda: make_attributor("datamodels", {"weights": str(tmp_path / "dm")}))


def test_equal_texts_share_one_weight_and_examples_of_no_subset_get_none(tmp_path):
    instance, _ = linear_world(n=8, q=3, m=20)
    twin = dataclasses.replace(instance.train[0], id="twin")
    loner = Example("alone", "never drawn", "loner")
    train = Corpus.from_examples([*instance.train, twin, loner])
    made = fit_datamodels(dataclasses.replace(instance, train=train), tmp_path / "dm")
    method = make_attributor("datamodels", {"weights": str(made.path)})
    features = method.encode_train(train)
    assert np.array_equal(features[0], features[8])
    assert not features[9].any()
    assert method.caution.startswith(
        "The weights were fitted to the measured losses of instance 0 (train/query split), so an LDS on these losses"
    )
    assert method.caution.endswith(" Examples that were in no subset, so that their weight is 0: 1 of 10.")


def test_the_same_request_is_answered_at_once_and_another_is_refused(tmp_path):
    instance, _ = linear_world(n=8, q=3, m=20)
    out = tmp_path / "dm"
    made = fit_datamodels(instance, out)
    before = tree(out)
    assert fit_datamodels(instance, out).report == made.report
    with pytest.raises(ArtifactError, match=r"datamodels made with another settings\.seed \(was 0, now 1\)"):
        fit_datamodels(instance, out, RegressionSettings(seed=1))
    assert tree(out) == before
    fit_datamodels(instance, out, RegressionSettings(seed=1), replace=True)
    assert json.loads((out / "manifest.json").read_text())["request"]["settings"]["seed"] == 1


def test_subsets_without_losses_are_left_out(tmp_path):
    instance, _ = linear_world()
    losses = instance.losses.copy()
    losses[:, 5] = np.nan
    made = fit_datamodels(dataclasses.replace(instance, losses=losses), tmp_path / "dm")
    assert (made.report["subsets"], made.report["left_out"]) == (119, 1)
    with pytest.raises(DataError, match="only 0 subsets have a loss for every query"):
        fit_datamodels(dataclasses.replace(instance, losses=np.full_like(losses, np.nan)), tmp_path / "none")


def test_bad_requests_are_one_line(world, tmp_path):
    instance, _ = linear_world(n=8, q=3, m=8)
    for m in (4, 5, 8):
        with pytest.raises(ConfigError, match=f"folds=5: {m} subsets are too few"):
            fit_datamodels(linear_world(n=8, q=3, m=m)[0], tmp_path / "dm")
    with pytest.raises(ConfigError, match=r"^L: these labels .* have 2 instances.*: L#0$"):
        the_only([instance, instance], "L")
    altered = Path(world[2].path) / "weights.npy"
    content = altered.read_bytes()
    altered.write_bytes(content[:-1] + b"x")
    method = make_attributor("datamodels", {"weights": str(world[2].path)})
    with pytest.raises(ArtifactError, match="was altered"):
        method.encode_train(instance.train)
    altered.write_bytes(content)
