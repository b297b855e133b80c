"""A redundancy term for groups: members that say the same share their effect.

Usage: python experiments/gradients/redundancy.py ROLE WORK      in the folder of the repository, after `roles`

The scores of a group add up as if each member were learnt alone. A linear model that is fitted to all of them by ridge
regression gains k(x, S) (I + K(S, S) / λ)⁻¹ 1 instead, K being the scores of members for each other: λ = ∞ is the sum,
and of two equal members each counts less. Scores are those of LoGra, rank 16, all linear maps, unit length, of the LM
of 4.5M parameters before fine-tuning. LDS × 100; λ is chosen on instance 0 and judged on instance 1; differences are
from the sum. The last line is attention, which the package pools these scores by. WORK is a folder for scores, 50 MB.
"""

import sys
from pathlib import Path

import numpy as np

import airrep
from airrep.attributors.methods import make_attributor
from airrep.attributors.recipes import GRADIENT_TEMPERATURE
from airrep.evaluation.judging import compact_subsets, compare_held_out, held_out_lds, score_features
from airrep.labels.gather import gather
from airrep.labels.instance import LabelledInstance
from airrep.scoring.groups import Groups

HERE = Path(__file__).parents[1]
LM = HERE / "work" / "shared" / "models" / "tiny-lm"
LAMBDAS = (np.inf, 300.0, 100.0, 30.0, 10.0, 3.0, 1.0, 0.3)


def read(name: str, instance: LabelledInstance, work: Path) -> tuple[np.ndarray, np.ndarray]:
    """Scores of all members of subsets for queries ``(n, q)`` and for each other ``(n, n)``; those that are there."""
    kept = work / f"redundancy-{name}.npz"
    if not kept.exists():
        work.mkdir(parents=True, exist_ok=True)
        settings = {
            "lm": str(LM),
            "precision": "float32",
            "store": "none",
            "preset": "measured",
            "rank": 16,
            "sketch": None,
            "exponent": 1.0,
        }
        attributor = make_attributor("logra", settings)
        attributor.fit(instance.train)
        members = instance.train.take(compact_subsets(instance.subsets)[0])
        train = attributor.encode_train(members)
        queries, own = (attributor.encode_queries(one) for one in (instance.queries, members))
        assert isinstance(train, np.ndarray)
        assert isinstance(queries, np.ndarray)
        assert isinstance(own, np.ndarray)
        np.savez(kept, scores=train @ queries.T, among=train @ own.T)
    with np.load(kept) as found:
        return found["scores"], found["among"]


def gains(scores: np.ndarray, among: np.ndarray, groups: Groups, ridge: float | None) -> np.ndarray:
    """Gain of each query by each group, ``(q, groups)``; without a ridge scores pooled by attention."""
    if ridge is None:
        asked = np.eye(scores.shape[1], dtype=np.float32)
        return score_features(scores, asked, groups, "attention", temperature=GRADIENT_TEMPERATURE)
    told = []
    for group in np.split(groups.rows, groups.offsets[1:-1]):
        own = scores[group].astype(np.float64)
        kernel = among[np.ix_(group, group)].astype(np.float64)
        told.append(np.linalg.solve(np.eye(len(group)) + (kernel + kernel.T) / 2 / ridge, np.ones(len(group))) @ own)
    return np.stack(told, axis=1)


def main() -> None:
    """Print a line for each λ."""
    role, work = sys.argv[1], Path(sys.argv[2])
    corpus = airrep.read_corpus(HERE / "work" / "data" / role / "judge.jsonl")
    instances = gather([f"{HERE}/roles/labels/{role}-judge#{number}" for number in (0, 1)], [corpus])
    found = [read(f"{role}-{number}", one, work) for number, one in enumerate(instances)]
    subsets = [compact_subsets(one.subsets)[1] for one in instances]
    print(f"{role}: lambda; instance 0; instance 1; minus the sum", flush=True)
    plain = None
    for ridge in (*LAMBDAS, None):
        ours = [gains(*scores, groups, ridge) for scores, groups in zip(found, subsets, strict=True)]
        plain = ours if plain is None else plain
        first, judged = held_out_lds(ours[:1], instances[:1], 2), held_out_lds(ours[1:], instances[1:])
        gap = compare_held_out(ours[1:], plain[1:], instances[1:])
        low, high = (100 * end for end in gap.interval)
        told = f"{100 * judged.value:5.1f}  {100 * gap.value:+5.1f} ({low:.1f} to {high:.1f})"
        print(f"  {'attention' if ridge is None else f'{ridge:g}':9}  {100 * first.value:5.1f}  {told}", flush=True)


if __name__ == "__main__":
    main()
