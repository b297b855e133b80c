"""Modules, unit length, pool and temperature of LoGra and TracIn: chosen on instance 0 of a role, judged on instance 1.

Usage: python experiments/gradients/defaults.py METHOD ROLE WORK      in the folder of the repository, after `roles`

METHOD is logra or tracin, of rank 16, of the LM of 4.5M parameters before fine-tuning. LDS × 100; differences are
from the paper's setting: maps of MLPs, unit length, sum. WORK is a folder for scores by linear map, 50 MB an instance;
what is there is not computed again.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

import airrep
from airrep.attributors.gradient.base import GradientAttributor
from airrep.attributors.methods import make_attributor
from airrep.evaluation.judging import compact_subsets, compare_held_out, held_out_lds, score_features
from airrep.labels.gather import gather
from airrep.labels.labels import LabelledInstance
from airrep.scoring.pooling import Pooling

HERE = Path(__file__).parents[1]
LM = HERE / "work" / "shared" / "models" / "tiny-lm"
TEMPERATURES = (0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0)


class Parts(NamedTuple):
    """Scores of one instance by linear map, without unit length."""

    names: list[str]
    scores: np.ndarray
    """``(maps, n, q)``."""
    train: np.ndarray
    """``(maps, n)``: squared lengths."""
    queries: np.ndarray
    """``(maps, q)``."""

    def of(self, part: str, unit: bool) -> np.ndarray:
        """Scores ``(n, q)`` of the maps with these letters in their names."""
        some = [part in name for name in self.names]
        found = self.scores[some].sum(axis=0, dtype=np.float64)
        if unit:
            found = found / np.sqrt(self.train[some].sum(0))[:, None] / np.sqrt(self.queries[some].sum(0))[None]
        return found.astype(np.float32)


def read(method: str, name: str, instance: LabelledInstance, work: Path) -> Parts:
    """Read all gradients, or what is there of them."""
    kept = work / f"{method}-raw-{name}.npz"
    if not kept.exists():
        work.mkdir(parents=True, exist_ok=True)
        own = {"lm": str(LM), "precision": "float32", "store": "none", "rank": 16, "unit": False}
        own |= {"sketch": None, "exponent": 1.0, "sample": 1000} if method == "logra" else {}
        attributor = make_attributor(method, {**own, "modules": ["all-linear"]})
        assert isinstance(attributor, GradientAttributor)
        attributor.fit(instance.train)
        members = instance.train.take(compact_subsets(instance.subsets)[0])
        ends = np.cumsum(attributor.widths)[:-1]
        both = [np.split(attributor.encode_train(one), ends, axis=1) for one in (members, instance.queries)]
        train, queries = ([(part.astype(np.float64) ** 2).sum(axis=1) for part in parts] for parts in both)
        scores = np.stack([own @ other.T for own, other in zip(*both, strict=True)])
        names = [site.name for site in attributor.sites]
        np.savez(kept, names=names, scores=scores, train=np.stack(train), queries=np.stack(queries))
    with np.load(kept) as found:
        return Parts([str(one) for one in found["names"]], found["scores"], found["train"], found["queries"])


def pools(spread: float) -> Iterator[Pooling]:
    """Pools to try; temperatures are in units of cosines, or in deviations of scores that are none."""
    yield Pooling.parse("sum", 1.0)
    for kind in ("attention", "signed-attention"):
        yield from (Pooling.parse(kind, temperature * spread) for temperature in TEMPERATURES)


def main() -> None:
    """Print a line for each setting, in the order of instance 0."""
    method, role, work = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    corpus = airrep.read_corpus(HERE / "work" / "data" / role / "judge.jsonl")
    instances = gather([f"{HERE}/roles/labels/{role}-judge#{number}" for number in (0, 1)], [corpus])
    parts = [read(method, f"{role}-{number}", one, work) for number, one in enumerate(instances)]
    subsets = [compact_subsets(one.subsets)[1] for one in instances]
    rows, paper = [], None
    for part, name in (("mlp", "MLPs"), ("", "all maps")):
        for unit in (True, False):
            scores = [one.of(part, unit) for one in parts]
            for pool in pools(1.0 if unit else 5 * float(scores[0].std())):
                pooled = [
                    score_features(own, np.eye(own.shape[1], dtype=np.float32), groups, pool)
                    for own, groups in zip(scores, subsets, strict=True)
                ]
                paper = pooled[1] if paper is None else paper
                title = f"{name}, {'unit length' if unit else 'lengths kept'}, {pool}"
                rows.append((held_out_lds([pooled[0]], [instances[0]], 2).value, title, pooled[1]))
    print(f"{method}, {role}: instance 0; instance 1; minus the paper's", flush=True)
    for value, title, ours in sorted(rows, key=lambda row: -row[0]):
        if title == rows[0][1] or value > 0:
            judged, gap = held_out_lds([ours], instances[1:]), compare_held_out([ours], [paper], instances[1:])
            low, high = (100 * end for end in gap.interval)
            told = f"{100 * judged.value:5.1f}  {100 * gap.value:+5.1f} ({low:.1f} to {high:.1f})"
            print(f"  {title:44}{100 * value:5.1f}  {told}", flush=True)


if __name__ == "__main__":
    main()
