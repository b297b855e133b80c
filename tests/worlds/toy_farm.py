"""A learner that costs nothing, and plans for it: the label farm without a language model."""

import hashlib
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from worlds.small_world import make_corpus

from airrep.corpus.corpus import Example
from airrep.errors import TrainingError
from airrep.labels.farm import label
from airrep.labels.labels import Labels
from airrep.labels.plan import SamplingSettings, SubsetPlan
from airrep.labels.sampling import sample
from airrep.lm.settings import FineTuneSettings

TRAIN, QUERIES = make_corpus(40), make_corpus(6, "q")
FINE_TUNE = FineTuneSettings(learning_rate=1e-3)


class ToyLearner:
    """Its weights are one vector that moves towards each example; losses are distances from it."""

    @property
    def reading(self) -> dict[str, int]:
        return {} if self._world.most is None else {"max_tokens": self._world.most}

    def __init__(self, world: "ToyWorld") -> None:
        self._world = world
        self.name = world.name
        self._weights = np.zeros(8, np.float32)
        version = str(os.getpid()) if world.version == "by process" else world.version
        limit = "" if world.most is None else f" {world.most}"
        self.fingerprint = hashlib.sha256(f"toy {version}{limit}".encode()).hexdigest()

    def unusable(self, examples: Sequence[Example]) -> dict[int, str]:
        reasons = {row: self._world.complaint(example) for row, example in enumerate(examples)}
        return {row: reason for row, reason in reasons.items() if reason is not None}

    def tokenise(self, examples: Sequence[Example]) -> np.ndarray:
        return np.array([_vector(example) for example in examples], np.float32).reshape(-1, 8)

    def fine_tune(self, documents: np.ndarray, settings: FineTuneSettings, seed: int) -> None:
        self._world.suffer(documents)
        for row in np.random.default_rng(seed).permutation(len(documents)):
            self._weights += np.float32(0.1) * (documents[row] - self._weights)

    def losses(self, documents: np.ndarray) -> np.ndarray:
        return np.square(documents - self._weights).mean(axis=1, dtype=np.float32)

    def reset(self) -> None:
        self._weights[:] = 0


def _vector(example: Example) -> np.ndarray:
    digest = hashlib.sha256(f"{example.prompt}\0{example.response}".encode()).digest()
    return np.frombuffer(digest[:16], np.int16).astype(np.float32) / 2**15


@dataclass(frozen=True)
class ToyWorld:
    """Loads the learner; says what goes wrong in a fine-tune, and notes that it was begun."""

    log: str = os.devnull
    """A file that gets a line, the process id, for each fine-tune that is begun."""
    name: str = "toy"
    """What the learner is called."""
    version: str = "1"
    seconds: float = 0.0
    """How long a fine-tune takes."""
    poison: int | None = None
    """A row of the train corpus whose subsets never get a finite loss."""
    deadly: int | None = None
    """A row of the train corpus whose subsets end their worker."""
    hopeless: bool = False
    """Whether no fine-tune ever succeeds."""
    broken: bool = False
    """Whether the learner cannot be loaded."""
    unreadable: tuple[Example, ...] = ()
    """Examples that the learner cannot read."""
    most: int | None = None
    """A setting of how it reads; part of the fingerprint."""

    def __call__(self) -> ToyLearner:
        if self.broken:
            raise TrainingError("lm toy: memory is short. Buy more.")
        return ToyLearner(self)

    def complaint(self, example: Example) -> str | None:
        return f'example "{example.id}": is too long.' if example in self.unreadable else None

    def suffer(self, documents: np.ndarray) -> None:
        with Path(self.log).open("a") as stream:
            stream.write(f"{os.getpid()}\n")
        time.sleep(self.seconds)
        if self.hopeless or self._holds(documents, self.poison):
            raise TrainingError("fine-tune: the loss is not finite. Lower learning_rate.")
        if self._holds(documents, self.deadly):
            os.kill(os.getpid(), signal.SIGKILL)

    def _holds(self, documents: np.ndarray, row: int | None) -> bool:
        return row is not None and bool((documents == _vector(TRAIN[row])).all(axis=1).any())


def begun(log: Path) -> list[int]:
    """The processes that began the fine-tunes of a log."""
    return [int(line) for line in log.read_text().splitlines()] if log.exists() else []


def make_plan(out: Path, subsets: int = 5, instances: int = 2, seed: int = 0) -> SubsetPlan:
    """Instances with 4 queries and subsets of 6 from a pool of 30."""
    settings = SamplingSettings(instances=instances, train_count=30, query_count=4, subsets=subsets, size=6, seed=seed)
    return sample(TRAIN, out, settings, QUERIES)


def farm(plan: SubsetPlan, out: Path, world: ToyWorld | None = None, **options: Any) -> Labels:
    """Labels of such a plan, by a learner that may be told what goes wrong."""
    settings = options.pop("fine_tune", FINE_TUNE)
    return label(plan, TRAIN, QUERIES, world or ToyWorld(), settings, out, **options)


def visible(folder: Path) -> dict[str, bytes]:
    """Every file with its bytes, but for locks and times."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    kept = (path for path in files if not path.name.startswith((".lock", "times")))
    return {str(path.relative_to(folder)): path.read_bytes() for path in kept}
