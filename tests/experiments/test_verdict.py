"""The texts from outside are those that the script would write now."""

import json
import sys
from pathlib import Path

from airrep.answers.chance import TEXTS

sys.path[:0] = [str(Path(__file__).parents[2] / "experiments" / "verdict")]
from outside import records  # noqa: E402


def test_the_file_is_what_the_script_writes() -> None:
    assert [json.loads(line) for line in TEXTS.read_text(encoding="utf-8").splitlines()] == records()
