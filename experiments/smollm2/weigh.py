"""What whole gradients give beside text, alone and with LoGra, by the pool and weight that ship or another weight.

Usage: python experiments/smollm2/weigh.py [WEIGHT ...] [--role tasks ...]   in the folder of the repository
       python experiments/smollm2/weigh.py --write

The channels with EK-FAC score a group by T + c G: the sum of text, EK-FAC, and for each query a number that is
proportional to the weight. `results` have the scores of all three, so c, and with it the scores by any weight, follow
without reading a gradient. They were made with the sum of members (`ekfac.yaml`), where the mean ships: relative to
random groups of 16, a mean over n members is 16 / n of their sum. What LoGra adds is what the channels with it have
above text. LDS × 100; then paired, minus EK-FAC alone with the same exponent, and minus the other methods of the
results. Without WEIGHT that which ships. `--write` puts what that gives on every role into `weighed.yaml`.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import yaml

import airrep
from airrep.attributors.recipes import EKFAC_WEIGHT
from airrep.attributors.sums.reference import MEMBERS

HERE = Path(__file__).parent
WRITTEN = HERE / "weighed.yaml"
ROLES = ("tasks", "mixture", "general", "safety")
MORE = ("tasks-2.6M", "tasks-4.5M", "mixture-2.6M", "mixture-4.5M", "mixture-57M", "tasks-1000", "mixture-1000")
"""Other LMs of the curve, and subsets of 1,000."""
ROUNDED = 2e-3
"""Part of the scores that rounding may change: some have text from a CPU and the sum from a card, in bfloat16."""


def main() -> None:
    """Print some lines for each role and weight."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weight", type=float, nargs="*", default=[EKFAC_WEIGHT])
    parser.add_argument("--role", action="append", help="or one with an LM of the curve, such as mixture-57M")
    parser.add_argument("--write", action="store_true", help=f"write {WRITTEN.name} instead")
    given = parser.parse_args()
    if given.write:
        if given.role or given.weight != [EKFAC_WEIGHT]:
            parser.error("--write is of what ships, on every role; leave weights and roles out")
        found = {role: Results.of(role).judged_weighed() for role in (*ROLES, *MORE)}
        WRITTEN.write_text("# Written by weigh.py.\n" + yaml.safe_dump(found, sort_keys=False), encoding="utf-8")
        return
    for role in given.role or ROLES:
        rivals = Results.of(role)
        for weight in given.weight:
            ekfac, both = rivals.weighed(weight)
            rivals.show(f"{role}, weight {weight:g}", ekfac)
            rivals.scores[f"{weight:g} without LoGra"] = ekfac
            rivals.show(f"{role}, weight {weight:g}, and LoGra", both)


def judged(scores: np.ndarray, losses: np.ndarray) -> list[float]:
    """The LDS and the ends of its interval."""
    found = airrep.metrics.lds(scores.astype(np.float32), losses)
    return [round(float(value), 4) for value in (found.value, *found.interval)]


class Results(NamedTuple):
    """Group scores of the methods on a role, ``(q, m)`` float64 each, and what they predict."""

    role: str
    scores: dict[str, np.ndarray]
    losses: np.ndarray
    size: int
    """Members of each subset."""

    @classmethod
    def of(cls, role: str) -> "Results":
        """All rows of a role's results; of two with one name that of its gradients. As they ship EK-FAC has others."""
        scores: dict[str, np.ndarray] = {}
        for part in ("", "-gradients", "-whole-gradients"):
            folder = HERE / "results" / f"{role}{part}"
            if folder.exists():
                found = airrep.read_evaluation(folder)
                ((key, losses),) = ((key, one) for key, one in found.matrices.items() if key.startswith("losses/"))
                for place, row in enumerate(found.rows):
                    scores[row.name] = found.matrices[key.replace("losses", str(place), 1)].astype(np.float64)
        (size,) = set(found.facts["subset_size"])
        return cls(role, scores, losses, size)

    def weighed(self, weight: float = EKFAC_WEIGHT) -> tuple[np.ndarray, np.ndarray]:
        """Group scores of text with EK-FAC of this weight, and of these with LoGra, ``(q, m)`` each."""
        recipe = yaml.safe_load((HERE / "ekfac.yaml").read_text(encoding="utf-8"))
        (own,) = (one["weight"] for one in recipe if one["method"] == "ekfac")
        text, alone = self.scores["Channels-expected"], self.scores["EK-FAC-0.75"]
        part = self.scores["Channels-EK-FAC"] - text
        c = (part * alone).sum(axis=1, keepdims=True) / (alone**2).sum(axis=1, keepdims=True)
        if np.abs(c * alone - part).max() > ROUNDED * np.abs(part).max():
            raise SystemExit(f"{self.role}: the sum of {own:g} is none of these channels; run its steps again")
        ekfac = text + weight * MEMBERS / self.size / own * c * alone
        return ekfac, ekfac + self.scores["Channels-LoGra"] - text

    def judged_weighed(self) -> dict[str, list[float]]:
        """LDS and interval of both, as they ship."""
        return {name: judged(one, self.losses) for name, one in zip(("ekfac", "both"), self.weighed(), strict=True)}

    def show(self, name: str, ours: np.ndarray) -> None:
        """Print the LDS of scores, and by how much they are ahead of each method."""
        value, *interval = judged(ours, self.losses)
        print(f"{name}: {told(value, interval)}", flush=True)
        for rival, other in self.scores.items():
            if rival == "Channels-EK-FAC":
                continue
            gap = airrep.metrics.paired(ours.astype(np.float32), other.astype(np.float32), self.losses)
            print(f"    minus {rival} {told(gap.difference, gap.interval)}", flush=True)


def told(value: float, interval: Sequence[float]) -> str:
    """A value with its interval, × 100."""
    low, high = (100 * end for end in interval)
    return f"{100 * value:.1f} ({low:.1f} to {high:.1f})"


if __name__ == "__main__":
    main()
