"""EK-FAC's inverse products refined by conjugate gradients on the Gauss-Newton matrix of a sample."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from airrep.arrays import Rows
from airrep.attributors.gradient.reading import (
    TOKENS,
    DocumentPlaces,
    ReadBatch,
    Site,
    SiteHooks,
    frozen,
    wide,
)
from airrep.attributors.gradient.whole.factors import Factors, HeldGradients, low_rank
from airrep.errors import TrainingError
from airrep.lm.attention import PackedDocuments
from airrep.lm.documents import Documents
from airrep.lm.model import TargetLM
from airrep.lm.network import memory_named, token_logits
from airrep.runtime.packing import pack
from airrep.shapes import Float

STEPS = 2
"""Products with the matrix for a query. The first only scales EK-FAC's solution."""
EXACT = 1e-8
"""Length of the residual, as EK-FAC's inverse measures it and relative to the gradient, at which a query is solved."""
VECTORS = 6
"""Vectors as large as the linear maps that are held of a query while it is refined."""
GRAPHS = 4
"""Memory of a token whose backward pass is differentiated again, in tokens that are read once."""

Vectors: TypeAlias = dict[str, Float[Tensor, "q o i"]]
"""A vector over the weights of all linear maps for each query, by the map's name."""


class _Passed(NamedTuple):
    """The tokens that passed a linear map."""

    name: str
    inputs: Float[Tensor, "t i"]
    outputs: Tensor


class _Noting(SiteHooks):
    """Hooks on sites that note inputs and outputs, outputs as parts of the graph."""

    def __init__(self, sites: Sequence[Site], lm: TargetLM) -> None:
        super().__init__(sites, None, lm)
        self.passed: list[_Passed] = []

    def _read(self, site: Site, inputs: Tensor, outputs: Tensor, places: DocumentPlaces) -> None:  # noqa: ARG002
        if not outputs.requires_grad:  # nothing below a first site is differentiated
            outputs.requires_grad_(True)
        self.passed.append(_Passed(site.name, wide(inputs.detach()), outputs))


class GaussNewton:
    """G = (1/M) Σ_z Σ_t J_ztᵀ (diag p_zt − p_zt p_ztᵀ) J_zt over M documents z and their response tokens t.

    J are the derivatives of a token's logits by the weights of the linear maps, all maps together, and p its chances:
    the expected outputs, not those of the data (Schraudolph 2002; the matrix of ASTRA, arXiv 2507.14740). It is the
    expectation of the mean squared gradients that EK-FAC estimates, if answers were drawn from the LM.

    A document passes forward once for all vectors v. J v is the derivative of uᵀ J v by u, so that it needs backward
    passes alone, which code of every LM has; attention is computed by its formula, whose backward pass can be
    differentiated.
    """

    def __init__(self, lm: TargetLM, documents: Documents, sites: Sequence[Site]) -> None:
        self._lm, self._documents, self._sites = lm, documents, sites

    @torch.inference_mode(False)
    def products(self, vectors: Vectors) -> Vectors:
        """G v of each query's v."""
        lm, execution = self._lm, self._lm.execution
        total = {name: torch.zeros_like(rows) for name, rows in vectors.items()}
        tokens = min(execution.batch_tokens // (1 if lm.plan is None else GRAPHS), TOKENS)
        with memory_named("refine=cg"), frozen(lm.model), sdpa_kernel(SDPBackend.MATH):
            for batch in pack(self._documents.lengths, max(1, tokens)):
                with _Noting(self._sites, lm) as hooks:
                    packed = PackedDocuments.from_batch(self._documents, batch, execution.device, execution.padding)
                    hooks.begin(DocumentPlaces(batch, execution.device))
                    with execution.autocast():
                        logits = token_logits(lm.model, packed)
                    _add(total, vectors, hooks.passed, logits)
        for rows in total.values():
            rows /= len(self._documents)
        return total


def _add(total: Vectors, vectors: Vectors, passed: Sequence[_Passed], logits: Float[Tensor, "r v"]) -> None:
    """Add Σ_t J_tᵀ (diag p − p pᵀ) J_t v of one batch for each query, one after another, as graphs are large."""
    outputs = [each.outputs for each in passed]
    adjoint = torch.zeros_like(logits, requires_grad=True)
    # The backward pass is linear in what comes in, so its derivative by that is the forward pass of a change.
    back = torch.autograd.grad(logits, outputs, adjoint, create_graph=True)
    chances = logits.detach().softmax(dim=1)
    for query in range(len(next(iter(vectors.values())))):
        changes = [
            (each.inputs @ vectors[each.name][query].T.to(each.inputs)).view_as(part).to(part)
            for each, part in zip(passed, back, strict=True)
        ]
        (moved,) = torch.autograd.grad(back, adjoint, changes, retain_graph=True)
        moved = chances * (moved - (chances * moved).sum(dim=1, keepdim=True))
        found = torch.autograd.grad(logits, outputs, moved, retain_graph=True)
        for each, gradients in zip(passed, found, strict=True):
            total[each.name][query] += wide(gradients.flatten(0, -2)).T @ each.inputs


def conjugate_gradients(
    product: Callable[[Vectors], Vectors], inverse: Callable[[Vectors], Vectors], rights: Vectors, steps: int
) -> Vectors:
    """A⁻¹ b of each query's b, from *steps* products with A, led by an *inverse* that is near A's.

    The first step is along the inverse's own solution. Queries do not meet, so that a query's result does not depend
    on those beside it; one that is solved stands still.

    Raises:
        TrainingError: a product is not finite.
    """
    residual = {name: rows.clone() for name, rows in rights.items()}
    direction = inverse(residual)
    solution = {name: torch.zeros_like(rows) for name, rows in rights.items()}
    square = _dots(residual, direction)
    goal = EXACT**2 * square
    for step in range(steps):
        bent = product(direction)
        curved = _dots(direction, bent)
        if not bool(torch.isfinite(curved).all()):
            raise TrainingError(
                "refine=cg: a product with the Gauss-Newton matrix is not finite. Check the LM's weights, take "
                "precision=float32, or leave refine out."
            )
        length = torch.where(square > goal, square / curved, 0.0)
        for name, rows in direction.items():
            solution[name].addcmul_(rows, _rows(length, rows))
            residual[name].addcmul_(bent[name], _rows(-length, rows))
        del bent  # before the next vector is made
        if step + 1 == steps or not bool((square > goal).any()):
            break
        led = inverse(residual)
        before, square = square, _dots(residual, led)
        turn = torch.where(before > 0, square / before, 0.0)
        direction = {name: rows.addcmul_(direction[name], _rows(turn, rows)) for name, rows in led.items()}
    return solution


def _dots(one: Vectors, other: Vectors) -> Float[Tensor, " q"]:
    parts = [(rows * other[name]).sum(dim=(1, 2)) for name, rows in one.items()]
    return torch.stack(parts).sum(dim=0)


def _rows(numbers: Float[Tensor, " q"], like: Tensor) -> Float[Tensor, "q 1 1"]:
    return numbers[:, None, None].to(like)


class Curvature(NamedTuple):
    """EK-FAC's curvature of all linear maps, and its damped inverse, by pool."""

    factors: Mapping[str, Factors]
    inverse: Mapping[str, Float[Tensor, "o i"]]
    damping: Mapping[str, Tensor]
    """λ."""


class RefinedGradients(HeldGradients):
    """Reads gradients of queries and holds (G + λI)⁻¹ of them, G being the Gauss-Newton matrix and λ EK-FAC's damping.

    They are found by conjugate gradients that EK-FAC's inverse leads, those of *at_once* queries together; *rank* and
    *kind* are as of :class:`HeldGradients`.
    """

    def __init__(
        self,
        curvature: Curvature,
        matrix: GaussNewton,
        sites: Sequence[Site],
        at_once: int,
        rank: int | None = None,
        kind: torch.dtype | None = None,
    ) -> None:
        super().__init__(curvature.factors, curvature.inverse, rank, kind)
        self._curvature, self._matrix = curvature, matrix
        self._pools = {site.name: site.pool for site in sites}
        self._at_once = at_once

    @property
    def at_once(self) -> int:
        return self._at_once

    def keep(self, _site: Site, inputs: Float[Tensor, "t i"], /) -> Tensor:
        """Hold the inputs."""
        return inputs

    def take(self, site: Site, kept: Tensor, gradients: Float[Tensor, "t o"], places: DocumentPlaces, /) -> None:
        """Form the gradients."""
        self._batch[site.name] = (places.products(gradients, kept),)

    def _batches(self, reads: Iterator[ReadBatch]) -> Iterator[Rows]:
        """Let documents pass, and refine the gradients of all when none is read any more."""
        rows: list[Rows] = []
        parts: list[dict[str, tuple[Tensor, ...]]] = []
        for read in reads:
            rows.append(read.rows)
            parts.append(self._batch)
            self._batch = {}
        rights = {name: torch.cat([part.pop(name)[0] for part in parts]) for name in list(parts[0])}
        self._squares = _dots(rights, self._led(rights))
        good = torch.isfinite(self._squares)
        if not bool(good.all()):  # one would be told of as a product that is not finite
            rights = {name: torch.where(good[:, None, None], found, 0.0) for name, found in rights.items()}
        solved = conjugate_gradients(self._bent, self._led, rights, STEPS)
        if self._rank is None:
            self._batch = {name: (found.flatten(1),) for name, found in solved.items()}
        else:
            self._batch = {name: low_rank(found, self._rank) for name, found in solved.items()}
        yield np.concatenate(rows)

    def _led(self, vectors: Vectors) -> Vectors:
        """EK-FAC's inverse of vectors."""
        found = {}
        for name, rows in vectors.items():
            own, inverse = self._factors[self._pools[name]], self._inverse[self._pools[name]]
            inward, outward = own.inward.to(rows), own.outward.to(rows)
            found[name] = outward @ ((outward.T @ rows @ inward) * inverse.to(rows)) @ inward.T
        return found

    def _bent(self, vectors: Vectors) -> Vectors:
        """(G + λI) v of vectors v."""
        found = self._matrix.products(vectors)
        for name, rows in vectors.items():
            found[name] += self._curvature.damping[self._pools[name]].to(rows) * rows
        return found
