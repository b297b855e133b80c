"""DSIR against data-selection: counts, importance weights, and what is drawn by them."""

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

os.environ["TQDM_DISABLE"] = "1"

import numpy as np
from data_selection import HashedNgramDSIR
from data_selection.hashed_ngram_dsir import get_ngram_counts
from world import Comparison

import airrep
from airrep.attributors.text.lexical import DsirAttributor, NgramCounter, log_ratio
from airrep.scoring.topk import gumbel_top_k

BUCKETS = 10_000
SEED = 5
"""Seed of the noise that both sides draw with."""
HOSTILE = [
    "It's 3.14, isn't it?! (no: 22/7)... e-mail me: a_b@c.org",
    "ÜBERGRÖSSE straße ΣΊΣΥΦΟΣ İstanbul ǅ ﬁne naïve cafe\u0301",
    "春眠不觉晓，处处闻啼鸟。 ١٢٣ ४५६ ² ½",
    "👩‍👩‍👧‍👦 ☀️ zero\u200bwidth non\u00a0breaking\u2028line\x1fseparated\ttabs\r\n\r\nlines",
    "echo " * 300,
    "one",
    "!",
    "a a a b a b a a",
]
"""Scripts, signs, case, repeats, and texts shorter than an n-gram."""


class Theirs(NamedTuple):
    """Results of data-selection for a corpus and a target."""

    log_ratio: np.ndarray
    """``(d,)``."""
    weights: np.ndarray
    """``(n,)`` log importance weights."""
    first: set[int]
    """Rows of the greatest weights."""
    drawn: set[int]
    """Rows that are drawn by weight."""


def main() -> int:
    """Compare, and give the exit status."""
    comparison = Comparison("data-selection")
    corpus = airrep.read_corpus(Path(airrep.__file__).parent / "data" / "train.jsonl")[:400]
    hostile = [airrep.Example(text, text[::-1], id=f"hostile-{row}") for row, text in enumerate(HOSTILE)]
    train = airrep.Corpus.from_examples([*hostile, *corpus[:300]])
    queries = airrep.Corpus.from_examples([*hostile[:3], *corpus[300:]])
    compare_counts(comparison, texts_of(train) + HOSTILE)
    compare_weights(comparison, train, queries)
    return comparison.status


def texts_of(examples: Sequence[airrep.Example]) -> list[str]:
    """The text of each example, as DSIR reads it."""
    return [f"{example.prompt}\n{example.response}" for example in examples]


def compare_counts(comparison: Comparison, texts: list[str]) -> None:
    """Hashed n-gram counts, exactly."""
    for longest, buckets in ((2, BUCKETS), (1, BUCKETS), (3, 64)):
        theirs = np.stack([get_ngram_counts(text, n=longest, num_buckets=buckets) for text in texts])
        ours = NgramCounter(longest, buckets).count(texts).toarray()
        comparison.hold(f"counts, n = {longest}, {buckets} buckets", ours, theirs, 0.0)


def compare_weights(comparison: Comparison, train: airrep.Corpus, queries: airrep.Corpus) -> None:
    """The original form, all queries as one target; and each query as a target of its own."""
    attributor = DsirAttributor()
    attributor.fit(train)
    features = attributor.encode_train(train)
    theirs = select_with_theirs(texts_of(train), texts_of(queries), count=25)
    counter = NgramCounter()
    ratio = log_ratio(counter.total(texts_of(queries)), counter.total(texts_of(train)), 1e-8)
    comparison.hold("log p_target - log p_source, float64", ratio, theirs.log_ratio, 1e-12)
    comparison.hold("log importance weights, float64", features @ ratio, theirs.weights, 1e-12)
    weights = (features @ attributor.encode_target(queries).T).toarray()[:, 0]
    comparison.hold("log importance weights, float32 features", weights, theirs.weights, 1e-6)
    chosen = set(np.argsort(-weights, kind="stable")[:25].tolist())
    comparison.hold("rows of greatest weight", sorted(chosen), sorted(theirs.first), 0.0)
    drawn = gumbel_top_k(weights, 25, np.random.default_rng(SEED))
    comparison.hold("rows drawn with the same noise", sorted(drawn.tolist()), sorted(theirs.drawn), 0.0)
    scores = (attributor.encode_queries(queries) @ features.T).toarray()
    each = np.stack([select_with_theirs(texts_of(train), [text], 5).weights for text in texts_of(queries[:8])])
    comparison.hold("log importance weights, query by query", scores[:8], each, 1e-6)


def select_with_theirs(train: list[str], target: list[str], count: int) -> Theirs:
    """Run data-selection from files to files, with its defaults but for short texts, which it leaves out."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [write(Path(folder) / name, texts) for name, texts in (("raw", train), ("target", target))]
        dsir = HashedNgramDSIR([paths[0]], [paths[1]], f"{folder}/cache", num_proc=1, min_example_length=0)
        dsir.fit_importance_estimator()
        dsir.compute_importance_weights()
        weights = np.load(f"{folder}/cache/log_importance_weights/0.npy")
        dsir.resample(f"{folder}/first", count, cache_dir=f"{folder}/first-partial", top_k=True)
        with patch.object(np.random, "gumbel", np.random.default_rng(SEED).gumbel):
            dsir.resample(f"{folder}/drawn", count, cache_dir=f"{folder}/drawn-partial")
        return Theirs(dsir.log_diff, weights, rows_in(f"{folder}/first/0.jsonl"), rows_in(f"{folder}/drawn/0.jsonl"))


def write(path: Path, texts: list[str]) -> str:
    """Write texts as the JSON lines that data-selection reads."""
    path.write_text("".join(json.dumps({"text": text, "row": row}) + "\n" for row, text in enumerate(texts)))
    return str(path)


def rows_in(path: str) -> set[int]:
    """Rows of the texts in a file that data-selection wrote."""
    return {json.loads(line)["row"] for line in Path(path).read_text().splitlines()}


if __name__ == "__main__":
    sys.exit(main())
