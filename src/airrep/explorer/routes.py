"""Routes of the API, their OpenAPI document, and an HTML page of it."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from airrep.explorer import answers, questions, requests
from airrep.explorer.explorer import Explorer
from airrep.explorer.requests import DEEPEST, PAGE, ListRequest, Paged, Request, RowsRequest, TopRequest

if TYPE_CHECKING:
    from fastapi import FastAPI

from airrep._version import __version__
from airrep.explorer.answers import Refused
from airrep.reports.page import environment

Answering = Callable[..., Mapping[str, Any]]
QUERY = {"prompt": "Can I eat zucchini raw?", "response": "No, zucchini should be cooked before eating."}


class Pages(NamedTuple):
    """How a long answer is streamed in parts."""

    items: str
    """Field of the answer with the list that is streamed."""
    split: Callable[[Any], Iterator[Request]]
    """Function that yields the requests for the parts, in order; a part without items ends the answer."""


class Route(NamedTuple):
    """A question of the API, which the page and the notebook widget also ask."""

    model: type[Request]
    answer: type[answers.Told]
    answering: Answering
    example: Mapping[str, Any]
    """Example of a request's body, for the document."""
    pages: Pages | None = None
    together: Callable[[Explorer, Sequence[Any]], object] | None = None
    """Function that does common work for several questions that wait at the same time."""

    @property
    def about(self) -> str:
        """Summary of the answer, the first docstring line of its function."""
        return (self.answering.__doc__ or "").partition("\n")[0]


def _by_page(asked: Paged) -> Iterator[Request]:
    stop = min(asked.start + asked.count, DEEPEST)
    for start in range(asked.start, stop, PAGE):
        yield asked.model_copy(update={"start": start, "count": min(PAGE, stop - start)})


def _of_queries(asked: ListRequest) -> Iterator[Request]:
    for start in count(asked.start, questions.LISTED_QUERIES):
        yield asked.model_copy(update={"start": start})


def _of_rows(asked: RowsRequest) -> Iterator[Request]:
    for start in range(0, len(asked.rows), PAGE):
        yield asked.model_copy(update={"rows": asked.rows[start : start + PAGE]})


ROUTES: Mapping[str, Route] = {
    "count": Route(requests.Filters, answers.Count, questions.count, {"where": "source == 'creak'"}),
    "queries": Route(
        ListRequest, answers.Queries, questions.list_queries, {"text": "zucchini"}, Pages("queries", _of_queries)
    ),
    "top": Route(
        TopRequest,
        answers.Top,
        questions.top,
        {"query": QUERY, "count": 3},
        Pages("hits", _by_page),
        questions.rank_together,
    ),
    "copied": Route(requests.CopiedRequest, answers.Copied, questions.copied_words, {"query": QUERY}),
    "groups": Route(requests.GroupRequest, answers.Groups, questions.groups, {"query": QUERY, "by": "source"}),
    "what-if": Route(requests.WhatIfRequest, answers.WhatIf, questions.what_if, {"query": QUERY, "rows": [0, 1]}),
    "prove": Route(requests.WhatIfRequest, answers.Prove, questions.prove, {"query": QUERY, "rows": [0, 1]}),
    "summary": Route(requests.SummaryRequest, answers.Summary, questions.summary, {}),
    "select": Route(
        requests.SelectRequest,
        answers.Select,
        questions.select,
        {"queries": [QUERY], "total": 5},
        Pages("picks", _by_page),
    ),
    "clean": Route(
        requests.CleanRequest,
        answers.Clean,
        questions.clean,
        {"kinds": ["duplicate"], "count": 5},
        Pages("findings", _by_page),
    ),
    "example": Route(
        requests.ExampleRequest,
        answers.Example,
        questions.example,
        {"row": 1, "query": QUERY},
        together=questions.rank_together,
    ),
    "tokens": Route(requests.TokensRequest, answers.Tokens, questions.tokens, {"row": 1, "query": QUERY}),
    "rows": Route(RowsRequest, answers.Rows, questions.rows, {"rows": [0, 1]}, Pages("rows", _of_rows)),
}
"""Routes by their path below /api/v1."""


BASE = "/api/v1"
"""Path of the routes of this version."""
LINES = "application/x-ndjson"
ABOUT = "What is served, and how to read its numbers."
REFUSALS = {
    400: "The question is wrong: an unknown field, row, query or filter.",
    401: "The token is missing or wrong.",
    403: "The request comes from another page, or names a host that is not this machine.",
    408: "The request did not arrive in time.",
    409: "The index was changed or replaced since it was opened.",
    413: "The request is too large.",
    503: "Too many requests at once. Try again after the number of seconds in the Retry-After header.",
}
_HEAD = (
    "Questions to an index of training data: which examples taught an answer. The page of `airrep serve` uses the "
    "same routes. A request with a field that is not named here is refused. Errors are one line of JSON."
)


def described(name: str, route: Route) -> dict[str, Any]:
    """Return FastAPI's arguments for a route beside its model, from which the document is made."""
    content: dict[str, Any] = {"application/json": {}}
    if route.pages is not None:
        told = (
            f"First the answer without `{route.pages.items}`, then one line for each of them, then `end` with their "
            "count, or `error`."
        )
        content[LINES] = {"schema": {"type": "object", "description": told}}
    body = {"content": {"application/json": {"example": route.example}}}
    return {
        **operation(name, route.about, route.answer),
        "responses": {200: {"model": route.answer, "content": content}, **refusals()},
        "openapi_extra": {"requestBody": body},
    }


def operation(name: str, about: str, answer: type[Any]) -> dict[str, Any]:
    """Return FastAPI's arguments with a route's name, summary and answers."""
    return {
        "operation_id": name.replace("-", "_"),
        "summary": about,
        "responses": {200: {"model": answer}, **refusals()},
    }


def refusals() -> dict[int | str, dict[str, Any]]:
    """Return the document's entries for refused questions, by status."""
    return {status: {"model": Refused, "description": told} for status, told in REFUSALS.items()}


def document(app: "FastAPI") -> dict[str, Any]:
    """Return the OpenAPI document of an application's routes, made from the models that check requests."""
    from fastapi.openapi.utils import get_openapi  # here, because a notebook uses this module without a server

    made = get_openapi(title="airrep", version=__version__, description=_HEAD, routes=app.routes)
    made["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    made["security"] = [{"token": []}]
    for path in made["paths"].values():
        for one in path.values():
            one["responses"].pop("422", None)  # FastAPI adds it, but invalid requests get 400 here
    for name in ("HTTPValidationError", "ValidationError"):
        made["components"]["schemas"].pop(name, None)
    return made


def page(told: Mapping[str, Any]) -> str:
    """Return the document as an HTML page."""
    routes = [
        {
            "path": path,
            "method": method.upper(),
            "about": one["summary"],
            "asked": list(_fields(told, _schema(one.get("requestBody", {})))),
            "answered": list(_fields(told, _schema(one["responses"]["200"]))),
            "lines": LINES in one["responses"]["200"]["content"],
            "example": _curl(path, one),
        }
        for path, methods in told["paths"].items()
        for method, one in methods.items()
    ]
    refused = list(REFUSALS.items())
    template = environment().get_template("api.html.j2")
    return template.render(about=told["info"]["description"], version=__version__, routes=routes, refused=refused)


def _schema(part: Mapping[str, Any]) -> dict[str, Any]:
    return part.get("content", {}).get("application/json", {}).get("schema", {})


def _fields(told: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield name, type and meaning of each field of an object."""
    schema = _resolved(told, schema)
    for name, one in schema.get("properties", {}).items():
        needed = name in schema.get("required", ())
        yield {"name": name, "type": _type(one), "needed": needed, "about": _meaning(told, one)}


def _resolved(told: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    reference = schema.get("$ref")
    return told["components"]["schemas"][reference.rpartition("/")[2]] if reference else schema


def _type(schema: Mapping[str, Any]) -> str:
    """Return a type in words: ``list of Hit``, ``integer, 1 to 50``."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(map(_type, schema["anyOf"]))
    kind = str(schema.get("type", "any"))
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    low, high = schema.get("minimum"), schema.get("maximum", schema.get("maxLength"))
    return kind + (f", {low:g} to {high:,.9g}" if None not in (low, high) else f", at most {high:,}" if high else "")


def _meaning(told: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    inner = schema.get("items", schema)
    return str(schema.get("description") or _resolved(told, inner).get("description", "")).partition("\n")[0]


def _curl(path: str, one: Mapping[str, Any]) -> str:
    command = f'curl -H "Authorization: Bearer $TOKEN" $ADDRESS{path}'
    body = one.get("requestBody")
    if body is None:
        return command
    text = json.dumps(body["content"]["application/json"]["example"]).replace("'", "\\u0027")
    return f"{command} -H 'Content-Type: application/json' -d '{text}'"
