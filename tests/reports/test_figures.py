"""Figures: the same bytes, safe text, nothing from outside."""

import io
import re
import sys
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import matplotlib
import pytest
from PIL import Image

from airrep.errors import MissingExtraError
from airrep.reports.figures import Drawing, draw_figure, new_figure, plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HOSTILE = ["--><script>alert(1)</script>", "$x^2$ & <b>", "_hidden", "東京", "a\u202egpj\x07"]


def hostile() -> "Figure":
    figure = new_figure(2.5)
    axes = figure.subplots()
    made = axes.barh(range(len(HOSTILE)), range(1, 1 + len(HOSTILE)), hatch="//")
    axes.set_yticks(range(len(HOSTILE)), [plain(name) for name in HOSTILE])
    axes.fill_between([0, 1], [0, 1], [1, 2], alpha=0.2)
    figure.legend(list(made), [plain(name) for name in HOSTILE])
    return figure


@pytest.fixture(scope="module")
def drawing() -> Drawing:
    return draw_figure(hostile, "fig-1", "A <title>", 'All "of" it.', png=True)


def test_the_same_figure_gives_the_same_bytes(drawing: Drawing) -> None:
    assert draw_figure(hostile, "fig-1", "A <title>", 'All "of" it.', png=True) == drawing


def test_an_svg_holds_no_style_script_or_foreign_address(drawing: Drawing) -> None:
    root = ElementTree.fromstring(drawing.svg)
    assert {element.tag.split("}")[1] for element in root.iter()} <= {
        "svg", "desc", "defs", "g", "path", "use", "clipPath", "rect", "pattern",
    }  # fmt: skip
    for element in root.iter():
        for name, value in element.attrib.items():
            assert name != "style"
            assert not name.startswith("on")
            assert "http" not in value
            if name.endswith("href"):
                assert value.startswith("#fig-1-")
    assert "<!--" not in drawing.svg
    assert "alert" not in drawing.svg


def test_every_reference_within_an_svg_is_met_by_one_id_of_its_own(drawing: Drawing) -> None:
    ids = re.findall(r' id="([^"]*)"', drawing.svg)
    wanted = set(re.findall(r'href="#([^"]*)"|url\(#([^)]*)\)', drawing.svg))
    assert all(name.startswith("fig-1-") for name in ids)
    assert {one or other for one, other in wanted} <= set(ids)
    assert any(other for _, other in wanted), "clip paths and hatches are referred to"
    assert len(ids) == len(set(ids))


def test_an_svg_tells_what_it_shows(drawing: Drawing) -> None:
    root = ElementTree.fromstring(drawing.svg)
    assert (root.get("role"), root.get("aria-label")) == ("img", "A <title>")
    assert root[0].text == 'All "of" it.'


def test_a_png_is_large_enough_to_print_and_tells_what_it_shows(drawing: Drawing) -> None:
    image = Image.open(io.BytesIO(drawing.png))
    assert image.size[0] == 1480
    assert image.info["Description"] == 'All "of" it.'
    assert draw_figure(lambda: new_figure(1), "a", "", "", png=False).png == b""


def test_the_settings_of_the_user_neither_matter_nor_change(drawing: Drawing) -> None:
    with matplotlib.rc_context({"font.size": 20, "axes.grid": False, "svg.hashsalt": "mine"}):
        assert draw_figure(hostile, "fig-1", "A <title>", 'All "of" it.', png=True) == drawing
        assert matplotlib.rcParams["font.size"] == 20
        assert matplotlib.rcParams["svg.hashsalt"] == "mine"


def test_names_are_cut_to_one_line_and_never_hidden() -> None:
    assert plain("_a\nb") == " _a b"
    assert plain("x" * 50, 10) == "x" * 9 + "…"


def test_without_matplotlib_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"--no-figures.*pip install 'airrep\[figures\]'"):
        draw_figure(hostile, "a", "", "", png=False)
