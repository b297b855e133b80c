"""The campaign's tables of what was tried and failed, at the end of the run, from however many processes."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print a table for each campaign."""
    told = dict(_told(terminalreporter))
    for campaign, columns in (("kills", ("points", "seeds", "tried", "failed")), ("damage", ("tried", "failed"))):
        rows = [(name, told[kind, name]) for kind, name in told if kind == campaign]
        if not rows:
            continue
        terminalreporter.section(f"hostile: {campaign}")
        terminalreporter.line(f"{'':<32}" + "".join(f"{column:>10}" for column in (*columns, "CPU s")))
        rows.append(("all", _together([row for _, row in rows])))
        for name, row in rows:
            cells = "".join(f"{row.get(column, 0):>10,}" for column in columns)
            terminalreporter.line(f"{name:<32}{cells}{row['seconds']:>10.1f}")


def _told(terminalreporter: pytest.TerminalReporter) -> Iterator[tuple[tuple[str, str], dict[str, Any]]]:
    """What the pieces of each name say together."""
    pieces: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", None) == "call":
                for campaign, row in report.user_properties:
                    pieces.setdefault((campaign, row["name"]), []).append(row)
    for key, rows in pieces.items():
        same = {column: rows[0][column] for column in ("points", "seeds") if column in rows[0]}
        yield key, _together(rows) | same


def _together(rows: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Sums of what was tried, failed and spent; points, but not seeds, add up too."""
    columns = [column for column in ("points", "tried", "failed", "seconds") if column in rows[0]]
    return {column: sum(row[column] for row in rows) for column in columns}
