"""Comparisons, diagnoses and the list of runs as tables."""

from pathlib import Path

from worlds.made_evaluations import made_evaluation

from airrep.evaluation.comparison import compare_evaluations
from airrep.evaluation.diagnosis.diagnosis import Diagnosis
from airrep.evaluation.diagnosis.findings import Finding
from airrep.reports.evaluation_tables import sources_table
from airrep.reports.other_tables import comparison_table, diagnosis_tables, plain_table
from airrep.reports.sources import ReportSource, Sources, read_sources


def test_a_comparison_is_a_line_for_each_pair(tmp_path: Path) -> None:
    made = compare_evaluations([("run", made_evaluation("classify"))], resamples=200, command="airrep compare run")
    made.write(tmp_path / "comparison")
    ((name, value),) = read_sources([tmp_path / "comparison"]).comparisons
    table = comparison_table(name, value)
    assert table.columns == ("First", "Second", "Difference", "p", "p, adjusted", "Ratio")
    first = made.pairs[0]
    assert (table.lines[0].head.text, table.lines[0].cells[0].text) == (first.one, first.other)
    assert table.lines[0].cells[1].text == f"{100 * first.difference:.1f}"
    assert len(table.lines) == 3
    assert table.lines[0].cells[1].mark == "▲"
    assert "draws" not in table.caption
    assert "200 bootstrap draws" in comparison_table(name, {**value, "measure": "lds"}).caption
    assert table.commands == ("airrep compare run",)


def test_differences_that_an_adjustment_undoes_have_no_mark() -> None:
    pair = {"one": "a", "other": "b", "difference": -0.1, "interval": [-0.2, -0.01], "p_value": 0.03}
    value = {"measure": "lds", "pairs": [{**pair, "adjusted": 0.09}, {**pair, "adjusted": 0.04}]}
    assert [line.cells[1].mark for line in comparison_table("", value).lines] == ["", "▼"]


def test_ratios_are_shown_with_their_intervals_where_there_are_some() -> None:
    pair = {"one": "a", "other": "b", "difference": 0.1, "interval": [0.0, 0.2], "p_value": 0.03, "adjusted": 0.09}
    value = {"measure": "lds", "pairs": [{**pair, "ratio": 1.5, "ratio_interval": [1.25, 1.75]}, pair]}
    shown, absent = (line.cells[4] for line in comparison_table("", value).lines)
    assert (shown.text, shown.under) == ("1.50", "[1.25, 1.75]")
    assert absent.text == "–"


def test_a_diagnosis_is_a_line_for_each_finding(tmp_path: Path) -> None:
    finding = Finding("label spread", "bad", "0.02 nats", "Labels hardly vary.", "label-spread")
    Diagnosis((finding,), command="airrep diagnose labels").write(tmp_path / "diagnosis")
    (table,) = diagnosis_tables(read_sources([tmp_path / "diagnosis"]))
    assert table.lines[0].head.text == "label spread"
    assert [cell.text for cell in table.lines[0].cells][:3] == ["bad", "0.02 nats", "Labels hardly vary."]
    assert table.commands == ("airrep diagnose labels",)


def test_a_diagnosis_among_the_facts_is_shown_whatever_its_form() -> None:
    facts = {"diagnosis": {"spread": 0.43, "halves": {"value": 0.8, "ok": True}, "of": ["a", "b"], "none": None}}
    (table,) = diagnosis_tables(Sources([ReportSource("run", made_evaluation(facts=facts, tags={"role": "tasks"}))]))
    shown = [(line.head.text, line.cells[0].text) for line in table.lines]
    assert table.title == "Diagnosis: tasks"
    assert shown == [("Spread", "0.43"), ("Halves.value", "0.8"), ("Halves.ok", "yes"), ("Of", "a, b"), ("None", "–")]
    assert [line.head.text for line in plain_table("", [{"a": 1}, {"a": 2}]).lines] == ["1.a", "2.a"]


def test_runs_are_listed_with_counts_tags_and_commands() -> None:
    made = ReportSource("run", made_evaluation(tags={"role": "tasks", "lm": "x"}, ceiling=0.9, queries=1500))
    (line,) = sources_table(Sources([made])).lines
    assert line.head.text == "run"
    assert [cell.text for cell in line.cells] == [
        "lds", "role=tasks, lm=x", "1,500", "0 to 1", "30", "90.0", "airrep evaluate lds --out runs/0",
    ]  # fmt: skip
