"""Engines that run independent tasks: the base class, the dispatch, this process.

An engine holds no state that matters: whoever asks writes down each outcome when it comes, and asks only for what is
not written down yet. A worker gets its next task when the outcome of the last one was taken, so that a kill at any
moment loses at most the one task that each worker has in hand.
"""

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from airrep.errors import AirRepError, ConfigError, MissingExtraError, TrainingError

T = TypeVar("T")
R = TypeVar("R")
W = TypeVar("W", bound="Worker")


@dataclass(frozen=True)
class Outcome(Generic[T, R]):
    """What became of one task."""

    task: T
    """As it was given."""
    value: R | None
    """What the work returned; None if it failed."""
    error: str | None
    """Why it failed every time, in one line; None if it did not."""
    seconds: float
    """Time in the worker, of the last attempt."""
    attempts: int
    """How often it was tried, from 1 on."""
    cpu_seconds: float = 0.0
    """Processor time in the worker, of the last attempt."""


class Engine(ABC):
    """Runs independent tasks."""

    @abstractmethod
    def run(
        self, setup: Callable[[], Callable[[T], R]], tasks: Sequence[T], retries: int = 1
    ) -> Generator[Outcome[T, R], None, None]:
        """Run every task and yield the outcomes in the order of completion.

        A task that raises TrainingError, or whose worker is lost, is tried again after the others; when that was in
        vain too, its outcome has the reason. Any other error of a task ends the run.

        Args:
            setup: called once in each worker, makes what does the work: loads a model, say. It, the tasks and the
                values can be pickled.
            tasks: what the work is called with, one at a time.
            retries: how often a failed task is tried again.

        Raises:
            AirRepError: raised by the setup, or by a task when it is not a TrainingError.
            TrainingError: workers end before they are ready, or with an error that nobody expected.
        """


@dataclass(frozen=True)
class InProcess(Engine):
    """Runs tasks one after the other in this process, on one thread as the other engines do."""

    def run(
        self, setup: Callable[[], Callable[[T], R]], tasks: Sequence[T], retries: int = 1
    ) -> Generator[Outcome[T, R], None, None]:
        """See :meth:`Engine.run`."""
        backlog: Backlog[T, R] = Backlog(tasks, retries)
        if not tasks:
            return
        with one_thread():
            work = setup()
            while (number := backlog.take()) is not None:
                outcome = backlog.settle(number, answer(work, tasks[number]))
                if outcome is not None:
                    yield outcome


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread for a while: more would add in another order, so round otherwise."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True)
class Reply(Generic[R]):
    """What a worker says of one call."""

    value: R | None = None
    failure: str | None = None
    """The message of a TrainingError: worth another attempt."""
    fatal: tuple[type[AirRepError], str] | None = None
    """Any other error that airrep raised: ends the run."""
    seconds: float = 0.0
    cpu_seconds: float = 0.0

    def check(self) -> None:
        """Raise what ends the run."""
        if self.fatal is not None:
            kind, message = self.fatal
            raise AirRepError(message) if kind is MissingExtraError else kind(message)


def answer(work: Callable[[T], R], task: T) -> Reply[R]:
    """Do one task in this process; only a TrainingError becomes part of the reply."""
    begun, cpu = time.perf_counter(), time.process_time()
    value, failure = None, None
    try:
        value = work(task)
    except TrainingError as error:
        failure = str(error)
    return Reply(value, failure, seconds=time.perf_counter() - begun, cpu_seconds=time.process_time() - cpu)


def answer_all(work: Callable[[T], R], task: T) -> Reply[R]:
    """Do one task for another process; every error that airrep raises becomes part of the reply."""
    try:
        return answer(work, task)
    except AirRepError as error:
        return Reply(fatal=(type(error), str(error)))


class Backlog(Generic[T, R]):
    """The tasks that wait, and how often each was tried."""

    def __init__(self, tasks: Sequence[T], retries: int) -> None:
        if retries < 0:
            raise ConfigError(f"retries={retries}: expected 0 or more. Correct the value.")
        self.tasks = tasks
        self._retries = retries
        self._waiting = deque(range(len(tasks)))
        self._attempts = [0] * len(tasks)
        self.left = len(tasks)
        """How many tasks have no outcome yet."""

    def take(self) -> int | None:
        """The number of the next task, or None when none waits."""
        if not self._waiting:
            return None
        number = self._waiting.popleft()
        self._attempts[number] += 1
        return number

    def settle(self, number: int, reply: Reply[R]) -> Outcome[T, R] | None:
        """The outcome of a task, or None when it is to be tried again."""
        reply.check()
        if reply.failure is not None and self._attempts[number] <= self._retries:
            self._waiting.append(number)
            return None
        self.left -= 1
        taken = (reply.seconds, self._attempts[number], reply.cpu_seconds)
        return Outcome(self.tasks[number], reply.value, reply.failure, *taken)


class WorkerLostError(Exception):
    """A worker has ended; its arguments are what is said of the task, and the cause alone."""


class Worker(ABC):
    """Does one task at a time, elsewhere; its first reply says whether it is ready."""

    ready = False
    task: int | None = None
    """Number of the task in its hand."""

    @abstractmethod
    def hand(self, task: object) -> None:
        """Send it a task."""

    @abstractmethod
    def reply(self) -> Reply[Any]:
        """Read what it says.

        Raises:
            WorkerLostError: it has ended, but another one may fare better.
            TrainingError: it has ended, and another one would too.
        """

    @abstractmethod
    def end(self) -> None:
        """Stop it, whatever it does."""


class Crew(ABC, Generic[W]):
    """The workers of one run; one that is lost is replaced and its task tried again."""

    unready: ClassVar[str]
    """What is said when too many are lost before they are ready."""

    def __init__(self, count: int, retries: int) -> None:
        self._count = count
        self._starts_left = (retries + 1) * count
        self._workers: list[W] = []

    @abstractmethod
    def begin(self, slot: int) -> W:
        """Start a worker; it is not waited for."""

    @abstractmethod
    def wait(self, workers: Sequence[W]) -> Iterable[W]:
        """Wait until some of these workers say something."""

    def outcomes(self, backlog: Backlog[T, R]) -> Generator[Outcome[T, R], None, None]:
        """Do all tasks, then end the workers."""
        try:
            self._workers.extend(self.begin(slot) for slot in range(self._count))
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
        """Give each idle worker a task; one that is not ready yet gets none, as it may never be."""
        for worker in self._workers:
            if worker.ready and worker.task is None and (number := backlog.take()) is not None:
                worker.task = number
                worker.hand(backlog.tasks[number])

    def _hear(self, worker: W) -> Reply[Any]:
        """What one worker says; a worker that is lost is replaced."""
        worker.task = None
        try:
            reply = worker.reply()
        except WorkerLostError as lost:
            failure, cause = lost.args
            self._replace(worker, cause)
            return Reply(failure=failure)
        if not worker.ready:
            reply.check()
            if reply.failure is not None:
                raise TrainingError(reply.failure)
        worker.ready = True
        return reply

    def _replace(self, worker: W, cause: str) -> None:
        if not worker.ready:
            self._starts_left -= 1
            if not self._starts_left:
                remedy = f"expected room for {self._count}. Take fewer workers, or a smaller model."
                raise TrainingError(f"{self.unready} ({cause}); {remedy}")
        worker.end()
        slot = self._workers.index(worker)
        self._workers[slot] = self.begin(slot)
