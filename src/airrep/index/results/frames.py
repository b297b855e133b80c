"""Results as rows of plain values, data frames and short tables for notebooks."""

from abc import ABC, abstractmethod
from html import escape
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

from airrep.corpus.schemas.conversations import from_last_message
from airrep.errors import need

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

ROWS_SHOWN = 20
"""Rows of a table in a notebook: the rest is in :meth:`Shown.to_pandas`."""
LONGEST = 120
"""Characters of a text in such a table."""


class Shown(ABC):
    """A result that is told as a table; its text form is one line, its form in a notebook a short table."""

    columns: ClassVar[tuple[str, ...]] = ()
    """Names of the values of a result that may have no row at all."""

    @abstractmethod
    def _records(self) -> "Iterator[dict[str, Any]]":
        """Rows of plain values, one at a time; all have the same names."""

    @abstractmethod
    def summary(self) -> str:
        """What the result holds, in one line."""

    def to_dicts(self) -> list[dict[str, Any]]:
        """The rows as dicts."""
        return list(self._records())

    def to_pandas(self) -> "pd.DataFrame":
        """The rows as a data frame.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        need("to_pandas", "pandas", "pandas")
        import pandas as pd

        rows = self.to_dicts()
        return pd.DataFrame(rows) if rows else pd.DataFrame(columns=list(self.columns))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.summary()})"

    def _repr_html_(self) -> str:
        shown = list(islice(self._records(), ROWS_SHOWN + 1))
        names = list(shown[0]) if shown else []
        head = "".join(f"<th>{escape(name)}</th>" for name in names)
        lines = (f"<tr>{''.join(map(_cell, row, row.values()))}</tr>" for row in shown[:ROWS_SHOWN])
        more = "<p>… and more: <code>to_pandas()</code></p>" if len(shown) > ROWS_SHOWN else ""
        title = f"<p>{escape(type(self).__name__)}: {escape(self.summary())}</p>"
        return f"{title}<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>{more}"


class Tabular(Shown):
    """A result that gives its rows."""

    @abstractmethod
    def rows(self) -> "Iterator[dict[str, Any]]":
        """Rows of plain values, one at a time; all have the same names."""

    def _records(self) -> "Iterator[dict[str, Any]]":
        return self.rows()


def _cell(name: str, value: Any) -> str:
    if isinstance(value, float):
        return f'<td style="text-align: right">{value:+.4g}</td>'
    text = "" if value is None else str(value)
    return f"<td>{escape(shortened(from_last_message(text, LONGEST) if name == 'prompt' else text))}</td>"


def shortened(text: str, longest: int = LONGEST) -> str:
    """A text on one line, cut, without characters that change the direction of writing or steer a terminal."""
    line = " ".join(text[: 4 * longest].split())  # not all of the text: it may be megabytes
    line = "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in line)
    return line if len(line) <= longest and len(text) <= 4 * longest else line[: longest - 1] + "…"
