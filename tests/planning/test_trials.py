"""Slices and repeats of micro-benchmarks."""

from dataclasses import replace
from pathlib import Path

import pytest
from worlds.small_world import make_corpus
from worlds.tiny_lms import tiny_lm

from airrep.arrays import MixedFeatures
from airrep.attributors.methods import make_attributor
from airrep.attributors.settings import LograSettings
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import ConfigError
from airrep.planning.trial_method import MethodTask, sample_size, try_method
from airrep.planning.trials import LEAST_REPEATS, LEAST_SLICE, Pace, Repeats, Slices, memory_now, own_seconds, repeat
from airrep.runtime.metering import MeasuredCost, StoreRows


def test_no_example_is_in_two_slices() -> None:
    slices = Slices(make_corpus(100))
    parts = [slices.take(count) for count in (8, 50, 50)]
    assert [example.id for part in parts for example in part] == [f"e{number}" for number in range(100)]
    assert (slices.left, slices.taken) == (0, 100)


def test_too_few_examples_are_refused() -> None:
    with pytest.raises(ConfigError, match="plan: 20 examples are too few to measure on; expected 64 or more"):
        Slices(make_corpus(20))


def _sizes(count: int, seconds: float, each: float, largest: int = 512) -> list[int]:
    """Slices of work that takes so long for each example, by a clock that only moves with it."""
    sizes: list[int] = []
    pace = Pace("cpu")
    now = 0.0

    def work(part: Corpus) -> None:
        nonlocal now
        sizes.append(len(part))
        now += each * len(part)

    pace._now = lambda: now
    slices = Slices(make_corpus(count))
    pace.time(work, slices.take(4))
    sizes.clear()
    repeat(slices, seconds, work, pace, largest)
    return sizes


def test_slices_fill_a_fifth_of_the_time_each() -> None:
    assert _sizes(2000, 10.0, 0.02) == [100] * 5


def test_work_that_takes_long_is_repeated_all_the_same() -> None:
    assert _sizes(200, 1.0, 5.0) == [LEAST_SLICE] * LEAST_REPEATS


def test_quick_work_is_repeated_on_larger_slices_that_all_examples_suffice_for() -> None:
    sizes = _sizes(4000, 10.0, 1e-5)
    assert len(sizes) == 8
    assert set(sizes[:-1]) == {512}
    assert sum(sizes) == 3996


def test_few_examples_are_shared_out() -> None:
    assert _sizes(64, 100.0, 1e-3) == [15, 15, 15, 15]


def test_repeats_end_in_time_where_the_processor_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 1000, 10))
    monkeypatch.setattr("airrep.planning.trials.time.perf_counter", lambda: next(clock))
    assert len(_sizes(2000, 10.0, 0.01)) == LEAST_REPEATS  # thrice ten seconds have passed by the clock


def test_repeats_are_columns_of_what_was_found() -> None:
    assert Repeats.of([(1.0, 10.0, 2), (2.0, 20.0, 3)]) == Repeats((1.0, 2.0), (10.0, 20.0), (2, 3))


def test_seconds_of_a_fit_leave_rows_out_that_encoding_needs() -> None:
    rows = {"s": StoreRows(5, 5, 2.0, 3.0)}
    assert own_seconds(MeasuredCost(5.0, 8.0, rows=rows)) == 3
    assert own_seconds(MeasuredCost(5.0, 8.0, "cuda", rows=rows)) == 5


def test_memory_is_that_of_this_process() -> None:
    assert 2**24 < memory_now() < 2**40


def test_slices_hold_no_text_twice() -> None:
    corpus = make_corpus(100)
    copies = [replace(example, id=f"{example.id}-again") for example in corpus]
    slices = Slices(Corpus.from_examples([*corpus, *copies]))
    assert [example.id for example in slices.take(200)] == [example.id for example in corpus]
    assert slices.left == 0


def test_channels_learn_from_the_sample_of_their_gradients_and_are_as_large_as_these(tmp_path: Path) -> None:
    settings = {"lm": tiny_lm(tmp_path / "lm"), "device": "cpu", "precision": "float32"}
    assert sample_size(make_attributor("channels", settings)) == LograSettings.measured["sample"]
    assert sample_size(make_attributor("channels")) is None
    assert sample_size(make_attributor("logra", settings)) == LograSettings(lm="m").sample
    words = [f"{n} apples and {n + 1} pears" for n in range(160)]
    examples = Corpus.from_examples([Example(text, text[::-1], str(n)) for n, text in enumerate(words)])
    found = try_method(MethodTask("channels", settings, examples, seconds=1.0))
    method = make_attributor("channels", settings)
    method.fit(examples)
    features = method.encode_train(examples[:1])
    assert isinstance(features, MixedFeatures)
    assert found.row_bytes == 4 * features.dense.shape[1]
    assert found.sample == 300
