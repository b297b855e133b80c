"""Reading labels: finished, unfinished, damaged, of several seeds."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds.small_world import make_corpus
from worlds.toy_farm import FINE_TUNE, QUERIES, TRAIN, ToyWorld, farm

from airrep.corpus.corpus import Corpus, Example
from airrep.errors import ArtifactError, DataError
from airrep.labels.farm import label
from airrep.labels.labels import LabelledInstance, Labels, check_disjoint, mean_over_seeds
from airrep.labels.plan import SubsetPlan
from airrep.scoring.groups import Groups


@pytest.fixture
def labels(tmp_path: Path, plan: SubsetPlan) -> Labels:
    seeds: Any = np.int64(2)  # as programs count
    return farm(plan, tmp_path / "labels", seeds=seeds)


@pytest.fixture
def unfinished(tmp_path: Path, plan: SubsetPlan) -> Labels:
    return farm(plan, tmp_path / "unfinished", part="1/4")


def test_subsets_and_corpora_are_given_in_any_form(labels: Labels, plan: SubsetPlan, tmp_path: Path) -> None:
    train, queries = ([one.to_dict() for one in corpus] for corpus in (TRAIN, QUERIES))
    by_path = label(plan.path, train, queries, ToyWorld(), FINE_TUNE, tmp_path / "by-path", seeds=2)
    assert by_path.fingerprint == labels.fingerprint
    found, wanted = by_path.instances(train, queries), labels.instances(TRAIN, QUERIES)
    assert [one.train for one in found] == [one.train for one in wanted]
    with pytest.raises(ArtifactError, match="nowhere: does not exist"):
        label("nowhere", train, queries, ToyWorld(), FINE_TUNE, tmp_path / "none")


def test_instances_hold_examples_queries_subsets_and_losses(labels: Labels, plan: SubsetPlan) -> None:
    instances = Labels(labels.path).instances(TRAIN, QUERIES)
    assert [instance.name for instance in instances] == ["0", "1"]
    for number, instance in enumerate(instances):
        assert instance.train == TRAIN.take(plan.train_rows(number))
        assert instance.queries == QUERIES.take(plan.query_rows(number))
        assert len(instance.subsets) == 5
        assert instance.by_seed is not None
        assert instance.by_seed.shape == (2, 4, 5)
        np.testing.assert_allclose(instance.losses, instance.by_seed.mean(axis=0), rtol=1e-6)
        assert instance.base_losses is not None
        assert instance.base_losses.shape == (4,)
        assert instance.losses.dtype == np.float32


def test_labels_need_neither_the_plan_nor_the_results(labels: Labels, tmp_path: Path) -> None:
    (tmp_path / "plan").rename(tmp_path / "gone")
    labels.path.rename(tmp_path / "moved")
    assert len(Labels(tmp_path / "moved").instances(TRAIN, QUERIES)) == 2


def test_open_labels_stay_the_same_in_another_working_directory(
    labels: Labels, unfinished: Labels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    opened, partly = Labels("labels"), Labels("unfinished")
    assert str(opened.path) == "labels"
    monkeypatch.chdir(Path(tmp_path.anchor))
    for one, other in zip(opened.instances(TRAIN, QUERIES), labels.instances(TRAIN, QUERIES), strict=True):
        np.testing.assert_array_equal(one.losses, other.losses)
    assert len(partly.missing) == len(unfinished.missing) == 9


def test_labels_of_other_corpora_are_refused(labels: Labels) -> None:
    with pytest.raises(ArtifactError, match="was made from other train data"):
        labels.instances(TRAIN[:30], QUERIES)
    with pytest.raises(ArtifactError, match="was made from other queries data"):
        labels.instances(TRAIN)


def test_unfinished_labels_are_read_only_when_asked(unfinished: Labels) -> None:
    assert not unfinished.complete
    assert len(unfinished.tasks) == 12
    assert len(unfinished.missing) == 9
    assert "3 of 12 finished" in repr(unfinished)
    assert unfinished.missing[0].subset == 0
    with pytest.raises(ArtifactError, match="of 12 fine-tunes and evaluations, 9 did not run"):
        unfinished.instances(TRAIN, QUERIES)
    first, second = unfinished.instances(TRAIN, QUERIES, partial=True)
    assert first.base_losses is not None
    assert second.base_losses is None
    assert np.isfinite(first.losses[:, 3]).all()
    assert np.isnan(first.losses[:, :3]).all()
    with pytest.raises(ArtifactError, match="is unfinished"):
        _ = unfinished.fingerprint
    with pytest.raises(ArtifactError, match="is unfinished"):
        unfinished.verify()


@pytest.mark.parametrize("damage", ["cut", "flipped", "emptied", "renamed"])
def test_a_damaged_result_is_made_again(unfinished: Labels, plan: SubsetPlan, labels: Labels, damage: str) -> None:
    first, second = sorted((unfinished.path / "results").iterdir())[:2]
    content = first.read_bytes()
    damaged = {
        "cut": content[:-5],
        "flipped": content[:140] + bytes([content[140] ^ 1]) + content[141:],
        "emptied": b"",
        "renamed": second.read_bytes(),
    }
    first.write_bytes(damaged[damage])
    assert len(Labels(unfinished.path).missing) == 10
    farm(plan, unfinished.path, part="1/4")
    assert first.read_bytes() == content


def test_a_result_can_be_read_without_airrep(unfinished: Labels) -> None:
    for path in (unfinished.path / "results").iterdir():
        assert np.load(path).shape == (4,)


def test_damage_to_finished_labels_is_found(labels: Labels) -> None:
    path = next(labels.path.glob("losses-0-*.npy"))
    content = path.read_bytes()
    path.write_bytes(content[:-4] + b"\0\0\0\0")
    with pytest.raises(ArtifactError, match="was altered after it was written"):
        Labels(labels.path).verify()
    path.write_bytes(content[:-4])
    with pytest.raises(ArtifactError, match="bytes; expected"):
        Labels(labels.path)


@pytest.mark.parametrize("pattern", ["losses-0-*.npy", "base-0-*.npy", "keys-*.npy", "plan-*/members.npy"])
def test_damage_to_finished_labels_is_found_when_they_are_read(labels: Labels, pattern: str) -> None:
    path = next(labels.path.glob(pattern))
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    with pytest.raises(ArtifactError, match=f"{path.name}: was altered after it was written"):
        Labels(labels.path).instances(TRAIN, QUERIES)


def test_damage_to_the_keys_of_unfinished_labels_is_found_and_mended(unfinished: Labels, plan: SubsetPlan) -> None:
    path = next(unfinished.path.glob("keys-*.npy"))
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    with pytest.raises(ArtifactError, match=r"keys-.*: was altered after it was written"):
        _ = Labels(unfinished.path).missing
    again = farm(plan, unfinished.path, part="1/4")
    assert len(again.missing) == 9


@pytest.mark.parametrize("value", ["", "..", "a/b", "a\0b", "\ud800", 3])
@pytest.mark.parametrize("name", ["plan_folder", "keys", "settings"])
def test_a_request_that_names_no_file_of_the_folder_is_refused(unfinished: Labels, name: str, value: object) -> None:
    (unfinished.path / "request.json").write_text(json.dumps({**unfinished.state, name: value}))
    with pytest.raises(ArtifactError, match="does not have the form"):
        _ = Labels(unfinished.path).missing


def test_the_name_of_the_lm_is_not_in_the_fingerprint(labels: Labels, plan: SubsetPlan, tmp_path: Path) -> None:
    renamed = farm(plan, tmp_path / "renamed", ToyWorld(name="other"), seeds=2)
    assert renamed.state["lm"]["name"] == "other"
    assert renamed.fingerprint == labels.fingerprint
    one_seed = farm(plan, tmp_path / "one")
    assert one_seed.fingerprint != labels.fingerprint


def test_paths_without_labels_are_refused(tmp_path: Path, unfinished: Labels) -> None:
    with pytest.raises(ArtifactError, match="holds no labels"):
        Labels(tmp_path)
    (tmp_path / "lds.jsonl").write_text("{}")
    with pytest.raises(ArtifactError, match="lds.jsonl: is a file"):
        Labels(tmp_path / "lds.jsonl")
    (unfinished.path / "request.json").write_text("{")
    with pytest.raises(ArtifactError, match="request.json: cannot be read as JSON"):
        Labels(unfinished.path)
    (unfinished.path / "request.json").write_text("[]")
    with pytest.raises(ArtifactError, match="does not describe labels"):
        Labels(unfinished.path)


def test_the_mean_over_seeds_leaves_missing_ones_out() -> None:
    losses = np.array([[[1, np.nan, np.nan]], [[3, 2, np.nan]]], np.float32)
    np.testing.assert_array_equal(mean_over_seeds(losses), np.array([[2, 2, np.nan]], np.float32))


SUBSETS = Groups.from_lists({"0": [0, 1], "1": [1, 2], "2": [3, 4]})


def make_instance(train: Corpus, queries: Corpus, name: str = "0") -> LabelledInstance:
    return LabelledInstance(name, train, queries, SUBSETS, np.ones((len(queries), 3), np.float32))


def test_losses_are_one_for_each_query_and_subset() -> None:
    instance = make_instance(make_corpus(5), make_corpus(2, "q"))
    assert instance.losses.shape == (2, 3)
    assert instance.base_losses is None
    assert instance.by_seed is None


@pytest.mark.parametrize("shape", [(3, 2), (2, 4), (1, 3)])
def test_losses_of_another_shape_are_refused(shape: tuple[int, int]) -> None:
    with pytest.raises(DataError, match=rf"instance 7 .*: losses has shape \({shape[0]}, {shape[1]}\)"):
        LabelledInstance("7", make_corpus(5), make_corpus(2, "q"), SUBSETS, np.ones(shape, np.float32))


def test_instances_without_a_text_in_common_are_disjoint() -> None:
    seen = [make_instance(make_corpus(5, "a"), make_corpus(2, "b"))]
    check_disjoint(seen, [make_instance(make_corpus(5, "c"), make_corpus(2, "d"))])
    check_disjoint([], seen)


@pytest.mark.parametrize(("train", "queries"), [("a", "d"), ("b", "d"), ("c", "a"), ("c", "b")])
def test_a_held_out_text_that_was_seen_in_any_part_is_refused(train: str, queries: str) -> None:
    seen = [make_instance(make_corpus(5, "a"), make_corpus(2, "b"))]
    with pytest.raises(DataError, match="held-out labels .*, instance held: example '.*' is also in"):
        check_disjoint(seen, [make_instance(make_corpus(5, train), make_corpus(2, queries), "held")])


def test_another_id_does_not_make_a_text_another() -> None:
    seen = make_instance(make_corpus(5, "a"), make_corpus(2, "b"))
    first = seen.train[0]
    renamed = Corpus.from_examples([Example(first.prompt, first.response, "other"), *make_corpus(1, "d")])
    with pytest.raises(DataError, match="example 'other' is also in"):
        check_disjoint([seen], [make_instance(make_corpus(5, "c"), renamed)])
