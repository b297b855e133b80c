"""Split a fine-tune's effect into a sum over the members of its subset, a part of pairs, and noise.

Usage: python experiments/bound/bound.py LABELS [--again LABELS] [--fits COUNT ...]

LABELS has one instance with many subsets of one size, finished or not; --again has two seeds of some of them.

Losses f(S) of subsets S of k of n examples split into parts of order 0, 1, 2 …: a constant, a sum over members, a sum
over pairs that no sum over members has, and so on. Parts of different orders do not correlate. The part of order j of
two subsets that share o members has the covariance σ²_j E_j(o), where E_j is the Hahn polynomial of degree j with
E_j(k) = 1 (the zonal functions of the Johnson scheme). So a regression of the products of two subsets' losses on E_1
and E_2 of their overlap, over all pairs of subsets, estimates σ²_1 and σ²_2 without bias. No weight of an example is
fitted. What a second seed does not repeat is noise. What is left is of order 3 and above.

The best score that adds up over members correlates with a loss by √(σ²_1 / σ²), a perfect predictor by √(1 − noise).
"""

import argparse
import sys
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

import airrep
from airrep.labels.labels import Labels


def main() -> None:
    """Print the shares, their bounds, and what datamodels reach."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("labels", type=Path)
    parser.add_argument("--again", type=Path, help="labels of two seeds, of the same pool and queries")
    parser.add_argument(
        "--fits", type=int, nargs="+", default=[250, 500, 1000, 1600], help="subsets to fit datamodels on"
    )
    given = parser.parse_args()
    labels = airrep.open(given.labels)
    members, losses = held(labels)
    if len(losses) < 50:
        sys.exit(f"{given.labels}: has {len(losses)} fine-tuned subsets; expected 50 or more.")
    noise = noise_share(airrep.open(given.again).losses(0)) if given.again else np.full(losses.shape[1], np.nan)
    additive, pairs = shares(members, losses).T
    queries, pool = losses.shape[1], members.shape[1]
    print(f"{given.labels}: {len(losses):,} subsets of {members[0].sum()} of {pool}, {queries} queries")
    print("shares of the variance, mean over queries (95 % interval over queries), in %")
    rest = 1 - additive - noise
    rows = {"sum over members": additive, "noise of the seed": noise, "interactions": rest, "of these pairs": pairs}
    for name, share in rows.items():
        low, high = interval(share)
        print(f"  {name:18} {100 * share.mean():6.1f} ({100 * low:.1f} to {100 * high:.1f})")
    print("LDS x 100 that can be reached against one seed, mean over queries")
    for name, share in {"any sum over members": additive, "perfect": 1 - noise}.items():
        print(f"  {name:22} {100 * as_rank(np.sqrt(share.clip(0, 1))).mean():6.1f}")
    print("LDS x 100 of datamodels (ridge regressions) on the last fifth of the subsets")
    for count in given.fits:
        if count <= 0.8 * len(losses):
            by_sum, by_pairs = datamodels(members, losses, count)
            print(f"  {count:5,} subsets: sum {100 * by_sum:5.1f}, with pairs {100 * by_pairs:5.1f}")


def held(labels: Labels) -> tuple[np.ndarray, np.ndarray]:
    """Members ``(s, n)`` bool and losses ``(s, q)`` of the subsets that were fine-tuned on with seed 0."""
    losses = labels.losses(0)[0].T
    done = np.isfinite(losses).all(axis=1)
    subsets = labels.plan.instance(0).subsets
    members = np.zeros((len(losses), len(labels.plan.train_rows(0))), bool)
    for number, row in enumerate(members):
        row[subsets.members(number)] = True
    return members[done], losses[done].astype(np.float64)


def shares(members: np.ndarray, losses: np.ndarray) -> np.ndarray:
    """Shares ``(q, 2)`` of the variance that are of order 1 and 2; unbiased, so some lie outside 0 to 1."""
    size, pool = int(members[0].sum()), members.shape[1]
    overlap = (members.astype(np.float32) @ members.T.astype(np.float32)).astype(np.float64)
    # Order 0 takes up that the mean of the losses was subtracted.
    orders = np.stack([hahn(overlap, order, size, pool) for order in range(3)])
    orders[:, np.arange(len(members)), np.arange(len(members))] = 0  # a subset with itself tells of noise too
    apart = (losses - losses.mean(axis=0)) / losses.std(axis=0, ddof=1)
    gram = np.einsum("ars,brs->ab", orders, orders, optimize=True)
    products = np.stack([((kernel @ apart) * apart).sum(axis=0) for kernel in orders])
    return np.linalg.solve(gram, products)[1:].T


def hahn(overlap: np.ndarray, order: int, size: int, pool: int) -> np.ndarray:
    """E_order of an overlap: ₃F₂(−j, −i, j − n − 1; k − n, −k; 1), where i = k − o members differ."""
    apart, value, term = size - overlap, np.ones_like(overlap), np.ones_like(overlap)
    for step in range(order):
        up = (step - order) * (step - apart) * (order - pool - 1 + step)
        term = term * up / ((size - pool + step) * (step - size) * (step + 1))
        value = value + term
    return value


def noise_share(by_seed: np.ndarray) -> np.ndarray:
    """Share ``(q,)`` of the variance over subsets that a second seed does not repeat; *by_seed* is ``(2, q, s)``."""
    apart = (by_seed[0] - by_seed[1]).astype(np.float64)
    apart -= apart.mean(axis=1, keepdims=True)
    return (apart**2).sum(axis=1) / (by_seed.shape[2] - 1) / 2 / by_seed.var(axis=2, ddof=1).mean(axis=0)


def as_rank(correlation: np.ndarray) -> np.ndarray:
    """Spearman's correlation of two normal variables that have this one of Pearson's."""
    return 6 / np.pi * np.arcsin(correlation / 2)


def interval(values: np.ndarray) -> tuple[float, float]:
    """95 % of means of queries drawn again."""
    drawn = np.random.default_rng(0).integers(len(values), size=(2000, len(values)))
    low, high = np.quantile(values[drawn].mean(axis=1), [0.025, 0.975])
    return float(low), float(high)


def datamodels(members: np.ndarray, losses: np.ndarray, count: int) -> tuple[float, float]:
    """Mean LDS of kernel ridge regressions on *count* subsets: of a sum over members, and of pairs as well.

    The strength and, for pairs, their weight are those that predict best a third of the *count* that was kept aside.
    """
    tested = slice(len(losses) - len(losses) // 5, None)
    fitted, chosen = slice(0, count - count // 3), slice(count - count // 3, count)
    size, pool = int(members[0].sum()), members.shape[1]
    overlap = (members.astype(np.float32) @ members.T.astype(np.float32)).astype(np.float64)
    orders = [hahn(overlap, order, size, pool) for order in (1, 2)]
    results = []
    for weights in ([0.0], [0.0, 0.1, 0.3, 1.0, 3.0]):
        tried = [(weight, strength) for weight in weights for strength in 10.0 ** np.arange(-2, 2.1, 0.5)]
        kernels = {weight: orders[0] + weight * orders[1] for weight in weights}
        scored = [ridge(kernels[weight], losses, fitted, chosen, strength) for weight, strength in tried]
        best = np.argmax(scored, axis=0)
        whole = slice(0, count)
        results.append(
            np.mean(
                [
                    ridge(kernels[tried[turn][0]], losses[:, [query]], whole, tested, tried[turn][1])[0]
                    for query, turn in enumerate(best)
                ]
            )
        )
    return float(results[0]), float(results[1])


def ridge(kernel: np.ndarray, losses: np.ndarray, fitted: slice, asked: slice, strength: float) -> np.ndarray:
    """Spearman's correlation ``(q,)`` of predicted and true losses of the subsets *asked*."""
    mean = losses[fitted].mean(axis=0)
    among = kernel[fitted, fitted]
    weights = np.linalg.solve(among + strength * np.eye(len(among)), losses[fitted] - mean)
    found = kernel[asked, fitted] @ weights
    pairs = zip(found.T, losses[asked].T, strict=True)
    return np.array([spearmanr(one, other).statistic for one, other in pairs])


if __name__ == "__main__":
    main()
