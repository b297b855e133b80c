"""Real runs on this machine, and predictions beside them."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from airrep.attributors.methods import method_named
from airrep.attributors.recipes import short_text
from airrep.errors import AirRepError, ConfigError
from airrep.labels.labels import Labels, holds_labels, open_labels
from airrep.lm.settings import LmSettings
from airrep.planning.plan import Predicted, PredictionCheck
from airrep.planning.plan_request import ENCODER, Measures, PlanRequest
from airrep.planning.predict import label_rates, lm_name, method_cost, planned_memory, step_text_seconds
from airrep.runtime.artifacts.manifests import read_manifest
from airrep.runtime.artifacts.names import MANIFEST, REQUEST
from airrep.runtime.costs import Conditions, index_cost, label_cost, training_cost
from airrep.runtime.metering import describe_machine, device_of
from airrep.training.settings import TrainingSettings

EXECUTION = {"lm", "device", "precision", "batch_tokens", "store", "encoder", "pool", "temperature"}
"""Settings that change no features, or that are compared by themselves."""
LABELS, TRAINING = "labels", "training"
"""Kinds of runs, beside methods."""
OTHER_LM = "another LM of that name, or another max_tokens"
BY_THE_CLOCK = "measured by the clock, which counts waiting"
DEPTH, MOST = 4, 5000
"""How deep below a folder runs are looked for, and in how many folders at most."""


@dataclass(frozen=True)
class RealRun:
    """What a real run took, and how it would have been predicted."""

    subject: str
    """What it tells about: a method, labels or training."""
    what: str
    measured: float
    """Seconds."""
    conditions: tuple[str, ...]
    """What was different there."""
    predict: Callable[[Measures], Predicted]
    same_model: bool = True
    """Whether it read the LM, or the encoder, that is planned for."""
    alike: tuple[bool, bool] = (True, True)
    """Whether its settings, and its texts, are those planned for."""
    memory: Callable[[Measures], tuple[float, float]] | None = None
    """Peak bytes of a process, predicted and measured; None where they are not known."""
    lm_fingerprint: str | None = None
    """Of the LM that labels were made with."""

    def compare(self, measures: Measures) -> PredictionCheck:
        """The two beside each other."""
        planned = None if measures.labels is None else measures.labels.fingerprint
        lms = {self.lm_fingerprint or planned, planned}
        conditions = (*self.conditions, *((OTHER_LM,) if self.same_model and len(lms) > 1 else ()))
        predicted = self.predict(measures)
        return PredictionCheck(
            what=self.what,
            predicted_seconds=predicted.value,
            predicted_interval=predicted.interval,
            measured_seconds=self.measured,
            ratio=predicted.value / self.measured if self.measured > 0 else None,
            conditions=conditions,
            memory_bytes=None if self.memory is None else self.memory(measures),
        )


def real_run(request: PlanRequest, run: Path) -> RealRun:
    """Read what a run took.

    Args:
        request: what is planned.
        run: an index, labels, or a trained encoder.

    Raises:
        ConfigError: something else, a method that is not planned for, or a run whose cost is not known.
        ArtifactError: there is none, or it was altered.
    """
    if holds_labels(run):
        return _labels(request, _learnt_with_lm(request, run), run)
    manifest = read_manifest(run)
    if manifest["kind"] == "index":
        return _index(request, run, manifest)
    if manifest["kind"] == "encoder":
        _learnt_with_lm(request, run)
        return _training(request, run, manifest)
    raise ConfigError(f"{run}: is of kind '{manifest['kind']}'; expected an index, labels or an encoder. Leave it out.")


def _learnt_with_lm(request: PlanRequest, run: Path) -> LmSettings:
    """The LM that labels and training are planned with (ConfigError where they are not)."""
    if request.lm is None:
        raise ConfigError(f"{run}: labels and training are not planned for without an LM. Give --lm, or leave it out.")
    return request.lm


def _index(request: PlanRequest, run: Path, manifest: Mapping[str, Any]) -> RealRun:
    name, cost = manifest["method"], index_cost(run, manifest)
    if name not in (ENCODER, *request.methods):
        raise ConfigError(f"{run}: is of method '{name}', which is not planned for. Add --method {name}.")
    if cost is None or cost.seconds_per_example is None:
        raise _unknown(run, "it was not recorded, or features were found ready made")
    examples = cost.encoding.examples
    fit = cost.encoding.fit_wall_seconds if cost.by_clock else cost.encoding.fit_seconds
    there = replace(request, examples=examples)

    def predict(measures: Measures) -> Predicted:
        found = method_cost(there, measures.methods[name])
        encoding = found.each.times(examples)
        return encoding if fit is None else encoding.plus(found.fixed)

    def memory(measures: Measures) -> tuple[float, float]:
        return planned_memory(there, measures.methods[name]), float(cost.memory or 0)

    given = request.settings_of(name) if name != ENCODER else {"encoder": request.encoder}
    method = method_named(name)
    planned = method.settings.of({**method.defaults, **method.new, **given}).model_dump(mode="json")
    others = list(_models(planned, manifest["settings"]))
    settings = list(_settings(short_text(planned), short_text(manifest["settings"])))
    conditions = [*others, *settings, *_surroundings(request, cost.conditions)]
    same_texts = any(corpus["fingerprint"] == request.texts.fingerprint for corpus in manifest["corpora"])
    if not same_texts:
        conditions.append("other texts")
    return RealRun(
        subject=name,
        what=f"{run.name}: {examples:,} examples by {name}{'' if fit is None else ', with its fit'}",
        measured=cost.seconds_per_example * examples + (fit or 0.0),
        conditions=tuple(conditions),
        predict=predict,
        same_model=not others,
        alike=(not settings, same_texts),
        memory=None if cost.memory is None else memory,
    )


def _unknown(run: Path, why: str) -> ConfigError:
    return ConfigError(f"{run}: what it cost is not known: {why}. Leave it out.")


def _models(planned: Mapping[str, Any], there: Mapping[str, Any]) -> Iterator[str]:
    """An LM or an encoder other than that planned for."""
    for key in ("lm", "encoder"):
        if key in planned and lm_name(str(planned[key])) != lm_name(str(there.get(key))):
            yield f"{key} {lm_name(str(there.get(key)))}"


def _settings(planned: Mapping[str, Any], there: Mapping[str, Any]) -> Iterator[str]:
    """Other settings that differ from those planned for."""
    for key in planned:
        if key not in EXECUTION and there.get(key) != planned[key]:
            yield f"{key} {there.get(key)}, planned {planned[key]}"


def _surroundings(request: PlanRequest, there: Conditions) -> Iterator[str]:
    """Device, threads and machine, where they are known and others."""
    device = device_of(request)
    if there.devices not in ((), (device,)):
        yield f"on {' and '.join(there.devices)}, planned {device}"
    if there.threads not in ((), (1,)):
        yield f"{' and '.join(map(str, there.threads))} threads, planned 1"
    if there.machines not in ((), (describe_machine(),)):
        yield f"on {' and '.join(there.machines)}"


def _precision(request: PlanRequest, there: str | None, planned: str) -> Iterator[str]:
    """A precision of matrix products, where it is known and another; runs say what ``"auto"`` meant for them."""
    from airrep.runtime.devices import resolve_precision

    ours = resolve_precision(planned, device_of(request))
    if there not in (None, ours):
        yield f"in {there}, planned {ours}"


def _labels(request: PlanRequest, planned: LmSettings, run: Path) -> RealRun:
    labels, cost = open_labels(run), label_cost(run)
    if cost is None:
        raise _unknown(run, "it has no times.jsonl")
    if "epochs" not in labels.state["fine_tune"]:
        raise _unknown(run, "another trainer made it")
    size, queries = _sizes(labels)
    epochs, tuned = labels.state["fine_tune"]["epochs"] / request.tuning.epochs, cost.fine_tunes

    def predict(measures: Measures) -> Predicted:
        tune, ask = label_rates(request, measures)
        return tune.times(tuned * size * epochs).plus(ask.times(tuned * queries))

    lm = labels.state["lm"]
    same = lm["name"] == lm_name(planned.lm)
    measured, by_clock = _measured(request, cost.cpu_seconds, cost.seconds)
    known = {f"lm {lm['name']}": not same, "other texts": request.texts.fingerprint != labels.state["train"]}
    return RealRun(
        subject=LABELS,
        what=f"{run.name}: {tuned:,} fine-tunes on {size:,.0f} examples",
        measured=measured,
        conditions=(
            *by_clock,
            *(name for name, holds in known.items() if holds),
            *_precision(request, labels.state.get("precision"), planned.precision),
        ),
        predict=predict,
        same_model=same,
        alike=(True, not known["other texts"]),
        lm_fingerprint=lm["fingerprint"],
    )


def _measured(request: PlanRequest, cpu: float | None, clock: float) -> tuple[float, tuple[str, ...]]:
    """Seconds, and what is to be said of them: those of the CPU, where they are planned for and known."""
    return (cpu, ()) if cpu is not None and device_of(request) == "cpu" else (clock, (BY_THE_CLOCK,))


def _sizes(labels: Labels) -> tuple[float, float]:
    """Mean examples of a subset, and mean queries of an instance."""
    plan = labels.plan
    sizes = [len(plan.subset_rows(i, j)) for i in range(len(plan)) for j in range(plan.subset_count)]
    return sum(sizes) / len(sizes), sum(len(plan.query_rows(i)) for i in range(len(plan))) / len(plan)


def _training(request: PlanRequest, run: Path, manifest: Mapping[str, Any]) -> RealRun:
    cost = training_cost(run)
    if cost is None:
        raise _unknown(run, "it has no times.jsonl")
    texts, settings = cost.texts, manifest["request"]["settings"]
    layers, (measured, by_clock) = (
        settings["train_layers"],
        _measured(request, cost.step_cpu_seconds, cost.step_seconds),
    )
    other = (
        () if str(layers) == str(request.train_layers) else (f"train_layers {layers}, planned {request.train_layers}",)
    )
    return RealRun(
        subject=TRAINING,
        what=f"{run.name}: {cost.steps:,} training steps over {texts:,} texts",
        measured=measured,
        conditions=(
            *by_clock,
            "on texts of its own",
            *other,
            *_precision(request, settings.get("precision"), TrainingSettings.model_fields["precision"].default),
            *_surroundings(request, cost.conditions),
        ),
        predict=lambda measures: step_text_seconds(request, measures).times(texts),
        alike=(not other, False),
    )


def runs_against(request: PlanRequest, given: Sequence[Path]) -> list[RealRun]:
    """Real runs to compare a plan with: those given, and the best ones of folders that are given.

    Raises:
        ConfigError: a run that is not planned for or whose cost is not known, or a folder without any that could serve.
        ArtifactError: there is no such run, or it was altered.
    """
    found: list[RealRun] = []
    for path in given:
        if not path.is_dir() or (path / MANIFEST).exists() or holds_labels(path):
            found.append(real_run(request, path))
            continue
        below = list(last_runs(request, path).values())
        if not below:
            raise ConfigError(
                f"{path}: no index, labels or encoder below it is planned for and has a known cost. Name a run."
            )
        found.extend(below)
    return found


def last_runs(request: PlanRequest, folder: Path) -> dict[Path, RealRun]:
    """A run of each planned method, of labels and of training below a folder, by path.

    Those of the settings and texts that are planned for come first, of these the newest.
    Indexes and labels of another LM or encoder, and runs that cannot be compared, are passed over.
    """
    best: dict[str, tuple[Path, RealRun]] = {}
    for path in sorted(_runs(folder), key=_written, reverse=True):
        try:
            run = real_run(request, path)
        except AirRepError:
            continue
        if run.same_model and (run.subject not in best or run.alike > best[run.subject][1].alike):
            best[run.subject] = (path, run)
    return dict(best[subject] for subject in sorted(best))


def _runs(folder: Path) -> Iterator[Path]:
    """What airrep wrote, finished, and labels in the making; hidden folders and links are not entered."""
    for looked, (name, folders, files) in enumerate(os.walk(folder)):
        path = Path(name)
        if MANIFEST in files or REQUEST in files:
            folders.clear()
            if path.suffix != ".partial":
                yield path
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        if len(path.relative_to(folder).parts) >= DEPTH:
            folders.clear()
        if looked >= MOST:
            return


def _written(path: Path) -> float:
    """When the last of its files was added."""
    return path.stat().st_mtime
