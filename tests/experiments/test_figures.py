"""The figures of the evidence are those of the results in the repository, and can be read by all."""

import re
import shutil
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from airrep.evaluation.result import Evaluation

FOLDER = Path(__file__).parents[2] / "experiments"
sys.path[:0] = [str(FOLDER), str(FOLDER / "smollm2")]
import figures  # noqa: E402
import weigh  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"
NAMES = ("lm-size.svg", "subset-size.svg", "cost.svg", "scale.svg")


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    """What the script would write now."""
    return figures.figures()


@pytest.fixture
def part(tmp_path: Path) -> Path:
    """A folder of experiments with one result."""
    shutil.copytree(FOLDER / "smollm2/results/tasks", tmp_path / "smollm2/results/tasks")
    return tmp_path


def _marks(svg: str) -> list[ElementTree.Element]:
    return [path for path in ElementTree.fromstring(svg).iter(f"{SVG}path") if path.get("transform")]


def test_the_figures_in_docs_are_those_of_the_results(made: dict[str, str]) -> None:
    assert sorted(made) == sorted(NAMES)
    for name, text in made.items():
        kept = (FOLDER.parent / "docs/figures" / name).read_text(encoding="utf-8")
        assert kept == text, f"docs/figures/{name} is not what the results give; run python experiments/figures.py"


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_is_small_and_stands_alone_on_any_page(made: dict[str, str], name: str) -> None:
    root = ElementTree.fromstring(made[name])
    assert len(made[name].encode()) < 40_000
    tags = {element.tag.removeprefix(SVG) for element in root.iter()}
    assert tags == {"svg", "title", "desc", "rect", "text", "path"}
    assert not re.search(r"href|url\(|style=", made[name])
    title, described, paper, *_ = root
    assert root.get("aria-labelledby") == f"{title.get('id')} {described.get('id')}"
    width, height = (root.get("viewBox") or "").split()[2:]
    assert (paper.get("width"), paper.get("height"), paper.get("fill")) == (width, height, "#ffffff")


def test_every_value_is_drawn_where_it_belongs_and_told() -> None:
    judged = figures.read(FOLDER, figures.SMOLLM2, "tasks")
    svg = figures.cost({"tasks": judged}, {"counting": 10, "text": 100})
    rows = {row.name: row for row in Evaluation.read(FOLDER / "smollm2/results/tasks").rows}
    assert "tasks, 135M parameters: counting n-grams 40.6 (34.7 to 46.3), channels of text 47.0" in svg
    top = 10 * -(-max(100 * row.interval[1] for row in judged.rows.values()) // 10)
    drawn = [mark.get("transform") for mark in _marks(svg)][2:]  # after those of the legend
    heights = [float(str(place).rstrip(")").split()[-1]) for place in drawn]
    for height, name in zip(heights, ("N-grams-LM", "Channels-text"), strict=True):
        share = (figures.BOTTOM - height) / (figures.BOTTOM - figures.TOP)
        assert share * top / 100 == pytest.approx(rows[name].value, abs=0.0003)


def test_scales() -> None:
    assert figures.Axis((1, 100), (10, 30), logarithmic=True).at(10) == pytest.approx(20)
    assert figures.Axis((0, 80), (100, 20)).at(40) == pytest.approx(60)


def test_a_result_that_is_not_there_is_left_out(part: Path) -> None:
    assert figures.read(part, figures.SMOLLM2, "mixture") is None
    judged = figures.read(part, figures.SMOLLM2, "tasks")
    assert set(judged.rows) == {"counting", "text", "expected"}
    svg = figures.lm_size({"tasks": [judged]})
    assert len(_marks(svg)) == len(figures.SERIES) - 2 + 3  # all but two series are in this legend
    assert "EK-FAC" not in (ElementTree.fromstring(svg).findtext(f"{SVG}desc") or "")


def test_results_of_other_data_do_not_stand_in_one_panel(part: Path) -> None:
    shutil.copytree(FOLDER / "smollm2/results/general-gradients", part / "smollm2/results/tasks-gradients")
    with pytest.raises(ValueError, match="tasks, 135M: results have several subjects"):
        figures.read(part, figures.SMOLLM2, "tasks")


@pytest.mark.parametrize("role", ["safety", "tasks-1000"])
def test_what_has_no_evaluation_of_its_own_is_made_of_results(role: str) -> None:
    kept = yaml.safe_load(weigh.WRITTEN.read_text(encoding="utf-8"))
    assert list(kept) == [*weigh.ROLES, *weigh.MORE]
    found = weigh.Results.of(role).judged_weighed()
    assert found == {name: pytest.approx(values, abs=2e-4) for name, values in kept[role].items()}


def test_a_weight_of_0_leaves_the_other_channels() -> None:
    found = weigh.Results.of("tasks")
    made = found.weighed(0)
    assert (made["ekfac"] == found.scores["Channels-expected"]).all()
    assert made["both"] == pytest.approx(found.scores["Channels-LoGra"])
    assert made["all"] == pytest.approx(made["warmed"])
