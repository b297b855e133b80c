"""What stands beside a prompt belongs to it: system prompts, contexts, silent messages."""

from typing import Any

import pytest

import airrep
from airrep.errors import DataError

USER, DONE = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}


def read(record: dict[str, Any]) -> airrep.Example:
    return airrep.Corpus.from_records([record])[0]


@pytest.mark.parametrize("name", ["messages", "conversations", "conversation"])
@pytest.mark.parametrize("system", ["system", "system_prompt"])
def test_a_system_prompt_beside_a_conversation_is_read(name: str, system: str) -> None:
    found = read({system: "Be brief.", name: [USER, DONE]})
    assert (found.prompt, found.response) == ("System: Be brief.\nUser: q", "a")
    assert not found.metadata


@pytest.mark.parametrize("blank", ["", " \n", None])
def test_messages_that_say_nothing(blank: str | None) -> None:
    silent = {"role": "system", "content": blank}
    assert read({"messages": [silent, USER, DONE]}).prompt == "q"
    called = {"role": "assistant", "content": blank, "tool_calls": [{"name": "f", "arguments": {}}]}
    found = read({"messages": [USER, called, {"role": "tool", "content": blank}, DONE]})
    assert found.prompt == 'User: q\nAssistant: {"name": "f", "arguments": {}}\nTool: '
    with pytest.raises(DataError, match="no message by the assistant"):
        read({"messages": [silent]})
    for wrong in ([{"role": "user", "content": blank}, DONE], [USER, {"role": "assistant", "content": blank}]):
        with pytest.raises(DataError, match="the content of message"):
            read({"messages": wrong})


@pytest.mark.parametrize(
    ("record", "prompt", "kept"),
    [
        ({"question": "p", "context": "c", "answer": "r"}, "p\n\nc", {}),
        ({"question": "p", "context": "c", "response": "r"}, "p\n\nc", {}),
        ({"question": "p", "context": ["c"], "answer": "r"}, "p", {"context": ["c"]}),
        ({"question": "p", "context": " ", "answer": "r"}, "p", {}),
        ({"question": "p", "context": None, "answer": "r"}, "p", {}),
        ({"instruction": "p", "context": "c", "output": "r"}, "p\n\nc", {}),
        ({"instruction": "p", "input": "c", "response": "r"}, "p\n\nc", {}),
        ({"instruction": "p", "input": "c", "context": "d", "output": "r"}, "p\n\nc", {"context": "d"}),
        ({"instruction": "p", "input": {"x": 1}, "response": "r"}, "p", {"input": {"x": 1}}),
    ],
)
def test_a_context_is_joined_to_its_prompt(record: dict[str, Any], prompt: str, kept: dict[str, Any]) -> None:
    found = read(record)
    assert (found.prompt, found.response, dict(found.metadata)) == (prompt, "r", kept)
