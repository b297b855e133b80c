"""The notebooks of docs/tutorials run from top to bottom, and their pages show what they print."""

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PATHS = sorted((ROOT / "docs" / "tutorials").glob("*.ipynb"))
DECIMAL = re.compile(r"[+-]?\d+\.\d+")


def load_script() -> Any:
    spec = importlib.util.spec_from_file_location("notebooks", ROOT / "docs" / "notebooks.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


notebooks = load_script()


def ends_well(name: str, known: dict[str, Any]) -> bool:
    """Whether a notebook ends with what it set out to show."""
    match name:
        case "why":
            return bool(known["told"][0].deviations > 3 and known["gone"].change.shape == (50,))
        case "clean":
            copies = {copy["id"] for copy in known["copies"]}
            return len(known["found"] & known["flipped"]) >= 5 and known["repeated"] >= copies
        case "choose":
            return len(known["spread"].picks) == 50
        case "train":
            return bool(known["index"].rows == 200 and known["adapted"].report["sentence"])
        case "judge":
            return [row.name for row in known["lds"].rows] == ["n-grams", "TF-IDF", "encoder"]
    return False


def printed(notebook: dict[str, Any]) -> list[str]:
    """What each cell of code printed."""
    return ["".join("".join(output["text"]) for output in cell["outputs"]) for cell in notebooks.cells(notebook)]


def is_the_same(one: str, other: str) -> bool:
    """Whether texts are equal but for one unit in the last place of decimals: rounding differs between machines."""
    if DECIMAL.sub("", one) != DECIMAL.sub("", other):
        return False
    pairs = zip(DECIMAL.findall(one), DECIMAL.findall(other), strict=True)
    return all(places(a) == places(b) and abs(float(a) - float(b)) < 1.5 * 10.0 ** -places(a) for a, b in pairs)


def places(decimal: str) -> int:
    return len(decimal.partition(".")[2])


@pytest.mark.parametrize(
    ("now", "same"),
    [
        ("gsm8k +1.59, 26 of 50\n", True), ("gsm8k +1.58, 26 of 50\n", True), ("gsm8k +1.57, 26 of 50\n", False),
        ("gsm8k +1.590, 26 of 50\n", False), ("gsm8k +1.59, 27 of 50\n", False), ("creak +1.59, 26 of 50\n", False),
        ("gsm8k +1.59\n", False),
    ],
)  # fmt: skip
def test_printed_results_are_compared_to_rounding(now: str, same: bool) -> None:
    assert is_the_same("gsm8k +1.59, 26 of 50\n", now) == same


def test_there_are_five() -> None:
    assert [path.stem for path in PATHS] == ["choose", "clean", "judge", "train", "why"]


@pytest.mark.slow
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_tutorial_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    notebook = json.loads(path.read_text(encoding="utf-8"))
    stored = printed(notebook)
    known = notebooks.run(notebook)
    assert ends_well(path.stem, known)
    for before, now in zip(stored, printed(notebook), strict=True):
        assert is_the_same(before, now), f"run: python docs/notebooks.py {path.stem}\n{before}is now\n{now}"


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_page_is_its_notebook(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert path.with_suffix(".md").read_text(encoding="utf-8") == notebooks.page(notebook, path.stem)
    assert all(cell["execution_count"] for cell in notebooks.cells(notebook))
    assert re.search(r"/(tmp|work|root|home|usr)/", json.dumps(notebook)) is None
