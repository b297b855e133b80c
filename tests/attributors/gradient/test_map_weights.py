"""Weights of linear maps: the sum that they make, what they leave alone, indexes asked with others, errors."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds.small_world import make_corpus
from worlds.tiny_lms import tiny_lm

import airrep
from airrep.attributors.direct import encode_both
from airrep.attributors.methods import make_attributor
from airrep.errors import ConfigError
from airrep.index.building import build_index
from airrep.index.index import Index

TRAIN, QUERIES = make_corpus(10), make_corpus(3, "q")
WEIGHTS = {"*q_proj": 0.0, "*attn.[kv]*": 0.5, "*mlp.up*": 3.0}
METHODS: dict[str, dict[str, Any]] = {
    "tracin": {"rank": 3, "modules": ["all-linear"]},
    "logra": {"rank": 3, "modules": ["all-linear"]},
    "ekfac": {},
    "ekfac of unit length": {"unit": True},
    "ekfac with factors": {"rank": 2},
    "ekfac with factors of unit length": {"rank": 2, "unit": True},
    "ekfac with factors of queries": {"query_rank": 3},
}


@pytest.fixture(scope="module")
def lm(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny_lm(tmp_path_factory.mktemp("lm"), max_position_embeddings=4096)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRREP_CACHE", str(tmp_path / "cache"))


def fitted(name: str, lm: str, **more: Any) -> Any:
    method = make_attributor(name.split()[0], {"lm": lm, "precision": "float32", **METHODS[name], **more})
    method.fit(TRAIN)
    return method


def scores(method: Any) -> np.ndarray:
    train, queries = encode_both(method, TRAIN, QUERIES)
    found = queries @ train.T
    return found if isinstance(found, np.ndarray) else found.toarray()


def by_group(method: Any) -> dict[str, np.ndarray]:
    parts = [one for _, one in method.scores_by_group(TRAIN, QUERIES, method.map_groups)]
    return dict(zip(method.map_groups, np.concatenate(parts, axis=2).transpose(0, 2, 1), strict=True))


@pytest.mark.parametrize("name", METHODS)
def test_a_score_is_the_weighted_sum_of_its_groups(name: str, lm: str) -> None:
    plain, weighed = fitted(name, lm), fitted(name, lm, map_weights=WEIGHTS)
    found = by_group(weighed)
    assert list(found) == [*WEIGHTS, "*"]
    size = np.abs(scores(plain)).max()
    np.testing.assert_allclose(sum(found.values()), scores(plain), atol=1e-4 * size)
    expected = sum({**WEIGHTS, "*": 1.0}[pattern] * part for pattern, part in found.items())
    np.testing.assert_allclose(scores(weighed), expected, atol=1e-4 * size)
    np.testing.assert_allclose(scores(plain.with_map_weights(WEIGHTS)), scores(weighed), atol=1e-4 * size)
    assert np.abs(scores(plain) - scores(weighed)).max() > 0.01 * size


@pytest.mark.parametrize("name", ["tracin", "logra"])
def test_training_features_do_not_depend_on_weights(name: str, lm: str) -> None:
    plain, weighed, groups = (fitted(name, lm, map_weights=each) for each in (None, WEIGHTS, "maps"))
    np.testing.assert_array_equal(plain.encode_train(TRAIN), weighed.encode_train(TRAIN))
    assert plain.fingerprint == groups.fingerprint != weighed.fingerprint, "groups alone weigh 1"
    assert plain.symmetric
    assert groups.symmetric
    assert not weighed.symmetric
    with pytest.raises(ConfigError, match="needs a method that encodes queries as training examples"):
        weighed.pooling("order-2")


def test_settings_of_before_are_written_as_before(lm: str) -> None:
    for name in METHODS:
        assert "map_weights" not in fitted(name, lm).settings.model_dump()


@pytest.mark.parametrize("name", ["logra", "ekfac", "ekfac with factors"])
def test_weighing_methods_conform(name: str, lm: str) -> None:
    settings = {"lm": lm, "precision": "float32", **METHODS[name], "map_weights": WEIGHTS}
    airrep.check_attributor(lambda: make_attributor(name.split()[0], settings))


def test_groups_have_names(lm: str) -> None:
    def groups(grouping: str) -> list[str]:
        return list(fitted("tracin", lm, map_weights=grouping).map_groups)

    assert groups("layers") == ["model.layers.0.*", "model.layers.1.*"]
    kinds = groups("kinds")
    assert len(kinds) == 7
    assert kinds[0] == "model.layers.*.self_attn.q_proj"
    assert len(groups("maps")) == 14
    assert all(len(own) == 2 for own in fitted("tracin", lm, map_weights="kinds").map_groups.values())


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (
            {"*.nothing": 1.0},
            r"map_weights: '\*\.nothing' fits no linear map whose gradients are taken; they are model",
        ),
        ({"*mlp*": 1.0, "*mlp.up*": 2.0}, r"'\*mlp\*' and '\*mlp\.up\*' both fit model\.layers\.0\.mlp\.up_proj"),
        ({"*model*": 1.0, "*": 2.0}, r"'\*' fits no other linear map"),
        ({"*": 0.0}, "map_weights are 0 for all linear maps; expected one above 0. Raise one."),
        ({"*mlp*": -1.0}, "greater than or equal to 0"),
        ({"*mlp*": float("nan")}, "map_weights"),
        ({"*mlp*": float("inf")}, "map_weights"),
        ({}, "names no linear maps"),
        ("all", "map_weights"),
    ],
)
@pytest.mark.parametrize("name", ["tracin", "ekfac"])
def test_impossible_weights_are_told(name: str, weights: Any, message: str, lm: str) -> None:
    with pytest.raises(ConfigError, match=message) as told:
        fitted(name, lm, map_weights=weights)
    assert "\n" not in str(told.value)


def channels(lm: str, weights: Any, method: str = "logra") -> list[dict[str, Any]]:
    own = {"lm": lm, "precision": "float32", **METHODS[method], **({} if weights is None else {"map_weights": weights})}
    gradients = {"method": method.split()[0], "settings": own, "pool": "sum", "relative": True, "name": "gradients"}
    return [{"method": "ngram"}, gradients]


@pytest.mark.parametrize("method", ["logra", "ekfac", "ekfac with factors"])
def test_an_index_of_channels_is_asked_with_other_weights(method: str, lm: str, tmp_path: Path) -> None:
    def made(name: str, weights: Any) -> Index:
        settings = {"channels": channels(lm, weights, method)}
        return build_index(TRAIN, tmp_path / name, "channels", settings=settings)

    index = made("plain", None)
    before = index.group_scores(QUERIES, "label").scores
    wanted = made("weighed", WEIGHTS).group_scores(QUERIES, "label").scores
    asked = Index(index.path, make_attributor("channels", {"channels": channels(lm, WEIGHTS, method)}))
    np.testing.assert_allclose(asked.group_scores(QUERIES, "label").scores, wanted, rtol=1e-3, atol=1e-4)
    assert np.abs(before - wanted).max() > 1e-2
    back = Index(tmp_path / "weighed", make_attributor("channels", {"channels": channels(lm, None, method)}))
    np.testing.assert_allclose(back.group_scores(QUERIES, "label").scores, before, rtol=1e-3, atol=1e-4)
    wrong = make_attributor("channels", {"channels": channels(lm, {"*.nothing": 1.0}, method)})
    with pytest.raises(ConfigError, match="fits no linear map"):
        Index(index.path, wrong).group_scores(QUERIES, "label")


def test_the_default_channels_take_weights_for_their_gradients(lm: str) -> None:
    made = make_attributor("channels", {"lm": lm, "map_weights": {"*mlp*": 2.0}})
    assert made.channels[-1].settings["map_weights"] == {"*mlp*": 2.0}
    assert "map_weights" not in made.settings.model_dump(), "the channels say it"
    with pytest.raises(ConfigError, match="map_weights: are those of the LM in the default channels"):
        make_attributor("channels", {"map_weights": "maps"})
