"""LDS × 100 of n-gram language models and of the default channels with other settings, on instance 0 of each role.

Usage: python experiments/channels/tried.py [ROLE ...]        in the folder of the repository, after `roles` (data)

Queries for which all subsets are scored alike count 0 here; `airrep evaluate --labels` leaves them out. The last line
is TF-IDF of the response on instance 1, counted so.
"""

import sys
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

import airrep
from airrep.attributors.methods import make_attributor
from airrep.evaluation.judging import score_instance
from airrep.labels.gather import gather

HERE = Path(__file__).parents[1]
LM = HERE / "work" / "shared" / "models" / "tiny-lm"
TRIED = {
    "orders 1 to 3 of the LM's tokens": ("ngram", {"tokenizer": str(LM)}),
    "orders 1 to 4": ("ngram", {"tokenizer": str(LM), "orders": (1, 2, 3, 4)}),
    "an example weighs its length": ("ngram", {"tokenizer": str(LM), "length": 1.0}),
    "smoothing 3": ("ngram", {"tokenizer": str(LM), "smoothing": 3.0}),
    "smoothing 3, pairs with a gap weigh 0.5": ("ngram", {"tokenizer": str(LM), "smoothing": 3.0, "skip": 0.5}),
    "words": ("ngram", {}),
    "words, copied ones as one mark": ("ngram", {"copied": True}),
    "words, smoothing 3, copied ones as one mark": ("ngram", {"smoothing": 3.0, "copied": True}),
    "the default channels of before": (
        "channels",
        {"channels": str(HERE / "channels" / "before.yaml"), "tokenizer": str(LM)},
    ),
    "the default channels with the LM's tokens": ("channels", {"tokenizer": str(LM)}),
}


def lds(role: str, instance: int, method: str, settings: dict) -> float:
    """Mean over all queries of Spearman's correlation, × 100."""
    corpus = airrep.read_corpus(HERE / "work" / "data" / role / "judge.jsonl")
    (labels,) = gather([f"{HERE}/roles/labels/{role}-judge#{instance}"], [corpus])
    scores = score_instance(make_attributor(method, settings), labels)
    pairs = zip(scores, -labels.losses, strict=True)
    return 100 * float(np.mean([spearmanr(*pair).statistic if np.ptp(pair[0]) else 0.0 for pair in pairs]))


def main() -> None:
    """Print a line for each setting."""
    roles = sys.argv[1:] or ["tasks", "mixture", "general", "safety"]
    print(f"{'':42}", *(f"{role:>8}" for role in roles))
    for name, (method, settings) in TRIED.items():
        print(f"{name:42}", *(f"{lds(role, 0, method, settings):8.1f}" for role in roles), flush=True)
    found = (lds(role, 1, "tfidf", {"view": "response"}) for role in roles)
    print(f"{'TF-IDF of the response, instance 1':42}", *(f"{value:8.1f}" for value in found))


if __name__ == "__main__":
    main()
