"""Progress is told by one line that names the stage, and the time left in seconds, minutes or hours."""

import io
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import airrep
from airrep.runtime import metering
from airrep.runtime.metering import Meter, clock_text, teller


class Clock:
    """Seconds that pass when a test says so, and what was written to stderr."""

    def __init__(self, patch: pytest.MonkeyPatch, *, terminal: bool) -> None:
        self.now, self.out = 0.0, io.StringIO()
        patch.setattr(self.out, "isatty", lambda: terminal)
        patch.setattr(sys, "stderr", self.out)
        patch.setattr(metering.time, "monotonic", lambda: self.now)

    def run(self, meter: Callable[..., Any], total: int | None, steps: int, seconds: float, size: int = 1) -> None:
        for step in range(1, steps + 1):
            self.now += seconds
            meter(step * size, total)

    @property
    def lines(self) -> list[str]:
        return [line for line in self.out.getvalue().replace("\r\x1b[2K", "\n").split("\n") if line]


def of_stage(stage: str, meter: Meter | None = None) -> Callable[[int, int | None], None]:
    return partial(meter or Meter(), stage=stage)


def test_a_pipe_has_a_line_every_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, terminal=False)
    clock.run(of_stage("encoding"), 7200, 60, 1, 2)
    assert len(clock.lines) == 5
    assert clock.lines[0] == "encoding: 22 of 7,200 (0%), 2/s, 60 min left"
    assert "\r" not in clock.out.getvalue()


def test_a_terminal_has_one_line_that_is_gone_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, terminal=True)
    clock.run(of_stage("encoding"), 100, 100, 0.5)
    assert clock.out.getvalue().endswith("\r\x1b[2K")
    assert clock.lines[0] == "encoding: 5 of 100 (5%), 2/s, 48 s left"
    assert "\n" not in clock.out.getvalue()


def test_what_takes_little_time_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, terminal=True)
    clock.run(of_stage("encoding"), 100, 100, 0.01)
    assert clock.out.getvalue() == ""


def test_a_new_pass_or_stage_has_its_own_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, terminal=False)
    meter = Meter()
    clock.run(of_stage("reading", meter), 1000, 1000, 0.001)
    clock.now += 3600  # nothing was asked for in between
    clock.run(of_stage("encoding", meter), 4000, 30, 1, 10)
    assert clock.lines
    assert all(line.startswith("encoding: ") and "10/s" in line for line in clock.lines)


def test_of_an_unknown_number_the_count_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, terminal=False)
    clock.run(of_stage("reading"), None, 12, 1, 4096)
    assert clock.lines == ["reading: 45,056, 4,096/s"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (89, "89 s"), (90, "2 min"), (3600, "60 min"), (7200, "2.0 h"), (118_800, "33.0 h")],
)
def test_times_are_in_seconds_minutes_and_hours(seconds: float, text: str) -> None:
    assert clock_text(seconds) == text


def test_true_stands_for_a_line_wherever_progress_is_told(
    monkeypatch: pytest.MonkeyPatch, index: airrep.Index, queries: airrep.Corpus
) -> None:
    told: list[tuple[int, int | None, str]] = []
    monkeypatch.setattr(metering, "METER", lambda done, total, stage: told.append((done, total, stage)))
    index.top(queries, progress=True)
    airrep.audit(index, queries, progress=True)
    index = index.delete([0]).compact(progress=True)
    assert {stage for _, _, stage in told} == {"encoding queries", "reading examples", "compacting"}
    assert (5, 5, "encoding queries") in told
    told.clear()
    index.top(queries, progress=False)
    index.top(queries)
    for nothing in (None, False):
        teller(nothing, "a")(1, 2)
    assert not told
