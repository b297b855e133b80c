"""Gains of the counting language model against the equation written out, however groups lie."""

import tracemalloc

import numpy as np
import pytest

from airrep.arrays import SparseFeatures
from airrep.scoring.blocks import Block
from airrep.scoring.columns import Postings
from airrep.scoring.group_scores import group_scores
from airrep.scoring.groups import Groups
from airrep.scoring.pools import gains
from airrep.scoring.products import ask
from airrep.sparse import SparseRows

ROWS, COLUMNS = 60, 40
NESTED = {"all": list(range(ROWS)), "kept": [row for row in range(ROWS) if row % 7]}
SINGLE = {"a": [3, 1], "b": [59], "c": list(range(20, 50))}
MANY = {str(n): sorted(np.random.default_rng(n).permutation(ROWS)[: n + 1].tolist()) for n in range(20)}


def features(seed: int) -> SparseFeatures:
    """Rises of n-grams, and in the first column the weight; row 1 has no n-gram."""
    generator = np.random.default_rng(seed)
    dense = generator.random((ROWS, COLUMNS)) * (generator.random((ROWS, COLUMNS)) < 0.3)
    dense[:, 0], dense[1, 1:] = generator.random(ROWS) + 0.5, 0
    return SparseRows.of(dense.astype(np.float16).astype(np.float32))


def written_out(queries: np.ndarray, rows: np.ndarray, groups: Groups) -> np.ndarray:
    """Σ_g q(g) log(1 + Σ ℓ (e^v − 1) / Σ ℓ), group by group."""
    told = []
    for group in range(len(groups)):
        members = rows[groups.members(group)].astype(np.float64)
        rise = (members[:, :1] * np.expm1(members[:, 1:])).sum(axis=0) / members[:, 0].sum()
        told.append(queries[:, 1:].astype(np.float64) @ np.log1p(rise))
    return np.stack(told, axis=1)


@pytest.mark.parametrize("stored", ["postings", "csr"])
@pytest.mark.parametrize(
    "members", [NESTED, SINGLE, MANY, {**NESTED, **SINGLE}], ids=["nested", "apart", "many", "both"]
)
def test_groups_of_any_kind(stored: str, members: dict[str, list[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    rows, groups = features(0), Groups.from_lists(members)
    queries = SparseRows.of(features(1)[:4].toarray() * (np.arange(COLUMNS) % 2))
    blocks = []
    for start, stop in ((0, 25), (25, 26), (26, ROWS)):
        part = rows[start:stop]
        held = {"postings": Postings.of, "csr": lambda one: one}
        blocks.append(Block(start, held[stored](part)))
    expected = written_out(queries.toarray(), rows.toarray(), groups)
    found = group_scores(ask(queries, blocks), groups, "ngram-lm")
    assert found == pytest.approx(expected, rel=1e-5)
    monkeypatch.setattr(gains, "HELD", 0)  # the way of groups that have much in common
    assert group_scores(ask(queries, blocks), groups, "ngram-lm") == pytest.approx(expected, rel=1e-5)


def test_numbers_of_a_table_are_those_of_the_function() -> None:
    values = np.linspace(0, 9, 1000).astype(np.float16)
    assert (gains._expm1(values) == np.expm1(values.astype(np.float64))).all()


def test_memory_grows_with_the_groups_and_not_with_their_square() -> None:
    count = 6000
    rows = SparseRows.of(np.tile(np.array([[1.0, 0.5, 0.0]], np.float32), (count, 1)))
    queries = SparseRows.of(np.array([[0.0, 1.0, 0.0]], np.float32))
    groups = Groups.from_lists({str(row): [row] for row in range(count)})
    tracemalloc.start()
    found = group_scores(ask(queries, [Block(0, rows)]), groups, "ngram-lm")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == pytest.approx(0.5)
    assert peak < 4 * count**2, f"{peak:,} bytes, where a square matrix has {8 * count**2:,}"


def test_a_query_whose_ngrams_no_row_has_scores_0_for_many_groups() -> None:
    rows, groups = features(3), Groups.from_lists(MANY)
    lacking = rows.where(rows.indices < COLUMNS - 1)
    queries = SparseRows.from_cells(np.array([0]), np.array([COLUMNS - 1]), np.ones(1, np.float32), (1, COLUMNS))
    assert not gains.gain_scores(queries, [Block(0, lacking)], groups).any()
