"""What evaluations show on the terminal."""

import pytest
from made_evaluations import made_evaluation

from airrep.evaluating_console import print_correlations


def test_seeds_that_are_alike_and_subsets_without_losses_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    facts = {"queries": 40, "subsets": 30, "instances": ["a"], "seeds": [2], "seeds_alike": [True]}
    print_correlations(made_evaluation(facts={**facts, "subsets_left_out": 2}))
    shown = " ".join(capsys.readouterr().out.split())
    assert "30 subsets of a; subsets left out, as they have no losses: 2; queries left out" in shown
    assert "; the seeds give the same losses, which tell nothing of noise, so no noise ceiling is known" in shown


@pytest.mark.parametrize(
    ("seeds", "ceiling", "said"),
    [
        ([1, 1], None, "; one seed, so no noise ceiling is known"),
        ([1, 2], None, "; no losses vary in two seeds yet, so no noise ceiling is known"),
        ([2, 2], 0.5, "; noise ceiling +50.0"),
    ],
)
def test_what_is_shown_beside_the_values_tells_why_no_ceiling_is_known(
    capsys: pytest.CaptureFixture[str], seeds: list[int], ceiling: float | None, said: str
) -> None:
    facts = {"queries": 40, "subsets": 30, "instances": ["a", "b"], "seeds": seeds}
    print_correlations(made_evaluation(facts=facts, ceiling=ceiling))
    shown = " ".join(capsys.readouterr().out.split())
    left_out = "queries left out, as scores or losses are constant or missing: logra 1"
    assert f"40 queries and 30 subsets of a, b; {left_out}{said}" in shown


def test_queries_that_come_twice_or_stand_in_the_train_pool_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    facts = {"queries": 40, "subsets": 30, "instances": ["a", "b"], "seeds": [1, 1], "queries_in_pool": 3}
    twice = {"distinct_queries": 25, "shared_queries": [[1.0, 0.75], [0.75, 1.0]]}
    print_correlations(made_evaluation(facts={**facts, **twice}))
    shown = " ".join(capsys.readouterr().out.split())
    assert "40 queries (25 different ones) and 30 subsets of a, b; " in shown
    assert "; queries that are in their train pool: 3, which helps whoever finds equal texts; " in shown


@pytest.mark.parametrize(("queries", "different", "told"), [(9, 9, True), (10, 10, False), (10, 9, True)])
def test_few_queries_are_told(capsys: pytest.CaptureFixture[str], queries: int, different: int, told: bool) -> None:
    facts = {"queries": queries, "subsets": 30, "instances": ["a"], "seeds": [1], "distinct_queries": different}
    print_correlations(made_evaluation(facts=facts))
    shown = " ".join(capsys.readouterr().out.split())
    assert ("so few queries say little about others" in shown) == told
