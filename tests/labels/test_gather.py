"""Label directories gathered for training."""

import shutil

import pytest
from worlds.toy_farm import FINE_TUNE, QUERIES, TRAIN, ToyWorld

from airrep.errors import ArtifactError, ConfigError
from airrep.labels.farm import label
from airrep.labels.gather import gather, label_lineage
from airrep.labels.plan import SamplingSettings, open_plan
from airrep.labels.sampling import sample


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("labels")
    settings = SamplingSettings(instances=4, train_count=20, query_count=3, subsets=3, size=5)
    plan = sample(TRAIN, root / "plan", settings, QUERIES)
    label(plan, TRAIN, QUERIES, ToyWorld(), FINE_TUNE, root / "labels")
    return str(root / "labels")


@pytest.mark.parametrize(
    ("choice", "expected"), [("", [0, 1, 2, 3]), ("#0", [0]), ("#1-2", [1, 2]), ("#0,2-", [0, 2, 3]), ("#3,1", [3, 1])]
)
def test_a_choice_takes_those_instances_in_that_order(folder, choice, expected):
    chosen = gather([folder + choice], [QUERIES, TRAIN])
    assert [instance.name for instance in chosen] == [f"labels/{number}" for number in expected]


@pytest.mark.parametrize("choice", ["#4", "#2-1", "#x", "#1-7", "#,"])
def test_an_instance_that_is_not_there_is_refused(folder, choice):
    with pytest.raises(ConfigError, match=r"has no instance '.*'"):
        gather([folder + choice], [TRAIN, QUERIES])


def test_several_directories_are_laid_end_to_end(folder):
    assert len(gather([folder + "#0-1", folder + "#3"], [TRAIN, QUERIES])) == 3


@pytest.mark.parametrize(("given", "missing"), [([QUERIES], "train"), ([TRAIN], "queries"), ([], "train")])
def test_labels_of_other_data_are_refused(folder, given, missing):
    with pytest.raises(ArtifactError, match=rf"was made from other {missing} data"):
        gather([folder], given)


def test_directories_of_one_name_are_told_apart_by_their_parents(folder, tmp_path):
    for parent in ("learn", "judge"):
        shutil.copytree(folder, tmp_path / parent / "labels")
    learn, judge = (f"{tmp_path / parent}/labels#0" for parent in ("learn", "judge"))
    named = [gather([one], [TRAIN, QUERIES], beside=[learn, judge])[0].name for one in (learn, judge)]
    assert named == ["learn/labels/0", "judge/labels/0"]
    assert gather([learn], [TRAIN, QUERIES], beside=[learn, f"{learn}-1"])[0].name == "labels/0"


def test_labels_of_two_lms_or_two_fine_tunings_are_not_mixed_by_accident(folder, tmp_path):
    plan = open_plan(f"{folder}/../plan")
    label(plan, TRAIN, QUERIES, ToyWorld(version="2"), FINE_TUNE, tmp_path / "other-lm")
    slower = FINE_TUNE.model_copy(update={"learning_rate": 7e-4})
    label(plan, TRAIN, QUERIES, ToyWorld(), slower, tmp_path / "other-rate")
    with pytest.raises(ArtifactError, match=r"other-lm: was made with another LM than .*labels \(.*--mixed"):
        label_lineage([folder], [str(tmp_path / "other-lm")])
    with pytest.raises(ArtifactError, match=r"another fine_tune\.learning_rate than .* \(0\.0007; "):
        label_lineage([folder], test=[str(tmp_path / "other-rate")])
    lineage = label_lineage([folder], [str(tmp_path / "other-lm")], [str(tmp_path / "other-rate")], mixed=True)
    assert lineage["held_out_labels"][0]["lm"] != lineage["labels"][0]["lm"]
    assert lineage["test_labels"][0]["fine_tune"]["learning_rate"] == 7e-4


def test_the_lineage_names_the_lm_and_its_fine_tuning(folder):
    lineage = label_lineage([folder + "#1"])
    assert lineage["lm"] == "toy"
    (entry,) = lineage["labels"]
    assert entry["fine_tune"] == FINE_TUNE.model_dump(mode="json")
    assert entry["train"] == TRAIN.fingerprint
    assert entry["queries"] == QUERIES.fingerprint
