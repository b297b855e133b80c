"""The result of a proof: effects, their intervals, a sentence."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from airrep.index.results.hits import Record
from airrep.index.results.result import Answer, Provenance

Verdict = Literal["taught", "held back", "not shown", "not moved"]
"""The rows taught the answer; they kept the model from it; neither is shown; or the fine-tunes moved nothing."""
UNITS = "nats per token of the answer"


@dataclass(frozen=True)
class Effect:
    """A change of a loss, in nats per token."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Effects:
    """Effects of leaving rows out on one number; each is a mean over the repeats."""

    without_named: Effect
    """Without the named rows less with them; 95 % interval of the mean (Student's t)."""
    without_random: Effect
    """Without as many random rows; between its ends lies what one other random set does, in 95 % of the sets."""
    difference: Effect
    """The first less the second, repeat by repeat; it holds 0 for 95 % of random sets in place of the named one."""


@dataclass(frozen=True)
class NamedRow:
    """A training example that was left out."""

    row: int
    example: Record


@dataclass(frozen=True)
class Proved:
    """One answer, and what became of it."""

    answer: Record
    better: Record | None
    before: float
    """Loss of the answer before any fine-tune."""
    after: float
    """The number after the fine-tunes with all rows, mean over the repeats."""
    loss: Effects
    """Effects on the loss of the answer: above 0, it is less likely without the rows."""
    contrast: Effects | None
    """Effects on the loss of the answer less that of the better one; None without one."""


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
    """Mean over the answers of :attr:`Proved.contrast`; the verdict is by it, where there is one."""
    before: float
    """Loss of the answers before any fine-tune."""
    after: float
    """The number after the fine-tunes with all rows."""
    repeats: int
    """Each with its own context, its own random rows and its own order of data."""
    context: int
    """Other examples in each fine-tune, beside the named and the random ones."""
    examples: int
    """Training examples that the rows were named among."""
    lm: str
    fine_tune: dict[str, Any]
    cautions: tuple[str, ...]
    provenance: Provenance
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
