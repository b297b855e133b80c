"""Who may ask, from where, and how much: checked before any question is read."""

import asyncio
import hmac
import ipaddress
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from starlette.types import ASGIApp, Message, Receive, Scope, Send

BODY = 1_000_000
"""Bytes of a request, at most."""
BODY_SECONDS = 15.0
"""Time in which a request must have arrived."""
API = "/api/"

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
    """Who may ask."""

    token: str | None
    """What every question must bring; None: anybody who reaches the port may ask."""
    port: int
    names: tuple[str, ...] = ()
    """Names by which this machine may be called beside localhost."""
    public: bool = False
    """Whether other machines reach the port, so that it is called by any of this machine's addresses."""

    @property
    def cookie(self) -> str:
        """Name of the cookie; browsers do not tell cookies apart by port."""
        return f"airrep_{self.port}"

    def knows(self, token: str | None) -> bool:
        """Whether this is the token; takes the same time for any other."""
        if self.token is None:
            return True
        given = (token or "").encode(errors="surrogateescape")
        return hmac.compare_digest(given, self.token.encode())

    def allows_host(self, host: str) -> bool:
        """Whether a Host header names this machine: a page elsewhere may have a name of its own lead here."""
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
    """Wraps an application: refuses in one line of JSON, bounds the body, adds headers to every answer."""

    def __init__(self, app: ASGIApp, rules: Rules) -> None:
        self._app, self._rules = app, rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":  # nothing else is served
            return
        send = _with_headers(send)
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        refused = self._refusal(scope, headers)
        if refused is not None:
            await _refuse(send, *refused)
            return
        try:
            body = await asyncio.wait_for(_read(receive), BODY_SECONDS)
        except (TimeoutError, ConnectionError):
            await _refuse(send, 408, "request: did not arrive in time. Try again.")
            return
        if body is None:
            await _refuse(send, 413, _too_large())
            return
        await self._app(scope, _replay(body, receive), send)

    def _refusal(self, scope: Scope, headers: Mapping[str, str]) -> tuple[int, str] | None:
        if not self._rules.allows_host(headers.get("host", "")):
            return 403, "Host: is not a name of this machine. Open the address that `airrep serve` printed."
        if headers.get("content-length", "0").isdecimal() and int(headers.get("content-length", "0")) > BODY:
            return 413, _too_large()
        if not scope["path"].startswith(API):
            return None
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return 403, "request: comes from another page. Open the address that `airrep serve` printed."
        if not self._rules.knows(_token_of(headers, self._rules.cookie)):
            return 401, "token: is missing or wrong. Open the address that `airrep serve` printed, with its token."
        return None


def token_in_address(scope: Scope) -> str | None:
    """The token in the query of an address."""
    found = parse_qs(scope["query_string"].decode("latin-1")).get("token")
    return found[0] if found else None


def _token_of(headers: Mapping[str, str], cookie: str) -> str | None:
    """The token of the Authorization header, or else of the cookie."""
    kind, _, token = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return token.strip()
    pairs = (pair.strip().partition("=") for pair in headers.get("cookie", "").split(";"))
    return next((value for name, _, value in pairs if name == cookie), None)


def _too_large() -> str:
    return f"request: is larger than {BODY:,} bytes. Shorten the query."


async def _read(receive: Receive) -> bytes | None:
    """The whole body; None if it is too large."""
    parts: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionError
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > BODY:
            return None
        more = message.get("more_body", False)
    return b"".join(parts)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Gives the body at once, then what else comes: that the client is gone."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def _with_headers(send: Send) -> Send:
    async def send_more(message: Message) -> None:
        if message["type"] == "http.response.start":
            present = {name for name, _ in message.get("headers", ())}
            more = [(name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in present]
            message = {**message, "headers": [*message.get("headers", ()), *more]}
        await send(message)

    return send_more


async def _refuse(send: Send, status: int, message: str) -> None:
    body = json.dumps({"error": message}).encode()
    headers: Iterable[Any] = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
