"""The words of an answer that a training example helps: scores without each word."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from airrep.arrays import Rows
from airrep.corpus.corpus import Example
from airrep.corpus.words import Words
from airrep.index.index import Index
from airrep.scoring.scores import stream_scores

PIECES = 128
"""Pieces of a response at most; the words of longer ones are taken together, so an answer costs no more encodings."""

ROUNDED = 1e-12
"""A difference of float64 scores that is smaller than this part of them is none."""

_WORDS = Words(signs=True, rest=r"[^\w\s]")


@dataclass(frozen=True)
class Token:
    """A word of the answer, or several of a long answer, and what a training example does for it."""

    start: int
    """Its first character in the response."""
    stop: int
    """The character after its last."""
    score: float
    """The score for the answer minus the score for the answer without it; above 0 where the example helps it."""


def split_response(text: str) -> list[tuple[int, int]]:
    """Words and signs of a response, in order, as (start, stop); of a long one :data:`PIECES` stretches of words."""
    words = [found.span() for found in _WORDS.finditer(text)]
    if len(words) <= PIECES:
        return words
    parts = np.array_split(np.arange(len(words)), PIECES)
    return [(words[part[0]][0], words[part[-1]][1]) for part in parts]


def token_scores(index: Index, answer: Example, rows: Sequence[int]) -> list[list[Token]]:
    """What each of some training examples does for each word of an answer.

    Word by word the answer is encoded and scored once more without it, whatever the method, so the differences need
    not add up to the score: words that say the same stand in for each other. A response of one word cannot do without
    it; the word has the whole score.

    Args:
        index: the index.
        answer: the answer.
        rows: training examples.
    """
    pieces = split_response(answer.response)
    shorter = [replace(answer, response=_without(answer.response, *piece)) for piece in pieces]
    asked = [place for place, one in enumerate(shorter) if one.response.strip()]
    lost = np.zeros((len(rows), len(pieces)))
    if pieces and rows:
        queries = [replace(answer, id="whole"), *(replace(shorter[place], id=str(place)) for place in asked)]
        whole, *without = _scores_of(index, queries, rows).T
        lost += whole[:, None]
        lost[:, asked] -= np.stack(without, axis=1) if asked else 0
        lost[np.abs(lost) <= ROUNDED * np.abs(whole[:, None])] = 0
    return [
        [Token(start, stop, float(np.float32(value))) for (start, stop), value in zip(pieces, own, strict=True)]
        for own in lost
    ]


def _without(text: str, start: int, stop: int) -> str:
    """A text without one stretch, and without the white space after it."""
    return (
        text[:start] + text[stop:].lstrip() if start == 0 or text[start - 1].isspace() else text[:start] + text[stop:]
    )


def _scores_of(index: Index, queries: Sequence[Example], rows: Sequence[int]) -> np.ndarray:
    """Scores ``(rows, queries)``, float64, in the order of the rows."""
    chosen = np.zeros(index.rows, bool)
    chosen[list(rows)] = True
    found: list[tuple[Rows, np.ndarray]] = list(stream_scores(index.encode_queries(queries), index.blocks, chosen))
    order = np.searchsorted(np.concatenate([part for part, _ in found]), rows)
    scores: np.ndarray = np.concatenate([part for _, part in found], axis=1).T[order]
    return scores
