"""Measuring pieces of work, and lines of costs."""

import time
from pathlib import Path

import numpy as np
import pytest

from airrep.attributors.gradient.store import GradientStore, keep_arrays, recall_arrays
from airrep.attributors.settings import EncoderSettings, TfidfSettings
from airrep.corpus.corpus import Corpus, Example
from airrep.runtime.costs import read_costs
from airrep.runtime.metering import COSTS, MeasuredCost, StoreRows, append_cost, computing_rows, device_of, measuring

EXAMPLES = [Example(f"prompt {number}", "answer", f"e{number}") for number in range(10)]


def _burn(seconds: float) -> None:
    until = time.process_time() + seconds
    while time.process_time() < until:
        sum(range(100))


def test_processor_time_leaves_waiting_out() -> None:
    with measuring() as meter:
        _burn(0.05)
        time.sleep(0.1)
    assert 0.05 <= meter.spent.cpu < 0.12
    assert meter.spent.wall >= 0.15
    assert meter.spent.device == "cpu"
    assert meter.spent.threads >= 1
    assert "core" in meter.spent.machine
    assert meter.spent.seconds == meter.spent.cpu


def test_an_accelerator_is_measured_by_the_clock() -> None:
    assert MeasuredCost(1.0, 2.0, "cuda").seconds == 2


def test_what_fails_is_not_counted_afterwards() -> None:
    with pytest.raises(ValueError, match="no"), measuring() as broken:
        raise ValueError("no")
    with computing_rows("store", 3, 3):
        pass
    assert broken.spent.rows == {}


def test_stores_tell_how_many_rows_were_computed_and_how_long_that_took(tmp_path: Path) -> None:
    def compute(examples: object) -> np.ndarray:
        _burn(0.02)
        return np.ones((len(list(examples)), 2), np.float32)

    store = GradientStore(tmp_path, "k" * 64, 2)
    with measuring() as first:
        store.rows(EXAMPLES[:6], compute)
    with measuring() as second:
        store.rows(EXAMPLES, compute)
    with measuring() as third:
        GradientStore(tmp_path, "k" * 64, 2).rows(EXAMPLES, compute)
    asked = [meter.spent.rows["k" * 32][:2] for meter in (first, second, third)]
    assert asked == [(6, 6), (10, 4), (10, 0)]
    assert 0.02 <= first.spent.computing[0] <= first.spent.cpu
    assert third.spent.computing == (0, 0)


def test_a_store_that_keeps_nothing_leaves_its_time_where_it_is() -> None:
    with measuring() as meter:
        GradientStore(None, "k" * 64, 2).rows(EXAMPLES, lambda part: np.ones((len(part), 2), np.float32))
    assert meter.spent.rows == {}


def test_what_was_learnt_by_an_earlier_run_is_noted(tmp_path: Path) -> None:
    keep_arrays(tmp_path, "a" * 64, {"x": np.ones(2)})
    with measuring() as found:
        recall_arrays(tmp_path, "a" * 64)
    with measuring() as missed:
        recall_arrays(tmp_path, "b" * 64)
    assert (found.spent.recalled, missed.spent.recalled) == (True, False)


def test_lines_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    spent = MeasuredCost(1.5, 2.5, "cpu", 2, "1 core", 1000, {"s": StoreRows(3, 2, 0.5, 0.6)}, True)
    append_cost(tmp_path, "encode", spent, examples=3, shard="a")
    append_cost(tmp_path, "fit", MeasuredCost(1.0, 1.0), examples=9)
    first, second = read_costs(tmp_path)
    assert (first.stage, first.examples, first.spent, first.more) == ("encode", 3, spent, {"shard": "a"})
    assert (second.stage, second.examples) == ("fit", 9)


def test_a_line_that_an_interruption_cut_does_no_harm(tmp_path: Path) -> None:
    append_cost(tmp_path, "encode", MeasuredCost(1.0, 1.0), examples=3)
    path = tmp_path / COSTS
    path.write_bytes(path.read_bytes() + path.read_bytes()[:40])
    append_cost(tmp_path, "encode", MeasuredCost(2.0, 2.0), examples=4)
    assert [found.examples for found in read_costs(tmp_path)] == [3, 4]
    path.write_text('{"stage": 1}\n[]\n"x"\n')
    assert read_costs(tmp_path) == []
    assert read_costs(tmp_path / "absent") == []


def test_the_device_is_what_the_settings_resolve_to() -> None:
    assert device_of(EncoderSettings(device="cpu")) == "cpu"
    assert device_of(TfidfSettings()) == "cpu"


def test_measured_stores_are_by_corpora_too(tmp_path: Path) -> None:
    corpus = Corpus.from_examples([EXAMPLES[0], Example("prompt 0", "answer", "again")])
    with measuring() as meter:
        GradientStore(tmp_path, "k" * 64, 2).rows(corpus, lambda part: np.ones((len(part), 2), np.float32))
    assert meter.spent.rows["k" * 32][:2] == (1, 1)  # a text that stands twice is asked for once
