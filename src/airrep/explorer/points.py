"""Places and colours of all examples, as one binary answer."""

import json
import threading
from typing import Any

import numpy as np
from pydantic import Field

from airrep.answers.likeness.clusters import CLUSTER, Layout, lay_out
from airrep.errors import ConfigError
from airrep.explorer.explorer import Explorer, ServedIndex
from airrep.explorer.requests import Filters, QueryRef, Row, Short
from airrep.index.contrast import Question
from airrep.scoring.asked import stream_scores

SCORE = "score"
MEDIA = "application/vnd.airrep.map"
"""Type of the answer: 4 bytes for the length of a JSON header (little-endian), the header, padding to 8 bytes; then
float32 places (x, y), uint32 rows, and float32 numbers of the values, or scores in deviations, of the same examples."""


class MapRequest(Filters):
    """All examples that count, on a map, coloured by a field's values, by cluster, or by the score for a query."""

    color: Short = Field(default=CLUSTER, description="A field, cluster, or score, which needs a query.")
    query: QueryRef | None = None
    index: Row = 0


class Places:
    """Layouts of the served indexes, each made when it is first asked for."""

    def __init__(self) -> None:
        self._making = threading.Lock()
        self._made: dict[str, Layout] = {}

    def of(self, index: ServedIndex) -> Layout:
        """The layout of an index; several who ask at once wait for one."""
        with self._making:
            if index.fingerprint not in self._made:
                self._made[index.fingerprint] = lay_out(index)
            return self._made[index.fingerprint]


def points(explorer: Explorer, places: Places, asked: MapRequest) -> bytes:
    """The map as :data:`MEDIA`.

    ConfigError: the index keeps no vectors, or there is no such field.
    """
    index = explorer.index(asked.index)
    layout = places.of(index)
    # In no order, so that any part of them shows all of the map: what is drawn while it moves.
    rows = np.random.default_rng(0).permutation(np.flatnonzero(explorer.facets.mask(asked.where, asked.facets)))
    header: dict[str, Any] = {"count": len(rows), "how": layout.how, "color": asked.color}
    if asked.color == SCORE:
        if asked.query is None:
            raise ConfigError("map: color is score, and there is no query; expected one. Ask first.")
        values = _deviations(index, explorer.question(asked.query), rows)
        order = np.argsort(np.abs(values), kind="stable")  # what stands out is drawn last
        rows, values = rows[order], values[order]
    else:
        facet = explorer.facets.facet(asked.color)
        codes = facet.codes[rows]
        counts = np.bincount(codes, minlength=len(facet.names))
        ranks = np.empty(len(counts), np.int64)
        ranks[np.argsort(-counts, kind="stable")] = np.arange(len(counts))
        names = [facet.names[code] for code in np.argsort(ranks).tolist()]
        header["names"] = [
            {"name": name, "count": int(count), **_middle(layout.places[rows[ranks[codes] == rank]])}
            for rank, (name, count) in enumerate(zip(names, np.sort(counts)[::-1], strict=True))
            if count
        ]
        values = ranks[codes]
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 4) % 8)
    arrays = (layout.places[rows], rows.astype("<u4"), values.astype("<f4"))
    return (
        len(text).to_bytes(4, "little")
        + text
        + b"".join(array.astype(array.dtype, copy=False).tobytes() for array in arrays)
    )


def _middle(places: np.ndarray) -> dict[str, float]:
    """Where most of some examples lie."""
    if not len(places):
        return {"x": 0.0, "y": 0.0}
    x, y = np.median(places, axis=0).tolist()
    return {"x": x, "y": y}


def _deviations(index: ServedIndex, question: Question, rows: np.ndarray) -> np.ndarray:
    """Scores of rows for a query, in deviations from their mean."""
    keep = np.zeros(index.rows, dtype=bool)
    keep[rows] = True
    scores = np.zeros(index.rows, np.float32)
    for these, values in stream_scores(question.ranked(index.ask(question)), keep):
        scores[these] = values[0]
    found = scores[rows].astype(np.float64)
    if len(found):
        found = (found - found.mean()) / max(float(found.std()), 1e-12)
    return np.asarray(found)
