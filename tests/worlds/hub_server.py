"""A server that speaks the Hugging Face Hub's protocol, as far as airrep uses it: repositories in memory."""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

TOKEN = "hf_secret"
"""The token of the user who may write."""
LARGE = (".npy", ".arrow", ".safetensors", ".parquet")
"""Files that go by LFS; all others are in the commit itself."""
_REPO = r"(?P<kind>models|datasets)/(?P<name>[^/]+/[^/]+)"


class Repo(NamedTuple):
    private: bool
    commits: list[tuple[str, dict[str, bytes]]]
    """Each commit with the files that it has."""

    def at(self, revision: str) -> tuple[str, dict[str, bytes]] | None:
        if revision == "main":
            return self.commits[-1]
        return next((one for one in self.commits if one[0] == revision), None)


class Hub:
    """The state of the server, and what it shall do wrong."""

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.objects: dict[str, bytes] = {}
        self.asked: list[str] = []
        """Method and path of each request, headers left out."""
        self.fail: list[tuple[str, int]] = []
        """Requests whose line has such a text are answered with such a status, once each, in order."""
        self.after: int | None = None
        """Commits that are taken; those after them are answered with 500, until this is None again."""
        self.url = ""

    def files(self, name: str) -> dict[str, bytes]:
        return self.repos[name].commits[-1][1]

    def commit(self, name: str, files: dict[str, bytes]) -> str:
        """Make a commit of these files alone; its id."""
        repo = self.repos.setdefault(name, Repo(False, []))
        digest = hashlib.sha1(repr([len(repo.commits), sorted(files.items())]).encode()).hexdigest()
        repo.commits.append((digest, dict(files)))
        return digest


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._answer()

    do_HEAD = do_POST = do_PUT = do_GET  # noqa: N815 - the server asks for these names

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = unquote(urlsplit(self.path).path)
        line = f"{self.command} {path}"
        self.hub.asked.append(line)
        if self.hub.fail and self.hub.fail[0][0] in line:
            return self._send(self.hub.fail.pop(0)[1], {"error": "told by the server"})
        for method, pattern, answer in _ROUTES:
            match = re.fullmatch(pattern, path)
            if match and self.command in method:
                return answer(self, body, **match.groupdict())
        return self._send(404, {"error": f"no route {line}"})

    def _send(self, status: int, content: Any, headers: dict[str, str] | None = None) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _may(self, *, write: bool = False, private: bool = False) -> bool:
        known = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        return known or not (write or private)

    def _found(self, kind: str, name: str) -> Repo | None:
        repo = self.hub.repos.get(name if kind == "models" else f"datasets/{name}")
        if repo is None or not self._may(private=repo.private):
            self._send(404 if self._may(write=True) else 401, {"error": "x"}, {"X-Error-Code": "RepoNotFound"})
            return None
        return repo

    def _at(self, kind: str, name: str, revision: str) -> tuple[str, dict[str, bytes]] | None:
        repo = self._found(kind, name)
        found = repo and repo.at(revision)
        if repo and not found:
            self._send(404, {"error": "x"}, {"X-Error-Code": "RevisionNotFound"})
        return found

    def create(self, body: bytes) -> None:
        asked = json.loads(body)
        if not self._may(write=True):
            return self._send(403, {"error": "you have no right to create it"})
        name = f"{asked['organization']}/{asked['name']}" if asked.get("organization") else asked["name"]
        name = name if asked.get("type", "model") == "model" else f"datasets/{name}"
        private = asked.get("private") or asked.get("visibility") == "private"
        self.hub.repos[name] = Repo(bool(private), [])
        self.hub.commit(name, {".gitattributes": b"*.npy filter=lfs\n"})
        return self._send(200, {"url": f"{self.hub.url}/{name}", "name": name})

    def info(self, body: bytes, kind: str, name: str, revision: str | None = None) -> None:
        if (found := self._at(kind, name, revision or "main")) is not None:
            private = self.hub.repos[name if kind == "models" else f"datasets/{name}"].private
            self._send(200, {"id": name, "sha": found[0], "private": private, "siblings": [], "tags": []})

    def tree(self, body: bytes, kind: str, name: str, revision: str, below: str | None = None) -> None:
        if (found := self._at(kind, name, revision)) is not None:
            prefix = f"{below}/" if below else ""
            self._send(200, [_entry(path, data) for path, data in found[1].items() if path.startswith(prefix)])

    def resolve(self, body: bytes, name: str, revision: str, file: str, data: str | None = None) -> None:
        if (found := self._at("datasets" if data else "models", name, revision)) is None:
            return None
        if file not in found[1]:
            return self._send(404, {"error": "x"}, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": found[0]})
        content = found[1][file]
        headers = {"X-Repo-Commit": found[0], "ETag": f'"{hashlib.sha256(content).hexdigest()}"'}
        if (span := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")) is not None:
            first, last = int(span[1]), min(int(span[2] or len(content) - 1), len(content) - 1)
            headers |= {"Content-Range": f"bytes {first}-{last}/{len(content)}"}
            return self._send(206, content[first : last + 1], headers)
        return self._send(200, content, headers)

    def validate(self, body: bytes) -> None:
        head = json.loads(body)["content"].split("---")[1]
        good = re.search(r"^license: [a-z]", head, re.MULTILINE)
        self._send(200 if good else 400, {"errors": [] if good else [{"message": "license"}], "warnings": []})

    def preupload(self, body: bytes, kind: str, name: str, revision: str) -> None:
        if not self._may(write=True):
            return self._send(403, {"error": "you have no right to write"})
        asked = json.loads(body)["files"]
        told = [(one["path"], "lfs" if one["path"].endswith(LARGE) else "regular") for one in asked]
        return self._send(200, {"files": [{"path": p, "uploadMode": m, "shouldIgnore": False} for p, m in told]})

    def batch(self, body: bytes, name: str, data: str | None = None) -> None:
        told = []
        for one in json.loads(body)["objects"]:
            href = {"actions": {"upload": {"href": f"{self.hub.url}/put/{one['oid']}?X-Amz-Signature=signed"}}}
            told.append({**one, **({} if one["oid"] in self.hub.objects else href)})
        self._send(200, {"transfer": "basic", "objects": told})

    def put(self, body: bytes, oid: str) -> None:
        assert hashlib.sha256(body).hexdigest() == oid
        self.hub.objects[oid] = body
        self._send(200, {})

    def commit(self, body: bytes, kind: str, name: str, revision: str) -> None:
        if not self._may(write=True):
            return self._send(403, {"error": "you have no right to write"})
        full = name if kind == "models" else f"datasets/{name}"
        lines = [json.loads(line) for line in body.splitlines()]
        head, before = self.hub.repos[full].commits[-1]
        if lines[0]["value"].get("parentCommit") not in (None, head):
            return self._send(412, {"error": "A commit has happened since."})
        if self.hub.after is not None:
            self.hub.after = self.hub.after - 1 if self.hub.after else None
            if self.hub.after is None:
                return self._send(500, {"error": "told by the server"})
        files = dict(before)
        for line in lines[1:]:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.hub.objects[value["oid"]]
            else:
                del files[value["path"]]
        made = self.hub.commit(full, files)
        return self._send(200, {"commitUrl": f"{self.hub.url}/{name}/commit/{made}", "commitOid": made})


def _entry(path: str, data: bytes) -> dict[str, Any]:
    found = {"type": "file", "path": path, "size": len(data)}
    if path.endswith(LARGE):
        oid = hashlib.sha256(data).hexdigest()
        return {**found, "oid": oid[:40], "lfs": {"oid": oid, "size": len(data), "pointerSize": 130}}
    return {**found, "oid": hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()}


_ROUTES: list[Any] = [
    (("POST",), r"/api/repos/create", _Handler.create),
    (("POST",), r"/api/validate-yaml", _Handler.validate),
    (("GET",), rf"/api/{_REPO}(?:/revision/(?P<revision>[^/]+))?", _Handler.info),
    (("GET",), rf"/api/{_REPO}/tree/(?P<revision>[^/]+)(?:/(?P<below>.+))?", _Handler.tree),
    (("POST",), rf"/api/{_REPO}/preupload/(?P<revision>[^/]+)", _Handler.preupload),
    (("POST",), rf"/api/{_REPO}/commit/(?P<revision>[^/]+)", _Handler.commit),
    (("POST",), r"/(?P<data>datasets/)?(?P<name>[^/]+/[^/]+)\.git/info/lfs/objects/batch", _Handler.batch),
    (("PUT",), r"/put/(?P<oid>\w+)", _Handler.put),
    (
        ("GET", "HEAD"),
        r"/(?P<data>datasets/)?(?P<name>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<file>.+)",
        _Handler.resolve,
    ),
]


@contextmanager
def hub_server() -> Iterator[Hub]:
    """Serve an empty Hub on this machine."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
