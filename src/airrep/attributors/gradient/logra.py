"""Attribution by whitened projected gradients: LoGra."""

from collections.abc import Iterator, Sequence
from functools import cached_property, partial

import numpy as np
import torch

from airrep.arrays import DenseFeatures
from airrep.attributors.base import OnRows, count_rows, sample_of
from airrep.attributors.gradient.base import FINAL, LmWeights, OwnPool
from airrep.attributors.gradient.curvature import Kronecker, inverse_lengths, unit
from airrep.attributors.gradient.projection import Covariances, Projections, WhitenedSketch, Whitening, columns_of
from airrep.attributors.gradient.reading import Site, read_gradients
from airrep.attributors.gradient.store import LearnsArrays, by_chunks
from airrep.attributors.gradient.tokens import Dual
from airrep.attributors.settings import LograSettings
from airrep.corpus.corpus import Corpus, Example, wholes
from airrep.errors import TrainingError
from airrep.runtime.artifacts import array_digest, json_digest
from airrep.runtime.metering import OnProgress
from airrep.scoring.pooling import Pool
from airrep.shapes import Float

FORM = 3
"""Version of the learnt arrays. Form 1 was sketched in the eigenbasis, whose signs are arbitrary; form 2 held whole
covariances; form 3 holds what :meth:`LograAttributor.fit` learns now."""


class LograAttributor(OwnPool[LograSettings], LearnsArrays[LograSettings]):
    """φ(z) = norm[(H + λI)^(-p/2) P ∇ℓ(z)] (Eq. 5 has p = 1), P projecting on both sides of each linear map.

    :meth:`fit` learns from a sample of the training corpus the projections P (leading directions of inputs and of
    output gradients) and the curvature H of projected gradients, map by map, as Kronecker factors (K-FAC). p is the
    ``exponent``, and λ is ``damping`` times the mean eigenvalue of a map's H. Without ``unit`` there is no norm.

    With ``sketch``, each linear map's features are compressed while they are read, by a count sketch, which keeps inner
    products in expectation. So the rank can be high and the features few.
    """

    name = "logra"
    made_of_learnt = ("_directions_digest",)

    @property
    def own_pool(self) -> Pool:
        """The best pool for cosines (experiments/gradients; for pairs, experiments/preferences), else a sum."""
        if not self.settings.unit:
            return "sum"
        return "mean" if self.settings.loss == "dpo" else "diminishing"

    @property
    def projections(self) -> Projections | None:
        if self.settings.rank is None:
            return None
        learnt = self._fitted()
        pairs = ((name, learnt[f"in-{n}"], learnt[f"out-{n}"]) for name, n in self.pools.items())
        found = {name: (torch.from_numpy(inward), torch.from_numpy(out)) for name, inward, out in pairs}
        if self.settings.sketch is None:
            return found
        turned = ((name, *sides, self._factor(self.pools[name])) for name, sides in found.items())
        return {  # onto the eigenbasis of the curvature
            name: (inward @ torch.from_numpy(own.inward).float(), out @ torch.from_numpy(own.outward).float())
            for name, inward, out, own in turned
        }

    @property
    def finish(self) -> WhitenedSketch | None:
        chosen = self.settings
        if chosen.sketch is None:
            return None
        whitening = {
            name: Whitening.of(self._factor(n), chosen.damping, chosen.exponent) for name, n in self.pools.items()
        }
        return WhitenedSketch(whitening, self._share, chosen.seed, self.lm.execution.device)

    @property
    def least_width(self) -> int | None:
        return self.settings.rank if self.settings.sketch is None else None

    @property
    def _share(self) -> int:
        """Most numbers that are stored for a linear map."""
        assert self.settings.sketch is not None
        return max(1, self.settings.sketch // len(self.sites))

    @cached_property
    def widths(self) -> tuple[int, ...]:
        if self.settings.sketch is None:
            return super().widths
        ranks = [(self._rank(site.width_in), self._rank(site.width_out)) for site in self.sites]
        return tuple(min(inward * out, self._share) for inward, out in ranks)

    def _rank(self, width: int) -> int:
        assert self.settings.rank is not None
        return min(self.settings.rank, width)

    def _factor(self, n: int) -> Kronecker:
        """Return the curvature of a pool of linear maps, by the place of its first map."""
        learnt = self._fitted()
        return Kronecker(*(learnt[f"{name}-{n}"] for name in ("inward", "outward", "values", "shares")))

    @property
    def recipe(self) -> dict[str, object]:
        chosen = self.settings
        if chosen.sketch is None:
            return super().recipe
        return {
            **super().recipe,
            "whitened": [self.learnt_key, chosen.damping, chosen.exponent],
            "sketch": chosen.sketch,
        }

    @property
    def projected_by(self) -> object:
        return None if self.settings.rank is None else ["directions", self._directions_digest]

    @cached_property
    def _directions_digest(self) -> str:
        """Digest of the learnt directions; cached, as they are large and each question needs it."""
        learnt = self._fitted()
        names = sorted(name for name in learnt if name.startswith(("in-", "out-")))
        return json_digest([array_digest(learnt[name]) for name in names])

    @property
    def decided(self) -> dict[str, object]:
        chosen, newer = self.settings, {"exponent": 1.0, "sketch": None}
        own = {name: getattr(chosen, name) for name in ("damping", "unit")}
        own |= {name: value for name, old in newer.items() if (value := getattr(chosen, name)) != old}
        return {"method": self.name, "learnt": self.learnt_key, **own}

    @property
    def square(self) -> int:
        return largest(self.sites, self.settings.rank)

    @property
    def kept(self) -> int:
        """Bytes of all directions, twice, as projections onto the eigenbasis are made of them, and of the curvature."""
        chosen = self.settings
        rank = chosen.rank or max(max(site.width_in, site.width_out) for site in self.sites)
        pools = [self.sites[n] for n in self.pools.values()]
        sides = [(site.width_in, site.width_out, min(rank, site.width_in), min(rank, site.width_out)) for site in pools]
        return sum(8 * (inward * r + out * s) + 8 * (r * r + s * s + 2 * r * s) for inward, out, r, s in sides)

    def fit(self, train: Corpus, progress: OnProgress | None = None) -> None:
        """Learn directions and curvature from a sample, or load those that an earlier run stored.

        ConfigError: the rank is larger than the width of a linear map. TrainingError: a linear map gets no gradient.
        """
        super().fit(train)
        chosen = self.settings
        sample = sample_of(train, chosen.sample, chosen.seed)
        # without damping, which is added later, so that indexes with other dampings share the learnt arrays
        settings = {"projection": "pca", "curvature": "kfac", "rank": chosen.rank, "seed": chosen.seed}
        key = json_digest({"learnt": settings, "form": FORM, **self.reading, "sample": self.lm.corpus_key(sample)})
        self.recall_or_learn(self.folder, key, lambda: dict(self._learn(sample, progress)))

    def _learn(self, sample: Corpus, progress: OnProgress | None) -> Iterator[tuple[str, np.ndarray]]:
        """Yield the directions of each pool of linear maps, and the decomposed Kronecker factors within them."""
        documents = self.lm.tokenise(sample)
        groups = list(groups_of(self.sites, self.lm.sums, self.settings.rank))
        on_rows = count_rows(len(sample) * len(groups), progress, stage="learning from a sample")
        for group in groups:
            sums = Covariances(group, self.settings.rank)
            for read in read_gradients(self.lm, documents, group, sums, reduction=self.reduction):
                on_rows(len(read.rows))
            for name in dict.fromkeys(site.pool for site in group):
                yield from self._pool(name, sums, len(sample) * sum(site.pool == name for site in group))

    def _pool(self, name: str, sums: Covariances, examples: int) -> Iterator[tuple[str, np.ndarray]]:
        """Yield the learnt arrays of a pool; *examples* is the sample's size times the number of its maps."""
        n = self.pools[name]
        if sums.silent(name):
            raise TrainingError(
                f"{self.name}: no sampled example has a gradient at {name}. Remove it from modules, or raise sample."
            )
        if self.settings.rank is None:
            seen, cuts = [each.cpu().double().numpy() for each in sums.of(name)], (0.0, 0.0)
        else:
            one, other = sums.spaces(name)
            seen, cuts = [one.inside, other.inside], (one.cut, other.cut)
            yield from ((f"in-{n}", one.basis.astype(np.float32)), (f"out-{n}", other.basis.astype(np.float32)))
        found = Kronecker.of(seen[0], seen[1], sums.tokens[name] / examples, cuts)
        names = (f"inward-{n}", f"outward-{n}", f"values-{n}", f"shares-{n}")
        yield from zip(names, (found.inward, found.outward, found.eigenvalues, found.shares), strict=True)

    def encode_train(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> DenseFeatures:
        self._fitted()
        return by_chunks(examples, self.dimension, lambda part: self._features(part, on_rows))

    def _features(self, examples: Sequence[Example], on_rows: OnRows | None) -> Float[np.ndarray, "n d"]:
        rows = self._whitened(examples, on_rows)
        if not self.settings.unit:
            return rows
        full = wholes(examples)
        return unit(rows, None if full is None else self._whitened(full, None))

    def _whitened(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> Float[np.ndarray, "n d"]:
        rows = self.gradients(examples, on_rows=on_rows).rows.astype(np.float64)
        return self._by_map(rows) if self.settings.sketch is None else rows

    def _by_map(self, rows: Float[np.ndarray, "n d"], solve: bool = False) -> Float[np.ndarray, "n d"]:
        """Whiten the part of each linear map in rows (:meth:`Kronecker.whiten`); *solve*: multiply by (H + λI)⁻ᵖ."""
        found, damping, exponent = [], self.settings.damping, self.settings.exponent
        for site, part in zip(self.sites, np.split(rows, np.cumsum(self.widths)[:-1], axis=1), strict=True):
            own = self._factor(self.pools[site.pool])
            white = own.whiten(part.reshape(len(part), *own.eigenvalues.shape), damping, exponent)
            if solve:
                white = white * own.factor(damping, exponent)
                white = np.matmul(own.outward, np.matmul(white, own.inward.T))
            found.append(white.reshape(part.shape))
        return np.concatenate(found, axis=1)

    def token_scales(self, examples: Sequence[Example]) -> Iterator[tuple[LmWeights, Float[np.ndarray, " n"]]]:
        yield FINAL, inverse_lengths(self._whitened([one.whole for one in examples]), self.settings.unit)

    def dual(self, weights: LmWeights) -> Dual | None:  # noqa: ARG002
        return None if self.settings.sketch is not None else lambda rows: self._by_map(rows, solve=True)


def largest(sites: Sequence[Site], rank: int | None = None) -> int:
    """Return the size of the largest pair of covariances, in numbers, as held for a rank."""
    return max(map(partial(_held, rank=rank), sites))


def _held(site: Site, rank: int | None) -> int:
    return sum(width * columns_of(width, rank) for width in (site.width_in, site.width_out))


def groups_of(sites: Sequence[Site], numbers: int, rank: int | None = None) -> Iterator[tuple[Site, ...]]:
    """Divide sites into groups of pools whose covariances have at most *numbers* numbers, or of a single pool."""
    pools: dict[str, list[Site]] = {}
    for site in sites:
        pools.setdefault(site.pool, []).append(site)
    group: list[Site] = []
    held = 0
    for own in pools.values():
        size = _held(own[0], rank)
        if group and held + size > numbers:
            yield tuple(group)
            group, held = [], 0
        group += own
        held += size
    yield tuple(group)
