"""Intervals of trained encoders from so few draws that they cost nothing."""

import pytest


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airrep.training.train.RESAMPLES", 40)
