"""What the learning commands show: fine-tunes, training steps, verdicts."""

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table

from airrep.console import err, out, printable, say

if TYPE_CHECKING:
    from airrep.farm import TaskReport
    from airrep.train_result import TrainingResult
    from airrep.verdict import Verdict

LINE_SECONDS = 10.0


def clock(seconds: float) -> str:
    """A duration as people read it: ``8 s``, ``12 min``, ``3 h 20 min``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


class TaskMeter:
    """Fine-tunes on stderr: the first, then one line every ten seconds, each failure, and the last."""

    def __init__(self) -> None:
        self._shown = -LINE_SECONDS

    def __call__(self, report: "TaskReport") -> None:
        now = time.monotonic()
        if report.error is not None:
            _line(f"{report.name}: given up: {printable(report.error)}")
        elif now - self._shown >= LINE_SECONDS or report.done == report.total:
            self._shown = now
            _line(
                f"{report.name}: {report.seconds:.1f} s; {report.done:,} of {report.total:,} done, "
                f"{clock(report.left)} left"
            )


class StepMeter:
    """Training steps on stderr: one line every ten seconds, and each evaluation."""

    def __init__(self, steps: int | None = None) -> None:
        self._steps = steps
        self._shown = time.monotonic()
        self._spent = 0.0
        self._seen = 0

    def __call__(self, record: Mapping[str, Any]) -> None:
        self._spent += record["seconds"]
        self._seen += "loss" in record
        if "held_out_lds" in record:
            _line(f"step {record['step']:,}: held-out LDS × 100: {signed(record['held_out_lds'])}")
        elif time.monotonic() - self._shown >= LINE_SECONDS:
            self._shown = time.monotonic()
            _line(f"step {record['step']:,}: loss {record['loss']:.4f}{self._left(record['step'])}")

    def _left(self, step: int) -> str:
        if self._steps is None:
            return ""
        return f", {clock((self._steps - step) * self._spent / max(1, self._seen))} left at most"


def _line(text: str) -> None:
    err.print(text, highlight=False, markup=False, soft_wrap=True)


def print_training(result: "TrainingResult") -> None:
    """Print the LDS on unseen instances, before and after."""
    results = result.training["results"]
    if not results:
        say("No held-out instances were given, so nothing is known of how good the encoder is. Give --held-out.")
        return
    table = Table("instances", "LDS × 100 before", "after", "gain", "95 % interval")
    for name, part in results.items():
        gain = part["gain"]
        row = (signed(part["start"]["lds"]), signed(part["trained"]["lds"]), signed(gain["difference"]))
        table.add_row(name.replace("_", "-"), *row, _range(gain["interval"]))
    out().print(table)


def signed(value: float) -> str:
    """An LDS, times 100."""
    return f"{100 * value:+.1f}"


def print_verdict(verdict: "Verdict") -> None:
    """Print the held-out table, the differences and the recommendation."""
    table = Table("method", "held-out LDS × 100", "95 % interval", "trained minus it", "95 % interval")
    for row in verdict.rows:
        gap = row.difference
        paired = ("", "") if gap is None else (signed(gap.value), _range(gap.interval))
        table.add_row(row.name, signed(row.lds.value), _range(row.lds.interval), *paired)
    out().print(table)
    say(verdict.sentence)


def _range(interval: Sequence[float]) -> str:
    return f"{signed(interval[0])} to {signed(interval[1])}"
