"""How plans are shown."""

import pytest

from airrep.cli.show.plan import crossover_words, print_plan
from airrep.planning.plan import Crossover, Plan, PredictionCheck


def found(examples: float | None, interval: tuple[float, float] | None, why: str = "") -> Crossover:
    return Crossover(method="logra", examples=examples, interval=interval, why=why)


def test_crossovers_are_sentences() -> None:
    assert crossover_words(found(12_000.4, (9000.0, 20_000.0))) == (
        "training the encoder pays from 12,000 examples on (9,000 to 20,000)"
    )
    assert crossover_words(found(500.0, None, "too few")).endswith("from 500 examples on (no interval: too few)")
    assert crossover_words(found(None, None, "it is slow")) == "training the encoder never pays by time: it is slow"
    assert crossover_words(found(0.0, (0.0, 0.0), "free")) == "the encoder is ahead from the first example: free"
    assert "first example (95 %: from at most 110 on): free" in crossover_words(found(0.0, (0.0, 110.2), "free"))
    assert "from 0 examples on (no interval: too few)" in crossover_words(found(0.0, None, "too few"))


def test_an_interval_that_is_not_known_is_left_blank(capsys: pytest.CaptureFixture[str]) -> None:
    """It was once printed as ``0 s to 0 s``."""
    check = PredictionCheck(what="an index", predicted_seconds=7.0, measured_seconds=8.0)
    facts = {"learning": dict.fromkeys(("subsets", "size", "held_out_subsets", "steps"), 1), "label_wall_seconds": 1.0}
    parts = {"labels": 1.0, "training": 1.0}
    method = {"name": "airrep", "fixed_seconds": 2.0, "seconds_per_example": 3.0, "interval": (2.5, 3.5)}
    print_plan(
        Plan.model_validate(
            {
                "measure": "plan",
                "corpus": 10,
                "lm_parameters": 5,
                "methods": [{**method, "fixed_parts": parts}],
                "crossovers": [],
                "last_real": [check],
                "facts": facts,
            }
        )
    )
    shown = capsys.readouterr().out
    assert "2.5 s to 3.5 s" in shown
    assert "0 s to 0 s" not in shown
