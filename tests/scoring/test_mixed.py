"""Dense and sparse features side by side: against sums written out in float64."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airrep.arrays import MixedFeatures, filled_rows, numbers_of, stack_rows
from airrep.errors import ConfigError, DataError
from airrep.scoring.blocks import Block, block_of, error_bounds, quantise
from airrep.scoring.columns import Postings, select_columns
from airrep.scoring.group_scores import group_scores
from airrep.scoring.groups import Groups
from airrep.scoring.min_rank import min_rank
from airrep.scoring.pooling import ChannelPool, ChannelPooling, Pooling, pool_scores
from airrep.scoring.scores import score_all, score_blocks
from airrep.scoring.topk import top_k
from airrep.sparse import SparseRows

WIDE, N, Q = 2**24, 90, 9
"""More columns than are multiplied whole."""
FIRST, SECOND = (0, 20), (20, 32)
"""Dense columns of two channels."""
WORDS, TERMS, COUNTS = (0, WIDE), (WIDE, WIDE + 300), (WIDE + 300, WIDE + 700)
"""Sparse columns of three channels."""


def numbers(generator: np.random.Generator, rows: int, share: float = 0.2) -> np.ndarray:
    """Sparse numbers as a dense table of the few columns that are ever filled."""
    return np.where(generator.random((rows, 60)) < share, np.abs(generator.normal(size=(rows, 60))), 0.0)


PLACES = np.sort(
    np.concatenate(
        [
            np.random.default_rng(0).choice(WIDE, 20, replace=False),
            WIDE + np.arange(0, 200, 10),
            [WIDE + 300],
            WIDE + 300 + 20 * np.arange(1, 20),
        ]
    )
)
"""The 60 columns that are filled: 20 of each channel; the first of the counts is the weight."""


def mixed(seed: int, rows: int, *, queries: bool = False) -> MixedFeatures:
    generator = np.random.default_rng(seed)
    table = numbers(generator, rows, 0.5 if queries else 0.3)
    table[:, 40] = 0 if queries else generator.integers(0, 5, rows)
    table = table.astype(np.float16).astype(np.float32)
    row, column = np.nonzero(table)
    found = SparseRows.from_cells(row, PLACES[column], table[row, column], (rows, COUNTS[1]))
    found += SparseRows.empty(rows, COUNTS[1])  # columns ascend
    dense = generator.normal(size=(rows, 32)).astype(np.float16).astype(np.float32)
    return MixedFeatures(dense, found)


TRAIN, QUERIES = mixed(1, N), mixed(2, Q, queries=True)


def small(features: MixedFeatures) -> np.ndarray:
    """The filled sparse columns, dense."""
    return select_columns(features.sparse, PLACES).toarray().astype(np.float64)


def parts(queries: MixedFeatures = QUERIES, train: MixedFeatures = TRAIN) -> dict[str, np.ndarray]:
    """Scores of each channel by itself, in float64."""
    q, t = small(queries), small(train)
    dense = {
        name: queries.dense[:, a:b].astype(np.float64) @ train.dense[:, a:b].astype(np.float64).T
        for name, (a, b) in (("first", FIRST), ("second", SECOND))
    }
    spans = {"words": slice(0, 20), "terms": slice(20, 40), "counts": slice(40, 60)}
    return dense | {name: q[:, span] @ t[:, span].T for name, span in spans.items()}


def single(found: dict[str, np.ndarray]) -> np.ndarray:
    """Scores of examples: sums over channels."""
    return np.sum(list(found.values()), axis=0)


def blocks(cuts: tuple[int, ...] = (), *, postings: bool = True, codes: bool = True) -> list[Block]:
    made = []
    for a, b in pairwise([0, *cuts, N]):
        dense, rows = TRAIN.dense[a:b].astype(np.float16), TRAIN.sparse[a:b]
        block = Block(a, dense, sparse=Postings.of(rows) if postings else rows)
        if codes:
            pair = quantise(dense)
            block = block._replace(codes=pair[0], scales=pair[1], bounds=error_bounds(dense, *pair))
        made.append(block)
    return made


WAYS = [
    {"postings": postings, "codes": codes, "cuts": cuts}
    for postings in (True, False)
    for codes in (True, False)
    for cuts in ((), (1, 40), (30, 31, 32))
]


@pytest.mark.parametrize("least", [False, True])
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_the_first_are_those_of_the_summed_scores(way: dict, least: bool) -> None:
    wanted = single(parts())
    keep = np.random.default_rng(3).random(N) < 0.7
    for mask in (None, keep):
        allowed = np.arange(N) if mask is None else np.flatnonzero(mask)
        found = top_k(QUERIES, blocks(**way), 7, keep=mask, least=least)
        rounded = wanted.astype(np.float32)[:, allowed] * (1 if least else -1)
        np.testing.assert_array_equal(found.rows, allowed[np.argsort(rounded, axis=1, kind="stable")[:, :7]])
        np.testing.assert_allclose(found.scores, np.take_along_axis(wanted, found.rows, 1), rtol=1e-6)


def test_neither_blocks_nor_batches_change_a_bit_of_a_score() -> None:
    whole = top_k(QUERIES, blocks(), N)
    for way in WAYS:
        alone = [top_k(QUERIES[[q]], blocks(**way), N) for q in range(Q)]
        np.testing.assert_array_equal(np.concatenate([one.scores for one in alone]), whole.scores)
        np.testing.assert_array_equal(np.concatenate([one.rows for one in alone]), whole.rows)


@pytest.mark.parametrize("way", WAYS[::3], ids=str)
def test_all_scores_are_streamed(way: dict) -> None:
    pieces = [scores for _, scores in score_blocks(QUERIES, blocks(**way), block_rows=13)]
    np.testing.assert_allclose(np.concatenate(pieces, axis=1), single(parts()), rtol=2e-5, atol=1e-4)
    np.testing.assert_allclose(score_all(QUERIES, TRAIN), single(parts()), rtol=2e-5, atol=1e-4)


MEMBERS = {"all": range(N), "few": [3, 40, 41, 89], "one": [50], "half": range(0, N, 2)}
GROUPS = Groups.from_lists(MEMBERS)


def gains(members: list[int]) -> np.ndarray:
    """The pool of n-gram counts, written out."""
    q, t = small(QUERIES)[:, 41:60], small(TRAIN)[members]
    weights, raised = t[:, 40], np.expm1(t[:, 41:60])
    below = weights.sum()
    found = (weights[:, None] * raised).sum(axis=0) / below if below else np.zeros(19)
    return q @ np.log1p(found)


@pytest.mark.parametrize("way", WAYS[::2], ids=str)
def test_each_channel_is_pooled_in_its_own_way_and_added(way: dict) -> None:
    pools = {
        "first": Pooling("attention", temperature=0.7),
        "second": Pooling("mean"),
        "words": Pooling("signed-attention", temperature=2.0),
        "terms": Pooling("sum"),
        "counts": Pooling("ngram-lm"),
    }
    spans = {"first": FIRST, "second": SECOND, "words": WORDS, "terms": TERMS, "counts": COUNTS}
    pooling = ChannelPooling(
        tuple(ChannelPool(name, pool, name in ("first", "second"), *spans[name]) for name, pool in pools.items())
    )
    found, scores = group_scores(QUERIES, blocks(**way), GROUPS, pooling), parts()
    for place, members in enumerate(map(list, MEMBERS.values())):
        wanted = gains(members)
        for name, pool in pools.items():
            if name != "counts":
                wanted = wanted + pool_scores(scores[name][:, members], pool)
        np.testing.assert_allclose(found[:, place], wanted, rtol=2e-5, atol=1e-4)


@pytest.mark.parametrize("pool", ["sum", "mean", "attention", "signed-attention"])
def test_one_pool_over_all_channels_takes_the_summed_scores(pool: str) -> None:
    found = group_scores(QUERIES, blocks((33,)), GROUPS, pool)
    scores = single(parts())
    for place, members in enumerate(map(list, MEMBERS.values())):
        np.testing.assert_allclose(found[:, place], pool_scores(scores[:, members], pool), rtol=1e-4, atol=1e-3)


def test_min_rank_takes_them_too() -> None:
    chosen = min_rank(QUERIES, blocks((20,)), 12)
    order = np.argsort(np.argsort(-single(parts()).astype(np.float32), axis=1, kind="stable"), axis=1)
    np.testing.assert_array_equal(chosen.ranks, np.sort(order.min(axis=0))[:12] + 1)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_channels_of_one_kind_alone(kind: str) -> None:
    nothing = np.zeros((N, 0), np.float32), SparseRows.empty(N, COUNTS[1])
    train = MixedFeatures(nothing[0], TRAIN.sparse) if kind == "sparse" else MixedFeatures(TRAIN.dense, nothing[1])
    asked = (
        MixedFeatures(nothing[0][:Q], QUERIES.sparse)
        if kind == "sparse"
        else MixedFeatures(QUERIES.dense, nothing[1][:Q])
    )
    known = parts()
    scores = single({name: s for name, s in known.items() if (name in ("first", "second")) == (kind == "dense")})
    found = top_k(asked, [block_of(0, train)], 5)
    np.testing.assert_allclose(found.scores, -np.sort(-scores, axis=1)[:, :5], rtol=1e-5)
    np.testing.assert_allclose(score_all(asked, train), scores, rtol=1e-4, atol=1e-4)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(1, 12))
def test_postings_hold_what_they_were_made_of(seed: int, rows: int, columns: int) -> None:
    generator = np.random.default_rng(seed)
    table = np.where(generator.random((rows, columns)) < 0.4, generator.normal(size=(rows, columns)), 0)
    table = table.astype(np.float16).astype(np.float32)
    postings = Postings.of(SparseRows.of(table))
    np.testing.assert_array_equal(postings.csr().toarray(), table)
    chosen = np.flatnonzero(generator.random(columns + 3) < 0.5)
    wide = np.concatenate([table, np.zeros((rows, 3), np.float32)], axis=1)
    wider = Postings(postings.columns, postings.rows, postings.values, (rows, columns + 3))
    np.testing.assert_array_equal(wider.select(chosen).toarray(), wide[:, chosen])
    np.testing.assert_array_equal(select_columns(SparseRows.of(wide), chosen).toarray(), wide[:, chosen])


def test_rows_are_stacked_and_counted() -> None:
    whole = stack_rows([TRAIN[:10], TRAIN[10:]])
    assert isinstance(whole, MixedFeatures)
    np.testing.assert_array_equal(whole.dense, TRAIN.dense)
    for part in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(whole.sparse, part), getattr(TRAIN.sparse, part))
    assert filled_rows(TRAIN).all()
    empty = MixedFeatures(np.zeros((2, 1), np.float32), SparseRows.of(np.array([[0, 1.0], [0, 0]], np.float32)))
    assert filled_rows(empty).tolist() == [True, False]
    assert numbers_of(empty).tolist() == [0, 0, 1]


def test_what_does_not_fit_is_told() -> None:
    with pytest.raises(DataError, match="are not of channels as the blocks are"):
        top_k(QUERIES.dense, blocks(), 1)
    with pytest.raises(DataError, match="their features are not dense as the blocks' are"):
        top_k(QUERIES, [Block(0, TRAIN.dense)], 1)
    with pytest.raises(DataError, match=r"queries: are 9x31; expected \(q, 32\)"):
        top_k(MixedFeatures(QUERIES.dense[:, :31], QUERIES.sparse), blocks(), 1)
    with pytest.raises(DataError, match="is unlike the first"):
        top_k(QUERIES, [*blocks()[:1], Block(N, TRAIN.dense)], 1)
    with pytest.raises(ConfigError, match="needs the features of one method"):
        group_scores(QUERIES, blocks(), GROUPS, "order-1")
    with pytest.raises(ConfigError, match="needs counts of n-grams"):
        group_scores(QUERIES, blocks(), GROUPS, "ngram-lm")
    with pytest.raises(DataError, match="are not of channels, as their pool is"):
        group_scores(QUERIES.dense, [Block(0, TRAIN.dense)], GROUPS, ChannelPooling(()))
