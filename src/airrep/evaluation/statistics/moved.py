"""How far fine-tunes moved the losses of queries, and whether that is hardly."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from airrep.evaluation.statistics.labels import variance_parts
from airrep.labels.instance import LabelledInstance

LEAST_SHARE = 0.01
"""Least mean change of a loss, as a share of the loss before, below which labels are of a model that hardly moved.

Measured (docs/learning.md): two to four steps at 2e-5 move losses by 0.5 to 0.6 %, trainings that are worth labelling
by 2 to 9 %."""
REMEDY = (
    "Fine-tune as your training does (--training FOLDER, or --set learning_rate=... and --set epochs=...); if they do "
    "already, take larger subsets."
)
"""What to do about that."""


class Moved(NamedTuple):
    """What fine-tunes on subsets did to the losses of queries, in nats per response token."""

    before: float
    """Mean loss before any fine-tune."""
    after: float
    """Mean loss after them."""
    change: float
    """Mean over queries and subsets of how far a loss moved, up or down."""
    noise: float = float("nan")
    """Deviation of a loss between seeds, of the median query; NaN where there is one seed."""

    @property
    def hardly(self) -> bool:
        """Whether the losses hardly moved: by less than a share of them, or than chance moves them."""
        return self.change < LEAST_SHARE * self.before or self.change < self.noise

    @property
    def sentence(self) -> str:
        """What they did, in one sentence without its end."""
        noise = "" if np.isnan(self.noise) else f"; seeds move them by {self.noise:.3f}"
        return (
            f"the fine-tunes moved the queries' losses by {self.change:.3f} nats, {self.change / self.before:.1%} "
            f"({self.before:.3f} to {self.after:.3f}{noise})"
        )

    def to_dict(self) -> dict[str, Any]:
        """A JSON object."""
        return self._asdict() | {"noise": None if np.isnan(self.noise) else self.noise, "hardly": self.hardly}


def moved(instances: Sequence[LabelledInstance]) -> Moved | None:
    """What the fine-tunes of some instances did; None where a loss before them is not known, or they are 0."""
    pairs = [(one.base_losses, one.losses) for one in instances if one.base_losses is not None]
    known = [np.broadcast_arrays(base[:, None], losses) for base, losses in pairs]
    if not known or len(known) < len(instances):
        return None
    before, after = (np.concatenate([pair[place].ravel() for pair in known]) for place in (0, 1))
    there = ~np.isnan(before + after)
    before, after = before[there].astype(np.float64), after[there].astype(np.float64)
    if not before.sum() > 0:
        return None
    means = [float(part.mean()) for part in (before, after, np.abs(after - before))]
    return Moved(means[0], means[1], means[2], _noise(instances))


def _noise(instances: Sequence[LabelledInstance]) -> float:
    parts = [np.sqrt(variance_parts(one.by_seed).noise) for one in instances if one.by_seed is not None]
    known = np.concatenate([np.empty(0), *parts])
    known = known[~np.isnan(known)]
    return float(np.median(known)) if len(known) else float("nan")
