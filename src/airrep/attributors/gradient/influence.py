"""Attribution by the influence function with the exact Hessian of the training loss.

H is the Hessian of L(W) = (1/n) Σ_i ℓ(z_i; W) with respect to the weights W of chosen linear maps; other weights are
fixed. W is flattened as gradients are: map after map, each as (out, in), row by row. Products H v are computed by
differentiating the backward pass, in float64, one packed batch after another.
"""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from scipy import linalg
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from airrep.arrays import DenseFeatures
from airrep.attributors.base import OnRows, count_rows
from airrep.attributors.by_token import TokenProducts
from airrep.attributors.gradient.base import LmWeights, TracinAttributor
from airrep.attributors.gradient.reading import Reduction, Site
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
from airrep.lm.attention import PackedDocuments
from airrep.lm.documents import Documents
from airrep.lm.held import make_whole
from airrep.lm.model import TargetLM
from airrep.lm.network import memory_named, token_logits
from airrep.lm.packed import one_by_one
from airrep.lm.settings import LmSettings
from airrep.runtime.artifacts import json_digest
from airrep.runtime.metering import OnProgress
from airrep.runtime.packing import Batch, pack
from airrep.scoring.pooling import Pool
from airrep.shapes import Float32, Float64

WHOLE = 4096
"""Most weights for a whole Hessian, which needs a product for each weight."""

HELD = 2**24
"""Most numbers, 128 MiB, of one tensor in a second backward pass, and of the right-hand sides that are solved for at a
time, unless a single vector needs more."""

Product = Callable[[Float64[np.ndarray, "k d"]], Float64[np.ndarray, "k d"]]
"""Returns H v for each row v."""


class Hessian:
    """The Hessian of the mean loss of some documents, which is the mean of their losses' Hessians.

    It holds a copy of the LM in float64; the LM itself stays as it is. Attention is computed by its formula, since
    fused kernels have no second derivative. A document's loss is the mean, or sum, over its response tokens, in nats;
    *on_documents* is called with the number of documents after each batch.
    """

    @torch.inference_mode(False)  # the copy must be differentiable even if gradients are switched off
    def __init__(
        self,
        lm: TargetLM,
        documents: Documents,
        sites: Sequence[Site],
        reduction: Reduction = "mean",
        on_documents: OnRows | None = None,
    ) -> None:
        self._execution = lm.execution
        self._documents = documents
        self._reduction = reduction
        self._on_documents = on_documents or (lambda _: None)
        with memory_named("hessian"):
            self._model = copy.deepcopy(lm.model)
            make_whole(self._model)
            self._model.double().requires_grad_(False)
        for site in sites:
            if site.fused:  # in float64, experts must run one by one
                one_by_one(self._model.get_submodule(site.owner))
        names = list(dict.fromkeys(site.parameter for site in sites))
        self._weights = [self._model.get_parameter(name).requires_grad_(True) for name in names]
        self._sites = [(names.index(site.parameter), site) for site in sites]
        self._width = max(max(site.width_in, site.width_out) for site in sites)
        self.dimension = sum(site.width_in * site.width_out for site in sites)
        """Number of weights, ``d``."""

    @torch.inference_mode(False)
    def products(self, vectors: Float64[np.ndarray, "k d"]) -> Float64[np.ndarray, "k d"]:
        """Return H v for each row v, all in one pass over the documents; memory is bounded by a batch."""
        asked = torch.from_numpy(vectors).to(self._execution.device)
        total = torch.zeros_like(asked)
        for batch in pack(self._documents.lengths, self._execution.batch_tokens):
            with memory_named("hessian"), sdpa_kernel(SDPBackend.MATH):
                gradient, widest = self._gradient(batch)
                step = max(1, HELD // widest)
                for part in (slice(first, first + step) for first in range(0, len(asked), step)):
                    rows = asked[part]  # for each row v, the derivative of vᵀ gradient
                    again = torch.autograd.grad(gradient, self._weights, rows, retain_graph=True, is_grads_batched=True)
                    total[part] += torch.cat(self._flat(again, 1), dim=1)
            self._on_documents(len(batch.rows))
        return total.cpu().numpy()

    def matrix(self) -> Float64[np.ndarray, "d d"]:
        """Return H, made exactly symmetric (ConfigError: there are too many weights)."""
        check_size(self.dimension)
        found = self.products(np.eye(self.dimension))
        return (found + found.T) / 2

    def _gradient(self, batch: Batch) -> tuple[Float64[Tensor, " d"], int]:
        """Return a batch's share of the mean loss's gradient, with its graph, and the size of its largest tensor."""
        execution, documents = self._execution, self._documents
        packed = PackedDocuments.from_batch(documents, batch, execution.device, execution.padding)
        logits = token_logits(self._model, packed)
        losses = functional.cross_entropy(logits, packed.targets, reduction="none")
        if self._reduction == "mean":
            losses = losses / torch.bincount(packed.owners, minlength=len(batch.rows))[packed.owners]
        parts = torch.autograd.grad(losses.sum() / len(documents), self._weights, create_graph=True)
        pairs = int((batch.lengths**2).sum()) * getattr(self._model.config, "num_attention_heads", 1)
        widest = max(self.dimension, logits.numel(), pairs, batch.tokens * self._width)
        return torch.cat(self._flat(parts, 0)), widest

    def _flat(self, parts: Sequence[Tensor], first: int) -> list[Tensor]:
        """Return each map's numbers as (out, in), row by row, flattened from the dimension *first* on."""
        own = ((parts[n].select(first, site.expert) if site.fused else parts[n], site) for n, site in self._sites)
        return [(each.transpose(-1, -2) if site.turned else each).flatten(first) for each, site in own]


def check_size(weights: int, where: str = "hessian") -> None:
    """Refuse a whole Hessian of more than 4,096 weights with a ConfigError."""
    if weights > WHOLE:
        raise ConfigError(
            f"{where}: {weights:,} weights are too many for a whole Hessian; the limit is {WHOLE:,}. Name fewer "
            "modules, or use solver=cg."
        )


def factor(matrix: Float64[np.ndarray, "d d"], damping: float) -> Float64[np.ndarray, "d d"]:
    """Return the lower triangle L with L Lᵀ = H + λI, λ being the damping.

    TrainingError: H + λI is not positive definite, or not finite.
    """
    if not np.isfinite(matrix).all():
        raise _not_finite()
    try:
        found: np.ndarray = linalg.cholesky(matrix + damping * np.eye(len(matrix)), lower=True)
    except linalg.LinAlgError as error:
        raise _indefinite(linalg.eigvalsh(matrix, subset_by_index=(0, 0))[0], damping) from error
    return found


def solve(
    product: Product, rights: Float64[np.ndarray, "k d"], damping: float, tolerance: float, iterations: int
) -> Float64[np.ndarray, "k d"]:
    """Return (H + λI)⁻¹ r for each row r, by conjugate gradients for all rows together.

    Rows do not interact: each stops when the length of its residual, relative to r, is at most the tolerance, and no
    more products are computed for it. TrainingError: *iterations* steps do not suffice, or H + λI is not positive
    definite or not finite.
    """
    # Not the loop of scoring/orders.py: there all groups share each pass over the rows, so that a group that is done
    # costs nothing. Here a row that is done is left out, since each row costs a backward pass.
    solution, residual, direction = np.zeros_like(rights), rights.copy(), rights.copy()
    square = _squares(residual)
    goal = tolerance**2 * square
    rows = np.flatnonzero(square > goal)
    for _ in range(iterations):
        if not len(rows):
            break
        along = direction[rows]
        bent = product(along) + damping * along
        length = (square[rows] / _curvature(along, bent, damping))[:, None]
        solution[rows] += length * along
        residual[rows] -= length * bent
        before, square[rows] = square[rows], _squares(residual[rows])
        direction[rows] = residual[rows] + (square[rows] / before)[:, None] * along
        rows = np.flatnonzero(square > goal)
    if not len(rows):
        return solution
    worst = float(np.sqrt((square[rows] / (goal[rows] / tolerance**2)).max()))
    raise TrainingError(
        f"conjugate gradients: after {iterations:,} iterations the residual is {worst:.1e}, above the tolerance "
        f"{tolerance:.1e}. Raise damping or tolerance."
    )


def _curvature(
    along: Float64[np.ndarray, "k d"], bent: Float64[np.ndarray, "k d"], damping: float
) -> Float64[np.ndarray, " k"]:
    """Return vᵀ (H + λI) v for each row v, which must be above 0."""
    found: np.ndarray = np.einsum("kd,kd->k", along, bent)
    if not np.isfinite(found).all():
        raise _not_finite()
    if not (found > 0).all():
        raise _indefinite(float((found / _squares(along)).min()) - damping, damping)
    return found


def _squares(rows: Float64[np.ndarray, "k d"]) -> Float64[np.ndarray, " k"]:
    return np.einsum("kd,kd->k", rows, rows)


def _indefinite(curvature: float, damping: float) -> TrainingError:
    return TrainingError(
        f"hessian: is not positive definite with damping={damping:g}, because the curvature in one direction is "
        f"{curvature:.3g}. Raise damping above {max(-curvature, 0):.3g}, or train the LM further."
    )


def _not_finite() -> TrainingError:
    return TrainingError("hessian: is not finite. Check the LM's weights, or name other modules.")


MOST = 2**20
"""Most weights for conjugate gradients; each training example then takes 2 MiB in an index."""

ITERATIONS = 1000
"""Most steps of conjugate gradients."""

TRIED = 4
"""Training examples that conjugate gradients are tried on before an index is built."""

LARGEST = 1024.0
"""The largest training feature with ``solver=cg``: float16 then has room for features of later examples too."""


class InfluenceAttributor(LearnsArrays[InfluenceSettings]):
    """Score = ∇ℓ(x)ᵀ (H + λI)⁻¹ ∇ℓ(z) (Eq. 2 with the opposite sign; higher = z lowers the loss of x).

    H is the Hessian of the mean training loss with respect to the weights of chosen linear maps, and gradients are with
    respect to the same weights. A score divided by n estimates how much the loss of x rises if z is left out.

    With ``solver=explicit``, H + λI = L Lᵀ is factorised, and φ = L⁻¹ ∇ℓ for both sides: (H + λI)^(-1/2) ∇ℓ up to a
    rotation, which does not change inner products, so that order-k pools can be used. With ``solver=cg``, φ_train =
    c ∇ℓ and φ_query = (H + λI)⁻¹ ∇ℓ / c by conjugate gradients. Every step of these reads the training corpus again,
    whose tokens are stored with the index. c scales training features to fit float16.
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
        """Read the gradients of the corpus, and factorise the Hessian or keep the tokens that its products need.

        ConfigError: the loss is not ``sft``, the LM lacks the modules, or they have too many weights. TrainingError: H
        + λI is not positive definite, or all gradients are zero.
        """
        if (loss := self._whole.settings.loss) != "sft":
            raise ConfigError(f"{self.name}: supports only loss=sft, not loss={loss}. Use method ekfac or logra.")
        self._whole.fit(train)
        weights = self._whole.dimension
        if self.symmetric:
            check_size(weights, self.name)
        elif weights > MOST:
            raise ConfigError(
                f"{self.name}: {weights:,} weights are too many; the limit is {MOST:,}. Name fewer or smaller modules, "
                "or use method logra."
            )
        # the Hessian is computed in float64, whatever the precision of the gradients
        reading = {name: value for name, value in self._whole.reading.items() if name != "precision"}
        key = json_digest({"hessian": reading, "train": self._whole.lm.corpus_key(train)})
        largest = self._largest(train, progress)
        documents = self._whole.lm.tokenise(train)
        if self.symmetric:
            learnt = self._factor(key, documents, progress)
        else:  # the corpus as tokens, for products with the Hessian, and the scale of features
            tokens = {"ids": documents.ids, "offsets": documents.offsets, "starts": documents.starts}
            learnt = {**tokens, "scale": np.array([LARGEST / largest])}
        self.take_learnt(with_key(with_key(learnt, key), self.reader, READER))
        if not self.symmetric:  # find out now, not at the first query, whether the damping is large enough
            self.encode_queries(train[:TRIED])

    def _largest(self, train: Corpus, progress: OnProgress | None) -> float:
        """Return the largest absolute number in all training gradients, which are stored on the way."""
        on_rows = count_rows(len(train), progress, stage="learning from the data")
        found = max(
            float(np.abs(self._whole.gradients(part, on_rows=on_rows).rows).max())
            for part in chunks(train, chunk_rows(self._whole.dimension))
        )
        if found == 0:
            raise TrainingError(f"{self.name}: all gradients are zero or not finite. Name other modules.")
        return found

    def _factor(self, key: str, documents: Documents, progress: OnProgress | None) -> Mapping[str, np.ndarray]:
        """Return L with L Lᵀ = H + λI, from a stored H or one that is computed now."""
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
        return (
            linalg.solve_triangular(learnt["factor"], rows.T, lower=True).T
            if self.symmetric
            else rows * learnt["scale"]
        )

    def tokens(self, query: Example, examples: Sequence[Example]) -> list[TokenProducts] | None:
        """Split products of gradients, with (H + λI)⁻¹ between them, over pairs of tokens; None with ``solver=cg``.

        Conjugate gradients stop at a tolerance, and would read the corpus again for each token.
        """
        if not self.symmetric:
            return None
        self._whole.factor = self._fitted()["factor"]
        return self._whole.tokens(query, examples)

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
    """Unprojected gradients; by default of the last linear map of the LM's MLPs."""

    name = InfluenceAttributor.name
    factor: Float64[np.ndarray, "d d"]
    """L of L Lᵀ = H + λI, whose inverse stands between gradients; set before :meth:`tokens`."""

    @cached_property
    def sites(self) -> tuple[Site, ...]:
        """The linear maps whose weights count as parameters."""
        found = super().sites
        return found[-1:] if self.settings.modules is None else found

    def dual(self, weights: LmWeights) -> Dual:  # noqa: ARG002
        return lambda rows: linalg.cho_solve((self.factor, True), rows.T).T
