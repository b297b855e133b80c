"""Public measures of attribution: LDS, Spearman, paired differences, pools, labels."""

from typing import TYPE_CHECKING, Any

from airrep.errors import need
from airrep.evaluation.statistics.labels import noise_ceiling as noise_ceiling
from airrep.evaluation.statistics.labels import normalise_losses as normalise_losses
from airrep.evaluation.statistics.metrics import lds as lds
from airrep.evaluation.statistics.metrics import paired as paired
from airrep.evaluation.statistics.metrics import spearman as spearman
from airrep.scoring.pooling import pool_scores as pool_scores

if TYPE_CHECKING:
    from airrep.training.ranking_loss import ranking_loss as ranking_loss

__all__ = ["lds", "noise_ceiling", "normalise_losses", "paired", "pool_scores", "ranking_loss", "spearman"]


def __getattr__(name: str) -> Any:
    if name != "ranking_loss":
        raise AttributeError(f"module 'airrep.metrics' has no attribute '{name}'", name=name)
    need("airrep.metrics.ranking_loss", "lm", "torch")
    from airrep.training.ranking_loss import ranking_loss  # here, since the others need no torch

    return ranking_loss
