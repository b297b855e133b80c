"""Records that examples were read from, in every form of data."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import airrep
from airrep.corpus.originals import take_records
from airrep.corpus.schemas.conversations import folded
from airrep.errors import ConfigError, DataError
from airrep.index.results.kinds import TopResult

ASKED = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}]
RECORDS: list[dict[str, Any]] = [
    {"messages": [*ASKED, {"role": "assistant", "content": "4"}], "id": "a", "price": 0.1, "more": {"x": [1, None]}},
    {"prompt": "3+3?", "chosen": "6", "rejected": "7", "id": 5},
    {"instruction": "Add.", "input": "2 2", "output": "4"},
    {"instruction": "Add.", "input": "2 2", "output": "4", "note": "again"},
    {"question": "Who?", "context": "By Ada.", "answer": "Ada ☃"},
]


def written(records: list[Any], name: str = "data.jsonl") -> Path:
    Path(name).write_text("".join(json.dumps(record) + "\n" for record in records))
    return Path(name)


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_each_example_leads_back_to_its_record() -> None:
    data = written(RECORDS)
    corpus = airrep.read_corpus(data)
    for example, record in zip(corpus, RECORDS, strict=True):
        assert list(take_records(data, [example])) == [record]
        assert list(take_records(data, [example.id])) == [record]
    assert corpus[3].id == f"{corpus[2].id}-2"  # equal texts without an id


def test_all_records_come_in_the_order_of_the_data_and_once() -> None:
    data = written(RECORDS)
    ids = [example.id for example in airrep.read_corpus(data)]
    assert list(take_records(data, [*reversed(ids), *ids])) == RECORDS


def test_a_written_list_is_read_and_its_texts_are_compared() -> None:
    data, other = written(RECORDS), written([{"id": "a", "prompt": "5+5?", "response": "10"}], "other.jsonl")
    corpus = airrep.read_corpus(data)
    listed = written([{**corpus[n].to_dict(), "selected_by": {"rank": n}} for n in (1, 0)], "listed.jsonl")
    assert list(take_records(data, listed)) == RECORDS[:2]
    told = r'^data\.jsonl:1: the prompt or response of example "a" differs from its text in other'
    with pytest.raises(DataError, match=told):
        list(take_records(data, other))
    decided = [{"id": "a", "row": 0, "decision": "drop"}, {"id": "5", "row": 1, "decision": "keep"}]
    assert list(take_records(data, written(decided, "decided.jsonl"))) == RECORDS[1:2]
    with pytest.raises(DataError, match=r'^data\.jsonl:1: the prompt or response of example "a" differs'):
        list(take_records(data, other, skip_invalid=True))
    ids_alone = written([{"id": 5}, {"id": "a"}], "ids.jsonl")
    assert list(take_records(data, ids_alone)) == RECORDS[:2]


def test_turns_and_answers_of_a_record_lead_to_the_whole_of_it_once(caplog: pytest.LogCaptureFixture) -> None:
    said = [{"role": role, "content": text} for role, text in zip(["user", "assistant"] * 2, "abcd", strict=True)]
    data = written([{"messages": said, "id": "chat"}, {"messages": said[:2], "id": "short"}, RECORDS[1]])
    examples = airrep.read_corpus(data, turns="all", preferences="both")
    assert [example.id for example in examples] == ["chat/1", "chat/2", "short", "5/chosen", "5/rejected"]
    whole = ["chat/2", "chat/1", "5/rejected", "5/chosen"]
    taken = list(take_records(data, whole, turns="all", preferences="both"))
    assert taken == [{"messages": said, "id": "chat"}, RECORDS[1]]
    assert caplog.messages == []
    part = list(take_records(data, ["chat/2", "5/rejected"], turns="all", preferences="both"))
    assert part == taken
    assert caplog.messages == [
        "data.jsonl: 2 of the records that were taken also hold turns or answers that are not in the given examples."
    ]
    with pytest.raises(DataError, match=r'data\.jsonl: lacks 1 of the 1 id in the given examples, such as "chat/2"'):
        list(take_records(data, ["chat/2"]))


def test_named_fields_parquet_and_csv() -> None:
    table = pa.table({"key": ["x", "y"], "q": ["1", "2"], "a": ["one", "two"], "list": [[1, 2], None]})
    pq.write_table(table, "data.parquet")
    names = {"prompt_field": "q", "response_field": "a", "id_field": "key"}
    assert list(take_records("data.parquet", ["y"], **names)) == [{"key": "y", "q": "2", "a": "two", "list": None}]
    Path("data.csv").write_text('key,q,a\nx,1,"one, two"\n')
    assert list(take_records("data.csv", ["x"], **names)) == [{"key": "x", "q": "1", "a": "one, two"}]


def test_data_of_a_program() -> None:
    ids = [example.id for example in airrep.read_corpus(written(RECORDS))]
    assert list(take_records(RECORDS, ids[1:3])) == RECORDS[1:3]
    table = pa.Table.from_pylist([{"prompt": "1", "response": "one", "seen": float("nan")}])
    made = airrep.Corpus.from_records(table.to_pylist())[0]
    assert list(take_records(table, [made])) == [{"prompt": "1", "response": "one", "seen": None}]
    with pytest.raises(DataError, match=r'^data: lacks 2 of the 3 ids in the given examples, such as "b"'):
        list(take_records(RECORDS, ["a", "b", "c"]))


def test_invalid_records_and_repeated_ids() -> None:
    data = written([{"id": "a", "prompt": "x"}, RECORDS[0], {**RECORDS[0], "more": "later"}])
    with pytest.raises(DataError, match=r"^data\.jsonl:1: no prompt and response"):
        list(take_records(data, ["a"]))
    assert list(take_records(data, ["a"], skip_invalid=True)) == [RECORDS[0]]  # as a corpus, which keeps the first


@pytest.mark.parametrize("file", ["hits.json", "hits.jsonl"])
def test_hits_of_a_question_name_their_examples(file: str) -> None:
    data = written(RECORDS)
    ids = [example.id for example in airrep.read_corpus(data)]
    hits = [
        [{"rank": 1, "example": {"id": ids[2]}}],
        [{"rank": 1, "example": {"id": ids[0]}}, {"example": {"id": ids[2]}}],
    ]
    Path(file).write_text(json.dumps({"kind": "top", "queries": [{"query": {"id": "q"}, "hits": one} for one in hits]}))
    assert list(take_records(data, file)) == [RECORDS[0], RECORDS[2]]


def test_what_is_no_list_of_examples_is_refused() -> None:
    data = written(RECORDS)
    with pytest.raises(DataError, match=r"^none\.jsonl:1: has neither an id nor hits"):
        list(take_records(data, written([{"prompt": "a"}], "none.jsonl")))
    with pytest.raises(DataError, match=r"^lost\.jsonl: no such file"):
        list(take_records(data, "lost.jsonl"))
    for empty in (written([], "empty.jsonl"), written([{"id": "a", "decision": "drop"}], "dropped.jsonl"), []):
        with pytest.raises(DataError, match="no example is named"):
            list(take_records(data, empty))
    with pytest.raises(DataError, match="^examples: holds a number"):
        list(take_records(data, [5]))
    with pytest.raises(ConfigError, match="turns 'each': must be last or all"):
        list(take_records(data, ["a"], turns="each"))  # type: ignore[arg-type]
    Path("broken.jsonl").write_text('{"id": "a"}\n{')
    with pytest.raises(DataError, match=r"^broken\.jsonl:2: not JSON"):
        list(take_records(data, "broken.jsonl"))
    Path("broken.jsonl").write_text('{"prompt": "p", "response": "r", "id": "b"}\n{')
    with pytest.raises(DataError, match=r"^broken\.jsonl:2: not JSON .*skip_invalid=True\.$"):
        list(take_records("broken.jsonl", ["a"]))


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
    assert places(airrep.Corpus.from_records(ROWS)) == [None] * 3  # of no file


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
    again = airrep.open(found.save(tmp_path / "run"))
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
