"""Judge methods by labels of DPO fine-tunes on pairs.

Usage: python experiments/preferences/judge.py PAIRS.jsonl PLAN WORK [--labels LABELS --out RESULT]

PLAN was drawn by `airrep sample` from PAIRS. WORK gets an index of each row, and a warm-up of 300 pairs that are
neither in the pool nor asked about. With LABELS all rows are judged, and RESULT is written.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import airrep
from airrep.attributors.base import Attributor, OnRows
from airrep.attributors.gradient.logra import LograAttributor
from airrep.attributors.settings import LograSettings, TfidfSettings
from airrep.attributors.text.lexical import TfidfAttributor
from airrep.corpus.corpus import Corpus, Example
from airrep.corpus.views import chosen_sides
from airrep.lm.model import TargetLM, load_lm
from airrep.runtime.artifacts import json_digest
from airrep.runtime.settings import Settings

LM = {"lm": "work/shared/models/tiny-lm", "precision": "float32"}
DPO = {**LM, "loss": "dpo"}
WARM, RATE = 300, 1e-4


class OfChosen:
    """Reads the chosen responses alone, as a fine-tune on these does."""

    reads_pairs = True

    def fit(self, train: Corpus, *more: Any) -> None:
        """Learn from the chosen responses."""
        super().fit(Corpus.from_examples(chosen_sides(train)), *more)

    def unusable(self, examples: Sequence[Example]) -> Any:
        """None but of these."""
        return super().unusable(chosen_sides(examples))

    def encode(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> Any:
        """Their features."""
        return super().encode(chosen_sides(examples), on_rows)

    def ask(self, queries: Sequence[Example], *more: Any) -> Any:
        """Ask by the chosen response."""
        return super().ask(chosen_sides(queries), *more)


class ChosenTfidf(OfChosen, TfidfAttributor):
    """TF-IDF of the chosen responses."""

    name = "tfidf-chosen"


class ChosenLogra(OfChosen, LograAttributor):
    """Gradients of the chosen responses, which add up in a group as those of pairs do."""

    name, own_pool = "logra-chosen", "mean"


class ApartLogra(LograAttributor):
    """Gradients of the chosen response less those of the rejected one, each of its own length 1; they add up too."""

    name, reads_pairs, own_pool = "logra-apart", False, "mean"


class Value(Attributor):
    """One number of each pair, whatever is asked."""

    name, pool = "value", "sum"

    def __init__(self, title: str, values: dict[str, float]) -> None:
        self.title, self.values = title, values

    @property
    def settings(self) -> Settings:
        """None."""
        return Settings()

    @property
    def fingerprint(self) -> str:
        """Return the fingerprint of all numbers."""
        return json_digest([self.title, self.values])

    def encode_train(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> np.ndarray:  # noqa: ARG002
        """The numbers."""
        return np.array([[self.values[one.reading_hash]] for one in examples], np.float32)

    def encode_queries(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> np.ndarray:  # noqa: ARG002
        """Ones."""
        return np.ones((len(examples), 1), np.float32)

    reads_pairs = True


def main() -> None:
    """Build, and judge where there are labels."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", type=Path)
    parser.add_argument("plan", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--labels", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", action="append", help="only this row; may be repeated")
    given = parser.parse_args()
    pairs, plan = airrep.read_corpus(given.pairs, preferences="pairs"), airrep.open(given.plan)
    pool, asked = pairs.take(plan.train_rows(0)), plan.query_rows(0)
    rest = np.setdiff1d(np.arange(len(pairs)), np.concatenate([plan.train_rows(0), asked]))[:WARM]
    tuned = {"learning_rate": RATE, "epochs": 1, "batch_examples": 16}
    warm = airrep.warm_up(pairs.take(rest), given.work / "warm", DPO, tuned).path
    indexes = []
    for name, how in rows(pool, str(warm)):
        if given.only is None or name in given.only:
            indexes.append((name, airrep.build_index(pool, given.work / "index" / name, **how)))
            print(f"{name}: built", flush=True)
    if given.labels is not None:
        (instance,) = airrep.open(given.labels).instances(pairs)
        airrep.evaluate_lds(indexes, [instance]).save(given.out, replace=True)


def rows(pool: Corpus, warm: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Names of rows, and what their index is built of; the first is what the others are compared with."""
    warmed = {**DPO, "lm": warm}
    yield "LoGra-DPO", {"method": "logra", "settings": DPO}
    yield "TF-IDF", {"method": "tfidf"}
    yield "TF-IDF-chosen", {"method": ChosenTfidf(TfidfSettings())}
    yield "BM25", {"method": "bm25"}
    yield "text", {"recipe": "text"}
    yield "text-sum", {"recipe": "preferences/text-sum.yaml"}
    yield "LoGra-SFT-chosen", {"method": ChosenLogra(LograSettings.of(LM))}
    yield "LoGra-SFT-both", {"method": ApartLogra(LograSettings.of(LM))}
    yield "loss-difference", {"method": Value("loss difference", losses_apart(pool))}
    yield "reward-margin", {"method": Value("reward margin", margins(pool, load_lm(warmed)))}
    yield "LoGra-ORPO", {"method": "logra", "settings": {**LM, "loss": "orpo"}}
    yield "LoGra-DPO-warmed", {"method": "logra", "settings": warmed}
    yield "lm", {"recipe": "lm", "settings": DPO}
    yield "lm-warm", {"recipe": "lm-warm", "settings": {**DPO, "warmed": warm}}
    yield "EK-FAC-DPO", {"method": "ekfac", "settings": {**DPO, "exponent": 0.75}}
    yield "lm-whole", {"recipe": "lm-whole", "settings": DPO}


def losses_apart(pool: Corpus) -> dict[str, float]:
    """By how much the LM before the fine-tune likes the chosen response more, in nats a token."""
    lm = load_lm(LM)
    chosen, rejected = (lm.losses(lm.tokenise([one.sides[side] for one in pool])) for side in (0, 1))
    return dict(zip((one.reading_hash for one in pool), (rejected - chosen).tolist(), strict=True))


def margins(pool: Corpus, lm: TargetLM) -> dict[str, float]:
    """The margin of each pair after the warm-up: its implicit reward."""
    losses = lm.losses(lm.tokenise(pool)).astype(float)
    return dict(zip((one.reading_hash for one in pool), (-np.log(np.expm1(losses))).tolist(), strict=True))


if __name__ == "__main__":
    main()
