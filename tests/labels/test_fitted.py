"""What a draw takes where nothing is said: it fits the data."""

from pathlib import Path
from typing import Any

import pytest
from worlds.small_world import make_corpus

import airrep
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import DataError
from airrep.labels.plan import SamplingSettings
from airrep.labels.sampling import fitted

SHAPE = ("instances", "train_count", "query_count", "size", "subsets")


def _many(count: int) -> Corpus:
    return Corpus.from_examples(Example("p", str(n), str(n)) for n in range(count))


@pytest.mark.parametrize("count", [4, 12, 60, 688, 2500])
@pytest.mark.parametrize("queries", [None, 1, 7])
@pytest.mark.parametrize("given", [{}, {"held_out": 1, "instances": 2}, {"disjoint_instances": True}, {"size": 2}])
def test_any_data_give_a_plan(tmp_path: Path, count: int, queries: int | None, given: dict[str, int]) -> None:
    asked = None if queries is None else make_corpus(queries, "q")
    if "held_out" in given and (queries == 1 or count == 4):
        pytest.skip("two instances that share nothing need two queries, and six examples")
    few = {"subsets": 3, **given}
    plan = airrep.sample(_many(count), tmp_path / "plan", few, asked)
    first = plan.instance(0)
    assert 1 <= first.subsets.sizes[0] < len(first.train)
    assert len(first.queries) >= 1
    assert plan.settings.subsets == 3


def test_large_data_give_the_papers_plan() -> None:
    large = _many(110_000)
    found = fitted(SamplingSettings(), large, large)
    assert [getattr(found, name) for name in SHAPE] == [100, 100_000, 10_000, 1_000, 100]


def test_small_data_give_one_instance_of_all_of_them() -> None:
    data = _many(688)
    found = fitted(SamplingSettings(), data, data)
    assert [getattr(found, name) for name in SHAPE] == [1, None, 62, 125, 100]
    found = fitted(SamplingSettings(), data, make_corpus(40, "q"))
    assert [getattr(found, name) for name in SHAPE] == [1, None, 40, 137, 100]


def test_what_is_said_stays_and_is_refused_where_it_does_not_fit(tmp_path: Path) -> None:
    given: dict[str, Any] = {"instances": 3, "train_count": 20, "query_count": 5, "size": 4, "subsets": 2}
    data = _many(60)
    assert fitted(SamplingSettings(**given), data, data) == SamplingSettings(**given)
    with pytest.raises(DataError, match="expected 100 or more"):
        airrep.sample(data, tmp_path / "plan", {"train_count": 100})
