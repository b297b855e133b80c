"""Rows as trainers read them: what is joined, what is learnt, what is left out is said."""

import json
from typing import Any

import pytest

from airrep.corpus.corpus import Corpus, Example
from airrep.corpus.records import Schema
from airrep.corpus.schemas.forms import JOINT, Turns
from airrep.errors import ConfigError, DataError

ALPACA = {"instruction": "Add.", "input": "2 2", "output": "4"}
TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "2+2?"},
    {"role": "assistant", "content": "4"},
    {"role": "user", "content": "3+3?"},
    {"role": "assistant", "content": "6"},
]


def read(record: dict[str, Any], trainer: str | None = None, **options: Any) -> list[Example]:
    return list(Corpus.from_records([record], trained_with=trainer, **options))


@pytest.mark.parametrize(
    ("trainer", "prompt"),
    [
        (None, "Add.\n\n2 2"),
        ("trl", "Add.\n\n2 2"),
        ("llamafactory", "Add.\n2 2"),
        ("ms-swift", "Add.\n2 2"),
        ("axolotl", "Add.\n\n### Input:\n2 2"),
    ],
)
def test_an_instruction_and_its_input_are_joined_as_the_trainer_does(trainer: str | None, prompt: str) -> None:
    (example,) = read(ALPACA, trainer)
    assert (example.prompt, example.response) == (prompt, "4")


def test_axolotls_alpaca_has_its_preamble_and_no_chat_template() -> None:
    (with_input,), (without,) = read(ALPACA, "axolotl"), read({**ALPACA, "input": ""}, "axolotl")
    assert with_input.chat is not None
    assert without.chat is not None
    assert with_input.chat["form"] == without.chat["form"] == "joined"
    assert with_input.chat["prompt"].startswith("Below is an instruction that describes a task, paired with")
    assert with_input.chat["prompt"].endswith("### Instruction:\nAdd.\n\n### Input:\n2 2\n\n### Response:\n")
    assert without.chat["prompt"].startswith("Below is an instruction that describes a task. Write a response")
    assert without.chat["prompt"].endswith("### Instruction:\nAdd.\n\n### Response:\n")


def test_each_trainer_learns_the_turns_that_it_learns() -> None:
    record = {"messages": TALK}
    assert [one.response for one in read(record)] == [one.response for one in read(record, "trl")] == ["6"]
    for trainer in ("axolotl", "llamafactory", "ms-swift", "open-instruct"):
        assert [one.response for one in read(record, trainer)] == ["4", "6"]
        assert [one.response for one in read(record, trainer, turns="last")] == ["6"]


def test_options_of_a_trainer_are_kept_for_more_data_of_the_same_kind() -> None:
    assert Schema(trained_with="axolotl").chosen == {"turns": "all", "trained_with": "axolotl"}
    assert Schema(trained_with="axolotl", turns="last").chosen == {"turns": "last", "trained_with": "axolotl"}
    assert Schema(turns="last").chosen == Schema().chosen == {}
    assert Schema(**Schema(trained_with="trl").chosen) == Schema(trained_with="trl")  # type: ignore[arg-type]


def test_trl_learns_all_of_a_list_of_messages_and_of_a_completion_itself() -> None:
    (whole,) = read({"messages": TALK}, "trl")
    (completion,) = read({"prompt": TALK[:2], "completion": TALK[2:3]}, "trl")
    assert whole.chat == {"messages": TALK, "learn": "all"}
    assert completion.chat == read({"messages": TALK})[0].chat == {"form": "messages"}
    assert read({"messages": TALK[1:3]})[0].chat is None


@pytest.mark.parametrize(
    ("record", "form"),
    [
        ({"messages": TALK}, "messages"),
        ({"dialog": TALK}, "dialog"),
        ({"prompt": TALK[:2], "completion": TALK[2:]}, "prompt and completion"),
    ],
)
def test_trl_trains_a_conversation_once_whatever_the_turns(record: dict[str, Any], form: str) -> None:
    named = {"response_field": "dialog"} if "dialog" in record else {}
    last, every = (Corpus.from_records([record], trained_with="trl", turns=one, **named) for one in ("last", "all"))
    assert last.reading.forms == every.reading.forms == (form,)
    assert last.reading.earlier_turns == every.reading.earlier_turns == 0
    assert [(one.chat, one.metadata) for one in every] == [(one.chat, one.metadata) for one in last]


@pytest.mark.parametrize("turns", ["last", "all"])
def test_trl_reads_a_conversation_up_to_its_last_answer(turns: Turns) -> None:
    with pytest.raises(DataError, match="message. Add the answer, or"):  # turns="all" would not help
        Corpus.from_records([{"messages": TALK[:1]}], trained_with="trl", turns=turns)
    note = " (messages after the last answer: not read)"
    chat = Corpus.from_records([{"messages": TALK[:4]}], trained_with="trl", turns=turns)
    assert (chat.reading.forms, chat[0].response) == ((f"messages{note}",), "4")
    assert chat[0].chat == {"messages": TALK[:3], "learn": "all"}
    wrong = {**TALK[2], "weight": 0}  # trl follows no such mark
    for said, expected in ((TALK[2:4], {"form": "messages"}), ([*TALK[2:4], wrong, TALK[3]], {"asked": 2})):
        found = Corpus.from_records([{"prompt": TALK[:2], "completion": said}], trained_with="trl", turns=turns)
        assert found.reading.forms == (f"prompt and completion{note}",)
        assert found[0].response == "4"
        assert expected.items() <= (found[0].chat or {}).items()


def test_of_a_pair_of_conversations_all_after_the_messages_in_common_is_learnt() -> None:
    better, worse = [*TALK[:2], {**TALK[2], "content": "four"}, *TALK[3:]], TALK
    for chosen, rejected in ((better, worse), (better, worse[:3]), (TALK[:3], TALK), (TALK, TALK[:3])):
        record = {"chosen": chosen, "rejected": rejected}
        (pair,) = read(record, "trl", preferences="pairs")
        for side, said in zip(pair.sides, (chosen, rejected), strict=True):
            chat = (side and side.chat) or {}
            messages, asked = chat.get("messages", said), chat.get("asked", len(said) - 1)
            assert (messages[:asked], messages[asked:]) == (TALK[:2], said[2:])
        both = read({"prompt": "2+2?", **record}, preferences="both")
        assert [one.response for one in both] == [chosen[-1]["content"], rejected[-1]["content"]]
    other = [TALK[0], {**TALK[1], "content": "1+1?"}, TALK[2]]
    assert (read({"chosen": TALK[:3], "rejected": other})[0].chat or {}).keys() == {"form"}
    with pytest.raises(DataError, match="chosen and rejected answer different prompts"):
        read({"chosen": TALK[:3], "rejected": other}, preferences="pairs")


@pytest.mark.parametrize(
    ("record", "note"),
    [
        ({"messages": TALK[1:3]}, "messages (system: not read)"),
        ({"prompt": TALK[1:2], "completion": TALK[2:3]}, "prompt and completion (system: not read)"),
        (
            {"prompt": "2+2?", "completion": "4"},
            "prompt and completion, joined without a chat template as trl does (system: not read)",
        ),
        ({"prompt": TALK[1:2], "chosen": TALK[2:3]}, "preference pairs (chosen) (system: not read)"),
    ],
)
def test_trl_reads_no_system_prompt_beside_its_own_fields(record: dict[str, Any], note: str) -> None:
    record = {"system": "Be a pirate.", **record}
    assert Schema(trained_with="trl").parse(record)[0] == note
    (alone,), (others,) = read(record, "trl"), read(record, "axolotl")
    assert (alone.prompt, alone.metadata) == ("2+2?", {"system": "Be a pirate."})
    assert others.prompt == "System: Be a pirate.\nUser: 2+2?"
    asked = {"system": "Be a pirate.", "question": "2+2?", "answer": "4"}  # trl has no such form
    assert read(asked, "trl")[0].prompt == others.prompt


@pytest.mark.parametrize(
    ("chosen", "rejected", "prompt", "responses"),
    [
        ("The sky is blue.", "The sky is green.", "The sky is", [" blue.", " green."]),
        ("Human: 2+2?\n\nAssistant: 4", "Human: 2+2?\n\nAssistant: 5", "Human: 2+2?\n\nAssistant:", [" 4", " 5"]),
        ("It is 4", "It is 4.", "It is ", ["4", "4."]),
        ("Yes", "No", "", ["Yes", "No"]),
    ],
)
def test_trl_splits_pairs_where_they_differ(chosen: str, rejected: str, prompt: str, responses: list[str]) -> None:
    pair = {"chosen": chosen, "rejected": rejected}
    found = read(pair, "trl", preferences="both")
    assert [(one.prompt, one.response, one.chat) for one in found] == [
        (prompt, one, {"form": "joined"}) for one in responses
    ]
    assert read(pair, "trl")[0].response == responses[0]
    (whole,) = read(pair, "trl", preferences="pairs")
    assert whole.chat == {"form": "joined", "rejected": responses[1]}


def test_a_field_of_messages_that_is_named_is_read_as_the_trainer_reads_it() -> None:
    asked, wrong = TALK[1], {**TALK[2], "loss": False}
    named = {"response_field": "dialog"}
    assert read({"dialog": TALK}, "trl", **named)[0].chat == {"messages": TALK, "learn": "all"}
    assert read({"dialog": json.dumps(TALK)}, "trl", **named)[0].chat == {"messages": TALK, "learn": "all"}
    assert read({"dialog": TALK}, "axolotl", **named)[0].chat == read({"messages": TALK}, "axolotl")[0].chat
    for trainer, count in (("trl", 1), ("llamafactory", 2), ("ms-swift", 1), (None, 1)):
        assert len(read({"dialog": [asked, wrong, *TALK[1:3]]}, trainer, **named)) == count


def test_an_unknown_trainer_is_refused() -> None:
    with pytest.raises(ConfigError, match="^trained_with 'unsloth': expected trl, axolotl,"):
        Schema(trained_with="unsloth")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "record",
    [
        {"prompt": "The sky is", "completion": " blue."},
        {"prompt": "The sky is", "chosen": " blue.", "rejected": " red."},
    ],
)
def test_a_prompt_with_a_completion_is_joined_as_it_stands(record: dict[str, Any]) -> None:
    (example,) = read(record)
    assert (example.prompt, example.response, example.chat) == ("The sky is", " blue.", {"form": "joined"})
    told, *_ = Schema().parse(record)
    assert "joined without a chat template as trl does" in told


@pytest.mark.parametrize(
    ("record", "told"),
    [
        ({"question": "q", "solution": "s", "answer": "a"}, "question and solution (answer: not read)"),
        ({"question": "q", "answer": "a", "rationale": "r"}, "question and answer (rationale: not read)"),
        ({"prompt": "p", "response": "r", "system": "s"}, "prompt and response (system: not read)"),
        ({"messages": TALK[1:3], "question": "q", "answer": "4"}, "messages (answer: not read)"),
        ({"prompt": "p", "response": "r", "history": []}, "prompt and response"),
        ({"messages": TALK[1:3], "article": "a", "thought": "t"}, "messages (article, thought: not read)"),
        ({"messages": TALK[1:3], "text": "a", "passage": ""}, "messages (text: not read)"),
        (
            {"question": "q", "solution": "s", "attempt": "a", "thinking_trajectories": ["t"], "cot_type": "math"},
            "question and solution (attempt, thinking_trajectories: not read)",
        ),
        (
            {"question": "q", "answer": "a", "deepseek_attempt": "b", "r1_solution_2": "c", "Complex_CoT": "d"},
            "question and answer (deepseek_attempt, r1_solution_2, Complex_CoT: not read)",
        ),
        (
            {"problem": "p", "solution": "s", "generations": ["g"], "expected_answer": "e", "answer_type": "int"},
            "problem and solution (generations, expected_answer: not read)",
        ),
        (
            {"prompt": "p", "chosen": "c", "full_chosen": "f", "score_chosen": 5.0, "chosen_model": "m"},
            "preference pairs (chosen), joined without a chat template as trl does (full_chosen: not read)",
        ),
    ],
)
def test_what_looks_like_a_turn_and_is_not_read_is_named(record: dict[str, Any], told: str) -> None:
    assert Schema().parse(record)[0] == told


def test_answers_to_choose_from_are_read_with_the_question() -> None:
    letters = {"question": "Which?", "choices": ["oak", "cat"], "answer": 1}
    assert [(one.prompt, one.response) for one in read(letters)] == [("Which?\nA. oak\nB. cat", "B. cat")]
    named = {"question": "Which?", "choices": {"label": ["1", "2"], "text": ["oak", "cat"]}, "answer": "2"}
    assert [(one.prompt, one.response) for one in read(named)] == [("Which?\n1. oak\n2. cat", "2")]
    lettered = {"question": "Which?", "options": ["A) oak", "B) cat"], "answer": "B"}
    assert read(lettered)[0].prompt == "Which?\nA) oak\nB) cat"


@pytest.mark.parametrize(
    ("columns", "answer", "learnt"),
    [
        (("A", "B", "C", "D"), "B", "B. cat"),
        (("A", "B", "C", "D"), "(c)", "C. 5"),
        (("A", "B", "C", "D"), 1, "B. cat"),
        (("A", "B", "C", "D"), "1", "B. cat"),
        (("A", "B", "C", "D"), "5", "5"),  # an option's own text
        (("A", "B", "C", "D"), "a cat", "a cat"),
        (("option_a", "option_b", "option_c", "option_d"), "b", "B. cat"),
        (("opa", "opb", "opc", "opd"), "D", "D. elm"),
    ],
)
def test_answers_to_choose_from_may_stand_in_columns(columns: tuple[str, ...], answer: object, learnt: str) -> None:
    record = {"question": "Which?", **dict(zip(columns, ("oak", "cat", 5, "elm"), strict=True)), "answer": answer}
    (example,) = read(record)
    assert (example.prompt, example.response) == ("Which?\nA. oak\nB. cat\nC. 5\nD. elm", learnt)
    assert Schema().parse(record)[0] == f"question, {columns[0]} to {columns[-1]} and answer"


def test_numbered_columns_answer_by_their_numbers() -> None:
    record = {"question": "Which?", "choice1": "oak", "choice2": "cat", "answer": 1}
    assert [(one.prompt, one.response) for one in read(record)] == [("Which?\n1. oak\n2. cat", "1. oak")]
    assert read({"question": "q", "answer": "r", "A": "one alone"})[0].prompt == "q"


def test_of_a_tree_each_answer_stands_behind_its_own_path() -> None:
    replies = [
        {"role": "assistant", "text": "Hello.", "replies": [{"role": "prompter", "text": "2+2?", "replies": []}]},
        {"role": "assistant", "text": "Hey!", "replies": []},
    ]
    replies[0]["replies"][0]["replies"] = [{"role": "assistant", "text": "4", "replies": []}]  # type: ignore[index]
    tree = {"message_tree_id": "t", "prompt": {"role": "prompter", "text": "Hi", "replies": replies}}
    pairs = [(one.prompt, one.response) for one in read(tree, turns="all")]
    assert pairs == [("Hi", "Hello."), ("User: Hi\nAssistant: Hello.\nUser: 2+2?", "4"), ("Hi", "Hey!")]
    assert [one.response for one in read(tree)] == ["4", "Hey!"]
    assert (Schema().parse(tree)[2], Schema(turns="all").parse(tree)[2]) == (1, 0)
    with pytest.raises(DataError, match="holds one message of a conversation tree"):
        read({"message_id": "m", "parent_id": None, "text": "Hi", "role": "prompter"})


def test_segments_are_learnt_where_their_label_is_true() -> None:
    segments = [
        {"label": False, "text": "<s>Q: 2+2\n"},
        {"label": True, "text": "4</s>"},
        {"label": False, "text": "Q: 3+3\n"},
        {"label": True, "text": "6</s>"},
    ]
    record = {"segments": segments}
    assert [(one.prompt, one.response, one.chat) for one in read(record)] == [
        ("<s>Q: 2+2\n4</s>Q: 3+3\n", "6</s>", {"form": "bare"})
    ]
    assert [one.response for one in read(record, turns="all")] == ["4</s>", "6</s>"]
    assert (Schema().parse(record)[2], Schema(turns="all").parse(record)[2]) == (1, 0)
    with pytest.raises(DataError, match="no segment has .label.: true"):
        read({"segments": segments[:1]})


REJECTED = [
    {"messages": TALK[:3], "rejected_response": "5"},
    {"messages": TALK[:3], "rejected_messages": [*TALK[:2], {"role": "assistant", "content": "5"}]},
    {
        "input": {"messages": TALK[:2]},
        "preferred_output": TALK[2:3],
        "non_preferred_output": [{"role": "assistant", "content": "5"}],
    },
]


@pytest.mark.parametrize("record", REJECTED)
def test_rejected_answers_stand_beside_the_chosen_ones(record: dict[str, Any]) -> None:
    asked = "System: Be brief.\nUser: 2+2?"
    both = read(record, preferences="both")
    assert [(one.prompt, one.response) for one in both] == [(asked, "4"), (asked, "5")]
    assert [one.metadata["preference"] for one in both] == ["chosen", "rejected"]
    assert [(one.prompt, one.response) for one in read(record)] == [(asked, "4")]


@pytest.mark.parametrize(
    "record",
    [
        {"messages": TALK[:3], "label": False},
        {"messages": TALK[:3], "kto_tag": 0},
        {"conversations": TALK[:3], "kto_tag": "false"},
        {**ALPACA, "kto_tag": False},
        {**ALPACA, "label": 0},
        {"prompt": "a", "completion": "b", "label": False},
        {"prompt": "a", "completion": "b", "label": "False"},
        {"prompt": TALK[1:2], "completion": TALK[2:3], "label": False},
    ],
)
def test_answers_to_avoid_are_told_in_every_form(record: dict[str, Any]) -> None:
    assert "false (in KTO data an answer to avoid" in Schema().parse(record)[0]
    good = {name: True if name in ("label", "kto_tag") else value for name, value in record.items()}
    assert "KTO" not in Schema().parse(good)[0]
    if "completion" in record:
        assert [read(one)[0].label for one in (good, {**good, "label": False})] == ["true", "false"]


def test_a_system_prompt_may_be_blocks_and_stand_beside_any_pair() -> None:
    blocks = [{"type": "text", "text": "Be a pirate."}]
    for system in ("Be a pirate.", blocks, [{"text": "Be a pirate."}]):
        for pair in ({"input": "Hi", "output": "Arr"}, {"inputs": "Hi", "targets": "Arr"}):
            assert read({**pair, "system": system})[0].prompt == "System: Be a pirate.\nUser: Hi"
        asked, answered = [{"role": "user", "content": "Hi"}], [{"role": "assistant", "content": "Arr"}]
        assert read({"messages": asked + answered, "system": system})[0].prompt == "System: Be a pirate.\nUser: Hi"
        assert read({"input": asked, "output": "Arr", "system_prompt": system})[0].prompt.startswith("System: Be a")


def test_histories_and_tools_may_be_json_in_a_cell() -> None:
    history = {"instruction": "3+3?", "output": "6", "history": '[["2+2?", "4"]]'}
    assert read(history)[0].prompt == "User: 2+2?\nAssistant: 4\nUser: 3+3?"
    assert read({**history, "history": "[]"})[0].prompt == read({**history, "history": ""})[0].prompt == "3+3?"
    tools = {"messages": TALK[1:3], "tools": '[{"name": "f"}]'}
    (example,) = read(tools)
    assert example.chat == {"messages": TALK[1:3], "tools": [{"name": "f"}]}
    for none in ("[]", "null", " ", None):
        assert read({**tools, "tools": none})[0].chat is None


def test_cells_of_a_table_may_hold_messages_as_json() -> None:
    asked, good, bad = (
        json.dumps([{"role": r, "content": c}]) for r, c in (("user", "a"), ("assistant", "b"), ("assistant", "c"))
    )
    assert [(one.prompt, one.response, one.chat) for one in read({"prompt": asked, "completion": good})] == [
        ("a", "b", None)
    ]
    pair = {"prompt": asked, "chosen": good, "rejected": bad}
    assert [(one.prompt, one.response) for one in read(pair, preferences="both")] == [("a", "b"), ("a", "c")]
    assert read({"chosen": json.dumps(TALK[:3]), "rejected": json.dumps(TALK[:3])})[0].response == "4"
    (written,) = read({"prompt": asked, "response": good})  # as airrep writes a text that happens to be JSON
    assert (written.prompt, written.response) == (asked, good)
    assert read({"question": "Which?", "choices": '["oak", "cat"]', "answer": "1"})[0].response == "B. cat"


def test_marks_are_heeded_as_the_trainer_heeds_them() -> None:
    def answers(trainer: str | None, **mark: Any) -> list[str]:
        record = {"messages": [TALK[1], {**TALK[2], **mark}, *TALK[3:]]}
        return [one.response for one in read(record, trainer, turns="all")]

    for mark in ({"weight": 0}, {"train": False}, {"loss": False}):
        assert answers(None, **mark) == answers("axolotl", **mark) == ["6"]
        assert answers("llamafactory", **mark) == answers("open-instruct", **mark) == ["4", "6"]
        assert read({"messages": [TALK[1], {**TALK[2], **mark}]}, "trl")[0].response == "4"
    assert answers("ms-swift", loss=False) == ["6"]
    assert answers("ms-swift", weight=0) == ["4", "6"]


def test_all_of_a_completion_is_learnt() -> None:
    (example,) = read({"prompt": TALK[:2], "completion": TALK[2:]})
    assert (example.response, example.chat) == ("6", {"messages": TALK, "asked": 2})
    assert [one.response for one in read({"prompt": TALK[:2], "completion": TALK[2:]}, turns="all")] == ["4", "6"]
    forms = [Schema().parse({"prompt": TALK[:2], "completion": TALK[2:stop]})[0] for stop in (5, 3)]
    assert forms == [f"prompt and completion{JOINT}", "prompt and completion"]


def test_parts_of_other_names_reach_the_template_as_what_they_are() -> None:
    use = {"name": "f", "input": {"x": 1}}
    for part, result in (
        ({"type": "tool_use", **use}, {"type": "tool_result", "content": "r"}),
        ({"toolUse": use}, {"toolResult": {"content": [{"text": "r"}]}}),
    ):
        answer = {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": "th"}, {"type": "text", "text": "a"}, part],
        }
        said = [TALK[1], answer, {"role": "user", "content": [result]}, TALK[4]]
        (example,) = read({"messages": said})
        assert example.chat == {
            "messages": [
                TALK[1],
                {
                    "role": "assistant",
                    "content": "a",
                    "reasoning_content": "th",
                    "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}],
                },
                {"role": "tool", "content": "r"},
                TALK[4],
            ]
        }
