"""Places of features: the columns of the features, no others, where the words are."""

import re
from collections import Counter

import numpy as np
import pytest
from reference.ngrams import columns as ngram_columns

from airrep.attributors.base import Attributor
from airrep.attributors.methods import make_attributor
from airrep.attributors.text.tokens import tokenizer_of
from airrep.corpus.corpus import Corpus, Example
from airrep.corpus.places import Places, Span, lower_case, spans_of
from airrep.corpus.views import seen_text

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
