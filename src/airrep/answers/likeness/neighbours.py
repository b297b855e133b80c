"""Nearest examples by meaning, also by embeddings that an index holds."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from airrep.answers.texts import kept_examples
from airrep.arrays import ALIKE, Mask, Rows, unit_rows
from airrep.attributors.base import Attributor
from airrep.attributors.encoder import EmbeddingAttributor
from airrep.attributors.sums.channels import ChannelsAttributor
from airrep.corpus.corpus import Example
from airrep.index.index import Index
from airrep.scoring.blocks import Block, MappedBlocks
from airrep.scoring.products import ask
from airrep.scoring.topk import TopK, top_k

_MOST_UNKNOWN = 0.5
"""If a greater share of a text is unknown to an encoder, its embedding says nothing."""
_CHUNK = 4096


@dataclass(frozen=True)
class Neighbours:
    """The nearest other examples of each example, nearest first."""

    places: Rows
    """``(n, k)`` places of examples."""
    cosines: np.ndarray
    """``(n, k)`` float32."""

    @classmethod
    def of(cls, units: np.ndarray, k: int) -> "Neighbours":
        """Find the k nearest of each row of unit vectors ``(n, d)``, by exact search; n is above k."""
        found = top_k(ask(units, [Block(0, units)]), k + 1)
        own = found.rows == np.arange(len(units))[:, None]
        own[~own.any(axis=1), -1] = True  # more than k copies come before the row itself: drop the last
        places, cosines = found.rows[~own], found.scores[~own]
        return cls(places.reshape(-1, k), cosines.reshape(-1, k))


@dataclass(frozen=True)
class Votes:
    """How the neighbours of each example vote on its label."""

    own: np.ndarray
    """``(n,)``: share of the votes for the example's own label; NaN without votes or without a label."""
    best: list[str | None]
    """The label with most votes; of equal ones, up to rounding, the first by name. None without votes."""
    most: np.ndarray
    """``(n,)``: share of the votes for the label with most votes."""


def vote(labels: Sequence[str | None], near: Neighbours) -> Votes:
    """Let neighbours vote for their own labels, weighted by cosine if above 0; unlabelled neighbours do not vote."""
    names = sorted({label for label in labels if label is not None})
    number = {name: place for place, name in enumerate(names)}
    codes = np.array([-1 if label is None else number[label] for label in labels])
    weights = np.where(codes[near.places] >= 0, np.maximum(near.cosines.astype(np.float64), 0.0), 0.0)
    shares = np.zeros((len(codes), max(len(names), 1)))
    np.add.at(shares, (np.arange(len(codes))[:, None], codes[near.places]), weights)
    total = shares.sum(axis=1, keepdims=True)
    shares = np.divide(shares, total, out=np.full_like(shares, np.nan), where=total > 0)
    own = np.where(codes >= 0, shares[np.arange(len(codes)), codes], np.nan)
    known = np.where(np.isnan(shares), -1.0, shares)
    best = (known >= known.max(axis=1, keepdims=True) - ALIKE).argmax(axis=1)
    told = [names[place] if some else None for place, some in zip(best.tolist(), total[:, 0] > 0, strict=True)]
    return Votes(own, told, shares[np.arange(len(codes)), best])


def disagreement(prompts: np.ndarray, responses: np.ndarray, near: Neighbours) -> np.ndarray:
    """Measure how far each response is from what its nearest prompts' responses suggest, ``(n,)``; of unit vectors.

    The value is the sum of two differences of cosines: among the neighbours' responses minus of this response with
    them; and of the neighbours' responses with their own prompts minus of this response with its own prompt.
    """
    fits = (prompts * responses).sum(axis=1, dtype=np.float64)
    k, odd = near.places.shape[1], np.empty(len(prompts))
    for place, others in enumerate(near.places):
        theirs = responses[others].astype(np.float64)
        together = theirs.sum(axis=0)
        alike = ((together**2).sum() - (theirs**2).sum()) / (k * (k - 1))
        odd[place] = alike - responses[place] @ together / k
    return odd + fits[near.places].mean(axis=1) - fits


def robust_deviations(values: np.ndarray) -> np.ndarray:
    """Express values in robust deviations from their median: 1.4826 times the median distance from it.

    If half of the values equal the median, up to rounding, that deviation is 0; then 1.2533 times the mean distance
    replaces it, or 1 if all values are equal.
    """
    middle = np.median(values)
    distances = np.abs(values - middle)
    distances[distances <= ALIKE] = 0.0
    scale = 1.4826 * float(np.median(distances)) or 1.2533 * float(distances.mean())
    return (values - middle) / (scale or 1.0)


def mostly_unknown(attributor: Attributor, examples: Sequence[Example]) -> Mask:
    """Return True for each example whose text an encoder mostly does not know; such texts look alike to it."""
    if not isinstance(attributor, EmbeddingAttributor):
        return np.zeros(len(examples), bool)
    return attributor.encoder.unknown_shares(examples) > _MOST_UNKNOWN


@dataclass(frozen=True)
class StoredMeaning:
    """The channel of an index that holds sentence embeddings of whole examples, with its encoder."""

    index: Index
    encoder: EmbeddingAttributor
    channel: str

    @classmethod
    def of(cls, index: Index) -> "StoredMeaning | None":
        """Find the first channel of an index that is a sentence encoder of whole examples; None if there is none."""
        attributor = index.attributor
        parts: Sequence[Attributor] = attributor.parts if isinstance(attributor, ChannelsAttributor) else (attributor,)
        for channel, part in zip(index.channels, parts, strict=True):
            if isinstance(part, EmbeddingAttributor) and part.settings.view == "whole":
                return cls(index, part, channel.name)
        return None

    def nearest(self, examples: Sequence[Example], keep: Mask) -> list[tuple[int, float] | None]:
        """Find the kept row of greatest cosine with each example, and the cosine; None for mostly unknown texts."""
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
        """Drop the kept rows that are mostly unknown to the encoder."""
        keep, kept = keep.copy(), kept_examples(self.index, keep)
        while some := list(islice(kept, _CHUNK)):
            unknown = mostly_unknown(self.encoder, [example for _, example in some])
            keep[[row for row, _ in some]] = ~unknown
        return keep

    def _units(self, block: Block) -> Block:
        return Block(block.start, unit_rows(block.dense().astype(np.float32)))
