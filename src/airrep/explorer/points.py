"""Map of all examples, their positions and colours, as one binary answer."""

import json
from typing import Any

import numpy as np
from pydantic import Field

from airrep.answers.likeness.clusters import CLUSTER
from airrep.answers.spread import spread_of
from airrep.arrays import Mask
from airrep.errors import ConfigError
from airrep.explorer.explorer import Explorer, ServedIndex
from airrep.explorer.requests import Filters, QueryRef, Row, Short
from airrep.scoring.asked import Asked, stream_scores
from airrep.shapes import Float64

SCORE, INFLUENCE = "score", "influence"
"""Colours by numbers: the score for one query, and the mean score over all queries of the file."""
MEDIA = "application/vnd.airrep.map"
"""Media type of the answer: 4 bytes for the length of a JSON header (little-endian), the header, padding to 8 bytes;
then, for the same examples, float32 positions (x, y), uint32 rows, and float32 values: numbers of names, or scores."""


class MapRequest(Filters):
    """A map of the examples that match the filters, coloured by a field, by cluster, or by score."""

    color: Short = Field(
        default=CLUSTER,
        description=(
            "A field, cluster, score (for the query), or influence (mean over the queries of the file, in standard "
            "deviations)."
        ),
    )
    query: QueryRef | None = None
    index: Row = 0


def points(explorer: Explorer, asked: MapRequest) -> bytes:
    """Return the map in the format :data:`MEDIA`.

    ConfigError: the index has no vectors, the field does not exist, or a colour by score has no query.
    """
    index = explorer.index(asked.index)
    layout = index.layout()
    # Shuffled, so that any part of the rows shows the whole map: while it moves, only a part is drawn.
    keep = explorer.facets.mask(asked.where, asked.facets)
    rows = np.random.default_rng(0).permutation(np.flatnonzero(keep))
    header: dict[str, Any] = {"count": len(rows), "how": layout.how, "color": asked.color}
    if asked.color in (SCORE, INFLUENCE):
        values = _deviations(_question(explorer, index, asked), keep)[rows]
        order = np.argsort(np.abs(values), kind="stable")  # extreme values are drawn last, on top
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
    return len(text).to_bytes(4, "little") + text + b"".join(array.tobytes() for array in arrays)


def _middle(places: np.ndarray) -> dict[str, float]:
    """Return the median position of some examples."""
    if not len(places):
        return {"x": 0.0, "y": 0.0}
    x, y = np.median(places, axis=0).tolist()
    return {"x": x, "y": y}


def _question(explorer: Explorer, index: ServedIndex, asked: MapRequest) -> Asked:
    """Return the encoded query, or all queries of the file for the colour "influence"."""
    if asked.color == SCORE:
        if asked.query is None:
            raise ConfigError("map: color=score needs a query. Enter a query first.")
        question = explorer.question(asked.query)
        return question.ranked(index.ask(question))
    if explorer.file is None:
        raise ConfigError("map: color=influence needs a file of queries. Start the server with --queries.")
    return explorer.file.ranked(index.ask_file(explorer.file))


def _deviations(asked: Asked, keep: Mask) -> Float64[np.ndarray, " rows"]:
    """Return scores in standard deviations over the rows in *keep*, averaged over queries; 0 for other rows."""
    spread, found = spread_of(asked, keep), np.zeros(len(keep))
    for rows, scores in stream_scores(asked, keep):
        found[rows] = spread.effects(scores).mean(axis=0)
    return found
