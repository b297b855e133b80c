"""TF-IDF as scikit-learn's TfidfVectorizer computes it by default, by hand."""

import math
import re
from collections.abc import Sequence

import numpy as np

TOKEN = re.compile(r"(?u)\b\w\w+\b")


def tokens(text: str) -> list[str]:
    """Return the lower-case words of two or more word characters."""
    return TOKEN.findall(text.lower())


def fit(texts: Sequence[str]) -> dict[str, float]:
    """Return idf(t) = ln((1 + n) / (1 + df(t))) + 1 for each term, sorted as the columns are."""
    sets = [set(tokens(text)) for text in texts]
    idf = {}
    for term in sorted(set().union(*sets)):
        frequency = sum(term in seen for seen in sets)
        idf[term] = math.log((1 + len(texts)) / (1 + frequency)) + 1.0
    return idf


def transform(idf: dict[str, float], texts: Sequence[str]) -> np.ndarray:
    """Return unit rows of tf(t, z) · idf(t), shape ``(rows, terms)``; a row without known terms stays 0."""
    rows = np.zeros((len(texts), len(idf)))
    for i, text in enumerate(texts):
        words = tokens(text)
        for j, term in enumerate(idf):
            rows[i, j] = words.count(term) * idf[term]
        norm = math.sqrt(math.fsum(rows[i] ** 2))
        if norm > 0.0:
            rows[i] /= norm
    return rows
