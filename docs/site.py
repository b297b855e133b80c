"""Pages of the site that lie outside docs/, and links between them and to files of the source."""

import re
from pathlib import Path
from posixpath import dirname, normpath, relpath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
OUTSIDE = ("CHANGELOG.md", "CONTRIBUTING.md", "experiments/*.md", "experiments/*/README.md")
"""Pages beside docs/; they keep their paths."""
LINK = re.compile(r"\[([^\]]+)\]\(([^)#\s:]+)(#[^)\s]*)?\)")
"""A link to a file, relative to the page."""


def outside() -> list[str]:
    """Paths of the pages that lie outside docs/."""
    return sorted(str(path.relative_to(ROOT)) for pattern in OUTSIDE for path in ROOT.glob(pattern))


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that lie outside docs/."""
    for path in outside():
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Any, files: Files, **_: Any) -> str:
    """Make links fit the site: pages of docs/ lie at its root, files of the source are no pages."""
    path = page.file.src_uri
    here = dirname(path if path in outside() else f"docs/{path}")

    def fitted(link: re.Match[str]) -> str:
        target = normpath(f"{here}/{link[2]}" if here else link[2])
        uri = target.removeprefix("docs/")
        if files.get_file_from_path(uri) is None:
            return f"{link[1]} (`{target}`)"
        return f"[{link[1]}]({relpath(uri, dirname(path) or '.')}{link[3] or ''})"

    return LINK.sub(fitted, markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Leave out the names of roles in docstrings, as in :meth:`fit`, which are no Markdown."""
    return re.sub(r":(?:meth|class|func|mod|data|attr):\s*(?=<code>)", "", html)
