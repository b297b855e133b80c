"""A BERT sentence encoder over packed tokens, without padding.

::

    text -> tokens -> BERT -> mean over tokens -> heads (linear, or to unit length) -> features

The residual stream, layer norms, the softmax, the mean and the heads are float32, whatever type the weights
of the layers have. The type of these weights is the type of the large matrix products. With all weights in float32 the
module can be trained as it is; it then also works under ``torch.autocast``.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from airrep.runtime.devices import ROW_STEP, linear, without_cudnn
from airrep.runtime.packing import Batch, EqualRun
from airrep.shapes import Float, Float32, Int64

_EMBEDDINGS: dict[str, tuple[str, ...]] = {
    "words.weight": ("word_embeddings.weight",),
    "positions.weight": ("position_embeddings.weight",),
    "types.weight": ("token_type_embeddings.weight",),
    "norm.weight": ("LayerNorm.weight",),
    "norm.bias": ("LayerNorm.bias",),
}
_LAYER: dict[str, tuple[str, ...]] = {
    "qkv": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "out": ("attention.output.dense",),
    "out_norm": ("attention.output.LayerNorm",),
    "up": ("intermediate.dense",),
    "down": ("output.dense",),
    "down_norm": ("output.LayerNorm",),
}
Drop: TypeAlias = Callable[[Tensor], Tensor]
"""Sets some values to 0 and scales the others, while an encoder is trained."""

HeadShape: TypeAlias = tuple[int, int, bool] | None
"""A linear head: inputs, outputs, whether it has a bias. None: scaling to unit length."""


@dataclass(frozen=True, slots=True)
class BertShape:
    """Sizes of a BERT's weights, and the constant of its layer norms."""

    vocabulary: int
    positions: int
    types: int
    width: int
    layers: int
    heads: int
    inner: int
    epsilon: float


class PackedTokens(NamedTuple):
    """A batch as the encoder reads it: ids, each token's place in its sequence, runs of equal lengths."""

    ids: Int64[Tensor, " t"]
    positions: Int64[Tensor, " t"]
    runs: tuple[EqualRun, ...]

    @classmethod
    def from_batch(cls, batch: Batch, sequences: Sequence[Int64[np.ndarray, " length"]], device: str = "cpu") -> Self:
        """Lay the sequences of a batch end to end, given the int64 token ids of every row."""
        ids = torch.from_numpy(np.concatenate([sequences[row] for row in batch.rows]))
        positions = torch.from_numpy(batch.positions)
        return cls(ids.to(device), positions.to(device), batch.runs)

    def filled(self) -> Self:
        """Append a meaningless sequence, so that ROW_STEP divides the number of tokens."""
        count = -len(self.ids) % ROW_STEP
        if not count:
            return self
        ids, positions = (functional.pad(numbers, (0, count)) for numbers in (self.ids, self.positions))
        return type(self)(ids, positions, (*self.runs, EqualRun(len(self.ids), 1, count)))


class _Linear(nn.Linear):
    """A linear map whose weights are undefined until they are loaded: no random numbers are drawn."""

    def reset_parameters(self) -> None:
        """Leave the weights as they are."""


class _Embedding(nn.Embedding):
    """A table whose rows are undefined until they are loaded: no random numbers are drawn."""

    def reset_parameters(self) -> None:
        """Leave the rows as they are."""


class _Embeddings(nn.Module):
    """Sum of word, position and type embeddings, normalised. All tokens are of type 0."""

    def __init__(self, shape: BertShape) -> None:
        super().__init__()
        self.words = _Embedding(shape.vocabulary, shape.width)
        self.positions = _Embedding(shape.positions, shape.width)
        self.types = _Embedding(shape.types, shape.width)
        self.norm = nn.LayerNorm(shape.width, shape.epsilon)

    def forward(self, tokens: PackedTokens) -> Float32[Tensor, "t h"]:
        places: Tensor = self.positions(tokens.positions) + self.types.weight[0]
        return self.norm(self.words(tokens.ids) + places)


class _Layer(nn.Module):
    """One transformer layer: attention, then a two-layer network, each added to its input and normalised."""

    def __init__(self, shape: BertShape) -> None:
        super().__init__()
        self.attention_heads = shape.heads
        self.qkv = _Linear(shape.width, 3 * shape.width)
        self.out = _Linear(shape.width, shape.width)
        self.out_norm = nn.LayerNorm(shape.width, shape.epsilon)
        self.up = _Linear(shape.width, shape.inner)
        self.down = _Linear(shape.inner, shape.width)
        self.down_norm = nn.LayerNorm(shape.width, shape.epsilon)

    def forward(
        self, x: Float32[Tensor, "t h"], runs: tuple[EqualRun, ...], drop: Drop | None = None
    ) -> Float32[Tensor, "t h"]:
        kind = self.qkv.weight.dtype
        parts = zip(_by_run(_apply(self.qkv, x.to(kind)), runs), runs, strict=True)
        attended = _apply(self.out, torch.cat([_attend(part, run, self.attention_heads) for part, run in parts]))
        x = self.out_norm(x + (attended if drop is None else drop(attended)))
        changed = _apply(self.down, functional.gelu(_apply(self.up, x.to(kind))))
        return self.down_norm(x + (changed if drop is None else drop(changed)))


def _apply(layer: nn.Linear, x: Float[Tensor, "t i"]) -> Float[Tensor, "t o"]:
    """Compute x Wᵀ + b."""
    return (linear if x.dtype == torch.float32 else functional.linear)(x, layer.weight, layer.bias)


def _attend(qkv: Float[Tensor, "r h3"], run: EqualRun, heads: int) -> Float[Tensor, "r h"]:
    """Each token attends to all tokens of its own sequence: softmax(q kᵀ / √(h / heads)) v, head by head."""
    if qkv.device.type == "cpu" and torch.is_autocast_enabled("cpu"):  # the backward pass in bfloat16 is slow on a CPU
        with torch.autocast("cpu", enabled=False):
            return _attend(qkv.float(), run, heads)
    query, key, value = qkv.view(run.sequences, run.length, 3, heads, -1).permute(2, 0, 3, 1, 4)
    with without_cudnn():
        mixed = functional.scaled_dot_product_attention(query, key, value)
    return mixed.transpose(1, 2).reshape(run.sequences * run.length, -1)


def _by_run(x: Float[Tensor, "t n"], runs: tuple[EqualRun, ...]) -> tuple[Tensor, ...]:
    """Split tokens by run. Slices would each add a whole matrix of zeros to the backward pass."""
    return x.split([run.sequences * run.length for run in runs])


class UnitLength(nn.Module):
    """Scale each row to length 1; a row of zeros stays as it is."""

    def forward(self, features: Float32[Tensor, "s d"]) -> Float32[Tensor, "s d"]:
        return functional.normalize(features, dim=-1)


def heads_of(shapes: Sequence[HeadShape]) -> nn.ModuleList:
    """Make heads whose weights are undefined until they are loaded."""
    return nn.ModuleList(UnitLength() if head is None else _Linear(head[0], head[1], bias=head[2]) for head in shapes)


class Headed(nn.Module):
    """A network that turns each text into a mean, with or without layers, and applies heads to the mean in order."""

    embeddings: nn.Module
    layers: nn.ModuleList
    heads: nn.ModuleList

    @property
    def width(self) -> int:
        """Length of a mean, ``h``."""
        raise NotImplementedError

    @property
    def dimension(self) -> int:
        """Number of features, ``d``."""
        linear = [head.out_features for head in self.heads if isinstance(head, nn.Linear)]
        return linear[-1] if linear else self.width

    def project(self, means: Float32[Tensor, "s h"], drop: Drop | None = None) -> Float32[Tensor, "s d"]:
        """Turn means into features by the heads; *drop* is dropout on the input of the last head."""
        features = means
        for number, head in enumerate(self.heads, 1):
            features = head(drop(features) if drop is not None and number == len(self.heads) else features)
        return features


class SentenceBert(Headed):
    """BERT, mean pooling and heads, first to last: features of packed texts. :meth:`load_bert` fills in the weights."""

    def __init__(self, shape: BertShape, heads: Sequence[HeadShape] = ()) -> None:
        super().__init__()
        self.shape = shape
        self.embeddings = _Embeddings(shape)
        self.layers = nn.ModuleList(_Layer(shape) for _ in range(shape.layers))
        self.heads = heads_of(heads)

    @property
    def width(self) -> int:
        return self.shape.width

    def forward(self, tokens: PackedTokens) -> Float32[Tensor, "s d"]:
        """Return features of the sequences of a batch, in its order."""
        return self.project(self.means(self.hidden(tokens, 0), tokens.runs))

    def hidden(self, tokens: PackedTokens, depth: int) -> Float32[Tensor, "t h"]:
        """Return hidden states of a batch's tokens after the embeddings and the first *depth* layers."""
        x: Tensor = self.embeddings(tokens)
        for layer in self.layers[:depth]:
            x = layer(x, tokens.runs)
        return x

    def means(
        self, x: Float32[Tensor, "t h"], runs: tuple[EqualRun, ...], depth: int = 0, drop: Drop | None = None
    ) -> Float32[Tensor, "s h"]:
        """Return the mean over each sequence's tokens after the layers from *depth* on; *x* has passed those before.

        *drop* is dropout on what each half of a layer adds.
        """
        for layer in self.layers[depth:]:
            x = layer(x, runs, drop)
        parts = zip(_by_run(x, runs), runs, strict=True)
        return torch.cat([part.view(run.sequences, run.length, -1).mean(dim=1) for part, run in parts])

    def in_bfloat16(self) -> "SentenceBert":
        """Return a copy for inference whose large matrix products run in bfloat16; embeddings are shared."""
        twin = copy.deepcopy(self, {id(self.embeddings): self.embeddings})
        for layer in twin.layers:
            if isinstance(layer, _Layer):
                for product in (layer.qkv, layer.out, layer.up, layer.down):
                    product.to(torch.bfloat16)
        return twin

    def bert_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return name and shape of every tensor of an ordinary BERT checkpoint that this module reads."""
        own = self.state_dict()
        return {
            theirs: (own[name].shape[0] // len(parts), *own[name].shape[1:])
            for name, parts in _bert_names(self.shape.layers)
            for theirs in parts
        }

    def load_bert(self, tensors: Mapping[str, Tensor], heads: Sequence[Mapping[str, Tensor]]) -> None:
        """Take over the weights that :meth:`bert_shapes` names, and each head's ``weight`` and ``bias``, as float32."""
        state = {
            name: torch.cat([tensors[part].float() for part in parts]) for name, parts in _bert_names(self.shape.layers)
        }
        for number, head in enumerate(heads):
            state |= {f"heads.{number}.{name}": tensor.float() for name, tensor in head.items()}
        self.load_state_dict({name: tensor.contiguous() for name, tensor in state.items()}, assign=True)

    def bert_tensors(self) -> dict[str, Tensor]:
        """Return the weights under the names of an ordinary BERT checkpoint, heads left out."""
        own = self.state_dict()
        return {
            theirs: piece.contiguous()
            for name, parts in _bert_names(self.shape.layers)
            for theirs, piece in zip(parts, own[name].chunk(len(parts)), strict=True)
        }


def _bert_names(layers: int) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the name of each tensor here, and names of the checkpoint's tensors that it stacks."""
    for own, parts in _EMBEDDINGS.items():
        yield f"embeddings.{own}", tuple(f"embeddings.{part}" for part in parts)
    for layer in range(layers):
        for own, parts in _LAYER.items():
            for kind in ("weight", "bias"):
                theirs = tuple(f"encoder.layer.{layer}.{part}.{kind}" for part in parts)
                yield f"layers.{layer}.{own}.{kind}", theirs
