"""Turns: a few questions at once, others wait a while or are sent away."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from starlette.requests import Request

AT_ONCE = 2
"""Questions answered at the same time."""
WAITING = 32
"""Questions that may wait."""
PATIENCE = 30.0
"""Seconds that a question may wait."""
LONGEST = 300.0
"""Seconds after which the page is told that an answer takes too long."""


class Busy(Exception):  # noqa: N818 — a state, told to the page as it is
    """No turn could be had."""


class Gone(Exception):  # noqa: N818
    """Who asked is no longer there."""


class Turns:
    """Lets a few threads answer questions, one turn each."""

    def __init__(self, at_once: int = AT_ONCE, waiting: int = WAITING, patience: float = PATIENCE) -> None:
        self._free = asyncio.Semaphore(at_once)
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="question")
        self._most, self._patience, self._waiting = waiting, patience, 0

    async def take(self, request: Request, work: Callable[[], Any]) -> Any:
        """The result of *work*, done in a thread when it is this request's turn.

        Raises:
            Busy: too many wait already, it took too long to get a turn, or the work takes too long.
            Gone: the client left while it waited.
        """
        await self._wait()
        if await request.is_disconnected():
            self._free.release()
            raise Gone
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
