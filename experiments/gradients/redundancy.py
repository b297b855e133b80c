"""A redundancy term for groups: members that say the same share their effect.

Usage: python experiments/gradients/redundancy.py ROLE WORK      in the folder of the repository, after `roles`

The scores of a group add up as if each member were learnt alone. Forms of a discount for members that are alike, K
being their cosines with each other: the ridge (I + K / λ)⁻¹ 1 of a linear model that is fitted to the group; what the
loss of example i leaves when all fall together, ln(1 + t κ_i) / (t κ_i), κ_i being the sum of its cosines with the
others, of which t = 1 is the pool `diminishing`; and attention, which looks at scores alone. Scores are those of
`--method logra` (rank 64, sketched), of the LM of 4.5M parameters before fine-tuning. LDS × 100; what ships was chosen
on instances 0; differences, on instance 1, are from attention at 0.4. WORK is a folder for scores, 100 MB.
"""

import sys
from pathlib import Path

import numpy as np

import airrep
from airrep.attributors.methods import make_attributor
from airrep.evaluation.judging import compact_subsets, compare_held_out, held_out_lds, score_features
from airrep.labels.gather import gather
from airrep.labels.labels import LabelledInstance
from airrep.scoring.groups import Groups

HERE = Path(__file__).parents[1]
LM = HERE / "work" / "shared" / "models" / "tiny-lm"
FORMS = (
    *(("attention", temperature) for temperature in (0.4, 0.2, 0.8)),
    ("sum", 1.0),
    *(("ridge", ridge) for ridge in (10.0, 3.0, 1.0)),
    *(("diminishing", time) for time in (0.3, 1.0, 3.0)),
)
"""Names with their temperature, λ or t; differences are from the first."""


def read(name: str, instance: LabelledInstance, work: Path) -> tuple[np.ndarray, np.ndarray]:
    """Scores of all members of subsets for queries ``(n, q)`` and for each other ``(n, n)``; those that are there."""
    kept = work / f"redundancy-{name}.npz"
    if not kept.exists():
        work.mkdir(parents=True, exist_ok=True)
        settings = {"lm": str(LM), "precision": "float32", "store": "none"}
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


def gains(scores: np.ndarray, among: np.ndarray, groups: Groups, form: str, size: float) -> np.ndarray:
    """Gain of each query by each group, ``(q, groups)``."""
    if form in ("sum", "attention"):
        asked = np.eye(scores.shape[1], dtype=np.float32)
        return score_features(scores, asked, groups, form, temperature=size)
    told = []
    for group in np.split(groups.rows, groups.offsets[1:-1]):
        shares = discounts(among[np.ix_(group, group)].astype(np.float64), form, size)
        told.append(shares @ scores[group].astype(np.float64))
    return np.stack(told, axis=1)


def discounts(kernel: np.ndarray, form: str, size: float) -> np.ndarray:
    """Return what is left of each member of a group, ``(n,)``."""
    if form == "ridge":
        share: np.ndarray = np.linalg.solve(np.eye(len(kernel)) + kernel / size, np.ones(len(kernel)))
        return share
    alike = size * np.maximum(kernel.sum(axis=1) - np.diag(kernel), 1e-9)
    return np.log1p(alike) / alike


def main() -> None:
    """Print a line for each form."""
    role, work = sys.argv[1], Path(sys.argv[2])
    corpus = airrep.read_corpus(HERE / "work" / "data" / role / "judge.jsonl")
    instances = gather([f"{HERE}/roles/labels/{role}-judge#{number}" for number in (0, 1)], [corpus])
    found = [read(f"{role}-{number}", one, work) for number, one in enumerate(instances)]
    subsets = [compact_subsets(one.subsets)[1] for one in instances]
    print(f"{role}: form; instance 0; instance 1; minus attention", flush=True)
    plain = None
    for form, size in FORMS:
        ours = [gains(*scores, groups, form, size) for scores, groups in zip(found, subsets, strict=True)]
        plain = ours if plain is None else plain
        first, judged = held_out_lds(ours[:1], instances[:1], 2), held_out_lds(ours[1:], instances[1:])
        gap = compare_held_out(ours[1:], plain[1:], instances[1:])
        low, high = (100 * end for end in gap.interval)
        told = f"{100 * judged.value:5.1f}  {100 * gap.value:+5.1f} ({low:.1f} to {high:.1f})"
        print(f"  {f'{form} {size:g}':16}  {100 * first.value:5.1f}  {told}", flush=True)


if __name__ == "__main__":
    main()
