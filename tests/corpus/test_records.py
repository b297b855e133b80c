"""One raw record to fields: accepted names, chat messages, and every way a record can be wrong."""

import datetime
import hashlib
from typing import Any

import numpy as np
import pytest

from airrep.corpus.corpus import Corpus
from airrep.corpus.records import Fields, Schema, content_hash, encode_metadata_text
from airrep.errors import DataError


def parse(record: object, **fields: str) -> Fields:
    _, (found,), _ = Schema(**fields).parse(record)
    return found


DAY = {"day": datetime.date(2024, 2, 29), "n": np.float32(0.5), "v": np.arange(2)}
PR = {"prompt": "p", "response": "r"}
READ: list[tuple[dict[str, Any], dict[str, str], Fields]] = [
    ({"prompt": "p", "response": "r"}, {}, Fields("p", "r", None, None, None, None)),
    ({"instruction": "p", "output": "r"}, {}, Fields("p", "r", None, None, None, None)),
    ({"inputs": "p", "targets": "r"}, {}, Fields("p", "r", None, None, None, None)),
    ({"question": "p", "answer": "r"}, {}, Fields("p", "r", None, None, None, None)),
    # the first accepted pair wins, and the rest is metadata; half of a pair does not count, nor do nulls
    (PR | {"answer": "a", "question": "q"}, {}, Fields("p", "r", None, None, None, '{"answer":"a","question":"q"}')),
    ({"prompt": "t", "question": "q", "answer": "a"}, {}, Fields("q", "a", None, None, None, '{"prompt":"t"}')),
    (
        {"prompt": None, "response": None, "messages": None, "question": "q", "answer": "a"},
        {},
        Fields("q", "a", None, None, None, None),
    ),
    # the input of Alpaca is part of the prompt, and metadata beside another layout
    *(
        ({"instruction": "List.", "input": given, "output": "o"}, {}, Fields(prompt, "o", None, None, None, None))
        for given, prompt in (("cats\n", "List.\n\ncats\n"), ("", "List."), (" \n", "List."), (None, "List."))
    ),
    (PR | {"input": "i"}, {}, Fields("p", "r", None, None, None, '{"input":"i"}')),
    # named fields go before accepted names; one leaves the other to these
    (
        PR | {"text": "t", "gold": "g"},
        {"prompt_field": "text", "response_field": "gold"},
        Fields("t", "g", None, None, None, '{"prompt":"p","response":"r"}'),
    ),
    ({"text": "t", "output": "o"}, {"prompt_field": "text"}, Fields("t", "o", None, None, None, None)),
    (
        {"instruction": "i", "input": "x", "gold": "g"},
        {"response_field": "gold"},
        Fields("i", "g", None, None, None, '{"input":"x"}'),
    ),
    # optional fields are texts or whole numbers, and can be named
    (PR | {"id": 7, "label": np.int64(3), "source": "forum"}, {}, Fields("p", "r", "7", "3", "forum", None)),
    (
        PR | {"key": "k", "task": "t", "site": "s", "label": "other"},
        {"id_field": "key", "label_field": "task", "source_field": "site"},
        Fields("p", "r", "k", "t", "s", '{"label":"other"}'),
    ),
    # metadata is canonical JSON, with the keys of an object under metadata among them
    (
        PR | {"b": [1, {"y": None}], "a": "é\0", "gone": None},
        {},
        Fields("p", "r", None, None, None, '{"a":"é\\u0000","b":[1,{"y":null}]}'),
    ),
    (
        PR | {"year": 1, "metadata": {"prompt": "x", "none": None}},
        {},
        Fields("p", "r", None, None, None, '{"prompt":"x","year":1}'),
    ),
    (PR | {"year": 1, "metadata": "text"}, {}, Fields("p", "r", None, None, None, '{"metadata":"text","year":1}')),
    (PR | DAY, {}, Fields("p", "r", None, None, None, '{"day":"2024-02-29","n":0.5,"v":[0,1]}')),
    ({"prompt": "", "response": "r"}, {}, Fields("", "r", None, None, None, None)),
]


@pytest.mark.parametrize(("record", "named", "fields"), READ)
def test_a_record_gives_these_fields(record: dict[str, Any], named: dict[str, str], fields: Fields) -> None:
    assert parse(record, **named) == fields


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


def test_content_hash_is_sha256_over_prompt_nul_response() -> None:
    assert content_hash("é", "b") == hashlib.sha256(b"\xc3\xa9\0b").hexdigest()[:16]
    assert content_hash("ab", "c") != content_hash("a", "bc")
    assert [encode_metadata_text(text) for text in ('{"b": 1, "a": null}', "{}")] == ['{"b":1}', None]


def chat(*turns: tuple[str, str]) -> dict[str, object]:
    return {"messages": [{"role": role, "content": content} for role, content in turns]}


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
    (PR | {"id": 1.5}, "id is a number"),
    (PR | {"id": " "}, "id is blank"),
    (PR | {"id": "a\0"}, "id holds a NUL character"),
    (PR | {"label": 0.5}, "label is a number"),
    (PR | {"label": ["a"]}, "label is a list"),
    (PR | {"source": {"site": 1}}, "source is an object"),
    (PR | {"source": "\udc00"}, "source holds a lone surrogate"),
    (PR | {"blob": b"x"}, 'field "blob" is not valid JSON .bytes.'),
    (PR | {"x": float("inf")}, 'field "x" is not valid JSON'),
    (PR | {"x": "\ud800"}, 'field "x" holds a lone surrogate'),
    (PR | {1: "a", "x": 2}, "the field name 1 is a number"),
    (PR | {"x": 1, "metadata": {"x": 2}}, '"x" occurs both in the record and in its metadata'),
    ({"messages": ["hi"]}, "message 1 is text"),
    ({"messages": [{"role": "user"}]}, "the content of message 1 is null"),
    (chat(("", "x")), "the role of message 1 is blank"),
    (chat(("assistant", "x")), "messages has no message before the assistant's"),
]


@pytest.mark.parametrize(("record", "message"), BAD)
def test_refuses_bad_records(record: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse(record)


@pytest.mark.parametrize(
    ("record", "named", "message"),
    [
        (PR, {"prompt_field": "text"}, 'the prompt field "text" is missing'),
        (PR | {"gold": None}, {"response_field": "gold"}, 'the response field "gold" is empty or null'),
        ({"q": {"text": None}, "response": "r"}, {"prompt_field": "q.text"}, '"q.text" is empty or null'),
        (PR, {"id_field": "key"}, 'the id field "key" is empty, null or missing. This record has the fields prompt'),
        ({f"f{number}": "x" for number in range(20)}, {}, "f11 and 8 more"),
    ],
)
def test_names_the_fields_there_are(record: object, named: dict[str, str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse(record, **named)
