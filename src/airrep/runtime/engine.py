"""Engines: hand tasks to workers, lost ones again; this machine's processes.

An engine stores nothing: its caller records each outcome when it comes, and asks only for tasks without a record.
A worker gets its next task when the outcome of the last one was taken, so an interruption loses at most one task per
worker.
"""

import errno
import logging
import multiprocessing
import os
import pickle
import signal
import socket
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

from airrep.errors import AirRepError, ConfigError, MissingExtraError, TrainingError, has, need

_log = logging.getLogger(__name__)
_FULL = (errno.ENOSPC, errno.EDQUOT)

MOST_LOSSES = 8
"""Losses of a task with its machine, beside its retries, at most. A task may itself crash its machines."""

T = TypeVar("T")
R = TypeVar("R")
W = TypeVar("W", bound="Worker")


class Share(NamedTuple):
    """Every *of*-th piece of work, from piece *number* on: a share that needs no coordination with the others."""

    number: int = 1
    """From 1 on."""
    of: int = 1

    @classmethod
    def parse(cls, text: str, flag: str) -> Self:
        """Parse ``"i/n"``, which was given with a flag (ConfigError: another form, or i is not from 1 to n)."""
        number, _, of = text.partition("/")
        if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
            raise ConfigError(f"{flag} {text}: must be i/n with i from 1 to n, such as 3/10.")
        return cls(int(number), int(of))

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    @property
    def name(self) -> str:
        """The share in names of files."""
        return f"{self.number}of{self.of}"

    @property
    def part(self) -> slice:
        """Its part of a list of all pieces."""
        return slice(self.number - 1, None, self.of)


@dataclass(frozen=True)
class Outcome(Generic[T, R]):
    """Result of one task, or the reason why it failed."""

    task: T
    value: R | None
    """Value that the work returned; None if it failed."""
    error: str | None
    """Reason of the last failure, in one line; None if it succeeded."""
    seconds: float
    """Wall seconds of the last attempt in the worker, as its CPU seconds."""
    attempts: int
    """Number of attempts, from 1 on."""
    cpu_seconds: float = 0.0


class Engine(ABC):
    """Runs independent tasks."""

    def run(
        self, setup: Callable[[], Callable[[T], R]], tasks: Sequence[T], retries: int = 1
    ) -> Generator[Outcome[T, R], None, None]:
        """Run every task and yield the outcomes in the order of completion.

        A task that raises TrainingError, or whose worker is lost, is tried again after the others; after its last
        retry, its outcome has the reason. One that is lost with a worker of another machine is no retry: it may be so
        :data:`MOST_LOSSES` times beside them. Any other error of a task ends the run.

        The *setup* is called once in each worker; it returns the function that does a task, with a model loaded, say.
        It, the tasks and the values must be picklable. AirRepError: raised by the setup, or by a task when it is not a
        TrainingError. TrainingError: workers end before they are ready, or with an error that nobody expected.
        """
        backlog: Backlog[T, R] = Backlog(tasks, retries)
        if backlog.left:
            yield from self.outcomes(setup, backlog)

    @abstractmethod
    def outcomes(
        self, setup: Callable[[], Callable[[T], R]], backlog: "Backlog[T, R]"
    ) -> Generator[Outcome[T, R], None, None]:
        """Run tasks, of which there is one at least."""


@dataclass(frozen=True)
class InProcess(Engine):
    """Runs tasks one after the other in this process, on one thread like the other engines."""

    def outcomes(
        self, setup: Callable[[], Callable[[T], R]], backlog: "Backlog[T, R]"
    ) -> Generator[Outcome[T, R], None, None]:
        with one_thread():
            work = setup()
        with one_thread():  # anew, as the setup may have loaded torch
            while (number := backlog.take()) is not None:
                outcome = backlog.settle(number, answer(work, backlog.tasks[number]))
                if outcome is not None:
                    yield outcome


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit what numpy multiplies by, and torch where it is loaded, to one thread inside."""
    from threadpoolctl import threadpool_limits

    torch = sys.modules.get("torch")
    before = torch and torch.get_num_threads()
    with threadpool_limits(1):  # more threads add in another order, so they round otherwise
        if torch is None:
            yield
            return
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)


@dataclass(frozen=True)
class Reply(Generic[R]):
    """Answer of a worker to one call."""

    value: R | None = None
    failure: str | None = None
    """Message of a TrainingError, which is worth another attempt."""
    vanished: bool = False
    """True if it failed because its machine may have gone, not by its own error."""
    fatal: tuple[type[AirRepError], str] | None = None
    """Any other error that airrep raised, which ends the run."""
    full: str | None = None
    """Whose disk is full, so that this worker is of no more use."""
    seconds: float = 0.0
    cpu_seconds: float = 0.0

    def check(self) -> None:
        """Raise the error that ends the run, if there is one."""
        if self.fatal is not None:
            kind, message = self.fatal
            # MissingExtraError is made from the names of a feature and an extra, not from a message.
            raise AirRepError(message) if kind is MissingExtraError else kind(message)


def answer(work: Callable[[T], R], task: T) -> Reply[R]:
    """Do one task; only a TrainingError becomes part of the reply."""
    begun, cpu = time.perf_counter(), time.process_time()
    value, failure = None, None
    try:
        value = work(task)
    except TrainingError as error:
        failure = str(error)
    return Reply(value, failure, seconds=time.perf_counter() - begun, cpu_seconds=time.process_time() - cpu)


def answer_all(work: Callable[[T], R], task: T) -> Reply[R]:
    """Do one task for another process; every error that airrep raises becomes part of the reply, and a full disk."""
    try:
        return answer(work, task)
    except (AirRepError, OSError) as error:
        if any(isinstance(one, OSError) and one.errno in _FULL for one in (error, error.__cause__)):
            return Reply(full=f"the disk of {socket.gethostname()} is full")
        if not isinstance(error, AirRepError):
            raise
        return Reply(fatal=(type(error), str(error)))


def check_retries(retries: int) -> None:
    """Refuse a number of retries below 0 (ConfigError); stages ask before their first file or model."""
    if retries < 0:
        raise ConfigError(f"retries={retries}: expected 0 or more. Correct the value.")


class Backlog(Generic[T, R]):
    """Tasks that wait, with the attempts at each."""

    def __init__(self, tasks: Sequence[T], retries: int) -> None:
        check_retries(retries)
        self.tasks, self.retries = tasks, retries
        self._waiting = deque(range(len(tasks)))
        self._attempts = [0] * len(tasks)
        self._losses = [0] * len(tasks)
        self.left = len(tasks)
        """Number of tasks without an outcome."""

    def take(self) -> int | None:
        """Take the number of the next task; None when none waits."""
        if not self._waiting:
            return None
        number = self._waiting.popleft()
        self._attempts[number] += 1
        return number

    def settle(self, number: int, reply: Reply[R]) -> Outcome[T, R] | None:
        """Turn a reply into an outcome; None if the task is to be tried again."""
        reply.check()
        self._losses[number] += reply.vanished
        failures, losses = self._attempts[number] - self._losses[number], self._losses[number]
        if reply.failure is not None and failures <= self.retries and losses <= MOST_LOSSES:
            self._waiting.append(number)
            return None
        self.left -= 1
        taken = (reply.seconds, self._attempts[number], reply.cpu_seconds)
        return Outcome(self.tasks[number], reply.value, reply.failure, *taken)


class WorkerLostError(Exception):
    """A worker has ended; the arguments are the failure of its task, and the cause alone."""

    def __init__(self, failure: str, cause: str, *, vanished: bool = False) -> None:
        super().__init__(failure, cause)
        self.vanished = vanished
        """True if its machine may have gone with it."""


class Worker(ABC):
    """Does one task at a time, elsewhere; its first reply says whether it is ready."""

    ready = False
    slot = 0
    """Its place among the workers, which decides its GPU."""
    task: int | None = None
    """Number of the task that it is doing."""

    @abstractmethod
    def hand(self, task: object) -> None:
        """Send it a task."""

    @abstractmethod
    def reply(self) -> Reply[Any]:
        """Read its next reply (WorkerLostError: it has ended; TrainingError: it has, and another one would too)."""

    @abstractmethod
    def end(self) -> None:
        """Stop it at once."""


class Crew(ABC, Generic[W]):
    """The workers of one run; one that is lost is replaced and its task tried again."""

    unready: ClassVar[str]
    """Message of the error when too many are lost before they are ready."""

    def __init__(self, count: int, retries: int) -> None:
        self._count = count
        # Without a limit, workers that die before they are ready would be replaced for ever.
        self._starts = self._starts_left = (retries + 1) * count
        self._workers: list[W] = []

    @abstractmethod
    def begin(self, slot: int) -> W:
        """Start a worker in a place; it is not waited for."""

    @abstractmethod
    def wait(self, workers: Sequence[W]) -> Iterable[W]:
        """Wait until some of these workers have a reply."""

    def outcomes(self, backlog: Backlog[T, R]) -> Generator[Outcome[T, R], None, None]:
        """Do all tasks, then end the workers."""
        try:
            self._workers.extend(self._begun(slot) for slot in range(self._count))
            while backlog.left:
                self._hand_out(backlog)
                for worker in self.wait([one for one in self._workers if one.task is not None or not one.ready]):
                    number, reply = worker.task, self._hear(worker)
                    if number is not None and (outcome := backlog.settle(number, reply)) is not None:
                        yield outcome
        finally:
            for worker in self._workers:
                worker.end()

    def _hand_out(self, backlog: Backlog[T, R]) -> None:
        """Give each idle worker a task; one that is not ready gets none, as it may never be."""
        for worker in self._workers:
            if worker.ready and worker.task is None and (number := backlog.take()) is not None:
                worker.task = number
                worker.hand(backlog.tasks[number])

    def _hear(self, worker: W) -> Reply[Any]:
        """Read one worker's reply; a worker that is lost is replaced."""
        worker.task = None
        try:
            reply = worker.reply()
        except WorkerLostError as lost:
            failure, cause = lost.args
            self._replace(worker, cause)
            return Reply(failure=failure, vanished=lost.vanished)
        if reply.full is not None:
            self._dismiss(worker, reply.full)
            return Reply(failure=reply.full, vanished=True)
        if not worker.ready:  # its setup failed, and would in every other worker
            reply.check()
            if reply.failure is not None:
                raise TrainingError(reply.failure)
        worker.ready, self._starts_left = True, self._starts
        return reply

    def _dismiss(self, worker: W, full: str) -> None:
        """Go on without a worker whose disk is full: another one there would fail as fast, and take all tasks."""
        worker.end()
        self._workers.remove(worker)
        if not self._workers:
            raise TrainingError(
                f"workers: {full}, and no other worker is left. Free disk space and run the same command again: it "
                "continues."
            )
        _log.warning("workers: %s; the remaining workers (%d) go on.", full, len(self._workers))

    def _replace(self, worker: W, cause: str) -> None:
        if not worker.ready:
            self._starts_left -= 1
            if not self._starts_left:
                remedy = (
                    f"There may be too little memory for {self._count} workers. Use fewer workers, or a smaller model."
                )
                raise TrainingError(f"{self.unready} ({cause}). {remedy}")
        worker.end()
        self._workers[self._workers.index(worker)] = self._begun(worker.slot)

    def _begun(self, slot: int) -> W:
        worker = self.begin(slot)
        worker.slot = slot
        return worker


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
            f"engine: the work cannot be pickled for another process ({error}). Define its classes and functions at "
            "the top level of a module, or run in this process."
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
                f"a worker process ended with exit status {code}; its error is printed above. A program that uses "
                'LocalProcesses must start its work under: if __name__ == "__main__":'
            )
        hint = ", as happens when memory is short" if -code == signal.SIGKILL else ""
        return f"its worker was ended by {signal.Signals(-code).name}{hint}"


class _Processes(Crew[_Process]):
    """The processes of one run."""

    unready = "workers: one ended before it was ready"

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
