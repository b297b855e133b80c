"""Sums of channels, dense and sparse, and contrasts: against sums written out in float64."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airrep.errors import ConfigError, DataError
from airrep.scoring.asked import Asked, SumAsked, score_all, score_blocks
from airrep.scoring.blocks import Block, error_bounds, quantise
from airrep.scoring.columns import Postings, select_columns
from airrep.scoring.contrast import contrast_scores
from airrep.scoring.group_scores import by_channel, group_scores
from airrep.scoring.groups import Groups
from airrep.scoring.pooling import CHANNELS, SUM, Pooling, pool_scores
from airrep.scoring.products import ask
from airrep.scoring.topk import min_rank, top_k
from airrep.sparse import SparseRows

WIDE, N, Q = 2**24, 90, 9
"""More columns than are multiplied whole."""
FIRST, SECOND = (0, 20), (20, 32)
"""Numbers of two dense channels."""
WORDS, TERMS, COUNTS = (0, WIDE), (WIDE, WIDE + 300), (WIDE + 300, WIDE + 700)
"""Columns of three sparse channels."""
SPANS = {"first": FIRST, "second": SECOND, "words": WORDS, "terms": TERMS, "counts": COUNTS}
WEIGHTS = {"first": 1.0, "second": 0.3, "words": 2.0, "terms": 1.0, "counts": 0.7}


class Parts(NamedTuple):
    """Dense numbers of both channels, and sparse ones of the three."""

    dense: np.ndarray
    sparse: SparseRows


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


def mixed(seed: int, rows: int, *, queries: bool = False) -> Parts:
    generator = np.random.default_rng(seed)
    table = numbers(generator, rows, 0.5 if queries else 0.3)
    table[:, 40] = 0 if queries else generator.integers(0, 5, rows)
    table = table.astype(np.float16).astype(np.float32)
    row, column = np.nonzero(table)
    found = SparseRows.from_cells(row, PLACES[column], table[row, column], (rows, COUNTS[1]))
    found += SparseRows.empty(rows, COUNTS[1])  # columns ascend
    dense = generator.normal(size=(rows, 32)).astype(np.float16).astype(np.float32)
    return Parts(dense, found)


TRAIN, QUERIES = mixed(1, N), mixed(2, Q, queries=True)


def small(features: Parts) -> np.ndarray:
    """The filled sparse columns, dense."""
    return select_columns(features.sparse, PLACES).toarray().astype(np.float64)


def parts(queries: Parts = QUERIES, train: Parts = TRAIN) -> dict[str, np.ndarray]:
    """Scores of each channel by itself, in float64."""
    q, t = small(queries), small(train)
    dense = {
        name: queries.dense[:, a:b].astype(np.float64) @ train.dense[:, a:b].astype(np.float64).T
        for name, (a, b) in (("first", FIRST), ("second", SECOND))
    }
    spans = {"words": slice(0, 20), "terms": slice(20, 40), "counts": slice(40, 60)}
    return dense | {name: q[:, span] @ t[:, span].T for name, span in spans.items()}


def single(found: dict[str, np.ndarray]) -> np.ndarray:
    """Scores of examples: weighted sums over channels."""
    return np.sum([WEIGHTS[name] * found[name] for name in found], axis=0)


def asked(
    cuts: tuple[int, ...] = (),
    *,
    postings: bool = True,
    codes: bool = True,
    pools: dict[str, Pooling] | None = None,
    names: Sequence[str] = tuple(SPANS),
) -> SumAsked:
    """The queries, asked of some channels."""
    made: dict[str, Asked] = {}
    for name in names:
        start, stop = SPANS[name]
        blocks = []
        for a, b in pairwise([0, *cuts, N]):
            rows = TRAIN.sparse[a:b].columns(start, stop)
            block = Block(a, Postings.of(rows) if postings else rows)
            if name in ("first", "second"):
                dense = TRAIN.dense[a:b, start:stop].astype(np.float16)
                pair = quantise(dense)
                block = Block(a, dense, *pair, error_bounds(dense, *pair)) if codes else Block(a, dense)
            blocks.append(block)
        dense_query = name in ("first", "second")
        query = QUERIES.dense[:, start:stop] if dense_query else QUERIES.sparse.columns(start, stop)
        made[name] = ask(query, blocks, (pools or {}).get(name, SUM))
    return SumAsked(made, np.tile([WEIGHTS[name] for name in names], (Q, 1)), CHANNELS)


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
        found = top_k(asked(**way), 7, keep=mask, least=least)
        rounded = wanted.astype(np.float32)[:, allowed] * (1 if least else -1)
        np.testing.assert_array_equal(found.rows, allowed[np.argsort(rounded, axis=1, kind="stable")[:, :7]])
        np.testing.assert_allclose(found.scores, np.take_along_axis(wanted, found.rows, 1), rtol=1e-6)


def test_neither_blocks_nor_batches_change_a_bit_of_a_score() -> None:
    whole = top_k(asked(), N)
    for way in WAYS:
        alone = [top_k(asked(**way).chosen(np.array([q])), N) for q in range(Q)]
        np.testing.assert_array_equal(np.concatenate([one.scores for one in alone]), whole.scores)
        np.testing.assert_array_equal(np.concatenate([one.rows for one in alone]), whole.rows)


@pytest.mark.parametrize("way", WAYS[::3], ids=str)
def test_all_scores_are_streamed(way: dict) -> None:
    pieces = [scores for _, scores in score_blocks(asked(**way), block_rows=13)]
    np.testing.assert_allclose(np.concatenate(pieces, axis=1), single(parts()), rtol=2e-5, atol=1e-4)


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
    found, scores = group_scores(asked(**way, pools=pools), GROUPS), parts()
    for place, members in enumerate(map(list, MEMBERS.values())):
        wanted = WEIGHTS["counts"] * gains(members)
        for name, pool in pools.items():
            if name != "counts":
                wanted = wanted + WEIGHTS[name] * pool_scores(scores[name][:, members], pool)
        np.testing.assert_allclose(found[:, place], wanted, rtol=2e-5, atol=1e-4)


@pytest.mark.parametrize("pool", ["sum", "mean", "attention", "signed-attention"])
def test_one_pool_over_all_channels_takes_the_summed_scores(pool: str) -> None:
    found = group_scores(asked((33,)), GROUPS, pool)
    scores = single(parts())
    for place, members in enumerate(map(list, MEMBERS.values())):
        np.testing.assert_allclose(found[:, place], pool_scores(scores[:, members], pool), rtol=1e-4, atol=1e-3)


def test_min_rank_takes_them_too() -> None:
    chosen = min_rank(asked((20,)), 12)
    order = np.argsort(np.argsort(-single(parts()).astype(np.float32), axis=1, kind="stable"), axis=1)
    np.testing.assert_array_equal(chosen.ranks, np.sort(order.min(axis=0))[:12] + 1)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("first", [0, 1, 2])
def test_any_number_of_channels_of_any_kind(first: int, count: int) -> None:
    names = (list(SPANS) * 2)[first : first + count]
    known = parts()
    scores = single({name: known[name] for name in names})
    order = np.argsort(-scores.astype(np.float32), axis=1, kind="stable")[:, :5]
    for cuts in ((), (7, 50)):
        found = top_k(asked(cuts, names=names), 5)
        np.testing.assert_array_equal(found.rows, order)
        np.testing.assert_allclose(found.scores, np.take_along_axis(scores, order, 1), rtol=1e-6)
        np.testing.assert_allclose(score_all(asked(cuts, names=names)), scores, rtol=1e-4, atol=1e-4)


def test_weights_of_each_query_are_applied_last() -> None:
    weights = np.random.default_rng(5).random((Q, len(SPANS)))
    pools = {"first": Pooling("attention"), "words": Pooling("signed-attention")}
    plain = asked(pools=pools)
    weighed = SumAsked(plain.parts, weights, plain.pooling)
    found = group_scores(weighed, GROUPS)
    apart = [part.groups(GROUPS) for part in plain.parts.values()]
    wanted = np.sum([weights[:, [place]] * part for place, part in enumerate(apart)], axis=0)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    told = by_channel(weighed, GROUPS, CHANNELS, "sum")
    np.testing.assert_allclose(np.sum(list(told.values()), axis=0), found, rtol=1e-6)


def test_crowds_of_ties_go_by_row() -> None:
    dense, thin = np.ones((30_000, 4), np.float16), SparseRows.of(np.ones((30_000, 2), np.float32))
    dense[20_000:, 0] = np.arange(10_000) % 3
    parts = {
        "dense": ask(np.ones((3, 4), np.float32), [Block(0, dense, *quantise(dense))]),
        "sparse": ask(SparseRows.of(np.ones((3, 2), np.float32)), [Block(0, thin)]),
    }
    found = top_k(SumAsked(parts, np.full((3, 2), 0.3), CHANNELS), 5)
    np.testing.assert_array_equal(found.rows, [20_002 + 3 * np.arange(5)] * 3)


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


def test_what_does_not_fit_is_told() -> None:
    thin, dense = QUERIES.sparse, QUERIES.dense
    with pytest.raises(DataError, match="features must be dense"):
        ask(thin, [Block(0, TRAIN.dense)])
    with pytest.raises(DataError, match=r"queries: shape is 9x31; it must be \(queries, 32\)"):
        ask(dense[:, :31], [Block(0, TRAIN.dense)])
    with pytest.raises(DataError, match="features of rows 0 and .* differ in width"):
        ask(dense, [Block(0, TRAIN.dense), Block(N, TRAIN.sparse)])
    for pool in ("order-1", "ngram-lm", "diminishing"):
        with pytest.raises(ConfigError, match=pool):
            group_scores(asked(), GROUPS, pool)


def test_a_search_of_a_sum_reads_features_of_candidates_alone() -> None:
    generator = np.random.default_rng(5)
    features, read = generator.normal(size=(4000, 16)).astype(np.float16), []

    class Counted(np.ndarray):
        def __getitem__(self, rows):
            read.append(np.arange(len(self))[rows].size)
            return np.asarray(super().__getitem__(rows))

    codes, scales = quantise(features)
    bounds = error_bounds(features, codes, scales)
    words = SparseRows.of(np.where(generator.random((4000, 5)) < 0.2, 1, 0).astype(np.float32))
    queries = generator.normal(size=(2, 16)).astype(np.float32)
    dense = ask(queries, [Block(0, features.view(Counted), codes, scales, bounds)])
    found = SumAsked({"dense": dense, "words": ask(words[:2], [Block(0, words)])}, np.ones((2, 2)), CHANNELS)
    top = top_k(found, 3)
    expected = queries.astype(np.float64) @ features.astype(np.float64).T + (words[:2].toarray() @ words.toarray().T)
    np.testing.assert_array_equal(top.rows, np.argsort(-expected, axis=1)[:, :3])
    assert 3 <= sum(read) < 400


SCORES = st.floats(-1e6, 1e6)


@given(SCORES, SCORES)
def test_the_sign_is_that_of_the_difference(answer: float, better: float) -> None:
    found = float(contrast_scores(np.array(answer), np.array(better)))
    assert found == 0 or np.sign(found) == np.sign(answer - better)
    assert found == -float(contrast_scores(np.array(better), np.array(answer)))


@given(st.floats(0, 1e6), SCORES, st.floats(1e-3, 1e3))
def test_more_for_the_answer_is_more(answer: float, better: float, more: float) -> None:
    less, greater = contrast_scores(np.array([answer, answer + more]), np.array(better))
    assert greater >= less


def test_of_rows_with_one_difference_the_one_about_the_question_leads() -> None:
    """A row that shares one common word with the answer, and one about the very question."""
    word, question = contrast_scores(np.array([1.5, 21.0]), np.array([0.0, 19.5]))
    assert question > 20 * word
