"""The linear datamodelling score and its two-way bootstrap, by loops."""

import math
from collections.abc import Sequence


def average_ranks(values: Sequence[float]) -> list[float]:
    """Return ranks from 1 on; equal values share the mean of their places."""
    ranks = []
    for value in values:
        below = sum(other < value for other in values)
        equal = sum(other == value for other in values)
        ranks.append(below + (equal + 1) / 2)
    return ranks


def pearson(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the correlation; NaN if a side is constant."""
    mean_one, mean_other = math.fsum(one) / len(one), math.fsum(other) / len(other)
    together = math.fsum((a - mean_one) * (b - mean_other) for a, b in zip(one, other, strict=True))
    spread_one = math.fsum((a - mean_one) ** 2 for a in one)
    spread_other = math.fsum((b - mean_other) ** 2 for b in other)
    if spread_one == 0 or spread_other == 0:
        return math.nan
    return together / math.sqrt(spread_one * spread_other)


def spearman(one: Sequence[float], other: Sequence[float]) -> float:
    """Return Pearson's correlation of the average ranks."""
    return pearson(average_ranks(one), average_ranks(other))


def of_query(scores: Sequence[float], losses: Sequence[float]) -> float:
    """Return Spearman(f, −ℓ) over the subsets whose loss is there."""
    pairs = [(f, -loss) for f, loss in zip(scores, losses, strict=True) if not math.isnan(loss)]
    return spearman([f for f, _ in pairs], [r for _, r in pairs]) if pairs else math.nan


def lds(scores: Sequence[Sequence[float]], losses: Sequence[Sequence[float]], nan: str = "drop") -> float:
    """Return the mean over queries; constant ones are left out, or 0 with nan="zero"."""
    found = [of_query(f, loss) for f, loss in zip(scores, losses, strict=True)]
    counted = [0.0 if math.isnan(value) else value for value in found] if nan == "zero" else found
    counted = [value for value in counted if not math.isnan(value)]
    return math.fsum(counted) / len(counted) if counted else math.nan


def resampled_lds(
    scores: Sequence[Sequence[float]],
    losses: Sequence[Sequence[float]],
    queries: Sequence[int],
    subsets: Sequence[int],
    nan: str = "drop",
) -> float:
    """Return the LDS of one bootstrap draw: the queries and subsets of these numbers, repeats and all."""
    drawn_scores = [[scores[query][subset] for subset in subsets] for query in queries]
    drawn_losses = [[losses[query][subset] for subset in subsets] for query in queries]
    return lds(drawn_scores, drawn_losses, nan)
