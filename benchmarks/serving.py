"""Clients that ask `airrep serve --api` all at once: errors, and how long answers take.

Usage: python benchmarks/serving.py [--rows N] [--clients N] [--seconds S] [--folder DIR] [--alone N]

Builds an index of ROWS small made-up examples by the recipe `text` (default 1,000,000: about 15 minutes on one core and
2 GB of disk; DIR keeps it for another run), serves it in a process of its own, and lets CLIENTS (64) ask for SECONDS
(60), each its next question when it has the answer to the last. Of ten questions six are for the first 20 examples of a
new query, one is for its groups, one a what-if, one a read example, one a count under a filter. With --alone, this
process asks N questions for groups and N what-ifs, without a server, and prints the CPU time of each.
"""

import argparse
import asyncio
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import httpx
import numpy as np

import airrep

TOKEN = "token-of-the-load-script"
QUESTIONS = ("top",) * 6 + ("groups", "what-if", "example", "count")
RARE = 20_000
"""Words that examples are made of, a few of them in most."""


def words(chance: random.Random, count: int) -> str:
    """Words drawn so that the first are frequent."""
    return " ".join(f"word{int(RARE ** chance.random())}" for _ in range(count))


def write_examples(path: Path, rows: int) -> None:
    """Write small examples with a source and a label."""
    chance = random.Random(0)
    with path.open("w") as file:
        for row in range(rows):
            texts = {"prompt": f"what of {words(chance, 8)}?", "response": f"it is {words(chance, 12)}."}
            names = {"id": str(row), "source": f"source {row % 16}", "label": f"label {row % 40}"}
            file.write(json.dumps({**texts, **names}) + "\n")


def build(folder: Path, rows: int) -> Path:
    """The index of so many examples; built if it is not there."""
    index, data = folder / f"index-{rows}", folder / f"data-{rows}.jsonl"
    if not (index / "manifest.json").is_file():
        begun = time.perf_counter()
        write_examples(data, rows)
        subprocess.run([sys.executable, "-m", "airrep", "index", str(data), "--out", str(index)], check=True)
        print(f"built an index of {rows:,} examples in {time.perf_counter() - begun:.0f} s")
    return index


def question(chance: random.Random, number: int, rows: int) -> tuple[str, dict[str, Any]]:
    """The name and the body of a question."""
    name = QUESTIONS[number % len(QUESTIONS)]
    query = {"prompt": f"what of {words(chance, 8)}?", "response": f"it is {words(chance, 12)}."}
    bodies: dict[str, dict[str, Any]] = {
        "top": {"query": query},
        "groups": {"query": query, "by": "source"},
        "what-if": {"query": query, "facets": {"source": [f"source {chance.randrange(16)}"]}},
        "example": {"row": chance.randrange(rows), "query": query},
        "count": {"where": f"source == 'source {chance.randrange(16)}'"},
    }
    return name, bodies[name]


async def ask(client: httpx.AsyncClient, seed: int, rows: int, end: float, told: dict[str, list[float]]) -> None:
    """Ask until the time is over; note how long each answer took, under its status if it is no answer."""
    chance = random.Random(seed)
    for number in itertools.count(seed):
        begun = time.perf_counter()
        if begun > end:
            return
        name, body = question(chance, number, rows)
        try:
            status = (await client.post(f"/api/v1/{name}", json=body)).status_code
        except httpx.HTTPError as error:
            told[f"FAILED {type(error).__name__}"].append(0.0)
            continue
        told[name if status == 200 else f"FAILED {status}"].append(time.perf_counter() - begun)


async def load(address: str, clients: int, seconds: float, rows: int) -> dict[str, list[float]]:
    """Seconds of all answers, by question."""
    told: dict[str, list[float]] = defaultdict(list)
    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)
    headers = {"authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(
        base_url=address, headers=headers, limits=limits, timeout=300, trust_env=False
    ) as client:
        end = time.perf_counter() + seconds
        await asyncio.gather(*(ask(client, seed, rows, end, told) for seed in range(clients)))
    return told


def tell(told: dict[str, list[float]]) -> bool:
    """Print a line for each question; True if all were answered."""
    counts = Counter({name: len(seconds) for name, seconds in told.items()})
    answers = [one for name, seconds in told.items() if not name.startswith("FAILED") for one in seconds]
    print(f"{'':12}{'answers':>9}{'median':>9}{'p95':>9}{'longest':>9}   seconds")
    for name, seconds in [*sorted(told.items()), ("all", answers or [0.0])]:
        p95 = statistics.quantiles(seconds, n=20)[-1] if len(seconds) > 1 else sum(seconds)
        print(f"{name:12}{len(seconds):9,}{statistics.median(seconds):9.2f}{p95:9.2f}{max(seconds):9.2f}")
    failed = sum(count for name, count in counts.items() if name.startswith("FAILED"))
    print(f"{len(answers):,} answers, {failed:,} failed")
    return not failed


def alone(index: airrep.Index, questions: int) -> None:
    """Ask for 16 groups, and what happens without one of them; the first question does not count."""
    members = {f"source {number}": range(number, index.rows, 16) for number in range(16)}
    groups, removed = index.groups(members), np.array(members["source 3"])
    asked = {
        "groups": lambda query: index.group_scores([query], groups, why=True),
        "what-if": lambda query: index.what_if([query], remove=removed, why=True),
    }
    for name, answer in asked.items():
        spent = []
        for seed in range(questions + 1):
            query = question(random.Random(seed), 0, index.rows)[1]["query"]
            begun = time.process_time()
            answer(query)
            spent.append(time.process_time() - begun)
        print(f"{name}: {statistics.median(spent[1:]):.2f} s of CPU, least {min(spent[1:]):.2f}")


def main(rows: int, clients: int, seconds: float, folder: Path) -> bool:
    """Build, serve, ask and tell."""
    index = build(folder, rows)
    served = [sys.executable, "-m", "airrep", "serve", str(index), "--api", "--port", "0", "--set", f"token={TOKEN}"]
    with subprocess.Popen(served, stdout=subprocess.PIPE, text=True, env=os.environ) as server:
        try:
            assert server.stdout is not None
            address = next(line for line in server.stdout if "http://" in line).strip().partition("/api/")[0]
            print(f"{rows:,} examples, {clients} clients, {seconds:g} s")
            return tell(asyncio.run(load(address, clients, seconds, rows)))
        finally:
            server.terminate()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--alone", type=int, metavar="N")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        if given.alone:
            sys.exit(alone(airrep.Index(build(given.folder or Path(made), given.rows)), given.alone))
        sys.exit(not main(given.rows, given.clients, given.seconds, given.folder or Path(made)))
