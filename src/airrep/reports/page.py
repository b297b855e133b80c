"""Self-contained HTML pages: templates, content security policy, safe display of texts."""

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Self

from jinja2 import Environment, PackageLoader, StrictUndefined

from airrep._version import __version__
from airrep.corpus.places import Span
from airrep.errors import ArtifactError
from airrep.reports.tables import Table, short, short_prompt, visible
from airrep.runtime.publishing import writing
from airrep.runtime.remote.outputs import is_taken


def mark_places(text: str, spans: Iterable[Span], limit: int) -> list[tuple[int, int, Span]]:
    """Map spans in the first *limit* characters of a text to positions in its :func:`visible` form, in order."""
    found = []
    for span in sorted(spans, key=lambda span: (span.start, span.stop)):
        start, stop = max(span.start, 0), min(span.stop, limit, len(text))
        if start < stop:
            before = len(visible(text[:start]))
            found.append((before, before + len(visible(text[start:stop])), span))
    return found


def marked(part: str, places: Iterable[tuple[int, int, Span]], offset: int = 0) -> list[tuple[str, Span | None]]:
    """Split a part of a shown text, which begins at *offset*, into pieces, each with the span that marks it or None."""
    pieces: list[tuple[str, Span | None]] = []
    done = 0
    for start, stop, span in places:
        first, last = max(start - offset, done), min(stop - offset, len(part))
        if first < last:
            pieces += [(part[done:first], None), (part[first:last], span)]
            done = last
    return [*pieces, (part[done:], None)]


@cache
def environment() -> Environment:
    """Return the Jinja environment, which escapes all text; one object per process."""
    made = Environment(
        loader=PackageLoader("airrep"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.filters |= {"marked": marked, "short": short, "short_prompt": short_prompt, "visible": visible}
    return made


def asset(name: str) -> str:
    """Return the text of a file in the folder of templates."""
    return (resources.files("airrep") / "templates" / name).read_text(encoding="utf-8")


def policy(styles: Sequence[str], scripts: Sequence[str] = ()) -> str:
    """Return a content security policy that allows only these styles and scripts, and images in data URLs."""
    allowed = ["img-src data:", " ".join(["style-src", *map(_hash, styles)])]
    if scripts:
        allowed.append(" ".join(["script-src", *map(_hash, scripts)]))
    return "; ".join(["default-src 'none'", "base-uri 'none'", *allowed])


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def check_page_free(path: Path, replace: bool) -> None:
    """Raise ArtifactError, before any work, if a path is a directory, or exists and *replace* is false."""
    with writing(path):
        if path.is_dir():
            raise ArtifactError(f"{path}: is a directory; a file is expected. Give a name such as report.html.")
        if not replace and is_taken(path):
            raise ArtifactError(
                f"{path}: exists already; nothing is overwritten. Give another path, or pass --replace."
            )


def page_bytes(page: str) -> bytes:
    """Encode a page as UTF-8, with ``?`` for lone surrogates, which arguments that are not UTF-8 contain."""
    return page.encode("utf-8", "replace")


@dataclass(frozen=True)
class Exhibit:
    """One numbered table or figure."""

    name: str
    """Id in the page and name of the figure's file: letters, digits and hyphens."""
    title: str
    caption: str
    commands: tuple[str, ...]
    tables: tuple[Table, ...]
    """The table itself, or the numbers behind the figure."""
    folded: bool = False
    """True if the tables are hidden until the reader unfolds them."""
    svg: str = ""
    """The figure as an element for a page, or a file of its own; empty for a table."""

    @classmethod
    def of(cls, name: str, table: Table, *, folded: bool = False) -> Self:
        """Return an exhibit of a table; a table without lines is reduced to its title and caption."""
        return cls(name, table.title, table.caption, table.commands, (table,) if table.lines else (), folded)


@dataclass(frozen=True)
class Section:
    """Exhibits under one heading."""

    name: str
    heading: str
    exhibits: tuple[Exhibit, ...]
    note: str = ""
    """A sentence below the heading."""


def render_sections(
    sections: Sequence[Section],
    *,
    title: str,
    notes: Sequence[str],
    facts: Mapping[str, str],
    labels: Mapping[str, str],
) -> str:
    """Return a self-contained page of tables and figures: no network, no other file, no script.

    *facts* stand at the top, by name; *labels* are the exhibits' numbers, such as "Figure 2", by exhibit name.
    """
    styles = [asset("report.css"), asset("evaluations.css")]
    template = environment().get_template("evaluations.html.j2")
    shown = {"title": title, "notes": notes, "sections": sections, "labels": labels, "facts": facts}
    return template.render(**shown, styles=styles, policy=policy(styles), version=__version__)
