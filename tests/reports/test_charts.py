"""Charts: places, whiskers and marks where the values are; safe text, ids of their own, the same bytes."""

import dataclasses
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from worlds.made_evaluations import METHODS, made_evaluation

from airrep.evaluation.result import Cost
from airrep.reports.charts import Axis, Chart, bars, costs, curves, timed
from airrep.reports.evaluations import _cost
from airrep.reports.sources import ReportSource, Sources, label_panels

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = ["--><script>alert(1)</script>", "$x^2$ & <b>", "_hidden", "東京", "a\u202egpj\x07"]


def panels(count: int, *names: str, **fields: object) -> list:
    made = [made_evaluation(names=names, shift=0.1 * n, tags={"role": f"role {n}"}, **fields) for n in range(count)]
    return label_panels([ReportSource(str(number), one) for number, one in enumerate(made)])


def groups(sizes: tuple[int, ...], *names: str) -> list:
    made = [made_evaluation(names=names, shift=n / 10, tags={"size": str(size)}) for n, size in enumerate(sizes)]
    return Sources([ReportSource(str(number), one) for number, one in enumerate(made)]).curve("lds", "size")


def root(chart: Chart) -> ElementTree.Element:
    return ElementTree.fromstring(chart.svg("fig-1", "A <title>", 'All "of" it.'))


def texts(chart: Chart) -> list[str]:
    return [one.text or "" for one in root(chart).iter(f"{SVG}text")]


def boxes(chart: Chart) -> list[dict[str, str]]:
    """The bars."""
    return [dict(one.attrib) for one in root(chart).iter(f"{SVG}rect") if one.get("height") == "14"]


def moves(path: str) -> np.ndarray:
    return np.array([[float(n) for n in pair.split()] for pair in path.strip("MZ").split("L")])


def test_bars_and_whiskers_are_as_long_as_values_and_intervals() -> None:
    chart = bars(panels(1, "airrep", "logra"), "LDS × 100")
    first, second = boxes(chart)
    assert float(first["width"]) / float(second["width"]) == pytest.approx(42 / 33, rel=0.005)
    unit = float(first["width"]) / 42
    whiskers = [re.match(r"M([\d.]+) [\d.]+H([\d.]+)", one.get("d", "")) for one in root(chart).iter(f"{SVG}path")]
    lengths = [float(found[2]) - float(found[1]) for found in whiskers if found]
    assert lengths == pytest.approx([8 * unit] * 2, abs=0.2)
    assert [text for text in texts(chart) if text[0] in "43" and "." in text] == ["42.0", "33.0 ▼"]
    assert float(first["stroke-width"]) > float(second["stroke-width"])


def test_a_row_that_one_panel_lacks_keeps_its_place() -> None:
    made = [ReportSource("a", made_evaluation(names=("x", "y"))), ReportSource("b", made_evaluation(names=("y",)))]
    chart = bars(label_panels(made), "")
    assert texts(chart).count("not run") == 1
    assert [box["y"] for box in boxes(chart)][1:] == [boxes(chart)[1]["y"]] * 2


def test_ceiling_and_chance_are_told_and_drawn_where_they_are_in_reach() -> None:
    near = bars(panels(1, "airrep", ceiling=0.5, facts={"chance": 0.1}), "")
    far = bars(panels(1, "airrep", ceiling=0.9), "")
    assert "noise ceiling 50.0, chance 10.0" in texts(near)
    assert "noise ceiling 90.0" in texts(far)
    dashes = [[one for one in root(chart).iter(f"{SVG}path") if one.get("stroke-dasharray")] for chart in (near, far)]
    assert [len(one) for one in dashes] == [2, 0]


def test_kinds_of_methods_differ_without_colour() -> None:
    chart = bars(panels(1, "airrep", "logra", "tfidf"), "")
    assert [box["fill"] for box in boxes(chart)] == ["#8fb8ea", "url(#fig-1-hatch)", "#ffffff"]
    assert texts(chart)[-3:] == ["representations", "gradients", "others"]


def test_a_line_goes_through_the_values_and_its_band_to_the_intervals() -> None:
    chart = curves(groups((10, 20, 30), "airrep", "logra"), "size", "LDS × 100")
    paths = list(root(chart).iter(f"{SVG}path"))
    band = moves(next(one.get("d", "") for one in paths if one.get("opacity") == "0.14"))
    line = moves(next(one.get("d", "") for one in paths if one.get("stroke-width") == "1.5"))
    unit = (line[0, 1] - line[2, 1]) / (50.4 - 42.0)
    assert np.diff(line[:, 0]) == pytest.approx([np.diff(line[:, 0])[0]] * 2, abs=0.2)
    assert band[:3, 1] == pytest.approx(line[:, 1] - 4 * unit, abs=0.2)
    assert band[3:, 1] == pytest.approx(line[::-1, 1] + 4 * unit, abs=0.2)
    assert {"size", "10", "20", "30", "airrep", "logra"} <= set(texts(chart))


def test_many_lines_have_whiskers_in_place_of_bands_and_no_two_markers_look_the_same() -> None:
    chart = curves(groups((10, 20), *METHODS), "size", "")
    assert not [one for one in root(chart).iter(f"{SVG}path") if one.get("opacity") == "0.14"]
    drawn = [one for one in root(chart).iter() if one.get("stroke-width") and one.tag != f"{SVG}rect"]
    looks = {
        (one.tag, "transform" in one.attrib and one.get("d"), one.get("fill"), one.get("stroke"))
        for one in drawn
        if one.tag == f"{SVG}circle" or one.get("transform")
    }
    assert len(looks) == 12


@pytest.mark.parametrize(
    ("axis", "ticks"),
    [
        (Axis(0, 50), [0, 10, 20, 30, 40, 50]),
        (Axis(-3, 9), [-2, 0, 2, 4, 6, 8]),
        (Axis(0.5, 2000, log=True), [1, 10, 100, 1000]),
    ],
)
def test_ticks_are_round_and_ends_are_the_ends(axis: Axis, ticks: list[float]) -> None:
    made = axis.ticks()
    assert made == pytest.approx(ticks)
    assert (axis.part(axis.low), axis.part(axis.high)) == pytest.approx((0, 1))


def test_points_stand_at_cost_and_value_and_discs_grow_with_storage() -> None:
    chart = costs(panels(1, "airrep", "logra"), "LDS × 100")
    discs = [one for one in root(chart).iter(f"{SVG}circle") if one.get("opacity") == "0.7"][:2]
    (one, other) = ((float(disc.get("cx", 0)), float(disc.get("cy", 0)), float(disc.get("r", 0))) for disc in discs)
    assert one[0] < other[0]
    assert one[1] < other[1]
    assert one[2] < other[2]
    assert {"airrep", "logra", "CPU time for one training example"} <= set(texts(chart))


def test_seconds_by_the_clock_are_not_called_cpu_time_and_unknown_ones_are_named() -> None:
    made = made_evaluation(names=("airrep", "logra", "gte"))
    rows = (
        made.rows[0],
        dataclasses.replace(made.rows[1], cost=Cost(8.0, 0.001, clock=True)),
        dataclasses.replace(made.rows[2], cost=Cost(8.0, None)),
    )
    shown = ReportSource("a", dataclasses.replace(made, rows=rows), "a")
    assert [row.name for row in timed(shown)] == ["airrep", "logra"]
    assert {"logra, wall-clock time", "Seconds for one training example"} <= set(texts(costs([shown], "")))
    assert "gte" not in texts(costs([shown], ""))
    caption = _cost("lds-cost", [shown]).caption
    assert "wall-clock time" in caption
    assert caption.endswith("gte.")


@pytest.mark.parametrize("names", [HOSTILE, list(METHODS)])
def test_an_svg_is_whole_safe_and_refers_to_itself_alone(names: list[str]) -> None:
    many = panels(3, *names)
    for chart in (bars(many, "<i>"), costs(many, "<i>"), curves(groups((1, 900), *names), "size", "<i>")):
        svg = chart.svg("fig-1", "A <title>", 'All "of" it.')
        assert svg == chart.svg("fig-1", "A <title>", 'All "of" it.')
        found = ElementTree.fromstring(svg)
        assert (found.get("role"), found.get("aria-label"), found[0].text) == ("img", "A <title>", 'All "of" it.')
        assert {one.tag.removeprefix(SVG) for one in found.iter()} <= {
            "svg", "desc", "defs", "pattern", "rect", "path", "circle", "text",
        }  # fmt: skip
        assert not [key for one in found.iter() for key in one.attrib if key == "style" or key.startswith("on")]
        assert set(re.findall(r"url\(#([^)]*)\)", svg)) <= set(re.findall(r' id="([^"]*)"', svg)) == {"fig-1-hatch"}
        assert not re.search("[\x00-\x08\u202e]", svg)
        assert "nan" not in svg
