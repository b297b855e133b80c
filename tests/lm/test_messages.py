"""Conversations as their records have them: what the LM's own template writes, and what of it is learnt."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from worlds.double_lms import listed
from worlds.tiny_lms import VOCABULARY, tiny_tokenizer

from airrep.corpus.corpus import Corpus, Example
from airrep.corpus.inputs import as_examples
from airrep.errors import ConfigError, DataError
from airrep.lm.chat import Chat

TEMPLATE = (
    "{% if tools %}[{% for t in tools %}{{ t.name }}{% endfor %}]{% endif %}{% for m in messages %}<{{ m.role }}>"
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content or '' }}"
    "{% for c in m.tool_calls or [] %}@{{ c.function.name }}({{ c.function.arguments | tojson }}){% endfor %}</s>\n"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% if think %}<think>{% endif %}{% endif %}"
)
ASK, ANSWER = {"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}


def make(template: str | None = TEMPLATE, setting: str | None = None, begins: bool = False, **how: Any) -> Chat:
    tokenizer = tiny_tokenizer(chat=template, begins=begins)
    return Chat(tokenizer, "tiny", how.pop("max_tokens", 512), VOCABULARY, setting, **how)


def example(*messages: dict[str, Any], trained_with: Any = None, **record: Any) -> Example:
    return Corpus.from_records([{"messages": list(messages), **record}], trained_with=trained_with)[0]


def texts(chat: Chat, one: Example) -> tuple[str, str]:
    """What is read and what is learnt."""
    documents = chat.tokenise([one])
    placed, places = chat.tokenise_with_places([one])
    ids, start = documents.sequence(0), int(documents.starts[0])
    assert placed.sequence(0).tolist() == ids.tolist()
    assert len(places[0].starts) == len(ids) - start
    return chat.tokenizer.decode(ids[:start]), chat.tokenizer.decode(ids[start:])


def test_thoughts_go_to_the_template_apart_from_the_answer() -> None:
    one = example(ASK, {**ANSWER, "reasoning_content": "I add."})
    assert one.response == "I add.\n4"
    assert texts(make(), one) == ("<user>2+2?</s>\n<assistant>", "<think>I add.</think>4</s>\n")


def test_thoughts_that_the_prompt_opens_are_read_once() -> None:
    one = example(ASK, {**ANSWER, "reasoning_content": "I add."}, chat_template_kwargs={"think": True})
    assert texts(make(), one) == ("<user>2+2?</s>\n<assistant><think>", "I add.</think>4</s>\n")


def test_calls_and_tools_are_objects_with_all_that_they_hold() -> None:
    arguments = {"city": "Ulm", "days": None, "over": 1e5}
    call = {"type": "function", "function": {"name": "aqi", "arguments": arguments}}
    one = example(ASK, {"role": "assistant", "content": "", "tool_calls": [call]}, tools=[{"name": "aqi"}])
    read, learnt = texts(make(), one)
    assert read == "[aqi]<user>2+2?</s>\n<assistant>"
    assert learnt == f"@aqi({json.dumps(arguments)})</s>\n"


def test_arguments_that_are_text_stay_as_they_are_written() -> None:
    call = {"function": {"name": "aqi", "arguments": '{"over": 1e5, "by": 1.10, "days": null}'}}
    one = example(ASK, {"role": "assistant", "tool_calls": [call]})
    assert one.response == '{"name": "aqi", "arguments": {"over": 1e5, "by": 1.10, "days": null}}'


def test_places_of_an_answer_whose_parts_the_template_moves_apart() -> None:
    one = example(ASK, {**ANSWER, "reasoning_content": "I add."})
    _, (places,) = make().tokenise_with_places([one])
    shown = [one.response[a:b] for a, b in zip(places.starts, places.stops, strict=True)]
    assert "".join(shown) == "I add.4"
    assert shown[0] == ""  # of the sign that opens the thoughts


def test_a_role_is_written_as_it_stands_or_under_its_usual_name_or_refused() -> None:
    known = TEMPLATE.replace(
        "<{{ m.role }}>", "{% if m.role not in KNOWN %}{{ raise_exception('role') }}{% endif %}<{{ m.role }}>"
    )
    one = example({"role": "developer", "content": "Rhyme."}, ASK, ANSWER)
    assert texts(make(), one)[0].startswith("<developer>Rhyme.</s>")
    usual = make(known.replace("KNOWN", "('system', 'user', 'assistant')"))
    assert texts(usual, one)[0].startswith("<system>Rhyme.</s>")
    silent = TEMPLATE.replace(
        "{{ m.content or '' }}", "{% if m.role in ('user', 'assistant') %}{{ m.content }}{% endif %}"
    )
    for refusing in (make(known.replace("KNOWN", "('user', 'assistant')")), make(silent)):
        with pytest.raises(DataError, match="does not write messages with the role 'developer'"):
            refusing.tokenise([one])


def test_messages_that_the_template_refuses_are_never_the_users_text() -> None:
    refusing = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + TEMPLATE
    one = example({"role": "system", "content": "Rhyme."}, ASK, ANSWER)
    with pytest.raises(DataError, match=r'^example "[0-9a-f]+": the LM cannot read its messages \(system, user, assis'):
        make(refusing).tokenise([one])
    assert texts(make(refusing), example(ASK, ANSWER, ASK, ANSWER))[1] == "4</s>\n"


def test_arguments_of_the_template_are_its_variables_alone() -> None:
    for name in ("tokenize", "chat_template", "add_generation_prompt"):
        with pytest.raises(DataError, match=f"its chat_template_kwargs set {name}"):
            make().tokenise([example(ASK, ANSWER, chat_template_kwargs={name: True})])


def test_an_empty_system_prompt_is_one() -> None:
    assert texts(make(), example({"role": "system", "content": ""}, ASK, ANSWER))[0].startswith("<system></s>\n<user>")


def completion(prompt: str, response: str) -> Example:
    return Corpus.from_records([{"prompt": prompt, "completion": response}])[0]


@pytest.mark.parametrize("template", [None, TEMPLATE])
def test_a_prompt_with_a_completion_has_no_template_unless_it_is_asked_for(template: str | None) -> None:
    one = completion("The sky is", " blue.")
    for setting in (None, "plain"):
        assert texts(make(template, setting, begins=True), one) == ("<s>The sky is", " blue.</s>")
    assert texts(make(template, "{prompt}: {response}", begins=True), one) == ("<s>The sky is:", "  blue.</s>")
    assert texts(make(TEMPLATE, "chat"), one) == ("<user>The sky is</s>\n<assistant>", " blue.</s>\n")


@pytest.mark.parametrize("begins", [True, False])
def test_a_text_with_a_begin_and_an_end_of_its_own_gets_no_second_one(begins: bool) -> None:
    begin = "<s>" if begins else ""
    text = Corpus.from_records([{"text": "<s>[INST] 2+2? [/INST] 4</s>"}])[0]
    assert texts(make(begins=begins), text) == ("<s>", "[INST] 2+2? [/INST] 4</s>")
    assert texts(make(begins=begins), completion("2+2?", "4</s>")) == (f"{begin}2+2?", "4</s>")
    plain = Corpus.from_records([{"prompt": "2+2?", "response": "4</s>"}])[0]
    assert texts(make(None, begins=begins), plain) == (f"{begin}Question: 2+2?\nAnswer:", " 4</s>")
    bare = Corpus.from_records([{"segments": [{"label": False, "text": "2+2?"}, {"label": True, "text": "4"}]}])[0]
    assert texts(make(begins=begins), bare) == ("2+2?", "4")


def test_what_of_a_conversation_is_learnt_is_what_the_trainer_learns() -> None:
    said = (ASK, {**ANSWER, "reasoning_content": "I add."})
    whole = "user>2+2?</s>\n<assistant><think>I add.</think>4</s>\n"
    assert texts(make(), example(*said, trained_with="trl")) == ("<", whole)
    thinking = TEMPLATE.replace("{{ m.content or '' }}", "{% if m.role == 'assistant' %}::{% endif %}{{ m.content }}")
    parts = texts(make(thinking), example(ASK, ANSWER, trained_with="axolotl"))
    assert parts == ("<user>2+2?</s>\n<assistant>::", "4</s>")
    assert texts(make(thinking), example(ASK, ANSWER, trained_with="llamafactory"))[1] == "::4</s>\n"
    ends_otherwise = thinking.replace("</s>", "[end]")
    assert texts(make(ends_otherwise), example(ASK, ANSWER, trained_with="axolotl"))[1] == "4"


def test_of_a_query_only_the_answer_is_learnt_and_an_answer_that_is_cut_off_is_refused() -> None:
    row = example({"role": "user", "content": "ask " * 20}, ANSWER, trained_with="trl")
    short = make(max_tokens=60, cut="end")
    assert len(short.tokenise([row]).sequence(0)) == 60  # trl learns what is left of a row
    assert texts(make(), as_examples(row)[0])[1] == "4</s>\n"
    with pytest.raises(DataError, match=r"its response starts at token \d+, but cut=end keeps only the first 60"):
        short.tokenise(as_examples(row))


def test_an_answer_of_which_a_template_writes_no_word_is_refused_where_words_alone_are_learnt() -> None:
    without = TEMPLATE.replace("m.tool_calls or []", "[]")
    call = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "aqi", "arguments": {}}}]}
    with pytest.raises(DataError, match="does not write the response, so there is nothing to learn"):
        make(without).tokenise([example(ASK, call, trained_with="axolotl")])


def test_what_is_generated_from_is_the_prompt_whatever_is_learnt() -> None:
    wanted = make().prompt_ids([example(ASK, ANSWER)], 64)
    for trainer in ("trl", "axolotl"):
        assert make().prompt_ids([example(ASK, ANSWER, trained_with=trainer)], 64) == wanted


@pytest.mark.parametrize(("asked", "answered"), [(90, 9), (9, 90), (60, 70)])
def test_the_ends_of_prompt_and_answer_are_cut_by_their_shares(asked: int, answered: int) -> None:
    long = Example("a" * asked, "b" * answered, "long")
    (whole,), (start,) = ([*one] for one in zip(*listed(make(max_tokens=400).tokenise([long])), strict=True))
    ((ids, first),) = listed(make(max_tokens=80, cut="shares").tokenise([long]))
    rest = len(whole) - start
    kept = rest if 2 * rest < 80 else 80 - start if 2 * start < 80 else int(80 * rest / len(whole))
    assert (list(ids), first) == ([*whole[: 80 - kept], *whole[start : start + kept]], 80 - kept)
    ((same, _),) = listed(make(max_tokens=len(whole), cut="shares").tokenise([long]))
    assert list(same) == list(whole)


def test_long_rows_are_cut_as_the_trainer_cuts_them() -> None:
    long = example({"role": "user", "content": "ask " * 9}, {"role": "assistant", "content": "answer " * 9})
    whole = make().tokenise([long]).sequence(0).tolist()
    cut = make(max_tokens=70, cut="end").tokenise([long])
    assert cut.sequence(0).tolist() == whole[:70]
    assert int(cut.starts[0]) == int(make().tokenise([long]).starts[0])
    told = r"its response starts at token \d+, but cut=end keeps only the first 40 tokens"
    with pytest.raises(DataError, match=told):
        make(max_tokens=40, cut="end").tokenise([long])
    with pytest.raises(DataError, match="cut=drop refuses examples longer than max_tokens=70"):
        make(max_tokens=70, cut="drop").tokenise([long])
    assert make(max_tokens=len(whole), cut="drop").tokenise([long]).sequence(0).tolist() == whole


def test_chats_are_kept_by_files_tables_and_fingerprints(tmp_path: Path) -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": {"b": 1, "a": None}}}
    one = example(ASK, {"role": "assistant", "content": "", "tool_calls": [call]}, tools=[{"name": "f"}])
    corpus = Corpus.from_examples([one, Example("a", "b")])
    corpus.to_jsonl(tmp_path / "c.jsonl")
    from airrep import read_corpus

    again = read_corpus(tmp_path / "c.jsonl")
    assert again == corpus
    assert again[0].chat == one.chat
    assert list(again[0].chat["messages"][1]["tool_calls"][0]["function"]["arguments"]) == ["b", "a"]  # type: ignore[index]
    assert Corpus.from_table(corpus.table) == corpus
    bare = Corpus.from_examples([Example(one.prompt, one.response, one.id), Example("a", "b")])
    assert bare.fingerprint != corpus.fingerprint
    assert Corpus(bare.table.drop_columns(["chat", "place"])).fingerprint == bare.fingerprint  # of an earlier version


def test_a_conversation_that_is_all_in_its_texts_has_the_fingerprint_that_it_always_had() -> None:
    one = example({"role": "system", "content": "s"}, ASK, ANSWER)
    assert one.chat == {"form": "messages"}
    corpus, before = (Corpus.from_examples([replace(one, chat=chat)]) for chat in (one.chat, None))
    assert corpus.fingerprint == before.fingerprint
    assert make().render(one) == make().render(before[0])


def test_a_chat_that_is_none_is_refused() -> None:
    for chat in ({"messages": []}, {"form": "other"}, {"messages": [{"content": "a"}]}, {"other": 1}):
        with pytest.raises(DataError, match="the field chat must"):
            Corpus.from_examples([Example("a", "b", chat=chat)])
    (read,) = Corpus.from_records([{"prompt": "a", "response": "b", "chat": {"room": 4}}])
    assert (read.chat, read.metadata) == (None, {"chat": {"room": 4}})


def test_a_template_that_always_fails_is_the_lms_fault() -> None:
    with pytest.raises(ConfigError, match="^lm tiny: its chat template fails"):
        make("{{ raise_exception('never') }}").tokenise([example({"role": "system", "content": "s"}, ASK, ANSWER)])


def test_all_of_a_completion_is_learnt_by_the_lm() -> None:
    (one,) = Corpus.from_records(
        [{"prompt": [ASK], "completion": [ANSWER, {**ASK, "content": "3+3?"}, {**ANSWER, "content": "6"}]}]
    )
    assert texts(make(), one) == ("<user>2+2?</s>\n<assistant>", "4</s>\n<user>3+3?</s>\n<assistant>6</s>\n")


def test_a_call_or_parts_that_the_template_leaves_out_are_told() -> None:
    silent = TEMPLATE.replace("{% for c in m.tool_calls or [] %}", "{% for c in [] %}")
    call = {"type": "function", "function": {"name": "f", "arguments": {}}}
    with pytest.raises(DataError, match="does not write the response"):
        make(silent).tokenise([example(ASK, {"role": "assistant", "content": "", "tool_calls": [call]})])
    no_parts = TEMPLATE.replace("{{ m.content or '' }}", "{{ m.content if m.content is string else '' }}")
    with pytest.raises(DataError, match="does not write the response"):
        make(no_parts).tokenise([example(ASK, {"role": "assistant", "content": [{"type": "text", "text": "4"}]})])
