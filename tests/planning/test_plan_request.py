"""What can be planned, and what the benchmarks measure on tiny models."""

from pathlib import Path
from typing import Any

import pytest
from worlds.small_world import TEXTS
from worlds.tiny_bert import tiny_folder
from worlds.tiny_lms import tiny_lm

from airrep.attributors.recipes import default_channels
from airrep.errors import ConfigError
from airrep.planning.plan_request import ENCODER, PlanRequest, run_benchmarks
from airrep.planning.predict import make_plan
from airrep.planning.trial_method import MethodTask, try_method
from airrep.runtime.engine import InProcess


def _wish(lm: str = "small", settings: dict[str, Any] | None = None, layers: str = "1", **more: Any) -> PlanRequest:
    return PlanRequest.of(TEXTS, 400, lm, settings or {}, layers, **more)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"subsets": 0}, "plan: subsets is 0; expected 1 or more"),
        ({"workers": 0}, "plan: workers is 0"),
        ({"seconds": 0.5}, "plan: seconds is 0.5; expected 1 or more"),
        ({"seconds": float("nan")}, "plan: seconds is nan"),
        ({"methods": ("nothing",)}, "method 'nothing': does not exist"),
        ({"methods": ("datamodels",)}, "plan: method 'datamodels' is not planned for"),
        ({"methods": ("airrep",)}, "plan: method 'airrep' is not planned for"),
        ({"settings": {"rnk": 8}}, "plan: none of the methods has a setting 'rnk'"),
        ({"settings": {"epochs": 0}}, "epochs=0"),
        ({"layers": "some"}, "plan: train_layers is 'some'; expected all, or a number"),
    ],
)
def test_nonsense_is_refused_before_any_work(more: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        _wish(**more)


def test_settings_go_where_they_belong() -> None:
    wish = _wish(settings={"rank": 4, "epochs": 3, "max_tokens": 32}, methods=("logra", "tfidf"))
    assert wish.tuning.epochs == 3
    assert wish.settings_of("logra") == {"lm": "small", "max_tokens": 32, "rank": 4}
    assert wish.settings_of("tfidf") == {}


def test_learning_is_split_as_adapt_does_and_pools_hold_a_subset() -> None:
    plan = _wish(subsets=900, size=30).learning
    assert (plan.subsets, plan.held_out_subsets, plan.pool, plan.held_out_pool) == (900, 100, 240, 80)
    assert _wish(size=1000).learning.pool == 1000


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("models")
    return str(tiny_folder(folder / "encoder", ((16, 16, True),))), tiny_lm(folder / "lm")


def test_every_benchmark_runs_on_tiny_models_and_makes_a_plan(models: tuple[str, str]) -> None:
    encoder, lm = models
    told: list[str] = []
    settings = {"rank": 2, "sample": 50}
    wish = _wish(lm, settings, encoder=encoder, methods=("logra", "dsdm"), seconds=1.0, size=16, queries=8)
    measures = run_benchmarks(wish, told.append, InProcess())
    assert len(told) == 5
    assert measures.parameters > 1000
    for name in (ENCODER, "logra", "dsdm"):
        trial = measures.methods[name]
        assert len(trial.lengths) == 400
        assert len(trial.repeats.seconds) >= 3
        assert all(seconds > 0 for seconds in trial.repeats.seconds)
    logra = measures.methods["logra"]
    width = 14 * 4  # linear maps by rank²
    assert logra.sample == 50
    assert abs(logra.bytes_per_example - (3 * width + 12)) < 8  # a header is not an example's, however few were tried
    assert logra.store_bytes_per_example > 4 * (width + 1)
    assert measures.training.layers == 2
    made = make_plan(wish, measures)
    assert {method.name for method in made.methods} == {ENCODER, "logra", "dsdm"}
    assert {found.method for found in made.crossovers} == {"logra", "dsdm"}
    assert made.methods[0].fixed_seconds > 0


def test_what_cannot_be_measured_is_found_before_anything_is() -> None:
    told: list[str] = []
    with pytest.raises(ConfigError, match="lm nowhere: there is no such folder"):
        run_benchmarks(_wish("nowhere"), told.append, InProcess())
    assert told == []


def test_too_few_examples_are_found_before_anything_is_measured(models: tuple[str, str]) -> None:
    told: list[str] = []
    wish = PlanRequest.of(TEXTS.take(range(20)), 400, models[1], {}, "1")
    with pytest.raises(ConfigError, match="plan: 20 examples are too few to measure on; expected 64 or more"):
        run_benchmarks(wish, told.append, InProcess())
    assert told == []


def test_the_sample_is_drawn_at_random(models: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airrep.planning.plan_request.SAMPLE", 100)
    taken: list[list[str]] = []

    class Looking(InProcess):
        def run(self, setup: Any, tasks: Any, retries: int = 1) -> Any:
            taken.append([example.id for example in tasks[0].examples])
            raise KeyboardInterrupt

    for seed in (0, 0, 1):
        with pytest.raises(KeyboardInterrupt):
            run_benchmarks(_wish(models[1], seed=seed), lambda text: None, Looking())
    assert taken[0] == taken[1]
    assert set(taken[0]) != set(taken[2])
    assert taken[0] != [f"e{number}" for number in range(100)]


def test_channels_are_tried_anew_each_time(
    models: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their gradients are not taken from the user's store, in which a second plan would find them, nor put there."""
    monkeypatch.setenv("AIRREP_CACHE", str(tmp_path))
    encoder, lm = models
    recipe = default_channels(lm)
    own = [
        one.model_copy(update={"settings": {"encoder": encoder}}) if one.method == "airrep" else one for one in recipe
    ]
    task = MethodTask("channels", {"lm": lm, "channels": [one.model_dump() for one in own]}, TEXTS, 1.0)
    for _ in range(2):
        trial = try_method(task)
        assert all(seconds > 0 for seconds in trial.repeats.seconds)
        assert trial.store_bytes_per_example > 1000
        assert trial.parameters is not None, "they read an LM"
    assert not [*tmp_path.rglob("*.safetensors")]
