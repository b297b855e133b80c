"""Mask the training tokens that a query's token scores name, fine-tune again, and see what its loss does.

Usage: python experiments/tokens/masking.py DATA LM OUT [--pool 60] [--queries 40] [--seeds 2] [--share 0.01]

OUT gets a line of JSON for each query, seed and arm: the query's loss after a fine-tune of the whole pool, and after
one in which some response tokens of the pool have no loss. A run that was stopped goes on. `--table OUT` prints the
means.
"""

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from records import count, read

from airrep.attributors.by_token import Stretches, TextWords
from airrep.attributors.methods import make_attributor
from airrep.corpus.corpus import Corpus, Example
from airrep.index.building import build_index
from airrep.lm.documents import Documents
from airrep.lm.model import TargetLM, load_lm
from airrep.lm.settings import FineTuneSettings, LmSettings

TUNE = {"epochs": 2, "learning_rate": 5e-4, "batch_examples": 8}
SHORT, LONG = 30, 120
"""Letters of a response."""
PROMPT = 120
ORDERS = (1, 2, 3)
RESAMPLES = 2000
SUM, GRADIENTS, NGRAMS = "token scores of recipe lm", "token scores of gradients", "n-gram overlap"
SAME, RANDOM = "random tokens of the same examples", "random tokens"
STEP = "losses that a step on the query lowers"
WHOLE = "token scores of EK-FAC"
ARMS = (SUM, GRADIENTS, NGRAMS, SAME, RANDOM, STEP, WHOLE)


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
    return replace(documents, shares=shares)


class Arms:
    """Which response tokens of the pool each arm masks."""

    def __init__(self, lm: str, pool: Corpus, reader: TargetLM, many: int, folder: Path) -> None:
        self._pool, self._reader, self._many = pool, reader, many
        self._documents, self._places = reader.tokenise(pool), reader.chat.token_places(pool)
        own = {"lm": lm, "precision": "float32"}
        self._gradients = make_attributor("logra", {**own, "unit": False, "store": "none"})
        self._whole = make_attributor("ekfac", own)
        for method in (self._gradients, self._whole):
            method.fit(pool)
        shared = {**own, "store": str(folder / "store")}
        self._index = build_index(pool, folder / "index", recipe="lm", settings=shared)

    def of(self, arm: str, query: Example, draw: np.random.Generator) -> np.ndarray:
        """The tokens, *many* in each arm."""
        documents, every = self._documents, int(self._documents.response_lengths.sum())
        if arm == RANDOM:
            return draw.choice(every, self._many, replace=False)
        if arm == SAME:
            owners = np.repeat(np.arange(len(documents)), documents.response_lengths)
            times = Counter(owners[self.of(GRADIENTS, query, draw)].tolist())
            drawn = (
                draw.choice(np.flatnonzero(owners == row), count, replace=False) for row, count in sorted(times.items())
            )
            return np.concatenate(list(drawn))
        if arm == NGRAMS:
            asked = self._reader.tokenise([query])
            worth = by_ngrams(documents, asked.sequence(0), int(asked.starts[0]))
            return np.lexsort((draw.random(len(worth)), -worth))[: self._many]  # ties by chance
        if arm == STEP:
            return np.argsort(-self.lowered(query), kind="stable")[: self._many]
        by = {GRADIENTS: self.gradients, WHOLE: self.whole, SUM: self.of_sum}[arm]
        return np.argsort(-by(query), kind="stable")[: self._many]

    def gradients(self, query: Example) -> np.ndarray:
        """Token scores of LoGra; a fine-tune sums the losses of all tokens, so that an answer's mean is taken back."""
        found = self._gradients.tokens(query, list(self._pool))
        lengths = self._documents.response_lengths.tolist()
        parts = [own.scores.sum(axis=0) * length for own, length in zip(found, lengths, strict=True)]
        return of_responses(self._documents, parts)

    def whole(self, query: Example) -> np.ndarray:
        """Token scores of EK-FAC, which sums an answer's tokens as a fine-tune does."""
        parts = [own.scores.sum(axis=0) for own in self._whole.tokens(query, list(self._pool))]
        return of_responses(self._documents, parts)

    def lowered(self, query: Example) -> np.ndarray:
        """How much one small step of AdamW on the query alone lowers the loss of each response token of the pool."""
        step = FineTuneSettings(epochs=1, learning_rate=1e-4, weight_decay=0.0)
        self._reader.reset()
        before = np.concatenate(self._reader.token_losses(self._documents))
        self._reader.fine_tune(self._reader.tokenise([query]), step, 0)
        return before - np.concatenate(self._reader.token_losses(self._documents))

    def of_sum(self, query: Example) -> np.ndarray:
        """Token scores of the recipe lm: a word's part is shared among its tokens."""
        parts: dict[int, np.ndarray] = {}
        for hit in self._index.top(query, len(self._pool), tokens=True):
            places = self._places[hit.row]
            shares = TextWords(hit.example).shares(Stretches(places.starts[1:], places.stops[1:]))[:, :-1]
            parts[hit.row] = shares / np.maximum(shares.sum(axis=0), 1e-9) @ np.array(hit.why.tokens.of_example)
        return of_responses(self._documents, [parts[row] for row in range(len(self._pool))])


def run(given: argparse.Namespace, folder: Path) -> Iterator[dict]:
    """The losses of each query and seed."""
    pool, queries = chosen(given.data, given.pool, given.queries)
    lm: TargetLM = load_lm(LmSettings(lm=str(given.lm), precision="float32"))
    documents, settings = lm.tokenise(pool), FineTuneSettings(**TUNE)
    many = round(given.share * int(documents.response_lengths.sum()))
    asked = lm.tokenise(queries)
    arms = Arms(str(given.lm), pool, lm, many, folder)

    def losses(train: Documents, seed: int, some: Documents = asked) -> np.ndarray:
        lm.reset()
        lm.fine_tune(train, settings, seed)
        return lm.losses(some)

    before = lm.losses(asked)
    whole = {seed: losses(documents, seed) for seed in range(given.seeds)}
    done = {(row["query"], row["seed"], row["arm"]) for row in read_lines(given.out)}
    for seed, number, arm in product(whole, range(len(queries)), given.arm or ARMS):
        if (number, seed, arm) in done:
            continue
        tokens = arms.of(arm, queries[number], np.random.default_rng([seed, number, ARMS.index(arm)]))
        found = losses(masked(documents, tokens), seed, asked.take([number]))
        known = {"before": float(before[number]), "whole": float(whole[seed][number])}
        yield {"query": number, "seed": seed, "arm": arm, "tokens": many, **known, "masked": float(found[0])}


def read_lines(path: Path) -> list[dict]:
    """Return what is there already."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def table(path: Path) -> None:
    """Print the mean rise of the loss in each arm, and how much more the sum's token scores raise it."""
    rows = read_lines(path)
    rises: dict[str, dict[int, list[float]]] = {arm: {} for arm in ARMS}
    for row in rows:
        rises[row["arm"]].setdefault(row["query"], []).append(row["masked"] - row["whole"])
    means = {arm: {query: float(np.mean(all_)) for query, all_ in own.items()} for arm, own in rises.items() if own}
    learnt = np.mean([row["before"] - row["whole"] for row in rows])
    print(
        f"{len(rows)} fine-tunes, {rows[0]['tokens']} tokens masked; one of all lowers a query's loss by {learnt:.3f}\n"
    )
    columns = [arm for arm in (SUM, GRADIENTS, WHOLE) if arm in means]
    print("| masked | queries | rise of the loss, 1e-3 nats |", " | ".join(f"{one}, less this" for one in columns), "|")
    print("|---|---|---|" + "---|" * len(columns))
    for arm, own in means.items():
        less = []
        for one in columns:
            both = sorted(means[one].keys() & own.keys())
            less.append("" if one == arm else interval(np.array([means[one][query] - own[query] for query in both])))
        print(f"| {arm} | {len(own)} | {interval(np.array(list(own.values())))} |", " | ".join(less), "|")


def interval(values: np.ndarray) -> str:
    """The mean over queries, and a bootstrap's 95 % interval over them, times 1000."""
    draws = np.random.default_rng(0).integers(0, len(values), (RESAMPLES, len(values)))
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
    parser.add_argument("--arm", action="append", choices=ARMS, help="only this arm; may be repeated")
    parser.add_argument("--table", type=Path, help="print the means of a run")
    given = parser.parse_args()
    if given.table is not None:
        table(given.table)
        return
    with given.out.open("a", encoding="utf-8") as out, tempfile.TemporaryDirectory() as folder:
        for row in run(given, Path(folder)):
            out.write(json.dumps(row) + "\n")
            out.flush()


if __name__ == "__main__":
    main()
