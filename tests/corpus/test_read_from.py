"""Examples know the place in the file that they were read from, and an index keeps it."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import airrep
from airrep.corpus.turns import folded
from airrep.index.results.kinds import TopResult

ROWS = [{"prompt": f"p {n}", "response": f"reply word{n}"} for n in range(3)]
LINES = [json.dumps(row) for row in ROWS]


def places(corpus: airrep.Corpus) -> list[str | None]:
    return [example.place for example in corpus]


def test_lines_count_blank_and_invalid_ones(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join([LINES[0], "", LINES[1], "{", LINES[2]]))
    assert places(airrep.read_corpus(path, skip_invalid=True)) == ["a.jsonl:1", "a.jsonl:3", "a.jsonl:5"]


def test_every_turn_has_the_line_of_its_record(tmp_path: Path) -> None:
    said = [{"role": role, "content": f"{role} {n}"} for n in range(2) for role in ("user", "assistant")]
    (tmp_path / "a.jsonl").write_text(json.dumps({"messages": said}) + "\n" + json.dumps({"messages": said[:2]}))
    read = airrep.read_corpus(tmp_path / "a.jsonl", turns="all")
    assert places(read) == ["a.jsonl:1", "a.jsonl:1", "a.jsonl:2"]


def test_tables_have_rows_and_folders_files(tmp_path: Path) -> None:
    (tmp_path / "both" / "in").mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "both" / "b.parquet")
    (tmp_path / "both" / "in" / "c.jsonl").write_text(json.dumps({"prompt": "x", "response": "y"}))
    assert places(airrep.read_corpus(tmp_path / "both" / "b.parquet"))[2] == "b.parquet row 3"
    assert places(airrep.read_corpus(tmp_path / "both"))[-2:] == ["b.parquet row 3", "in/c.jsonl:1"]


def test_what_no_file_holds_has_no_place() -> None:
    assert places(airrep.Corpus.from_records(ROWS)) == [None] * 3


def test_an_index_is_the_same_whatever_file_it_was_read_from(tmp_path: Path) -> None:
    made = []
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(LINES))
        made.append(airrep.build_index(tmp_path / f"{name}.jsonl", tmp_path / name, method="tfidf"))
    plain = airrep.build_index(ROWS, tmp_path / "plain", method="tfidf")
    assert len({index.fingerprint for index in (*made, plain)}) == 1
    assert [index.example(1).place for index in (*made, plain)] == ["a.jsonl:2", "b.jsonl:2", None]
    more = made[0].append([{"prompt": "p 9", "response": "reply word9"}]).delete([0]).compact()
    assert [example.place for example in more.examples(more.where())] == ["a.jsonl:2", "a.jsonl:3", None]
    assert more.top("word2", k=1)[0].example.place == "a.jsonl:3"


def test_a_result_keeps_places_and_metadata_of_that_name(tmp_path: Path) -> None:
    rows = [{**row, "read_from": n} for n, row in enumerate(ROWS)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    index = airrep.build_index(tmp_path / "a.jsonl", tmp_path / "index", method="tfidf")
    found = index.top([{"prompt": "", "response": "word2"}], k=1)
    again = airrep.read_result(found.save(tmp_path / "run"))
    assert isinstance(again, TopResult)
    assert again[0][0].example == found[0][0].example
    assert (again[0][0].example.place, again[0][0].example.metadata) == ("a.jsonl:3", {"read_from": 2})


@pytest.mark.parametrize(
    ("prompt", "shown"),
    [
        ("System: Be polite.\nUser: Is it late?", "[system …] Is it late?"),
        ("Tools: []\nSystem: Be polite.\nUser: Is it late?", "[system …] Is it late?"),
        ("System: Be kind.\nUser: a\nAssistant: b\nUser: c", "[system …] User: a\nAssistant: b\nUser: c"),
        ("User: a\nAssistant: b\nUser: c", "User: a\nAssistant: b\nUser: c"),
        ("System: alone", "System: alone"),
        ("a plain prompt", "a plain prompt"),
    ],
)
def test_system_prompts_are_folded(prompt: str, shown: str) -> None:
    assert folded(prompt) == shown
