"""The session that docs/agents.md shows is the one that docs/agents.py has."""

import asyncio
import importlib.util
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

import airrep

pytest.importorskip("mcp", reason="the protocol's SDK is missing (pip install 'airrep[mcp]')")
ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"```text\n(?P<name>\w+) (?P<asked>\{[^\n]*\})\n(?P<told>\{.*?\n\})\n```", re.DOTALL)
PERCENT = re.compile(r"\d+ %")


def script() -> Any:
    spec = importlib.util.spec_from_file_location("agents_page", ROOT / "docs" / "agents.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def near(value: Any) -> Any:
    """A value whose numbers may differ as processors round; fingerprints and versions may be later ones."""
    if isinstance(value, dict):
        return {name: ANY if name in ("fingerprint", "version") else near(part) for name, part in value.items()}
    if isinstance(value, list):
        return list(map(near, value))
    return pytest.approx(value, rel=0.01) if isinstance(value, float) else value


def calls(lines: Sequence[str]) -> list[tuple[str, Any, Any]]:
    text = PERCENT.sub("%", "\n".join(lines))
    return [(one["name"], json.loads(one["asked"]), json.loads(one["told"])) for one in BLOCK.finditer(text)]


@pytest.mark.slow
def test_the_page_shows_the_session(tmp_path: Path) -> None:
    page = script()
    airrep.build_index(ROOT / "src" / "airrep" / "data" / "train.jsonl", tmp_path / "index")
    made = calls(asyncio.run(page.transcript(tmp_path / "index")))
    shown = calls(page.PAGE.read_text(encoding="utf-8").split(page.START)[1].split(page.END)[0].splitlines())
    assert [name for name, *_ in made] == [name for name, *_ in shown]
    assert len(shown) == 5
    for (_, asked, told), (_, asked_on_page, told_on_page) in zip(made, shown, strict=True):
        assert asked == asked_on_page
        assert told == near(told_on_page)
