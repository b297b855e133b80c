"""Smaller gradients: projection on both sides, covariances, count sketches."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from airrep.attributors.gradient.curvature import Kronecker, PrincipalSpace, principal_space, sketched_space
from airrep.attributors.gradient.reading import DocumentPlaces, Objective, Reduction, Site, read_gradients
from airrep.errors import ConfigError
from airrep.lm.documents import Documents
from airrep.lm.model import TargetLM
from airrep.runtime.seeding import stream
from airrep.shapes import Float, Int8, Int64

Projections: TypeAlias = Mapping[str, tuple[Float[Tensor, "i r"], Float[Tensor, "o r"]]]
"""Projection matrices by the name of a site's pool: for its inputs, and for its output gradients."""


def random_projections(sites: Sequence[Site], rank: int, seed: int) -> Projections:
    """Draw Gaussian matrices with variance 1/rank, so that inner products are kept in expectation.

    Each depends only on the seed, its pool's name and widths, not on the other sites or the device. ConfigError: the
    rank is larger than the width of a site.
    """
    check_rank(sites, rank)

    def draw(site: Site, side: str, width: int) -> Tensor:
        drawn = stream(seed, "projection", site.pool, side).standard_normal((width, rank))
        return torch.from_numpy((drawn / np.sqrt(rank)).astype(np.float32))

    pools = {site.pool: site for site in sites}
    return {name: (draw(site, "in", site.width_in), draw(site, "out", site.width_out)) for name, site in pools.items()}


def check_rank(sites: Sequence[Site], rank: int) -> None:
    """Refuse a rank above the width of the narrowest site with a ConfigError."""
    smallest = min(sites, key=lambda site: min(site.width_in, site.width_out))
    most = min(smallest.width_in, smallest.width_out)
    if rank > most:
        raise ConfigError(
            f"rank={rank}: {smallest.name} maps {smallest.width_in} to {smallest.width_out} numbers, so rank can be at "
            f"most {most}. Lower rank, or remove {smallest.name} from modules."
        )


class RandomProjection:
    """A random projection of vectors that come in named pieces, whose projections add up to the vector's.

    A piece is cut into blocks of p numbers. Each number gets a random sign, and each block is rotated by a random
    offset before the blocks are added up. So numbers of one block never collide, and numbers of two blocks collide
    with probability 1/p, as in a count sketch; but blocks are read in the order of memory. p is the *dimension*; the
    *seed* decides, with a piece's name, its signs and offsets, equal on every device.
    """

    def __init__(self, dimension: int, seed: int, device: str = "cpu") -> None:
        self.dimension = dimension
        self._seed = seed
        self._device = device
        self._drawn: dict[str, tuple[Int8[Tensor, " w"], Int64[Tensor, "blocks 1"]]] = {}

    def of(self, piece: str, values: Float[Tensor, "n w"]) -> Float[Tensor, "n p"]:
        """Project a named piece of n vectors; add the results of all pieces up."""
        signs, offsets = self._draw(piece, values.shape[1])
        padded = values.new_zeros(len(values), len(offsets) * self.dimension)
        torch.mul(values, signs, out=padded[:, : values.shape[1]])
        blocks = torch.arange(len(offsets), device=values.device)[:, None]
        places = torch.arange(self.dimension, device=values.device)[None, :]
        order = blocks * self.dimension + (places - offsets) % self.dimension
        turned: Tensor = padded[:, order.flatten()].unflatten(1, order.shape)
        return turned.sum(1)

    def back(self, piece: str, projected: Float[Tensor, "n p"], width: int) -> Float[Tensor, "n w"]:
        """Apply the transpose of :meth:`of` for a piece of this width."""
        signs, offsets = self._draw(piece, width)
        places = torch.arange(self.dimension, device=projected.device)[None, :]
        spread: Tensor = projected[:, ((places + offsets) % self.dimension).flatten()]
        return spread[:, :width] * signs

    def _draw(self, piece: str, width: int) -> tuple[Int8[Tensor, " w"], Int64[Tensor, "blocks 1"]]:
        """Draw the signs of a piece's numbers and the offsets of its blocks."""
        if piece not in self._drawn:
            generator = stream(self._seed, "sketch", piece)
            signs = 1 - 2 * generator.integers(0, 2, width, dtype=np.int8)
            offsets = generator.integers(0, self.dimension, (-(-width // self.dimension), 1))
            self._drawn[piece] = (
                torch.from_numpy(signs.astype(np.int8)).to(self._device),
                torch.from_numpy(offsets).to(self._device),
            )
        return self._drawn[piece]


class Whitening(NamedTuple):
    """Whitens gradients of a linear map that come in the eigenbasis of its curvature, and rotates them back."""

    factor: Float[Tensor, "o i"]
    """Factor of each pair of eigenvectors."""
    inward: Float[Tensor, "i i"]
    """Rotates inputs out of the eigenbasis."""
    outward: Float[Tensor, "o o"]
    """Rotates output gradients out of the eigenbasis."""

    @classmethod
    def of(cls, curvature: Kronecker, damping: float, exponent: float) -> "Whitening":
        """Whiten by a curvature; errors as for :meth:`Kronecker.whiten`."""
        parts = (curvature.factor(damping, exponent), curvature.inward.T, curvature.outward)
        return cls(*(torch.from_numpy(np.ascontiguousarray(each)).float() for each in parts))

    def to(self, device: str) -> "Whitening":
        return Whitening(*(each.to(device) for each in self))

    def __call__(self, gradients: Float[Tensor, "n o i"]) -> Float[Tensor, "n o i"]:
        return self.outward @ (gradients.float() * self.factor @ self.inward)

    def back(self, white: Float[Tensor, "n o i"]) -> Float[Tensor, "n o i"]:
        """Apply the transpose."""
        return self.outward.T @ white @ self.inward.T * self.factor


class WhitenedSketch:
    """Whitens the gradients of each linear map and sketches them.

    Gradients come in the eigenbasis of the curvature, whose signs are free and which rounding can rotate. They are
    rotated back before the sketch, so that no feature depends on the eigenbasis.
    """

    def __init__(self, whitening: Mapping[str, Whitening], share: int, seed: int, device: str) -> None:
        self._whitening = {name: each.to(device) for name, each in whitening.items()}
        self._share = share
        self._sketch = RandomProjection(share, seed, device)

    def width(self, site: Site) -> int:
        """Return the number of features of a linear map: all its numbers, if that is less than its share."""
        return min(self._whitening[site.pool].factor.numel(), self._share)

    def of(self, site: Site, gradients: Float[Tensor, "n o i"]) -> Float[Tensor, "n w"]:
        """Return the features of one linear map."""
        white = self._whitening[site.pool](gradients).flatten(1)
        return self._sketch.of(site.name, white) if white.shape[1] > self._share else white

    def back(self, site: Site, features: Float[Tensor, "n w"]) -> Float[Tensor, "n o i"]:
        """Apply the transpose of :meth:`of`."""
        own = self._whitening[site.pool]
        width = own.factor.numel()
        white = self._sketch.back(site.name, features, width) if width > self._share else features
        return own.back(white.unflatten(1, own.factor.shape))


class GradientProjector:
    """Reads each document's gradients, projected on both sides: ``(count, d)``, site after site, row-major.

    Without projections, gradients are unprojected; a *finish* is applied to each site's gradients.
    """

    def __init__(
        self,
        sites: Sequence[Site],
        projections: Projections | None,
        device: str,
        finish: WhitenedSketch | None = None,
    ) -> None:
        shapes = [
            (site.width_out, site.width_in)
            if projections is None
            else (projections[site.pool][1].shape[1], projections[site.pool][0].shape[1])
            for site in sites
        ]
        widths = [out * inward for out, inward in shapes]
        ends = np.cumsum(widths if finish is None else [finish.width(site) for site in sites])
        self._finish = finish
        self.dimension = int(ends[-1])
        """Number of features of an example, ``d``."""
        starts = [0, *ends[:-1].tolist()]
        self._parts = {site.name: slice(a, int(b)) for site, a, b in zip(sites, starts, ends, strict=True)}
        self._matrices = projections and {name: (a.to(device), g.to(device)) for name, (a, g) in projections.items()}
        self._places: DocumentPlaces | None = None
        self._latest, self._kept = Latest(), torch.empty(0)
        self._known: dict[tuple[str, str], bool] = {}
        self.features = torch.empty(0, self.dimension)
        """Features of the last batch."""

    def keep(self, site: Site, inputs: Float[Tensor, "t i"], /) -> Tensor:
        """Project the inputs, once for neighbouring sites with the same inputs and equal matrices."""
        if self._matrices is None:
            return inputs
        matrix, before = self._matrices[site.pool][0], self._latest.before(site, inputs)
        if before is None or not self._equal(before, site.pool):
            self._kept = inputs @ matrix.to(inputs.dtype)
        return self._kept

    def _equal(self, one: str, other: str) -> bool:
        """Return whether two pools project inputs by equal matrices."""
        assert self._matrices is not None
        if (one, other) not in self._known:
            self._known[one, other] = torch.equal(self._matrices[one][0], self._matrices[other][0])
        return self._known[one, other]

    def take(self, site: Site, kept: Tensor, gradients: Float[Tensor, "t o"], places: DocumentPlaces, /) -> None:
        """Project the gradients, multiply, and add up over each document's tokens."""
        if places.whole is not self._places:
            self._places, self.features = places.whole, gradients.new_zeros(places.count, self.dimension)
        if self._matrices is not None:
            gradients = gradients @ self._matrices[site.pool][1].to(gradients.dtype)
        found = places.products(gradients, kept)
        own = found.flatten(1) if self._finish is None else self._finish.of(site, found)
        self.features[:, self._parts[site.name]] += own


class ProjectedGradients(NamedTuple):
    """Projected gradients of documents, in their order."""

    features: Float[np.ndarray, "n d"]
    doubts: Float[np.ndarray, " n"]
    """1 − p, averaged over the tokens of the response."""
    losses: list[Float[np.ndarray, " r"]]
    """Cross-entropy of each response token, in nats."""


def project_gradients(
    lm: TargetLM,
    documents: Documents,
    sites: Sequence[Site],
    projections: Projections | None,
    *,
    objective: Objective = "loss",
    reduction: Reduction = "mean",
    finish: WhitenedSketch | None = None,
) -> ProjectedGradients:
    """Compute projected gradients of every document; arguments and errors as for :func:`read_gradients`."""
    reader = GradientProjector(sites, projections, lm.execution.device, finish)
    kind = np.float64 if lm.model.dtype == torch.float64 else np.float32
    features = np.zeros((len(documents), reader.dimension), kind)
    doubts = np.zeros(len(documents), kind)
    losses: dict[int, np.ndarray] = {}
    for read in read_gradients(lm, documents, sites, reader, objective=objective, reduction=reduction):
        features[read.rows] = reader.features.cpu().numpy()
        doubts[read.rows] = read.doubts.cpu().numpy()
        losses |= zip(read.rows.tolist(), (each.cpu().numpy() for each in read.losses), strict=True)
    return ProjectedGradients(features, doubts, [losses[row] for row in range(len(documents))])


BLOCK = 128
"""Rows of a covariance that are added up at once."""
COLUMNS = 128
"""Least number of random directions that a covariance is sketched by; twice the rank if that is more."""


class Covariances:
    """Adds up Σ_t a_t a_tᵀ of the inputs and Σ_t g_t g_tᵀ of the output gradients of some sites, over all tokens.

    Experts of a layer are one pool, so that an expert with few tokens, or none, has its neighbours' statistics.
    A token whose numbers are not finite is left out, so that one example cannot spoil the statistics for all.
    Sums are symmetric: blocks of rows are held from the diagonal on. Sites that read the same inputs, as queries, keys
    and values do, share one sum of inputs.

    A *rank* means that only the principal spaces of that rank are needed. A wide covariance is then held only as its
    products with random directions.
    """

    def __init__(self, sites: Sequence[Site], rank: int | None = None) -> None:
        pools = dict.fromkeys(site.pool for site in sites)
        self._rank = rank
        self._drawn: dict[int, Tensor] = {}
        self._spaces: dict[tuple[int, str], PrincipalSpace] = {}
        self._sums: tuple[dict[str, list[Tensor]], dict[str, list[Tensor]]] = {}, {}
        self.tokens = dict.fromkeys(pools, 0)
        """Tokens whose inputs were added, by pool."""
        self._gradients = dict.fromkeys(pools, 0)
        self._latest = Latest()
        self._reads: dict[str, str] = {}

    def keep(self, site: Site, inputs: Float[Tensor, "t i"], /) -> Tensor:
        """Add the inputs; nothing is held."""
        name, before = site.pool, self._latest.before(site, inputs)
        if name not in self._sums[0] and before is not None and site.pool == site.name:
            self._reads[name] = self.read_by(before)
        if name not in self._reads:
            self._added = self._add(0, name, inputs)
        elif len(inputs) and (before is None or self.read_by(before) != self._reads[name]):
            raise RuntimeError(
                f"{name}: this module read the same inputs as the module {self._reads[name]} at first, but now "
                f"reads other inputs. Remove {name} from the setting 'modules'"
            )
        self.tokens[name] += self._added if len(inputs) else 0
        return inputs.new_empty(0)

    def take(self, site: Site, _kept: Tensor, gradients: Float[Tensor, "t o"], _places: DocumentPlaces, /) -> None:
        self._gradients[site.pool] += self._add(1, site.pool, gradients)

    def _add(self, side: int, name: str, rows: Tensor) -> int:
        """Add up the rows that are finite; return their number."""
        width = rows.shape[1]
        drawn, starts = self._directions(rows), range(0, width, BLOCK)
        if name not in self._sums[side]:
            shapes = [(min(BLOCK, width - n), width - n) for n in starts] if drawn is None else [drawn.shape]
            self._sums[side][name] = [rows.new_zeros(shape) for shape in shapes]
        if not bool(torch.isfinite(rows.sum())):  # one sum is much quicker than a test of each number
            rows = rows[torch.isfinite(rows).all(dim=1)]
        sums = self._sums[side][name]
        if drawn is not None:
            sums[0].addmm_(rows.t(), rows @ drawn)
            return len(rows)
        for start, block in zip(starts, sums, strict=True):
            block.addmm_(rows[:, start : start + BLOCK].t(), rows[:, start:])
        return len(rows)

    def _directions(self, rows: Tensor) -> Float[Tensor, "w m"] | None:
        """Return the random orthonormal directions for a width, equal for all sums; None if sums are held whole."""
        width = rows.shape[1]
        columns = columns_of(width, self._rank)
        if columns == width:
            return None
        if width not in self._drawn:
            found, _ = np.linalg.qr(stream(0, "covariance", width).standard_normal((width, columns)))
            self._drawn[width] = torch.from_numpy(found).to(rows)
        return self._drawn[width]

    def spaces(self, name: str) -> tuple[PrincipalSpace, PrincipalSpace]:
        """Return the principal spaces of a pool's inputs and of its output gradients."""
        return self._space(0, self.read_by(name), self.tokens[name]), self._space(1, name, self._gradients[name])

    def _space(self, side: int, owner: str, count: int) -> PrincipalSpace:
        if (side, owner) not in self._spaces:  # queries, keys and values read the same inputs
            assert self._rank is not None
            sums = self._sums[side][owner]
            rows, columns = sums[0].shape
            sketched = rows > columns  # a sketch is higher than wide, a block is not
            mean = ((sums[0] if sketched else _whole(sums)).double() / max(1, count)).cpu().numpy()
            self._spaces[side, owner] = (
                sketched_space(mean, self._drawn[rows].cpu().numpy(), self._rank)
                if sketched
                else principal_space(mean, min(self._rank, columns))
            )
        return self._spaces[side, owner]

    def silent(self, name: str) -> bool:
        """Return whether all gradients of a pool are zero."""
        return not any(bool(block.any()) for block in self._sums[1][name])

    def read_by(self, name: str) -> str:
        """Return the pool that holds the sum of this pool's inputs: another pool if both read the same inputs."""
        return self._reads.get(name, name)

    def of(self, name: str) -> tuple[Float[Tensor, "i i"], Float[Tensor, "o o"]]:
        """Return the covariances of a pool's inputs and of its output gradients: means over tokens."""
        inward, outward = _whole(self._sums[0][self.read_by(name)]), _whole(self._sums[1][name])
        return inward / max(1, self.tokens[name]), outward / max(1, self._gradients[name])


def columns_of(width: int, rank: int | None) -> int:
    """Return the number of columns that are held of a covariance for a rank; all columns without a rank."""
    return width if rank is None else min(width, max(2 * rank, COLUMNS))


def _whole(blocks: Sequence[Tensor]) -> Float[Tensor, "w w"]:
    """Build a symmetric matrix from its blocks of rows, each of which begins at the diagonal."""
    width = blocks[0].shape[1]
    found = blocks[0].new_zeros(width, width)
    for start, block in zip(range(0, width, BLOCK), blocks, strict=True):
        found[start : start + BLOCK, start:] = block
    return found.triu() + found.triu(1).t()


class Latest:
    """The latest inputs, and the site that read them."""

    def __init__(self) -> None:
        self._held: tuple[str, Tensor, int] | None = None

    def before(self, site: Site, inputs: Tensor) -> str | None:
        """Return the pool of the previous site if it read the same inputs, else None; then hold these inputs."""
        last, self._held = self._held, (site.pool, inputs, inputs._version)
        if last is None or not len(inputs):
            return None
        name, held, version = last  # held, so that no other tensor can have its address
        alike = held.data_ptr() == inputs.data_ptr() and held.shape == inputs.shape and held.dtype == inputs.dtype
        return name if alike and held.stride() == inputs.stride() and version == inputs._version else None
