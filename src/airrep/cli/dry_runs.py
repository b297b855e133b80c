"""Print what --dry-run measured: time, memory and disk."""

from typing import TYPE_CHECKING, Annotated, TypeAlias

from airrep.cli.show.console import print_fields
from airrep.reports.tables import bytes_text, seconds_text

if TYPE_CHECKING:
    from airrep.planning.measured import Forecast

DryRunOption: TypeAlias = Annotated[
    bool, "Measure a small sample and print what all of it will take: time, memory and disk. Write nothing."
]


def print_forecast(found: "Forecast", one: str, many: str, workers: int | None = None) -> None:
    """Print what all examples will take, and what one of them takes.

    Args:
        found: the forecast.
        one: what one of them is called, such as ``"example"``.
        many: what several are called.
        workers: processes that share the work; each has one core.
    """
    time = f"{seconds_text(found.seconds)} each {one}, {seconds_text(found.total)} in all on one core"
    if (workers or 1) > 1:
        time += f", {seconds_text(found.fixed + found.seconds * found.examples / (workers or 1))} on {workers}"
    fields = {many: f"{found.examples:,}; measured on {found.measured:,} examples", "time": time}
    if found.fixed:
        fields["first"] = f"{seconds_text(found.fixed)} of it before the first {one}"
    if found.bytes:
        fields["disk"] = f"{bytes_text(found.bytes)} each {one}, {bytes_text(found.bytes * found.examples)} in all"
    if found.memory is not None:
        fields["memory"] = f"{bytes_text(found.memory)} each process"
    print_fields(fields)
