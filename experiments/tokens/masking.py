"""Mask the training tokens that a query's token scores name, fine-tune again, and see what its loss does.

Usage: python experiments/tokens/masking.py DATA LM OUT [--pool 60] [--queries 40] [--seeds 2] [--share 0.01]

OUT gets a line of JSON for each query and seed: the query's loss after a fine-tune of the whole pool, and after
fine-tunes in which some response tokens of the pool have no loss. A run that was stopped goes on. `--table OUT` prints
the means.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from records import count, read

from airrep.attributors.methods import make_attributor
from airrep.corpus.corpus import Corpus, Example
from airrep.lm.documents import Documents
from airrep.lm.model import TargetLM, load_lm
from airrep.lm.settings import FineTuneSettings, LmSettings

TUNE = {"epochs": 2, "learning_rate": 5e-4, "batch_examples": 8}
SHORT, LONG = 30, 120
"""Letters of a response."""
PROMPT = 120
ORDERS = (1, 2, 3)
RESAMPLES = 2000


def chosen(data: Path, pool: int, queries: int, seed: int = 0) -> tuple[Corpus, list[Example]]:
    """Examples of short texts, no two of them equal, drawn at random: a pool, and queries that are not in it."""
    rows = {row["response"]: row for row in read(data) if len(row["prompt"]) <= PROMPT}
    short = [row for row in rows.values() if SHORT <= len(row["response"]) <= LONG]
    order = np.random.default_rng(seed).permutation(len(short))[: pool + queries]
    made = [Example(short[n]["prompt"], short[n]["response"], str(n)) for n in order.tolist()]
    return Corpus.from_examples(made[:pool]), made[pool:]


def of_responses(documents: Documents, columns: list[np.ndarray]) -> np.ndarray:
    """Numbers of predicted tokens, document by document, as those of all response tokens in order."""
    starts = documents.starts.tolist()
    return np.concatenate([own[start - 1 :] for own, start in zip(columns, starts, strict=True)])


def by_ngrams(documents: Documents, query: np.ndarray, start: int) -> np.ndarray:
    """For each response token of the pool, what n-grams that end there and in the query's response too are worth.

    An n-gram of the pool that it has c times is worth 1 / c: the longer and the rarer, the more.
    """
    asked = {tuple(query[end - n : end]) for n in ORDERS for end in range(start + 1, len(query) + 1) if end >= n}
    sequences = [documents.sequence(row).tolist() for row in range(len(documents))]
    often = Counter(tuple(ids[end - n : end]) for ids in sequences for n in ORDERS for end in range(n, len(ids) + 1))

    def worth(ids: list[int]) -> np.ndarray:
        ends = range(1, len(ids) + 1)
        grams = [[tuple(ids[end - n : end]) for n in ORDERS if end >= n] for end in ends]
        return np.array([sum(1 / often[gram] for gram in some if gram in asked) for some in grams])

    return of_responses(documents, [worth(ids)[1:] for ids in sequences])


def masked(documents: Documents, tokens: np.ndarray) -> Documents:
    """The documents without the losses of some response tokens."""
    shares = np.ones(int(documents.response_lengths.sum()), np.float32)
    shares[tokens] = 0
    return Documents(documents.ids, documents.offsets, documents.starts, shares)


def arms(scores: np.ndarray, ngrams: np.ndarray, documents: Documents, many: int, seed: int) -> dict[str, np.ndarray]:
    """Which response tokens each arm masks, *many* in each."""
    draw = np.random.default_rng(seed)
    owners = np.repeat(np.arange(len(documents)), documents.response_lengths)
    best = np.argsort(-scores, kind="stable")[:many]
    within = np.concatenate(
        [
            draw.choice(np.flatnonzero(owners == row), times, replace=False)
            for row, times in sorted(Counter(owners[best].tolist()).items())
        ]
    )
    ties = draw.random(len(ngrams))
    return {
        "token scores": best,
        "n-gram overlap": np.lexsort((ties, -ngrams))[:many],
        "random tokens of the same examples": within,
        "random tokens": draw.choice(len(scores), many, replace=False),
    }


def run(given: argparse.Namespace) -> Iterator[dict]:
    """The losses of each query and seed."""
    pool, queries = chosen(given.data, given.pool, given.queries)
    method = make_attributor(given.method, {"lm": str(given.lm), "precision": "float32", "store": "none"})
    method.fit(pool)
    lm: TargetLM = load_lm(LmSettings(lm=str(given.lm), precision="float32"))
    documents, settings = lm.tokenise(pool), FineTuneSettings(**TUNE)
    many = round(given.share * int(documents.response_lengths.sum()))
    asked = lm.tokenise(queries)

    def losses(train: Documents, seed: int, some: Documents = asked) -> np.ndarray:
        lm.reset()
        lm.fine_tune(train, settings, seed)
        return lm.losses(some)

    before = lm.losses(asked)
    whole = {seed: losses(documents, seed) for seed in range(given.seeds)}
    done = {(row["query"], row["seed"]) for row in read_lines(given.out)}
    found: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for seed, number in product(whole, range(len(queries))):
        if (number, seed) in done:
            continue
        if number not in found:
            products = method.tokens(queries[number], list(pool))
            scores = of_responses(documents, [own.scores.sum(axis=0) for own in products])
            found[number] = scores, by_ngrams(documents, asked.sequence(number), int(asked.starts[number]))
        told = {
            name: float(losses(masked(documents, tokens), seed, asked.take([number]))[0])
            for name, tokens in arms(*found[number], documents, many, 1000 * seed + number).items()
        }
        row = {"query": number, "seed": seed, "tokens": many, "before": float(before[number])}
        yield {**row, "whole": float(whole[seed][number]), **told}


def read_lines(path: Path) -> list[dict]:
    """What is there already."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def table(path: Path) -> None:
    """Print the mean rise of the loss in each arm, and how much more token scores raise it, with 95 % intervals."""
    rows = read_lines(path)
    names = [name for name in rows[0] if name not in ("query", "seed", "tokens", "before", "whole")]
    asked = sorted({row["query"] for row in rows})
    rise = np.array(
        [
            np.mean([[row[name] - row["whole"] for name in names] for row in rows if row["query"] == one], axis=0)
            for one in asked
        ]
    )
    learnt = np.mean([row["before"] - row["whole"] for row in rows])
    print(f"{len(asked)} queries, {len(rows)} fine-tunes of each arm, {rows[0]['tokens']} tokens masked;")
    print(f"the fine-tune of all lowers a query's loss by {learnt:.4f} nats\n")
    draws = np.random.default_rng(0).integers(0, len(asked), (RESAMPLES, len(asked)))
    print("| masked | rise of the loss, 1e-3 nats | token scores less this | queries where token scores rise more |")
    print("|---|---|---|---|")
    for place, name in enumerate(names):
        more = rise[:, 0] - rise[:, place]
        cells = [interval(each, draws) for each in (rise[:, place], more)]
        wins = f"{int((more > 0).sum())} of {len(asked)}"
        print(f"| {name} | {cells[0]} | {cells[1] if place else ''} | {wins if place else ''} |")


def interval(values: np.ndarray, draws: np.ndarray) -> str:
    """The mean over queries, and a bootstrap's 95 % interval over them, times 1000."""
    low, high = np.percentile(values[draws].mean(axis=1), [2.5, 97.5])
    return f"{1000 * values.mean():+.2f} ({1000 * low:+.2f} to {1000 * high:+.2f})"


def main() -> None:
    """Run, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("lm", type=Path, nargs="?")
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--pool", type=count, default=60)
    parser.add_argument("--queries", type=count, default=40)
    parser.add_argument("--seeds", type=count, default=2)
    parser.add_argument("--share", type=float, default=0.01, help="share of the pool's response tokens")
    parser.add_argument("--method", default="logra", help="whose token scores")
    parser.add_argument("--table", type=Path, help="print the means of a run")
    given = parser.parse_args()
    if given.table is not None:
        table(given.table)
        return
    with given.out.open("a", encoding="utf-8") as out:
        for row in run(given):
            out.write(json.dumps(row) + "\n")
            out.flush()


if __name__ == "__main__":
    main()
