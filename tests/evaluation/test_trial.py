"""Trials: random rows like the named ones, effects against their definition, and verdicts in words."""

from dataclasses import astuple

import numpy as np
import pytest
from scipy import stats

from airrep.answers.proof import Effect, Effects
from airrep.corpus.corpus import Example
from airrep.evaluation.statistics.labels import Moved
from airrep.evaluation.trial import Matching, effects_of, sentence_of, verdict_of

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


def _others() -> list[Example]:
    return [Example("p", f"{n:04d} " + "x" * n, f"e{n}", source="web" if n % 2 else "book") for n in range(400)]


def test_draws_match_source_and_length() -> None:
    named = [Example("p", "y" * length, str(length), source="web") for length in (20, 100, 300)]
    matching = Matching(named, _others())
    assert matching.enough
    drawn = [matching.draw(np.random.default_rng(seed)) for seed in range(20)]
    for rows in drawn:
        assert len(set(rows.tolist())) == 3
        assert all(row % 2 for row in rows)
        assert all(abs(row - length) <= 50 for row, length in zip(rows, (15, 95, 295), strict=True))
    assert len({tuple(rows.tolist()) for rows in drawn}) > 10
    assert matching.overlap == 3 / 200


def test_a_source_that_other_draws_used_up_takes_any() -> None:
    others = [
        *(Example("p", f"{n}", f"e{n}") for n in range(40)),
        *(Example("p", f"r{n}", f"r{n}", source="r") for n in range(5)),
    ]
    named = [*(Example("p", f"n{n}", f"n{n}") for n in range(40)), Example("p", "rare", "rare", source="r")]
    assert len(set(Matching(named, others).draw(np.random.default_rng(0)).tolist())) == 41


def test_a_source_with_few_others_takes_any_and_texts_of_named_rows_are_passed_over() -> None:
    others = [*_others()[:20], *(Example("p", "same", f"s{n}", source="rare") for n in range(5))]
    matching = Matching([Example("p", "same", str(n), source="rare") for n in range(3)], others)
    assert all(matching.draw(np.random.default_rng(seed)).max() < 20 for seed in range(10))
    assert matching.overlap == 3 / 20
    assert not Matching([Example("p", f"r{n}", str(n)) for n in range(20)], others[:20]).enough
