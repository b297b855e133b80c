"""Follow one labelled fine-tune of each instance back: the slope of a query's loss with the weight of each example.

Usage: python experiments/learned-encoder/slopes.py LABELS OUT --lm FOLDER --data FILE [--data FILE ...] [OPTIONS]

The fine-tune is that of an instance's first subset, with AdamW's epsilon at 1e-5. Slopes are those of its examples and
of some examples outside it, *guests*. OUT gets a file for each instance: rows (n,) of the instance's pool, queries
(q,), slopes (n, q), higher = more helpful, and CPU seconds. Instances that have their file are left.
"""

import argparse
import time
from pathlib import Path

import numpy as np

from airrep.attributors.gradient.run.metagradient import Replay
from airrep.corpus.corpus import read_corpus
from airrep.labels.gather import gather
from airrep.labels.labels import Labels
from airrep.labels.plan import Place, fine_tune_seed, open_plan
from airrep.lm.model import load_lm
from airrep.lm.settings import FineTuneSettings, LmSettings


def main() -> None:
    """Follow each fine-tune back, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("labels", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", type=Path, action="append", required=True, help="what the labels were made from")
    parser.add_argument("--lm", required=True, help="language model that was fine-tuned")
    parser.add_argument("--queries", type=int, default=30, help="of each instance")
    parser.add_argument("--guests", type=int, default=300, help="of each instance")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    labels, lm = Labels(given.labels), load_lm(LmSettings.named(given.lm))
    tuning = FineTuneSettings.of(labels.manifest["fine_tune"] | {"epsilon": 1e-5})
    plan = open_plan(given.labels / labels.manifest["plan_folder"])
    for number, one in enumerate(gather([str(given.labels)], list(map(read_corpus, given.data)))):
        path = given.out / f"{number}.npz"
        if path.exists():
            continue
        drawn = np.random.default_rng(number)
        inside = np.sort(one.subsets.members(0))
        outside = drawn.permutation(np.setdiff1d(np.arange(len(one.train)), inside))[: given.guests]
        rows = np.sort(np.concatenate([inside, outside]))
        queries = np.sort(drawn.permutation(len(one.queries))[: given.queries])
        documents, asked = lm.tokenise(one.train.take(rows)), lm.tokenise(one.queries.take(queries))
        begin = time.process_time()
        seed = fine_tune_seed(plan, Place(number, 0, 0))
        run = Replay(lm, documents, tuning, seed, np.searchsorted(rows, inside))
        slopes = run.influence(asked)
        seconds = time.process_time() - begin
        np.savez(path, rows=rows, queries=queries, slopes=slopes.astype(np.float32), seconds=seconds)
        print(f"{path}: {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
