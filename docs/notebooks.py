"""Run the notebooks of docs/tutorials, store what they print, and make pages of them.

Usage: python docs/notebooks.py [NAME ...]

Cells run in this process, one after another, in an empty folder; no Jupyter is needed. What a cell prints is stored in
the notebook, and the page `docs/tutorials/NAME.md` is made of both.
"""

import ast
import contextlib
import io
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "tutorials"


def run(notebook: dict[str, Any]) -> dict[str, Any]:
    """Run all cells of code in the current folder, store their output, and return the variables they end with."""
    known: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(cells(notebook), 1):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            _run_cell("".join(cell["source"]), known, f"cell {number}")
        text = re.sub(r"[ \t]+\n", "\n", printed.getvalue())
        cell["execution_count"] = number
        cell["outputs"] = [_output(text)] if text else []
    return known


def cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """The cells of code."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def _run_cell(source: str, known: dict[str, Any], name: str) -> None:
    """Run a cell; the value of an expression at its end is printed."""
    tree = ast.parse(source, name)
    last = tree.body[-1] if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    body = ast.Module(tree.body[:-1] if last is not None else tree.body, type_ignores=[])
    exec(compile(body, name, "exec"), known)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), name, "eval"), known)
        if value is not None:
            print(value)


def _output(text: str) -> dict[str, Any]:
    return {"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)}


def page(notebook: dict[str, Any], name: str) -> str:
    """The notebook as Markdown."""
    parts = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
            continue
        parts.append(f"```py\n{text}\n```")
        printed = "".join("".join(output["text"]) for output in cell["outputs"]).rstrip()
        if printed:
            parts.append(f"```text\n{printed}\n```")
    parts.append(f"This page is the notebook `docs/tutorials/{name}.ipynb`: run it, and change it.")
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Run those that are named, or all."""
    here = Path.cwd()
    for path in sorted(FOLDER.glob("*.ipynb")):
        if sys.argv[1:] and path.stem not in sys.argv[1:]:
            continue
        notebook = json.loads(path.read_text(encoding="utf-8"))
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            run(notebook)
            os.chdir(here)
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        path.with_suffix(".md").write_text(page(notebook, path.stem), encoding="utf-8")
        print(f"{path.stem}: {len(cells(notebook))} cells")


if __name__ == "__main__":
    main()
