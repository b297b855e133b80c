"""Pooling the scores of one group."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from reference import pooling as reference

from airrep.errors import ConfigError, DataError
from airrep.scoring.blocks import Block
from airrep.scoring.groups import Groups
from airrep.scoring.pooling import Pooling, pool_scores
from airrep.scoring.products import ask

POOLS = ("sum", "mean", "attention", "signed-attention")
scores_of_a_group = arrays(
    np.float32, array_shapes(min_dims=2, max_dims=2, max_side=9), elements=st.floats(-200, 200, width=32)
)


@settings(deadline=None)
@given(scores_of_a_group, st.sampled_from(POOLS))
def test_one_member_is_its_own_pool(scores: np.ndarray, pool: str) -> None:
    for part in (scores, scores[:0]):  # without queries too
        np.testing.assert_array_equal(pool_scores(part[:, :1], pool), part[:, 0])


@settings(deadline=None)
@given(scores_of_a_group, st.sampled_from(POOLS[:3]))
def test_turning_all_signs_turns_the_result(scores: np.ndarray, pool: str) -> None:
    np.testing.assert_array_equal(pool_scores(-scores, pool), -pool_scores(scores, pool))


@settings(max_examples=200, deadline=None)
@given(scores_of_a_group, st.sampled_from(POOLS), st.floats(0.05, 20))
def test_a_pool_is_its_definition(scores: np.ndarray, pool: str, temperature: float) -> None:
    how = {"temperature": temperature} if pool.endswith("attention") else {}
    plain = getattr(reference, f"pool_{pool.replace('-', '_')}")
    found = pool_scores(scores, pool, **how)
    np.testing.assert_allclose(found, [plain(row.tolist(), **how) for row in scores], rtol=1e-6, atol=1e-5)


def test_attention_that_is_signed_passes_over_members_far_below_nought() -> None:
    """At T = 1, by hand: exp(1) against exp(-9), where the size of scores would give exp(1) against exp(9)."""
    scores = np.array([[-9.0, 1.0]], dtype=np.float32)
    light, heavy = np.exp(-9.0), np.exp(1.0)
    np.testing.assert_allclose(
        pool_scores(scores, "signed-attention"), [(heavy - 9 * light) / (heavy + light)], rtol=1e-6
    )
    assert pool_scores(scores, "attention") < -8.9
    np.testing.assert_array_equal(
        pool_scores(np.abs(scores), "signed-attention"), pool_scores(np.abs(scores), "attention")
    )


@pytest.mark.parametrize(
    ("text", "pooling"),
    [
        ("sum", Pooling("sum")), ("mean", Pooling("mean")), ("attention", Pooling("attention")),
        ("signed-attention", Pooling("signed-attention")), ("order-1", Pooling("order", 1)),
        ("order-12", Pooling("order", 12)), ("order-inf", Pooling("order")),
        ("order-2-paper", Pooling("order", 2, constants="paper")),
    ],
)  # fmt: skip
def test_texts_of_pools_are_read_and_written_alike(text: str, pooling: Pooling) -> None:
    assert Pooling.parse(text) == pooling
    assert Pooling.parse(pooling) == pooling
    assert (pooling.text, str(pooling)) == (text, text)


def test_a_pool_tells_its_temperature() -> None:
    cold = Pooling.parse("attention", 0.2)
    assert (cold.text, cold.temperature, str(cold)) == ("attention", 0.2, "attention at temperature 0.2")
    assert Pooling.parse(cold) == cold
    assert Pooling.parse(cold, 3.0).temperature == 3.0


@pytest.mark.parametrize("text", ["top-3", "top-x", "power-2"])
def test_a_dropped_pool_says_what_to_type(text: str) -> None:
    with pytest.raises(ConfigError, match=f"^--pool {text}: was removed. Use attention .*--pool attention:0.2"):
        Pooling.parse(text, where=f"--pool {text}")


@pytest.mark.parametrize(
    "text",
    [
        *("", "order", "order-", "order-0", "order--1", "order-1.5", "order-\u0663", "order-5 ", "order-x", "Sum"),
        *("order-inf-paper", "order-1234567890", "order-3-paper", "order-2\n"),
    ],
)
def test_bad_texts_of_pools_are_refused_in_one_line(text: str) -> None:
    told = "does not exist; expected one of|only in order-1-paper and order-2-paper"
    with pytest.raises(ConfigError, match=told) as caught:
        Pooling.parse(text)
    assert f"pool {text!r}" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"kind": "max"},
            "pool 'max' .*: does not exist. Choose sum, mean, diminishing, attention, signed-attention, ngram-lm",
        ),
        ({"kind": "sum", "k": 3}, "pool 'sum' .*: does not exist"),
        ({"kind": "order", "k": 0}, "pool 'order-0' .* at least 1"),
        (
            {"kind": "order", "k": 2, "constants": "other"},
            "pool 'order-2-other' .*only in order-1-paper and order-2-paper",
        ),
        ({"kind": "order", "constants": "paper"}, "pool 'order-inf-paper' .*only in order-1-paper and order-2-paper"),
        ({"kind": "order", "k": 2, "temperature": 2.0}, "temperature 2.0: pool order-2 .* has no temperature"),
        ({"kind": "mean", "temperature": 0.2}, "temperature 0.2: pool mean .* has no temperature"),
        ({"kind": "attention", "temperature": 0.0}, "temperature is 0.0"),
        ({"kind": "attention", "temperature": np.nan}, "temperature is nan"),
    ],
)
def test_parts_that_do_not_fit_together_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Pooling(**arguments)


def test_no_temperature_is_too_cold_for_the_exponent() -> None:
    scores = np.array([[3e38, -1.0, 2.0], [-3e38, 3e37, 0.0]], dtype=np.float32)
    np.testing.assert_array_equal(pool_scores(scores, "attention", 1e-3), scores[:, 0])


@pytest.mark.parametrize(
    ("scores", "pool", "temperature", "error", "message"),
    [
        (np.ones((2, 0), np.float32), "sum", 1.0, DataError, r"\(2, 0\); .*at least one member"),
        (np.ones(3, np.float32), "sum", 1.0, DataError, r"\(3,\); it must be \(queries, members\)"),
        (np.array([[1.0, np.nan]]), "attention", 1.0, DataError, "not finite"),
        (np.ones((1, 1)), "order-2", 1.0, ConfigError, "pool 'order-2': .* needs the features"),
    ],
)
def test_bad_input(scores: np.ndarray, pool: str, temperature: float, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        pool_scores(scores, pool, temperature)


@pytest.mark.parametrize("score", ["one group", "streamed", "exact"])
def test_a_pool_without_a_definition_is_not_taken_for_another(score: str) -> None:
    median = Pooling("sum")
    object.__setattr__(median, "kind", "median")  # as code looks that knows its name and nothing else
    members = np.array([[1], [2], [9]], np.float32)
    with pytest.raises(NotImplementedError, match="median"):
        if score == "one group":
            pool_scores(members.T, median)
        else:
            asked = ask(np.ones((1, 1), np.float32), [Block(0, members)])
            asked.groups(Groups.from_lists({"all": [0, 1, 2]}), median, exact=score == "exact")
