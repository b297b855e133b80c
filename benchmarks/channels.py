"""Sums of channels: encoding, storage, searches and group scores, beside plain ones.

Run as ``python benchmarks/channels.py``. Process CPU time, candidates in turns, one thread but where told. Texts are
those that come with airrep; features of large indexes are drawn at random, n-grams by Zipf's law: of each example 50
are common and 97 rare, as many as the default channels store of the demo's examples.
"""

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from cpu import interleave

import airrep
from airrep.arrays import Features, SparseFeatures
from airrep.attributors.methods import make_attributor
from airrep.attributors.text.tokens import SUBWORDS, tokenizer_of
from airrep.corpus.corpus import Corpus
from airrep.scoring.asked import SumAsked
from airrep.scoring.blocks import Block, error_bounds, quantise
from airrep.scoring.columns import Postings
from airrep.scoring.group_scores import group_scores
from airrep.scoring.groups import Groups
from airrep.scoring.pooling import CHANNELS, Pooling
from airrep.scoring.products import ask
from airrep.scoring.topk import top_k
from airrep.sparse import SparseRows, below

D, SHARD, COMMON, RARE = 384, 4096, 50, 97
SPAN = 2**22
"""Different rare n-grams of one counting channel."""
WIDE = 2**28
"""Columns of one counting channel, as the real one has."""
TEXTS = Path(airrep.__file__).parent / "data" / "train.jsonl"


def verdict(ratio: float, most: float) -> str:
    """A measured number beside the greatest one asked for."""
    return f"{ratio:.2f} (ask <= {most:g}: {'met' if ratio <= most else 'MISSED'})"


def encoding(texts: Corpus, rounds: int) -> None:
    """Print what a second view of the encoder costs."""
    one = {"method": "airrep", "settings": {"encoder": "default"}}
    two = {"method": "airrep", "settings": {"encoder": "default", "view": "response"}}
    made = {name: make_attributor("channels", {"channels": parts}) for name, parts in (("1", [one]), ("2", [one, two]))}
    examples = list(texts[:200])
    spent = interleave({name: lambda m=m: m.encode(examples) for name, m in made.items()}, rounds)
    print(f"Encoding, {len(examples)} examples: one view {spent['1']:.2f} s, two {spent['2']:.2f} s")
    print(f"  two views over one: {verdict(spent['2'] / spent['1'], 1.8)}")


def storage(texts: Corpus, folder: Path) -> None:
    """Print what the default channels store for examples of about 100 tokens, prompts and responses together."""
    split, _ = tokenizer_of(SUBWORDS)
    lengths = [len(tokens) for tokens in split([f"{one.prompt} {one.response}" for one in texts])]
    rows = [n for n, length in enumerate(lengths) if 90 <= length <= 110]
    index = airrep.build_index(texts.take(rows), folder / "index", "channels")
    stored = sum(path.stat().st_size for path in index.path.glob("shards/*/*/*.npy")) / len(rows)
    print(f"Storage, {len(rows)} examples of 90 to 110 tokens: {verdict(stored / 1000, 4)} kB each")


def drawn(generator: np.random.Generator, rows: int) -> SparseFeatures:
    """N-grams of some examples, of one counting channel."""
    common = np.minimum(generator.zipf(1.3, (rows, COMMON)), 20_000)
    rare = generator.integers(20_001, SPAN, (rows, RARE))
    columns = np.sort(np.concatenate([common, rare], axis=1).astype(np.int32) * 60, axis=1)
    first = np.ones(columns.shape, bool)
    first[:, 1:] = columns[:, 1:] != columns[:, :-1]
    ends = np.concatenate([[0], np.cumsum(first.sum(axis=1))])
    values = generator.random(int(ends[-1])).astype(np.float32) + np.float32(0.1)
    return SparseRows(values, columns[first], ends, (rows, WIDE))


Channels = dict[str, list[Block]]
"""Blocks of an index in memory, by channel."""


def index_of(generator: np.random.Generator, rows: int, channels: int) -> Channels:
    """An index of one dense channel, "encoder", and so many counting ones."""
    index: Channels = {"encoder": [], **{f"n-grams {n}": [] for n in range(channels)}}
    for start in range(0, rows, SHARD):
        features = (generator.standard_normal((min(SHARD, rows - start), D)) / D**0.5).astype(np.float16)
        codes, scales = quantise(features)
        bounds = error_bounds(features, codes, scales)
        for name, blocks in index.items():
            dense = name == "encoder"
            blocks.append(
                Block(start, features, codes, scales, bounds)
                if dense
                else Block(start, Postings.of(drawn(generator, len(features))))
            )
    return index


def queries_of(generator: np.random.Generator, count: int, index: Channels) -> dict[str, Features]:
    """Features of queries, by channel."""
    return {
        name: generator.standard_normal((count, D)).astype(np.float32) if name == "encoder" else drawn(generator, count)
        for name in index
    }


def asked(queries: dict[str, Features], index: Channels) -> SumAsked:
    """The sum of all channels, each with the pool that the default recipe gives it."""
    pools = {name: Pooling("attention" if name == "encoder" else "ngram-lm") for name in index}
    parts = {name: ask(features, index[name], pools[name]) for name, features in queries.items()}
    return SumAsked(parts, np.ones((len(queries["encoder"]), len(parts))), CHANNELS)


def search(generator: np.random.Generator, rows: int, channels: int) -> None:
    """Print the time of one query, and of the plain way on a part."""
    index = index_of(generator, rows, channels)
    query = queries_of(generator, 1, index)
    top_k(asked(query, index), 10)
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(5):
        top_k(asked(query, index), 10)
    cpu, wall = (time.process_time() - cpu) / 5, (time.perf_counter() - wall) / 5
    print(f"Top 10 of {rows:,} for one query, {channels} counting channels and {D} dense features, two threads")
    print(f"  airrep {cpu:.3f} s of CPU, on the clock {verdict(wall, 0.4)} s")
    dense, *counting = (blocks[:10] for blocks in index.values())
    rows_of = np.concatenate([block.dense() for block in dense]).astype(np.float32)
    counted = [below([block.features.csr() for block in blocks]) for blocks in counting]
    start = time.process_time()
    scores = rows_of @ query["encoder"][0]
    for n, one in enumerate(counted):
        columns, weights = query[f"n-grams {n}"].indices, query[f"n-grams {n}"].data
        place = np.minimum(np.searchsorted(columns, one.indices), len(columns) - 1)
        hit = columns[place] == one.indices
        row = np.repeat(np.arange(len(rows_of)), np.diff(one.indptr))[hit]
        scores += np.bincount(row, one.data[hit] * weights[place[hit]], minlength=len(rows_of))
    np.argpartition(-scores, 10)
    plain = (time.process_time() - start) * rows / len(rows_of)
    print(f"  a plain scan of all features would take {plain:.2f} s of CPU, {plain / cpu:.1f} times as much")


def groups(generator: np.random.Generator, channels: int, rounds: int) -> None:
    """Print the time of group scores beside those of the dense channel alone."""
    index = index_of(generator, 20_480, channels)
    queries = queries_of(generator, 1000, index)
    chosen = Groups.from_lists({str(n): generator.choice(20_000, 1000, replace=False) for n in range(100)})
    dense = [Block(block.start, block.features) for block in index["encoder"]]  # as a method alone has them
    spent = interleave(
        {
            "dense": lambda: group_scores(ask(queries["encoder"], dense), chosen, "attention"),
            "channels": lambda: group_scores(asked(queries, index), chosen),
        },
        rounds,
    )
    print(
        f"Groups, 1,000 queries x 100 groups of 1,000: dense {spent['dense']:.2f} s, channels {spent['channels']:.2f} s"
    )
    print(f"  channels over dense: {verdict(spent['channels'] / spent['dense'], 2)}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--channels", type=int, default=2, help="counting channels; the default recipe has 2")
    given = parser.parse_args(arguments)
    generator, texts = np.random.default_rng(0), airrep.read_corpus(TEXTS)
    torch.set_num_threads(1)
    encoding(texts, given.rounds)
    with tempfile.TemporaryDirectory() as folder:
        storage(texts, Path(folder))
    groups(generator, given.channels, given.rounds)
    torch.set_num_threads(2)
    search(generator, given.rows, given.channels)


if __name__ == "__main__":
    main()
