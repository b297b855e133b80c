"""Artifacts on the Hub: pushed to, and read from, a server on this machine that speaks its protocol."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds.hub_server import TOKEN, Hub, hub_server
from worlds.made_evaluations import made_evaluation

import airrep
from airrep.encoder.folders import MODELS
from airrep.encoder.load import load_encoder
from airrep.errors import AirRepError, ConfigError
from airrep.reports.pushing import push
from airrep.runtime.artifacts import HISTORY, MANIFEST, read_manifest, seal
from airrep.runtime.remote import hub as places
from airrep.runtime.remote.hub import pinned

RECORDS = [{"prompt": f"quest{n} river", "response": f"answ{n} is {n % 5}", "source": f"s{n % 2}"} for n in range(12)]
QUERIES = RECORDS[:3]
LICENCE = "apache-2.0"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A Hub on this machine, in place of the real one, for a user who may write."""
    from huggingface_hub import constants

    with hub_server() as made:
        changes = {
            "ENDPOINT": made.url,
            "HUGGINGFACE_CO_URL_TEMPLATE": made.url + "/{repo_id}/resolve/{revision}/{filename}",
            "HF_HUB_OFFLINE": False,
            "HF_HUB_DISABLE_XET": True,
            "HF_HUB_CACHE": str(tmp_path / "hf"),
        }
        for name, value in changes.items():
            monkeypatch.setattr(constants, name, value)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setenv("AIRREP_CACHE", str(tmp_path / "cache"))
        yield made


@pytest.fixture
def made(tmp_path: Path) -> airrep.Index:
    """An index of several shards."""
    return airrep.build_index(RECORDS, tmp_path / "made", "tfidf", shard_rows=4)


def scores(index: Any) -> np.ndarray:
    return np.asarray(index.scores(QUERIES))


def forget(tmp_path: Path) -> None:
    """Do as another machine, which has no copies."""
    for name in ("hf", "cache"):
        shutil.rmtree(tmp_path / name, ignore_errors=True)


def test_what_is_pushed_is_what_is_opened(hub: Hub, made: airrep.Index, tmp_path: Path) -> None:
    first = push(made.path, "hf://me/index", licence=LICENCE)
    files = hub.files("me/index")
    named = made.manifest["files"]
    assert {name: files[name] for name in named} == {name: (made.path / name).read_bytes() for name in named}
    assert files[MANIFEST] == (made.path / MANIFEST).read_bytes()
    assert set(files) == {*named, MANIFEST, "README.md", ".gitattributes"}
    assert (first.private, hub.repos["me/index"].private) == (True, True)
    assert first.place.url == f"hf://me/index@{hub.repos['me/index'].commits[-1][0]}"
    opened = airrep.open("hf://me/index")
    assert str(opened.path) != str(made.path)
    np.testing.assert_array_equal(scores(opened), scores(made))
    again = push(made.path, "hf://me/index", licence=LICENCE)
    assert (again.sent, again.place) == (0, first.place)
    public = push(made.path, "hf://datasets/me/index", licence="other", private=False)
    assert (public.private, public.place.kind) == (False, "dataset")
    np.testing.assert_array_equal(scores(airrep.open("hf://datasets/me/index@main")), scores(made))


def test_a_push_that_is_broken_off_is_no_whole_folder_and_goes_on(
    hub: Hub, made: airrep.Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "AT_ONCE", 9)
    hub.fail = [("POST /api/models/me/index/commit", 500)]
    with pytest.raises(AirRepError, match=r"the Hub answers 500 \(told by the server\)\. Run the same command again"):
        push(made.path, "hf://me/index", licence=LICENCE)
    assert set(hub.files("me/index")) == {".gitattributes"}
    sent = {line for line in hub.asked if line.startswith("PUT")}
    assert sent
    hub.asked.clear()
    hub.after = 1
    with pytest.raises(AirRepError, match="the Hub answers 500"):
        push(made.path, "hf://me/index", licence=LICENCE)
    half = hub.files("me/index")
    assert len(half) == 1 + 9
    with pytest.raises(AirRepError, match=r"index.*has no manifest.json"):
        airrep.open("hf://me/index")
    done = push(made.path, "hf://me/index", licence=LICENCE)
    assert done.sent == len(made.manifest["files"]) + 2 - 9
    assert not sent & set(hub.asked)  # what the Hub has goes to it once
    np.testing.assert_array_equal(scores(airrep.open("hf://me/index")), scores(made))

    other = airrep.build_index(RECORDS[:9], tmp_path / "other", shard_rows=4)
    before = len(hub.repos["me/index"].commits)
    second = push(other.path, "hf://me/index", licence=LICENCE)
    steps = [files for _, files in hub.repos["me/index"].commits[before:]]
    assert len(steps) > 1
    assert all(MANIFEST not in files for files in steps[:-1])
    assert set(steps[-1]) == {*other.manifest["files"], MANIFEST, "README.md", ".gitattributes"}
    assert len(airrep.open(second.place.url)) == 9
    assert len(airrep.open(done.place.url)) == 12


def test_what_is_made_from_the_hub_names_its_commit(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def files(folder: Path) -> dict[str, bytes]:
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    commit = hub.commit("me/encoder", files(MODELS / "static"))
    settings = {"encoder": "hf://me/encoder"}
    index = airrep.build_index(RECORDS, tmp_path / "index", "airrep", settings=settings)
    assert index.manifest["settings"]["encoder"] == f"hf://me/encoder@{commit}"
    local = airrep.build_index(RECORDS, tmp_path / "local", "airrep", settings={"encoder": str(MODELS / "static")})
    np.testing.assert_array_equal(scores(index), scores(local))
    hub.commit("me/encoder", {"config.json": b"{}"})
    np.testing.assert_array_equal(scores(airrep.open(index.path)), scores(local))
    assert load_encoder(f"hf://me/encoder@{commit}").name == f"hf://me/encoder@{commit}"
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    np.testing.assert_array_equal(scores(airrep.open(index.path)), scores(local))
    forget(tmp_path)
    told = "cannot be read: HF_HUB_OFFLINE is set, and some files are not on this machine"
    with pytest.raises(AirRepError, match=told):
        scores(airrep.open(index.path))


def test_an_index_without_its_texts_scores_the_same(hub: Hub, tmp_path: Path) -> None:
    made = airrep.build_index(RECORDS, tmp_path / "made", shard_rows=4)  # features dense and sparse
    push(made.path, "hf://me/index", licence=LICENCE, texts=False)
    told = b"".join(hub.files("me/index").values())
    assert not any(record[name].encode() in told for record in RECORDS for name in ("prompt", "response"))
    kept = b"".join(path.read_bytes() for path in made.path.glob("shards/*/examples.arrow"))
    assert all(record["prompt"].encode() in kept for record in RECORDS)
    opened = airrep.open("hf://me/index")
    np.testing.assert_array_equal(scores(opened), scores(made))
    top, whole = (one.top(QUERIES, k=3, where='source == "s1"') for one in (opened, made))
    assert [hit.row for hits in top for hit in hits] == [hit.row for hits in whole for hit in hits]
    assert opened.example(3).response == f"(text left out: {made.example(3).id})"
    groups, known = (one.group_scores(QUERIES, "source") for one in (opened, made))
    np.testing.assert_array_equal(groups.scores, known.scores)
    assert b"Its texts were left out" in hub.files("me/index")["README.md"]
    (told,) = airrep.top(opened, [airrep.Example("prompt", "answer", "q")], k=1, why=True)
    assert told.copied is None
    for name, asks in {
        "clean": lambda: airrep.clean(opened),
        "audit": lambda: airrep.audit(opened, QUERIES),
        "prove": lambda: airrep.prove(opened, [0], QUERIES, "LM"),
        "judge": lambda: airrep.judge(opened, QUERIES, "LM", budget="1m"),
    }.items():
        with pytest.raises(ConfigError, match=rf"its texts were left out, but {name} reads them"):
            asks()


def test_an_index_without_its_texts_keeps_no_appended_ones(hub: Hub, tmp_path: Path) -> None:
    made = airrep.build_index(RECORDS[:9], tmp_path / "made", shard_rows=4)
    push(made.path, "hf://me/index", licence=LICENCE, texts=False)
    for name, content in hub.files("me/index").items():
        path = tmp_path / "copy" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    more = [{"id": f"new {n}", **one, "kind": "secret"} for n, one in enumerate(RECORDS[9:])]
    made, copy = (index.append(more) for index in (made, airrep.Index(tmp_path / "copy")))
    np.testing.assert_array_equal(scores(copy), scores(made))
    assert copy.append(more).rows == copy.rows
    copy.delete([0]).compact()
    told = b"".join(path.read_bytes() for path in copy.path.rglob("*") if path.is_file())
    assert b"new 0" in told
    assert not any(text.encode() in told for one in more for text in (one["prompt"], one["response"], "secret"))


def test_the_card_tells_what_it_is_and_what_judged_it(hub: Hub, made: airrep.Index, tmp_path: Path) -> None:
    evaluation = made_evaluation(request={"index 1": made.fingerprint})
    evaluation.save(tmp_path / "judged")
    push(made.path, "hf://me/index", licence="cc-by-4.0", evaluation=tmp_path / "judged")
    card = hub.files("me/index")["README.md"].decode()
    assert card.startswith("---\nlicense: cc-by-4.0\nlibrary_name: airrep\n")
    assert 'airrep.open("hf://me/index")' in card
    best = evaluation.best
    assert f"| {best.name} | {best.method} |" in card
    assert f"{100 * best.value:.1f}" in card
    files = {**hub.files("me/index"), "README.md": b"# My own words\n"}
    hub.commit("me/index", files)
    assert push(made.path, "hf://me/index", licence="other").kept_card
    assert hub.files("me/index")["README.md"] == b"# My own words\n"


def encoder_at(folder: Path) -> Path:
    """An encoder as training leaves it: a model, its card, a manifest."""
    shutil.copytree(MODELS / "static", folder)
    (folder / "README.md").write_text(
        '---\ntags:\n- airrep\n---\n# An AirRep encoder\n\nIt knows "this-folder".\n', encoding="utf-8"
    )
    seal(folder, "encoder", {"request": {}})
    return folder


def test_an_encoder_brings_its_card_and_its_texts(hub: Hub, tmp_path: Path) -> None:
    folder = encoder_at(tmp_path / "encoder")
    place = push(folder, "hf://me/encoder", licence="mit").place
    card = hub.files("me/encoder")["README.md"].decode()
    assert "license: mit\nlibrary_name: sentence-transformers" in card
    assert 'SentenceTransformer("me/encoder")' in card
    assert 'It knows "hf://me/encoder".' in card
    assert "# An AirRep encoder\n" in card
    texts = ["a text", "another"]
    np.testing.assert_array_equal(load_encoder(place.url).encode_texts(texts), load_encoder(folder).encode_texts(texts))
    copy = airrep.runtime.artifacts.fetched("hf://me/encoder")  # type: ignore[attr-defined]
    assert read_manifest(copy, "encoder", verify=True)["files"]["README.md"]["bytes"] == len(card.encode())


@pytest.mark.parametrize(
    ("url", "changes", "told"),
    [
        ("hf://index", {}, r"hf://index: is not a repository of the Hugging Face Hub. Write hf://owner/name"),
        ("hf://datasets/index", {}, "is not a repository"),
        ("hf://me/index/sub", {}, "is not a repository"),
        ("s3://me/index", {}, "is not a repository"),
        ("hf://me/index@main", {}, r"a push makes a new revision"),
        ("hf://me/index", {"licence": None}, r"push hf://me/index: no licence is given"),
        ("hf://me/index", {"licence": "my own!"}, "'my own!' is not the name of a licence"),
        ("hf://me/other", {}, r"hf://me/other: holds other files, such as notes.txt, and nothing is replaced"),
        ("hf://me/labels", {}, r"hf://me/labels: holds a folder of kind 'labels', and nothing is replaced"),
        ("hf://me/foreign", {}, r"hf://me/foreign: holds a folder of kind 'None', and nothing is replaced"),
    ],
)
def test_a_push_that_cannot_be_is_told_and_nothing_is_sent(
    hub: Hub, made: airrep.Index, url: str, changes: dict[str, Any], told: str
) -> None:
    hub.commit("me/other", {"notes.txt": b"mine"})
    hub.commit("me/labels", {MANIFEST: b'{"kind": "labels", "manifest_sha256": "", "files": {}}'})
    hub.commit("me/foreign", {MANIFEST: b"[]"})
    before = {name: repo.commits.copy() for name, repo in hub.repos.items()}
    with pytest.raises(AirRepError, match=told) as caught:
        push(made.path, url, **{"licence": LICENCE, **changes})
    assert "\n" not in str(caught.value)
    assert {name: repo.commits for name, repo in hub.repos.items()} == before
    assert not hub.objects


def test_what_is_no_finished_artifact_is_not_pushed(hub: Hub, made: airrep.Index, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "begun.partial").mkdir()
    evaluation = made_evaluation().save(tmp_path / "judged")
    damaged = shutil.copytree(made.path, tmp_path / "damaged")
    next(damaged.glob("shards/*/examples.arrow")).write_bytes(b"")
    direct = airrep.build_index(RECORDS, tmp_path / "direct", "dsir")
    tries: list[tuple[Path, dict[str, Any], str]] = [
        (tmp_path / "plain", {}, "plain: has no manifest.json; expected a directory that airrep wrote"),
        (tmp_path / "begun", {}, "begun: is unfinished"),
        (damaged, {}, r"examples.arrow: has 0 bytes; expected"),
        (evaluation, {"texts": False}, "is of kind 'evaluation', but --no-texts"),
        (made.path, {"evaluation": evaluation}, "judged: evaluated other indexes, not .*made"),
    ]
    for folder, changes, told in tries:
        with pytest.raises(AirRepError, match=told):
            push(folder, "hf://me/index", licence=LICENCE, **changes)
    assert hub.asked == []
    assert direct.channels


def test_rights_revisions_and_the_network_are_told_in_a_line(
    hub: Hub, made: airrep.Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(told: str, url: str = "hf://me/index", folder: Path | None = None) -> None:
        with pytest.raises(AirRepError, match=told) as caught:
            push(folder, url, licence=LICENCE) if folder else airrep.open(url)
        assert "\n" not in str(caught.value)
        assert TOKEN not in str(caught.value)
        assert "Signature" not in str(caught.value)

    monkeypatch.setenv("HF_TOKEN", "hf_another")
    refused("cannot be written: you do not have permission on the Hub", folder=made.path)
    assert not hub.repos
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    push(made.path, "hf://me/index", licence=LICENCE)
    monkeypatch.setenv("HF_TOKEN", "hf_another")
    refused("the Hub has no such repository, or does not show it to you")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    refused(r"hf://me/index@v9: cannot be read: the repository has no revision 'v9' \(any more\)", "hf://me/index@v9")
    refused("the Hub has no such repository", "hf://me/nothing")
    hub.fail = [("PUT", 403)]
    other = airrep.build_index(RECORDS[:5], tmp_path / "other", "tfidf")
    refused("cannot be written: you do not have permission", folder=other.path)
    assert len(airrep.open("hf://me/index")) == 12
    files = hub.files("me/index")
    name = next(name for name in files if name.endswith("examples.arrow"))
    hub.commit("me/index", {**files, name: files[name][::-1]})
    forget(tmp_path)
    refused(r"examples.arrow: differs from what its manifest.json says: it was altered")
    hub.commit("me/index", {one: content for one, content in files.items() if one != name})
    forget(tmp_path)
    refused(r"examples.arrow: cannot be read: it is missing, although manifest.json lists it")
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    refused("cannot be written: HF_HUB_OFFLINE is set", folder=made.path)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    refused("the Hub does not answer", "hf://me/elsewhere")


def test_nothing_else_is_written_to_the_hub(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(AirRepError, match=r"hf://me/index: airrep cannot write directly to the Hugging Face Hub"):
        airrep.build_index(RECORDS, "hf://me/index", "tfidf")
    assert hub.asked == []
    assert pinned("a/folder") == "a/folder"


def test_commands_push_and_ask_and_never_tell_the_token(hub: Hub, made: airrep.Index, tmp_path: Path) -> None:
    rows = "".join(json.dumps(record) + "\n" for record in RECORDS)
    commit = hub.commit("datasets/me/data", {"train.jsonl": rows.encode()})
    places = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home"), "HF_TOKEN": TOKEN}
    environment = {**os.environ, **places, "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1"}

    def run(*words: str) -> str:
        command = [sys.executable, "-m", "airrep", *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path, check=False)
        assert done.returncode == 0, done.stderr
        assert TOKEN not in done.stdout + done.stderr
        return done.stdout

    url = run("push", str(made.path), "hf://me/index", "--licence", LICENCE, "--no-texts").strip()
    data = "hf://datasets/me/data/train.jsonl"
    assert json.loads(run("top", "hf://me/index", data, "-k", "1", "--json", "--out", "hits"))
    kept = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(TOKEN.encode() in content for content in kept)
    (step,) = (tmp_path / "hits" / HISTORY).read_text().splitlines()
    words = json.loads(step)["words"]
    assert words[1:3] == [url, data.replace("/data/", f"/data@{commit}/")]
