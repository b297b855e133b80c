"""Judge metagradients by fine-tunes that leave a random 1 % out: in the order of the run itself, and in another.

Usage: python experiments/field/whole_run.py PLAN LABELS POOL.jsonl QUERIES.jsonl LM OUT.json [OPTIONS]

The run that is followed back has the first label seed's order of the data, and as many examples as each subset has.
Labels of the first seed are then what other programs judge by: fine-tunes that differ from the run by the examples
alone. Those of the second seed have another order.
"""

import argparse
import json
import time
from pathlib import Path
from typing import TypeAlias

import numpy as np
from scipy.stats import spearmanr

import airrep
from airrep.attributors.gradient.run.metagradient import Replay
from airrep.labels.labels import Labels
from airrep.labels.plan import Place, fine_tune_seed, open_plan
from airrep.lm.model import load_lm
from airrep.lm.settings import FineTuneSettings, LmSettings

Followed: TypeAlias = tuple[np.ndarray, float]
"""Influences (n, q) of examples on queries, and CPU seconds."""


def follow(given: argparse.Namespace, pool: airrep.Corpus, queries: airrep.Corpus, count: int) -> Followed:
    """Follow the run on the first *count* examples back."""
    tuning = FineTuneSettings.of(Labels(given.labels).manifest["fine_tune"] | {"epsilon": given.epsilon})
    lm = load_lm(LmSettings.named(given.lm))
    begin = time.process_time()
    seed = fine_tune_seed(open_plan(given.plan), Place(0, 0, 0))
    run = Replay(lm, lm.tokenise(pool.take(np.arange(count))), tuning, seed)
    influence = run.influence(lm.tokenise(queries.take(np.arange(given.queries))))
    return influence, time.process_time() - begin


def known(given: argparse.Namespace) -> Followed:
    """Scores of another program, and the CPU seconds that stand beside OUT."""
    name, costs = given.scores.parent.name, (given.out.parent / "costs.jsonl").read_text().splitlines()
    return np.load(given.scores), next(one["top_seconds"] for one in map(json.loads, costs) if one["name"] == name)


def main() -> None:
    """Follow the run back, correlate, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("plan", "labels", "pool", "queries_file", "lm", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--queries", type=int, default=20)
    parser.add_argument("--epsilon", type=float, default=1e-8, help="of the AdamW that is followed back")
    parser.add_argument("--scores", type=Path, help="scores (n, q) of another program, judged in place of a run")
    given = parser.parse_args()
    pool, asked = airrep.read_corpus(given.pool), airrep.read_corpus(given.queries_file)
    [labelled] = Labels(given.labels).instances(pool, asked)
    assert labelled.by_seed is not None
    count = int(labelled.subsets.sizes[0])
    influence, seconds = follow(given, pool, labelled.queries, count) if given.scores is None else known(given)
    gone = np.ones((len(labelled.subsets), len(pool)))
    for subset in range(len(labelled.subsets)):
        gone[subset, labelled.subsets.members(subset)] = 0
    predicted = gone[:, : len(influence)] @ influence  # the rise of a loss, subset by query

    def lds(losses: np.ndarray) -> list[float]:
        return [float(spearmanr(predicted[:, x], losses[x]).statistic) for x in range(given.queries)]

    found = {
        "queries": given.queries,
        "epsilon": given.epsilon,
        "cpu_seconds": round(seconds),
        "same_order": lds(labelled.by_seed[0]),
        "another_order": lds(labelled.by_seed[1]),
        "both": lds(labelled.losses),
    }
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(found) + "\n")
    if given.scores is None:
        np.save(given.out.with_suffix(".npy"), influence.astype(np.float32))
    for name in ("same_order", "another_order", "both"):
        values = np.array(found[name])
        half = 1.96 * values.std(ddof=1) / np.sqrt(len(values))
        print(f"{name}: {100 * values.mean():.1f} ± {100 * half:.1f}")


if __name__ == "__main__":
    main()
