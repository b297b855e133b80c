"""The base of all answers: a result, with what is told beside it."""

from dataclasses import fields
from typing import ClassVar

from airrep.index.results.result import Result

PREDICTION = "Scores are predictions of what fine-tuning does, not proof of it."
"""Told with every answer."""


class Answer(Result):
    """An answer to one question; docs/answers.md has the layout of its JSON."""

    note: ClassVar[str] = PREDICTION
    """Told with the answer."""

    def summary(self) -> str:
        shown = []
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if isinstance(value, tuple | dict):
                shown.append(f"{len(value):,} {field.name}")
            elif isinstance(value, str | int):
                shown.append(f"{field.name}={value!r}")
        return ", ".join(shown)
