"""LoGra of a high rank, sketched: rank, numbers that are kept and exponent of the curvature, alone.

Usage: python experiments/gradients/sketch.py ROLE [--number 1]      in the folder of the repository, after `roles`

All linear maps of the LM of 4.5M parameters before fine-tuning, unit length, attention at 0.4, curvature from 300
examples. LDS × 100 on an instance of the role, with paired differences from the first line, which is what channels had
before. Settings were chosen on instances 0 (--number 0); instance 1 judges. A minute of one core for each line.
"""

import argparse
from pathlib import Path

import numpy as np

import airrep
from airrep.attributors.methods import make_attributor
from airrep.evaluation.judging import compact_subsets, compare_held_out, held_out_lds, score_features
from airrep.labels.gather import gather

HERE = Path(__file__).parents[1]
LM = HERE / "work" / "shared" / "models" / "tiny-lm"
TRIED: tuple[tuple[int, int | None, float], ...] = (
    (16, None, 1.0),
    (16, None, 0.5),
    (16, 2048, 0.5),
    (64, 4096, 0.5),
    (64, 16384, 1.0),
    (64, 16384, 0.5),
    (128, 16384, 0.5),
)
"""Rank, numbers kept (None: all) and exponent."""


def main() -> None:
    """Print a line for each setting."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("role")
    parser.add_argument("--number", type=int, default=1, help="of the instance")
    given = parser.parse_args()
    corpus = airrep.read_corpus(HERE / "work" / "data" / given.role / "judge.jsonl")
    (instance,) = gather([f"{HERE}/roles/labels/{given.role}-judge#{given.number}"], [corpus])
    rows, subsets = compact_subsets(instance.subsets)
    members, before = instance.train.take(rows), None
    print(f"{given.role}, instance {given.number}: rank, sketch, exponent: numbers kept; LDS × 100; minus the first")
    for rank, sketch, exponent in TRIED:
        own = {"rank": rank, "sketch": sketch, "exponent": exponent}
        method = make_attributor("logra", {**own, "lm": str(LM), "precision": "float32", "store": "none"})
        method.fit(instance.train)
        train, queries = (np.asarray(method.encode_train(one)) for one in (members, instance.queries))
        pooled = score_features(train, queries, subsets, method.pooling())
        before = pooled if before is None else before
        found, gap = held_out_lds([pooled], [instance]), compare_held_out([pooled], [before], [instance])
        (low, high), (least, most) = ([100 * end for end in one.interval] for one in (found, gap))
        told = (
            f"{100 * found.value:5.1f} ({low:.1f} to {high:.1f})  {100 * gap.value:+5.1f} ({least:.1f} to {most:.1f})"
        )
        print(f"  {rank:3} {sketch or 'all':>6} {exponent:4g}: {train.shape[1]:7,}  {told}", flush=True)


if __name__ == "__main__":
    main()
