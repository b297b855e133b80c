"""Weights of groups of linear maps, learnt on instance 0 of a role, judged on instance 1: LDS × 100 of summed scores.

Usage: python experiments/gradients/map_weights.py METHOD ROLE WORK      in the folder of the repository, after `roles`

METHOD is logra (rank 16, unit length) or factors (EK-FAC of factors of rank 3), of all linear maps of the LM of 4.5M
parameters before fine-tuning. WORK is a folder for scores by linear map, 50 MB an instance; what is there is not
computed again. It needs airrep at commit 42f9705a, the last that learns weights of linear maps.
"""

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from airrep.training.linear.map_weights import fit_map_weights
from scipy import sparse

import airrep
from airrep.attributors.methods import make_attributor
from airrep.evaluation.judging import compact_subsets, compare_held_out, held_out_lds, score_features
from airrep.labels.gather import gather
from airrep.labels.instance import LabelledInstance
from airrep.scoring.pooling import Pooling

HERE = Path(__file__).parents[1]
LM = HERE / "work" / "shared" / "models" / "tiny-lm"
METHODS = {
    "logra": ("logra", {"rank": 16, "modules": ["all-linear"]}),
    "factors": ("ekfac", {"rank": 3}),
}
GROUPINGS: Mapping[str, Callable[[str], str]] = {
    "attention, MLPs": lambda name: "attn" if "attn" in name else "mlp",
    "layers": lambda name: re.findall(r"\d+", name)[0],
    "kinds": lambda name: name.rpartition(".")[2],
    "maps": lambda name: name,
}
TEMPERATURE = 0.4
SUBSETS = (16, 30, 60)
"""How many of the subsets of instance 0 are learnt from."""


def sums_by_map(kind: str, name: str, instance: LabelledInstance, work: Path) -> tuple[list[str], np.ndarray]:
    """Names of the linear maps, and summed scores of the subsets ``(maps, q, m)``."""
    kept, (rows, subsets) = work / f"{kind}-{name}.npz", compact_subsets(instance.subsets)
    if not kept.exists():
        work.mkdir(parents=True, exist_ok=True)
        method, settings = METHODS[kind]
        own = {"lm": str(LM), "precision": "float32", "store": "none", "map_weights": "maps", **settings}
        attributor = make_attributor(method, own)
        attributor.fit(instance.train)
        groups = attributor.map_groups
        members = instance.train.take(rows)
        parts = [scores for _, scores in attributor.scores_by_group(members, instance.queries, groups)]
        np.savez(kept, scores=np.concatenate(parts, axis=2), names=list(groups))
    with np.load(kept) as found:
        scores, names = found["scores"], [str(one) for one in found["names"]]
    shape = (len(subsets), len(rows))
    member = sparse.csr_array((np.ones(len(subsets.rows)), subsets.rows, subsets.offsets), shape=shape)
    return names, np.stack([(member @ own.astype(np.float64)).T for own in scores])


def main() -> None:
    """Print a line for each grouping and number of subsets."""
    kind, role, work = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    corpus = airrep.read_corpus(HERE / "work" / "data" / role / "judge.jsonl")
    learn, judge = gather([f"{HERE}/roles/labels/{role}-judge#{number}" for number in (0, 1)], [corpus])
    names, first = sums_by_map(kind, f"{role}-0", learn, work)
    _, second = sums_by_map(kind, f"{role}-1", judge, work)
    equal = second.sum(axis=0).astype(np.float32)
    print(f"{kind}, {role}, equal weights: {shown(held_out_lds([equal], [judge]))}", flush=True)
    if kind == "logra":
        attention(role, work, judge, fit_map_weights([first], [learn.losses]))
    for grouping, key in GROUPINGS.items():
        groups = list(dict.fromkeys(map(key, names)))
        whole, judged = (
            np.stack([part[[key(name) == group for name in names]].sum(axis=0) for group in groups])
            for part in (first, second)
        )
        for subsets in SUBSETS:
            weights = fit_map_weights([whole[:, :, :subsets]], [learn.losses[:, :subsets]])
            if weights is None:
                print(f"  {grouping}, {subsets} subsets: equal weights stay", flush=True)
                continue
            ours = np.tensordot(weights, judged, axes=1).astype(np.float32)
            gain = shown(compare_held_out([ours], [equal], [judge]))
            told = ", ".join(f"{group} {weight:.1f}" for group, weight in zip(groups, weights, strict=True))
            found = shown(held_out_lds([ours], [judge]))
            print(f"  {grouping}, {subsets} subsets: {found}, gain {gain}; {told}", flush=True)


def attention(role: str, work: Path, judge: LabelledInstance, weights: np.ndarray | None) -> None:
    """Print what a weight for each map gives where groups are pooled by attention over cosines."""
    groups = compact_subsets(judge.subsets)[1]
    with np.load(work / f"logra-{role}-1.npz") as found:
        both = [np.tensordot(some, found["scores"], axes=1) for some in (np.ones(len(found["names"])), weights)]
    eye = np.eye(both[0].shape[1], dtype=np.float32)
    pool = Pooling.parse("attention", TEMPERATURE)
    equal, ours = (score_features(own.astype(np.float32), eye, groups, pool) for own in both)
    gain = shown(compare_held_out([ours], [equal], [judge]))
    print(f"  {pool}: {shown(held_out_lds([equal], [judge]))}, with a weight for each map {gain} more", flush=True)


def shown(found: object) -> str:
    """A value × 100 with its interval."""
    low, high = (100 * end for end in found.interval)
    return f"{100 * found.value:.1f} ({low:.1f} to {high:.1f})"


if __name__ == "__main__":
    main()
