"""Gradients of the LM's output layer, and an example's own loss before fine-tuning: LDS × 100 of summed scores.

Usage: python experiments/gradients/readout.py [ROLE ...]        in the folder of the repository, after `roles` (data)

Instance 0 chooses a setting, instance 1 judges it: both are printed. Features of ranks below 64 are parts of those of
rank 64.
"""

import sys
from pathlib import Path

import numpy as np

import airrep
from airrep.attributors.methods import make_attributor
from airrep.evaluation.judging import compact_subsets
from airrep.labels.gather import gather
from airrep.labels.instance import LabelledInstance

HERE = Path(__file__).parents[1]
LM = HERE / "work" / "shared" / "models" / "tiny-lm"
RANK = 64


def scores(instance: LabelledInstance) -> dict[str, np.ndarray]:
    """Influence scores ``(members of subsets, q)`` by name."""
    members = instance.train.take(compact_subsets(instance.subsets)[0])
    method = make_attributor("readout", {"lm": str(LM), "precision": "float32", "rank": RANK, "unit": False})
    train, queries = (method.encode_train(part).reshape(-1, RANK, RANK) for part in (members, instance.queries))
    documents = method.lm.tokenise(members)
    tokens = documents.response_lengths[:, None]
    found = {}
    for rank in (16, 32, 64):
        rows, asked = (part[:, :rank, :rank].reshape(len(part), -1).astype(np.float64) for part in (train, queries))
        found[f"rank {rank}, sum"] = rows @ asked.T
        found[f"rank {rank}, mean"] = rows @ asked.T / tokens
        found[f"rank {rank}, unit length"] = rows @ asked.T / np.linalg.norm(rows, axis=1)[:, None]
    losses = np.repeat(method.lm.losses(documents)[:, None], len(instance.queries), axis=1)
    return {**found, "own loss, mean over tokens": losses, "own loss, sum": losses * tokens}


def main() -> None:
    """Print a table for each role."""
    for role in sys.argv[1:] or ["tasks", "mixture"]:
        corpus = airrep.read_corpus(HERE / "work" / "data" / role / "judge.jsonl")
        instances = gather([f"{HERE}/roles/labels/{role}-judge#{number}" for number in (0, 1)], [corpus])
        tables = []
        for instance in instances:
            groups = compact_subsets(instance.subsets)[1]
            pairs = list(zip(groups.offsets[:-1], groups.offsets[1:], strict=True))
            tables.append(
                {
                    name: airrep.metrics.lds(
                        np.stack([own[groups.rows[a:b]].sum(0) for a, b in pairs], axis=1), instance.losses
                    )
                    for name, own in scores(instance).items()
                }
            )
        print(f"{role:28}{'instance 0':>12}{'instance 1':>24}")
        for name, first in tables[0].items():
            second = tables[1][name]
            low, high = (100 * end for end in second.interval)
            print(f"{name:28}{100 * first.value:12.1f}{100 * second.value:12.1f} ({low:.1f} to {high:.1f})", flush=True)


if __name__ == "__main__":
    main()
