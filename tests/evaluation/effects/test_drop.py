"""Dropping the top and retraining, against fine-tunes in plain loops."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from worlds.small_world import HashAttributor, make_corpus, stored_scores
from worlds.toy_farm import FINE_TUNE, ToyWorld

import airrep
from airrep.corpus.corpus import Corpus
from airrep.errors import ConfigError, DataError, TrainingError
from airrep.evaluation.comparison import compare_evaluations
from airrep.evaluation.effects.refits import DRAWS, Drop, against_random
from airrep.evaluation.result import Evaluation
from airrep.index.index import Index
from airrep.labels.plan import open_plan, without
from airrep.runtime.seeding import stream, stream_seed

N, Q = 24, 4
TRAIN, QUERIES = make_corpus(N), make_corpus(Q, "q")


@pytest.fixture(scope="module")
def indexes(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, Index]]:
    """Two methods over the same examples, the second in another order of rows, and with a query among them."""
    folder = tmp_path_factory.mktemp("indexes")
    turned = Corpus.from_examples([*(TRAIN[row] for row in reversed(range(N))), QUERIES[1]])
    whole = Corpus.from_examples([QUERIES[1], *TRAIN])
    return [
        ("one", airrep.build_index(whole, folder / "one", HashAttributor("a"), shard_rows=7)),
        ("other", airrep.build_index(turned, folder / "other", HashAttributor("b"), shard_rows=7)),
    ]


def loss_without(gone: set[int], seeds: int) -> np.ndarray:
    """Mean losses of the queries after fine-tunes on the examples that are left, the last ones in the holes."""
    last = N - len(gone)
    steps_in = iter([row for row in range(last, N) if row not in gone])
    order = [next(steps_in) if row in gone else row for row in range(last)]
    found = []
    for seed in range(seeds):
        lm = ToyWorld()()
        documents = lm.tokenise([TRAIN[row] for row in order])
        lm.fine_tune(documents, FINE_TUNE, stream_seed(0, "fine-tune", 0, 0, seed))
        found.append(lm.losses(lm.tokenise(list(QUERIES))).astype(np.float64))
    return np.mean(found, axis=0)


def naive(index: Index, k: int, seeds: int) -> tuple[np.ndarray, np.ndarray]:
    """The rise of each query's loss without its top, and the random sets' mean losses over the queries."""
    scores = dict(
        zip((one.id for one in index.examples(range(index.rows))), stored_scores(index, QUERIES).T, strict=True)
    )
    top = [sorted(range(N), key=lambda row: -scores[TRAIN[row].id][x])[:k] for x in range(Q)]
    drawn = [stream(0, "drop", "random", k, draw).choice(N, k, replace=False).tolist() for draw in range(DRAWS)]
    random = np.array([loss_without(set(rows), seeds) for rows in drawn])
    return np.array([loss_without(set(top[x]), seeds)[x] for x in range(Q)]) - random.mean(axis=0), random.mean(axis=1)


@pytest.mark.parametrize("seeds", [1, 3])
def test_the_rise_of_the_loss_is_that_of_plain_fine_tunes(indexes: list[tuple[str, Index]], seeds: int) -> None:
    found = Drop(indexes, QUERIES, ToyWorld(), {"drop": "3,25%", "seeds": seeds}, FINE_TUNE).run()
    assert (found.measure, found.facts["drop"], found.facts["examples"]) == ("drop", [3, 6], N)
    assert found.facts["examples_left_out_as_queries"] == 1
    for row, (_, index) in zip(found.rows, indexes, strict=True):
        expected, random = naive(index, 3, seeds)
        np.testing.assert_allclose(row.per_query, expected, rtol=1e-4, atol=1e-7)
        assert row.value == pytest.approx(expected.mean(), rel=1e-4, abs=1e-7)
        assert found.facts["random"]["3"]["loss"] == pytest.approx(random.mean(), rel=1e-5)
        assert found.facts["random"]["3"]["deviation"] == pytest.approx(np.std(random, ddof=1), rel=1e-3)
        more, _ = naive(index, 6, seeds)
        assert row.more["top_6"]["value"] == pytest.approx(more.mean(), rel=1e-4, abs=1e-7)
        # A normal interval, which the bootstrap's is near, and the random sets' own chance beside it.
        half = np.hypot(1.96 * np.std(expected, ddof=1) / 2, stats.t.ppf(0.975, 4) * np.std(random, ddof=1) / 5**0.5)
        assert (row.interval[1] - row.interval[0]) / 2 == pytest.approx(half, rel=0.2)
    gaps = found.rows[1].per_query - found.rows[0].per_query
    test = stats.ttest_1samp(gaps, 0)
    assert found.rows[1].difference.p_value == pytest.approx(test.pvalue)
    assert found.rows[1].difference.interval == pytest.approx(tuple(test.confidence_interval()))
    pair = compare_evaluations(found).pairs[0]
    assert (abs(pair.difference), pair.p_value) == (pytest.approx(abs(gaps.mean())), pytest.approx(test.pvalue))


def test_fine_tunes_are_kept_and_an_evaluation_is_read_again(indexes: list[tuple[str, Index]], tmp_path: Path) -> None:
    log, out, settings = tmp_path / "log", tmp_path / "run", {"drop": 2}

    def again(name: str) -> Evaluation:
        return Drop(indexes, QUERIES, ToyWorld(str(log)), settings, FINE_TUNE).run(tmp_path / name)

    plain = again("elsewhere")
    every = len(log.read_text().splitlines())
    assert every == plain.facts["fine_tunes"]
    log.unlink()
    poison = int(stream(0, "drop", "random", 2, 0).choice(N, 2, replace=False)[0])  # one set lacks it
    broken = ToyWorld(str(log), poison=poison)
    with pytest.raises(TrainingError, match=r"fine-tunes failed \(\d+\), the first: .* Run the same command again"):
        Drop(indexes, QUERIES, broken, settings, FINE_TUNE).run(out)
    log.unlink()
    sets = open_plan(out.with_name("run.partial") / "answers" / "subsets").instance(0).subsets
    done = sum(poison not in sets.members(j) for j in range(len(sets)))
    found = again("run")
    assert len(log.read_text().splitlines()) == every - done < every
    found.save(out)
    read = Evaluation.read(out)
    assert read.to_dict() == plain.to_dict() == found.to_dict()
    np.testing.assert_array_equal(read.rows[1].per_query, plain.rows[1].per_query)


@given(st.integers(2, 30), st.data())
def test_what_is_left_keeps_its_places(n: int, data: st.DataObject) -> None:
    gone = np.array(data.draw(st.lists(st.integers(0, n - 1), unique=True, max_size=n - 1)), np.int64)
    left = without(n, gone)
    assert sorted(left.tolist()) == sorted(set(range(n)) - set(gone.tolist()))
    assert (left != np.arange(len(left))).sum() <= len(gone)


def test_the_interval_of_equal_values_is_the_chance_of_the_draws() -> None:
    more, found = against_random(np.full(6, 2.0), np.tile([0.4, 0.6], (6, 1)), 100, 0)
    half = stats.t.ppf(0.975, 1) * np.std([0.4, 0.6], ddof=1) / 2**0.5
    assert (more.tolist(), found.value) == ([1.5] * 6, pytest.approx(1.5))
    assert found.interval == pytest.approx((1.5 - half, 1.5 + half))


@pytest.mark.parametrize(
    ("settings", "queries", "error", "message"),
    [
        ({"drop": 13}, QUERIES, ConfigError, "--remove 13: is 13 of 24 examples. Remove 1 to 12"),
        ({"drop": "1%"}, QUERIES, ConfigError, "--remove 1%: is 0 of 24 examples"),
        (
            {"drop": "3,3"},
            QUERIES,
            ConfigError,
            "drop='3,3': give at least one number of examples to drop, and none twice",
        ),
        (
            {"drop": "few"},
            QUERIES,
            ConfigError,
            "drop='few': the number of examples must be at least 1, or a percentage",
        ),
        ({"drop": 3}, QUERIES.take([0]), ConfigError, "there is only one query"),
        ({"drop": 3, "where": 'source == "nowhere"'}, QUERIES, ConfigError, "is 3 of 0 examples. Use more"),
    ],
)
def test_what_cannot_be_dropped_is_refused(
    indexes: list[tuple[str, Index]], settings: dict, queries: Corpus, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        Drop(indexes, queries, ToyWorld(), settings, FINE_TUNE).run()
    assert "\n" not in str(caught.value)


def test_examples_that_the_lm_cannot_read_are_named(indexes: list[tuple[str, Index]]) -> None:
    with pytest.raises(DataError, match=r"1 of 4 queries cannot be used with the LM toy"):
        Drop(indexes, QUERIES, ToyWorld(unreadable=(QUERIES[0],)), {"drop": 3}, FINE_TUNE).run()
    with pytest.raises(DataError, match=r"1 of 24 training examples cannot be used with the LM toy"):
        Drop(indexes, QUERIES, ToyWorld(unreadable=(TRAIN[3],)), {"drop": 3}, FINE_TUNE).run()
