"""Read results that were written as artifacts."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from airrep.corpus.corpus import Example
from airrep.errors import ArtifactError
from airrep.index.results.forms import Form, GroupForm, QueryChange, QueryScores, TopForm, WhatIfForm, read_form
from airrep.index.results.hits import Hits
from airrep.index.results.kinds import RESULTS, GroupResult, TopResult, WhatIfResult
from airrep.index.results.provenance import HARMFUL
from airrep.runtime.artifacts.checks import as_written, read_json
from airrep.runtime.artifacts.manifests import read_manifest
from airrep.runtime.artifacts.urls import fetched


def read_result(path: str | Path) -> TopResult | GroupResult | WhatIfResult:
    """Read a result that was written as an artifact, after checking its bytes.

    Raises:
        ArtifactError: not a result, unfinished or altered.
        DataError: it lacks something, or holds what a result cannot.

    Example:
        >>> path = index.top(queries, k=3).save("runs/hits")
        >>> len(airrep.read_result("runs/hits"))
        5
    """
    folder = fetched(path)
    manifest = read_manifest(folder)
    if manifest["kind"] not in (TopResult.kind, GroupResult.kind, WhatIfResult.kind):
        raise ArtifactError(
            f"{folder}: is of kind '{manifest['kind']}'; expected a run of `airrep top`, `group` or `what-if` "
            "made with --out (or, for a report, an evaluation, comparison, plan or diagnosis). Give the path of that."
        )
    value = read_json(folder, manifest, RESULTS)
    with as_written(folder):
        return _result_of(read_form(value, f"{folder}:"))


def _result_of(form: Form) -> TopResult | GroupResult | WhatIfResult:
    if isinstance(form, TopForm):
        return _top_of(form)
    return _groups_of(form) if isinstance(form, GroupForm) else _what_if_of(form)


def _top_of(form: TopForm) -> TopResult:
    least = form.order == HARMFUL
    rows = (Hits(row.query, row.hits, form.provenance, least, row.better, row.verdict) for row in form.queries)
    return TopResult(tuple(rows), form.provenance, least)


def _groups_of(form: GroupForm) -> GroupResult:
    queries, groups = tuple(row.query for row in form.queries), form.groups
    names, sizes = tuple(group.name for group in groups), tuple(group.size for group in groups)
    scores = _array([row.scores for row in form.queries]).reshape(len(queries), len(groups))
    channels = _columns_of(form.queries, (len(queries), len(groups)))
    return GroupResult(queries, names, sizes, scores, form.provenance, channels, _better(form.queries))


def _what_if_of(form: WhatIfForm) -> WhatIfResult:
    queries = tuple(row.query for row in form.queries)
    before, after = (_array([getattr(row, when) for row in form.queries]) for when in ("before", "after"))
    channels = _columns_of(form.queries, (len(queries),))
    better, origin = _better(form.queries), form.provenance
    return WhatIfResult(queries, before, after, form.removed, form.kept, origin, channels, form.removal, better)


def _better(rows: Sequence[QueryScores] | Sequence[QueryChange]) -> tuple[Example, ...] | None:
    """The better answers of contrasts; None where a query has none."""
    found = tuple(row.better for row in rows if row.better is not None)
    return found if found and len(found) == len(rows) else None


def _columns_of(
    rows: Sequence[QueryScores] | Sequence[QueryChange], shape: tuple[int, ...]
) -> dict[str, np.ndarray] | None:
    """What each channel has of all queries; None where channels are not told."""
    told: list[Mapping[str, Any]] = [row.channels for row in rows if row.channels is not None]
    if not told:
        return None
    return {name: _array([one[name] for one in told]).reshape(shape) for name in told[0]}


def _array(values: Sequence[float] | Sequence[Sequence[float]]) -> np.ndarray:
    """float32, as scores are, unless numbers from elsewhere would lose digits."""
    exact = np.array(values, np.float64)
    with np.errstate(over="ignore"):
        scores = exact.astype(np.float32)
    return scores if np.array_equal(scores, exact) else exact
