"""Subsets that another trainer gets are those of the plan."""

import json
from pathlib import Path

import pytest
from worlds.toy_farm import QUERIES, TRAIN, make_plan

from airrep.corpus.corpus import Corpus, Example, read_corpus
from airrep.errors import ArtifactError, DataError
from airrep.labels.outside import write_subset_files
from airrep.runtime.artifacts.manifests import read_manifest


def test_files_hold_the_examples_of_the_plan(tmp_path: Path) -> None:
    plan = make_plan(tmp_path / "plan")
    out = write_subset_files(plan, TRAIN, QUERIES, tmp_path / "files")
    listed = [json.loads(line) for line in (out / "subsets.jsonl").read_text().splitlines()]
    assert [line["subset"] for line in listed] == [f"{i}-{j}" for i in range(2) for j in range(5)]
    for line in listed:
        i, j = map(int, line["subset"].split("-"))
        assert list(read_corpus(out / line["train"])) == list(TRAIN.take(plan.subset_rows(i, j)))
        assert list(read_corpus(out / line["queries"])) == list(QUERIES.take(plan.query_rows(i)))
        assert line["examples"] == len(plan.subset_rows(i, j))
    read_manifest(out, "subset files", verify=True)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    assert write_subset_files(plan, TRAIN, QUERIES, out) == out
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before


def test_files_of_another_plan_are_not_overwritten(tmp_path: Path) -> None:
    write_subset_files(make_plan(tmp_path / "one"), TRAIN, QUERIES, tmp_path / "files")
    other = make_plan(tmp_path / "two", seed=1)
    with pytest.raises(ArtifactError, match="another plan"):
        write_subset_files(other, TRAIN, QUERIES, tmp_path / "files")
    write_subset_files(other, TRAIN, QUERIES, tmp_path / "files", replace=True)
    with pytest.raises(DataError, match="was drawn from another train corpus"):
        write_subset_files(other, QUERIES, QUERIES, tmp_path / "more")


def test_any_text_comes_back_as_it_was(tmp_path: Path) -> None:
    odd = [
        Example("a\u2028b\x85c\n", "\x1b[31m \U0001f600 \u202e", "1", source="x y"),
        Example("p", "r" * 10**6, "2"),
    ]
    corpus = Corpus.from_examples(odd)
    corpus.to_jsonl(tmp_path / "odd.jsonl")
    assert list(read_corpus(tmp_path / "odd.jsonl")) == list(corpus)
