"""Which findings of clean are acted on."""

from dataclasses import replace
from pathlib import Path

import pytest

import airrep
from airrep.answers.clean import CleanResult, ExampleFinding, Kind
from airrep.corpus.corpus import Example
from airrep.errors import ConfigError


@pytest.fixture
def nothing(tmp_path: Path) -> CleanResult:
    """A result without findings."""
    records = [{"prompt": f"p {n}", "response": f"reply word{n}"} for n in range(6)]
    return airrep.clean(airrep.build_index(records, tmp_path / "index", method="tfidf"), kinds=["duplicate"])


def finding(kind: Kind, row: int, other: int | None = None) -> ExampleFinding:
    repeated = None if other is None else Example("p", "r", f"e{other}")
    return ExampleFinding(kind, 1.0, "why", row, Example("p", "r", f"e{row}"), other, repeated)


def dropped(result: CleanResult, *findings: ExampleFinding, kinds: list[str] | None = None) -> dict[int, list[str]]:
    found = replace(result, findings=findings).dropped(kinds)
    return {row: [one.kind for one in some] for row, some in found.items()}


def test_kinds_that_are_not_named_are_not_acted_on(nothing: CleanResult) -> None:
    found = finding("label", 1), finding("outlier", 2), finding("label", 2)
    assert dropped(nothing, *found) == {1: ["label"], 2: ["outlier", "label"]}
    assert dropped(nothing, *found, kinds=["outlier"]) == {2: ["outlier"]}
    with pytest.raises(ConfigError, match="'copy'"):
        dropped(nothing, kinds=["copy"])


def test_of_copies_one_stays(nothing: CleanResult) -> None:
    told = dropped(nothing, finding("duplicate", 3, 0), finding("duplicate", 4, 0))
    assert told == {3: ["duplicate"], 4: ["duplicate"]}


@pytest.mark.parametrize("kinds", [None, ["duplicate"], ["duplicate", "label"]])
def test_a_good_row_is_not_dropped_as_the_copy_of_a_bad_one(nothing: CleanResult, kinds: list[str] | None) -> None:
    found = finding("label", 0), finding("duplicate", 3, 0), finding("duplicate", 4, 0)
    told = dropped(nothing, *found, kinds=kinds)
    assert set(told) == {0, 4}
    assert "duplicate" in told[0]


def test_a_copy_that_is_bad_too_goes(nothing: CleanResult) -> None:
    found = finding("label", 0), finding("duplicate", 3, 0), finding("label", 3)
    assert set(dropped(nothing, *found)) == {0, 3}
    assert set(dropped(nothing, *found, kinds=["label"])) == {0, 3}
    assert set(dropped(nothing, *found, kinds=["duplicate"])) == {3}
