"""Measure an index of many examples step by step: built, appended to, asked, deleted from, compacted, verified.

Usage: python benchmarks/ten_million.py [ROWS …] [--text | --linked] [--appends N] [--threads N]
           [--folder DIR] [--numbers FILE]

A tenth of the rows are built, the others appended, 9,000 at a time or in N appends. Made-up features (384 numbers,
through the method ``precomputed``) belong to the texts of the first tenth, which come again by other ids; with --text
the real texts of the demo's data are repeated with changes, and the method is ``ngram``. Each step runs in a process of
its own: CPU seconds without loading Python's libraries, the peak of memory that the process has for itself, and, apart,
with the pages of files that it has mapped, which the system may drop. 10,000,000 rows need 27 GB of disk for a moment,
while the index is compacted. With --linked the features of what would be appended are hard links to those of the built
tenth, examples have ids of their own, and only 20 appends are made on top of all rows: large indexes in minutes.
--numbers adds the results to a file as JSON lines.
"""

import argparse
import json
import multiprocessing
import os
import resource
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch

import airrep
from airrep.corpus.table import PLACE, SCHEMA
from airrep.index.editing import LINEAGE
from airrep.index.encoding import seal_index
from airrep.index.shards import EXAMPLES, SHARD, read_record, shard_name, write_table
from airrep.runtime.artifacts import canonical_json, describe_files
from airrep.runtime.publishing import write_file

DIMENSION, SOURCES, QUERIES, PICKED = 384, 1000, 16, 100_000
APPENDED = 9000
"""Examples of one append."""
DEMO = Path(airrep.__file__).parent / "data"


class World(NamedTuple):
    """The examples of one run, and where its index lies."""

    folder: Path
    rows: int
    appends: int
    text: bool

    @property
    def index(self) -> Path:
        """The index."""
        return self.folder / "index"

    @property
    def built(self) -> int:
        """Examples that are there before the first append."""
        return max(self.rows // 10, 1)

    def corpus(self, start: int, stop: int) -> airrep.Corpus:
        """Some of the examples."""
        numbers = np.arange(start, stop)
        ids = pa.array([f"example {number}" for number in numbers.tolist()], pa.large_string())
        sources = pa.array([f"source {number % SOURCES}" for number in numbers.tolist()], pa.large_string())
        nothing = pa.nulls(len(numbers), pa.large_string())
        texts = _real_texts(numbers) if self.text else _short_texts(numbers % self.built)
        return airrep.Corpus(pa.table([ids, *texts, nothing, sources, *[nothing] * 3], schema=SCHEMA))

    def queries(self) -> list[airrep.Example]:
        """A few queries."""
        if self.text:
            return list(airrep.read_corpus(DEMO / "queries.jsonl"))[:QUERIES]
        texts = _short_texts(np.arange(QUERIES))
        return [airrep.Example(*pair) for pair in zip(*(column.to_pylist() for column in texts), strict=True)]


def _short_texts(numbers: np.ndarray) -> list[Any]:
    return [
        pa.array([f"{word} {number}" for number in numbers.tolist()], pa.large_string())
        for word in ("What is", "It is")
    ]


def _real_texts(numbers: np.ndarray) -> list[Any]:
    """Texts of the demo's data, each time with another number at the end of the prompt and in the response."""
    known = airrep.read_corpus(DEMO / "train.jsonl").table
    which, times = (numbers % len(known)).tolist(), (numbers // len(known)).tolist()
    columns = (known["prompt"].to_pylist(), known["response"].to_pylist())
    return [
        pa.array([f"{column[row]} {time}" for row, time in zip(which, times, strict=True)], pa.large_string())
        for column in columns
    ]


def prepare(world: World) -> None:
    """Write the features."""
    if world.text:
        return
    drawn = np.random.default_rng(0)
    features = np.lib.format.open_memmap(world.folder / "features.npy", "w+", np.float16, (world.built, DIMENSION))
    for start in range(0, world.built, 2**16):
        part = drawn.standard_normal((min(2**16, world.built - start), DIMENSION), np.float32)
        features[start : start + len(part)] = part / np.linalg.norm(part, axis=1, keepdims=True)
    features.flush()


def build(world: World) -> None:
    """Build a tenth."""
    settings = {} if world.text else {"train": str(world.folder / "features.npy")}
    method = "ngram" if world.text else "precomputed"
    airrep.build_index(world.corpus(0, world.built), world.index, method, settings=settings)


def link(world: World) -> None:
    """Repeat the built tenth under other ids, up to all rows; arrays are links to its own."""
    index = airrep.Index(world.index)
    names, size, attributor = [shard.folder.name for shard in index.shards], world.built, index.manifest["attributor"]
    for start in range(size, world.rows, size):
        for shard in index.shards:
            part = world.corpus(start + shard.start, start + shard.start + shard.rows)
            name = shard_name(start + shard.start, attributor, part.fingerprint)
            folder = world.index / "shards" / name
            folder.mkdir()
            for array in shard.folder.glob("*/*.npy"):  # a folder for each channel
                (folder / array.parent.name).mkdir(exist_ok=True)
                os.link(array, folder / array.parent.name / array.name)
            write_table(folder / EXAMPLES, part.table.drop_columns([PLACE]))
            record = read_record(shard.folder)
            record |= {"corpus": part.fingerprint}
            record["files"] |= describe_files(folder, [EXAMPLES])
            write_file(folder / SHARD, canonical_json(record))
            names.append(name)
    seal_index(world.index, {name: index.manifest[name] for name in LINEAGE}, names)


def append_some(world: World) -> None:
    """Append 20 times to the whole."""
    index = airrep.Index(world.index)
    for start in range(world.rows, world.rows + 20 * APPENDED, APPENDED):
        index = index.append(world.corpus(start, start + APPENDED))


def append(world: World) -> None:
    """Append the rest."""
    index = airrep.Index(world.index)
    bounds = np.linspace(world.built, world.rows, world.appends + 1).astype(int).tolist()
    for start, stop in pairwise(bounds):
        index = index.append(world.corpus(start, stop))


def delete(world: World) -> None:
    """Delete a tenth, at random."""
    drawn = np.random.default_rng(1)
    airrep.Index(world.index).delete(np.flatnonzero(drawn.random(world.rows) < 0.1))


def compact(world: World) -> None:
    """Free the deleted rows."""
    airrep.Index(world.index).compact()


def verify(world: World) -> None:
    """Check every byte."""
    airrep.Index(world.index).verify()


def open_it(world: World) -> None:
    """Open it."""
    airrep.Index(world.index)


def group(world: World) -> None:
    """Ask for groups."""
    airrep.Index(world.index).group_scores(world.queries(), by="source")


def what_if(world: World) -> None:
    """Ask for a what-if."""
    airrep.Index(world.index).what_if(world.queries()[:1], remove='source == "source 7"')


def select(world: World) -> None:
    """Pick examples, and write them."""
    index = airrep.Index(world.index)
    found = airrep.select(index, world.queries(), count=min(PICKED, world.rows // 10))
    found.save(world.folder / "picked.jsonl", replace=True)


class Spent(NamedTuple):
    """Cost of a step."""

    cpu: float
    clock: float
    own: float
    """Peak of memory of its own, bytes."""
    mapped: float
    """Memory with pages of mapped files."""


@contextmanager
def measured() -> Iterator[Callable[[], Spent]]:
    """Measure what is done inside."""
    peak, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            peak[0] = max(peak[0], _own_memory())

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    begun = time.process_time(), time.perf_counter()

    def spent() -> Spent:
        ended = time.process_time() - begun[0], time.perf_counter() - begun[1]
        own = max(peak[0], _own_memory())
        return Spent(*ended, own, 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)

    yield spent
    done.set()
    watcher.join()


def _own_memory() -> int:
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("RssAnon:")[2].split()[0])


def _load_libraries() -> None:
    """Load what commands load, by way of a tiny index."""
    with tempfile.TemporaryDirectory() as folder:
        some = [{"prompt": "What is", "response": f"It is {number}", "source": "a"} for number in range(3)]
        index = airrep.build_index(some, f"{folder}/index", "ngram")
        index.top(some[:1], k=1)
        index.group_scores(some[:1], by="source")
        airrep.select(index, some[:1], count=1)


def _once(step: Callable[[World], None], world: World, threads: int, out: Any) -> None:
    torch.set_num_threads(threads)
    _load_libraries()
    with measured() as spent:
        step(world)
        out.send([("", spent())])


def _top(_: Callable[[World], None], world: World, threads: int, out: Any) -> None:
    """The first question, and the same once more, warm; then all queries together, and these once more."""
    torch.set_num_threads(threads)
    _load_libraries()
    index, queries = airrep.Index(world.index), world.queries()
    found = []
    together = f"{QUERIES} queries"
    turns = (("first", queries[:1]), ("warm", queries[:1]), (together, queries), (f"{together} warm", queries))
    for name, asked in turns:
        with measured() as spent:
            index.top(asked, k=10)
            found.append((name, spent()))
    out.send(found)


def in_process(work: Callable[..., None], step: Callable[[World], None], world: World, threads: int) -> Any:
    """Return what a step sends from a process of its own."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(step, world, threads, sender))
    process.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError:
        process.join()
        raise SystemExit(f"{step.__name__}: failed with {process.exitcode}") from None
    finally:
        process.join()


STEPS = [prepare, build, append, verify, open_it, _top, group, what_if, select, delete, compact]
LINKED = [prepare, build, link, open_it, _top, group, what_if, select, delete, append_some]
AFTER = [open_it, _top, verify]


def run(world: World, threads: int, linked: bool) -> dict[str, Spent]:
    """All steps, printed as they end."""
    kind = "text" if world.text else "made-up features"
    made = "features by links" if linked else f"{world.appends:,} appends"
    print(f"\n{world.rows:,} rows, {made}, {kind}")
    print(f"{'':<28}{'CPU s':>9}{'clock s':>9}{'CPU us/row':>12}{'own MB':>9}{'with files':>11}")
    found: dict[str, Spent] = {}
    steps = LINKED if linked else [*STEPS, *AFTER]
    for place, step in enumerate(steps):
        after = " compacted" if place >= len(STEPS) else ""
        work = _top if step is _top else _once
        for more, spent in in_process(work, step, world, threads):
            name = " ".join(filter(None, (step.__name__.strip("_").replace("_it", ""), more))) + after
            found[name] = spent
            rows = {
                prepare: world.built,
                build: world.built,
                append: world.rows - world.built,
                append_some: 20 * APPENDED,
            }
            print(
                f"{name:<28}{spent.cpu:>9.2f}{spent.clock:>9.2f}{1e6 * spent.cpu / rows.get(step, world.rows):>12.2f}"
                f"{spent.own / 1e6:>9.0f}{spent.mapped / 1e6:>11.0f}",
                flush=True,
            )
        if step in (build, link, append, compact):
            size = sum(path.stat().st_size for path in world.index.rglob("*") if path.is_file())
            manifest = (world.index / "manifest.json").stat().st_size
            print(f"    {size / 1e9:.2f} GB on disk, of which {manifest / 1e6:.2f} MB are the manifest", flush=True)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("rows", type=int, nargs="*", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--appends", type=int)
    parser.add_argument("--text", action="store_true")
    parser.add_argument("--linked", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--numbers", type=Path, help="JSON lines that the results are added to")
    given = parser.parse_args()
    for rows in given.rows:
        folder = Path(tempfile.mkdtemp(dir=given.folder))
        try:
            appends = given.appends or max(1, rows * 9 // 10 // APPENDED)
            found = run(World(folder, rows, appends, given.text), given.threads, given.linked)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if given.numbers:
            line = {"rows": rows, "appends": appends, "text": given.text, "linked": given.linked}
            steps = {name: spent._asdict() for name, spent in found.items()}
            with given.numbers.open("a") as stream:
                stream.write(json.dumps({**line, "steps": steps}) + "\n")


if __name__ == "__main__":
    main()
