"""The counting language model: against its equation, written out with tuples in float64."""

import math
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from airrep.attributors.conformance import check_attributor
from airrep.attributors.settings import NgramSettings
from airrep.attributors.text.ngram_lm import NgramAttributor
from airrep.attributors.text.tokens import SUBWORDS, tokenizer_of
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import ConfigError
from airrep.index.building import build_index
from airrep.index.index import Index
from airrep.scoring.blocks import Block
from airrep.scoring.group_scores import group_scores
from airrep.scoring.groups import Groups
from airrep.scoring.products import ask
from airrep.scoring.topk import top_k

TEXTS = [
    ("a", "the cat sat on the mat"), ("b", "the dog sat on the log"), ("c", "The end."), ("d", ""), ("e", "cat"),
    ("f", "the cat sat on the mat"), ("g", "numbers 1 2 3, and 4!"), ("h", "  \n "),
]  # fmt: skip
QUERIES = [("q", "the cat sat"), ("r", "something else"), ("s", ""), ("t", "on the log 3")]

WORD = re.compile(r"\w+|[^\w\s]")
"""What the tokenizer 'words' finds in texts with spaces."""


def examples(texts: list[tuple[str, str]]) -> list[Example]:
    return [Example(prompt, response, id=str(n)) for n, (prompt, response) in enumerate(texts)]


TRAIN, ASKED = examples(TEXTS), examples(QUERIES)
STORED = Corpus.from_examples([one for one in TRAIN if one.response.strip()])
"""Without the blank ones, which a corpus refuses: rows 0 to 2 and 4 to 6."""


GAP = 0
"""Stands for pairs with a gap where an order is asked for."""


def grams(text: str, n: int) -> list[tuple[str, ...]]:
    """The n-grams of a text by words, or its pairs with a gap; none where it has no word."""
    words = WORD.findall(text)
    if not words:
        return []
    series = ["<s>", *words, "</s>"][1 if n == 1 else 0 :]
    if n == GAP:
        return list(zip(series, series[2:], strict=False))
    return [tuple(series[i : i + n]) for i in range(len(series) - n + 1)]


def size(text: str) -> int:
    words = WORD.findall(text)
    return len(words) + 1 if words else 0


def reference(train: list[str], group: list[str], query: str, settings: NgramSettings) -> float:
    """The equation of the class, one n-gram after another."""
    total = 0.0
    for n in (*settings.orders, *([GAP] if settings.skip else [])):
        pool = Counter(gram for text in train for gram in grams(text, n))
        whole = sum(pool.values()) + settings.smoothing * len(pool)
        below = sum(size(text) ** settings.length for text in group if size(text))
        counted = [(Counter(grams(text, n)), size(text)) for text in group if size(text)]
        for gram, count in Counter(grams(query, n)).items():
            background = (pool[gram] + settings.smoothing) / whole if pool[gram] else math.inf
            share = sum(c[gram] * length ** (settings.length - 1) for c, length in counted) / below if below else 0.0
            gain = math.log((1 - settings.mix) + settings.mix * share / background) - math.log(1 - settings.mix)
            total += count / size(query) * gain * (settings.skip if n == GAP else 1)
    return total


@pytest.mark.parametrize(
    "changes",
    [
        {}, {"orders": (1,)}, {"orders": (2, 4)}, {"mix": 0.1}, {"mix": 0.95, "length": 0.0},
        {"length": 1.0, "smoothing": 2}, {"skip": 0.5}, {"orders": (2,), "skip": 3.0, "smoothing": 2},
    ],
)  # fmt: skip
def test_groups_and_examples_have_the_scores_of_the_equation(changes: dict) -> None:
    settings = NgramSettings(**changes)
    method = NgramAttributor(settings)
    method.fit(TRAIN)
    train, queries = method.encode_train(TRAIN), method.encode_queries(ASKED)
    members = {"all": range(8), "some": [0, 1, 6], "twice": [0, 5], "empty": [3, 7], "one": [4]}
    groups = Groups.from_lists(members)
    texts = [response for _, response in TEXTS]
    wanted = [
        [reference(texts, [texts[row] for row in rows], query, settings) for rows in members.values()]
        for _, query in QUERIES
    ]
    for cuts in ((), (1, 2), (4,)):
        edges = [0, *cuts, len(TEXTS)]
        blocks = [Block(a, train[a:b]) for a, b in pairwise(edges)]
        np.testing.assert_allclose(group_scores(ask(queries, blocks), groups, "ngram-lm"), wanted, rtol=1e-5, atol=1e-7)
        found = top_k(ask(queries, blocks), len(TEXTS))
        for query, (rows, scores) in enumerate(zip(found.rows, found.scores, strict=True)):
            alone = [reference(texts, [texts[row]], QUERIES[query][1], settings) for row in rows]
            np.testing.assert_allclose(scores, alone, rtol=1e-5, atol=1e-7)


def test_a_second_example_that_says_the_same_adds_nothing_and_another_dilutes() -> None:
    method = NgramAttributor()
    method.fit(TRAIN)
    blocks = [Block(0, method.encode_train(TRAIN))]
    groups = Groups.from_lists({"one": [0], "two": [0, 5], "mixed": [0, 6]})
    one, two, mixed = group_scores(ask(method.encode_queries(ASKED[:1]), blocks), groups, "ngram-lm")[0]
    assert one == pytest.approx(two, rel=1e-6)
    assert 0 < mixed < one


def marked(example: Example) -> str:
    """The response with words that the prompt has replaced by one that no text here has."""
    known = set(re.findall(r"\w+", example.prompt))
    return " ".join("copied" if word in known else word for word in WORD.findall(example.response))


def test_copied_words_count_as_one_mark() -> None:
    said = [
        ("Sort: pear, fig.", "fig, pear"),
        ("Sort: kiwi, lime.", "kiwi, lime"),
        ("Say fig", "the fig is here"),
        ("", "fig pear"),
        ("fig", ""),
    ]
    asked = [("Sort: plum, nut.", "nut, plum"), ("Sort", "nut, plum"), ("FIG", "fig"), ("fig, fig.", "fig, fig.")]
    settings = NgramSettings(copied=True)
    method = NgramAttributor(settings)
    method.fit(examples(said))
    texts = [marked(one) for one in examples(said)]
    members = {"sorts": [0, 1], "rest": [2, 3, 4], "one": [1], "plain": [3]}
    blocks = [Block(0, method.encode_train(examples(said)))]
    found = group_scores(ask(method.encode_queries(examples(asked)), blocks), Groups.from_lists(members), "ngram-lm")
    wanted = [
        [reference(texts, [texts[row] for row in rows], marked(query), settings) for rows in members.values()]
        for query in examples(asked)
    ]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7)
    assert found[0, 0] > found[0, 3] > 0  # other words, copied in the same way


def test_what_a_view_does_not_show_scores_nought(tmp_path: Path) -> None:
    index = build_index(STORED, tmp_path / "index", method="ngram")
    assert index.empty == 0
    result = index.group_scores(ASKED, {"all": ["0", "1", "2"]})
    assert result.scores[[0, 3]].all()
    assert not result.scores[2].any()
    assert result.provenance.pool == "ngram-lm"
    assert not index.top(ASKED, 6)[2].hits[0].score


def test_what_if_counts_with_and_without_the_part(tmp_path: Path) -> None:
    index = build_index(STORED, tmp_path / "index", method="ngram", shard_rows=3)
    texts, settings = [one.response for one in STORED], NgramSettings()
    found = index.what_if(ASKED, remove=["1", "5"])
    rest = [one.response for one in STORED if one.id not in ("1", "5")]
    for query, (_, response) in enumerate(QUERIES):
        assert found.before[query] == pytest.approx(reference(texts, texts, response, settings), rel=1e-5)
        assert found.after[query] == pytest.approx(reference(texts, rest, response, settings), rel=1e-5)


def test_an_index_is_changed_and_keeps_its_scores(tmp_path: Path) -> None:
    index = build_index(STORED[:4], tmp_path / "index", method="ngram", shard_rows=2)
    groups = {"a": ["0", "1"], "b": ["2", "4"]}
    before = index.group_scores(ASKED, groups).scores
    changed = index.append(STORED[4:]).delete(np.array([4])).compact()
    np.testing.assert_array_equal(Index(changed.path).group_scores(ASKED, groups).scores, before)
    changed.verify()


def test_it_conforms_by_words_and_by_subwords() -> None:
    check_attributor(lambda: NgramAttributor(NgramSettings(tokenizer=SUBWORDS, skip=0.5)))
    check_attributor(lambda: NgramAttributor(NgramSettings(copied=True, skip=2.0)))
    check_attributor(lambda: NgramAttributor(NgramSettings(view="whole", orders=(1, 8))))


def test_other_pools_take_single_gains_and_other_methods_have_no_counts(tmp_path: Path) -> None:
    index = build_index(STORED, tmp_path / "index", method="ngram")
    both = index.group_scores(ASKED, {"both": ["0", "1"]}, pool="sum").scores
    single = index.group_scores(ASKED, {"0": ["0"], "1": ["1"]}).scores
    np.testing.assert_allclose(both[:, 0], single.sum(axis=1), rtol=1e-5)
    other = build_index(STORED, tmp_path / "tfidf", method="tfidf")
    told = r"pool 'ngram-lm' .*: needs counts of n-grams, but tfidf has none\. Use method ngram"
    with pytest.raises(ConfigError, match=told):
        other.group_scores(ASKED, {"both": ["0", "1"]}, pool="ngram-lm")
    with pytest.raises(ConfigError, match="pool 'order.* needs .*but ngram does not"):
        index.group_scores(ASKED, {"both": ["0", "1"]}, pool="order-1")


def test_subwords_are_those_of_the_bundled_model() -> None:
    split, fingerprint = tokenizer_of(SUBWORDS)
    assert len(fingerprint) == 64
    empty, words = split(["", "hello world"])
    assert len(empty) == 0
    assert min(words) >= 2


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"orders": "1,1"}, "different n-gram lengths from 1 to 8"),
        ({"orders": (0,)}, "different n-gram lengths"),
        ({"orders": (1, 2, 3, 4, 5)}, "1 to 4 different"),
        ({"mix": 1.0}, "less than 1"),
        ({"view": "answer"}, "input should be"),
        ({"orders": (1, 2, 3, 4), "skip": 0.1}, r"skip: .* at most 3 n-gram lengths"),
        ({"skip": -1.0}, r"skip=-1\.0: input should be greater than or equal to 0"),
        ({"copied": True, "tokenizer": "subwords"}, "copied: .*tokenizer=words"),
        ({"copied": True, "view": "whole"}, "^settings: copied: .*view=response"),
        ({"skip": 1e38}, "less than or equal to 100"),
    ],
)
def test_impossible_settings_are_told(values: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        NgramSettings.of(values)


def test_a_tokenizer_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no tokenizer\.json\. Give words, subwords, or the folder of a model\."):
        NgramAttributor(NgramSettings(tokenizer=str(tmp_path))).fit(TRAIN)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match="is not a valid tokenizer"):
        NgramAttributor(NgramSettings(tokenizer=str(tmp_path))).fit(TRAIN)


def test_a_corpus_without_a_token_is_refused() -> None:
    with pytest.raises(ConfigError, match="no training example has a token in .*view=response"):
        NgramAttributor().fit(examples([("a", ""), ("b", " ")]))


def test_an_order_that_the_corpus_lacks_counts_when_it_comes(tmp_path: Path) -> None:
    """The corpus of the build has single words alone; longer responses are appended."""
    settings = {"orders": [1, 3], "tokenizer": "words"}
    build_index(
        Corpus.from_examples(examples([("a", "yes"), ("b", "no")])), tmp_path / "index", "ngram", settings=settings
    )
    longer = [Example("", text, id=name) for name, text in (("c", "one two three four"), ("d", "four three two one"))]
    Index(tmp_path / "index").append(Corpus.from_examples(longer))
    index = Index(tmp_path / "index")
    with np.errstate(all="raise"):
        hits = index.top(Example("", "one two three four"), 2)
    assert hits[0].example.response == "one two three four"
    assert hits[0].score > hits[1].score, "the same words in another order are less"
