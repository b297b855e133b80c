"""Label directories gathered for training."""

import pytest
from toy_farm import FINE_TUNE, QUERIES, TRAIN, ToyWorld

from airrep.errors import ArtifactError, ConfigError
from airrep.farm import label
from airrep.learning import gather, lineage_of
from airrep.plans import SamplingSettings
from airrep.sampling import sample


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
    with pytest.raises(ConfigError, match=r"has no instance '.*'; expected numbers from 0 to 3"):
        gather([folder + choice], [TRAIN, QUERIES])


def test_several_directories_are_laid_end_to_end(folder):
    assert len(gather([folder + "#0-1", folder + "#3"], [TRAIN, QUERIES])) == 3


@pytest.mark.parametrize(("given", "missing"), [([QUERIES], "train"), ([TRAIN], "queries"), ([], "train")])
def test_labels_of_other_data_are_refused(folder, given, missing):
    with pytest.raises(ArtifactError, match=rf"was made from other {missing} data"):
        gather([folder], given)


def test_the_lineage_names_the_lm_and_its_fine_tuning(folder):
    lineage = lineage_of([folder + "#1"])
    assert lineage["lm"] == "toy"
    (entry,) = lineage["labels"]
    assert entry["fine_tune"] == FINE_TUNE.model_dump(mode="json")
    assert entry["train"] == TRAIN.fingerprint
    assert entry["queries"] == QUERIES.fingerprint
