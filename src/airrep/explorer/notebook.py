"""Notebook widget that asks an index questions."""

import re
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from airrep.corpus.inputs import QueriesLike, as_examples
from airrep.errors import AirRepError, many, need
from airrep.explorer.explorer import Explorer, one_of
from airrep.explorer.routes import ROUTES
from airrep.index.contrast import Better
from airrep.index.index import IndexLike, as_index

need("airrep.explorer.notebook", "notebook", "anywidget")
import anywidget  # noqa: E402 — after the check, whose error says how to install it
import traitlets  # noqa: E402

STATIC = Path(__file__).parent / "static"
SCRIPTS = ("dom.js", "marks.js", "notebook.js")
"""JavaScript modules of the widget; the page uses the first two as well."""
OPEN = ("top", "what-if", "queries", "rows")
"""Routes of the API that the widget may ask."""
_IMPORT = re.compile(r"^import .*\n", re.MULTILINE)
_EXPORT = re.compile(r"^export (?!default)", re.MULTILINE)


def bundled() -> str:
    """Return the modules joined to one, because a notebook cannot load one module from another."""
    texts = [(STATIC / name).read_text(encoding="utf-8") for name in SCRIPTS]
    return "\n".join(_EXPORT.sub("", _IMPORT.sub("", text)) for text in texts)


class IndexWidget(anywidget.AnyWidget):
    """Widget that finds the examples that taught a response, and predicts what leaving some of them out would change.

    The kernel answers, so no server runs and nothing leaves the notebook. A viewer that does not run widgets
    shows the table of the first query instead.

    Attributes:
        rows: row numbers of the examples in the basket, ascending; assign to fill the basket.

    Example:
        >>> from airrep.explorer.notebook import IndexWidget
        >>> widget = IndexWidget(index, queries)
        >>> widget.rows = [3]
        >>> widget.basket
        ['e3']
    """

    _esm = bundled()
    _css = STATIC / "notebook.css"
    about = traitlets.Dict().tag(sync=True)
    rows = traitlets.List(traitlets.Int(min=0)).tag(sync=True)

    def __init__(self, index: IndexLike, queries: QueriesLike | None = None, *, better: Better | None = None) -> None:
        """Open an index, and encode the queries that can be chosen in the widget.

        Args:
            index: the index to ask, or its path.
            queries: queries to choose from, at most 5,000; without them, type queries in.
            better: better answers to the queries, as for :func:`airrep.top`.

        Raises:
            ArtifactError: the path has no index.
            ConfigError: *better* is given without queries, or does not have one answer for each query.
        """
        asked = None if queries is None else as_examples(queries)
        self._explorer = Explorer(as_index(index), asked, None, better)
        self._explorer.prepare()
        served = self._explorer.indexes[0]
        super().__init__(about={"examples": len(served), "method": served.method, "queries": len(asked or ())})
        self.on_msg(self._tell)

    @property
    def basket(self) -> list[str]:
        """Ids of the examples in the basket."""
        return [self._explorer.indexes[0].example(row).id for row in self.rows]

    def _tell(self, _: Any, message: Mapping[str, Any], __: Any) -> None:
        self.send({"number": message["number"], **answer(self._explorer, message["route"], message["asked"])})

    def _repr_html_(self) -> str:
        first = self._explorer.file and one_of(self._explorer.file, 0)
        if not first:
            return f"<p>{escape(repr(self))}: run this notebook to ask the index.</p>"
        return self._explorer.indexes[0].top(first.queries, 10, better=first.better)._repr_html_()

    def __repr__(self) -> str:
        return f"IndexWidget({str(self._explorer.indexes[0].path)!r}, {many(self.about['examples'], 'example')})"

    def _repr_mimebundle_(self, **more: Any) -> Any:
        found = super()._repr_mimebundle_(**more)
        if found is not None:
            found[0]["text/html"] = self._repr_html_()
        return found


def answer(explorer: Explorer, name: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``{"answer": …}`` to a question of the widget, or ``{"error": …}`` with a one-line message."""
    try:
        if name not in OPEN:
            raise AirRepError(
                f"{name}: the notebook widget does not answer this request. Use one of {', '.join(OPEN)}."
            )
        route = ROUTES[name]
        return {"answer": route.answering(explorer, route.model.model_validate(asked))}
    except ValidationError as error:
        first = error.errors()[0]
        return {"error": f"{'.'.join(map(str, first['loc']))}: {first['msg']}. Correct the question."}
    except AirRepError as error:
        return {"error": str(error)}
