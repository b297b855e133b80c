"""Packing lays every sequence once, in batches of bounded size."""

from itertools import pairwise
from operator import methodcaller

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from airrep.runtime.packing import Batch, EqualRun, pack, runs_of
from airrep.runtime.seeding import stream, stream_seed

LENGTHS = st.lists(st.integers(1, 40), max_size=60).map(lambda lengths: np.array(lengths, np.int64))


@given(LENGTHS, st.integers(1, 100))
def test_each_row_is_in_one_batch(lengths: np.ndarray, batch_tokens: int) -> None:
    batches = list(pack(lengths, batch_tokens))
    rows = np.concatenate([batch.rows for batch in batches]) if batches else np.array([], np.int64)
    assert sorted(rows.tolist()) == list(range(len(lengths)))
    for batch in batches:
        np.testing.assert_array_equal(batch.lengths, lengths[batch.rows])


@given(LENGTHS, st.integers(1, 100))
def test_batches_are_full_but_not_too_full(lengths: np.ndarray, batch_tokens: int) -> None:
    batches = list(pack(lengths, batch_tokens))
    for batch, following in pairwise(batches):
        assert batch.tokens + following.lengths[0] > batch_tokens
    assert all(batch.tokens <= batch_tokens or len(batch.rows) == 1 for batch in batches)


@given(LENGTHS, st.integers(1, 100))
def test_longest_come_first_and_ties_keep_their_order(lengths: np.ndarray, batch_tokens: int) -> None:
    rows = [int(row) for batch in pack(lengths, batch_tokens) for row in batch.rows]
    assert rows == sorted(range(len(lengths)), key=lambda row: (-lengths[row], row))


@given(LENGTHS)
def test_runs_cover_every_token_once(lengths: np.ndarray) -> None:
    runs = runs_of(lengths.tolist())
    covered = [token for run in runs for token in range(run.start, run.start + run.sequences * run.length)]
    assert covered == list(range(int(lengths.sum())))
    assert [run.length for run in runs for _ in range(run.sequences)] == lengths.tolist()
    assert all(one.length != other.length for one, other in pairwise(runs))


def test_positions_count_from_zero_in_each_sequence() -> None:
    batch = Batch(np.array([7, 2, 4]), np.array([3, 3, 1]))
    assert batch.positions.tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert batch.runs == (EqualRun(0, 2, 3), EqualRun(6, 1, 1))
    assert batch.tokens == 7


def test_a_sequence_longer_than_a_batch_is_a_batch_of_its_own() -> None:
    batches = list(pack(np.array([2, 50, 2, 1]), 4))
    assert [batch.rows.tolist() for batch in batches] == [[1], [0, 2], [3]]


STATE = methodcaller("get_state")
NAMES = st.lists(st.one_of(st.integers(0, 99), st.text(max_size=4)), max_size=3)


@given(seed=st.integers(0, 2**40), name=NAMES, other=NAMES)
def test_a_stream_belongs_to_its_seed_and_name(seed: int, name: list[int | str], other: list[int | str]) -> None:
    assert stream_seed(seed, *name) == stream_seed(seed, *name)
    assert (stream_seed(seed, *name) == stream_seed(seed, *other)) == (name == other)
    assert stream_seed(seed, *name) != stream_seed(seed + 1, *name)
    assert 0 <= stream_seed(seed, *name) < 2**63


def test_a_name_is_not_the_same_as_its_parts_run_together() -> None:
    assert len({stream_seed(0, *name) for name in (("a", 1), ("a1",), ("a", "1"), (1, "a"), ("a", 1, 1))}) == 5


def test_streams_are_the_same_on_every_machine_and_in_every_version() -> None:
    assert stream_seed(0, "subset", 3) == 6784217877005130922
    assert stream(0, "subset", 3).integers(1000, size=4).tolist() == [823, 829, 552, 499]


def test_streams_of_different_names_do_not_follow_each_other() -> None:
    numbers = np.stack([stream(0, "x", i).random(200) for i in range(50)])
    correlations = np.corrcoef(numbers)[np.triu_indices(50, 1)]
    assert np.abs(correlations).max() < 0.35
    assert abs(numbers.mean() - 0.5) < 0.02


def test_no_global_generator_is_read_or_set() -> None:
    before = repr(STATE(np.random))
    stream(1, "a").random(10)
    assert repr(STATE(np.random)) == before
