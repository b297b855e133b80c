"""Workers that are processes of this machine, one thread each."""

import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from airrep.errors import ConfigError, TrainingError, has, need
from airrep.runtime.engine import Backlog, Crew, Engine, Outcome, R, Reply, T, Worker, WorkerLostError, answer_all

ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
"""Environment of a worker, set before it imports anything large."""


@dataclass(frozen=True)
class LocalProcesses(Engine):
    """Runs tasks in processes of their own; one that is killed is replaced and its task tried again.

    A worker ends at once when this process ends, however it ends. Programs that use this need the usual
    ``if __name__ == "__main__":`` around what they run.
    """

    workers: int
    """Number of processes."""
    gpus: tuple[str, ...] | None = None
    """Names of GPUs as in CUDA_VISIBLE_DEVICES, assigned to the workers in turn; None takes all that are visible."""

    def __post_init__(self) -> None:
        """Refuse less than one worker."""
        if self.workers < 1:
            raise ConfigError(f"workers={self.workers}: expected 1 or more. Correct the value.")

    def outcomes(
        self, setup: Callable[[], Callable[[T], R]], backlog: Backlog[T, R]
    ) -> Generator[Outcome[T, R], None, None]:
        gpus = visible_gpus() if self.gpus is None else self.gpus
        workers = range(min(self.workers, backlog.left))
        own = [ONE_THREAD | ({"CUDA_VISIBLE_DEVICES": gpus[slot % len(gpus)]} if gpus else {}) for slot in workers]
        crew = _Processes(pickled(setup), own, backlog.retries)
        with _pausing(crew):
            yield from crew.outcomes(backlog)


def visible_gpus() -> tuple[str, ...]:
    """Names of the GPUs that this process may use."""
    if not has("torch"):
        return ()
    need("GPUs", "lm", "torch")
    import torch

    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = named.split(",") if named else map(str, range(torch.cuda.device_count()))
    return tuple(names) if torch.cuda.is_available() else ()


def pickled(setup: Callable[[], object]) -> bytes:
    """Pickle a setup (ConfigError: it cannot be sent to another process)."""
    try:
        return pickle.dumps(setup)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ConfigError(
            f"engine: the work cannot be sent to another process ({error}); expected what pickle can store. "
            "Define its classes and functions at the top level of a module, or run in this process."
        ) from error


class _Process(Worker):
    """One process, and the pipe to it."""

    def __init__(self, setup: bytes, environment: Mapping[str, str]) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, dict(environment)), daemon=True)
        self.process.start()
        theirs.close()
        self._send(setup)

    def hand(self, task: object) -> None:
        self._send(pickle.dumps(task))

    def _send(self, message: bytes) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # a dead worker is noticed when its reply is read
            self.connection.send_bytes(message)

    def reply(self) -> Reply[Any]:
        try:
            reply: Reply[Any] = pickle.loads(self.connection.recv_bytes())
        except (EOFError, OSError):
            cause = self._cause_of_death()
            raise WorkerLostError(cause, cause) from None
        return reply

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process and the programs that it runs, as a user's trainer."""
        with suppress(ProcessLookupError, PermissionError):  # it has no group of its own yet, or has ended
            if self.process.pid is not None:
                os.killpg(self.process.pid, number)

    def end(self) -> None:
        self.send(signal.SIGKILL)
        self.process.kill()
        self.process.join()
        self.connection.close()

    def _cause_of_death(self) -> str:
        """The signal that ended the process; an error of its own, which any other would meet too, is raised."""
        self.process.join()
        code = self.process.exitcode or 0
        if code >= 0:
            raise TrainingError(
                f"a worker process ended with exit status {code}; its error is printed above. Correct that; a "
                'program that uses LocalProcesses has to start it under: if __name__ == "__main__":'
            )
        hint = ", as happens when memory is short" if -code == signal.SIGKILL else ""
        return f"its worker was ended by {signal.Signals(-code).name}{hint}"


class _Processes(Crew[_Process]):
    """The processes of one run."""

    unready = "workers: end before they are ready"

    def __init__(self, setup: bytes, environments: Sequence[Mapping[str, str]], retries: int) -> None:
        super().__init__(len(environments), retries)
        self._setup, self._environments = setup, environments

    def begin(self, slot: int) -> _Process:
        return _Process(self._setup, self._environments[slot])

    def send(self, number: signal.Signals) -> None:
        """Send all workers a signal."""
        for worker in self._workers:
            worker.send(number)

    def wait(self, workers: Sequence[_Process]) -> list[_Process]:
        waited: dict[object, _Process] = {worker.connection: worker for worker in workers}
        return [waited[connection] for connection in wait([worker.connection for worker in workers])]


_running: set[_Processes] = set()
"""The workers of all runs that go on."""


@contextmanager
def _pausing(crew: _Processes) -> Iterator[None]:
    """Let workers stop with this process on Ctrl-Z, and go on with it: the terminal does not reach their groups."""
    _running.add(crew)
    main = threading.current_thread() is threading.main_thread()  # no other may set handlers
    if main and signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL:  # else a program has its own way
        signal.signal(signal.SIGTSTP, _pause)
    try:
        yield
    finally:
        _running.discard(crew)
        if not _running and main and signal.getsignal(signal.SIGTSTP) is _pause:
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)


def _pause(number: int, frame: object) -> None:  # noqa: ARG001
    """Stop all workers and this process, until it is told to go on."""
    crews = list(_running)
    for crew in crews:
        crew.send(signal.SIGSTOP)
    signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    signal.pthread_kill(threading.get_ident(), signal.SIGTSTP)  # returns when the process goes on
    signal.signal(signal.SIGTSTP, _pause)
    for crew in crews:
        crew.send(signal.SIGCONT)


def _serve(connection: Connection, environment: Mapping[str, str]) -> None:
    """Run a worker: set it up, then do task after task until it is ended."""
    os.setpgid(0, 0)  # a group of its own, which ends as a whole
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its workers
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ.update(environment)
    work, reply = set_up(connection.recv_bytes())
    connection.send_bytes(pickle.dumps(reply))
    while work is not None:
        connection.send_bytes(pickle.dumps(answer_all(work, pickle.loads(connection.recv_bytes()))))


def set_up(setup: bytes) -> tuple[Callable[[Any], Any] | None, Reply[None]]:
    """Call a pickled setup in a worker: the function that does the tasks, None if it failed, and the first reply."""
    # The environment asks for one thread, but torch may have been loaded before it was set.
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    made: Reply[Callable[[Any], Any]] = answer_all(lambda content: pickle.loads(content)(), setup)
    return made.value, Reply(failure=made.failure, fatal=made.fatal, full=made.full, seconds=made.seconds)


def _end_with_parent() -> None:
    # A parent that is killed cannot end its workers, which would compute for nobody.
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.killpg(0, signal.SIGKILL)
