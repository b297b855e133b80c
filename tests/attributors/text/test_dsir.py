"""DSIR: weights against frozen numbers of data-selection, its index, and drawing by weight."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from worlds.commands import runner
from worlds.small_world import make_corpus

import airrep
from airrep.attributors.methods import make_attributor
from airrep.attributors.text.lexical import DsirAttributor
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import ConfigError, DataError, NotFittedError
from airrep.index.selection.picking import resample

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
    airrep.check_attributor(DsirAttributor)
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
    with pytest.raises(DataError, match="dsir: query 'blank' has no words; expected at least one. Leave the query out"):
        attributor.encode_queries([QUERIES[0], blank])
    with pytest.raises(DataError, match="dsir: finds no word in the queries"):
        attributor.encode_target([blank])
    with pytest.raises(DataError, match="dsir: finds no word in the training examples"):
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
    with pytest.raises(ConfigError, match="select: count is 12, but there are 11 examples to choose from"):
        resample(fewer, QUERIES, 12)


@pytest.fixture
def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., tuple[int, str]]:
    """Run the command line in this process, in an empty folder; its exit status and stderr."""
    monkeypatch.chdir(tmp_path)

    plain = runner(capsys, monkeypatch)

    def run(*arguments: str) -> tuple[int, str]:
        ran = plain(*arguments)
        return ran.status, ran.err

    return run


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
    assert (status, "tfidf: method 'tfidf' has no importance weights to draw by; expected an index" in told) == (
        1,
        True,
    )
    status, told = run("select", "dsir", *asked, "d.jsonl", "--set", "seed=7")
    assert (status, "--set seed: is only for resample=true" in told) == (1, True)
    assert not Path("d.jsonl").exists()
