"""Identical-class test and unigram F1, written plainly."""

import math
from collections.abc import Sequence

import numpy as np

from .ranking import ranked_rows


def neighbours(
    scores: Sequence[float], texts: Sequence[object], own: object, k: int, keep: Sequence[bool] | None = None
) -> list[int]:
    """Return the first k kept rows that do not hold the query's own text, greatest score first, ties by row."""
    return [row for row in ranked_rows(scores, keep) if texts[row] != own][:k]


def elected(labels: Sequence[str | None]) -> str | None:
    """Return the label that most have, of equals the one met first; None where nobody has any."""
    names = [label for label in labels if label is not None]
    best = None
    for name in names:
        if best is None or names.count(name) > names.count(best):
            best = name
    return best


def is_right(label: str | None, wanted: str) -> float:
    """Return 1 where a label is the one wanted."""
    return float(label is not None and label == wanted)


def chance(asked: Sequence[str], train: Sequence[str | None]) -> float:
    """Return how often a random training example has the label of a random query."""
    pairs = [is_right(label, wanted) for wanted in asked for label in train]
    return math.fsum(pairs) / len(pairs)


def macro(right: Sequence[float], labels: Sequence[str]) -> float:
    """Return the mean over labels of the mean of each label's queries."""
    means = []
    for name in sorted(set(labels)):
        of_label = [value for value, label in zip(right, labels, strict=True) if label == name]
        means.append(math.fsum(of_label) / len(of_label))
    return math.fsum(means) / len(means)


def words(text: str) -> list[str]:
    """Return the lower-case runs of letters, digits and underscores."""
    found, run = [], ""
    for letter in text.lower() + " ":
        if letter.isalnum() or letter == "_":
            run += letter
        elif run:
            found.append(run)
            run = ""
    return found


def unigram_f1(answer: str, reference: str) -> float:
    """Return the harmonic mean of precision and recall over words, each counted as often as it occurs in both."""
    given, wanted = words(answer), words(reference)
    if not given and not wanted:
        return float(answer.strip() == reference.strip())
    left, common = list(wanted), 0
    for word in given:
        if word in left:
            left.remove(word)
            common += 1
    if common == 0:
        return 0.0
    precision, recall = common / len(given), common / len(wanted)
    return 2 * precision * recall / (precision + recall)


def two_level_variance(values: np.ndarray, tasks: Sequence[str]) -> tuple[float, float]:
    """Return the variances of the mean of task means: of queries within tasks, and between tasks, both unbiased."""
    groups = [[v for v, t in zip(values, tasks, strict=True) if t == name] for name in sorted(set(tasks))]
    means = [math.fsum(group) / len(group) for group in groups]
    within = 0.0
    for group, mean in zip(groups, means, strict=True):
        within += math.fsum((v - mean) ** 2 for v in group) / (len(group) - 1) / len(group) / len(groups) ** 2
    center = math.fsum(means) / len(means)
    between = math.fsum((mean - center) ** 2 for mean in means) / (len(means) - 1) / len(means)
    return within, between
