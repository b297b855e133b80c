"""The API for programs: its document, its page, lines, and the client of the docs."""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from jsonschema import Draft202012Validator
from worlds.browser_server import TOKEN, client_of, served
from worlds.browser_server import call as ask
from worlds.small_world import make_corpus

import airrep
from airrep.errors import ArtifactError
from airrep.explorer import serving
from airrep.explorer.explorer import Explorer
from airrep.explorer.points import MEDIA
from airrep.explorer.routes import ROUTES
from airrep.explorer.security import Rules

LINES = {"accept": "application/x-ndjson"}
PAGE = Path(__file__).parents[2] / "docs" / "api.md"
QUERY = {"prompt": "question 3", "response": "answer 3"}
Call = Callable[..., httpx.Response]


@pytest.fixture(scope="module")
def explorer(tmp_path_factory: pytest.TempPathFactory) -> Explorer:
    index = airrep.build_index(make_corpus(120), tmp_path_factory.mktemp("api") / "index", "ngram")
    return Explorer(index, make_corpus(5, "q"))


@pytest.fixture
def call(explorer: Explorer) -> Call:
    return caller(explorer)


def caller(explorer: Explorer, **more: Any) -> Call:
    return partial(ask, serving.make_app(explorer, Rules(TOKEN, 8766), **more))


def schemas_at(value: Any) -> Iterator[str]:
    """All references of a document."""
    for name, part in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        if name == "$ref":
            yield part
        yield from schemas_at(part)


def test_every_answer_is_as_the_document_says(call: Call) -> None:
    told = call("GET", "/api/v1/openapi.json").json()
    assert told["openapi"].startswith("3.1")
    known = told["components"]["schemas"]
    for schema in known.values():
        Draft202012Validator.check_schema(schema)
        assert schema["additionalProperties"] is False  # so that an answer with another field is found here
    assert {one.removeprefix("#/components/schemas/") for one in schemas_at(told)} == set(known)
    assert set(told["paths"]) == {f"/api/v1/{name}" for name in ("about", "map", *ROUTES)}
    drawn = told["paths"].pop("/api/v1/map")["post"]  # of bytes, and this index keeps no vectors
    assert set(drawn["responses"]["200"]["content"]) == {MEDIA}
    assert "color" in drawn["requestBody"]["content"]["application/json"]["example"]
    assert '<section id="/api/v1/map">' in call("GET", "/api/v1/", token=None).text
    assert "integer, 1 to 1,000<" in call("GET", "/api/v1/", token=None).text
    names = []
    for path, methods in told["paths"].items():
        ((method, one),) = methods.items()
        names.append(one["operationId"])
        body = one.get("requestBody")
        example = {"json": body["content"]["application/json"]["example"]} if body else {}
        answer = call(method.upper(), path, **example)
        assert answer.status_code == 200, (path, answer.text)
        for media in ("application/json",):
            schema = one["responses"]["200"]["content"][media]["schema"]
            Draft202012Validator({**schema, "components": told["components"]}).validate(answer.json())
        refused = call(method.upper(), path, token=None)
        assert "401" in one["responses"]
        assert refused.status_code == 401
        assert (LINES["accept"] in one["responses"]["200"]["content"]) == ("lines" in page_of(call, path))
    assert len(set(names)) == len(names)


def page_of(call: Call, path: str) -> str:
    """What the page of the API says in the heading of a route."""
    page = call("GET", "/api/v1/", token=None).text
    found = re.search(rf'<section id="{path}">\s*<h2>(.*)</h2>', page)
    assert found is not None
    return found[1]


def test_requests_that_the_document_forbids_are_refused(call: Call) -> None:
    """Each field of each request, of another type; and one that has no name there."""
    told = call("GET", "/api/v1/openapi.json").json()
    for path, methods in told["paths"].items():
        body = next(iter(methods.values())).get("requestBody")
        if body is None:
            continue
        content = body["content"]["application/json"]
        schema = {**content["schema"], "components": told["components"]}
        fields = told["components"]["schemas"][content["schema"]["$ref"].rpartition("/")[2]]["properties"]
        for name in (*fields, "unknown"):
            wrong = {**content["example"], name: 1.5}
            assert not Draft202012Validator(schema).is_valid(wrong)
            assert call("POST", path, json=wrong).status_code == 400


def test_the_page_of_the_api_needs_no_script_and_nothing_from_elsewhere(explorer: Explorer) -> None:
    alone = caller(explorer, page=False)
    assert alone("GET", "/").status_code == 404
    page = alone("GET", "/api/v1/", token=None, params={"token": TOKEN})
    assert "HttpOnly" in page.headers["set-cookie"]
    assert "default-src 'none'" in page.headers["content-security-policy"]
    places: list[str] = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attributes: places.extend(  # type: ignore[method-assign]
        str(value) for name, value in attributes if name in ("src", "href")
    )
    parser.feed(page.text)
    assert places
    assert all(one.startswith(("/static/", "/api/v1/", "#/api/v1/")) for one in places)
    assert "<script" not in page.text
    for place in places:
        assert alone("GET", place).status_code == 200 if not place.startswith("#") else place[1:] in page.text
    for name, route in ROUTES.items():
        assert f"POST /api/v1/{name}" in page.text
        assert all(f"<code>{field}</code>" in page.text for field in route.model.model_fields)


@pytest.mark.parametrize(
    ("name", "body", "parts"),
    [
        ("top", {"query": QUERY, "count": 120}, [{"start": 0, "count": 50}, {"start": 50}, {"start": 100}]),
        ("rows", {"rows": list(range(70))}, [{"rows": list(range(50))}, {"rows": list(range(50, 70))}]),
        ("queries", {"text": ""}, [{}]),
    ],
)
def test_lines_are_the_parts_one_after_another(call: Call, name: str, body: Any, parts: list[Any]) -> None:
    answer = call("POST", f"/api/v1/{name}", json=body, headers=LINES)
    assert answer.headers["content-type"] == LINES["accept"]
    head, *items, end = map(json.loads, answer.text.splitlines())
    pages = [call("POST", f"/api/v1/{name}", json={**body, "count": 50, **part}).json() for part in parts]
    if name != "top":
        pages = [call("POST", f"/api/v1/{name}", json={**body, **part}).json() for part in parts]
    key = {"top": "hits"}.get(name, name)
    assert items == [one for page in pages for one in page[key]]
    assert end == {"end": len(items)}
    assert head == {field: value for field, value in pages[0].items() if field != key}


def test_a_long_answer_is_not_had_in_one_piece(call: Call) -> None:
    refused = call("POST", "/api/v1/top", json={"query": QUERY, "count": 51})
    assert refused.status_code == 400
    assert "application/x-ndjson" in refused.json()["error"]


def test_lines_that_break_off_say_so(explorer: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    told = [explorer.indexes[0]]

    def once(_: int) -> Any:
        if not told:
            raise ArtifactError("index: was changed")
        return told.pop()

    monkeypatch.setattr(explorer, "index", once)
    call = caller(explorer)
    answer = call("POST", "/api/v1/top", json={"query": QUERY, "count": 100}, headers=LINES)
    lines = answer.text.splitlines()
    assert len(lines) == 1 + 50 + 1
    assert json.loads(lines[-1]) == {"error": "index: was changed"}
    refused = call("POST", "/api/v1/top", json={"query": QUERY, "count": 100}, headers=LINES)
    assert refused.status_code == 409  # nothing was told yet


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:8766"}, 200),
        ({"origin": "https://evil.example", "sec-fetch-site": "cross-site"}, 403),
        ({"origin": "https://box.example", "sec-fetch-site": "same-origin"}, 200),  # behind a proxy
    ],
)
def test_old_browsers_on_other_pages_cannot_ask_either(call: Call, headers: dict[str, str], status: int) -> None:
    assert call("GET", "/api/v1/about", headers=headers).status_code == status


def test_the_client_of_the_docs_asks_a_real_server(explorer: Explorer, capsys: pytest.CaptureFixture[str]) -> None:
    client, use = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(client.splitlines()) < 60
    names: dict[str, Any] = {}
    exec(client, names)
    with served(explorer) as address:
        code = use.replace("http://127.0.0.1:8766/?token=TOKEN", address).replace("creak", "forum")
        exec(code, names)
        asking = names["Client"](address)
        assert asking.ask("about")["examples"] == 120
        with pytest.raises(names["Refused"], match="index 7"):
            asking.ask("top", query=QUERY, index=7)
        with pytest.raises(names["Refused"], match="token: "):
            names["Client"](address.partition("?")[0]).ask("about")
    told = capsys.readouterr().out
    assert len(told.splitlines()) == 2


def test_the_command_serves_the_routes_alone(explorer: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from airrep.cli import app as cli

    told: list[Any] = []
    monkeypatch.setattr(uvicorn.Server, "run", lambda server, sockets: told.append(server.config.app))
    path = explorer.indexes[0].path
    result = CliRunner().invoke(cli.app, ["serve", str(path), "--api", "--port", "0"])
    assert result.exit_code == 0
    assert re.search(r"http://127\.0\.0\.1:\d+/api/v1/\?token=", result.output)
    (app,) = told

    async def visit() -> int:
        async with client_of(app) as client:
            return (await client.get("/")).status_code

    assert asyncio.run(visit()) == 404
