"""Attribution by the influence function with the exact Hessian."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import ClassVar

import numpy as np
from scipy import linalg

from airrep.arrays import DenseFeatures
from airrep.attributors.base import OnRows, count_rows
from airrep.attributors.by_token import TokenProducts
from airrep.attributors.gradient.base import LmWeights, TracinAttributor
from airrep.attributors.gradient.hessian import Hessian, check_size, factor, solve
from airrep.attributors.gradient.reading import Site
from airrep.attributors.gradient.store import (
    READER,
    GradientStore,
    LearnsArrays,
    by_chunks,
    chunk_rows,
    chunks,
    keep_arrays,
    recall_arrays,
    with_key,
)
from airrep.attributors.gradient.tokens import Dual
from airrep.attributors.settings import InfluenceSettings, TracinSettings
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import ConfigError, TrainingError
from airrep.lm.documents import Documents
from airrep.lm.settings import LmSettings
from airrep.runtime.artifacts.manifests import json_digest
from airrep.runtime.metering import OnProgress
from airrep.scoring.pooling import Pool
from airrep.shapes import Float32, Float64

MOST = 2**20
"""Most weights for conjugate gradients; a training example then takes 2 MiB of an index."""

HELD = 2**24
"""Numbers in the right-hand sides that are solved for at a time, 128 MiB."""

ITERATIONS = 1000
"""Most steps of conjugate gradients."""

TRIED = 4
"""Training examples that conjugate gradients are tried on before an index is built."""

LARGEST = 1024.0
"""The largest training feature of conjugate gradients, so that float16 holds it and those of later examples."""


class InfluenceAttributor(LearnsArrays[InfluenceSettings]):
    """Score = ∇ℓ(x)ᵀ (H + λI)⁻¹ ∇ℓ(z) (Eq. 2, with the other sign: higher = z lowers the loss of x).

    H is the Hessian of the mean training loss with respect to the weights of chosen linear maps, gradients are those
    of the same weights. A score divided by n estimates by how much the loss of x rises if z is left out.

    With ``solver=explicit``, H + λI = L Lᵀ is taken apart, and φ = L⁻¹ ∇ℓ on both sides: (H + λI)^(-1/2) ∇ℓ up to a
    rotation, which inner products do not see, so that order-k pools have a meaning. With ``solver=cg``, φ_train =
    c ∇ℓ and φ_query = (H + λI)⁻¹ ∇ℓ / c by conjugate gradients, every step of which reads the training corpus again:
    its tokens are kept with the index. c makes training features fit float16.
    """

    name = "influence"
    pool: ClassVar[Pool] = "sum"
    made_of_learnt = ("_hessian",)
    reads_spans = True

    def __init__(self, settings: InfluenceSettings) -> None:
        super().__init__(settings)
        shared = settings.model_dump(include={*LmSettings.model_fields, "modules", "store"})
        self._whole = _WholeGradients(TracinSettings(**shared, rank=None, unit=False))

    @property
    def symmetric(self) -> bool:
        return self._settings.solver == "explicit"

    @property
    def fingerprint(self) -> str:
        names = ("solver", "damping") if self.symmetric else ("solver", "damping", "tolerance")
        own = {name: getattr(self._settings, name) for name in names}
        return json_digest({"method": self.name, "curvature": self.learnt_key, **own})

    @property
    def reader(self) -> str:
        return self._whole.reader

    @property
    def execution(self) -> Mapping[str, str]:
        return self._whole.execution

    @property
    def caution(self) -> str:
        return self._whole.caution

    def unusable(self, examples: Sequence[Example]) -> Mapping[int, str]:
        return self._whole.unusable(examples)

    def rendering(self, examples: Iterable[Example]) -> Mapping[str, str]:
        return self._whole.rendering(examples)

    def fit(self, train: Corpus, progress: OnProgress | None = None) -> None:
        """Read the gradients of the corpus, and take the Hessian apart or keep what its products need.

        Raises:
            ConfigError: no such modules, or they have too many weights.
            TrainingError: H + λI is not positive definite, all gradients are zero.
        """
        if (loss := self._whole.settings.loss) != "sft":
            raise ConfigError(f"{self.name}: knows no Hessian of loss={loss}; expected sft. Take ekfac or logra.")
        self._whole.fit(train)
        self._check_size()
        # the Hessian is computed in float64, whatever the precision of the gradients
        reading = {name: value for name, value in self._whole.reading.items() if name != "precision"}
        key = json_digest({"hessian": reading, "train": self._whole.lm.corpus_key(train)})
        largest = self._largest(train, progress)
        documents = self._whole.lm.tokenise(train)
        learnt = self._factor(key, documents, progress) if self.symmetric else _corpus(documents, LARGEST / largest)
        self.take_learnt(with_key(with_key(learnt, key), self.reader, READER))
        if not self.symmetric:  # find out now, not at the first query, whether the damping will do
            self.encode_queries(train[:TRIED])

    def _check_size(self) -> None:
        weights = self._whole.dimension
        if self.symmetric:
            check_size(weights, self.name)
        elif weights > MOST:
            raise ConfigError(
                f"{self.name}: {weights:,} weights are too many; expected {MOST:,} or fewer. Name fewer or smaller "
                "modules, or use logra."
            )

    def _largest(self, train: Corpus, progress: OnProgress | None) -> float:
        """The largest absolute value in a training gradient; all gradients are in the store afterwards."""
        on_rows = count_rows(len(train), progress, stage="learning from the data")
        found = max(
            float(np.abs(self._whole.gradients(part, on_rows=on_rows).rows).max())
            for part in chunks(train, chunk_rows(self._whole.dimension))
        )
        if found == 0:
            raise TrainingError(f"{self.name}: all gradients are zero or not finite. Name other modules.")
        return found

    def _factor(self, key: str, documents: Documents, progress: OnProgress | None) -> Mapping[str, np.ndarray]:
        """L with L Lᵀ = H + λI, H from the store or computed."""
        found = recall_arrays(self._whole.folder, key)
        if found is None:
            on_rows = count_rows(len(documents), progress, stage="learning from the data")
            whole = self._whole
            found = {"hessian": Hessian(whole.lm, documents, whole.sites, self._whole.reduction, on_rows).matrix()}
            keep_arrays(whole.folder, key, found)
        return {"factor": np.ascontiguousarray(factor(found["hessian"], self._settings.damping))}  # as it is read back

    def encode_train(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> DenseFeatures:
        self._fitted()
        dimension = self._whole.dimension
        return by_chunks(examples, dimension, lambda part: self._train_features(part, on_rows))

    def _train_features(self, examples: Sequence[Example], on_rows: OnRows | None) -> np.ndarray:
        learnt = self._fitted()
        rows = self._whole.gradients(examples, on_rows=on_rows).rows.astype(np.float64)
        found: np.ndarray = (
            linalg.solve_triangular(learnt["factor"], rows.T, lower=True).T
            if self.symmetric
            else rows * learnt["scale"]
        )
        return found

    def tokens(self, query: Example, examples: Sequence[Example]) -> list[TokenProducts] | None:
        """Products of gradients with (H + λI)⁻¹ between them, token by token; None with ``solver=cg``.

        Conjugate gradients stop at a tolerance, and would read the corpus again for each token.
        """
        return self._whole.solved_by(self._fitted()["factor"]).tokens(query, examples) if self.symmetric else None

    def encode_queries(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> DenseFeatures:
        if self.symmetric:
            return self.encode_train(examples, on_rows)
        key = json_digest({"solved": self.fingerprint, **self.execution})
        store = GradientStore(self._whole.folder, key, self._whole.dimension, self._whole.lm.key)
        found: np.ndarray = store.rows(examples, self._solve, on_rows) / self._fitted()["scale"]
        return found.astype(np.float32)

    def _solve(self, examples: Sequence[Example]) -> Float32[np.ndarray, "n d"]:
        chosen = self._settings
        rights = self._whole.gradients(examples).rows.astype(np.float64)
        parts = np.split(rights, range(0, len(rights), max(1, HELD // rights.shape[1]))[1:])
        found = [solve(self._hessian.products, p, chosen.damping, chosen.tolerance, ITERATIONS) for p in parts]
        return np.concatenate(found).astype(np.float32)

    @cached_property
    def _hessian(self) -> Hessian:
        learnt = self._fitted()
        documents = Documents(learnt["ids"], learnt["offsets"], learnt["starts"])
        return Hessian(self._whole.lm, documents, self._whole.sites, self._whole.reduction)


class _WholeGradients(TracinAttributor):
    """Gradients of whole weights; by default of those of the last linear map in an MLP."""

    name = InfluenceAttributor.name

    @cached_property
    def sites(self) -> tuple[Site, ...]:
        """The linear maps whose weights count as parameters."""
        found = super().sites
        return found[-1:] if self.settings.modules is None else found

    def solved_by(self, factor: Float64[np.ndarray, "d d"]) -> "_WholeGradients":
        """Return the same, with the curvature between gradients whose lower factor this is."""
        self._factor = factor
        return self

    def dual(self, weights: LmWeights) -> Dual:  # noqa: ARG002
        return lambda rows: linalg.cho_solve((self._factor, True), rows.T).T


def _corpus(documents: Documents, scale: float) -> Mapping[str, np.ndarray]:
    """The training corpus as tokens, for products with the Hessian, and the scale of features."""
    tokens = {"ids": documents.ids, "offsets": documents.offsets, "starts": documents.starts}
    return {**tokens, "scale": np.array([scale])}
