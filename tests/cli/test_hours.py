"""What fine-tunes take is told before it is spent."""

import pytest

from airrep.cli.show.learning import TaskMeter
from airrep.labels.farm import TaskReport
from airrep.runtime.metering import hours_line


def test_number_and_time_are_told_and_what_an_interruption_costs() -> None:
    told = hours_line(1200, 33 * 3600.0)
    assert told.startswith("1,200 fine-tunes to do, about 33.0 h (measured on the first); ")
    assert "goes on where it stopped" in told
    assert hours_line(2, 60, measured="by a trial").startswith("2 fine-tunes to do, about 60 s (measured by a trial)")
    assert "about" not in hours_line(5, None)
    assert hours_line(1, 900.0, resumes=False).endswith(
        "about 15 min (measured on the first); if interrupted, the command starts over"
    )


def test_the_meter_tells_them_before_and_after_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    meter = TaskMeter()
    for done in (1, 1, 2):
        meter.begin(done, 4)
    meter(TaskReport("before any", 2, 4, 1.0, None, None))
    meter(TaskReport("subset 0", 3, 4, 1.0, 5400.0, None))
    meter(TaskReport("subset 1", 4, 4, 1.0, 0.0, None))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == hours_line(3, None, what="fine-tunes and evaluations")
    assert lines[1].startswith("before any: ")
    assert lines[2] == hours_line(1, 5400.0, what="fine-tunes and evaluations")
    assert lines[3].startswith("subset 1: ")
    assert len(lines) == 4


def test_nothing_is_told_where_all_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    meter = TaskMeter()
    meter.begin(4, 4)
    assert not capsys.readouterr().err
