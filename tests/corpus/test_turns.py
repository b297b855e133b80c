"""Prompts of several messages are shortened to their last one, which has the question."""

import pytest

from airrep.corpus.schemas.conversations import Message, prompt_of
from airrep.corpus.turns import from_last_message, last_message, message_at

SYSTEM = Message("system", "You are a polite agent. " * 40)
TOOLS = Message("tools", '[{"type": "function", "name": "search"}]')
ASKED = Message("user", "Where is my parcel?")


def test_the_question_is_seen_behind_what_is_alike_everywhere() -> None:
    for before in ([SYSTEM], [TOOLS, SYSTEM], [SYSTEM, Message("user", "Hello"), Message("assistant", "Yes?")]):
        assert from_last_message(prompt_of([*before, ASKED]), 90) == "… User: Where is my parcel?"
    answer = Message("tool", "no parcel")
    assert from_last_message(prompt_of([TOOLS, SYSTEM, ASKED, answer]), 90) == "… Tool: no parcel"


def test_a_long_last_message_is_shown_from_its_beginning() -> None:
    prompt = prompt_of([SYSTEM, Message("user", "Where is it? " + "I have waited. " * 50)])
    assert from_last_message(prompt, 90).startswith("… User: Where is it? I have waited.")


@pytest.mark.parametrize(
    "prompt",
    [
        prompt_of([Message("system", "Be polite."), ASKED]),  # fits
        "System: Be polite.\n" + " " * 80 + "\nUser: Is it late?",  # fits on one line
        "Long words of one message. " * 40 + "\nUser: said in it",
        prompt_of([SYSTEM]),
        "",
    ],
)
def test_other_prompts_stay(prompt: str) -> None:
    assert from_last_message(prompt, 90) == prompt
    assert last_message(prompt, 90) == 0


def test_the_message_of_a_place() -> None:
    prompt = prompt_of([SYSTEM, Message("user", "Hello"), ASKED])
    places = [prompt.index(text) for text in ("polite", "\nUser: Hello", "Hello", "Where")]
    assert [prompt[message_at(prompt, place) :][:11] for place in places] == [
        "System: You",
        *["User: Hello"] * 2,
        "User: Where",
    ]
