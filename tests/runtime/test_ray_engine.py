"""The Ray engine: the same bytes as in process, lost actors, nodes and heads, slow nodes, resources."""

import ipaddress
import os
import re
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
from worlds.toy_tasks import Stumbling, make_name_process, make_square

import airrep
from airrep.arrays import DenseFeatures
from airrep.attributors.base import OnRows
from airrep.corpus.corpus import Example
from airrep.errors import ArtifactError, ConfigError, MissingExtraError, TrainingError
from airrep.labels.farm import TaskReport, label
from airrep.runtime import ray_engine
from airrep.runtime.ray_engine import AUTH_MODE, AUTH_TOKEN, AUTH_TOKEN_PATH, RayEngine, load_ray


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


def test_ray_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"engine ray: needs an optional dependency.*airrep\[ray\]"):
        list(RayEngine().run(make_square, [1]))


@pytest.mark.parametrize("resources", [{"cpus": -1.0}, {"cpus": 0.0}, {"gpus": -0.5}, {"workers": 0}])
def test_resources_out_of_range_are_refused(resources: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="cpus|workers"):
        RayEngine(**resources)


PATIENT = {"RAY_agent_register_timeout_ms": "120000"}
"""A node ends if its agent, a Python process, is slow to start, as on a busy machine."""
LISTENING = """
import psutil, sys
from airrep.runtime import ray_engine
from worlds.toy_tasks import make_square

def addresses():
    me = psutil.Process()
    for process in (me, *me.children(recursive=True)):
        try:
            yield from (one.laddr.ip for one in process.net_connections("inet") if one.status == "LISTEN")
        except psutil.Error:
            pass

ray = ray_engine.load_ray()
with ray_engine._connected(ray, None):
    values = [outcome.value for outcome in ray_engine.RayEngine(workers=1).run(make_square, [3])]
    asked = ray._raylet.get_authentication_mode() == ray._raylet.AuthenticationMode.TOKEN
    print(values, sorted(set(addresses())), asked)
"""


@pytest.mark.slow
def test_a_cluster_of_this_machine_listens_to_it_alone_and_asks_for_a_token() -> None:
    """It listened on all interfaces, to everyone: whoever reached a port could run any code."""
    pytest.importorskip("ray")
    pytest.importorskip("psutil")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    paths = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    command, own = [sys.executable, "-c", LISTENING], {**clean, **PATIENT, "PYTHONPATH": paths}
    done = subprocess.run(command, env=own, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    values, addresses, mode = re.fullmatch(r"(\[.*\]) (\[.*\]) (.*)", done.stdout.strip()).groups()
    assert values == "[9]"
    found = [ipaddress.ip_address(one.strip(" '")) for one in addresses.strip("[]").split(",")]
    assert found
    assert all((getattr(one, "ipv4_mapped", None) or one).is_loopback for one in found), found
    assert mode == "True"


def test_a_token_that_is_there_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(ray_engine, "_is_imported", lambda: False)
    for name in (AUTH_MODE, AUTH_TOKEN, AUTH_TOKEN_PATH):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    load_ray(own=False)
    assert AUTH_MODE not in os.environ
    with monkeypatch.context() as imported:
        imported.setattr(ray_engine, "_is_imported", lambda: True)
        load_ray()  # it was read without a token, and would not have one
    assert AUTH_MODE not in os.environ
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray/auth_token").write_text("theirs")
    load_ray()
    assert os.environ[AUTH_MODE] == "token"
    assert AUTH_TOKEN not in os.environ
    (tmp_path / ".ray/auth_token").unlink()
    load_ray()
    assert len(os.environ[AUTH_TOKEN]) == 64


def start_cluster(patch: pytest.MonkeyPatch, cpus: int) -> Any:
    """Start a head with so many processors. Its workers, and those of nodes that join, find the tests' worlds."""
    pytest.importorskip("ray")
    load_ray()
    from ray.cluster_utils import Cluster

    # By the environment: with a `runtime_env`, Ray cannot start workers before they are asked for.
    paths = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    patch.setenv("PYTHONPATH", paths)
    for name, value in PATIENT.items():
        patch.setenv(name, value)
    return Cluster(initialize_head=True, head_node_args={"num_cpus": cpus, "include_dashboard": False})


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A cluster of two nodes with one processor each, beside a head that runs no actors."""
    with pytest.MonkeyPatch.context() as patch:
        started = start_cluster(patch, 0)
        try:
            import ray

            for _ in range(2):
                started.add_node(num_cpus=1)
            ray.init(address=started.address, log_to_driver=False, logging_level="ERROR")
            yield started
        finally:
            ray.shutdown()
            started.shutdown()


@pytest.fixture
def three_nodes(cluster: Any) -> Any:
    """The same cluster with a third node; the test leaves two."""
    cluster.add_node(num_cpus=1)
    return cluster


@pytest.mark.slow
def test_ray_gives_the_values_of_the_other_engines(cluster: Any) -> None:
    outcomes = RayEngine().run(make_square, range(6))
    assert {outcome.task: outcome.value for outcome in outcomes} == {number: number**2 for number in range(6)}
    assert list(RayEngine().run(make_square, [])) == []


@pytest.mark.slow
def test_ray_builds_the_bytes_of_an_index_of_the_shipped_encoder(cluster: Any, tmp_path: Path) -> None:
    for name, engine in (("here", None), ("there", RayEngine(workers=2))):
        airrep.build_index(make_corpus(50), tmp_path / name, shard_rows=16, engine=engine)
    assert tree(tmp_path / "there") == tree(tmp_path / "here")


@pytest.mark.slow
def test_ray_takes_as_many_actors_as_fit(cluster: Any) -> None:
    assert RayEngine().count(load_ray(), 30) == 2
    assert len({outcome.value for outcome in RayEngine(cpus=0.5).run(make_name_process, range(60))}) == 4
    told = "a worker needs 1 CPUs and 1 GPUs, but the whole cluster has 2 CPUs and 0 GPUs"
    with pytest.raises(ConfigError, match=told):
        list(RayEngine(gpus=1).run(make_square, [1]))
    with pytest.raises(TrainingError, match="no worker was ready within 1 s"):
        list(RayEngine(workers=1, gpus=0.5, start_seconds=1).run(make_square, [1]))


@pytest.mark.slow
def test_ray_tries_failed_and_lost_tasks_again(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airrep.runtime.engine.MOST_LOSSES", 2)  # each loss is a new process
    outcomes = {outcome.task: outcome for outcome in RayEngine().run(Stumbling(tmp_path, "each way"), range(6))}
    assert (outcomes[1].error, outcomes[1].attempts) == ("loss: is not finite.", 2)
    assert (outcomes[2].value, outcomes[2].attempts) == (4, 2)
    assert (outcomes[3].error, outcomes[3].attempts) == ("its worker was lost (ActorDiedError)", 2 + 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "kind", "words"),
    [
        ("disk", ArtifactError, "there: cannot be written"),
        ("no setup", ConfigError, "setup: cannot be"),
        ("dead setup", TrainingError, "workers were lost before they were ready"),
        ("bug", TrainingError, "a worker ended with ZeroDivisionError"),
    ],
)
def test_other_errors_end_the_run(cluster: Any, tmp_path: Path, how: str, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        list(RayEngine(workers=1).run(Stumbling(tmp_path, how), range(6)))


@pytest.mark.slow
def test_ray_farms_resume_what_another_engine_began(cluster: Any, tmp_path: Path) -> None:
    plan = make_plan(tmp_path / "plan")
    here = label(plan, TRAIN, QUERIES, ToyWorld(), FINE_TUNE, tmp_path / "here")
    label(plan, TRAIN, QUERIES, ToyWorld(), FINE_TUNE, tmp_path / "there", part="1/2")
    there = label(plan, TRAIN, QUERIES, ToyWorld(), FINE_TUNE, tmp_path / "there", engine=RayEngine())
    assert visible(there.path) == visible(here.path)


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


@pytest.mark.slow
def test_labels_survive_the_loss_of_two_of_three_nodes(three_nodes: Any, tmp_path: Path) -> None:
    plan = make_plan(tmp_path / "plan")
    here = label(plan, TRAIN, QUERIES, ToyWorld(), FINE_TUNE, tmp_path / "here")
    world, reports = ToyWorld(log=str(tmp_path / "log"), seconds=0.5), list[TaskReport]()
    lose = losing(three_nodes, [1, 3])

    def on_task(report: TaskReport) -> None:
        reports.append(report)
        lose()

    there = label(plan, TRAIN, QUERIES, world, FINE_TUNE, tmp_path / "there", engine=RayEngine(), on_task=on_task)
    assert visible(there.path) == visible(here.path)
    assert len(begun(tmp_path / "log")) <= len(reports) + 2  # a node takes one task with it


@pytest.mark.slow
def test_an_index_survives_the_loss_of_two_of_three_nodes(three_nodes: Any, tmp_path: Path) -> None:
    corpus, log = make_corpus(96), tmp_path / "log"
    airrep.build_index(corpus, tmp_path / "here", SlowAttributor(str(log), 0.0), shard_rows=8)
    slow = SlowAttributor(str(log), 0.5)
    lose = losing(three_nodes, [2, 4])
    airrep.build_index(corpus, tmp_path / "there", slow, shard_rows=8, engine=RayEngine(), progress=lose)
    assert tree(tmp_path / "there") == tree(tmp_path / "here")
    shards = log.read_text().splitlines()
    assert len(set(shards)) == 12
    assert len(shards) <= 12 + 2


@pytest.mark.slow
def test_a_slow_node_does_what_it_can(cluster: Any, tmp_path: Path) -> None:
    cluster.add_node(num_cpus=1, env_vars={"AIRREP_TEST_SLOW": "1"})
    plan = make_plan(tmp_path / "plan", subsets=12)
    here = label(plan, TRAIN, QUERIES, ToyWorld(), FINE_TUNE, tmp_path / "here")
    world = LopsidedWorld(log=str(tmp_path / "log"))
    there = label(plan, TRAIN, QUERIES, world, FINE_TUNE, tmp_path / "there", engine=RayEngine())
    assert visible(there.path) == visible(here.path)
    where = (tmp_path / "log-where").read_text().splitlines()
    assert len(where) == 24, "no fine-tune is done twice"
    assert 1 <= where.count("slow") <= 8, "the others do more than their third"


@pytest.mark.slow
def test_an_address_without_a_cluster_is_an_error(tmp_path: Path) -> None:
    ray = pytest.importorskip("ray")
    if ray.is_initialized():
        ray.shutdown()
    with pytest.raises(ConfigError, match="no Ray cluster answers"):
        list(RayEngine(address="127.0.0.1:1").run(make_square, [1]))


@pytest.mark.slow
def test_a_head_that_is_started_again_costs_what_was_at_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "2")
    plan, log = make_plan(tmp_path / "plan"), tmp_path / "log"
    here = label(plan, TRAIN, QUERIES, ToyWorld(), FINE_TUNE, tmp_path / "here")

    def run(cluster: Any) -> Any:
        words = [sys.executable, "-c", _LABEL, plan.path, tmp_path / "there", log, cluster.address]
        return subprocess.Popen(list(map(str, words)), stderr=subprocess.DEVNULL)

    first = start_cluster(monkeypatch, 2)
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
    second = start_cluster(monkeypatch, 2)
    try:
        assert run(second).wait(timeout=200) == 0
    finally:
        second.shutdown()
    assert visible(tmp_path / "there") == visible(here.path)
    assert len(begun(log)) <= 10 + 2 + 2  # what both workers had in hand, and what was not yet recorded
