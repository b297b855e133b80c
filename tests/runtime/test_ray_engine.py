"""The Ray engine: the same bytes as in process, lost actors and nodes, resources."""

import ipaddress
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from worlds.toy_farm import FINE_TUNE, QUERIES, TRAIN, ToyWorld, begun, make_plan, visible
from worlds.toy_tasks import Stumbling, make_name_process, make_square

from airrep.errors import ArtifactError, ConfigError, MissingExtraError, TrainingError
from airrep.labels.farm import TaskReport, label
from airrep.runtime import ray_engine
from airrep.runtime.engine import MOST_LOSSES
from airrep.runtime.ray_engine import AUTH_MODE, AUTH_TOKEN, AUTH_TOKEN_PATH, RayEngine, load_ray


def test_ray_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"engine ray: needs an optional dependency.*airrep\[ray\]"):
        list(RayEngine().run(make_square, [1]))


@pytest.mark.parametrize("resources", [{"cpus": -1.0}, {"cpus": 0.0}, {"gpus": -0.5}, {"workers": 0}])
def test_resources_out_of_range_are_refused(resources: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="expected"):
        RayEngine(**resources)


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
    command, own = [sys.executable, "-c", LISTENING], {**clean, "PYTHONPATH": paths}
    done = subprocess.run(command, env=own, capture_output=True, text=True, check=True)
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


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A cluster of two nodes with one processor each, beside a head that runs no actors."""
    ray = pytest.importorskip("ray")
    load_ray()
    from ray.cluster_utils import Cluster

    started = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for _ in range(2):
        started.add_node(num_cpus=1)
    paths = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])}
    ray.init(address=started.address, log_to_driver=False, logging_level="ERROR", runtime_env={"env_vars": paths})
    yield started
    ray.shutdown()
    started.shutdown()


@pytest.mark.slow
def test_ray_gives_the_values_of_the_other_engines(cluster: Any) -> None:
    outcomes = RayEngine().run(make_square, range(6))
    assert {outcome.task: outcome.value for outcome in outcomes} == {number: number**2 for number in range(6)}
    assert list(RayEngine().run(make_square, [])) == []


@pytest.mark.slow
def test_ray_takes_as_many_actors_as_fit(cluster: Any) -> None:
    assert len({outcome.value for outcome in RayEngine().run(make_name_process, range(30))}) == 2
    assert len({outcome.value for outcome in RayEngine(cpus=0.5).run(make_name_process, range(60))}) == 4
    with pytest.raises(ConfigError, match="no worker of 1 CPUs and 1 GPUs fits into the cluster, which has 2 and 0"):
        list(RayEngine(gpus=1).run(make_square, [1]))
    with pytest.raises(TrainingError, match="no worker was ready within 1 s"):
        list(RayEngine(workers=1, gpus=0.5, start_seconds=1).run(make_square, [1]))


@pytest.mark.slow
def test_ray_tries_failed_and_lost_tasks_again(cluster: Any, tmp_path: Path) -> None:
    outcomes = {outcome.task: outcome for outcome in RayEngine().run(Stumbling(tmp_path, "killed once"), range(6))}
    assert (outcomes[3].value, outcomes[3].attempts) == (9, 2)
    outcomes = {outcome.task: outcome for outcome in RayEngine().run(Stumbling(tmp_path, "always"), range(6))}
    assert (outcomes[3].error, outcomes[3].attempts) == ("loss: is not finite.", 2)
    outcomes = {outcome.task: outcome for outcome in RayEngine().run(Stumbling(tmp_path, "killed"), range(6))}
    assert (outcomes[3].error, outcomes[3].attempts) == ("its worker was lost (ActorDiedError)", MOST_LOSSES + 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "kind", "words"),
    [
        ("disk", ArtifactError, "there: cannot be written"),
        ("no setup", ConfigError, "setup: cannot be"),
        ("dead setup", TrainingError, "workers are lost before they are ready"),
        ("bug", TrainingError, "a worker ended with ZeroDivisionError"),
    ],
)
def test_ray_ends_the_run_at_other_errors(
    cluster: Any, tmp_path: Path, how: str, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        list(RayEngine().run(Stumbling(tmp_path, how), range(6)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_lost_node_costs_nothing_but_its_task(cluster: Any, tmp_path: Path, seed: int) -> None:
    """A node is killed at a random moment and another one joins; the bytes are those of one process."""
    moments = random.Random(seed)
    first = moments.randint(1, 8)
    plan = make_plan(tmp_path / "plan")
    here = label(plan, TRAIN, QUERIES, ToyWorld(), FINE_TUNE, tmp_path / "here")
    reports: list[TaskReport] = []

    def lose_a_node(report: TaskReport) -> None:
        reports.append(report)
        if len(reports) == first:
            time.sleep(moments.uniform(0, 0.5))
            cluster.remove_node(sorted(cluster.worker_nodes, key=id)[0], allow_graceful=False)
        if len(reports) == first + 2:
            cluster.add_node(num_cpus=1)

    world = ToyWorld(log=str(tmp_path / "log"), seconds=0.5)
    there = label(plan, TRAIN, QUERIES, world, FINE_TUNE, tmp_path / "there", engine=RayEngine(), on_task=lose_a_node)
    assert visible(there.path) == visible(here.path)
    assert len(begun(tmp_path / "log")) <= 10 + 1


@pytest.mark.slow
def test_ray_farms_resume_what_another_engine_began(cluster: Any, tmp_path: Path) -> None:
    plan = make_plan(tmp_path / "plan")
    here = label(plan, TRAIN, QUERIES, ToyWorld(), FINE_TUNE, tmp_path / "here")
    label(plan, TRAIN, QUERIES, ToyWorld(), FINE_TUNE, tmp_path / "there", part="1/2")
    there = label(plan, TRAIN, QUERIES, ToyWorld(), FINE_TUNE, tmp_path / "there", engine=RayEngine())
    assert visible(there.path) == visible(here.path)


@pytest.mark.slow
def test_an_address_without_a_cluster_is_an_error(tmp_path: Path) -> None:
    ray = pytest.importorskip("ray")
    if ray.is_initialized():
        ray.shutdown()
    with pytest.raises(ConfigError, match="no Ray cluster answers"):
        list(RayEngine(address="127.0.0.1:1").run(make_square, [1]))
