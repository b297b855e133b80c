"""Words counted: terms as scikit-learn has them, BM25, and DSIR by the numbers of data-selection."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from worlds.commands import Run
from worlds.small_world import make_corpus

import airrep
from airrep.attributors.methods import make_attributor
from airrep.attributors.settings import Bm25Settings
from airrep.attributors.text.lexical import Bm25Attributor, DsirAttributor, Terms
from airrep.attributors.text.tokens import tokenizer_of
from airrep.corpus.corpus import Corpus, Example
from airrep.corpus.words import Words, plain
from airrep.errors import ConfigError, DataError, NotFittedError
from airrep.index.building import build_index
from airrep.index.selection import resample

TRAIN = Corpus.from_examples(
    Example(prompt, response, id=f"t{row}")
    for row, (prompt, response) in enumerate(
        [
            ("What is 2 + 2?", "4"),
            ("Name a colour.", "Blue, or a dark blue."),
            ("Übersetze: Guten Morgen", "Good morning ☀️"),
            ("Name a fruit.", "An apple."),
        ]
    )
)
QUERIES = Corpus.from_examples(
    [Example("Name a colour of the sky.", "Blue.", id="q0"), Example("Add 2 and 3!", "5", id="q1")]
)
TOGETHER = [-157.45171889605706, -126.14745929170337, -186.24237816249112, -114.6711949845141]
"""Log importance weights of the training examples for both queries as one target: data-selection 1.0.3, nltk 3.8.1."""
EACH = [
    [-187.62867192361128, -120.15956650827525, -186.24237816249112, -112.17623959391906],
    [-155.58310076130329, -308.5954715381488, -186.24237816249112, -191.4998716345197],
]
"""The same with each query as a target of its own."""


def fitted(train: Corpus = TRAIN, **settings: object) -> DsirAttributor:
    attributor = make_attributor("dsir", settings)
    assert isinstance(attributor, DsirAttributor)
    attributor.fit(train)
    return attributor


def test_dsir_conforms() -> None:
    airrep.check_attributor(lambda: make_attributor("dsir", {"ngrams": 3, "buckets": 50, "smoothing": 0.1}))


def test_importance_weights_are_the_frozen_ones_of_data_selection() -> None:
    """Computed once with data-selection 1.0.3 and nltk 3.8.1; oracles/dsir.py compares afresh."""
    attributor = fitted()
    features = attributor.encode_train(TRAIN)
    np.testing.assert_allclose(attributor.encode_target(QUERIES) @ features.T, [TOGETHER], rtol=1e-6)
    np.testing.assert_allclose(attributor.encode_queries(QUERIES) @ features.T, EACH, rtol=1e-6)


def test_queries_do_not_depend_on_each_other_and_progress_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    attributor, told = fitted(make_corpus(20)), []
    whole = attributor.encode_queries(make_corpus(9, "q"), told.append).toarray()
    monkeypatch.setattr("airrep.attributors.text.lexical.TOGETHER", 2)
    np.testing.assert_array_equal(attributor.encode_queries(make_corpus(9, "q"), told.append).toarray(), whole)
    assert told == [9, 2, 2, 2, 2, 1]
    assert attributor.encode_queries([]).shape == (0, 10_000)
    assert attributor.encode_train([]).shape == (0, 10_000)


def test_a_query_like_the_whole_corpus_weighs_nothing() -> None:
    train = Corpus.from_examples([TRAIN[0]])
    assert fitted(train).encode_queries([TRAIN[0]]).nnz == 0


def test_settings_and_what_was_learnt_are_in_the_fingerprint() -> None:
    made = {
        fitted().fingerprint,
        fitted(make_corpus(3)).fingerprint,
        fitted(ngrams=1).fingerprint,
        fitted(buckets=99).fingerprint,
        fitted(smoothing=1e-6).fingerprint,
    }
    assert len(made) == 5


def test_words_that_the_corpus_never_had_give_finite_scores() -> None:
    attributor = fitted()
    scores = attributor.encode_queries([Example("zzz", "yyy", id="x")]) @ attributor.encode_train(TRAIN).T
    assert np.isfinite(scores).all()
    assert (scores < 0).all()


def test_what_has_no_words_is_refused() -> None:
    blank = Example(" ", "\n", id="blank")
    attributor = fitted()
    with pytest.raises(DataError, match="dsir: query 'blank' has no words. Remove the query"):
        attributor.encode_queries([QUERIES[0], blank])
    with pytest.raises(DataError, match="dsir: the queries have no words"):
        attributor.encode_target([blank])
    with pytest.raises(DataError, match="dsir: the training examples have no words"):
        DsirAttributor().fit(TRAIN[:0])
    assert attributor.encode_train([blank]).nnz == 0


def test_dsir_says_when_it_is_not_fitted() -> None:
    for call in (DsirAttributor().encode_train, DsirAttributor().encode_queries, DsirAttributor().encode_target):
        with pytest.raises(NotFittedError, match=r"dsir: has not seen the training corpus\. Call fit\(train\) first"):
            call(TRAIN)


def test_a_dsir_index_answers_like_the_attributor(tmp_path: Path) -> None:
    train, queries = make_corpus(40), make_corpus(7, "other")
    index = airrep.build_index(train, tmp_path / "dsir", "dsir", shard_rows=16)
    attributor = fitted(train)
    scores = attributor.encode_queries(queries) @ attributor.encode_train(train).T
    for row, hits in zip(scores, airrep.Index(index.path).top(queries, k=5), strict=True):
        assert [hit.score for hit in hits] == pytest.approx(np.sort(row)[::-1][:5].tolist(), rel=1e-5)
    result = index.group_scores(queries, "label")
    expected = [scores[:, label::3].sum(axis=1) for label in range(3)]
    np.testing.assert_allclose(result.scores, np.stack(expected, axis=1), rtol=1e-5)
    grown = index.append(make_corpus(9, "new"))
    assert grown.top(queries[0], k=49)[0].score >= index.top(queries[0], k=1)[0].score
    assert len(airrep.select(grown, queries, 5)) == 5


def test_draws_follow_weights_and_seed_and_say_why(tmp_path: Path) -> None:
    index = airrep.build_index(TRAIN, tmp_path / "dsir", "dsir", shard_rows=3)
    drawn = resample(index, QUERIES, 4, seed=3)
    assert [draw.draw for draw in drawn] == [1, 2, 3, 4]
    assert [draw.row for draw in drawn][:2] == [3, 1]
    for draw in drawn:
        assert draw.log_weight == pytest.approx(TOGETHER[draw.row], rel=1e-6)
        assert draw.example == TRAIN[draw.row]
    reason = json.loads(drawn.write(tmp_path / "picked.jsonl").read_text().splitlines()[0])["selected_by"]
    assert reason == {"draw": 1, "log_weight": drawn[0].log_weight, "seed": 3, "row": 3}
    assert resample(index, QUERIES, 2, seed=3)[:] == drawn[:2]


def test_close_weights_are_drawn_in_another_order_with_another_seed(tmp_path: Path) -> None:
    index = airrep.build_index(make_corpus(30), tmp_path / "dsir", "dsir", settings={"smoothing": 1.0})
    orders = {tuple(draw.row for draw in resample(index, make_corpus(5, "q"), 10, seed=seed)) for seed in range(4)}
    assert len(orders) == 4


def test_draws_heed_filters_deletions_and_equal_texts(tmp_path: Path) -> None:
    twins = [Example(e.prompt, e.response, id=f"{e.id}-again", source="copy") for e in make_corpus(6)]
    train = Corpus.from_examples([*make_corpus(6), *twins])
    index = airrep.build_index(train, tmp_path / "dsir", "dsir")
    only = resample(index, QUERIES, 6, drop_duplicates=True)
    assert sorted(draw.row for draw in only) == list(range(6))
    copies = resample(index, QUERIES, 6, where='source == "copy"', drop_duplicates=True)
    assert sorted(draw.row for draw in copies) == list(range(6, 12))
    fewer = index.delete([0])
    assert sorted(draw.row for draw in resample(fewer, QUERIES, 11)) == list(range(1, 12))
    with pytest.raises(ConfigError, match="select: count is 12, but only 11 examples can be chosen"):
        resample(fewer, QUERIES, 12)


@pytest.fixture
def run(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., tuple[int, str]]:
    """Run the command line in this process, in an empty folder; its exit status and stderr."""
    monkeypatch.chdir(tmp_path)

    def status_and_stderr(*arguments: str) -> tuple[int, str]:
        ran = run(*arguments)
        return ran.status, ran.err

    return status_and_stderr


def test_the_command_line_draws_from_a_dsir_index_alone(run: Callable[..., tuple[int, str]]) -> None:
    for name, corpus in (("train.jsonl", make_corpus(30)), ("queries.jsonl", make_corpus(4, "q"))):
        Path(name).write_text("".join(json.dumps(example.to_dict()) + "\n" for example in corpus))
    for method in ("dsir", "tfidf"):
        assert run("index", "train.jsonl", "--out", method, "--method", method)[0] == 0
    asked = ("queries.jsonl", "--count", "5", "--out")
    status, told = run("select", "dsir", *asked, "a.jsonl", "--set", "resample=true", "--set", "seed=7")
    assert (status, "a.jsonl: 5 examples, drawn by importance weight with seed 7" in told) == (0, True)
    picked = airrep.read_corpus("a.jsonl")
    assert [example.metadata["selected_by"]["draw"] for example in picked] == [1, 2, 3, 4, 5]
    assert run("select", "dsir", *asked, "b.jsonl", "--set", "resample=true", "--set", "seed=7")[0] == 0
    assert Path("b.jsonl").read_bytes() == Path("a.jsonl").read_bytes()
    assert run("select", "dsir", *asked, "c.jsonl")[0] == 0
    status, told = run("select", "tfidf", *asked, "d.jsonl", "--set", "resample=true")
    assert (status, "tfidf: method 'tfidf' has no importance weights to sample by" in told) == (1, True)
    status, told = run("select", "dsir", *asked, "d.jsonl", "--set", "seed=7")
    assert (status, "--set seed= works only with --set resample=true" in told) == (1, True)
    assert not Path("d.jsonl").exists()


WORDS = [
    "it", "It", "is", "cat", "a", "\u00e9t\u00e9", "e\u0301t", "\u0130stanbul", "\u732b\u304c", "foo_1", "x-y", ".",
    "12", "\n",
]  # fmt: skip
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
    with pytest.raises(ConfigError, match=r"^tfidf: no term occurs in 2 or more .* Lower min_count"):
        make_attributor("tfidf", {"min_count": 2}).fit(corpus)
    with pytest.raises(ConfigError, match="^bm25: no training example has a word"):
        make_attributor("bm25", {}).fit(Corpus.from_examples([Example("a b", "c")]))


RESPONSES = ["red red green", "green blue", "blue blue blue sky over sea", "yellow"]
SAID = Corpus.from_examples([Example("p", text, id=str(n)) for n, text in enumerate(RESPONSES)])


def bm25(query: str, text: str, k: float = 1.2, b: float = 0.75) -> float:
    """Lucene's, over RESPONSES."""
    documents = [one.split() for one in RESPONSES]
    mean, words, total = sum(map(len, documents)) / len(documents), text.split(), 0.0
    for term in query.split():
        having = sum(term in one for one in documents)
        if having:
            weight = math.log(1 + (len(documents) - having + 0.5) / (having + 0.5))
            count = words.count(term)
            total += weight * count / (count + k * (1 - b + b * len(words) / mean))
    return total


@pytest.mark.parametrize("changes", [{}, {"saturation": 0.1}, {"saturation": 2.0, "length": 0.0}])
def test_scores_are_those_of_the_formula(changes: dict[str, float]) -> None:
    method = Bm25Attributor(Bm25Settings(**changes))
    method.fit(SAID)
    asked = ["blue green", "red red sky", "nothing here"]
    queries = method.encode_queries([Example("p", text, id=text) for text in asked])
    found = queries @ method.encode_train(SAID).T
    settings = method.settings
    wanted = [[bm25(query, text, settings.saturation, settings.length) for text in RESPONSES] for query in asked]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_an_appended_example_is_scored_by_the_first_corpus(tmp_path: Path) -> None:
    index = build_index(SAID, tmp_path / "index", method="bm25")
    more = index.append(Corpus.from_examples([Example("p", "blue green new", id="more")]))
    (best, *_) = more.top([Example("p", "green", id="q")], 1)[0].hits
    rows = {hit.example.id: hit.score for hit in more.top([Example("p", "blue", id="q")], 5)[0].hits}
    assert rows["more"] == pytest.approx(bm25("blue", "blue green"), rel=0.2)
    assert best.example.id in ("1", "more")


def test_a_corpus_without_words_is_refused() -> None:
    with pytest.raises(ConfigError, match="no training example has a word in .*view=response"):
        Bm25Attributor(Bm25Settings()).fit(Corpus.from_examples([Example("p", "!", id="0")]))


METHODS = {"tfidf": {"view": "response"}, "bm25": {}, "ngram": {}, "dsir": {"view": "response"}}
RELATED, OTHER = "公园里的樱花都开了，很多人去拍照。", "银行的利率下降了，所以有人买房子。"
ASKED = "樱花开了吗"


def parts(features: Any) -> list[np.ndarray]:
    return [features] if isinstance(features, np.ndarray) else [features.indptr, features.indices, features.data]


@pytest.mark.parametrize("name", METHODS)
def test_what_shares_signs_comes_first(name: str, tmp_path: Path) -> None:
    data = Corpus.from_examples([Example("a", OTHER, "other"), Example("b", RELATED, "related")])
    index = airrep.build_index(data, tmp_path / "index", name, settings={**METHODS[name], "signs": True})
    first, second = index.top(Example("c", ASKED))
    assert (first.example.id, first.score > second.score) == ("related", True)
    told = index.top(Example("c", ASKED), k=1, why=True)[0].why
    assert told is not None
    assert any(set(word.text) & set("樱花开了") for word in told.same_words), told.same_words


@pytest.mark.parametrize("name", METHODS)
def test_texts_with_spaces_have_the_same_features(name: str) -> None:
    english = [*make_corpus(20), Example("Ünï_x 1.5", "don't — C'est “là”, ok? 한국어 말", "odd")]
    found = []
    for signs in (False, True):
        method = make_attributor(name, {**METHODS[name], "signs": signs})
        method.fit(Corpus.from_examples(english))
        found.append([*parts(method.encode_train(english)), *parts(method.encode_queries(english))])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", METHODS)
def test_indexes_from_before_read_as_they_did(name: str) -> None:
    """Their manifests know no such setting, and their fingerprints are those of methods that have none."""
    assert "signs" not in make_attributor(name, METHODS[name]).settings.model_dump(mode="json")
    assert make_attributor(name, {"signs": True}).settings.model_dump(mode="json")["signs"] is True


def test_the_command_says_where_words_have_no_spaces(run: Callable[..., tuple[int, str]]) -> None:
    rows = [{"prompt": "a", "response": text} for text in (RELATED, OTHER, "an English one", "one more, 春 in it")]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = "2 responses have no spaces between words"
    for method in METHODS:
        assert said in run("index", "rows.jsonl", "--method", method, "--out", method)[1]
        status, err = run("index", "rows.jsonl", "--method", method, "--set", "signs=true", "--out", f"{method} signs")
        assert (status, said in err) == (0, False)
    assert said not in run("index", "rows.jsonl", "--method", "ngram", "--set", "tokenizer=subwords", "--out", "x")[1]


def test_words_of_mixed_texts() -> None:
    assert Words(signs=True).findall("GPT4模型 foo_bar สวัสดี、カナ 한국어") == [
        "GPT4", "模", "型", "foo_bar", *"สวัสดี", "カ", "ナ", "한국어",
    ]  # fmt: skip
    split, _ = tokenizer_of("words", signs=True)
    assert [len(found) for found in split(["樱花 ok.", "樱花", "ok"])] == [4, 2, 1]
    places = split.find("a樱花。")
    assert list(zip(places.starts.tolist(), places.stops.tolist(), strict=True)) == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert split(["a樱花。"]).numbers.tolist() == places.numbers.tolist()
