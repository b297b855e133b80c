"""Examples cited from results, files and filters; the report's section on their origin."""

import json
from pathlib import Path
from typing import Any

import pytest
from worlds.commands import Run, refused
from worlds.pages import Page

import airrep
from airrep.corpus.records import Reading
from airrep.index.encoding import without_texts
from airrep.index.results.citations import text_hash
from airrep.index.rows import IndexRows

TEXTS = [f"question {number} of {'abc'[number % 3]}" for number in range(12)]


def records(changed: int | None = None) -> str:
    rows: list[dict[str, Any]] = [
        {"id": f"e{number}", "prompt": text, "response": f"answer {number}{' now' * (number == changed)}"}
        | ({"license": "mit"} if number % 2 else {})
        | {"source": "abc"[number % 3]}
        for number, text in enumerate(TEXTS)
    ]
    return "".join(f"{json.dumps(row)}\n" for row in rows)


@pytest.fixture
def run(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    Path("train.jsonl").write_text(records())
    assert run("index", "train.jsonl", "--out", "index", "--method", "tfidf").status == 0
    asked = ("--prompt", TEXTS[3], "--response", "answer 3")
    assert run("top", "index", *asked, "-k", "4", "--out", "run").status == 0
    return run


CITE = ("export", "index", "--to", "citations")


def cited(path: str) -> list[dict[str, Any]]:
    rows = json.loads(Path(path).read_text())["recordSet"][0]["data"]
    return [{name.removeprefix("citations/"): value for name, value in row.items()} for row in rows]


def test_hits_of_a_result_are_cited_and_checked(run: Run) -> None:
    ran = run(*CITE, "--only", "run", "--out", "c.json")
    assert ran.err == "c.json: 4 citations\nc.json: not recorded: revision (4), license (2)\n"
    index, hits = airrep.Index("index"), airrep.open("run")[0]
    rows = cited("c.json")
    assert [(one["id"], one["rank"], one["score"], one["query"]) for one in rows] == [
        (hit.example.id, hit.rank, hit.score, "query") for hit in hits
    ]
    assert [one["sha256"] for one in rows] == [text_hash(index.example(hit.row)) for hit in hits]
    assert {(one["dataset"], one["corpus"], one["index"]) for one in rows} == {
        ("train.jsonl", airrep.read_corpus("train.jsonl").fingerprint, index.fingerprint)
    }
    assert [one["line"] for one in rows] == [hit.row + 1 for hit in hits]
    assert {one["check"] for one in rows} == {"unchanged"}


def test_what_changed_since_is_said(run: Run) -> None:
    Path("train.jsonl").write_text(records(changed=3).partition("\n")[2])
    airrep.Index("index").delete(["e5"])
    Path("some.jsonl").write_text("".join(f'{{"id": "e{number}"}}\n' for number in (0, 3, 4)))
    ran = run(*CITE, "--only", "some.jsonl", "--data", "train.jsonl", "--out", "c.json")
    assert "c.json: 2 examples have changed or disappeared" in ran.err
    assert "The first is e0: not checked; " in ran.err
    assert "the data have no example with this id" in ran.err
    assert [one["check"] for one in cited("c.json")][1:] == ["the texts differ in the data", "unchanged"]
    others = f'{{"id": "e4", "prompt": "{TEXTS[4]}", "response": "another"}}\n'
    Path("some.jsonl").write_text(others)
    assert run(*CITE, "--only", "some.jsonl", "--out", "d.json").status == 0
    assert [one["check"] for one in cited("d.json")] == ["the texts differ in some.jsonl"]


def test_a_deleted_hit_is_still_cited(run: Run) -> None:
    first = airrep.open("run")[0][0].example.id
    airrep.Index("index").delete([first])
    ran = run(*CITE, "--only", "run", "--out", "c.json")
    assert "1 example has changed or disappeared" in ran.err
    assert f"The first is {first}: it is no longer in the index" in ran.err
    assert cited("c.json")[0]["row"] is None


def test_a_filter_is_cited_and_hidden_texts_have_no_hash(run: Run) -> None:
    made = Path("bare")
    made.mkdir()
    index = airrep.Index("index")
    without_texts(index, made)
    for path in Path("index").rglob("*"):
        if path.is_file() and not (made / path.relative_to("index")).exists():
            target = made / path.relative_to("index")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    ran = run("export", "bare", "--to", "citations", "--where", "source == 'a'", "--out", "c.json")
    assert "c.json: not recorded: revision (4), license (4), sha256 (4)" in ran.err
    assert {one["sha256"] for one in cited("c.json")} == {None}
    assert {one["line"] for one in cited("c.json")} == {1, 4, 7, 10}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--only", "run", "--where", "id == 'e1'"), "--only and --where cannot be combined"),
        (("--only", "gone.jsonl"), "gone.jsonl: no such file"),
        (("--only", "groups"), "groups: holds a result of kind 'group'"),
        (("--only", "other.jsonl"), "other.jsonl: names the example 'x'"),
        (("--where", "id == 'x'"), "no example matches"),
    ],
)
def test_what_cannot_be_cited_is_refused(run: Run, words: tuple[str, ...], told: str) -> None:
    Path("other.jsonl").write_text('{"id": "x"}\n')
    index = airrep.Index("index")
    index.group_scores(["answer 3"], by="source").save("groups")
    refused(run(*CITE, *words, "--out", "c.json"), told)
    assert not Path("c.json").exists()


def test_a_report_tells_the_origin_of_its_examples(run: Run) -> None:
    assert run("report", "run", "--out", "page.html").status == 0
    page, text = Page(Path("page.html").read_text()), Path("page.html").read_text()
    assert page.headings[-1][1] == "Where these examples come from"
    hits = airrep.open("run")[0]
    assert all(str(text_hash(hit.example)) in text for hit in hits)
    positive = {hit.row: max(hit.score, 0) for hit in hits}
    free = sum(score for row, score in positive.items() if row % 2) / sum(positive.values())
    assert f"{free:.1%}" in text
    assert hits.provenance.made is not None
    assert hits.provenance.made.attributor in text
    assert "Not recorded: revision (4), license (2)." in text
    older = airrep.open("run").to_dict()
    del older["provenance"]["made"]
    airrep.write_report([older], "older.html")
    assert "Not recorded: revision (4), corpus (4), license (2)." in Path("older.html").read_text()


def test_commits_of_the_hub_stay_with_the_index(tmp_path: Path) -> None:
    commits = [f"org/chats@{digit * 40}" for digit in "ab"]
    corpora = [
        airrep.Corpus(
            airrep.Corpus.from_records([{"prompt": "p", "response": f"answer {one}"}]).table,
            reading=Reading(hub=(one,)),
        )
        for one in commits
    ]
    built = airrep.build_index(corpora[0], tmp_path / "index", "tfidf")
    assert built.made.hub == (commits[0],)
    assert built.append(corpora[1]).made.hub == tuple(commits)
    assert IndexRows(tmp_path / "index").reading.hub == tuple(commits)
