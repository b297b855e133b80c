"""Runs of one subject, as one."""

import dataclasses

import numpy as np
import pytest
from worlds.made_evaluations import WORLDS, evaluation, over_queries

from airrep.errors import ConfigError
from airrep.evaluation.comparison import compare_evaluations
from airrep.evaluation.result import Evaluation
from airrep.reports.evaluations import evaluation_page
from airrep.reports.sources import join_evaluations


def tagged(run: Evaluation, **fields: object) -> Evaluation:
    return dataclasses.replace(run, **{"tags": {"role": "tasks"}, **fields})


ONE = tagged(evaluation(WORLDS, ["bad", "good"]), command="airrep one")
OTHER = tagged(evaluation(WORLDS, ["middling"]), command="airrep other")


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
    assert join_evaluations(runs) == runs


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
