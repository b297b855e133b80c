"""Sparse rows are what SciPy's CSR arrays are."""

import numpy as np
import pytest
from scipy import sparse

from airrep.sparse import SparseRows, below, beside, taken

SIZES = [(0, 5), (1, 1), (7, 5), (200, 40), (3, 3000)]


def numbers(shape: tuple[int, int], density: float = 0.2, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return (generator.standard_normal(shape) * (generator.random(shape) < density)).astype(np.float32)


@pytest.mark.parametrize("shape", SIZES)
def test_rows_columns_sums_and_shapes_are_those_of_dense_numbers(shape: tuple[int, int]) -> None:
    dense = numbers(shape)
    rows = SparseRows.of(dense)
    half, kept = shape[0] // 2, dense[:, :1].ravel() != 0
    for found, wanted in {
        "all": (rows, dense),
        "slice": (rows[half:], dense[half:]),
        "stride": (rows[::-2], dense[::-2]),
        "list": (rows[[half] * min(half, 3)], dense[[half] * min(half, 3)]),
        "mask": (rows[kept], dense[kept]),
        "columns": (rows.columns(1, shape[1]), dense[:, 1:]),
        "turned": (rows.T, dense.T),
        "negative": (-rows, -dense),
        "difference": (rows - SparseRows.of(dense[::-1].copy()), dense - dense[::-1]),
        "scaled": (rows.scaled(np.arange(shape[0])), dense * np.arange(shape[0], dtype=np.float32)[:, None]),
        "below": (below([rows, rows[:half]]), np.concatenate([dense, dense[:half]])),
        "beside": (beside([rows, rows]), np.concatenate([dense, dense], axis=1)),
    }.values():
        assert found.shape == wanted.shape
        np.testing.assert_array_equal(found.toarray(), wanted)
        assert all((np.diff(found[[row]].indices) > 0).all() for row in range(found.shape[0]))
    for axis in (0, 1):
        np.testing.assert_allclose(rows.sum(axis), dense.sum(axis, dtype=np.float64), atol=1e-12)


@pytest.mark.parametrize("shape", SIZES)
@pytest.mark.parametrize("density", [0.02, 0.3, 1.0])
def test_products_are_those_of_scipy_and_no_row_feels_the_others(shape: tuple[int, int], density: float) -> None:
    dense, other = numbers(shape, density), numbers((shape[1], 9), density, seed=1)
    rows, right = SparseRows.of(dense), SparseRows.of(other)
    wanted = sparse.csr_array(dense.astype(np.float64)) @ other.astype(np.float64)
    np.testing.assert_allclose(rows @ right, wanted, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(rows @ other, wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(rows @ other[:, 0], wanted[:, 0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(rows.gram(), dense.astype(np.float64) @ dense.T, rtol=1e-6, atol=1e-9)
    for row in range(0, shape[0], 31):
        for factor in (right, other):
            np.testing.assert_array_equal(rows[[row]] @ factor, (rows @ factor)[[row]])
    few, one = SparseRows.of(other[:, :1].copy()), SparseRows.of(dense[: shape[0] // 2])
    np.testing.assert_array_equal(rows @ few, (rows @ right)[:, :1])
    np.testing.assert_array_equal(one @ right, (rows @ right)[: shape[0] // 2])


def test_counts_and_cells() -> None:
    counted = SparseRows.counts(np.array([3, 1, 3, 0]), np.array([0, 3, 3, 4]), 5)
    assert counted.toarray().tolist() == [[0, 1, 0, 2, 0], [0] * 5, [1, 0, 0, 0, 0]]
    assert counted.indices.tolist() == [1, 3, 0]
    cells = SparseRows.from_cells(np.array([2, 0, 2]), np.array([1, 4, 0]), np.array([1.0, 2, 3]), (3, 5))
    assert cells.toarray().tolist() == [[0, 0, 0, 0, 2], [0] * 5, [3, 1, 0, 0, 0]]
    assert SparseRows.empty(2, 3).toarray().tolist() == [[0] * 3] * 2


def test_what_scipy_made_is_taken() -> None:
    dense = numbers((6, 4))
    found = taken(sparse.csr_array(dense))
    assert isinstance(found, SparseRows)
    np.testing.assert_array_equal(found.toarray(), dense)
    assert taken(dense) is dense


def test_one_row_in_any_order_of_its_columns_has_the_same_product() -> None:
    other = SparseRows.of(numbers((4, 6), 0.9))
    data, order = np.array([1.0, 2.0, 3.0, 4.0]), np.array([2, 0, 3, 1])
    straight = SparseRows(data, np.arange(4), np.array([0, 4]), (1, 4))
    turned = SparseRows(data[order], order, np.array([0, 4]), (1, 4))
    np.testing.assert_allclose(turned @ other, straight @ other, rtol=1e-12)
