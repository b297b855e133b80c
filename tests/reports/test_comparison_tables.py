"""Comparisons, diagnoses and the list of runs as tables."""

import dataclasses
from pathlib import Path

from worlds.made_evaluations import made_evaluation

from airrep.evaluation.comparison import ComparedPair, Comparison, compare_evaluations
from airrep.evaluation.diagnosis.diagnosis import Diagnosis
from airrep.evaluation.diagnosis.of_labels import Finding
from airrep.reports.evaluation_tables import comparison_tables, findings_table, sources_table
from airrep.reports.sources import ReportSource, Sources, read_sources


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
        "lds", "role=tasks, lm=x", "1,500", "0 to 1", "30", "90.0", "airrep evaluate lds --out runs/0",
    ]  # fmt: skip
