"""A real server of an explorer, in a thread."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

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
        yield security.address_of("127.0.0.1", port, TOKEN)
        server.should_exit = True
        thread.join(10)
