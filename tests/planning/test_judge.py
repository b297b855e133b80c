"""Judge an index: one call from data to a sentence, resumed, by answers and by better ones."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from worlds.small_world import HashAttributor, make_corpus
from worlds.tiny_lms import tiny_lm

import airrep
from airrep.errors import ArtifactError, ConfigError
from airrep.evaluation.result import Difference, Evaluation, Row
from airrep.evaluation.statistics.labels import Moved
from airrep.index.contrast import Question
from airrep.planning import judge as judging
from airrep.planning.budget import Costs
from airrep.planning.judge import verdict_of

TUNING = {"epochs": 1, "learning_rate": 3e-3}
FAST = Costs(fine_tune=0.01, evaluate=0.001, encode=0.001, layers=2)


@pytest.fixture(scope="module")
def lm(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny_lm(tmp_path_factory.mktemp("lm") / "lm")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of known costs, and few subsets."""
    monkeypatch.setattr(judging, "measure_machine", lambda *_: FAST)
    monkeypatch.setattr("airrep.planning.judge.MOST_SUBSETS", 20)


@pytest.mark.usefixtures("quick")
def test_one_call_judges_and_goes_on(lm: str, tmp_path: Path) -> None:
    index = airrep.build_index(make_corpus(60), tmp_path / "index", "ngram")
    queries, told = make_corpus(12, "q"), list[str]()
    made = airrep.judge(index, queries, lm, budget="5m", fine_tune=TUNING, tell=told.append)
    names = [row.name for row in made.evaluation.rows]
    assert names == ["this index (ngram)", "TF-IDF", "gradients (LoGra)", "random scores"]
    assert made.path.parent.parent == tmp_path / "index-judged"
    assert airrep.open(made.path).facts["judgement"] == made.sentence
    assert made.to_dict()["sentence"] == made.sentence
    assert any("20 fine-tunes to do, about" in line for line in told)
    again = airrep.judge(index, queries, lm, budget="2h", fine_tune=TUNING, tell=told.append)
    assert again.sentence == made.sentence
    assert any("goes on with the 20 subsets" in line for line in told)
    with pytest.raises(ArtifactError, match="holds results for other examples or queries"):
        airrep.judge(index, make_corpus(5, "q"), lm, budget="5m", fine_tune=TUNING, out=made.path.parent)


def test_gradients_that_would_take_too_long_are_told(tmp_path: Path) -> None:
    told = list[str]()
    rivals = judging.build_rivals(make_corpus(5), tmp_path, None, "tfidf", told.append)
    assert [name for name, _ in rivals] == ["counting", judging.CHANCE]
    assert [judging.LOGRA in line for line in told] == [True]


@pytest.mark.usefixtures("quick")
def test_better_answers_are_judged_by_differences_of_losses(lm: str, tmp_path: Path) -> None:
    index = airrep.build_index(make_corpus(60), tmp_path / "index", "tfidf")
    queries = make_corpus(4, "q")
    better = [replace(one, response="answer 30", id=f"b{one.id}") for one in queries]
    made = airrep.judge(index, queries, lm, budget="5m", better=better, fine_tune=TUNING, out=tmp_path / "run")
    labels = airrep.open(tmp_path / "run" / "labels")
    plan = airrep.open(tmp_path / "run" / "subsets")
    losses = made.evaluation.matrices["losses/0"]
    assert losses.shape == (4, 20)
    asked = judging.Asked.of(Question.of(queries, better), {}, 150, 0)
    train = airrep.Corpus.from_examples(list(make_corpus(60)))
    (instance,) = labels.instances(train, asked.corpus)
    expected = instance.losses[list(asked.answers)] - instance.losses[list(asked.better or ())]
    np.testing.assert_array_equal(losses, expected)
    groups = [plan.subset_rows(0, number) for number in range(20)]
    scores = index.group_scores(queries, groups, better=better).scores
    np.testing.assert_allclose(made.evaluation.matrices["0/0"], scores, rtol=1e-4, atol=1e-6)


def test_a_budget_is_refused_before_any_fine_tune(lm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airrep.lm.model.TargetLM.fine_tune", None)  # not even to measure
    index = airrep.build_index(make_corpus(60), tmp_path / "index", "tfidf")
    for budget, told in (
        ("0.001s", r"Give at least \d+ minutes"),
        (0.0, "a time above 0"),
        (float("inf"), "a time above 0"),
    ):
        with pytest.raises(ConfigError, match=told):
            airrep.judge(index, make_corpus(4, "q"), lm, budget=budget, fine_tune=TUNING)
    assert not (tmp_path / "index-judged").exists()
    with pytest.raises(ConfigError, match="its better answer is the same text"):
        airrep.judge(index, queries := make_corpus(4, "q"), lm, better=queries, fine_tune=TUNING)


@pytest.mark.usefixtures("quick")
def test_an_index_that_tells_nothing_is_refused_before_fine_tunes_or_left_out_as_rival(lm: str, tmp_path: Path) -> None:
    foreign, told = [airrep.Example("日本", "語"), airrep.Example("中", "国")], list[str]()
    index = airrep.build_index(make_corpus(60), tmp_path / "index", "tfidf")
    with pytest.raises(ConfigError, match="gives all examples the same score for these queries"):
        airrep.judge(index, foreign, lm, budget="5m", fine_tune=TUNING)
    assert not (tmp_path / "index-judged").exists()
    other = airrep.build_index(make_corpus(60), tmp_path / "other", HashAttributor())
    made = airrep.judge(other, foreign, lm, budget="5m", fine_tune=TUNING, tell=told.append)
    assert "TF-IDF" not in [row.name for row in made.evaluation.rows]
    assert "TF-IDF is left out: for these queries it gives all subsets the same score" in told


def _evaluation(own: tuple[float, float, float], rival: float, gap: tuple[float, float, float]) -> Evaluation:
    """An index, and counting with its difference to that."""
    values = np.zeros(20)
    rows = (
        Row("this index", "channels", own[0], own[1:], values),
        Row("counting", "ngram", rival, (rival, rival), values, difference=Difference(gap[0], gap[1:], 0.5)),
        Row("random scores", "random", 0.9, (0.9, 0.9), values, difference=Difference(0.3, (0.1, 0.4), 0.5)),
    )
    return Evaluation("lds", rows, tuple(("0", str(n)) for n in range(20)), "subject")


@pytest.mark.parametrize(
    ("own", "rival", "gap", "verdict", "told"),
    [
        ((0.62, 0.55, 0.69), 0.51, (-0.11, -0.18, -0.04), "better", "counting (51), by 11 (4 to 18): trust"),
        ((0.62, 0.55, 0.69), 0.6, (-0.02, -0.1, 0.05), "as good", "not shown to be better than counting (60; diff"),
        (
            (0.3, 0.2, 0.4),
            0.6,
            (0.3, 0.2, 0.4),
            "worse",
            "by 30 (20 to 40): do not trust its scores here, or build it with --method ngram",
        ),
        ((0.03, -0.05, 0.1), 0.01, (-0.02, -0.1, 0.1), "not shown", "not shown to predict fine-tunes at all"),
    ],
)
def test_verdicts(
    own: tuple[float, float, float], rival: float, gap: tuple[float, float, float], verdict: str, told: str
) -> None:
    evaluation = _evaluation(own, rival, gap)
    found, sentence = verdict_of(evaluation, Moved(3.9, 3.0, 0.9))
    assert found == verdict
    assert told in sentence
    assert sentence.count("\n") == 0
    found, sentence = verdict_of(evaluation, Moved(3.958, 3.937, 0.021))
    assert found == "not judged"
    assert "Nothing can be judged" in sentence
