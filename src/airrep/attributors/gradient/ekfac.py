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
    Reader,
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
"""Conjugate-gradient steps for a query: products with the matrix. The first only scales EK-FAC's solution."""
EXACT = 1e-8
"""Relative length of the residual, in the norm of EK-FAC's inverse, at which a query counts as solved."""
VECTORS = 6
"""Vectors as large as all linear maps that are in memory for a query while it is refined."""
GRAPHS = 4
"""Memory of a token in a second backward pass, as a multiple of that in a first."""

Vectors: TypeAlias = dict[str, Float[Tensor, "q o i"]]
"""A vector over the weights of all linear maps for each query, by the map's name."""


class _Passed(NamedTuple):
    """Inputs and outputs of a linear map in one forward pass."""

    name: str
    inputs: Float[Tensor, "t i"]
    outputs: Tensor


class _Noting(SiteHooks):
    """Hooks on sites that record inputs, and outputs as parts of the graph."""

    def __init__(self, sites: Sequence[Site], lm: TargetLM) -> None:
        super().__init__(sites, None, lm)
        self.passed: list[_Passed] = []

    def _read(self, site: Site, inputs: Tensor, outputs: Tensor, places: DocumentPlaces) -> None:  # noqa: ARG002
        if not outputs.requires_grad:  # the first site: nothing below it has gradients
            outputs.requires_grad_(True)
        self.passed.append(_Passed(site.name, wide(inputs.detach()), outputs))


class GaussNewton:
    """G = (1/M) Σ_z Σ_t J_ztᵀ (diag p_zt − p_zt p_ztᵀ) J_zt over M documents z and their response tokens t.

    J is the derivative of a token's logits with respect to the weights of all linear maps together, and p the LM's
    probabilities, not the data's tokens (Schraudolph 2002; the matrix of ASTRA, arXiv 2507.14740). If answers were
    drawn from the LM, G would be the expected outer product of gradients, which EK-FAC approximates.

    A document is read once for all vectors v. J v is the derivative of uᵀ J v by u, so that only backward passes are
    needed, which every LM's code has. Attention is computed by its formula, since fused kernels have no second
    derivative.
    """

    def __init__(self, lm: TargetLM, documents: Documents, sites: Sequence[Site]) -> None:
        self._lm, self._documents, self._sites = lm, documents, sites

    @torch.inference_mode(False)
    def products(self, vectors: Vectors) -> Vectors:
        """Return G v for each query's v."""
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
    """Add Σ_t J_tᵀ (diag p − p pᵀ) J_t v of one batch to *total*, query by query, as graphs are large."""
    outputs = [each.outputs for each in passed]
    adjoint = torch.zeros_like(logits, requires_grad=True)
    # The backward pass is linear in the adjoint, so its derivative by the adjoint is J.
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
    """Approximate A⁻¹ b for each query's b by *steps* products with A, preconditioned by an *inverse* that is near A⁻¹.

    The first step is along the inverse's own solution. Queries do not interact, so that a query's result does not
    depend on the others; a query that is solved does not change any more. TrainingError: a product is not finite.
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
        del bent  # frees memory before the next vector is made
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
    """EK-FAC's curvature of all linear maps, its damped inverse, and λ, by pool."""

    factors: Mapping[str, Factors]
    inverse: Mapping[str, Float[Tensor, "o i"]]
    damping: Mapping[str, Tensor]


class RefinedGradients(HeldGradients):
    """Reads queries' gradients g and holds (G + λI)⁻¹ g, G being the Gauss-Newton matrix and λ EK-FAC's damping.

    They are found by conjugate gradients, preconditioned by EK-FAC's inverse, for *at_once* queries together; *rank*
    and *kind* are those of :class:`HeldGradients`.
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
        self.at_once = at_once

    keep = Reader.keep

    def take(self, site: Site, kept: Tensor, gradients: Float[Tensor, "t o"], places: DocumentPlaces, /) -> None:
        self._batch[site.name] = (places.products(gradients, kept),)

    def _batches(self, reads: Iterator[ReadBatch]) -> Iterator[Rows]:
        """Read all documents, then refine the gradients of all together."""
        rows: list[Rows] = []
        parts: list[dict[str, tuple[Tensor, ...]]] = []
        for read in reads:
            rows.append(read.rows)
            parts.append(self._batch)
            self._batch = {}
        rights = {name: torch.cat([part.pop(name)[0] for part in parts]) for name in list(parts[0])}
        self._squares = _dots(rights, self._led(rights))
        good = torch.isfinite(self._squares)
        if not bool(good.all()):  # else the error would name the Gauss-Newton matrix
            rights = {name: torch.where(good[:, None, None], found, 0.0) for name, found in rights.items()}
        solved = conjugate_gradients(self._bent, self._led, rights, STEPS)
        if self._rank is None:
            self._batch = {name: (found.flatten(1),) for name, found in solved.items()}
        else:
            self._batch = {name: low_rank(found, self._rank) for name, found in solved.items()}
        yield np.concatenate(rows)

    def _led(self, vectors: Vectors) -> Vectors:
        """Multiply vectors by EK-FAC's inverse."""
        found = {}
        for name, rows in vectors.items():
            own, inverse = self._factors[self._pools[name]], self._inverse[self._pools[name]]
            inward, outward = own.inward.to(rows), own.outward.to(rows)
            found[name] = outward @ ((outward.T @ rows @ inward) * inverse.to(rows)) @ inward.T
        return found

    def _bent(self, vectors: Vectors) -> Vectors:
        """Return (G + λI) v for vectors v."""
        found = self._matrix.products(vectors)
        for name, rows in vectors.items():
            found[name] += self._curvature.damping[self._pools[name]].to(rows) * rows
        return found


class Curved:
    """Multiplies tokens of a query and of examples in the eigenbasis of the curvature, with (Λ + λ)⁻ᵖ between them.

    A query's gradient G held as low-rank factors is L Rᵀ = B Bᵀ H⁻ᵖ G, B being the columns of L scaled to length 1.
    This is linear in G, so that each token has its part of it. *factors* and *inverse* are those of
    :class:`HeldGradients`, *held* is the query's gradient that scores are computed from.
    """

    def __init__(self, factors: Mapping[str, Factors], inverse: Mapping[str, Tensor], held: HeldGradients) -> None:
        self._factors, self._inverse, self._held = factors, inverse, held
        self._count = 0
        self._tokens: Mapping[str, SiteTokens] = {}

    def inputs(self, site: Site, inputs: Float[Tensor, "t i"], /) -> Tensor:
        return inputs @ self._factors[site.pool].inward.to(inputs)

    def gradients(self, site: Site, gradients: Float[Tensor, "t o"], /) -> Tensor:
        return gradients @ self._factors[site.pool].outward.to(gradients)

    def hold(self, query: Mapping[str, SiteTokens], count: int, /) -> None:
        self._tokens, self._count = query, count

    def products(self, site: Site, inputs: Tensor, gradients: Tensor, /) -> Float[Tensor, "count t"]:
        """Return Σ_oi g_o a_i (Λ + λ)⁻ᵖ_oi g'_o a'_i for all pairs of tokens."""
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
    """Return Σ_oi g_o a_i C_oi g'_o a'_i for all pairs of tokens, C being *inverse*."""
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
    """Return the products of :func:`_whole`, with the query's side projected by B Bᵀ, which acts on outputs."""
    known = basis.T @ gradients.T
    step = max(1, NUMBERS // (basis.shape[1] * max(*inverse.shape, len(inputs))))
    parts = []
    for some_gradients, some_inputs in zip(own.gradients.split(step), own.inputs.split(step), strict=True):
        solved = ((some_gradients[:, None, :] * basis.T) @ inverse) * some_inputs[:, None, :]
        parts.append(torch.einsum("qrt,rt->qt", solved @ inputs.T, known))
    return torch.cat(parts) if parts else inverse.new_zeros(0, len(inputs))


WHOLE, RANK = 2**24, 16
"""Most weights for which queries' gradients are held whole, and the rank of their factors for larger LMs."""
SAMPLED = ("ids", "offsets", "starts")
"""Fields of the documents that ``refine`` reads, which an index stores."""


class EkfacAttributor(ReadsGradients[EkfacSettings], ScoresByParts[EkfacSettings]):
    """Score = ∇ℓ(x)ᵀ (H + λI)⁻ᵖ ∇ℓ(z), with whole gradients of linear maps and EK-FAC curvature H.

    H is block-diagonal, one block for each linear map: eigenvectors of its Kronecker factors, and eigenvalues that are
    the mean squared gradients in their basis (George et al. 2018; Grosse et al. 2023). λ is ``damping`` times the mean
    eigenvalue of a block, p the ``exponent``: 1 for influence functions, 1/2 for steps such as Adam's, which divide by
    the root of mean squared gradients. Gradients of queries, multiplied by (H + λI)⁻ᵖ, are held in memory while the
    training examples are read once, in packed batches. No gradient of an example is stored.

    With ``refine``, H is the Gauss-Newton matrix of a few of the sample's examples, which also has the curvature
    between linear maps. (H + λI)⁻¹ ∇ℓ(x) then comes from conjugate gradients, preconditioned by EK-FAC's inverse.
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
        """Rank of a query's gradient as factors; None: it is held whole. Equal for all queries of an LM."""
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
        # Refining a query needs vectors, and the graph of the longest document, beyond EK-FAC's memory.
        plan, longest = self.lm.plan, int(self._sampled.lengths.max())
        return 4 * VECTORS * self._weights + (0 if plan is None else (GRAPHS - 1) * longest * plan.token)

    def fit(self, train: Corpus, progress: OnProgress | None = None) -> None:
        """Learn the factors from the training corpus or a sample of it, or load those that an earlier run stored.

        ConfigError: the LM has no linear maps of these names. TrainingError: a linear map gets no gradient.
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
        """Learn bases from covariances, then eigenvalues, for as many linear maps at a time as memory allows."""
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
        """Curvature of each pool of linear maps, on the LM's device."""
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
        """Split products of gradients, with (H + λI)⁻ᵖ between them, over pairs of tokens.

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
        return list(map(TokenProducts, [query_tokens] * len(found), tokens, found))

    @property
    def at_once(self) -> int:
        return min(QUERY_NUMBERS, self.lm.sums) // self._numbers

    @property
    def _numbers(self) -> int:
        """Numbers in memory for each query."""
        rank = self.held_rank
        return self._weights if rank is None else rank * sum(site.width_in + site.width_out for site in self.sites)

    @property
    def _weights(self) -> int:
        """Number of weights of all linear maps."""
        return sum(site.width_in * site.width_out for site in self.sites)

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
        """Return :meth:`held`, cached for the last queries.

        It is called only if a score is not in the store. The cache serves all shards of an index, and both the
        reference and the candidates of a channel.
        """
        key = tuple(map(self.lm.key, queries))
        if self._last is None or self._last[0] != key:
            self._last = None  # frees memory first
            self._last = key, self.held(queries)
        return self._last[1]

    def held(self, queries: Sequence[Example]) -> HeldGradients:
        """Compute gradients of queries times (H + λI)⁻ᵖ, held in the precision of the LM's matrix products."""
        kind = torch.bfloat16 if self.lm.execution.precision == "bfloat16" else None
        if self.settings.refine is None:
            found = HeldGradients(self._factors, self._inverse, self.held_rank, kind)
        else:
            learnt, damping = self._fitted(), self.settings.damping
            matrix = GaussNewton(self.lm, Documents(*(learnt[name] for name in SAMPLED)), self.sites)
            damped = {name: damping * each.eigenvalues.mean() for name, each in self._factors.items()}
            at_once = max(1, min(QUERY_NUMBERS, self.lm.sums) // (VECTORS * self._weights))
            curvature = Curvature(self._factors, self._inverse, damped)
            found = RefinedGradients(curvature, matrix, self.sites, at_once, self.held_rank, kind)
        found.read(self.lm, self.lm.tokenise(queries), self.sites, self.reduction)
        full = wholes(queries) if self.settings.unit else None
        if full is not None:  # a span's gradient is divided by the length of the whole answer's
            found.lengths = self.held(full).lengths
        return found

    def pass_by(self, train: Sequence[Example], held: HeldGradients) -> Float32[np.ndarray, "n q"]:
        """Score training examples for held queries; an example without a finite gradient scores 0."""
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
        return found.numpy()
