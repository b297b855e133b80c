"""Start-up, a cold question to a small index, and search of a large one, on one thread.

Usage: python benchmarks/opening.py [ROWS]      (default 1,000,000 rows of 384 features; needs 1.3 kB a row of disk)

The cold question is `airrep top` in a process of its own on an index of the demo's data; where its time goes is told
by package, from Python's own `-X importtime`. The large index has random features and short examples, so that building
takes a minute: nothing here depends on them.
"""

import hashlib
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

import airrep
from airrep.corpus.table import SCHEMA
from airrep.runtime.settings import Settings

DIMENSION = 384
SHARD_ROWS = 4096


class RandomAttributor(airrep.Attributor):
    """Unit vectors drawn from a seed made of the first example's id."""

    name = "random"
    pool = "attention"

    @property
    def settings(self) -> Settings:
        return Settings()

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(b"random").hexdigest()

    def encode_train(
        self, examples: Sequence[airrep.Example], on_rows: Callable[[int], None] | None = None
    ) -> np.ndarray:
        seed = int(examples[0].id) if len(examples) else 0
        drawn = np.random.default_rng(seed).standard_normal((len(examples), DIMENSION), np.float32)
        return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def numbered(rows: int) -> airrep.Corpus:
    """A corpus of short examples."""
    ids = pa.array(map(str, range(rows)), pa.large_string())
    nulls = pa.nulls(rows, pa.large_string())
    return airrep.Corpus(pa.table([ids, ids, ids, nulls, nulls, nulls], schema=SCHEMA))


def best_seconds(work: Callable[[], object], rounds: int) -> float:
    """Least wall time of some rounds."""
    times = []
    for _ in range(rounds):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return min(times)


def python_seconds(*arguments: str) -> float:
    """Least wall time of starting Python with these arguments."""
    command = [sys.executable, *arguments]
    return best_seconds(lambda: subprocess.run(command, check=True, capture_output=True), 5)


def cold_question(folder: Path) -> None:
    """Ask an index of the demo's data once, in a new process; print how long it took and what was loaded."""
    train = airrep.read_corpus(Path(airrep.__file__).parent / "data" / "train.jsonl")
    airrep.build_index(train, folder)
    ask = ["-m", "airrep", "top", str(folder), "--prompt", "What is 12 times 9?", "--response", "It is 108."]
    line("airrep top, cold, on the demo's index", whole := python_seconds(*ask), 2.0)
    told = subprocess.run([sys.executable, "-X", "importtime", *ask], check=True, capture_output=True, text=True).stderr
    loading: Counter[str] = Counter()
    for entry in told.splitlines():
        own, _, name = entry.removeprefix("import time:").split("|")
        if own.strip().isdigit():
            loading[name.strip().split(".")[0]] += int(own) / 1e6
    for name, seconds in loading.most_common(6):
        print(f"    loading {name:<36}{seconds * 1000:>10.0f} ms")
    print(f"    all else: Python, encoder, question {max(whole - loading.total(), 0) * 1000:>16.0f} ms")


def line(what: str, seconds: float, ask: float) -> None:
    """Print one row of the table."""
    print(f"{what:<48}{seconds * 1000:>10.0f} ms   asked {ask * 1000:.0f} ms   {'ok' if seconds <= ask else 'MISSED'}")


def main(rows: int) -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    bare = python_seconds("-c", "pass")
    line("import airrep, beyond Python itself", python_seconds("-c", "import airrep") - bare, 0.1)
    line("airrep --help", python_seconds("-m", "airrep.cli.app", "--help"), 0.5)
    with tempfile.TemporaryDirectory() as folder:
        cold_question(Path(folder) / "demo")
        path = Path(folder) / "index"
        airrep.build_index(numbered(rows), path, RandomAttributor(), shard_rows=SHARD_ROWS)
        line(f"open {rows:,} x {DIMENSION}", best_seconds(lambda: airrep.Index(path), 3), 0.1)
        index = airrep.Index(path, RandomAttributor())
        query = airrep.Example("query", "query", id="7")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        first = best_seconds(lambda: index.top(query, k=10), 1)
        line("top-10 of one query, warm", best_seconds(lambda: index.top(query, k=10), 5), 0.5)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        print(
            f"the first query took {first * 1000:.0f} ms; peak memory grew by {grown:,.0f} MiB, maps of files counted"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
