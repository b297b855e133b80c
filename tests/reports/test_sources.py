"""Runs to report: names, roles, curves, what cannot be."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from worlds.made_evaluations import WORLDS, evaluation, made_evaluation, over_queries, write_artifact

from airrep.errors import ArtifactError, ConfigError
from airrep.evaluation.comparison import Comparison, compare_evaluations
from airrep.evaluation.diagnosis import Diagnosis
from airrep.evaluation.result import Evaluation
from airrep.reports.evaluations import evaluation_page
from airrep.reports.sources import (
    ReportSource,
    Sources,
    join_evaluations,
    label_panels,
    panel_rows,
    read_sources,
    run_names,
)


def source(name: str, **tags: str) -> ReportSource:
    return ReportSource(name, made_evaluation(tags=tags))


def repooled(made: Evaluation, pool: str, **tags: str) -> Evaluation:
    """The same, with all rows pooled alike."""
    rows = tuple(dataclasses.replace(row, pool=pool, temperature=0.5) for row in made.rows)
    return dataclasses.replace(made, rows=rows, tags=tags or made.tags)


def labels(*sources: ReportSource) -> list[str]:
    return [panel.label for panel in label_panels(sources)]


def test_a_panel_is_called_by_its_role_or_else_its_name() -> None:
    assert labels(source("one", role="tasks"), source("two")) == ["tasks", "two"]


def test_panels_of_one_role_are_told_apart_by_the_tags_that_differ() -> None:
    small, large = source("a", role="tasks", lm="x", size="1"), source("b", role="tasks", lm="y", size="1")
    assert labels(small, large) == ["tasks, lm=x", "tasks, lm=y"]


def test_panels_with_equal_tags_are_told_apart_by_name() -> None:
    assert labels(source("a", role="tasks"), source("b", role="tasks")) == ["tasks (a)", "tasks (b)"]


def test_panels_of_one_role_are_told_apart_by_how_they_pool() -> None:
    own = source("own", role="tasks")
    attended = ReportSource("att", repooled(own.evaluation, "attention"))
    other = ReportSource("other", repooled(attended.evaluation, "attention", role="mixture"))
    assert labels(own, attended, other) == ["tasks, own pools", "tasks, pool attention", "mixture"]
    assert labels(own, ReportSource("of others", made_evaluation(names=("x", "y"), tags={"role": "tasks"}))) == [
        "tasks (own)",
        "tasks (of others)",
    ]


def test_runs_are_called_by_the_last_part_of_their_path_where_that_is_enough() -> None:
    runs = [Path("x/one"), made_evaluation(), "x/two", "y/two"]
    assert run_names(runs) == ["one", "evaluation 2", "x/two", "y/two"]


def test_a_curve_is_in_the_order_of_its_numbers_and_split_by_role() -> None:
    sizes = ("1_000", "20", "3e2")
    made = [source(f"{role}{size}", role=role, size=size) for role in ("a", "b") for size in sizes]
    groups = Sources([*made, source("plain", role="a")]).curve("lds", "size")
    assert [(label, [point.at for point in points]) for label, points in groups] == [
        ("a", [20.0, 300.0, 1000.0]),
        ("b", [20.0, 300.0, 1000.0]),
    ]
    assert groups[1][1][0].source.name == "b20"


def test_one_run_may_be_a_point_of_two_curves() -> None:
    both = source("both", role="a", size="100", pool="2400")
    made = [source("small", role="a", size="25"), both, source("deep", role="a", pool="6000")]
    sources = Sources(made, curves=["size", "pool"])
    for tag, names in (("size", ["small", "both"]), ("pool", ["both", "deep"])):
        ((label, points),) = sources.curve("lds", tag)
        assert (label, [point.source.name for point in points]) == ("a", names)
    other = source("other", role="a", size="50", pool="600")
    curves = Sources([both, other], curves=["pool"]).curve("lds", "size")
    assert [label for label, _ in curves] == ["a, pool=2400", "a, pool=600"]


def test_a_tag_that_others_of_a_curve_lack_tells_them_apart() -> None:
    plain, big = source("plain", role="a", size="100"), source("big", role="a", size="100", lm="big")
    assert [label for label, _ in Sources([plain, big], curves=["size"]).curve("lds", "size")] == ["a", "a, lm=big"]


def test_runs_of_a_curve_leave_the_table_where_others_stand() -> None:
    plain, tagged = source("plain", role="a"), source("curve", role="a", size="3")
    assert [panel.label for panel in Sources([plain, tagged], curves=["size"]).panels["lds"]] == ["a"]
    assert [panel.name for panel in Sources([tagged], curves=["size"]).panels["lds"]] == ["curve"]
    assert len(Sources([plain, tagged]).panels["lds"]) == 2


def test_a_curve_refuses_words_and_a_number_that_stands_twice() -> None:
    with pytest.raises(ConfigError, match=r"--set curve=size: b .*size=many"):
        Sources([source("a", size="1"), source("b", size="many")]).curve("lds", "size")
    with pytest.raises(ConfigError, match=r"--set curve=size: a and b of tasks .* 1"):
        Sources([source("a", size="1", role="tasks"), source("b", size="1.0", role="tasks")]).curve("lds", "size")
    with pytest.raises(ConfigError, match="size=nan"):
        Sources([source("a", size="nan")]).curve("lds", "size")


def test_commas_of_thousands_are_read_and_other_commas_are_no_number() -> None:
    """``lr=0,5`` was once drawn at 5, and ``1,5`` at 15."""
    made = [source(text, n=text) for text in ("1,000", "-2,000,000.5", "1_500")]
    ((_, points),) = Sources(made).curve("lds", "n")
    assert [point.at for point in points] == [-2_000_000.5, 1000.0, 1500.0]
    for text in ("0,5", "1,5", "1,0000", "12,34,567", ",100", "1000,000", "1,000,", "0.1,000"):
        with pytest.raises(ConfigError, match=f"n={text},"):
            Sources([source("a", n=text)]).curve("lds", "n")


def test_subsets_are_known_of_measures_that_have_some() -> None:
    assert ReportSource("a", made_evaluation(facts={"subsets": 7})).subsets == 7
    assert ReportSource("a", made_evaluation("classify", facts={})).subsets is None
    assert ReportSource("a", made_evaluation("loo", facts={"removals": 5})).subsets is None


def test_rows_keep_the_order_in_which_they_first_appear() -> None:
    first, second = made_evaluation(names=("a", "b")), made_evaluation(names=("c", "b"))
    assert panel_rows(label_panels([ReportSource("1", first), ReportSource("2", second)])) == ["a", "b", "c"]


def test_artifacts_of_each_kind_are_read(tmp_path: Path) -> None:
    made_evaluation().save(tmp_path / "lds")
    Comparison("lds", "subject", (), (), None, 100).save(tmp_path / "comparison")
    Diagnosis(()).save(tmp_path / "diagnosis")
    found = read_sources([tmp_path / "lds", tmp_path / "comparison", str(tmp_path / "diagnosis")])
    assert [one.name for one in found.evaluations] == ["lds"]
    assert [name for name, _ in (*found.comparisons, *found.diagnoses)] == ["comparison", "diagnosis"]


def test_results_and_evaluations_are_not_mixed(tmp_path: Path) -> None:
    made_evaluation().save(tmp_path / "lds")
    top = write_artifact(tmp_path / "top", "top", {})
    with pytest.raises(ConfigError, match="lds is of kind 'evaluation' and .*top of kind 'top'"):
        read_sources([top, tmp_path / "lds"])


def test_no_runs_and_runs_of_other_kinds_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no evaluations"):
        read_sources([])
    with pytest.raises(ArtifactError, match="kind 'top'; .*'evaluation'"):
        read_sources([write_artifact(tmp_path / "top", "top", {})])


def test_a_run_given_twice_is_refused_however_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_evaluation().save(tmp_path / "lds")
    (tmp_path / "link").symlink_to(tmp_path / "lds")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="^report: lds is given twice"):
        read_sources(["lds", "lds"])
    for other in ("./lds/", str(tmp_path / "lds"), Path("link")):
        with pytest.raises(ConfigError, match="is given twice, also as lds"):
            read_sources(["lds", other])
    assert len(read_sources(["lds", made_evaluation(), made_evaluation()]).evaluations) == 3
    with pytest.raises(ConfigError, match="^report: result 3 is given twice, also as result 1"):
        read_sources([one := made_evaluation(), "lds", one])


def tagged(run: Evaluation, **fields: object) -> Evaluation:
    return dataclasses.replace(run, **{"tags": {"role": "tasks"}, **fields})


ONE = tagged(evaluation(WORLDS, ["bad", "good"]), command="airrep one")
OTHER = tagged(evaluation(WORLDS, ["middling"]), command="airrep other")
MORE = dataclasses.replace(OTHER, rows=tuple(dataclasses.replace(row, name="more") for row in OTHER.rows))


@pytest.fixture(scope="module")
def found() -> list[tuple[str, Evaluation]]:
    return join_evaluations([("one", ONE), ("other", OTHER)])


def test_rows_of_one_subject_stand_in_one_evaluation_with_differences_to_its_first_row(found):
    [(name, joined)] = found
    assert name == "one"
    assert [row.name for row in joined.rows] == ["bad", "good", "middling"]
    assert joined.rows[0].difference is None
    pairs = {pair.one: pair for pair in compare_evaluations([("one", ONE), ("other", OTHER)], "bad").pairs}
    for row in joined.rows[1:]:
        assert row.difference == (pairs[row.name].difference, pairs[row.name].interval, pairs[row.name].p_value)
    assert joined.command == "airrep one && airrep other"


def test_the_joined_can_be_compared_as_if_they_had_been_evaluated_at_once(found):
    [(_, joined)] = found
    at_once = tagged(evaluation(WORLDS, ["bad", "good", "middling"]))
    assert compare_evaluations([("x", joined)]).pairs == compare_evaluations([("x", at_once)]).pairs
    assert set(joined.matrices) == set(at_once.matrices)


def test_values_without_matrices_are_joined_too():
    values = np.arange(12) % 2.0
    runs = [("one", over_queries({"a": values})), ("other", over_queries({"b": values[::-1].copy()}))]
    [(_, joined)] = join_evaluations(runs)
    assert joined.rows[1].difference is not None
    assert joined.rows[1].difference.value == 0


@pytest.mark.parametrize("other", [{"subject": "another"}, {"tags": {"role": "tasks", "subset_size": "50"}}])
def test_other_subjects_and_other_tags_stay_apart(other):
    runs = [("one", ONE), ("other", tagged(OTHER, **other))]
    with pytest.raises(ConfigError, match="join=true: no two evaluations have the same"):
        join_evaluations(runs)
    assert join_evaluations([*runs, ("more", MORE)])[1] == runs[1]


def test_two_rows_of_one_name_are_an_error_that_names_both_runs():
    with pytest.raises(ConfigError, match="one and again .*'bad'"):
        join_evaluations([("one", ONE), ("other", OTHER), ("again", ONE)])


def test_a_report_shows_one_column_and_lists_both_runs():
    pages = [evaluation_page([ONE, OTHER], join=join) for join in (False, True)]
    heads = [page.sections[0].exhibits[0].tables[0].columns for page in pages]
    assert [sum(head.startswith("tasks") for head in columns) for columns in heads] == [2, 1]
    assert all("airrep one" in page.html and "airrep other" in page.html for page in pages)
    runs = pages[1].sections[-1].exhibits[0].tables[0]
    assert [line.head.text for line in runs.lines] == ["evaluation 1", "evaluation 2"]
