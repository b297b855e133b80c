"""One question for a set of queries, in unit deviations; what counts as harm."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from worlds.small_world import HashAttributor, stored_scores

import airrep
from airrep.answers.spread import Leaders, Moments, harms
from airrep.answers.together import SetResult, top_of_set
from airrep.arrays import DenseFeatures
from airrep.corpus.corpus import Example
from airrep.errors import ConfigError, DataError


def effects(scores: np.ndarray) -> np.ndarray:
    return (scores - scores.mean(axis=1, keepdims=True)) / scores.std(axis=1, keepdims=True)


class EvenAttributor(HashAttributor):
    """The same features for every example."""

    def encode_train(self, examples: Sequence[Example], on_rows: object = None) -> DenseFeatures:
        return np.ones((len(examples), 16), np.float32)


@pytest.mark.parametrize("least", [False, True])
def test_a_set_is_asked_in_unit_deviations(index: airrep.Index, queries: airrep.Corpus, least: bool) -> None:
    result = top_of_set(index, queries, k=8, least=least, where="year != 2003")
    kept = index.where("year != 2003")
    told = effects(stored_scores(index, queries)[:, kept])
    mean = told.mean(axis=0)
    order = np.argsort(mean if least else -mean, kind="stable")[:8]
    assert [hit.row for hit in result.hits] == kept[order].tolist()
    np.testing.assert_allclose([hit.score for hit in result.hits], mean[order], rtol=1e-6)
    np.testing.assert_allclose([hit.helped for hit in result.hits], (told > 0).mean(axis=0)[order])
    assert (result.queries, result.even) == (5, 0)


def test_results_are_written_and_read(index: airrep.Index, queries: airrep.Corpus, tmp_path: Path) -> None:
    together = top_of_set(index, queries)
    assert SetResult.read(together.save(tmp_path / "set")) == together


def test_queries_that_tell_nothing_apart(tmp_path: Path, corpus: airrep.Corpus, queries: airrep.Corpus) -> None:
    index = airrep.build_index(corpus, tmp_path / "even", EvenAttributor())
    with pytest.raises(DataError, match="all examples have the same score"):
        top_of_set(index, queries)
    with pytest.raises(ConfigError, match="k is 0"):
        top_of_set(index, queries, k=0)


def test_streams_do_not_depend_on_their_parts() -> None:
    values = np.random.default_rng(0).normal(1e6, 1.0, (3, 1000))
    values[:, 500] = values.max(axis=1)
    for size in (1, 7, 1000):
        moments, leaders = Moments(3), Leaders(3, 5)
        for start in range(0, 1000, size):
            part = slice(start, start + size)
            moments.see(values[:, part])
            leaders.see(np.arange(1000)[part], values[:, part])
        np.testing.assert_allclose(moments.spread.mean, values.mean(axis=1), rtol=1e-12)
        np.testing.assert_allclose(moments.spread.deviation, values.std(axis=1), rtol=1e-9)
        assert leaders.found()[0].tolist() == np.argsort(-values, axis=1, kind="stable")[:, :5].tolist()


def test_questions_take_data_in_every_form(index: airrep.Index, queries: airrep.Corpus, tmp_path: Path) -> None:
    rows = [one.to_dict() for one in queries]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    forms = [rows, pd.DataFrame(rows), tmp_path / "rows.jsonl"]
    for ask in (top_of_set, airrep.audit, hits_of):
        expected = ask(index, queries)
        for form in forms:
            assert ask(index, form) == expected
        assert ask(index, rows[0]) == ask(index, [queries[0]])
        assert ask(index, rows[0]["response"])
        with pytest.raises(ConfigError, match="(queries|items): is empty"):
            ask(index, [])


def hits_of(index: airrep.Index, queries: object) -> list[object]:
    return [hits.hits for hits in airrep.top(index, queries)]


@pytest.mark.parametrize("rounding", [-1e-9, 0.0, 1e-9])
def test_what_lies_two_deviations_below_but_for_rounding_harms(rounding: float) -> None:
    """One of five examples that alone is unlike the others lies there exactly; 0 but for rounding harms nothing."""
    scores = np.array([[1.0, 1.0, 1.0, 1.0, -1.0 + rounding], [2.0, 2.0, 2.0, 2.0, rounding]])
    moments = Moments(2)
    moments.see(scores)
    found = harms(scores, moments.spread)
    assert found.tolist() == [[False, False, False, False, True], [False] * 5]
