"""How much of the whole ranking is among the candidates of a recipe, and what they cost in LDS.

Usage: python experiments/channels/candidates.py DATA LM INDEX [--labels LABELS] [--recipe lm-whole] [--queries COUNT]

DATA is a folder with pool.jsonl and queries.jsonl. For each share of the pool: the recall of the first 20 of the whole
ranking among the candidates, and in the first 20 of the ranking by two stages; with labels of the pool also the LDS.
"""

import argparse
from pathlib import Path

import numpy as np

import airrep
from airrep.attributors.recipes import read_channels
from airrep.scoring.asked import score_all

SHARES = ("1%", "2%", "5%", "10%", "25%")
FIRST = 20


def first(scores: np.ndarray, count: int) -> list[set[int]]:
    """The rows of greatest score of each query."""
    return [set(np.argsort(-own, kind="stable")[:count].tolist()) for own in scores]


def recall(found: list[set[int]], wanted: list[set[int]]) -> float:
    """Mean share of the wanted rows that was found."""
    return float(np.mean([len(one & other) / len(other) for one, other in zip(found, wanted, strict=True)]))


def main() -> None:
    """Print a line for each share."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("lm")
    parser.add_argument("index", help="where the index is built, or was")
    parser.add_argument("--labels")
    parser.add_argument("--recipe", default="lm-whole")
    parser.add_argument("--queries", type=int)
    given = parser.parse_args()
    pool, queries = (airrep.read_corpus(given.data / f"{name}.jsonl") for name in ("pool", "queries"))
    queries = queries[: given.queries]
    channels = [one.model_dump(exclude_none=True) for one in read_channels(given.recipe)]
    dear = [one["name"] for one in channels if one["method"] == "ekfac"]
    index = airrep.build_index(pool, given.index, recipe=channels, settings={"lm": given.lm})
    asked = index.ask(queries)
    whole = score_all(asked)
    wanted = first(whole, FIRST)
    print(f"{len(pool):,} examples, {len(queries)} queries, {given.recipe}", flush=True)
    if given.labels is not None:
        cheap = index.made_with({"channels": [one for one in channels if one["name"] not in dear]})
        print(f"the others alone, LDS {lds(cheap, given.labels, pool, queries):.2f}", flush=True)
    for share in (None, *SHARES):
        own = [{**one, "candidates": share} if one["name"] in dear and share else one for one in channels]
        some = index.made_with({"channels": own})
        parts = some.ask(queries).parts[dear[0]]
        line = "whole" if share is None else f"{share:>5}"
        if share is not None:
            picked = [set(rows.tolist()) for rows in parts.picked]
            line += f": among the candidates {recall(picked, wanted):.3f}"
            line += f", in the first {FIRST} {recall(first(score_all(some.ask(queries)), FIRST), wanted):.3f}"
        if given.labels is not None:
            line += f", LDS {lds(some, given.labels, pool, queries):.2f}"
        print(line, flush=True)


def lds(index: airrep.Index, labels: str, pool: airrep.Corpus, queries: airrep.Corpus) -> float:
    """LDS by labels of the pool."""
    instances = airrep.open(labels).instances(pool, queries)
    return 100 * float(airrep.evaluate_lds([index], instances, resamples=50).rows[0].value)


if __name__ == "__main__":
    main()
