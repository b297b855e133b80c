"""Random projections of very long vectors, by signed sums.

Every number of a vector is added, with a random sign, to one random number of the projection (a count sketch). For
the projection Π, of p rows, E ⟨Πx, Πy⟩ = ⟨x, y⟩ with no further scale, since each column of Π holds a single ±1;
a dense matrix of signs would need 1/√p. The variance is that of dense signs, at most (|x|²|y|² + ⟨x, y⟩²) / p, while
the work is one addition for each number of x rather than p.
"""

import numpy as np
import torch
from jaxtyping import Float, Int8, Int64
from torch import Tensor

from airrep.runtime.seeding import stream


class Sketch:
    """A random projection of vectors that come in named pieces; the sum over the pieces is the vector's.

    A piece is cut into blocks of p numbers. Each number gets a sign of its own, and each block is turned by an offset
    of its own before the blocks are added up. So numbers of one block never meet, and numbers of two blocks meet with
    probability 1/p, as in a count sketch; but blocks are read as they lie in memory.

    Args:
        dimension: p.
        seed: with a piece's name, decides its signs and offsets, on every device alike.
        device: where vectors are.
    """

    def __init__(self, dimension: int, seed: int, device: str = "cpu") -> None:
        self.dimension = dimension
        self._seed = seed
        self._device = device
        self._drawn: dict[str, tuple[Int8[Tensor, " w"], Int64[Tensor, "blocks 1"]]] = {}

    def of(self, piece: str, values: Float[Tensor, "n w"]) -> Float[Tensor, "n p"]:
        """Project one piece of n vectors: its share of the projection, to be added to that of the other pieces.

        Args:
            piece: its name; one name always has pieces of one length.
            values: the numbers.
        """
        signs, offsets = self._draw(piece, values.shape[1])
        padded = values.new_zeros(len(values), len(offsets) * self.dimension)
        torch.mul(values, signs, out=padded[:, : values.shape[1]])
        blocks = torch.arange(len(offsets), device=values.device)[:, None]
        places = torch.arange(self.dimension, device=values.device)[None, :]
        order = blocks * self.dimension + (places - offsets) % self.dimension
        turned: Tensor = padded[:, order.flatten()].unflatten(1, order.shape)
        return turned.sum(1)

    def _draw(self, piece: str, width: int) -> tuple[Int8[Tensor, " w"], Int64[Tensor, "blocks 1"]]:
        """Signs of a piece's numbers, and offsets of its blocks."""
        if piece not in self._drawn:
            generator = stream(self._seed, "sketch", piece)
            signs = 1 - 2 * generator.integers(0, 2, width, dtype=np.int8)
            offsets = generator.integers(0, self.dimension, (-(-width // self.dimension), 1))
            self._drawn[piece] = (
                torch.from_numpy(signs.astype(np.int8)).to(self._device),
                torch.from_numpy(offsets).to(self._device),
            )
        return self._drawn[piece]
