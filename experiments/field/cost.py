"""Measure what a method costs: CPU seconds of `airrep index`, and of `airrep top` for all queries; bytes of the index.

Usage: python experiments/field/cost.py NAME POOL.jsonl QUERIES.jsonl COSTS.jsonl [OPTION OF airrep index]...

Both commands run as processes of their own, start-up included, with an empty cache, so that nothing is found again.
COSTS gets one line for each name, in place of an earlier one.
"""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory


def seconds(command: list[str], cache: Path) -> float:
    """CPU seconds of a process and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=os.environ | {"AIRREP_CACHE": str(cache)})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1)


def main() -> None:
    """Index, ask, write."""
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    name, pool, queries, costs, *options = sys.argv[1:]
    with TemporaryDirectory() as folder:
        index, cache = Path(folder) / "index", Path(folder) / "cache"
        line = {
            "name": name,
            "index_seconds": seconds(["airrep", "index", pool, "--out", str(index), *options], cache),
            "top_seconds": seconds(["airrep", "top", str(index), queries, "--json"], cache),
            "bytes": sum(file.stat().st_size for file in index.rglob("*") if file.is_file()),
        }
    path = Path(costs)
    path.parent.mkdir(parents=True, exist_ok=True)
    earlier = path.read_text().splitlines() if path.exists() else []
    kept = [one for one in earlier if json.loads(one)["name"] != name]
    path.write_text("\n".join([*kept, json.dumps(line)]) + "\n")
    print(line)


if __name__ == "__main__":
    main()
