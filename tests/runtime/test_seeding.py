"""Random streams: one for each name, the same for ever."""

from operator import methodcaller

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from airrep.runtime.seeding import stream, stream_seed

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
