"""A BERT sentence encoder with a projection, one text at a time.

Tensors go by the names of the published AirRep checkpoint: ``bert.embeddings.*``, ``bert.encoder.layer.N.*``,
``projector.weight`` and ``projector.bias``.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

Tensors = Mapping[str, np.ndarray]


def linear(tensors: Tensors, name: str, x: np.ndarray) -> np.ndarray:
    """Return x Wᵀ + b."""
    return x @ tensors[f"{name}.weight"].astype(np.float64).T + tensors[f"{name}.bias"].astype(np.float64)


def layer_norm(tensors: Tensors, name: str, x: np.ndarray, eps: float) -> np.ndarray:
    """Return γ (x − mean) / √(var + ε) + β, over the features of each token."""
    centred = x - x.mean(axis=-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + eps)
    return scaled * tensors[f"{name}.weight"].astype(np.float64) + tensors[f"{name}.bias"].astype(np.float64)


def gelu(x: np.ndarray) -> np.ndarray:
    """Return x Φ(x) with Φ the normal distribution function (the exact GELU, not the tanh one)."""
    erf = np.array([math.erf(value / math.sqrt(2.0)) for value in x.ravel()]).reshape(x.shape)
    return 0.5 * x * (1.0 + erf)


def embed(tensors: Tensors, ids: Sequence[int], eps: float) -> np.ndarray:
    """Return LayerNorm(word + position + token type 0), shape ``(tokens, hidden)``."""
    total = np.zeros((len(ids), tensors["bert.embeddings.word_embeddings.weight"].shape[1]))
    for position, token in enumerate(ids):
        total[position] += tensors["bert.embeddings.word_embeddings.weight"][token].astype(np.float64)
        total[position] += tensors["bert.embeddings.position_embeddings.weight"][position].astype(np.float64)
        total[position] += tensors["bert.embeddings.token_type_embeddings.weight"][0].astype(np.float64)
    return layer_norm(tensors, "bert.embeddings.LayerNorm", total, eps)


def attend(tensors: Tensors, name: str, x: np.ndarray, heads: int, mask: np.ndarray) -> np.ndarray:
    """Return softmax(Q Kᵀ / √(hidden/heads)) V of each head, side by side; no one looks at padding."""
    query, key, value = (linear(tensors, f"{name}.{part}", x) for part in ("query", "key", "value"))
    width = x.shape[1] // heads
    out = np.zeros_like(x)
    for head in range(heads):
        part = slice(head * width, (head + 1) * width)
        logits = query[:, part] @ key[:, part].T / math.sqrt(width)
        logits[:, ~mask] = -math.inf
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        out[:, part] = weights / weights.sum(axis=1, keepdims=True) @ value[:, part]
    return out


def layer(tensors: Tensors, name: str, x: np.ndarray, heads: int, mask: np.ndarray, eps: float) -> np.ndarray:
    """Return one transformer layer: attention and feed-forward, each with residual, then LayerNorm."""
    attended = attend(tensors, f"{name}.attention.self", x, heads, mask)
    attended = linear(tensors, f"{name}.attention.output.dense", attended)
    x = layer_norm(tensors, f"{name}.attention.output.LayerNorm", x + attended, eps)
    wide = gelu(linear(tensors, f"{name}.intermediate.dense", x))
    narrow = linear(tensors, f"{name}.output.dense", wide)
    return layer_norm(tensors, f"{name}.output.LayerNorm", x + narrow, eps)


def encode(
    tensors: Tensors, ids: Sequence[int], heads: int, mask: Sequence[int] | None = None, eps: float = 1e-12
) -> np.ndarray:
    """Return Enc(z) = W · mean-pool(BERT(z)) + b, shape ``(d,)``; no normalisation.

    Where *mask* is 0 the token is padding: no token attends to it and the mean leaves it out.
    """
    real = np.array([1] * len(ids) if mask is None else mask, dtype=bool)
    x = embed(tensors, ids, eps)
    count = 0
    while f"bert.encoder.layer.{count}.output.dense.weight" in tensors:
        x = layer(tensors, f"bert.encoder.layer.{count}", x, heads, real, eps)
        count += 1
    return linear(tensors, "projector", x[real].mean(axis=0))
