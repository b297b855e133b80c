"""The label farm: the same bytes on every engine, resumed, in parts, extended."""

import errno
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds.kills import in_child
from worlds.toy_farm import FINE_TUNE, QUERIES, TRAIN, ToyLearner, ToyWorld, begun, farm, make_plan, visible

from airrep.corpus.corpus import Corpus, Example
from airrep.errors import ArtifactError, ConfigError, DataError, TrainingError
from airrep.labels import ledger
from airrep.labels.farm import TaskReport, label
from airrep.labels.labels import Labels
from airrep.labels.ledger import KIND, holding
from airrep.labels.plan import SamplingSettings, SubsetPlan
from airrep.labels.sampling import sample
from airrep.lm.settings import FineTuneSettings, LmSettings
from airrep.runtime.artifacts import LOCK, locked, read_manifest, write_manifest
from airrep.runtime.engine import Backlog, Engine, InProcess, LocalProcesses, Outcome, R, Share, T
from airrep.runtime.seeding import stream_seed

ALL = 12
"""Tasks of the plan with one seed: of two instances, five subsets each and the evaluation before."""


def logged(tmp_path: Path, **options: Any) -> tuple[ToyWorld, Path]:
    """A world that counts the fine-tunes that are begun, and where."""
    return ToyWorld(log=str(tmp_path / "log"), **options), tmp_path / "log"


def test_losses_are_those_of_a_fine_tune_by_hand(tmp_path: Path, plan: SubsetPlan) -> None:
    labels = farm(plan, tmp_path / "labels", seeds=2)
    learner = ToyWorld()()
    instance = plan.instance(1)
    asked = learner.tokenise(QUERIES.take(instance.queries))
    np.testing.assert_array_equal(labels.base_losses(1), learner.losses(asked))
    documents = learner.tokenise(TRAIN.take(plan.subset_rows(1, 3)))
    learner.fine_tune(documents, FINE_TUNE, stream_seed(0, "fine-tune", 1, 3, 1))
    np.testing.assert_array_equal(labels.losses(1)[1, :, 3], learner.losses(asked))


def test_losses_are_of_answers_alone_where_a_trainer_learns_whole_conversations(tmp_path: Path) -> None:
    talks = [[{"role": "user", "content": one.prompt}, {"role": "assistant", "content": one.response}] for one in TRAIN]
    train = Corpus.from_records([{"messages": talk} for talk in talks], trained_with="trl")
    plan = sample(
        train, tmp_path / "plan", SamplingSettings(instances=1, train_count=30, query_count=4, subsets=2, size=6)
    )
    heard: list[set[str]] = []

    class Listening(ToyLearner):
        def tokenise(self, examples: Sequence[Example]) -> np.ndarray:
            heard.append({str(sorted(one.chat or ())) for one in examples})
            return super().tokenise(examples)

    made = label(plan, train, None, lambda: Listening(ToyWorld()), FINE_TUNE, tmp_path / "labels")
    learnt, asked = "['learn', 'messages']", "['messages']"
    assert heard.count({asked}) == 1  # the queries
    assert heard.count({learnt}) == len(heard) - 1 == 2  # the subsets
    [instance] = made.instances(train)
    assert [sorted(one.chat or ()) for one in instance.queries] == [["messages"]] * 4
    assert sorted(instance.train[0].chat or ()) == ["learn", "messages"]
    assert label(plan, train, train, lambda: Listening(ToyWorld()), FINE_TUNE, tmp_path / "labels").complete


def test_every_engine_gives_the_same_bytes(tmp_path: Path, plan: SubsetPlan) -> None:
    one = visible(farm(plan, tmp_path / "one", engine=InProcess(), seeds=2).path)
    assert visible(farm(plan, tmp_path / "more", engine=LocalProcesses(3), seeds=2).path) == one
    assert "manifest.json" in one


def test_a_finished_directory_is_left_as_it_is(tmp_path: Path, plan: SubsetPlan) -> None:
    world, log = logged(tmp_path)
    first = farm(plan, tmp_path / "labels", world).path
    assert not {"results", "quarantine"} & {path.name for path in first.iterdir()}
    before, written = visible(first), (first / "manifest.json").stat().st_mtime_ns
    assert visible(farm(plan, tmp_path / "labels", world).path) == before
    assert (first / "manifest.json").stat().st_mtime_ns == written
    assert len(begun(log)) == ALL - 2


def test_parts_share_one_directory(tmp_path: Path, plan: SubsetPlan) -> None:
    whole = visible(farm(plan, tmp_path / "whole").path)
    for number in (3, 1, 2):
        labels = farm(plan, tmp_path / "shared", part=f"{number}/3")
        assert labels.complete == (number == 2)
    assert visible(labels.path) == whole


def test_parts_made_apart_are_merged_by_copying(tmp_path: Path, plan: SubsetPlan) -> None:
    whole = visible(farm(plan, tmp_path / "whole").path)
    world, log = logged(tmp_path)
    for number in (1, 2, 3):
        part = farm(plan, tmp_path / f"part-{number}", world, part=f"{number}/3")
        shutil.copytree(part.path, tmp_path / "merged", dirs_exist_ok=True)
    merged = farm(plan, tmp_path / "merged", world)
    assert visible(merged.path) == whole
    assert len(begun(log)) == ALL - 2


def test_more_seeds_and_subsets_keep_what_is_finished(tmp_path: Path, plan: SubsetPlan) -> None:
    world, log = logged(tmp_path)
    farm(plan, tmp_path / "labels", world)
    larger = make_plan(tmp_path / "larger", subsets=7, instances=3)
    grown = farm(larger, tmp_path / "labels", world, seeds=2)
    assert len(begun(log)) == 3 * 7 * 2
    assert visible(grown.path) == visible(farm(larger, tmp_path / "fresh", seeds=2).path)
    with pytest.raises(ArtifactError, match="holds finished labels .* with instances=3, but now instances is 2"):
        farm(plan, tmp_path / "labels", world)


def test_finished_labels_stay_readable_while_they_grow(tmp_path: Path, plan: SubsetPlan) -> None:
    before = farm(plan, tmp_path / "labels")
    assert not before.growing
    during = farm(plan, tmp_path / "labels", seeds=2, part="1/2")
    assert during.complete
    assert during.growing
    np.testing.assert_array_equal(during.losses(0), before.losses(0))
    assert farm(plan, tmp_path / "labels", seeds=2).seeds == 2


def test_each_task_is_reported(tmp_path: Path, plan: SubsetPlan) -> None:
    reports: list[TaskReport] = []
    steps: list[tuple[int, int | None]] = []
    farm(plan, tmp_path / "labels", progress=lambda *step: steps.append(step), on_task=reports.append)
    assert [report.done for report in reports] == list(range(1, ALL + 1))
    assert {report.total for report in reports} == {ALL}
    assert reports[-1].left == 0
    assert reports[0].name == "instance 0, before any fine-tune"
    assert reports[1].name == "instance 0, subset 0, seed 0"
    assert steps == [(done, ALL) for done in range(ALL + 1)]
    lines = [json.loads(line) for line in (tmp_path / "labels" / "times.jsonl").read_text().splitlines()]
    assert len(lines) == ALL
    assert lines[0].keys() == {"task", "key", "seconds", "cpu", "attempts", "error"}


class SlowStart(Engine):
    """Takes half a second before the first task, as loading a large LM does."""

    def outcomes(
        self, setup: Callable[[], Callable[[T], R]], backlog: Backlog[T, R]
    ) -> Generator[Outcome[T, R], None, None]:
        time.sleep(0.5)
        yield from InProcess().outcomes(setup, backlog)


def test_the_remaining_time_leaves_the_start_out(tmp_path: Path, plan: SubsetPlan) -> None:
    reports: list[TaskReport] = []
    farm(plan, tmp_path / "labels", ToyWorld(seconds=0.01), engine=SlowStart(), on_task=reports.append)
    assert reports[0].left is None
    told = [report.left for report in reports if report.left is not None]
    assert len(told) == ALL - 1
    assert 0.05 < told[0] < 0.5


def test_an_example_that_cannot_be_read_is_found_before_the_first_fine_tune(tmp_path: Path, plan: SubsetPlan) -> None:
    used = sorted({int(row) for i in range(2) for j in range(5) for row in plan.subset_rows(i, j)})
    asked = sorted({int(row) for i in range(2) for row in plan.query_rows(i)})
    spare = next(row for row in range(len(TRAIN)) if row not in used)
    world, log = logged(tmp_path, unreadable=(TRAIN[used[1]], QUERIES[asked[0]], TRAIN[spare]))
    with pytest.raises(DataError) as caught:
        farm(plan, tmp_path / "labels", world, part="1/2")
    assert str(caught.value) == (
        f"{plan.path}: the LM toy cannot use 2 of its {len(used) + len(asked)} examples. The first: "
        f'example "{TRAIN[used[1]].id}": is too long. Remove these examples from the data, and run `airrep sample` '
        "again."
    )
    assert begun(log) == []
    assert visible(tmp_path / "labels") == {}
    farm(plan, tmp_path / "labels", ToyWorld(unreadable=(TRAIN[spare],)))
    assert farm(plan, tmp_path / "labels", world).complete


def test_queries_out_of_the_train_corpus_are_read_beforehand_too(tmp_path: Path) -> None:
    settings = SamplingSettings(instances=1, train_count=20, query_count=4, subsets=3, size=3)
    plan = sample(TRAIN, tmp_path / "plan", settings)
    world = ToyWorld(unreadable=(TRAIN[int(plan.query_rows(0)[0])],))
    with pytest.raises(DataError, match="the LM toy cannot use 1 of its .* examples"):
        label(plan, TRAIN, None, world, FINE_TUNE, tmp_path / "labels")


def damage(folder: Path) -> None:
    """Alter the copy of the subsets, without changing its size."""
    path = next(folder.glob("plan-*")) / "members.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")


def test_a_damaged_copy_of_the_subsets_is_made_again(tmp_path: Path, plan: SubsetPlan) -> None:
    whole = visible(farm(plan, tmp_path / "whole").path)
    part = farm(plan, tmp_path / "labels", part="1/2").path
    damage(part)
    assert visible(farm(plan, part, part="2/2").path) == whole

    def damage_late(report: TaskReport) -> None:
        if report.done == 7:
            damage(tmp_path / "late")

    assert visible(farm(plan, tmp_path / "late", on_task=damage_late).path) == whole
    Labels(tmp_path / "late").verify()


def test_subsets_that_change_under_the_farm_are_refused(tmp_path: Path, plan: SubsetPlan) -> None:
    path = plan.path / "members.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    with pytest.raises(ArtifactError, match=r"plan: was altered since it was opened"):
        farm(plan, tmp_path / "labels")


def test_a_full_disk_is_named_while_the_subsets_are_copied(
    tmp_path: Path, plan: SubsetPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr("shutil.copyfile", fill)
        with pytest.raises(ArtifactError, match=r"plan-[0-9a-f]{12}: cannot be written: the disk is full; what was"):
            farm(plan, tmp_path / "labels")
    assert farm(plan, tmp_path / "labels").complete


def test_a_failing_task_is_tried_again_then_quarantined(tmp_path: Path, plan: SubsetPlan) -> None:
    row = int(plan.subset_rows(0, 0)[0])
    hit = sum(row in plan.subset_rows(i, j) for i in range(2) for j in range(5))
    world, log = logged(tmp_path, poison=row)
    labels = farm(plan, tmp_path / "labels", world, retries=1)
    assert len(begun(log)) == 10 + hit
    assert not labels.complete
    assert labels.missing == []
    assert [entry.reason for entry in labels.quarantined] == [
        "fine-tune: the loss is not finite. Lower learning_rate."
    ] * hit
    assert {entry.attempts for entry in labels.quarantined} == {2}
    assert np.isnan(labels.losses(0)[0, :, 0]).all()


def test_quarantined_tasks_are_run_again_only_when_asked(tmp_path: Path, plan: SubsetPlan) -> None:
    row = int(plan.subset_rows(0, 0)[0])
    world, log = logged(tmp_path, poison=row)
    farm(plan, tmp_path / "labels", world, retries=0)
    before = len(begun(log))
    partial = farm(plan, tmp_path / "labels", world, retries=0, partial=True)
    assert len(begun(log)) == before
    assert partial.complete
    assert np.isnan(partial.losses(0)).any()
    whole = farm(plan, tmp_path / "labels", retry_quarantined=True)
    assert whole.quarantined == []
    assert visible(whole.path) == visible(farm(plan, tmp_path / "fresh").path)


def test_all_fine_tunes_failing_is_an_error(tmp_path: Path, plan: SubsetPlan) -> None:
    with pytest.raises(TrainingError, match=r"all fine-tunes failed \(10\)\. .*: fine-tune: the loss is not finite"):
        farm(plan, tmp_path / "labels", ToyWorld(hopeless=True), retries=0, partial=True)
    with pytest.raises(TrainingError, match=r"all fine-tunes failed \(10\)"):
        farm(plan, tmp_path / "labels", retries=0)
    assert farm(plan, tmp_path / "labels", retry_quarantined=True).complete


def test_a_part_that_fails_throughout_is_no_error_where_others_finished_some(tmp_path: Path, plan: SubsetPlan) -> None:
    farm(plan, tmp_path / "labels", part="1/4")
    failed = farm(plan, tmp_path / "labels", ToyWorld(hopeless=True), part="2/4", retries=0)
    assert len(failed.quarantined) == 3
    for number in (3, 4):
        assert not farm(plan, tmp_path / "labels", part=f"{number}/4").complete
    partial = farm(plan, tmp_path / "labels", part="2/4", partial=True)
    assert partial.complete
    assert len(partial.quarantined) == 3


def test_another_way_of_reading_is_named(tmp_path: Path, plan: SubsetPlan) -> None:
    folder = farm(plan, tmp_path / "labels", ToyWorld(most=2048), part="1/2").path
    assert Labels(folder).state["lm"]["max_tokens"] == 2048
    with pytest.raises(ArtifactError, match=r"with another lm\.max_tokens \(was 2048, now 32\)"):
        farm(plan, folder, ToyWorld(most=32))
    with pytest.raises(ArtifactError, match=r"with another lm \(was [0-9a-f]{12}, now [0-9a-f]{12}\)"):
        farm(plan, folder, ToyWorld(most=32, name="other"))
    assert farm(plan, folder, ToyWorld(most=2048, name="renamed")).complete
    assert farm(plan, folder, ToyWorld(most=2048)).complete


def start_at_once(*works: Callable[[], object]) -> list[str]:
    """Run works in threads that start at one instant; the errors of those that failed, in their order."""
    barrier, failures = threading.Barrier(len(works)), [""] * len(works)

    def run(number: int) -> None:
        barrier.wait()
        try:
            works[number]()
        except ArtifactError as error:
            failures[number] = str(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [failure for failure in failures if failure]


def hold(folder: Path, part: str) -> Callable[[], None]:
    def held() -> None:
        with holding(folder, Share.parse(part, "--part")):
            time.sleep(1)

    return held


def test_two_parts_that_start_at_the_same_instant_do_not_take_each_other_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each looked whether anyone held the lock of an earlier run, and found the other one that was looking."""

    @contextmanager
    def slowly(folder: Path, name: str = LOCK, *more: Any, **options: Any) -> Iterator[None]:
        with locked(folder, name, *more, **options):
            time.sleep(0.3 if name == ".lock-1of1" else 0)
            yield

    (tmp_path / ".lock-1of1").touch()
    monkeypatch.setattr(ledger, "locked", slowly)
    assert start_at_once(hold(tmp_path, "1/2"), hold(tmp_path, "2/2")) == []


def test_parts_started_at_the_same_instant_make_the_labels_together(tmp_path: Path, plan: SubsetPlan) -> None:
    farm(plan, tmp_path / "alone")
    works = [lambda part=part: farm(plan, tmp_path / "labels", part=part) for part in ("1/2", "2/2")]
    children = [in_child(work) for work in works]
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0]
    assert farm(plan, tmp_path / "labels").complete
    assert visible(tmp_path / "labels") == visible(tmp_path / "alone")


@pytest.mark.parametrize("part", [None, "1/2"])
def test_labels_that_do_not_say_how_the_lm_reads_go_on(tmp_path: Path, plan: SubsetPlan, part: str | None) -> None:
    folder = farm(plan, tmp_path / "labels", ToyWorld(most=2048), part=part).path
    if part is None:
        manifest = {**read_manifest(folder, KIND)}
        del manifest["lm"]["max_tokens"]
        write_manifest(folder, KIND, manifest)
    state = json.loads((folder / "request.json").read_bytes())
    del state["lm"]["max_tokens"]
    (folder / "request.json").write_text(json.dumps(state))
    with pytest.raises(ArtifactError, match=r"with another lm \(was [0-9a-f]{12}, now [0-9a-f]{12}\)"):
        farm(plan, folder, ToyWorld(most=32))
    world, log = logged(tmp_path, most=2048)
    assert farm(plan, folder, world).complete
    assert len(begun(log)) == (0 if part is None else 6)


def test_a_process_that_ends_early_keeps_what_another_asked_for(tmp_path: Path, plan: SubsetPlan) -> None:
    larger = make_plan(tmp_path / "larger", subsets=7)
    farm(plan, tmp_path / "labels", part="1/2")

    def grow(report: TaskReport) -> None:
        if report.done == 1:
            farm(larger, tmp_path / "labels", part="1/2", seeds=2)

    small = farm(plan, tmp_path / "labels", part="2/2", on_task=grow)
    assert small.complete
    assert small.growing
    wanted = json.loads((small.path / "request.json").read_bytes())
    assert (small.path / wanted["keys"]).is_file()
    assert (small.path / wanted["plan_folder"]).is_dir()
    grown = farm(larger, tmp_path / "labels", seeds=2)
    assert visible(grown.path) == visible(farm(larger, tmp_path / "fresh", seeds=2).path)


def test_labels_of_other_settings_are_refused(tmp_path: Path, plan: SubsetPlan) -> None:
    farm(plan, tmp_path / "labels")
    with pytest.raises(ArtifactError, match=r"another lm \(was [0-9a-f]{12}, now [0-9a-f]{12}\)"):
        farm(plan, tmp_path / "labels", ToyWorld(version="2"))
    with pytest.raises(ArtifactError, match=r"another fine_tune\.epochs \(was 2, now 3\)"):
        farm(plan, tmp_path / "labels", fine_tune=FineTuneSettings(learning_rate=1e-3, epochs=3))
    with pytest.raises(ArtifactError, match=r"another sampling\.seed \(was 0, now 1\)"):
        farm(make_plan(tmp_path / "other", seed=1), tmp_path / "labels")
    fewer = sample(TRAIN[:39], tmp_path / "fewer", plan.settings, QUERIES)
    with pytest.raises(ArtifactError, match=r"another train \(was [0-9a-f]{12}, now [0-9a-f]{12}\)"):
        label(fewer, TRAIN[:39], QUERIES, ToyWorld(), FINE_TUNE, tmp_path / "labels")


def test_results_of_two_settings_are_not_mixed(tmp_path: Path, plan: SubsetPlan) -> None:
    one = farm(plan, tmp_path / "one", part="1/2")
    other = farm(plan, tmp_path / "other", part="2/2", fine_tune=FineTuneSettings(epochs=3))
    shutil.copytree(other.path / "results", one.path / "results", dirs_exist_ok=True)
    with pytest.raises(ArtifactError, match="comes from fine-tunes of a different LM"):
        farm(plan, tmp_path / "one")


def test_other_directories_are_left_alone(tmp_path: Path, plan: SubsetPlan) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("...")
    with pytest.raises(ArtifactError, match="holds other files, so no labels"):
        farm(plan, tmp_path / "mine")
    with pytest.raises(ArtifactError, match="is of kind 'subsets'"):
        farm(plan, tmp_path / "plan")


def test_two_drivers_of_one_part_are_refused(tmp_path: Path, plan: SubsetPlan) -> None:
    (tmp_path / "labels").mkdir()
    with holding(tmp_path / "labels", Share(2, 3)):
        with pytest.raises(ArtifactError, match=r"another process is making these labels \(part 2/3\)"):
            farm(plan, tmp_path / "labels", part="2/3")
        with pytest.raises(ArtifactError, match="is making these labels in 3 parts, not 1"):
            farm(plan, tmp_path / "labels")
        farm(plan, tmp_path / "labels", part="1/3")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        *(({"part": part}, f"--part {part}: ") for part in ("0/3", "4/3", "3", "a/b", "1/0", "-1/3")),
        ({"seeds": 0}, "seeds=0: "),
        ({"retries": -1}, "retries=-1: "),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(
    options: dict[str, Any], told: str, tmp_path: Path, plan: SubsetPlan
) -> None:
    with pytest.raises(ConfigError, match=f"^{told}"):
        farm(plan, tmp_path / "labels", **options)
    assert not (tmp_path / "labels").exists()


def test_a_learner_that_cannot_be_loaded_ends_the_farm(tmp_path: Path, plan: SubsetPlan) -> None:
    with pytest.raises(TrainingError, match="memory is short. Buy more"):
        farm(plan, tmp_path / "labels", ToyWorld(broken=True))


@pytest.mark.slow
def test_a_real_lm_gives_the_same_bytes_on_one_worker_and_two(tmp_path: Path) -> None:
    from worlds.tiny_lms import tiny_lm

    plan = make_plan(tmp_path / "plan", subsets=3)
    lm = LmSettings(lm=tiny_lm(tmp_path / "lm", max_position_embeddings=128), device="cpu", precision="float32")
    settings = FineTuneSettings(learning_rate=1e-2, epochs=1)
    here = label(plan, TRAIN, QUERIES, lm, settings, tmp_path / "here")
    there = label(plan, TRAIN, QUERIES, lm, settings, tmp_path / "there", engine=LocalProcesses(2))
    assert visible(there.path) == visible(here.path)
    instance = here.instances(TRAIN, QUERIES)[0]
    assert instance.base_losses is not None
    assert (instance.losses.mean(axis=1) < instance.base_losses).all()
    assert here.state["lm"]["name"] == "lm"  # not the path
    assert here.state["precision"] == "float32"


def test_labels_of_conversations_read_otherwise_are_not_continued(tmp_path: Path) -> None:
    from worlds.old_chats import conversations_as_texts, make_chats
    from worlds.tiny_lms import CHAT, tiny_lm, tiny_tokenizer

    plans = [make_plan(tmp_path / f"plan-{count}", subsets=count, instances=1) for count in (2, 3)]
    folder = tiny_lm(tmp_path / "lm", tokenizer=tiny_tokenizer(chat=CHAT), max_position_embeddings=512)
    lm, chats = LmSettings(lm=folder, device="cpu", precision="float32"), make_chats(40)
    asked = [plan.settings.model_copy(update={"query_count": 4}) for plan in plans]
    chat_plans = [sample(chats, tmp_path / f"chats-{one.subsets}", one) for one in asked]
    with conversations_as_texts():
        label(chat_plans[0], chats, None, lm, FINE_TUNE, tmp_path / "chats")
        label(plans[0], TRAIN, QUERIES, lm, FINE_TUNE, tmp_path / "texts")
    for plan in chat_plans:
        with pytest.raises(ArtifactError, match=r"another rendering \(was None, now messages\)"):
            label(plan, chats, None, lm, FINE_TUNE, tmp_path / "chats")
    assert label(plans[1], TRAIN, QUERIES, lm, FINE_TUNE, tmp_path / "texts").complete


@pytest.mark.slow
def test_a_real_lm_that_diverges_is_quarantined(tmp_path: Path) -> None:
    from worlds.tiny_lms import tiny_lm

    plan = make_plan(tmp_path / "plan", subsets=2, instances=1)
    lm = LmSettings(lm=tiny_lm(tmp_path / "lm", max_position_embeddings=128), device="cpu")
    wild = FineTuneSettings(learning_rate=1e30, clip=None)
    with pytest.raises(TrainingError, match=r"all fine-tunes failed \(2\)\. .*(not finite|NaN)"):
        label(plan, TRAIN, QUERIES, lm, wild, tmp_path / "labels", retries=0)


def test_a_worker_with_another_lm_is_refused(tmp_path: Path, plan: SubsetPlan) -> None:
    world = ToyWorld(version="by process")
    with pytest.raises(ArtifactError, match="lm toy: a worker and the main process loaded different LMs"):
        farm(plan, tmp_path / "labels", world, engine=LocalProcesses(1))
