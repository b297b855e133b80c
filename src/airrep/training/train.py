"""Train the encoder to rank subsets by their labels, step by step."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from airrep.arrays import GroupScores
from airrep.attributors.recipes import Channel
from airrep.encoder.cards import NO_PROMPTS
from airrep.encoder.networks.packed import Stored, Trainable, network_of, stored_with
from airrep.errors import ConfigError, DataError, TrainingError
from airrep.evaluation.judging import compare_held_out, held_out_lds
from airrep.evaluation.statistics.labels import normalise_losses
from airrep.evaluation.statistics.metrics import RESAMPLES, lds
from airrep.labels.labels import LabelledInstance, check_disjoint
from airrep.runtime.artifacts import partial_path
from airrep.runtime.devices import Team, resolve_device, resolve_precision, team_of
from airrep.runtime.metering import JUDGE, SETUP, Clocks, append_cost, clocks, device_of, measuring, since
from airrep.runtime.publishing import writing
from airrep.runtime.remote.places import here_only
from airrep.runtime.stage import Stage
from airrep.training.examples import Batches, Collector, Prepared, TaughtInstance, Texts, check_pairs
from airrep.training.linear.weights import GivenChannels, Mixture, describe_channels
from airrep.training.result import (
    WORK,
    TrainingResult,
    deciding,
    describe_instance,
    finish,
    is_sealed,
    open_result,
    remove_work,
    training_lineage,
    training_stage,
)
from airrep.training.settings import TrainingSettings
from airrep.training.start import begin, load_start, scale_scores, with_trainable_head
from airrep.training.state import Optimiser, StepLog, TrainingCheckpoint, load_best, load_state, save_best, save_state
from airrep.training.step import add_gradients
from airrep.training.trunk import make_trunk, put_weights, score_prepared

OnRecord: TypeAlias = Callable[[Mapping[str, Any]], None]
"""Callback that receives each record of ``steps.jsonl``, with the ``seconds`` that it took."""


@dataclass(frozen=True, eq=False)
class Task:
    """Start, data and settings of a training run."""

    start: Trainable
    instances: Sequence[LabelledInstance]
    held_out: Sequence[LabelledInstance]
    test: Sequence[LabelledInstance]
    settings: TrainingSettings
    beside: Sequence[Channel] = ()
    """Fixed channels, whose group scores are added to the encoder's."""
    team: Team = field(default_factory=Team)
    progress: OnRecord | None = None
    seconds: float | None = None
    """Time limit of the steps, in seconds; None sets none."""

    def request(self, lineage: Mapping[str, Any]) -> dict[str, Any]:
        """Return all inputs that decide the result."""
        parts = {"instances": self.instances, "held_out": self.held_out, "test": self.test}
        described = {name: [describe_instance(instance) for instance in part] for name, part in parts.items()}
        made_by = {"start": self.start.fingerprint, "settings": deciding(self.settings), "lineage": {**lineage}}
        given = {"beside": describe_channels(self.beside)} if self.beside else {}
        own = self.start.prompts
        return {**described, **made_by, **given, **({"prompts": [own.query, own.train]} if own != NO_PROMPTS else {})}


@dataclass(frozen=True, eq=False)
class Material:
    """Token ids of all texts, and instances whose examples are rows of them."""

    texts: Texts
    taught: list[TaughtInstance]
    held_out: list[Prepared]
    test: list[Prepared]

    @classmethod
    def of(cls, task: Task) -> "Material":
        collector, scale = Collector(task.start, task.settings.view), task.settings.label_scale
        taught = [collector.prepare_taught(instance, scale) for instance in task.instances]
        held_out, test = ([collector.prepare(one) for one in part] for part in (task.held_out, task.test))
        check_pairs(taught, task.settings.t_min)
        if task.beside:
            given = GivenChannels.of(task.beside, task.instances)
            taught = [replaced(one, given=scores) for one, scores in zip(taught, given.learnt, strict=True)]
            held_out, test = (
                [replaced(one, given=given.score(own)) for one, own in zip(prepared, part, strict=True)]
                for prepared, part in ((held_out, task.held_out), (test, task.test))
            )
        return cls(collector.texts(), taught, held_out, test)


class TrainingRun:
    """A training run, resumed from the last checkpoint in its folder if there is one."""

    def __init__(self, task: Task, material: Material, folder: Path, activations: Path) -> None:
        self._task, self._material, self._work = task, material, folder / WORK
        model = with_trainable_head(network_of(task.start), task.settings).to(task.team.device)
        self._trunk = make_trunk(model, self._material.texts, task.settings, task.team, activations)
        stored = load_state(self._work)
        self._checkpoint = self._begin() if stored is None else stored[0]
        scale_scores(model, self._checkpoint.scale)
        if self._checkpoint.weights is not None:
            mixture = Mixture(self._checkpoint.weights).to(task.team.device)
            self._trunk = replaced(self._trunk, beside=mixture)
        self._start = {name: weight.detach().clone() for name, weight in self._trunk.learning()}
        chosen, taught = task.settings, material.taught
        drawn = [one.usable_queries for one in taught], [one.usable_subsets for one in taught]
        self._batches = Batches(*drawn, chosen.queries_per_step, chosen.subsets_per_step, chosen.seed)
        self._optimiser = Optimiser(self._trunk, chosen, self._start)
        if stored is not None:
            self._optimiser.restore(stored[1])
        task.team.wait()  # until all have read the checkpoint, which the first process will replace
        self._log = StepLog(folder, self._checkpoint.step if stored is not None else -1) if task.team.first else None

    def _begin(self) -> TrainingCheckpoint:
        found = begin(self._trunk, self._material.taught, self._task.settings)
        if found.weights is None:
            return found
        # Machines may round their fits differently: all processes take the fit of the first.
        shared = torch.tensor(found.weights, dtype=torch.float64, device=self._task.team.device)
        self._task.team.sum_(shared if self._task.team.first else shared.zero_())
        return replaced(found, weights=shared.tolist())

    def train(self) -> None:
        """Take all steps that are left."""
        settings = self._task.settings
        if self._checkpoint.step == 0 and self._checkpoint.best is None:  # the start may be the best of all
            self._evaluate()
            self._save()
        deadline = time.monotonic() + (self._task.seconds or 0.0)
        while self._checkpoint.step < settings.steps and not self._checkpoint.stopped:
            self._step()
            # Clocks differ: the processes must agree on the last step.
            late = self._task.seconds is not None and self._task.team.any(time.monotonic() > deadline)
            if late or self._is_due(settings.evaluate_every):
                self._evaluate()
            if late:
                self._checkpoint = replaced(self._checkpoint, stopped=True)
            if self._is_due(settings.checkpoint_every) or self._checkpoint.stopped:
                self._save()

    def _is_due(self, every: int) -> bool:
        step = self._checkpoint.step
        return step % every == 0 or step == self._task.settings.steps

    def _step(self) -> None:
        began, step = clocks(), self._checkpoint.step
        draw = self._batches.draw(step)
        instance, settings = self._material.taught[draw.instance], self._task.settings
        if (instance.subsets.sizes == 1).all():
            # The pooled score of one example is its own score; the mean stays exact however much scores differ.
            settings = settings.model_copy(update={"pool": "mean"})
        try:
            loss, texts = add_gradients(self._trunk, instance, draw, settings, step)
        except TrainingError as error:
            raise TrainingError(f"step {step + 1}, instance {instance.name} (train/query split): {error}") from error
        length, rate = (0.0, 0.0) if loss is None else self._optimiser.update(step)
        if not math.isfinite(length):
            raise TrainingError(
                f"step {step + 1}, instance {instance.name} (train/query split): the gradient is not finite. Lower "
                "learning_rate or head_learning_rate, or use precision=float32."
            )
        self._checkpoint = replaced(self._checkpoint, step=step + 1)
        record = {"step": step + 1, "instance": instance.name, "loss": loss, "gradient_norm": length}
        sizes = {"queries": len(draw.queries), "subsets": len(draw.subsets), "texts": len(texts.rows)}
        tokens = int(self._material.texts.lengths[texts.rows].sum())
        self._tell({**record, "learning_rate": rate, **sizes, "tokens": tokens}, began)

    def _tell(self, record: dict[str, Any], began: Clocks) -> None:
        cpu, seconds = since(began)
        if self._log is not None:
            self._log.add(record, seconds, cpu)
        if self._task.progress is not None and self._task.team.first:
            self._task.progress({**record, "seconds": seconds})

    def _evaluate(self) -> None:
        """Measure LDS on the held-out instances; keep the weights if it is the best so far."""
        if not self._material.held_out:
            return
        began = clocks()
        scored = zip(self._scores(self._material.held_out), self._material.held_out, strict=True)
        values = {instance.name: lds(f, instance.losses, resamples=0).value for f, instance in scored}
        value = float(np.mean(list(values.values())))
        self._checkpoint = self._checkpoint.evaluated(value, self._task.settings.patience)
        # Weights are written before the checkpoint that names them.
        if self._checkpoint.best_step == self._checkpoint.step and self._task.team.first:
            save_best(self._work, self._checkpoint.step, self._optimiser.weights())
        self._tell({"step": self._checkpoint.step, "held_out_lds": value, "by_instance": values}, began)

    def _save(self) -> None:
        if self._task.team.first:
            save_state(self._work, self._checkpoint, self._optimiser.state())

    def _scores(self, instances: Sequence[Prepared], weights: Mapping[str, Tensor] | None = None) -> list[GroupScores]:
        """Score the groups of each instance, with *weights* put in place first if they are given."""
        if weights is not None:
            put_weights(self._trunk, weights)
        return [score_prepared(self._trunk, instance, self._task.settings.pool) for instance in instances]

    def finished(self, extra: Mapping[str, Any]) -> Stored:
        """Return the encoder at its best step, with its card."""
        checkpoint = self._checkpoint
        self._task.team.wait()  # until the first process has written the best weights
        best = self._optimiser.weights() if checkpoint.best is None else load_best(self._work, checkpoint)
        parts = {"held_out": self._material.held_out, "test": self._material.test}
        results = {name: self._compare(part, best) for name, part in parts.items() if part}
        taken = checkpoint.step if checkpoint.best is None else checkpoint.best_step
        training = {
            **training_lineage(self._task.instances, self._task.start, self._task.settings, extra),
            "scale": checkpoint.scale,
            "steps": checkpoint.step,
            "best_step": taken,
            "results": results,
        }
        if self._task.beside:
            training["beside"] = [channel.title for channel in self._task.beside]
        put_weights(self._trunk, best)
        card = replaced(self._task.start.card, training=training)
        if taken:
            sizes = [int(size) for instance in self._task.instances for size in instance.subsets.sizes]
            extremes = min(sizes), max(sizes)
            card = replaced(card, trained_for_attribution=True, trained_group_sizes=extremes, caution="")
        if taken or checkpoint.scale != 1:
            card = replaced(card, trained_pool=self._task.settings.pool)
        return stored_with(self._task.start.checkpoint, self._trunk.model.to("cpu"), card)

    def _compare(self, instances: Sequence[Prepared], best: Mapping[str, Tensor]) -> dict[str, Any]:
        """Compare LDS of the trained encoder and of its start, or of their sums with the given channels."""
        before, after = (self._scores(instances, weights) for weights in (self._start, best))
        return {
            "trained": held_out_lds(after, instances, RESAMPLES).to_dict(),
            "start": held_out_lds(before, instances, RESAMPLES).to_dict(),
            "gain": compare_held_out(after, before, instances, RESAMPLES).to_dict(),
        }


@torch.inference_mode(False)  # gradients are needed even where the caller has switched them off
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
        seconds: time limit of the steps in this call; training then stops early.
        progress: callback that receives each record of ``steps.jsonl``.
        replace: replace an existing encoder that differs.

    Raises:
        ConfigError: settings or channels that are not valid, or no instances.
        DataError: a held-out or test example was trained on, no held-out or test loss varies, or a channel scores
            all subsets alike.
        TrainingError: labels that nothing can be learnt from, or a loss or gradient that is not finite.
        ArtifactError: something else is there, another process is training there, or it cannot be written.

    Example:
        >>> settings = {"steps": 2, "warmup_steps": 1}
        >>> trained = airrep.train_encoder(instances[:1], instances[1:], "runs/encoder", settings)
    """
    chosen = TrainingSettings.given(settings)
    precision = resolve_precision(chosen.precision, resolve_device(chosen.device))  # precision decides the result
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
    """Refuse instances that cannot be trained or judged on, before hours of training."""
    if not instances:
        raise ConfigError("training: no labels (measured losses) are given. Pass airrep.open(LABELS).instances(TRAIN).")
    names = [instance.name for part in (instances, held_out, test) for instance in part]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(
            f"labels (measured losses): the instance '{twice}' is given twice. Pass it once: in instances, held_out "
            "or test."
        )
    check_disjoint(instances, held_out)
    check_disjoint([*instances, *held_out], test)
    for instance in (*held_out, *test):
        try:
            normalise_losses(instance.losses)
        except DataError as error:
            raise DataError(f"instance '{instance.name}': {error}") from error


def _train(task: Task, stage: Stage, activations: Path | None) -> None:
    """Train in the folder that the first process has locked, and seal the folder."""
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
