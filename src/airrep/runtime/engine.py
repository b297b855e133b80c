"""Engines that give tasks to workers and repeat lost tasks; processes on this machine.

An engine stores nothing: its caller records each outcome, and passes only tasks that have no record.
A worker gets its next task after the outcome of its last task was consumed, so an interruption loses at most one task
per worker.
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
"""Most times that a task is repeated because its machine was lost, beside its retries: it may itself crash machines."""

T = TypeVar("T")
R = TypeVar("R")
W = TypeVar("W", bound="Worker")


class Share(NamedTuple):
    """Every *of*-th piece of work, starting with piece *number* (from 1): shares need no coordination."""

    number: int = 1
    of: int = 1

    @classmethod
    def parse(cls, text: str, flag: str) -> Self:
        """Parse the value ``"i/n"`` of *flag* (ConfigError: another form, or i is not from 1 to n)."""
        number, _, of = text.partition("/")
        if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
            raise ConfigError(f"{flag} {text}: must be i/n with i from 1 to n, such as 3/10.")
        return cls(int(number), int(of))

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    @property
    def name(self) -> str:
        """The share as used in file names, such as "3of10"."""
        return f"{self.number}of{self.of}"

    @property
    def part(self) -> slice:
        """The share as a slice of the list of all pieces."""
        return slice(self.number - 1, None, self.of)


@dataclass(frozen=True)
class Outcome(Generic[T, R]):
    """Result of one task, or the reason why it failed."""

    task: T
    value: R | None
    """Value that the task returned; None if it failed."""
    error: str | None
    """Reason of the last failure, in one line; None if the task succeeded."""
    seconds: float
    """Wall seconds of the last attempt in the worker; ``cpu_seconds`` are the CPU seconds of this attempt."""
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
        retry, its outcome has the reason. The loss of a worker on another machine does not count as a retry, up to
        :data:`MOST_LOSSES` times. Any other error of a task ends the run.

        *setup* is called once in each worker; it may load a model, and returns the function that does a task. The
        setup, tasks and values must be picklable. AirRepError: raised by the setup, or by a task other than
        TrainingError. TrainingError: workers end before they are ready, or with an unexpected error.
        """
        backlog: Backlog[T, R] = Backlog(tasks, retries)
        if backlog.left:
            yield from self.outcomes(setup, backlog)

    @abstractmethod
    def outcomes(
        self, setup: Callable[[], Callable[[T], R]], backlog: "Backlog[T, R]"
    ) -> Generator[Outcome[T, R], None, None]:
        """Run the tasks of *backlog*, which has at least one."""


@dataclass(frozen=True)
class InProcess(Engine):
    """Runs tasks one after the other in this process, on one thread like the other engines."""

    def outcomes(
        self, setup: Callable[[], Callable[[T], R]], backlog: "Backlog[T, R]"
    ) -> Generator[Outcome[T, R], None, None]:
        with one_thread():
            work = setup()
        with one_thread():  # again, because the setup may have loaded torch
            while (number := backlog.take()) is not None:
                outcome = backlog.settle(number, answer(work, backlog.tasks[number]))
                if outcome is not None:
                    yield outcome


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit numpy's products, and torch if it is loaded, to one thread inside the block."""
    from threadpoolctl import threadpool_limits

    torch = sys.modules.get("torch")
    before = torch and torch.get_num_threads()
    with threadpool_limits(1):  # more threads add in another order, which changes rounding
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
    """Reason of a failure that is worth another attempt: a TrainingError, or the loss of the worker."""
    vanished: bool = False
    """True if the task failed because its machine may be gone, not by its own error."""
    fatal: tuple[type[AirRepError], str] | None = None
    """Type and message of any other error that airrep raised; it ends the run."""
    full: str | None = None
    """Message that the worker's disk is full; the worker is not used any more."""
    seconds: float = 0.0
    cpu_seconds: float = 0.0

    def check(self) -> None:
        """Raise the error that ends the run, if there is one."""
        if self.fatal is not None:
            kind, message = self.fatal
            # MissingExtraError takes the names of a feature and an extra, not a message.
            raise AirRepError(message) if kind is MissingExtraError else kind(message)


def answer(work: Callable[[T], R], task: T) -> Reply[R]:
    """Do one task; a TrainingError becomes the reply's failure, and any other error is raised."""
    begun, cpu = time.perf_counter(), time.process_time()
    value, failure = None, None
    try:
        value = work(task)
    except TrainingError as error:
        failure = str(error)
    return Reply(value, failure, seconds=time.perf_counter() - begun, cpu_seconds=time.process_time() - cpu)


def answer_all(work: Callable[[T], R], task: T) -> Reply[R]:
    """Do one task for another process; all errors of airrep, and a full disk, become part of the reply."""
    try:
        return answer(work, task)
    except (AirRepError, OSError) as error:
        if any(isinstance(one, OSError) and one.errno in _FULL for one in (error, error.__cause__)):
            return Reply(full=f"the disk of {socket.gethostname()} is full")
        if not isinstance(error, AirRepError):
            raise
        return Reply(fatal=(type(error), str(error)))


def check_retries(retries: int) -> None:
    """Raise ConfigError if *retries* is below 0; stages call this before any other work."""
    if retries < 0:
        raise ConfigError(f"retries={retries}: expected 0 or more. Correct the value.")


class Backlog(Generic[T, R]):
    """Tasks that wait, with the attempts and losses of each."""

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
    """A worker has ended; the arguments are the reason for its task's outcome, and the bare cause."""

    def __init__(self, failure: str, cause: str, *, vanished: bool = False) -> None:
        super().__init__(failure, cause)
        self.vanished = vanished
        """True if the worker's machine may be gone too."""


class Worker(ABC):
    """Does one task at a time in another process; its first reply says whether it is ready."""

    ready = False
    slot = 0
    """Number among the workers, which decides the worker's GPU."""
    task: int | None = None
    """Number of the task in progress."""

    @abstractmethod
    def hand(self, task: object) -> None:
        """Send a task to the worker."""

    @abstractmethod
    def reply(self) -> Reply[Any]:
        """Read the next reply (WorkerLostError: the worker ended; TrainingError: a new worker would end too)."""

    @abstractmethod
    def end(self) -> None:
        """Stop the worker at once."""


class Crew(ABC, Generic[W]):
    """The workers of one run; a lost worker is replaced and its task tried again."""

    unready: ClassVar[str]
    """Error message for too many workers lost before they were ready."""

    def __init__(self, count: int, retries: int) -> None:
        self._count = count
        # Without a limit, workers that die before they are ready would be replaced for ever.
        self._starts = self._starts_left = (retries + 1) * count
        self._workers: list[W] = []

    @abstractmethod
    def begin(self, slot: int) -> W:
        """Start a worker with the number *slot*, without waiting for it."""

    @abstractmethod
    def wait(self, workers: Sequence[W]) -> Iterable[W]:
        """Wait until at least one worker has a reply, and return the workers that have one."""

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
        """Give each idle worker a task, but none to a worker that is not ready, as it may never become ready."""
        for worker in self._workers:
            if worker.ready and worker.task is None and (number := backlog.take()) is not None:
                worker.task = number
                worker.hand(backlog.tasks[number])

    def _hear(self, worker: W) -> Reply[Any]:
        """Read one worker's reply; replace the worker if it is lost."""
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
        if not worker.ready:  # a setup that failed here would fail in every other worker
            reply.check()
            if reply.failure is not None:
                raise TrainingError(reply.failure)
        worker.ready, self._starts_left = True, self._starts
        return reply

    def _dismiss(self, worker: W, full: str) -> None:
        """Drop a worker whose disk is full; a new worker there would fail at once on every task."""
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
    """Runs tasks in separate processes; a process that is killed is replaced and its task tried again.

    Workers end at once when this process ends, even if it is killed. A program that uses this class must start its
    work under ``if __name__ == "__main__":``.
    """

    workers: int
    """Number of processes."""
    gpus: tuple[str, ...] | None = None
    """Names of GPUs as in CUDA_VISIBLE_DEVICES, assigned to the workers in turn; None takes all that are visible."""

    def __post_init__(self) -> None:
        """Raise ConfigError for less than one worker."""
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
    """Return the names of the GPUs that this process may use."""
    if not has("torch"):
        return ()
    need("GPUs", "lm", "torch")
    import torch

    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = named.split(",") if named else map(str, range(torch.cuda.device_count()))
    return tuple(names) if torch.cuda.is_available() else ()


def pickled(setup: Callable[[], object]) -> bytes:
    """Pickle a setup (ConfigError: it cannot be pickled)."""
    try:
        return pickle.dumps(setup)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ConfigError(
            f"engine: the work cannot be pickled for another process ({error}). Define its classes and functions at "
            "the top level of a module, or run in this process."
        ) from error


class _Process(Worker):
    """A worker process and the pipe to it."""

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
        """Send a signal to the process and to the programs that it runs, such as a user's trainer."""
        with suppress(ProcessLookupError, PermissionError):  # the process has no own group yet, or has ended
            if self.process.pid is not None:
                os.killpg(self.process.pid, number)

    def end(self) -> None:
        self.send(signal.SIGKILL)
        self.process.kill()
        self.process.join()
        self.connection.close()

    def _cause_of_death(self) -> str:
        """Return the signal that ended the process; TrainingError if it ended by an error, which would occur again."""
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
        """Send a signal to all workers."""
        for worker in self._workers:
            worker.send(number)

    def wait(self, workers: Sequence[_Process]) -> list[_Process]:
        waited: dict[object, _Process] = {worker.connection: worker for worker in workers}
        return [waited[connection] for connection in wait([worker.connection for worker in workers])]


_running: set[_Processes] = set()
"""The workers of all runs in progress."""


@contextmanager
def _pausing(crew: _Processes) -> Iterator[None]:
    """Let workers stop and continue with this process on Ctrl-Z, which the terminal sends to its group only."""
    _running.add(crew)
    main = threading.current_thread() is threading.main_thread()  # only the main thread may set handlers
    if main and signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL:  # keep a program's own handler
        signal.signal(signal.SIGTSTP, _pause)
    try:
        yield
    finally:
        _running.discard(crew)
        if not _running and main and signal.getsignal(signal.SIGTSTP) is _pause:
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)


def _pause(number: int, frame: object) -> None:  # noqa: ARG001
    """Stop all workers and this process until SIGCONT arrives."""
    crews = list(_running)
    for crew in crews:
        crew.send(signal.SIGSTOP)
    signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    signal.pthread_kill(threading.get_ident(), signal.SIGTSTP)  # returns when the process continues
    signal.signal(signal.SIGTSTP, _pause)
    for crew in crews:
        crew.send(signal.SIGCONT)


def _serve(connection: Connection, environment: Mapping[str, str]) -> None:
    """Run a worker: set it up, then do tasks until the process is ended."""
    os.setpgid(0, 0)  # its own process group, which can be killed as a whole
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its workers
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ.update(environment)
    work, reply = set_up(connection.recv_bytes())
    connection.send_bytes(pickle.dumps(reply))
    while work is not None:
        connection.send_bytes(pickle.dumps(answer_all(work, pickle.loads(connection.recv_bytes()))))


def set_up(setup: bytes) -> tuple[Callable[[Any], Any] | None, Reply[None]]:
    """Call a pickled setup in a worker; return the function that does tasks (None if it failed) and the first reply."""
    # The environment sets one thread, but torch may have been loaded before it was set.
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    made: Reply[Callable[[Any], Any]] = answer_all(lambda content: pickle.loads(content)(), setup)
    return made.value, Reply(failure=made.failure, fatal=made.fatal, full=made.full, seconds=made.seconds)


def _end_with_parent() -> None:
    # A killed parent cannot end its workers, so they watch it and end themselves.
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.killpg(0, signal.SIGKILL)
