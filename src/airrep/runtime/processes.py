"""Tasks in processes of this machine, one thread each."""

import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Generic

from airrep.errors import ConfigError, TrainingError
from airrep.runtime.engine import Backlog, Engine, Outcome, R, Reply, T, answer_all

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
    """How many processes."""
    gpus: tuple[str, ...] | None = None
    """Names of GPUs as in CUDA_VISIBLE_DEVICES, dealt out to the workers in turn; None takes all that are visible."""

    def __post_init__(self) -> None:
        """Check the number of workers."""
        if self.workers < 1:
            raise ConfigError(f"workers={self.workers}: expected 1 or more. Correct the value.")

    def run(
        self, setup: Callable[[], Callable[[T], R]], tasks: Sequence[T], retries: int = 1
    ) -> Generator[Outcome[T, R], None, None]:
        """See :meth:`Engine.run`."""
        backlog: Backlog[T, R] = Backlog(tasks, retries)
        if not tasks:
            return
        crew: _Crew[T, R] = _Crew(pickled(setup), self._environments(len(tasks)), tasks, retries)
        try:
            crew.start()
            while backlog.left:
                crew.hand_out(backlog)
                yield from crew.collect(backlog)
        finally:
            crew.end()

    def _environments(self, tasks: int) -> list[dict[str, str]]:
        """The environment of each worker."""
        gpus = visible_gpus() if self.gpus is None else self.gpus
        workers = range(min(self.workers, tasks))
        return [ONE_THREAD | ({"CUDA_VISIBLE_DEVICES": gpus[slot % len(gpus)]} if gpus else {}) for slot in workers]


def visible_gpus() -> tuple[str, ...]:
    """Names of the GPUs that this process may use."""
    import torch

    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = named.split(",") if named else map(str, range(torch.cuda.device_count()))
    return tuple(names) if torch.cuda.is_available() else ()


def pickled(setup: Callable[[], object]) -> bytes:
    """The bytes of a setup.

    Raises:
        ConfigError: it cannot be sent to another process.
    """
    try:
        return pickle.dumps(setup)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ConfigError(
            f"engine: the work cannot be sent to another process ({error}); expected what pickle can store. "
            "Define its classes and functions at the top level of a module, or run in this process."
        ) from error


class _Worker:
    """One process, the pipe to it, and the task in its hand."""

    def __init__(self, setup: bytes, environment: Mapping[str, str]) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, dict(environment)), daemon=True)
        self.process.start()
        theirs.close()
        self.ready = False
        self.task: int | None = None
        self._send(setup)

    def hand(self, number: int, task: object) -> None:
        self.task = number
        self._send(pickle.dumps(task))

    def _send(self, message: bytes) -> None:
        """Send, if it still lives; if not, that is noticed when its reply is read."""
        try:
            self.connection.send_bytes(message)
        except (BrokenPipeError, ConnectionResetError):
            return

    def reply(self) -> Reply[Any] | None:
        """What it says, or None when it has ended."""
        try:
            reply: Reply[Any] = pickle.loads(self.connection.recv_bytes())
        except (EOFError, OSError):
            return None
        return reply

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()

    def cause_of_death(self) -> str:
        """Why it ended, for a process that did.

        Raises:
            TrainingError: with an error that is not one of airrep's, so that trying again would be in vain.
        """
        self.process.join()
        code = self.process.exitcode or 0
        if code >= 0:
            raise TrainingError(
                f"a worker process ended with exit status {code}; expected it to stay. Its error is printed above; "
                'programs that use LocalProcesses need: if __name__ == "__main__":'
            )
        hint = ", as happens when memory is short" if -code == signal.SIGKILL else ""
        return f"its worker was ended by {signal.Signals(-code).name}{hint}"


class _Crew(Generic[T, R]):
    """The workers of one run."""

    def __init__(
        self, setup: bytes, environments: Sequence[Mapping[str, str]], tasks: Sequence[T], retries: int
    ) -> None:
        self._setup = setup
        self._environments = environments
        self._tasks = tasks
        self._starts_left = (retries + 1) * max(len(environments), 1)
        self._workers: list[_Worker] = []

    def start(self) -> None:
        self._workers.extend(_Worker(self._setup, environment) for environment in self._environments)

    def end(self) -> None:
        for worker in self._workers:
            worker.end()

    def hand_out(self, backlog: Backlog[T, R]) -> None:
        """Give each idle worker a task."""
        for worker in self._workers:
            if worker.ready and worker.task is None and (number := backlog.take()) is not None:
                worker.hand(number, self._tasks[number])

    def collect(self, backlog: Backlog[T, R]) -> Iterator[Outcome[T, R]]:
        """Wait until workers say something, and yield the outcomes among it."""
        waited = {worker.connection: slot for slot, worker in enumerate(self._workers) if _is_waited_for(worker)}
        for connection in wait(list(waited)):
            assert isinstance(connection, Connection)
            slot = waited[connection]
            number, reply = self._workers[slot].task, self._hear(slot)
            outcome = backlog.settle(number, reply) if number is not None else None
            if outcome is not None:
                yield outcome

    def _hear(self, slot: int) -> Reply[R]:
        """What one worker says; a worker that has ended is replaced."""
        worker = self._workers[slot]
        reply = worker.reply()
        worker.task = None
        if reply is None:
            return Reply(failure=self._replace(slot))
        if not worker.ready:
            check_started(reply)
        worker.ready = True
        return reply

    def _replace(self, slot: int) -> str:
        """Start another worker in place of one that has ended; returns why it ended."""
        worker = self._workers[slot]
        cause = worker.cause_of_death()
        if not worker.ready:
            self._starts_left -= 1
            if not self._starts_left:
                raise TrainingError(
                    f"workers: end before they are ready ({cause}); expected room for {len(self._workers)}. "
                    "Take fewer workers, or a smaller model."
                )
        worker.end()
        self._workers[slot] = _Worker(self._setup, self._environments[slot])
        return cause


def _is_waited_for(worker: _Worker) -> bool:
    return worker.task is not None or not worker.ready


def check_started(reply: Reply[Any]) -> None:
    """Raise what went wrong while a worker made itself ready."""
    reply.check()
    if reply.failure is not None:
        raise TrainingError(reply.failure)


def _serve(connection: Connection, environment: Mapping[str, str]) -> None:
    """What a worker does: make itself ready, then task after task until it is ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ.update(environment)
    made = answer_all(make_work, connection.recv_bytes())
    connection.send_bytes(pickle.dumps(Reply(failure=made.failure, fatal=made.fatal, seconds=made.seconds)))
    if made.value is None:
        return
    while True:
        reply = answer_all(made.value, pickle.loads(connection.recv_bytes()))
        connection.send_bytes(pickle.dumps(reply))


def make_work(setup: bytes) -> Callable[[Any], Any]:
    """What does the tasks, on one thread: so says the environment, unless torch was loaded before it was set."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    work: Callable[[Any], Any] = pickle.loads(setup)()
    return work


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
