"""A real server of an explorer, in a thread, and questions to one without a socket."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import uvicorn

from airrep.explorer import security, serving
from airrep.explorer.explorer import Explorer
from airrep.explorer.security import Rules

TOKEN = "a-token-of-the-tests"


@contextmanager
def served(explorer: Explorer) -> Iterator[str]:
    """The address, with its token, of a page about indexes."""
    with security.listen("127.0.0.1", 0) as open_socket:
        port = open_socket.getsockname()[1]
        config = uvicorn.Config(
            serving.make_app(explorer, Rules(TOKEN, port)), lifespan="off", log_level="error", ws="none"
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([open_socket],))
        thread.start()
        try:
            yield security.address_of("127.0.0.1", port, TOKEN)
        finally:  # else a test that fails would leave a process that never ends
            server.should_exit = True
            thread.join(10)


def client_of(app: Any, **headers: str) -> httpx.AsyncClient:
    """A client of an application of port 8766."""
    transport = httpx.ASGITransport(app)
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8766", headers=headers)


def call(app: Any, method: str, path: str, *, token: str | None = TOKEN, **more: Any) -> httpx.Response:
    """The answer to one question."""

    async def ask() -> httpx.Response:
        async with client_of(app, **({} if token is None else {"authorization": f"Bearer {token}"})) as client:
            return await client.request(method, path, **more)

    return asyncio.run(ask())
