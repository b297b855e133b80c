"""The counts that `make lint` holds: a number that rises is named."""

import runpy
from pathlib import Path

COUNTS = runpy.run_path(str(Path(__file__).parents[1] / ".ci" / "counts.py"))


def test_a_number_above_its_limit_is_named() -> None:
    limits = {"commands": 24, "options": 260}
    assert COUNTS["risen"](limits, limits) == []
    assert COUNTS["risen"]({"commands": 25, "options": 200}, limits) == ["commands: 25, at most 24"]


def test_every_number_has_a_limit() -> None:
    found = {**COUNTS["interface"](), **COUNTS["readme"]()}
    limits = COUNTS["json"].loads(COUNTS["LIMITS"].read_text())
    assert set(found) <= set(limits)
    assert min(found.values()) > 0


def test_lines_are_counted_by_room(tmp_path: Path) -> None:
    (tmp_path / "room" / "below").mkdir(parents=True)
    (tmp_path / "top.py").write_text("a = 1\n")
    (tmp_path / "room" / "below" / "one.py").write_text("a = 1\n\nb = 2\n")
    assert COUNTS["lines"](tmp_path) == {".": 1, "room": 3}
