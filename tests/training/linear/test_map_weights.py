"""Weights of groups of linear maps, learnt in worlds where one group alone knows the truth."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds.small_world import make_corpus
from worlds.tiny_lms import tiny_lm

from airrep.attributors.methods import make_attributor
from airrep.attributors.recipes import Channel
from airrep.labels.instance import LabelledInstance
from airrep.scoring.groups import Groups
from airrep.training.linear.map_weights import learn_map_weights
from airrep.training.linear.stack import learn_stack

GROUPS = {"*attn*": 1.0, "*gate*": 1.0, "*up*": 1.0, "*down*": 1.0}


@pytest.fixture(scope="module")
def lm(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny_lm(tmp_path_factory.mktemp("lm"))


def settings(lm: str, weights: Any = GROUPS, **more: Any) -> dict[str, Any]:
    own = {"lm": lm, "precision": "float32", "store": "none", "rank": 4, "modules": ["all-linear"]}
    return {**own, "map_weights": weights, **more}


def planted(method: Any, seed: int, name: str, knows: str | None, subsets: int = 24) -> LabelledInstance:
    """An instance whose −losses are the summed scores of one group of linear maps; of None: noise."""
    generator = np.random.default_rng(seed)
    train, queries = make_corpus(30, f"{name}-t"), make_corpus(10, f"{name}-q")
    method.fit(train)
    members = {str(j): generator.choice(30, 8, replace=False) for j in range(subsets)}
    rewards = generator.standard_normal((10, subsets))
    if knows is not None:
        ((_, found),) = method.scores_by_group(train, queries, method.map_groups)
        own = found[list(method.map_groups).index(knows)]
        true = np.stack([own[rows].sum(axis=0) for rows in members.values()], axis=1)
        rewards = 0.2 * rewards + (true - true.mean(1, keepdims=True)) / true.std(1, keepdims=True)
    losses = (3 - 0.1 * rewards).astype(np.float32)
    return LabelledInstance(name, train, queries, Groups.from_lists(members), losses)


@pytest.mark.parametrize("knows", ["*gate*", "*down*"])
def test_the_group_that_knows_is_found(lm: str, knows: str) -> None:
    method = make_attributor("logra", settings(lm))
    found = learn_map_weights(method, [planted(method, 0, "a", knows)])
    assert found is not None
    assert list(found) == list(GROUPS)
    assert np.mean(list(found.values())) == pytest.approx(1, abs=1e-3)
    assert found[knows] > 3 * max(weight for name, weight in found.items() if name != knows)


def test_maps_that_are_not_named_are_a_group(lm: str) -> None:
    method = make_attributor("ekfac", {"lm": lm, "precision": "float32", "store": "none", "map_weights": {"*up*": 1.0}})
    found = learn_map_weights(method, [planted(method, 0, "a", "*up*")])
    assert found is not None
    assert list(found) == ["*up*", "*"]
    assert found["*up*"] > 3 * found["*"]


def test_noise_few_subsets_and_one_group_leave_weights_equal(lm: str) -> None:
    method = make_attributor("logra", settings(lm))
    assert learn_map_weights(method, [planted(method, 0, "a", "*gate*", subsets=9)]) is None
    one = make_attributor("logra", settings(lm, {"*": 1.0}))
    assert learn_map_weights(one, [planted(one, 0, "a", "*")]) is None
    noise = [learn_map_weights(method, [planted(method, seed, "a", None)]) for seed in range(4)]
    assert sum(found is None for found in noise) >= 2, "held-out subsets tell noise"


def test_a_stack_learns_them_and_says_what_they_gain(lm: str, tmp_path: Path) -> None:
    method = make_attributor("logra", settings(lm, "kinds"))
    pattern = next(name for name in method.map_groups if name.endswith("down_proj"))
    learn, held_out = planted(method, 0, "a", pattern), planted(method, 1, "b", pattern)
    channel = Channel(method="logra", settings=settings(lm, "kinds"), pool="sum", name="gradients")
    stack = learn_stack([channel], [learn], [held_out], tmp_path / "stack", resamples=40)
    weights = stack.channels[0].settings["map_weights"]
    assert len(weights) == 7
    assert max(weights, key=weights.get) == pattern
    assert stack.report["map_weights"] == {"gradients": weights}
    (equal,) = [row for row in stack.report["rows"] if row["name"] == "gradients, equal map_weights"]
    assert equal["sum_minus_it"]["interval"][0] > 0
    again = learn_stack([channel], [learn], [held_out], tmp_path / "stack", resamples=40)
    assert again.channels == stack.channels
    made = make_attributor("channels", {"channels": str(tmp_path / "stack")})
    assert made.channels[0].settings["map_weights"] == weights
