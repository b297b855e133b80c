"""A model's tokens are counted as a trainer learns them: the answer as the chat template writes it."""

from typing import Any

import numpy as np
import pytest
import torch
from worlds.double_lms import plain, wide
from worlds.tiny_lms import tiny_lm, tiny_tokenizer

from airrep.attributors.methods import make_attributor
from airrep.attributors.recipes import ChannelsSettings
from airrep.attributors.text.tokens import FIRST
from airrep.corpus.corpus import Corpus
from airrep.errors import ConfigError

TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>"
    "{% endif %}{{ m.content or '' }}{% for call in m.tool_calls or [] %}<call>{{ call.function | tojson }}</call>"
    "{% endfor %}{{ eos_token }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
USER = {"role": "user", "content": "3+3?"}
CALL = {"type": "function", "function": {"name": "add", "arguments": {"a": 3, "b": 3}}}
WRITTEN: dict[str, tuple[dict[str, Any], str]] = {
    "text": ({"prompt": "3+3?", "response": "six"}, "six"),
    "messages": ({"messages": [USER, {"role": "assistant", "content": "six"}]}, "six"),
    "a call": (
        {"messages": [USER, {"role": "assistant", "content": "", "tool_calls": [CALL]}]},
        '<call>{"name": "add", "arguments": {"a": 3, "b": 3}}',  # the rest is the end of the answer
    ),
    "thoughts": (
        {"messages": [USER, {"role": "assistant", "content": "six", "reasoning_content": "sum"}]},
        "<think>sum</think>six",
    ),
}
STANDING = {"completion": {"prompt": "3+3?", "completion": " six"}, "text alone": {"text": "six"}}


@pytest.fixture(scope="module")
def lm(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("lm")
    return tiny_lm(folder, tokenizer=tiny_tokenizer(chat=TEMPLATE), max_position_embeddings=256)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same tokens without a chat template."""
    return tiny_lm(tmp_path_factory.mktemp("bare"), tokenizer=tiny_tokenizer(), max_position_embeddings=256)


def counted(tokenizer: str, corpus: Corpus, **settings: Any) -> list[str]:
    """The texts of the tokens that are counted, each of which is a letter."""
    method = make_attributor("ngram", {"tokenizer": tokenizer, "rendered": True, **settings})
    letters = tiny_tokenizer()
    return [letters.decode(ids - FIRST) for ids in method._tokens(list(corpus))]


@pytest.mark.parametrize("kind", WRITTEN)
def test_an_answer_counts_as_its_template_writes_it(kind: str, lm: str) -> None:
    record, text = WRITTEN[kind]
    assert counted(lm, Corpus.from_records([record])) == [text]


def test_rows_that_no_template_writes_count_as_they_stand(lm: str, bare: str) -> None:
    standing = Corpus.from_records(list(STANDING.values()))
    assert counted(lm, standing) == [" six", "six"]
    corpus = Corpus.from_records([record for record, _ in WRITTEN.values()])
    assert counted(bare, corpus) == counted(lm, corpus, template="plain") == [one.response for one in corpus]


def test_the_fingerprint_is_another_where_a_template_writes_alone(lm: str, bare: str) -> None:
    corpus = Corpus.from_records([record for record, _ in WRITTEN.values()])

    def fingerprint(tokenizer: str, **settings: Any) -> str:
        method = make_attributor("ngram", {"tokenizer": tokenizer, **settings})
        method.fit(corpus)
        return method.fingerprint

    assert fingerprint(bare, rendered=True) == fingerprint(bare)
    assert len({fingerprint(lm), fingerprint(lm, rendered=True), fingerprint(lm, rendered=True, cut="end")}) == 3


def test_a_long_row_is_cut_as_it_is_for_the_lm(lm: str) -> None:
    corpus = Corpus.from_records([{"prompt": "3+3?", "response": "six or six"}])
    asked = len("<|user|>3+3?") + 1 + len("<|assistant|>")  # a letter is a token, and the end of text
    assert counted(lm, corpus, cut="end", max_tokens=asked + 5) == ["six o"]


def test_each_of_the_lms_own_tokens_counts_what_the_lm_does_not_expect(lm: str) -> None:
    corpus = Corpus.from_records([record for record, _ in WRITTEN.values()])
    method = make_attributor("ngram", {"lm": lm, "rendered": True, "device": "cpu", "precision": "float32"})
    numbers, weights = method._weighed(list(corpus))
    documents = method.lm.tokenise(corpus)
    for row, (ids, own) in enumerate(zip(numbers, weights, strict=True)):
        whole, start = documents.sequence(row), int(documents.starts[row])
        with torch.no_grad():
            logits = plain(wide(lm))(input_ids=torch.tensor(whole)[None]).logits[0].double()
        chances = logits.log_softmax(1)[start - 1 : -1]
        nats = -chances.gather(1, torch.tensor(whole[start:])[:, None])[:, 0].numpy()
        np.testing.assert_array_equal(ids, whole[start : start + len(ids)] + FIRST)
        wanted = [*nats[: len(ids)], nats[len(ids) :].sum()]
        np.testing.assert_allclose(own, 1 - np.exp(-np.array(wanted)), rtol=1e-4)


def test_words_that_are_shown_stand_in_the_answer(lm: str) -> None:
    corpus = Corpus.from_records([WRITTEN["thoughts"][0]])
    method = make_attributor("ngram", {"tokenizer": lm, "rendered": True, "orders": 1})
    method.fit(corpus)
    places = method.places(corpus[0])
    whole = f"{corpus[0].prompt}\n{corpus[0].response}"
    shown = {whole[start:stop] for start, stop in zip(places.starts, places.stops, strict=True)}
    assert shown == set("sumsix")


def test_the_default_channels_count_so_with_a_model(lm: str) -> None:
    for given in ({"lm": lm}, {"tokenizer": lm}):
        assert ChannelsSettings.of(given).channels[0].settings["rendered"]
    with pytest.raises(ConfigError, match="rendered: counts what is learnt of responses; expected view=response"):
        make_attributor("ngram", {"tokenizer": lm, "rendered": True, "view": "whole"})


def test_an_example_that_the_template_refuses_is_told(lm: str) -> None:
    method = make_attributor("ngram", {"tokenizer": lm, "rendered": True, "cut": "drop", "max_tokens": 40})
    corpus = Corpus.from_records([WRITTEN["text"][0], WRITTEN["a call"][0]])
    assert list(method.unusable(list(corpus))) == [1]
