"""A planted world: how much a subset helps a query is decided by a hidden kind of its members."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from worlds.small_world import tree
from worlds.tiny_bert import tiny_folder

from airrep.corpus.corpus import Corpus, Example
from airrep.labels.labels import LabelledInstance
from airrep.scoring.groups import Groups
from airrep.training.settings import TrainingSettings

LETTERS = "abcdefghijklmnopqrstuvwxyz"
KINDS = 3
"""Letters are of so many kinds; an example is of the kind of its response."""


def planted(
    seed: int, name: str, n: int = 120, q: int = 40, m: int = 40, size: int = 20, noise: float = 0.02
) -> LabelledInstance:
    """An instance whose losses fall with the share of a subset's members that are of the query's kind."""
    generator = np.random.default_rng(seed)
    train, queries = _corpus(generator, n, f"{name}-t"), _corpus(generator, q, f"{name}-q")
    members = {str(j): generator.choice(n, size, replace=False) for j in range(m)}
    kinds = np.array([kind_of(example) for example in train])
    share = np.array([[np.mean(kinds[rows] == kind_of(query)) for rows in members.values()] for query in queries])
    losses = 3 - share + noise * generator.standard_normal(share.shape)
    return LabelledInstance(name, train, queries, Groups.from_lists(members), losses.astype(np.float32))


def kind_of(example: Example) -> int:
    """The hidden kind of an example."""
    return LETTERS.index(example.response[0]) % KINDS


def _corpus(generator: np.random.Generator, count: int, prefix: str) -> Corpus:
    """Examples of random letters; prompts hold the prefix's number, so that instances do not share examples."""
    rows = generator.choice(list(LETTERS), (count, 6))
    return Corpus.from_examples(
        Example(" ".join(row[:5]) + f" {prefix}{number}", f"{row[5]} {row[5]}", f"{prefix}{number}")
        for number, row in enumerate(rows)
    )


def tiny_settings(folder: Path, **changes: object) -> TrainingSettings:
    """Settings that train a tiny random encoder in a moment."""
    start = folder / "start"
    if not start.exists():
        tiny_folder(start, ((16, 16, True),))
    values: dict[str, object] = {
        "start": str(start), "steps": 12, "queries_per_step": 16, "subsets_per_step": 10, "learning_rate": 3e-3,
        "warmup_steps": 2, "evaluate_every": 4, "checkpoint_every": 4, "device": "cpu", "chunk_tokens": 1024,
        "normalise": True, "initial_scale": 2.0,
    }  # fmt: skip
    return TrainingSettings.of(values | changes)


class Interruption(BaseException):
    """Stands for a signal."""


def interrupt_at(step: int) -> Callable[[Mapping[str, Any]], None]:
    """A progress that stops the run after some step."""

    def progress(record: Mapping[str, Any]) -> None:
        if record["step"] >= step:
            raise Interruption

    return progress


def without_times(folder: Path) -> dict[str, bytes]:
    """All files but the times, which differ from run to run."""
    return {name: content for name, content in tree(folder).items() if not name.endswith(("times.jsonl", ".lock"))}
