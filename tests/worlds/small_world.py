"""A small world: examples and an attributor whose features cost nothing."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from airrep.arrays import DenseFeatures
from airrep.attributors.base import Attributor, OnRows
from airrep.corpus.corpus import Corpus, Example
from airrep.runtime.settings import Settings

SOURCES = ("forum", "books", None)


class HashAttributor(Attributor):
    """Features from a hash of the text: quick, and the same everywhere."""

    name = "hash"
    pool = "attention"

    def __init__(self, seed: str = "") -> None:
        self.seed = seed
        self.encoded: list[str] = []

    @property
    def settings(self) -> Settings:
        return Settings()

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(f"hash {self.seed}".encode()).hexdigest()

    def encode_train(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> DenseFeatures:
        self.encoded += [example.id for example in examples]
        if on_rows is not None:
            on_rows(len(examples))
        return np.array([self._features(example) for example in examples], np.float32).reshape(len(examples), 16)

    def _features(self, example: Example) -> np.ndarray:
        digest = hashlib.sha256(f"{self.seed}{example.prompt}\0{example.response}".encode()).digest()
        return np.frombuffer(digest, np.int16).astype(np.float32) / 2**14


def make_corpus(count: int, prefix: str = "e") -> Corpus:
    """A corpus with labels, sources and metadata."""
    return Corpus.from_examples(
        Example(
            prompt=f"question {prefix} {number}",
            response=f"answer {number * 7 % 31}",
            id=f"{prefix}{number}",
            label=f"label {number % 3}",
            source=SOURCES[number % len(SOURCES)],
            metadata={"year": 2000 + number % 5},
        )
        for number in range(count)
    )


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder with its bytes, but for costs, never the same twice, and commands, which name it."""
    others = ("costs.jsonl", ".steps.jsonl")
    files = (path for path in folder.rglob("*") if path.is_file() and path.name not in others)
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(files)}
