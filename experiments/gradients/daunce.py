"""DAUNCE (arXiv 2505.23223): covariance of losses over fine-tunes on random subsets, LDS × 100 on instance 1 of a role.

Usage: python experiments/gradients/daunce.py ROLE WORK [--fine-tunes 40]      in the folder of the repository, after
`roles` (data). WORK is a folder for losses; what is there is not computed again.

The score of a training example z for a query x is the covariance over fine-tunes of their losses. Fine-tunes are those
of the labels (100 random examples, two epochs, from the LM before fine-tuning), of draws of their own: nothing of the
labels is read but to judge. The paper's noise on each example's gradient is left out, random subsets remain.
"""

import argparse
from pathlib import Path

import numpy as np

import airrep
from airrep.corpus.corpus import Corpus
from airrep.evaluation.judging import compact_subsets
from airrep.labels.gather import gather
from airrep.lm.settings import FineTuneSettings, LmSettings
from airrep.runtime.seeding import stream

HERE = Path(__file__).parents[1]
LM = HERE / "work" / "shared" / "models" / "tiny-lm"
RATES = {"tasks": 5e-4}
SIZE = 100


def main() -> None:
    """Print a line for each number of fine-tunes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("role")
    parser.add_argument("work", type=Path)
    parser.add_argument("--fine-tunes", type=int, default=40)
    given = parser.parse_args()
    corpus = airrep.read_corpus(HERE / "work" / "data" / given.role / "judge.jsonl")
    (instance,) = gather([f"{HERE}/roles/labels/{given.role}-judge#1"], [corpus])
    rows, subsets = compact_subsets(instance.subsets)
    members = instance.train.take(rows)
    lm = airrep.load_lm(LmSettings(lm=str(LM), precision="float32"))
    asked = lm.tokenise(Corpus.from_examples([*members, *instance.queries]))
    settings = FineTuneSettings(learning_rate=RATES.get(given.role, 2e-4))
    given.work.mkdir(parents=True, exist_ok=True)
    found = []
    for number in range(given.fine_tunes):
        path = given.work / f"{given.role}-{number}.npy"
        if not path.exists():
            drawn = stream(0, "daunce", given.role, number).permutation(len(members))[:SIZE]
            lm.reset()
            lm.fine_tune(lm.tokenise(members.take(np.sort(drawn))), settings, number)
            np.save(path, lm.losses(asked))
            print(f"fine-tune {number}", flush=True)
        found.append(np.load(path).astype(np.float64))
    losses = np.stack(found)
    pairs = list(zip(subsets.offsets[:-1], subsets.offsets[1:], strict=True))
    for count in sorted({count for count in (10, 20, 40, 80, len(losses)) if count <= len(losses)}):
        centred = losses[:count] - losses[:count].mean(axis=0)
        for name, some in (("covariance", centred), ("correlation", centred / centred.std(axis=0))):
            scores = some[:, : len(members)].T @ some[:, len(members) :] / count
            sums = np.stack([scores[subsets.rows[a:b]].sum(axis=0) for a, b in pairs], axis=1)
            lds = airrep.metrics.lds(sums, instance.losses)
            low, high = (100 * end for end in lds.interval)
            print(f"{given.role}, {count} fine-tunes, {name}: {100 * lds.value:.1f} ({low:.1f} to {high:.1f})")


if __name__ == "__main__":
    main()
