"""Evaluation by data selection: naive equality, one fine-tune for equal sets, faults, resuming."""

import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import classification, selection
from worlds.kills import in_child
from worlds.small_world import HashAttributor, tree
from worlds.tiny_lms import tiny_lm
from worlds.toy_answers import TASKS, ParrotWorld, make_tasks

import airrep
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import ArtifactError, ConfigError, DataError, TrainingError
from airrep.evaluation.contest import Contest, SelectSettings
from airrep.evaluation.result import Evaluation, Row
from airrep.evaluation.select import DataSelection, evaluate_selection, unigram_f1
from airrep.index.index import Index
from airrep.lm.settings import FineTuneSettings, LmSettings
from airrep.runtime.engine import LocalProcesses
from airrep.runtime.seeding import stream_seed

TRAIN, QUERIES, OTHERS = make_tasks(60, "t"), make_tasks(9, "q"), make_tasks(12, "o")


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """Sixty examples, chosen among by a hash."""
    return airrep.build_index(TRAIN, tmp_path_factory.mktemp("hash") / "index", HashAttributor(), shard_rows=16)


@pytest.fixture(scope="module")
def tfidf(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """The same, chosen among by words, among them the task's."""
    return airrep.build_index(TRAIN, tmp_path_factory.mktemp("tfidf") / "index", airrep.make_attributor("tfidf"))


def _settings(**changes: object) -> SelectSettings:
    return SelectSettings.of({"count": 6, "resamples": 50, **changes})


def _row(evaluation: Evaluation, name: str) -> Row:
    return next(row for row in evaluation.rows if row.name == name)


def _fine_tunes(log: Path) -> list[tuple[int, tuple[str, ...]]]:
    lines = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
    return [(int(seed), tuple(ids)) for seed, *ids in lines]


def _naive_picks(index: Index, queries: Corpus, count: int) -> set[str]:
    train = np.concatenate([np.asarray(block.features[:], np.float64) for block in index.blocks(index.method)])
    scores = index.attributor.encode_queries(queries).astype(np.float64) @ train.T
    return {TRAIN[row].id for row, _, _ in selection.min_rank(scores, count)}


def test_each_task_is_fine_tuned_on_its_min_rank_selection(index: Index, tmp_path: Path) -> None:
    world = ParrotWorld(str(tmp_path / "log"))
    evaluate_selection([("hash", index)], QUERIES, world, _settings(random=False))
    found = [set(ids) for _, ids in _fine_tunes(tmp_path / "log")]
    rows = [[number for number, query in enumerate(QUERIES) if query.label == task] for task in TASKS]
    assert found == [_naive_picks(index, QUERIES.take(of_task), 6) for of_task in rows]


def test_f1_is_averaged_over_queries_then_tasks(tfidf: Index) -> None:
    """A task with more queries does not count more."""
    queries = Corpus.from_examples([*QUERIES, *(query for query in OTHERS if query.label == "towns")])
    evaluation = evaluate_selection([("tfidf", tfidf)], queries, ParrotWorld(), _settings())
    row = _row(evaluation, "tfidf")
    by_task = {
        task: np.mean([f1 for f1, query in zip(row.per_query, queries, strict=True) if query.label == task])
        for task in TASKS
    }
    assert row.more["by_task"] == pytest.approx(by_task)
    assert row.value == pytest.approx(np.mean(list(by_task.values())))
    assert evaluation.facts["clusters"] == [query.label for query in queries]
    assert evaluation.facts["tasks"]["towns"] == {"queries": 7, "selecting": 7}
    assert evaluation.queries[:2] == (("colours", "q0"), ("numbers", "q1"))


def test_answers_are_scored_by_the_naive_f1(tfidf: Index) -> None:
    queries = Corpus.from_examples(Example(q.prompt, f"{q.response}, and more", q.id, q.label) for q in QUERIES)
    evaluation = evaluate_selection([("tfidf", tfidf)], queries, ParrotWorld(), _settings(full=True, random=False))
    lm = ParrotWorld()()
    lm.fine_tune(list(TRAIN), FineTuneSettings(), stream_seed(0, "selection", "fine-tune", 0))
    answers = lm.generate(list(queries), 64)
    expected = [classification.unigram_f1(a, q.response) for a, q in zip(answers, queries, strict=True)]
    assert _row(evaluation, "full").per_query.tolist() == pytest.approx(expected)
    assert 0 < np.mean(expected) < 1


def test_competitors_are_what_they_say(tfidf: Index, tmp_path: Path) -> None:
    world = ParrotWorld(str(tmp_path / "log"))
    evaluation = evaluate_selection([("words", tfidf)], QUERIES, world, _settings(full=True, seeds=2))
    assert [row.name for row in evaluation.rows] == ["words", "random", "full", "none"]
    tuned = _fine_tunes(tmp_path / "log")
    assert len(tuned) == evaluation.facts["fine_tunes"] == 2 * 3 + 2 * 3 + 2
    assert sum(len(ids) == 60 for _, ids in tuned) == 2  # once for each seed, whatever the number of tasks
    assert len({ids for _, ids in tuned if len(ids) == 6}) == 3 + 6  # random examples are others for each seed
    none = _row(evaluation, "none")
    assert (none.value, none.more["wordless_answers"], none.more["same_task_share"]) == (0.0, 1.0, None)
    assert _row(evaluation, "words").more["same_task_share"] > 0.8
    assert _row(evaluation, "random").more["same_task_share"] < 0.6
    assert _row(evaluation, "words").value > _row(evaluation, "random").value
    assert _row(evaluation, "random").difference.value < 0


def test_equal_selections_are_fine_tuned_once(index: Index, tmp_path: Path) -> None:
    """An index of the same examples in another order selects the same texts."""
    shuffled = TRAIN.take(np.random.default_rng(0).permutation(60))
    again = airrep.build_index(shuffled, tmp_path / "again", HashAttributor(), shard_rows=7)
    world = ParrotWorld(str(tmp_path / "log"))
    evaluation = evaluate_selection([("one", index), ("two", again)], QUERIES, world, _settings(random=False))
    assert len(_fine_tunes(tmp_path / "log")) == evaluation.facts["fine_tunes"] == 3
    one, two = evaluation.rows[:2]
    assert one.per_query.tolist() == two.per_query.tolist()
    assert two.difference == (0.0, (0.0, 0.0), 1.0)


@pytest.mark.parametrize("selecting", [False, True])
def test_no_text_of_a_query_is_selected(selecting: bool, index: Index, tmp_path: Path) -> None:
    """Neither one to answer, nor one to select by: who finds equal texts first had examples of the task for nothing."""
    known = Corpus.from_examples([Example(t.prompt, t.response, f"c{t.id}", t.label) for t in TRAIN[:9]])
    asked, by = (QUERIES, known) if selecting else (known, None)
    world = ParrotWorld(str(tmp_path / "log"))
    evaluation = evaluate_selection([("hash", index)], asked, world, _settings(full=True), selecting=by)
    used = {name for _, ids in _fine_tunes(tmp_path / "log") for name in ids}
    assert used == {f"t{row}" for row in range(9, 60)}
    assert (evaluation.facts["examples_left_out_as_queries"], evaluation.facts["examples"]) == (9, 51)


def test_other_queries_may_select(index: Index, tmp_path: Path) -> None:
    world = ParrotWorld(str(tmp_path / "log"))
    evaluation = evaluate_selection([("hash", index)], QUERIES, world, _settings(random=False), selecting=OTHERS)
    rows = [number for number, query in enumerate(OTHERS) if query.label == "colours"]
    assert set(_fine_tunes(tmp_path / "log")[0][1]) == _naive_picks(index, OTHERS.take(rows), 6)
    assert evaluation.facts["selected_by"] == "other queries"
    own = evaluate_selection([("hash", index)], QUERIES, world, _settings(random=False))
    assert own.facts["selected_by"] == "the queries themselves"
    assert own.subject != evaluation.subject
    with pytest.raises(DataError, match="no query of the task 'numbers'"):
        evaluate_selection([("hash", index)], QUERIES, world, _settings(), selecting=OTHERS.take(rows))


def test_a_filter_holds_for_all_competitors(index: Index, tmp_path: Path) -> None:
    world = ParrotWorld(str(tmp_path / "log"))
    evaluate_selection([("hash", index)], QUERIES, world, _settings(full=True, where="label == 'towns'"))
    used = {name for _, ids in _fine_tunes(tmp_path / "log") for name in ids}
    assert used == {example.id for example in TRAIN if example.label == "towns"}


def test_failed_fine_tunes_are_named_and_lose_no_others(index: Index, tmp_path: Path) -> None:
    picked = [_naive_picks(index, QUERIES.take([task, 3 + task, 6 + task]), 6) for task in range(3)]
    poison = sorted(picked[1] - picked[0] - picked[2])[0]
    out, log = tmp_path / "run", tmp_path / "log"
    bad, settings = ParrotWorld(str(log), poison=poison), _settings(random=False)
    asked: list[str] = []
    told = r"fine-tunes failed \(1\), the first: hash, task numbers, seed 0: fine-tune"
    with pytest.raises(TrainingError, match=told):
        evaluate_selection(
            [("hash", index)], QUERIES, bad, settings, out=out, retries=1, on_task=lambda r: asked.append(r.error or "")
        )
    assert sum("not finite" in error for error in asked) == 1
    assert len(_fine_tunes(log)) == 4  # one was tried twice
    part = evaluate_selection([("hash", index)], QUERIES, bad, settings, out=out, retries=0, partial=True)
    assert len(_fine_tunes(log)) == 5  # the others were kept
    row = part.rows[0]
    assert row.dropped == 3
    assert row.more["by_task"].keys() == {"colours", "towns"}
    assert "hash, task numbers, seed 0" in part.facts["failed"][0]
    whole = evaluate_selection([("hash", index)], QUERIES, ParrotWorld(), settings, out=out)
    assert whole.rows[0].dropped == 0
    assert whole.facts["failed"] == []


def test_retries_are_checked_before_any_work(index: Index, tmp_path: Path) -> None:
    def load() -> Any:
        raise AssertionError("the LM is loaded")

    with pytest.raises(ConfigError, match="retries=-1: expected 0 or more"):
        evaluate_selection([("hash", index)], QUERIES, load, _settings(), out=tmp_path / "run", retries=-1)
    contest = Contest([("hash", index)], QUERIES, None, _settings())
    study = DataSelection(contest, ParrotWorld(str(tmp_path / "log")), FineTuneSettings())
    with pytest.raises(ConfigError, match="retries=-1: expected 0 or more"):
        study.run(tmp_path / "run", retries=-1)
    assert list(tmp_path.glob("run*")) == []


def test_a_kill_loses_one_fine_tune_and_the_bytes_are_the_same(index: Index, tfidf: Index, tmp_path: Path) -> None:
    indexes, settings = [("hash", index), ("tfidf", tfidf)], _settings(seeds=2)
    straight = tmp_path / "straight"
    evaluate_selection(indexes, QUERIES, ParrotWorld(), settings, out=straight).save(straight)
    out, log = tmp_path / "killed", tmp_path / "log"
    slow = ParrotWorld(str(log), seconds=0.2)
    child = in_child(lambda: evaluate_selection(indexes, QUERIES, slow, settings, out=out))
    while len(_fine_tunes(log)) < 4:
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    begun = len(_fine_tunes(log))
    quick = ParrotWorld(str(log))
    evaluate_selection(indexes, QUERIES, quick, settings, out=out).save(out)
    total = Evaluation.read(out).facts["fine_tunes"]
    assert total < len(_fine_tunes(log)) + 1 <= total + 2  # the one in hand was done twice
    assert begun < total
    assert tree(out) == tree(straight)
    assert not (tmp_path / "killed.partial").exists()


def test_answers_outlive_an_evaluation_that_was_finished_without_some(index: Index, tmp_path: Path) -> None:
    picked = [_naive_picks(index, QUERIES.take([task, 3 + task, 6 + task]), 6) for task in range(3)]
    poison = sorted(picked[1] - picked[0] - picked[2])[0]
    out, straight, log = tmp_path / "run", tmp_path / "straight", tmp_path / "log"
    bad, settings = ParrotWorld(str(log), poison=poison), _settings(random=False)
    part = evaluate_selection([("hash", index)], QUERIES, bad, settings, out=out, retries=0, partial=True)
    part.save(out)
    assert not Evaluation.read(out).complete
    assert not (tmp_path / "run.partial").exists()
    for failing in (bad, bad):  # finished without it twice: the others are still there
        part = evaluate_selection([("hash", index)], QUERIES, failing, settings, out=out, retries=0, partial=True)
        part.save(out, replace=True)
    assert len(_fine_tunes(log)) == 3 + 2
    whole = evaluate_selection([("hash", index)], QUERIES, ParrotWorld(str(log)), settings, out=out)
    assert len(_fine_tunes(log)) == 3 + 2 + 1
    assert whole.complete
    whole.save(out, replace=True)
    evaluate_selection([("hash", index)], QUERIES, ParrotWorld(), settings, out=straight).save(straight)
    assert tree(out) == tree(straight)


def test_what_another_request_left_unfinished_is_kept_unless_replaced(index: Index, tmp_path: Path) -> None:
    out, log = tmp_path / "run", tmp_path / "log"
    world, kept = ParrotWorld(str(log)), tmp_path / "run.partial"
    evaluate_selection([("hash", index)], QUERIES, world, _settings(), out=out)
    before, done = tree(kept), len(_fine_tunes(log))
    with pytest.raises(ArtifactError, match=r"run\.partial: holds an unfinished evaluation made with another .*count "):
        evaluate_selection([("hash", index)], QUERIES, world, _settings(count=5), out=out)
    assert (tree(kept), len(_fine_tunes(log))) == (before, done)
    evaluate_selection([("hash", index)], QUERIES, world, _settings(), out=out)
    assert len(_fine_tunes(log)) == done
    other = evaluate_selection([("hash", index)], QUERIES, world, _settings(count=5), out=out, replace=True)
    assert len(_fine_tunes(log)) == done + other.facts["fine_tunes"]
    with pytest.raises(ArtifactError, match=r"another .*count \(was 5, now 6\)"):
        evaluate_selection([("hash", index)], QUERIES, world, _settings(), out=out)
    other.save(out)
    assert not kept.exists()
    assert not (out / "request.json").exists()


def test_what_was_begun_in_another_way_is_not_swallowed(index: Index, tmp_path: Path) -> None:
    out, kept = tmp_path / "run", tmp_path / "run.partial"
    (kept / "shards").mkdir(parents=True)
    (kept / ".lock").touch()
    (kept / "request.json").write_text('{"method": "hash"}')
    (kept / "shards" / "one").touch()
    with pytest.raises(ArtifactError, match="pass --replace"):
        evaluate_selection([("hash", index)], QUERIES, ParrotWorld(), _settings(), out=out)
    (kept / "request.json").write_text("no JSON")
    with pytest.raises(ArtifactError, match="pass --replace"):
        evaluate_selection([("hash", index)], QUERIES, ParrotWorld(), _settings(), out=out)
    (kept / "shards" / "one").unlink()  # nothing is lost then
    assert evaluate_selection([("hash", index)], QUERIES, ParrotWorld(), _settings(), out=out).rows


def test_another_measure_does_not_swallow_answers(index: Index, tmp_path: Path) -> None:
    out = tmp_path / "run"
    selected = evaluate_selection([("hash", index)], QUERIES, ParrotWorld(), _settings(), out=out)
    before = tree(tmp_path / "run.partial")
    other = replace(selected, measure="lds")
    with pytest.raises(ArtifactError, match=r"run: an unfinished evaluation keeps the LM's answers in .*run\.partial"):
        other.save(out)
    assert tree(tmp_path / "run.partial") == before
    other.save(out, replace=True)
    assert Evaluation.read(out).measure == "lds"


def test_equal_names_of_rows_are_refused_before_anything_is_selected(index: Index) -> None:
    for names, changes in ((("x", "x"), {}), (("random",), {}), (("none",), {}), (("full",), {"full": True})):
        with pytest.raises(DataError, match=f"two rows are called '{names[0]}'"):
            Contest([(name, index) for name in names], QUERIES, None, _settings(**changes))
    assert Contest([("full", index)], QUERIES, None, _settings()).subject


def test_altered_answers_are_made_again(index: Index, tmp_path: Path) -> None:
    out, settings = tmp_path / "run", _settings()
    first = evaluate_selection([("hash", index)], QUERIES, ParrotWorld(), settings, out=out)
    files = sorted((tmp_path / "run.partial" / "answers").iterdir())
    files[0].write_bytes(files[0].read_bytes().replace(b'"', b"'", 1))
    files[1].write_bytes(files[1].read_bytes()[:-9])
    files[2].write_bytes(files[3].read_bytes())
    again = evaluate_selection([("hash", index)], QUERIES, ParrotWorld(), settings, out=out)
    assert again.to_dict() == first.to_dict()


@pytest.mark.slow
def test_local_processes_give_what_this_process_gives(index: Index, tmp_path: Path) -> None:
    here = evaluate_selection([("hash", index)], QUERIES, ParrotWorld(), _settings(full=True))
    engine = LocalProcesses(2)
    there = evaluate_selection([("hash", index)], QUERIES, ParrotWorld(), _settings(full=True), engine=engine)
    assert there.to_dict() == here.to_dict()
    assert all(one.per_query.tolist() == two.per_query.tolist() for one, two in zip(there.rows, here.rows, strict=True))


def test_what_cannot_be_asked_is_refused_before_any_fine_tune(index: Index, tmp_path: Path) -> None:
    log = tmp_path / "log"
    world = ParrotWorld(str(log), unreadable=sorted(_naive_picks(index, QUERIES.take([0, 3, 6]), 6))[0])
    with pytest.raises(DataError, match="1 of the .* selected examples cannot be used with the LM parrot"):
        evaluate_selection([("hash", index)], QUERIES, world, _settings(random=False))
    with pytest.raises(ConfigError, match="--count is 61, but only 60 training examples"):
        evaluate_selection([("hash", index)], QUERIES, world, _settings(count=61))
    with pytest.raises(ConfigError, match="no index is given"):
        evaluate_selection([], QUERIES, world, _settings())
    bare = Corpus.from_examples([*QUERIES, Example("no", "task", "bare")])
    with pytest.raises(DataError, match='query "bare": has no label'):
        evaluate_selection([("hash", index)], bare, world, _settings())
    fewer = airrep.build_index(TRAIN[:40], tmp_path / "fewer", HashAttributor())
    with pytest.raises(DataError, match=r"fewer and hash cannot be compared: .* \(\d+ and \d+ examples\)"):
        evaluate_selection([("hash", index), ("fewer", fewer)], QUERIES, world, _settings())
    assert not log.exists()


def test_requests_tell_what_decides_and_no_names(index: Index) -> None:
    def request(name: str = "x", world: ParrotWorld | None = None, rate: float = 1e-3, **changes: object) -> dict:
        tuning = FineTuneSettings(learning_rate=rate)
        contest = Contest([(name, index)], QUERIES, None, _settings(**changes))
        return DataSelection(contest, world or ParrotWorld(), tuning).request

    assert request() == request("y", ParrotWorld(name="other", seconds=1.0))
    others = [request(world=ParrotWorld(version="2")), request(rate=2e-3), request(count=5), request(full=True)]
    assert all(other != request() for other in others)


@pytest.mark.slow
def test_a_real_small_lm_goes_the_whole_way(index: Index, tmp_path: Path) -> None:
    lm = LmSettings(lm=tiny_lm(tmp_path / "lm"), device="cpu", precision="float32")
    tuning = FineTuneSettings(learning_rate=1e-2, epochs=4)
    settings = _settings(max_new_tokens=8)
    out = tmp_path / "run"
    evaluation = evaluate_selection([("hash", index)], QUERIES, lm, settings, tuning, out=out)
    evaluation.save(out)
    assert [row.name for row in evaluation.rows] == ["hash", "random", "none"]
    again = evaluate_selection([("hash", index)], QUERIES, lm, settings, tuning)
    assert [row.per_query.tolist() for row in again.rows] == [row.per_query.tolist() for row in evaluation.rows]
    read = Evaluation.read(out)
    assert read.to_dict() == evaluation.to_dict()
    assert read.facts["lm"]["name"] == "lm"


TEXTS = st.text(alphabet="abAB 12_.,!-é\n", max_size=20)


@pytest.mark.parametrize(
    ("answer", "reference", "value"),
    [
        ("positive", "Positive.", 1.0), ("the cat sat", "the cat", 0.8), ("a a a b", "a b b", 4 / 7),
        ("yes", "no", 0.0), ("", "", 1.0), ("", "no", 0.0), ("!?", "no", 0.0), ("!?", " !? ", 1.0), ("+", "-", 0.0),
        ("3.5", "5, 3", 1.0),
    ],
)  # fmt: skip
def test_f1_of_cases_worked_out_by_hand(answer: str, reference: str, value: float) -> None:
    assert unigram_f1(answer, reference) == pytest.approx(value, rel=1e-15)


@given(TEXTS, TEXTS)
@settings(deadline=None)  # the first call compiles what splits words
def test_f1_equals_the_naive_count(answer: str, reference: str) -> None:
    assert unigram_f1(answer, reference) == pytest.approx(classification.unigram_f1(answer, reference), rel=1e-12)


@given(TEXTS, TEXTS)
def test_f1_is_symmetric_bounded_and_blind_to_case_and_order(answer: str, reference: str) -> None:
    value = unigram_f1(answer, reference)
    assert 0 <= value <= 1
    assert value == unigram_f1(reference, answer)
    assert value == unigram_f1(answer.upper(), reference)
    if classification.words(answer):
        assert value == unigram_f1(" ".join(reversed(classification.words(answer))), reference)


@given(TEXTS)
def test_f1_of_a_text_with_itself_is_one(text: str) -> None:
    assert unigram_f1(text, text) == 1.0
