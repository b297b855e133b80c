"""What a diagnosis finds, and how bad it is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self, TypeAlias, get_args

import numpy as np

Level: TypeAlias = Literal["bad", "look", "unknown", "good"]
"""A likely cause of a low LDS; worth a look; cannot be told from what is there; nothing to do. Worst first."""
LEVELS: tuple[Level, ...] = get_args(Level)

PAGE = "docs/diagnosis.md"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at, with its number and what it means."""

    name: str
    """What was looked at."""
    level: Level
    number: str
    """The number that decides, with its unit."""
    verdict: str
    """One sentence or two."""
    anchor: str
    """Heading of the page of advice."""
    about: str = "labels"
    """``"labels"``, or the path of an index."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """JSON values: all numbers behind it."""

    @property
    def advice(self) -> str:
        """Where the paragraph of advice is."""
        return f"{PAGE}#{self.anchor}"

    def to_dict(self) -> dict[str, Any]:
        """A JSON object; numbers that are not known are null."""
        return {**vars(self), "values": jsonable(self.values), "advice": self.advice}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """The inverse of :meth:`to_dict`."""
        return cls(**{name: part for name, part in value.items() if name != "advice"})


def level_of(value: float, look: float, bad: float) -> Level:
    """Grade a number by two thresholds: *look* and *bad* are past the good side, whichever that is.

    NaN is unknown.
    """
    if np.isnan(value):
        return "unknown"
    sign = 1 if bad >= look else -1
    if sign * value >= sign * bad:
        return "bad"
    return "look" if sign * value >= sign * look else "good"


def worst(*levels: Level) -> Level:
    """The worst of some levels."""
    return min(levels, key=LEVELS.index)


def jsonable(value: Any) -> Any:
    """A value as JSON has it: arrays as lists, NaN and infinities as null."""
    if isinstance(value, Mapping):
        return {str(name): jsonable(part) for name, part in value.items()}
    if isinstance(value, np.ndarray):
        return jsonable(value.tolist())
    if isinstance(value, list | tuple):
        return [jsonable(part) for part in value]
    if isinstance(value, np.generic):
        return jsonable(value.item())
    return None if isinstance(value, float) and not np.isfinite(value) else value
