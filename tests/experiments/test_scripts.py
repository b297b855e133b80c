"""The scripts beside the package take names from it that are there."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = [
    path for folder in ("benchmarks", "experiments", "oracles", "docs") for path in (ROOT / folder).rglob("*.py")
]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_script_takes_names_that_airrep_has(path: Path) -> None:
    for line in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(line, ast.ImportFrom) and (line.module or "").partition(".")[0] == "airrep":
            exec(ast.unparse(line), {})
