"""Why single examples score as they do: their channels, the same words."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from airrep.attributors.base import Attributor, SeveralMethods
from airrep.corpus.corpus import Example
from airrep.corpus.places import Places
from airrep.index.rows import IndexRows
from airrep.index.why import Products, Why, same_words
from airrep.scoring.asked import Asked, SumAsked
from airrep.scoring.products import SparseAsked


class Scored(NamedTuple):
    """A training example, and its score for a query."""

    row: int
    score: float


class Reasons:
    """Tells why the hits of a query score as they do, from their stored features alone."""

    def __init__(self, rows: IndexRows, attributor: Attributor) -> None:
        self._index, self._name = rows, attributor.name
        parts = attributor.parts if isinstance(attributor, SeveralMethods) else (attributor,)
        self._methods = dict(zip((one.name for one in rows.channels), parts, strict=True))

    def of(self, query: Example, asked: Asked, place: int, hits: Sequence[Scored]) -> list[Why]:
        """Why each of the hits has its score.

        Args:
            query: the query.
            asked: what it and others ask.
            place: its number among them.
            hits: rows of the index, with their scores.
        """
        one = asked.chosen(slice(place, place + 1))
        words = dict(_words(one, self._name))
        found = {channel: self._methods[channel].places(query) for channel in words}
        spoken = {channel: own for channel, own in found.items() if own is not None}
        return [self._why(query, one, {channel: words[channel] for channel in spoken}, spoken, hit) for hit in hits]

    def _why(
        self,
        query: Example,
        asked: Asked,
        words: "Mapping[str, tuple[SparseAsked, float]]",
        places: Mapping[str, Places],
        hit: Scored,
    ) -> Why:
        parts = asked.channels()
        channels = {name: float(part.of_row(hit.row)[0]) for name, part in parts.items()} or {self._name: hit.score}
        example = self._index.example(hit.row)
        had = {name: own for name in words if (own := self._methods[name].places(example)) is not None}
        if not had:
            return Why(channels)
        starts = np.cumsum([0, *(words[name][0].queries.shape[1] for name in had)]).tolist()
        columns, values = [], []
        for start, name in zip(starts, had, strict=False):
            part, weight = words[name]
            column, value = part.products(0, hit.row)
            columns.append(column + start)
            values.append(value * weight)
        products = Products(np.concatenate(columns), np.concatenate(values))
        together = [Places.beside([own[name] for name in had], starts[:-1]) for own in (places, had)]
        return Why(channels, same_words(products, query, together[0], example, together[1]))


def _words(asked: Asked, name: str) -> "Iterator[tuple[str, tuple[SparseAsked, float]]]":
    """The channels of sparse features, and their weights for the only query."""
    parts = asked.parts if isinstance(asked, SumAsked) else {name: asked}
    weights = asked.weights[0].tolist() if isinstance(asked, SumAsked) else [1.0]
    for (channel, part), weight in zip(parts.items(), weights, strict=True):
        if isinstance(part, SparseAsked):
            yield channel, (part, weight)
