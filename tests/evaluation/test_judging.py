"""Group scores and LDS of methods on labelled instances."""

import dataclasses

import numpy as np
import pytest
from reference import group_influence
from reference import pooling as reference
from scipy import stats
from worlds.small_world import HashAttributor
from worlds.tiny_bert import tiny_checkpoint
from worlds.training_world import planted

from airrep.attributors.methods import make_attributor
from airrep.encoder.networks.packed import PackedEncoder
from airrep.evaluation.judging import (
    compact_subsets,
    compare_held_out,
    difference_over,
    held_out_lds,
    score_instance,
    shared_queries,
)
from airrep.evaluation.statistics.bootstrap import Uncertainty
from airrep.evaluation.statistics.metrics import Interval, PairedResult, lds
from airrep.scoring.groups import Groups

INSTANCE = planted(1, "a", n=30, q=6, m=8, size=5)


@pytest.mark.parametrize(("pool", "temperature"), [("sum", 1.0), ("mean", 1.0), ("attention", 0.5)])
def test_an_attributor_s_group_scores_are_those_of_the_loops(pool: str, temperature: float) -> None:
    method = HashAttributor()
    found = score_instance(method, INSTANCE, pool, temperature)
    members = [INSTANCE.subsets.members(j).tolist() for j in range(len(INSTANCE.subsets))]
    train, queries = method.encode_train(INSTANCE.train), method.encode_queries(INSTANCE.queries)
    np.testing.assert_allclose(
        found, reference.group_scores(queries, train, members, pool, temperature), rtol=2e-5, atol=1e-5
    )


def test_order_k_removes_from_the_whole_train_pool() -> None:
    """Not only from the examples that some subset has."""
    method = HashAttributor()
    members = [INSTANCE.subsets.members(j).tolist() for j in range(len(INSTANCE.subsets))]
    train, queries = method.encode_train(INSTANCE.train), method.encode_queries(INSTANCE.queries)
    expected = group_influence.group_scores(queries, train, members, len(INSTANCE.train), 2)
    np.testing.assert_allclose(score_instance(method, INSTANCE, "order-2"), expected, rtol=1e-5)


def test_examples_that_are_in_no_subset_are_not_encoded() -> None:
    method = HashAttributor()
    score_instance(method, INSTANCE)
    used = {INSTANCE.train[int(row)].id for row in INSTANCE.subsets.rows}
    assert len(used) < len(INSTANCE.train)
    assert set(method.encoded) == used | set(INSTANCE.queries.ids.to_pylist())


def test_encoders_and_sparse_methods_are_scored_alike() -> None:
    encoder = PackedEncoder("tiny", tiny_checkpoint(), "float32", "cpu", 512)
    assert score_instance(encoder, INSTANCE).shape == (6, 8)
    tfidf = score_instance(make_attributor("tfidf"), INSTANCE, "attention", 0.1)
    assert tfidf.shape == (6, 8)
    assert np.isfinite(tfidf).all()


def test_compact_keeps_the_members() -> None:
    subsets = Groups.from_lists({"x": [7, 3], "y": [9, 7]})
    used, places = compact_subsets(subsets)
    assert used.tolist() == [3, 7, 9]
    assert [used[places.members(j)].tolist() for j in range(2)] == [[3, 7], [7, 9]]


def test_lds_of_one_instance_is_the_metric_s_and_of_several_their_mean() -> None:
    other = planted(2, "b", n=30, q=6, m=8, size=5)
    scores = [score_instance(HashAttributor(), one) for one in (INSTANCE, other)]
    alone = held_out_lds(scores[:1], [INSTANCE], resamples=50)
    expected = lds(scores[0], INSTANCE.losses, resamples=50)
    assert alone.value == pytest.approx(expected.value)
    assert tuple(alone.interval) == pytest.approx(tuple(expected.interval))
    both = held_out_lds(scores, [INSTANCE, other], resamples=50)
    assert both.value == pytest.approx(np.mean(list(both.by_instance.values())))
    assert (both.queries, both.subsets) == (12, 16)
    widths = [held_out_lds([s], [i], resamples=50).interval for s, i in zip(scores, [INSTANCE, other], strict=True)]
    assert both.interval.high - both.interval.low < max(w.high - w.low for w in widths)


def test_a_perfect_method_beats_a_random_one_in_a_paired_comparison() -> None:
    found = compare_held_out([-INSTANCE.losses], [score_instance(HashAttributor(), INSTANCE)], [INSTANCE], resamples=50)
    assert found.value > 0.5
    assert found.interval.low > 0
    assert found.p_value < 0.01
    assert set(found.to_dict()) == {"difference", "interval", "p_value"}


def _paired(variance: float, of_queries: float, freedom: float = 20.0) -> PairedResult:
    half = 1.96 * variance**0.5
    unsure = Uncertainty(variance, freedom, of_queries, 10)
    return PairedResult(0.1, Interval(0.1 - half, 0.1 + half), 0.0, unsure, 0.3, 0.2, 10, 0, 0.95)


@pytest.mark.parametrize(
    ("share", "variance"),
    [(None, 0.01 / 2), (0.0, 0.01 / 2), (0.5, (0.02 + 2 * 0.5 * 0.006) / 4), (1.0, (0.02 + 2 * 0.006) / 4)],
)
def test_what_comes_from_shared_queries_is_not_averaged_out(share: float | None, variance: float) -> None:
    """Var((a + b) / 2) = (Var a + Var b + 2 Cov) / 4, and of the variance 0.006 of 0.01 comes from the queries."""
    shared = None if share is None else np.array([[1.0, share], [share, 1.0]])
    found = difference_over([_paired(0.01, 0.006)] * 2, shared=shared)
    assert found.value == pytest.approx(0.1)
    half = 1.96 * variance**0.5
    assert tuple(found.interval) == pytest.approx((0.1 - half, 0.1 + half))
    freedom = 40 if share is None else 20
    assert found.p_value == pytest.approx(2 * stats.t.sf(0.1 / variance**0.5, freedom))


def test_intervals_over_instances_of_the_same_queries_hold_as_often_as_they_say() -> None:
    """Each query has a correlation of its own; five draws of subsets tell it better, but other queries not at all."""
    q, m, covered, independent = 12, 25, 0, 0
    for seed in range(40):
        chance = np.random.default_rng(seed)
        skill = np.clip(chance.normal(0.5, 0.3, size=(q, 1)), -0.99, 0.99)
        instances, scores = [], []
        for number in range(5):
            losses = chance.normal(size=(q, m))
            found = -skill * losses + np.sqrt(1 - skill**2) * chance.normal(size=(q, m))
            instances.append(_Bare(f"{number}", [f"query {x}" for x in range(q)], losses.astype(np.float32)))
            scores.append(found.astype(np.float32))
        truth = float(np.mean(6 / np.pi * np.arcsin(_clipped_normal() / 2)))
        found = held_out_lds(scores, instances, resamples=30)
        covered += found.interval.low <= truth <= found.interval.high
        alone = [dataclasses.replace(one, query_texts=[f"{one.name} {x}" for x in range(q)]) for one in instances]
        apart = held_out_lds(scores, alone, resamples=30)
        independent += apart.interval.low <= truth <= apart.interval.high
    assert covered >= 36
    assert independent <= 34


@dataclasses.dataclass
class _Bare:
    name: str
    query_texts: list[str]
    losses: np.ndarray


def _clipped_normal() -> np.ndarray:
    return np.clip(np.random.default_rng(0).normal(0.5, 0.3, size=100_000), -0.99, 0.99)


def test_instances_without_a_query_in_common_share_none() -> None:
    one, other = _Bare("a", ["x", "y"], np.zeros((2, 2))), _Bare("b", ["z"], np.zeros((1, 2)))
    assert shared_queries([one, other]) is None
    found = shared_queries([one, dataclasses.replace(other, query_texts=["y"]), other])
    assert found is not None
    assert found == pytest.approx(np.array([[1, 0.5**0.5, 0], [0.5**0.5, 1, 0], [0, 0, 1]]))
