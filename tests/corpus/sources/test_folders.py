"""Folders of data files and of texts, as `read_corpus` meets them."""

import gzip
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from worlds.small_world import make_corpus

import airrep
from airrep.corpus.corpus import read_corpus
from airrep.errors import ArtifactError, DataError


def put(path: Path, *prompts: str, **more: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"prompt": prompt, "response": "r", **more}) + "\n" for prompt in prompts))
    return path


def prompts_of(folder: Path, **options: str) -> list[str]:
    return [one.prompt for one in read_corpus(folder, **options)]  # type: ignore[arg-type]


def test_reads_all_data_files_in_the_order_of_their_names(tmp_path: Path) -> None:
    put(tmp_path / "b.jsonl", "3", source="own")
    put(tmp_path / "a" / "x.jsonl", "1", "2")
    pq.write_table(pa.table({"prompt": ["4"], "response": ["r"]}), tmp_path / "c.parquet")
    (tmp_path / "d.jsonl.gz").write_bytes(gzip.compress(b'{"prompt": "5", "response": "r"}'))
    put(tmp_path / ".cache" / "hidden.jsonl", "never")
    (tmp_path / "README.md").write_text("About these data.")
    (tmp_path / "dataset_infos.json").write_text("{}")
    corpus = read_corpus(tmp_path)
    assert [one.prompt for one in corpus] == ["1", "2", "3", "4", "5"]
    assert [one.source for one in corpus] == ["a/x", "a/x", "own", "c", "d"]


def test_shards_are_one_source_and_so_none(tmp_path: Path) -> None:
    put(tmp_path / "train-00000-of-00002.jsonl", "1")
    put(tmp_path / "train-00001-of-00002.jsonl", "2")
    assert [(one.prompt, one.source) for one in read_corpus(tmp_path)] == [("1", None), ("2", None)]


def test_splits_are_told_by_names(tmp_path: Path) -> None:
    put(tmp_path / "train-00000-of-00001.jsonl", "1")
    put(tmp_path / "data" / "test.jsonl", "2")
    assert prompts_of(tmp_path) == ["1"]
    assert prompts_of(tmp_path, split="test") == ["2"]
    with pytest.raises(DataError, match="has the splits test, train"):
        prompts_of(tmp_path, split="dev")


def test_names_without_splits_tell_none(tmp_path: Path) -> None:
    put(tmp_path / "forum.jsonl", "1")
    put(tmp_path / "math_test.jsonl", "2")
    assert prompts_of(tmp_path) == ["1", "2"]
    with pytest.raises(DataError, match="its file names contain no split"):
        prompts_of(tmp_path, split="test")


def test_a_folder_of_texts_is_an_example_each(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("First.\nLine.", encoding="utf-8")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.md").write_text("\ufeff# Zweites", encoding="utf-8")
    corpus = read_corpus(tmp_path)
    assert [(one.id, one.prompt, one.response) for one in corpus] == [
        ("a.txt", "", "First.\nLine."),
        ("sub/b.md", "", "# Zweites"),
    ]
    assert set(corpus.forms) == {"text alone (no prompt: all of it is the response)"}


def test_errors_name_the_file_and_its_line(tmp_path: Path) -> None:
    put(tmp_path / "a.jsonl", "1", "2")
    (tmp_path / "b.jsonl").write_text('{"prompt": "3", "response": "r"}\n\n{"prompt": "4"}\n')
    with pytest.raises(DataError, match=r"b\.jsonl:3: no prompt and response"):
        read_corpus(tmp_path)
    put(tmp_path / "b.jsonl", "3", id="x")
    put(tmp_path / "c.jsonl", "4", id="x")
    with pytest.raises(DataError, match=r'c\.jsonl:1: the id "x" is also the id of .*b\.jsonl:1'):
        read_corpus(tmp_path)
    assert read_corpus(tmp_path, skip_invalid=True).skipped.count == 1


def test_a_broken_file_of_many_is_an_error(tmp_path: Path) -> None:
    put(tmp_path / "a.jsonl", "1")
    (tmp_path / "b.parquet").write_bytes(b"no Parquet")
    with pytest.raises(DataError, match=r"b\.parquet: cannot be read as Parquet"):
        read_corpus(tmp_path)


def test_refuses_a_folder_without_data(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(DataError, match="holds no data files"):
        read_corpus(tmp_path)


def test_what_is_not_read_is_told(tmp_path: Path) -> None:
    for name in ("train.jsonl", "test.jsonl"):
        put(tmp_path / name, name)
    for name in ("README.md", "notes.docx", ".hidden.docx"):
        (tmp_path / name).write_text("x")
    corpus = read_corpus(tmp_path)
    assert [one.prompt for one in corpus] == ["train.jsonl"]
    assert corpus.apart == (
        "README.md: is a text file beside data files, which it probably describes",
        "notes.docx: its suffix is not known",
        "test.jsonl: belongs to another split",
    )
    assert read_corpus(tmp_path / "test.jsonl").apart == ()


def test_an_index_below_its_data_is_no_data(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    make_corpus(8).to_jsonl(data / "a.jsonl")
    whole = airrep.read_corpus(data)
    airrep.build_index(whole, data / "index", "tfidf")
    (data / "begun.partial").mkdir()
    (data / "begun.partial" / "costs.jsonl").write_text('{"stage": 1}\n')
    (data / "labels" / "results").mkdir(parents=True)
    (data / "labels" / "request.json").write_text("{}")
    assert airrep.read_corpus(data).fingerprint == whole.fingerprint
    airrep.build_index(airrep.read_corpus(data), data / "index", "tfidf")


def test_a_folder_of_requests_is_data_like_any_other(tmp_path: Path) -> None:
    (tmp_path / "data" / "part").mkdir(parents=True)
    make_corpus(3).to_jsonl(tmp_path / "data" / "part" / "a.jsonl")
    (tmp_path / "data" / "part" / "request.json").write_text('[{"prompt": "more", "response": "data"}]')
    assert len(airrep.read_corpus(tmp_path / "data")) == 4


def test_linked_folders_are_read_once(tmp_path: Path) -> None:
    data, far = tmp_path / "data", tmp_path / "far"
    data.mkdir()
    far.mkdir()
    make_corpus(3).to_jsonl(data / "a.jsonl")
    make_corpus(2, "z").to_jsonl(far / "b.jsonl")
    (data / "part").symlink_to(far)
    (far / "back").symlink_to(data)
    (far / "self").symlink_to(far)
    assert len(airrep.read_corpus(data)) == 5


def test_a_table_with_a_column_of_several_types_is_told(tmp_path: Path) -> None:
    table = pd.DataFrame({"prompt": ["some", "more"], "response": ["words", "here"], "x": [1, "z"]})
    with pytest.raises(DataError, match=r"a column holds values of several types .*to_dict\('records'\)"):
        airrep.build_index(table, tmp_path / "index", "tfidf")
    assert len(airrep.build_index(table.to_dict("records"), tmp_path / "index", "tfidf")) == 2


def test_a_mistake_early_in_a_long_array_is_told_where_it_is(tmp_path: Path) -> None:
    record = '{"prompt": "p", "response": "%s"}' % ("x" * 1000)
    rows = [*([record] * 3), record[:-1] + ",}", *([record] * 9000)]
    (tmp_path / "a.json").write_text("[\n" + ",\n".join(rows) + "\n]")
    with pytest.raises(DataError, match=r"a\.json:5: not JSON"):
        airrep.read_corpus(tmp_path / "a.json", longest_line=2**20)


@pytest.mark.parametrize("step", range(1, 60, 7))
def test_values_that_a_buffer_cuts_are_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    from airrep.corpus.sources import textformats

    monkeypatch.setattr(textformats, "_BUFFER", step)
    text = r'{"prompt": "a\u00e9\ud83d\ude00\"b\\", "response": "r", "n": [true, false, null, -1.25e-7, {}]}'
    (tmp_path / "a.json").write_text(f"[{text}, {text}]", encoding="utf-8")
    found = airrep.read_corpus(tmp_path / "a.json")
    assert [example.prompt for example in found] == ['aé😀"b\\'] * 2


def test_whole_numbers_that_pandas_made_floats_are_labels_and_ids(tmp_path: Path) -> None:
    pd.DataFrame({"prompt": ["a", "b"], "response": ["c", "d"], "label": [3, None]}).to_parquet(tmp_path / "a.parquet")
    assert airrep.read_corpus(tmp_path / "a.parquet").values("label") == ["3", None]


def test_rows_are_taken_by_truth_values_too() -> None:
    corpus = make_corpus(4)
    assert corpus.take(np.array([True, False, True, False])).fingerprint == corpus.take([0, 2]).fingerprint
    assert len(corpus.take([])) == 0
    for wrong in ([0.7], [True, False], ["0"]):
        with pytest.raises(DataError, match="rows: must be row numbers"):
            corpus.take(wrong)  # type: ignore[arg-type]


def test_names_of_unfinished_work_are_refused(tmp_path: Path) -> None:
    for name in ("made.partial", ""):
        with pytest.raises(ArtifactError, match="unfinished work|path is empty"):
            airrep.build_index(make_corpus(3), tmp_path / name if name else "", "tfidf")
