"""Places that are URLs, on a storage in memory; and on a real server of S3 where one is installed."""

import contextlib
import errno
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from worlds.commands import Run

import airrep
from airrep.encoder.load import load_encoder
from airrep.errors import AirRepError, ArtifactError, ConfigError, DataError, MissingExtraError
from airrep.index.shards import PLACES
from airrep.runtime.artifacts import MANIFEST, fetched
from airrep.runtime.remote import outputs
from airrep.runtime.remote.places import path_of, shown, url_of
from airrep.runtime.remote.storage import Storage

RECORDS = [{"prompt": f"question {n}", "response": f"answer {n % 3} of {n}", "source": f"s{n % 2}"} for n in range(12)]
QUERIES = RECORDS[:2]


class Place:
    """A bucket of a storage, empty at first."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.files = Storage(url).files

    def put(self, name: str, content: bytes) -> str:
        """Put a file there; its URL."""
        self.files.pipe_file(f"{self.url}/{name}", content)
        return f"{self.url}/{name}"

    def names(self, name: str) -> set[str]:
        """Files below a name."""
        return set(Storage(f"{self.url}/{name}").below())

    def lines(self, name: str, records: list[dict[str, str]]) -> str:
        """Put JSON lines there; their URL."""
        return self.put(name, "".join(json.dumps(record) + "\n" for record in records).encode())


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of a server of S3 on this machine."""
    pytest.importorskip("s3fs")
    started = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    with _quiet():
        started.start()
    yield "http://{}:{}".format(*started.get_host_and_port())
    started.stop()


def _quiet() -> contextlib.AbstractContextManager[Any]:
    import logging

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    return contextlib.nullcontext()


@pytest.fixture(params=["memory", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setenv("AIRREP_CACHE", str(tmp_path / "cache"))
    if request.param == "s3":
        _use(request.getfixturevalue("server"), monkeypatch)
    found = Place(f"{request.param}://b{abs(hash(request.node.nodeid))}")
    found.files.mkdir(found.url)
    yield found
    found.files.rm(found.url, recursive=True)


def _use(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"ENDPOINT_URL": address, "ACCESS_KEY_ID": "k", "SECRET_ACCESS_KEY": "s", "DEFAULT_REGION": "us-east-1"}
    for name, value in given.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    fsspec.get_filesystem_class("s3").clear_instance_cache()


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setenv("AIRREP_CACHE", str(tmp_path / "cache"))
    found = Place("memory://room")
    yield found
    with contextlib.suppress(FileNotFoundError):
        found.files.rm(found.url, recursive=True)


def build(place: Place, out: str = "index", **settings: Any) -> airrep.Index:
    """An index at a URL of data at a URL."""
    data = place.lines("train.jsonl", RECORDS)
    return airrep.build_index(data, f"{place.url}/{out}", method="tfidf", **settings)


def forget_all() -> None:
    """Do as another machine, which has no copies."""
    import shutil

    from airrep.runtime.remote.places import cache

    shutil.rmtree(cache())


def test_data_are_read_as_they_come(place: Place) -> None:
    import gzip

    import pyarrow as pa
    import pyarrow.parquet as pq

    whole = airrep.Corpus.from_records(RECORDS)
    assert airrep.read_corpus(place.lines("a.jsonl", RECORDS)) == whole
    packed = gzip.compress("".join(json.dumps(record) + "\n" for record in RECORDS).encode())
    assert airrep.read_corpus(place.put("a.jsonl.gz", packed)) == whole
    table = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(RECORDS), table)
    assert airrep.read_corpus(Path(place.put("a.parquet", table.getvalue().to_pybytes()))) == whole
    place.lines("several/part-0.jsonl", RECORDS[:5])
    place.lines("several/part-1.jsonl", RECORDS[5:])
    assert airrep.read_corpus(f"{place.url}/several") == whole
    with pytest.raises(DataError, match=rf"^{place.url}/bad.jsonl:1: not JSON"):
        airrep.read_corpus(place.put("bad.jsonl", b"{\n"))
    for name in ("split", "config"):
        with pytest.raises(ConfigError, match=f"Leave out {name}"):
            airrep.read_corpus(f"{place.url}/a.jsonl", **{name: "main"})  # type: ignore[arg-type]


def test_an_index_is_made_at_a_url_and_asked_by_others(place: Place, tmp_path: Path) -> None:
    made = build(place)
    here = airrep.build_index(RECORDS, tmp_path / "here", method="tfidf")
    url = f"{place.url}/index"
    names = {name for name in place.names("index") if not name.endswith(PLACES)}  # which the list in memory has not
    assert names == {MANIFEST, *here.manifest["files"]}
    for name in here.manifest["files"]:
        if not name.endswith("shard.json"):  # which knows of the places
            assert place.files.cat_file(f"{url}/{name}") == (tmp_path / "here" / name).read_bytes()
    forget_all()
    opened = airrep.Index(url)
    assert opened.manifest == made.manifest
    assert opened.top(QUERIES, k=3).to_dicts() == here.top(QUERIES, k=3).to_dicts()
    forget_all()
    assert build(place).manifest == made.manifest, "it is found finished"
    opened.top(QUERIES).save(f"{place.url}/top")
    assert len(airrep.open(f"{place.url}/top").queries) == 2  # type: ignore[attr-defined]


def test_an_unchanged_index_is_fetched_once(memory: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    build(memory)
    forget_all()
    first = airrep.Index(f"{memory.url}/index").path
    monkeypatch.setattr(Storage, "get", None)  # would be called for any file but the manifest
    assert airrep.Index(f"{memory.url}/index").path == first


def test_another_index_in_its_place_is_seen(place: Place) -> None:
    build(place)
    old = airrep.Index(f"{place.url}/index")
    place.lines("train.jsonl", RECORDS[:7])
    with pytest.raises(ArtifactError, match=rf"^{place.url}/index: holds an index made with another"):
        airrep.build_index(f"{place.url}/train.jsonl", f"{place.url}/index", method="tfidf")
    airrep.build_index(f"{place.url}/train.jsonl", f"{place.url}/index", method="tfidf", replace=True)
    now = airrep.Index(f"{place.url}/index")
    assert (len(old), len(now)) == (12, 7)
    assert len(old.top(QUERIES, k=12)[0]) == 12, "what is open stays as it was"
    assert place.names("index") == {MANIFEST, *now.manifest["files"]}, "files of the older one are gone"


def test_half_an_upload_is_never_taken_for_a_whole_one(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Storage.put
    sent: list[str] = []

    def cut(storage: Storage, folder: Path, names: Any) -> None:
        whole(storage, folder, list(names)[:2])
        sent.append(storage.url)
        raise ArtifactError(f"{storage.url}: the network is gone.")

    for replacing in (False, True):
        with monkeypatch.context() as patch:
            patch.setattr(Storage, "put", cut)
            with pytest.raises(ArtifactError, match="the network is gone"):
                build(place, replace=replacing)
        with pytest.raises(ArtifactError, match=r"/index: has no manifest.json, so it is unfinished, or an upload"):
            airrep.Index(f"{place.url}/index")
        if replacing:  # on another machine, which has nothing of it
            forget_all()
        assert len(build(place)) == 12
        assert len(airrep.Index(f"{place.url}/index")) == 12
        assert outputs.BEGUN not in place.names("index")
    assert len(sent) == 2


def test_what_was_made_is_sent_by_the_next_run(memory: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    from airrep.index import building

    with monkeypatch.context() as patch:
        patch.setattr(Storage, "write", lambda *_: (_ for _ in ()).throw(ArtifactError("gone.")))
        with pytest.raises(ArtifactError, match="gone"):
            build(memory)
    monkeypatch.setattr(building, "write_shards", None)  # would be called if it were made once more
    assert len(build(memory)) == 12
    forget_all()
    assert len(airrep.Index(f"{memory.url}/index")) == 12


def test_an_altered_or_missing_file_is_named(place: Place) -> None:
    build(place)
    forget_all()
    name = next(name for name in sorted(place.names("index")) if name.endswith("data.npy"))
    content = place.files.cat_file(f"{place.url}/index/{name}")
    place.put(f"index/{name}", content[:-1] + b"?")
    with pytest.raises(ArtifactError, match=rf"^{place.url}/index/{name}: differs from what its manifest.json says"):
        airrep.Index(f"{place.url}/index")
    place.files.rm_file(f"{place.url}/index/{name}")
    with pytest.raises(ArtifactError, match=rf"^{place.url}/index/{name}: cannot be read: it is missing"):
        airrep.Index(f"{place.url}/index")
    place.put(f"index/{MANIFEST}", b"{}")
    with pytest.raises(ArtifactError, match=rf"^{place.url}/index.*is not a manifest"):
        airrep.Index(f"{place.url}/index")


def test_an_interrupted_fetch_goes_on(memory: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    build(memory)
    forget_all()
    fetch, asked = Storage.get, list[list[str]]()

    def broken(storage: Storage, names: Any, folder: Path) -> None:
        asked.append(list(names))
        fetch(storage, asked[0][:2], folder)
        (folder / asked[0][2]).write_bytes(b"half")
        raise ArtifactError("the network is gone.")

    with monkeypatch.context() as patch:
        patch.setattr(Storage, "get", broken)
        with pytest.raises(ArtifactError, match="network"):
            airrep.Index(f"{memory.url}/index")
    monkeypatch.setattr(
        Storage, "get", lambda storage, names, folder: fetch(storage, asked.append(names) or names, folder)
    )
    assert len(airrep.Index(f"{memory.url}/index")) == 12
    assert asked[1] == asked[0][2:], "what was there is not fetched again, and what broke off is"


def test_a_full_disk_is_told_of_where_files_are_fetched_to(memory: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    build(memory)
    forget_all()

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(type(memory.files), "get_file", full)
    with pytest.raises(ArtifactError, match="cannot be written: the disk is full"):
        airrep.Index(f"{memory.url}/index")


def test_files_of_others_are_left_alone(place: Place) -> None:
    url = place.lines("data/mine.jsonl", RECORDS).rpartition("/")[0]
    with pytest.raises(ArtifactError, match=r"holds files that airrep did not publish, such as mine.jsonl"):
        airrep.build_index(RECORDS, url, method="tfidf", replace=True)
    build(place)
    with pytest.raises(ArtifactError, match=r"/index: is of kind 'index', not 'top', so it is not replaced"):
        airrep.Index(f"{place.url}/index").top(QUERIES).save(f"{place.url}/index", replace=True)
    assert place.names("data") == {"mine.jsonl"}
    assert len(airrep.Index(f"{place.url}/index")) == 12


def test_an_index_at_a_url_is_not_changed_in_place(memory: Place) -> None:
    for index in (build(memory), airrep.Index(f"{memory.url}/index")):
        with pytest.raises(ArtifactError, match=rf"^{memory.url}/index: an index at a URL cannot be changed"):
            index.delete([0])
        with pytest.raises(ArtifactError, match="cannot be changed in place"):
            index.append([{"prompt": "a", "response": "b"}])


def test_parts_are_joined_through_a_storage(place: Place, tmp_path: Path) -> None:
    from airrep.index.sharing import build_part, join_parts

    data = airrep.read_corpus(place.lines("train.jsonl", RECORDS))
    for number in (1, 2):
        build_part(data, f"{place.url}/parts/{number}", f"{number}/2", "tfidf", shard_rows=4)
        forget_all()
    join_parts([Path(f"{place.url}/parts/{number}") for number in (1, 2)], Path(f"{place.url}/whole"))
    here = airrep.build_index(data, tmp_path / "here", method="tfidf", shard_rows=4)
    whole = airrep.Index(f"{place.url}/whole")
    assert whole.manifest["files"] == here.manifest["files"]
    assert whole.example(5).place == "train.jsonl:6"


def test_models_are_fetched_once_as_they_are(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    from airrep.encoder.folders import MODELS

    folder = MODELS / "untrained"
    for path in folder.rglob("*"):
        if path.is_file():
            place.put(f"encoder/{path.relative_to(folder).as_posix()}", path.read_bytes())
    url = f"{place.url}/encoder"
    index = airrep.build_index(RECORDS, f"{place.url}/index", settings={"encoder": url})

    assert index.manifest["settings"]["encoder"] == url
    first = fetched(url, loose=True)
    monkeypatch.setattr(Storage, "get", None)
    assert fetched(url, loose=True) == first
    with pytest.raises(ConfigError, match=rf"^encoder {place.url}/none: does not exist"):
        load_encoder(f"{place.url}/none")


def test_the_command_line_takes_urls(place: Place, tmp_path: Path, run: Run) -> None:
    data, index = place.lines("train.jsonl", RECORDS), f"{place.url}/index"
    assert f"{index}: built: 12 examples" in run("index", data, "--method", "tfidf", "--out", index).err
    assert f"{index}: was finished already" in run("index", data, "--method", "tfidf", "--out", index).err
    assert f"written to {place.url}/top; next" in run("top", index, data, "-k", "1", "--out", f"{place.url}/top").err
    assert "exists already" in run("top", index, data, "-k", "1", "--out", f"{place.url}/top").err
    assert "written" in run("report", f"{place.url}/top", "--out", f"{place.url}/page.html").err
    assert b"<html" in place.files.cat_file(f"{place.url}/page.html")
    assert "exists already" in run("report", f"{place.url}/top", "--out", f"{place.url}/page.html").err
    run("select", index, data, "--count", "3", "--out", f"{place.url}/chosen.jsonl")
    assert len(airrep.read_corpus(f"{place.url}/chosen.jsonl")) == 3
    run("export", index, "--to", "parquet", "--out", f"{place.url}/all.parquet")
    assert len(airrep.read_corpus(f"{place.url}/all.parquet")) == 12
    assert index in run("show", index, "--verify").out
    assert f"made by: airrep index {data} --method tfidf --out {index}" in run("show", index).out.replace("\n", "")
    assert str(tmp_path) not in run("delete", index, "--where", 'source == "s1"').err
    assert run("top", f"{place.url}/none", data).err.startswith(f"airrep: error: {place.url}/none: does not exist")


def test_names_of_places() -> None:
    assert url_of("s3://bucket/a/") == url_of(Path("s3://bucket/a")) == "s3://bucket/a"
    assert shown("s3:/bucket/a: built") == "s3://bucket/a: built"
    assert url_of("a/b.jsonl") is None
    assert url_of("c:/a") is None
    assert url_of("file:///a/b") is None
    assert path_of("file:///a/b") == Path("/a/b")
    assert shown(f"{Path('file:///a/b')}: written") == "file:///a/b: written"  # Path drops two slashes
    assert path_of("a/b") == Path("a/b")


def test_a_file_url_is_a_path(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps(RECORDS[0]))
    index = airrep.build_index(f"file://{tmp_path}/a.jsonl", f"file://{tmp_path}/index", method="tfidf")
    assert index.path == tmp_path / "index"
    assert len(airrep.Index(f"file://{tmp_path}/index")) == 1


def test_a_storage_that_is_not_known_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="^nope://a.jsonl: Protocol not known: nope"):
        airrep.read_corpus("nope://a.jsonl")
    for known in ("registry", "_registry"):  # classes that were loaded before
        monkeypatch.setattr(sys.modules["fsspec.registry"], known, {})
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(MissingExtraError, match=r"^s3://b/a.jsonl: .*pip install 'airrep\[remote\]'$"):
        airrep.read_corpus("s3://b/a.jsonl")
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(MissingExtraError, match=r"airrep\[remote\]"):
        airrep.read_corpus("memory://b/a.jsonl")


def test_storages_errors_are_one_line(memory: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    build(memory)

    class NoCredentialsError(Exception):
        pass

    for raised, told in (
        (PermissionError("Access Denied"), r"no permission \(Access Denied\). Check your permissions"),
        (NoCredentialsError("Unable to locate credentials"), "no permission .*AWS_PROFILE"),
        (ConnectionResetError("reset\nby peer"), "reset by peer. Check the address and the network"),
        (RuntimeError(), "RuntimeError. Check"),
    ):

        def refuse(*_: object, raised: Exception = raised, **__: object) -> None:
            raise raised

        with monkeypatch.context() as patch:
            patch.setattr(type(memory.files), "cat_file", refuse)
            patch.setattr(type(memory.files), "_open", refuse)
            for asked in (
                lambda: airrep.Index(f"{memory.url}/index"),
                lambda: airrep.read_corpus(memory.url + "/train.jsonl"),
            ):
                with pytest.raises(AirRepError, match=told) as caught:
                    asked()
                assert "\n" not in str(caught.value)


def test_data_that_end_in_the_middle_are_told(memory: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    url = memory.lines("long.jsonl", RECORDS * 9)

    class Cut:
        def __init__(self, *_: object) -> None:
            self.left = 300

        def read(self, count: int) -> bytes:
            if not self.left:
                raise ConnectionResetError("connection reset")
            self.left = 0
            return (json.dumps(RECORDS[0]) + "\n").encode()

        def close(self) -> None:
            pass

    monkeypatch.setattr(type(memory.files), "open", lambda *_, **__: Cut())
    with pytest.raises(DataError, match=rf"^{url}: cannot be read: connection reset. Check the address"):
        airrep.read_corpus(url)


def test_a_bucket_that_is_not_there(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRREP_CACHE", str(tmp_path / "cache"))
    _use(server, monkeypatch)
    for asked in (
        lambda: airrep.Index("s3://nowhere/index"),
        lambda: airrep.build_index(RECORDS, "s3://nowhere/index", method="tfidf"),
    ):
        with pytest.raises(ArtifactError, match="^s3://nowhere/index.*: there is no such bucket"):
            asked()


def test_what_stays_on_this_machine_is_refused_a_url(memory: Place) -> None:
    with pytest.raises(ConfigError, match=rf"^{memory.url}/record: is a URL, but a training is recorded"):
        airrep.AttributionCallback(f"{memory.url}/record")


@pytest.mark.parametrize("url", ["memory://a/..", "s3://a/../b", "memory://.."])
def test_no_url_leads_out_of_its_place(url: str) -> None:
    with pytest.raises(ConfigError, match=r"must not contain '\.\.'"):
        url_of(url)
    with pytest.raises(ConfigError, match="must not contain"):
        airrep.build_index(RECORDS, url)
