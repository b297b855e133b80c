"""Encoders that airrep trains: their networks, and folders with new ones."""

from dataclasses import replace
from pathlib import Path
from typing import Self, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from airrep.encoder.cards import Card
from airrep.encoder.networks.bert import Headed, HeadShape, SentenceBert, UnitLength, heads_of
from airrep.encoder.networks.checkpoints import StoredEncoder, write_sentence_transformer
from airrep.encoder.networks.packed import PackedEncoder
from airrep.encoder.static import LinearHead, StaticEncoder, StoredStatic, write_static
from airrep.shapes import Float32, Int64


class SentenceBag(Headed):
    """The mean of the vectors of a text's word pieces, and heads; it has no layers."""

    def __init__(self, matrix: Float32[Tensor, "v h"], heads: tuple[HeadShape, ...] = ()) -> None:
        super().__init__()
        self.embeddings: nn.Embedding = nn.Embedding.from_pretrained(matrix, freeze=False)
        self.layers = nn.ModuleList()
        self.heads = heads_of(heads)

    @classmethod
    def of(cls, stored: StoredStatic) -> Self:
        """The network of a stored encoder, with copies of its numbers."""
        head = stored.head
        unit: tuple[HeadShape, ...] = (None,) if stored.normalise else ()
        shapes = unit if head is None else (*unit, (head.weight.shape[1], head.weight.shape[0], True))
        made = cls(torch.from_numpy(stored.matrix.copy()), shapes)
        if head is not None:
            values = {name: torch.from_numpy(part.copy()) for name, part in head._asdict().items()}
            made.heads[-1].load_state_dict(values)
        return made

    @property
    def width(self) -> int:
        return self.embeddings.embedding_dim

    def means(self, ids: Int64[Tensor, " t"], lengths: Int64[Tensor, " s"]) -> Float32[Tensor, "s h"]:
        """Mean over the pieces of each text, which lie end to end; 0 of none."""
        offsets = lengths.cumsum(0) - lengths
        found: Tensor = functional.embedding_bag(ids, self.embeddings.weight, offsets, mode="mean")
        return found

    def stored(self, start: StoredStatic, card: Card) -> StoredStatic:
        """The encoder with these numbers; where means are not scaled, the linear head is worked into the matrix."""
        matrix, (*below, last) = _array(self.embeddings.weight), self.heads
        assert isinstance(last, nn.Linear)
        weight, bias = _array(last.weight), _array(last.bias) if last.bias is not None else np.zeros(last.out_features)
        normalise = any(isinstance(head, UnitLength) for head in below)
        if normalise:
            head = LinearHead(weight, bias.astype(np.float32))
            return replace(start, matrix=matrix, card=card, normalise=True, head=head)
        return replace(start, matrix=matrix @ weight.T + bias.astype(np.float32), card=card, normalise=False, head=None)


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy().copy()


Trainable: TypeAlias = PackedEncoder | StaticEncoder
"""An encoder that airrep can train."""
Network: TypeAlias = SentenceBert | SentenceBag
"""The weights that learn."""
Stored: TypeAlias = StoredEncoder | StoredStatic
"""A trained encoder as its folder holds it."""


def network_of(encoder: Trainable) -> Network:
    """The network of an encoder, on the CPU."""
    stored = encoder.checkpoint
    return SentenceBag.of(stored) if isinstance(stored, StoredStatic) else stored.model


def stored_with(start: Stored, network: Network, card: Card) -> Stored:
    """An encoder as it is stored, with a trained network and its card in place of its own."""
    if isinstance(start, StoredStatic):
        assert isinstance(network, SentenceBag)
        return network.stored(start, card)
    assert isinstance(network, SentenceBert)
    return replace(start, model=network, card=card)


def write_stored(stored: Stored, folder: Path) -> None:
    """Write into an empty folder what ``SentenceTransformer`` loads."""
    if isinstance(stored, StoredStatic):
        write_static(stored, folder)
    else:
        write_sentence_transformer(stored, folder)
