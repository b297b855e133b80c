"""Products of sparse rows that are as wide as hashed n-grams."""

import tracemalloc

import numpy as np
import pytest

from airrep.scoring.columns import SparseProducts
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
