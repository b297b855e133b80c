"""An answer and a better one, whose channels must weigh alike to be subtracted."""

from collections.abc import Sequence

import numpy as np

from airrep.arrays import Features, MixedFeatures, SparseFeatures
from airrep.attributors.base import Attributor
from airrep.attributors.sums.channels import ChannelsAttributor


def even_pairs(attributor: Attributor, encoded: Features) -> Features:
    """Features of answers, and behind them of a better one to each, with one factor of each channel for both.

    A relative channel has a factor of its own for each query. For two answers to one prompt these differ by half or
    more, so that what the answers share does not cancel. Each pair gets the geometric mean of its two factors;
    features without factors stay as they are.
    """
    own = encoded.factors if isinstance(encoded, MixedFeatures) else None
    if own is None or not isinstance(encoded, MixedFeatures) or not isinstance(attributor, ChannelsAttributor):
        return encoded
    means = np.sqrt(own * np.roll(own, len(own) // 2, axis=0))
    changes = np.divide(means, own, out=np.ones_like(own), where=own > 0)
    dense = encoded.dense * np.repeat(changes, attributor.widths(dense=True), axis=1).astype(np.float32)
    return MixedFeatures(dense, _scaled(encoded.sparse, changes, attributor.widths(dense=False)), means)


def _scaled(features: SparseFeatures, changes: np.ndarray, widths: Sequence[int]) -> SparseFeatures:
    """Sparse features with each channel's columns multiplied."""
    channels = np.searchsorted(np.cumsum(widths), features.indices, side="right")
    return features.with_data(features.data * changes[features.row_of, channels].astype(np.float32))
