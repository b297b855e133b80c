"""EK-FAC as published on subsets of 1,000 of the mixture, beside the other methods' results of the same queries.

Usage: python experiments/smollm2/part.py   in the folder of the repository

`mixture-1000-ekfac.safetensors` has its group scores (sum of members) of the first 109 queries of 200, before
`airrep evaluate lds` of its index was ended. LDS × 100; then minus EK-FAC, paired. Last its sum with text less what
the LM expects, each with deviation 1 for each query, by weights of EK-FAC chosen on these labels.
"""

from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

import airrep

HERE = Path(__file__).parent
NAME = "mixture-1000"


def main() -> None:
    """Print a line for each method and weight."""
    ekfac = load_file(HERE / f"{NAME}-ekfac.safetensors")["ekfac"]
    rows, losses = {}, np.empty(0)
    for run in (NAME, f"{NAME}-gradients", f"{NAME}-warmed"):
        found = airrep.read_evaluation(HERE / "results" / run)
        losses = found.matrices[f"losses/{NAME}/0"][: len(ekfac)]
        for place, row in enumerate(found.rows):
            rows[row.name] = found.matrices[f"{place}/{NAME}/0"][: len(ekfac)]
    print(f"{'EK-FAC':20}{value(ekfac, losses)}, {len(ekfac)} queries")
    for name, scores in rows.items():
        paired = airrep.metrics.paired(scores, ekfac, losses)
        low, high = (100 * end for end in paired.interval)
        print(f"{name:20}{value(scores, losses)}, minus EK-FAC {100 * paired.difference:.1f} ({low:.1f} to {high:.1f})")
    for weight in (0.5, 1.0, 2.0):
        together = scaled(rows["Channels-expected"]) + weight * scaled(ekfac)
        print(f"{f'sum, EK-FAC times {weight:g}':20}{value(together, losses)}")


def value(scores: np.ndarray, losses: np.ndarray) -> str:
    """The LDS × 100 and its interval."""
    found = airrep.metrics.lds(scores, losses)
    return f" {100 * found.value:.1f} ({100 * found.interval[0]:.1f} to {100 * found.interval[1]:.1f})"


def scaled(scores: np.ndarray) -> np.ndarray:
    """Scores with mean 0 and deviation 1 over the subsets of each query."""
    plain = scores - scores.mean(axis=1, keepdims=True)
    found: np.ndarray = plain / plain.std(axis=1, keepdims=True)
    return found


if __name__ == "__main__":
    main()
