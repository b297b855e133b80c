"""An index with the gradients of an LM, beside an earlier commit; and one new question by EK-FAC of candidates.

Run as ``python benchmarks/lm_index.py --lm FOLDER DATA.jsonl``. Times are process CPU time on one thread, start-up
included, each command in a process of its own: both commits in turns, and ratios within a turn. Memory is what the
process held at most, shared pages in shares. Each index is built anew, with no gradients in
a store. The earlier commit runs as that of ``text_path.py``. Both compute in the same ``--precision``, as ``auto`` was
bfloat16 at earlier commits on processors that are fast at it.

With ``--questions N`` the index is asked N times for the ten best examples for one query, without and with
``--tokens``; then an index of ``lm-whole`` is built as well and asked for the 20 best, once of all examples, and once
of candidates. What both take beyond ``--recipe lm`` is what EK-FAC reads.
"""

import argparse
import itertools
import json
import os
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cpu import processor
from text_path import ROOT, Spent, airrep, earlier, spend

ASKED, ASKED_GB = 2.0, 1.2


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="a JSON-lines file of examples")
    parser.add_argument("--lm", type=Path, required=True)
    parser.add_argument("--count", type=int, default=60, help="examples, the first of the file")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--against", default="5f14e5cd", help="a commit; none: this one alone")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--questions", type=int, default=0, help="queries, those behind the examples in the file")
    parser.add_argument("--candidates", default="5%")
    arguments = parser.parse_args()
    print(processor())
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        with arguments.data.open(encoding="utf-8") as file:
            lines = list(itertools.islice(file, arguments.count + arguments.questions))
        data = folder / "data.jsonl"
        data.write_text("".join(lines[: arguments.count]), encoding="utf-8")
        trees = {"now": ROOT}
        if arguments.against != "none":
            trees = {arguments.against: earlier(arguments.against, folder / "earlier"), **trees}
        spent: dict[str, list[Spent]] = {name: [] for name in trees}
        for number in range(arguments.rounds):
            for name, tree in trees.items():
                out = folder / f"{name}-{number}"
                more = [] if tree != ROOT else ["--recipe", "lm"]  # which was the default that an LM has, and is
                more += ["--precision", arguments.precision]
                spent[name].append(build(data, arguments.lm, out, tree, more))
        report(arguments.count, spent)
        queries = write_queries(folder, lines[arguments.count :])
        if queries:
            tell_tokens(folder / "now-0", queries)
            ask(folder, data, arguments.lm, queries, arguments.candidates)


def write_queries(folder: Path, lines: Sequence[str]) -> list[Path]:
    """A file for each query."""
    paths = [folder / f"query-{number}.jsonl" for number in range(len(lines))]
    for path, line in zip(paths, lines, strict=True):
        path.write_text(line, encoding="utf-8")
    return paths


def tell_tokens(index: Path, queries: Sequence[Path]) -> None:
    """Print what scores token by token cost, beyond the ten best examples."""
    more = list[float]()
    for query in queries:
        plain = spend(airrep("top", index, query, "-k", 10))
        more.append(spend(airrep("top", index, query, "-k", 10, "--tokens")).cpu - plain.cpu)
    print(f"\ntoken scores of ten hits: {statistics.median(more):.1f} s of CPU, the median of {len(more)}", flush=True)


def build(data: Path, lm: Path, out: Path, tree: Path, more: Sequence[str]) -> Spent:
    """Build an index with the sources of a tree, and an empty cache."""
    os.environ["AIRREP_CACHE"] = f"{out}-cache"
    return spend(airrep("index", data, "--lm", lm, *more, "--out", out), tree, watch=True)


def report(count: int, spent: dict[str, list[Spent]]) -> None:
    """Print seconds, memory and their ratios."""
    print(f"\n| `airrep index --recipe lm`, {count:,} examples | CPU | peak memory |\n|---|---|---|")
    for name, each in spent.items():
        print(f"| {name} | {statistics.median(one.cpu for one in each):.1f} s | {max(e.memory for e in each):.2f} GB |")
    if len(spent) == 2:
        before, now = spent.values()
        ratios = [one.cpu / other.cpu for one, other in zip(before, now, strict=True)]
        met = "met" if statistics.median(ratios) >= ASKED else "MISSED"
        print(f"\n{statistics.median(ratios):.2f} times less CPU (ask >= {ASKED:g}: {met})")
    most = max(one.memory for one in spent["now"])
    print(f"peak memory {most:.2f} GB (ask <= {ASKED_GB:g}: {'met' if most <= ASKED_GB else 'MISSED'})")


def ask(folder: Path, data: Path, lm: Path, queries: Sequence[Path], candidates: str) -> None:
    """Ask two indexes of ``lm-whole`` the same questions, one of them by candidates, and print what that took."""
    found: dict[str, list[list[str]]] = {}
    seconds: dict[str, float] = {}
    for name, more in (("whole", []), ("candidates", ["--set", f"candidates={candidates}"])):
        out = folder / name
        spent = build(data, lm, out, ROOT, ["--recipe", "lm-whole", *more])
        print(f"\nindex of lm-whole, {name}: {spent.cpu:.1f} s, {spent.memory:.2f} GB", flush=True)
        asked = [spend(airrep("top", out, query, "-k", 20, "--json"), watch=True) for query in queries]
        found[name] = [[hit["example"]["id"] for hit in hits(one.printed)] for one in asked]
        seconds[name] = statistics.median(one.cpu for one in asked)
        print(f"one new query: {seconds[name]:.1f} s of CPU, the median of {len(queries)}", flush=True)
    pairs = zip(found["whole"], found["candidates"], strict=True)
    recall = statistics.mean(len({*one} & {*other}) / len(one) for one, other in pairs)
    print(f"{seconds['whole'] / seconds['candidates']:.1f} times less; recall of the first 20: {recall:.2f}")


def hits(printed: str) -> list[dict[str, Any]]:
    """The hits of the one query that a command printed as JSON, below its messages."""
    return json.loads(next(line for line in printed.splitlines() if line.startswith('{"kind"')))["queries"][0]["hits"]


if __name__ == "__main__":
    main()
