"""Spans on the command line: typed by marks or characters, in files, refused in one line."""

import json
from pathlib import Path
from typing import Any

import pytest
from worlds.commands import Run

import airrep
from airrep.corpus.corpus import Corpus

ROWS = [
    {"prompt": "How long is it?", "response": "It is 108 m long."},
    {"prompt": "Who built it?", "response": "Nobody built it in 1905."},
    {"prompt": "Is it long?", "response": "It is long and it is old."},
]
ASK = ("--prompt", "How long is it?", "--response")
PLAIN = "Nobody built it: it is 108 m long [[1]]."


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("spans") / "index"
    airrep.build_index(Corpus.from_records(ROWS), place, "ngram")
    return str(place)


def asked(out: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(out)["queries"][0]
    return found


def test_marks_characters_and_a_field_ask_the_same(index: str, run: Run, tmp_path: Path) -> None:
    marked = run("top", index, *ASK, PLAIN.replace("108", "[[108]]").replace("[[1]]", r"\[[1]]"), "--json")
    assert "only the marked part '108' (23:26)" in marked.err
    typed = run("top", index, *ASK, PLAIN, "--span", "23:26", "--json")
    assert typed.err.count("span") == 0
    path = tmp_path / "some.jsonl"
    path.write_text(json.dumps({"prompt": ASK[1], "response": PLAIN, "span": [[23, 26]]}))
    read = run("top", index, str(path), "--json", "--why")
    for found in map(asked, (marked.out, typed.out, read.out)):
        assert found["query"]["response"] == PLAIN
        assert found["query"]["chat"] == {"span": [[23, 26]]}
        assert [hit["row"] for hit in found["hits"]][:1] == [0]
        assert [hit["score"] for hit in found["hits"]] == [hit["score"] for hit in asked(typed.out)["hits"]]
    assert [same["text"] for same in asked(read.out)["hits"][0]["why"]["same_words"]] == ["is 108 m long"]
    shown = run("top", index, str(path), "-k", "1").out
    assert "it is [[108]] m long" in " ".join(shown.split())


def test_groups_and_better_answers_take_marks(index: str, run: Run) -> None:
    whole = run("group", index, *ASK, "It is 108 m long.", "--by", "prompt", "--json")
    parts = [
        run("group", index, *ASK, text, "--by", "prompt", "--json")
        for text in ("[[It is]] 108 m long.", "It is [[108]] m long.", "It is 108 [[m long.]]")
    ]
    scores = [asked(found.out)["scores"] for found in (whole, *parts)]
    assert scores[0] == pytest.approx([sum(three) for three in zip(*scores[1:], strict=True)], abs=1e-5)
    better = run("top", index, *ASK, "It is [[108]] m long.", "--better", "It is 125 m long.", "--json")
    assert asked(better.out)["better"]["chat"] == {"span": [[6, 9]]}


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        ((*ASK, "It is [[108 m."), "--response: the mark [[ is never closed"),
        ((*ASK, "It [[is [[108]] m]]."), "--response: a mark [[ stands inside another span"),
        ((*ASK, "It is [[ ]] m."), "--response: span 6:7 covers no text"),
        ((*ASK, "It is 108.", "--span", "6"), "--span 6: must be START:END"),
        ((*ASK, "It is 108.", "--span", "6:60"), "--response: span 6:60 lies outside the response"),
        ((*ASK, "It is 108.", "--span", "6:9,7:8"), "--response: span 7:8 overlaps"),
        (("FILE", "--span", "6:9"), "--span needs --response. Give both, or put a field named span into"),
    ],
)
def test_what_is_no_span_is_one_line(words: tuple[str, ...], wrong: str, index: str, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    path.write_text(json.dumps(ROWS[0]))
    found = run("top", index, *(str(path) if word == "FILE" else word for word in words))
    assert found.status == 1
    assert wrong in found.err
    assert found.err.strip().count("\n") == 0
