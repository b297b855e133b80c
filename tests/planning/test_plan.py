"""The arithmetic of plans, against numbers computed by hand and by simulation."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from worlds.made_evaluations import PLAN, write_artifact

from airrep.errors import ArtifactError, DataError
from airrep.planning.plan import (
    Crossover,
    MethodPlan,
    Plan,
    Predicted,
    PredictionCheck,
    crossover,
    line,
    mean_of,
    rate,
    read_plan,
)
from airrep.runtime.artifacts.checks import check_digests
from airrep.runtime.artifacts.making import new_artifact
from airrep.runtime.artifacts.manifests import read_manifest
from airrep.runtime.publishing.files import write_file


def test_a_rate_is_all_seconds_over_all_tokens() -> None:
    found = rate([1.0, 2.0, 3.0], [10.0, 20.0, 40.0])
    assert found.value == pytest.approx(6 / 70)
    residuals = [1 - 60 / 70, 2 - 120 / 70, 3 - 240 / 70]
    error = math.sqrt(sum(each**2 for each in residuals) / 6) / (70 / 3)
    assert found.half == pytest.approx(4.302652729911275 * error)  # Student, 2 degrees of freedom


def test_repeats_that_agree_leave_no_doubt() -> None:
    assert rate([1.0, 2.0], [5.0, 10.0]) == Predicted(0.2, 0.0)


def test_intervals_of_rates_cover_the_truth() -> None:
    numbers = np.random.default_rng(0)
    covered = 0
    for _ in range(1000):
        amounts = numbers.uniform(800, 1200, 5)
        found = rate(0.01 * amounts + numbers.normal(0, 0.5, 5), amounts)
        covered += found.interval[0] <= 0.01 <= found.interval[1]
    assert 920 <= covered <= 980


@pytest.mark.parametrize(("seconds", "amounts"), [([1.0], [2.0]), ([1.0, 1.0], [0.0, 0.0]), ([1.0, 1.0], [2.0])])
def test_one_repeat_or_nothing_done_is_refused(seconds: list[float], amounts: list[float]) -> None:
    with pytest.raises(DataError, match="plan: . repeats over"):
        rate(seconds, amounts)


def test_a_mean_of_all_is_certain_and_one_of_some_is_not() -> None:
    lengths = [10.0, 20.0, 30.0, 40.0]
    assert mean_of(lengths, 4) == Predicted(25.0, 0.0)
    deviation = math.sqrt((225 + 25 + 25 + 225) / 3)
    found = mean_of(lengths, 400)
    assert found.value == 25
    assert found.half == pytest.approx(1.959963984540054 * deviation / 2 * math.sqrt(0.99))
    assert mean_of([7.0], 100).value == 7


def test_independent_errors_add_up_as_squares() -> None:
    found = Predicted(10.0, 3.0).plus(Predicted(5.0, 4.0))
    assert (found.value, found.half) == (15, 5)
    product = Predicted(10.0, 1.0).by(Predicted(2.0, 0.5))
    assert (product.value, product.half) == (20, pytest.approx(math.hypot(2.0, 5.0)))
    assert Predicted(2.0, 1.0).times(-3) == Predicted(-6.0, 3.0)
    assert Predicted(1.0, 2.0).interval == (0, 3)


def test_a_line_through_two_fits_has_no_negative_part() -> None:
    assert line((8, 1.0), (64, 6.6)) == (pytest.approx(0.2), pytest.approx(0.1))
    assert line((64, 6.6), (8, 1.0)) == (pytest.approx(0.2), pytest.approx(0.1))
    assert line((8, 2.0), (64, 1.0)) == (2.0, 0.0)
    assert line((8, 0.1), (16, 1.0)) == (0.0, pytest.approx(0.9 / 8))


def test_the_crossover_is_where_both_have_cost_the_same() -> None:
    found = crossover("logra", Predicted(3600.0), Predicted(0.4), Predicted(0.1))
    assert found.examples == pytest.approx(12_000)
    assert found.examples * (0.4 - 0.1) == pytest.approx(3600)
    assert found.interval == pytest.approx((12_000, 12_000))


def test_the_interval_of_a_crossover_is_fiellers() -> None:
    found = crossover("logra", Predicted(100.0, 10.0), Predicted(0.5, 0.04), Predicted(0.1, 0.03))
    gap, half = 0.4, 0.05
    root = math.sqrt((10 * gap) ** 2 + (half * 100) ** 2 - (10 * half) ** 2)
    low, high = ((100 * gap - root) / (gap**2 - half**2), (100 * gap + root) / (gap**2 - half**2))
    assert found.examples == pytest.approx(250)
    assert found.interval == pytest.approx((low, high))


def test_intervals_of_crossovers_cover_the_truth() -> None:
    numbers = np.random.default_rng(1)
    z = stats.norm.ppf(0.975)
    covered = 0
    for _ in range(2000):
        fixed, gap = 1000 + 100 * numbers.standard_normal(), 0.3 + 0.05 * numbers.standard_normal()
        found = crossover("logra", Predicted(fixed, z * 100), Predicted(0.1 + gap, z * 0.05), Predicted(0.1, 0.0))
        assert found.interval is not None
        covered += found.interval[0] <= 1000 / 0.3 <= found.interval[1]
    assert 0.935 <= covered / 2000 <= 0.965


def test_an_encoder_that_is_not_cheaper_has_no_crossover_and_the_reason_is_told() -> None:
    found = crossover("logra", Predicted(100.0), Predicted(0.01), Predicted(0.02))
    assert found.examples is None
    assert found.interval is None
    assert "the encoder is not cheaper: 0.02 s for an example, gradients 0.01 s" in found.why


def test_a_gap_that_is_not_clear_of_zero_has_no_interval() -> None:
    found = crossover("logra", Predicted(100.0), Predicted(0.3, 0.2), Predicted(0.1, 0.1))
    assert found.examples == pytest.approx(500)
    assert found.interval is None
    assert "do not show" in found.why


def test_an_encoder_that_costs_nothing_before_is_ahead_at_once() -> None:
    found = crossover("logra", Predicted(-5.0), Predicted(0.3), Predicted(0.1))
    assert (found.examples, found.interval) == (0, (0, 0))
    assert "costs no more" in found.why


@pytest.mark.parametrize("fixed", [-0.1, 0.0, -1.0])
def test_what_is_fixed_may_be_unsure_about_its_sign(fixed: float) -> None:
    found = crossover("logra", Predicted(fixed, 100.0), Predicted(1.0, 0.05), Predicted(0.1, 0.01))
    sure = crossover("logra", Predicted(0.1, 100.0), Predicted(1.0, 0.05), Predicted(0.1, 0.01))
    assert (found.examples, found.interval[0] if found.interval else None) == (0, 0)
    assert found.interval is not None
    assert sure.interval is not None
    assert found.interval[1] == pytest.approx(sure.interval[1], rel=0.02)
    unsure = crossover("logra", Predicted(fixed, 100.0), Predicted(0.3, 0.2), Predicted(0.1, 0.1))
    assert (unsure.examples, unsure.interval) == (0, None)


def _method(name: str, fixed: Predicted, each: Predicted, **more: Any) -> MethodPlan:
    seconds = fixed.plus(each.times(1000))
    return MethodPlan(
        name=name,
        fixed_seconds=fixed.value,
        fixed_interval=fixed.interval,
        seconds_per_example=each.value,
        interval=each.interval,
        seconds=seconds.value,
        seconds_interval=seconds.interval,
        encoding_wall_seconds=each.times(500).value,
        disk_bytes=more["bytes_per_example"] * 1000,
        **more,
    )


def _plan() -> Plan:
    fixed, each, gradient = Predicted(100.0, 10.0), Predicted(0.1, 0.01), Predicted(0.5, 0.02)
    encoder = _method("airrep", fixed, each, bytes_per_example=1164, memory_bytes=5e8, fixed_parts={"labels": 100.0})
    logra = _method("logra", Predicted(4.0), gradient, bytes_per_example=4620, memory_bytes=8e8)
    real = PredictionCheck(
        what="index: 10 examples by logra",
        predicted_seconds=9.0,
        predicted_interval=(8.0, 10.0),
        measured_seconds=10.0,
        ratio=0.9,
        conditions=("2 threads, planned 1",),
    )
    return Plan(
        measure="plan",
        command="airrep plan x",
        machine="1 core",
        corpus=1000,
        lm="lm",
        lm_parameters=5,
        workers=2,
        methods=(encoder, logra),
        crossovers=(crossover("logra", Predicted(96.0, 10.0), gradient, each),),
        last_real=(real,),
        facts={"threads": 1},
    )


def test_a_plan_tells_what_the_readers_of_its_file_expect(tmp_path: Path) -> None:
    _plan().save(tmp_path / "plan")
    value = json.loads((tmp_path / "plan" / "result.json").read_bytes())
    assert value["measure"] == "plan"
    assert {name: value[name] for name in ("command", "machine", "corpus", "lm", "lm_parameters")} == {
        "command": "airrep plan x",
        "machine": "1 core",
        "corpus": 1000,
        "lm": "lm",
        "lm_parameters": 5,
    }
    first = value["methods"][0]
    assert (first["name"], first["fixed_seconds"], first["seconds_per_example"]) == ("airrep", 100, 0.1)
    assert first["interval"] == pytest.approx([0.09, 0.11])
    assert (first["seconds"], first["encoding_wall_seconds"]) == (pytest.approx(200), pytest.approx(50))
    assert (first["bytes_per_example"], first["disk_bytes"], first["memory_bytes"]) == (1164, 1_164_000, 5e8)
    (crossing,) = value["crossovers"]
    assert (crossing["method"], crossing["examples"]) == ("logra", pytest.approx(240))
    assert len(crossing["interval"]) == 2
    (real,) = value["last_real"]
    assert (real["predicted_seconds"], real["measured_seconds"], real["ratio"]) == (9, 10, pytest.approx(0.9))
    assert real["conditions"] == ["2 threads, planned 1"]


def test_a_plan_is_an_artifact_that_is_not_overwritten(tmp_path: Path) -> None:
    _plan().save(tmp_path / "plan")
    manifest = read_manifest(tmp_path / "plan", "plan")
    check_digests(tmp_path / "plan", manifest["files"])
    assert manifest["provenance"]["crossover with logra, examples"] == "240"
    with pytest.raises(ArtifactError, match="exists already"):
        _plan().save(tmp_path / "plan")
    _plan().save(tmp_path / "plan", replace=True)


def test_a_crossover_that_never_comes_is_null() -> None:
    never = _plan().model_copy(update={"crossovers": (Crossover(method="logra", why="why"),)})
    assert never.to_dict()["crossovers"] == [{"method": "logra", "examples": None, "interval": None, "why": "why"}]


def test_a_plan_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    _plan().save(tmp_path / "plan")
    assert read_plan(tmp_path / "plan") == _plan()
    assert read_plan(tmp_path / "plan").to_dict() == _plan().to_dict()


def test_a_plan_that_lacks_something_is_one_error_that_says_what(tmp_path: Path) -> None:
    broken = {**PLAN, "methods": [{"name": "a"}]}
    with pytest.raises(DataError, match=r"not a plan as expected: methods\.0\.fixed_seconds: field required"):
        read_plan(write_artifact(tmp_path / "plan", "plan", broken))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"measure": "lds"}, "measure: input should be 'plan'"),
        ({"methods": [{**PLAN["methods"][0], "fixed_seconds": 1e999}]}, r"methods\.0\.fixed_seconds: .* finite number"),
        ({"methods": [{**PLAN["methods"][0], "interval": [1.0]}]}, r"methods\.0\.interval\.1: field required"),
        ({"crossovers": [{"examples": 3.0}]}, r"crossovers\.0\.method: field required"),
        ({"last_real": [{"what": "a", "predicted_seconds": 1.0}]}, r"last_real\.0\.measured_seconds: field required"),
    ],
)
def test_what_a_plan_cannot_hold_is_one_line(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    path = write_artifact(tmp_path / "plan", "plan", PLAN)
    text = json.dumps({**PLAN, **changed}).encode()
    with new_artifact(path, "plan", {}, replace=True) as folder:
        write_file(folder / "result.json", text)
    with pytest.raises(DataError, match=f"not a plan as expected: {message}") as caught:
        read_plan(path)
    assert "\n" not in str(caught.value)


def test_a_plan_is_read_whole_or_not_at_all(tmp_path: Path) -> None:
    path = write_artifact(tmp_path / "plan", "plan", PLAN)
    assert [method.name for method in read_plan(path).methods] == ["airrep", "logra", "less", "gte"]
    (path / "result.json").write_text("{}")
    with pytest.raises(ArtifactError, match="has 2 bytes"):
        read_plan(path)


def test_the_interval_of_a_planned_cost_adds_independent_errors_as_squares() -> None:
    method = {"name": "a", "fixed_seconds": 10.0, "fixed_interval": [7.0, 13.0], "seconds_per_example": 2.0}
    plan = Plan.model_validate({"measure": "plan", "methods": [{**method, "interval": [1.0, 3.0]}]})
    assert plan.methods[0].seconds(4) == 18.0
    assert plan.methods[0].ends(4) == (pytest.approx(13.0), pytest.approx(23.0))
