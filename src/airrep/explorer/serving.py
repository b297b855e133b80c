"""Serve the page: routes, turns, errors; a socket, a token."""

import asyncio
import ipaddress
import json
import logging
import secrets
import socket
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, StreamingResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from airrep.errors import AirRepError, ArtifactError, ConfigError
from airrep.explorer import questions, reference
from airrep.explorer.answers import About
from airrep.explorer.explorer import Explorer
from airrep.explorer.reference import BASE, LINES
from airrep.explorer.routes import ROUTES, Route
from airrep.explorer.security import Guard, Rules

STATIC = Path(__file__).parent / "static"
WEEK = 7 * 24 * 3600
PORT = 8766
SHORTEST = 16
"""Characters of a token, at least."""
CONNECTIONS = 256
"""Requests that are open at once, at most."""
AT_ONCE = 2
"""Questions answered at the same time."""
WAITING = 128
"""Questions that may wait."""
PATIENCE = 60.0
"""Seconds that a question may wait."""
LONGEST = 300.0
"""Seconds after which the page is told that an answer takes too long."""


class Busy(Exception):  # noqa: N818 — a state, told to the page as it is
    """No turn could be had."""


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
            HTTPException: the client left while it waited.
        """
        await self._wait()
        if await request.is_disconnected():
            self._free.release()
            raise HTTPException(499, "was given up")
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


def make_app(explorer: Explorer, rules: Rules, turns: Turns | None = None, *, page: bool = True) -> ASGIApp:
    """The application that serves an explorer to those whom the rules allow: the API, and the page if it is wanted."""
    app, turns = FastAPI(title="airrep", docs_url=None, redoc_url=None, openapi_url=None), turns or Turns()
    _add_errors(app)
    if page:
        _add_page(app, rules)
    app.mount("/static", StaticFiles(directory=STATIC))

    @app.get(f"{BASE}/about", **reference.operation("about", reference.ABOUT, About))
    async def about(request: Request) -> Response:
        return await _answer(turns, request, partial(questions.about, explorer))

    for name, route in ROUTES.items():
        app.post(f"{BASE}/{name}", **reference.described(name, route))(_endpoint(explorer, turns, route))
    document = cache(partial(reference.document, app))

    @app.get(f"{BASE}/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        return _json(document())

    @app.get(f"{BASE}/", include_in_schema=False)
    async def reference_page(request: Request) -> Response:
        return _with_cookie(HTMLResponse(reference.page(document())), request, rules)

    return Guard(app, rules)


def _add_page(app: FastAPI, rules: Rules) -> None:
    @app.get("/", include_in_schema=False)
    async def page(request: Request) -> Response:
        return _with_cookie(FileResponse(STATIC / "index.html", headers={"cache-control": "no-store"}), request, rules)


def _with_cookie(response: Response, request: Request, rules: Rules) -> Response:
    """A page whose cookie holds the token that its address brought."""
    token = request.query_params.get("token")
    if token is not None and rules.token is not None and rules.knows(token):
        response.set_cookie(rules.cookie, token, max_age=WEEK, httponly=True, samesite="strict")
    return response


def _endpoint(explorer: Explorer, turns: Turns, route: Route) -> Callable[..., Awaitable[Response]]:
    async def endpoint(request: Request, asked: Any) -> Response:
        if route.pages is not None and LINES in request.headers.get("accept", ""):
            return await _lines(explorer, turns, request, route, asked)
        return await _answer(turns, request, partial(route.answering, explorer, asked))

    endpoint.__annotations__["asked"] = route.model  # by this the body is checked
    return endpoint


async def _lines(explorer: Explorer, turns: Turns, request: Request, route: Route, asked: Any) -> Response:
    """A long answer as lines of JSON, a part at a time, each in a turn of its own: others are answered in between."""
    assert route.pages is not None
    items, parts = route.pages.items, route.pages.split(asked)
    first = await _told(turns, request, partial(route.answering, explorer, next(parts, asked)))
    if isinstance(first, Response):
        return first

    async def lines() -> AsyncIterator[bytes]:
        yield _line({name: value for name, value in first.items() if name != items})
        found, count = first, 0
        while found[items]:
            for one in found[items]:
                yield _line(one)
            count += len(found[items])
            following = next(parts, None)
            if following is None:
                break
            found = await _told(turns, request, partial(route.answering, explorer, following), raising=False)
            if isinstance(found, Response):  # its status is told already
                yield bytes(found.body) + b"\n"
                return
        yield _line({"end": count})

    return StreamingResponse(lines(), media_type=LINES)


def _line(value: object) -> bytes:
    return _text(value) + b"\n"


async def _answer(turns: Turns, request: Request, work: Callable[[], Mapping[str, Any]]) -> Response:
    found = await _told(turns, request, work)
    return found if isinstance(found, Response) else _json(found)


async def _told(turns: Turns, request: Request, work: Callable[[], Mapping[str, Any]], *, raising: bool = True) -> Any:
    """What answers a question; the response that refuses it, where it fails and nothing else will tell that."""
    try:
        return await turns.take(request, work)
    except tuple(FAILURES) as error:
        if raising:
            raise
        return _refusal(error)
    except Exception as error:
        return _unexpected(error)


FAILURES: Mapping[type[Exception], Callable[[Any], tuple[int, str]]] = {
    AirRepError: lambda error: (409 if isinstance(error, ArtifactError) else 400, str(error)),
    HTTPException: lambda error: (error.status_code, f"request: {error.detail}. Open the page anew."),
    Busy: lambda error: (503, f"busy: {error}."),
    MemoryError: lambda _: (503, "memory: is short for this question. Ask for less."),
}
"""Status and line of each failure that is foreseen."""


def _refusal(error: Exception) -> Response:
    return _error(*next(told for kind, told in FAILURES.items() if isinstance(error, kind))(error))


def _add_errors(app: FastAPI) -> None:
    """Every failure is one line of JSON; texts of users go into no log."""

    async def refused(_: Request, error: Exception) -> Response:
        return _refusal(error)

    async def wrong(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return _error(400, _wrong(error))

    for kind in FAILURES:
        app.add_exception_handler(kind, refused)
    app.add_exception_handler(RequestValidationError, wrong)


def _unexpected(error: Exception) -> Response:
    """Tell the page of a mistake of ours; the log has its place, and no message, which could hold texts."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    kind = type(error).__name__
    logging.getLogger(__name__).error("%s in %s, line %s", kind, place.filename, place.lineno)
    return _error(500, f"{kind}: the answer failed in a way that was not foreseen. Its place is in the terminal.")


def _wrong(error: RequestValidationError) -> str:
    """The first thing wrong with a request; never the texts in it."""
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"] if part != "body")[:100] or "request"
    return f"{place}: {first['msg']}. Correct the request."


def _text(value: object) -> bytes:
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


def _json(value: object) -> Response:
    return Response(_text(value), media_type="application/json")


def _error(status: int, message: str) -> Response:
    content = json.dumps({"error": " ".join(message.split())})
    return Response(content, status, {"retry-after": "2"} if status == 503 else None, "application/json")


def choose_token(given: str | None, without: bool, host: str) -> str | None:
    """The token that questions must bring; None for nobody asks for one.

    Raises:
        ConfigError: both or a bad one is given, or none where other machines could ask.
    """
    if without:
        if given is not None:
            raise ConfigError("a token and no token: contradict each other. Give one of them.")
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


def address_of(host: str, port: int, token: str | None, path: str = "/") -> str:
    """What to open in a browser."""
    name = socket.gethostname() if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}{path}" + (f"?token={token}" if token else "")


def serve(
    explorer: Explorer,
    host: str,
    open_socket: socket.socket,
    token: str | None,
    say: Callable[[str], None],
    *,
    page: bool = True,
) -> None:
    """Serve until Ctrl-C; *say* is told the address when the page, or the API's without it, can be opened."""
    port = int(open_socket.getsockname()[1])
    public = not is_loopback(host)
    names = (host.lower(), *((socket.gethostname().lower(),) if public else ()))
    config = uvicorn.Config(
        make_app(explorer, Rules(token, port, names, public), page=page),
        log_level="error",
        access_log=False,  # its lines would hold the token
        server_header=False,
        lifespan="off",
        ws="none",
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=1,
    )
    say(address_of(host, port, token, "/" if page else f"{BASE}/"))
    try:
        uvicorn.Server(config).run(sockets=[open_socket])
    except KeyboardInterrupt:  # the usual way to end
        return
