"""The whole loop within a budget."""

from dataclasses import replace
from pathlib import Path

import pytest
from worlds.small_world import WORDED, make_corpus, tree
from worlds.tiny_bert import tiny_folder
from worlds.tiny_lms import tiny_lm

from airrep.attributors.methods import make_attributor
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import ArtifactError, ConfigError
from airrep.labels.labels import Labels
from airrep.lm.settings import FineTuneSettings, LmSettings
from airrep.lm.warmup import open_warmup
from airrep.planning.adapt import Adaptation, split
from airrep.planning.budget import Costs, LearnPlan
from airrep.runtime.artifacts import read_manifest

PLAN = LearnPlan(
    size=4, subsets=6, held_out_subsets=8, pool=20, held_out_pool=10, queries=5, held_out_queries=4, epochs=1,
    train_layers=1, steps=6,
)  # fmt: skip


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts")
    tiny_folder(folder / "start", ((16, 16, True),))
    lm = tiny_lm(folder / "lm")
    return {
        "lm": LmSettings(lm=lm, device="cpu"),
        "tuning": FineTuneSettings(epochs=1, learning_rate=1e-3),
        "start": str(folder / "start"),
    }


COSTS = Costs(fine_tune=0.4, evaluate=0.1, encode=0.01, layers=2)
WEIGHING = PLAN.model_copy(update={"subsets": 0, "pool": 0, "queries": 0, "steps": 0, "warms": True})
RIVALS = ["default channels", "default channels, with the LM", "n-grams of the LM's tokens", "TF-IDF"]
RIVALS += ["TF-IDF of responses"]


@pytest.mark.slow
def test_the_loop_ends_in_a_verdict_and_goes_on_after_an_interruption(parts, tmp_path):
    told: list[str] = []
    made = Adaptation(WORDED, out=tmp_path / "whole", tell=told.append, **parts).run(PLAN)
    names = [row["name"] for row in made.report["rows"]]
    assert [name for name in names if name in RIVALS] == [name for name in RIVALS if name in names]
    assert any(name.startswith("trained encoder, ") for name in names)
    assert any(line.startswith("training the encoder") for line in told)
    assert make_attributor("channels", {"channels": str(made.path)}).name == "channels"

    class Stop(Exception):
        pass

    def stop(report: object) -> None:
        raise Stop

    with pytest.raises(Stop):
        Adaptation(WORDED, out=tmp_path / "cut", on_task=stop, tell=told.append, **parts).run(PLAN)
    again = Adaptation(WORDED, out=tmp_path / "cut", tell=told.append, **parts).run(PLAN)
    assert [row["lds"] for row in again.report["rows"]] == [row["lds"] for row in made.report["rows"]]
    assert tree(tmp_path / "cut" / "learn" / "subsets") == tree(tmp_path / "whole" / "learn" / "subsets")
    with pytest.raises(ArtifactError, match=r"made with a different value of 'budget'"):
        Adaptation(WORDED, out=tmp_path / "cut", **parts).run(PLAN.model_copy(update={"steps": 7}))


def test_weights_alone_are_learnt_where_there_is_no_time_for_an_encoder(parts, tmp_path, monkeypatch):
    told: list[str] = []
    monkeypatch.chdir(tmp_path)
    made = Adaptation(WORDED, out=tmp_path / "out", tell=told.append, **parts).run(WEIGHING)
    monkeypatch.setattr("airrep.training.linear.recipe._Member", None)  # all is there, wherever it is told from
    assert Adaptation(WORDED, out=Path("out"), **parts).run(WEIGHING).report == made.report
    (said,) = (line for line in told if line.startswith("fine-tuning the LM on 4 examples"))
    assert said.endswith(f"the fine-tuned LM is saved in {tmp_path / 'out' / 'warm'}")
    warm = open_warmup(tmp_path / "out" / "warm")
    weigh, last = Labels(tmp_path / "out" / "judge" / "labels").instances(WORDED)
    assert warm is not None
    assert warm.manifest["request"]["corpus"] == weigh.train.fingerprint  # nothing that judges
    assert warm.manifest["request"]["count"] == 4
    assert not set(weigh.train.content_hashes) & {*last.train.content_hashes, *last.queries.content_hashes}
    assert not (tmp_path / "out" / "learn").exists()
    assert not (tmp_path / "out" / "encoder").exists()
    assert made.path == tmp_path / "out" / "channels"
    known = {"n-grams of tokens", "n-grams of words", "encoder", "gradients", "warmed gradients"}
    assert {one.title for one in made.channels} <= known
    members = read_manifest(made.path, "recipe")["request"]["members"]
    assert [one["settings"].get("lm") for one in members][-1] == "../warm"
    assert members[0]["settings"]["lm"] == parts["lm"].lm
    assert members[2]["settings"]["encoder"] == "static"


def test_examples_with_the_same_prompt_are_on_one_side():
    corpus = Corpus.from_examples(Example(f"p{row // 3}", f"r{row}", str(row)) for row in range(90))
    learn, rest = split(corpus, PLAN, seed=0)
    assert len(learn) + len(rest) == len(corpus)
    assert not {example.prompt for example in learn} & {example.prompt for example in rest}


def test_too_few_examples_for_a_plan_are_refused():
    with pytest.raises(ConfigError, match=r"data: \d+ examples must be kept .* but only \d+ are left"):
        split(make_corpus(40), PLAN, seed=0)


def test_a_dry_run_tells_the_plan_and_writes_nothing(parts, tmp_path, monkeypatch):
    told: list[str] = []
    monkeypatch.setattr("airrep.planning.adapt.check_enough", lambda _: None)
    monkeypatch.setattr("airrep.planning.adapt.measure_machine", lambda *_: COSTS)
    for plan, line in (
        (PLAN, "takes less time than computing their gradients"),
        (WEIGHING, "too short to train an encoder"),
    ):
        monkeypatch.setattr("airrep.planning.adapt.choose", lambda *_, chosen=plan: chosen)
        assert Adaptation(WORDED, out=tmp_path / "out", tell=told.append, **parts).forecast(60.0) == plan
        assert line in told[-1]
    assert not (tmp_path / "out").exists()


def test_a_budget_that_is_too_small_is_refused_before_any_work(parts, tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match=r"data: 90 examples are too few"):
        Adaptation(WORDED, out=tmp_path / "out", **parts).run(3600.0)
    monkeypatch.setattr("airrep.lm.model.TargetLM.fine_tune", None)
    monkeypatch.setattr(Adaptation, "_usable", None)
    with pytest.raises(ConfigError, match=r"budget: only 0 seconds .* at least \d+ minutes"):
        Adaptation(make_corpus(300), out=tmp_path / "other", **parts).run(0.001)
    assert not (tmp_path / "other" / "plan.json").exists()


def test_examples_that_the_lm_cannot_read_are_left_out_and_counted(parts, tmp_path):
    longer = Corpus.from_examples([*WORDED, Example("a", "b " * 200, "endless")])
    told: list[str] = []
    kept = Adaptation(longer, out=tmp_path / "out", tell=told.append, **parts)._usable()
    assert len(kept) == len(WORDED)
    assert told[0].startswith("1 example is left out; the first, 'endless': ")


def test_the_verdict_is_on_the_queries_that_are_given(parts, tmp_path):
    asked = Corpus.from_examples(
        [*(Example(f"answer {n} x", "y", f"q{n}") for n in range(3)), WORDED[0], replace(WORDED[0], id="again")]
    )
    told: list[str] = []
    with pytest.raises(ConfigError, match="^queries is empty"):
        Adaptation(WORDED, out=tmp_path / "none", queries=asked[:0], tell=told.append, **parts).run(WEIGHING)
    assert not (tmp_path / "none").exists()
    made = Adaptation(WORDED, out=tmp_path / "out", queries=asked, tell=told.append, **parts).run(WEIGHING)
    judged = Labels(tmp_path / "out" / "judge" / "labels")
    assert judged.plan.query_fingerprint == asked.take(range(4)).fingerprint  # each text once
    assert judged.plan.query_rows(0).tolist() == [0, 1, 2, 3]
    assert any(line.endswith("on 4 of your queries") for line in told)
    assert "1 example left out, because the same text is a query" in told
    assert made.report["held_out"] == ["judge 0"]
    assert made.report["sentence"].endswith(f"This holds for fine-tunes with {parts['tuning'].summary}.")
    with pytest.raises(ArtifactError, match="made with a different value of 'queries'"):
        Adaptation(WORDED, out=tmp_path / "out", queries=asked[:2], tell=told.append, **parts).run(WEIGHING)
    with pytest.raises(ConfigError, match="queries: the LM can read none of 1"):
        long = Corpus.from_examples([Example("a", "b " * 200, "endless")])
        Adaptation(WORDED, out=tmp_path / "none", queries=long, tell=told.append, **parts).run(WEIGHING)


def test_a_model_that_hardly_moves_is_told_before_its_channels_are_read(parts, tmp_path):
    told: list[str] = []
    tuning = FineTuneSettings(epochs=1, learning_rate=1e-6)
    made = Adaptation(WORDED, out=tmp_path, tell=told.append, **parts | {"tuning": tuning}).run(PLAN)
    early = next(place for place, line in enumerate(told) if line.startswith("the fine-tunes moved"))
    assert early < next(place for place, line in enumerate(told) if line.startswith("learning a weight for each"))
    assert made.report["sentence"].startswith("Not judged: ")
    assert not (tmp_path / "learn").exists()  # no labels for an encoder are spent on
