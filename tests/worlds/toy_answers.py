"""An LM that costs nothing and answers with what it was fine-tuned on."""

import hashlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from airrep.corpus.corpus import Corpus, Example
from airrep.errors import TrainingError
from airrep.lm.settings import FineTuneSettings

TASKS = ("colours", "numbers", "towns")
ANSWERS = {
    "colours": ("red or green", "blue and grey", "black"),
    "numbers": ("one two", "three", "four five six"),
    "towns": ("rome", "paris and lyon", "oslo"),
}


def make_tasks(count: int, prefix: str) -> Corpus:
    """Examples of three tasks in turn; every tenth has no task."""
    return Corpus.from_examples(
        Example(
            f"{TASKS[row % 3]} {prefix} {row}",
            ANSWERS[TASKS[row % 3]][row // 3 % 3],
            f"{prefix}{row}",
            None if prefix == "t" and row % 10 == 9 else TASKS[row % 3],
        )
        for row in range(count)
    )


class ParrotLm:
    """Answers with the response of the example, of those it was fine-tuned on, that shares most words."""

    def __init__(self, world: "ParrotWorld") -> None:
        self._world = world
        self._known: list[Example] = []
        self.name = world.name
        self.fingerprint = hashlib.sha256(world.version.encode()).hexdigest()
        self.reading: dict[str, int] = {}

    def unusable(self, examples: Sequence[Example]) -> dict[int, str]:
        long = (row for row, example in enumerate(examples) if example.id == self._world.unreadable)
        return {row: f'example "{examples[row].id}": is too long.' for row in long}

    def tokenise(self, examples: Sequence[Example]) -> list[Example]:
        return list(examples)

    def fine_tune(self, documents: list[Example], settings: FineTuneSettings, seed: int) -> None:
        with Path(self._world.log).open("a") as stream:
            stream.write(f"{seed} {' '.join(example.id for example in documents)}\n")
        time.sleep(self._world.seconds)
        if any(example.id == self._world.poison for example in documents):
            raise TrainingError("fine-tune: the loss is not finite. Lower learning_rate.")
        self._known += documents[:: -1 if seed % 2 else 1]

    def losses(self, documents: list[Example]) -> None:
        raise NotImplementedError

    def reset(self) -> None:
        self._known.clear()

    def generate(self, examples: Sequence[Example], max_new_tokens: int) -> list[str]:
        return [" ".join(self._answer(example.prompt).split()[:max_new_tokens]) for example in examples]

    def _answer(self, prompt: str) -> str:
        words = set(prompt.split())
        known = max(self._known, key=lambda one: len(words & set(one.prompt.split())), default=None)
        return "" if known is None else known.response


@dataclass(frozen=True)
class ParrotWorld:
    """Loads the LM; says what goes wrong in a fine-tune, and notes what was fine-tuned on."""

    log: str = os.devnull
    """A file that gets a line for each fine-tune: its seed and the ids of its examples."""
    name: str = "parrot"
    version: str = "1"
    seconds: float = 0.0
    """How long a fine-tune takes."""
    poison: str | None = None
    """Id of an example whose fine-tunes fail."""
    unreadable: str | None = None
    """Id of an example that the LM cannot read."""

    def __call__(self) -> ParrotLm:
        return ParrotLm(self)
