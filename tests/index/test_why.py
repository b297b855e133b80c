"""Why a hit scores as it does: its channels, and the words of both texts, against references over strings."""

import math
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds.small_world import HashAttributor, make_corpus, plain_words
from worlds.tiny_bert import tiny_folder

from airrep.attributors.methods import make_attributor
from airrep.corpus.corpus import Corpus, Example
from airrep.corpus.places import Places, Span
from airrep.index.building import build_index
from airrep.index.index import Index
from airrep.index.results.kinds import TopResult
from airrep.index.why import LETTERS, PHRASES, SPANS, Products, SameWords, same_words
from airrep.scoring.asked import SumAsked
from airrep.scoring.pooling import CHANNELS
from airrep.scoring.products import ask

TRAIN = Corpus.from_examples(
    Example(prompt, response, id=f"t{number}", source="ab"[number % 2])
    for number, (prompt, response) in enumerate(
        [
            ("q", "the cat sat on the mat"),
            ("q w", "a dog, a cat and <b>one</b> more [red]cat[/red]"),
            ("the cat", "the end of the cat: it sat"),
            ("e\u0301", "👩\u200d👩\u200d👧 e\u0301te\u0301 the end"),
            ("z", "-"),
            ("numbers", "one two three four five"),
        ]
    )
)
ASKED = (
    Example("the cat", "on the mat the cat sat, it sat", id="x"),
    Example("q", "three four one two", id="y"),
    Example("w", "<b>one</b> more [red]cat[/red] e\u0301te\u0301 👩\u200d👩\u200d👧", id="hostile"),
    Example("nothing shared", "Zebra?", id="none"),
    Example("empty", "", id="empty"),
)
SETTINGS = {"mix": 0.5, "smoothing": 0.1}


def recipe(encoder: str) -> list[dict[str, Any]]:
    """Channels of every kind."""
    return [
        {"method": "ngram", "settings": {"tokenizer": "subwords"}, "weight": 2.0},
        {"method": "tfidf", "settings": {"view": "response"}, "pool": "sum", "weight": 3.0},
        {"method": "airrep", "settings": {"encoder": encoder}, "temperature": 0.5, "weight": 0.1},
        {"method": "airrep", "settings": {"encoder": encoder, "view": "response"}, "pool": "mean", "weight": 0.2},
        {"method": "bm25", "settings": {"view": "whole"}, "pool": "attention", "temperature": 2.0},
        {"method": "ngram", "settings": {"view": "whole", "orders": [1]}, "name": "words", "weight": 0.3},
        {"method": "tfidf", "settings": {"ngrams": 2}, "name": "pairs"},
    ]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_folder(tmp_path_factory.mktemp("encoder") / "tiny"))


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory, encoder: str) -> Index:
    folder = tmp_path_factory.mktemp("index") / "index"
    return build_index(TRAIN, folder, "channels", settings={"channels": recipe(encoder)}, shard_rows=2)


def text_of(example: Example, span: Span) -> str:
    return str(getattr(example, span.field))[span.start : span.stop]


def ngrams_of(text: str) -> Counter[tuple[str, ...]]:
    """N-grams of one to three words, with a start and an end, as the counting language model has them."""
    words = plain_words(text)
    if not words:
        return Counter()
    series = ["^", *words, "$"]
    found = Counter((word,) for word in series[1:])
    for order in (2, 3):
        found.update(tuple(series[i : i + order]) for i in range(len(series) - order + 1))
    return found


def reference(query: Example, example: Example) -> dict[tuple[str, ...], float]:
    """What each n-gram gives to the score of method ngram, from its equation."""
    corpus: Counter[tuple[str, ...]] = sum((ngrams_of(one.response) for one in TRAIN), Counter())
    asked, had = ngrams_of(query.response), ngrams_of(example.response)
    length = {name: max(1, sum(n for g, n in of.items() if len(g) == 1)) for name, of in (("x", asked), ("z", had))}
    total = {order: sum(n for g, n in corpus.items() if len(g) == order) for order in (1, 2, 3)}
    kinds = {order: sum(len(g) == order for g in corpus) for order in (1, 2, 3)}
    given = {}
    for gram in asked & had:
        order = len(gram)
        often = (corpus[gram] + 0.1) / (total[order] + 0.1 * kinds[order])
        gain = math.log1p(had[gram] / length["z"] / often)  # λ / (1 - λ) is 1
        given[gram] = asked[gram] / length["x"] * gain
    return given


def test_the_words_have_the_score_that_the_equation_gives_them(tmp_path: Path) -> None:
    index = build_index(TRAIN, tmp_path / "index", "ngram")
    for hits in index.top(ASKED, len(TRAIN), why=True):
        for hit in hits:
            given = reference(hits.query, hit.example)
            assert hit.why is not None
            assert hit.why.channels == {"ngram": hit.score}
            assert hit.score == pytest.approx(sum(given.values()), abs=1e-5)
            symbols = sum(score for gram, score in given.items() if set(gram) <= {"^", "$"})
            told = everything(index, hits.query, hit.example)
            assert sum(one.score for one in told) == pytest.approx(hit.score - symbols, abs=1e-5)
            assert hit.why.same_words == told[:PHRASES]


def everything(index: Index, query: Example, example: Example) -> tuple[SameWords, ...]:
    """All phrases of two examples."""
    method = index.attributor
    asked, had = method.encode_queries([query]), method.encode_train([example])
    given, stored = (dict(zip(one.indices.tolist(), one.data.tolist(), strict=True)) for one in (asked, had))
    common = sorted(given.keys() & stored.keys())
    products = Products(np.array(common, np.int64), np.array([given[one] * stored[one] for one in common]))
    places = method.places(query), method.places(example)
    return same_words(products, query, places[0], example, places[1], None)


def test_each_phrase_has_the_ngrams_that_are_in_it(tmp_path: Path) -> None:
    index = build_index(TRAIN, tmp_path / "index", "ngram")
    query, example = ASKED[1], TRAIN[5]  # "three four one two" and "one two three four five"
    given = reference(query, example)
    told = {one.text: one.score for one in everything(index, query, example)}
    parts = {"three four": ("three", "four"), "one two": ("one", "two")}
    assert set(told) == set(parts)
    for text, words in parts.items():
        wanted = sum(score for gram, score in given.items() if set(gram) - {"^", "$"} <= set(words) and gram != ("$",))
        assert told[text] == pytest.approx(wanted, abs=1e-6)


def test_the_marks_stand_where_the_words_are(index: Index) -> None:
    told = 0
    for hits in index.top(ASKED, len(TRAIN), why=True):
        for hit in hits:
            assert hit.why is not None
            assert len(hit.why.same_words) <= PHRASES
            for same in hit.why.same_words:
                marked = " ".join(text_of(hits.query, span) for span in same.query[: len(same.query)])
                assert same.text.casefold() in " ".join(marked.split()).casefold()
                assert same.example
                for span in (*same.query, *same.example):
                    assert 0 <= span.start < span.stop
                there = {text_of(hit.example, span).casefold() for span in same.example}
                assert all(part and part == part.strip() for part in there)
                told += 1
    assert told > 20


def test_channels_add_up_to_the_score(index: Index, encoder: str) -> None:
    for least in (False, True):
        result = index.top(ASKED, 4, least=least, where='source != "c"', why=True)
        plain = index.top(ASKED, 4, least=least, where='source != "c"')
        for hits, same in zip(result, plain, strict=True):
            for hit, other in zip(hits, same, strict=True):
                assert (hit.row, hit.score, other.why) == (other.row, other.score, None)
                assert hit.why is not None
                assert list(hit.why.channels) == [one.title for one in index.attributor.channels]
                assert sum(hit.why.channels.values()) == pytest.approx(hit.score, abs=1e-5)


def test_a_channel_gives_what_its_method_alone_gives(tmp_path: Path, index: Index, encoder: str) -> None:
    names = [one.title for one in index.attributor.channels]
    for number, (name, channel) in enumerate(zip(names, recipe(encoder), strict=True)):
        alone = build_index(TRAIN, tmp_path / str(number), channel["method"], settings=channel.get("settings", {}))
        scores = alone.scores(ASKED)
        wanted = channel.get("weight", 1.0) * scores
        for query, hits in enumerate(index.top(ASKED, len(TRAIN), why=True)):
            for hit in hits:
                assert hit.why is not None
                assert hit.why.channels[name] == pytest.approx(wanted[query, hit.row], rel=5e-3, abs=5e-3)


def test_same_words_of_channels_add_up_to_what_the_lexical_ones_gave(tmp_path: Path) -> None:
    recipe = [{"method": "bm25", "weight": 0.5}, {"method": "tfidf", "settings": {"ngrams": 2}}]
    index = build_index(TRAIN, tmp_path / "index", "channels", settings={"channels": recipe})
    for hits in index.top(ASKED[:2], len(TRAIN), why=True):
        for hit in hits:
            assert hit.why is not None
            assert len(hit.why.same_words) < PHRASES  # so none is left out
            assert sum(one.score for one in hit.why.same_words) == pytest.approx(hit.score, abs=1e-4)


def test_deleted_rows_and_one_query(tmp_path: Path) -> None:
    index = build_index(TRAIN, tmp_path / "index", "tfidf", shard_rows=4)
    hit = index.delete(["t0"]).top(ASKED[0], 1, why=True)[0]
    assert hit.why is not None
    assert {one.text for one in hit.why.same_words} >= {"the", "cat"}


@pytest.mark.parametrize("method", ["bm25", "dsir", "tfidf"])
def test_every_lexical_method_tells_its_words(tmp_path: Path, method: str) -> None:
    index = build_index(TRAIN, tmp_path / "index", method)
    asked = ASKED[:3]
    told = [hit.why for hits in index.top(asked, len(TRAIN), why=True) for hit in hits]
    assert all(why is not None and list(why.channels) == [method] for why in told)
    assert any(why.same_words for why in told if why is not None)
    if method != "dsir":  # words that one text has alone count there too
        for hits in Index(index.path).top(asked, len(TRAIN), why=True):
            for hit in hits:
                given = everything(index, hits.query, hit.example)
                assert sum(one.score for one in given) == pytest.approx(hit.score, abs=1e-4)


def test_methods_that_read_no_words_tell_their_score_alone(tmp_path: Path) -> None:
    method = HashAttributor()
    index = build_index(make_corpus(9), tmp_path / "index", method)
    for hit in index.top(make_corpus(1, "q")[0], 3, why=True):
        assert hit.why is not None
        assert (hit.why.channels, hit.why.same_words) == ({"hash": hit.score}, ())


def test_nothing_shared_is_nothing_told(index: Index) -> None:
    for hits in index.top(ASKED[3:], len(TRAIN), why=True):
        assert all(hit.why is not None for hit in hits)
        assert [hit.why.same_words for hit in hits if hit.example.id == "t4" and hit.why is not None] == [()]


def test_words_that_share_a_column_by_chance_are_not_called_the_same() -> None:
    query, example = Example("", "one two", id="q"), Example("", "three one", id="t")
    asked = Places.of(query, "response", [0, 0], [1, 2], [0, 4], [3, 7])
    had = Places.of(example, "response", [0, 0], [3, 1], [0, 6], [5, 9])
    products = Products(np.array([0]), np.array([6.0]))
    told = same_words(products, query, asked, example, had)
    assert [(one.text, one.score) for one in told] == [("one", 6.0)]
    assert told[0].example == (Span("response", 6, 9),)
    assert same_words(Products(np.empty(0, np.int64), np.empty(0)), query, asked, example, had) == ()


def test_accents_are_not_taken_from_their_letters() -> None:
    text = "e\u0301 x"
    example = Example("", text, id="q")
    places = Places.of(example, "response", [0], [1], [0], [1])  # a token that is the bare letter
    told = same_words(Products(np.array([0]), np.array([1.0])), example, places, example, places)
    assert told[0].query == (Span("response", 0, 2),)


@pytest.mark.parametrize(
    ("text", "long"),
    [
        ("a ", "query"),
        ("a ", "example"),
        ("a ", "both"),
        ("a\u0301\u0302", "both"),
        ("".join(f"w{n} " for n in range(9000)), "both"),
    ],
)
def test_a_megabyte_is_explained_in_reasonable_time(tmp_path: Path, text: str, long: str) -> None:
    text = text * (10**6 // len(text))
    short = "another word and a w1 w2 w3"
    method = make_attributor("ngram")
    query = Example("q", short if long == "example" else text, id="q")
    example = Example("q", short if long == "query" else text, id="t")
    index = build_index(Corpus.from_examples([example, Example("p", "else", id="u")]), tmp_path / "index", method)
    begun = time.process_time()
    hit = next(hit for hit in index.top(query, 2, why=True) if hit.row == 0)
    assert time.process_time() - begun < 30
    assert hit.why is not None
    assert 0 < len(hit.why.same_words) <= PHRASES
    assert all(len(one.text) <= LETTERS for one in hit.why.same_words)
    assert all(len(spans) <= SPANS for one in hit.why.same_words for spans in (one.query, one.example))


def test_groups_tell_their_channels(index: Index) -> None:
    plain, told = (index.group_scores(ASKED, "source", why=why) for why in (False, True))
    assert plain.channels is None
    assert told.channels is not None
    np.testing.assert_array_equal(told.scores, plain.scores)
    np.testing.assert_allclose(sum(told.channels.values()), told.scores, atol=1e-5)
    single = index.group_scores(ASKED, {str(row): [row] for row in range(len(TRAIN))}, why=True)
    assert single.channels is not None
    for query, hits in enumerate(index.top(ASKED, len(TRAIN), why=True)):
        for hit in hits:
            assert hit.why is not None
            for name, score in hit.why.channels.items():
                assert single.channels[name][query, hit.row] == pytest.approx(score, abs=1e-4)


def test_a_pool_over_all_is_one_part(index: Index, tmp_path: Path) -> None:
    told = index.group_scores(ASKED, "source", "attention", why=True)
    assert told.channels is not None
    np.testing.assert_array_equal(told.channels["channels"], told.scores)


def test_what_if_tells_the_change_of_each_channel(index: Index, tmp_path: Path) -> None:
    told = index.what_if(ASKED, remove=[0, 1], why=True)
    assert told.channels is not None
    assert index.what_if(ASKED, remove=[0, 1]).channels is None
    np.testing.assert_allclose(sum(told.channels.values()), told.change, atol=1e-5)
    plain = build_index(make_corpus(8), tmp_path / "index", HashAttributor())
    asked = make_corpus(2, "q")
    order = plain.what_if(asked, remove=[0, 1], pool="order-1", why=True)
    assert order.channels is not None
    np.testing.assert_array_equal(order.channels["hash"], order.change)


def test_a_result_with_reasons_is_a_top_result_like_any_other(index: Index) -> None:
    told = index.top(ASKED, 2, why=True)
    assert isinstance(told, TopResult)
    assert [hit["row"] for hit in told.to_dict()["queries"][0]["hits"]] == [hit.row for hit in told[0]]


class Halves(HashAttributor):
    """A method of its own that stores its features in two channels."""

    name = "halves"

    def encode(self, examples, on_rows=None):
        features = self.encode_train(examples, on_rows)
        return {"first": features[:, :8], "second": features[:, 8:]}

    def ask(self, queries, kept, on_rows=None, channel=None):
        parts = {
            name: ask(part, kept.blocks(name), self.pooling()) for name, part in self.encode(queries, on_rows).items()
        }
        return SumAsked(parts, np.ones((len(queries), 2)), CHANNELS)


def test_a_method_of_its_own_may_have_several_channels(tmp_path: Path) -> None:
    index = build_index(make_corpus(9), tmp_path / "index", Halves())
    for hit in index.top(make_corpus(1, "q"), 3, why=True)[0]:
        assert list(hit.why.channels) == ["first", "second"]
        assert sum(hit.why.channels.values()) == pytest.approx(hit.score, rel=1e-6)
