"""Label directories, and folders in the airrep-test layout, gathered for training."""

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from worlds.small_world import make_corpus, write_published
from worlds.toy_farm import FINE_TUNE, QUERIES, TRAIN, ToyWorld, farm

from airrep.corpus.corpus import Corpus, read_corpus
from airrep.errors import ArtifactError, ConfigError, DataError
from airrep.labels.gather import gather, is_published, label_lineage, mixture, read_published
from airrep.labels.plan import SamplingSettings, open_plan
from airrep.labels.sampling import sample


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("labels")
    settings = SamplingSettings(instances=4, train_count=20, query_count=3, subsets=3, size=5)
    plan = sample(TRAIN, root / "plan", settings, QUERIES)
    farm(plan, root / "labels")
    return str(root / "labels")


@pytest.mark.parametrize(
    ("choice", "expected"), [("", [0, 1, 2, 3]), ("#0", [0]), ("#1-2", [1, 2]), ("#0,2-", [0, 2, 3]), ("#3,1", [3, 1])]
)
def test_a_choice_takes_those_instances_in_that_order(folder, choice, expected):
    chosen = gather([folder + choice], [QUERIES, TRAIN])
    assert [instance.name for instance in chosen] == [f"labels/{number}" for number in expected]


@pytest.mark.parametrize("choice", ["#4", "#2-1", "#x", "#1-7", "#,"])
def test_an_instance_that_is_not_there_is_refused(folder, choice):
    with pytest.raises(ConfigError, match=r"there is no instance .* '.*'"):
        gather([folder + choice], [TRAIN, QUERIES])


def test_several_directories_are_laid_end_to_end(folder):
    assert len(gather([folder + "#0-1", folder + "#3"], [TRAIN, QUERIES])) == 3


@pytest.mark.parametrize(("given", "missing"), [([QUERIES], "train"), ([TRAIN], "queries"), ([], "train")])
def test_labels_of_other_data_are_refused(folder, given, missing):
    with pytest.raises(ArtifactError, match=rf"(was made from other|needs its) {missing} data"):
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
    farm(plan, tmp_path / "other-lm", ToyWorld(version="2"))
    slower = FINE_TUNE.model_copy(update={"learning_rate": 7e-4})
    farm(plan, tmp_path / "other-rate", fine_tune=slower)
    with pytest.raises(ArtifactError, match=r"other-lm: .* made with LM .*labels was made with LM .*--set mixed=true"):
        label_lineage([folder], [str(tmp_path / "other-lm")])
    with pytest.raises(ArtifactError, match=r"made with fine_tune\.learning_rate 0\.0007, but "):
        label_lineage([folder], test=[str(tmp_path / "other-rate")])
    lineage = label_lineage([folder], [str(tmp_path / "other-lm")], [str(tmp_path / "other-rate")], mixed=True)
    assert lineage["held_out_labels"][0]["lm"] != lineage["labels"][0]["lm"]
    assert lineage["test_labels"][0]["fine_tune"]["learning_rate"] == 7e-4


def test_labels_that_do_not_tell_their_template_differ_from_those_that_do(folder, published):
    assert mixture([folder, str(published)])
    assert "None" not in mixture([folder, str(published)])


def test_another_template_of_one_lm_is_named(monkeypatch):
    def state(path):
        name, template = path.name.split("-")
        lm = {"name": f"{path.parent}/{name}", "fingerprint": path.name, "template": template, "max_tokens": len(name)}
        return path, {"lm": lm, "precision": "float32", "fine_tune": {}}

    monkeypatch.setattr("airrep.labels.gather._state_of", state)
    one = "was made with"
    assert mixture(["a-plain", "a-chat#1"]).endswith(f"with template chat, but a-plain {one} template plain")
    assert mixture(["a-plain", "bb-plain"]).endswith(
        f"with LM ./bb, max_tokens 2, but a-plain {one} LM ./a, max_tokens 1"
    )
    assert mixture(["a-plain#0", "a-plain#1", "moved/a-plain"]) == ""


def test_the_lineage_names_the_lm_and_its_fine_tuning(folder):
    lineage = label_lineage([folder + "#1"])
    assert lineage["lm"] == "toy"
    (entry,) = lineage["labels"]
    assert entry["fine_tune"] == FINE_TUNE.model_dump(mode="json")
    assert entry["train"] == TRAIN.fingerprint
    assert entry["queries"] == QUERIES.fingerprint


@pytest.fixture
def published(tmp_path: Path) -> Path:
    write_published(tmp_path / "flan", make_corpus(20), make_corpus(4, "q"))
    return tmp_path / "flan"


def change(folder: Path, number: int, **values: object) -> None:
    """Change keys of one line of lds.jsonl; None takes a key away."""
    lines = (folder / "lds.jsonl").read_text().splitlines()
    line = {**json.loads(lines[number]), **values}
    lines[number] = json.dumps({key: value for key, value in line.items() if value is not None})
    (folder / "lds.jsonl").write_text("\n".join(lines) + "\n")


def test_subsets_and_losses_are_those_of_the_lines(tmp_path: Path) -> None:
    train, queries = make_corpus(20), make_corpus(4, "q")
    lines = write_published(tmp_path / "flan", train, queries)
    instance = read_published(tmp_path / "flan")
    assert instance.name == "flan"
    assert [example.prompt for example in instance.train] == [example.prompt for example in train]
    assert [example.prompt for example in instance.queries] == [example.prompt for example in queries]
    for number, line in enumerate(lines):
        assert instance.subsets.members(number).tolist() == sorted(line["train_subset"])
        np.testing.assert_allclose(instance.losses[:, number], line["test_loss"], rtol=1e-6)
    assert instance.losses.dtype == np.float32
    assert instance.by_seed is None


def test_a_missing_loss_is_nan_and_other_keys_and_empty_lines_do_not_matter(published: Path) -> None:
    change(published, 2, test_loss=[1.0, None, 2, None], extra="x")
    with (published / "lds.jsonl").open("a") as stream:
        stream.write("\n\n")
    instance = read_published(published)
    np.testing.assert_array_equal(instance.losses[:, 2], np.float32([1, math.nan, 2, math.nan]))
    assert len(instance.subsets) == 6


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"train_subset": [0, 20]}, r"lds.jsonl:3: train_subset holds 20. .* from 0 to 19"),
        ({"train_subset": [0, -1]}, "lds.jsonl:3: train_subset holds -1"),
        ({"train_subset": [0, 1.0]}, "lds.jsonl:3: train_subset holds 1.0"),
        ({"train_subset": [0, True]}, "lds.jsonl:3: train_subset holds true"),
        ({"train_subset": [3, 3]}, "lds.jsonl:3: train_subset holds a row twice"),
        ({"train_subset": [None, 1]}, "lds.jsonl:3: train_subset holds null. .* from 0 to 19"),
        ({"train_subset": []}, "lds.jsonl:3: train_subset holds no rows"),
        ({"train_subset": None}, "lds.jsonl:3: has no list 'train_subset'"),
        ({"test_loss": "1"}, "lds.jsonl:3: has no list 'test_loss'"),
        ({"test_loss": [1, 2, 3]}, "lds.jsonl:3: test_loss has 3 losses. Write 4 losses"),
        ({"test_loss": [1, 2, 3, "4"]}, 'lds.jsonl:3: test_loss holds "4". Write 4 losses'),
        ({"test_loss": [1, 2, 3, True]}, "lds.jsonl:3: test_loss holds true"),
        ({"test_loss": [None, 2, 3, math.nan]}, "lds.jsonl:3: test_loss holds NaN. Write 4 losses"),
        ({"test_loss": [1, 2, 3, math.inf]}, "lds.jsonl:3: test_loss holds Infinity"),
        ({"test_loss": [1, 2, 3, 1e300]}, "lds.jsonl:3: test_loss holds 1e"),
    ],
)
def test_a_bad_line_is_named(published: Path, values: dict[str, object], message: str) -> None:
    change(published, 2, **values)
    with pytest.raises(DataError, match=message) as caught:
        read_published(published)
    assert "\n" not in str(caught.value)


def test_lines_that_are_no_json_and_too_few_lines_are_refused(published: Path) -> None:
    (published / "lds.jsonl").write_text("[1]\n")
    with pytest.raises(DataError, match="lds.jsonl:1: has no list 'train_subset'"):
        read_published(published)
    (published / "lds.jsonl").write_text("{\n")
    with pytest.raises(DataError, match="lds.jsonl:1: is not valid JSON"):
        read_published(published)
    (published / "lds.jsonl").write_bytes(b"\xff\n")
    with pytest.raises(DataError, match="lds.jsonl: cannot be read: .*"):
        read_published(published)
    (published / "lds.jsonl").write_text(json.dumps({"train_subset": [1], "test_loss": [1, 2, 3, 4]}) + "\n")
    with pytest.raises(DataError, match="lds.jsonl: has 1 subset,"):
        read_published(published)


def test_a_record_that_was_left_out_would_shift_all_others_so_it_is_an_error(published: Path) -> None:
    lines = (published / "train.jsonl").read_text().splitlines()
    (published / "train.jsonl").write_text("\n".join([lines[0], '{"prompt": 1}', *lines[2:]]) + "\n")

    def lenient(path: str) -> Corpus:
        return read_corpus(path, skip_invalid=True)

    told = "train.jsonl: 1 record cannot be used, but lds.jsonl .* The first: .*train.jsonl:2"
    with pytest.raises(DataError, match=told):
        read_published(published, read=lenient)


def test_missing_files_and_folders_of_benchmarks_are_told_of(published: Path) -> None:
    assert is_published(published)
    with pytest.raises(DataError, match=r"holds several benchmarks \(flan\)"):
        is_published(published.parent)
    (published / "test.jsonl").unlink()
    with pytest.raises(DataError, match="has train.jsonl and lds.jsonl but no test.jsonl"):
        is_published(published)
    (published / "lds.jsonl").unlink()
    assert not is_published(published)
    assert not is_published(published / "nowhere")


def test_gather_takes_such_a_folder_without_data(published: Path) -> None:
    (found,) = gather([str(published)])
    assert found.name == "flan"
    assert gather([f"{published}#0"])[0].name == "flan"
    with pytest.raises(ConfigError, match="flan#1: there is no instance .* '1'"):
        gather([f"{published}#1"])
    with pytest.raises(ArtifactError, match="holds no labels"):
        gather([str(published / "nowhere")])


def test_data_without_losses_are_told_what_is_missing(published: Path) -> None:
    (published / "lds.jsonl").rename(published / "lds.jsonl.gz")
    for ask in (gather, label_lineage):
        with pytest.raises(DataError, match=r"flan: has train\.jsonl and test\.jsonl but no lds\.jsonl\. .*compressed"):
            ask([str(published)])
    (published / "test.jsonl").unlink()
    with pytest.raises(ArtifactError, match="holds no labels"):
        gather([str(published)])


def test_model_cards_say_that_the_lm_is_not_known(published: Path) -> None:
    lineage = label_lineage([str(published)], [str(published)])
    assert lineage["lm"] == "unknown"
    assert lineage["labels"][0]["lm_name"] == "unknown"
    assert len(lineage["labels"][0]["train"]) == 64
