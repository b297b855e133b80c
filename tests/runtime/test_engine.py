"""Engines: the same outcomes everywhere, retries, lost workers."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from worlds.toy_tasks import (
    FullDisk,
    RunsProgram,
    Stumbling,
    make_count,
    make_name_gpu,
    make_name_process,
    make_square,
    square,
)

from airrep.errors import ArtifactError, ConfigError, TrainingError
from airrep.runtime.engine import (
    MOST_LOSSES,
    Backlog,
    Crew,
    Engine,
    InProcess,
    LocalProcesses,
    Reply,
    Worker,
    WorkerLostError,
)


def values(engine: Engine, setup: Callable[[], Callable[[int], int]], retries: int = 1) -> dict[int, int | None]:
    return {outcome.task: outcome.value for outcome in engine.run(setup, range(6), retries)}


@pytest.fixture(params=[InProcess(), LocalProcesses(2)], ids=["in process", "local"])
def engine(request: pytest.FixtureRequest) -> Engine:
    return request.param


def test_every_engine_gives_the_same_values(engine: Engine) -> None:
    assert values(engine, make_square) == {number: number * number for number in range(6)}


def test_no_tasks_give_no_outcomes(engine: Engine) -> None:
    assert list(engine.run(make_square, [])) == []


def test_a_training_error_is_tried_again(engine: Engine, tmp_path: Path) -> None:
    outcomes = {outcome.task: outcome for outcome in engine.run(Stumbling(tmp_path, "once"), range(6))}
    assert outcomes[3].value == 9
    assert outcomes[3].attempts == 2
    assert outcomes[3].error is None
    assert outcomes[2].attempts == 1


def test_a_lasting_training_error_becomes_the_outcome(engine: Engine, tmp_path: Path) -> None:
    outcomes = list(engine.run(Stumbling(tmp_path, "always"), range(6), retries=2))
    failed = [outcome for outcome in outcomes if outcome.error]
    assert [(outcome.task, outcome.value, outcome.attempts) for outcome in failed] == [(3, None, 3)]
    assert failed[0].error == "loss: is not finite."
    assert len(outcomes) == 6


@pytest.mark.parametrize(("how", "kind"), [("disk", ArtifactError), ("no setup", ConfigError)])
def test_other_errors_end_the_run(engine: Engine, tmp_path: Path, how: str, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="cannot be"):
        values(engine, Stumbling(tmp_path, how))


def test_a_missing_extra_is_named_from_another_process(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="needs an optional dependency.*peft"):
        values(LocalProcesses(1), Stumbling(tmp_path, "extra"))


def test_a_killed_worker_is_replaced_and_its_task_done(tmp_path: Path) -> None:
    outcomes = {
        outcome.task: outcome for outcome in LocalProcesses(2).run(Stumbling(tmp_path, "killed once"), range(6))
    }
    assert {number: outcome.value for number, outcome in outcomes.items()} == {n: n * n for n in range(6)}
    assert outcomes[3].attempts == 2


def test_a_task_that_always_ends_its_worker_is_given_up(tmp_path: Path) -> None:
    outcomes = {one.task: one for one in LocalProcesses(2).run(Stumbling(tmp_path, "killed"), range(6))}
    assert outcomes[3].error == "its worker was ended by SIGKILL, as happens when memory is short"
    assert outcomes[3].attempts == 2
    assert [outcomes[number].value for number in (0, 1, 2, 4, 5)] == [0, 1, 4, 16, 25]


def test_losses_with_a_machine_are_no_retries_but_have_an_end() -> None:
    fails, lost = Reply[int](failure="loss: is not finite."), Reply[int](failure="its worker was lost", vanished=True)
    backlog: Backlog[int, int] = Backlog([7], retries=1)
    for reply in (*[lost] * MOST_LOSSES, fails):
        assert backlog.take() == 0
        assert backlog.settle(0, reply) is None
    backlog.take()
    outcome = backlog.settle(0, fails)
    assert outcome is not None
    assert (outcome.error, outcome.attempts) == ("loss: is not finite.", MOST_LOSSES + 2)
    backlog = Backlog([7], retries=0)
    outcomes = []
    while backlog.take() is not None:
        outcomes.append(backlog.settle(0, lost))
    assert (len(outcomes), outcomes[-1] is None) == (MOST_LOSSES + 1, False)


@pytest.mark.parametrize("when", ["at work", "before"])
def test_others_go_on_where_one_s_disk_is_full(tmp_path: Path, when: str, caplog: pytest.LogCaptureFixture) -> None:
    outcomes = list(LocalProcesses(2).run(FullDisk(tmp_path, when), range(6), retries=0))
    assert {outcome.task: outcome.value for outcome in outcomes} == {n: n * n for n in range(6)}
    told = f"workers: the disk of {socket.gethostname()} is full; the remaining workers (1) go on."
    assert [record.message for record in caplog.records] == [told]


def test_a_disk_that_is_full_everywhere_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="^workers: the disk of .* is full, and no other worker is left"):
        list(LocalProcesses(1).run(FullDisk(tmp_path, "at work"), range(6)))


def test_workers_that_end_before_they_are_ready_end_the_run(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"one ended before it was ready \(its worker was ended by SIGKILL, .*\)"):
        values(LocalProcesses(1), Stumbling(tmp_path, "dead setup"))


def test_an_unexpected_error_in_a_worker_ends_the_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(TrainingError, match="a worker process ended with exit status 1"):
        values(LocalProcesses(1), Stumbling(tmp_path, "bug"))
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_work_that_cannot_be_sent_is_refused() -> None:
    with pytest.raises(ConfigError, match="the work cannot be pickled"):
        values(LocalProcesses(1), lambda: square)


def test_values_out_of_range_are_refused() -> None:
    with pytest.raises(ConfigError, match="workers=0: expected 1 or more"):
        LocalProcesses(0)
    with pytest.raises(ConfigError, match="retries=-1: expected 0 or more"):
        values(InProcess(), make_square, retries=-1)


def test_work_runs_on_one_thread_and_the_caller_keeps_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert [outcome.value for outcome in InProcess().run(make_count, [0])] == [(1, "2")]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert [outcome.value for outcome in LocalProcesses(1).run(make_count, [0])] == [(1, "1")]


def test_gpus_are_dealt_out_to_workers() -> None:
    outcomes = LocalProcesses(2, gpus=("5", "7")).run(make_name_gpu, range(8))
    assert {outcome.value for outcome in outcomes} == {"5", "7"}


def test_workers_end_when_the_run_is_left(tmp_path: Path) -> None:
    run = LocalProcesses(1).run(make_name_process, range(5))
    worker = next(run).value
    assert worker is not None
    run.close()
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)


@pytest.mark.parametrize("ending", ["error", "left"])
def test_programs_that_workers_run_end_with_them(tmp_path: Path, ending: str) -> None:
    run = LocalProcesses(2).run(RunsProgram(tmp_path, ending), range(2))
    if ending == "error":
        with pytest.raises(ConfigError):
            next(run)
    else:
        assert next(run).task == 1
        run.close()
    program = int((tmp_path / "program").read_text())
    end = time.monotonic() + 60
    while _lives(program) and time.monotonic() < end:
        time.sleep(0.01)
    assert not _lives(program)


def _lives(process: int) -> bool:
    """Whether a process runs; one that ended may stand in the table until its new parent asks for it."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_worker_in_the_place_of_another_has_its_gpu() -> None:
    begun: list[int] = []

    class Ending(Worker):
        """Its first task fills the disk, of the first worker, or loses the second one."""

        def hand(self, task: object) -> None:
            self.handed = task

        def reply(self) -> Reply[int]:
            if self.handed == 1 and len(begun) == 3:
                raise WorkerLostError("lost", "lost")
            return Reply(full="the disk is full") if self.handed == 0 and self.slot == 0 else Reply(value=0)

        def end(self) -> None:
            pass

    class Three(Crew[Ending]):
        unready = "workers"

        def begin(self, slot: int) -> Ending:
            begun.append(slot)
            return Ending()

        def wait(self, workers: Sequence[Ending]) -> list[Ending]:
            for worker in workers:
                worker.ready = True
            return [one for one in workers if one.task is not None]

    outcomes = list(Three(3, 1).outcomes(Backlog(range(4), 1)))
    assert len(outcomes) == 4
    assert begun == [0, 1, 2, 1]


def test_a_fatal_reply_keeps_the_kind_of_its_error() -> None:
    with pytest.raises(ArtifactError, match="x: is full"):
        Reply(fatal=(ArtifactError, "x: is full")).check()


TICKING = """
import os, sys, time
from pathlib import Path
from airrep.runtime.engine import LocalProcesses

def make():
    return tick

def tick(task):
    Path(sys.argv[1], f"{os.getpid()}.worker").touch()
    while not Path(sys.argv[1], "enough").exists():
        time.sleep(0.01)
    return task

if __name__ == "__main__":
    import signal
    print(sorted(outcome.value for outcome in LocalProcesses(2).run(make, [1, 2])))
    assert signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL
"""


def test_workers_stop_with_their_program_and_go_on_with_it(tmp_path: Path) -> None:
    (script := tmp_path / "ticking.py").write_text(TICKING)
    # a group of its own, as a shell gives a job: to orphaned ones the system passes no SIGTSTP
    with subprocess.Popen([sys.executable, script, tmp_path], process_group=0, stdout=subprocess.PIPE) as program:
        try:
            wait_until(lambda: len(list(tmp_path.glob("*.worker"))) == 2)
            workers = [int(path.stem) for path in tmp_path.glob("*.worker")]
            for _ in range(2):
                program.send_signal(signal.SIGTSTP)
                wait_until(lambda: {_state(process) for process in (program.pid, *workers)} == {"T"})
                program.send_signal(signal.SIGCONT)
                wait_until(lambda: "T" not in {_state(process) for process in (program.pid, *workers)})
            (tmp_path / "enough").touch()
            assert program.communicate(timeout=60)[0] == b"[1, 2]\n"
            assert program.returncode == 0
        finally:
            program.kill()


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait at most a minute."""
    until = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.02)


def _state(process: int) -> str:
    """T for a process that is stopped, as Linux tells."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_program_keeps_its_own_way_of_stopping() -> None:
    before = signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    try:
        run = LocalProcesses(1).run(make_name_process, range(2))
        next(run)
        assert signal.getsignal(signal.SIGTSTP) is signal.SIG_IGN
        run.close()
    finally:
        signal.signal(signal.SIGTSTP, before)
    run = LocalProcesses(1).run(make_name_process, range(2))
    next(run)
    assert signal.getsignal(signal.SIGTSTP) is not signal.SIG_DFL
    run.close()
    assert signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL
