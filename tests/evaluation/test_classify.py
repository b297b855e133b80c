"""The identical-class test against a naive one, with ties, duplicates and gaps."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from reference import classification as naive
from worlds.small_world import HashAttributor

import airrep
from airrep.arrays import DenseFeatures
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import ConfigError, DataError
from airrep.evaluation.classify import NOBODY, Classification, ClassifySettings, classify, ranked, vote
from airrep.evaluation.given import TrainingPool
from airrep.evaluation.result import Evaluation
from airrep.index.index import Index


class CoarseAttributor(HashAttributor):
    """Features that are small whole numbers, so that many scores are equal."""

    name = "coarse"

    def _features(self, example: Example) -> np.ndarray:
        return np.round(super()._features(example))

    def encode_train(self, examples: Sequence[Example], on_rows=None) -> DenseFeatures:
        return super().encode_train(examples, on_rows)[:, :3]


LABELS = ("red", "green", None, "blue", "red")


def _train(count: int = 60) -> Corpus:
    """Every text occurs three times, with labels of its own."""
    return Corpus.from_examples(
        Example(
            f"question {row % 20}", f"answer {row % 20}", f"t{row}", LABELS[row % 7 % 5], metadata={"half": row % 2}
        )
        for row in range(count)
    )


def _queries() -> Corpus:
    """Some have the texts of training examples, one has a label that no training example has."""
    texts = [(f"question {row}", f"answer {row}") for row in range(0, 30, 2)]
    labels = ["red", "green", "blue", "red", "violet"]
    return Corpus.from_examples(Example(*text, f"q{row}", labels[row % 5]) for row, text in enumerate(texts))


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return airrep.build_index(_train(), tmp_path / "index", CoarseAttributor(), shard_rows=16)


def _scores(index: Index, queries: Corpus) -> np.ndarray:
    train = np.concatenate([np.asarray(block.features[:], np.float64) for block in index.blocks(index.method)])
    return index.attributor.encode_queries(queries).astype(np.float64) @ train.T


def _naive(index: Index, queries: Corpus, k: int, keep: Sequence[bool] | None = None) -> list[list[str | None]]:
    """Labels of the k neighbours of each query."""
    train = _train()
    texts = [(example.prompt, example.response) for example in train]
    found = [
        naive.neighbours(scores, texts, (query.prompt, query.response), k, keep)
        for query, scores in zip(queries, _scores(index, queries), strict=True)
    ]
    return [[train[row].label for row in rows] for rows in found]


def test_accuracy_and_votes_equal_the_naive_test_with_ties_and_copies(index: Index) -> None:
    queries = _queries()
    scores = _scores(index, queries)
    assert any(len(np.unique(row)) < len(row) / 2 for row in scores)  # there are ties
    row = classify([("coarse", index)], queries, ClassifySettings(votes=(1, 4, 9))).rows[0]
    nearest = _naive(index, queries, 9)
    asked = [str(query.label) for query in queries]
    right = [naive.is_right(labels[0], wanted) for labels, wanted in zip(nearest, asked, strict=True)]
    assert row.per_query.tolist() == right
    assert 0 < row.value < 1
    assert row.value == pytest.approx(np.mean(right), rel=1e-14)
    assert row.more["macro"]["value"] == pytest.approx(naive.macro(right, asked), rel=1e-14)
    for k in (1, 4, 9):
        votes = [
            naive.is_right(naive.elected(labels[:k]), wanted) for labels, wanted in zip(nearest, asked, strict=True)
        ]
        assert row.more[f"vote@{k}"]["value"] == pytest.approx(np.mean(votes), rel=1e-14)


def test_counts_and_chance_are_those_of_the_data(index: Index) -> None:
    queries, train = _queries(), _train()
    facts = classify([("coarse", index)], queries, ClassifySettings(votes=(2,))).facts
    asked, labels = [str(query.label) for query in queries], [example.label for example in train]
    assert facts["chance"] == pytest.approx(naive.chance(asked, labels), rel=1e-14)
    assert facts["labels"]["red"] == {"queries": asked.count("red"), "train": labels.count("red")}
    assert facts["labels"]["violet"]["train"] == 0
    assert facts["queries_without_examples_of_their_label"] == asked.count("violet")
    assert facts["unlabelled_examples"] == labels.count(None)
    assert facts["queries_among_the_examples"] == 10
    assert facts["commonest"] == {"label": "red", "accuracy": asked.count("red") / len(asked)}


def test_a_filter_decides_what_is_ranked(index: Index) -> None:
    queries, keep = _queries(), [row % 2 == 1 for row in range(60)]
    evaluation = classify([("coarse", index)], queries, ClassifySettings(votes=(), where="half == 1"))
    nearest = _naive(index, queries, 1, keep)
    expected = [naive.is_right(labels[0], str(q.label)) for labels, q in zip(nearest, queries, strict=True)]
    assert evaluation.rows[0].per_query.tolist() == expected
    assert evaluation.facts["examples"] == 30


def test_deleted_examples_are_not_found(index: Index) -> None:
    left = index.delete(range(0, 60, 2))
    evaluation = classify([("coarse", left)], _queries(), ClassifySettings(votes=()))
    nearest = _naive(index, _queries(), 1, [row % 2 == 1 for row in range(60)])
    expected = [naive.is_right(labels[0], str(q.label)) for labels, q in zip(nearest, _queries(), strict=True)]
    assert evaluation.rows[0].per_query.tolist() == expected


def test_a_query_never_finds_its_own_text_however_often_it_is_there(tmp_path: Path) -> None:
    """An index of the queries themselves, three times: without the rule all would be right."""
    index = airrep.build_index(_train(), tmp_path / "self", HashAttributor())
    seen = Corpus.from_examples(Example(f"question {row}", f"answer {row}", f"q{row}", "red") for row in range(20))
    hashes, pool = np.array([query.content_hash for query in seen], "S16"), TrainingPool.of([("", index)], "label")[0]
    for part, rows in ranked(index, seen, hashes, pool, 5):
        for number, of_query in zip(part.tolist(), rows.tolist(), strict=True):
            assert len(set(of_query)) == 5
            assert all(row % 20 != number for row in of_query)


def test_chunks_of_queries_change_nothing(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = classify([("coarse", index)], _queries())
    monkeypatch.setattr("airrep.evaluation.classify.CHUNK", 2)
    assert classify([("coarse", index)], _queries()).to_dict() == whole.to_dict()


def test_a_vote_goes_to_the_first_of_equals_and_never_to_nobody() -> None:
    n = NOBODY
    ballots = np.array([[2, 1, 1, 2], [n, n, n, 3], [n, n, n, n], [0, 1, 2, 3], [n, 1, 2, 2]])
    assert vote(ballots).tolist() == [2, 3, NOBODY - 1, 0, 2]


def test_rows_are_compared_with_the_first_on_the_same_queries(index: Index, tmp_path: Path) -> None:
    other = airrep.build_index(_train(), tmp_path / "other", HashAttributor("x"), shard_rows=7)
    evaluation = classify([("a", index), ("b", other), ("c", index)], _queries())
    first, second, third = evaluation.rows
    assert first.difference is None
    assert second.difference is not None
    assert second.difference.value == pytest.approx(second.value - first.value)
    assert third.difference is not None
    assert (third.difference.value, third.difference.p_value) == (0, 1)
    assert evaluation.queries[0] == ("red", "q0")


def test_queries_without_label_are_refused_or_left_out_and_counted(index: Index) -> None:
    queries = Corpus.from_examples([*_queries(), Example("new", "one", "bare")])
    with pytest.raises(DataError, match=r'queries: of \d+, 1 has no label; the first: "bare"'):
        classify([("coarse", index)], queries)
    evaluation = classify([("coarse", index)], queries, ClassifySettings(skip_unlabelled=True))
    assert np.isnan(evaluation.rows[0].per_query[-1])
    assert evaluation.rows[0].dropped == evaluation.facts["unlabelled_queries"] == 1
    assert evaluation.rows[0].value == classify([("coarse", index)], _queries()).rows[0].value


def test_what_cannot_be_asked_is_refused(index: Index, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no index is given"):
        classify([], _queries())
    with pytest.raises(DataError, match="queries: no query has a source"):
        classify([("coarse", index)], _queries(), ClassifySettings(by="source"))
    with pytest.raises(ConfigError, match="vote=58 .* only 57"):
        classify([("coarse", index)], _queries(), ClassifySettings(votes=(58,)))
    with pytest.raises(ConfigError, match="votes=.*must be at least 1"):
        ClassifySettings.of({"votes": (0,)})
    fewer = airrep.build_index(_train(40), tmp_path / "fewer", CoarseAttributor())
    with pytest.raises(DataError, match=r"b and a cannot be compared: .* \(40 and 60 examples\)"):
        classify([("a", index), ("b", fewer)], _queries())


def test_the_request_tells_other_questions_apart(index: Index) -> None:
    def request(**settings: object) -> dict:
        return Classification([("x", index)], _queries(), ClassifySettings.of(settings)).request

    assert request() == Classification([("y", index)], _queries(), ClassifySettings()).request
    assert request(votes=(3,)) != request()
    assert request(where="half == 1")["subject"] != request()["subject"]


def test_votes_that_nobody_asked_for_are_of_no_more_examples_than_a_filter_keeps(tmp_path: Path) -> None:
    train = Corpus.from_examples(Example(f"p{n}", f"r{n}", f"t{n}", "red", metadata={"rank": n}) for n in range(30))
    index, queries = airrep.build_index(train, tmp_path / "few", HashAttributor()), _queries()
    evaluation = classify([("x", index)], queries, ClassifySettings(where="rank < 4"))
    assert evaluation.facts["votes"] == evaluation.request["settings"]["votes"] == [4]
    assert "vote@4" in evaluation.rows[0].more
    assert classify([("x", index)], queries).facts["votes"] == [10]
    with pytest.raises(ConfigError, match=r"--where keeps 4 examples: .*vote=10 .* only 4"):
        classify([("x", index)], queries, ClassifySettings(where="rank < 4", votes=(10,)))
    with pytest.raises(ConfigError, match=r"--where keeps 0 examples: .*only 0"):
        classify([("x", index)], queries, ClassifySettings(where="rank < 0"))


def _constant(tmp_path: Path, *labels: str) -> Evaluation:
    """All training examples are red, and the queries have these labels."""
    train = Corpus.from_examples(Example(f"p{row}", f"r{row}", f"t{row}", "red") for row in range(20))
    queries = Corpus.from_examples(Example("a", f"b{row}", f"q{row}", label) for row, label in enumerate(labels))
    return classify([("x", airrep.build_index(train, tmp_path / "red", HashAttributor()))], queries)


def test_a_macro_average_of_all_or_none_right_has_an_exact_interval(tmp_path: Path) -> None:
    right = _constant(tmp_path / "right", *["red"] * 6).rows[0]
    assert right.more["macro"]["interval"] == pytest.approx([0.025 ** (1 / 6), 1.0])
    wrong = _constant(tmp_path / "wrong", "green", "green", "blue", "blue").rows[0]
    assert (wrong.value, wrong.more["macro"]["value"]) == (0, 0)
    assert wrong.more["macro"]["interval"] == pytest.approx([0, 1 - 0.025**0.25])
    assert wrong.interval == pytest.approx((0, 1 - 0.025**0.25))


def test_a_macro_average_of_unlike_classes_has_the_least_mean_that_a_search_finds(tmp_path: Path) -> None:
    """Class by class all right or all wrong: no draw differs."""
    row = _constant(tmp_path, "red", "red", *["green"] * 5, "blue").rows[0]
    assert row.more["macro"]["value"] == pytest.approx(1 / 3)
    low, high = row.more["macro"]["interval"]
    assert low == pytest.approx(0.025**0.5 / 3)
    green = np.linspace(0.4, 1, 200_001)  # 1 - p of the wrong classes, at the edge of what is not too unlikely
    blue = 0.025 / green**5
    assert high == pytest.approx(1 - (green + blue)[blue <= 1].min() / 3, abs=1e-9)
    assert high < 1 - 0.025 / 3
