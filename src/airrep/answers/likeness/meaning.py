"""Embeddings that an index holds already, and the nearest of them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from airrep.arrays import Mask, unit_rows
from airrep.attributors.base import Attributor, OnRows
from airrep.attributors.encoder import EmbeddingAttributor
from airrep.attributors.sums.channels import ChannelsAttributor
from airrep.corpus.corpus import Example
from airrep.index.index import Index
from airrep.scoring.blocks import Block, MappedBlocks
from airrep.scoring.topk import TopK, top_k


@dataclass(frozen=True)
class StoredMeaning:
    """The dense columns of an index that are sentence embeddings of whole examples, and what makes such."""

    index: Index
    encoder: EmbeddingAttributor
    start: int
    stop: int

    @classmethod
    def of(cls, index: Index) -> "StoredMeaning | None":
        """The first channel of an index that is a sentence encoder of whole examples; None without one."""
        attributor = index.attributor
        parts: Sequence[Attributor] = attributor.parts if isinstance(attributor, ChannelsAttributor) else (attributor,)
        start = 0
        for part in parts:
            if isinstance(part, EmbeddingAttributor) and part.settings.view == "whole":
                return cls(index, part, start, start + part.encode_train([]).shape[1])
            features = part.encode_train([])
            start += features.shape[1] if isinstance(features, np.ndarray) else 0
        return None

    def nearest(self, examples: Sequence[Example], k: int, keep: Mask, on_rows: OnRows | None = None) -> TopK:
        """The k kept rows of greatest cosine with each example, and these cosines."""
        asked = unit_rows(self.encoder.encode_train(examples, on_rows))
        return top_k(asked, MappedBlocks(self.index.blocks, self._units), k, keep=keep)

    def _units(self, block: Block) -> Block:
        return Block(block.start, unit_rows(block.dense()[:, self.start : self.stop].astype(np.float32)))
