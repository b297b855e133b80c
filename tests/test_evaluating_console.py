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
    assert (
        f"40 queries and 30 subsets of a, b; queries left out, as scores or losses are constant: logra 1{said}" in shown
    )
