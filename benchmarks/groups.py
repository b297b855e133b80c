"""Group scores against a per-subset loop and the bare product, both in torch.

Run as ``python benchmarks/groups.py``. Process CPU time on one thread, candidates in turns. ``--n`` and the
like change the shape; the default is 1,000 queries, 20,000 examples of 384 features, 100 groups of 1,000.
"""

import argparse
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from cpu import extra_memory, interleave, processor, verdict

from airrep.scoring.blocks import Block
from airrep.scoring.group_scores import group_scores
from airrep.scoring.groups import Groups
from airrep.scoring.products import ask

NORM = 5**0.5
"""Scores of unit vectors times 5, as the shipped encoder's."""


def unit_rows(generator: np.random.Generator, rows: int, d: int) -> np.ndarray:
    """Random directions of norm NORM, float32."""
    features = generator.standard_normal((rows, d), dtype=np.float32)
    return features * (NORM / np.linalg.norm(features, axis=1, keepdims=True))


def loop(queries: torch.Tensor, train: torch.Tensor, members: list[torch.Tensor]) -> torch.Tensor:
    """Score the members of one group after another: the obvious implementation, float32."""
    scores = torch.empty(len(queries), len(members))
    for j, rows in enumerate(members):
        s = queries @ train[rows].T
        scores[:, j] = (torch.softmax(s.abs(), dim=1) * s).sum(dim=1)
    return scores


def product(queries: torch.Tensor, train: torch.Tensor, rows: int = 1024) -> None:
    """Multiply all queries with all rows piece by piece, and forget the products: the fastest product there is."""
    for start in range(0, len(train), rows):
        torch.mm(train[start : start + rows], queries.T)


def compare(title: str, members: list[np.ndarray], features: np.ndarray, queries: np.ndarray, rounds: int) -> None:
    """Print one table."""
    groups = Groups.from_lists({str(j): rows for j, rows in enumerate(members)})
    blocks, stored = [Block(0, features)], torch.from_numpy(features).float()
    asked, lists = torch.from_numpy(queries), [torch.from_numpy(rows) for rows in members]
    used = stored[torch.from_numpy(np.unique(groups.rows))]
    candidates: dict[str, Callable[[], object]] = {
        "per-subset loop": lambda: loop(asked, stored, lists),
        "bare product": lambda: product(asked, used),
        "product at once": lambda: asked @ used.T,
        "airrep": lambda: group_scores(ask(queries, blocks), groups, "attention"),
        "airrep mean": lambda: group_scores(ask(queries, blocks), groups, "mean"),
    }
    seconds = interleave(candidates, rounds)
    plain = loop(asked, stored, lists).numpy()
    print(f"\n{title}: {len(queries)} queries, {len(used)} examples scored, {len(members)} groups")
    for name, spent in seconds.items():
        print(f"  {name:16} {spent:8.3f} s   {seconds['per-subset loop'] / spent:6.2f} x the loop")
    ours = seconds["airrep"]
    overlap = len(groups.rows) / len(used)
    times = seconds["per-subset loop"] / ours
    print(f"  times the loop: {verdict(times, 3.0) if overlap > 3 else f'{times:.2f} (nothing to share)'}")
    print(f"  share of the bare product (float32 rows, pieces): {verdict(seconds['bare product'] / ours, 0.75)}")
    print(f"  share of the product at once: {verdict(seconds['product at once'] / ours, 0.75)}")
    found = group_scores(ask(queries, blocks), groups, "attention")
    print(f"  greatest difference from the loop: {np.abs(found - plain).max():.1e}")


def scoring_of(n: int) -> Callable[[], object]:
    """Group scores over n rows in 50 groups for 64 queries, ready to run."""
    torch.set_num_threads(1)
    generator = np.random.default_rng(0)
    features = np.resize(unit_rows(generator, 10_000, 384).astype(np.float16), (n, 384))
    groups = Groups.from_labels([str(i % 50) for i in range(n)])
    return partial(group_scores, unit_rows(generator, 64, 384), [Block(0, features)], groups, "attention")


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("q", 1000), ("n", 20_000), ("d", 384), ("m", 100), ("k", 1000), ("rounds", 7)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    generator = np.random.default_rng(0)
    print(processor())
    features = unit_rows(generator, asked.n, asked.d).astype(np.float16)
    queries = unit_rows(generator, asked.q, asked.d)
    overlapping = [generator.choice(asked.n, asked.k, replace=False) for _ in range(asked.m)]
    compare("Overlapping groups", overlapping, features, queries, asked.rounds)
    apart = np.array_split(generator.permutation(asked.n), max(1, asked.n // asked.k))
    compare("Groups without overlap", apart, features, queries, asked.rounds)
    print("\nExtra memory for 64 queries and 50 groups that hold every row")
    for n in (50_000, 200_000, 800_000):
        print(f"  n = {n:7}: {extra_memory(scoring_of, n):7.1f} MiB")


if __name__ == "__main__":
    main()
