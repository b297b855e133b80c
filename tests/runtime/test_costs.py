"""Costs of real runs: recorded beside artifacts, across interruptions, without changing them."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds.commands import runner
from worlds.small_world import HashAttributor, make_corpus, tree
from worlds.tiny_lms import tiny_lm

import airrep
from airrep.arrays import DenseFeatures
from airrep.attributors.base import OnRows
from airrep.attributors.gradient.store import GradientStore, keep_arrays, recall_arrays
from airrep.corpus.corpus import Corpus, Example
from airrep.evaluation.pool import cost_of
from airrep.index import editing
from airrep.runtime.artifacts.manifests import read_manifest
from airrep.runtime.costs import (
    encoding_cost,
    index_cost,
    read_costs,
    stored_bytes_per_example,
)
from airrep.runtime.engine import InProcess
from airrep.runtime.metering import COSTS, Measured, MeasuredCost, StoreRows
from airrep.runtime.processes import LocalProcesses


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
    import time

    until = time.process_time() + seconds
    while time.process_time() < until:
        sum(range(100))


def _encoding(examples: int, cpu: float, rows: dict[str, StoreRows], **more: Any) -> Measured:
    return Measured("encode", examples, MeasuredCost(cpu, 2 * cpu, rows=rows, **more), {})


def test_an_example_costs_the_seconds_of_encoding_divided_by_examples() -> None:
    fits = [Measured("fit", 30, MeasuredCost(3.0, 4.0), {}), Measured("fit", 30, MeasuredCost(5.0, 6.0), {})]
    found = encoding_cost(fits, [_encoding(10, 1.0, {}), _encoding(20, 5.0, {})])
    assert (found.examples, found.cpu_seconds_per_example, found.wall_seconds_per_example) == (30, 0.2, 0.4)
    assert (found.fit_seconds, found.fit_wall_seconds) == (4, 5)


def test_rows_found_in_a_store_count_as_if_they_had_been_computed() -> None:
    rows = {"s": StoreRows(10, 4, 2.0, 4.0)}  # 0.5 s for each fresh row; 3 s besides
    found = encoding_cost([], [_encoding(10, 5.0, rows)])
    assert found.cpu_seconds_per_example == pytest.approx((3.0 + 10 * 0.5) / 10)
    assert found.wall_seconds_per_example == pytest.approx((6.0 + 10 * 1.0) / 10)


def test_rows_that_a_fit_computed_are_not_counted_twice() -> None:
    fit = Measured("fit", 10, MeasuredCost(7.0, 7.0, rows={"s": StoreRows(10, 10, 5.0, 5.0)}), {})
    found = encoding_cost([fit], [_encoding(10, 1.0, {"s": StoreRows(10, 0, 0.0, 0.0)})])
    assert found.fit_seconds == pytest.approx(2)
    assert found.cpu_seconds_per_example == pytest.approx((1.0 + 5.0) / 10)


def test_several_stores_are_reckoned_by_themselves() -> None:
    rows = {"a": StoreRows(10, 5, 1.0, 1.0), "b": StoreRows(20, 10, 4.0, 4.0)}
    found = encoding_cost([], [_encoding(10, 5.0, rows)])
    assert found.cpu_seconds_per_example == pytest.approx((0 + 10 * 0.2 + 20 * 0.4) / 10)


def test_what_was_found_ready_made_has_an_unknown_cost() -> None:
    recalled = Measured("fit", 10, MeasuredCost(0.1, 0.1, recalled=True), {})
    found = encoding_cost([recalled], [_encoding(10, 1.0, {"s": StoreRows(10, 0, 0.0, 0.0)})])
    assert (found.cpu_seconds_per_example, found.fit_seconds) == (None, None)
    assert encoding_cost([], []).cpu_seconds_per_example is None


def _build(folder: Path, store: Path | None, **more: Any) -> airrep.Index:
    attributor = BusyAttributor()
    attributor.store = store
    return airrep.build_index(make_corpus(50), folder, attributor, shard_rows=16, **more)


def test_an_index_tells_what_it_cost(tmp_path: Path) -> None:
    _build(tmp_path / "index", None)
    found = index_cost(tmp_path / "index")
    assert found is not None
    assert found.encoding.examples == 50
    assert found.seconds_per_example is not None
    assert 0.0005 <= found.seconds_per_example < 0.004
    assert found.encoding.fit_seconds is not None
    assert found.encoding.fit_seconds >= 0.02
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
    assert found.encoding.examples == 50
    assert tree(tmp_path / "stopped") == tree(tmp_path / "undisturbed")
    manifest = json.loads((tmp_path / "stopped" / "manifest.json").read_bytes())
    assert COSTS not in manifest["files"]


def test_a_finished_index_that_is_asked_for_again_keeps_its_costs(tmp_path: Path) -> None:
    _build(tmp_path / "index", None)
    before = (tmp_path / "index" / COSTS).read_bytes()
    _build(tmp_path / "index", None)
    assert (tmp_path / "index" / COSTS).read_bytes() == before


def test_show_verify_accepts_an_index_with_and_without_costs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _build(tmp_path / "index", None)
    shutil.copytree(tmp_path / "index", tmp_path / "copy")
    (tmp_path / "copy" / COSTS).unlink()
    for name in ("index", "copy"):
        ran = runner(capsys, monkeypatch)("show", str(tmp_path / name), "--verify")
        assert ran.status == 0
        assert "whole" in ran.err
    assert index_cost(tmp_path / "index") is not None
    assert index_cost(tmp_path / "copy") is None


def test_an_index_from_a_full_store_does_not_claim_a_tiny_cost(tmp_path: Path) -> None:
    _build(tmp_path / "first", tmp_path / "store")
    _build(tmp_path / "second", tmp_path / "store")
    first, second = index_cost(tmp_path / "first"), index_cost(tmp_path / "second")
    assert first is not None
    assert first.seconds_per_example is not None
    assert first.seconds_per_example >= 0.0005
    assert second is not None
    assert second.seconds_per_example is None
    assert second.encoding.fit_seconds is None


def test_half_a_full_store_gives_the_cost_of_the_other_half(tmp_path: Path) -> None:
    attributor = BusyAttributor()
    attributor.store = tmp_path / "store"
    attributor.encode_train(make_corpus(50)[:25])
    _build(tmp_path / "index", tmp_path / "store")
    found = index_cost(tmp_path / "index")
    assert found is not None
    assert found.seconds_per_example is not None
    assert 0.0005 <= found.seconds_per_example < 0.004


def test_appended_examples_are_counted_and_compaction_keeps_what_is_known(tmp_path: Path) -> None:
    index = _build(tmp_path / "index", None)
    index = editing.append(index, make_corpus(20, "more"))
    assert index_cost(tmp_path / "index").encoding.examples == 70
    editing.compact(editing.delete(index, [1, 2]))
    assert index_cost(tmp_path / "index").encoding.examples == 70


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
    assert known[0] is not None
    assert known[0] > 0
    assert known[1] is not None
    assert known[1] > 0
    assert known[2] is None  # dsdm found the gradients that tracin had kept
    assert known[3] is None


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
