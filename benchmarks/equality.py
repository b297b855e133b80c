"""Hold the answers of this code to those of an earlier commit: five kinds of index over the same texts.

Run as ``python benchmarks/equality.py --against COMMIT``. Both build each index anew from the first 300 texts of the
demo, each on one thread in a process of its own, and answer 20 questions: the ten best examples, the scores of groups,
and the change if a part were left out. A number may differ by 1e-6 of the largest of its question. Two examples may
change places where their scores differ by no more than that.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from text_path import DATA, ROOT, earlier

CLOSE = 1e-6
LM = str(ROOT / "src" / "airrep" / "models" / "tiny-lm")
NOW: dict[str, dict[str, Any]] = {
    "text": {"recipe": "text"},
    "tfidf": {"method": "tfidf"},
    "papers/logra": {"recipe": "papers/logra", "settings": {"lm": LM}},
    "lm": {"recipe": "lm", "settings": {"lm": LM}},
    "lm-whole": {"recipe": "lm-whole", "settings": {"lm": LM}},
}
BEFORE: dict[str, dict[str, Any]] = {
    "text": {},
    "tfidf": {"method": "tfidf"},
    "papers/logra": {"method": "logra", "settings": {"lm": LM, "preset": "paper"}},
    "lm": {"method": "channels", "settings": {"lm": LM}},
    "lm-whole": {"method": "channels", "settings": {"lm": LM, "gradients": "both"}},
}
"""Recipes as commits spell them that have no folder of recipes."""
ANSWER = """
import json, sys
import airrep

data, queries = map(airrep.read_corpus, sys.argv[1:3])
out, made = sys.argv[3:]
index = airrep.build_index(data, out, **json.loads(made))
top = index.top(queries, k=10)
groups = index.group_scores(queries, [list(range(first, first + 60)) for first in range(0, 300, 30)[:9]])
changed = index.what_if(queries, remove=list(range(40)))
print(json.dumps({
    "top": [[(hit.example.id, float(hit.score)) for hit in hits] for hits in top],
    "group": groups.scores.tolist(),
    "what-if": [list(map(float, pair)) for pair in zip(changed.before, changed.after)],
}))
"""


def answers(tree: Path, folder: Path, made: dict[str, Any]) -> dict[str, list[Any]]:
    """Build an index with the sources of a tree and answer the questions, in a process of its own."""
    files = [str(folder / name) for name in ("train.jsonl", "queries.jsonl")]
    known = {
        **os.environ,
        "PYTHONPATH": str(tree / "src"),
        "OMP_NUM_THREADS": "1",
        "AIRREP_CACHE": str(folder / "cache"),
    }
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, "-W", "ignore", "-c", ANSWER, *files, f"{out}/index", json.dumps(made)]
        done = subprocess.run(command, env=known, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"{tree}: {made}: ended with {done.returncode}")
    found: dict[str, list[Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


def gap(before: list[float], now: list[float]) -> float:
    """The largest difference of a question's numbers, as a share of the largest of them."""
    largest = np.abs(before).max() or 1.0
    return float(np.abs(np.subtract(before, now)).max() / largest)  # NaN stays NaN


def top_gap(before: list[tuple[str, float]], now: list[tuple[str, float]]) -> float:
    """The largest difference of two rankings: by rank, and of each example; one that is absent has the last score."""
    one, other = dict(before), dict(now)
    ids = sorted(one | other)
    ranks = gap(list(one.values()), list(other.values()))
    last = [min(scores.values()) for scores in (one, other)]
    examples = gap([one.get(name, last[0]) for name in ids], [other.get(name, last[1]) for name in ids])
    return float(np.maximum(ranks, examples))


def main() -> None:
    """Print the largest difference of each kind of index; fail where one is too large."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", required=True, metavar="COMMIT", help="commit to compare with")
    parser.add_argument("--only", nargs="+", choices=NOW, default=list(NOW), help="kinds of index")
    given = parser.parse_args()
    print("| largest difference, as a share of the largest | " + " | ".join(("top", "group", "what-if")) + " |")
    print("|---|---|---|---|", flush=True)
    worst = 0.0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tree = earlier(given.against, folder / "before")
        spelled = NOW if (tree / "src" / "airrep" / "recipes").is_dir() else BEFORE
        for file, count in (("train.jsonl", 300), ("queries.jsonl", 20)):
            records = (ROOT / DATA).with_name(file).read_text("utf-8").splitlines()
            (folder / file).write_text("\n".join(records[:count]), "utf-8")
        for kind in given.only:
            old, new = answers(tree, folder, spelled[kind]), answers(ROOT, folder, NOW[kind])
            found = [
                float(np.max(list(map(measure, old[part], new[part]))))
                for part, measure in (("top", top_gap), ("group", gap), ("what-if", gap))
            ]
            worst = float(np.max([worst, *found]))
            print(f"| {kind} | " + " | ".join(f"{one:.1e}" for one in found) + " |", flush=True)
    if not worst <= CLOSE:
        sys.exit(f"differs by {worst:.1e}; at most {CLOSE:.0e} is allowed")


if __name__ == "__main__":
    main()
