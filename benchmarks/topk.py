"""Exact top-k: speed against FAISS flat, torch and numpy, and of one query.

Run as ``python benchmarks/topk.py``. Process CPU time on one thread, candidates in turns. The others hold the
same features (float16 as stored, widened to float32) and search all of them too. To see a processor that has AVX2
alone, put ``env $(python tests/worlds/plain_processor.py) MKL_ENABLE_INSTRUCTIONS=AVX2`` before it.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import faiss
import numpy as np
import torch
from cpu import extra_memory, interleave, processor, verdict

from airrep.scoring.blocks import Block, error_bounds, quantise
from airrep.scoring.products import ask
from airrep.scoring.topk import top_k

D, K, SHARD, WIDE = 384, 100, 100_000, 16_384
FIELDS = ("features", "codes", "scales", "bounds")


def unit_rows(generator: np.random.Generator, rows: int) -> np.ndarray:
    """Random directions, float16: the hardest case, no row near any query."""
    features = generator.standard_normal((rows, D), dtype=np.float32)
    return (features / np.linalg.norm(features, axis=1, keepdims=True)).astype(np.float16)


def clustered_rows(generator: np.random.Generator, rows: int) -> np.ndarray:
    """Directions around 300 centres, float16: more as text embeddings lie."""
    centres = generator.standard_normal((300, D), dtype=np.float32)
    features = generator.standard_normal((rows, D), dtype=np.float32) + centres[generator.integers(0, 300, rows)]
    return (features / np.linalg.norm(features, axis=1, keepdims=True)).astype(np.float16)


def block_of(start: int, features: np.ndarray) -> Block:
    """A block with codes."""
    codes, scales = quantise(features)
    return Block(start, features, codes, scales, error_bounds(features, codes, scales))


def against_faiss(title: str, features: np.ndarray, queries: np.ndarray, rounds: int) -> None:
    """Print one table, and the recall against float64 products of all rows."""
    flat = faiss.IndexFlatIP(D)
    flat.add(features.astype(np.float32))
    starts = range(0, len(features), SHARD)
    blocks = [block_of(start, features[start : start + SHARD]) for start in starts]
    plain = [Block(block.start, block.features) for block in blocks]
    candidates: dict[str, Callable[[], object]] = {
        "FAISS flat": lambda: flat.search(queries, K),
        "airrep": lambda: top_k(ask(queries, blocks), K),
        "airrep, no codes": lambda: top_k(ask(queries, plain), K),
    }
    seconds = interleave(candidates, rounds)
    print(f"\n{title}: top {K} of {len(features):,} x {D} for {len(queries)} queries")
    for name, spent in seconds.items():
        print(f"  {name:17} {spent:7.3f} s")
    print(f"  times FAISS: {verdict(seconds['FAISS flat'] / seconds['airrep'], 5.0)}")
    print(f"  times FAISS, no codes: {seconds['FAISS flat'] / seconds['airrep, no codes']:.2f}")
    exact = np.stack([np.argsort(-(features @ query), kind="stable")[:K] for query in queries.astype(np.float64)])
    found = top_k(ask(queries, blocks), K).rows
    recall = np.mean([len(np.intersect1d(a, b)) / K for a, b in zip(exact, found, strict=True)])
    print(f"  recall@{K} against float64: {recall:.4f} (ask >= 0.999)")


def against_products(title: str, features: np.ndarray, queries: np.ndarray, rounds: int) -> None:
    """Print few queries against the plain products of torch and numpy, each with its own selection of the first 10."""
    starts = range(0, len(features), SHARD)
    blocks = [block_of(start, features[start : start + SHARD]) for start in starts]
    wide = features.astype(np.float32)
    rows = torch.from_numpy(wide)
    for count, asks in ((32, {"torch": 2.5}), (8, {}), (1, {"numpy": 1.2})):
        asked = queries[:count]
        told = torch.from_numpy(asked)
        candidates: dict[str, Callable[[], object]] = {
            "torch": lambda told=told: torch.topk(told @ rows.t(), 10),
            "numpy": lambda asked=asked: np.argpartition(asked @ wide.T, -10, axis=1)[:, -10:],
            "airrep": lambda asked=asked: top_k(ask(asked, blocks), 10),
        }
        seconds = interleave(candidates, 3 * rounds)
        print(f"\n{title}: top 10 of {len(features):,} x {D} in memory, queries: {count}")
        for name, spent in seconds.items():
            print(f"  {name:17} {spent:7.4f} s")
        for name in ("torch", "numpy"):
            ratio = seconds[name] / seconds["airrep"]
            print(f"  times {name}: {verdict(ratio, asks[name]) if name in asks else f'{ratio:.2f}'}")


def against_gradients(generator: np.random.Generator, rows: int, rounds: int) -> None:
    """Print wide features with few large numbers, as gradients have them, against a plain product in torch."""
    scales = 10.0 ** generator.uniform(-1, 1, (rows + 64, 1))
    features = (generator.standard_t(1.5, (rows + 64, WIDE)) * scales).clip(-6e4, 6e4).astype(np.float16)
    queries, block = features[rows:].astype(np.float32), block_of(0, features[:rows])
    plain = torch.from_numpy(features[:rows])
    for count in (64, 1):
        asked = queries[:count]
        told = torch.from_numpy(asked)
        candidates: dict[str, Callable[[], object]] = {
            "torch": lambda told=told: torch.topk(told @ plain.float().t(), 10),
            "airrep": lambda asked=asked: top_k(ask(asked, [block]), 10),
        }
        seconds = interleave(candidates, rounds)
        print(f"\nTop 10 of {rows:,} x {WIDE:,} as gradients are, stored as float16, queries: {count}")
        for name, spent in seconds.items():
            print(f"  {name:17} {spent:7.3f} s")
        print(f"  times torch: {seconds['torch'] / seconds['airrep']:.2f}")


def one_query(generator: np.random.Generator, n: int, folder: Path) -> None:
    """Print the time of one query over an index on disk, opened as memory maps."""
    blocks = []
    for start in range(0, n, SHARD):
        made = block_of(start, unit_rows(generator, SHARD))
        for name in FIELDS:
            np.save(folder / f"{name}-{start}.npy", getattr(made, name))
        maps = [np.load(folder / f"{name}-{start}.npy", mmap_mode="c") for name in FIELDS]
        blocks.append(Block(start, *maps))
    plain = [Block(block.start, block.features) for block in blocks]
    query = unit_rows(generator, 1).astype(np.float32)
    print(f"\nTop 10 of {n:,} x {D} on disk for one query, once warm")
    for name, held in (("airrep", blocks), ("airrep, no codes", plain)):
        top_k(ask(query, held), 10)
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(5):
            top_k(ask(query, held), 10)
        cpu, wall = (time.process_time() - cpu) / 5, (time.perf_counter() - wall) / 5
        print(f"  {name:17} {cpu:.3f} s of CPU, {wall:.3f} s on the clock (ask <= 0.2)")


def search_of(n: int) -> Callable[[], object]:
    """A search for 64 queries over n rows, ready to run."""
    torch.set_num_threads(1)
    generator = np.random.default_rng(0)
    block = block_of(0, np.resize(unit_rows(generator, 20_011), (n, D)))
    return partial(top_k, ask(unit_rows(generator, 64).astype(np.float32), [block]), K)


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("n", 300_000), ("one", 1_000_000), ("wide", 4_000), ("q", 64), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    generator = np.random.default_rng(0)
    print(processor())
    for title, rows in (("Random directions", unit_rows), ("Clusters", clustered_rows)):
        features = rows(generator, asked.n + asked.q)
        queries = features[asked.n :].astype(np.float32)
        against_faiss(title, features[: asked.n], queries, asked.rounds)
        against_products(title, features[: asked.n], queries, asked.rounds)
    against_gradients(generator, asked.wide, asked.rounds)
    with tempfile.TemporaryDirectory() as folder:
        one_query(generator, asked.one, Path(folder))
    print("\nExtra memory of a search for 64 queries")
    for n in (50_000, 200_000, 800_000):
        print(f"  n = {n:7}: {extra_memory(search_of, n):7.1f} MiB")


if __name__ == "__main__":
    main()
