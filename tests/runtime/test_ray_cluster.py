"""A Ray cluster of three nodes that lose some of them: labels and an index have the bytes of one process."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds.small_world import HashAttributor, make_corpus, tree
from worlds.toy_farm import FINE_TUNE, QUERIES, TRAIN, ToyWorld, begun, make_plan, visible

import airrep
from airrep.arrays import DenseFeatures
from airrep.attributors.base import OnRows
from airrep.corpus.corpus import Example
from airrep.labels.farm import TaskReport, label
from airrep.runtime.ray_engine import RayEngine, load_ray

pytestmark = pytest.mark.slow


class SlowAttributor(HashAttributor):
    """Takes its time, so that a node is lost while it works; notes each shard that it begins."""

    def __init__(self, log: str, seconds: float) -> None:
        super().__init__()
        self.log, self.seconds = log, seconds

    def encode_train(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> DenseFeatures:
        if len(examples) and self.seconds:
            with Path(self.log).open("a") as stream:
                stream.write(f"{examples[0].id}\n")
            time.sleep(self.seconds)
        return super().encode_train(examples, on_rows)


@dataclass(frozen=True)
class LopsidedWorld(ToyWorld):
    """Fine-tunes take twenty times as long where the environment says so."""

    def suffer(self, documents: np.ndarray) -> None:
        slow = "AIRREP_TEST_SLOW" in os.environ
        with Path(self.log + "-where").open("a") as stream:
            stream.write("slow\n" if slow else "fast\n")
        time.sleep(2.0 if slow else 0.1)
        super().suffer(documents)


_LABEL = """
import sys
from pathlib import Path
from worlds.toy_farm import FINE_TUNE, QUERIES, TRAIN, ToyWorld
from airrep.labels.farm import label
from airrep.labels.plan import open_plan
from airrep.runtime.ray_engine import RayEngine
plan, out, log, address = sys.argv[1:]
label(open_plan(plan), TRAIN, QUERIES, ToyWorld(log=log, seconds=0.5), FINE_TUNE, out, engine=RayEngine(address))
"""


def started_cluster(nodes: int) -> Any:
    """A cluster of nodes with one processor each, beside a head that runs no actors; nobody is connected."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for _ in range(nodes):
        made.add_node(num_cpus=1)
    return made


def test_a_head_that_is_started_again_costs_what_was_at_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    load_ray()
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    )
    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "2")
    plan, log = make_plan(tmp_path / "plan"), tmp_path / "log"
    here = label(plan, TRAIN, QUERIES, ToyWorld(), FINE_TUNE, tmp_path / "here")

    def run(cluster: Any) -> Any:
        words = [sys.executable, "-c", _LABEL, plan.path, tmp_path / "there", log, cluster.address]
        return subprocess.Popen(list(map(str, words)), stderr=subprocess.DEVNULL)

    first = started_cluster(2)
    driver = run(first)
    try:
        until = time.monotonic() + 120
        while len(begun(log)) < 4 and driver.poll() is None and time.monotonic() < until:
            time.sleep(0.1)
    finally:
        first.shutdown()
        driver.kill()
        driver.wait()
    before = len(begun(log))
    assert 4 <= before < 10
    second = started_cluster(2)
    try:
        assert run(second).wait(timeout=200) == 0
    finally:
        second.shutdown()
    assert visible(tmp_path / "there") == visible(here.path)
    assert len(begun(log)) <= 10 + 2 + 2  # what both workers had in hand, and what was not yet recorded


def test_a_slow_node_does_what_it_can(cluster: Any, tmp_path: Path) -> None:
    cluster.remove_node(sorted(cluster.worker_nodes, key=id)[0])
    cluster.add_node(num_cpus=1, env_vars={"AIRREP_TEST_SLOW": "1"})
    plan = make_plan(tmp_path / "plan", subsets=15)
    here = label(plan, TRAIN, QUERIES, ToyWorld(), FINE_TUNE, tmp_path / "here")
    world = LopsidedWorld(log=str(tmp_path / "log"))
    there = label(plan, TRAIN, QUERIES, world, FINE_TUNE, tmp_path / "there", engine=RayEngine())
    assert visible(there.path) == visible(here.path)
    where = (tmp_path / "log-where").read_text().splitlines()
    assert len(where) == 30, "no fine-tune is done twice"
    assert 1 <= where.count("slow") <= 10, "the others do more than their third"


@pytest.fixture(scope="module")
def started() -> Iterator[Any]:
    """A head that runs no actors, to which nodes come and go."""
    ray = pytest.importorskip("ray")
    load_ray()
    from ray.cluster_utils import Cluster

    if ray.is_initialized():
        ray.shutdown()
    started = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        paths = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])}
        ray.init(address=started.address, log_to_driver=False, logging_level="ERROR", runtime_env={"env_vars": paths})
        yield started
    finally:
        ray.shutdown()
        started.shutdown()


@pytest.fixture
def cluster(started: Any) -> Any:
    """Three nodes with one processor each; those that the test before left are gone."""
    for node in list(started.worker_nodes):
        started.remove_node(node)
    for _ in range(3):
        started.add_node(num_cpus=1)
    return started


def losing(cluster: Any, after: Sequence[int]) -> Callable[..., None]:
    """A callback that kills a node after so many pieces of work, and lets another one join after the last."""
    calls = [0]

    def lose(*_: object) -> None:
        calls[0] += 1
        if calls[0] in after:
            cluster.remove_node(sorted(cluster.worker_nodes, key=id)[0], allow_graceful=False)
        if calls[0] == after[-1]:
            cluster.add_node(num_cpus=1)

    return lose


def test_labels_survive_the_loss_of_two_of_three_nodes(cluster: Any, tmp_path: Path) -> None:
    plan = make_plan(tmp_path / "plan")
    here = label(plan, TRAIN, QUERIES, ToyWorld(), FINE_TUNE, tmp_path / "here")
    world, reports = ToyWorld(log=str(tmp_path / "log"), seconds=0.5), list[TaskReport]()
    lose = losing(cluster, [1, 3])

    def on_task(report: TaskReport) -> None:
        reports.append(report)
        lose()

    there = label(plan, TRAIN, QUERIES, world, FINE_TUNE, tmp_path / "there", engine=RayEngine(), on_task=on_task)
    assert visible(there.path) == visible(here.path)
    assert len(begun(tmp_path / "log")) <= len(reports) + 2  # a node takes one task with it


def test_an_index_survives_the_loss_of_two_of_three_nodes(cluster: Any, tmp_path: Path) -> None:
    corpus, log = make_corpus(96), tmp_path / "log"
    airrep.build_index(corpus, tmp_path / "here", SlowAttributor(str(log), 0.0), shard_rows=8)
    slow = SlowAttributor(str(log), 0.5)
    lose = losing(cluster, [2, 4])
    airrep.build_index(corpus, tmp_path / "there", slow, shard_rows=8, engine=RayEngine(), progress=lose)
    assert tree(tmp_path / "there") == tree(tmp_path / "here")
    shards = log.read_text().splitlines()
    assert len(set(shards)) == 12
    assert len(shards) <= 12 + 2
