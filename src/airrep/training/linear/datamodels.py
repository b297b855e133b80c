"""Fit datamodels: regress losses on who was in the subset."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

from airrep.attributors.datamodels import KIND, write_datamodels
from airrep.corpus.corpus import Corpus
from airrep.errors import ConfigError, DataError, need
from airrep.evaluation.given import InstancesLike, labelled_instances
from airrep.evaluation.statistics.means import Interval
from airrep.evaluation.statistics.metrics import RESAMPLES, LdsResult, lds
from airrep.labels.instance import LabelledInstance, identity
from airrep.runtime.artifacts.making import new_artifact, real_path
from airrep.runtime.settings import Settings
from airrep.runtime.stage import Stage
from airrep.sparse import SparseRows
from airrep.training.linear.regression import (
    CrossValidated,
    LassoPath,
    PenaltyPath,
    RidgePath,
    cross_validate,
    r_squared,
)


class RegressionSettings(Settings):
    """Settings of the regressions of `airrep train --method datamodels`."""

    penalty: Literal["ridge", "lasso"] = "ridge"
    """'ridge' solves all queries at once. 'lasso' solves one by one, as the datamodels paper does, and is slow."""
    folds: int = Field(default=5, ge=3)
    """Parts that the subsets are cut into, for cross-validation."""
    seed: int = Field(default=0, ge=0)
    """Random seed."""


@dataclass(frozen=True)
class Datamodels:
    """Regressions of one instance's queries, and how well they predict subsets that they have not seen."""

    path: Path
    report: Mapping[str, Any]
    """``lds`` and ``r_squared``, cross-validated, with their intervals and counts."""

    @property
    def lds(self) -> float:
        """Cross-validated LDS, between −1 and 1."""
        return float(self.report["lds"])


class _Problem(NamedTuple):
    """Data of the regressions; equal texts are one column, or one query."""

    train: np.ndarray
    """``(n,)`` content hashes, ascending."""
    queries: np.ndarray
    """``(q,)`` content hashes, ascending."""
    design: SparseRows
    """``(m, n)`` how often each text is in each subset."""
    targets: np.ndarray
    """``(q, m)`` −loss, float64."""


def fit_datamodels(
    instance: InstancesLike,
    out: str | Path,
    settings: RegressionSettings | Mapping[str, Any] | None = None,
    *,
    lineage: Mapping[str, Any] | None = None,
    resamples: int = RESAMPLES,
    replace: bool = False,
) -> Datamodels:
    """Fit, for each query, −ℓ(x, S) ≈ b_x + Σ_{z∈S} w_xz over the labelled subsets S, and write the weights.

    A text that is several times in the train pool is one unknown, counted as often as a subset holds it. Subsets
    without a loss for every query are left out. Existing datamodels of the same request are returned.

    Args:
        instance: queries, train pool, subsets and losses; or a list of one.
        out: the directory to make; it also gets the examples, as ``train.jsonl`` and ``queries.jsonl``.
        settings: of the regressions, or a dict of some of them.
        lineage: origin of the labels, for the manifest.
        resamples: bootstrap draws behind each interval.
        replace: replace existing datamodels.

    Raises:
        ConfigError: too few subsets for the folds, or a setting that cannot hold.
        DataError: fewer than two subsets have losses, or no query's loss varies.
        ArtifactError: something else is there, or it cannot be written.

    Example:
        >>> from airrep.training.linear.datamodels import fit_datamodels
        >>> models = fit_datamodels(instances[0], "runs/datamodels")
        >>> "lds" in models.report
        True
    """
    need("airrep train --method datamodels", "evaluation", "scipy")
    instance = the_only(labelled_instances(instance, "datamodels"), "datamodels")
    chosen, path = RegressionSettings.given(settings), real_path(out)
    request = {"instance": identity(instance), "settings": chosen.model_dump(), "resamples": resamples}
    finished = Stage(path, KIND, "datamodels made", request, replace).finished(verify=True)
    if finished is not None:
        return Datamodels(path, finished["report"])
    problem = _problem_of(instance)
    regression = _regression(chosen, problem)
    judged = cross_validate(regression, problem.targets, chosen.folds, chosen.seed)
    found = _describe(instance, problem, judged, resamples)
    shown = {"instance": instance.name, "cross-validated": f"LDS × 100 {100 * found['report']['lds']:+.1f}"}
    content = found | {"request": request, "lineage": dict(lineage or {}), "provenance": shown}
    with new_artifact(path, KIND, content, replace=replace) as folder:
        weights = regression.weights(problem.targets, judged.chosen)
        write_datamodels(folder, weights, problem.train, problem.queries)
        np.save(folder / "penalties.npy", regression.penalties(judged.chosen))
        np.save(folder / "intercepts.npy", _intercepts(problem, weights))
        instance.train.to_jsonl(folder / "train.jsonl")
        instance.queries.to_jsonl(folder / "queries.jsonl")
    return Datamodels(path, content["report"])


def the_only(instances: list[LabelledInstance], choice: str) -> LabelledInstance:
    """The instance of a choice that must name one.

    Raises:
        ConfigError: it names several.
    """
    if len(instances) != 1:
        raise ConfigError(
            f"{choice}: has {len(instances)} instances; expected one, as weights belong to its queries. "
            f"Choose it: {choice.partition('#')[0]}#0"
        )
    return instances[0]


def _problem_of(instance: LabelledInstance) -> _Problem:
    known = ~np.isnan(instance.losses).any(axis=0)
    if known.sum() < 2:
        raise DataError(
            f"instance {instance.name}: {int(known.sum())} subsets have losses of all queries; expected two or more. "
            "Finish the label run."
        )
    train, column = _texts(instance.train)
    queries, place = _texts(instance.queries)
    subsets = instance.subsets
    design = SparseRows.counts(column[subsets.rows], subsets.offsets, len(train))
    rewards = -instance.losses[:, known].astype(np.float64)
    # The same text asked twice is one query, with the mean of its losses.
    targets = np.zeros((len(queries), rewards.shape[1]))
    np.add.at(targets, place, rewards)
    return _Problem(train, queries, design[np.flatnonzero(known)], targets / np.bincount(place)[:, None])


def _texts(corpus: Corpus) -> tuple[np.ndarray, np.ndarray]:
    """Content hashes, ascending and each once, and the place of each example among them."""
    found, place = np.unique(corpus.content_hashes, return_inverse=True)
    return found, place


def _regression(settings: RegressionSettings, problem: _Problem) -> PenaltyPath:
    return RidgePath(problem.design) if settings.penalty == "ridge" else LassoPath(problem.design, problem.targets)


def _intercepts(problem: _Problem, weights: np.ndarray) -> np.ndarray:
    """``(q,)`` float64: mean of the targets less the mean of what the weights predict."""
    predicted = problem.design.sum(axis=0) / problem.design.shape[0] @ weights
    found: np.ndarray = problem.targets.mean(axis=1) - predicted
    return found


def _describe(instance: LabelledInstance, problem: _Problem, judged: CrossValidated, resamples: int) -> dict[str, Any]:
    """The manifest's part on the data and the quality of the regressions."""
    # Slopes, as the intercepts of different folds would add their noise to the ranks.
    score: LdsResult = lds(judged.slopes, -problem.targets, resamples=resamples)
    value, interval = r_squared(judged.predictions, problem.targets, resamples)
    drawn = problem.design.sum(axis=0) > 0
    return {
        "instance": instance.name,
        "train": {"examples": len(instance.train), "texts": len(problem.train), "corpus": instance.train.fingerprint},
        "queries": {"examples": len(instance.queries), "corpus": instance.queries.fingerprint},
        "never_drawn": int((~drawn).sum()),
        "report": {
            "lds": score.value,
            "interval": _plain(score.interval),
            "r_squared": value,
            "r_squared_interval": _plain(interval),
            "queries": score.queries,
            "dropped": score.dropped,
            "subsets": score.subsets,
            "left_out": len(instance.subsets) - problem.targets.shape[1],
        },
    }


def _plain(interval: Interval) -> list[float] | None:
    """An interval for JSON, which has no NaN."""
    return [float(end) for end in interval] if np.isfinite(interval).all() else None
