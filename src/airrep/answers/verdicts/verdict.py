"""The verdict on each answer, in a number and in words."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from airrep.answers.verdicts.nearest import COUNTED, MANY, Nearest, nearest
from airrep.answers.verdicts.outside import outside
from airrep.arrays import Features, Mask
from airrep.index.contrast import Question
from airrep.index.index import Index
from airrep.index.results.hits import Hits
from airrep.index.results.kinds import TopResult
from airrep.index.results.verdict import Kind, Verdict, kind_of

TOGETHER = 64
"""Answers judged at a time."""
OPENINGS: Mapping[Kind, str] = {"stands out": "Stands out", "weak": "Weak", "nothing": "Nothing here taught this"}


def judged(index: Index, result: TopResult, where: str | None = None) -> TopResult:
    """Hits with the verdict on each query, if the most helpful come first; *where* is the filter of the hits."""
    if result.least or not result.queries:
        return result
    keep, found = index.mask(where), list[Hits]()
    for start in range(0, len(result), TOGETHER):
        some = result.queries[start : start + TOGETHER]
        better = tuple(hits.better for hits in some if hits.better is not None)
        question = Question([hits.query for hits in some], better or None)
        told = verdicts(index, question, index.encode_question(question), keep)
        found += [replace(hits, verdict=one) for hits, one in zip(some, told, strict=True)]
    return replace(result, queries=tuple(found))


def verdicts(index: Index, question: Question, encoded: Features, keep: Mask) -> list[Verdict | None]:
    """The verdict on each answer; None for all where the method scores its own queries alone.

    Args:
        index: the index.
        question: the answers, with better ones or without.
        encoded: features of all that it has (:meth:`Index.encode_question`).
        keep: the rows that count.
    """
    contrast = question.better is not None
    known = outside(index, contrast=contrast)
    if known is None:
        return [None] * len(question.queries)
    found = nearest(index, question, encoded, keep)
    letters = [len(answer.response) for answer in question.queries]
    chances = map(known.chance, found.shares.tolist(), found.tenth.tolist(), letters)
    return [_verdict(found, place, chance, contrast=contrast) for place, chance in enumerate(chances)]


def _verdict(found: Nearest, place: int, chance: float, *, contrast: bool) -> Verdict:
    columns = (found.shares, found.tenth, found.deviations, found.rows, found.alike)
    share, tenth, deviations, row, alike = (column[place].item() for column in columns)
    kind = kind_of(chance)
    text = _words(kind, chance, share, tenth if alike >= MANY and kind != "nothing" else None, alike, contrast)
    # As elsewhere numbers are told in float32, whose digits do not depend on shards and other answers.
    near, apart = float(np.float32(max(share, 0.0))), float(np.float32(deviations))
    return Verdict(kind, round(chance, 4), near, apart, row, alike, text)


def _words(kind: Kind, chance: float, share: float, tenth: float | None, alike: int, contrast: bool) -> str:
    """One sentence that a stranger understands; *tenth* is a share that many have."""
    place = " in place of the better one" if contrast else ""
    if share <= 0:
        return f"Nothing here taught this: no example teaches anything of this answer{place}."
    said = f"the nearest example teaches {_percent(share)}"
    if tenth is not None:
        said = f"{alike}{' or more' if alike >= COUNTED else ''} examples each teach about {_percent(tenth)}"
    often = "fewer than 1" if kind == "stands out" else round(100 * chance)
    return (
        f"{OPENINGS[kind]}: {said} of what a copy of this answer would{place}, and {often} in 100 answers that nothing "
        "taught come as near."
    )


def _percent(share: float) -> str:
    return f"{max(1, round(100 * share))} %"
