"""What Python code may give by mistake is refused in one line, and is never taken for something else."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import airrep
from airrep.attributors.recipes import ChannelsSettings
from airrep.errors import AirRepError
from airrep.labels.outside import import_labels
from airrep.lm.settings import LmSettings
from airrep.scoring.asked import score_blocks
from airrep.training.linear.datamodels import fit_datamodels
from airrep.training.ranking_loss import ranking_loss

RECORDS = [
    {"id": f"e{i}", "prompt": f"q {i}", "response": f"answer number {i}", "source": "ab"[i % 2], "year": 2000 + i}
    for i in range(12)
]
LONE = "\ud800"
"""Half of a surrogate pair, which no file holds as UTF-8."""
SCORES = np.random.default_rng(0).normal(size=(4, 10))


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> airrep.Index:
    return airrep.build_index(RECORDS, tmp_path_factory.mktemp("arguments") / "index", "tfidf")


OF_AN_INDEX: dict[str, Callable[[Any], object]] = {
    "a budget that is none": lambda index: airrep.select(index, "answer", tokens=float("nan")),
    "half a quota": lambda index: airrep.select(index, "answer", 3, by="source", most=1.5),
    "half a quota of one value": lambda index: airrep.select(index, "answer", 3, by="source", most={"a": 0.5}),
    "diversity in words": lambda index: airrep.select(index, "answer", 3, diversity="much"),
    "one text for ids": lambda index: index.rows_of("e1"),
    "a number for an id": lambda index: index.rows_of([1]),
    "no id": lambda index: index.rows_of([None]),
    "an id that no file holds": lambda index: index.rows_of([LONE]),
    "a literal that no file holds": lambda index: index.where(f'prompt == "{LONE}"'),
    "one written as an escape": lambda index: index.where('prompt == "\\ud800"'),
    "one looked for": lambda index: index.where('"\\ud800" in prompt'),
    "one as an argument": lambda index: index.where(source=LONE),
    "one in a list": lambda index: index.where(source=["a", LONE]),
    "a filter of two lines": lambda index: index.where('id == "a"\nor id = "b"'),
    "a group's name": lambda index: index.group_scores("answer", {LONE: [0], "b": [1]}),
    "a group's temperature": lambda index: index.group_scores(
        "answer", {"a": [0]}, pool="attention", temperature=np.ones(2)
    ),
    "a query that is not there": lambda index: index.group_scores("answer", {"a": [0]}).ranked(5),
    "features of nothing": lambda index: index.features([]),
    "half a row": lambda index: score_blocks(index.ask("answer"), block_rows=2.5),
    "a filter that nothing fulfils": lambda index: airrep.clean(index, kinds=["duplicate"], where="year > 9999"),
    "no kinds": lambda index: airrep.clean(index, kinds=None),
}
ALONE: dict[str, Callable[[Path], object]] = {
    "attention too cold": lambda _: airrep.metrics.pool_scores([[0.5, 0.4]], "attention", 1e-320),
    "scores too large": lambda _: airrep.metrics.pool_scores([[1e300, 1e300]], "sum"),
    "half a resample": lambda _: airrep.metrics.lds(SCORES, -SCORES, resamples=2.5),
    "confidence in words": lambda _: airrep.metrics.lds(SCORES, -SCORES, confidence="0.9"),
    "no number of seeds": lambda _: airrep.metrics.noise_ceiling(np.stack([SCORES, SCORES]), averaged=float("nan")),
    "seeds in words": lambda _: airrep.metrics.noise_ceiling(np.stack([SCORES, SCORES]), averaged="2"),
    "a threshold in words": lambda _: ranking_loss(SCORES, SCORES, t_min="a"),
    "a table for a path": lambda _: airrep.read_corpus({"prompt": ["a"]}),
    "nothing for a path": lambda _: airrep.Index(None),
    "no index": lambda _: airrep.select(3, "answer", 3),
    "settings that are a list": lambda out: airrep.build_index(RECORDS, out, "tfidf", settings=[1]),
    "a path that cannot be": lambda out: airrep.build_index(RECORDS, f"{out}\0", "tfidf"),
    "a path that no file system has": lambda out: airrep.build_index(RECORDS, f"{out}{LONE}", "tfidf"),
    "losses that are no file": lambda out: import_labels(out, RECORDS, None, SCORES, out),
    "instances of nothing": lambda out: fit_datamodels([], out),
    "a field that no file holds": lambda _: airrep.Corpus.from_records([{"prompt": "a", "response": "b", LONE: 1}]),
}


def _refused(call: Callable[[], object]) -> None:
    with pytest.raises(AirRepError) as told:
        call()
    message = str(told.value)
    message.encode()  # can be printed
    assert "\n" not in message


@pytest.mark.parametrize("wrong", OF_AN_INDEX)
def test_a_wrong_argument_of_a_question_is_told(wrong: str, index: airrep.Index) -> None:
    _refused(lambda: OF_AN_INDEX[wrong](index))


@pytest.mark.parametrize("wrong", ALONE)
def test_a_wrong_argument_is_told(wrong: str, tmp_path: Path) -> None:
    _refused(lambda: ALONE[wrong](tmp_path / "out"))


def test_masked_numbers_are_missing() -> None:
    losses = np.ma.masked_array([[1.0, 2, 3, 99], [2, 1, 3, -99]], [[0, 0, 0, 1]] * 2)
    scores = np.array([[-1.0, -2, -3, -4], [-2, -1, -3, -4]])
    assert airrep.metrics.lds(scores, losses, resamples=0).value == 1.0


def test_questions_take_an_index_or_its_path(index: airrep.Index) -> None:
    for given in (index.path, str(index.path)):
        assert list(airrep.select(given, "answer 3", 2)) == list(airrep.select(index, "answer 3", 2))
        assert airrep.clean(given, kinds="duplicate").examples == len(index)
        assert airrep.top(given, ["answer 3"], k=2).to_dict() == airrep.top(index, ["answer 3"], k=2).to_dict()


def test_ids_may_come_as_an_array_or_one_by_one(index: airrep.Index) -> None:
    for ids in (np.array(["e3", "e1"]), (one for one in ("e3", "e1"))):
        assert index.rows_of(ids).tolist() == [3, 1]


def test_equal_examples_without_ids_are_numbered_as_records_are(tmp_path: Path) -> None:
    texts = {"prompt": "who won", "response": "nobody yet"}
    records = airrep.Corpus.from_records([texts, texts])
    one = airrep.Example(**texts)
    assert airrep.Corpus.from_examples([one, airrep.Example(**texts)]).ids.to_pylist() == records.ids.to_pylist()
    index = airrep.build_index([one, texts], tmp_path / "index", "tfidf")
    assert [example.id for example in index.examples([0, 1])] == records.ids.to_pylist()
    assert len(index.top([one, dict(texts)], k=1)) == 2


def test_settings_take_paths_however_they_are_made(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("- method: tfidf\n")
    for made in (LmSettings(lm=tmp_path), LmSettings.of({"lm": tmp_path})):  # type: ignore[arg-type]
        assert made.lm == str(tmp_path)
    for channels in (ChannelsSettings(channels=recipe), ChannelsSettings.of({"channels": recipe})):  # type: ignore[arg-type]
        assert [one.method for one in channels.channels] == ["tfidf"]
    assert ChannelsSettings(lm="some/model", warmed=tmp_path).warmed == str(tmp_path)  # type: ignore[arg-type]
