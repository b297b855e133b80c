"""Instances with losses: shapes that fit, and no example seen twice."""

import numpy as np
import pytest
from worlds.small_world import make_corpus

from airrep.corpus.corpus import Corpus, Example
from airrep.errors import DataError
from airrep.labels.labels import LabelledInstance, check_disjoint
from airrep.scoring.groups import Groups

SUBSETS = Groups.from_lists({"0": [0, 1], "1": [1, 2], "2": [3, 4]})


def make_instance(train: Corpus, queries: Corpus, name: str = "0") -> LabelledInstance:
    return LabelledInstance(name, train, queries, SUBSETS, np.ones((len(queries), 3), np.float32))


def test_losses_are_one_for_each_query_and_subset() -> None:
    instance = make_instance(make_corpus(5), make_corpus(2, "q"))
    assert instance.losses.shape == (2, 3)
    assert instance.base_losses is None
    assert instance.by_seed is None


@pytest.mark.parametrize("shape", [(3, 2), (2, 4), (1, 3)])
def test_losses_of_another_shape_are_refused(shape: tuple[int, int]) -> None:
    with pytest.raises(DataError, match=rf"instance 7: its losses are \({shape[0]}, {shape[1]}\)"):
        LabelledInstance("7", make_corpus(5), make_corpus(2, "q"), SUBSETS, np.ones(shape, np.float32))


def test_instances_without_a_text_in_common_are_disjoint() -> None:
    seen = [make_instance(make_corpus(5, "a"), make_corpus(2, "b"))]
    check_disjoint(seen, [make_instance(make_corpus(5, "c"), make_corpus(2, "d"))])
    check_disjoint([], seen)


@pytest.mark.parametrize(
    ("train", "queries"),
    [("a", "d"), ("b", "d"), ("c", "a"), ("c", "b")],
)
def test_a_held_out_text_that_was_seen_in_any_part_is_refused(train: str, queries: str) -> None:
    seen = [make_instance(make_corpus(5, "a"), make_corpus(2, "b"))]
    with pytest.raises(DataError, match="instance held: its example '.*' was trained on"):
        check_disjoint(seen, [make_instance(make_corpus(5, train), make_corpus(2, queries), "held")])


def test_another_id_does_not_make_a_text_another() -> None:
    seen = make_instance(make_corpus(5, "a"), make_corpus(2, "b"))
    first = seen.train[0]
    renamed = Corpus.from_examples([Example(first.prompt, first.response, "other"), *make_corpus(1, "d")])
    with pytest.raises(DataError, match="its example 'other' was trained on"):
        check_disjoint([seen], [make_instance(make_corpus(5, "c"), renamed)])
