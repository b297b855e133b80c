"""Measure what an index costs by the shard, by the example and by the byte, for docs/scale.md.

Run as ``python benchmarks/scale.py``. Shards of a few rows, so that many are made in a moment: what is measured of them
does not depend on their rows. Process CPU time on one thread.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from opening import RandomAttributor, numbered

import airrep
from airrep.attributors.methods import make_attributor
from airrep.index.rows import IndexRows
from airrep.index.sharing import build_part, join_parts
from airrep.runtime.artifacts import MANIFEST, file_digest
from airrep.scoring.groups import Groups

DEMO = Path(airrep.__file__).parent / "data" / "train.jsonl"
ROWS = 8


def seconds(work: Callable[[], object]) -> float:
    """CPU seconds of one call."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def main() -> None:
    """Print everything."""
    torch.set_num_threads(1)
    with TemporaryDirectory() as folder:
        shards(Path(folder))
        joining(Path(folder))
        hashing(Path(folder))
    group_maps()
    counting()


def shards(folder: Path) -> None:
    """Return what each shard adds to the manifest, to opening and to the open files."""
    found: dict[int, tuple[float, float, float]] = {}
    for count in (50, 200):
        index = airrep.build_index(numbered(ROWS * count), folder / f"i{count}", RandomAttributor(), shard_rows=ROWS)
        size = (index.path / MANIFEST).stat().st_size
        spent = min(seconds(lambda path=index.path: IndexRows(path)) for _ in range(5))  # type: ignore[misc]
        before = _open_files()
        held = [block.features for block in index.blocks(index.method)]
        found[count] = (size, spent, _open_files() - before)
        del held
    each = (np.array(found[200]) - np.array(found[50])) / 150
    print(f"a shard more: {each[0]:,.0f} bytes of manifest, {1e3 * each[1]:.3f} ms to open, {each[2]:.1f} open files")


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def joining(folder: Path) -> None:
    """CPU seconds of a join, by the shard."""
    corpus = numbered(ROWS * 200)
    parts = [
        build_part(corpus, folder / f"p{number}", f"{number}/4", RandomAttributor(), shard_rows=ROWS).path
        for number in range(1, 5)
    ]
    spent = seconds(lambda: join_parts(parts, folder / "joined"))
    print(f"join of 200 shards in 4 parts: {1e3 * spent / 200:.2f} ms a shard, beside reading, writing and checksums")


def hashing(folder: Path) -> None:
    """The rate of checksums."""
    path = folder / "bytes"
    path.write_bytes(os.urandom(2**26))
    spent = min(seconds(lambda: file_digest(path)) for _ in range(3))
    print(f"checksums: {2**26 / spent / 1e9:.2f} GB/s")


def group_maps() -> None:
    """Groups by source of a million rows."""
    rows, drawn = 1_000_000, np.random.default_rng(0)
    names = pa.array([f"source {number}" for number in drawn.integers(0, 1000, rows)], pa.large_string())
    made: list[Any] = []
    spent = seconds(lambda: made.append(Groups.from_labels(names)))
    held = made[0].rows.nbytes + made[0].offsets.nbytes
    print(
        f"group maps of 1,000 sources: {1e9 * spent / rows:.0f} ns and {held / rows:.1f} bytes a row, "
        f"{names.nbytes / rows:.1f} bytes of names"
    )


def counting() -> None:
    """Learning and encoding of the channels that count, by the example."""
    train = airrep.read_corpus(DEMO)
    some = list(train)
    for method in ("ngram", "tfidf"):
        made = make_attributor(method, {})
        fit = seconds(lambda one=made: one.fit(train))  # type: ignore[misc]
        encode = seconds(lambda one=made: one.encode_train(some))  # type: ignore[misc]
        print(f"{method}: learns {len(train) / fit:,.0f} examples/s, encodes {len(train) / encode:,.0f}")


if __name__ == "__main__":
    main()
