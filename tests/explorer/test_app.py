"""The application over HTTP: who may ask, what is refused, and that nothing breaks it."""

import asyncio
import json
import logging
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from worlds.browser_server import TOKEN, call, client_of, served
from worlds.small_world import HashAttributor, make_corpus

import airrep
from airrep.explorer import questions, security, serving
from airrep.explorer.explorer import Explorer
from airrep.explorer.security import BODY, Rules
from airrep.explorer.turns import Turns

QUERY = {"query": {"prompt": "one", "response": "two"}}


def app_of(folder: Path) -> Any:
    index = airrep.build_index(make_corpus(50), folder / "index", HashAttributor(), shard_rows=16)
    return serving.make_app(Explorer(index, make_corpus(5, "q")), Rules(TOKEN, 8766))


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return app_of(tmp_path_factory.mktemp("app"))


def error_of(response: httpx.Response) -> str:
    assert response.headers["content-type"] == "application/json"
    told: str = response.json()["error"]
    assert "\n" not in told
    return told


QUESTIONS = ["count", "queries", "top", "groups", "what-if", "prove", "summary", "example", "rows"]


@pytest.mark.parametrize("token", [None, "", "wrong", TOKEN + "x", "tökén"])
def test_every_question_needs_the_token(app: Any, token: str | None) -> None:
    headers = {} if token is None else {"authorization": f"Bearer {token}".encode()}
    assert call(app, "GET", "/api/v1/about", token=None, headers=headers).status_code == 401
    for name in QUESTIONS:
        refused = call(app, "POST", f"/api/v1/{name}", token=None, headers=headers, json={})
        assert refused.status_code == 401
        assert "token: is missing or wrong" in error_of(refused)
    assert call(app, "GET", "/api/v1/nothing", token=None).status_code == 401


def test_the_page_turns_the_token_of_its_address_into_a_cookie(app: Any) -> None:
    async def visit() -> None:
        async with client_of(app) as client:
            assert "set-cookie" not in (await client.get("/")).headers
            assert "set-cookie" not in (await client.get("/?token=wrong")).headers
            assert (await client.get("/api/v1/about")).status_code == 401
            page = await client.get("/", params={"token": TOKEN})
            assert {"HttpOnly", "SameSite=strict"} <= set(page.headers["set-cookie"].split("; "))
            assert (await client.get("/api/v1/about")).json()["examples"] == 50

    asyncio.run(visit())


@pytest.mark.parametrize("path", ["/", "/static/explorer.js", "/api/v1/about", "/nothing"])
@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8766", "", "10.0.0.1", "[::2]:8766"])
def test_names_that_are_not_this_machine_are_refused(app: Any, host: str, path: str) -> None:
    assert call(app, "GET", path, headers={"host": host}).status_code == 403


def test_addresses_of_this_machine_are_allowed() -> None:
    own, public = Rules(TOKEN, 1), Rules(TOKEN, 1, ("box",), public=True)
    assert all(own.allows_host(host) for host in ("localhost:1", "127.0.0.1:1", "[::1]:1", "LOCALHOST", "127.0.0.2"))
    assert all(public.allows_host(host) for host in ("10.0.0.1:1", "box:1", "[fe80::1]"))
    assert not public.allows_host("evil.example")


def test_other_pages_cannot_ask(app: Any) -> None:
    for site in ("cross-site", "same-site"):
        refused = call(app, "POST", "/api/v1/top", json=QUERY, headers={"sec-fetch-site": site})
        assert refused.status_code == 403
        assert "another page" in error_of(refused)


@pytest.mark.parametrize("path", ["/", "/static/explorer.css", "/api/v1/about", "/nothing"])
def test_every_answer_has_a_strict_policy(app: Any, path: str) -> None:
    answer = call(app, "GET", path)
    policy = answer.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in answer.headers


def test_the_page_holds_no_script_and_nothing_from_elsewhere() -> None:
    page = (serving.STATIC / "index.html").read_text()
    assert page.count("<script") == page.count("<script src=") + page.count('<script type="module" src=')
    assert "style=" not in page
    for path in serving.STATIC.iterdir():
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert "://" not in text, path
        assert not any(
            word in text for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(")
        )


@pytest.mark.parametrize(
    ("content", "status", "told"),
    [
        (b"", 400, "request: is not a JSON object with the header Content-Type"),
        (b"{", 400, "request: is not a JSON object"),
        (b"[]", 400, "request: is not a JSON object"),
        (b'{"query": {"prompt": "a", "response": " "}}', 400, "needs a prompt and a response"),
        (b'{"query": 3}', 400, "query"),
        (b"\xff\xfe", 400, "request"),
        (json.dumps({"query": {"prompt": "\ud800", "response": "b"}}).encode(), 400, ""),
        (json.dumps({**QUERY, "where": "__import__('os')"}).encode(), 400, "where"),
        (json.dumps({**QUERY, "where": "(" * 1999}).encode(), 400, "where"),
        (json.dumps({**QUERY, "where": "nothing == 1"}).encode(), 400, "no field"),
        (json.dumps({**QUERY, "facets": {"<b>": ["x"]}}).encode(), 400, "cannot be shown here"),
        (json.dumps({**QUERY, "index": 7}).encode(), 400, "index 7"),
        (b'{"query": ' + b"[" * 100_000, 400, ""),
        (b'{"query": {"prompt": "' + b"a" * BODY + b'"}}', 413, "larger than"),
    ],
)
def test_bad_requests_are_told_in_one_line(app: Any, content: bytes, status: int, told: str) -> None:
    refused = call(app, "POST", "/api/v1/top", content=content, headers={"content-type": "application/json"})
    assert refused.status_code == status
    assert told in error_of(refused)
    assert len(refused.content) < 1000


def test_a_body_without_a_length_is_bounded(app: Any) -> None:
    async def endless() -> Any:
        while True:
            yield b"x" * 65536

    assert call(app, "POST", "/api/v1/top", content=endless()).status_code == 413


def test_a_body_that_never_ends_is_given_up(app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security, "BODY_SECONDS", 0.05)

    async def slow() -> Any:
        yield b"{"
        await asyncio.sleep(5)

    assert call(app, "POST", "/api/v1/top", content=slow()).status_code == 408


@pytest.mark.parametrize("row", [50, 10**30, -1])
def test_rows_that_do_not_exist_are_told(app: Any, row: int) -> None:
    assert call(app, "POST", "/api/v1/example", json={"row": row}).status_code == 400
    assert call(app, "POST", "/api/v1/rows", json={"rows": [row]}).status_code == 400
    assert call(app, "POST", "/api/v1/what-if", json={**QUERY, "rows": [row]}).status_code == 400


def test_texts_come_back_as_they_are(app: Any) -> None:
    text = "<script>alert(1)</script>\x1b[31m\u202e😀"
    answer = call(app, "POST", "/api/v1/top", json={"query": {"prompt": text, "response": text}})
    assert answer.json()["query"]["prompt"] == text


def test_paths_do_not_leave_the_folder(app: Any) -> None:
    for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/docs", "/openapi.json"):
        assert call(app, "GET", path).status_code == 404


def test_failures_of_ours_are_one_line_without_texts(
    app: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("a secret text")

    monkeypatch.setattr(questions, "verdict_json", fail)
    with caplog.at_level(logging.ERROR):
        answer = call(app, "POST", "/api/v1/top", json=QUERY)
    assert answer.status_code == 500
    assert "secret" not in answer.text + caplog.text
    assert "KeyError" in caplog.text


def test_a_replaced_index_is_told(tmp_path: Path) -> None:
    app = app_of(tmp_path)
    (tmp_path / "index" / "manifest.json").unlink()
    answer = call(app, "POST", "/api/v1/top", json=QUERY)
    assert answer.status_code == 409
    assert "start it again" in error_of(answer)


def test_a_hundred_questions_at_once_are_answered_or_sent_away(index: airrep.Index) -> None:
    app = serving.make_app(Explorer(index), Rules(TOKEN, 8766), Turns(2, 10))

    async def ask_all() -> list[httpx.Response]:
        async with client_of(app, authorization=f"Bearer {TOKEN}") as client:
            bodies = [{"query": {"prompt": f"p{n}", "response": "r"}} for n in range(100)]
            return await asyncio.gather(*(client.post("/api/v1/top", json=body) for body in bodies))

    answers = asyncio.run(ask_all())
    statuses = [answer.status_code for answer in answers]
    assert set(statuses) == {200, 503}
    assert statuses.count(200) >= 10
    for answer in answers:
        assert len(answer.json()["hits"]) == 20 if answer.status_code == 200 else "busy: " in error_of(answer)
    assert call(app, "POST", "/api/v1/top", json=QUERY).status_code == 200


def test_clients_that_leave_break_nothing(index: airrep.Index) -> None:
    body = json.dumps(QUERY).encode()

    def leave(number: int) -> None:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            head = f"POST /api/v1/top HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {TOKEN}\r\n"
            sent = f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
            connection.sendall(sent[: len(sent) - number % 3])

    with served(Explorer(index)) as address:
        port = httpx.URL(address).port
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(leave, range(40)))
        headers = {"authorization": f"Bearer {TOKEN}"}
        place = f"http://127.0.0.1:{port}/api/v1/top"
        assert httpx.post(place, json=QUERY, headers=headers, timeout=30, trust_env=False).status_code == 200


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
FIELDS = ("query", "index", "least", "start", "count", "where", "facets", "by", "rows", "row", "text")
ASKED = st.fixed_dictionaries({}, optional=dict.fromkeys(("number", "key", "prompt", "response"), VALUES))
BODY = st.fixed_dictionaries({}, optional={**dict.fromkeys(FIELDS, VALUES), "query": ASKED | VALUES})


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(body=BODY | VALUES, path=st.sampled_from(QUESTIONS))
def test_no_request_fails_in_a_way_that_was_not_foreseen(app: Any, body: Any, path: str) -> None:
    response = call(app, "POST", f"/api/v1/{path}", content=json.dumps(body).encode())
    assert response.status_code in (200, 400)
    assert "\n" not in response.text


def test_a_request_above_the_most_open_ones_is_told_when_to_try_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security, "CONNECTIONS", 2)

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0.2)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def ask_all() -> list[httpx.Response]:
        transport = httpx.ASGITransport(security.Guard(slow, Rules(None, 80, ("localhost",), public=False)))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            together = await asyncio.gather(*(client.get("/") for _ in range(5)))
            return [*together, await client.get("/")]

    told = asyncio.run(ask_all())
    assert [one.status_code for one in told] == [200, 200, 503, 503, 503, 200]
    assert told[2].headers["retry-after"] == "2"
    assert "2 requests are open already" in told[2].json()["error"]
