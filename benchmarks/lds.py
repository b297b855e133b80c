"""LDS at full size: time against ranking and pooling pair by pair, and peak memory.

Run as ``python benchmarks/lds.py``. Synthetic features, nothing is encoded; the index is built before. ``--n`` and the
like change the shape; the default is that of the published test of FLAN, 6,520 queries and 100 subsets, over 100,000
examples of 384 features, 1,000 in a subset.

The plain way is a Python loop over pairs of query and subset (gather the members' features, score, softmax, sum), and
SciPy's Spearman query by query. It is timed on a sample of queries with all their subsets, ``--sample`` of them, in
turns with ours, and EXTRAPOLATED in proportion to the queries; its values are compared with ours. Times are process CPU
time on one thread. Peak memory is that of a process of its own, the interpreter and its libraries included.
"""

import argparse
import multiprocessing
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import torch
from cpu import verdict
from scipy import stats

from airrep.attributors.base import Attributor, OnRows
from airrep.corpus.corpus import Corpus, Example
from airrep.evaluation.lds import evaluate_lds
from airrep.evaluation.result import Evaluation
from airrep.index.building import build_index
from airrep.index.index import Index
from airrep.labels.labels import LabelledInstance
from airrep.runtime.artifacts import json_digest
from airrep.runtime.settings import Settings
from airrep.scoring.groups import Groups

NORM = 5**0.5
"""Scores of unit vectors times 5, as the shipped encoder's."""


class Shape(NamedTuple):
    """How much of everything."""

    q: int
    m: int
    n: int
    d: int
    k: int


class Synthetic(Attributor):
    """Random directions, looked up by the number in an example's id."""

    name, pool = "synthetic", "attention"

    def __init__(self, shape: Shape) -> None:
        self.train, self.queries = (_unit_rows(i, rows, shape.d) for i, rows in enumerate((shape.n, shape.q)))

    @property
    def settings(self) -> Settings:
        return Settings()

    @property
    def fingerprint(self) -> str:
        return json_digest(self.name)

    def encode_train(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> np.ndarray:
        return self._look_up(self.train, examples, on_rows)

    def encode_queries(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> np.ndarray:
        return self._look_up(self.queries, examples, on_rows)

    def _look_up(self, features: np.ndarray, examples: Sequence[Example], on_rows: OnRows | None) -> np.ndarray:
        if on_rows is not None:
            on_rows(len(examples))
        return features[[int(example.id[1:]) for example in examples]]


def _unit_rows(seed: int, rows: int, d: int) -> np.ndarray:
    features = np.random.default_rng(seed).standard_normal((rows, d), dtype=np.float32)
    features *= NORM / np.linalg.norm(features, axis=1, keepdims=True)
    return features


def corpus(prefix: str, count: int) -> Corpus:
    """Texts that nobody reads."""
    return Corpus.from_examples(Example(f"question {prefix}{i}", f"answer {i}", f"{prefix}{i}") for i in range(count))


def make_instance(shape: Shape) -> LabelledInstance:
    """Random subsets and losses."""
    generator = np.random.default_rng(9)
    subsets = {str(j): generator.choice(shape.n, shape.k, replace=False) for j in range(shape.m)}
    losses = generator.standard_normal((shape.q, shape.m), dtype=np.float32)
    return LabelledInstance("0", corpus("t", shape.n), corpus("q", shape.q), Groups.from_lists(subsets), losses)


def ours(folder: Path, shape: Shape, rows: int, resamples: int) -> tuple[Evaluation, float]:
    """Evaluate as the command does, from an index on disk; CPU seconds."""
    torch.set_num_threads(1)
    instance, method = make_instance(shape), Synthetic(shape)
    start = time.process_time()
    indexes = [Index(folder, method) for _ in range(rows)]
    found = evaluate_lds(indexes, [instance], resamples=resamples, names=[str(row) for row in range(rows)])
    return found, time.process_time() - start


def plain(folder: Path, shape: Shape, instance: LabelledInstance, queries: np.ndarray) -> np.ndarray:
    """LDS of some queries, pair by pair."""
    train = np.concatenate([block.features for block in Index(folder).blocks(Synthetic.name)]).astype(np.float32)
    features = _unit_rows(1, shape.q, shape.d)
    values = np.empty(len(queries))
    for place, x in enumerate(queries):
        scores = []
        for j in range(shape.m):
            s = train[instance.subsets.members(j)] @ features[x]
            weights = np.exp(np.abs(s) - np.abs(s).max())
            scores.append(float((weights * s).sum() / weights.sum()))
        values[place] = stats.spearmanr(scores, -instance.losses[x]).statistic
    return values


def build(folder: Path, shape: Shape) -> None:
    """Write the index."""
    build_index(corpus("t", shape.n), folder, Synthetic(shape))


def peak(folder: Path, shape: Shape, rows: int, resamples: int) -> tuple[float, float, float]:
    """GiB that a process held at most while it evaluated, its texts included; its CPU seconds; a value."""
    found, seconds = ours(folder, shape, rows, resamples)
    most = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
    return most / 2**20, seconds, found.rows[0].value


def alone(function: object, *arguments: object) -> object:
    """Run something in a process of its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def compare(folder: Path, shape: Shape, sample: int, rounds: int) -> None:
    """Print the ratio, both in turns."""
    instance = make_instance(shape)
    chosen = np.sort(np.random.default_rng(3).choice(shape.q, min(sample, shape.q), replace=False))
    ours_seconds, plain_seconds, difference = [], [], 0.0
    for _ in range(rounds):
        found, seconds = ours(folder, shape, 1, 1)
        ours_seconds.append(seconds)
        start = time.process_time()
        values = plain(folder, shape, instance, chosen)
        plain_seconds.append((time.process_time() - start) * shape.q / len(chosen))
        difference = max(difference, float(np.abs(values - found.rows[0].per_query[chosen]).max()))
    fast, slow = statistics.median(ours_seconds), statistics.median(plain_seconds)
    print(f"  airrep, group scores and LDS, no interval  {fast:9.1f} s")
    print(f"  pair by pair, from {len(chosen)} of {shape.q:,} queries  {slow:9.1f} s (extrapolated)")
    print(f"  times as fast: {verdict(slow / fast, 10)}; greatest difference of a query's value {difference:.1e}")


def main() -> None:
    """Print all numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("q", 6520), ("m", 100), ("n", 100_000), ("d", 384), ("k", 1000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    for name, default in (("sample", 40), ("rounds", 3), ("resamples", 1000), ("rows", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    shape = Shape(asked.q, asked.m, asked.n, asked.d, asked.k)
    with TemporaryDirectory() as place:
        folder = Path(place) / "index"
        alone(build, folder, shape)
        print(f"{shape.q:,} queries x {shape.m:,} subsets of {shape.k:,} x {shape.n:,} examples of {shape.d} features")
        compare(folder, shape, asked.sample, asked.rounds)
        gib, seconds, value = alone(peak, folder, shape, asked.rows, asked.resamples)
        print(f"  {asked.rows} rows with intervals of {asked.resamples:,} resamples: {seconds:.1f} s; LDS {value:+.4f}")
        print(f"  peak memory: {gib:.2f} GiB (ask < 4: {'met' if gib < 4 else 'MISSED'})")


if __name__ == "__main__":
    main()
