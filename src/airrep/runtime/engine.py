"""Where independent tasks run: this process, local processes, Ray.

An engine holds no state that matters: whoever asks writes down each outcome when it comes, and asks only for what is
not written down yet. A worker gets its next task when the outcome of the last one was taken, so that a kill at any
moment loses at most the one task that each worker has in hand.
"""

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from airrep.errors import AirRepError, ConfigError, MissingExtraError, TrainingError

T = TypeVar("T")
R = TypeVar("R")


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
        self._tasks = tasks
        self._retries = retries
        self._waiting = deque(range(len(tasks)))
        self._attempts = [0] * len(tasks)
        self.left = len(tasks)
        """How many tasks have no outcome yet."""

    def __bool__(self) -> bool:
        """Whether a task waits for a worker."""
        return bool(self._waiting)

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
        return Outcome(self._tasks[number], reply.value, reply.failure, *taken)
