"""Words have their marks, whatever the script, and are the same words however they are written."""

import re

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from worlds.small_world import plain_words

from airrep.answers.texts import words_of
from airrep.arrays import SparseFeatures
from airrep.attributors.methods import make_attributor
from airrep.attributors.text.lexical import split_words
from airrep.attributors.text.tokens import WORDS, tokenizer_of
from airrep.corpus.corpus import Corpus, Example
from airrep.corpus.schemas.conversations import Message, from_last_message, last_message, message_at, prompt_of
from airrep.corpus.words import Words, plain, plain_places
from airrep.evaluation.select import unigram_f1

WHOLE = (
    "लड़का लड़की क्षत्रिय", "দিন দান রাষ্ট্র", "கிடைக்கும் பொருள்", "తెలుగు క్రొత్త", "ಕನ್ನಡ ಭಾಷೆ", "മലയാളം വാക്ക്",
    "ਪੰਜਾਬੀ ਗੁੱਝਾ", "සිංහල ශ්‍රී", "كَتَبَ كُتِبَ الوَلَدُ", "שָׁלוֹם כָּתַב", "می\u200cخواهم نمی\u200cدانم", "བོད ཡིག",
    "e\u0323\u0302 n\u0303ao", "co\u00adop re\u200bsearch",
)  # fmt: skip
PAIRS = (("लड़का", "लड़की"), ("দিন", "দান"), ("كَتَبَ", "كُتِبَ"), ("தமிழ்", "தமழ்"), ("שָׁלוֹם", "שלום"))
SAME = (
    ("caf\u00e9", "cafe\u0301"),
    ("\ud55c\uad6d", "\u1112\u1161\u11ab\u1100\u116e\u11a8"),
    ("\u0958\u0930", "\u0915\u093c\u0930"),
    ("\u0627\u0655سلام", "\u0625سلام"),
    ("research", "re\u00adse\u200barch"),
    ("می\u200cخواهم", "میخواهم"),
)


@pytest.mark.parametrize("text", WHOLE)
def test_words_stay_whole_wherever_texts_are_cut(text: str) -> None:
    count = len(text.split())
    whole = text.split()
    assert Words().findall(text) == Words(signs=True).findall(text) == Words(least=2).findall(text) == whole
    assert [len(split_words(text, signs)) for signs in (False, True)] == [count, count]
    assert len(words_of(text)) == len(tokenizer_of(WORDS)[0]([text]).numbers) == count
    assert unigram_f1(whole[0], text) == pytest.approx(2 / (1 + count))


def row_of(features: SparseFeatures, row: int) -> dict[int, float]:
    """The columns of a row that are not 0, too many for a dense one."""
    own = slice(*features.indptr[row : row + 2])
    return dict(zip(features.indices[own].tolist(), features.data[own].tolist(), strict=True))


@pytest.mark.parametrize("name", ["tfidf", "bm25", "dsir", "ngram"])
@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_other_marks_are_other_words(name: str, one: str, other: str) -> None:
    method = make_attributor(name)
    method.fit(Corpus.from_examples([Example("q", one, id="a"), Example("q", other, id="b")]))
    found = method.encode_train([Example("q", one, id="a"), Example("q", other, id="b")])
    assert not isinstance(found, np.ndarray)
    assert row_of(found, 0) != row_of(found, 1)
    assert words_of(one) != words_of(other)


@pytest.mark.parametrize("name", ["tfidf", "bm25", "dsir", "ngram"])
@pytest.mark.parametrize(("one", "other"), SAME)
def test_one_word_is_the_same_however_it_is_written(name: str, one: str, other: str) -> None:
    method = make_attributor(name)
    method.fit(Corpus.from_examples([Example("q", one, id="a"), Example("q", "nothing", id="b")]))
    found = method.encode_train([Example("q", f"{word} so", id=word) for word in (one, other)])
    assert not isinstance(found, np.ndarray)
    assert row_of(found, 0) == row_of(found, 1)
    assert words_of(one) == words_of(other)
    places = method.places(Example("q", f"so {other} so", id="x"))
    assert places is not None
    stretches = {f"q\nso {other} so"[start:stop] for start, stop in zip(places.starts, places.stops, strict=True)}
    assert other in stretches or other == one


TEXTS = st.text(
    st.one_of(st.characters(), st.sampled_from("ae_1 कि्ीé\u0301\u0327\u200d\u200b\u00ad한\u1161\u11ab\ufe0f☀"))
)


@settings(max_examples=200, deadline=None)
@given(TEXTS)
@example("\u1112\u200b\u1161\u11abk")
@example("0\u0e47")
def test_words_are_those_of_a_plain_loop(text: str) -> None:
    assert Words(rest=r"[^\w\s]").findall(plain(text)) == plain_words(text)


@settings(max_examples=200, deadline=None)
@given(TEXTS)
def test_a_plain_text_knows_where_it_was(text: str) -> None:
    whole, origin = plain_places(text)
    assert whole == plain(text) == plain(whole)
    assert len(origin) == len(whole) + 1
    assert origin[-1] == len(text)
    assert (np.diff(origin) >= 0).all()
    assert all(plain(text[at])[:1] == sign for at, sign in zip(origin, whole, strict=False) if sign.isascii())


def test_words_of_english_are_pythons() -> None:
    text = "Don't stop_it: 3.14!? naïve “façade” — 100 % of x² a b"
    assert Words().findall(text) == Words(signs=True).findall(text) == re.findall(r"\w+", text)
    assert Words(least=2).findall(text) == re.findall(r"(?u)\b\w\w+\b", text)


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
    heads = [prompt[message_at(prompt, place) :][:11] for place in places]
    assert heads == ["System: You", "User: Hello", "User: Hello", "User: Where"]
