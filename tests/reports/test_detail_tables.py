"""Votes, tasks and curves as tables."""

from worlds.made_evaluations import made_evaluation

from airrep.reports.evaluation_tables import MOST_PARTS, curve_table, extras_table, parts_table
from airrep.reports.sources import ReportSource, Sources

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
    assert table.columns == ("Method", "Accuracy", "Macro", "Vote@5", "Empty answers")
    assert [(cell.text, cell.under) for cell in table.lines[1].cells] == [
        ("33.0", "[29.0, 37.0]"),
        ("31.0", "[28.0, 35.0]"),
        ("40.0", "[38.0, 45.0]"),
        ("2.0", ""),
    ]
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
