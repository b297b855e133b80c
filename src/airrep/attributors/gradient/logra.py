"""Attribution by whitened projected gradients: LoGra."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from airrep.arrays import DenseFeatures
from airrep.attributors.base import OnRows, count_rows, sample_of
from airrep.attributors.gradient.base import PresetAttributor
from airrep.attributors.gradient.curvature import Fisher, Kronecker, principal_space, unit
from airrep.attributors.gradient.learnt import Arrays, LearnsArrays
from airrep.attributors.gradient.map_weights import WeighsBlocks
from airrep.attributors.gradient.projection import Covariances, Finish, Projections, RandomProjection
from airrep.attributors.gradient.reading import Site, read_gradients
from airrep.attributors.gradient.store import array_digest, by_chunks
from airrep.attributors.settings import LograSettings
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import TrainingError
from airrep.runtime.artifacts.digests import json_digest
from airrep.runtime.metering import OnProgress
from airrep.shapes import Float

FORM = 2
"""Of what is learnt: 1 was sketched in the eigenbasis, whose signs are free."""
HELD = 2**29
"""Numbers of covariances held at a time, 2 GiB; LMs of over 180M weights or so take several passes over the sample."""


class LograAttributor(PresetAttributor[LograSettings], WeighsBlocks[LograSettings], LearnsArrays[LograSettings]):
    """φ(z) = norm[H^(-1/2) P ∇ℓ(z)] (Eq. 5), P ∇ℓ being projected on both sides of each linear map.

    :meth:`fit` learns from a sample of the training corpus the small matrices P (leading directions of inputs and of
    output gradients) and the curvature H of what they leave, map by map: Kronecker factors (K-FAC), or the whole matrix
    (raw Fisher). λ = ``damping`` × the mean eigenvalue of H is added to it. With ``exponent`` p the power is −p/2.

    With ``sketch`` what each linear map gives is mixed at random while it is read, by a count sketch, which keeps inner
    products in expectation. So the rank can be high and the features few.
    """

    name = "logra"
    made_of_learnt = ("_directions_digest",)

    @property
    def projections(self) -> Projections | None:
        if not self._by_directions:
            return self._random
        learnt = self._fitted()
        pairs = ((site.name, learnt[f"in-{n}"], learnt[f"out-{n}"]) for n, site in enumerate(self.sites))
        found = {name: (torch.from_numpy(inward), torch.from_numpy(out)) for name, inward, out in pairs}
        return found if self.settings.sketch is None else self._turned(found)

    def _turned(self, projections: Projections) -> Projections:
        """Projections onto the eigenbasis of the curvature."""
        return {
            name: (inward @ torch.from_numpy(own.inward).float(), out @ torch.from_numpy(own.outward).float())
            for (name, (inward, out)), own in zip(projections.items(), self._factors, strict=True)
        }

    @property
    def finish(self) -> Finish | None:
        chosen = self.settings
        if chosen.sketch is None:
            return None
        names = (site.name for site in self.sites)
        whitening = {
            name: Whitening.of(own, chosen.damping, chosen.exponent, settled=self._settled)
            for name, own in zip(names, self._factors, strict=True)
        }
        return WhitenedSketch(whitening, self._share, chosen.seed, self.lm.execution.device)

    @property
    def _settled(self) -> bool:
        """Whether directions were learnt with shares; what earlier versions learnt is sketched in the eigenbasis."""
        return "shares-0" in self._fitted()

    @property
    def rank_must_fit(self) -> bool:
        return self.settings.sketch is None

    @property
    def _share(self) -> int:
        """Numbers that are kept of a linear map at most."""
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

    @property
    def _factors(self) -> Iterator[Kronecker]:
        """Curvature of each linear map."""
        return (self._factor(n) for n in range(len(self.sites)))

    def _factor(self, n: int) -> Kronecker:
        learnt = self._fitted()
        values = learnt[f"values-{n}"]
        shares = learnt.get(f"shares-{n}", np.ones_like(values))
        return Kronecker(learnt[f"inward-{n}"], learnt[f"outward-{n}"], values, shares)

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
    def _by_directions(self) -> bool:
        return self.settings.rank is not None and self.settings.projection == "pca"

    @property
    def projected_by(self) -> object:
        if not self._by_directions:
            return super().projected_by
        return ["directions", self._directions_digest]

    @cached_property
    def _directions_digest(self) -> str:
        """Digest of the directions that were learnt: they are large, and each question asks for it."""
        learnt = self._fitted()
        names = sorted(name for name in learnt if name.startswith(("in-", "out-")))
        return json_digest([array_digest(learnt[name]) for name in names])

    @property
    def fingerprint(self) -> str:
        chosen, newer = self.settings, {"exponent": 1.0, "sketch": None}
        own = {**{name: getattr(chosen, name) for name in ("damping", "unit")}, **self.weighing, **self.pooled}
        own |= {name: value for name, old in newer.items() if (value := getattr(chosen, name)) != old}
        return json_digest({"method": self.name, "learnt": self.learnt_key, **own})

    def fit(self, train: Corpus, progress: OnProgress | None = None) -> None:
        """Learn directions and curvature from a sample, or find what an earlier run learnt.

        Raises:
            ConfigError: the rank is larger than a linear map, Fisher matrices would be too large, or weights fit none.
            DataError: the LM cannot read an example.
            TrainingError: memory is short, or a linear map gets no gradient.
        """
        super().fit(train)
        self.check_weights()
        chosen = self.settings
        if chosen.curvature == "fisher":
            self.check_fisher(self.widths)
        sample = sample_of(train, chosen.sample, chosen.seed)
        # without damping, which is added later: indexes that differ by it share what is learnt
        settings = {name: getattr(chosen, name) for name in ("projection", "curvature", "rank", "seed")}
        key = json_digest({"learnt": settings, "form": FORM, **self.reading, "sample": self.lm.corpus_key(sample)})
        self.recall_or_learn(self.folder, key, lambda: self._learn(sample, progress))

    def _learn(self, sample: Corpus, progress: OnProgress | None) -> Arrays:
        """Directions and curvature, by name and number of the linear map.

        Directions come first: they project the gradients that the curvature is learnt from.
        """
        factored = self.settings.curvature == "kfac"
        self.take_learnt(dict(self._from_covariances(sample, progress)) if factored or self._by_directions else {})
        if not factored:
            self.take_learnt({**self._fitted(), **dict(self._fishers(self.gradients(sample).rows))})
        return self._fitted()

    def _from_covariances(self, sample: Corpus, progress: OnProgress | None) -> Iterator[tuple[str, np.ndarray]]:
        """Directions of each linear map, and the Kronecker factors of what they leave, taken apart."""
        documents = self.lm.tokenise(sample)
        groups = list(groups_of(self.sites, HELD))
        on_rows = count_rows(len(sample) * len(groups), progress, stage="learning from a sample")
        for group in groups:
            sums = Covariances(group)
            for read in read_gradients(self.lm, documents, group, sums, reduction=self.settings.reduction):
                on_rows(len(read.rows))
            for site in group:
                yield from self._site(self.sites.index(site), sums, site, len(sample))

    def _site(self, n: int, sums: Covariances, site: Site, examples: int) -> Iterator[tuple[str, np.ndarray]]:
        seen = [each.cpu().double().numpy() for each in sums.of(site.name)]
        self._check_alive(site, seen[1])
        small, cuts = self._small(site, *seen)
        if small is not None:
            seen = [matrix.T @ covariance @ matrix for covariance, matrix in zip(seen, small, strict=True)]
        if small is not None and self._by_directions:
            yield from zip((f"in-{n}", f"out-{n}"), small, strict=True)
        if self.settings.curvature == "kfac":
            found = Kronecker.of(seen[0], seen[1], sums.tokens[site.name] / examples, cuts)
            names = (f"inward-{n}", f"outward-{n}", f"values-{n}", f"shares-{n}")
            yield from zip(names, (found.inward, found.outward, found.eigenvalues, found.shares), strict=True)

    def _check_alive(self, site: Site, gradients: np.ndarray) -> None:
        if not gradients.any():
            raise TrainingError(
                f"{self.name}: no example of the sample has a gradient at {site.name}. Leave it out of modules, or "
                "raise sample."
            )

    def _small(
        self, site: Site, inputs: np.ndarray, outputs: np.ndarray
    ) -> tuple[tuple[np.ndarray, np.ndarray] | None, tuple[float, float]]:
        """The small matrices of a linear map, None for whole gradients, and where their spaces end."""
        if self._by_directions:
            one, other = (principal_space(each, self._rank(len(each))) for each in (inputs, outputs))
            return (one.basis.astype(np.float32), other.basis.astype(np.float32)), (one.cut, other.cut)
        random = self._random
        whole = None if random is None else (random[site.name][0].numpy(), random[site.name][1].numpy())
        return whole, (0.0, 0.0)

    def _fishers(self, rows: Float[np.ndarray, "n d"]) -> Iterator[tuple[str, np.ndarray]]:
        for n, part in enumerate(np.split(rows.astype(np.float64), np.cumsum(self.widths)[:-1], axis=1)):
            self._check_alive(self.sites[n], part)
            fisher = Fisher.of(part.T @ part / len(part))
            yield f"vectors-{n}", fisher.vectors
            yield f"values-{n}", fisher.eigenvalues

    def encode_train(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> DenseFeatures:
        self._fitted()
        return by_chunks(examples, self.dimension, lambda part: self._features(part, on_rows))

    def _features(self, examples: Sequence[Example], on_rows: OnRows | None) -> Float[np.ndarray, "n d"]:
        rows = self.gradients(examples, on_rows=on_rows).rows.astype(np.float64)
        if self.settings.sketch is None:
            parts = np.split(rows, np.cumsum(self.widths)[:-1], axis=1)
            rows = np.concatenate([self._whiten(n, part) for n, part in enumerate(parts)], axis=1)
        return unit(rows) if self.settings.unit else rows

    def _whiten(self, n: int, part: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        learnt, damping, exponent = self._fitted(), self.settings.damping, self.settings.exponent
        if self.settings.curvature == "fisher":
            return Fisher(learnt[f"vectors-{n}"], learnt[f"values-{n}"]).whiten(part, damping, exponent)
        factors = self._factor(n)
        white = factors.whiten(part.reshape(len(part), *factors.eigenvalues.shape), damping, exponent)
        return white.reshape(part.shape)


class Whitening(NamedTuple):
    """What whitens gradients of a linear map that stand in the eigenbasis of its curvature."""

    factor: Float[Tensor, "o i"]
    inward: Float[Tensor, "i i"]
    """Turns inputs back, so that what is mixed does not depend on the eigenbasis."""
    outward: Float[Tensor, "o o"]
    """Likewise output gradients."""

    @classmethod
    def of(cls, curvature: Kronecker, damping: float, exponent: float, *, settled: bool = True) -> "Whitening":
        """That of a curvature, without turning back where this is not *settled*; errors as :meth:`Kronecker.whiten`."""
        inward, outward = (own if settled else np.eye(len(own)) for own in (curvature.inward, curvature.outward))
        parts = (curvature.factor(damping, exponent), inward.T, outward)
        return cls(*(torch.from_numpy(np.ascontiguousarray(each)).float() for each in parts))

    def to(self, device: str) -> "Whitening":
        """The same on a device."""
        return Whitening(*(each.to(device) for each in self))

    def __call__(self, gradients: Float[Tensor, "n o i"]) -> Float[Tensor, "n o i"]:
        white: Tensor = self.outward @ (gradients.float() * self.factor @ self.inward)
        return white


class WhitenedSketch:
    """Whitens the gradients of each linear map and sketches them.

    They come in the eigenbasis of the curvature, whose signs are free and which rounding turns. What is mixed is turned
    back, so that no feature depends on it.
    """

    def __init__(self, whitening: Mapping[str, Whitening], share: int, seed: int, device: str) -> None:
        self._whitening = {name: each.to(device) for name, each in whitening.items()}
        self._share = share
        self._sketch = RandomProjection(share, seed, device)

    def width(self, site: Site) -> int:
        """Numbers that are kept of a linear map: all, if they are few."""
        return min(self._whitening[site.name].factor.numel(), self._share)

    def of(self, site: Site, gradients: Float[Tensor, "n o i"]) -> Float[Tensor, "n w"]:
        """The features of one linear map."""
        white = self._whitening[site.name](gradients).flatten(1)
        return self._sketch.of(site.name, white) if white.shape[1] > self._share else white


def groups_of(sites: Sequence[Site], numbers: int) -> Iterator[tuple[Site, ...]]:
    """Cut sites into groups whose covariances together hold at most so many numbers, or into single ones."""
    group: list[Site] = []
    held = 0
    for site in sites:
        size = site.width_in**2 + site.width_out**2
        if group and held + size > numbers:
            yield tuple(group)
            group, held = [], 0
        group.append(site)
        held += size
    yield tuple(group)
