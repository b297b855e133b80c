"""Runs tasks on a Ray cluster and repeats the tasks of lost nodes."""

import os
import secrets
import socket
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from airrep.errors import ConfigError, TrainingError, first_line, need
from airrep.runtime.engine import (
    ONE_THREAD,
    Backlog,
    Crew,
    Engine,
    LocalProcesses,
    Outcome,
    R,
    Reply,
    T,
    Worker,
    WorkerLostError,
    answer_all,
    pickled,
    set_up,
)
from airrep.runtime.metering import cores

ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
"""Environment variables that are set before Ray is imported, unless they are already set."""
AUTH_MODE, AUTH_TOKEN, AUTH_TOKEN_PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
"""Environment variables that tell Ray if workers and drivers need a token, and the token."""

_KNOCK_SECONDS = 10.0


@dataclass(frozen=True)
class RayEngine(Engine):
    """Runs tasks in actors of a Ray cluster; an actor that is lost with its node is replaced and its task tried again.

    Every node needs the same version of airrep, and folders of models at the same paths. Results come back to this
    process, so nodes need no shared disk.
    """

    address: str | None = None
    """The cluster, such as ``"auto"`` or ``"ray://head:10001"``; None starts a cluster on this machine, which accepts
    connections only from this machine and asks for a token."""
    workers: int | None = None
    """Number of actors; None takes as many as fit into the cluster when the run begins."""
    cpus: float = 1.0
    """CPUs of one actor."""
    gpus: float = 0.0
    """GPUs of one actor; with 0.25, four actors share one GPU."""
    start_seconds: float = 600.0
    """Seconds to wait for an actor to become ready while no actor has a task."""

    def __post_init__(self) -> None:
        """Raise ConfigError for negative or no resources, or for less than one worker."""
        if self.cpus < 0 or self.gpus < 0 or self.cpus + self.gpus == 0:
            raise ConfigError(f"cpus={self.cpus}, gpus={self.gpus}: neither may be negative, and one must be above 0.")
        if self.workers is not None and self.workers < 1:
            raise ConfigError(f"workers={self.workers}: expected 1 or more. Correct the value.")

    def outcomes(
        self, setup: Callable[[], Callable[[T], R]], backlog: Backlog[T, R]
    ) -> Generator[Outcome[T, R], None, None]:
        ray = load_ray(own=self.address is None)
        with _connected(ray, self.address):
            yield from _Actors(ray, self, pickled(setup), backlog.left, backlog.retries).outcomes(backlog)

    def count(self, ray: ModuleType, tasks: int) -> int:
        """Return the number of actors to start (ConfigError: the cluster has no room for any)."""
        there = ray.cluster_resources()
        asked = {"CPU": self.cpus, "GPU": self.gpus}
        # 1e-9: 0.3 / 0.1 is a little less than 3.
        room = min(int(there.get(name, 0) / share + 1e-9) for name, share in asked.items() if share > 0)
        if self.workers is None and room == 0:
            raise ConfigError(
                f"ray: a worker needs {self.cpus:g} CPUs and {self.gpus:g} GPUs, but the whole cluster has "
                f"{there.get('CPU', 0):g} CPUs and {there.get('GPU', 0):g} GPUs. Request less, or add nodes."
            )
        return min(self.workers or room, tasks)


def make_engine(
    engine: Engine | str | None,
    *,
    workers: int | None = None,
    address: str | None = None,
    gpus: float = 0,
    where: str = "engine ",
) -> Engine | None:
    """Return an engine by its name: ``"ray"``, or ``"local"`` for processes on this machine, by default one per core.

    An :class:`Engine` or None is returned unchanged. ConfigError: the name is unknown.
    """
    if engine is None or isinstance(engine, Engine):
        return engine
    if engine == "ray":
        return RayEngine(address=address, workers=workers, gpus=gpus)
    if engine != "local":
        raise ConfigError(f"{where}{engine}: does not exist. Choose local or ray.")
    return LocalProcesses(workers or cores())


def load_ray(*, own: bool = True) -> ModuleType:
    """Import Ray (MissingExtraError: it is not installed).

    With *own*, airrep starts the cluster, which asks for a token: otherwise anyone who reaches it could run code.
    """
    # Ray reads the environment when it is imported. If it was imported before, the environment must not change:
    # processes that Ray starts read it again, and would ask Ray for a token that it does not know.
    if not _is_imported():
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        named = any(name in os.environ for name in (AUTH_TOKEN, AUTH_TOKEN_PATH))
        has_token = named or (Path.home() / ".ray" / "auth_token").is_file()
        if own and os.environ.setdefault(AUTH_MODE, "token") == "token" and not has_token:
            os.environ[AUTH_TOKEN] = secrets.token_hex(32)
    need("engine ray", "ray", "ray")
    import ray

    return ray


def _is_imported() -> bool:
    return "ray" in sys.modules


@contextmanager
def _connected(ray: ModuleType, address: str | None) -> Iterator[None]:
    """Connect to a cluster inside the block; an existing connection is used and left open."""
    if ray.is_initialized():
        yield
        return
    dashboard = {} if address else {"include_dashboard": False}
    try:
        _knock(address)
        with nullcontext() if address else _loopback():
            ray.init(address=address or "local", log_to_driver=False, logging_level="ERROR", **dashboard)
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError(
            f"--set address={address}: no Ray cluster answers ({first_line(error)}). Check the address."
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _loopback() -> Iterator[None]:
    """Let a cluster that is started here accept connections only from this machine, as Ray does on macOS."""
    from ray._private import ray_constants

    # Ray replaces a given loopback address by the network address.
    before = getattr(ray_constants, "ENABLE_RAY_CLUSTER", None)
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def _knock(address: str | None) -> None:
    """Raise OSError if nothing listens at an address with a port; Ray itself would wait for minutes."""
    host, _, port = (address or "").rpartition("://")[2].rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=_KNOCK_SECONDS).close()


class _Server:
    """The remote side of an actor: sets itself up, then does one task after the other."""

    def __init__(self, gpus: float) -> None:
        os.environ.update(ONE_THREAD if gpus else {**ONE_THREAD, "CUDA_VISIBLE_DEVICES": ""})
        self._work: Callable[[Any], Any] | None = None

    def start(self, setup: bytes) -> Reply[None]:
        self._work, reply = set_up(setup)
        return reply

    def do(self, task: Any) -> Reply[Any]:
        assert self._work is not None
        return answer_all(self._work, task)


class _Actor(Worker):
    """An actor and its call in progress."""

    def __init__(self, ray: ModuleType, actor: Any, setup: Any) -> None:
        self._ray, self._actor = ray, actor
        self.call = actor.start.remote(setup)

    def hand(self, task: object) -> None:
        self.call = self._actor.do.remote(task)

    def reply(self) -> Reply[Any]:
        errors = self._ray.exceptions
        try:
            reply: Reply[Any] = self._ray.get(self.call)
        except errors.RayTaskError as error:
            raise TrainingError(
                f"ray: a worker ended with {type(error.cause).__name__}: {error.cause}. Install the same versions of "
                "airrep and of your own modules on every node."
            ) from error
        except errors.RayError as error:
            cause = type(error).__name__
            vanished = not isinstance(error, errors.OutOfMemoryError)
            raise WorkerLostError(f"its worker was lost ({cause})", cause, vanished=vanished) from error
        return reply

    def end(self) -> None:
        self._ray.kill(self._actor)


class _Actors(Crew[_Actor]):
    """The actors of one run."""

    unready = "ray: workers were lost before they were ready"

    def __init__(self, ray: ModuleType, engine: RayEngine, setup: bytes, tasks: int, retries: int) -> None:
        super().__init__(engine.count(ray, tasks), retries)
        self._ray, self._engine, self._setup = ray, engine, ray.put(setup)
        self._class = ray.remote(num_cpus=engine.cpus, num_gpus=engine.gpus, max_restarts=0)(_Server)

    def begin(self, slot: int) -> _Actor:  # noqa: ARG002 - actors are all alike
        return _Actor(self._ray, self._class.remote(self._engine.gpus), self._setup)  # waits for room in the cluster

    def wait(self, workers: Sequence[_Actor]) -> list[_Actor]:
        waited = {worker.call: worker for worker in workers}
        # If none has a task, all wait for room in the cluster, which may never come.
        working = any(worker.task is not None for worker in workers)
        ready, _ = self._ray.wait(list(waited), timeout=None if working else self._engine.start_seconds)
        if not ready:
            raise TrainingError(
                f"ray: no worker was ready within {self._engine.start_seconds:g} s. Run again when the cluster has "
                f"room for {self._engine.cpus:g} CPUs and {self._engine.gpus:g} GPUs."
            )
        return [waited[reference] for reference in ready]
