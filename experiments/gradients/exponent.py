"""By which power of its curvature whole gradients are divided: LDS × 100 of EK-FAC.

Usage: python experiments/gradients/exponent.py tasks 4.5M      in the folder of the repository, after `smollm2` (data)

The score is ∇ℓ(x)ᵀ (H + λI)⁻ᵖ ∇ℓ(z). p = 1 makes it an influence function, p = 1/2 a step of AdamW, which divides by
the root of mean squared gradients, and p = 0 a product of gradients as they are. Pools of 1,200, judged by LMs of 2.6M
and 4.5M parameters on the subsets of `smollm2`; curvature from 300 examples, group scores are sums, differences paired.
"""

import sys
from pathlib import Path

import airrep
from airrep.attributors.methods import make_attributor
from airrep.evaluation.judging import ask_instance, compact_subsets, compare_held_out, held_out_lds
from airrep.labels.gather import gather
from airrep.scoring.group_scores import group_scores

HERE = Path(__file__).parents[1]
MODELS = HERE / "work" / "shared" / "models"
LMS = {"2.6M": HERE.parent / "src" / "airrep" / "models" / "tiny-lm", "4.5M": MODELS / "tiny-lm"}
EXPONENTS = (1.0, 0.75, 0.5, 0.25, 0.0)


def main() -> None:
    """Print a line for each exponent."""
    role, lm = sys.argv[1:]
    data = [
        airrep.read_corpus(HERE / "work" / "data" / f"{role}-real" / f"{name}.jsonl") for name in ("pool", "queries")
    ]
    (instance,) = gather([f"{HERE}/smollm2/labels/{role}-{lm}"], data)
    groups, first = compact_subsets(instance.subsets)[1], None
    for exponent in EXPONENTS:
        method = make_attributor("ekfac", {"lm": str(LMS[lm]), "sample": 300, "exponent": exponent})
        ours = [group_scores(ask_instance(method, instance), groups, "sum")]
        first = ours if first is None else first
        found, gap = held_out_lds(ours, [instance]), compare_held_out(ours, first, [instance])
        low, high = (100 * end for end in gap.interval)
        told = f"{100 * found.value:.1f}, minus the first {100 * gap.value:+.1f} ({low:.1f} to {high:.1f})"
        print(f"{role}, {lm}, exponent {exponent:g}: {told}", flush=True)


if __name__ == "__main__":
    main()
