"""Products of sparse rows that are as wide as hashed n-grams."""

import tracemalloc
from itertools import pairwise

import numpy as np
import pytest

from airrep.scoring.asked import SumAsked, stream_scores
from airrep.scoring.blocks import Block
from airrep.scoring.columns import Postings, SparseProducts
from airrep.scoring.pooling import CHANNELS
from airrep.scoring.products import ask
from airrep.scoring.topk import top_k
from airrep.sparse import SparseRows


@pytest.mark.parametrize("width", [2**26, 2**31 - 1])
def test_memory_follows_the_numbers_that_are_there_not_the_width(width: int) -> None:
    numbers = np.random.default_rng(0)
    columns = np.unique(numbers.integers(0, width, 40))
    dense = numbers.standard_normal((9, len(columns))) * (numbers.random((9, len(columns))) < 0.5)
    narrow = SparseRows.of(dense.astype(np.float32))
    wide = SparseRows(narrow.data, columns[narrow.indices].astype(np.int32), narrow.indptr, (9, width))
    tracemalloc.start()
    found = SparseProducts(wide[:3]).scores(wide)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    exact = dense.astype(np.float32).astype(np.float64)
    np.testing.assert_allclose(found, exact @ exact[:3].T, rtol=1e-12, atol=1e-12)
    assert most < 2**20


def crowded(generator: np.random.Generator, rows: int) -> np.ndarray:
    """Numbers of 40 columns that every row, most rows or few have: among them one of all sizes, and one below 0."""
    shares = np.r_[np.ones(4), np.linspace(0.9, 0.01, 36)]
    table = generator.integers(1, 9, (rows, 40)) / 8 * (generator.random((rows, 40)) < shares)
    table[:, 5] *= 2.0 ** generator.integers(-14, 12, rows)  # more bits than are held
    table[:, 6] *= -1
    table[rows // 2 :] = table[: rows - rows // 2]  # ties, in other blocks too
    return table


@pytest.mark.parametrize("least", [False, True])
@pytest.mark.parametrize(
    ("cuts", "held", "piece"),
    [((), 2**22, 8192), ((900,), 2**22, 400), ((3, 900, 1500), 1000, 8192), ((900,), 0, 500), ((), 2**22, 100)],
)
def test_columns_that_many_rows_have_change_no_score_and_no_rank(
    monkeypatch: pytest.MonkeyPatch, cuts: tuple[int, ...], held: int, piece: int, least: bool
) -> None:
    monkeypatch.setattr("airrep.scoring.blocks.HELD", held)
    monkeypatch.setattr("airrep.scoring.products.SCORES", piece)
    for module in ("asked", "products"):
        monkeypatch.setattr(f"airrep.scoring.{module}.PIECE_ROWS", piece)
    generator = np.random.default_rng(0)
    table, dense = crowded(generator, 1600), generator.normal(size=(1600, 16)).astype(np.float16)
    dense[800:] = dense[:800]
    queries = generator.integers(0, 3, (3, 40)) / 4
    queries[2], queries[1, 20:] = 0, 0
    channels, bounds = queries.astype(np.float32), [*pairwise([0, *cuts, 1600])]
    counts = ask(
        SparseRows.of(channels),
        [Block(a, Postings.of(SparseRows.of(table[a:b].astype(np.float32)))) for a, b in bounds],
    )
    meant = generator.normal(size=(3, 16)).astype(np.float32)
    both = SumAsked(
        {"counts": counts, "dense": ask(meant, [Block(a, dense[a:b]) for a, b in bounds])},
        np.tile([1.0, 0.5], (3, 1)),
        CHANNELS,
    )
    keep = generator.random(1600) < 0.7
    wanted = queries @ table.T
    for asked, scores in ((counts, wanted), (both, wanted + 0.5 * (meant.astype(float) @ dense.astype(float).T))):
        order = np.argsort(scores.astype(np.float32) * (1 if least else -1), axis=1, kind="stable")
        some = np.stack([row[keep[row]][:90] for row in order])
        found = top_k(asked, 90, keep=keep, least=least)
        np.testing.assert_array_equal(found.rows, some)
        np.testing.assert_array_equal(found.scores, np.take_along_axis(scores, some, 1).astype(np.float32))
        streamed = np.concatenate([part for _, part in stream_scores(asked)], axis=1)
        np.testing.assert_allclose(streamed, scores, rtol=1e-12, atol=1e-12)


def test_rows_are_looked_up_as_columns_are_read() -> None:
    table = crowded(np.random.default_rng(1), 500).astype(np.float32)
    postings = Postings.of(SparseRows.of(table))
    assert postings.frequent is not None
    assert 5 not in postings.frequent.columns, "it has more bits than are held"
    assert {0, 1, 2, 3, 4, 6} <= set(postings.frequent.columns.tolist())
    columns = np.r_[0:40:3, 39]
    for rows in ([7], [499, 0, 250], range(200)):
        found = postings.of_rows(np.array(rows), columns)
        np.testing.assert_array_equal(found.toarray(), table[list(rows)][:, columns].astype(np.float16))
    nothing = Postings.of(SparseRows.empty(3, 40))
    assert nothing.frequent is None
    assert nothing.of_rows(np.array([1]), columns).nnz == 0
