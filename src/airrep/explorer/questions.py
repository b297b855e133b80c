"""Questions that the page asks, answered as JSON values; nothing here knows of HTTP."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from airrep._version import __version__
from airrep.corpus.corpus import Example
from airrep.errors import ConfigError
from airrep.explorer.explorer import Explorer
from airrep.explorer.requests import (
    DEEPEST,
    PAGE,
    TEXT,
    CountRequest,
    ExampleRequest,
    GroupRequest,
    ListRequest,
    RowsRequest,
    TopRequest,
    WhatIfRequest,
)
from airrep.explorer.served import ServedIndex
from airrep.explorer.texts import LISTED, cut, example_json, shown_prompt, why_json
from airrep.index.reasons import Reasons, Scored
from airrep.scoring.topk import top_k

HELPED = 25
"""Queries told of an example, from either end."""
LISTED_QUERIES = 50
"""Queries of one page of a list."""


def about(explorer: Explorer) -> dict[str, Any]:
    """What is served, and how its numbers are to be read."""
    return {
        "version": __version__,
        "indexes": [_about_index(index) for index in explorer.indexes],
        "examples": len(explorer.indexes[0]),
        "fields": list(explorer.facets.fields),
        "queries": 0 if explorer.queries is None else len(explorer.queries),
        "limits": {"page": PAGE, "deepest": DEEPEST, "text": TEXT},
    }


def _about_index(index: ServedIndex) -> dict[str, Any]:
    provenance = index.provenance(index.attributor.pooling())
    return {
        "name": index.path.resolve().name,
        "method": index.method,
        "pool": provenance.pooling,
        "units": provenance.units,
        "sign": provenance.sign,
        "caution": provenance.caution,
        "fingerprint": index.fingerprint[:12],
    }


def count(explorer: Explorer, asked: CountRequest) -> dict[str, Any]:
    """How many examples fulfil the filters, and the counts of all facets."""
    explorer.index(0)
    mask = explorer.facets.mask(asked.where, asked.facets)
    return {"matching": int(mask.sum()), "facets": explorer.facets.counts(asked.where, asked.facets)}


def list_queries(explorer: Explorer, asked: ListRequest) -> dict[str, Any]:
    """Queries that were asked, and a page of those of the file."""
    wanted = asked.text.casefold()
    typed: list[dict[str, Any]] = [
        {"key": key, **_listed(query)} for key, query in explorer.asked() if _holds(query, wanted)
    ]
    found: list[dict[str, Any]] = [
        {"number": number, **_listed(query)}
        for number, query in enumerate(explorer.queries or ())
        if _holds(query, wanted)
    ]
    return {"asked": typed, "total": len(found), "queries": found[asked.start : asked.start + LISTED_QUERIES]}


def _holds(query: Example, wanted: str) -> bool:
    return not wanted or wanted in f"{query.prompt}\n{query.response}".casefold()


def _listed(query: Example) -> dict[str, Any]:
    return {
        "prompt": cut(shown_prompt(query.prompt, LISTED), LISTED),
        "response": cut(query.response, LISTED),
        "source": query.source,
    }


def top(explorer: Explorer, asked: TopRequest) -> dict[str, Any]:
    """Some ranks of the examples that help the query most, or least, with the reasons of each."""
    index, query = explorer.index(asked.index), explorer.query(asked.query)
    keep = explorer.facets.mask(asked.where, asked.facets)
    matching = int(keep.sum())
    features = index.encode_queries([query])
    if asked.query.number is None:
        explorer.remember(query)
    last = min(asked.start + asked.count, matching, DEEPEST)
    told = []
    if asked.start < last:
        found = top_k(features, index.blocks, last, keep=keep, least=asked.least)
        rows, scores = found.rows[0, asked.start :].tolist(), found.scores[0, asked.start :].tolist()
        told = _hits(index, query, features, [Scored(*pair) for pair in zip(rows, scores, strict=True)], asked.start)
    return {
        "query": {**example_json(query, None), "key": query.content_hash, "number": asked.query.number},
        "matching": matching,
        "hits": told,
        "more": last < min(matching, DEEPEST),
    }


def _hits(index: ServedIndex, query: Example, features: Any, scored: list[Scored], start: int) -> list[dict[str, Any]]:
    reasons = Reasons(index, index.attributor).of(query, features, scored)
    told = []
    for rank, (hit, why) in enumerate(zip(scored, reasons, strict=True), start + 1):
        example = index.example(hit.row)
        own = {"rank": rank, "row": hit.row, "score": hit.score, **example_json(example, why=why)}
        told.append({**own, **why_json(query, example, why)})
    return told


def groups(explorer: Explorer, asked: GroupRequest) -> dict[str, Any]:
    """Group scores of the values of a field, most helpful first."""
    index, query = explorer.index(asked.index), explorer.query(asked.query)
    result = index.group_scores([query], explorer.facets.groups(asked.by), why=True)
    order = np.argsort(-result.scores[0], kind="stable").tolist()
    channels = {name: part[0].tolist() for name, part in (result.channels or {}).items()}
    told = [
        {
            "value": result.names[place],
            "size": result.sizes[place],
            "score": float(result.scores[0, place]),
            "channels": {name: part[place] for name, part in channels.items()},
        }
        for place in order
    ]
    return {"by": asked.by, "groups": told, "pool": result.provenance.pooling, "caution": result.provenance.caution}


def what_if(explorer: Explorer, asked: WhatIfRequest) -> dict[str, Any]:
    """Change of the corpus's score for the query if the rows and values of a basket were left out."""
    index, query = explorer.index(asked.index), explorer.query(asked.query)
    rows = _live_rows(index, asked.rows)
    removed = np.zeros(index.rows, dtype=bool)
    removed[rows] = True
    for name, values in asked.facets.items():
        removed |= explorer.facets.facet(name).members(values) & index.live
    result = index.what_if([query], remove=removed, why=True)
    return {
        "change": float(result.change[0]),
        "before": float(result.before[0]),
        "after": float(result.after[0]),
        "removed": result.removed,
        "kept": result.kept,
        "channels": {name: float(part[0]) for name, part in (result.channels or {}).items()},
        "pool": result.provenance.pooling,
        "units": result.provenance.units,
        "caution": result.provenance.caution,
    }


def example(explorer: Explorer, asked: ExampleRequest) -> dict[str, Any]:
    """One training example whole, why it has its score for a query, and the queries that it helps most and least."""
    index = explorer.index(asked.index)
    _live_rows(index, [asked.row])
    found = index.example(asked.row)
    told: dict[str, Any] = {"row": asked.row, **example_json(found, None)}
    if asked.query is not None:
        query = explorer.query(asked.query)
        features = index.encode_queries([query])
        score = float(index.score_row(features, asked.row)[0])
        (why,) = Reasons(index, index.attributor).of(query, features, [Scored(asked.row, score)])
        told |= {"score": score, **why_json(query, found, why, None)}
    return told | _helped(explorer, index, asked.row)


def _helped(explorer: Explorer, index: ServedIndex, row: int) -> dict[str, Any]:
    """Queries by the score that one example has for them."""
    scored: list[tuple[float, dict[str, Any], Example]] = [
        (float(index.score_row(index.encode_queries([query]), row)[0]), {"key": key}, query)
        for key, query in explorer.asked()
    ]
    if explorer.queries is not None:
        scores = index.score_row(index.encode_file(explorer.queries), row).tolist()
        pairs = enumerate(zip(scores, explorer.queries, strict=True))
        scored += [(score, {"number": number}, query) for number, (score, query) in pairs]
    ordered = sorted(scored, key=lambda one: -one[0])
    helped, harmed = ordered[:HELPED], ordered[HELPED:][-HELPED:]
    return {"queries": len(ordered), "helped": _told(helped), "harmed": _told(reversed(harmed))}


def _told(scored: Iterable[tuple[float, Mapping[str, Any], Example]]) -> list[dict[str, Any]]:
    return [{"score": score, **ref, **_listed(query)} for score, ref, query in scored]


def rows(explorer: Explorer, asked: RowsRequest) -> dict[str, Any]:
    """Ids and beginnings of some examples, for a basket that came with an address."""
    index = explorer.index(0)
    found = [(row, index.example(row)) for row in _live_rows(index, asked.rows).tolist()]
    told: list[dict[str, Any]] = [{"row": row, "id": one.id, **_listed(one)} for row, one in found]
    return {"rows": told}


def _live_rows(index: ServedIndex, numbers: list[int]) -> np.ndarray:
    checked = index.check_rows(np.array(numbers))
    gone = checked[~index.live[checked]]
    if len(gone):
        raise ConfigError(f"row {gone[0]}: was deleted from {index.path}. Leave it out.")
    return checked
