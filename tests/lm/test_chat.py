"""Examples become the tokens that the LM reads; responses are never cut."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds.tiny_lms import CHAT, VOCABULARY, some_examples, tiny_tokenizer

from airrep.corpus.corpus import Corpus, Example
from airrep.errors import ConfigError, DataError
from airrep.lm.chat import PLAIN, Chat, Rendered, shortest

ASKED = Example("why", "so it is", "one")


def make(
    tokenizer: Any = None, max_tokens: int = 64, template: str | None = None, vocabulary: int = VOCABULARY
) -> Chat:
    """Rendering for a tokenizer of bytes."""
    return Chat(tokenizer or tiny_tokenizer(), "tiny", max_tokens, vocabulary, template)


def texts(chat: Chat, example: Example = ASKED) -> tuple[str, str]:
    """What is read and what is learnt, decoded."""
    documents = chat.tokenise([example])
    ids, start = documents.sequence(0), int(documents.starts[0])
    return chat.tokenizer.decode(ids[:start]), chat.tokenizer.decode(ids[start:])


def test_without_a_chat_template_the_text_is_plain_and_ends() -> None:
    assert PLAIN == "Question: {prompt}\nAnswer: {response}"
    assert texts(make()) == ("<s>Question: why\nAnswer:", " so it is</s>")
    assert texts(make(tiny_tokenizer(begins=False))) == ("Question: why\nAnswer:", " so it is</s>")


def test_a_template_of_ones_own_is_taken() -> None:
    assert texts(make(template="{prompt}? {response}!")) == ("<s>why?", " so it is!</s>")
    tokenizer = tiny_tokenizer(chat=CHAT)
    assert texts(make(tokenizer, template="plain")) == ("<s>Question: why\nAnswer:", " so it is</s>")


def test_braces_in_a_prompt_are_text() -> None:
    example = Example("{response} {prompt} {", "{prompt}", "one")
    assert texts(make(), example) == ("<s>Question: {response} {prompt} {\nAnswer:", " {prompt}</s>")


def test_a_chat_template_is_used_and_begins_the_text_once() -> None:
    chat = make(tiny_tokenizer(chat=CHAT))
    assert texts(chat) == ("<s><|user|>why</s><|assistant|>", "so it is</s>")
    assert (
        chat.prompt_ids([ASKED], 64)[0]
        == chat.tokenise([ASKED]).sequence(0)[: chat.tokenise([ASKED]).starts[0]].tolist()
    )


def test_what_comes_before_the_response_is_what_generation_sees() -> None:
    for chat in (make(), make(tiny_tokenizer(chat=CHAT))):
        documents = chat.tokenise(some_examples())
        prompts = chat.prompt_ids(some_examples(), 64)
        for row, prompt in enumerate(prompts):
            assert documents.sequence(row)[: documents.starts[row]].tolist() == prompt


TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "2+2?\n\nAs a word."},
    {"role": "assistant", "content": "Four"},
    {"role": "user", "content": "And 3+3?"},
]
ROLES = "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}{% endfor %}"
ROLES += "{% if add_generation_prompt %}<|assistant|>{% endif %}"
SILENT = ROLES.replace("<|{{", "{% if m['role'] != 'system' %}<|{{").replace("{% endfor", "{% endif %}{% endfor")
AS_TEXT = "<|user|>System: Be brief.\nUser: 2+2?\n\nAs a word.\nAssistant: Four\nUser: And 3+3?<|assistant|>"


def talk(messages: list[dict[str, str]]) -> Example:
    """The example that data with these messages have."""
    return Corpus.from_records([{"messages": [*messages, {"role": "assistant", "content": "Six"}]}])[0]


def typed(messages: list[dict[str, str]]) -> Example:
    """The same example as a prompt and a response that somebody typed, or that a file of an earlier version has."""
    return Example(talk(messages).prompt, "Six")


def prompt_text(chat: Chat, prompt: str) -> str:
    """What is read before a prompt's answer."""
    return chat.render(Example(prompt, "Six")).prompt


def test_a_prompt_of_several_messages_is_given_to_the_template_as_they_were() -> None:
    tokenizer = tiny_tokenizer(chat=ROLES)
    chat, example = make(tokenizer, max_tokens=512), talk(TALK)
    wanted = tokenizer.apply_chat_template(TALK, tokenize=False, add_generation_prompt=True)
    assert chat.render(example) == chat.render(typed(TALK)) == Rendered(wanted, wanted + "Six")
    assert wanted == "<|system|>Be brief.<|user|>2+2?\n\nAs a word.<|assistant|>Four<|user|>And 3+3?<|assistant|>"
    assert chat.tokenise_with_places([example])[1][0].starts.tolist() == [0, 1, 2]


@pytest.mark.parametrize("template", [None, ROLES])
def test_places_stand_beside_the_very_tokens_and_each_example_is_rendered_once(template, monkeypatch) -> None:
    chat = make(tiny_tokenizer(chat=template), max_tokens=512)
    examples = [Example(f"ask {n}" if n % 3 else "", f" answer {n} ", id=str(n)) for n in range(150)]
    wanted, rendered = chat.tokenise(examples), []
    monkeypatch.setattr(Chat, "render", lambda self, one, plain=Chat.render: rendered.append(one) or plain(self, one))
    documents, places = chat.tokenise_with_places(examples)
    assert rendered == examples
    for row, (example, own) in enumerate(zip(examples, places, strict=True)):
        ids = documents.sequence(row)
        assert ids.tolist() == wanted.sequence(row).tolist()
        assert len(own.starts) == len(own.stops) == len(ids) - documents.starts[row]
        letters = [example.response[start:stop] for start, stop in zip(own.starts, own.stops, strict=True)]
        assert "".join(letters).strip() == example.response.strip()


@pytest.mark.parametrize(
    "template",
    [
        "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}" + ROLES,
        SILENT,
        SILENT.replace(
            "{{ m['content']",
            "{% if loop.last and m['role'] == 'user' and messages[0]['role'] == 'system' %}{{ messages[0]['content'] }}"
            "{% endif %}{{ m['content']",
        ),
    ],
    ids=["refuses", "leaves out", "writes it only where no answer follows"],
)
def test_where_a_template_does_not_take_such_messages_they_stay_one_text(template: str) -> None:
    chat = make(tiny_tokenizer(chat=template), max_tokens=512)
    assert chat.render(typed(TALK)) == Rendered(AS_TEXT, AS_TEXT + "Six")
    assert chat.render(typed(TALK[1:])).prompt.startswith("<|user|>2+2?\n\nAs a word.<|assistant|>Four<|user|>")


def test_a_template_that_refuses_an_empty_message_gets_one_text() -> None:
    strict = ROLES.replace("<|{{", "{% if not m['content'] %}{{ raise_exception('empty') }}{% endif %}<|{{")
    chat = make(tiny_tokenizer(chat=strict), 512)
    said = [("user", "a"), ("assistant", "b"), ("tool", ""), ("user", "c")]
    empty = typed([{"role": role, "content": content} for role, content in said])
    assert chat.render(empty).prompt == f"<|user|>{empty.prompt}<|assistant|>"
    full = talk([{"role": role, "content": content or "d"} for role, content in said])
    assert "<|tool|>d<|user|>c" in chat.render(full).prompt


def test_chats_of_any_length_are_tried_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    chat, tried = make(tiny_tokenizer(chat=ROLES), max_tokens=512), []
    takes = chat._takes
    monkeypatch.setattr(chat, "_takes", lambda form: tried.append(form) or takes(form))
    record = {"messages": [{"role": role, "content": "a"} for _ in range(30) for role in ("user", "assistant")]}
    corpus = Corpus.from_records([record], turns="all")
    prompts = [prompt_text(chat, example.prompt) for example in corpus]
    assert prompts == [chat.render(example).prompt for example in corpus]
    assert prompts == ["<|user|>a" + "<|assistant|>a<|user|>a" * turn + "<|assistant|>" for turn in range(30)]
    assert [len(form) for form in tried] == [3]


def test_what_is_kept_of_forms_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airrep.lm.chat._FORMS", 2)
    chat = make(tiny_tokenizer(chat=ROLES), max_tokens=512)
    for roles in (["tool"], ["assistant"], ["user"], ["tool", "tool"]):
        prompt = talk([{"role": role, "content": "a"} for role in ("user", *roles, "user")]).prompt
        assert (
            prompt_text(chat, prompt) == f"<|user|>a{''.join(f'<|{role}|>a' for role in roles)}<|user|>a<|assistant|>"
        )
        assert len(chat._taken) <= 2


@given(st.lists(st.tuples(st.sampled_from(["system", "user", "assistant", "tool"]), st.booleans()), min_size=1))
def test_a_shortest_form_has_the_ends_and_the_steps_of_the_whole(form: list[tuple[str, bool]]) -> None:
    short = shortest(tuple(form))
    assert (short[0], short[-1], set(pairwise(short))) == (form[0], form[-1], set(pairwise(form)))
    assert shortest(short) == short
    assert len(short) <= len(form)


def test_long_chats_that_a_template_refuses_stay_one_text() -> None:
    refuses = "{% if loop.index0 and messages[loop.index0 - 1]['role'] == m['role'] %}{{ raise_exception('twice') }}"
    chat = make(tiny_tokenizer(chat=ROLES.replace("<|{{", refuses + "{% endif %}<|{{")), max_tokens=512)
    turn = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    taken, refused = typed([*turn * 9, turn[0]]), typed([*turn * 5, turn[0], *turn * 4, turn[0]])
    assert chat.render(taken).prompt == "<|user|>a<|assistant|>b" * 9 + "<|user|>a<|assistant|>"
    assert chat.render(refused).prompt == f"<|user|>{refused.prompt}<|assistant|>"


def test_prompts_that_are_no_messages_stay_as_they_are() -> None:
    chat = make(tiny_tokenizer(chat=ROLES), max_tokens=512)
    for prompt in ("User: alone", "See\nUser: a\nAssistant: b", "User: a\nAssistant: b", "System: a"):
        assert prompt_text(chat, prompt) == f"<|user|>{prompt}<|assistant|>"
    plain = make(max_tokens=512)
    assert plain.render(talk(TALK)).prompt == PLAIN.partition(" {response}")[0].format(prompt=talk(TALK).prompt)


def test_a_generation_prompt_that_the_full_text_lacks_is_no_obstacle() -> None:
    thinking = CHAT.replace("<|assistant|>{% endif %}", "<|assistant|><think>{% endif %}")
    assert texts(make(tiny_tokenizer(chat=thinking))) == ("<s><|user|>why</s><|assistant|>", "so it is</s>")


def test_a_response_that_looks_like_the_template_is_found_all_the_same() -> None:
    thinking = CHAT.replace("<|assistant|>{% endif %}", "<|assistant|><think>{% endif %}")
    chat = make(tiny_tokenizer(chat=thinking))
    assert texts(chat, Example("s", "s", "one")) == ("<s><|user|>s</s><|assistant|>", "s</s>")


def test_a_chat_template_that_leaves_the_response_out_is_an_error() -> None:
    silent = CHAT.replace("{{ m['content'] | trim }}", "{% if m['role'] == 'user' %}{{ m['content'] }}{% endif %}")
    with pytest.raises(DataError, match=r'^example "one": the chat template of tiny does not write the response'):
        make(tiny_tokenizer(chat=silent)).tokenise([ASKED])


def test_a_chat_template_that_fails_is_an_error_of_one_line() -> None:
    for broken in ("{{ raise_exception('no\nuser') }}", "{% for %}", "{{ messages + 1 }}"):
        with pytest.raises(ConfigError, match="^lm tiny: its chat template fails:") as caught:
            make(tiny_tokenizer(chat=broken)).tokenise([ASKED])
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("date", ["strftime_now('%d %b %Y')", "strftime_now('%Y-%m-%d')", "date_string"])
def test_a_chat_template_with_a_date_gives_the_same_tokens_every_day(date: str) -> None:
    own = "{% if date_string is not defined %}{% set date_string = '26 Jul 2024' %}{% endif %}"  # as Llama 3.1's
    chat = make(tiny_tokenizer(chat=own + "{{ " + date + " }}" + CHAT))
    days = {"date_string": "26 Jul 2024", "strftime_now('%Y-%m-%d')": "2025-01-01"}
    assert texts(chat)[0] == days.get(date, "01 Jan 2025") + "<s><|user|>why</s><|assistant|>"


def test_a_token_across_the_border_is_learnt_whole() -> None:
    tokenizer = tiny_tokenizer(begins=False)
    tokenizer.add_tokens(["yes"])
    assert len(tokenizer("yes")["input_ids"]) == 1
    chat = make(tokenizer, template="{prompt}{response}")
    assert texts(chat, Example("oh ye", "s", "one")) == ("oh ", "yes</s>")
    assert texts(chat, Example("ye", "s", "one")) == ("yes", "</s>")  # nothing comes before the first token
    assert chat.tokenise_with_places([Example("oh ye", "s", "one")])[1][0].starts.tolist() == [0, 1]


def test_prompts_are_cut_at_their_front_and_responses_never() -> None:
    example = Example("abcdefghij" * 20, "so it is", "one")
    prompt, response = texts(make(max_tokens=32), example)
    assert response == " so it is</s>"
    assert prompt == "<s>" + ("Question: " + example.prompt + "\nAnswer:")[-21:]
    assert len(make(max_tokens=32).tokenise([example]).sequence(0)) == 32
    begun = make(tiny_tokenizer(chat=CHAT), max_tokens=40)
    assert texts(begun, example)[0].startswith("<s>")
    assert texts(begun, example)[1] == "so it is</s>"
    assert len(begun.prompt_ids([example], 20)[0]) == 20


def test_a_response_that_fits_with_one_token_before_it_is_kept_whole() -> None:
    example = Example("why", "x" * 29, "one")
    assert texts(make(max_tokens=32), example) == (":", " " + "x" * 29 + "</s>")


def test_a_response_too_long_by_itself_names_the_example() -> None:
    with pytest.raises(DataError) as caught:
        make(max_tokens=32).tokenise([ASKED, Example("why", "x" * 30, "long")])
    assert str(caught.value) == (
        'example "long": its response has 32 tokens, but max_tokens=32 leaves room for 31, since one token must come '
        "before the response. Raise max_tokens if the LM reads more, shorten the response, or leave the example out."
    )


@pytest.mark.parametrize("response", ["", " \n"])
def test_an_empty_response_names_the_example(response: str) -> None:
    with pytest.raises(DataError, match='^example "none": its response is empty'):
        make().tokenise([ASKED, Example("why", response, "none")])


def test_a_response_needs_something_before_it() -> None:
    tokenizer = tiny_tokenizer(begins=False)
    tokenizer.bos_token = tokenizer.eos_token = None
    chat = make(tokenizer)
    with pytest.raises(DataError, match='^example "one": nothing comes before its response'):
        chat.tokenise([Example("", "a", "one")])


def test_neither_a_pad_token_nor_an_end_token_is_needed() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.eos_token = None
    assert tokenizer.pad_token_id is None
    assert texts(make(tokenizer)) == ("<s>Question: why\nAnswer:", " so it is")


def test_a_tokenizer_with_more_tokens_than_the_lm_is_refused() -> None:
    told = r"^lm tiny: its tokenizer gives token id \d+, but the LM has only 50 embeddings"
    with pytest.raises(ConfigError, match=told):
        make(vocabulary=50).tokenise([ASKED])


def test_a_token_that_ends_or_begins_texts_needs_an_embedding() -> None:
    for vocabulary, token in ((2, 2), (1, 2)):
        with pytest.raises(ConfigError, match=f"^lm tiny: its tokenizer gives token id {token}, but"):
            make(vocabulary=vocabulary)
    without_end = tiny_tokenizer()
    without_end.eos_token = None
    with pytest.raises(ConfigError, match="^lm tiny: its tokenizer gives token id 1, but the LM has only 1 embed"):
        make(without_end, vocabulary=1)


TEXT = Example("", "so it is", "one")


@pytest.mark.parametrize("chat", [None, CHAT])
def test_a_text_without_a_prompt_is_read_without_a_template(chat: str | None) -> None:
    made = make(tiny_tokenizer(chat=chat))
    assert texts(made, TEXT) == ("<s>", "so it is</s>")
    assert made.prompt_ids([TEXT, ASKED], 64)[0] == made.tokenise([TEXT]).sequence(0)[:1].tolist()


def test_all_tokens_of_a_text_are_learnt_but_the_first_of_a_tokenizer_without_a_beginning() -> None:
    tokenizer = tiny_tokenizer(begins=False)
    tokenizer.bos_token = tokenizer.eos_token = None
    assert texts(make(tokenizer), TEXT) == ("s", "o it is")
    tokenizer = tiny_tokenizer(begins=False)
    tokenizer.bos_token = None
    assert texts(make(tokenizer), TEXT) == ("s", "o it is</s>")
    assert make(tokenizer).prompt_ids([TEXT], 64) == [[2]]


LOOPS = "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}"
ENDS = "{% endfor %}" * 3
DOUBLED = "{% set s = namespace(x='aaaaaaaaaa') %}{% for _ in range(60) %}{% set s.x = s.x ~ s.x %}{% endfor %}"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (LOOPS + ENDS, "takes longer than 1 s"),
        (LOOPS + "x" + ENDS, "takes longer than 1 s|needs more than"),
        (
            "{% macro m(n) %}{% for i in range(9999) %}{{ m(n) }}{% endfor %}{% endmacro %}{{ m(1) }}",
            "fails: |takes longer than 1 s",
        ),
        (DOUBLED + "{{ s.x }}", "needs more than 512 MiB of memory|takes longer than 1 s"),
        ("{{ 'a' * 10000000000 }}", "needs more than 512 MiB of memory"),
        ("{{ '%3000000000d' % 1 }}", "needs more than 512 MiB of memory"),
        ("{{ 'a' * 3000000 }}", "turns a short text into 3,000,000 characters"),
        ("{{ 9 ** 9 ** 9 }}", r"computes powers \(\*\*\)"),
        ("{{ 1 / 0 }}", "fails: division by zero"),
        ("{{ [][3].a.b }}", "fails: "),
        ("{{ messages['x'].y.z() }}", "fails: "),
        ("{{ ''.join([1]) }}", "fails: sequence item 0"),
        ("{{ raise_exception('a\\n\x1b[31mb') }}", r"fails: a \?\[31mb"),
        ("{% for", "fails: "),
        ("{{ " + "(" * 5000 + ")" * 5000 + " }}", "fails: "),
        ("{% if x %}" * 300 + "{% endif %}" * 300, "fails: "),
        ("x" * (2**20 + 1), "has over 1,048,576 characters"),
        ("{{ messages.__class__.__mro__ }}", "fails: "),
    ],
)
def test_hostile_templates_end_in_one_line(template: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airrep.lm.chat._SECONDS", 1.0)
    with pytest.raises((ConfigError, DataError), match=message) as told:
        make(tiny_tokenizer(chat=template)).tokenise([ASKED])
    assert "\n" not in str(told.value)
    assert "\x1b" not in str(told.value)
    assert texts(make(tiny_tokenizer(chat=CHAT)))[1] == "so it is</s>"  # and what comes after it works


def test_powers_are_told_from_stars_in_texts_and_unpacking() -> None:
    template = CHAT + "{{ '**bold** 2 ** 3' }}{% macro m(a=1) %}{% endmacro %}{{ m(**{'a': 2}) }} 2 ** 3"
    assert "**bold**" in texts(make(tiny_tokenizer(chat=template)))[1]
