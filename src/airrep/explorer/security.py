"""Access to the server: token, allowed hosts, size limits, socket."""

import asyncio
import hmac
import ipaddress
import logging
import secrets
import socket
import traceback
from dataclasses import dataclass
from typing import Literal, Self
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from airrep.errors import ConfigError

PORT = 8766
CONNECTIONS = 256
"""Most open requests at a time."""
SHORTEST = 16
"""Least characters of a token."""
BODY = 1_000_000
"""Most bytes of a request."""
BODY_SECONDS = 15.0
"""Seconds in which a request's body must arrive."""
PRIVATE = ("/api/", "/mcp")
"""Beginnings of paths that need the token."""
OPEN = "/api/v1/"
"""Path of the API's page, which needs no token because it shows no data."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
}


@dataclass(frozen=True)
class Rules:
    """Which requests are allowed."""

    token: str | None
    """Token that every request must have; None allows everyone who reaches the port."""
    port: int
    names: tuple[str, ...] = ()
    """Names of this machine, beside localhost, that a Host header may have."""
    public: bool = False
    """True if other machines can reach the port; then a Host header may have any IP address."""

    @classmethod
    def of(cls, host: str, open_socket: socket.socket, token: str | None) -> Self:
        """Return the rules for a server that listens on a socket."""
        public = not is_loopback(host)
        names = (host.lower(), *((socket.gethostname().lower(),) if public else ()))
        return cls(token, int(open_socket.getsockname()[1]), names, public)

    @property
    def cookie(self) -> str:
        """Name of the cookie, with the port, because browsers share cookies between ports."""
        return f"airrep_{self.port}"

    def knows(self, token: str | None) -> bool:
        """Return True if the token is right, or none is needed; a wrong token takes the same time."""
        if self.token is None:
            return True
        return hmac.compare_digest((token or "").encode(errors="surrogateescape"), self.token.encode())

    def allows_host(self, host: str) -> bool:
        """Return True if a Host header names this machine; a foreign site may point its name here (DNS rebinding)."""
        name = _without_port(host).lower()
        if name == "localhost" or name in self.names:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return self.public or address.is_loopback


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if host.count(":") == 1 else host


class Guard:
    """Wraps an application: checks requests, limits bodies, adds security headers; refusals are a line of JSON."""

    def __init__(self, app: ASGIApp, rules: Rules, body: int = BODY) -> None:
        """Wrap an application; a request may have at most *body* bytes."""
        self._app, self._rules, self._body, self._open = app, rules, body, 0
        self._too_large = f"request: is larger than {body:,} bytes. Shorten the query."

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        if scope["type"] != "http":  # no other protocol is served
            return

        async def send_more(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        self._open += 1
        try:
            await self._answer(scope, receive, send_more)
        finally:
            self._open -= 1

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused, body = self._refusal(Request(scope)), None
        if refused is None:
            try:
                body = await asyncio.wait_for(_read(receive, self._body), BODY_SECONDS)
            except (TimeoutError, ConnectionError):
                refused = 408, "request: did not arrive in time. Try again."
        if body is None:
            status, told = refused or (413, self._too_large)
            headers = {"retry-after": "2"} if status == 503 else None
            await JSONResponse({"error": told}, status, headers)(scope, receive, send)
        else:
            await self._app(scope, _replay(body, receive), send)

    def _refusal(self, request: Request) -> tuple[int, str] | None:
        headers = request.headers
        if self._open > CONNECTIONS:  # counted here: uvicorn counts idle connections too, and says no time to wait
            return 503, f"busy: {CONNECTIONS} requests are open already. Try again in a moment."
        length = headers.get("content-length", "0")
        if not self._rules.allows_host(headers.get("host", "")):
            return 403, "Host: is not a name of this machine. Open the address that the server printed."
        if length.isdecimal() and int(length) > self._body:
            return 413, self._too_large
        if not request.scope["path"].startswith(PRIVATE) or request.scope["path"] == OPEN:
            return None
        if self._is_foreign(headers):
            return 403, "request: comes from another page. Open the address that the server printed."
        kind, _, token = headers.get("authorization", "").partition(" ")
        given = token.strip() if kind.lower() == "bearer" else request.cookies.get(self._rules.cookie)
        if not self._rules.knows(given):
            return 401, "token: is missing or wrong. Open the address that the server printed, with its token."
        return None

    def _is_foreign(self, headers: Headers) -> bool:
        """Return True if a page of another site sent the request; programs other than browsers send no origin."""
        site, origin = headers.get("sec-fetch-site"), headers.get("origin")
        if site is not None or origin is None:
            return site not in (None, "same-origin", "none")
        return not self._rules.allows_host(urlsplit(origin).netloc)  # an old browser


async def _read(receive: Receive, most: int) -> bytes | None:
    """Return the whole body; None if it has more than *most* bytes."""
    body, more = bytearray(), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionError
        body += message.get("body", b"")
        if len(body) > most:
            return None
        more = message.get("more_body", False)
    return bytes(body)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a receiver that gives the body at once, then later messages, such as a disconnect."""
    given: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return given.pop() if given else await receive()

    return replay


def choose_token(given: str | None, host: str) -> str | None:
    """Return the token that requests must have, random by default; None if *given* is "none".

    ConfigError: the token is not valid, or is "none" although other machines can reach *host*.
    """
    if given == "none":
        if not is_loopback(host):
            raise ConfigError(
                f"--set token=none: would let every machine that can reach {host} read the data. Remove it, or serve "
                "only on 127.0.0.1."
            )
        return None
    if given is None:
        return secrets.token_urlsafe(32)
    if len(given) < SHORTEST or not given.isascii() or not given.replace("-", "").replace("_", "").isalnum():
        raise ConfigError(
            f"--set token: must have at least {SHORTEST} letters, digits, - and _. Remove it, and airrep makes a "
            "random token."
        )
    return given


def is_loopback(host: str) -> bool:
    """Return True if only this machine can reach an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address and port.

    ConfigError: the port is in use or not allowed, or the address does not exist.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"--host {host} --port {port}: cannot be served: {reason}. Give another port, such as --port {PORT + 1}, "
            "or --port 0 for any free port."
        ) from None


def address_of(host: str, port: int, token: str | None, path: str = "/") -> str:
    """Return the address to open in a browser, with the token."""
    name = socket.gethostname() if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}{path}" + (f"?token={token}" if token else "")


def run(app: ASGIApp, open_socket: socket.socket, *, lifespan: Literal["on", "off"] = "off") -> None:
    """Serve an application until Ctrl-C; requests are not logged."""
    import uvicorn  # here, because not every use of this module serves HTTP

    config = uvicorn.Config(
        app,
        log_level="error",
        access_log=False,  # its lines would contain the token
        server_header=False,
        lifespan=lifespan,
        ws="none",
        timeout_keep_alive=30,
        timeout_graceful_shutdown=1,
    )
    try:
        uvicorn.Server(config).run(sockets=[open_socket])
    except KeyboardInterrupt:  # the usual way to stop the server
        return


def unexpected(error: Exception) -> str:
    """Return the client's line for a bug of airrep; log only its place, as its message could contain users' texts."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    kind = type(error).__name__
    logging.getLogger(__name__).error("%s in %s, line %s", kind, place.filename, place.lineno)
    return f"{kind}: an unexpected error occurred. The terminal shows where."
