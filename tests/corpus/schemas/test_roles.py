"""Roles by all their names, and marks of turns."""

from typing import Any

import pytest

from airrep.corpus.corpus import Corpus, Example
from airrep.corpus.schemas.forms import read_form
from airrep.corpus.schemas.trainers import trainer_of
from airrep.corpus.schemas.values import HIDES, MARKS
from airrep.errors import DataError


def read(*messages: dict[str, Any], **options: Any) -> list[Example]:
    return list(Corpus.from_records([{"messages": list(messages)}], **options))


ASK, ANSWER = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}


@pytest.mark.parametrize("name", ["gpt", "Bing", "bard", "claude", "model", "bot"])
def test_an_assistant_of_any_name_answers(name: str) -> None:
    (example,) = read(ASK, {"role": name, "content": "Hello"})
    assert (example.prompt, example.response, example.chat) == ("Hi", "Hello", None)


@pytest.mark.parametrize("name", ["tool_response", "observation", "ipython", "function", "tool"])
def test_a_tool_of_any_name_is_the_tool(name: str) -> None:
    (example,) = read(ASK, {"role": "assistant", "content": "look"}, {"role": name, "content": "21"}, ANSWER)
    assert example.prompt == "User: Hi\nAssistant: look\nTool: 21"
    if name in ("tool", "tool_response"):
        assert example.chat == {"form": "messages"}
    else:
        assert example.chat is not None
        assert example.chat["messages"][2]["role"] == name


def test_a_developer_is_the_system_under_the_name_that_it_has() -> None:
    (example,) = read({"role": "developer", "content": "Rhyme."}, ASK, ANSWER)
    assert example.prompt == "System: Rhyme.\nUser: Hi"
    assert example.chat == {"messages": [{"role": "developer", "content": "Rhyme."}, ASK, ANSWER]}


def test_a_call_in_a_message_of_its_own_is_the_assistants() -> None:
    call = {"name": "aqi", "arguments": {"city": "Ulm"}}
    said = {"role": "tool_call", "content": '{"name": "aqi", "arguments": {"city": "Ulm"}}'}
    first, second = read(ASK, said, {"role": "tool_response", "content": "31"}, ANSWER, turns="all")
    assert (first.response, second.response) == (said["content"], "Hello")
    assert first.chat is not None
    calls = [{"type": "function", "function": call}]
    assert first.chat["messages"][1] == {"role": "assistant", "content": "", "tool_calls": calls}


def test_an_unknown_role_is_refused_by_name() -> None:
    with pytest.raises(DataError, match="the role of message 2 is 'narrator'"):
        read(ASK, {"role": "narrator", "content": "It was late."}, ANSWER)


LEFT_OUT = [(name, value) for name in MARKS for value in (("true", True, 1) if name in HIDES else ("false", False, 0))]
LEARNT = [(name, value) for name in MARKS for value in ((False, 0, None) if name in HIDES else (True, 1, 1.0, None))]


@pytest.mark.parametrize(("name", "value"), LEFT_OUT)
def test_a_mark_says_that_a_turn_is_not_learnt(name: str, value: Any) -> None:
    wrong, right = {"role": "assistant", "content": "Wood", name: value}, {"role": "assistant", "content": "Iron"}
    assert [one.response for one in read(ASK, wrong, ASK, right, turns="all")] == ["Iron"]
    assert [one.response for one in read(ASK, right, ASK, wrong, turns="all")] == ["Iron"]
    assert [one.response for one in read(ASK, right, ASK, wrong)] == ["Iron"]
    assert read(ASK, wrong, ASK, right)[0].chat == {"messages": [ASK, wrong, ASK, right]}  # as they stand


@pytest.mark.parametrize(("name", "value"), LEARNT)
def test_a_mark_says_that_a_turn_is_learnt(name: str, value: Any) -> None:
    said = {"role": "assistant", "content": "Wood", name: value}
    assert [one.response for one in read(ASK, said, ASK, ANSWER, turns="all")] == ["Wood", "Hello"]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"content": "Wood", "weight": 0.5}, "messages, weights of turns other than 0 and 1 count as 1"),
        ({"content": "Wood", "loss_scale": "2"}, "messages, weights of turns other than 0 and 1 count as 1"),
        ({"content": "Wood", "weight": 1.0, "train": "true"}, "messages"),
        (
            {"content": [{"type": "text", "text": "W", "train": False}, {"type": "text", "text": "ood"}]},
            "messages, turns with only some parts marked count as a whole",
        ),
        ({"content": "Wood", "train_detail": []}, "messages, turns with only some parts marked count as a whole"),
    ],
)
def test_a_mark_that_says_more_counts_whole_and_is_told(said: dict[str, Any], told: str) -> None:
    record = {"messages": [ASK, {"role": "assistant", **said}]}
    assert read_form(dict(record))[0] == told
    assert read_form(dict(record), trainer=trainer_of("trl"))[0] == "messages"  # it heeds none


def test_a_turn_of_which_no_part_is_learnt_is_not() -> None:
    parts = [{"type": "text", "text": "Wood", "weight": 0}, {"type": "text", "text": "!", "train": False}]
    wrong = {"role": "assistant", "content": parts}
    assert [one.response for one in read(ASK, wrong, ASK, ANSWER, turns="all")] == ["Hello"]
    assert len(read(ASK, wrong, ASK, ANSWER, turns="all", trained_with="axolotl")) == 1
    assert len(read(ASK, wrong, ASK, ANSWER, turns="all", trained_with="llamafactory")) == 2


def test_a_mark_that_is_none_is_refused() -> None:
    with pytest.raises(DataError, match="train of message 2 is text"):
        read(ASK, {"role": "assistant", "content": "Wood", "train": "perhaps"})


def test_the_keys_that_are_there_are_taken_and_named() -> None:
    (example,) = Corpus.from_records(
        [{"conversations": [{"from": "human", "text": "a"}, {"from": "gpt", "text": "b"}]}]
    )
    assert (example.prompt, example.response) == ("a", "b")
    with pytest.raises(DataError, match="the text of message 1 is a number"):
        Corpus.from_records([{"conversations": [{"from": "human", "text": 1}]}])
