"""One raw record to fields: accepted names, chat messages, and every way a record can be wrong."""

import datetime
import hashlib
import re

import numpy as np
import pytest

from airrep.corpus.corpus import Corpus
from airrep.corpus.records import Fields, Schema, content_hash, encode_metadata, encode_metadata_text
from airrep.errors import DataError


def parse(record: object, **fields: str) -> Fields:
    _, (found,) = Schema(**fields).parse(record)
    return found


@pytest.mark.parametrize(
    ("prompt", "response"),
    [("prompt", "response"), ("instruction", "output"), ("inputs", "targets"), ("question", "answer")],
)
def test_accepts_the_names_of_known_data_sets(prompt: str, response: str) -> None:
    assert parse({prompt: "p", response: "r"}) == Fields("p", "r", None, None, None, None)


def test_the_first_accepted_pair_wins_and_the_rest_is_metadata() -> None:
    record = {"answer": "a", "question": "q", "response": "r", "prompt": "p"}
    assert parse(record) == Fields("p", "r", None, None, None, '{"answer":"a","question":"q"}')


def test_half_a_pair_does_not_count() -> None:
    assert parse({"prompt": "template", "question": "q", "answer": "a"})[:2] == ("q", "a")


def test_nulls_of_another_layout_do_not_count() -> None:
    record = {"prompt": None, "response": None, "messages": [], "question": "q", "answer": "a"}
    assert parse(record | {"messages": None})[:2] == ("q", "a")


@pytest.mark.parametrize(
    ("given", "prompt"), [("cats\n", "List.\n\ncats\n"), ("", "List."), (" \n", "List."), (None, "List.")]
)
def test_the_input_of_alpaca_is_part_of_the_prompt(given: str | None, prompt: str) -> None:
    fields = parse({"instruction": "List.", "input": given, "output": "o"})
    assert (fields.prompt, fields.metadata) == (prompt, None)


def test_input_beside_another_layout_is_metadata() -> None:
    assert parse({"prompt": "p", "response": "r", "input": "i"}).metadata == '{"input":"i"}'


def test_named_fields_go_before_accepted_names() -> None:
    record = {"prompt": "p", "response": "r", "text": "t", "gold": "g"}
    fields = parse(record, prompt_field="text", response_field="gold")
    assert fields == Fields("t", "g", None, None, None, '{"prompt":"p","response":"r"}')


def test_one_named_field_leaves_the_other_to_the_accepted_names() -> None:
    assert parse({"text": "t", "output": "o"}, prompt_field="text")[:2] == ("t", "o")
    assert parse({"instruction": "i", "input": "x", "gold": "g"}, response_field="gold")[:2] == ("i", "g")


def test_optional_fields_are_text_or_integers() -> None:
    record = {"prompt": "p", "response": "r", "id": 7, "label": np.int64(3), "source": "forum"}
    assert parse(record)[2:6] == ("7", "3", "forum", None)


def test_optional_fields_can_be_named() -> None:
    record = {"prompt": "p", "response": "r", "key": "k", "task": "t", "site": "s", "label": "other"}
    fields = parse(record, id_field="key", label_field="task", source_field="site")
    assert fields[2:6] == ("k", "t", "s", '{"label":"other"}')


def test_named_fields_may_be_parts_of_objects() -> None:
    said = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    record = {"data": {"q": "p", "a": {"text": "r"}, "chat": said}, "meta": {"lang": "en", "kind": 3, "id": "x"}}
    named = {"id_field": "meta.id", "label_field": "meta.kind", "source_field": "meta.lang"}
    (example,) = Corpus.from_records([record], prompt_field="data.q", response_field="data.a.text", **named)
    assert (example.prompt, example.response, example.id) == ("p", "r", "x")
    assert (example.label, example.source, example.metadata) == ("3", "en", record)
    (chat,) = Corpus.from_records([record], response_field="data.chat", **named)
    assert (chat.prompt, chat.response) == ("q", "a")
    with pytest.raises(DataError, match='the prompt field "data.x" is missing'):
        Corpus.from_records([record], prompt_field="data.x")
    dotted = {"prompt": "p", "response": "r", "meta.lang": "de", "meta": {"lang": "en"}}
    (example,) = Corpus.from_records([dotted], source_field="meta.lang")
    assert (example.source, example.metadata) == ("de", {"meta": {"lang": "en"}})


def test_metadata_is_canonical_json() -> None:
    record = {"b": [1, {"y": None}], "a": "é\0", "gone": None, "prompt": "p", "response": "r"}
    assert parse(record).metadata == '{"a":"é\\u0000","b":[1,{"y":null}]}'


def test_an_object_under_metadata_is_merged_into_the_columns() -> None:
    record = {"prompt": "p", "response": "r", "year": 1, "metadata": {"prompt": "x", "none": None}}
    assert parse(record).metadata == '{"prompt":"x","year":1}'
    assert parse(record | {"metadata": "text"}).metadata == '{"metadata":"text","year":1}'


def test_dates_and_numpy_values_become_json() -> None:
    values = {"day": datetime.date(2024, 2, 29), "n": np.float32(0.5), "v": np.arange(2)}
    assert encode_metadata(values) == '{"day":"2024-02-29","n":0.5,"v":[0,1]}'


def test_metadata_text_is_made_canonical() -> None:
    assert encode_metadata_text('{"b": 1, "a": null}') == '{"b":1}'
    assert encode_metadata_text("{}") is None


def test_content_hash_is_sha256_over_prompt_nul_response() -> None:
    assert content_hash("é", "b") == hashlib.sha256(b"\xc3\xa9\0b").hexdigest()[:16]
    assert content_hash("ab", "c") != content_hash("a", "bc")


def chat(*turns: tuple[str, str]) -> dict[str, object]:
    return {"messages": [{"role": role, "content": content} for role, content in turns]}


def test_a_single_user_message_is_the_prompt() -> None:
    assert parse(chat(("user", "hi"), ("assistant", "yo")))[:2] == ("hi", "yo")


def test_longer_conversations_become_lines_with_roles() -> None:
    record = chat(("system", "be kind"), ("user", "hi"), ("assistant", "yo"), ("user", "bye"), ("assistant", "ciao"))
    assert parse(record)[:2] == ("System: be kind\nUser: hi\nAssistant: yo\nUser: bye", "ciao")
    assert parse(chat(("system", "s"), ("assistant", "a"))).prompt == "System: s"


def test_a_prompt_may_be_empty() -> None:
    assert parse({"prompt": "", "response": "r"})[:2] == ("", "r")


OK = {"prompt": "p", "response": "r"}
BAD = [
    ([1], "the record is a list"),
    ("text", "the record is text"),
    ({}, "no prompt and response"),
    ({"text": "t", "prompt": "p"}, "no prompt and response"),
    ({"prompt": "p"}, "messages, conversations or text"),
    ({"prompt": None, "response": "r"}, "prompt is empty or null"),
    ({"prompt": 3, "response": "r"}, "prompt is a number"),
    ({"prompt": "p", "response": True}, "response is true or false"),
    ({"prompt": "p", "response": ["r"]}, "message 1 is text"),
    ({"prompt": "p", "response": {"r": 1}}, "response is an object"),
    ({"prompt": "p", "response": " \n\u2003"}, "response is blank"),
    ({"prompt": "a\0b", "response": "r"}, "prompt holds a NUL character"),
    ({"prompt": "p", "response": "a\ud800"}, r"response holds a lone surrogate or a byte that is not UTF-8 \(\\ud800"),
    (OK | {"id": 1.5}, "id is a number"),
    (OK | {"id": " "}, "id is blank"),
    (OK | {"id": "a\0"}, "id holds a NUL character"),
    (OK | {"label": 0.5}, "label is a number"),
    (OK | {"label": ["a"]}, "label is a list"),
    (OK | {"source": {"site": 1}}, "source is an object"),
    (OK | {"source": "\udc00"}, "source holds a lone surrogate"),
    (OK | {"blob": b"x"}, 'field "blob" is no JSON value .bytes.'),
    (OK | {"x": float("inf")}, 'field "x" is no JSON value .*JSON values are expected'),
    (OK | {"x": "\ud800"}, 'field "x" holds a lone surrogate'),
    (OK | {1: "a", "x": 2}, "the field name 1 is a number"),
    (OK | {"x": 1, "metadata": {"x": 2}}, '"x" stands both in the record and in its metadata'),
    ({"instruction": "i", "input": 5, "output": "o"}, "input is a number"),
    ({"messages": "hi"}, "messages is text"),
    ({"messages": []}, "messages is an empty list"),
    ({"messages": ["hi"]}, "message 1 is text"),
    ({"messages": [{"role": "user"}]}, "the content of message 1 is null"),
    (chat(("", "x")), "the role of message 1 is blank"),
    (chat(("user", "x"), ("user", "y")), "the last message is by 'user'"),
    (chat(("assistant", "x")), "messages holds only a response"),
]


@pytest.mark.parametrize(("record", "message"), BAD)
def test_refuses_bad_records(record: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse(record)


def test_refuses_a_named_field_that_is_not_there() -> None:
    with pytest.raises(DataError, match='the prompt field "text" is missing'):
        parse(OK, prompt_field="text")
    with pytest.raises(DataError, match='the response field "gold" is empty or null'):
        parse(OK | {"gold": None}, response_field="gold")
    with pytest.raises(DataError, match='the prompt field "q.text" is empty or null'):
        parse({"q": {"text": None}, "response": "r"}, prompt_field="q.text")
    with pytest.raises(DataError, match=re.escape('the id field "key" is empty, null or missing; found prompt')):
        parse(OK, id_field="key")


def test_lists_at_most_twelve_names() -> None:
    with pytest.raises(DataError, match="f11 and 8 more"):
        parse({f"f{number}": "x" for number in range(20)})


@pytest.mark.parametrize(("encoded", "message"), [("{", "metadata is not JSON"), ("[1]", "metadata is a list")])
def test_refuses_metadata_text_that_is_no_object(encoded: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        encode_metadata_text(encoded)
