"""Array types named by what their axes count.

``q`` queries, ``n`` training examples (rows), ``m`` groups or subsets, ``d`` features, ``b`` rows of a block.
Arrays are float32 NumPy at rest and in the public API, torch in motion.
"""

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from scipy import sparse

if TYPE_CHECKING:
    from typing import Annotated as Bool
    from typing import Annotated as Float32
    from typing import Annotated as Int64
else:
    from jaxtyping import Bool, Float32, Int64

DenseFeatures: TypeAlias = Float32[np.ndarray, "rows d"]
"""Features of some examples, one row each."""

SparseFeatures: TypeAlias = sparse.csr_array
"""Features of lexical methods: float32 CSR, ``(rows, d)``."""

Features: TypeAlias = DenseFeatures | SparseFeatures
"""Features that an attributor makes of examples; an inner product of two rows is an influence score."""

Scores: TypeAlias = Float32[np.ndarray, "q n"]
"""Influence scores; higher = more helpful."""

GroupScores: TypeAlias = Float32[np.ndarray, "q m"]
"""Group scores; higher = more helpful."""

Rows: TypeAlias = Int64[np.ndarray, " k"]
"""Row numbers in a corpus or an index."""

Mask: TypeAlias = Bool[np.ndarray, " n"]
"""One truth value for each row."""
