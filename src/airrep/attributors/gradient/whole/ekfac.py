"""Attribution by influence functions with EK-FAC curvature, without projection."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np
import torch

from airrep.attributors.base import OnRows, count_rows, sample_of
from airrep.attributors.direct import DirectAttributor, QueryScorer
from airrep.attributors.gradient.base import ReadsGradients
from airrep.attributors.gradient.learnt import LearnsArrays
from airrep.attributors.gradient.logra import HELD, groups_of
from airrep.attributors.gradient.map_weights import MapGroups, WeighsMaps, parts_of
from airrep.attributors.gradient.projection import Covariances
from airrep.attributors.gradient.reading import Site, read_gradients
from airrep.attributors.gradient.whole.factors import Factors, HeldGradients, Scorer, Squares, eigenbases
from airrep.attributors.gradient.whole.kept import FactorLayout, KeptReader, scores_of_kept, sizes_of
from airrep.attributors.gradient.whole.scores import ScoreStore
from airrep.attributors.settings import EkfacSettings
from airrep.corpus.corpus import Corpus, Example
from airrep.runtime.artifacts.digests import json_digest
from airrep.runtime.metering import OnProgress
from airrep.scoring.pooling import Pool
from airrep.shapes import Float16, Float32

QUERY_NUMBERS = 2**29
"""Numbers of queries' gradients that are held at a time, 2 GiB; for more queries the examples pass several times."""
WHOLE, RANK = 2**24, 16
"""Weights up to which gradients of queries are held whole, and the rank of their factors beyond."""


class EkfacAttributor(
    ReadsGradients[EkfacSettings], LearnsArrays[EkfacSettings], DirectAttributor, WeighsMaps[EkfacSettings]
):
    """Score = ∇ℓ(x)ᵀ (H + λI)⁻ᵖ ∇ℓ(z), with whole gradients of linear maps and EK-FAC curvature H.

    H is block-diagonal, one block a linear map: eigenvectors of its Kronecker factors, and eigenvalues that are the
    mean squared gradients in their basis (George et al. 2018; Grosse et al. 2023). λ is ``damping`` times the mean
    eigenvalue of a block, p the ``exponent``: 1 for influence functions, 1/2 for steps such as Adam's, which divide by
    the root of mean squared gradients. Gradients of queries are held, (H + λI)⁻ᵖ applied, while the training examples
    pass once, packed; nothing of an example is as large as the LM.

    With ``rank`` an index keeps ∇ℓ(z) as factors L Rᵀ of that rank for each linear map, the best in least squares, and
    the score is ⟨L Rᵀ, (H + λI)⁻ᵖ ∇ℓ(x)⟩.
    """

    name = "ekfac"
    pool: ClassVar[Pool] = "sum"
    made_of_learnt = ("_factors", "_inverse")

    @property
    def fingerprint(self) -> str:
        own: dict[str, object] = {"damping": self.settings.damping, "unit": self.settings.unit}
        own |= {} if self.settings.exponent == 1 else {"exponent": self.settings.exponent}
        own |= {"query_rank": self.held_rank} | ({"rank": self.settings.rank} if self.kept else {}) | self.weighing
        return json_digest({"method": self.name, "learnt": self.learnt_key, **own})

    @cached_property
    def held_rank(self) -> int | None:
        """Rank of the factors of a query's gradient; None holds it whole. The LM alone decides, never the call."""
        known = self.settings.query_rank
        large = sum(site.width_in * site.width_out for site in self.sites) > WHOLE
        return RANK if known is None and large else known

    def fit(self, train: Corpus, progress: OnProgress | None = None) -> None:
        """Learn the factors from the training corpus, or a sample of it; or find what an earlier run learnt.

        Raises:
            ConfigError: no such modules, or weights that fit none of them.
            DataError: the LM cannot read an example.
            TrainingError: memory is short, or a linear map gets no gradient.
        """
        super().fit(train)
        self.check_weights()
        sample = sample_of(train, self.settings.sample, self.settings.seed)
        key = json_digest({"ekfac": self.reading, "sample": self.lm.corpus_key(sample)})
        self.recall_or_learn(self.folder, key, lambda: self._learn(sample, progress))

    def _learn(self, sample: Corpus, progress: OnProgress | None) -> dict[str, np.ndarray]:
        """First the bases, from covariances, in as many passes as memory asks for; then the eigenvalues."""
        documents = self.lm.tokenise(sample)
        groups = list(groups_of(self.sites, HELD))
        on_rows = count_rows(len(sample) * 2 * len(groups), progress, stage="learning from a sample")
        found: dict[str, np.ndarray] = {}
        for group in groups:
            sums = Covariances(group)
            for read in read_gradients(self.lm, documents, group, sums, reduction=self.settings.reduction):
                on_rows(len(read.rows))
            bases = {site.name: eigenbases(sums, site) for site in group}
            del sums  # as large as the bases
            squares = Squares(bases)
            for read in read_gradients(self.lm, documents, group, squares, reduction=self.settings.reduction):
                on_rows(len(read.rows))
            for site in group:
                n, (inward, outward) = self.sites.index(site), bases[site.name]
                found[f"inward-{n}"], found[f"outward-{n}"] = inward.cpu().numpy(), outward.cpu().numpy()
                found[f"values-{n}"] = squares.of(site.name).cpu().numpy()
        return {name: np.ascontiguousarray(array, np.float32) for name, array in found.items()}

    @cached_property
    def _factors(self) -> dict[str, Factors]:
        """Curvature of each linear map, where the LM is."""
        learnt, device = self._fitted(), self.lm.execution.device

        def part(name: str, n: int) -> torch.Tensor:
            return torch.from_numpy(np.array(learnt[f"{name}-{n}"])).to(device)

        return {
            site.name: Factors(part("inward", n), part("outward", n), part("values", n))
            for n, site in enumerate(self.sites)
        }

    @cached_property
    def _inverse(self) -> dict[str, torch.Tensor]:
        """(Λ + λ)⁻ᵖ of each linear map."""
        settings = self.settings
        return {name: each.inverse(settings.damping, settings.exponent) for name, each in self._factors.items()}

    def score(
        self, train: Sequence[Example], queries: Sequence[Example], on_rows: OnRows | None = None
    ) -> Float32[np.ndarray, "n q"]:
        """Influence scores; an example that was scored for a query before comes from the store.

        Raises:
            DataError: the LM cannot read an example.
            TrainingError: memory is short, or the curvature is singular.
        """
        self._fitted()
        if self.kept:
            return self.score_kept([self.keep(train, on_rows)], queries)
        found = np.zeros((len(train), len(queries)), np.float32)
        for part, score in self.scorers(queries):
            found[:, part] = score(train, on_rows if part.stop >= len(queries) else None)
        return found

    def scorers(self, queries: Sequence[Example]) -> Iterator[tuple[slice, QueryScorer]]:
        self._fitted()
        if self.kept:
            return super().scorers(queries)
        return ((part, self._scorer(queries[part])) for part in self._parts(queries))

    def _parts(self, queries: Sequence[Example]) -> Iterator[slice]:
        """Queries whose gradients are held at a time."""
        size = max(1, QUERY_NUMBERS // self._numbers)
        return (slice(first, min(first + size, len(queries))) for first in range(0, len(queries), size))

    @cached_property
    def _layout(self) -> FactorLayout | None:
        return None if self.settings.rank is None else FactorLayout(self.sites, self.settings.rank)

    @property
    def kept(self) -> int:
        return 0 if self._layout is None else self._layout.width

    def keep(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> Float16[np.ndarray, "n d"]:
        assert self._layout is not None
        found = np.zeros((len(examples), self.kept), np.float16)
        reader = KeptReader(self._layout, self._factors, self._inverse if self.settings.unit else None)
        documents = self.lm.tokenise(examples)
        for read in read_gradients(self.lm, documents, self.sites, reader, reduction=self.settings.reduction):
            found[read.rows] = reader.rows
            if on_rows is not None:
                on_rows(len(read.rows))
        return found

    def score_kept(
        self, kept: Sequence[Float16[np.ndarray, "n d"]], queries: Sequence[Example], on_rows: OnRows | None = None
    ) -> Float32[np.ndarray, "n q"]:
        assert self._layout is not None
        found = np.zeros((sum(map(len, kept)), len(queries)), np.float32)
        sizes = sizes_of(self._factors)
        for part in self._parts(queries):
            held, start = self.held(queries[part]), 0
            for rows in kept:
                scores = scores_of_kept(rows, self._layout, held.sites, len(held.lengths), sizes)
                found[start : start + len(rows), part] = self._by_length(scores, held).float().cpu().numpy()
                start += len(rows)
                if on_rows is not None and part.stop >= len(queries):
                    on_rows(len(rows))
        found[~np.isfinite(found).all(axis=1)] = 0.0
        return found

    @property
    def _numbers(self) -> int:
        """Numbers that are held of a query."""
        rank = self.held_rank
        return sum(
            site.width_in * site.width_out if rank is None else rank * (site.width_in + site.width_out)
            for site in self.sites
        )

    def _scorer(self, queries: Sequence[Example]) -> QueryScorer:
        key = json_digest({"scores": self.fingerprint, **self.reading})

        @lru_cache(1)  # gradients of queries are taken once, and only if an example is not in the store
        def held(chosen: tuple[int, ...]) -> HeldGradients:
            return self.held([queries[place] for place in chosen])

        def pass_by(missing: Sequence[Example], chosen: Sequence[int]) -> np.ndarray:
            return self.pass_by(missing, held(tuple(chosen)))

        store = ScoreStore(self.folder, key, queries, self.lm.key)
        return lambda train, on_rows=None: store.rows(train, pass_by, on_rows)

    def held(self, queries: Sequence[Example]) -> HeldGradients:
        """Gradients of queries, (H + λI)⁻ᵖ applied, times the weights of linear maps; lengths are without weights.

        Those that examples pass by are held in the precision of the LM's products.
        """
        half = self.lm.execution.precision == "bfloat16" and not self.kept
        kind = torch.bfloat16 if half else None
        found = HeldGradients(self._factors, self._inverse, self.held_rank, kind)
        found.read(self.lm, self.lm.tokenise(queries), self._asked, self.settings.reduction)
        if self.map_weights is not None:
            found.weigh({site.name: float(w) for site, w in zip(self.sites, self.map_weights, strict=True)})
        return found

    @property
    def _asked(self) -> tuple[Site, ...]:
        """The linear maps that are read for scores: those that count, and all where lengths are asked for."""
        if self.map_weights is None or self.settings.unit:
            return self.sites
        return tuple(site for site, weight in zip(self.sites, self.map_weights, strict=True) if weight > 0)

    def pass_by(self, train: Sequence[Example], held: HeldGradients) -> Float32[np.ndarray, "n q"]:
        """Scores of training examples for held queries; those without a finite gradient score 0."""
        found: np.ndarray = self._pass_by(train, held)[0]
        return found

    def _pass_by(
        self, train: Sequence[Example], held: HeldGradients, groups: Mapping[str, int] | None = None
    ) -> Float32[np.ndarray, "g n q"]:
        """The same, by groups of linear maps; without groups there is one."""
        settings = self.settings
        scorer = Scorer(
            held, self._factors if settings.unit else None, self._inverse if settings.unit else None, groups
        )
        found = torch.zeros(1 + max(groups.values()) if groups else 1, len(train), len(held.lengths))
        documents = self.lm.tokenise(train)
        for read in read_gradients(self.lm, documents, self._asked, scorer, reduction=settings.reduction):
            scores = scorer.scores
            if settings.unit:
                lengths = scorer.squares.sqrt()[:, None] * held.lengths[None, :]
                scores = torch.where(lengths > 0, scores / lengths, 0.0)
            found[:, torch.from_numpy(read.rows)] = scores.float().cpu()
        found[:, ~torch.isfinite(found).all(dim=2).all(dim=0)] = 0.0
        whole: np.ndarray = found.numpy()
        return whole

    def scores_by_group(
        self, train: Sequence[Example], queries: Sequence[Example], groups: MapGroups
    ) -> Iterator[tuple[slice, Float32[np.ndarray, "g n q"]]]:
        """As of any weighing method; examples pass once, or what is kept of them is multiplied once."""
        own = self.with_map_weights(None)
        number = {own.sites[place].name: n for n, places in enumerate(groups.values()) for place in places}
        kept = own.keep(train) if own.kept else None
        for part in parts_of(len(queries), len(groups) * len(train), QUERY_NUMBERS // own._numbers):
            held = own.held(queries[part])
            yield part, own._pass_by(train, held, number) if kept is None else own._kept_by_group(kept, held, number)

    def _kept_by_group(
        self, kept: Float16[np.ndarray, "n d"], held: HeldGradients, groups: Mapping[str, int]
    ) -> Float32[np.ndarray, "g n q"]:
        assert self._layout is not None
        found, sizes = [], sizes_of(self._factors)
        for group in range(1 + max(groups.values())):
            sites = {name: parts for name, parts in held.sites.items() if groups.get(name) == group}
            scores = scores_of_kept(kept, self._layout, sites, len(held.lengths), sizes)
            found.append(self._by_length(scores, held).float().cpu().numpy())
        whole = np.stack(found)
        whole[:, ~np.isfinite(whole).all(axis=(0, 2))] = 0.0
        return whole

    def _by_length(self, scores: torch.Tensor, held: HeldGradients) -> torch.Tensor:
        """Scores of what is kept, divided by the lengths of queries' gradients if settings say so."""
        return torch.where(held.lengths > 0, scores / held.lengths, 0.0) if self.settings.unit else scores
