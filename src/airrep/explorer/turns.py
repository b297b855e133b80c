"""Turns: a few threads answer questions, the others wait."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

AT_ONCE = 2
"""Questions answered at the same time."""
WAITING = 128
"""Questions that may wait."""
PATIENCE = 60.0
"""Seconds that a question may wait."""
LONGEST = 300.0
"""Seconds after which whoever asks is told that an answer takes too long."""


class Busy(Exception):  # noqa: N818 — a state, told to the page as it is
    """No turn could be had."""


class Left(Exception):  # noqa: N818 — a state, as well
    """Whoever asked is gone."""


class Turns:
    """Lets a few threads answer questions, one turn each."""

    def __init__(self, at_once: int = AT_ONCE, waiting: int = WAITING, patience: float = PATIENCE) -> None:
        self._free = asyncio.Semaphore(at_once)
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="question")
        self._most, self._patience, self._waiting = waiting, patience, 0

    async def take(self, work: Callable[[], Any], left: Callable[[], Awaitable[bool]] | None = None) -> Any:
        """The result of *work*, done in a thread when it is its turn; *left* says whether nobody wants it any more.

        Raises:
            Busy: too many wait already, it took too long to get a turn, or the work takes too long.
            Left: the client left while it waited.
        """
        await self._wait()
        if left is not None and await left():
            self._free.release()
            raise Left("was given up")
        future = asyncio.get_running_loop().run_in_executor(self._threads, work)
        future.add_done_callback(self._end)
        try:
            # Shielded: a thread cannot be stopped, and keeps its turn until it ends, whoever still listens.
            return await asyncio.wait_for(asyncio.shield(future), LONGEST)
        except TimeoutError:
            raise Busy(f"the answer takes more than {LONGEST:.0f} seconds; ask for less") from None

    async def _wait(self) -> None:
        if self._waiting >= self._most:
            raise Busy(f"{self._waiting} questions wait already; try again in a moment")
        self._waiting += 1
        try:
            await asyncio.wait_for(self._free.acquire(), self._patience)
        except TimeoutError:
            raise Busy("earlier questions take long; try again in a moment") from None
        finally:
            self._waiting -= 1

    def _end(self, future: "asyncio.Future[Any]") -> None:
        self._free.release()
        if not future.cancelled():
            future.exception()  # looked at, so that nothing is logged when nobody waits for it any more
