"""What a teacher is asked, and what an encoder learns from it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pydantic import Field, field_validator

from airrep.errors import ConfigError
from airrep.labels.instance import LabelledInstance
from airrep.runtime.metering import Spent
from airrep.runtime.settings import Settings

PREFIX = "teacher_"


class TeacherSettings(Settings):
    """What a teacher is asked, and how long an encoder learns from it."""

    steps: int = Field(default=500, ge=1)
    """Most steps on the teacher's labels, before those on losses."""
    sizes: tuple[int, ...] = (100,)
    """Members of a subset; instance i has the i-th of these, and so on in turn. With 1, single examples are ranked."""
    instances: int = Field(default=20, ge=1)
    """Draws, each with its own queries, train pool and subsets."""
    examples: int = Field(default=20_000, ge=4)
    """Most examples that all this is drawn from: a random part of a larger index, and of other queries."""
    query_count: int = Field(default=500, ge=1)
    """Queries of each instance, all different."""
    subsets: int = Field(default=1000, ge=2)
    """Random subsets of each pool; single examples, all different, for size 1."""
    pool: str | None = None
    """How the teacher's member scores become its group scores; None takes its method's own."""
    temperature: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Of the teacher's attention: the larger, the flatter."""
    members: int | None = Field(default=None, ge=2)
    """About how many members all subsets of a step have; None takes those of a step on the largest subsets."""
    rate: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Learning rates of these steps, as a multiple of those on losses."""
    seed: int = Field(default=0, ge=0)
    """Of all draws."""

    @field_validator("sizes", mode="before")
    @classmethod
    def _some_sizes(cls, sizes: object) -> object:
        """``"1,10"`` is (1, 10), as command lines give it."""
        parts = sizes.split(",") if isinstance(sizes, str) else [sizes] if isinstance(sizes, int) else sizes
        found = [int(part) if isinstance(part, str) and part.strip().isdecimal() else part for part in _listed(parts)]
        if not found or any(type(size) is not int or size < 1 for size in found):
            raise ValueError("expected numbers from 1 up, such as 1,10,100")
        return tuple(found)


def _listed(parts: object) -> list[Any]:
    return list(parts) if isinstance(parts, list | tuple) else [parts]


def split_settings(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings of a training, and those of its teacher, which begin with ``teacher_`` and come back without it."""
    own = {name.removeprefix(PREFIX): value for name, value in values.items() if name.startswith(PREFIX)}
    return {name: value for name, value in values.items() if not name.startswith(PREFIX)}, own


@dataclass(frozen=True, eq=False)
class Teaching:
    """What an encoder learns from first: instances whose losses are cheap, and how it does so."""

    instances: Sequence[LabelledInstance]
    steps: int = 500
    """Most steps on them."""
    members: int | None = None
    """About how many members all subsets of a step have; None takes those of a step on the largest subsets."""
    rate: float = 1.0
    """Learning rates, as a multiple of those on labels."""
    described: Mapping[str, Any] = field(default_factory=dict)
    """JSON values for the card: which index taught, and what it was asked."""
    spent: Spent | None = None
    """What labelling them took; None where it was not measured."""

    def subsets_per_step(self, most: int) -> list[int]:
        """Subsets of each instance in a step, so that all steps have about as many members.

        Args:
            most: subsets in a step on the largest.
        """
        sizes = [float(instance.subsets.sizes.mean()) for instance in self.instances]
        members = self.members or most * max(sizes)
        return [max(2, round(members / size)) for size in sizes]


def check_teaching(teaching: Teaching) -> None:
    """Refuse what nothing can be learnt from.

    Raises:
        ConfigError: no instances, no steps, or a rate or number of members that cannot hold.
    """
    possible = teaching.steps >= 1 and 0 < teaching.rate < np.inf and (teaching.members is None or teaching.members > 1)
    if not teaching.instances or not possible:
        raise ConfigError(
            f"teaching: {len(teaching.instances)} instances, steps={teaching.steps}, rate={teaching.rate}, "
            f"members={teaching.members}; expected one or more instances, one or more steps, a rate above 0 and two or "
            "more members. Correct it."
        )
