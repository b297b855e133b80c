"""Faults of the label farm: kills, Ctrl-C, a full disk; and several drivers that share the work."""

import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest
from worlds.kills import in_child, kill_at, list_changes
from worlds.toy_farm import ToyWorld, begun, farm, make_plan, visible

from airrep.errors import ArtifactError
from airrep.labels.farm import TaskReport
from airrep.labels.labels import Labels
from airrep.labels.plan import SubsetPlan, open_plan
from airrep.runtime.artifacts import MANIFEST
from airrep.runtime.engine import LocalProcesses
from airrep.runtime.remote.outputs import Mirror
from airrep.runtime.remote.storage import Storage

FINE_TUNES = 10
DRIVER = """
import signal
import sys
from pathlib import Path
from worlds.toy_farm import ToyWorld, farm
from airrep.runtime.engine import LocalProcesses
from airrep.labels.plan import open_plan

signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background of a shell inherits none
folder = Path(sys.argv[1])
world = ToyWorld(log=str(folder / "log"), seconds=2.0)
farm(open_plan(folder / "plan"), folder / "labels", world, engine=LocalProcesses(2))
"""


@pytest.fixture
def undisturbed(tmp_path: Path, plan: SubsetPlan) -> dict[str, bytes]:
    return visible(farm(plan, tmp_path / "undisturbed").path)


def test_a_killed_driver_loses_one_fine_tune(tmp_path: Path, plan: SubsetPlan, undisturbed: dict[str, bytes]) -> None:
    changes = len(list_changes(lambda: farm(plan, tmp_path / "whole"), tmp_path / "whole"))
    for change in range(1, changes, changes // 6):
        out, world = tmp_path / f"trial-{change}", ToyWorld(log=str(tmp_path / f"log-{change}"))
        assert kill_at(lambda out=out, world=world: farm(plan, out, world), out, change)
        farm(plan, out, world)
        assert visible(out) == undisturbed
        assert len(begun(Path(world.log))) <= FINE_TUNES + 1


@pytest.mark.slow
def test_killed_workers_lose_a_fine_tune_each(tmp_path: Path, plan: SubsetPlan, undisturbed: dict[str, bytes]) -> None:
    log, moments, done = tmp_path / "log", random.Random(7), threading.Event()
    killed: set[int] = set()

    def kill_now_and_then() -> None:
        while not done.wait(moments.uniform(0.3, 0.8)) and len(killed) < 4:
            running = [worker for worker in begun(log)[-2:] if worker not in killed]
            if running:
                killed.add(running[-1])
                os.kill(running[-1], signal.SIGKILL)

    killer = threading.Thread(target=kill_now_and_then)
    killer.start()
    world = ToyWorld(log=str(log), seconds=0.3)
    out = tmp_path / "labels"
    farm(plan, out, world, engine=LocalProcesses(2), retries=5)
    done.set()
    killer.join()
    assert visible(out) == undisturbed
    assert killed
    assert len(begun(log)) <= FINE_TUNES + len(killed)


def start_driver(folder: Path) -> "subprocess.Popen[bytes]":
    """A driver with two workers in processes of their own, some fine-tunes on its way."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, "-c", DRIVER, str(folder)]
    driver = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, start_new_session=True)
    wait_for(lambda: len(begun(folder / "log")) >= 4)
    return driver


def wait_for(condition: Callable[[], bool], seconds: float = 300.0) -> None:
    begin = time.monotonic()
    while not condition():
        assert time.monotonic() - begin < seconds
        time.sleep(0.02)


def is_running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT])
def test_a_driver_that_ends_takes_its_workers_along(
    tmp_path: Path, plan: SubsetPlan, undisturbed: dict[str, bytes], ending: signal.Signals
) -> None:
    driver = start_driver(tmp_path)
    workers = set(begun(tmp_path / "log"))
    assert len(workers) == 2
    with pytest.raises(ArtifactError, match="another process is making these labels"):
        farm(plan, tmp_path / "labels")
    if ending == signal.SIGKILL:
        driver.kill()
    else:
        os.killpg(driver.pid, ending)
    errors = driver.communicate()[1]
    wait_for(lambda: not any(map(is_running, workers)))
    assert driver.returncode != 0
    assert errors.count(b"Traceback") == (ending == signal.SIGINT)
    world = ToyWorld(log=str(tmp_path / "log"))
    farm(plan, tmp_path / "labels", world)
    assert visible(tmp_path / "labels") == undisturbed
    assert len(begun(tmp_path / "log")) <= FINE_TUNES + 2


def limited(size: int, work: Callable[[], object]) -> None:
    """Run work while no file may grow beyond *size* bytes; it must end in the named error."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    with pytest.raises(ArtifactError, match="cannot be written: .*; what was there before is unchanged"):
        work()


@pytest.mark.parametrize("size", [0, 170, 1000, 2500])
def test_a_full_disk_is_an_error_and_a_rerun_goes_on(
    tmp_path: Path, plan: SubsetPlan, undisturbed: dict[str, bytes], size: int
) -> None:
    out = tmp_path / "labels"

    assert os.waitpid(in_child(lambda: limited(size, lambda: farm(plan, out))), 0)[1] == 0
    farm(plan, out)
    assert visible(out) == undisturbed


def test_a_full_disk_keeps_what_is_finished(tmp_path: Path, plan: SubsetPlan, undisturbed: dict[str, bytes]) -> None:
    out, log = tmp_path / "labels", tmp_path / "log"

    def fill(report: TaskReport) -> None:
        if report.done == 5:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))

    def work() -> None:
        with pytest.raises(ArtifactError, match="cannot be written: the file would be larger than allowed"):
            farm(plan, out, on_task=fill)

    assert os.waitpid(in_child(work), 0)[1] == 0
    assert len(list((out / "results").iterdir())) == 5
    farm(plan, out, ToyWorld(log=str(log)))
    assert visible(out) == undisturbed
    assert len(begun(log)) == FINE_TUNES - 4


URL = "memory://corp/labels"


class Machines:
    """Machines with a cache each, and one storage."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._tmp_path, self._monkeypatch = tmp_path, monkeypatch

    def on(self, name: str) -> None:
        """Go on at another machine."""
        self._monkeypatch.setenv("AIRREP_CACHE", str(self._tmp_path / name))

    def label(self, name: str, **options: Any) -> Labels:
        """Run the farm on a machine."""
        self.on(name)
        world = ToyWorld(log=str(self._tmp_path / f"log-{name}"))
        return farm(open_plan("memory://corp/plan"), URL, world, **options)

    def begun(self, name: str) -> int:
        """Fine-tunes that a machine began."""
        path = self._tmp_path / f"log-{name}"
        return len(begun(path)) if path.exists() else 0


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    found = Machines(tmp_path, monkeypatch)
    found.on("first")
    make_plan("memory://corp/plan")  # type: ignore[arg-type]
    yield found
    fsspec.filesystem("memory").rm("/corp", recursive=True)


def names() -> set[str]:
    return set(Storage(URL).below())


def test_labels_at_a_url_have_the_bytes_of_those_in_a_folder(machines: Machines, tmp_path: Path) -> None:
    made = machines.label("first", seeds=2)
    here = farm(open_plan("memory://corp/plan"), tmp_path / "here", seeds=2)
    assert made.complete
    machines.on("reader")
    opened = Labels(URL)
    opened.verify()
    assert opened.fingerprint == here.fingerprint
    there = {name for name in names() if not name.startswith("times")}
    assert there == {name for name in visible(here.path) if not name.startswith("times")}


def test_parts_on_several_machines_meet_at_the_url(machines: Machines, tmp_path: Path) -> None:
    for number in (1, 2):
        made = machines.label(f"machine {number}", part=f"{number}/3")
        assert not made.complete
        assert MANIFEST not in names()
    machines.on("reader")
    assert not Labels(URL).complete, "unfinished ones can be looked at"
    assert machines.label("machine 3", part="3/3").complete
    here = farm(open_plan("memory://corp/plan"), tmp_path / "here")
    assert Labels(URL).fingerprint == here.fingerprint
    assert not any(name.startswith("results/") for name in names())
    assert machines.label("machine 1", part="1/3").complete, "the first one finds them finished"
    assert Labels(URL).fingerprint == here.fingerprint
    assert not any(name.startswith("results/") for name in names())


def test_a_machine_that_goes_leaves_its_fine_tunes(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    push, sent = Mirror.push, []

    def gone(self: Mirror, given: Any = None) -> None:
        push(self, given)
        sent.extend(given or ())
        if len(sent) == 5:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Mirror, "push", gone)
        with pytest.raises(KeyboardInterrupt):
            machines.label("first")
    assert len([name for name in names() if name.startswith("results/")]) == 5
    assert machines.label("second").complete
    assert machines.begun("first") + machines.begun("second") == 10, "no fine-tune is done twice"


def test_other_labels_and_other_files_are_refused(machines: Machines) -> None:
    machines.label("first")
    machines.on("second")
    with pytest.raises(ArtifactError, match="holds labels made with another fine_tune"):
        farm(open_plan("memory://corp/plan"), URL, fine_tune={"epochs": 3})
    fsspec.filesystem("memory").pipe("/corp/data/a.jsonl", b"{}")
    with pytest.raises(ArtifactError, match=r"^memory://corp/data: holds files that airrep did not publish"):
        farm(open_plan("memory://corp/plan"), "memory://corp/data")
    assert set(Storage("memory://corp/data").below()) == {"a.jsonl"}
