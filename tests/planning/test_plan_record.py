"""Plans, read and checked."""

from pathlib import Path

import pytest
from worlds.made_evaluations import PLAN, write_artifact

from airrep.errors import ArtifactError, DataError
from airrep.planning.plan_record import Plan, read_plan


def test_a_plan_that_lacks_something_is_one_error_that_says_what(tmp_path: Path) -> None:
    broken = {**PLAN, "methods": [{"name": "a"}]}
    with pytest.raises(DataError, match=r"not a plan as expected: methods\.0\.fixed_seconds: field required"):
        read_plan(write_artifact(tmp_path / "plan", "plan", broken))


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
