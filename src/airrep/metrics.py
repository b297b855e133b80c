"""Measures of attribution: LDS, Spearman, paired differences, pools, labels."""

from airrep.evaluation.statistics.ceilings import noise_ceiling as noise_ceiling
from airrep.evaluation.statistics.metrics import lds as lds
from airrep.evaluation.statistics.metrics import paired as paired
from airrep.evaluation.statistics.metrics import spearman as spearman
from airrep.scoring.pooling import pool_scores as pool_scores
from airrep.training.ranking_loss import normalise_losses as normalise_losses
from airrep.training.ranking_loss import ranking_loss as ranking_loss

__all__ = ["lds", "noise_ceiling", "normalise_losses", "paired", "pool_scores", "ranking_loss", "spearman"]
