"""Contrasts beside real fine-tunes: does a subset's contrast tell what it does to a bad answer and a better one?

Usage: PYTHONPATH=tests python experiments/contrast/real.py LABELS POOL.jsonl QUERIES.jsonl SEED OUT.csv [OPTIONS]

LABELS hold the losses of what `plant.py` wrote for SEED, of each answer after fine-tunes on random subsets. The margin
of a question is the loss of the better answer less that of the bad one: above 0 the LM would rather give the bad one.
Spearman's rank correlation over the subsets of the margin with what a recipe predicts, mean over the questions: by
pooled scores of both answers, one taken from the other (`pooled`; with an LM also with one weight for both answers,
`pooled, even`), and by the sum of the contrasts of the subset's rows (`difference`, `squares`).
"""

import argparse
import csv
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from ranks import all_scores, text_recipes
from scipy.stats import spearmanr
from worlds.planted_chats import FORMS, KINDS, Question, plant_chats

import airrep
from airrep.index.building import build_index
from airrep.index.index import Index
from airrep.labels.labels import LabelledInstance
from airrep.scoring.asked import even_pairs
from airrep.scoring.contrast import contrast_scores
from airrep.scoring.group_scores import group_scores

COLUMNS = ("recipe", "prediction", "kind", "form", "questions", "correlation")


def main() -> None:
    """Read the labels, predict, correlate, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("labels", type=Path)
    parser.add_argument("pool", type=Path)
    parser.add_argument("queries", type=Path)
    parser.add_argument("seed", type=int, help="of the world")
    parser.add_argument("out", type=Path)
    parser.add_argument("--ordinary", type=int, default=20, help="of the world")
    parser.add_argument("--kind", action="append", choices=KINDS, help="of the world, in its order")
    parser.add_argument("--recipe", action="append", help="only this recipe; may be repeated")
    parser.add_argument("--lm", type=Path, help="folder of the LM that was fine-tuned")
    given = parser.parse_args()
    pool, queries = (airrep.read_corpus(path) for path in (given.pool, given.queries))
    (instance,) = airrep.open(given.labels).instances(pool, queries, partial=True)
    places = {(one.prompt, one.response): place for place, one in enumerate(instance.queries)}
    chats = plant_chats(given.seed, given.ordinary, given.kind or KINDS[:-1])
    asked = [one for one in chats.questions if all((a.prompt, a.response) in places for a in one.pair)]
    both = np.array([[places[a.prompt, a.response] for a in one.pair] for one in asked]).T
    trained = ~np.isnan(instance.losses).any(axis=0)
    print(f"{len(asked)} questions, {trained.sum()} subsets")
    margins = (instance.losses[both[1]] - instance.losses[both[0]])[:, trained]
    own = own_row(instance, asked)[:, trained]
    with given.out.open("w", encoding="utf-8", newline="") as file, TemporaryDirectory() as folder:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(("rows that taught it", "count", *row) for row in correlations(asked, margins, own))
        for recipe, index in indexes(instance, Path(folder), given.lm, given.recipe):
            for prediction, values in predictions(index, instance, both):
                found = correlations(asked, margins, values[:, trained])
                writer.writerows((recipe, prediction, *row) for row in found)


def own_row(instance: LabelledInstance, asked: list[Question]) -> np.ndarray:
    """How many of the rows that taught each answer are in each subset, ``(questions, subsets)``."""
    ids = np.array([row.id for row in instance.train])
    groups = [set(ids[instance.subsets.members(number)].tolist()) for number in range(len(instance.subsets))]
    return np.array([[len(one.taught & group) for group in groups] for one in asked])


def indexes(
    instance: LabelledInstance, folder: Path, lm: Path | None, wanted: list[str] | None
) -> Iterator[tuple[str, Index]]:
    """An index of the pool by each recipe, or by those that are wanted."""
    recipes = text_recipes()
    if lm is not None:
        read = {"lm": str(lm), "device": "cpu", "precision": "float32"}
        recipes["--lm"] = ("channels", read)
        recipes["LoGra"] = ("logra", read)
        recipes["both"] = ("channels", {**read, "channels": "lm-whole"})
    for number, (name, (method, settings)) in enumerate(recipes.items()):
        if wanted is not None and name not in wanted:
            continue
        yield name, build_index(instance.train, folder / str(number), method, settings=settings)


def predictions(index: Index, instance: LabelledInstance, both: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Return what a recipe says of each question and subset, in several ways."""
    own = index.ask(list(instance.queries)).chosen(both.ravel())
    pairs, pool = even_pairs(own), index.attributor.pooling()
    for name, some in (("pooled", own), ("pooled, even", pairs)):
        if name == "pooled" or pairs is not own:
            bad, better = np.split(group_scores(some, instance.subsets, pool), 2)
            yield name, bad - better
    bad, better = np.split(all_scores(pairs), 2)
    inside = np.zeros((len(instance.train), len(instance.subsets)))
    for number in range(len(instance.subsets)):
        inside[instance.subsets.members(number), number] = 1
    yield "difference", (bad - better) @ inside
    yield "squares", contrast_scores(bad, better) @ inside


def correlations(asked: list[Question], margins: np.ndarray, values: np.ndarray) -> Iterator[tuple[object, ...]]:
    """Kind, form, questions and mean correlation; 0 where a prediction says nothing."""
    single = [spearmanr(*pair).statistic if pair[1].std() > 0 else 0.0 for pair in zip(margins, values, strict=True)]
    for kind in KINDS:
        for form in FORMS:
            own = [place for place, one in enumerate(asked) if (one.kind, one.form) == (kind, form)]
            if own:
                yield kind, form, len(own), f"{np.mean(np.array(single)[own]):.4f}"


if __name__ == "__main__":
    main()
