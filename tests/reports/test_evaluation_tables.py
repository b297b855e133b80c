"""Tables of evaluations: what is bold, marked, averaged, counted."""

import dataclasses
from pathlib import Path

import pytest
from worlds.made_evaluations import made_evaluation

from airrep.evaluation.comparison import ComparedPair, Comparison, compare_evaluations
from airrep.evaluation.diagnosis import Diagnosis
from airrep.evaluation.findings import Finding
from airrep.evaluation.result import Cost, Difference, Evaluation, Row
from airrep.reports.evaluation_tables import (
    MOST_PARTS,
    about,
    comparison_tables,
    curve_table,
    differences_table,
    extras_table,
    findings_table,
    mark_of,
    parts_table,
    sources_table,
    value_table,
)
from airrep.reports.sources import ReportSource, Sources, label_panels, read_sources
from airrep.reports.tables import Line, Table, bytes_text, hundred, interval, p_text, seconds_text, three


def panels(*made: Evaluation) -> list[ReportSource]:
    return label_panels([ReportSource(f"run {number}", one) for number, one in enumerate(made)])


def line(table: Table, name: str) -> Line:
    return next(one for one in table.lines if one.head.text == name)


def texts(one: Line) -> list[str]:
    return [cell.text for cell in one.cells]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.4237, "42.4"), (-0.0312, "−3.1"), (-0.0001, "0.0"), (0.0, "0.0"), (1.0, "100.0"), (None, "–"),
        (float("nan"), "–"),
    ],
)  # fmt: skip
def test_fractions_are_shown_times_a_hundred(value: float | None, shown: str) -> None:
    assert hundred(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0 B"), (8, "8 B"), (1000, "1,000 B"), (1164, "1.14 KiB"), (1023.7, "1 KiB"), (41520, "40.5 KiB"),
        (2**33, "8 GiB"), (3e15, "2,728 TiB"),
    ],
)  # fmt: skip
def test_sizes_have_three_digits(value: float, shown: str) -> None:
    assert bytes_text(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0 s"), (1e-18, "0 s"), (4.2e-5, "42 µs"), (0.0713, "71.3 ms"), (99.96, "100 s"), (150, "2.5 min"),
        (7200, "2 h"), (1e8, "1,157 days"),
    ],
)  # fmt: skip
def test_times_are_in_the_unit_that_suits_them(value: float, shown: str) -> None:
    assert seconds_text(value) == shown


def test_small_p_values_are_bounded_and_numbers_have_three_digits() -> None:
    assert (p_text(0.0004), p_text(0.0123), p_text(1.0)) == ("p < 0.001", "p = 0.012", "p = 1.000")
    assert (three(0.12345), three(-3.0), three(12345.6)) == ("0.123", "−3", "12,346")
    assert interval((-0.1, 0.25)) == "[−10.0, 25.0]"


def test_the_best_of_each_column_is_bold_and_the_mean_is_over_columns() -> None:
    one = made_evaluation(names=("airrep", "logra", "tfidf"), tags={"role": "a"})
    two = made_evaluation(names=("logra", "airrep"), shift=0.1, tags={"role": "b"})
    table = value_table("", panels(one, two))
    assert table.columns == ("Method", "a", "b", "Mean", "Storage per example", "Seconds per example")
    assert texts(line(table, "airrep"))[:3] == ["42.0", "46.2", "44.1"]
    assert texts(line(table, "tfidf"))[:3] == ["20.0", "–", "–"]
    assert [cell.strong for cell in line(table, "airrep").cells][:3] == [True, True, True]
    assert not any(cell.strong for cell in line(table, "logra").cells)
    assert line(table, "logra").cells[0].under == "[29.0, 37.0]"


def test_one_evaluation_has_no_mean_and_a_row_without_cost_a_dash() -> None:
    made = made_evaluation(names=("airrep", "logra"))
    bare = dataclasses.replace(made.rows[1], cost=None)
    table = value_table("", panels(dataclasses.replace(made, rows=(made.rows[0], bare))))
    assert table.columns == ("Method", "run 0", "Storage per example", "Seconds per example")
    assert texts(line(table, "airrep")) == ["42.0", "1.14 KiB", "9.6 ms"]
    assert texts(line(table, "logra")) == ["33.0", "–", "–"]
    none = dataclasses.replace(made, rows=tuple(dataclasses.replace(row, cost=None) for row in made.rows))
    assert value_table("", panels(none)).columns == ("Method", "run 0")


def test_a_row_that_is_pooled_in_two_ways_has_no_pool_beside_its_name_and_no_mean() -> None:
    own = made_evaluation(names=("airrep", "logra"), tags={"role": "a"})
    rows = tuple(dataclasses.replace(row, pool="attention", temperature=0.5) for row in own.rows)
    attended = dataclasses.replace(own, rows=rows, tags={"role": "b"})
    table = value_table("", panels(own, attended))
    assert (line(table, "airrep").head.under, line(table, "logra").head.under) == ("attention", "")
    assert [texts(line(table, name))[2] for name in ("airrep", "logra")] == ["42.0", "–"]


def test_two_runs_of_one_role_have_no_mean() -> None:
    one = made_evaluation(names=("airrep",), tags={"role": "a"})
    table = value_table("", panels(one, dataclasses.replace(one, tags={"role": "a", "lm": "x"})))
    assert "Mean" not in table.columns


def test_no_mean_is_shown_where_no_row_is_in_all_columns() -> None:
    one = made_evaluation(names=("airrep",), tags={"role": "a"})
    two = made_evaluation(names=("logra",), tags={"role": "b"})
    table = value_table("", panels(one, two))
    assert "Mean" not in table.columns
    assert {len(row.cells) for row in table.lines} == {len(table.columns) - 1}
    assert "Mean:" not in table.caption


def test_costs_that_differ_between_roles_are_a_range() -> None:
    made = made_evaluation(names=("airrep",), tags={"role": "a"})
    dear = dataclasses.replace(made.rows[0], cost=Cost(2328.0, None))
    other = dataclasses.replace(made, rows=(dear,), tags={"role": "b"})
    assert texts(line(value_table("", panels(made, other)), "airrep"))[3:] == ["1.14 KiB to 2.27 KiB", "9.6 ms"]


def test_seconds_by_the_clock_are_told_from_cpu_time() -> None:
    made = made_evaluation(names=("airrep", "logra"))
    assert "process CPU time of encoding one training example." in value_table("", panels(made)).caption
    fast = dataclasses.replace(made.rows[1], cost=Cost(8.0, 0.001, clock=True))
    mixed = dataclasses.replace(made, rows=(made.rows[0], fast), tags={"role": "b"})
    table = value_table("", panels(mixed))
    assert [line(table, name).cells[-1].under for name in ("airrep", "logra")] == ["", "wall-clock time"]
    assert "or wall-clock time on an accelerator where a row says so." in table.caption
    both = value_table("", panels(dataclasses.replace(made, tags={"role": "a"}), mixed))
    assert line(both, "logra").cells[-1].under == "partly wall-clock time"


def test_older_results_do_not_say_by_which_clock() -> None:
    row = dataclasses.replace(made_evaluation().rows[0], cost=Cost(8.0, 0.5, clock=True))
    value = row.to_dict()
    assert Row.from_dict(value, row.per_query).cost == Cost(8.0, 0.5, clock=True)
    del value["cost"]["clock"]
    assert Row.from_dict(value, row.per_query).cost == Cost(8.0, 0.5, clock=False)


def test_marks_say_where_a_difference_is_beyond_chance() -> None:
    row = made_evaluation().rows[1]
    gaps = {(0.01, 0.2): "▲", (-0.2, -0.01): "▼", (-0.1, 0.1): "", (0.0, 0.2): ""}
    for ends, mark in gaps.items():
        assert mark_of(dataclasses.replace(row, difference=Difference(0.1, ends, 0.02))) == mark
    assert mark_of(dataclasses.replace(row, difference=Difference(0.1, (0.01, 0.2), 0.056))) == ""
    assert mark_of(dataclasses.replace(row, difference=None)) == ""


def test_references_stand_below_the_methods_with_gaps_where_unknown() -> None:
    one = made_evaluation(ceiling=0.93, tags={"role": "a"})
    two = made_evaluation(tags={"role": "b"}, facts={"signal_to_noise": 0.414, "chance": 0.1})
    table = value_table("", panels(one, two))
    assert [texts(row)[:2] for row in table.lines if row.reference] == [["93.0", "–"], ["–", "10.0"], ["–", "0.414"]]
    assert len({len(row.cells) for row in table.lines}) == 1


def test_the_caption_counts_queries_subsets_and_what_was_left_out() -> None:
    one = made_evaluation(tags={"role": "a"}, queries=1200)
    two = made_evaluation(tags={"role": "b"}, queries=40, subsets=7)
    assert about(panels(one)) == "1,200 queries, 30 subsets; at most 1 query left out, depending on the row."
    assert about(panels(one, two)).startswith("a: 1,200 queries, 30 subsets; ")
    assert " b: 40 queries, 7 subsets; " in about(panels(one, two))
    single = about(panels(made_evaluation(queries=1, subsets=1, names=("airrep",))))
    assert single.startswith("1 query, 1 subset; 0 queries left out")
    assert about(panels(one, one)).startswith("In each of 2 runs: 1,200 queries")
    many = [made_evaluation(tags={"role": str(n)}, queries=10 + n, names=("airrep",)) for n in range(9)]
    assert about(panels(*many)) == (
        "9 runs: 10 to 18 queries, 30 subsets; 0 queries left out. The table of runs lists each run."
    )
    assert "first row, airrep, by a paired" in value_table("", panels(one)).caption


def test_commands_are_listed_once_each() -> None:
    one, two = made_evaluation(seed=1, tags={"role": "a"}), made_evaluation(seed=2, tags={"role": "b"})
    commands = ("airrep evaluate --out runs/1", "airrep evaluate --out runs/2")
    assert value_table("", panels(one, two, one)).commands == commands
    assert value_table("", panels(dataclasses.replace(one, command=""))).commands == ()


def test_differences_are_to_the_first_row_with_interval_and_p_value() -> None:
    table = differences_table(panels(made_evaluation(names=("airrep", "logra"))))
    assert [row.head.text for row in table.lines] == ["logra"]
    cell = table.lines[0].cells[0]
    assert (cell.text, cell.under, cell.mark) == ("−9.0", "[−14.0, −4.0] p < 0.001", "▼")


def test_pools_and_methods_stand_under_names_that_do_not_tell_them() -> None:
    table = value_table("", panels(made_evaluation(names=("airrep", "logra", "AirRep without attention"))))
    heads = {row.head.text: row.head.under for row in table.lines}
    assert heads == {
        "airrep": "attention at temperature 0.2",
        "logra": "sum",
        "AirRep without attention": "airrep, sum",
    }


MORE = {
    "macro": {"value": 0.31, "interval": [0.28, 0.35]},
    "vote@5": {"value": 0.4, "interval": [0.38, 0.45]},
    "empty_answers": 0.02,
    "by_task": {"b": 0.2, "a": 0.1},
    "these_tasks": {"interval": [0, 1]},
    "same_task_share": None,
}


def panel(**fields: object) -> ReportSource:
    return ReportSource("run", made_evaluation("classify", names=("airrep", "logra"), more=MORE, **fields), "tasks")


def test_all_further_numbers_of_rows_are_columns() -> None:
    table = extras_table(panel(facts={"chance": 0.03}))
    assert table is not None
    assert table.columns == ("Method", "Accuracy", "Empty answers", "Macro", "Vote@5")
    cells = [(cell.text, cell.under) for cell in table.lines[1].cells]
    assert cells == [("33.0", "[29.0, 37.0]"), ("2.0", ""), ("31.0", "[28.0, 35.0]"), ("40.0", "[38.0, 45.0]")]
    assert table.lines[-1].head.text == "Chance"
    assert table.lines[-1].cells[0].text == "3.0"


def test_rows_without_further_numbers_have_no_such_table() -> None:
    plain = ReportSource("run", made_evaluation(), "tasks")
    assert extras_table(plain) is None
    assert parts_table(plain) is None


def test_tasks_are_lines_by_name_with_the_best_in_bold() -> None:
    made = made_evaluation("select", names=("airrep", "logra"))
    rows = [
        row.more | {"by_task": means} for row, means in zip(made.rows, ({"b": 0.2, "a": 0.1}, {"b": 0.3}), strict=True)
    ]
    for row, more in zip(made.rows, rows, strict=True):
        object.__setattr__(row, "more", more)
    table = parts_table(ReportSource("run", made, "tasks"))
    assert table is not None
    assert table.columns == ("Task", "airrep", "logra")
    shown = [(line.head.text, [(cell.text, cell.strong) for cell in line.cells]) for line in table.lines]
    assert shown == [("a", [("10.0", True), ("–", False)]), ("b", [("20.0", False), ("30.0", True)])]


def test_very_many_labels_are_cut_and_counted() -> None:
    more = {"by_label": {f"label {number:04}": 0.5 for number in range(MOST_PARTS + 7)}}
    table = parts_table(ReportSource("run", made_evaluation("classify", more=more), "tasks"))
    assert table is not None
    assert len(table.lines) == MOST_PARTS
    assert table.caption.endswith("7 more are left out of this page.")


def test_a_curve_has_its_numbers_across() -> None:
    made = [
        ReportSource(size, made_evaluation(tags={"role": "a", "size": size}, shift=float(size) / 100))
        for size in ("20", "0")
    ]
    ((label, points),) = Sources(made).curve("lds", "size")
    table = curve_table(label, "size", points)
    assert (table.title, table.columns) == ("a", ("Method", "size 0", "size 20"))
    assert [cell.text for cell in table.lines[0].cells] == ["42.0", "50.4"]


def test_a_comparison_is_a_line_for_each_pair(tmp_path: Path) -> None:
    made = compare_evaluations([("run", made_evaluation("classify"))], resamples=200, command="airrep compare run")
    made.save(tmp_path / "comparison")
    ((name, read),) = read_sources([tmp_path / "comparison"]).comparisons
    rows, table = comparison_tables(name, read)
    assert [line.head.text for line in rows.lines] == [row.name for row in read.rows]
    assert table.columns == ("First", "Second", "Difference × 100", "p", "p, adjusted", "Ratio")
    first = made.pairs[0]
    assert (table.lines[0].head.text, table.lines[0].cells[0].text) == (first.one, first.other)
    assert table.lines[0].cells[1].text == f"{100 * first.difference:.1f}"
    assert len(table.lines) == 3
    assert table.lines[0].cells[1].mark == "▲"
    assert "draws" not in table.caption
    assert "200 bootstrap draws" in comparison_tables(name, dataclasses.replace(read, measure="lds"))[1].caption
    assert table.commands == ("airrep compare run",)


def compared(*pairs: ComparedPair) -> Comparison:
    return Comparison("lds", "subject", (), pairs, None, 100)


def test_differences_that_an_adjustment_undoes_have_no_mark() -> None:
    undone, kept = (ComparedPair("a", "b", -0.1, (-0.2, -0.01), 0.03, adjusted) for adjusted in (0.09, 0.04))
    assert [line.cells[1].mark for line in comparison_tables("", compared(undone, kept))[1].lines] == ["", "▼"]


def test_ratios_are_shown_with_their_intervals_where_there_are_some() -> None:
    pair = ComparedPair("a", "b", 0.1, (0.0, 0.2), 0.03, 0.09)
    found = compared(pair._replace(ratio=1.5, ratio_interval=(1.25, 1.75)), pair)
    shown, absent = (line.cells[4] for line in comparison_tables("", found)[1].lines)
    assert (shown.text, shown.under) == ("1.50", "[1.25, 1.75]")
    assert absent.text == "–"


def test_a_diagnosis_is_a_line_for_each_finding(tmp_path: Path) -> None:
    finding = Finding("label spread", "bad", "0.02 nats", "Labels hardly vary.", "label-spread")
    Diagnosis((finding,), command="airrep diagnose labels").save(tmp_path / "diagnosis")
    ((name, read),) = read_sources([tmp_path / "diagnosis"]).diagnoses
    table = findings_table(name, read)
    assert table.title == "Diagnosis: diagnosis"
    assert table.lines[0].head.text == "label spread"
    assert [cell.text for cell in table.lines[0].cells][:3] == ["bad", "0.02 nats", "Labels hardly vary."]
    assert table.commands == ("airrep diagnose labels",)


def test_runs_are_listed_with_counts_tags_and_commands() -> None:
    made = ReportSource("run", made_evaluation(tags={"role": "tasks", "lm": "x"}, ceiling=0.9, queries=1500))
    (line,) = sources_table(Sources([made])).lines
    assert line.head.text == "run"
    assert [cell.text for cell in line.cells] == [
        "lds", "role=tasks, lm=x", "1,500", "0 to 1", "30", "90.0", "airrep evaluate --out runs/0",
    ]  # fmt: skip
