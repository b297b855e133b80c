"""Data in the forms that programs hold them give the corpus that a file of them gives."""

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from datasets import Dataset, DatasetDict

from airrep.corpus.corpus import Corpus, Example, asked, of_answers, read_corpus
from airrep.corpus.inputs import as_corpus, as_examples, is_one
from airrep.errors import ConfigError, DataError

RECORDS = [
    {"prompt": "who?", "response": "me", "source": "forum", "stars": 5},
    {"prompt": "why?", "response": "so", "source": "wiki", "stars": 3},
]


def _path(folder: Path) -> Path:
    path = folder / "data.jsonl"
    path.write_text("".join(f"{json.dumps(record)}\n" for record in RECORDS))
    return path


FORMS: dict[str, Callable[[Path], Any]] = {
    "path": _path,
    "text of a path": lambda folder: str(_path(folder)),
    "corpus": lambda folder: read_corpus(_path(folder)),
    "list of dicts": lambda folder: RECORDS,
    "generator of dicts": lambda folder: iter(RECORDS),
    "pandas": lambda folder: pd.DataFrame(RECORDS),
    "pandas with names of rows": lambda folder: pd.DataFrame(RECORDS, index=["a", "b"]),
    "pyarrow": lambda folder: pa.Table.from_pylist(RECORDS),
    "datasets": lambda folder: Dataset.from_list(RECORDS),
    "a part of datasets": lambda folder: Dataset.from_list(RECORDS)[:2],
    "datasets as pandas": lambda folder: Dataset.from_list(RECORDS).with_format("pandas"),
    "datasets as arrow": lambda folder: Dataset.from_list(RECORDS).with_format("arrow"),
    "datasets as torch": lambda folder: Dataset.from_list(RECORDS).with_format("torch"),
    "columns": lambda folder: pd.DataFrame(RECORDS).to_dict("list"),
    "examples": lambda folder: list(read_corpus(_path(folder))),
    "examples and dicts": lambda folder: [read_corpus(_path(folder))[0], RECORDS[1]],
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_corpus(form: str, tmp_path: Path) -> None:
    assert as_corpus(FORMS[form](tmp_path)) == read_corpus(_path(tmp_path))
    if form != "text of a path":  # a text is a query by itself
        assert list(as_examples(FORMS[form](tmp_path))) == list(read_corpus(_path(tmp_path)))


def test_lists_of_messages_are_one_record_and_not_columns() -> None:
    said = {"role": "user", "content": "who?"}, {"role": "assistant", "content": "me"}
    pair = {"chosen": list(said), "rejected": [said[0], {"role": "assistant", "content": "you"}]}
    for one, response in ((pair, "me"), ({"messages": said}, "me")):
        assert is_one(one)
        assert [example.response for example in as_examples(one)] == [response]
    columns = {"messages": [list(said)] * 2, "id": ["a", "b"]}
    assert not is_one(columns)
    assert [example.id for example in as_examples(columns)] == ["a", "b"]


def test_a_transform_of_a_dataset_is_kept() -> None:
    data = Dataset.from_list(RECORDS)
    data.set_transform(lambda rows: {"prompt": ["p"] * len(rows["prompt"]), "response": rows["response"]})
    assert [one.prompt for one in as_corpus(data)] == ["p", "p"]


def test_texts_are_responses_to_an_empty_prompt() -> None:
    assert as_examples("It is 108.") == (Example("", "It is 108."),)
    assert as_examples(["one", Example("p", "r", "x")]) == (Example("", "one"), Example("p", "r", "x"))


def test_an_example_without_an_id_has_that_of_a_record_without_one() -> None:
    made = Example(prompt="who?", response="me")
    assert made.id == made.content_hash == as_corpus([{"prompt": "who?", "response": "me"}])[0].id
    assert Example("who?", "me", id="").id == ""
    assert Corpus.from_examples([made, Example("why?", "so", "7")]).ids.to_pylist() == [made.id, "7"]


def test_queries_may_have_one_id_twice() -> None:
    twice = [Example("a", "b", "x"), Example("c", "d", "x")]
    assert as_examples(twice) == tuple(twice)
    with pytest.raises(DataError, match="x"):
        as_corpus(twice)


def test_queries_are_coerced_as_training_data_are() -> None:
    given: Any = Example("a", "b", 7, np.int64(1), 2, {"n": np.int64(3), "day": date(2024, 1, 2), "gone": None})
    plain = Example("a", "b", "7", "1", "2", {"n": 3, "day": "2024-01-02"})
    assert as_examples([given]) == (plain,) == tuple(Corpus.from_examples([given]))
    assert type(as_examples(given)[0].metadata["n"]) is int
    assert as_examples(Example("a", "")) == (Example("a", ""),)  # a query may have no response yet


@pytest.mark.parametrize("one", ["text", {"prompt": "a", "response": "b"}, Example("a", "b")])
def test_one_query_is_told_from_several(one: object) -> None:
    assert is_one(one)
    assert not is_one([one])


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (5, "train: is of type int"),
        (None, "train: is of type NoneType"),
        (b"a", "train: is of type bytes"),
        ([1, 2], "train: holds a value of type int"),
        ([None], "train: holds a value of type NoneType"),
        (["a.jsonl", "b.jsonl"], "train: holds the text 'a.jsonl'"),
        (DatasetDict(train=Dataset.from_list(RECORDS)), "has several splits .train"),
        ([{"prompt": "a"}], "record 1: no prompt and response"),
        ([Example("a", "b"), Example("a", 5)], "response is a number"),  # type: ignore[arg-type]
        ([Example("a", "\ud800")], "response"),
        (pd.DataFrame(RECORDS)["response"], "train: is a single column or row .type Series"),
        (pd.DataFrame(RECORDS).iloc[0], r"train: .*type Series.* row\.to_dict\(\)"),
        (pa.table({"prompt": ["a"]})["prompt"], "train: is a single column or row .type ChunkedArray"),
        (pd.DataFrame([{"x": 1}]), "record 1: no prompt and response"),
    ],
)
def test_other_data_are_refused_in_one_line(data: object, told: str) -> None:
    with pytest.raises((ConfigError, DataError), match=told) as caught:
        as_corpus(data)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("queries", "told"),
    [
        ([Example("a", "b"), Example("a", "b", None)], r"queries\[1\]: id is null"),  # type: ignore[arg-type]
        (Example("a", "b", metadata={"tags": {1}}), "queries: field .tags"),
        ("", "queries: prompt and response are blank"),
        (["a", " "], r"queries\[1\]: prompt and response are blank"),
        (Example(" ", "\n"), "queries: prompt and response are blank"),
        (Example("a", "b", metadata={"n": float("nan")}), "queries: field .n"),
        (Example("a", "b", metadata=["n"]), "queries: metadata is a list"),  # type: ignore[arg-type]
    ],
)
def test_queries_that_no_corpus_takes_are_refused_in_one_line(queries: Any, told: str) -> None:
    with pytest.raises(DataError, match=told) as caught:
        as_examples(queries)
    assert "\n" not in str(caught.value)


def test_a_text_that_names_a_file_is_not_taken_for_a_query(tmp_path: Path) -> None:
    plain, spaced = tmp_path / "no suffix", tmp_path / "NOTES"
    for one in (plain, spaced):
        one.write_text("")
    places = (str(_path(tmp_path)), str(plain), str(spaced), "missing.jsonl", "away/missing.csv.gz", f"{tmp_path}/")
    for place in places:
        for given in (place, ["said", place]):
            with pytest.raises(ConfigError, match="is the name of a file") as caught:
                as_examples(given)
            for way in (f"pathlib.Path({place!r})", f"airrep.Example('', {place!r})"):
                assert way in str(caught.value)
            assert "\n" not in str(caught.value)
        assert as_examples(Example("", place))[0].response == place
    for said in ("see data.jsonl", "tmp", "a/b", "x" * 3000 + ".csv", "file.txt"):
        assert as_examples(said)[0].response == said
    with pytest.raises(ConfigError, match="queries: is empty"):
        as_examples([])


def test_missing_values_of_pandas_are_missing() -> None:
    """NaT was the text "NaT", as it is a date by its type, and NA was refused."""
    empty = {"prompt": "who?", "response": "me", "label": pd.NA, "source": np.datetime64("NaT"), "day": pd.NaT}
    inner = {"n": pd.NA, "seen": [pd.NaT, pd.NA]}
    (example,) = Corpus.from_records([empty | {"stars": np.float32("nan"), "inner": inner}])
    assert (example.label, example.source) == (None, None)
    assert example.metadata == {"inner": {"n": None, "seen": [None, None]}}
    frame = pd.DataFrame({**empty, "day": [pd.Timestamp("2020-01-02"), pd.NaT]}).astype({"day": object})
    read = Corpus.from_records(frame.to_dict("records"))
    assert [one.metadata for one in read] == [{"day": "2020-01-02T00:00:00"}, {}]


@pytest.mark.parametrize("arrow", [False, True])
def test_two_columns_of_one_name_are_refused(arrow: bool) -> None:
    frame = pd.DataFrame([["p", "r", "s"]], columns=["prompt", "response", "prompt"])
    table = pa.table([["p"], ["r"], ["s"]], names=list(frame.columns))
    with pytest.raises(DataError, match='^train: the column "prompt" occurs twice'):
        as_corpus(table if arrow else frame)


def test_of_a_query_only_the_answer_counts_where_a_trainer_learns_whole_conversations(tmp_path: Path) -> None:
    talk = [{"role": "user", "content": "who?"}, {"role": "assistant", "content": "me"}]
    records = [{"id": "talk", "messages": talk, "stars": 5}, {"id": "plain", **RECORDS[0]}]
    rows, options = Corpus.from_records(records, trained_with="trl"), {"trained_with": "trl"}
    assert rows[0].chat == {"messages": talk, "learn": "all"}  # as trl learns it
    rows.to_jsonl(tmp_path / "rows.jsonl")
    ways = (rows, list(rows), rows[0], records, Dataset.from_list(records[:1]), tmp_path / "rows.jsonl")
    for way in ways:
        first = as_examples(way, options=options)[0]
        assert (first.id, first.response, first.chat) == ("talk", "me", {"messages": talk})
        assert first.metadata == {"stars": 5}
    assert as_examples(rows[1:])[0] == rows[1]


def test_answers_of_many_conversations_are_those_of_each() -> None:
    learnt = {"learn": "all"}
    call = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": learnt}}]}
    said = [{"role": "user", "content": 'Say ,"learn":"all"}'}, {"role": "assistant", "content": "é"}]
    chats: list[dict[str, Any] | None] = [
        {"messages": said, **learnt}, {"messages": said, **learnt, "template": learnt}, {"messages": [said[0], call]},
        {"messages": [said[0], call], **learnt}, {"messages": said, "tools": [learnt]}, None,
    ]  # fmt: skip
    rows = Corpus.from_examples([Example("p", "r", f"e{number}", chat=chat) for number, chat in enumerate(chats)])
    found = of_answers(rows)
    assert list(found) == [asked(one) for one in rows]
    assert [(one.chat or {}).get("learn") for one in found] == [None] * 6
    assert found.fingerprint == Corpus.from_examples([asked(one) for one in rows]).fingerprint
