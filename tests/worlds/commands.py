"""The command line, run in this process."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias


class Ran(NamedTuple):
    """What a command did."""

    status: int
    out: str
    err: str


Run: TypeAlias = Callable[..., Ran]
