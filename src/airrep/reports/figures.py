"""Figures drawn by matplotlib as SVG and PNG."""

import io
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree import ElementTree

from airrep.errors import need
from airrep.reports.page import short, visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, SOFT, GRID = "#1a1d22", "#59616d", "#d4d8de"
WIDTH = 7.4
"""Width of a figure in inches."""
DPI = 200
"""Dots per inch of a PNG."""
SVG = "http://www.w3.org/2000/svg"
XLINK = "http://www.w3.org/1999/xlink"

_STYLE: dict[Any, Any] = {
    "font.family": ["DejaVu Sans"],  # comes with matplotlib, so that a figure is the same everywhere
    "font.size": 8.5,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 8.5,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "text.color": INK,
    "text.parse_math": False,  # a name may hold dollar signs
    "legend.frameon": False,
    "legend.fontsize": 8,
    "hatch.linewidth": 0.7,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "svg.fonttype": "path",
}


class Drawing(NamedTuple):
    """One figure in both formats."""

    svg: str
    """An element that may stand in a page or a file by itself; it holds no style, script or link."""
    png: bytes
    """Empty if it was not asked for."""


def draw_figure(build: Callable[[], "Figure"], name: str, title: str, description: str, *, png: bool) -> Drawing:
    """Draw what *build* makes; the same figure gives the same bytes with the same version of matplotlib.

    Its *name*, of letters, digits and hyphens, begins every id in the SVG, so that several can stand in one page; both
    files keep the *title*, for those who cannot see it, and the *description*, its caption.
    """
    require_matplotlib()
    with _styled(name):
        figure = build()
        return Drawing(_svg(figure, name, title, description), _png(figure, title, description) if png else b"")


def require_matplotlib() -> None:
    """Refuse to draw figures where matplotlib is not installed (:class:`MissingExtraError`)."""
    need("figures (pass --no-figures for a page of tables alone)", "figures", "matplotlib")


def new_figure(height: float) -> "Figure":
    """An empty figure of the common width, laid out so that nothing overlaps."""
    from matplotlib.figure import Figure

    return Figure(figsize=(WIDTH, height), layout="constrained")


def plain(text: str, length: int = 30) -> str:
    """A text for a figure: one line, cut, and not hidden from the legend by a leading underscore."""
    line = short(text, length)
    return f" {line}" if line.startswith("_") else line


@contextmanager
def _styled(salt: str) -> Iterator[None]:
    """Set matplotlib's defaults and the style above; the user's settings come back at the end."""
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({**_STYLE, "svg.hashsalt": salt})  # without a salt, ids are random
        yield


def _png(figure: "Figure", title: str, description: str) -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    buffer = io.BytesIO()
    about = {"Title": title, "Description": description, "Software": "airrep"}
    FigureCanvasAgg(figure)
    figure.savefig(buffer, format="png", dpi=DPI, metadata=about)
    return buffer.getvalue()


def _svg(figure: "Figure", name: str, title: str, description: str) -> str:
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    buffer = io.StringIO()
    FigureCanvasSVG(figure)
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    root = ElementTree.fromstring(buffer.getvalue())
    _drop_extras(root)
    for element in root.iter():
        _tame(element, name)
    return _labelled(root, title, description)


def _drop_extras(root: ElementTree.Element) -> None:
    """Take out metadata, and the style sheet, which would hold for the whole page."""
    for tag in ("metadata", f"{{{SVG}}}metadata"):
        for found in root.findall(tag):
            root.remove(found)
    for parent in list(root.iter()):
        for style in parent.findall(f"{{{SVG}}}style"):
            parent.remove(style)
    root.attrib |= {"stroke-linejoin": "round", "stroke-linecap": "butt"}


def _tame(element: ElementTree.Element, name: str) -> None:
    """Write styles as attributes, which content security policies let through, and make ids the figure's own."""
    for declaration in filter(None, element.attrib.pop("style", "").split(";")):
        key, _, value = declaration.partition(":")
        element.set(key.strip(), value.strip())
    for key, value in element.attrib.items():
        if key == "id":
            element.set(key, f"{name}-{value}")
        elif key in ("href", f"{{{XLINK}}}href") and value.startswith("#"):
            element.set(key, f"#{name}-{value[1:]}")
        elif "url(#" in value:
            element.set(key, re.sub(r"url\(#", f"url(#{name}-", value))


def _labelled(root: ElementTree.Element, title: str, description: str) -> str:
    """The text of an SVG with a name for screen readers and a description."""
    root.attrib |= {"role": "img", "aria-label": visible(title), "class": "drawing"}
    made = ElementTree.Element(f"{{{SVG}}}desc")
    made.text = visible(description)
    root.insert(0, made)
    ElementTree.register_namespace("", SVG)
    ElementTree.register_namespace("xlink", XLINK)
    return ElementTree.tostring(root, encoding="unicode")
