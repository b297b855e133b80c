"""Shared by tests of labels: a small plan."""

from pathlib import Path

import pytest
from worlds.toy_farm import make_plan

from airrep.labels.plan import SubsetPlan


@pytest.fixture
def plan(tmp_path: Path) -> SubsetPlan:
    return make_plan(tmp_path / "plan")
