"""Ranks of planted rows by a bad answer less a better one, by each recipe and formula.

Usage: PYTHONPATH=tests python experiments/contrast/ranks.py SEED OUT.csv [OPTIONS]

Without an LM: the recipes of text, TF-IDF, the shipped encoder and a plain sentence encoder. With an LM: the channels
that read it, apart and summed; the sum once as every query weighs its gradients and once with the same weight for both
answers (`even`), beside the default recipe of text and that for contrasts. OUT has a row for each recipe, formula, kind
of question and form, and one for all of these, whose reciprocal rank is the mean over kinds and forms.

Intervals are of 95 %: Wilson's for the share of questions whose planted row is first, that of a percentile bootstrap
over the questions of each kind and form for the mean reciprocal rank.
"""

import argparse
import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from scipy.stats import binomtest
from worlds.planted_chats import COUNTS, FORMS, KINDS, ORDINARY, Chats, Question, plant_chats, precision_of, rank_of

from airrep.attributors.recipes import read_channels
from airrep.attributors.sums.channels import ChannelsAttributor
from airrep.index.building import build_index
from airrep.scoring.asked import Asked, even_pairs, stream_scores
from airrep.scoring.contrast import contrast_scores

FORMULAS = {
    "difference": lambda answer, better: answer - better,
    "three quarters": lambda answer, better: answer - 0.75 * better,
    "squares": contrast_scores,
    "deviations": lambda answer, better: _deviations(answer) - _deviations(better),
    "answer alone": lambda answer, _: answer,
}
"""Forms of the scores for both answers, ``(q, n)`` each."""
SHARES = ("first", "first_low", "first_high", "reciprocal", "reciprocal_low", "reciprocal_high", "precision")
COLUMNS = ("seed", "recipe", "formula", "kind", "form", "questions", *SHARES)
DRAWS = 2000
"""Draws of the bootstrap."""
SHARD = 32
"""Rows whose gradients an interrupted run can lose."""


def main() -> None:
    """Plant, score, rank, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seed", type=int)
    parser.add_argument("out", type=Path)
    parser.add_argument("--lm", type=Path, help="folder of a language model")
    parser.add_argument("--ordinary", type=int, default=ORDINARY, help="rows of the demo's data beside the planted")
    parser.add_argument("--most", type=int, default=max(COUNTS.values()), help="questions of each kind and form")
    parser.add_argument("--keep", type=Path, help="folder for the LM's index, from which a run that ended goes on")
    given = parser.parse_args()
    chats = plant_chats(given.seed, given.ordinary, KINDS[:-1])
    asked = [one for kind in KINDS for form in FORMS for one in chats.of(kind, form)[: given.most]]
    with TemporaryDirectory() as folder:
        if given.lm is None:
            found = scores_by_text(chats, asked, Path(folder), list(text_recipes()))
        else:
            found = scores_by_lm(chats, asked, given.keep or Path(folder), given.lm)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    with given.out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for recipe, scores in found.items():
            writer.writerows((given.seed, recipe, *row) for row in measured(chats, asked, scores))


def measured(chats: Chats, asked: list[Question], scores: np.ndarray) -> Iterator[tuple[object, ...]]:
    """For each formula, kind and form: questions, share of rank 1, mean reciprocal rank, precision."""
    ids = [row.id for row in chats.train]
    for formula, apply in FORMULAS.items():
        values = apply(*np.split(scores, 2))
        cells = []
        for kind in KINDS[:-1]:
            for form in FORMS:
                own = [place for place, one in enumerate(asked) if (one.kind, one.form) == (kind, form)]
                ranks = np.array([rank_of(asked[place], values[place], ids) for place in own])
                precision = np.array([precision_of(asked[place], values[place], ids) for place in own])
                cells.append((ranks, precision))
                yield (formula, kind, form, *_shares([cells[-1]]))
        yield (formula, "all", "all", *_shares(cells))


def _shares(cells: list[tuple[np.ndarray, np.ndarray]]) -> Iterator[object]:
    """Questions, and shares with intervals, from the ranks and precisions of some kinds and forms."""
    first, reciprocal, precision = (
        [part(ranks, found) for ranks, found in cells]
        for part in (lambda ranks, _: ranks == 1, lambda ranks, _: 1 / ranks, lambda _, found: found)
    )
    count, found = sum(map(len, first)), int(sum(one.sum() for one in first))
    wilson = binomtest(found, count).proportion_ci(method="wilson")
    generator = np.random.default_rng(0)
    drawn = [one[generator.integers(len(one), size=(DRAWS, len(one)))].mean(axis=1) for one in reciprocal]
    low, high = np.quantile(np.mean(drawn, axis=0), [0.025, 0.975])
    middle = np.mean([one.mean() for one in reciprocal])
    numbers = (found / count, wilson.low, wilson.high, middle, low, high, np.mean([one.mean() for one in precision]))
    yield count
    yield from (f"{number:.4f}" for number in numbers)


def answers_of(asked: list[Question]) -> list[Any]:
    """The bad answers, and behind them the better ones."""
    return [one.pair.bad for one in asked] + [one.pair.better for one in asked]


def text_recipes() -> dict[str, tuple[str, Mapping[str, Any]]]:
    """Methods and settings of each recipe that needs no LM."""
    tokens = read_channels("text")[0]
    return {
        "text": ("channels", {}),
        "contrast": ("channels", {"channels": "contrast"}),
        "n-grams": (tokens.method, tokens.settings),
        "TF-IDF": ("tfidf", {}),
        "TF-IDF of responses": ("tfidf", {"view": "response"}),
        "encoder": ("airrep", {}),
        "dense encoder": ("airrep", {"encoder": "untrained"}),
    }


def scores_by_text(chats: Chats, asked: list[Question], folder: Path, names: list[str]) -> dict[str, np.ndarray]:
    """Scores of all rows by some recipes that need no LM."""
    found = {}
    for number, name in enumerate(names):
        method, settings = text_recipes()[name]
        index = build_index(chats.train, folder / str(number), method, settings=settings)
        found[name] = all_scores(index.ask(answers_of(asked)))
    return found


def scores_by_lm(chats: Chats, asked: list[Question], folder: Path, lm: Path) -> dict[str, np.ndarray]:
    """Scores of all rows by the channels that read an LM."""
    values = {"lm": str(lm), "device": "cpu", "precision": "float32"}
    index = build_index(chats.train, folder / "index", "channels", settings=values, shard_rows=SHARD)
    own = index.ask(answers_of(asked))
    assert isinstance(index.attributor, ChannelsAttributor)
    single, even = ({name: all_scores(part) for name, part in one.channels().items()} for one in (own, even_pairs(own)))
    text = sum(part for name, part in single.items() if "gradients" not in name)
    return {
        **scores_by_text(chats, asked, folder, ["text", "contrast"]),
        "text, less what the LM expects": text,
        "gradients, even": even["gradients"],
        "--lm": text + single["gradients"],
        "--lm, even": text + even["gradients"],
    }


def all_scores(asked: Asked) -> np.ndarray:
    """Scores of all rows, ``(queries, rows)``."""
    return np.concatenate([scores for _, scores in stream_scores(asked)], axis=1)


def _deviations(scores: np.ndarray) -> np.ndarray:
    apart = scores.std(axis=1, keepdims=True)
    centred: np.ndarray = scores - scores.mean(axis=1, keepdims=True)
    return np.divide(centred, apart, out=np.zeros_like(centred), where=apart > 0)


if __name__ == "__main__":
    main()
