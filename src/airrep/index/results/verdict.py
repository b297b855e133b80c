"""Verdicts: whether anything in the data stands out as what taught an answer."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["stands out", "weak", "nothing"]

STANDS_OUT, WEAK = 0.01, 0.05
"""Chances below which something stands out, or is at least weak."""


@dataclass(frozen=True)
class Verdict:
    """Whether anything in the data stands out as what taught an answer.

    The share of a training example is what it teaches of the answer, as a part of what a copy of the answer would
    teach: 0 for the mean example, 1 for a copy. With a better answer it is the lesser of that share and the same share
    of the contrast, so that it must teach the answer, and more than the better one. The nearest example has the
    greatest share.
    """

    kind: Kind
    """``"stands out"`` (chance below 1 %), ``"weak"`` (below 5 %), or ``"nothing"``: nothing here taught this."""
    chance: float
    """Chance that the nearest example to an answer that nothing taught has as great a share, from 0 to 1."""
    share: float
    """Share of the nearest example."""
    deviations: float
    """How far the score of the nearest example lies above the mean of all, in deviations of their scores."""
    row: int
    """Row number of the nearest example in the index."""
    rows: int
    """Examples whose share is at least 0.7 of the greatest; no more than 100 are counted."""
    text: str
    """The verdict in words."""


def kind_of(chance: float) -> Kind:
    """The kind of a verdict."""
    return "stands out" if chance < STANDS_OUT else "weak" if chance < WEAK else "nothing"
