"""Curves and predicted costs: the points, the scale, the crossings."""

import numpy as np
import pytest
from worlds.made_evaluations import METHODS, PLAN, made_evaluation

from airrep.planning.plan import Plan
from airrep.reports.charts import curves, plan_lines
from airrep.reports.sources import ReportSource, Sources


def groups(sizes: tuple[int, ...], *names: str) -> list:
    made = [made_evaluation(names=names, shift=n / 10, tags={"size": str(size)}) for n, size in enumerate(sizes)]
    return Sources([ReportSource(str(number), one) for number, one in enumerate(made)]).curve("lds", "size")


def test_a_line_goes_through_the_values_of_its_method() -> None:
    (axes,) = curves(groups((10, 20, 30), "airrep", "logra"), "size", "LDS × 100").axes
    assert list(axes.lines[0].get_xdata()) == [10, 20, 30]
    assert list(axes.lines[0].get_ydata()) == pytest.approx([42.0, 46.2, 50.4])
    assert len(axes.collections) == 2
    band = axes.collections[0].get_paths()[0].vertices
    assert (band[:, 1].min(), band[:, 1].max()) == pytest.approx((38.0, 54.4))
    assert axes.get_xlabel() == "size"


def test_only_a_wide_range_is_logarithmic() -> None:
    scales = [curves(groups(sizes, "airrep"), "size", "").axes[0].get_xscale() for sizes in ((20, 100), (20, 400))]
    assert scales == ["linear", "log"]
    assert curves(groups((0, 1000), "airrep"), "size", "").axes[0].get_xscale() == "linear"


def test_many_lines_have_whiskers_in_place_of_bands_and_no_two_look_the_same() -> None:
    figure = curves(groups((10, 20), *METHODS), "size", "")
    lines = figure.axes[0].lines
    assert {type(one).__name__ for one in figure.axes[0].collections} == {"LineCollection"}
    looks = {(line.get_marker(), line.get_linestyle(), line.get_markerfacecolor() == "white") for line in lines}
    assert len(looks) == len({line.get_marker() for line in lines}) == 12
    assert len(figure.legends[0].get_texts()) == 12


def test_predicted_costs_cross_where_the_plan_says() -> None:
    (axes,) = plan_lines(Plan.model_validate(PLAN)).axes
    methods = {method["name"]: method for method in PLAN["methods"]}
    shown = [(line.get_xdata()[0], line.get_ydata()[0]) for line in axes.lines if len(line.get_xdata()) == 1]
    assert [round(at) for at, _ in shown] == [175_744, 261_750]
    for (at, height), name in zip(shown, ("less", "logra"), strict=True):
        own, airrep = methods[name], methods["airrep"]
        assert height == pytest.approx(own["fixed_seconds"] + at * own["seconds_per_example"])
        assert height == pytest.approx(airrep["fixed_seconds"] + at * airrep["seconds_per_example"], rel=0.01)
    assert any(text.get_text() == "175,744 examples: less" for text in axes.texts)


def test_a_crossing_without_an_upper_end_is_called_uncertain() -> None:
    cross = {"method": "logra", "examples": 261_750.0, "interval": None}
    (axes,) = plan_lines(Plan.model_validate({**PLAN, "crossovers": [cross]})).axes
    assert "261,750 examples: logra (uncertain)" in [text.get_text() for text in axes.texts]


def test_the_line_of_a_method_is_what_is_paid_once_and_for_each_example() -> None:
    (axes,) = plan_lines(Plan.model_validate({**PLAN, "crossovers": []})).axes
    at, cost = (np.asarray(values) for values in axes.lines[0].get_data())
    np.testing.assert_allclose(cost, 90_000 + 0.0096 * at)
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
