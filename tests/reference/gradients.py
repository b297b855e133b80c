"""Gradients of a causal LM one document at a time, and what gradient methods make of them.

The model is one of transformers, in float64 and with transformers' own attention; a document is read alone, never
packed or padded. Of a linear map y = W a + b the gradient is that of W as (out, in); GPT-2 holds its W transposed.
All else is NumPy in float64, by loops over examples and tokens.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM

Document = tuple[Sequence[int], int]
"""Token ids, and where the response starts."""
Gradients = Mapping[str, np.ndarray]
"""For each linear map (n, out, in): one gradient for each example."""


def load(folder: str) -> Any:
    """Return the causal LM of a folder in float64, with its plain attention."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, attn_implementation="sdpa")
    return model.eval()


def is_transposed(module: Any) -> bool:
    """Tell whether a map holds its weight as (in, out)."""
    return type(module).__name__ == "Conv1D"


def linear_maps(model: Any) -> dict[str, Any]:
    """Return all linear maps of a model by name."""
    return {name: each for name, each in model.named_modules() if type(each).__name__ in ("Linear", "Conv1D")}


def token_values(model: Any, document: Document, objective: str) -> torch.Tensor:
    """Return of each response token y its loss, logsumexp z − z_y, or its margin, z_y − logsumexp over j ≠ y of z_j."""
    ids, start = document
    logits = model(input_ids=torch.tensor([list(ids)])).logits[0]
    values = []
    for place in range(start, len(ids)):
        z, y = logits[place - 1], ids[place]
        others = torch.cat([z[:y], z[y + 1 :]])
        margin = z[y] - torch.logsumexp(others, 0)
        values.append(torch.logsumexp(z, 0) - z[y] if objective == "loss" else margin)
    return torch.stack(values)


def value(model: Any, document: Document, objective: str = "loss", reduction: str = "mean") -> torch.Tensor:
    """Return what is differentiated: the mean or sum over the response tokens."""
    values = token_values(model, document, objective)
    return values.mean() if reduction == "mean" else values.sum()


def example_gradients(
    model: Any, documents: Sequence[Document], names: Sequence[str], objective: str = "loss", reduction: str = "mean"
) -> dict[str, np.ndarray]:
    """Return for each named map the gradient of each document by itself, ``(n, out, in)``."""
    maps = linear_maps(model)
    found: dict[str, list[np.ndarray]] = {name: [] for name in names}
    for document in documents:
        weights = [maps[name].weight for name in names]
        gradients = torch.autograd.grad(value(model, document, objective, reduction), weights)
        for name, gradient in zip(names, gradients, strict=True):
            found[name].append((gradient.T if is_transposed(maps[name]) else gradient).numpy().copy())
    return {name: np.stack(each) for name, each in found.items()}


def token_pairs(
    model: Any, document: Document, name: str, objective: str = "loss", reduction: str = "mean"
) -> tuple[np.ndarray, np.ndarray]:
    """Return of one map what goes in, a ``(t, in)``, and the gradient of what comes out, g ``(t, out)``.

    All tokens of the document count, those of its prompt too. The gradient of W is Σ_t g_t a_tᵀ.
    """
    held: dict[str, torch.Tensor] = {}

    def hold(module: Any, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        held["a"], held["y"] = inputs[0], output

    handle = linear_maps(model)[name].register_forward_hook(hold)
    scalar = value(model, document, objective, reduction)
    handle.remove()
    (g,) = torch.autograd.grad(scalar, [held["y"]])
    return held["a"][0].detach().numpy().copy(), g[0].numpy().copy()


def project(gradients: np.ndarray, P_out: np.ndarray, P_in: np.ndarray) -> np.ndarray:
    """Return P_out G P_inᵀ of each example, ``(n, rank, rank)``; the P are (rank, width)."""
    return np.stack([P_out @ G @ P_in.T for G in gradients])


def flat(blocks: Sequence[np.ndarray]) -> np.ndarray:
    """Return the blocks of all maps side by side, each read row by row: ``(n, d)``."""
    return np.concatenate([block.reshape(len(block), -1) for block in blocks], axis=1)


def unit(features: np.ndarray) -> np.ndarray:
    """Return rows of length 1; a row of zeros stays one."""
    lengths = [math.sqrt(math.fsum(v * v for v in row)) for row in features]
    return np.stack([row / length if length else row for row, length in zip(features, lengths, strict=True)])


def second_moment(rows: np.ndarray, count: float | None = None) -> np.ndarray:
    """Return Σ r rᵀ / count over the rows; the count is by default theirs."""
    total = np.zeros((rows.shape[1], rows.shape[1]))
    for row in rows:
        total += np.outer(row, row)
    return total / (len(rows) if count is None else count)


def kronecker_factors(
    model: Any, documents: Sequence[Document], name: str, reduction: str = "mean"
) -> tuple[np.ndarray, np.ndarray]:
    """Return A = mean over all tokens of a aᵀ and S = mean over the same tokens of g gᵀ (empirical Fisher)."""
    pairs = [token_pairs(model, document, name, "loss", reduction) for document in documents]
    return second_moment(np.concatenate([a for a, _ in pairs])), second_moment(np.concatenate([g for _, g in pairs]))


def directions(moment: np.ndarray, rank: int) -> np.ndarray:
    """Return the *rank* leading eigenvectors as rows, greatest first; each one's sign is arbitrary."""
    values, vectors = np.linalg.eigh(moment)
    order = np.argsort(-values, kind="stable")[:rank]
    return vectors[:, order].T


def kronecker_products(one: np.ndarray, other: np.ndarray, A: np.ndarray, S: np.ndarray, damping: float) -> np.ndarray:
    """Return vec(G)ᵀ (S ⊗ A + damping I)⁻¹ vec(G') by solving with the whole matrix, vec row by row."""
    whole = np.kron(S, A) + damping * np.eye(len(S) * len(A))
    return flat([one]) @ np.linalg.solve(whole, flat([other]).T)


def fisher(features: np.ndarray) -> np.ndarray:
    """Return ΦᵀΦ."""
    return second_moment(features, 1.0)


def fisher_products(queries: np.ndarray, train: np.ndarray, fitted: np.ndarray, damping: float) -> np.ndarray:
    """Return φ(x)ᵀ (ΦᵀΦ + λI)⁻¹ φ(z), ``(q, n)``."""
    return queries @ np.linalg.solve(fisher(fitted) + damping * np.eye(fitted.shape[1]), train.T)


def other_chance(model: Any, document: Document) -> float:
    """Return 1 − p: the mean over response tokens of the chance of another token."""
    with torch.no_grad():
        losses = token_values(model, document, "loss")
    return math.fsum(1.0 - math.exp(-float(loss)) for loss in losses) / len(losses)


def trak(queries: np.ndarray, train: np.ndarray, others: Sequence[float], damping: float) -> np.ndarray:
    """Return φ(x)ᵀ (ΦᵀΦ + λI)⁻¹ φ(z) (1 − p(z)) for projected gradients of margins, ``(q, n)``."""
    return fisher_products(queries, train, train, damping) * np.asarray(others)[None, :]


def tracin(queries: Sequence[np.ndarray], train: Sequence[np.ndarray], rates: Sequence[float]) -> np.ndarray:
    """Return Σ over checkpoints of rate · ⟨∇ℓ(x), ∇ℓ(z)⟩, from features ``(q, d)`` and ``(n, d)`` of each."""
    total = np.zeros((len(queries[0]), len(train[0])))
    for one, other, rate in zip(queries, train, rates, strict=True):
        total += rate * one @ other.T
    return total


def adam_corrected(
    gradient: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
) -> np.ndarray:
    """Return m' / √(v' + ε), with m' = β₁ m + (1 − β₁) g and v' = β₂ v + (1 − β₂) g².

    So does the code of LESS's authors: the stored moments as they are, without division by 1 − βᵗ, and ε inside the
    root. (Adam itself divides by 1 − βᵗ and takes √v + ε.)
    """
    moved = betas[0] * first + (1 - betas[0]) * gradient
    squared = betas[1] * second + (1 - betas[1]) * gradient**2
    return moved / np.sqrt(squared + eps)


def less(queries: np.ndarray, train: np.ndarray, first: np.ndarray, second: np.ndarray, P: np.ndarray) -> np.ndarray:
    """Return cosines of projected adapter gradients: raw for queries, corrected for training examples; P is (d, p)."""
    corrected = np.stack([adam_corrected(row, first, second) for row in train])
    return unit(queries @ P.T) @ unit(corrected @ P.T).T


def ekfac(
    gradients: Sequence[np.ndarray], A: np.ndarray, S: np.ndarray, damping: float, exponent: float = 1.0
) -> list[np.ndarray]:
    """Return Q_Sᵀ G Q_A / (Λ + λ)^(p/2) of several sets of flat gradients; the first set is the training one.

    Λ is the mean over the training examples of (Q_Sᵀ G Q_A)², entry by entry, and λ is *damping* times its mean.
    """
    Q_A, Q_S = np.linalg.eigh(A)[1], np.linalg.eigh(S)[1]
    turned = [np.stack([Q_S.T @ G @ Q_A for G in each]) for each in gradients]
    corrected = (turned[0] ** 2).mean(axis=0)
    scale = (corrected + damping * corrected.mean()) ** (exponent / 2)
    return [flat([each / scale]) for each in turned]


def gauss_newton(model: Any, documents: Sequence[Document], names: Sequence[str]) -> np.ndarray:
    """Return (1/n) Σ_z Σ_t Jᵀ (diag p − p pᵀ) J over the response tokens t of n documents z, dense.

    J is the Jacobian of a token's logits by the weights of the named maps, each as (out, in) row by row, one map after
    another; p are the token's chances.
    """
    maps = linear_maps(model)
    turned = [is_transposed(maps[name]) for name in names]
    held = [maps[name].weight.detach() for name in names]
    shapes = [(w.T if t else w).shape for w, t in zip(held, turned, strict=True)]
    flat = torch.cat([(w.T if t else w).reshape(-1) for w, t in zip(held, turned, strict=True)])
    total = torch.zeros(len(flat), len(flat), dtype=flat.dtype)
    for ids, start in documents:

        def logits(weights: torch.Tensor, ids: Sequence[int] = ids, start: int = start) -> torch.Tensor:
            parts = weights.split([math.prod(shape) for shape in shapes])
            own = [p.reshape(shape) for p, shape in zip(parts, shapes, strict=True)]
            put = {f"{n}.weight": w.T if t else w for n, w, t in zip(names, own, turned, strict=True)}
            out = torch.func.functional_call(model, put, (), {"input_ids": torch.tensor([list(ids)])})
            return out.logits[0, start - 1 : len(ids) - 1]

        with warnings.catch_warnings():  # forward differentiation of torch tells of its own past
            warnings.simplefilter("ignore", DeprecationWarning)
            jacobians = torch.func.jacfwd(logits)(flat)
        for z, jacobian in zip(logits(flat), jacobians, strict=True):
            p = z.softmax(0)
            total += jacobian.T @ (torch.diag(p) - torch.outer(p, p)) @ jacobian
    return np.asarray((total / len(documents)).detach().numpy())
