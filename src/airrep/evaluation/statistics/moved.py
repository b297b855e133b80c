"""How far fine-tunes moved the losses of queries, and whether that is hardly."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from airrep.labels.instance import LabelledInstance

LEAST_SHARE = 0.02
"""Least mean change of a query's loss, as a share of the loss before, below which labels are of a model that hardly
moved."""
REMEDY = "Fine-tune as your training does: --training FOLDER, or --set learning_rate=... and --set epochs=..."
"""What to do about that."""


class Moved(NamedTuple):
    """What fine-tunes on subsets did to the losses of queries, in nats per response token."""

    before: float
    """Mean loss before any fine-tune."""
    after: float
    """Mean loss after them."""
    change: float
    """Mean over queries and subsets of how far a loss moved, up or down."""

    @property
    def hardly(self) -> bool:
        """Whether the losses hardly moved."""
        return self.change < LEAST_SHARE * self.before

    @property
    def sentence(self) -> str:
        """What they did, in one sentence without its end."""
        return (
            f"the fine-tunes moved the queries' losses by {self.change:.3f} nats, {self.change / self.before:.1%} "
            f"({self.before:.3f} to {self.after:.3f})"
        )


def moved(instances: Sequence[LabelledInstance]) -> Moved | None:
    """What the fine-tunes of some instances did; None where a loss before them is not known, or they are 0."""
    parts = [(one.base_losses, one.losses) for one in instances if one.base_losses is not None]
    known = [(base[:, None], losses) for base, losses in parts if not np.isnan(base).any()]
    if not known or len(known) < len(instances):
        return None
    after = np.concatenate([np.nanmean(losses, axis=1) for _, losses in known])
    change = np.concatenate([np.nanmean(np.abs(losses - base), axis=1) for base, losses in known])
    before = np.concatenate([base[:, 0] for base, _ in known])
    found = Moved(*(float(np.nanmean(values)) for values in (before, after, change)))
    return found if found.before > 0 else None
