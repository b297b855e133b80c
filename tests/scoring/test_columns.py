"""Products of sparse rows that are as wide as hashed n-grams; devices of dense ones."""

import subprocess
import sys
import tracemalloc
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from worlds.pretend_card import pretended_card

import airrep.scoring
from airrep.scoring.asked import SumAsked, stream_scores
from airrep.scoring.blocks import Block
from airrep.scoring.columns import Postings, SparseProducts
from airrep.scoring.devices import device_of, widened
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
    blocks = [Block(a, Postings.of(SparseRows.of(table[a:b].astype(np.float32)))) for a, b in bounds]
    counts = ask(SparseRows.of(channels), blocks)
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
    columns, others = np.r_[0:40:3, 39], np.r_[1, 5, 38]
    for wanted in (columns, others, columns):  # places are kept of those that were asked for last
        for rows in ([7], [499, 0, 250], range(200)):
            found = postings.of_rows(np.array(rows), wanted)
            np.testing.assert_array_equal(found.toarray(), table[list(rows)][:, wanted].astype(np.float16))
        np.testing.assert_array_equal(postings.select(wanted).toarray(), table[:, wanted].astype(np.float16))
    nothing = Postings.of(SparseRows.empty(3, 40))
    assert nothing.frequent is None
    assert nothing.of_rows(np.array([1]), columns).nnz == 0


EVERY = np.arange(2**16, dtype=np.uint16).view(np.float16)
"""All numbers that a float16 can be."""

PROGRAM = """
import sys
sys.modules["torch"] = None
import importlib
import numpy as np
from airrep.scoring.blocks import Block, error_bounds, quantise
from airrep.scoring.group_scores import by_channel, group_scores
from airrep.scoring.groups import Groups
from airrep.scoring.asked import score_all
from airrep.scoring.pooling import Pooling
from airrep.scoring.products import ask
from airrep.scoring.topk import top_k

for name in sys.argv[2:]:
    importlib.import_module(name)
generator = np.random.default_rng(0)
features, queries = generator.normal(size=(300, 24)).astype(np.float16), generator.normal(size=(5, 24))
codes, scales = quantise(features)
blocks = [Block(0, features, codes, scales, error_bounds(features, codes, scales))]
asked = ask(queries, blocks)
groups = Groups.from_lists({str(j): range(j, j + 30) for j in range(0, 200, 7)})
found = dict(zip(("rows", "scores"), top_k(asked, 9), strict=True))
for pool in ("sum", "mean", "diminishing", "attention", "signed-attention", "order-2"):
    found[pool] = group_scores(asked, groups, pool)
found["exact"] = by_channel(asked, groups, Pooling("attention"), "all", exact=True)["all"]
found["all"] = score_all(ask(queries.astype(np.float32), [Block(0, features)]))
np.savez(sys.argv[1], **found)
"""


def test_all_of_it_runs_where_torch_cannot_be_imported_and_gives_the_same(tmp_path: Path) -> None:
    folder = Path(airrep.scoring.__file__).parent
    parts = [path.relative_to(folder.parent).with_suffix("").parts for path in folder.rglob("*.py")]
    names = [".".join(("airrep", *part)) for part in parts if part[-1] != "__init__"]
    results = []
    for name, program in (
        ("without", PROGRAM),
        ("with", PROGRAM.replace('sys.modules["torch"] = None', "import torch")),
    ):
        path = tmp_path / f"{name}.npz"
        subprocess.run([sys.executable, "-c", program, path, *names, "airrep.arrays"], check=True)
        results.append(np.load(path))
    without, beside = results
    assert len(names) > 9
    assert set(without.files) == set(beside.files)
    for name in without.files:
        np.testing.assert_array_equal(without[name], beside[name])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("numbers", [EVERY, EVERY[np.isfinite(EVERY)]], ids=["every", "finite"])
def test_widening_a_float16_is_exact(dtype: type, numbers: np.ndarray) -> None:
    for d in (1, 7, 4096):
        features = np.resize(numbers, (-(-len(numbers) // d), d))
        room = np.full((len(features) + 2, d), 5, dtype)
        np.testing.assert_array_equal(widened(features, room), features.astype(dtype))
        assert (room[len(features) :] == 5).all()
        np.testing.assert_array_equal(widened(features[:, d // 2 :], room[:, d // 2 :]), features[:, d // 2 :])


def test_float32_is_read_in_place_and_codes_are_widened() -> None:
    features, room = np.ones((3, 2), np.float32), np.empty((5, 2), np.float32)
    assert widened(features, room) is features
    np.testing.assert_array_equal(widened(np.array([[-127, 3]], np.int8), room), [[-127, 3]])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8])
def test_a_card_takes_what_the_processor_takes(dtype: type) -> None:
    generator = np.random.default_rng(0)
    features, queries = (generator.normal(size=(n, 8)) * 9 for n in (20, 3))
    features, queries = features.astype(dtype), queries.astype(np.float32)
    features.flags.writeable = queries.flags.writeable = False
    found = []
    with pretended_card():
        for name in ("cpu", "cuda:0"):
            device, out = device_of(name), np.empty((20, 3), np.float32)
            rows = device.rows(features, np.empty((20, 8), np.float32))
            device.multiply(rows, device.queries(queries), out)
            found.append((out, device.norms(rows)))
    for here, there in zip(*found, strict=True):
        np.testing.assert_allclose(there, here, rtol=1e-5, atol=1e-4)


def test_norms_are_told_where_squares_are_too_large() -> None:
    rows = np.array([[3e30, 4e30], [3.0, 4.0]], np.float32)
    np.testing.assert_allclose(device_of("cpu").norms(rows), [5e30, 5.0], rtol=1e-6)
