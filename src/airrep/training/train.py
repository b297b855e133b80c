"""Train the encoder to rank subsets by their labels."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace as replaced
from pathlib import Path
from typing import Any

import torch

from airrep.attributors.recipes import Channel
from airrep.errors import ConfigError, DataError
from airrep.evaluation.statistics.labels import normalise_losses
from airrep.labels.labels import LabelledInstance, check_disjoint
from airrep.runtime.artifacts.manifests import partial_path
from airrep.runtime.devices import resolve_device, resolve_precision, team_of
from airrep.runtime.metering import JUDGE, SETUP, append_cost, device_of, measuring
from airrep.runtime.publishing import writing
from airrep.runtime.remote.places import here_only
from airrep.runtime.stage import Stage
from airrep.training.result import (
    WORK,
    TrainingResult,
    finish,
    is_sealed,
    open_result,
    remove_work,
    training_stage,
)
from airrep.training.run import Material, OnRecord, Task, TrainingRun
from airrep.training.settings import TrainingSettings
from airrep.training.start import load_start


@torch.inference_mode(False)  # gradients are wanted wherever the caller has switched them off
def train_encoder(
    instances: Sequence[LabelledInstance],
    held_out: Sequence[LabelledInstance],
    out: str | Path,
    settings: TrainingSettings | Mapping[str, Any] | None = None,
    *,
    test: Sequence[LabelledInstance] = (),
    beside: Sequence[Channel] = (),
    lineage: Mapping[str, Any] | None = None,
    activations: str | Path | None = None,
    seconds: float | None = None,
    progress: OnRecord | None = None,
    replace: bool = False,
) -> TrainingResult:
    """Train an encoder so that pooled scores rank the subsets of instances as their losses do.

    Each step takes one instance, some of its queries and subsets, encodes every example once, pools scores to group
    scores (Eq. 6) and follows the exact gradient of the ranking loss (Eq. 8) against the labels (Eq. 7). The folder
    gets its name when it is complete. A run that was interrupted resumes from its last checkpoint, on the same
    trajectory; on a CPU with one thread it ends in the same bytes. A finished run with the same inputs is returned as
    it is. Under ``torchrun`` the processes share the texts and the queries of each step.

    Args:
        instances: labelled instances to learn from.
        held_out: unseen instances that choose the best step and stop early; without any, the last step is taken.
        out: the folder to make; `load_encoder` and `SentenceTransformer` load it.
        settings: the defaults are the paper's.
        test: instances that no choice depends on; they are scored once, for the model card.
        beside: channels whose sum with the encoder ranks the subsets (:mod:`airrep.training.linear.weights`), for an
            encoder that becomes one more channel, as in `airrep adapt`.
        lineage: JSON values for the card, such as the language model's name under ``"lm"``.
        activations: folder of the activations of frozen layers, to be shared by several runs; within the unfinished
            run when None. They do not change results.
        seconds: longest time for steps in this call; training then ends as by early stopping.
        progress: told every line of ``steps.jsonl``.
        replace: replace an existing encoder that differs.

    Raises:
        ConfigError: settings or channels that are not valid, or no instances.
        DataError: a held-out or test example was trained on, nothing can be judged by such an instance's losses, or a
            channel scores all subsets alike.
        TrainingError: labels that nothing can be learnt from, or a loss or gradient that is not finite.
        ArtifactError: something else is there, another process is training there, or it cannot be written.

    Example:
        >>> settings = {"steps": 2, "warmup_steps": 1}
        >>> trained = airrep.train_encoder(instances[:1], instances[1:], "runs/encoder", settings)
    """
    chosen = TrainingSettings.given(settings)
    precision = resolve_precision(chosen.precision, resolve_device(chosen.device))  # which decides the result
    chosen = chosen.model_copy(update={"precision": precision})
    _check_instances(instances, held_out, test)
    task = Task(load_start(chosen), instances, held_out, test, chosen, beside)
    stage = training_stage(out, task.request(lineage or {}), replace)
    with team_of(chosen.device) as team:
        if stage.finished() is None:
            task = replaced(task, team=team, progress=progress, seconds=seconds)
            _train(task, stage, None if activations is None else here_only(activations, "activations are kept"))
        team.wait()  # only the first process gives the folder its name
    return open_result(stage.path)


def _check_instances(
    instances: Sequence[LabelledInstance], held_out: Sequence[LabelledInstance], test: Sequence[LabelledInstance]
) -> None:
    """Refuse, before hours of training, what cannot be learnt from, or judged by."""
    if not instances:
        raise ConfigError("training: there are no instances; expected at least one. Give labelled instances.")
    names = [instance.name for part in (instances, held_out, test) for instance in part]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(f"instance '{twice}': comes twice; expected different names. Give each instance once.")
    check_disjoint(instances, held_out)
    check_disjoint([*instances, *held_out], test)
    for instance in (*held_out, *test):
        try:
            normalise_losses(instance.losses)
        except DataError as error:
            raise DataError(f"instance '{instance.name}': {error}") from error


def _train(task: Task, stage: Stage, activations: Path | None) -> None:
    """Train in the folder that the first process holds, and seal it."""
    material = Material.of(task)  # before there is a folder: labels that teach nothing are refused here
    first, sealed = task.team.first, is_sealed(stage)
    task.team.wait()  # until all processes have looked, as the first one changes the folder
    with stage.making() if first else nullcontext(partial_path(stage.path)) as partial:
        if sealed:
            if first:
                remove_work(partial)
            return
        if first:
            with writing(partial):
                (partial / WORK).mkdir(exist_ok=True)
        task.team.wait()  # until the first process has made the folder
        with measuring(device_of(task.settings)) as setup:
            run = TrainingRun(task, material, partial, activations or partial / WORK / "activations")
        if first:
            append_cost(partial, SETUP, setup.spent)
        run.train()
        with measuring(device_of(task.settings)) as judging:
            checkpoint = run.finished(stage.request["lineage"])
        if first:
            append_cost(partial, JUDGE, judging.spent)
            finish(stage, partial, checkpoint, task.start.prompts)
