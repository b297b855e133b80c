"""Examples and corpora: round trips, order, ids, fingerprints, slices."""

import csv
import hashlib
import io
import json
import re
import struct
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airrep.corpus.corpus import Corpus, Example, read_corpus
from airrep.corpus.records import RESERVED
from airrep.corpus.sources.textformats import csv_rows
from airrep.corpus.table import COLUMNS, SCHEMA
from airrep.errors import ConfigError, DataError

NOTHING: Any = None
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=40).filter(
    lambda text: not text.isspace()
)
JSON = st.recursive(
    st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda values: st.lists(values | st.none(), max_size=3) | st.dictionaries(TEXT, values | st.none(), max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from([*RESERVED, "instruction", "output", "messages"]) | TEXT
EXAMPLES = st.lists(
    st.builds(Example, TEXT, TEXT, TEXT, st.none() | TEXT, st.none() | TEXT, st.dictionaries(KEYS, JSON, max_size=4)),
    max_size=8,
    unique_by=lambda example: example.id,
)


def make(count: int) -> Corpus:
    return Corpus.from_records(
        {"prompt": f"p{row}", "response": "r", "id": f"e{row}", "label": "ab"[row % 2], "year": row}
        for row in range(count)
    )


@given(EXAMPLES)
@settings(max_examples=50, deadline=None)
def test_examples_survive_the_table(examples: list[Example]) -> None:
    corpus = Corpus.from_examples(examples)
    assert list(corpus) == examples
    assert [corpus[row] for row in range(len(corpus))] == examples
    assert Corpus.from_table(corpus.table) == corpus


@given(EXAMPLES.filter(bool))
@settings(max_examples=50, deadline=None)
def test_written_examples_are_read_back(examples: list[Example]) -> None:
    corpus = Corpus.from_examples(examples)
    assert Corpus.from_records(example.to_dict() for example in examples) == corpus
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "written.jsonl")
        path.write_text("".join(json.dumps(example.to_dict()) + "\n" for example in examples))
        assert read_corpus(path) == corpus
        path = path.with_suffix(".json")
        path.write_text(json.dumps([example.to_dict() for example in examples], ensure_ascii=False), "utf-8")
        assert read_corpus(path) == corpus


CELL = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=12) | st.text('",\n a', max_size=12)


@given(st.lists(st.lists(CELL, min_size=2, max_size=3), min_size=1, max_size=6), st.sampled_from(",\t"))
@settings(max_examples=300, deadline=None)
def test_csv_is_split_as_the_standard_library_writes_it(rows: list[list[str]], delimiter: str) -> None:
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=delimiter).writerows(rows)
    lines = io.StringIO(text.getvalue(), newline="\n")
    assert [cells for _, cells in csv_rows(lines, "x", delimiter, 2**20)] == rows


def test_an_example_writes_what_it_has() -> None:
    example = Example("p", "r", "e", source="s", metadata={"n": 1, "id": "other"})
    assert example.to_dict() == {
        "id": "e", "prompt": "p", "response": "r", "source": "s", "n": 1, "metadata": {"id": "other"},
    }  # fmt: skip
    assert Example("p", "r", "e").to_dict() == {"id": "e", "prompt": "p", "response": "r"}
    assert hash(example) == hash(Example("p", "r", "e", source="s", metadata={}))


def test_content_hashes_are_those_of_the_examples_in_order() -> None:
    corpus = Corpus.from_examples([Example("é", "b", "1"), Example("", "c", "2"), Example("é", "b", "3")])
    assert corpus.content_hashes.tolist() == [example.content_hash.encode() for example in corpus]
    assert len(corpus[:0].content_hashes) == 0


def test_the_default_id_is_the_content_hash() -> None:
    example = Corpus.from_records([{"prompt": "What is 1+1?", "response": "2"}])[0]
    assert example.id == example.content_hash == "b7885d3c82821bcb"


@pytest.mark.parametrize("rows_at_once", [1, 2, 100])
def test_equal_texts_get_numbered_ids(rows_at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airrep.corpus.table._CHUNK_ROWS", rows_at_once)
    rows = [{"prompt": text, "response": "r"} for text in "abaacb"]
    ids = Corpus.from_records(rows).ids.to_pylist()
    a, b, c = (Example(text, "r", "-").content_hash for text in "abc")
    assert ids == [a, b, f"{a}-2", f"{a}-3", c, f"{b}-2"]
    rows = [{"prompt": "a", "response": "r", "id": 1}, {"prompt": "a", "response": "r"}]
    assert Corpus.from_records(rows).ids.to_pylist() == ["1", a]


@pytest.mark.parametrize(
    "given", ["text", {"prompt": "a", "response": "b"}, pa.table({"prompt": ["a"], "response": ["b"]})]
)
def test_what_is_no_list_of_records_is_refused(given: Any) -> None:
    with pytest.raises(ConfigError, match=rf"records: must be a list of dicts, not a {type(given).__name__}"):
        Corpus.from_records(given)


def test_refuses_equal_ids(tmp_path: Path) -> None:
    rows = [{"id": "x", "prompt": str(row), "response": "r"} for row in range(2)]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(map(json.dumps, [rows[0] | {"id": 1}, *rows])))
    message = r'a.jsonl:3: the id "x" is also the id of line 2, but ids must be unique. Change one'
    with pytest.raises(DataError, match=message):
        read_corpus(path)
    with pytest.raises(DataError, match='records: record 2: the id "x" is also the id of record 1'):
        Corpus.from_records(rows)
    with pytest.raises(DataError, match='examples: example 2: the id "x" is also the id of example 1'):
        Corpus.from_examples([Example("a", "r", "x"), Example("b", "r", "x")])
    key = Example("a", "r", "-").content_hash  # a given id that another's texts make
    with pytest.raises(DataError, match=r"record 2: the id .* is also the id of record 1"):
        Corpus.from_records([{"prompt": "a", "response": "r"}, {"prompt": "b", "response": "r", "id": key}])


def test_skips_invalid_records_and_says_why(tmp_path: Path) -> None:
    good = {"prompt": "p", "response": "r", "id": "x"}
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(["{", json.dumps(good), json.dumps(good), *["[]"] * 30]))
    with pytest.raises(DataError, match=r"a\.jsonl:1: not JSON .*skip_invalid=True\.$"):
        read_corpus(path)
    with pytest.raises(DataError, match=r"record 2: .*skip_invalid=True\.$"):
        Corpus.from_records([good, {}])
    with pytest.raises(DataError, match=r"record 1: (?!.*skip_invalid)"):  # maybe none has the fields
        Corpus.from_records([{}, good])
    with pytest.raises(DataError, match=r"examples: example 2: (?!.*skip_invalid)"):  # which from_examples lacks
        Corpus.from_examples([Example("p", "r"), Example("p", " ")])
    for wrong in ([good, good], [{**good, "set": {1}}], [{**good, "y": "\ud800"}]):
        with pytest.raises(DataError, match=r"record \d: .*[^.]\.$"):
            Corpus.from_records(wrong)
    corpus = read_corpus(path, skip_invalid=True)
    assert all(re.search(r"[^.]\.$", one) for one in corpus.skipped.messages)
    assert corpus.ids.to_pylist() == ["x"]
    assert (corpus.skipped.count, len(corpus.skipped.messages)) == (32, 20)
    assert corpus.skipped.messages[0].startswith(f"{path}:1: not JSON")
    assert Corpus.from_records([good, good, {}], skip_invalid=True).skipped.messages[1].startswith("records: record 2")
    assert corpus[:1].skipped.count == 0


def test_skips_no_broken_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('[{"prompt": "p", "response": "r"}, {')
    with pytest.raises(DataError, match="not JSON"):
        read_corpus(path, skip_invalid=True)
    path.write_text("[1, 2]")
    told = r"a.json: holds no valid record.* First error: .*a.json:1: the record is a number"
    with pytest.raises(DataError, match=told):
        read_corpus(path, skip_invalid=True)


@pytest.mark.parametrize("column", ["label", "source"])
def test_refuses_a_named_field_that_no_record_has(column: str) -> None:
    rows = [{"prompt": "p", "response": "r", "task": "t"}, {"prompt": "q", "response": "r"}]
    fields: dict[str, Any] = {f"{column}_field": "tsk"}
    with pytest.raises(DataError, match=f'no record has a value in the {column} field "tsk"'):
        Corpus.from_records(rows, **fields)
    assert getattr(Corpus.from_records(rows, **{f"{column}_field": "task"})[0], column) == "t"


def test_reading_does_not_change_the_csv_module(tmp_path: Path) -> None:
    limit = csv.field_size_limit()
    path = tmp_path / "a.csv"
    path.write_text("prompt,response\n" + "x" * (limit + 1) + ",r\n")
    assert len(read_corpus(path)[0].prompt) == limit + 1
    assert csv.field_size_limit() == limit


def test_fingerprint_depends_on_rows_and_order_only() -> None:
    corpus = make(7)
    pieces = pa.concat_tables([corpus.table.slice(0, 3), corpus.table.slice(3, 0), corpus.table.slice(3)])
    assert Corpus(pieces).fingerprint == corpus.fingerprint
    assert Corpus(pieces.combine_chunks()) == corpus
    assert corpus.take([1, 0, 2, 3, 4, 5, 6]) != corpus
    assert corpus[:6] != corpus
    assert len(corpus.fingerprint) == 64
    assert hash(corpus) == hash(Corpus(pieces))


def test_fingerprint_tells_null_from_empty_and_column_from_column() -> None:
    rows = [Example("p", "r", "e", label, source) for label, source in [(None, ""), ("", None), (None, None)]]
    assert len({Corpus.from_examples([row]).fingerprint for row in rows}) == 3
    assert Corpus.from_examples([Example("ab", "c", "e")]) != Corpus.from_examples([Example("a", "bc", "e")])


def test_fingerprint_ignores_what_lies_under_a_null() -> None:
    masked = pa.Array.from_buffers(
        pa.large_string(), 2, [pa.py_buffer(b"\x02"), pa.py_buffer(np.array([0, 1, 2], "<i8")), pa.py_buffer(b"xy")]
    )
    corpus = Corpus.from_examples([Example("p", "r", "1"), Example("p", "r", "2", "y")])
    assert Corpus(corpus.table.set_column(3, "label", masked)) == corpus


@given(EXAMPLES)
@settings(max_examples=30, deadline=None)
def test_fingerprint_is_as_documented(examples: list[Example]) -> None:
    corpus = Corpus.from_examples(examples)
    total = hashlib.sha256(f"airrep corpus 1\n{len(corpus)}\n".encode())
    for name in COLUMNS[:-2]:  # no example has a chat, and the place counts for nothing
        texts = [None if text is None else text.encode() for text in corpus.table[name].to_pylist()]
        lengths = b"".join(struct.pack("<q", -1 if text is None else len(text)) for text in texts)
        total.update(hashlib.sha256(lengths).digest())
        total.update(hashlib.sha256(b"".join(text or b"" for text in texts)).digest())
    assert corpus.fingerprint == total.hexdigest()


def test_slices_share_memory() -> None:
    corpus = make(10)
    part = corpus[2:5]
    assert list(part) == list(corpus)[2:5]
    address = corpus.table["prompt"].chunk(0).buffers()[2].address
    assert part.table["prompt"].chunk(0).buffers()[2].address == address
    assert list(corpus[8:1:-3]) == list(corpus)[8:1:-3]
    assert list(corpus[5:2]) == []
    assert corpus[-1] == list(corpus)[-1]
    with pytest.raises(IndexError):
        corpus[10]


@given(st.permutations(range(12)), st.integers(0, 12), st.lists(st.integers(0, 12), max_size=3))
@settings(deadline=None)
def test_takes_rows_in_the_given_order(rows: list[int], count: int, cuts: list[int]) -> None:
    whole = make(12)
    bounds = [0, *sorted(cuts), 12]
    pieces = [whole.table.slice(start, stop - start) for start, stop in pairwise(bounds)]
    corpus = Corpus(pa.concat_tables(pieces))
    assert [example.id for example in corpus.take(rows[:count])] == [f"e{row}" for row in rows[:count]]
    assert corpus.take(np.array(rows[:count], np.int32)) == whole.take(rows[:count])


def test_refuses_rows_that_cannot_be_taken() -> None:
    with pytest.raises(IndexError, match="row 3 does not exist: the corpus has 3 examples"):
        make(3).take([0, 3])
    with pytest.raises(IndexError, match="the corpus has 1 example$"):
        make(1).take([1])
    with pytest.raises(IndexError, match="row -1 does not exist"):
        make(3).take([-1])
    with pytest.raises(DataError, match="rows: a row number occurs twice"):
        make(3).take([1, 1])


def test_values_of_a_field() -> None:
    values = [None, "a", 1.0, 0.5, True, ["é"], {"k": 1}]
    corpus = Corpus.from_examples(Example("p", "r", str(row), metadata={"m": m}) for row, m in enumerate(values))
    assert corpus.values("m") == [None, "a", "1", "0.5", "true", '["é"]', '{"k": 1}']
    assert corpus.values("id") == [str(row) for row in range(7)]
    assert corpus.values("label") == corpus.values("other", ["other"]) == [None] * 7
    with pytest.raises(ConfigError, match='field: there is no field "n"'):
        corpus.values("n")
    assert corpus.values("other.k", ["other.k"]) == [None] * 7
    assert corpus.values("m.k") == [None] * 6 + ["1"]
    with pytest.raises(ConfigError, match='field: there is no field "m.l"'):
        corpus.values("m.l")


def test_is_a_sequence() -> None:
    corpus = make(3)
    assert len(corpus) == 3
    assert corpus[1] in corpus
    assert corpus.index(corpus[2]) == 2
    assert next(reversed(corpus)) == corpus[2]
    assert repr(corpus) == "Corpus(3 examples)"
    assert corpus != list(corpus)


def test_an_empty_corpus_can_be_made_but_not_read() -> None:
    assert len(Corpus.from_examples([])) == 0
    assert list(Corpus.from_examples([])) == []
    with pytest.raises(DataError, match="records: holds no records"):
        Corpus.from_records([])


@pytest.mark.parametrize(
    ("example", "message"),
    [
        (Example("p", " ", "e"), "examples: example 2: response is blank"),
        (Example("p", "r", ""), "examples: example 2: id is blank"),
        (Example("p", NOTHING, "e"), "examples: example 2: response is null"),
        (Example("p", "r", NOTHING), "examples: example 2: id is null"),
        (Example("p", "r", "e", metadata={"x": {1}}), 'example 2: field "x" is not valid JSON .a set.'),
        ({"prompt": "p"}, "examples: example 2: .*is a dict"),
    ],
)
def test_refuses_bad_examples(example: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Corpus.from_examples([Example("p", "r", "first"), example])


def column(**values: list[Any]) -> pa.Table:
    return pa.table({"id": ["1", "2"], "prompt": ["p", "q"], "response": ["r", "s"]} | values)


def test_from_table_fills_in_and_casts() -> None:
    corpus = Corpus.from_table(column(metadata=['{"b": 1, "a": 2}', None]).select([3, 2, 1, 0]))
    assert corpus.table.schema == SCHEMA
    assert corpus[0] == Example("p", "r", "1", metadata={"a": 2, "b": 1})
    assert corpus.table["metadata"][0].as_py() == '{"a":2,"b":1}'


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (column(extra=["a", "b"]), f"has an unknown column 'extra'.*must be {', '.join(COLUMNS)}"),
        (column().drop_columns("prompt"), "has no column 'prompt'"),
        (column(id=["1", "1"]), "row 2: has the same id as row 1"),
        (column(id=["1", None]), "row 2: id is null, blank or holds NUL"),
        (column(prompt=["p", None]), "row 2: prompt is null, blank or holds NUL"),
        (column(response=["", "r"]), "row 1: response is null, blank or holds NUL"),
        (column(label=["a", "b\0"]), "row 2: label is null, blank or holds NUL"),
        (column(prompt=[["p"], ["q"]]), "column 'prompt': .*UTF-8 text is expected"),
        (column(prompt=pa.array([b"p", b"\xff"])), "column 'prompt': .*UTF-8 text is expected"),
        (column(metadata=["[]", None]), "metadata is a list"),
    ],
)
def test_from_table_refuses(table: pa.Table, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Corpus.from_table(table)


def test_refuses_a_table_of_another_schema() -> None:
    with pytest.raises(DataError, match=r"corpus table: has the columns id .string., prompt .* of type large_string"):
        Corpus(column())
