"""Exact scores: small changes of large groups, equal scores, the k first of any."""

import numpy as np
import pytest
from reference import pooling, ranking
from worlds.oracle_worlds import cut, integers, sparse_cut

from airrep.scoring.asked import SumAsked, score_blocks
from airrep.scoring.blocks import Block, quantise
from airrep.scoring.group_scores import by_channel, group_scores
from airrep.scoring.groups import Groups
from airrep.scoring.pooling import CHANNELS, Pooling
from airrep.scoring.products import ask
from airrep.scoring.topk import top_k
from airrep.sparse import SparseRows

ROWS, D = 5000, 16


def world(seed: int = 0, common: float = 40.0) -> tuple[np.ndarray, np.ndarray]:
    """Queries, and features whose scores share a large common part."""
    generator = np.random.default_rng(seed)
    queries = generator.standard_normal((3, D)).astype(np.float32)
    features = generator.standard_normal((ROWS, D)) * 0.01
    features[:, 0], queries[:, 0] = common, 1
    return queries, features.astype(np.float16)


def blocks_of(features: np.ndarray, size: int = 1024) -> list[Block]:
    return [Block(start, features[start : start + size]) for start in range(0, len(features), size)]


def reference(scores: np.ndarray, pool: str, temperature: float = 1.0) -> np.ndarray:
    """By the definition, in extended precision."""
    wide = scores.astype(np.longdouble)
    if pool == "sum":
        return wide.sum(axis=1)
    size = 0 * wide if pool == "mean" else (wide if pool == "signed-attention" else abs(wide)) / temperature
    weights = np.exp(size - size.max(axis=1, keepdims=True))
    return (weights * wide).sum(axis=1) / weights.sum(axis=1)


POOLS = ["sum", "mean", "attention", "signed-attention"]


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("pool", POOLS)
def test_the_change_by_one_of_many_is_right(pool: str, kind: str) -> None:
    queries, features = world()
    scores = queries.astype(np.float64) @ features.astype(np.float64).T
    best = int(scores[0].argmax())
    kept = np.delete(np.arange(ROWS), best)
    groups = Groups.from_lists({"before": np.arange(ROWS), "after": kept})
    blocks, asked = blocks_of(features), queries
    if kind == "sparse":
        blocks = [Block(one.start, SparseRows.of(one.features.astype(np.float32))) for one in blocks]
        asked = SparseRows.of(queries)
    (found,) = by_channel(ask(asked, blocks), groups, Pooling.parse(pool), "all", exact=True).values()
    expected = reference(scores[:, kept], pool) - reference(scores, pool)
    np.testing.assert_allclose(found[:, 1] - found[:, 0], expected.astype(np.float64), rtol=1e-6, atol=1e-13)


def test_weighted_channels_change_by_their_members_too() -> None:
    queries, features = world(1)
    thin = ask(SparseRows.of(queries[:, :4]), [Block(0, SparseRows.of(features[:, :4].astype(np.float32)))])
    parts = {
        "dense": ask(queries, [Block(0, features)], Pooling("attention")),
        "sparse": thin.pooled_by(Pooling("mean")),
    }
    weights = np.array([[2.0, 1.0], [0.5, 1.0], [0.25, 3.0]])
    kept = np.arange(1, ROWS)
    groups = Groups.from_lists({"before": np.arange(ROWS), "after": kept})
    found = by_channel(SumAsked(parts, weights, CHANNELS), groups, CHANNELS, "sum", exact=True)
    assert list(found) == ["dense", "sparse"]
    for place, (name, (pool, width)) in enumerate({"dense": ("attention", D), "sparse": ("mean", 4)}.items()):
        scores = queries[:, :width].astype(np.float64) @ features[:, :width].astype(np.float64).T
        expected = np.array(reference(scores[:, kept], pool) - reference(scores, pool), np.float64)
        change = found[name][:, 1] - found[name][:, 0]
        np.testing.assert_allclose(change, expected * weights[:, place], rtol=1e-5, atol=1e-13)


@pytest.mark.parametrize("pool", ["attention", "signed-attention"])
@pytest.mark.parametrize(("scale", "temperature"), [(1, 1.0), (20, 0.1), (300, 1.0), (1000, 1.0), (5000, 1.0)])
def test_attention_over_long_features_that_are_nearly_orthogonal(pool: str, scale: float, temperature: float) -> None:
    """Their scores are small sums of large numbers, of which float32 would leave little."""
    generator = np.random.default_rng(3)
    queries, features = (generator.standard_normal((n, 16)) * scale for n in (4, 300))
    queries[:, 8:], features[:, :8] = 0, 0
    queries[:, 0], features[:, 0] = scale, generator.standard_normal(300) * 10 / scale
    features[:, 1:8] = scale  # cancelled by the queries' own
    queries[:, 7] = -queries[:, 1:7].sum(axis=1)
    queries, features = queries.astype(np.float32), features.astype(np.float16)
    groups = Groups.from_lists({"a": np.arange(0, 300, 2), "b": np.arange(300)})
    found = group_scores(ask(queries, blocks_of(features, 64)), groups, pool, temperature=temperature)
    scores = queries.astype(np.float64) @ features.astype(np.float64).T
    for column, some in enumerate((scores[:, ::2], scores)):
        expected = np.array(reference(some, pool, temperature), np.float64)
        np.testing.assert_allclose(found[:, column], expected, rtol=2e-4, atol=2e-4 * np.abs(some).max())


@pytest.mark.parametrize("pool", ["attention", "signed-attention"])
@pytest.mark.parametrize("value", [0.1, -0.7, 33.3, 700.0])
def test_attention_over_many_equal_scores_stays_inside_their_range(pool: str, value: float) -> None:
    rows = 100_000
    features = np.full((rows, 2), 1, np.float16)
    queries = np.array([[value, value / 3], [-value, 1.3 * value]], np.float32)
    exact = queries.astype(np.float64).sum(axis=1).astype(np.float32)
    found = group_scores(ask(queries, blocks_of(features, 4096)), Groups.from_lists({"all": np.arange(rows)}), pool)[
        :, 0
    ]
    single = group_scores(ask(queries, blocks_of(features, 4096)), Groups.from_lists({"one": np.arange(1)}), pool)[:, 0]
    np.testing.assert_array_equal(found, single)
    np.testing.assert_allclose(found, exact, rtol=2e-7)


@pytest.mark.parametrize("block_rows", [1, 5, 1000])
@pytest.mark.parametrize("kind", ["float16", "float32", "codes", "sparse"])
def test_score_blocks(kind: str, block_rows: int) -> None:
    queries, train = integers(20, 3, 9), integers(21, 31, 9)
    given: np.ndarray | SparseRows = queries
    if kind == "sparse":
        blocks, given = sparse_cut(train, (1, 12)), SparseRows.of(queries)
    else:
        blocks = cut(train, (1, 12), kind == "codes", np.float32 if kind == "float32" else np.float16)
    found = np.full((3, 31), np.nan)
    for start, scores in score_blocks(ask(given, blocks), block_rows=block_rows):
        assert scores.dtype == np.float32
        assert np.isnan(found[:, start : start + scores.shape[1]]).all()
        found[:, start : start + scores.shape[1]] = scores
    np.testing.assert_array_equal(found, pooling.influence_scores(queries, train))


@pytest.mark.parametrize("codes", [False, True])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("d", [3, 48, 129])
def test_equal_vectors_tie_wherever_they_lie(d: int, dtype: type, codes: bool) -> None:
    """Equal rows have one score; a last bit that depends on the place in a block would break their order."""
    generator = np.random.default_rng(25)
    distinct = generator.normal(size=(40, d)).astype(dtype)
    train = distinct[generator.permutation(np.repeat(np.arange(40), 13))]
    queries = generator.normal(size=(9, d)).astype(np.float32)
    scores = pooling.influence_scores(queries, train)
    rows, values = ranking.top_k(scores, 100)
    for cuts in ((), (1, 64, 70, 333), tuple(range(17, 520, 17))):
        blocks = cut(train, cuts, codes, dtype)
        found = top_k(ask(queries, blocks), 100)
        np.testing.assert_array_equal(found.rows, rows)
        np.testing.assert_allclose(found.scores, values, rtol=1e-5, atol=1e-5)
        alone = [top_k(ask(queries[i : i + 1], blocks), 100).rows[0] for i in range(9)]
        np.testing.assert_array_equal(alone, rows)


@pytest.mark.parametrize("least", [False, True])
@pytest.mark.parametrize("outlier", [0.0, 6e4])
def test_exact_where_int8_says_little(outlier: float, least: bool) -> None:
    """One huge feature that no query looks at takes all the resolution of a row's int8 codes."""
    generator = np.random.default_rng(26)
    train = generator.integers(-9, 10, (3000, 12)).astype(np.float16)
    train[::2, 0] = outlier
    train[1::97] = 0.0
    queries = generator.integers(-9, 10, (4, 12)).astype(np.float32)
    queries[:, 0] = 0.0
    rows, values = ranking.top_k(pooling.influence_scores(queries, train), 25, least=least)
    found = top_k(ask(queries, cut(train, (700, 2999), codes=True)), 25, least=least)
    np.testing.assert_array_equal(found.rows, rows)
    np.testing.assert_array_equal(found.scores, values)


@pytest.mark.parametrize("least", [False, True])
def test_top_k_of_sparse_features(least: bool) -> None:
    """Most scores are exactly 0, and tie by row."""
    train, queries = integers(28, 90, 40, 4), integers(29, 5, 40, 4)
    train[np.random.default_rng(30).random(train.shape) < 0.97] = 0.0
    queries[np.random.default_rng(31).random(queries.shape) < 0.8] = 0.0
    queries[1] = 0.0
    scores = pooling.influence_scores(queries, train)
    for k in (1, 30, 90):
        rows, values = ranking.top_k(scores, k, least=least)
        found = top_k(ask(SparseRows.of(queries), sparse_cut(train, (4, 5, 77))), k, least=least)
        np.testing.assert_array_equal(found.rows, rows)
        np.testing.assert_array_equal(found.scores, values)


def test_int8_codes_are_within_half_a_step() -> None:
    train = np.array([[0.0, 0.0], [65504.0, -65504.0], [6e-8, 0.0], [1.0, -0.3], [127.0, 126.0]], dtype=np.float16)
    codes, scales = quantise(train)
    assert (codes.dtype, scales.dtype) == (np.int8, np.float32)
    assert np.isfinite(scales).all()
    error = np.abs(codes.astype(np.float64) * scales[:, None] - train.astype(np.float64))
    assert np.all(error <= scales[:, None] * (0.5 + 1e-5))
