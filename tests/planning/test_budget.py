"""Plans that fit a time budget, and what machines take as it is measured."""

import contextlib
import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
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
from airrep.planning import budget, judge
from airrep.planning.budget import (
    LEAST_WEIGHING,
    PAYING_SUBSETS,
    WISHED_SUBSETS,
    WISHED_WEIGHING,
    AtHand,
    Costs,
    Forecast,
    LearnPlan,
    check_affordable,
    choose,
    forecast_index,
    forecast_labels,
    forecast_training,
    measure_machine,
    parse_duration,
    time_left,
)

FAST = Costs(fine_tune=0.02, evaluate=0.005, encode=0.002, layers=6)
COSTS = Costs(fine_tune=0.01, evaluate=0.003, encode=0.01, layers=6)


@pytest.mark.parametrize(
    ("text", "seconds"), [("45s", 45), ("90m", 5400), ("2h", 7200), ("1h30m", 5400), ("1.5h", 5400), ("1d", 86400)]
)
def test_a_duration_is_read_in_seconds(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "2", "h", "0h", "-1h", "2 h", "two hours", "2h!"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(ConfigError, match=r"is not a duration"):
        parse_duration(text)


@given(
    hours=st.floats(0.02, 48),
    examples=st.integers(240, 500_000),
    workers=st.integers(1, 16),
    fine_tune=st.floats(1e-4, 5e-2),
)
def test_a_plan_fits_its_examples_and_its_budget(hours, examples, workers, fine_tune):
    costs = COSTS.model_copy(update={"fine_tune": fine_tune, "evaluate": fine_tune / 3})
    seconds = 3600 * hours
    try:
        plan = choose(AtHand(seconds, costs, examples, workers, epochs=2))
    except ConfigError:
        return  # too little time, which tests of its own are about
    assert plan.pool + plan.queries + 2 * (plan.held_out_pool + plan.held_out_queries) <= examples
    assert plan.size < plan.held_out_pool
    assert plan.held_out_subsets >= LEAST_WEIGHING
    least = costs.model_copy(update={"fine_tune": costs.evaluate, "encode": 1e-6})
    check_affordable(AtHand(seconds, least, examples, workers, epochs=2), costs)  # refuses no budget that is enough
    if plan.trains:
        assert plan.size < plan.pool
        assert plan.subsets >= PAYING_SUBSETS
    assert plan.label_seconds(costs) / workers + plan.train_seconds(costs) <= seconds


def test_layers_come_before_large_subsets():
    """Long texts and many examples: with subsets of 1,000 there is no time for anything but the projection."""
    costs = Costs(fine_tune=0.0035, evaluate=0.0012, encode=0.019, layers=6)
    for hours, examples in ((2, 15_000), (8, 24_000)):
        plan = choose(AtHand(3600 * hours, costs, examples, 2, 2))
        assert plan.layers(costs) >= 2
        assert plan.subsets >= WISHED_SUBSETS
        assert plan.label_seconds(costs) / 2 + plan.train_seconds(costs) >= 0.5 * 3600 * hours


def test_more_time_gives_larger_or_more_subsets_and_more_layers():
    short, long = (choose(AtHand(hours * 3600, COSTS, 50_000, 2, 2)) for hours in (1, 40))
    assert long.size * long.subsets > 10 * short.size * short.subsets
    assert short.train_layers != "all"
    assert long.train_layers == "all"


def test_training_gets_what_the_labels_left_but_always_some_time():
    assert time_left(1000, 600) == pytest.approx(350)
    assert time_left(1000, 2000) == 100


def test_three_minutes_are_enough_for_weights_of_a_thousand_short_examples():
    costs = Costs(fine_tune=0.004, evaluate=0.001, encode=0.01, layers=6)
    plan = choose(AtHand(180, costs, 1000, 2, 2))
    assert not plan.trains
    assert plan.held_out_subsets == WISHED_WEIGHING
    assert 2 * (plan.held_out_pool + plan.held_out_queries) <= 1000


def test_gradients_after_a_warm_up_are_read_where_there_is_time_for_them():
    plans = []
    for seconds in range(20, 600, 5):
        with contextlib.suppress(ConfigError):
            plans.append(choose(AtHand(seconds, COSTS, 50_000, 1, 2)))
    warms = [plan.warms for plan in plans]
    assert warms == sorted(warms)
    assert set(warms) == {False, True}
    first = plans[warms.index(True)]
    without = first.model_copy(update={"warms": False})
    tuned = first.size * first.epochs * COSTS.fine_tune
    assert first.gradient_seconds(COSTS) == pytest.approx(2 * without.gradient_seconds(COSTS) + tuned)


def test_too_little_time_says_how_much_is_needed_and_that_is_enough():
    with pytest.raises(ConfigError, match=r"budget: only 5 seconds are left .* too few on this machine") as caught:
        choose(AtHand(5, COSTS, 50_000, 1, 2))
    minutes = int(str(caught.value).split("at least ")[1].split(" ")[0])
    assert choose(AtHand(60 * minutes, COSTS, 50_000, 1, 2)).held_out_subsets >= LEAST_WEIGHING


def test_too_few_examples_says_how_many_are_needed():
    with pytest.raises(ConfigError, match=r"data: 200 examples are too few") as caught:
        choose(AtHand(7200, COSTS, 200, 1, 2))
    needed = int(str(caught.value).split("at least ")[1].rstrip(".").replace(",", ""))
    assert choose(AtHand(7200, COSTS, needed, 1, 2)).held_out_subsets >= LEAST_WEIGHING


@pytest.mark.parametrize("examples", [30, 100, 688, 100_000])
@pytest.mark.parametrize("minutes", [10, 30, 300])
def test_plans_fit(examples: int, minutes: int) -> None:
    plan = judge.fit_budget(AtHand(60 * minutes, FAST, examples), 40)
    assert 2 * plan.size < plan.pool <= examples
    assert judge.LEAST_SUBSETS <= plan.subsets <= judge.MOST_SUBSETS
    assert plan.seconds <= 60 * minutes
    assert plan.subsets * (plan.size * 2 * 0.02 + 40 * 0.005) <= plan.seconds


def test_more_time_gives_more_and_then_larger_subsets() -> None:
    plans = [judge.fit_budget(AtHand(60 * minutes, FAST, 5000), 40) for minutes in (3, 10, 30, 100, 1000)]
    subsets = [min(plan.subsets, judge.WISHED_SUBSETS) for plan in plans]
    assert subsets == sorted(subsets)
    assert [plan.size for plan in plans] == sorted(plan.size for plan in plans)
    assert plans[-1].size == 1000
    assert judge.fit_budget(AtHand(600, FAST, 5000, workers=4), 40).size > plans[1].size


def test_gradients_are_a_rival_where_they_take_a_small_part() -> None:
    assert judge.fit_budget(AtHand(36_000, FAST, 688), 40).gradients
    assert not judge.fit_budget(AtHand(120, FAST, 688), 40).gradients


@pytest.mark.parametrize("seconds", [-3.0, 1.0, 20.0])
def test_too_little_time_is_refused_with_what_is_needed(seconds: float) -> None:
    with pytest.raises(ConfigError, match=r"Give at least (\d+) minutes") as caught:
        judge.fit_budget(AtHand(seconds, FAST, 688), 40)
    minutes = int(str(caught.value).split("at least ")[1].split()[0])
    assert judge.fit_budget(AtHand(60 * minutes, FAST, 688), 40).subsets >= judge.LEAST_SUBSETS
    with pytest.raises(ConfigError, match="judge: .* 29 examples"):
        judge.fit_budget(AtHand(3600, FAST, 29), 40)


def test_seconds_are_those_before_the_first_and_those_of_each() -> None:
    assert Forecast(1000, 50, 0.25, fixed=10.0).total == 260


def _made_up(costs: list[tuple[float, float]]) -> budget.Build:
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
def test_an_index_costs_a_line_through_two(sample: int | None, learnt: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first index has 16 examples, the second 100: 5 s at 50 ms an example."""
    monkeypatch.setattr(budget, "_sample_size", lambda _: sample)
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
    assert budget._sample_size(IndexRows(tmp_path / "index")) == 8


@pytest.mark.parametrize(("device", "calls"), [("cpu", [1, 4, 8]), ("cuda", [8, 8])])
def test_a_gpu_warms_up_with_all_that_is_measured(
    device: str, calls: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lm, seen = airrep.load_lm(LmSettings(lm=tiny_lm(tmp_path / "lm"), device="cpu")), list[int]()
    monkeypatch.setattr(lm, "execution", dataclasses.replace(lm.execution, device=device))
    monkeypatch.setattr(lm, "losses", lambda documents: seen.append(len(documents)))
    monkeypatch.setattr(lm, "fine_tune", lambda *_: None)
    budget.measure_lm(make_corpus(8), lm, FineTuneSettings(), 0)
    assert seen == calls


def test_labels_cost_each_subset_with_its_epochs_and_queries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "measure_lm", lambda *_: (0.5, 0.25))
    monkeypatch.setattr(LmSettings, "before", lambda own: own)
    plan = make_plan(tmp_path / "plan")
    size, asked = len(plan.subset_rows(0, 0)), len(plan.query_rows(0))
    found = forecast_labels(plan, TRAIN, LmSettings(lm="small"), FineTuneSettings(epochs=3), 7)
    assert found.seconds == size * 3 * 0.5 + asked * 0.25
    assert (found.examples, found.total, found.bytes) == (7, 7 * found.seconds, 4 * asked)
    assert len(QUERIES) >= asked


def test_training_costs_three_passes_and_each_text_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "measure_encoder", lambda *_: (0.1, 4))
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
    known: list[Costs] = []
    checked = str(tmp_path / "start"), 0, lambda least, _: known.append(least)
    costs = measure_machine(corpus, lm, FineTuneSettings(epochs=1), *checked)
    assert known[1].fine_tune == known[1].evaluate == known[2].evaluate == costs.evaluate
    assert known[2].fine_tune == costs.fine_tune
    assert np.isfinite([costs.fine_tune, costs.evaluate, costs.encode]).all()
    assert min(costs.fine_tune, costs.evaluate, costs.encode) > 0
    assert costs.layers == 2
