"""Embeddings that an index holds already, and the nearest of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from airrep.answers.texts import kept_examples
from airrep.arrays import Mask, unit_rows
from airrep.attributors.base import Attributor
from airrep.attributors.encoder import EmbeddingAttributor
from airrep.attributors.sums.channels import ChannelsAttributor
from airrep.corpus.corpus import Example
from airrep.index.index import Index
from airrep.scoring.blocks import Block, MappedBlocks
from airrep.scoring.products import ask
from airrep.scoring.topk import TopK, top_k

_MOST_UNKNOWN = 0.5
"""Share of a text from which on embeddings tell nothing of it, if it is above."""
_CHUNK = 4096


def mostly_unknown(attributor: Attributor, examples: Sequence[Example]) -> Mask:
    """Whether more than half of each example's text is unknown to an encoder: all such texts look alike to it."""
    if not isinstance(attributor, EmbeddingAttributor):
        return np.zeros(len(examples), bool)
    unknown: Mask = attributor.encoder.unknown_shares(examples) > _MOST_UNKNOWN
    return unknown


@dataclass(frozen=True)
class StoredMeaning:
    """The channel of an index that holds sentence embeddings of whole examples, and what makes such."""

    index: Index
    encoder: EmbeddingAttributor
    channel: str

    @classmethod
    def of(cls, index: Index) -> "StoredMeaning | None":
        """The first channel of an index that is a sentence encoder of whole examples; None without one."""
        attributor = index.attributor
        parts: Sequence[Attributor] = attributor.parts if isinstance(attributor, ChannelsAttributor) else (attributor,)
        for channel, part in zip(index.channels, parts, strict=True):
            if isinstance(part, EmbeddingAttributor) and part.settings.view == "whole":
                return cls(index, part, channel.name)
        return None

    def nearest(self, examples: Sequence[Example], keep: Mask) -> list[tuple[int, float] | None]:
        """The kept row of greatest cosine with each example, and this cosine.

        None for an example, and never a row, whose text is mostly unknown to the encoder.
        """
        found: list[tuple[int, float] | None] = [None] * len(examples)
        places = np.flatnonzero(~mostly_unknown(self.encoder, examples)).tolist()
        if not places:
            return found
        asked = unit_rows(self.encoder.encode_train([examples[place] for place in places]))
        best = self._top(asked, keep)
        rows = np.unique(best.rows).tolist()
        if mostly_unknown(self.encoder, [self.index.example(row) for row in rows]).any():  # rare
            keep = self._known(keep)
            if not keep.any():
                return found
            best = self._top(asked, keep)
        for place, row, cosine in zip(places, best.rows[:, 0].tolist(), best.scores[:, 0].tolist(), strict=True):
            found[place] = row, cosine
        return found

    def _top(self, asked: np.ndarray, keep: Mask) -> TopK:
        return top_k(ask(asked, MappedBlocks(self.index.blocks(self.channel), self._units)), 1, keep=keep)

    def _known(self, keep: Mask) -> Mask:
        """The kept rows without those that are mostly unknown."""
        keep, kept = keep.copy(), kept_examples(self.index, keep)
        while some := list(islice(kept, _CHUNK)):
            unknown = mostly_unknown(self.encoder, [example for _, example in some])
            keep[[row for row, _ in some]] = ~unknown
        return keep

    def _units(self, block: Block) -> Block:
        return Block(block.start, unit_rows(block.dense().astype(np.float32)))
