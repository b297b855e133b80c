"""Attribution by influence functions with EK-FAC curvature, without projection, refined on request."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import ClassVar, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from airrep.arrays import Rows
from airrep.attributors.base import OnRows, count_rows, sample_of
from airrep.attributors.by_token import TokenProducts
from airrep.attributors.direct import QueryScorer
from airrep.attributors.gradient.base import ReadsGradients
from airrep.attributors.gradient.factors import Factors, HeldGradients, Scorer, Squares, eigenbases, low_rank
from airrep.attributors.gradient.logra import groups_of, largest
from airrep.attributors.gradient.projection import Covariances
from airrep.attributors.gradient.reading import (
    TOKENS,
    DocumentPlaces,
    ReadBatch,
    Site,
    SiteHooks,
    frozen,
    read_gradients,
    wide,
)
from airrep.attributors.gradient.store import QUERY_NUMBERS, ScoresByParts, ScoreStore
from airrep.attributors.gradient.tokens import NUMBERS, SiteTokens, between, in_document, predicted, token_products
from airrep.attributors.settings import EkfacSettings
from airrep.corpus.corpus import Corpus, Example, wholes
from airrep.errors import TrainingError
from airrep.lm.attention import PackedDocuments
from airrep.lm.documents import Documents
from airrep.lm.model import TargetLM
from airrep.lm.network import memory_named, token_logits
from airrep.runtime.artifacts import json_digest
from airrep.runtime.metering import OnProgress
from airrep.runtime.packing import pack
from airrep.scoring.pooling import Pool
from airrep.shapes import Float, Float32

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
                "refine=cg: a product with the Gauss-Newton matrix is not finite. Check the LM's weights, set "
                "precision=float32, or remove refine."
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


class Curved:
    """Multiplies tokens of a query and others in the eigenbasis of the curvature, with (Λ + λ)⁻ᵖ between them.

    Where queries are held as factors of a low rank, L Rᵀ = B Bᵀ H⁻ᵖ G for orthonormal B, the columns of L at length 1:
    linear in G, so that each token has its part of these factors. *factors* and *inverse* are as of
    :class:`HeldGradients`, *held* is the query's gradient, as scores have it.
    """

    def __init__(self, factors: Mapping[str, Factors], inverse: Mapping[str, Tensor], held: HeldGradients) -> None:
        self._factors, self._inverse, self._held = factors, inverse, held
        self._count = 0
        self._tokens: Mapping[str, SiteTokens] = {}

    def inputs(self, site: Site, inputs: Float[Tensor, "t i"], /) -> Tensor:
        """Turn the inputs into the basis."""
        return inputs @ self._factors[site.pool].inward.to(inputs)

    def gradients(self, site: Site, gradients: Float[Tensor, "t o"], /) -> Tensor:
        """Turn the gradients into the basis."""
        return gradients @ self._factors[site.pool].outward.to(gradients)

    def hold(self, query: Mapping[str, SiteTokens], count: int, /) -> None:
        """Hold the tokens."""
        self._tokens, self._count = query, count

    def products(self, site: Site, inputs: Tensor, gradients: Tensor, /) -> Float[Tensor, "count t"]:
        """Σ_oi g_o a_i (Λ + λ)⁻ᵖ_oi g'_o a'_i of all pairs."""
        own, held = self._tokens[site.name], self._held.sites[site.name]
        inverse = self._inverse[site.pool].to(inputs)
        if len(held) == 2:
            left = self._factors[site.pool].outward.to(inputs).T @ held[0].to(inputs)
            lengths = left.norm(dim=0)
            basis = left / torch.where(lengths > 0, lengths, 1.0)
            found = _through(basis, inverse, own, inputs, gradients)
        elif inverse.shape[0] <= inverse.shape[1]:
            found = _whole(inverse, own.inputs, own.gradients, inputs, gradients)
        else:  # the longer side is multiplied first
            found = _whole(inverse.T, own.gradients, own.inputs, gradients, inputs)
        return in_document(found, own.tokens, self._count)


def _whole(
    inverse: Float[Tensor, "o i"],
    own_inputs: Float[Tensor, "q i"],
    own_gradients: Float[Tensor, "q o"],
    inputs: Float[Tensor, "t i"],
    gradients: Float[Tensor, "t o"],
) -> Float[Tensor, "q t"]:
    """Σ_oi g_o a_i C_oi g'_o a'_i."""
    step = max(1, NUMBERS // (len(inverse) * max(inverse.shape[1], len(inputs))))
    each = zip(own_gradients.split(step), own_inputs.split(step), strict=True)
    parts = [between(g[:, :, None] * inverse * a[:, None, :], inputs, gradients) for g, a in each]
    return torch.cat(parts) if parts else inverse.new_zeros(0, len(inputs))


def _through(
    basis: Float[Tensor, "o r"],
    inverse: Float[Tensor, "o i"],
    own: SiteTokens,
    inputs: Float[Tensor, "t i"],
    gradients: Float[Tensor, "t o"],
) -> Float[Tensor, "q t"]:
    """Return the same behind B Bᵀ, which is on the side of the outputs."""
    known = basis.T @ gradients.T
    step = max(1, NUMBERS // (basis.shape[1] * max(*inverse.shape, len(inputs))))
    parts = []
    for some_gradients, some_inputs in zip(own.gradients.split(step), own.inputs.split(step), strict=True):
        solved = ((some_gradients[:, None, :] * basis.T) @ inverse) * some_inputs[:, None, :]
        parts.append(torch.einsum("qrt,rt->qt", solved @ inputs.T, known))
    return torch.cat(parts) if parts else inverse.new_zeros(0, len(inputs))


WHOLE, RANK = 2**24, 16
"""Weights up to which gradients of queries are held whole, and the rank of their factors beyond."""
SAMPLED = ("ids", "offsets", "starts")
"""Fields of the documents that refine inverse products, which an index keeps."""


class EkfacAttributor(ReadsGradients[EkfacSettings], ScoresByParts[EkfacSettings]):
    """Score = ∇ℓ(x)ᵀ (H + λI)⁻ᵖ ∇ℓ(z), with whole gradients of linear maps and EK-FAC curvature H.

    H is block-diagonal, one block a linear map: eigenvectors of its Kronecker factors, and eigenvalues that are the
    mean squared gradients in their basis (George et al. 2018; Grosse et al. 2023). λ is ``damping`` times the mean
    eigenvalue of a block, p the ``exponent``: 1 for influence functions, 1/2 for steps such as Adam's, which divide by
    the root of mean squared gradients. Gradients of queries are held, (H + λI)⁻ᵖ applied, while the training examples
    pass once, packed; nothing of an example is as large as the LM.

    With ``refine``, H is the Gauss-Newton matrix of a few of the sample's examples, which knows how linear maps act
    together, and (H + λI)⁻¹ ∇ℓ(x) comes from some steps of conjugate gradients that EK-FAC's inverse leads.
    """

    name = "ekfac"
    reads_spans = True
    pool: ClassVar[Pool] = "sum"
    reduction = "sum"  # a batch's loss is the mean over all its tokens, so that an example moves the LM by its sum
    made_of_learnt = ("_factors", "_inverse", "_last")
    _last: tuple[tuple[str, ...], HeldGradients] | None = None
    _sampled: Documents | None = None

    @property
    def fingerprint(self) -> str:
        own: dict[str, object] = {"damping": self.settings.damping, "unit": self.settings.unit}
        own |= {name: one for name in ("exponent", "refine") if (one := getattr(self.settings, name)) not in (1, None)}
        return json_digest({"method": self.name, "learnt": self.learnt_key, **own, "query_rank": self.held_rank})

    @cached_property
    def held_rank(self) -> int | None:
        """Rank of the factors of a query's gradient; None holds it whole. The LM alone decides, never the call."""
        known = self.settings.query_rank
        large = self._weights > WHOLE
        return RANK if known is None and large else known

    @property
    def square(self) -> int:
        return largest(self.sites)

    @property
    def kept(self) -> int:
        if self._sampled is None:
            return 0
        # Refining a query takes vectors, and the graph of the longest document, beside what EK-FAC does.
        plan, longest = self.lm.plan, int(self._sampled.lengths.max())
        return 4 * VECTORS * self._weights + (0 if plan is None else (GRAPHS - 1) * longest * plan.token)

    def fit(self, train: Corpus, progress: OnProgress | None = None) -> None:
        """Learn the factors from the training corpus, or a sample of it; or find what an earlier run learnt.

        Raises:
            ConfigError: no such modules.
            TrainingError: a linear map gets no gradient.
        """
        sample, count = sample_of(train, self.settings.sample, 0), self.settings.examples
        self._sampled = None if count is None else self.lm.tokenise(sample_of(sample, count, 0))
        super().fit(train)
        key = json_digest({"ekfac": self.reading, "sample": self.lm.corpus_key(sample)})
        self.recall_or_learn(self.folder, key, lambda: self._learn(sample, progress))
        if self._sampled is not None:
            own = {name: np.asarray(getattr(self._sampled, name)) for name in SAMPLED}
            self.take_learnt({**self._fitted(), **own})

    def _learn(self, sample: Corpus, progress: OnProgress | None) -> dict[str, np.ndarray]:
        """First the bases, from covariances, in as many passes as memory asks for; then the eigenvalues."""
        documents = self.lm.tokenise(sample)
        groups = list(groups_of(self.sites, self.lm.sums))
        on_rows = count_rows(len(sample) * 2 * len(groups), progress, stage="learning from a sample")
        found: dict[str, np.ndarray] = {}
        for group in groups:
            sums = Covariances(group)
            for read in read_gradients(self.lm, documents, group, sums, reduction=self.reduction):
                on_rows(len(read.rows))
            names = list(dict.fromkeys(site.pool for site in group))
            bases = eigenbases(sums, names)
            del sums  # as large as the bases
            squares = Squares(bases)
            for read in read_gradients(self.lm, documents, group, squares, reduction=self.reduction):
                on_rows(len(read.rows))
            for name in names:
                n, (inward, outward) = self.pools[name], bases[name]
                found[f"inward-{n}"], found[f"outward-{n}"] = inward.cpu().numpy(), outward.cpu().numpy()
                found[f"values-{n}"] = squares.of(name).cpu().numpy()
        return {name: np.ascontiguousarray(array, np.float32) for name, array in found.items()}

    @cached_property
    def _factors(self) -> dict[str, Factors]:
        """Curvature of each pool of linear maps, where the LM is."""
        learnt, device = self._fitted(), self.lm.execution.device

        def part(name: str, n: int) -> torch.Tensor:
            return torch.from_numpy(np.array(learnt[f"{name}-{n}"])).to(device)

        return {
            name: Factors(part("inward", n), part("outward", n), part("values", n)) for name, n in self.pools.items()
        }

    @cached_property
    def _inverse(self) -> dict[str, torch.Tensor]:
        """(Λ + λ)⁻ᵖ of each pool."""
        settings = self.settings
        return {name: each.inverse(settings.damping, settings.exponent) for name, each in self._factors.items()}

    def tokens(self, query: Example, examples: Sequence[Example]) -> list[TokenProducts] | None:
        """Products of gradients with (H + λI)⁻ᵖ between them, token by token.

        None with ``refine``, as conjugate gradients would read the sample again for each token.
        """
        self._fitted()
        if self.settings.refine is not None:
            return None
        held = self._held_last([query])
        query_tokens, *tokens = predicted(self.lm, [query, *examples])
        found = token_products(
            self.lm,
            self.lm.tokenise([query]),
            self.lm.tokenise(examples),
            self.sites,
            Curved(self._factors, self._inverse, held),
            reduction=self.reduction,
        )
        if self.settings.unit:
            lengths = float(held.lengths[0]) * self.held(examples).lengths.double().cpu().numpy()
            found = [each / length if length else each * 0 for each, length in zip(found, lengths, strict=True)]
        return list(map(TokenProducts.of, [query_tokens] * len(found), tokens, found))

    @property
    def at_once(self) -> int:
        return min(QUERY_NUMBERS, self.lm.sums) // self._numbers

    @property
    def _weights(self) -> int:
        """Weights of all linear maps."""
        return sum(site.width_in * site.width_out for site in self.sites)

    @property
    def _numbers(self) -> int:
        """Numbers that are held of a query."""
        rank = self.held_rank
        return self._weights if rank is None else rank * sum(site.width_in + site.width_out for site in self.sites)

    def scorer(self, queries: Sequence[Example]) -> QueryScorer:
        key = json_digest({"scores": self.fingerprint, **self.reading})

        def pass_by(missing: Sequence[Example], chosen: Sequence[int]) -> np.ndarray:
            return self.pass_by(missing, self._held_last([queries[place] for place in chosen]))

        store = ScoreStore(self.folder, key, queries, self.lm.key)

        def scores(train: Sequence[Example], on_rows: OnRows | None = None) -> Float32[np.ndarray, "n q"]:
            found, factors = store.rows(train, pass_by, on_rows), self.factors(train)
            return found if factors is None else found * factors.astype(np.float32)[:, None]

        return scores

    def _held_last(self, queries: Sequence[Example]) -> HeldGradients:
        """Gradients of queries, as :meth:`held` takes them; those asked for last are remembered.

        They are taken only if an example is not in the store, once for all shards, and once for the reference and the
        candidates of a channel that has some.
        """
        key = tuple(map(self.lm.key, queries))
        if self._last is None or self._last[0] != key:
            self._last = None  # else both would be in memory
            self._last = key, self.held(queries)
        return self._last[1]

    def held(self, queries: Sequence[Example]) -> HeldGradients:
        """Gradients of queries, (H + λI)⁻ᵖ applied, held in the precision of the LM's products."""
        kind = torch.bfloat16 if self.lm.execution.precision == "bfloat16" else None
        if self.settings.refine is None:
            found = HeldGradients(self._factors, self._inverse, self.held_rank, kind)
        else:
            found = self._refined(kind)
        found.read(self.lm, self.lm.tokenise(queries), self.sites, self.reduction)
        full = wholes(queries) if self.settings.unit else None
        if full is not None:  # a part of an answer is divided by the length of all
            found.lengths = self.held(full).lengths
        return found

    def _refined(self, kind: torch.dtype | None) -> HeldGradients:
        """Return what refines gradients of queries, as many together as memory holds."""
        learnt, damping = self._fitted(), self.settings.damping
        matrix = GaussNewton(self.lm, Documents(*(learnt[name] for name in SAMPLED)), self.sites)
        damped = {name: damping * each.eigenvalues.mean() for name, each in self._factors.items()}
        at_once = max(1, min(QUERY_NUMBERS, self.lm.sums) // (VECTORS * self._weights))
        curvature = Curvature(self._factors, self._inverse, damped)
        return RefinedGradients(curvature, matrix, self.sites, at_once, self.held_rank, kind)

    def pass_by(self, train: Sequence[Example], held: HeldGradients) -> Float32[np.ndarray, "n q"]:
        """Scores of training examples for held queries; those without a finite gradient score 0."""
        settings = self.settings
        scorer = Scorer(held, self._factors if settings.unit else None, self._inverse if settings.unit else None)
        found = torch.zeros(len(train), len(held.lengths))
        documents = self.lm.tokenise(train)
        for read in read_gradients(self.lm, documents, self.sites, scorer, reduction=self.reduction):
            scores = scorer.scores
            if settings.unit:
                lengths = scorer.squares.sqrt()[:, None] * held.lengths[None, :]
                scores = torch.where(lengths > 0, scores / lengths, 0.0)
            found[torch.from_numpy(read.rows)] = scores.float().cpu()
        found[~torch.isfinite(found).all(dim=1)] = 0.0
        whole: np.ndarray = found.numpy()
        return whole
