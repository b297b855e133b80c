"""Self-contained HTML pages: templates, policy, text made safe."""

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import NamedTuple, Self

from jinja2 import Environment, PackageLoader, StrictUndefined

from airrep._version import __version__
from airrep.corpus.places import Span
from airrep.errors import ArtifactError
from airrep.reports.tables import NotedSpan, Table, short, short_prompt, visible
from airrep.runtime.publishing import writing
from airrep.runtime.remote.outputs import is_taken


class Mark(NamedTuple):
    """How a piece of a text is marked."""

    note: str = ""
    kind: str = ""


def mark_places(text: str, spans: Iterable[Span], limit: int) -> list[tuple[int, int, Mark]]:
    """Where stretches of the first *limit* characters of a text stand in it as :func:`visible` shows it, in order."""
    found = []
    for span in sorted(spans, key=lambda span: (span.start, span.stop)):
        start, stop = max(span.start, 0), min(span.stop, limit, len(text))
        if start < stop:
            before = len(visible(text[:start]))
            mark = Mark(span.note, span.kind) if isinstance(span, NotedSpan) else Mark()
            found.append((before, before + len(visible(text[start:stop])), mark))
    return found


def marked(part: str, places: Iterable[tuple[int, int, Mark]], offset: int = 0) -> list[tuple[str, Mark | None]]:
    """A part of a shown text in pieces, each with its mark if it has one; *offset* is where the part begins."""
    pieces: list[tuple[str, Mark | None]] = []
    done = 0
    for start, stop, mark in places:
        first, last = max(start - offset, done), min(stop - offset, len(part))
        if first < last:
            pieces += [(part[done:first], None), (part[first:last], mark)]
            done = last
    return [*pieces, (part[done:], None)]


@cache
def environment() -> Environment:
    """Templates that escape all text; one object in a process."""
    made = Environment(
        loader=PackageLoader("airrep"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"marked": marked, "short": short, "short_prompt": short_prompt, "visible": visible}
    return made


def asset(name: str) -> str:
    """The text of a file beside the templates."""
    return (resources.files("airrep") / "templates" / name).read_text(encoding="utf-8")


def policy(styles: Sequence[str], scripts: Sequence[str] = ()) -> str:
    """A content security policy that allows these styles and scripts, and nothing else from anywhere."""
    allowed = ["img-src data:", " ".join(["style-src", *map(_hash, styles)])]
    if scripts:
        allowed.append(" ".join(["script-src", *map(_hash, scripts)]))
    return "; ".join(["default-src 'none'", "base-uri 'none'", *allowed])


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def check_page_free(path: Path, replace: bool) -> None:
    """Refuse, before any work, a file that is a directory, or that is there already unless *replace* is true."""
    with writing(path):
        if path.is_dir():
            raise ArtifactError(f"{path}: is a directory; a file is expected. Give a name such as report.html.")
        if not replace and is_taken(path):
            raise ArtifactError(
                f"{path}: exists already; nothing is overwritten. Give another path, or pass --replace."
            )


def page_bytes(page: str) -> bytes:
    """A page as it is written, with ``?`` for half a character, as an argument that is not UTF-8 leaves it."""
    return page.encode("utf-8", "replace")


@dataclass(frozen=True)
class Exhibit:
    """One numbered table or figure."""

    name: str
    """Its id in the page and its file's name: letters, digits and hyphens."""
    title: str
    caption: str
    commands: tuple[str, ...]
    tables: tuple[Table, ...]
    """The table itself, or the numbers behind the figure."""
    folded: bool = False
    """True if its tables are seen only when unfolded."""
    svg: str = ""
    """The figure as an element for a page, or a file of its own; empty for a table."""

    @classmethod
    def of(cls, name: str, table: Table, *, folded: bool = False) -> Self:
        """A table under its own title; one without lines is told by its caption alone."""
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
    """A page of tables and figures, which needs nothing else: no network, no other file, no script.

    *facts* stand at its top, by their names; *labels* number the exhibits, such as Figure 2, by theirs.
    """
    styles = [asset("report.css"), asset("evaluations.css")]
    template = environment().get_template("evaluations.html.j2")
    shown = {"title": title, "notes": notes, "sections": sections, "labels": labels, "facts": facts}
    return template.render(**shown, styles=styles, policy=policy(styles), version=__version__)
