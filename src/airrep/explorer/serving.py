"""Serves the page and the API over HTTP: routes, streamed lines, errors."""

import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, StreamingResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from airrep.errors import AirRepError, ArtifactError
from airrep.explorer import questions, routes
from airrep.explorer.answers import About
from airrep.explorer.explorer import Explorer
from airrep.explorer.points import MEDIA, MapRequest, points
from airrep.explorer.routes import BASE, LINES, ROUTES, Pages, Route
from airrep.explorer.security import Guard, Rules, address_of, run, unexpected
from airrep.explorer.turns import Busy, Left, Shared, Turns

STATIC = Path(__file__).parent / "static"
WEEK = 7 * 24 * 3600
DRAWING: dict[str, Any] = {
    "operation_id": "map",
    "summary": MapRequest.__doc__,
    "response_class": Response,  # without a type of its own, or the document would also list a JSON answer
    "responses": {
        200: {
            "description": "A header of JSON, then places, rows and numbers of the examples.",
            "content": {MEDIA: {"schema": {"type": "string", "format": "binary"}}},
        },
        **routes.refusals(),
    },
    "openapi_extra": {"requestBody": {"content": {"application/json": {"example": {"color": "cluster"}}}}},
}
"""Description of the map for the OpenAPI document; the map is the only answer that is not JSON."""


def make_app(explorer: Explorer, rules: Rules, turns: Turns | None = None, *, page: bool = True) -> ASGIApp:
    """Return the application that serves an explorer under the given rules: the API and, if *page*, the page."""
    app, turns = FastAPI(title="airrep", docs_url=None, redoc_url=None, openapi_url=None), turns or Turns()
    _add_errors(app)
    app.mount("/static", StaticFiles(directory=STATIC))

    @app.get(f"{BASE}/about", **routes.operation("about", routes.ABOUT, About))
    async def about(request: Request) -> Response:
        return _response(await _told(turns, request, partial(questions.about, explorer)))

    for name, route in ROUTES.items():
        app.post(f"{BASE}/{name}", **routes.described(name, route))(_endpoint(explorer, turns, route))

    @app.post(f"{BASE}/map", **DRAWING)
    async def drawn(request: Request, asked: MapRequest) -> Response:
        found = await _told(turns, request, partial(points, explorer, asked))
        return found if isinstance(found, Response) else Response(found, media_type=MEDIA)

    document = cache(partial(routes.document, app))

    @app.get(f"{BASE}/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        return _json(document())

    @app.get(f"{BASE}/", include_in_schema=False)
    async def reference_page(request: Request) -> Response:
        return _with_cookie(HTMLResponse(routes.page(document())), request, rules)

    if page:

        @app.get("/", include_in_schema=False)
        async def index_page(request: Request) -> Response:
            found = FileResponse(STATIC / "index.html", headers={"cache-control": "no-store"})
            return _with_cookie(found, request, rules)

    return Guard(app, rules)


def _with_cookie(response: Response, request: Request, rules: Rules) -> Response:
    """Set the token of the page's address as a cookie, if it is right, and return the response."""
    token = request.query_params.get("token")
    if token is not None and rules.token is not None and rules.knows(token):
        response.set_cookie(rules.cookie, token, max_age=WEEK, httponly=True, samesite="strict")
    return response


def _endpoint(explorer: Explorer, turns: Turns, route: Route) -> Callable[..., Awaitable[Response]]:
    async def endpoint(request: Request, asked: Any) -> Response:
        def told(part: Any, *, raising: bool = True) -> Awaitable[Any]:
            shared = None if route.together is None else Shared(route.together, explorer, part)
            return _told(turns, request, partial(route.answering, explorer, part), shared, raising=raising)

        if route.pages is not None and LINES in request.headers.get("accept", ""):
            return await _lines(told, route.pages, asked)
        return _response(await told(asked))

    endpoint.__annotations__["asked"] = route.model  # FastAPI checks the body against this model
    return endpoint


async def _lines(told: Callable[..., Awaitable[Any]], pages: Pages, asked: Any) -> Response:
    """Stream a long answer as lines of JSON; each part takes its own turn, so other questions are answered between."""
    items, parts = pages.items, pages.split(asked)
    first = await told(next(parts, asked))
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
            found = await told(following, raising=False)
            if isinstance(found, Response):  # the status was already sent, so the error becomes a line
                yield bytes(found.body) + b"\n"
                return
        yield _line({"end": count})

    return StreamingResponse(lines(), media_type=LINES)


def _line(value: object) -> bytes:
    return _text(value) + b"\n"


def _response(found: Any) -> Response:
    return found if isinstance(found, Response) else _json(found)


async def _told(
    turns: Turns, request: Request, work: Callable[[], Any], shared: Shared | None = None, *, raising: bool = True
) -> Any:
    """Return the answer to a question. Errors become a response, but with *raising* the foreseen ones are raised."""
    try:
        return await turns.take(work, request.is_disconnected, shared)
    except tuple(FAILURES) as error:
        if raising:
            raise
        return _refusal(error)
    except Exception as error:
        return _error(500, unexpected(error))


FAILURES: Mapping[type[Exception], Callable[[Any], tuple[int, str]]] = {
    AirRepError: lambda error: (409 if isinstance(error, ArtifactError) else 400, str(error)),
    HTTPException: lambda error: (error.status_code, f"request: {error.detail}. Correct it, or reload the page."),
    Busy: lambda error: (503, f"busy: {error}."),
    Left: lambda error: (499, f"request: {error}. Ask again."),
    MemoryError: lambda _: (503, "memory: there is too little for this question. Ask for fewer results."),
}
"""Functions from a foreseen error to the status and the line of its response."""


def _refusal(error: Exception) -> Response:
    return _error(*next(told for kind, told in FAILURES.items() if isinstance(error, kind))(error))


def _add_errors(app: FastAPI) -> None:
    """Turn every error into one line of JSON; users' texts are never logged."""

    async def refused(_: Request, error: Exception) -> Response:
        return _refusal(error)

    async def wrong(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return _error(400, _wrong(error))

    for kind in FAILURES:
        app.add_exception_handler(kind, refused)
    app.add_exception_handler(RequestValidationError, wrong)


def _wrong(error: RequestValidationError) -> str:
    """Describe the first error in a request, without quoting its texts."""
    first = error.errors()[0]
    if first["type"] == "json_invalid" or len(first["loc"]) == 1:
        return "request: is not a JSON object with the header Content-Type: application/json. Correct the request."
    place = ".".join(str(part) for part in first["loc"][1:])[:100]
    return f"{place}: {first['msg']}. Correct the request."


def _text(value: object) -> bytes:
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


def _json(value: object) -> Response:
    return Response(_text(value), media_type="application/json")


def _error(status: int, message: str) -> Response:
    content = json.dumps({"error": " ".join(message.split())})
    return Response(content, status, {"retry-after": "2"} if status == 503 else None, "application/json")


def serve(
    explorer: Explorer,
    host: str,
    open_socket: socket.socket,
    token: str | None,
    say: Callable[[str], None],
    *,
    page: bool = True,
) -> None:
    """Serve until Ctrl-C; *say* is called with the address of the page, or of the API's page without *page*."""
    rules = Rules.of(host, open_socket, token)
    app = make_app(explorer, rules, page=page)
    say(address_of(host, rules.port, token, "/" if page else f"{BASE}/"))
    run(app, open_socket)
