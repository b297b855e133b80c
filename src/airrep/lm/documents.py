"""Tokenised examples: token ids, starts of responses, and what losses need besides."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import chain
from typing import Any, Self

import numpy as np

from airrep.arrays import Rows
from airrep.corpus.corpus import Example
from airrep.lm.settings import LossName
from airrep.shapes import Bool, Float32, Float64

PAIRED = ("dpo", "orpo")
"""Losses that read preference pairs."""
REFERRED = ("dpo", "kto")
"""Losses that compare with the LM before the fine-tune."""
WEIGHTS = ("advantage", "reward")
"""Metadata fields that give an example's weight; the first field that the example has is used."""
_WANTED = {"true": 1.0, "1": 1.0, "chosen": 1.0, "false": -1.0, "0": -1.0, "rejected": -1.0}


def factor_of(example: Example, loss: LossName) -> float:
    """Return the factor of an example's loss: its weight, or ±1 for a wanted or unwanted answer; NaN if unknown."""
    if loss == "weighted":
        found = next((value for name in WEIGHTS if (value := example.metadata.get(name)) is not None), None)
        numeric = isinstance(found, int | float) and not isinstance(found, bool)
        return float(found) if numeric and np.isfinite(found) else np.nan  # type: ignore[arg-type]
    if loss == "kto":
        told = (example.label, example.metadata.get("kto_tag"), example.metadata.get("preference"))
        return next((_WANTED[name] for one in told if (name := str(one).lower()) in _WANTED), np.nan)
    return 1.0


def factors_of(examples: Sequence[Example], loss: LossName) -> Float64[np.ndarray, " rows"]:
    """Return :func:`factor_of` each example."""
    return np.array([factor_of(example, loss) for example in examples], np.float64)


def lacking(example: Example, loss: LossName) -> str:
    """Return what a loss needs but an example lacks, with advice; empty if it lacks nothing."""
    if loss in PAIRED:
        return "" if example.is_pair else "rejected response. Read pairs with --preferences pairs"
    if not np.isnan(factor_of(example, loss)):
        return ""
    wanted = f"{' or '.join(WEIGHTS)} that is a number" if loss == "weighted" else "label true or false"
    return f"{wanted}. Add one"


def one_response(key: str, loss: LossName) -> str:
    """Return the error message for a pair under a loss that reads one response."""
    return (
        f'example "{key}": is a preference pair, but loss={loss} reads one response. Set loss=dpo or loss=orpo, or '
        "read the data with --preferences chosen."
    )


def summary_of(loss: LossName, beta: float) -> Mapping[str, Any]:
    """Return the loss as manifests record it; empty for ``sft``."""
    if loss == "sft":
        return {}
    return {"loss": loss} if loss == "weighted" else {"loss": loss, "beta": beta}


@dataclass(frozen=True, slots=True, eq=False)
class Documents:
    """Token ids of n examples, laid end to end: prompt and response; for a pair, then prompt and rejected response.

    Attributes:
        ids: token ids of all documents, ``(t,)``.
        offsets: document i is ``ids[offsets[i]:offsets[i + 1]]``, ``(n + 1,)``.
        starts: place in document i at which its response starts, at least 1, ``(n,)``.
        borders: place in document i at which the rejected side starts, the document's length if it is not a pair,
            ``(n,)``; None if there are no pairs.
        others: place in document i at which the rejected response starts, the length if it is not a pair, ``(n,)``.
        factors: factor of each example's loss, NaN if unknown, ``(n,)``; None for 1.
        shares: share of each response token's loss that counts, document after document, ``(r,)`` from 0 to 1; None
            for 1. A mean over a response still divides by the number of its tokens. A fine-tune learns nothing of a
            token whose share is 0.
    """

    ids: Rows
    offsets: Rows
    starts: Rows
    borders: Rows | None = None
    others: Rows | None = None
    factors: Float64[np.ndarray, " n"] | None = None
    shares: Float32[np.ndarray, " r"] | None = None

    @classmethod
    def of(
        cls, documents: Iterable[tuple[Sequence[int] | Rows, int]], shares: Sequence[np.ndarray] | None = None
    ) -> Self:
        """Lay documents end to end; each is its ids and the start of its response, *shares* an array for each."""
        held = list(documents)
        lengths = [len(ids) for ids, _ in held]
        return cls(
            np.fromiter(chain.from_iterable(ids for ids, _ in held), np.int64, sum(lengths)),
            np.cumsum([0, *lengths], dtype=np.int64),
            np.array([start for _, start in held], np.int64),
            shares=None if shares is None else np.concatenate([np.empty(0), *shares]).astype(np.float32),
        )

    @classmethod
    def paired(cls, chosen: "Documents", rejected: Mapping[int, tuple[Rows, int]]) -> Self:
        """Append the rejected sides of pairs, given by row as ids and start of the response, to the chosen sides."""
        lengths = chosen.lengths
        both = [
            (np.concatenate([chosen.sequence(row), rejected[row][0]]) if row in rejected else chosen.sequence(row), 1)
            for row in range(len(chosen))
        ]
        ones = {row: np.ones(len(ids) - start) for row, (ids, start) in rejected.items()}
        asked = [np.append(chosen.shares_of(row), ones.get(row, ())) for row in range(len(chosen))]
        found = cls.of(both, None if chosen.shares is None else asked)
        others = [int(lengths[row]) + (rejected[row][1] if row in rejected else 0) for row in range(len(chosen))]
        return replace(found, starts=chosen.starts, borders=lengths, others=np.array(others, np.int64))

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def lengths(self) -> Rows:
        """Tokens in each document, ``(n,)``."""
        return np.diff(self.offsets)

    @property
    def response_lengths(self) -> Rows:
        """Tokens in each response, or in both of a pair, ``(n,)``."""
        lengths: Rows = self.lengths - self.starts
        if self.borders is not None and self.others is not None:
            lengths = lengths - (self.others - self.borders)
        return lengths

    @property
    def pairs(self) -> Bool[np.ndarray, " n"]:
        """True for each document that is a pair."""
        if self.borders is None:
            return np.zeros(len(self), bool)
        return self.borders < self.lengths

    def sequence(self, row: int) -> Rows:
        """Token ids of one document."""
        return self.ids[self.offsets[row] : self.offsets[row + 1]]

    def digest(self, row: int) -> str:
        """Return 32 hex digits, equal for documents with equal tokens that are parted at the same places."""
        own = [part[row] for part in (self.starts, self.borders, self.others) if part is not None]
        return sha256(self.sequence(row).tobytes() + np.array(own).tobytes()).hexdigest()[:32]

    def take(self, rows: Sequence[int] | Rows) -> "Documents":
        """Documents of the given rows, in the given order; a row may be given more than once."""
        shares = None if self.shares is None else [self.shares_of(row) for row in rows]
        found = Documents.of(((self.sequence(row), int(self.starts[row])) for row in rows), shares)
        rows = np.asarray(rows, np.int64)
        parts = {"borders": self.borders, "others": self.others, "factors": self.factors}
        return replace(found, **{name: part[rows] for name, part in parts.items() if part is not None})

    def shares_of(self, row: int) -> Float32[np.ndarray, " r"]:
        """Return the shares of one document's response tokens, ``(r,)``; ones if :attr:`shares` is None."""
        if self.shares is None:
            return np.ones(int(self.response_lengths[row]), np.float32)
        ends = np.cumsum(self.response_lengths)
        return self.shares[ends[row] - self.response_lengths[row] : ends[row]]
