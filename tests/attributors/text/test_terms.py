"""Terms: numbered, counted and weighed as scikit-learn does, to the last bit."""

from typing import Any

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

from airrep.attributors.methods import make_attributor
from airrep.attributors.text.ngrams import Terms
from airrep.corpus.corpus import Corpus, Example
from airrep.corpus.words import Words, plain
from airrep.errors import ConfigError

WORDS = [
    "it",
    "It",
    "is",
    "cat",
    "a",
    "\u00e9t\u00e9",
    "e\u0301t",
    "\u0130stanbul",
    "\u732b\u304c",
    "foo_1",
    "x-y",
    ".",
    "12",
    "\n",
]
"""Words of one letter and of more, accents composed and not, a sign that is two in lower case, signs without spaces."""
SETTINGS = [{}, {"ngrams": 3}, {"signs": True, "view": "response"}, {"min_count": 4, "ngrams": 2}]


def some_examples(count: int = 300) -> list[Example]:
    random = np.random.default_rng(count)
    texts = [" ".join(random.choice(WORDS, length)) for length in random.integers(0, 30, 2 * count)]
    return [Example(a, f"{b}!", str(n)) for n, (a, b) in enumerate(zip(texts[::2], texts[1::2], strict=True))]


def theirs(signs: bool = False, **settings: Any) -> dict[str, Any]:
    lower = {"preprocessor": lambda text: plain(text).lower(), "token_pattern": None, "dtype": np.float32}
    return {"tokenizer": Words(signs, least=2).findall, **lower, **settings}


@pytest.mark.parametrize("settings", SETTINGS)
def test_tfidf_has_the_bits_of_scikit_learn(settings: dict[str, Any]) -> None:
    examples, asked = some_examples(), [*some_examples(20), Example("", "", "empty"), Example("q", "zz zzz", "unknown")]
    shown = (lambda one: one.response) if "view" in settings else (lambda one: f"{one.prompt}\n{one.response}")
    ngrams, least = settings.get("ngrams", 1), settings.get("min_count", 1)
    known = TfidfVectorizer(**theirs(settings.get("signs", False), ngram_range=(1, ngrams), min_df=least))
    known.fit([shown(one) for one in examples])
    method = make_attributor("tfidf", settings)
    method.fit(Corpus.from_examples(examples))
    assert method._learnt.terms.names == known.get_feature_names_out().tolist()
    np.testing.assert_array_equal(method._learnt.numbers["idf"], known.idf_)
    for some in (examples, asked):
        found, wanted = method.encode_train(some), known.transform([shown(one) for one in some])
        wanted.sort_indices()
        for name in ("data", "indices", "indptr"):
            np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))
        assert found.dtype == np.float32


@pytest.mark.parametrize("signs", [False, True])
def test_counts_are_those_of_scikit_learn(signs: bool) -> None:
    texts = [one.response for one in some_examples()]
    known = CountVectorizer(**theirs(signs))
    wanted = known.fit_transform(texts)
    terms, having, lengths = Terms([], signs).learnt(iter(texts))
    assert terms.names == known.get_feature_names_out().tolist()
    found = terms.count(iter(texts))
    np.testing.assert_array_equal(found.toarray(), wanted.toarray())
    np.testing.assert_array_equal(having, np.bincount(wanted.indices))
    np.testing.assert_array_equal(lengths, np.asarray(wanted.sum(axis=1)).ravel())
    assert terms.count([]).shape == (0, len(terms.names))


@pytest.mark.parametrize("method", ["tfidf", "bm25"])
def test_examples_have_the_same_bits_in_every_batch(method: str) -> None:
    examples = some_examples(60)
    made = make_attributor(method, {})
    made.fit(Corpus.from_examples(examples))
    whole = made.encode_train(Corpus.from_examples(examples))
    for size in (1, 7):
        for start in range(0, 60, size):
            found = made.encode_train(examples[start : start + size])
            np.testing.assert_array_equal(found.toarray(), whole[start : start + size].toarray())


def test_no_term_in_enough_examples_is_refused() -> None:
    corpus = Corpus.from_examples([Example("a", "one"), Example("b", "two")])
    with pytest.raises(ConfigError, match=r"^tfidf: finds no term in 2 or more .* Lower min_count"):
        make_attributor("tfidf", {"min_count": 2}).fit(corpus)
    with pytest.raises(ConfigError, match="^bm25: no training example has a word"):
        make_attributor("bm25", {}).fit(Corpus.from_examples([Example("a b", "c")]))
