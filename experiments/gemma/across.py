"""Judge scores of SmolLM2-135M by fine-tunes of Gemma-3-270M on the same subsets of the same examples.

Usage: python experiments/gemma/across.py tasks|general   in the folder of the repository

LDS x 100 of rows of `results` and of `smollm2/results` against the losses of Gemma, then of SmolLM2, on the subsets
that Gemma was fine-tuned on; then, on Gemma, minus text by Gemma's own tokens, paired. Runs that are not there yet are
left out.
"""

import argparse
from pathlib import Path

import numpy as np

import airrep

HERE = Path(__file__).parent
OF_SMOLLM2 = {
    "{role}-rivals-signed": ["TF-IDF-response", "BM25-response"],
    "{role}": ["N-grams-LM", "Channels-text", "Channels-expected"],
    "{role}-gradients": ["LoGra", "Channels-LoGra"],
    "{role}-warmed-channels": ["LoGra-after", "Channels-warmed"],
    "{role}-whole-gradients": ["EK-FAC", "Channels-EK-FAC"],
}
OF_GEMMA = {
    "{role}-words": ["Text", "N-grams"],
    "{role}-lm": ["LM", "LoGra"],
    "{role}-lm-warm": ["LM-warm"],
    "{role}-lm-whole": ["LM-whole", "EK-FAC-0.75", "EK-FAC"],
}


def main() -> None:
    """Print a line for each row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("role", choices=["tasks", "general"])
    role = parser.parse_args().role
    rows: dict[str, np.ndarray] = {}
    for run, names in OF_GEMMA.items():
        if not (folder := HERE / "results" / run.format(role=role)).is_dir():
            continue
        found, of_gemma = read(folder, names, role)
        rows |= {f"{name}, Gemma's": scores for name, scores in found.items()}
    done = ~np.isnan(of_gemma).any(axis=0)
    for run, names in OF_SMOLLM2.items():
        found, of_smollm2 = read(HERE.parent / "smollm2" / "results" / run.format(role=role), names, role)
        rows |= found
    text = rows["Text, Gemma's"][:, done]
    shared = float(np.nanmean(airrep.metrics.spearman(of_gemma[:, done], of_smollm2[:, done])))
    print(f"{done.sum()} subsets; losses of both models correlate by {100 * shared:.1f}")
    for name, scores in rows.items():
        told = [airrep.metrics.lds(scores[:, done], losses[:, done]) for losses in (of_gemma, of_smollm2)]
        shown_both = ", ".join(f"{100 * one.value:.1f} ({shown(one.interval)})" for one in told)
        paired = airrep.metrics.paired(scores[:, done], text, of_gemma[:, done])
        print(f"{name:24}{shown_both}, minus text {100 * paired.difference:.1f} ({shown(paired.interval)})")


def read(folder: Path, names: list[str], role: str) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Group scores of rows of a result, by name, and the losses; all ``(queries, subsets)``."""
    found = airrep.open(folder)
    places = {row.name: place for place, row in enumerate(found.rows)}
    judged = f"{role}-real/0"
    return {name: found.matrices[f"{places[name]}/{judged}"] for name in names}, found.matrices[f"losses/{judged}"]


def shown(interval: tuple[float, float]) -> str:
    """The ends × 100."""
    low, high = interval
    return f"{100 * low:.1f} to {100 * high:.1f}"


if __name__ == "__main__":
    main()
