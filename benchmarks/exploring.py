"""Questions of the page of `airrep serve` to a large index, answered without a browser.

Usage: python benchmarks/exploring.py [ROWS] [--channels]     (default 1,000,000 rows; 1.6 kB of disk a row, or 3.2)

Features are drawn at random: 384 dense ones, and with --channels two counting channels beside them, as the default
method has. Examples have a source, a label, and metadata of which two fields are facets and one differs in each row.
"""

import argparse
import hashlib
import json
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from channels import WIDE, D, drawn

import airrep
from airrep.arrays import Encoded, Features
from airrep.corpus.table import SCHEMA
from airrep.explorer import questions
from airrep.explorer import requests as ask
from airrep.explorer.explorer import Explorer
from airrep.runtime.settings import Settings
from airrep.scoring.asked import Asked, Kept, SumAsked
from airrep.scoring.pooling import CHANNELS, Pooling
from airrep.scoring.products import ask as ask_features
from airrep.sparse import SparseRows

ASKED = 0.5
"""Seconds of CPU that an answer may take, the second time it is asked for."""


class Drawn(airrep.Attributor):
    """Features drawn from a seed made of the first example's id."""

    name = "drawn"
    pool = "attention"

    def __init__(self, channels: bool) -> None:
        self.channels = channels

    @property
    def settings(self) -> Settings:
        return Settings()

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(f"drawn {self.channels}".encode()).hexdigest()

    def encode_train(
        self, examples: Sequence[airrep.Example], on_rows: Callable[[int], None] | None = None
    ) -> Features:
        return self._dense(_generator(examples), len(examples))

    def encode(self, examples: Sequence[airrep.Example], on_rows: Callable[[int], None] | None = None) -> Encoded:
        if not self.channels:
            return super().encode(examples, on_rows)
        generator = _generator(examples)
        encoded = {"dense": self._dense(generator, len(examples))}
        for n in (0, 1):
            heads = SparseRows(*_heads(len(examples)), (len(examples), WIDE))  # the weight of each example
            encoded[f"counts {n}"] = (drawn(generator, len(examples)) + heads).astype(np.float32)
        return encoded

    def ask(
        self,
        queries: Sequence[airrep.Example],
        kept: Kept,
        on_rows: Callable[[int], None] | None = None,
        channel: str | None = None,
    ) -> Asked:
        if not self.channels:
            return super().ask(queries, kept, on_rows, channel)
        generator, count = np.random.default_rng(7), len(queries)
        features = {"dense": self._dense(generator, count), **{f"counts {n}": drawn(generator, count) for n in (0, 1)}}
        parts = {
            name: ask_features(one, kept.blocks(name), Pooling("attention" if name == "dense" else "ngram-lm"))
            for name, one in features.items()
        }
        return SumAsked(parts, np.ones((count, len(parts))), CHANNELS)

    @staticmethod
    def _dense(generator: np.random.Generator, rows: int) -> np.ndarray:
        dense = generator.standard_normal((rows, D), np.float32)
        dense *= 5**0.5 / np.maximum(np.linalg.norm(dense, axis=1, keepdims=True), 1e-9)
        return dense


def _generator(examples: Sequence[airrep.Example]) -> np.random.Generator:
    return np.random.default_rng(list(examples[0].id.encode()) if len(examples) else 0)


def _heads(rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.ones(rows, np.float32), np.zeros(rows, np.int32), np.arange(rows + 1)


def corpus(rows: int) -> airrep.Corpus:
    """Examples with fields to filter by."""
    generator = np.random.default_rng(0)
    numbers = {name: generator.integers(0, most, rows) for name, most in (("source", 16), ("label", 40), ("year", 35))}
    metadata = (
        json.dumps({"lang": f"l{n % 10}", "url": f"http://example.org/{n}", "year": 1990 + year}, separators=(",", ":"))
        for n, year in enumerate(numbers["year"].tolist())
    )
    texts = {
        "id": map(str, range(rows)),
        "prompt": (f"question {n} of topic {n % 977} " + "in words of an ordinary example " * 6 for n in range(rows)),
        "response": (f"answer {n * 7 % rows} " + "it is as it is " * 8 for n in range(rows)),
        "label": (f"label {n}" for n in numbers["label"].tolist()),
        "source": (f"source {n}" for n in numbers["source"].tolist()),
        "metadata": metadata,
    }
    columns = [pa.array(texts[one.name], one.type) if one.name in texts else pa.nulls(rows, one.type) for one in SCHEMA]
    return airrep.Corpus(pa.table(columns, schema=SCHEMA))


def questions_of(explorer: Explorer) -> dict[str, Callable[[], object]]:
    """Return what the page asks, ready to be asked."""
    query = ask.QueryRef(prompt="query", response="words of an answer")
    one = {"source": ["source 3"]}
    return {
        "about (the first page)": lambda: questions.about(explorer),
        "counts of all facets": lambda: questions.count(explorer, ask.Filters()),
        "counts under a value": lambda: questions.count(explorer, ask.Filters(facets=one)),
        "counts under a filter": lambda: questions.count(explorer, ask.Filters(where="year < 2000")),
        "most helpful": lambda: questions.top(explorer, ask.TopRequest(query=query)),
        "most harmful": lambda: questions.top(explorer, ask.TopRequest(query=query, least=True)),
        "most helpful under a value": lambda: questions.top(explorer, ask.TopRequest(query=query, facets=one)),
        "groups by source": lambda: questions.groups(explorer, ask.GroupRequest(query=query, by="source")),
        "groups by year": lambda: questions.groups(explorer, ask.GroupRequest(query=query, by="year")),
        "what if, three rows": lambda: questions.what_if(explorer, ask.WhatIfRequest(query=query, rows=[1, 2, 3])),
        "what if, a source": lambda: questions.what_if(explorer, ask.WhatIfRequest(query=query, facets=one)),
        "an example": lambda: questions.example(
            explorer, ask.ExampleRequest(row=len(explorer.indexes[0]) // 2, query=query)
        ),
    }


def main(rows: int, channels: bool) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        method = Drawn(channels)
        airrep.build_index(corpus(rows), Path(folder) / "index", method)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        begun = time.perf_counter()
        explorer = Explorer(airrep.Index(Path(folder) / "index", method))
        explorer.prepare()
        print(f"{rows:,} rows, {'three channels' if channels else f'{D} features'}")
        print(f"opened, facets read, before the address is told: {time.perf_counter() - begun:.1f} s")
        print(f"{'':28}{'first':>8}{'again':>8}{'of CPU':>8}   seconds; asked {ASKED:g} of CPU")
        for name, question in questions_of(explorer).items():
            seconds, spent = [], []
            for _ in range(4):
                begun, used = time.perf_counter(), time.process_time()
                question()
                seconds.append(time.perf_counter() - begun)
                spent.append(time.process_time() - used)
            cpu = min(spent[1:])
            verdict = "ok" if cpu <= ASKED else "MISSED"
            print(f"{name:28}{seconds[0]:8.3f}{min(seconds[1:]):8.3f}{cpu:8.3f}   {verdict}")
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        print(f"peak memory grew by {max(grown, 0):,.0f} MiB, maps of files counted")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("rows", nargs="?", type=int, default=1_000_000)
    parser.add_argument("--channels", action="store_true")
    given = parser.parse_args()
    main(given.rows, given.channels)
