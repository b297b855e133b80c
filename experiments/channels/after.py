"""Whole gradients of the LM before and after a warm-up, beside the channels of `all.yaml`, on the four roles.

Usage: python experiments/channels/after.py [--role tasks ...] [--half]

In the folder of the repository, after the data steps of `roles`. The LM has 4.5M parameters, the warm-up 100 examples
of the pool, and EK-FAC learns its curvature from 300 examples. It prints LDS × 100 on instance 1: of EK-FAC alone, of
`all.yaml` and of `lm-whole-warm`, then the difference of the two recipes. A role takes some 20 minutes of a core.
With `--half`, which takes ten more, EK-FAC also reads the LM after a warm-up on half as many examples.
Group scores are kept below `work/channels`.
"""

import argparse

import numpy as np
from weights import HERE, KEPT, ROLES, TINY, WARM_UPS, Scores, channel_scores, ends, gather

import airrep
from airrep.attributors.recipes import read_channels


def main() -> None:
    """Print a few lines for each role."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--role", action="append", choices=ROLES)
    parser.add_argument("--half", action="store_true")
    given, recipe = parser.parse_args(), read_channels("lm-whole-warm")
    before, after = len(recipe) - 2, len(recipe) - 1
    weights = [one.weight for one in recipe]
    for role in given.role or ROLES:
        corpus = airrep.read_corpus(HERE / "work" / "data" / role / "judge.jsonl")
        (instance,) = gather([f"{HERE}/roles/labels/{role}-judge#1"], [corpus])
        warmed, (count, settings) = KEPT / f"warm-{role}-4.5M-1", WARM_UPS[role]
        airrep.warm_up(instance.train, warmed, {"lm": str(TINY), "precision": "float32"}, settings, count=count)
        scores = channel_scores(f"{role}-4.5M-judge", instance, TINY, recipe, warmed)
        sums = {
            "EK-FAC before": scores.subsets[before].astype(np.float32),
            "EK-FAC after": scores.subsets[after].astype(np.float32),
            "all": scores.total([*weights[:before], weights[before] + weights[after], 0.0], recipe),
            "all, half after": scores.total(weights, recipe),
        }
        if given.half:
            halved = KEPT / f"warm-{role}-half-1"
            airrep.warm_up(
                instance.train, halved, {"lm": str(TINY), "precision": "float32"}, settings, count=count // 2
            )
            early = channel_scores(f"{role}-judge-half", instance, TINY, [*recipe[:3], recipe[after]], halved)
            subsets, reference = scores.subsets.copy(), scores.reference.copy()
            subsets[after], reference[after] = early.subsets[-1], early.reference[-1]
            mixed = Scores(subsets, reference, scores.losses)
            sums["EK-FAC after half"] = early.subsets[-1].astype(np.float32)
            sums["EK-FAC after half alone in the recipe"] = mixed.total([*weights[:before], 0.0, 28.0], recipe)
            sums["before and after half"] = mixed.total(weights, recipe)
        for name, one in sums.items():
            found = airrep.metrics.lds(one, scores.losses)
            print(f"{role}, {name}: {100 * found.value:.1f} ({ends(found.interval)})", flush=True)
        gap = airrep.metrics.paired(sums["all, half after"], sums["all"], scores.losses)
        print(f"    half after less all: {100 * gap.difference:+.1f} ({ends(gap.interval)})", flush=True)


if __name__ == "__main__":
    main()
