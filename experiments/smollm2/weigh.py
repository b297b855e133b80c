"""Measure what gradients, whole and LoGra's, before and after a warm-up, give beside text, by the weights that ship.

Usage: python experiments/smollm2/weigh.py [WEIGHT ...] [--role tasks ...]   in the folder of the repository
       python experiments/smollm2/weigh.py --write

The channels with EK-FAC score a group by T + c G: the sum of text, EK-FAC, and for each query a number that is
proportional to the weight. `results` have the scores of all three, so c, and with it the scores by any weight, follow
without reading a gradient. They were made with the sum of members (`ekfac.yaml`), where the mean ships: relative to
random groups of 16, a mean over n members is 16 / n of their sum. What LoGra adds, before and after a warm-up, is what
the channels with it have above text. LDS × 100; then paired, minus EK-FAC alone with the same exponent, and minus the
other methods of the results. Without WEIGHT of EK-FAC that which ships; of `lm-whole-warm` half of it is before the
warm-up, and half after it. `--write` puts what that gives on every role
into `weighed.yaml`.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import yaml

import airrep
from airrep.attributors.recipes import read_channels
from airrep.attributors.sums.relative import MEMBERS

HERE = Path(__file__).parent
(EKFAC_WEIGHT,) = (one.weight for one in read_channels("lm-whole") if one.method == "ekfac")
WRITTEN = HERE / "weighed.yaml"
ROLES = ("tasks", "mixture", "general", "safety")
MORE = ("tasks-2.6M", "tasks-4.5M", "mixture-2.6M", "mixture-4.5M", "mixture-57M", "tasks-1000", "mixture-1000")
"""Other LMs of the curve, and subsets of 1,000."""
TOLD = {
    "ekfac": "text and EK-FAC",
    "both": "text, EK-FAC and LoGra",
    "warmed": "text, LoGra and LoGra after a warm-up",
    "all": "text, EK-FAC, LoGra and LoGra after a warm-up",
    "whole-warm": "text, EK-FAC and LoGra, both also after a warm-up",
}
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
            for name, ours in rivals.weighed(weight).items():
                rivals.show(f"{role}, {TOLD[name]}, weight {weight:g}", ours)
                rivals.scores[f"{weight:g}: {TOLD[name]}"] = ours


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
        for part in ("", "-gradients", "-whole-gradients", "-warmed-channels", "-after"):
            folder = HERE / "results" / f"{role}{part}"
            if folder.exists():
                found = airrep.open(folder)
                ((key, losses),) = ((key, one) for key, one in found.matrices.items() if key.startswith("losses/"))
                for place, row in enumerate(found.rows):
                    scores[row.name] = found.matrices[key.replace("losses", str(place), 1)].astype(np.float64)
        (size,) = set(found.facts["subset_size"])
        return cls(role, scores, losses, size)

    def weighed(self, weight: float = EKFAC_WEIGHT) -> dict[str, np.ndarray]:
        """Group scores of the sums of channels that the results have, ``(q, m)`` each, with EK-FAC of this weight."""
        recipe = yaml.safe_load((HERE / "ekfac.yaml").read_text(encoding="utf-8"))
        (own,) = (one["weight"] for one in recipe if one["method"] == "ekfac")
        text, with_logra = self.scores["Channels-expected"], self.scores["Channels-LoGra"]
        ekfac = weight * MEMBERS / self.size / own * self._above(text, "Channels-EK-FAC", "EK-FAC-0.75")
        found = {"ekfac": text + ekfac, "both": with_logra + ekfac}
        if "Channels-warmed" in self.scores:
            after = self._above(text, "Channels-warmed", "LoGra-after")
            found |= {"warmed": with_logra + after, "all": with_logra + ekfac + after}
        if "Channels-after" in self.scores:
            whole = weight / EKFAC_WEIGHT * self._above(self.scores["Text"], "Channels-after", "EK-FAC-after")
            found["whole-warm"] = found["warmed"] + ekfac / 2 + whole / 2
        return found

    def _above(self, text: np.ndarray, both: str, alone: str) -> np.ndarray:
        """Return what a channel adds to text, ``(q, m)``: for each query a multiple of its scores alone."""
        part, own = self.scores[both] - text, self.scores[alone]
        c = (part * own).sum(axis=1, keepdims=True) / (own**2).sum(axis=1, keepdims=True)
        if np.abs(c * own - part).max() > ROUNDED * np.abs(part).max():
            raise SystemExit(f"{self.role}: {both} is no sum of text and {alone}; run its steps again")
        added: np.ndarray = c * own
        return added

    def judged_weighed(self) -> dict[str, list[float]]:
        """LDS and interval of each, as they ship."""
        return {name: judged(one, self.losses) for name, one in self.weighed().items()}

    def show(self, name: str, ours: np.ndarray) -> None:
        """Print the LDS of scores, and by how much they are ahead of each method."""
        value, *interval = judged(ours, self.losses)
        print(f"{name}: {told(value, interval)}", flush=True)
        for rival, other in self.scores.items():
            if rival in ("Channels-EK-FAC", "Channels-warmed", "Text"):
                continue
            gap = airrep.metrics.paired(ours.astype(np.float32), other.astype(np.float32), self.losses)
            print(f"    minus {rival} {told(gap.difference, gap.interval)}", flush=True)


def told(value: float, interval: Sequence[float]) -> str:
    """A value with its interval, × 100."""
    low, high = (100 * end for end in interval)
    return f"{100 * value:.1f} ({low:.1f} to {high:.1f})"


if __name__ == "__main__":
    main()
