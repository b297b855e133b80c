"""Labels (Eq. 7) and the weighted pairwise ranking loss (Eq. 8), by loops."""

import math
from collections.abc import Sequence


def labels_of_query(losses: Sequence[float], scale: str = "std") -> list[float]:
    """Return r̂_i = −(ℓ_i − mean) / deviation over the losses that are there; NaN stays NaN.

    The deviation is a population's: the root of the mean squared distance from the mean. With scale "var" its
    square divides.
    """
    known = [loss for loss in losses if not math.isnan(loss)]
    mean = math.fsum(known) / len(known)
    variance = math.fsum((loss - mean) ** 2 for loss in known) / len(known)
    divisor = variance if scale == "var" else math.sqrt(variance)
    return [-(loss - mean) / divisor for loss in losses]


def weight(gap: float, t_min: float, t_max: float) -> float:
    """Return w: 0 if |gap| < T_min, else min(|gap|, T_max)."""
    return 0.0 if abs(gap) < t_min else min(abs(gap), t_max)


def log_sigmoid(x: float) -> float:
    """Return log σ(x) = −log(1 + exp(−x)), without overflow."""
    return -math.log1p(math.exp(-x)) if x >= 0 else x - math.log1p(math.exp(x))


def sigmoid(x: float) -> float:
    """Return 1 / (1 + exp(−x)), without overflow."""
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def ranking_loss(
    scores: Sequence[Sequence[float]], labels: Sequence[Sequence[float]], t_min: float = 0.1, t_max: float = 5.0
) -> tuple[float, int, list[list[float]]]:
    """Return −Σ 1[r_i > r_j] w_ij log σ(f_i − f_j) over all queries, the number of counted pairs, and dL/df.

    A pair counts if r_i > r_j and r_i − r_j ≥ T_min; one with a NaN label does not.
    """
    terms: list[float] = []
    gradient = [[0.0] * len(row) for row in scores]
    for query, (f, r) in enumerate(zip(scores, labels, strict=True)):
        for i in range(len(f)):
            for j in range(len(f)):
                if not (r[i] > r[j] and r[i] - r[j] >= t_min):
                    continue
                w = weight(r[i] - r[j], t_min, t_max)
                terms.append(-w * log_sigmoid(f[i] - f[j]))
                gradient[query][i] -= w * sigmoid(f[j] - f[i])
                gradient[query][j] += w * sigmoid(f[j] - f[i])
    return math.fsum(terms), len(terms), gradient
