"""Columns that JSON has no type for: the same rows give the same corpus, whatever holds them."""

import datetime
import decimal
import json
import sys
import types
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from datasets import ClassLabel, Dataset, Features, Json, List, Value

import airrep
from airrep.corpus.corpus import Corpus, read_corpus
from airrep.corpus.inputs import as_corpus
from airrep.corpus.originals import take_records
from airrep.errors import ConfigError, DataError, MissingExtraError
from airrep.index.export import export_index

PARTS = [{"type": "text", "text": "hello"}, {"type": "image_url", "image_url": {"url": "a.png"}}]
ANSWER = {"role": "assistant", "content": "so"}
ROWS: list[dict[str, Any]] = [
    {"id": "a", "messages": [{"role": "user", "content": "hi"}, ANSWER], "meta": {"lang": "en"}, "x": 1},
    {"id": "b", "messages": [{"role": "user", "content": PARTS}, ANSWER], "meta": [1, {"k": None}], "x": "no"},
    {"id": "c", "messages": [{"role": "user", "content": 'né\n"quoted" \\ 😀'}, ANSWER], "meta": None, "x": 0.1},
]
MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("content", pa.json_())]))


def _text(value: Any) -> str | None:
    return None if value is None else json.dumps(value)


def _arrow(rows: list[dict[str, Any]] = ROWS) -> pa.Table:
    """The rows with JSON where their types differ, as DuckDB and `datasets` hold them."""
    texts = [[{**one, "content": _text(one["content"])} for one in row["messages"]] for row in rows]
    plain = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
    return pa.table(
        {
            "id": [row["id"] for row in rows],
            "messages": pa.array(texts, plain).cast(MESSAGES),
            "meta": pa.array([_text(row["meta"]) for row in rows], pa.json_()),
            "x": pa.array([_text(row["x"]) for row in rows], pa.json_(pa.large_string())),
        }
    )


def _dataset() -> Any:
    message = {"role": Value("string"), "content": Json()}
    features = {"id": Value("string"), "messages": List(message), "meta": Json(), "x": Json()}
    return Dataset(_arrow(), fingerprint="rows").cast(Features(features))


def _jsonl(folder: Path) -> Path:
    (folder / "a.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    return folder / "a.jsonl"


def _json(folder: Path) -> Path:
    (folder / "a.json").write_text(json.dumps(ROWS))
    return folder / "a.json"


def _parquet(**options: Any) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        pq.write_table(_arrow(), folder / "a.parquet", **options)
        return folder / "a.parquet"

    return write


def _feather(folder: Path) -> Path:
    pa.feather.write_feather(_arrow(), str(folder / "a.feather"))
    return folder / "a.feather"


def _lance(folder: Path) -> Path:
    lance = pytest.importorskip("lance")
    lance.write_dataset(_arrow(), str(folder / "a.lance"))
    return folder / "a.lance"


def _saved(folder: Path) -> Path:
    _dataset().save_to_disk(str(folder / "saved"))
    return folder / "saved"


def _published(folder: Path) -> Path:
    _dataset().to_parquet(str(folder / "hub.parquet"))
    return folder / "hub.parquet"


FORMS: dict[str, Callable[[Path], Any]] = {
    "JSON Lines": _jsonl,
    "JSON": _json,
    "Parquet": _parquet(),
    "Parquet without the schema of Arrow": _parquet(store_schema=False),
    "Feather": _feather,
    "Lance": _lance,
    "a saved dataset": _saved,
    "Parquet of datasets": _published,
    "dicts": lambda folder: ROWS,
    "pyarrow": lambda folder: _arrow(),
    "pandas with types of Arrow": lambda folder: _arrow().to_pandas(types_mapper=pd.ArrowDtype),
    "datasets": lambda folder: _dataset(),
    "datasets as pandas": lambda folder: _dataset().with_format("pandas"),
    "datasets as a stream": lambda folder: _dataset().to_iterable_dataset(),
    "datasets as a stream of unknown types": lambda folder: _dataset().to_iterable_dataset().map(dict),
}


@pytest.mark.parametrize("form", FORMS)
def test_json_is_decoded_in_every_form(form: str, tmp_path: Path) -> None:
    expected = Corpus.from_records(ROWS)
    data = FORMS[form](tmp_path)
    corpus = as_corpus(data)
    assert [one.chat for one in corpus] == [one.chat for one in expected]
    if form != "Lance":  # which orders the keys of JSON objects anew
        assert corpus.fingerprint == expected.fingerprint
    assert [one.prompt for one in corpus] == ["hi", "hello\n[image]", 'né\n"quoted" \\ 😀']
    assert [one.metadata for one in corpus][:2] == [{"meta": row["meta"], "x": row["x"]} for row in ROWS[:2]]
    taken = take_records(data, ["b"])
    assert [{key: record[key] for key in ROWS[1]} for record in taken] == ROWS[1:2]


def _one(column: pa.Array, features: Any = None) -> pa.Table:
    table = pa.table({"prompt": ["p"] * len(column), "response": ["r"] * len(column), "x": column})
    if features is None:
        return table
    noted = {"info": {"features": {"x": features}}}
    return table.replace_schema_metadata({b"huggingface": json.dumps(noted).encode()})


def _values(table: pa.Table, folder: Path) -> list[Any]:
    """What the column x gives as metadata: the same from every reader."""
    pq.write_table(table, folder / "a.parquet")
    pa.feather.write_feather(table, str(folder / "a.feather"))
    found = as_corpus(table), read_corpus(folder / "a.parquet"), read_corpus(folder / "a.feather")
    assert len({corpus.fingerprint for corpus in found}) == 1
    return [example.metadata.get("x") for example in found[0]]


KEY = "00000000-0000-0000-0000-00000000000a"
UUIDS = pa.array([uuid.UUID(KEY).bytes, None], pa.uuid())
PRICES = pa.array([decimal.Decimal("1.50"), decimal.Decimal("0.00")], pa.decimal128(30, 2))
COLUMNS: dict[str, tuple[pa.Array, list[Any]]] = {
    "UUID": (UUIDS, [KEY, None]),
    "lists of UUIDs": (pa.ListArray.from_arrays([0, 2], UUIDS), [[KEY, None]]),
    "Decimal": (PRICES, ["1.50", "0.00"]),
    "Decimal of many places": (pa.array([decimal.Decimal("0E-9")], pa.decimal128(20, 9)), ["0.000000000"]),
    "Decimal of no places": (pa.array([decimal.Decimal(7)], pa.decimal256(50, 0)), ["7"]),
    "objects of Decimals": (pa.StructArray.from_arrays([PRICES], ["eur"]), [{"eur": "1.50"}, {"eur": "0.00"}]),
    "a null object": (pa.array([None], pa.struct([("eur", PRICES.type)])), [None]),
    "maps": (pa.array([[("b", 1), ("a", None)], []], pa.map_("string", "int64")), [{"b": 1, "a": None}, {}]),
    "maps of numbers": (pa.array([[(10, "x"), (9, "y")]], pa.map_("int8", "string")), [{"10": "x", "9": "y"}]),
    "maps of dates": (
        pa.array([[(0, PRICES[0].as_py())]], pa.map_(pa.date32(), PRICES.type)),
        [{"1970-01-01": "1.50"}],
    ),
    "lists of maps": (pa.array([[[("a", 1)], None]], pa.list_(pa.map_("string", "int64"))), [[{"a": 1}, None]]),
    "large lists": (pa.array([[1, 2]], pa.large_list(pa.int8())), [[1, 2]]),
    "lists of two": (pa.array([[1, 2]], pa.list_(pa.int8(), 2)), [[1, 2]]),
    "list views": (pa.array([[1], None], pa.list_view(pa.int8())), [[1], None]),
    "categories": (pa.array(["u", None, "u"]).dictionary_encode(), ["u", None, "u"]),
    "categories of Decimals": (PRICES.dictionary_encode(), ["1.50", "0.00"]),
    "times": (pa.array([datetime.time(1, 2)], pa.time64("us")), ["01:02:00"]),
    "moments": (pa.array([datetime.datetime(2020, 1, 2, 3)], pa.timestamp("ns", "UTC")), ["2020-01-02T03:00:00+00:00"]),
    "nulls": (pa.nulls(2), [None, None]),
    "views of texts": (pa.array(["t"], pa.string_view()), ["t"]),
    "half precision": (pa.array([np.float16(0.5)], pa.float16()), [0.5]),
    "JSON in maps": (
        pa.array([[("a", '{"b": [1.5]}')]], pa.map_("string", "string")).cast(pa.map_("string", pa.json_())),
        [{"a": {"b": [1.5]}}],
    ),
    "tensors": (
        pa.ExtensionArray.from_storage(
            pa.fixed_shape_tensor(pa.int8(), [2]), pa.array([[1, 2]], pa.list_(pa.int8(), 2))
        ),
        [[1, 2]],
    ),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_columns_of_other_types_become_json(kind: str, tmp_path: Path) -> None:
    column, values = COLUMNS[kind]
    if kind in ("list views", "views of texts"):  # which Parquet has not
        assert [example.metadata.get("x") for example in as_corpus(_one(column))] == values
    else:
        assert _values(_one(column), tmp_path) == values


LABEL = {"_type": "ClassLabel", "names": ["bad", "good"]}
CLASSES: dict[str, tuple[pa.Array, Any, list[Any]]] = {
    "alone": (pa.array([1, 0, None, -1]), LABEL, ["good", "bad", None, None]),
    "listed": (pa.array([[1, 0], []]), {"_type": "List", "feature": LABEL}, [["good", "bad"], []]),
    "of earlier datasets": (pa.array([[1, 0]]), {"_type": "Sequence", "feature": LABEL}, [["good", "bad"]]),
    "in objects": (pa.array([{"is": 1}]), {"is": LABEL}, [{"is": "good"}]),
    "in listed objects": (pa.array([[{"is": 1}]]), [{"is": LABEL}], [[{"is": "good"}]]),
    "in objects of lists": (
        pa.array([{"is": [0]}]),
        {"_type": "Sequence", "feature": {"is": LABEL}},
        [{"is": ["bad"]}],
    ),
    "that became texts": (pa.array(["1"]), LABEL, ["1"]),
}


@pytest.mark.parametrize("kind", CLASSES)
def test_labels_of_classes_are_their_names(kind: str, tmp_path: Path) -> None:
    column, feature, values = CLASSES[kind]
    assert _values(_one(column, feature), tmp_path) == values


def test_class_labels_of_a_dataset_are_names(tmp_path: Path) -> None:
    features = Features({"text": Value("string"), "label": ClassLabel(names=["neg", "pos"])})
    data = Dataset.from_dict({"text": ["a", "b"], "label": [1, 0]}, features=features)
    data.save_to_disk(str(tmp_path / "saved"))
    data.to_parquet(str(tmp_path / "a.parquet"))
    streamed = data.to_iterable_dataset()
    for given in (tmp_path / "saved", tmp_path / "a.parquet", data, data.with_format("torch"), streamed):
        assert as_corpus(given).values("label") == ["pos", "neg"]
    assert Corpus.from_records(data).values("label") == ["pos", "neg"]


def test_texts_of_a_column_of_json_stay_texts(tmp_path: Path) -> None:
    """A text that looks like JSON is one: only its column's type tells."""
    texts = ['"hi"', "1", '{"a": 1}', "null"]
    assert _values(_one(pa.array(texts)), tmp_path) == texts
    assert _values(_one(pa.array(list(map(json.dumps, texts)), pa.json_())), tmp_path) == texts


def test_json_that_lost_its_type_is_known_by_the_features(tmp_path: Path) -> None:
    assert _values(_one(pa.array(['{"a": 1}', "2"]), {"_type": "Json"}), tmp_path) == [{"a": 1}, 2]
    assert _values(_one(pa.array([{"a": 1}]), {"_type": "Json"}), tmp_path) == [{"a": 1}]


@pytest.mark.parametrize("noted", [b"", b"[]", b'{"info": {"features": ["x"]}}', b'{"info": null}'])
def test_features_that_are_none_tell_nothing(noted: bytes) -> None:
    table = _one(pa.array([1])).replace_schema_metadata({b"huggingface": noted})
    assert as_corpus(table)[0].metadata == {"x": 1}


def test_ids_prompts_and_answers_may_be_uuids_and_decimals(tmp_path: Path) -> None:
    key, price = uuid.UUID(KEY), decimal.Decimal("1.50")
    rows = [{"id": key, "prompt": "how much?", "response": price, "label": price, "inner": [{"u": key, "d": price}]}]
    table = pa.table(
        {
            "id": UUIDS[:1],
            "prompt": ["how much?"],
            "response": PRICES[:1],
            "label": PRICES[:1],
            "inner": pa.array(
                [[{"u": key.bytes, "d": price}]], pa.list_(pa.struct([("u", pa.binary(16)), ("d", PRICES.type)]))
            ).cast(pa.list_(pa.struct([("u", pa.uuid()), ("d", PRICES.type)]))),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    for data in (rows, table, tmp_path / "a.parquet", pd.DataFrame(rows).to_dict("records")):
        (example,) = as_corpus(data)
        assert (example.id, example.response, example.label) == (KEY, "1.50", "1.50")
        assert example.metadata == {"inner": [{"u": KEY, "d": "1.50"}]}
        (taken,) = take_records(data, [KEY])
        assert (taken["id"], taken["response"]) == (KEY, "1.50")


def test_periods_of_pandas_are_texts_in_files_too(tmp_path: Path) -> None:
    periods = pd.DataFrame({"x": pd.PeriodIndex(["2020-03", None], freq="M")})
    table = pa.table(periods)
    assert _values(_one(table["x"].combine_chunks()), tmp_path) == ["2020-03", None]
    frame = periods.assign(prompt="p", response="r")
    for data in (frame, pa.table(frame), frame.to_dict("records")):
        assert [one.metadata for one in as_corpus(data)] == [{"x": "2020-03"}, {}]
    held = table["x"].combine_chunks().storage  # as a program reads it that has not loaded pandas
    noted = {b"ARROW:extension:name": b"pandas.period", b"ARROW:extension:metadata": b'{"freq": "M"}'}
    schema = pa.schema([("prompt", pa.string()), ("response", pa.string()), pa.field("x", held.type, metadata=noted)])
    assert [one.metadata for one in as_corpus(_one(held).cast(schema))] == [{"x": "2020-03"}, {}]


DAY = pa.array([0, 2**30], pa.date32())
BROKEN = pa.Array.from_buffers(pa.string(), 2, pa.array([b"a", b"\xff"]).buffers())
BAD: dict[str, tuple[pa.Table, str]] = {
    "JSON": (_one(pa.array(["{}", "{oops}"], pa.json_())), "not JSON: Expecting property name .* at character 2"),
    "a key twice": (_one(pa.array(["{}", '{"a": 1, "a": 2}'], pa.json_())), 'the key "a" occurs twice in one object'),
    "NaN": (_one(pa.array(["{}", "NaN"], pa.json_())), "not JSON: NaN"),
    "nesting": (_one(pa.array(["{}", "[" * 100_000], pa.json_())), "not JSON: nested too deeply"),
    "a map": (_one(pa.array([[], [("a", 1), ("a", 2)]], pa.map_("string", "int8"))), 'a map has the key "a" twice'),
    "a class": (_one(pa.array([1, 2]), LABEL), "class 2 does not exist"),
    "a class below": (_one(pa.array([1, -2]), LABEL), "class -2 does not exist"),
    "a date": (_one(DAY), "must have magnitude"),
    "a date in objects": (_one(pa.StructArray.from_arrays([DAY], ["day"])), "must have magnitude"),
    "UTF-8": (_one(BROKEN), "'utf-8' codec can't decode"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_value_that_cannot_be_read_is_told_with_its_column(kind: str, tmp_path: Path) -> None:
    table, why = BAD[kind]
    pq.write_table(table, tmp_path / "a.parquet")
    told = rf': the column "x" holds a value that cannot be read \((.*{why}.*)\)\. .*remove the column'
    with pytest.raises(DataError, match=r"a\.parquet: row 2" + told):
        read_corpus(tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"record 2" + told):
        as_corpus(table)
    for data in (tmp_path / "a.parquet", table):
        kept = as_corpus(data, options={"skip_invalid": True})
        assert len(kept) == kept.skipped.count == 1
        assert 'the column "x"' in kept.skipped.messages[0]
        with pytest.raises(DataError, match=r'2: the column "x"'):
            list(take_records(data, kept))
        assert len(list(take_records(data, kept, skip_invalid=True))) == 1


REFUSED: dict[str, pa.Array] = {
    "bytes": pa.array([b"text"]),
    "images": pa.array([{"bytes": b"\x89PNG", "path": "a.png"}]),
    "durations": pa.array([datetime.timedelta(1)]),
    "lists of NaN": pa.array([[float("nan")]]),
    "infinity": pa.array([float("inf")]),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_no_json_is_refused_with_its_column(kind: str, tmp_path: Path) -> None:
    pq.write_table(_one(REFUSED[kind]), tmp_path / "a.parquet")
    for data in (tmp_path / "a.parquet", _one(REFUSED[kind])):
        with pytest.raises(DataError, match='1: field "x" is not valid JSON'):
            as_corpus(data)


class DuckDBPyRelation:
    """A relation as DuckDB 2 gives it: its JSON is plain text for Arrow, and its types tell."""

    def __init__(self, table: pa.Table, kinds: dict[str, Any]) -> None:
        self._table, self.columns, self.types = table, list(kinds), list(kinds.values())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def _kind(shown: str, kind: str = "varchar", children: Any = ()) -> Any:
    class Kind(types.SimpleNamespace):
        def __str__(self) -> str:
            return shown

    return Kind(id=kind, children=list(children))


def test_json_of_a_relation_of_duckdb_is_decoded() -> None:
    text, value = _kind("VARCHAR"), _kind("JSON")
    message = _kind("STRUCT", "struct", [("role", text), ("content", value)])
    kinds = {"id": text, "messages": _kind("STRUCT[]", "list", [("child", message)]), "meta": value, "x": value}
    plain = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
    schema = pa.schema([("id", pa.string()), ("messages", plain), ("meta", pa.string()), ("x", pa.string())])
    assert as_corpus(DuckDBPyRelation(_arrow().cast(schema), kinds)) == Corpus.from_records(ROWS)
    maps = _kind("MAP", "map", [("key", text), ("value", value)])
    pair = _kind("JSON[2]", "array", [("child", value), ("size", 2)])
    table = pa.table(
        {
            "prompt": ["p"],
            "response": ["r"],
            "m": pa.array([[("a", "{}")]], pa.map_("string", "string")),
            "p": pa.array([["1", '"2"']], pa.list_(pa.string(), 2)),
        }
    )
    (example,) = as_corpus(DuckDBPyRelation(table, {"prompt": text, "response": text, "m": maps, "p": pair}))
    assert example.metadata == {"m": {"a": {}}, "p": [1, "2"]}


def test_a_dataset_of_lance_and_our_own_export_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("lance")
    rows = [{"id": f"e{number}", "prompt": f"who is {number}?", "response": "me", "day": 1} for number in range(5)]
    index = airrep.build_index(rows, tmp_path / "index", "tfidf")
    for name in ("a.lance", "renamed"):
        export_index(index, tmp_path / name, "lance")
        assert [one.id for one in read_corpus(tmp_path / name)] == [f"e{number}" for number in range(5)]
    export_index(index, tmp_path / "a.parquet")
    assert read_corpus(tmp_path / "a.lance") == read_corpus(tmp_path / "a.parquet")
    with pytest.raises(ConfigError, match="split='test' was given, but a Lance dataset"):
        read_corpus(tmp_path / "a.lance", split="test")
    for file in (tmp_path / "renamed" / "data").iterdir():
        file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(DataError, match=r"renamed: cannot be read as Lance \(.*\)"):
        read_corpus(tmp_path / "renamed")
    monkeypatch.setitem(sys.modules, "lance", None)
    with pytest.raises(MissingExtraError, match=r"a\.lance: reading a Lance dataset: .*install 'airrep\[lance\]'"):
        read_corpus(tmp_path / "a.lance")
