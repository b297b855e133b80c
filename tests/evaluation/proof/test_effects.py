"""Effects: intervals against their definition, and how often a random set is said to teach."""

from dataclasses import astuple

import numpy as np
import pytest
from scipy import stats

from airrep.answers.proof import Effect, Effects
from airrep.evaluation.proof.effects import effects_of, sentence_of, verdict_of
from airrep.evaluation.statistics.labels import Moved

MOVED, HARDLY = Moved(3.958, 3.0, 0.958), Moved(3.958, 3.937, 0.021)


def test_effects_are_means_with_intervals() -> None:
    losses = np.array([[1.0, 1.5, 1.1], [1.2, 1.6, 1.1], [0.9, 1.6, 1.2]])
    found = effects_of(losses, overlap=0.5)
    named = losses[:, 1] - losses[:, 0]
    low, high = stats.t.interval(0.95, 2, named.mean(), named.std(ddof=1) / np.sqrt(3))
    assert astuple(found.without_named) == pytest.approx((named.mean(), low, high))
    gap = losses[:, 1] - losses[:, 2]
    half = stats.t.ppf(0.975, 2) * gap.std(ddof=1) * np.sqrt((1 + 1 / 3) / 0.5)
    assert astuple(found.difference) == pytest.approx((gap.mean(), gap.mean() - half, gap.mean() + half))


@pytest.mark.parametrize(("of_set", "of_run"), [(1.0, 0.1), (0.3, 1.0)])
def test_a_random_set_in_place_of_the_named_one_is_rarely_said_to_teach(of_set: float, of_run: float) -> None:
    """Its own effect is the same in all repeats, however many there are."""
    generator, wrong, planted = np.random.default_rng(0), 0, 0
    for _ in range(400):
        own = generator.normal(0, of_set)
        named = own + generator.normal(0, of_run, 6)
        random = generator.normal(0, of_set, 6) + generator.normal(0, of_run, 6)
        losses = np.stack([np.zeros(6), named, random], axis=1)
        wrong += verdict_of(effects_of(losses, 0.0), MOVED) in ("taught", "held back")
        planted += verdict_of(effects_of(losses + np.array([0, 8, 0]), 0.0), MOVED) == "taught"
    assert wrong / 400 <= 0.06
    assert planted / 400 >= 0.9


def test_verdicts_in_words() -> None:
    more, none = Effect(0.41, 0.3, 0.52), Effect(-0.02, -0.09, 0.05)
    taught = Effects(more, none, Effect(0.43, 0.2, 0.6))
    assert verdict_of(taught, MOVED) == "taught"
    assert sentence_of("taught", taught, None, 10, 1, MOVED) == (
        "Without these 10 rows the answer's loss rises by 0.41 (0.30 to 0.52); without 10 random rows it falls by 0.02 "
        "(-0.05 to 0.09): these rows taught it."
    )
    alike = Effects(none, none, none)
    assert verdict_of(alike, MOVED) == "not shown"
    assert verdict_of(alike, HARDLY) == "not moved"
    assert verdict_of(taught, HARDLY) == "taught"
    told = sentence_of("not moved", alike, None, 1, 3, HARDLY)
    assert "the loss of the 3 answers" in told
    assert "hardly moved the loss at all (3.96 before, 3.94 after)" in told
