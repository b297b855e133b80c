"""Provenance of scores: method, pool, units, sign; rankings and removals in words."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from airrep.scoring.pooling import pooling_text

REMOVAL = "increase of the query's loss if the group were removed"
"""What an order-k score measures."""
ZERO = "every score is 0: the query shares nothing with any example"
HELPFUL: Final = "most helpful first"
HARMFUL: Final = "most harmful first"


def order_in_words(least: bool, scores: Iterable[float]) -> str:
    """Which end of a ranking it is; the lowest scores harm nobody if they are above 0."""
    if not least:
        return "most helpful"
    return "most harmful" if min(scores, default=-1.0) < 0 else "least helpful"


@dataclass(frozen=True)
class Provenance:
    """Where scores come from, and how to read them."""

    method: str
    """The attribution method."""
    index: str
    """Fingerprint of the index that was asked, with the weights of its channels if others were given."""
    pool: str | None = None
    """How the members' scores make a group score; None for scores of single examples."""
    temperature: float | None = None
    """Of attention, the larger the flatter; None for other pools."""
    units: str = "inner product of features"
    """What a score measures."""
    sign: str = "higher = more helpful"
    """Which way is up."""
    caution: str = ""
    """What readers should be told of the method; empty if nothing."""
    rows: int | None = None
    """How many examples were ranked; None where none were, and in results of earlier versions."""

    @property
    def pooling(self) -> str:
        """The pool, and the temperature if it is not 1; empty for scores of single examples."""
        return pooling_text(self.pool, self.temperature)


NOWHERE = Provenance("", "")
"""Provenance of what belongs to no result yet."""
