"""The base class of gradient methods, and TracIn."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import repeat
from pathlib import Path
from typing import ClassVar, TypeVar

import numpy as np

from airrep.arrays import DenseFeatures
from airrep.attributors.base import OnRows, sample_of
from airrep.attributors.by_token import TokenProducts
from airrep.attributors.gradient.curvature import inverse_lengths, unit
from airrep.attributors.gradient.projection import (
    Projections,
    WhitenedSketch,
    check_rank,
    project_gradients,
    random_projections,
)
from airrep.attributors.gradient.reading import Objective, Reduction, Site, find_sites, unread
from airrep.attributors.gradient.store import Computed, GradientStore, by_chunks, store_folder
from airrep.attributors.gradient.tokens import Dual, Projected, predicted, token_products
from airrep.attributors.language import LanguageAttributor, heard_losses
from airrep.attributors.settings import CheckpointSettings, GradientSettings, LinearMapSettings, TracinSettings
from airrep.corpus.corpus import Corpus, Example, wholes
from airrep.lm.folders.forms import weights_digest
from airrep.lm.warmup import checkpoints_of
from airrep.runtime.artifacts import json_digest
from airrep.scoring.pooling import Pool
from airrep.shapes import Float, Float32

R = TypeVar("R", bound=LinearMapSettings)
S = TypeVar("S", bound=GradientSettings)
C = TypeVar("C", bound=CheckpointSettings)

NOISE_EXAMPLES, NOISE_RANK = 16, 8
"""Examples whose gradients are compared with float32, and the rank that they are projected to for that."""
COSINES = 0.3
"""Best temperature of signed attention over cosines of gradients (experiments/gradients)."""


@dataclass(frozen=True)
class LmWeights:
    """Weights that gradients are taken at."""

    path: Path | None
    """A checkpoint; None: those of the LM as it is."""
    rate: float
    """Learning rate at the checkpoint; 1 for the LM as it is."""

    @cached_property
    def name(self) -> str:
        """A name that no other weights of the same LM have."""
        return "final" if self.path is None else weights_digest(self.path)


FINAL = LmWeights(None, 1.0)


@dataclass(frozen=True, eq=False)
class Gradients:
    """Projected gradients of some examples; gradients that are not finite are zeros."""

    rows: Float32[np.ndarray, "n d"]
    doubts: Float32[np.ndarray, " n"]
    """1 − p, averaged over the tokens of the response, p being the LM's probability of a token."""


class ReadsGradients(LanguageAttributor[R]):
    """A method that reads gradients with respect to the weights of the LM's linear maps."""

    reads_pairs = True
    reduction: ClassVar[Reduction] = "mean"
    """An example's loss: mean or sum over its response tokens."""

    @cached_property
    def sites(self) -> tuple[Site, ...]:
        """The linear maps whose gradients are taken (ConfigError: one is missing, or too narrow)."""
        found = find_sites(self.lm.model, self._settings.modules, f"lm {self.lm.name}")
        if self.least_width is not None:
            check_rank(found, self.least_width)
        return found

    @property
    def least_width(self) -> int | None:
        """The rank that each linear map must have; None: maps may be of any width."""
        return None

    @cached_property
    def pools(self) -> Mapping[str, int]:
        """The place of the first linear map of each pool; maps of a pool, a layer's experts, share statistics."""
        found: dict[str, int] = {}
        for n, site in enumerate(self.sites):
            found.setdefault(site.pool, n)
        return found

    @cached_property
    def folder(self) -> Path | None:
        """The directory that stores gradients and statistics of them; None: nothing is stored."""
        return store_folder(self._settings.store)

    @cached_property
    def caution(self) -> str:
        return unread(self.lm.model, self.name)

    @property
    def reader(self) -> str:
        """The fingerprint of the LM that reads examples, 64 hex digits."""
        return self.lm.fingerprint

    @property
    def reading(self) -> dict[str, object]:
        """The fields of a fingerprint that decide unprojected gradients of the loss."""
        return {
            "lm": self.lm.fingerprint,
            "sites": [site.name for site in self.sites],
            "reduction": self.reduction,
            "precision": self.lm.execution.precision,
        }

    def float_noise(self, train: Corpus) -> Mapping[str, float]:
        """Mean cosine of projected gradients with those in float32, and Spearman's ρ of their inner products.

        ConfigError: as :attr:`sites`. DataError: the LM cannot read an example.
        """
        if self.lm.execution.precision == "float32":
            return {}
        self.lm.check_readable(train, self.name)
        documents = self.lm.tokenise(sample_of(train, NOISE_EXAMPLES, 0))
        rank = min(NOISE_RANK, *(width for site in self.sites for width in (site.width_in, site.width_out)))
        projections, before = random_projections(self.sites, rank, 0), self.lm.execution
        found = []
        for execution in (before, replace(before, precision="float32")):
            self.lm.execution = execution
            try:
                read = project_gradients(self.lm, documents, self.sites, projections, reduction=self.reduction)
            finally:
                self.lm.execution = before
            found.append(unit(read.features))
        return {"cosine": float((found[0] * found[1]).sum(1).mean()), "rank_correlation": _same_order(*found)}


def _same_order(one: Float[np.ndarray, "n d"], other: Float[np.ndarray, "n d"]) -> float:
    """Return Spearman's ρ of the inner products of different rows; 1 for fewer than 3 products."""
    from scipy.stats import spearmanr  # here, since it takes long to load

    above = np.triu_indices(len(one), 1)
    products = [(rows @ rows.T)[above] for rows in (one, other)]
    return float(spearmanr(*products).statistic) if len(products[0]) > 2 else 1.0


class GradientAttributor(ReadsGradients[S]):
    """A method that reads the gradient of each example's own loss over its response tokens.

    Gradients are stored on disk under a key of everything that decides them. So another method or index with the same
    LM, projection and objective does not compute them again.
    """

    leads = True
    reads_spans = True

    def __init__(self, settings: S) -> None:
        super().__init__(settings)
        self._stores: dict[str, GradientStore] = {}

    @property
    def objective(self) -> Objective:
        """The quantity that is differentiated."""
        return "loss"

    @property
    def least_width(self) -> int | None:
        return self._settings.rank

    @cached_property
    def projections(self) -> Projections | None:
        """The projection matrices; None for unprojected gradients."""
        rank = self._settings.rank
        return None if rank is None else random_projections(self.sites, rank, self._settings.seed)

    @property
    def finish(self) -> WhitenedSketch | None:
        """The step that turns projected gradients into features as they are read; None: they stay as they are."""
        return None

    @property
    def projected_by(self) -> object:
        """A JSON value that decides the projection matrices."""
        return None if self._settings.rank is None else ["random", self._settings.rank, self._settings.seed]

    @property
    def recipe(self) -> dict[str, object]:
        """The fields of a fingerprint that decide projected gradients."""
        return {**self.reading, "projection": self.projected_by, "objective": self.objective}

    def gradients(
        self, examples: Sequence[Example], weights: LmWeights = FINAL, on_rows: OnRows | None = None
    ) -> Gradients:
        """Return projected gradients, stored or computed now (DataError: the LM cannot read an example)."""
        key = json_digest({**self.recipe, "weights": weights.name})
        if key not in self._stores:
            heard = heard_losses(self.lm).note if weights is FINAL else None
            self._stores[key] = GradientStore(self.folder, key, self.dimension + 1, self.lm.key, heard)
        # 1 − p is stored as a last column
        found = self._stores[key].rows(examples, lambda missing: self._compute(missing, weights), on_rows)
        return Gradients(found[:, :-1], found[:, -1])

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Numbers in the projected gradient of each linear map."""
        rank = self._settings.rank
        return tuple(site.width_in * site.width_out if rank is None else rank * rank for site in self.sites)

    @property
    def dimension(self) -> int:
        """Numbers in one projected gradient."""
        return sum(self.widths)

    def tokens(self, query: Example, examples: Sequence[Example]) -> list[TokenProducts] | None:
        """Split products of projected gradients over pairs of tokens, and add them up over all weights."""
        query_tokens, *tokens = predicted(self.lm, [query, *examples])
        total: list[np.ndarray] = []
        documents = self.lm.tokenise([query, *examples])
        sides = documents.take([0]), documents.take(range(1, len(documents)))
        split = partial(token_products, self.lm, *sides, self.sites, objective=self.objective, reduction=self.reduction)
        for weights, scales in self.token_scales([query, *examples]):
            pairing = Projected(self.sites, self.projections, self.lm.execution.device, self.finish, self.dual(weights))
            with self._at(weights):
                products = split(pairing)
            parts = [scales[0] * scale * each for scale, each in zip(scales[1:].tolist(), products, strict=True)]
            total = [one + other for one, other in zip(total, parts, strict=True)] if total else parts
        return list(map(TokenProducts, [query_tokens] * len(tokens), tokens, total))

    def token_scales(self, examples: Sequence[Example]) -> Iterator[tuple[LmWeights, Float[np.ndarray, " n"]]]:
        """Yield the factors that scores multiply examples' gradients by, the query first, for each of the weights."""
        yield FINAL, np.ones(len(examples))

    def dual(self, weights: LmWeights) -> Dual | None:  # noqa: ARG002
        """Return K of a score φ(x)ᵀ K φ(z), φ being features as they are read; None for the identity."""
        return None

    @contextmanager
    def _at(self, weights: LmWeights) -> Iterator[None]:
        """Load some weights into the LM while the context lasts."""
        try:
            if weights.path is not None:
                self.lm.load_weights(weights.path)
            yield
        finally:
            if weights.path is not None:
                self.lm.reset()

    def _compute(self, examples: Sequence[Example], weights: LmWeights) -> Computed:
        documents = self.lm.tokenise(examples)
        with self._at(weights):
            found = project_gradients(
                self.lm,
                documents,
                self.sites,
                self.projections,
                objective=self.objective,
                reduction=self.reduction,
                finish=self.finish,
            )
        rows = np.column_stack([found.features, found.doubts]).astype(np.float32)
        rows[~np.isfinite(rows).all(axis=1)] = 0.0
        return Computed(rows, found.losses)


class OwnPool(GradientAttributor[S]):
    """A gradient method whose settings decide its pool, so that its fingerprint has the pool."""

    @property
    @abstractmethod
    def decided(self) -> dict[str, object]:
        """The fields of the fingerprint without the pool."""

    @property
    def fingerprint(self) -> str:
        pool = {} if self.own_pool == "sum" else {"pool": str(self.pooling())}  # sum: as in older indexes
        return json_digest({**self.decided, **pool})

    @property
    def features_fingerprint(self) -> str:
        return json_digest(self.decided)


class CheckpointAttributor(GradientAttributor[C]):
    """A gradient method that can take several checkpoints of a warm-up."""

    @cached_property
    def weights(self) -> tuple[LmWeights, ...]:
        """Weights that gradients are taken at (ConfigError: ``checkpoints=all``, but the LM has no checkpoints)."""
        if self._settings.checkpoints == "final":
            return (FINAL,)
        return tuple(LmWeights(checkpoint.path, checkpoint.rate) for checkpoint in checkpoints_of(self.lm))

    def at_all(self, examples: Sequence[Example], on_rows: OnRows | None) -> Iterator[Gradients]:
        """Yield the gradients at each of the weights; only the last reports rows."""
        for weights in self.weights:
            yield self.gradients(examples, weights, on_rows if weights is self.weights[-1] else None)


class TracinAttributor(CheckpointAttributor[TracinSettings], OwnPool[TracinSettings]):
    """φ(z) = P ∇ℓ(z) / |P ∇ℓ(z)|, where P projects gradients, at the weights of the LM; not divided if not ``unit``.

    With several checkpoints t of a warm-up the score is Σ_t η_t ⟨φ_t(x), φ_t(z)⟩, where η_t is the learning rate at t
    (Eq. 1 of the TracIn paper, with unit gradients).
    """

    name = "tracin"

    @property
    def own_pool(self) -> Pool:
        """The best pool for cosines (experiments/gradients); other scores are summed, as in the paper."""
        return "signed-attention" if self.settings.unit and self.settings.checkpoints == "final" else "sum"

    @property
    def own_temperature(self) -> float:
        return COSINES if self.own_pool == "signed-attention" else 1.0

    @property
    def decided(self) -> dict[str, object]:
        weights = [[each.name, each.rate] for each in self.weights]
        own = {"weights": weights, "unit": self.settings.unit}
        return {"method": self.name, **self.recipe, **own}

    def token_scales(self, examples: Sequence[Example]) -> Iterator[tuple[LmWeights, Float[np.ndarray, " n"]]]:
        full = [one.whole for one in examples]  # a span's gradient is divided by the length of the whole answer's
        for at, each in zip(self.weights, self.at_all(full, None), strict=True):
            yield at, inverse_lengths(each.rows, self.settings.unit) * np.sqrt(at.rate)

    def encode_train(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> DenseFeatures:
        dimension = self.dimension * len(self.weights)
        return by_chunks(examples, dimension, lambda part: self._features(part, on_rows))

    def _features(self, examples: Sequence[Example], on_rows: OnRows | None) -> Float[np.ndarray, "n d"]:
        found = (each.rows for each in self.at_all(examples, on_rows))
        full = wholes(examples) if self.settings.unit else None
        others = repeat(None) if full is None else (each.rows for each in self.at_all(full, None))
        pairs = zip(found, others, strict=False)
        rows = (unit(each, whole) if self.settings.unit else each for each, whole in pairs)
        return np.concatenate([each * np.sqrt(at.rate) for each, at in zip(rows, self.weights, strict=True)], axis=1)
