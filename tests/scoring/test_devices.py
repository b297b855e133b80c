"""Devices: torch stays unloaded, and widening is exact."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from worlds.pretend_card import pretended_card

import airrep.scoring
from airrep.scoring.devices import device_of, widened

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
    assert len(names) > 12
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
