"""Exact top-k: one result, however it is found."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import simsimd
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from worlds.pretend_card import pretended_card

from airrep.errors import ConfigError, DataError
from airrep.scoring import products as scans
from airrep.scoring import topk as search
from airrep.scoring.asked import SumAsked
from airrep.scoring.blocks import Block, Piece, error_bounds, quantise
from airrep.scoring.columns import Postings
from airrep.scoring.pooling import CHANNELS
from airrep.scoring.products import ask
from airrep.scoring.topk import top_k
from airrep.sparse import SparseRows


def blocks_of(features: np.ndarray, cuts: Sequence[int] = (), codes: bool = False) -> list[Block]:
    blocks = []
    for start, stop in zip([0, *cuts], [*cuts, len(features)], strict=True):
        block = Block(start, features[start:stop])
        if codes:
            pair = quantise(block.features)
            block = Block(start, block.features, *pair, error_bounds(block.features, *pair))
        blocks.append(block)
    return blocks


def sort_everything(
    queries: np.ndarray, features: np.ndarray, k: int, keep: np.ndarray | None = None, least: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """The definition: float64 sums rounded to float32, sorted; ties by row."""
    wide = features.astype(np.float64)
    scores = np.stack([(query * wide).sum(axis=1) for query in queries.astype(np.float64)]).astype(np.float32)
    sign = np.float32(1 if least else -1)
    allowed = np.arange(len(features)) if keep is None else np.flatnonzero(keep)
    order = np.argsort(sign * scores[:, allowed], axis=1, kind="stable")[:, :k]
    rows = allowed[order]
    return rows, np.take_along_axis(scores, rows, axis=1)


WORLDS = {
    "gaussian": lambda g: g.normal(size=(700, 24)),
    "duplicates": lambda g: g.normal(size=(7, 24))[g.integers(0, 7, 700)],
    "nearly equal": lambda g: 1 + 2.0**-10 * g.integers(0, 2, (700, 24)),
    "zeros": lambda g: g.normal(size=(700, 24)) * (g.random((700, 1)) < 0.1),
    "scales from 1e-6 to 1e4": lambda g: g.normal(size=(700, 24)) * 10.0 ** g.uniform(-6, 4, (700, 1)),
    "one huge feature": lambda g: np.where(np.arange(24) == 5, 6e4, g.normal(size=(700, 24))),
    "orthogonal": lambda g: np.eye(24)[g.integers(0, 24, 700)],
    "all equal": lambda _: np.ones((700, 24)),
}
WAYS = [("codes",), ()]


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("world", WORLDS)
def test_every_way_gives_the_definition(world: str, way: tuple[str, ...]) -> None:
    generator = np.random.default_rng(1)
    features = WORLDS[world](generator).astype(np.float16)
    queries = np.concatenate([generator.normal(size=(5, 24)), features[:2], np.zeros((1, 24))]).astype(np.float32)
    queries[3] *= 1e-20
    queries[4] *= 1e12
    keep = generator.random(700) < 0.3
    for mask in (None, keep):
        for k in (1, 10, 100, 700 if mask is None else int(keep.sum())):
            for least in (False, True):
                rows, scores = sort_everything(queries, features, k, mask, least)
                for cuts in ((), (1, 333, 334, 600)):
                    blocks = blocks_of(features, cuts, "codes" in way)
                    found = top_k(ask(queries, blocks), k, keep=mask, least=least)
                    np.testing.assert_array_equal(found.rows, rows)
                    np.testing.assert_array_equal(found.scores, scores)


@pytest.mark.parametrize("codes", [False, True])
def test_a_card_gives_the_same(codes: bool) -> None:
    generator = np.random.default_rng(2)
    features = generator.normal(size=(3000, 40)).astype(np.float16)
    queries = generator.normal(size=(90, 40)).astype(np.float32)
    blocks = blocks_of(features, (1000,), codes)
    here = top_k(ask(queries, blocks), 50)
    with pretended_card():
        there = top_k(ask(queries, blocks, device="cuda"), 50)
    np.testing.assert_array_equal(there.rows, here.rows)
    np.testing.assert_array_equal(there.scores, here.scores)


@pytest.mark.parametrize("d", [1, 15, 16, 17, 130])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_batches_of_queries_change_nothing(d: int, dtype: type) -> None:
    generator = np.random.default_rng(d)
    features = generator.normal(size=(500, d)).astype(dtype)
    queries = generator.normal(size=(130, d)).astype(np.float32)
    for codes in (False, True):
        blocks = blocks_of(features, (123,), codes)
        together = top_k(ask(queries, blocks), 20)
        rows, scores = sort_everything(queries, features, 20)
        np.testing.assert_array_equal(together.rows, rows)
        np.testing.assert_array_equal(together.scores, scores)
        alone = [top_k(ask(queries[i : i + 1], blocks), 20) for i in (0, 63, 64, 129)]
        np.testing.assert_array_equal(np.concatenate([found.scores for found in alone]), scores[[0, 63, 64, 129]])


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 40),
    st.integers(1, 300),
    st.floats(-18, 4),
    st.lists(st.integers(1, 299), max_size=4),
    st.booleans(),
)
def test_any_shape_scale_and_blocks(seed: int, d: int, n: int, power: float, cuts: list[int], codes: bool) -> None:
    generator = np.random.default_rng(seed)
    features = (generator.normal(size=(n, d)) * 10.0 ** generator.uniform(-4, 3, d)).astype(np.float16)
    features[generator.random(n) < 0.2] = features[0]
    queries = (generator.normal(size=(3, d)) * 10.0**power).astype(np.float32)
    k = int(generator.integers(1, n + 1))
    rows, scores = sort_everything(queries, features, k)
    found = top_k(ask(queries, blocks_of(features, sorted({cut for cut in cuts if cut < n}), codes)), k)
    np.testing.assert_array_equal(found.rows, rows)
    np.testing.assert_array_equal(found.scores, scores)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(16, 200), st.floats(-6, 3), st.booleans())
def test_errors_stay_within_their_bounds(seed: int, d: int, power: float, codes: bool) -> None:
    generator = np.random.default_rng(seed)
    features = (generator.normal(size=(50, d)) * 10.0 ** generator.uniform(-3, 3, d)).astype(np.float16)
    queries = (generator.standard_t(2, size=(4, d)) * 10.0**power).astype(np.float32)
    block = blocks_of(features, codes=codes)[0]
    view = ask(queries, [block]).bounded(Piece(0, 0, np.arange(50), 50))
    exact = queries.astype(np.float64) @ features.astype(np.float64).T
    error = np.abs(view.values.astype(np.float64) - exact.T)
    assert np.all(error + np.abs(exact.T) * 2.0**-24 <= view.bounds.T @ view.slack[:2] + view.slack[2])


@pytest.mark.parametrize("d", [1, 2, 15, 31, 33, 130, 2**17 - 1])
def test_products_of_the_greatest_codes_are_exact(d: int) -> None:
    """Kernels of some libraries add them up in 16 bits, and say nothing."""
    for sign in (-127, 127):
        out = np.empty((9, 3), np.float32)
        simsimd.cdist(np.full((9, d), 127, np.int8), np.full((3, d), sign, np.int8), "dot", out=out)
        assert (out == np.float32(127 * sign * d)).all()


def test_few_and_many_queries_go_other_ways_to_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(3)
    features = generator.normal(size=(3000, 40)).astype(np.float16)
    queries = generator.normal(size=(9, 40)).astype(np.float32)
    thin = [sparse.random_array((n, 60), density=0.3, format="csr", rng=generator) for n in (3000, 9)]
    postings = [
        Postings.of(SparseRows.of(thin[0][part]).astype(np.float32)) for part in (slice(1000), slice(1000, None))
    ]
    dense = ask(queries, blocks_of(features, (1000,), codes=True))
    counts = ask(SparseRows.of(thin[1]).astype(np.float32), [Block(0, postings[0]), Block(1000, postings[1])])
    for asked in (dense, SumAsked({"dense": dense, "counts": counts}, np.full((9, 2), 0.7), CHANNELS)):
        monkeypatch.setattr(scans, "FEW", 9)
        few = top_k(asked, 50)
        monkeypatch.setattr(scans, "FEW", 8)
        many = top_k(asked, 50)
        np.testing.assert_array_equal(few.rows, many.rows)
        np.testing.assert_array_equal(few.scores, many.scores)


@pytest.mark.parametrize("count", [1, 3])
def test_few_queries_and_many_ties_over_many_rows(count: int) -> None:
    generator = np.random.default_rng(count)
    features = generator.normal(size=(500, 16)).astype(np.float16)[generator.integers(0, 500, 30_011)]
    queries, keep = generator.normal(size=(count, 16)).astype(np.float32), generator.random(30_011) < 0.9
    blocks = blocks_of(features, (20_001,), codes=True)
    for mask in (None, keep):
        rows, scores = sort_everything(queries, features, 70, mask)
        found = top_k(ask(queries, blocks), 70, keep=mask)
        np.testing.assert_array_equal(found.rows, rows)
        np.testing.assert_array_equal(found.scores, scores)


def test_crowds_of_equal_rows_are_settled_on_the_way() -> None:
    """More candidates than are held: their exact scores decide, and the lowest rows stay."""
    features = np.ones((30_000, 4), dtype=np.float16)
    features[20_000:, 0] = np.arange(10_000) % 3
    queries = np.ones((3, 4), dtype=np.float32)
    rows, scores = sort_everything(queries, features, 5)
    for codes in (False, True):
        found = top_k(ask(queries, blocks_of(features, (9000,), codes)), 5)
        np.testing.assert_array_equal(found.rows, rows)
        np.testing.assert_array_equal(found.scores, scores)


def heavy_tailed(seed: int, rows: int, d: int) -> np.ndarray:
    """Features as gradients have them: a few numbers are so large that a code says nothing of the others."""
    generator = np.random.default_rng(seed)
    return (generator.standard_t(1.2, (rows, d)) * 10.0 ** generator.uniform(-1, 1, (rows, 1))).clip(-6e4, 6e4)


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("count", [1, 40])
def test_rows_that_bounds_tell_nothing_of_are_not_multiplied_one_by_one(
    count: int, mixed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    d, n, k = 256, 4000, 3
    features = heavy_tailed(0, n, d).astype(np.float16)
    features[1000:2000] = features[:1000]  # ties, which go by row
    queries = heavy_tailed(1, count, d).astype(np.float32)
    settled: list[int] = []
    exact = scans.inner_products

    def counted(asked: np.ndarray, blocks: Sequence[Block], query: np.ndarray, row: np.ndarray) -> np.ndarray:
        settled.append(len(row))
        return exact(asked, blocks, query, row)

    monkeypatch.setattr(scans, "inner_products", counted)
    monkeypatch.setattr(search, "PAIRS", 64)
    blocks = blocks_of(features, (900, 2500), codes=True)
    rows, scores = sort_everything(queries, features, k)
    asked = ask(queries, blocks)
    if mixed:
        first, *others = [SparseRows.empty(size, 9) for size in (count, 900, 1600, 1500)]
        thin = ask(first, [Block(block.start, some) for block, some in zip(blocks, others, strict=True)])
        asked = SumAsked({"dense": asked, "sparse": thin}, np.ones((count, 2)), CHANNELS)
    found = top_k(asked, k)
    np.testing.assert_array_equal(found.rows, rows)
    np.testing.assert_array_equal(found.scores, scores)
    assert sum(settled) < 20 * count * k


def test_crowds_of_ties_among_sparse_features_alone_need_no_dense_ones() -> None:
    words = SparseRows.empty(40_000, 9)
    found = top_k(ask(SparseRows.of(np.ones((2, 9), np.float32)), [Block(0, words)]), 2)
    np.testing.assert_array_equal(found.rows, [[0, 1]] * 2)
    np.testing.assert_array_equal(found.scores, np.zeros((2, 2)))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 700), st.floats(-12, 4))
def test_rough_products_are_as_near_as_they_say(seed: int, d: int, power: float) -> None:
    features = heavy_tailed(seed, 50, d) * 10.0**power
    queries = heavy_tailed(seed + 1, 7, d).astype(np.float32).astype(np.float64)
    blocks = blocks_of(features.astype(np.float32), (13, 14))
    rows = np.flatnonzero(np.random.default_rng(seed).random(50) < 0.6)
    product, error = scans.rough_products(queries, blocks, rows)
    query, place = (pairs.ravel() for pairs in np.indices((7, len(rows))))
    exact = scans.inner_products(queries, blocks, query, rows[place])
    assert product.shape == (len(rows), 7)
    bound = error[place] * np.linalg.norm(queries, axis=1)[query]
    assert (np.abs(product[place, query] - exact) <= bound).all()
    assert (
        bound <= 1e-12 * np.linalg.norm(features[rows], axis=1)[place] * np.linalg.norm(queries, axis=1)[query]
    ).all()


def test_sparse_rows_that_share_nothing_with_the_query_tie() -> None:
    features = SparseRows.from_cells(
        np.array([7, 40_000, 3]), np.array([0, 1, 1]), np.array([1.0, 2.0, -1.0]), (50_000, 5)
    )
    features = features.astype(np.float32)
    blocks = [Block(0, features[:9]), Block(9, features[9:])]
    queries = SparseRows.of(np.array([[1.0, 1, 0, 0, 0], [0, 0, 3, 0, 0]], dtype=np.float32))
    found = top_k(ask(queries, blocks), 5)
    assert found.rows.tolist() == [[40_000, 7, 0, 1, 2], [0, 1, 2, 3, 4]]
    assert found.scores.tolist() == [[2.0, 1.0, 0.0, 0.0, 0.0], [0.0] * 5]
    least = top_k(ask(queries, blocks), 2, least=True)
    assert least.rows.tolist() == [[3, 0], [0, 1]]
    assert least.scores.tolist() == [[-1.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize("mode", ["r", "c"])
def test_memory_maps(tmp_path: Path, mode: str) -> None:
    generator = np.random.default_rng(4)
    features = generator.normal(size=(300, 32)).astype(np.float16)
    queries = generator.normal(size=(2, 32)).astype(np.float32)
    arrays = blocks_of(features, codes=True)[0]._asdict()
    for name in ("features", "codes", "scales", "bounds"):
        np.save(tmp_path / f"{name}.npy", arrays[name])
        arrays[name] = np.load(tmp_path / f"{name}.npy", mmap_mode=mode)
    rows, _ = sort_everything(queries, features, 7)
    for block in (Block(**arrays), Block(0, arrays["features"])):
        for keep in (None, np.arange(300) % 300 < 300):
            np.testing.assert_array_equal(top_k(ask(queries, [block]), 7, keep=keep).rows, rows)


def test_no_queries_no_rows() -> None:
    found = top_k(ask(np.empty((0, 3), np.float32), blocks_of(np.ones((4, 3), np.float16))), 2)
    assert (found.rows.shape, found.scores.shape) == ((0, 2), (0, 2))


QUERIES, FEATURES = np.ones((2, 3), np.float32), np.ones((4, 3), np.float16)


@pytest.mark.parametrize(
    ("queries", "k", "keep", "error", "message"),
    [
        (QUERIES, 0, None, ConfigError, "k is 0; expected at least 1"),
        (QUERIES, 5, None, ConfigError, "k is 5, but only 4 examples can be chosen"),
        (QUERIES, 2, np.arange(4) == 1, ConfigError, "k is 2, but only 1 example can be chosen"),
        (np.ones((2, 4), np.float32), 1, None, DataError, r"queries: shape is 2x4; it must be \(queries, 3\)"),
        (np.ones(3, np.float32), 1, None, DataError, r"queries: shape is 3; it must be \(queries, 3\)"),
        (np.full((2, 3), np.nan, np.float32), 1, None, DataError, "not finite in float32"),
        (np.full((2, 3), 1e300), 1, None, DataError, "not finite in float32"),
        (SparseRows.of(QUERIES), 1, None, DataError, "features must be dense"),
        (np.full((2, 3), 3e38, np.float32), 1, None, DataError, "too large for scores in float32"),
    ],
)
def test_bad_input(queries: np.ndarray, k: int, keep: np.ndarray | None, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        top_k(ask(queries, blocks_of(FEATURES)), k, keep=keep)


def test_bad_blocks() -> None:
    first, second = blocks_of(FEATURES, (2,))
    broken = FEATURES.copy()
    broken[1, 1] = np.inf
    for blocks, message in [
        ([], "blocks is empty"),
        ([second], "a block starts at row 2 instead of 0"),
        ([first, second._replace(start=3)], "a block starts at row 3 instead of 2"),
        ([first, Block(2, np.ones((2, 5), np.float16))], "features of rows 0 and 2 differ in width"),
        ([first, Block(2, SparseRows.of(FEATURES[:2].astype(np.float32)))], "features of rows 0 and 2 differ in width"),
        ([Block(0, broken)], "rows 0 to 3: a feature is not finite"),
    ]:
        with pytest.raises(DataError, match=message):
            top_k(ask(QUERIES, blocks), 1)
    with pytest.raises(DataError, match="quantise: a feature is not finite"):
        quantise(broken)
