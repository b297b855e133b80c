"""Records as data sets have them: prompts and responses, and what cannot be read."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import airrep
from airrep.corpus.corpus import Corpus
from airrep.corpus.records import Schema
from airrep.corpus.schemas.conversations import Message, chat_of, holds_turns, messages_of, prompt_of
from airrep.errors import ConfigError, DataError

CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"city": "Bern", "unit": "C"}'},
}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]


def said(*turns: tuple[str, str]) -> list[dict[str, Any]]:
    return [{"role": role, "content": content} for role, content in turns]


def shared(*turns: tuple[str, str]) -> list[dict[str, Any]]:
    return [{"from": role, "value": content} for role, content in turns]


def read(record: Any, **options: Any) -> list[tuple[str, str]]:
    _, found, _ = Schema(**options).parse(record)
    return [(fields.prompt, fields.response) for fields in found]


TALK = said(("user", "Hi"), ("assistant", "Hello."), ("user", "2+2?"), ("assistant", "4"))
AS_TRL = ", joined without a chat template as trl does"
CALL_TEXT = '{"name": "weather", "arguments": {"city": "Bern", "unit": "C"}}'
ASKED, BLUE, GREETED = said(("user", "Sky?")), said(("assistant", "Blue.")), shared(("human", "Hi"), ("gpt", "Hello."))
ONLY_LAST = ' (only the last assistant turn; turns="all" uses every one)'
LOOKED_UP = [
    *said(("user", "Weather?")),
    {"role": "assistant", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_1", "content": "21 C"},
    *said(("assistant", "It is 21 C.")),
]
SEEN = [
    {"type": "text", "text": "What is it?"},
    {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
]
CAT = [{"type": "text", "text": "A cat."}]
FORMS: dict[str, list[tuple[dict[str, Any], tuple[str, str]]]] = {
    f"prompt and completion{AS_TRL}": [
        ({"prompt": "The sky is", "completion": " blue."}, ("The sky is", " blue.")),
        ({"prompt": "Sky?", "completion": "Blue.", "label": True}, ("Sky?", "Blue.")),
    ],
    "prompt and completion": [
        ({"prompt": ASKED, "completion": BLUE}, ("Sky?", "Blue.")),
        (
            {"prompt": said(("system", "Be brief."), ("user", "Sky?")), "completion": "Blue."},
            ("System: Be brief.\nUser: Sky?", "Blue."),
        ),
        ({"prompt": "Sky?", "completion": BLUE}, ("Sky?", "Blue.")),
    ],
    "instruction, input and output (Alpaca)": [
        ({"instruction": "Sum.", "input": "1 2", "output": "3", "system": "", "history": []}, ("Sum.\n\n1 2", "3"))
    ],
    f"instruction, input and output (Alpaca){ONLY_LAST}": [
        (
            {"instruction": "And 3+3?", "input": "", "output": "6", "system": "Count.", "history": [["2+2?", "4"]]},
            ("System: Count.\nUser: 2+2?\nAssistant: 4\nUser: And 3+3?", "6"),
        )
    ],
    "instruction, context and response (Dolly)": [
        (
            {"instruction": "Who?", "context": "Ada wrote it.", "response": "Ada", "category": "closed_qa"},
            ("Who?\n\nAda wrote it.", "Ada"),
        ),
        ({"instruction": "Name a tree.", "context": "", "response": "Oak"}, ("Name a tree.", "Oak")),
    ],
    "question and response": [
        (
            {"id": "flan.1", "system_prompt": "Be brief.", "question": "Why?", "response": "So."},
            ("System: Be brief.\nUser: Why?", "So."),
        ),
        ({"system_prompt": "", "question": "Why?", "response": "So."}, ("Why?", "So.")),
    ],
    "query and response": [({"query": "Why?", "response": "So."}, ("Why?", "So."))],
    "input and output": [({"input": "Why?", "output": "So."}, ("Why?", "So."))],
    "conversations": [
        ({"id": "x_0", "conversations": GREETED}, ("Hi", "Hello.")),
        (
            {"conversations": GREETED, "system": "Be kind.", "tools": json.dumps(TOOLS)},
            (f"Tools: {json.dumps(TOOLS)}\nSystem: Be kind.\nUser: Hi", "Hello."),
        ),
    ],
    f"messages{ONLY_LAST}": [
        ({"messages": TALK}, ("User: Hi\nAssistant: Hello.\nUser: 2+2?", "4")),
        (
            {"tools": TOOLS, "parallel_tool_calls": False, "messages": LOOKED_UP},
            (f"Tools: {json.dumps(TOOLS)}\nUser: Weather?\nAssistant: {CALL_TEXT}\nTool: 21 C", "It is 21 C."),
        ),
    ],
    "messages": [
        (
            {"messages": [*said(("user", "Weather?")), {"role": "assistant", "content": None, "tool_calls": [CALL]}]},
            ("Weather?", CALL_TEXT),
        ),
        (
            {"messages": [{"role": "user", "content": SEEN}, {"role": "assistant", "content": CAT}]},
            ("What is it?\n[image]", "A cat."),
        ),
    ],
    f"preference pairs (chosen){AS_TRL}": [
        ({"prompt": "Sky?", "chosen": "Blue.", "rejected": "Green."}, ("Sky?", "Blue."))
    ],
    "preference pairs (chosen)": [
        ({"prompt": "Sky?", "prompt_id": "a", "chosen": [*ASKED, *BLUE], "score_chosen": 8.5}, ("Sky?", "Blue.")),
        ({"prompt": ASKED, "chosen": BLUE, "rejected": said(("assistant", "No."))}, ("Sky?", "Blue.")),
        (
            {"system": "Be brief.", "question": "Sky?", "chosen": "Blue.", "rejected": "Green."},
            ("System: Be brief.\nUser: Sky?", "Blue."),
        ),
        (
            {
                "chosen": "\n\nHuman: Hi\n\nAssistant: Hello.\n\nHuman: Sky?\n\nAssistant: Blue.",
                "rejected": "\n\nHuman: Hi\n\nAssistant: Hello.\n\nHuman: Sky?\n\nAssistant: Go away.",
            },
            ("User: Hi\nAssistant: Hello.\nUser: Sky?", "Blue."),
        ),
        ({"chosen": "The sky is blue.", "rejected": "The sky is green."}, ("The sky is ", "blue.")),
        (
            {
                "conversations": shared(("human", "Sky?")),
                "chosen": {"from": "gpt", "value": "Blue."},
                "rejected": {"from": "gpt", "value": "Green."},
            },
            ("Sky?", "Blue."),
        ),
    ],
    "text alone (no prompt: all of it is the response)": [
        ({"text": "Once upon a time.", "meta": {"set": "books"}}, ("", "Once upon a time."))
    ],
}


@pytest.mark.parametrize(("form", "record", "example"), [(form, *row) for form, rows in FORMS.items() for row in rows])
def test_reads_a_record_and_says_what_it_is(form: str, record: dict[str, Any], example: tuple[str, str]) -> None:
    told, found, earlier = Schema().parse(record)
    assert (told, [(fields.prompt, fields.response) for fields in found]) == (form, [example])
    assert earlier == len(read(record, turns="all")) - 1 == ("only the last" in form)
    (row,) = pa.Table.from_pylist([record]).to_pylist()  # structs get the keys of all of them, with nulls
    assert read(row) == [example]


def test_a_greeting_is_no_earlier_turn() -> None:
    for messages in (WELCOME[:3], [*WELCOME[:3], *TALK]):
        form, _, earlier = Schema().parse({"conversations": messages})
        assert earlier == len(read({"conversations": messages}, turns="all")) - 1
        assert ("only the last" in form) == bool(earlier)


def test_every_turn_is_an_example_with_its_number() -> None:
    corpus = Corpus.from_records([{"id": "a", "messages": TALK}, {"id": "b", "messages": TALK[:2]}], turns="all")
    assert list(corpus.ids.to_pylist()) == ["a/1", "a/2", "b"]
    greeting, sum_of_two = ("Hi", "Hello."), ("User: Hi\nAssistant: Hello.\nUser: 2+2?", "4")
    assert [(one.prompt, one.response) for one in corpus] == [greeting, sum_of_two, greeting]
    assert [dict(one.metadata) for one in corpus] == [{"turn": 1}, {"turn": 2}, {}]
    assert corpus.forms == {"messages": 2}


WELCOME = shared(("gpt", "Welcome."), ("human", "Hi"), ("gpt", "Hello."), ("human", "Thanks"))
LONG = {"prompt": TALK, "completion": said(("user", "Why?"), ("assistant", "So."))}
LONGER = "User: Hi\nAssistant: Hello.\nUser: 2+2?\nAssistant: 4\nUser: Why?"
PAIR = {"chosen": "Bonne nuit", "rejected": "Noches"}


@pytest.mark.parametrize(
    ("record", "options", "pairs"),
    [
        ({"conversations": WELCOME}, {"turns": "all"}, [("Assistant: Welcome.\nUser: Hi", "Hello.")]),
        (LONG, {}, [(LONGER, "So.")]),  # the completion alone is learnt
        (LONG, {"turns": "all"}, [(LONGER, "So.")]),
        ({"messages": np.array(TALK[:2], dtype=object)}, {}, [("Hi", "Hello.")]),
        ({"messages": json.dumps(TALK[:2])}, {}, [("Hi", "Hello.")]),
        ({"dialog": TALK[:2], "prompt": "x"}, {"response_field": "dialog", "turns": "all"}, [("Hi", "Hello.")]),
        ({"instruction": "To French", "input": "Good night"} | PAIR, {}, [("To French\n\nGood night", "Bonne nuit")]),
        ({"question": "Who?", "context": "It was I."} | PAIR, {}, [("Who?\n\nIt was I.", "Bonne nuit")]),
        ({"prompt": "p", "input": "metadata"} | PAIR, {}, [("p", "Bonne nuit")]),
        ({"prompt": "Sky?", "chosen": "Blue.", "rejected": 3}, {}, [("Sky?", "Blue.")]),  # read only when asked for
    ],
)
def test_reads_these_pairs(record: dict[str, Any], options: dict[str, Any], pairs: list[tuple[str, str]]) -> None:
    assert read(record, **options) == pairs


def test_both_responses_of_a_preference_pair() -> None:
    records = [{"id": 7, "prompt": "Sky?", "chosen": "Blue.", "rejected": "Green."}, {"prompt": "A?", "chosen": "B"}]
    corpus = Corpus.from_records(records, preferences="both")
    assert corpus.values("preference") == ["chosen", "rejected", None]
    assert corpus.ids.to_pylist()[:2] == ["7/chosen", "7/rejected"]
    assert [one.response for one in corpus] == ["Blue.", "Green.", "B"]
    with pytest.raises(DataError, match="rejected is a number"):
        read({"prompt": "Sky?", "chosen": "Blue.", "rejected": 3}, preferences="both")


def test_what_an_older_file_gave_it_gives_still() -> None:
    """Fields beside prompt and response are metadata, whatever they are called."""
    record = {"prompt": "p", "response": "r", "system": "s", "history": [["a", "b"]], "chosen": "c", "text": "t"}
    _, (fields,), _ = Schema().parse(record)
    assert (fields.prompt, fields.response) == ("p", "r")
    assert json.loads(fields.metadata or "") == {key: record[key] for key in ("system", "history", "chosen", "text")}


BAD: list[tuple[dict[str, Any], str]] = [
    ({"messages": [TALK[0], {**TALK[1], "weight": 0}]}, "every assistant message is marked as not trained on"),
    ({"messages": TALK[:3]}, "the last message has the role .user."),
    ({"messages": [TALK[0], {"role": "assistant", "content": ""}]}, "the content of message 2 is blank"),
    ({"conversations": shared(("human", "Hi"))}, "the last message has the role .user."),
    ({"conversations": [{"from": "human"}]}, "the value of message 1 is null"),
    ({"conversations": []}, "conversations is an empty list"),
    ({"conversations": "Hi"}, "conversations is text"),
    *(({"messages": wrong}, "messages is text") for wrong in ("[", '"a"', "[" * 100_000)),
    ({"messages": [TALK[0], {"role": "assistant", "tool_calls": ["x"]}]}, "a tool call of message 2 is text"),
    ({"messages": [TALK[0], {"role": "assistant", "tool_calls": "x"}]}, "the tool_calls of message 2 are text"),
    ({"messages": [TALK[0], {"role": "assistant", "tool_calls": [{"function": {}}]}]}, "the name of a tool call of"),
    ({"messages": [{"role": "user", "content": [3]}]}, "the content of message 1 has a part that is a number"),
    ({"messages": [{"role": "user", "content": []}]}, "the content of message 1 is blank"),
    ({"messages": [{"role": "user", "content": [{"image": 1}]}]}, "the type of a part of the content of message 1 is"),
    ({"instruction": "i", "output": "o", "history": [["a"]]}, "history 1 is a list"),
    ({"instruction": "i", "output": "o", "history": [["a", 3]]}, "history 1 is a number"),
    ({"instruction": "i", "context": 3, "response": "r"}, "context is a number"),
    ({"prompt": 3, "chosen": "a", "rejected": "b"}, "prompt is a number"),
    ({"prompt": "p", "chosen": said(("assistant", "x"), ("tool", "y"))}, "role 'tool'.* Add the answer, or remove"),
    ({"chosen": "\n\nHuman: Hi"}, "the last message has the role .user.* Add the answer, or remove"),
    ({"chosen": "Human:\n\nAssistant:"}, "chosen has .* no text"),
    ({"chosen": ""}, "response is blank"),
    ({"text": 5}, "response is a number"),
    ({"messages": TALK, "tools": "search(query)"}, "tools is text that is not a JSON list or object"),
    ({"messages": TALK, "tools": '[{"name": "f"'}, "tools is text that is not a JSON list or object"),
    ({"messages": TALK, "functions": 3}, "functions is a number"),
    ({"text": " "}, "response is blank"),
]


@pytest.mark.parametrize(("record", "message"), BAD)
def test_refuses(record: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(record)


def test_refuses_choices_that_are_none() -> None:
    with pytest.raises(ConfigError, match="turns 'first': must be last or all"):
        Schema(turns="first")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="preferences 'rejected': must be chosen or both or pairs"):
        Schema(preferences="rejected")  # type: ignore[arg-type]


def test_what_is_thought_and_called_is_part_of_the_answer() -> None:
    ask = {"role": "user", "content": "12*9?"}
    for name in ("reasoning_content", "reasoning", "thinking"):
        answer = {"role": "assistant", name: "90 and 18", "content": "108"}
        assert read({"messages": [ask, answer]}) == [("12*9?", "90 and 18\n108")]
        assert read({"messages": [ask, answer | {"content": None}]}) == [("12*9?", "90 and 18")]
        assert read({"messages": [ask, answer | {name: None}]}) == [("12*9?", "108")]
    parts = [
        {"type": "thinking", "thinking": "look"},
        {"type": "tool_use", "id": "1", "name": "weather", "input": {"city": "Bern"}},
    ]
    result = {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "rain"}]}
    said = [ask, {"role": "assistant", "content": parts}, {"role": "user", "content": [result]}]
    call = 'look\n{"name": "weather", "arguments": {"city": "Bern"}}'
    assert read({"messages": said[:2]}) == [("12*9?", call)]
    last = {"role": "assistant", "content": "It rains."}
    assert read({"messages": [*said, last]}) == [(f"User: 12*9?\nAssistant: {call}\nUser: rain", "It rains.")]


def test_empty_cells_of_pandas_are_missing() -> None:
    record = {"instruction": "i", "input": float("nan"), "output": "o", "stars": float("nan")}
    (example,) = Corpus.from_records([record])
    assert (example.prompt, example.metadata) == ("i", {})


def test_prompts_of_several_messages_are_told_from_others() -> None:
    prompts = [Corpus.from_records([{"messages": said(*turns, ("assistant", "c"))}])[0].prompt for turns in (
        [("user", "a")], [("system", "s"), ("user", "a")], [("user", "a"), ("assistant", "b"), ("user", "a")],
    )]  # fmt: skip
    assert list(map(holds_turns, [*prompts, "See User: a", "Users: a"])) == [False, True, True, False, False]


@pytest.mark.parametrize(
    "messages",
    [
        [("user", "a")],
        [("system", "s\n\nt"), ("user", "a\n")],
        [("tools", "[]"), ("system", "s"), ("user", "a"), ("assistant", ""), ("tool", "{}\n"), ("user", "b\n\n")],
    ],
)
def test_messages_come_back_from_their_prompt(messages: list[tuple[str, str]]) -> None:
    wanted = [Message(*one) for one in messages]
    assert messages_of(prompt_of(wanted)) == wanted


PASTED = "Who is right?\nUser: I am.\nAssistant: No.\n\\System: x\nTools: y"
ROLES = st.sampled_from(["system", "user", "assistant", "tool"])
TEXTS = st.lists(st.sampled_from(["User: ", "Assistant: ", "Tools: ", "System: ", "\\", "\n", "a", " "])).map("".join)


def test_a_pasted_transcript_is_no_messages() -> None:
    turns = [("system", "s"), ("user", PASTED), ("assistant", f"User: {PASTED}"), ("user", "b")]
    (example,) = Corpus.from_records([{"messages": said(*turns, ("assistant", "c"))}])
    assert messages_of(example.prompt) == [Message(*turn) for turn in turns]
    assert example.prompt.startswith("System: s\nUser: Who is right?\n\\User: I am.\n\\Assistant: No.\n\\\\System: x\n")


def test_a_single_pasted_transcript_is_one_message() -> None:
    pasted = "User: a\nAssistant: b\nUser: c"
    (one,) = Corpus.from_records([{"messages": said(("user", pasted), ("assistant", "c"))}])
    assert chat_of(one.prompt) == [{"role": "user", "content": pasted}]
    (text,) = Corpus.from_records([{"prompt": pasted, "response": "c"}])  # as airrep writes it: bytes stay
    assert (text.prompt, len(messages_of(text.prompt))) == (pasted, 3)


def test_texts_without_roles_at_the_heads_of_lines_are_written_as_before() -> None:
    said_so = [Message("system", "a\\b\n\\c\n User: d"), Message("user", "\\User: x\ne: User: f")]
    assert prompt_of(said_so) == "\n".join(f"{one.role.capitalize()}: {one.content}" for one in said_so)
    for alone in ("\\a", PASTED, "User: a", "a\nUser: b"):
        assert prompt_of([Message("user", alone)]) == alone


@given(st.lists(st.builds(Message, ROLES, TEXTS, st.just(True), st.none()), min_size=1), TEXTS)
def test_any_messages_come_back_and_so_does_any_prompt(messages: list[Message], prompt: str) -> None:
    assert messages_of(prompt_of(messages)) == messages
    assert prompt_of(messages_of(prompt)) == prompt


@pytest.mark.parametrize(
    "prompt", ["", "a", "User: a", "x\nUser: a", "Userx: a\nUser: b", "User: a\nTools: b\nUser: c"]
)
def test_other_prompts_are_one_message_of_the_user(prompt: str) -> None:
    assert messages_of(prompt) == [Message("user", prompt)]


USER, DONE = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}


def read_one(record: dict[str, Any]) -> airrep.Example:
    return airrep.Corpus.from_records([record])[0]


@pytest.mark.parametrize("name", ["messages", "conversations", "conversation"])
@pytest.mark.parametrize("system", ["system", "system_prompt"])
def test_a_system_prompt_beside_a_conversation_is_read(name: str, system: str) -> None:
    found = read_one({system: "Be brief.", name: [USER, DONE]})
    assert (found.prompt, found.response) == ("System: Be brief.\nUser: q", "a")
    assert not found.metadata


@pytest.mark.parametrize("blank", ["", " \n", None])
def test_messages_that_say_nothing(blank: str | None) -> None:
    silent = {"role": "system", "content": blank}
    assert read_one({"messages": [silent, USER, DONE]}).prompt == "q"
    called = {"role": "assistant", "content": blank, "tool_calls": [{"name": "f", "arguments": {}}]}
    found = read_one({"messages": [USER, called, {"role": "tool", "content": blank}, DONE]})
    assert found.prompt == 'User: q\nAssistant: {"name": "f", "arguments": {}}\nTool: '
    with pytest.raises(DataError, match="no assistant message"):
        read_one({"messages": [silent]})
    for wrong in ([{"role": "user", "content": blank}, DONE], [USER, {"role": "assistant", "content": blank}]):
        with pytest.raises(DataError, match="the content of message"):
            read_one({"messages": wrong})


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
    found = read_one(record)
    assert (found.prompt, found.response, dict(found.metadata)) == (prompt, "r", kept)


def test_pairs_are_one_example_each_that_reads_back(tmp_path: Path) -> None:
    call = {"role": "assistant", "content": "", "tool_calls": [CALL]}
    records: list[dict[str, Any]] = [
        {"prompt": "Sky?", "chosen": "Blue.", "rejected": "Red."},
        {"prompt": said(("user", "Sky?")), "chosen": said(("assistant", "Blue.")), "rejected": [call], "tools": TOOLS},
        {"messages": TALK, "rejected_response": "5"},
        {"prompt": "Why?", "response": "So."},
    ]
    corpus = Corpus.from_records(records, preferences="pairs")
    sides = [[side and (side.response, side.chat) for side in one.sides] for one in corpus]
    assert sides[0] == [("Blue.", {"form": "joined"}), ("Red.", {"form": "joined"})]
    assert sides[1][1] is not None
    assert sides[1][1][1]["messages"][-1]["tool_calls"] == [CALL]
    assert [side and side[0] for side in sides[2]] == ["4", "5"]
    assert sides[3] == [("So.", None), None]
    assert [one.is_pair for one in corpus] == [True, True, True, False]
    corpus.to_jsonl(tmp_path / "pairs.jsonl")
    assert list(airrep.read_corpus(tmp_path / "pairs.jsonl")) == list(corpus)
    other = Corpus.from_records([{**records[0], "rejected": "Grey."}], preferences="pairs")[0]
    assert other.content_hash == corpus[0].content_hash
    assert other.reading_hash != corpus[0].reading_hash


CALLED = [
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "content": "5 C"},
    {"role": "assistant", "content": "Cold."},
]


@pytest.mark.parametrize(
    ("prompt", "head"), [(said(("system", "Be brief."), ("user", "Oslo?")), "System: Be brief.\n"), ("Oslo?", "")]
)
@pytest.mark.parametrize("swapped", [False, True])
def test_a_preferred_completion_of_several_messages_follows_its_prompt(prompt: Any, head: str, swapped: bool) -> None:
    texts = [one["content"] for one in prompt] if isinstance(prompt, list) else [prompt]
    called = f"{head}User: Oslo?\nAssistant: {CALL_TEXT}\nTool: 5 C"
    expected = [(called, "Cold."), (f"{head}User: Oslo?" if head else "Oslo?", "No.")][:: -1 if swapped else 1]
    completions = [CALLED, said(("assistant", "No."))][:: -1 if swapped else 1]
    record = {"prompt": prompt, "chosen": completions[0], "rejected": completions[1]}
    (chosen,), both, (pair,) = (
        list(Corpus.from_records([record], preferences=one)) for one in ("chosen", "both", "pairs")
    )
    told = [[(one.prompt, one.response) for one in some] for some in (both, filter(None, pair.sides))]
    assert told == [expected, expected]
    assert (chosen.prompt, chosen.response) == expected[0]
    for side, completion in zip(pair.sides, completions, strict=True):
        assert side is not None
        assert side.chat is not None
        asked = side.chat["messages"][: side.chat["asked"]]  # a language model learns all that follows
        assert [one["content"] for one in asked] == texts
        assert side.chat["messages"][side.chat["asked"] :] == completion


def test_a_preferred_conversation_may_repeat_its_prompt() -> None:
    talk = said(("assistant", "Hello."), ("user", "Oslo?"))
    for prompt, before in (("Oslo?", talk[1:]), (talk, talk), (None, talk[1:])):
        (found,) = Corpus.from_records([{"prompt": prompt, "chosen": before + CALLED}])
        assert found.prompt.count("Oslo?") == 1
        assert found.chat is not None
        assert "asked" not in found.chat


def test_a_rejected_call_is_a_call_on_its_side_of_the_pair() -> None:
    record = {"prompt": said(("user", "Oslo?")), "chosen": said(("assistant", "No.")), "rejected": CALLED[:1]}
    _, rejected = Corpus.from_records([record], preferences="pairs")[0].sides
    assert rejected is not None
    assert rejected.response == CALL_TEXT
    assert (rejected.chat or {})["messages"][-1] == CALLED[0]


@pytest.mark.parametrize(
    ("record", "told"),
    [
        ({"prompt": "Sky?", "chosen": "Blue."}, "has a chosen but no rejected response"),
        ({"prompt": "Sky?", "chosen": "Blue.", "rejected": " "}, "rejected is blank; text is expected"),
        (
            {"chosen": TALK, "rejected": said(("user", "Hey"), ("assistant", "No."))},
            "rejected answer different prompts",
        ),
    ],
)
def test_what_is_no_pair_is_refused_in_a_line(record: dict[str, Any], told: str) -> None:
    with pytest.raises(DataError, match=told):
        read(record, preferences="pairs")
