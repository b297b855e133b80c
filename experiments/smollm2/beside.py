"""Measure what EK-FAC as published knows beside text on subsets of 1,000 of the mixture.

Usage: python experiments/smollm2/beside.py   in the folder of the repository

LDS × 100 of text less what the LM expects, of EK-FAC (`results/mixture-1000-ekfac`) and of their sum, each with
deviation 1 for each query, by weights of EK-FAC that were chosen on these labels; then minus EK-FAC, paired.
"""

from pathlib import Path

import numpy as np

import airrep

RESULTS = Path(__file__).parent / "results"
NAME = "mixture-1000"


def main() -> None:
    """Print a line for each weight."""
    of_text, losses = read(NAME, "Channels-expected")
    ekfac, _ = read(f"{NAME}-ekfac", "EK-FAC")
    rows = {"text": of_text, "EK-FAC": ekfac}
    for weight in (0.5, 1.0, 2.0):
        rows[f"sum, EK-FAC times {weight:g}"] = scaled(of_text) + weight * scaled(ekfac)
    for name, scores in rows.items():
        found, paired = airrep.metrics.lds(scores, losses), airrep.metrics.paired(scores, ekfac, losses)
        print(
            f"{name:22}{100 * found.value:.1f} ({shown(found.interval)}), "
            f"minus EK-FAC {100 * paired.difference:.1f} ({shown(paired.interval)})"
        )


def read(run: str, row: str) -> tuple[np.ndarray, np.ndarray]:
    """Group scores of one row of a result, and the losses."""
    found = airrep.open(RESULTS / run)
    place = next(place for place, one in enumerate(found.rows) if one.name == row)
    return found.matrices[f"{place}/{NAME}/0"], found.matrices[f"losses/{NAME}/0"]


def shown(interval: tuple[float, float]) -> str:
    """The ends × 100."""
    low, high = interval
    return f"{100 * low:.1f} to {100 * high:.1f}"


def scaled(scores: np.ndarray) -> np.ndarray:
    """Scores with mean 0 and deviation 1 over the subsets of each query."""
    plain = scores - scores.mean(axis=1, keepdims=True)
    found: np.ndarray = plain / plain.std(axis=1, keepdims=True)
    return found


if __name__ == "__main__":
    main()
