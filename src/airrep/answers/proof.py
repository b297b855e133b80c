"""The result of a proof: effects, their intervals, a sentence."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from airrep.index.results.hits import Record
from airrep.index.results.result import Answer, Provenance

Verdict = Literal["taught", "held back", "not shown", "not moved"]
"""The rows taught the answer, or kept the model from it; nothing is shown; or the fine-tunes changed too little."""
UNITS = "nats per token of the answer"


@dataclass(frozen=True)
class Effect:
    """A change of a loss, in nats per token, with the ends of its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Effects:
    """Effects of leaving rows out on a loss, or on a difference of losses; each is a mean over the repeats."""

    without_named: Effect
    """The loss without the named rows minus that with all rows; 95 % interval of the mean (Student's t)."""
    without_random: Effect
    """The loss without as many random rows minus that with all rows; the interval covers 95 % of other random sets."""
    difference: Effect
    """The first minus the second; for 95 % of random sets in place of the named rows, the interval would hold 0."""


@dataclass(frozen=True)
class NamedRow:
    """A training example that was left out."""

    row: int
    example: Record


@dataclass(frozen=True)
class Proved:
    """One answer, with its losses and the effects of leaving the rows out."""

    answer: Record
    better: Record | None
    before: float
    """Loss of the answer before any fine-tune."""
    after: float
    """Loss of the answer after the fine-tunes with all rows, mean over the repeats."""
    loss: Effects
    """Effects on the loss of the answer: above 0, the answer is less likely without the rows."""
    contrast: Effects | None
    """Effects on the loss of the answer minus that of the better answer; None without a better answer."""


@dataclass(frozen=True, repr=False)
class ProofResult(Answer):
    """Effects of some training examples on answers, by fine-tunes with and without them."""

    sentence: str
    """The verdict in words."""
    verdict: Verdict
    rows: tuple[NamedRow, ...]
    """The examples that were left out."""
    queries: tuple[Proved, ...]
    loss: Effects
    """Mean over the answers of :attr:`Proved.loss`."""
    contrast: Effects | None
    """Mean over the answers of :attr:`Proved.contrast`; if there is one, it decides the verdict."""
    before: float
    """Mean loss of the answers before any fine-tune."""
    after: float
    """Mean loss of the answers after the fine-tunes with all rows."""
    repeats: int
    """Number of repeats, each with its own context, random rows and order of data."""
    context: int
    """Number of other examples in each fine-tune, besides the named and the random rows."""
    examples: int
    """Number of training examples that the rows were named among."""
    lm: str
    fine_tune: dict[str, Any]
    cautions: tuple[str, ...]
    provenance: Provenance
    path: Annotated[Path | None, Field(exclude=True)] = field(default=None, compare=False)
    """Directory that :func:`airrep.prove` wrote the result to."""
    kind: ClassVar[str] = "proof"
    note: ClassVar[str] = (
        "These are losses after fine-tunes, not scores. They hold for this model, these settings and this data."
    )

    columns: ClassVar[tuple[str, ...]] = ("answer", "number", "without", "low", "high", "random", "difference")

    def _records(self) -> Iterator[dict[str, Any]]:
        for one in self.queries:
            for number, effects in (("loss", one.loss), ("contrast", one.contrast)):
                if effects is not None:
                    named, others = effects.without_named, (effects.without_random.value, effects.difference.value)
                    values = (one.answer.id, number, named.value, named.low, named.high, *others)
                    yield dict(zip(self.columns, values, strict=True))

    def summary(self) -> str:
        return self.sentence
