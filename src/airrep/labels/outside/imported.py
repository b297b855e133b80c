"""Labels from a file of losses that another trainer measured."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from airrep.arrays import whole_number
from airrep.corpus.inputs import CorpusLike
from airrep.errors import ConfigError, DataError
from airrep.labels.farm import LabelData, LossSource, Outcomes, PlanLike, make_labels
from airrep.labels.labels import Labels
from airrep.labels.ledger import QueryLosses
from airrep.labels.outside.losses import and_more, no_losses, outside_origin, read_losses, subset_name
from airrep.labels.plan import LabelTask, Place
from airrep.runtime.artifacts.digests import file_digest
from airrep.runtime.engine import Outcome


def import_labels(
    plan: PlanLike,
    train: CorpusLike,
    queries: CorpusLike | None,
    losses: str | Path,
    out: str | Path,
    *,
    lm: str | None = None,
    seeds: int = 1,
    partial: bool = False,
) -> Labels:
    """Make labels of the losses that another trainer measured after training on each subset.

    Other arguments and errors are as of :func:`airrep.labels.farm.label`.

    Args:
        losses: file of losses, as :func:`airrep.labels.outside.losses.read_losses` reads it.
        lm: a name for the model that was trained, its folder or its Hub id; labels of equal ones may be used together.
        seeds: number of runs on each subset, in rows with ``seed``.
        partial: finish without the subsets that the file lacks; their losses are NaN.

    Raises:
        DataError: losses that are missing, doubled or not finite.

    Example:
        >>> plan = airrep.open("runs/subsets")
        >>> from airrep.labels.outside.imported import import_labels
        >>> labels = import_labels(plan, train, None, "losses.npy", "runs/imported")
        >>> labels.complete
        True
    """
    if not isinstance(losses, str | Path):
        raise ConfigError(
            f"losses: are a {type(losses).__name__}; expected the path of a file. Write an array by numpy.save(path, "
            "array)."
        )
    whole_number("seeds", seeds)
    data = LabelData.given(plan, train, queries)
    return make_labels(_Imported(data, Path(losses), lm, seeds, partial), data, out, seeds=seeds, partial=partial)


class _Imported(LossSource):
    """A file of losses."""

    def __init__(self, data: LabelData, path: Path, lm: str | None, seeds: int, partial: bool) -> None:
        self._found = read_losses(path, data.plan, data.queries, seeds)
        self._data, self._path, self._partial = data, path, partial
        self._origin = {**outside_origin(lm, {"trainer": "imported"}), "losses": file_digest(path)}

    @property
    def origin(self) -> Mapping[str, Any]:
        return self._origin

    def check(self, tasks: Sequence[LabelTask]) -> None:
        lacking = [task.place for task in tasks if self._reason(task.place) is not None]
        if lacking and not self._partial:
            name = subset_name(lacking[0]) + (f", seed {lacking[0].seed}" if lacking[0].seed else "")
            raise DataError(
                f"{self._path}: has no losses of subset {name}{and_more(len(lacking) - 1)}, of {len(tasks)}. Add "
                "them, or finish without: --partial"
            )

    def _reason(self, place: Place) -> str | None:
        """Why a task has no losses; None if it has, or needs none."""
        if place in self._found or place.subset is None:
            return None
        return f"{self._path.name} has no losses of it"

    def _losses(self, place: Place) -> QueryLosses | None:
        """Losses of one task; those before any fine-tune may stand under another instance with the same queries."""
        if place in self._found or place.subset is not None:
            return self._found.get(place)
        asked = self._data.plan.query_rows(place.instance)
        others = (other for other in self._found if other.subset is None)
        same = (one for one in others if np.array_equal(asked, self._data.plan.query_rows(one.instance)))
        return next(map(self._found.get, same), None)

    def outcomes(self, tasks: list[LabelTask], retries: int) -> Outcomes:  # noqa: ARG002
        for task in tasks:
            reason = self._reason(task.place)
            found = None if reason is not None else self._losses(task.place)
            if found is None and reason is None:
                found = no_losses(self._data.plan, task.place)
            yield Outcome(task, found, reason, 0.0, 1, 0.0)
