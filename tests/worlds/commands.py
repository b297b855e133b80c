"""The command line, run in this process."""

import sys
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import pytest

from airrep.cli import app as cli


class Ran(NamedTuple):
    """What a command did."""

    status: int
    out: str
    err: str


Run: TypeAlias = Callable[..., Ran]


def runner(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """A function that runs a command with these arguments in the folder that it is called in."""

    def run(*arguments: str) -> Ran:
        monkeypatch.setattr(sys, "argv", ["airrep", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
            raise SystemExit(0)
        printed = capsys.readouterr()
        return Ran(int(ended.value.code or 0), printed.out, printed.err)

    return run
