"""Which methods find planted facts where words tell nothing, and which rows taught a bad answer in place of a better.

Run as ``PYTHONPATH=tests python benchmarks/planted.py``, with the extra peft. Two worlds:

facts  That of ``tests/worlds/planted_world.py``: a tiny LM that learnt 60 facts of 5 examples each, and queries that
       ask for them in words that stand in no example. Recall is the share of a query's five top examples that are of
       its fact, mean and least over the seeds. Seconds are process CPU time of an index and its queries, on one
       thread; gradients that an earlier row computed are found in the store, as for any user (``--alone`` gives each
       row a store of its own).
chats  That of ``tests/worlds/planted_chats.py``: six kinds of planted rows among ordinary ones, and questions of a bad
       answer less a better one. Told are the share of questions whose planted row is first, the share of the first
       rows that taught the answer, of as many as did, and how often the verdict is that something stands out.
"""

import argparse
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from worlds.planted_chats import FORMS, KINDS, Chats, Question, contrasts_of, plant_chats, precision_of, rank_of
from worlds.planted_world import BLIND, CHANCE, CHANCE_BY_ANSWER, METHODS, World, find, plant

from airrep.answers.verdict import top
from airrep.index.building import build_index

NOTHING = "nothing"
"""The kind of questions for which no row was planted."""
ASK = 0.9
"""Recall of every method that reads gradients."""
RECIPES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "default": ("channels", {}),
    "--recipe contrast": ("channels", {"channels": "contrast"}),
    "tfidf": ("tfidf", {}),
    "dense embedder": ("airrep", {"encoder": "untrained"}),
}
"""Methods that answer questions of two answers, each by the same contrast."""


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world", choices=["facts", "chats"], help="only this one")
    parser.add_argument("--seeds", type=int, default=3, help="of the facts")
    parser.add_argument("--seed", type=int, default=2, help="of the chats")
    parser.add_argument("--most", type=int, default=20, help="questions of each kind and form of the chats")
    parser.add_argument("--methods", nargs="+", choices=[*METHODS, "rds", *BLIND], default=[*METHODS, *BLIND])
    parser.add_argument("--alone", action="store_true", help="share no gradients between methods")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.world != "facts":
        print_chats(arguments.seed, arguments.most)
    if arguments.world == "chats":
        return
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in arguments.methods}
    for seed in range(arguments.seeds):
        with TemporaryDirectory() as folder:
            world = plant(Path(folder), seed, adapters="less" in arguments.methods)
            for name in arguments.methods:
                found[name].append(measure(world, name, Path(folder) / (name if arguments.alone else "all")))
    print_table(found)


def print_chats(seed: int, most: int) -> None:
    """One row for each kind and form, three columns for each recipe."""
    chats = plant_chats(seed)
    asked = {(kind, form): chats.of(kind, form)[:most] for kind in KINDS for form in FORMS}
    found = {name: measure_chats(chats, asked, name) for name in RECIPES}
    print(f"{'first, precision, stand out':28}" + "".join(f"{name:>21}" for name in RECIPES))
    for number, (kind, form) in enumerate(asked):
        shares = (found[name][number] for name in RECIPES)
        told = ("".join(f"{share:7.0%}" if np.isfinite(share) else f"{'':7}" for share in three) for three in shares)
        print(f"{kind:15}{form:13}" + "".join(told))


def measure_chats(
    chats: Chats, asked: Mapping[tuple[str, str], list[Question]], name: str
) -> list[tuple[float, float, float]]:
    """Measure by kind and form of question how often the planted row is first, the mean precision, and what stands out.

    No row was planted for questions of the kind `nothing`, so there all that stands out is a false alarm.
    """
    ids, (method, settings) = [row.id for row in chats.train], RECIPES[name]
    found = []
    with TemporaryDirectory() as folder:
        index = build_index(chats.train, Path(folder) / "index", method, settings=settings)
        for (kind, _), questions in asked.items():
            pairs = list(zip(questions, contrasts_of(index, questions), strict=True))
            planted = [] if kind == NOTHING else [(rank_of(*one, ids) == 1, precision_of(*one, ids)) for one in pairs]
            bad, better = [one.pair.bad for one in questions], [one.pair.better for one in questions]
            verdicts = [hits.verdict for hits in top(index, bad, 1, better=better)]
            out = [verdict is not None and verdict.kind == "stands out" for verdict in verdicts]
            first, precision = np.mean(planted, axis=0).tolist() if planted else (np.nan, np.nan)
            found.append((first, precision, float(np.mean(out))))
    return found


def measure(world: World, name: str, folder: Path) -> tuple[float, float]:
    """Recall and process CPU seconds."""
    start = time.process_time()
    return find(world, name, folder), time.process_time() - start


def print_table(found: dict[str, list[tuple[float, float]]]) -> None:
    """One row for each method."""
    print(f"{'':20}{'recall@5':>9}{'least':>7}{'seconds':>9}  of each seed")
    for name, runs in found.items():
        recalls, seconds = np.array(runs).T
        each = " ".join(f"{recall:.3f}" for recall in recalls)
        print(f"{name:20}{recalls.mean():9.3f}{recalls.min():7.3f}{np.median(seconds):9.2f}  {each}")
    print(f"chance {CHANCE:.3f}; {CHANCE_BY_ANSWER:.3f} for one who knows the answers")
    missed = [name for name, runs in found.items() if name in METHODS and min(run[0] for run in runs) < ASK]
    print(f"recall >= {ASK:g} at every seed: {'MISSED by ' + ', '.join(missed) if missed else 'met'}")


if __name__ == "__main__":
    main()
