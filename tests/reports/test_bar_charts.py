"""Bars: as long as the values, with their whiskers, marks and references."""

import pytest
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from worlds.made_evaluations import METHODS, made_evaluation

from airrep.reports.charts import bars
from airrep.reports.figures import draw_figure
from airrep.reports.sources import ReportSource, label_panels


def panels(count: int, *names: str, **fields: object) -> list:
    made = [made_evaluation(names=names, shift=0.1 * n, tags={"role": f"role {n}"}, **fields) for n in range(count)]
    return label_panels([ReportSource(str(number), one) for number, one in enumerate(made)])


def widths(axes: Axes) -> list[float]:
    return [patch.get_width() for patch in axes.patches if isinstance(patch, Rectangle)]


def test_bars_are_as_long_as_their_values_and_whiskers_reach_the_interval() -> None:
    first, second = bars(panels(2, "airrep", "logra"), "LDS × 100").axes
    assert widths(first) == pytest.approx([42.0, 33.0])
    assert widths(second) == pytest.approx([46.2, 36.3])
    assert [list(line.get_xdata()) for line in first.lines[:2]] == [pytest.approx([38.0, 46.0])] * 2
    assert [text.get_text() for text in first.texts][:2] == ["42.0", "33.0 ▼"]
    assert first.get_xlim()[0] <= 0 < 46 < first.get_xlim()[1]


def test_a_row_that_one_panel_lacks_keeps_its_place() -> None:
    both = label_panels(
        [ReportSource("a", made_evaluation(names=("x", "y"))), ReportSource("b", made_evaluation(names=("y",)))]
    )
    second = bars(both, "").axes[1]
    assert [text.get_text() for text in second.texts][:2] == ["not run", "20.0"]
    assert [patch.get_y() + patch.get_height() / 2 for patch in second.patches] == pytest.approx([1.0])


def test_ceiling_and_chance_are_told_and_drawn_where_they_are_in_reach() -> None:
    (near,) = bars(panels(1, "airrep", ceiling=0.5, facts={"chance": 0.1}), "").axes
    (far,) = bars(panels(1, "airrep", ceiling=0.9), "").axes
    assert near.texts[-1].get_text() == "noise ceiling 50.0, chance 10.0"
    assert far.texts[-1].get_text() == "noise ceiling 90.0"
    upright = [[line.get_xdata()[0] for line in axes.lines if list(line.get_ydata()) == [0, 1]] for axes in (near, far)]
    assert upright == [[0, 50.0, pytest.approx(10.0)], [0]]


def test_kinds_of_methods_differ_without_colour() -> None:
    figure = bars(panels(1, "airrep", "logra", "tfidf"), "")
    looks = {(patch.get_hatch(), patch.get_facecolor()[:3] == (1, 1, 1)) for patch in figure.axes[0].patches}
    assert looks == {("", False), ("////", False), ("", True)}
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["representations", "gradients", "others"]


@pytest.mark.slow
def test_twelve_methods_and_four_roles_fit_without_touching() -> None:
    made = panels(4, *METHODS, ceiling=0.9)

    def build() -> object:
        figure = bars(made, "LDS × 100")
        figure.draw_without_rendering()
        for axes in figure.axes:
            boxes = [
                text.get_window_extent()
                for text in [*axes.texts, *axes.get_yticklabels(), axes.title]
                if text.get_text()
            ]
            assert not [1 for i, one in enumerate(boxes) for other in boxes[:i] if one.overlaps(other)]
            assert all(box.x0 >= 0 and box.x1 <= figure.bbox.x1 for box in boxes)
        return figure

    assert draw_figure(build, "a", "", "", png=False).svg
