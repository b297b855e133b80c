"""Places of features and of learnt tokens: the columns of the features, no others, where the words are."""

import re
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from reference.ngrams import columns as ngram_columns
from worlds.double_lms import plain, wide
from worlds.tiny_lms import tiny_lm, tiny_tokenizer

from airrep.attributors.base import Attributor
from airrep.attributors.methods import make_attributor
from airrep.attributors.recipes import ChannelsSettings
from airrep.attributors.text.tokens import FIRST, tokenizer_of
from airrep.corpus.corpus import Corpus, Example
from airrep.corpus.places import Places, Span, lower_case, spans_of
from airrep.corpus.views import seen_text
from airrep.errors import ConfigError

HOSTILE = [
    Example("What is 2 + 2?", "It is 4, it is.", id="plain"),
    Example("", "", id="empty"),
    Example(" \n\t ", "  word  word ", id="blank prompt"),
    Example("<b>bold</b> & [red]red[/red]", "</mark><script>alert(1)</script>", id="markup"),
    Example("e\u0301te\u0301 Ärger İstanbul İİ x", "👩\u200d👩\u200d👧 👋🏽 words ☀\ufe0f", id="signs"),
    Example("写一首诗", "春眠不觉晓 春眠", id="no spaces"),
    Example("one\r\ntwo", "two\u2028three\u00a0four\x07five", id="lines"),
]
TRAIN = Corpus.from_examples(
    [*(one for one in HOSTILE if one.prompt.strip()), Example("what is it", "it is 4 words", id="more")]
)
METHODS = [
    ("ngram", {}),
    ("ngram", {"tokenizer": "subwords", "view": "whole", "orders": [1, 2, 5]}),
    ("ngram", {"tokenizer": "subwords", "orders": [3, 1]}),
    ("ngram", {"tokenizer": "subwords", "orders": [1, 2], "skip": 0.5}),
    ("ngram", {"copied": True}),
    ("tfidf", {"ngrams": 3}),
    ("tfidf", {"view": "prompt"}),
    ("bm25", {"view": "whole"}),
    ("dsir", {"ngrams": 2, "view": "whole"}),
]


def fitted(method: str, settings: dict) -> Attributor:
    made = make_attributor(method, settings)
    made.fit(TRAIN)
    return made


@pytest.mark.parametrize(("method", "settings"), METHODS)
@pytest.mark.parametrize("example", HOSTILE, ids=lambda example: example.id)
def test_places_have_the_columns_of_the_features(method: str, settings: dict, example: Example) -> None:
    attributor = fitted(method, settings)
    places = attributor.places(example)
    assert places is not None
    features = attributor.encode_train([example])
    columns = set(features.indices[features.data != 0].tolist())
    if method == "ngram":  # the length, end symbols, and white space that is a token have no characters
        assert set(places.columns.tolist()) <= columns
        found = tokenizer_of(settings.get("tokenizer", "words"))[0](
            [text if (text := seen_text(example, settings.get("view", "response"))).strip() else ""]
        )
        orders, skip = settings.get("orders", (1, 2, 3)), settings.get("skip", 0) > 0
        every = Counter(ngram_columns(found.numbers, orders, skip))
        twice = Counter(ngram_columns(found.numbers, orders))  # a pair with a gap stands in two places
        assert not Counter(places.columns.tolist()) - (every + every - twice)
        if settings == {} and len(found.numbers):
            assert len(places.columns) == sum(every.values()) - 1  # the end symbol alone
    else:
        assert set(places.columns.tolist()) == columns
    whole = seen_text(example, "whole")
    for start, stop in zip(places.starts, places.stops, strict=True):
        piece = whole[start:stop]
        assert piece == piece.strip() != ""


@pytest.mark.parametrize("tokenizer", ["words", "subwords"])
def test_the_tokens_that_are_found_are_those_that_are_counted(tokenizer: str) -> None:
    split, _ = tokenizer_of(tokenizer)
    for example in HOSTILE:
        for text in (example.prompt, example.response):
            found = split.find(text)
            np.testing.assert_array_equal(found.numbers, split([text]).numbers)
            assert len(found.starts) == len(found.stops) == len(found.numbers)


def test_an_ngram_stands_from_its_first_word_to_its_last() -> None:
    example = Example("ignored", "The cat\n sat.", id="x")
    places = fitted("ngram", {"orders": [2]}).places(example)
    assert places is not None
    texts = [seen_text(example, "whole")[a:b] for a, b in zip(places.starts, places.stops, strict=True)]
    assert texts == ["The", "The cat", "cat\n sat", "sat.", "."]  # with a start symbol, and with an end symbol


def test_a_pair_with_a_gap_stands_at_both_ends_and_what_is_copied_nowhere() -> None:
    example = Example("a cat", "The cat sat here", id="x")

    def pieces(settings: dict) -> list[str]:
        attributor = fitted("ngram", settings)
        places = attributor.places(example)
        assert places is not None
        assert set(places.columns.tolist()) <= set(attributor.encode_train([example]).indices.tolist())
        whole = seen_text(example, "whole")
        return [whole[a:b] for a, b in zip(places.starts, places.stops, strict=True)]

    assert pieces({"orders": [4], "skip": 1.0})[4 - 1 :] == [  # orders of 4: with both symbols, three
        *("The", "cat", "sat"),
        *("cat", "sat", "here"),
    ]
    assert pieces({"orders": [1, 2], "copied": True}) == ["The", "sat", "here", "The", "sat here", "here"]


def test_buckets_that_two_ngrams_share_are_told_apart() -> None:
    places = fitted("dsir", {"buckets": 2, "ngrams": 1}).places(Example("a b", "A c", id="x"))
    assert places is not None
    assert set(places.columns.tolist()) <= {0, 1}
    names = places.ngrams.tolist()
    assert names[0] == names[2]
    assert len(set(names)) == 3


def test_lower_case_keeps_the_way_back() -> None:
    for text in ("plain Text", "İ", "aİbİ", "ΑΣ", "ẞ", ""):
        low, origin = lower_case(text)
        assert len(origin) == len(low) + 1
        assert low == text.lower()
        assert origin[-1] == len(text)
        assert all(low[place] in text[origin[place]].lower() or low[place] in "ς" for place in range(len(low)))


def test_methods_that_read_no_words_have_no_places() -> None:
    assert make_attributor("rds", {"lm": "nowhere"}).places(HOSTILE[0]) is None


def test_a_stretch_over_both_texts_has_a_part_in_each() -> None:
    example = Example("what now ", " now then", id="x")
    assert spans_of(example, 5, 14) == (Span("prompt", 5, 8), Span("response", 1, 4))
    assert spans_of(example, 8, 11) == ()
    empty = np.empty(0, np.int64)
    assert len(Places.of(example, "prompt", empty, empty, empty, empty).columns) == 0


def test_a_megabyte_is_found_in_reasonable_time() -> None:
    long = Example("", "word and another, " * 60_000, id="x")
    for method, settings in METHODS[:2]:
        places = fitted(method, settings).places(long)
        assert places is not None
        assert len(places.columns) > len(re.findall("word", long.response))


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
    with pytest.raises(ConfigError, match="rendered=true.*view=response"):
        make_attributor("ngram", {"tokenizer": lm, "rendered": True, "view": "whole"})


def test_an_example_that_the_template_refuses_is_told(lm: str) -> None:
    method = make_attributor("ngram", {"tokenizer": lm, "rendered": True, "cut": "drop", "max_tokens": 40})
    corpus = Corpus.from_records([WRITTEN["text"][0], WRITTEN["a call"][0]])
    assert list(method.unusable(list(corpus))) == [1]
