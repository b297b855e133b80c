"""Compare a trained encoder with its rivals on unseen examples."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from airrep.arrays import Features, GroupScores
from airrep.attributors.base import Attributor
from airrep.attributors.methods import make_attributor
from airrep.encoder.base import Encoder
from airrep.encoder.load import PackedEncoder
from airrep.evaluation.judging import (
    HeldOutDifference,
    HeldOutLds,
    best_of,
    compact_subsets,
    compare_held_out,
    encode_instance,
    held_out_lds,
    scales,
    score_features,
)
from airrep.labels.instance import LabelledInstance
from airrep.scoring.groups import Groups
from airrep.scoring.pooling import ATTENTIONS

LEAST_LDS = 0.0


@dataclass(frozen=True)
class Rival:
    """One line of the table."""

    name: str
    scale: float
    """Factor on its scores before attention."""
    lds: HeldOutLds
    difference: HeldOutDifference | None
    """How much more the trained encoder reaches; None for itself."""

    def to_dict(self) -> dict[str, Any]:
        """A JSON object."""
        gap = None if self.difference is None else self.difference.to_dict()
        return {"name": self.name, "multiple": self.scale, "lds": self.lds.to_dict(), "trained_minus_it": gap}


@dataclass(frozen=True)
class Verdict:
    """Whether the trained encoder is worth using, and why."""

    encoder: str
    """Its folder."""
    rows: tuple[Rival, ...]
    """The trained encoder first."""

    @property
    def better(self) -> bool:
        """Whether every paired interval is above 0, and the LDS itself too."""
        trained, *rivals = self.rows
        gaps = [row.difference.interval[0] for row in rivals if row.difference is not None]
        return trained.lds.interval[0] > LEAST_LDS and all(low > 0 for low in gaps)

    @property
    def sentence(self) -> str:
        """The recommendation."""
        if self.better:
            return f"Better than all rivals, intervals clear of 0. Use it: airrep index DATA --encoder {self.encoder}"
        best = max(self.rows[1:], key=lambda row: row.lds.value)
        if self.rows[0].lds.value > best.lds.value:
            return (
                f"Ahead of {best.name}, but an interval reaches 0: not shown to be better. "
                "More subsets (a larger --budget) would tell."
            )
        return (
            f"Not better: {best.name} ranks unseen subsets as well or better. Keep using it; more subsets (a larger "
            "--budget), or more trained layers, may change that."
        )

    def to_dict(self) -> dict[str, Any]:
        """A JSON object."""
        rows = [row.to_dict() for row in self.rows]
        return {"better": self.better, "recommendation": self.sentence, "encoder": self.encoder, "methods": rows}


def judge_on_instance(
    trained: PackedEncoder,
    others: Mapping[str, PackedEncoder],
    tuning: LabelledInstance,
    last: LabelledInstance,
    encoder: str,
) -> Verdict:
    """Compare on one instance; rivals get the temperature that suits them best on another.

    A rival that scores all subsets alike, such as TF-IDF where no query shares a word with any example, is left out.

    Args:
        trained: the encoder that was trained; its temperature is its own.
        others: encoders it is compared with, by name, such as the one that training started from.
        tuning: the instance that temperatures are chosen on.
        last: the instance that is judged by: none of its examples took part in anything.
        encoder: where the trained encoder is. All are pooled as it was trained to be.
    """
    pool = trained.trained_pool or "attention"
    ours = _pooled(encode_instance(trained, last), last.subsets, pool, 1.0)
    rows = [Rival("trained", 1.0, held_out_lds([ours], [last]), None)]
    rivals: dict[str, Encoder | Attributor] = {**others, "tfidf": make_attributor("tfidf")}
    for name, rival in rivals.items():
        tried, features = (encode_instance(rival, instance) for instance in (tuning, last))
        if not (_tells(tried, tuning, pool) and _tells(features, last, pool)):
            continue
        scale = _best_scale(tried, tuning, pool)
        theirs = _pooled(features, last.subsets, pool, scale)
        gap = compare_held_out([ours], [theirs], [last])
        rows.append(Rival(name, scale, held_out_lds([theirs], [last]), gap))
    return Verdict(encoder, tuple(rows))


def _pooled(features: tuple[Features, Features], subsets: Groups, pool: str, scale: float) -> GroupScores:
    train, queries = features
    temperature = 1.0 / scale if pool in ATTENTIONS else 1.0
    return score_features(train, queries, compact_subsets(subsets)[1], pool, temperature)


def _tells(features: tuple[Features, Features], instance: LabelledInstance, pool: str) -> bool:
    """Whether a method tells any two subsets apart; one that does not is no rival."""
    scores = _pooled(features, instance.subsets, pool, 1.0)
    return bool((np.ptp(scores, axis=1) > 0).any())


def _best_scale(features: tuple[Features, Features], instance: LabelledInstance, pool: str) -> float:
    return best_of(
        scales(*features), lambda scale: [_pooled(features, instance.subsets, pool, scale)], [instance.losses]
    )
