"""Measure what a method costs: CPU seconds of encoding, bytes of the index, CPU seconds of all scores of queries.

Usage: python experiments/field/cost.py INDEX QUERIES.jsonl COSTS.jsonl

COSTS gets one line for each index, in place of an earlier one of the same name. A question is asked once before it is
timed, so that what is loaded or learnt once does not count; nor does what is learnt before encoding.
"""

import argparse
import json
import time
from pathlib import Path

import airrep
from airrep.runtime.metering import index_cost
from airrep.scoring.asked import score_all


def main() -> None:
    """Ask, time, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index", type=Path)
    parser.add_argument("queries", type=Path)
    parser.add_argument("costs", type=Path)
    given = parser.parse_args()
    index, queries = airrep.open(given.index), airrep.read_corpus(given.queries)
    score_all(index.ask(queries.take([0, 1])))
    begin = time.process_time()
    score_all(index.ask(queries))
    seconds = time.process_time() - begin
    recorded = index_cost(index.path, index.manifest)
    each = None if recorded is None else recorded.seconds_per_example
    line = {
        "name": given.index.name,
        "examples": len(index),
        "queries": len(queries),
        "bytes": sum(file.stat().st_size for file in given.index.rglob("*") if file.is_file()),
        "encode_seconds": None if each is None else round(each * len(index), 2),
        "ask_seconds": round(seconds, 3),
    }
    given.costs.parent.mkdir(parents=True, exist_ok=True)
    earlier = given.costs.read_text().splitlines() if given.costs.exists() else []
    kept = [one for one in earlier if json.loads(one)["name"] != line["name"]]
    given.costs.write_text("\n".join([*kept, json.dumps(line)]) + "\n")
    print(line)


if __name__ == "__main__":
    main()
