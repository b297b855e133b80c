"""Fit datamodels: regress losses on which examples were in the subset.

Targets ``(q, m)`` are regressed on the rows of one design ``(m, n)``; there are usually far more columns than rows.
Slopes are fitted on centred columns, so an intercept is never penalised.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import Field, model_validator

from airrep.arrays import Rows
from airrep.attributors.datamodels import KIND, write_datamodels
from airrep.errors import ConfigError, DataError, many, need
from airrep.evaluation.given import InstancesLike, labelled_instances
from airrep.evaluation.statistics.bootstrap import Draws, Resamples, bootstrap_spread, varies
from airrep.evaluation.statistics.means import Interval
from airrep.evaluation.statistics.metrics import RESAMPLES, LdsResult, lds
from airrep.labels.labels import LabelledInstance, identity
from airrep.runtime.artifacts import new_artifact, real_path
from airrep.runtime.seeding import stream
from airrep.runtime.settings import Settings
from airrep.runtime.stage import Stage
from airrep.sparse import SparseRows

RIDGE = np.logspace(-3, 4, 15)
"""Penalties of ridge regression that are tried, as multiples of the design's mean eigenvalue."""


class RegressionSettings(Settings):
    """Settings of the regressions of `airrep train --method datamodels`."""

    folds: int = Field(default=5, ge=3)
    """Number of folds that the subsets are cut into for cross-validation."""
    seed: int = Field(default=0, ge=0)
    """Random seed."""

    @model_validator(mode="before")
    @classmethod
    def _ridge_alone(cls, values: dict[str, Any]) -> dict[str, Any]:
        if values.get("penalty", "ridge") != "ridge":
            raise ConfigError(f"penalty={values['penalty']}: was removed; only ridge is left. Leave penalty out.")
        return {name: value for name, value in values.items() if name != "penalty"}


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
        settings: settings of the regressions, or a dict of some of them.
        lineage: origin of the labels, for the manifest.
        resamples: bootstrap draws behind each interval.
        replace: replace existing datamodels.

    Raises:
        ConfigError: too few subsets for the folds, an invalid setting, or not exactly one instance.
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
    told = {"penalty": "ridge", **chosen.model_dump()}  # requests keep this key from when there were other penalties
    request = {"instance": identity(instance), "settings": told, "resamples": resamples}
    finished = Stage(path, KIND, "datamodels made", request, replace).finished(verify=True)
    if finished is not None:
        return Datamodels(path, finished["report"])
    problem = _problem_of(instance)
    design = problem.design
    regression = RidgePath(design)
    judged = cross_validate(regression, problem.targets, chosen.folds, chosen.seed)
    found = _describe(instance, problem, judged, resamples)
    shown = {"instance": instance.name, "cross-validated": f"LDS × 100 {100 * found['report']['lds']:+.1f}"}
    content = found | {"request": request, "lineage": dict(lineage or {}), "provenance": shown}
    with new_artifact(path, KIND, content, replace=replace) as folder:
        weights = regression.weights(problem.targets, judged.chosen)
        write_datamodels(folder, weights, problem.train, problem.queries)
        np.save(folder / "penalties.npy", regression.penalties(judged.chosen))
        predicted = design.sum(axis=0) / design.shape[0] @ weights
        np.save(folder / "intercepts.npy", problem.targets.mean(axis=1) - predicted)
        instance.train.to_jsonl(folder / "train.jsonl")
        instance.queries.to_jsonl(folder / "queries.jsonl")
    return Datamodels(path, content["report"])


def the_only(instances: list[LabelledInstance], choice: str) -> LabelledInstance:
    """Return the only instance of *choice* (ConfigError: it has none or several)."""
    if len(instances) != 1:
        raise ConfigError(
            f"{choice}: these labels (measured losses) have {len(instances)} instances (parts with separate examples "
            "and queries), but --method datamodels needs exactly one. Choose an instance by its name after #: "
            f"{choice.partition('#')[0]}#0"
        )
    return instances[0]


def _problem_of(instance: LabelledInstance) -> _Problem:
    known = ~np.isnan(instance.losses).any(axis=0)
    if known.sum() < 2:
        raise DataError(
            f"instance {instance.name} (train/query split): only {many(int(known.sum()), 'subset has', 'subsets have')}"
            " a loss for every query, and at least two are needed. Finish the run of `airrep label`."
        )
    train, column = np.unique(instance.train.content_hashes, return_inverse=True)
    queries, place = np.unique(instance.queries.content_hashes, return_inverse=True)
    subsets = instance.subsets
    design = SparseRows.counts(column[subsets.rows], subsets.offsets, len(train))
    rewards = -instance.losses[:, known].astype(np.float64)
    # A text that is asked twice is one query, with the mean of its losses.
    targets = np.zeros((len(queries), rewards.shape[1]))
    np.add.at(targets, place, rewards)
    return _Problem(train, queries, design[np.flatnonzero(known)], targets / np.bincount(place)[:, None])


def _describe(
    instance: LabelledInstance, problem: _Problem, judged: "CrossValidated", resamples: int
) -> dict[str, Any]:
    """Describe the data and the quality of the regressions, for the manifest."""
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
    """Turn an interval into JSON, which has no NaN."""
    return [float(end) for end in interval] if np.isfinite(interval).all() else None


class RidgePath:
    """Ridge: least Σ_j (y_j − ⟨w, x_j⟩)² + λ|w|². One eigendecomposition serves all targets and penalties.

    Only the products of rows are needed: with K = XXᵀ of centred rows, w = Xᵀ(K + λI)⁻¹y.
    """

    def __init__(self, design: SparseRows) -> None:
        self._design = design.astype(np.float64)
        self._products = self._design.gram()
        own = self._products.mean(axis=0)
        # The mean diagonal of the centred products is the mean eigenvalue; the floor serves a design without variance.
        self._grid = RIDGE * max(float(np.mean(np.diag(self._products) - 2 * own + own.mean())), 1e-12)

    def slopes(self, seen: Rows, asked: Rows, targets: np.ndarray) -> Iterator[np.ndarray]:
        """Yield, for each penalty, predictions ``(q, asked)`` by a fit on the rows *seen*, without the intercept.

        A prediction is the inner product of the weights with a row minus the mean row seen.
        """
        values, vectors, projected = self._decompose(seen, targets)
        across = self._products[np.ix_(asked, seen)]
        own = self._products[np.ix_(seen, seen)].mean(axis=0)
        basis = (across - across.mean(axis=1, keepdims=True) - own + own.mean()) @ vectors
        for penalty in self._grid:
            yield (projected / (values + penalty)) @ basis.T

    def weights(self, targets: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        """Return weights ``(n, q)`` float32 of a fit on all rows, with penalty number ``chosen[i]`` for target i."""
        values, vectors, projected = self._decompose(np.arange(len(self._products)), targets)
        dual = (projected / (values + self._grid[chosen][:, None])) @ vectors.T
        return (self._design.T @ dual.T).astype(np.float32)

    def penalties(self, chosen: np.ndarray) -> np.ndarray:
        """Return each target's penalty, ``(q,)``, from the penalty's number."""
        return self._grid[chosen]

    def _decompose(self, seen: Rows, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Eigenvalues and vectors of the centred products, and the centred targets in their basis."""
        products = self._products[np.ix_(seen, seen)]
        own = products.mean(axis=0)
        values, vectors = np.linalg.eigh(products - own - own[:, None] + own.mean())
        return values.clip(min=0), vectors, _centred(targets[:, seen]) @ vectors


def _centred(targets: np.ndarray) -> np.ndarray:
    return targets - targets.mean(axis=1, keepdims=True)


@dataclass(frozen=True, eq=False)
class CrossValidated:
    """Penalties, and predictions of rows by fits that did not see them."""

    chosen: np.ndarray
    """``(q,)`` int64 number of the penalty with the least squared error over all folds."""
    slopes: np.ndarray
    """``(q, m)`` predictions without intercepts, so that different folds can be compared."""
    predictions: np.ndarray
    """``(q, m)`` predictions with intercepts."""


def cross_validate(path: RidgePath, targets: np.ndarray, folds: int, seed: int) -> CrossValidated:
    """Choose each target's penalty by cross-validation, and predict every row by a fit that did not see it.

    Each fold is predicted by a fit on the other folds, with a penalty chosen by cross-validation within them. So no
    prediction depends on the row that it is judged on. *targets* are ``(q, m)``; *seed* decides the cut.
    ConfigError: fewer than 3 folds, or fewer than two rows in each.
    """
    m = targets.shape[1]
    if not 3 <= folds <= m // 2:
        raise ConfigError(
            f"folds={folds}: {many(m, 'subset is', 'subsets are')} too few, since each fold needs at least 2. "
            "Lower folds (3 is the least), or measure losses for more subsets."
        )
    parts = [np.sort(part) for part in np.array_split(stream(seed, "folds").permutation(m), folds)]
    slopes, predictions = np.empty(targets.shape), np.empty(targets.shape)
    for number, asked in enumerate(parts):
        others = parts[:number] + parts[number + 1 :]
        chosen, seen = _choose(path, targets, others), np.sort(np.concatenate(others))
        found = np.stack(list(path.slopes(seen, asked, targets)))[chosen, np.arange(len(targets))]
        slopes[:, asked] = found
        predictions[:, asked] = found + targets[:, seen].mean(axis=1, keepdims=True)
    return CrossValidated(_choose(path, targets, parts), slopes, predictions)


def _choose(path: RidgePath, targets: np.ndarray, parts: Sequence[Rows]) -> np.ndarray:
    """Return the number of each target's penalty with the least squared error, ``(q,)``; the first if several tie."""
    errors: np.ndarray | float = 0.0
    for number, asked in enumerate(parts):
        seen = np.sort(np.concatenate([*parts[:number], *parts[number + 1 :]]))
        wanted = targets[:, asked] - targets[:, seen].mean(axis=1, keepdims=True)
        errors = errors + np.stack([((wanted - found) ** 2).sum(axis=1) for found in path.slopes(seen, asked, targets)])
    return np.asarray(errors).argmin(axis=0)


def r_squared(predictions: np.ndarray, targets: np.ndarray, resamples: int = RESAMPLES) -> tuple[float, Interval]:
    """R² = 1 − Σ_j (y_j − ŷ_j)² / Σ_j (y_j − ȳ)², mean over targets that vary, with a 95 % two-way interval.

    *predictions* and *targets* are ``(q, m)``.
    """
    known = varies(targets)
    wanted, errors = _centred(targets[known]), (predictions[known] - targets[known]) ** 2
    q, m = wanted.shape
    drawn = Resamples.draw(0, resamples, q, m)
    plain = _explained(errors, wanted, np.ones((1, m)))[0]
    anew = _explained(errors, wanted, drawn.subsets.astype(np.float64))
    of_queries = drawn.queries / drawn.queries.sum(axis=1, keepdims=True)
    draws = Draws((anew * of_queries).sum(axis=1), of_queries @ plain, anew.mean(axis=1))
    value = float(plain.mean())
    values = bootstrap_spread(draws, value, q, m)
    low, high = np.quantile(values, [0.025, 0.975]) if len(values) else (np.nan, np.nan)
    return value, Interval(float(low), min(float(high), 1.0))  # R² has no least value


def _explained(errors: np.ndarray, wanted: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return R² of each target if row j counts ``counts[:, j]`` times, ``(draws, q)``; NaN for a constant target."""
    total = counts @ (wanted**2).T - (counts @ wanted.T) ** 2 / counts.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        found: np.ndarray = np.where(total > 0, 1 - (counts @ errors.T) / total, np.nan)
    return found
