"""Folders in the airrep-test layout."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from worlds.small_world import make_corpus, write_published

from airrep.errors import ArtifactError, ConfigError, DataError
from airrep.labels.gather import gather, is_published, label_lineage, read_published


@pytest.fixture
def folder(tmp_path: Path) -> Path:
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


def test_a_missing_loss_is_nan_and_other_keys_and_empty_lines_do_not_matter(folder: Path) -> None:
    change(folder, 2, test_loss=[1.0, None, 2, None], extra="x")
    with (folder / "lds.jsonl").open("a") as stream:
        stream.write("\n\n")
    instance = read_published(folder)
    np.testing.assert_array_equal(instance.losses[:, 2], np.float32([1, math.nan, 2, math.nan]))
    assert len(instance.subsets) == 6


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"train_subset": [0, 20]}, r"lds.jsonl:3: train_subset holds 20; expected row numbers from 0 to 19"),
        ({"train_subset": [0, -1]}, "lds.jsonl:3: train_subset holds -1"),
        ({"train_subset": [0, 1.0]}, "lds.jsonl:3: train_subset holds 1.0"),
        ({"train_subset": [0, True]}, "lds.jsonl:3: train_subset holds true"),
        ({"train_subset": [3, 3]}, "lds.jsonl:3: train_subset holds a row twice"),
        ({"train_subset": [None, 1]}, "lds.jsonl:3: train_subset holds null; expected row numbers from 0 to 19"),
        ({"train_subset": []}, "lds.jsonl:3: train_subset holds nothing"),
        ({"train_subset": None}, "lds.jsonl:3: has no list 'train_subset'"),
        ({"test_loss": "1"}, "lds.jsonl:3: has no list 'test_loss'"),
        ({"test_loss": [1, 2, 3]}, "lds.jsonl:3: test_loss has 3 losses; expected 4 numbers or null"),
        ({"test_loss": [1, 2, 3, "4"]}, 'lds.jsonl:3: test_loss holds "4"; expected 4 numbers or null'),
        ({"test_loss": [1, 2, 3, True]}, "lds.jsonl:3: test_loss holds true"),
        ({"test_loss": [None, 2, 3, math.nan]}, "lds.jsonl:3: test_loss holds NaN; expected 4 numbers or null"),
        ({"test_loss": [1, 2, 3, math.inf]}, "lds.jsonl:3: test_loss holds Infinity"),
        ({"test_loss": [1, 2, 3, 1e300]}, "lds.jsonl:3: test_loss holds 1e"),
    ],
)
def test_a_bad_line_is_named(folder: Path, values: dict[str, object], message: str) -> None:
    change(folder, 2, **values)
    with pytest.raises(DataError, match=message) as caught:
        read_published(folder)
    assert "\n" not in str(caught.value)


def test_lines_that_are_no_json_and_too_few_lines_are_refused(folder: Path) -> None:
    (folder / "lds.jsonl").write_text("[1]\n")
    with pytest.raises(DataError, match="lds.jsonl:1: has no list 'train_subset'"):
        read_published(folder)
    (folder / "lds.jsonl").write_text("{\n")
    with pytest.raises(DataError, match="lds.jsonl:1: is not JSON"):
        read_published(folder)
    (folder / "lds.jsonl").write_bytes(b"\xff\n")
    with pytest.raises(DataError, match="lds.jsonl: cannot be read: .*"):
        read_published(folder)
    (folder / "lds.jsonl").write_text(json.dumps({"train_subset": [1], "test_loss": [1, 2, 3, 4]}) + "\n")
    with pytest.raises(DataError, match="lds.jsonl: has 1 subsets"):
        read_published(folder)


def test_a_record_that_was_left_out_would_shift_all_others_so_it_is_an_error(folder: Path) -> None:
    from airrep.corpus.corpus import Corpus, read_corpus

    lines = (folder / "train.jsonl").read_text().splitlines()
    (folder / "train.jsonl").write_text("\n".join([lines[0], '{"prompt": 1}', *lines[2:]]) + "\n")

    def lenient(path: str) -> Corpus:
        return read_corpus(path, skip_invalid=True)

    with pytest.raises(DataError, match="train.jsonl: 1 records cannot be used, the first: .*lds.jsonl counts lines"):
        read_published(folder, read=lenient)


def test_missing_files_and_folders_of_benchmarks_are_told_of(folder: Path) -> None:
    assert is_published(folder)
    with pytest.raises(DataError, match=r"holds several benchmarks \(flan\)"):
        is_published(folder.parent)
    (folder / "test.jsonl").unlink()
    with pytest.raises(DataError, match="has train.jsonl and lds.jsonl but no test.jsonl"):
        is_published(folder)
    (folder / "lds.jsonl").unlink()
    assert not is_published(folder)
    assert not is_published(folder / "nowhere")


def test_gather_takes_such_a_folder_without_data(folder: Path) -> None:
    (found,) = gather([str(folder)])
    assert found.name == "flan"
    assert gather([f"{folder}#0"])[0].name == "flan"
    with pytest.raises(ConfigError, match="flan#1: has no instance '1'"):
        gather([f"{folder}#1"])
    with pytest.raises(ArtifactError, match="holds no labels"):
        gather([str(folder / "nowhere")])


def test_data_without_losses_are_told_what_is_missing(folder: Path) -> None:
    (folder / "lds.jsonl").rename(folder / "lds.jsonl.gz")
    for ask in (gather, label_lineage):
        with pytest.raises(DataError, match=r"flan: has train\.jsonl and test\.jsonl but no lds\.jsonl; .*compressed"):
            ask([str(folder)])
    (folder / "test.jsonl").unlink()
    with pytest.raises(ArtifactError, match="holds no labels"):
        gather([str(folder)])


def test_model_cards_say_that_the_lm_is_not_known(folder: Path) -> None:
    lineage = label_lineage([str(folder)], [str(folder)])
    assert lineage["lm"] == "unknown"
    assert lineage["labels"][0]["lm_name"] == "unknown"
    assert len(lineage["labels"][0]["train"]) == 64
