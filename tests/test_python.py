"""docs/python.md runs from top to bottom, and names everything that is public."""

import re
from pathlib import Path

import pytest

import airrep

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "python.md").read_text()
PACKAGE = ROOT / "src" / "airrep"


@pytest.mark.slow
def test_the_tour_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("airrep.training.train.RESAMPLES", 40)
    monkeypatch.setattr("airrep.answers.mix.RESAMPLES", 100)
    lines = (PACKAGE / "data" / "train.jsonl").read_text().splitlines()[::40]
    Path("train.jsonl").write_text("\n".join(lines))
    (tmp_path / "queries.jsonl").write_text((PACKAGE / "data" / "queries.jsonl").read_text())
    known: dict[str, object] = {}
    for number, code in enumerate(re.findall("```python\n(.*?)```", PAGE, re.DOTALL), 1):
        exec(
            compile(code.replace('"MODEL"', repr(str(PACKAGE / "models" / "tiny-lm"))), f"block {number}", "exec"),
            known,
        )
    assert "expected" in capsys.readouterr().out.splitlines()[-1]


@pytest.mark.parametrize("name", sorted(set(airrep.__all__) - {"__version__"}))
def test_every_public_name_is_told(name: str) -> None:
    assert re.search(rf"\b{name}\b", PAGE)
