"""Rivals of an index: counting, TF-IDF, gradients, chance."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from airrep.arrays import DenseFeatures
from airrep.attributors.base import Attributor, OnRows
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import AirRepError
from airrep.index.building import build_index
from airrep.index.index import Index
from airrep.lm.settings import LmSettings
from airrep.runtime.artifacts.digests import json_digest
from airrep.runtime.seeding import stream
from airrep.runtime.settings import Settings

COUNTING, TFIDF, GRADIENTS, CHANCE = "counting", "TF-IDF", "gradients (LoGra)", "random scores"
METHODS = {COUNTING: "ngram", TFIDF: "tfidf", GRADIENTS: "logra"}
NUMBERS = 64
"""Random numbers of a text."""


class RandomScores(Attributor):
    """Scores that know nothing: products of random numbers that belong to each text."""

    name = "random"
    pool = "mean"

    @property
    def settings(self) -> Settings:
        return Settings()

    @property
    def fingerprint(self) -> str:
        return json_digest("random scores")

    def encode_train(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> DenseFeatures:
        if on_rows is not None:
            on_rows(len(examples))
        drawn = [stream(0, "random scores", one.content_hash).standard_normal(NUMBERS) for one in examples]
        return np.array(drawn, np.float32).reshape(len(examples), NUMBERS)


def build_rivals(
    pool: Corpus, out: Path, lm: LmSettings | None, own: str, tell: Callable[[str], None]
) -> list[tuple[str, Index]]:
    """Indexes of what costs little or nothing, each of the same examples; what cannot be had is told.

    Args:
        pool: the examples.
        out: the directory of the indexes.
        lm: the LM whose gradients are a rival; None for none.
        own: the method of the index that is judged, which is no rival of itself.
        tell: told of what cannot be had.
    """
    wanted: list[tuple[str, str | Attributor, dict[str, Any]]] = [
        (name, method, _settings(lm) if name == GRADIENTS and lm is not None else {})
        for name, method in METHODS.items()
        if method != own and (name != GRADIENTS or lm is not None)
    ]
    found = []
    for name, method, settings in [*wanted, (CHANCE, RandomScores(), {})]:
        try:
            given = settings if isinstance(method, str) else None
            found.append(
                (
                    name,
                    build_index(
                        pool, out / (method if isinstance(method, str) else method.name), method, settings=given
                    ),
                )
            )
        except AirRepError as error:
            tell(f"without {name}: {error}")
    return found


def _settings(lm: LmSettings) -> dict[str, Any]:
    from airrep.attributors.settings import LograSettings

    own = lm.model_dump(exclude_unset=True, exclude={"checkpointing"})
    return {"store": "none", **{name: value for name, value in own.items() if name in LograSettings.model_fields}}
