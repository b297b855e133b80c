"""Measuring pieces of work, lines of costs, and costs of real runs, across interruptions."""

import json
import shutil
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds.commands import Run, done
from worlds.small_world import HashAttributor, make_corpus, tree
from worlds.tiny_lms import tiny_lm

import airrep
from airrep.arrays import DenseFeatures
from airrep.attributors.base import OnRows
from airrep.attributors.gradient.store import GradientStore, keep_arrays, recall_arrays
from airrep.attributors.settings import EncoderSettings, TfidfSettings
from airrep.corpus.corpus import Corpus, Example
from airrep.evaluation.given import cost_of
from airrep.runtime.artifacts import read_manifest
from airrep.runtime.engine import InProcess, LocalProcesses
from airrep.runtime.metering import (
    COSTS,
    Measured,
    MeasuredCost,
    StoreRows,
    append_cost,
    computing_rows,
    describe_machine,
    device_of,
    index_cost,
    measuring,
    memory_bytes,
    peak_memory,
    read_costs,
    stored_bytes_per_example,
    undisturbed_seconds,
)

EXAMPLES = [Example(f"prompt {number}", "answer", f"e{number}") for number in range(10)]


class BusyAttributor(HashAttributor):
    """Computes half a millisecond for each example that a store does not keep, and learns for 20 ms."""

    store: Path | None = None

    def fit(self, train: Corpus) -> None:
        if recall_arrays(self.store, "f" * 64) is None:
            _burn(0.02)
            keep_arrays(self.store, "f" * 64, {"learnt": np.ones(1)})

    def encode_train(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> DenseFeatures:
        if on_rows is not None:
            on_rows(len(examples))
        return GradientStore(self.store, "k" * 64, 16).rows(examples, self._compute)

    def _compute(self, examples: Sequence[Example]) -> np.ndarray:
        _burn(0.0005 * len(examples))
        return super().encode_train(examples)


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


def ones(part: Sequence[Example]) -> np.ndarray:
    return np.ones((len(part), 2), np.float32)


def test_a_store_that_keeps_nothing_counts_nothing_and_a_text_that_stands_twice_counts_once(tmp_path: Path) -> None:
    with measuring() as meter:
        GradientStore(None, "k" * 64, 2).rows(EXAMPLES, ones)
    assert meter.spent.rows == {}
    corpus = Corpus.from_examples([EXAMPLES[0], Example("prompt 0", "answer", "again")])
    with measuring() as meter:
        GradientStore(tmp_path, "k" * 64, 2).rows(corpus, ones)
    assert meter.spent.rows["k" * 32][:2] == (1, 1)


def test_a_machine_is_cores_processor_and_memory_without_its_name() -> None:
    text = describe_machine()
    assert "cores of" in text
    assert "GiB memory" in text
    assert socket.gethostname() not in text
    assert "(R)" not in text


def test_peak_memory_covers_what_is_held_and_is_less_than_there_is() -> None:
    held = np.ones(2**22, np.float64)
    assert held.nbytes < peak_memory() < (memory_bytes() or 0)


def fit_of(cpu: float, wall: float, **more: Any) -> Measured:
    return Measured("fit", 10, MeasuredCost(cpu, wall, **more), {})


def encoding_of(examples: int, cpu: float, rows: dict[str, StoreRows] | None = None) -> Measured:
    return Measured("encode", examples, MeasuredCost(cpu, 2 * cpu, rows=rows or {}), {})


ALL_STORED = {"s": StoreRows(10, 0, 0.0, 0.0)}


@pytest.mark.parametrize(
    ("fits", "encodings", "cpu", "wall"),
    [
        pytest.param(
            [fit_of(3.0, 4.0), fit_of(5.0, 6.0)],
            [encoding_of(10, 1.0), encoding_of(20, 5.0)],
            (0.2, 4.0),
            (0.4, 5.0),
            id="seconds are divided by examples",
        ),
        pytest.param(
            [],
            [encoding_of(10, 5.0, {"s": StoreRows(10, 4, 2.0, 4.0)})],
            ((3.0 + 10 * 0.5) / 10, None),
            ((6.0 + 10 * 1.0) / 10, None),
            id="rows found in a store count as if they had been computed",
        ),
        pytest.param(
            [fit_of(7.0, 7.0, rows={"s": StoreRows(10, 10, 5.0, 5.0)})],
            [encoding_of(10, 1.0, ALL_STORED)],
            ((1.0 + 5.0) / 10, 2.0),
            ((2.0 + 5.0) / 10, 2.0),
            id="rows that a fit computed are not counted twice",
        ),
        pytest.param(
            [],
            [encoding_of(10, 5.0, {"a": StoreRows(10, 5, 1.0, 1.0), "b": StoreRows(20, 10, 4.0, 4.0)})],
            ((0 + 10 * 0.2 + 20 * 0.4) / 10, None),
            ((5 + 10 * 0.2 + 20 * 0.4) / 10, None),
            id="several stores are reckoned by themselves",
        ),
        pytest.param(
            [fit_of(0.1, 0.1, recalled=True)],
            [encoding_of(10, 1.0, ALL_STORED)],
            (None, None),
            (None, None),
            id="what was found ready-made has an unknown cost",
        ),
        pytest.param([], [], (None, None), (None, None), id="nothing"),
    ],
)
def test_an_undisturbed_run_is_estimated(
    fits: list[Measured], encodings: list[Measured], cpu: tuple[Any, Any], wall: tuple[Any, Any]
) -> None:
    assert undisturbed_seconds(fits, encodings, by_clock=False) == pytest.approx(cpu)
    assert undisturbed_seconds(fits, encodings, by_clock=True) == pytest.approx(wall)


def _build(folder: Path, store: Path | None, **more: Any) -> airrep.Index:
    attributor = BusyAttributor()
    attributor.store = store
    return airrep.build_index(make_corpus(50), folder, attributor, shard_rows=16, **more)


def test_an_index_tells_what_it_cost(tmp_path: Path) -> None:
    _build(tmp_path / "index", None)
    found = index_cost(tmp_path / "index")
    assert found is not None
    assert found.examples == 50
    assert 0.0005 <= (found.seconds_per_example or 0) < 0.004
    assert (found.fit_seconds or 0) >= 0.02
    assert not found.by_clock
    assert (found.memory or 0) > 2**20 or not Path("/proc").exists()
    assert found.bytes_per_example == stored_bytes_per_example(read_manifest(tmp_path / "index"))
    assert abs(found.bytes_per_example - (3 * 16 + 12)) < 50  # headers of small files


def test_costs_survive_an_interruption_and_change_no_byte_of_the_index(tmp_path: Path) -> None:
    def stop(done: int, total: int | None) -> None:
        if done > 16:
            raise KeyboardInterrupt

    _build(tmp_path / "undisturbed", None)
    with pytest.raises(KeyboardInterrupt):
        _build(tmp_path / "stopped", None, progress=stop)
    assert len(read_costs(tmp_path / "stopped.partial")) == 2
    _build(tmp_path / "stopped", None, engine=InProcess())
    found = index_cost(tmp_path / "stopped")
    assert found is not None
    assert found.examples == 50
    assert tree(tmp_path / "stopped") == tree(tmp_path / "undisturbed")
    manifest = json.loads((tmp_path / "stopped" / "manifest.json").read_bytes())
    assert COSTS not in manifest["files"]


def test_a_finished_index_that_is_asked_for_again_keeps_its_costs(tmp_path: Path) -> None:
    _build(tmp_path / "index", None)
    before = (tmp_path / "index" / COSTS).read_bytes()
    _build(tmp_path / "index", None)
    assert (tmp_path / "index" / COSTS).read_bytes() == before


def test_show_verify_accepts_an_index_with_and_without_costs(tmp_path: Path, run: Run) -> None:
    _build(tmp_path / "index", None)
    shutil.copytree(tmp_path / "index", tmp_path / "copy")
    (tmp_path / "copy" / COSTS).unlink()
    for name in ("index", "copy"):
        ran = done(run("show", str(tmp_path / name), "--verify"))
        assert "intact" in ran.err
    assert index_cost(tmp_path / "index") is not None
    assert index_cost(tmp_path / "copy") is None


def test_an_index_from_a_full_store_does_not_claim_a_tiny_cost(tmp_path: Path) -> None:
    _build(tmp_path / "first", tmp_path / "store")
    _build(tmp_path / "second", tmp_path / "store")
    first, second = index_cost(tmp_path / "first"), index_cost(tmp_path / "second")
    assert first is not None
    assert second is not None
    assert (first.seconds_per_example or 0) >= 0.0005
    assert (second.seconds_per_example, second.fit_seconds) == (None, None)


def test_half_a_full_store_gives_the_cost_of_the_other_half(tmp_path: Path) -> None:
    attributor = BusyAttributor()
    attributor.store = tmp_path / "store"
    attributor.encode_train(make_corpus(50)[:25])
    _build(tmp_path / "index", tmp_path / "store")
    found = index_cost(tmp_path / "index")
    assert found is not None
    assert 0.0005 <= (found.seconds_per_example or 0) < 0.004


def test_appended_examples_are_counted_and_compaction_keeps_what_is_known(tmp_path: Path) -> None:
    index = _build(tmp_path / "index", None)
    index = index.append(make_corpus(20, "more"))
    assert index_cost(tmp_path / "index").examples == 70
    index.delete([1, 2]).compact()
    assert index_cost(tmp_path / "index").examples == 70


@pytest.mark.slow
def test_workers_report_what_they_spent(tmp_path: Path) -> None:
    airrep.build_index(make_corpus(64), tmp_path / "index", "tfidf", shard_rows=16, engine=LocalProcesses(2))
    lines = [line for line in read_costs(tmp_path / "index") if line.stage == "encode"]
    assert sum(line.examples for line in lines) == 64
    assert all(line.spent.threads == 1 and line.spent.cpu > 0 for line in lines)


def test_gradient_methods_record_rows_of_the_shared_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lm = tiny_lm(tmp_path / "lm", max_position_embeddings=256)
    settings = {"lm": lm, "rank": 2, "modules": ["all-linear"]}
    for number, method in enumerate(("tracin", "tracin", "dsdm")):
        monkeypatch.setenv("AIRREP_CACHE", str(tmp_path / f"cache{min(number, 1)}"))
        airrep.build_index(make_corpus(12), tmp_path / f"{number}", method, settings=settings)
    monkeypatch.setenv("AIRREP_CACHE", str(tmp_path / "cache1"))
    airrep.build_index(make_corpus(12), tmp_path / "again", "tracin", settings=settings)
    costs = [index_cost(tmp_path / name) for name in ("0", "1", "2", "again")]
    known = [None if cost is None else cost.seconds_per_example for cost in costs]
    assert (known[0] or 0) > 0
    assert (known[1] or 0) > 0
    assert known[2:] == [None, None]  # dsdm found the gradients that tracin had kept


def test_seconds_of_an_index_built_on_an_accelerator_are_those_by_the_clock(tmp_path: Path) -> None:
    index = airrep.build_index(make_corpus(20), tmp_path / "index", HashAttributor())
    assert not cost_of(index).clock
    lines = [json.loads(line) for line in (index.path / COSTS).read_text().splitlines()]
    changed = [{**line, "device": "cuda", "cpu": 1.0, "wall": 40.0} for line in lines]
    (index.path / COSTS).write_text("".join(json.dumps(line) + "\n" for line in changed))
    cost = cost_of(index)
    assert (cost.clock, cost.seconds_per_example) == (True, pytest.approx(2.0))
    (index.path / COSTS).unlink()
    assert cost_of(index) == (cost.bytes_per_example, None, False)
