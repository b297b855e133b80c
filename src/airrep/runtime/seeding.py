"""Independent random streams from a root seed and a name."""

import numpy as np

from airrep.runtime.artifacts import json_digest


def stream(seed: int, *name: str | int) -> "np.random.Generator":
    """Return an independent random generator for each name, such as ``"subsets", 3``; no global state is used."""
    return np.random.default_rng(np.random.SeedSequence(stream_seed(seed, *name)))


def stream_seed(seed: int, *name: str | int) -> int:
    """Return an integer from 0 to 2⁶³ − 1 that depends only on the root seed and the name."""
    return int(json_digest(["stream", seed, *name])[:16], 16) >> 1
