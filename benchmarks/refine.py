"""EK-FAC with refined inverse products, beside EK-FAC: process CPU time of an index and a batch of queries.

Run as ``python benchmarks/refine.py``, with ``--lm`` and ``--data`` for another LM and other examples. Times are
process CPU time on one thread, both methods in turns, each round with nothing in a store: the curvature is learnt anew.

* learn: the curvature, from up to 5,000 examples.
* ask: scores of all examples for the queries. Refining takes its time here, for each query.
"""

import argparse
import statistics
import time
from importlib.resources import files
from pathlib import Path

import torch
from cpu import processor
from threadpoolctl import threadpool_limits

from airrep.attributors.methods import make_attributor
from airrep.corpus.corpus import read_corpus

DATA = files("airrep") / "data"
ASKED = 2.0
METHODS = {"EK-FAC": None, "refined": "cg"}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lm", type=Path, default=Path(str(files("airrep") / "models" / "tiny-lm")))
    parser.add_argument("--data", type=Path, default=Path(str(DATA / "train.jsonl")))
    parser.add_argument("--queries", type=Path, default=Path(str(DATA / "queries.jsonl")))
    parser.add_argument("--count", type=int, default=1200, help="training examples, the first of the file")
    parser.add_argument("--asked", type=int, default=50, help="queries, likewise")
    parser.add_argument("--refine", default="cg", help="the setting of this name")
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args()
    print(processor())
    torch.set_num_threads(1)
    train, queries = read_corpus(arguments.data), read_corpus(arguments.queries)
    train, queries = train[: arguments.count], queries[: arguments.asked]
    spent: dict[str, list[tuple[float, float]]] = {name: [] for name in METHODS}
    make_attributor("ekfac", {"lm": str(arguments.lm), "store": "none"}).fit(train[:8])  # nor is the first use of all
    with threadpool_limits(1):
        for _ in range(arguments.rounds):
            for name, refined in METHODS.items():
                settings = {"lm": str(arguments.lm), "precision": "float32", "store": "none"}
                refine = refined and arguments.refine
                method = make_attributor("ekfac", settings | {"refine": refine})
                method.unusable(train)  # loads the LM, which is no part of either
                start = time.process_time()
                method.fit(train)
                learnt = time.process_time()
                method.score(train, queries)
                spent[name].append((learnt - start, time.process_time() - learnt))
    print(f"{len(train):,} examples, {len(queries):,} queries, refine={arguments.refine}")
    medians = {name: [statistics.median(part) for part in zip(*each, strict=True)] for name, each in spent.items()}
    print(f"\n{'CPU seconds':12}{'learn':>10}{'ask':>10}{'both':>10}")
    for name, parts in medians.items():
        print(f"{name:12}{parts[0]:10.1f}{parts[1]:10.1f}{sum(parts):10.1f}")
    usual, refined_parts = medians.values()
    ratio = sum(refined_parts) / sum(usual)
    print(f"\nask alone: {refined_parts[1] / usual[1]:.2f} x")
    print(f"both: {ratio:.2f} x (ask <= {ASKED:g}: {'met' if ratio <= ASKED else 'MISSED'})")


if __name__ == "__main__":
    main()
