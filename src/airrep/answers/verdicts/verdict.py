"""The verdict on each answer, in a number and in words."""

from collections.abc import Mapping, Sequence

import numpy as np

from airrep.answers.verdicts.nearest import COUNTED, MANY, nearest
from airrep.answers.verdicts.outside import Outside, outside
from airrep.arrays import Features, Mask
from airrep.corpus.corpus import Example
from airrep.index.index import Index
from airrep.index.results.verdict import Kind, Verdict, kind_of

OPENINGS: Mapping[Kind, str] = {"stands out": "Stands out", "weak": "Weak", "nothing": "Nothing here taught this"}


def verdicts(
    index: Index, answers: Sequence[Example], better: Sequence[Example], encoded: Features, keep: Mask
) -> list[Verdict | None]:
    """The verdict on each answer; None for all where the method scores its own queries alone.

    Args:
        index: the index.
        answers: prompts with the answers.
        better: the same prompts with better answers, in the same order; or none.
        encoded: features of the answers, and behind them those of the better ones (:meth:`Index.encode_queries`).
        keep: the rows that count.
    """
    known = outside(index, contrast=bool(better))
    if known is None:
        return [None] * len(answers)
    found = nearest(index, answers, better, encoded, keep)
    columns = (found.shares, found.tenth, found.deviations, found.rows, found.alike)
    told = zip(*(column.tolist() for column in columns), strict=True)
    return [_verdict(known, *one, contrast=bool(better)) for one in told]


def _verdict(
    known: Outside, share: float, tenth: float, deviations: float, row: int, alike: int, *, contrast: bool
) -> Verdict:
    chance = known.chance(share, tenth)
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
