"""The command line, run in this process."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias


class Ran(NamedTuple):
    """What a command did."""

    status: int
    out: str
    err: str


Run: TypeAlias = Callable[..., Ran]


def done(ran: Ran) -> Ran:
    """What a command did that ended well."""
    assert ran.status == 0, ran.err
    return ran


def refused(ran: Ran, *words: str) -> None:
    """A command was refused in one line, which holds these words."""
    assert (ran.status, ran.out, ran.err.count("\n")) == (1, "", 1), ran.err
    assert ran.err.startswith("airrep: error: ")
    for one in words:
        assert one in ran.err
