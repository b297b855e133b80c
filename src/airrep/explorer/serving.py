"""Serve the page: a socket, a token, an address to open."""

import ipaddress
import secrets
import socket
from collections.abc import Callable

import uvicorn

from airrep.errors import ConfigError
from airrep.explorer.app import make_app
from airrep.explorer.explorer import Explorer
from airrep.explorer.security import Rules

PORT = 8766
SHORTEST = 16
"""Characters of a token, at least."""
CONNECTIONS = 256
"""Requests that are open at once, at most."""


def choose_token(given: str | None, without: bool, host: str) -> str | None:
    """The token that questions must bring; None for nobody asks for one.

    Raises:
        ConfigError: both or a bad one is given, or none where other machines could ask.
    """
    if without:
        if given is not None:
            raise ConfigError("--token, --no-token: contradict each other. Give one of them.")
        if not is_loopback(host):
            raise ConfigError(
                f"--no-token: would let every machine that reaches {host} read the data. Leave it out, or serve "
                "127.0.0.1 alone."
            )
        return None
    if given is None:
        return secrets.token_urlsafe(32)
    if len(given) < SHORTEST or not given.isascii() or not given.replace("-", "").replace("_", "").isalnum():
        raise ConfigError(
            f"--token: expected {SHORTEST} or more letters, digits, - and _. Leave it out: one is made by chance."
        )
    return given


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int) -> socket.socket:
    """A socket on which the page is served.

    Raises:
        ConfigError: the port is in use or not allowed, or there is no such address.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"--host {host} --port {port}: cannot be served: {reason}. Give another port, such as --port {PORT + 1}, "
            "or 0 for any that is free."
        ) from None


def address_of(host: str, port: int, token: str | None) -> str:
    """What to open in a browser."""
    name = socket.gethostname() if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}/" + (f"?token={token}" if token else "")


def serve(
    explorer: Explorer, host: str, open_socket: socket.socket, token: str | None, say: Callable[[str], None]
) -> None:
    """Serve until Ctrl-C; *say* is told the address when the page can be opened."""
    port = int(open_socket.getsockname()[1])
    public = not is_loopback(host)
    names = (host.lower(), *((socket.gethostname().lower(),) if public else ()))
    config = uvicorn.Config(
        make_app(explorer, Rules(token, port, names, public)),
        log_level="error",
        access_log=False,  # its lines would hold the token
        server_header=False,
        lifespan="off",
        ws="none",
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=1,
    )
    say(address_of(host, port, token))
    try:
        uvicorn.Server(config).run(sockets=[open_socket])
    except KeyboardInterrupt:  # the usual way to end
        return
