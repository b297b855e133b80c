"""Value against cost: every method named, no name upon another."""

import dataclasses
import itertools

import pytest
from worlds.made_evaluations import METHODS, made_evaluation

from airrep.evaluation.result import Cost
from airrep.reports.cost_chart import cost_scatter, timed
from airrep.reports.exhibits import _cost
from airrep.reports.sources import ReportSource


def panel(*names: str) -> ReportSource:
    return ReportSource("a", made_evaluation(names=names), "tasks")


def test_points_stand_at_cost_and_value_and_grow_with_storage() -> None:
    (axes,) = cost_scatter([panel("airrep", "logra")], "LDS × 100").axes
    points = {line.get_xdata()[0]: line for line in axes.lines if line.get_marker() == "o"}
    assert axes.get_xscale() == "log"
    assert {at: line.get_ydata()[0] for at, line in points.items()} == pytest.approx({0.0096: 42.0, 0.071: 33.0})
    assert points[0.071].get_markersize() > points[0.0096].get_markersize()
    assert sorted(text.get_text() for text in axes.texts) == ["airrep", "logra"]


def test_seconds_by_the_clock_are_not_called_cpu_time() -> None:
    made = made_evaluation(names=("airrep", "logra"))
    fast = dataclasses.replace(made.rows[1], cost=Cost(8.0, 0.001, clock=True))
    shown = ReportSource("a", dataclasses.replace(made, rows=(made.rows[0], fast)), "a")
    (axes,) = cost_scatter([shown], "LDS × 100").axes
    assert sorted(text.get_text() for text in axes.texts) == ["airrep", "logra, by the clock"]
    assert axes.get_xlabel() == "Seconds for one training example"
    (axes,) = cost_scatter([panel("airrep")], "LDS × 100").axes
    assert axes.get_xlabel() == "CPU time for one training example"
    assert "by the clock where a name says so" in _caption(shown)
    assert "by the clock" not in _caption(panel("airrep"))


def _caption(shown: ReportSource) -> str:
    return _cost("lds-cost", [shown]).caption


def test_names_of_twelve_methods_do_not_touch() -> None:
    figure = cost_scatter([panel(*METHODS)], "LDS × 100")
    figure.draw_without_rendering()
    texts = figure.axes[0].texts
    assert len(texts) == 12
    for one, other in itertools.combinations(texts, 2):
        assert not one.get_window_extent().overlaps(other.get_window_extent()), (one.get_text(), other.get_text())


def test_rows_without_a_known_time_are_left_out() -> None:
    made = made_evaluation(names=("airrep", "logra", "gte"))
    bare = [dataclasses.replace(made.rows[1], cost=None), dataclasses.replace(made.rows[2], cost=Cost(8.0, None))]
    shown = ReportSource("a", dataclasses.replace(made, rows=(made.rows[0], *bare)), "a")
    assert [row.name for row in timed(shown)] == ["airrep"]
    assert _caption(shown).endswith("Not shown, as their cost is not known: logra, gte.")
    assert _cost("lds-cost", [shown, panel("airrep", "logra")]).caption.endswith(
        "Not shown, as their cost is not known: logra, gte (a)."
    )


def test_a_name_beside_another_marker_has_a_line_to_its_own() -> None:
    made = made_evaluation(names=("airrep", "gte"))
    close = [dataclasses.replace(row, cost=Cost(8.0, 0.01), value=0.4 + 0.01 * n) for n, row in enumerate(made.rows)]
    shown = ReportSource("a", dataclasses.replace(made, rows=tuple(close)), "a")
    far = cost_scatter([panel("airrep", "logra")], "LDS × 100").axes[0]
    near = cost_scatter([shown], "LDS × 100").axes[0]
    assert [len([line for line in axes.lines if line.get_zorder() == 4]) for axes in (far, near)] == [0, 4]
