"""Turns: a few threads answer questions, the others wait."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

AT_ONCE = 2
"""Questions, or lists of questions of one kind, answered at the same time."""
WAITING = 128
"""Questions that may wait."""
TOGETHER = 32
"""Questions of one kind that share a turn, at most."""
PATIENCE = 120.0
"""Seconds that a question may wait."""
LONGEST = 300.0
"""Seconds after which whoever asks is told that an answer takes too long."""


class Busy(Exception):  # noqa: N818 — a state, told to the page as it is
    """No turn could be had."""


class Left(Exception):  # noqa: N818 — a state, as well
    """Whoever asked is gone."""


class Shared(NamedTuple):
    """Work that serves several questions of one kind at once."""

    ahead: Callable[[Any, Sequence[Any]], object]
    """Called once for all questions that wait, before each is answered by itself."""
    of: Any
    """Its first argument; questions of one kind have the same, and the same function."""
    question: Any


@dataclass(eq=False)
class _Waiting:
    """Somebody who waits for an answer."""

    work: Callable[[], Any]
    left: Callable[[], Awaitable[bool]] | None
    shared: Shared | None
    begun: "asyncio.Future[None]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    answer: "asyncio.Future[Any]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def tell(self, found: Any, error: BaseException | None = None) -> None:
        """Give the answer, or the error in its place, to whoever still waits."""
        if self.answer.done():
            return
        if error is None:
            self.answer.set_result(found)
        else:
            self.answer.set_exception(error)
            self.answer.exception()  # looked at, so that nothing is logged when nobody waits for it any more


class Turns:
    """Lets a few threads answer questions, one turn each; those of one kind that wait together share a turn."""

    def __init__(self, at_once: int = AT_ONCE, waiting: int = WAITING, patience: float = PATIENCE) -> None:
        self._free, self._most, self._patience = at_once, waiting, patience
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="question")
        self._waiting: deque[_Waiting] = deque()
        self._running: set[asyncio.Task[None]] = set()

    async def take(
        self,
        work: Callable[[], Any],
        left: Callable[[], Awaitable[bool]] | None = None,
        shared: Shared | None = None,
    ) -> Any:
        """The result of *work*, done in a thread when it is its turn; *left* says whether nobody wants it any more.

        Before the work of several questions of one kind, what is *shared* is done for all of them. If that fails, each
        is answered without it, so that one question never harms another.

        Busy: too many wait already, it took too long to get a turn, or the work takes too long. Left: the client left
        while it waited.
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
            # Shielded: a thread cannot be stopped, and keeps its turn until it ends, whoever still listens.
            return await asyncio.wait_for(asyncio.shield(own.answer), LONGEST)
        except TimeoutError:
            raise Busy(f"the answer takes more than {LONGEST:.0f} seconds; ask for fewer results") from None

    def _start(self) -> None:
        """Give turns to those who wait, while there are any."""
        while self._free and self._waiting:
            some = self._first()
            self._free -= 1
            for one in some:
                one.begun.set_result(None)
            task = asyncio.get_running_loop().create_task(self._answer(some))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    def _first(self) -> list[_Waiting]:
        """Whoever waits longest, and others who ask questions of that kind; they wait no longer."""
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
    """Tell whether two questions are of one kind."""
    return one is not None and other is not None and one.ahead is other.ahead and one.of is other.of


def _work(some: Sequence[_Waiting], loop: asyncio.AbstractEventLoop) -> None:
    """Answer questions in a thread: first what they share, then each as if it were alone."""
    shared = [one.shared for one in some if one.shared is not None]
    if len(shared) > 1:
        with suppress(Exception):  # it saves time alone, and whichever question fails tells so by itself
            shared[0].ahead(shared[0].of, [one.question for one in shared])
    for one in some:
        try:
            told = partial(one.tell, one.work())
        except BaseException as error:
            told = partial(one.tell, None, error)
        with suppress(RuntimeError):  # the server has ended
            loop.call_soon_threadsafe(told)
