"""Rivals of an index, and the verdict on it in a sentence."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from airrep.arrays import DenseFeatures
from airrep.attributors.base import Attributor, OnRows
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import AirRepError
from airrep.evaluation.result import Evaluation, Row, caution_on
from airrep.evaluation.statistics.labels import REMEDY, Moved
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
    """Indexes of the same examples by what costs little or nothing; what cannot be had is told.

    Without an *lm* gradients are no rival; *own*, the method of the index that is judged, is none of itself.
    """
    wanted: dict[str, str | Attributor] = {name: method for name, method in METHODS.items() if method != own}
    if lm is None:
        wanted.pop(GRADIENTS, None)
    found = []
    for name, method in {**wanted, CHANCE: RandomScores()}.items():
        try:
            settings = _settings(lm) if name == GRADIENTS and lm is not None else None
            folder = out / (method if isinstance(method, str) else method.name)
            found.append((name, build_index(pool, folder, method, settings=settings)))
        except AirRepError as error:
            tell(f"without {name}: {error}")
    return found


def _settings(lm: LmSettings) -> dict[str, Any]:
    from airrep.attributors.settings import LograSettings

    own = lm.model_dump(exclude_unset=True, exclude={"checkpointing"})
    return {"store": "none", **{name: value for name, value in own.items() if name in LograSettings.model_fields}}


Verdict = Literal["better", "as good", "worse", "not shown", "not judged"]
"""Better than the best rival; not shown to be better, but it predicts; a rival is better; it is not shown to predict;
the fine-tunes hardly moved the losses."""
JUDGEMENT = "judgement"
"""Key of the sentence in the facts of the evaluation."""


@dataclass(frozen=True, eq=False)
class Judgement:
    """Whether an index's scores can be trusted on the user's data."""

    verdict: Verdict
    sentence: str
    """The verdict in words."""
    evaluation: Evaluation
    """LDS of the index and its rivals; the index is the first row."""
    path: Path
    """Where the evaluation is, which `airrep report` reads."""

    def to_dict(self) -> dict[str, Any]:
        """A JSON object: that of the evaluation, with the verdict."""
        told = {"kind": JUDGEMENT, "verdict": self.verdict, "sentence": self.sentence, "path": str(self.path)}
        return {**told, **self.evaluation.to_dict()}

    def __repr__(self) -> str:
        return f"Judgement({self.verdict!r}: {self.sentence})"

    def _repr_html_(self) -> str:
        from html import escape

        return f"<p><b>{escape(self.sentence)}</b></p>"


def verdict_of(evaluation: Evaluation, moved: Moved | None) -> tuple[Verdict, str]:
    """The verdict on the first row, and the sentence that says it."""
    first, *others = evaluation.rows
    if moved is not None and moved.hardly:
        return "not judged", f"Nothing can be judged on your data: {moved.sentence}. {REMEDY}"
    caution = caution_on(evaluation.distinct_queries)
    few = f" ({evaluation.distinct_queries} queries: {caution})" if caution else ""
    best = max((row for row in others if row.name != CHANCE), key=lambda row: row.value, default=None)
    verdict, told = _against(first, best)
    return verdict, f"On your data {told}.{few}"


def _against(own: Row, rival: Row | None) -> tuple[Verdict, str]:
    lds = f"(LDS {own.value * 100:z.0f}, {_ends(*own.interval)})"
    if rival is not None and rival.difference is not None:
        other, gap = f"{rival.value * 100:z.0f}", rival.difference
        low, high = gap.interval  # of the rival's value less the index's
        if low > 0:
            told = f"{rival.name} ({other}) predicts fine-tunes better than this index {lds}, by "
            return "worse", f"{told}{_gap(gap.value, low, high)}: do not trust its scores here, or index by that"
    if own.interval[0] <= 0:
        told = f"this index is not shown to predict fine-tunes at all {lds}: do not trust its scores here"
        shown = rival is not None and rival.interval[0] > 0
        return "not shown", f"{told}; {rival.name} is (LDS {rival.value * 100:z.0f})" if rival and shown else told
    if rival is None or rival.difference is None:
        return "as good", f"this index predicts fine-tunes {lds}: trust its first rows and groups"
    told, ahead = f"this index predicts fine-tunes {lds}", _gap(-gap.value, -high, -low)
    if high < 0:
        best = f"better than the best of the others, {rival.name} ({other})"
        return "better", f"{told}, {best}, by {ahead}: trust its first rows and groups"
    than = f"but is not shown to be better than {rival.name} ({other}; difference {ahead})"
    return "as good", f"{told}, {than}: trust it no more than that"


def _gap(value: float, low: float, high: float) -> str:
    return f"{value * 100:z.0f} ({_ends(low, high)})"


def _ends(low: float, high: float) -> str:
    return f"{low * 100:z.0f} to {high * 100:z.0f}"
