"""What --dry-run and budgets measure, and what they make of it."""

import json
from pathlib import Path

import numpy as np
import pytest
from worlds.small_world import WORDED, make_corpus
from worlds.tiny_bert import tiny_folder
from worlds.tiny_lms import tiny_lm
from worlds.toy_farm import QUERIES, TRAIN, make_plan
from worlds.training_world import planted, tiny_settings

import airrep
from airrep.corpus.corpus import Corpus
from airrep.errors import ConfigError
from airrep.index.rows import IndexRows
from airrep.lm.settings import FineTuneSettings, LmSettings
from airrep.planning import measured
from airrep.planning.budget import Costs, LearnPlan
from airrep.planning.measured import Forecast, forecast_index, forecast_labels, forecast_training, measure_machine


def test_seconds_are_those_before_the_first_and_those_of_each() -> None:
    assert Forecast(1000, 50, 0.25, fixed=10.0).total == 260


def _made_up(costs: list[tuple[float, float]]) -> measured.Build:
    """Builds a real index and writes what it cost: seconds of learning, and of encoding an example."""
    left = iter(costs)

    def build(some: Corpus, out: Path) -> None:
        airrep.build_index(some, out, "tfidf")
        fit, each = next(left)
        lines = [json.loads(line) for line in (out / "costs.jsonl").read_text().splitlines()]
        own = {"fit": fit, "encode": each * len(some)}
        (out / "costs.jsonl").write_text("".join(json.dumps({**one, "cpu": own[one["stage"]]}) + "\n" for one in lines))

    return build


@pytest.mark.parametrize(("sample", "learnt"), [(None, 1000), (200, 200)])
def test_an_index_costs_a_line_through_two_small_ones(
    sample: int | None, learnt: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first index has 16 examples, the second 100: 5 s at 50 ms an example."""
    monkeypatch.setattr(measured, "_sample_size", lambda _: sample)
    found = forecast_index(make_corpus(1000), _made_up([(3.0 + 16 * 0.02, 0.05), (3.0 + 100 * 0.02, 0.04)]))
    assert (found.examples, found.measured) == (1000, 100)
    assert found.seconds == pytest.approx(0.04)
    assert found.fixed == pytest.approx(3.0 + learnt * 0.02)
    assert found.total == pytest.approx(3.0 + learnt * 0.02 + 1000 * 0.04)


def test_the_bytes_of_an_index_are_those_of_its_shards(tmp_path: Path) -> None:
    corpus = make_corpus(300)
    found = forecast_index(corpus, lambda some, out: airrep.build_index(some, out, "tfidf"))
    airrep.build_index(corpus, tmp_path / "index", "tfidf")
    real = sum(path.stat().st_size for path in (tmp_path / "index" / "shards").rglob("*") if path.is_file())
    assert found.bytes * 300 == pytest.approx(real, rel=0.1)
    with pytest.raises(ConfigError, match="dry-run"):
        forecast_index(corpus[:1], lambda some, out: airrep.build_index(some, out, "tfidf"))


def test_gradients_of_a_trial_are_neither_found_nor_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRREP_CACHE", str(tmp_path / "cache"))
    settings = {"lm": tiny_lm(tmp_path / "lm", max_position_embeddings=256), "rank": 2, "sample": 8}
    corpus = make_corpus(20)

    def build(some: Corpus, out: Path) -> None:
        airrep.build_index(some, out, "logra", settings=settings)

    for _ in range(2):
        assert forecast_index(corpus, build).seconds > 0
        assert not (tmp_path / "cache" / "gradients").exists()
    build(corpus, tmp_path / "index")
    assert forecast_index(corpus, build).seconds > 0
    assert measured._sample_size(IndexRows(tmp_path / "index")) == 8


def test_labels_cost_each_subset_with_all_epochs_and_each_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured, "measure_lm", lambda *_: (0.5, 0.25))
    monkeypatch.setattr(LmSettings, "before", lambda own: own)
    plan = make_plan(tmp_path / "plan")
    size, asked = len(plan.subset_rows(0, 0)), len(plan.query_rows(0))
    found = forecast_labels(plan, TRAIN, LmSettings(lm="small"), FineTuneSettings(epochs=3), 7)
    assert found.seconds == size * 3 * 0.5 + asked * 0.25
    assert (found.examples, found.total, found.bytes) == (7, 7 * found.seconds, 4 * asked)
    assert len(QUERIES) >= asked


def test_training_costs_three_passes_of_what_is_trained_and_each_text_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured, "measure_encoder", lambda *_: (0.1, 4))
    learn, judge = planted(1, "a", n=30, q=8, m=10, size=6), planted(3, "h", n=20, q=5, m=10, size=6)
    own = {"steps": 10, "evaluate_every": 5, "train_layers": 2, "subsets_per_step": 4, "queries_per_step": 3}
    found = forecast_training([learn], [judge], tiny_settings(tmp_path, **own))
    touched = 30 * (1 - (1 - 6 / 30) ** 4) + 3
    assert found.seconds == pytest.approx(3 * 0.5 * 0.1 * touched)
    assert found.fixed == pytest.approx(0.1 * (30 + 8 + (20 + 5) * (2 + 2 * 0.5)))
    with pytest.raises(ConfigError, match="LABELS"):
        forecast_training([], [judge], tiny_settings(tmp_path))


def test_an_encoder_pays_where_what_gradients_cost_more_has_paid_its_training() -> None:
    plan = LearnPlan(
        size=10, subsets=50, held_out_subsets=20, pool=200, held_out_pool=50, queries=20, held_out_queries=20, epochs=2,
        train_layers=2, steps=100,
    )  # fmt: skip
    costs = Costs(fine_tune=0.4, evaluate=0.1, encode=0.01, layers=6)
    examples = plan.pays_from(costs)
    assert examples is not None
    spent = plan.label_seconds(costs) + plan.train_seconds(costs)
    assert spent + examples * costs.encode == pytest.approx(examples * 3 * costs.fine_tune)
    assert plan.pays_from(costs.model_copy(update={"encode": 1.3})) is None


def test_costs_of_this_machine_are_measured(tmp_path: Path) -> None:
    tiny_folder(tmp_path / "start", ((16, 16, True),))
    lm = LmSettings(lm=tiny_lm(tmp_path / "lm"), device="cpu")
    unreadable = airrep.Example("a", "b " * 5000, "endless")
    corpus = Corpus.from_examples([*WORDED[:20], unreadable])
    costs = measure_machine(corpus, lm, FineTuneSettings(epochs=1), str(tmp_path / "start"), seed=0)
    assert np.isfinite([costs.fine_tune, costs.evaluate, costs.encode]).all()
    assert min(costs.fine_tune, costs.evaluate, costs.encode) > 0
    assert costs.layers == 2
