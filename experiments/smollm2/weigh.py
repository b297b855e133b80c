"""What another weight of whole gradients beside text would give, from results that are there.

Usage: python experiments/smollm2/weigh.py [WEIGHT ...] [--role tasks ...]   in the folder of the repository

The channels with EK-FAC score a group by T + c G: the sum of text, EK-FAC, and for each query a number that is
proportional to the weight. `results` have the scores of all three, so c, and with it the scores by any weight, follow
without reading a gradient. LDS × 100; then paired, minus EK-FAC alone with the same exponent, and minus the other
methods of the results. Without WEIGHT that which ships.
"""

import argparse
from pathlib import Path

import numpy as np
import yaml

import airrep
from airrep.attributors.recipes import EKFAC_WEIGHT

HERE = Path(__file__).parent
ROLES = ("tasks", "mixture", "general", "safety")
ROUNDED = 2e-3
"""Part of the scores that rounding may change: some have text from a CPU and the sum from a card, in bfloat16."""


def main() -> None:
    """Print a line for each role and weight."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weight", type=float, nargs="*", default=[EKFAC_WEIGHT])
    parser.add_argument("--role", action="append", help="or one with an LM of the curve, such as mixture-57M")
    given = parser.parse_args()
    (own,) = (one["weight"] for one in yaml.safe_load((HERE / "ekfac.yaml").read_text()) if one["method"] == "ekfac")
    for role in given.role or ROLES:
        folder = HERE / "results" / role
        beside = folder if "-" in role else folder.with_name(f"{role}-gradients")
        whole = folder.with_name(f"{role}-whole-gradients")
        text, losses = scores(beside, "Channels-expected")
        both, alone = (scores(whole, name)[0] for name in ("Channels-EK-FAC", "EK-FAC-0.75"))
        size = ((both - text) * alone).sum(axis=1, keepdims=True) / (alone**2).sum(axis=1, keepdims=True)
        if np.abs(text + size * alone - both).max() > ROUNDED * np.abs(both).max():
            raise SystemExit(f"{role}: the sum of {own:g} is none of these channels; run its steps again")
        others = {"EK-FAC-0.75": alone, "Channels-expected": text}
        for place, name in ((whole, "EK-FAC"), (beside, "Channels-LoGra")):
            if name in (row.name for row in airrep.read_evaluation(place).rows):
                others[name] = scores(place, name)[0]
        for weight in given.weight:
            found = (text + weight / own * size * alone).astype(np.float32)
            judged = airrep.metrics.lds(found, losses)
            print(f"{role}, weight {weight:g}: {told(judged.value, judged.interval)}", flush=True)
            for name, other in others.items():
                gap = airrep.metrics.paired(found, other.astype(np.float32), losses)
                print(f"    minus {name} {told(gap.difference, gap.interval)}", flush=True)


def scores(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Group scores of a method, float64, and losses, both ``(q, m)``, in a result of one instance."""
    found = airrep.read_evaluation(folder)
    (place,) = (number for number, row in enumerate(found.rows) if row.name == name)
    ((key, losses),) = ((key, matrix) for key, matrix in found.matrices.items() if key.startswith("losses/"))
    return found.matrices[key.replace("losses", str(place), 1)].astype(np.float64), losses


def told(value: float, interval: tuple[float, float]) -> str:
    """A value with its interval, × 100."""
    low, high = (100 * end for end in interval)
    return f"{100 * value:.1f} ({low:.1f} to {high:.1f})"


if __name__ == "__main__":
    main()
