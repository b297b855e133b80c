"""Metagradients as a method: an index of them, what it refuses, and what it finds again."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds.small_world import make_corpus
from worlds.tiny_lms import tiny_lm

import airrep
from airrep.attributors import conformance
from airrep.attributors.gradient.run.metagradient import MetagradientAttributor, Replay
from airrep.attributors.methods import make_attributor
from airrep.corpus.corpus import Corpus
from airrep.errors import ConfigError, DataError
from airrep.lm.settings import FineTuneSettings, LmSettings
from airrep.lm.warmup import sample_rows, warm_up

pytestmark = pytest.mark.usefixtures("own_cache")

BASE, QUERIES = make_corpus(9), make_corpus(3, "q")
TRAIN = Corpus.from_examples([*BASE, replace(BASE[2], id="again")])
TUNING = FineTuneSettings(learning_rate=1e-3, batch_examples=4, epochs=1)
ON_CPU = {"precision": "float32", "device": "cpu"}


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    return warm_up(TRAIN, folder / "warm", LmSettings(lm=tiny_lm(folder / "lm"), **ON_CPU), TUNING).path


def settings(warm: Path, **changes: Any) -> dict[str, Any]:
    return {"lm": str(warm), **ON_CPU, **changes}


def test_an_index_scores_by_the_run_and_keeps_it(warm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = airrep.build_index(TRAIN, tmp_path / "index", "metagradient", settings=settings(warm), shard_rows=4)
    scores = index.scores(QUERIES)
    method = index.attributor
    assert isinstance(method, MetagradientAttributor)
    run = Replay(method.lm, method.lm.tokenise(TRAIN), TUNING, method._seed)
    plain = run.influence(method.lm.tokenise(QUERIES)).T
    plain[:, [2, 9]] = plain[:, [2, 9]].mean(axis=1, keepdims=True)  # rows of one text
    np.testing.assert_allclose(scores, plain, rtol=1e-5, atol=1e-9)
    groups = index.group_scores(QUERIES, {"some": [0, 3, 9]}).scores[:, 0]
    np.testing.assert_allclose(groups, plain[:, [0, 3, 9]].sum(axis=1), rtol=1e-4, atol=1e-8)
    monkeypatch.setattr(Replay, "influence", None)
    again = airrep.open(tmp_path / "index")
    np.testing.assert_array_equal(again.scores(QUERIES[:2]), scores[:2])
    assert again.top(QUERIES[0], k=1)[0].example.id == TRAIN[int(np.argmax(scores[0]))].id


def test_it_keeps_the_promises_of_a_method(tmp_path: Path) -> None:
    lm = LmSettings(lm=tiny_lm(tmp_path / "lm", max_position_embeddings=4096, num_hidden_layers=1), **ON_CPU)
    one_step = TUNING.model_copy(update={"batch_examples": 8})
    warm = warm_up(conformance._corpus(), tmp_path / "warm", lm, one_step).path
    conformance.check_attributor(lambda: make_attributor("metagradient", settings(warm)))


def test_a_run_whose_first_steps_follow_signs_is_cautioned_about(warm: Path, tmp_path: Path) -> None:
    assert (
        "airrep warmup DATA --lm MODEL --out DIR --set epsilon=1e-5"
        in make_attributor("metagradient", settings(warm)).caution
    )
    steady = TUNING.model_copy(update={"epsilon": 1e-5})
    made = warm_up(TRAIN, tmp_path / "warm", LmSettings(lm=str(warm.parent / "lm"), **ON_CPU), steady).path
    assert make_attributor("metagradient", settings(made)).caution == ""


def test_a_repeated_answer_is_helped_by_its_own_copy(warm: Path, tmp_path: Path) -> None:
    index = airrep.build_index(TRAIN, tmp_path / "index", "metagradient", settings=settings(warm))
    own = index.scores(BASE)
    assert (own[np.arange(9), np.arange(9)] > 0).all()


def test_runs_on_samples_are_averaged_by_a_recipe(warm: Path, tmp_path: Path) -> None:
    lm, asked = LmSettings(lm=str(warm.parent / "lm"), **ON_CPU), [QUERIES[1]]
    channels, expected = [], np.zeros((1, len(TRAIN)))
    for seed in (1, 2):
        made = warm_up(TRAIN, tmp_path / f"run-{seed}", lm, TUNING, count=4, seed=seed)
        channels.append({"method": "metagradient", "name": f"run {seed}", "settings": settings(made.path)})
        method = make_attributor("metagradient", settings(made.path))
        method.fit(TRAIN)
        rows = sample_rows(TRAIN, 4, seed)
        run = Replay(method.lm, method.lm.tokenise(TRAIN), TUNING, method._seed, rows)
        slopes = run.influence(method.lm.tokenise(asked)).T
        slopes *= np.where(np.isin(np.arange(10), rows), 10 / 2 / 4, 10 / 2 / 6)  # both ends of a weight count alike
        slopes[:, [2, 9]] = slopes[:, [2, 9]].mean()  # rows of one text
        assert (slopes != 0).all()
        np.testing.assert_allclose(method.score(list(TRAIN), asked).T, slopes, rtol=1e-4, atol=1e-8)
        expected += slopes
    index = airrep.build_index(TRAIN, tmp_path / "index", recipe=channels)
    np.testing.assert_allclose(index.scores(asked), expected, rtol=1e-4, atol=1e-8)


def test_other_data_than_those_of_the_run_are_refused(warm: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"was not fine-tuned on exactly these 9 examples.*--dry-run"):
        airrep.build_index(BASE, tmp_path / "index", "metagradient", settings=settings(warm))
    assert not (tmp_path / "index").exists()


def test_answers_get_hits_and_no_verdict(warm: Path, tmp_path: Path) -> None:
    """A verdict asks what a copy of the answer would score, which only examples of the run can."""
    index = airrep.build_index(TRAIN, tmp_path / "index", "metagradient", settings=settings(warm))
    for better in (None, ["another answer"] * len(QUERIES)):
        found = airrep.top(index, QUERIES, k=2, better=better)
        assert [(len(hits), hits.verdict) for hits in found] == [(2, None)] * len(QUERIES)
    assert airrep.top(index, QUERIES, k=2).provenance.units.startswith("decrease of the query's loss (nats)")


def test_examples_that_came_later_are_refused(warm: Path, tmp_path: Path) -> None:
    index = airrep.build_index(TRAIN, tmp_path / "index", "metagradient", settings=settings(warm))
    with pytest.raises(DataError, match=r"example 'q0' was not in the fine-tune of .*`airrep warmup`"):
        index.append(QUERIES[:1])
    assert len(airrep.open(tmp_path / "index")) == len(TRAIN)
    with pytest.raises(ConfigError, match=r"example 'q0' was not in the fine-tune of .*`airrep warmup`"):
        index.attributor.score(QUERIES[:1], QUERIES[1:])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lm": "lm"}, "is not a warm-up made by airrep. Make one: airrep warmup"),
        ({"base": "warm"}, r"is not the LM that .* was fine-tuned from\. Name that LM: --set base=MODEL"),
        ({"loss": "weighted"}, "loss=sft, not loss=weighted"),
    ],
)
def test_what_cannot_be_followed_is_refused(warm: Path, tmp_path: Path, changes: dict[str, str], message: str) -> None:
    own = {name: str(warm.parent / value) if name != "loss" else value for name, value in changes.items()}
    with pytest.raises(ConfigError, match=message):
        airrep.build_index(TRAIN, tmp_path / "index", "metagradient", settings=settings(warm, **own))
    assert not (tmp_path / "index").exists()
