"""Try fine-tunes for labels, and training steps of an encoder."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from airrep.corpus.corpus import Corpus
from airrep.encoder.networks.trainable import Trainable, network_of
from airrep.labels.instance import LabelledInstance
from airrep.lm.model import load_lm
from airrep.lm.settings import FineTuneSettings, LmSettings
from airrep.planning.budget import STEP_QUERIES, STEP_SUBSETS
from airrep.planning.trial_method import encoder_lengths
from airrep.planning.trials import FIRST, LabelTrial, Pace, Repeats, Slices, TrainingTrial, memory_now, repeat
from airrep.runtime.devices import team_of
from airrep.runtime.metering import clocks, device_of, measuring
from airrep.runtime.seeding import stream
from airrep.scoring.groups import Groups
from airrep.training.result import WORK
from airrep.training.run import Material, Task, TrainingRun
from airrep.training.settings import TrainingSettings
from airrep.training.start import load_trainable

STEPS = 4
"""Training steps that are taken; the first warms up."""
MOST_TEXTS = 1000
"""Texts in a step that is tried."""


@dataclass(frozen=True)
class TuneTask:
    """Fine-tunes to be tried on at most *size* examples each, for about so many seconds."""

    lm: LmSettings
    tuning: FineTuneSettings
    size: int
    examples: Corpus
    seconds: float


def try_labels(task: TuneTask) -> LabelTrial:
    """Fine-tune the LM on slices as labels do, and evaluate it on them.

    Raises:
        ConfigError: too few examples, or no such LM.
    """
    lm, device = load_lm(task.lm), device_of(task.lm)
    examples = task.examples.without(lm.unusable(task.examples))
    slices, pace = Slices(examples), Pace(device)
    tuned: list[tuple[float, float, int]] = []
    asked: list[tuple[float, float, int]] = []

    def one(part: Corpus) -> None:
        with measuring(device) as tuning:
            lm.reset()
            documents = lm.tokenise(part)
            lm.fine_tune(documents, task.tuning, len(tuned))
        with measuring(device) as asking:
            lm.losses(documents)
        tokens = float(documents.lengths.sum())
        tuned.append((tuning.spent.seconds, tokens, len(part)))
        asked.append((asking.spent.seconds, tokens, len(part)))

    for _ in range(2):  # the first warms up
        pace.time(one, slices.take(FIRST))
    tuned.clear()
    asked.clear()
    repeat(slices, task.seconds, one, pace, task.size)
    return LabelTrial(
        Repeats.of(tuned),
        tuple(lm.tokenise(examples).lengths.tolist()),
        memory_now(),
        device,
        losses=Repeats.of(asked),
        parameters=sum(weight.numel() for weight in lm.model.parameters()),
        fingerprint=lm.fingerprint,
    )


@dataclass(frozen=True)
class TrainTask:
    """Training steps to be tried for about so many seconds."""

    encoder: str
    train_layers: int | str
    examples: Corpus
    seconds: float
    seed: int


@torch.inference_mode(False)
def try_training(task: TrainTask) -> TrainingTrial:
    """Take a few training steps on real texts with random losses, which cost what others do.

    Raises:
        ConfigError: an encoder that airrep cannot train.
    """
    encoder = load_trainable(task.encoder)
    settings = _settings(task)
    device = device_of(settings)
    clock = 0 if device == "cpu" else 1
    ends: list[tuple[float, Mapping[str, Any]]] = []
    taught = _made_up(task, _texts_for(task, encoder, clock))
    with tempfile.TemporaryDirectory() as folder, team_of(settings.device) as team:
        (Path(folder) / WORK).mkdir()
        work = Task(encoder, [taught], [], [], settings, team, lambda line: ends.append((clocks()[clock], line)))
        TrainingRun(work, Material.of(work), Path(folder), Path(folder) / "activations").train()
    steps = [(end - begin, float(line["tokens"]), int(line["texts"])) for (begin, _), (end, line) in pairwise(ends)]
    lengths = tuple(encoder_lengths(encoder, task.examples).tolist())
    return TrainingTrial(Repeats.of(steps), lengths, memory_now(), device, len(network_of(encoder).layers))


def _settings(task: TrainTask) -> TrainingSettings:
    return TrainingSettings.of(
        {
            "start": task.encoder,
            "train_layers": task.train_layers,
            "steps": STEPS,
            "queries_per_step": STEP_QUERIES,
            "subsets_per_step": STEP_SUBSETS,
            "initial_scale": 1.0,
            "checkpoint_every": STEPS,
        }
    )


def _texts_for(task: TrainTask, encoder: Trainable, clock: int) -> int:
    """So many texts in a step that all steps, and getting ready, fit the time; a step takes three forward passes."""
    probe = list(task.examples[:FIRST])
    encoder.encode(probe)
    begun = clocks()[clock]
    encoder.encode(probe)
    one = max((clocks()[clock] - begun) / len(probe), 1e-6)
    layers = len(network_of(encoder).layers)
    share = 1.0 if task.train_layers == "all" else min(1.0, int(task.train_layers) / max(1, layers))
    wanted = task.seconds / (one * (1 + 3 * STEPS * share))
    return int(min(len(task.examples), MOST_TEXTS, max(32, wanted)))


def _made_up(task: TrainTask, texts: int) -> LabelledInstance:
    numbers = stream(task.seed, "plan", "losses")
    queries = max(4, texts // 5)
    pool, asked = task.examples[: texts - queries], task.examples[texts - queries : texts]
    size = max(2, len(pool) // STEP_SUBSETS)
    order = numbers.permutation(len(pool))
    subsets = {str(number): order[number * size : (number + 1) * size] for number in range(STEP_SUBSETS)}
    losses = numbers.standard_normal((len(asked), STEP_SUBSETS)).astype(np.float32)
    return LabelledInstance("plan", pool, asked, Groups.from_lists(subsets), losses)
