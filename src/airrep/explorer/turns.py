"""Queue of questions that a few threads answer; similar questions share work."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

AT_ONCE = 2
"""Threads: questions, or groups of questions of one kind, answered at the same time."""
WAITING = 128
"""Most questions that wait."""
TOGETHER = 32
"""Most questions of one kind that are answered in one turn."""
PATIENCE = 120.0
"""Seconds that a question may wait for its turn."""
LONGEST = 300.0
"""Seconds after which a question fails because its answer takes too long."""


class Busy(Exception):  # noqa: N818 — a state, whose message the page shows
    """Too many questions wait, or an answer takes too long."""


class Left(Exception):  # noqa: N818 — a state, too
    """The client left before its question was answered."""


class Shared(NamedTuple):
    """Work that serves several questions of one kind at once."""

    ahead: Callable[[Any, Sequence[Any]], object]
    """Function of ``of`` and of all waiting questions, called once before each question is answered."""
    of: Any
    """First argument of ``ahead``; questions of one kind have the same ``of`` and ``ahead``."""
    question: Any


@dataclass(eq=False)
class _Waiting:
    """A question that waits for its answer."""

    work: Callable[[], Any]
    left: Callable[[], Awaitable[bool]] | None
    shared: Shared | None
    begun: "asyncio.Future[None]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    answer: "asyncio.Future[Any]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def tell(self, found: Any, error: BaseException | None = None) -> None:
        """Set the answer, or the error in its place, unless the caller stopped waiting."""
        if self.answer.done():
            return
        if error is None:
            self.answer.set_result(found)
        else:
            self.answer.set_exception(error)
            self.answer.exception()  # read once, so that asyncio does not log it if nobody waits any more


class Turns:
    """Lets a few threads answer questions in turn; questions of one kind that wait together share a turn."""

    def __init__(self, at_once: int = AT_ONCE, waiting: int = WAITING, patience: float = PATIENCE) -> None:
        self._free, self._most, self._patience = at_once, waiting, patience
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="question")
        self._waiting: deque[_Waiting] = deque()
        self._running: set[asyncio.Task[None]] = set()

    async def take(
        self, work: Callable[[], Any], left: Callable[[], Awaitable[bool]] | None = None, shared: Shared | None = None
    ) -> Any:
        """Do *work* in a thread in its turn and return the result; *left* returns True if the client has left.

        For several questions of one kind, the *shared* work is done first for all of them. If it fails, each question
        is answered without it, so that one question never harms another.

        Busy: too many questions wait, this one waited too long, or the work takes too long. Left: the client left
        while the question waited.
        """
        if len(self._waiting) >= self._most:
            raise Busy(f"{len(self._waiting)} questions are waiting already; try again in a moment")
        own = _Waiting(work, left, shared)
        self._waiting.append(own)
        self._start()
        try:
            await asyncio.wait([own.begun], timeout=self._patience)
        finally:
            if not own.begun.done():
                self._waiting.remove(own)
        if not own.begun.done():
            raise Busy("earlier questions are still running; try again in a moment")
        try:
            # Shielded: a thread cannot be stopped, and keeps its turn until it ends even if the client has left.
            return await asyncio.wait_for(asyncio.shield(own.answer), LONGEST)
        except TimeoutError:
            raise Busy(f"the answer takes more than {LONGEST:.0f} seconds; ask for fewer results") from None

    def _start(self) -> None:
        """Start waiting questions while a thread is free."""
        while self._free and self._waiting:
            some = self._first()
            self._free -= 1
            for one in some:
                one.begun.set_result(None)
            task = asyncio.get_running_loop().create_task(self._answer(some))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    def _first(self) -> list[_Waiting]:
        """Remove and return the question that waits longest, and other questions of its kind."""
        first = self._waiting[0]
        some = [one for one in self._waiting if one is first or _alike(one.shared, first.shared)][:TOGETHER]
        for one in some:
            self._waiting.remove(one)
        return some

    async def _answer(self, some: Sequence[_Waiting]) -> None:
        loop, here = asyncio.get_running_loop(), list[_Waiting]()
        try:
            for one in some:
                if one.left is not None and await one.left():
                    one.tell(None, Left("was given up"))
                else:
                    here.append(one)
            await loop.run_in_executor(self._threads, _work, here, loop)
        finally:
            self._free += 1
            self._start()


def _alike(one: Shared | None, other: Shared | None) -> bool:
    return one is not None and other is not None and one.ahead is other.ahead and one.of is other.of


def _work(some: Sequence[_Waiting], loop: asyncio.AbstractEventLoop) -> None:
    """Answer questions in a thread: first what they share, then each as if it were alone."""
    shared = [one.shared for one in some if one.shared is not None]
    if len(shared) > 1:
        with suppress(Exception):  # this only saves time; a question that fails reports its own error below
            shared[0].ahead(shared[0].of, [one.question for one in shared])
    for one in some:
        try:
            told = partial(one.tell, one.work())
        except BaseException as error:
            told = partial(one.tell, None, error)
        with suppress(RuntimeError):  # the server has stopped
            loop.call_soon_threadsafe(told)
