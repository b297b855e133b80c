"""What evaluations show on the terminal."""

import pytest
from worlds.made_evaluations import made_evaluation

from airrep.cli.show.evaluations import print_classification, print_comparison, print_correlations
from airrep.evaluation.comparison import ComparedPair, ComparedRow, Comparison
from airrep.reports.evaluation_tables import value_table
from airrep.reports.sources import ReportSource, label_panels


def test_seeds_that_are_alike_and_subsets_without_losses_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    facts = {"queries": 40, "subsets": 30, "instances": ["a"], "seeds": [2], "seeds_alike": [True]}
    print_correlations(made_evaluation(facts={**facts, "subsets_left_out": 2, "losses_missing": 1234}))
    shown = " ".join(capsys.readouterr().out.split())
    assert "30 subsets of a; subsets left out, because they have no losses: 2; missing losses, left out" in shown
    assert "left out one by one: 1,234; queries left out" in shown
    assert "; the noise ceiling is unknown, because all seeds give the same losses" in shown


@pytest.mark.parametrize(
    ("seeds", "ceiling", "said"),
    [
        ([1, 1], None, "; the noise ceiling is unknown, because there is only one seed"),
        ([1, 2], None, "; the noise ceiling is unknown, because no losses vary in two seeds yet"),
        ([2, 2], 0.5, "; noise ceiling 50.0"),
    ],
)
def test_what_is_shown_beside_the_values_tells_why_no_ceiling_is_known(
    capsys: pytest.CaptureFixture[str], seeds: list[int], ceiling: float | None, said: str
) -> None:
    facts = {"queries": 40, "subsets": 30, "instances": ["a", "b"], "seeds": seeds}
    print_correlations(made_evaluation(facts=facts, ceiling=ceiling))
    shown = " ".join(capsys.readouterr().out.split())
    left_out = "queries left out, because scores or losses are constant or missing: logra 1"
    assert f"40 queries and 30 subsets of a, b; {left_out}{said}" in shown


def test_queries_that_come_twice_or_stand_in_the_train_pool_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    facts = {"queries": 40, "subsets": 30, "instances": ["a", "b"], "seeds": [1, 1], "queries_in_pool": 3}
    twice = {"distinct_queries": 25, "shared_queries": [[1.0, 0.75], [0.75, 1.0]]}
    print_correlations(made_evaluation(facts={**facts, **twice}))
    shown = " ".join(capsys.readouterr().out.split())
    assert "40 queries (25 different) and 30 subsets of a, b; " in shown
    assert "; queries that are training examples too: 3, which favours methods that find equal texts; " in shown


def test_pages_tell_queries_that_come_twice() -> None:
    for different, told in ((25, " 40 queries, 25 of them different; "), (40, " 40 queries; ")):
        made = made_evaluation("classify", queries=40, facts={"distinct_queries": different})
        assert told in value_table("", label_panels([ReportSource("a", made)])).caption


@pytest.mark.parametrize(("queries", "different", "told"), [(9, 9, True), (10, 10, False), (10, 9, True)])
def test_few_queries_are_told(capsys: pytest.CaptureFixture[str], queries: int, different: int, told: bool) -> None:
    facts = {"queries": queries, "subsets": 30, "instances": ["a"], "seeds": [1], "distinct_queries": different}
    made = made_evaluation(facts=facts, queries=queries)
    print_correlations(made)
    shown = " ".join(capsys.readouterr().out.split())
    assert ("with so few queries" in shown) == told
    assert ("with so few queries" in value_table("", label_panels([ReportSource("a", made)])).caption) == told


def test_few_queries_are_told_in_every_other_way_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    facts = {
        "votes": [], "chance": 0.1, "commonest": {"label": "a", "accuracy": 0.5}, "labels": ["a", "b"], "by": "label",
    }  # fmt: skip
    counts = {"examples": 9, "queries_among_the_examples": 0, "queries_without_examples_of_their_label": 0}
    more = {"macro": {"value": 0.5}}
    few = made_evaluation("classify", queries=5, more=more, facts={**facts, **counts, "unlabelled_examples": 0})
    print_classification(few)
    rows = (
        ComparedRow("a", "r", "gte", None, None, 0.5, (0.4, 0.6), 0),
        ComparedRow("b", "r", "gte", None, None, 0.4, (0.3, 0.5), 0),
    )
    pair = ComparedPair("a", "b", 0.1, (0.0, 0.2), 0.04, 0.04)
    print_comparison(Comparison("classify", "0" * 64, rows, (pair,), None, 0, queries=5))
    print_comparison(Comparison("classify", "0" * 64, rows, (pair,), None, 0))
    assert " ".join(capsys.readouterr().out.split()).count("with so few queries") == 2
