"""The page of evaluations: what it shows, that it is safe, whole and always the same."""

from pathlib import Path

import pytest
from worlds.commands import Run, refused
from worlds.made_evaluations import made_evaluation, write_artifact
from worlds.pages import Page as Read
from worlds.pages import check_sealed

from airrep.errors import ArtifactError, ConfigError
from airrep.evaluation.result import Evaluation
from airrep.reports.evaluations import Page, evaluation_page, write_evaluation_report

HOSTILE = '<script>alert(1)</script>"&'


def lds(role: str, **fields: object) -> Evaluation:
    return made_evaluation(names=("airrep", "logra"), tags={"role": role}, **fields)


def accuracy() -> Evaluation:
    return made_evaluation("classify", names=("airrep", "logra"))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    sizes = [made_evaluation(names=("airrep",), tags={"size": size}, command=f"curve {size}") for size in ("10", "500")]
    classes = made_evaluation("classify", names=(HOSTILE, "b"), more={"macro": 0.3, "by_label": {HOSTILE: 0.5}})
    runs = [lds(HOSTILE, command=HOSTILE, ceiling=0.9), *sizes, classes]
    return evaluation_page(runs, curves=["size"], title=HOSTILE, notes=[HOSTILE])


def test_all_tables_and_figures_of_the_runs_are_on_the_page(page: Page) -> None:
    names = {section.name: [one.name for one in section.exhibits] for section in page.sections}
    assert names == {
        "lds": ["lds-values", "lds-bars", "lds-cost", "lds-curve-1"],
        "classify": ["classify-values", "classify-bars", "classify-more-1", "classify-parts-1"],
        "runs": ["runs-table"],
    }
    assert [one.name for one in page.figures] == ["lds-bars", "lds-cost", "lds-curve-1", "classify-bars"]


def test_names_labels_and_commands_are_escaped_and_nothing_is_loaded(page: Page) -> None:
    check_sealed(page.html)
    assert "<script" not in page.html
    assert sum(HOSTILE in text for text in Read(page.html).pieces) > 8


def test_captions_hold_counts_intervals_and_the_command(page: Page) -> None:
    bars = page.sections[0].exhibits[1]
    assert "Whiskers: 95 % bootstrap interval over queries and subsets." in bars.caption
    assert "40 queries, 30 subsets; at most 1 query left out" in bars.caption
    assert bars.commands == (HOSTILE,)
    for exhibit in page.figures:
        assert exhibit.caption.split(".")[0] in page.html
        assert exhibit.commands
    assert page.html.count("curve 500") == 3  # caption, list of runs, description of the figure


def test_figures_have_a_name_and_their_numbers_beside_them(page: Page) -> None:
    drawings = Read(page.html).all("svg")
    assert [one["role"] for one in drawings] == ["img"] * 4
    assert all(one["aria-label"] for one in drawings)
    assert page.html.count("The numbers of this figure as a table") == 4
    assert all(exhibit.tables for exhibit in page.figures)


def test_the_same_runs_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_evaluation_report([accuracy()], tmp_path / f"{name}.html", figures=tmp_path / name)
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes()
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert files == ["captions.txt", "classify-bars.svg"]
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()
    assert "airrep evaluate --out runs/0" in (tmp_path / "one" / "captions.txt").read_text()


def test_a_large_evaluation_makes_no_larger_page() -> None:
    small, large = (evaluation_page([lds("a", queries=queries)]).html for queries in (100, 6520))
    assert len(large) < 1.01 * len(small)


def test_cautions_are_told_once_with_the_rows_that_they_hold_for() -> None:
    made = [lds(role) for role in ("a", "b")]
    for one in made:
        for row in one.rows:
            object.__setattr__(row, "caution", "The set is large.")
    html = evaluation_page(made).html
    assert html.count("airrep, logra: The set is large.") == 1


def test_nothing_is_overwritten_unless_asked(tmp_path: Path) -> None:
    out, figures = tmp_path / "page.html", tmp_path / "figures"
    figures.mkdir()
    (figures / "classify-bars.svg").write_text("mine")
    with pytest.raises(ArtifactError, match=r"classify-bars\.svg: "):
        write_evaluation_report([accuracy()], out, figures=figures)
    assert not out.exists()
    assert [path.name for path in figures.iterdir()] == ["classify-bars.svg"]
    write_evaluation_report([accuracy()], out, figures=figures, replace=True)
    assert (figures / "classify-bars.svg").read_bytes().startswith(b"<svg")
    with pytest.raises(ArtifactError, match=r"page\.html: "):
        write_evaluation_report([accuracy()], out)


def test_replacing_removes_the_figures_that_the_old_captions_name_and_nothing_else(tmp_path: Path) -> None:
    out, figures = tmp_path / "page.html", tmp_path / "figures"
    write_evaluation_report([lds("a"), accuracy()], out, figures=figures)
    assert {"lds-bars.svg"} <= {path.name for path in figures.iterdir()}
    for name in ("mine.svg", "lds-other.svg", "lds-bars.pdf"):
        (figures / name).write_text("mine")
    (tmp_path / "away.svg").write_text("mine")
    with (figures / "captions.txt").open("a") as stream:
        stream.write("\nFigure 9 (../away): Outside.\nFigure 8 (mine): Within a caption.\n")
    write_evaluation_report([accuracy()], out, figures=figures, replace=True)
    kept, new = ({"mine.svg", "lds-other.svg", "lds-bars.pdf"}, {"captions.txt", "classify-bars.svg"})
    assert {path.name for path in figures.iterdir()} == kept | new
    assert (tmp_path / "away.svg").exists()


def test_captions_that_no_report_wrote_remove_nothing(tmp_path: Path) -> None:
    (tmp_path / "captions.txt").write_bytes(b"holidays \xff\n")
    (tmp_path / "holidays.svg").write_text("mine")
    write_evaluation_report([accuracy()], tmp_path / "page.html", figures=tmp_path, replace=True)
    assert (tmp_path / "holidays.svg").read_text() == "mine"


def test_a_curve_that_cannot_be_drawn_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"--set curve=size: "):
        evaluation_page([lds("a")], curves=["size"])


def test_the_command_reads_evaluations(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lds("tasks").save("lds")
    write_artifact(Path("top"), "top", {})
    ran = run("report", "lds", "--out", "page.html")
    assert (ran.status, "page.html: written" in ran.err) == (0, True)
    assert "Linear datamodelling score" in Path("page.html").read_text()
    refused(run("report", "lds", "top", "--out", "other.html"), "which cannot share a page")
    ran = run("report", "top", "--out", "other.html", "--set", "curve=size")
    assert (ran.status, "--set figures=, curve= and join= work only with evaluations" in ran.err) == (1, True)
