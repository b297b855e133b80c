"""The Hessian of an LM's training loss, and how to solve with it.

H is the Hessian of L(W) = (1/n) Σ_i ℓ(z_i; W) with respect to the weights W of chosen linear maps, all else being
fixed. W is flattened as gradients are: map after map, each as (out, in), row by row. Products H v come from a backward
pass through the backward pass; they are computed in float64, one packed batch after another.
"""

import copy
from collections.abc import Callable, Sequence

import numpy as np
import torch
from scipy import linalg
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from airrep.attributors.base import OnRows
from airrep.attributors.gradient.reading import Reduction, Site
from airrep.errors import ConfigError, TrainingError
from airrep.lm.attention import PackedDocuments
from airrep.lm.documents import Documents
from airrep.lm.held import make_whole
from airrep.lm.model import TargetLM
from airrep.lm.network import memory_named, token_logits
from airrep.lm.packed import one_by_one
from airrep.runtime.packing import Batch, pack
from airrep.shapes import Float64

MOST = 4096
"""Most weights for a whole Hessian, which takes as many products."""

HELD = 2**24
"""Numbers of one tensor in a second backward pass, 128 MiB, unless one vector alone needs more."""

Product = Callable[[Float64[np.ndarray, "k d"]], Float64[np.ndarray, "k d"]]
"""H v of each row v."""


class Hessian:
    """The Hessian of the mean loss of some documents, which is the mean of their losses' Hessians.

    It holds a copy of the LM in float64; the LM itself stays as it is. Attention is computed by its formula, since
    fused kernels have no second derivative. A document's loss is the mean, or sum, over its response tokens, in nats;
    *on_documents* is called with the number of documents each time some are read.
    """

    @torch.inference_mode(False)  # a copy that can be differentiated, wherever gradients are switched off
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
            if site.fused:  # double precision has no other way to run them
                one_by_one(self._model.get_submodule(site.owner))
        names = list(dict.fromkeys(site.parameter for site in sites))
        self._weights = [self._model.get_parameter(name).requires_grad_(True) for name in names]
        self._sites = [(names.index(site.parameter), site) for site in sites]
        self._width = max(max(site.width_in, site.width_out) for site in sites)
        self.dimension = sum(site.width_in * site.width_out for site in sites)
        """Weights, ``d``."""

    @torch.inference_mode(False)
    def products(self, vectors: Float64[np.ndarray, "k d"]) -> Float64[np.ndarray, "k d"]:
        """H v of each row v, all in one pass over the documents; memory is bounded by a batch."""
        asked = torch.from_numpy(vectors).to(self._execution.device)
        total = torch.zeros_like(asked)
        for batch in pack(self._documents.lengths, self._execution.batch_tokens):
            with memory_named("hessian"), sdpa_kernel(SDPBackend.MATH):
                gradient, widest = self._gradient(batch)
                step = max(1, HELD // widest)
                for part in (slice(first, first + step) for first in range(0, len(asked), step)):
                    total[part] += self._again(gradient, asked[part])
            self._on_documents(len(batch.rows))
        found: np.ndarray = total.cpu().numpy()
        return found

    def matrix(self) -> Float64[np.ndarray, "d d"]:
        """H, made symmetric to the last digit (ConfigError: there are too many weights)."""
        check_size(self.dimension)
        found = self.products(np.eye(self.dimension))
        symmetric: np.ndarray = (found + found.T) / 2
        return symmetric

    def _gradient(self, batch: Batch) -> tuple[Float64[Tensor, " d"], int]:
        """A batch's share of the mean loss's gradient, to be differentiated, and the size of its largest tensor."""
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

    def _again(self, gradient: Float64[Tensor, " d"], vectors: Float64[Tensor, "k d"]) -> Float64[Tensor, "k d"]:
        """The derivative of vᵀ gradient for each row v."""
        parts = torch.autograd.grad(gradient, self._weights, vectors, retain_graph=True, is_grads_batched=True)
        return torch.cat(self._flat(parts, 1), dim=1)

    def _flat(self, parts: Sequence[Tensor], first: int) -> list[Tensor]:
        """Each map's numbers as (out, in), row by row, flattened from a dimension on."""
        own = ((parts[n].select(first, site.expert) if site.fused else parts[n], site) for n, site in self._sites)
        return [(each.transpose(-1, -2) if site.turned else each).flatten(first) for each, site in own]


def check_size(weights: int, where: str = "hessian") -> None:
    """Refuse a whole Hessian of more than MOST weights with a ConfigError."""
    if weights > MOST:
        raise ConfigError(
            f"{where}: {weights:,} weights are too many for a whole Hessian; expected {MOST:,} or fewer. Name fewer "
            "modules, or use solver=cg."
        )


def factor(matrix: Float64[np.ndarray, "d d"], damping: float) -> Float64[np.ndarray, "d d"]:
    """The lower triangle L with L Lᵀ = H + λI, λ being the damping.

    Raises:
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
    """(H + λI)⁻¹ r of each row r, by conjugate gradients side by side.

    Rows do not meet: each stops by itself when the length of its residual, relative to r, is the tolerance, and is
    asked about no more.

    Raises:
        TrainingError: the steps do not suffice, or H + λI is not positive definite or not finite.
    """
    # Not the loop of scoring/orders.py: there all groups share each pass over the rows, so that those that are
    # done stand still; here a row that is done leaves, since each one costs a backward pass of its own.
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
        f"conjugate gradients: {iterations:,} iterations leave a residual of {worst:.1e}; expected {tolerance:.1e}. "
        "Raise damping or tolerance."
    )


def _curvature(
    along: Float64[np.ndarray, "k d"], bent: Float64[np.ndarray, "k d"], damping: float
) -> Float64[np.ndarray, " k"]:
    """vᵀ (H + λI) v of each row v, above 0."""
    found: np.ndarray = np.einsum("kd,kd->k", along, bent)
    if not np.isfinite(found).all():
        raise _not_finite()
    if not (found > 0).all():
        raise _indefinite(float((found / _squares(along)).min()) - damping, damping)
    return found


def _squares(rows: Float64[np.ndarray, "k d"]) -> Float64[np.ndarray, " k"]:
    found: np.ndarray = np.einsum("kd,kd->k", rows, rows)
    return found


def _indefinite(curvature: float, damping: float) -> TrainingError:
    return TrainingError(
        f"hessian: it is not positive definite with damping={damping:g}: along a direction the loss bends by "
        f"{curvature:.3g}; expected above {-damping:g}. Raise damping above {max(-curvature, 0):.3g}, or train the LM "
        "further."
    )


def _not_finite() -> TrainingError:
    return TrainingError("hessian: is not finite; expected numbers. Check the LM's weights, or name other modules.")
