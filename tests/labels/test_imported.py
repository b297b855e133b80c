"""Losses that another trainer measured become ordinary labels, or are refused in one line."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds.toy_farm import QUERIES, TRAIN, make_plan, visible

from airrep.corpus.corpus import read_corpus
from airrep.errors import AirRepError, ArtifactError, DataError
from airrep.labels.gather import gather, label_lineage
from airrep.labels.labels import Labels
from airrep.labels.outside import import_labels, write_subset_files
from airrep.labels.plan import SubsetPlan
from airrep.labels.sampling import sample
from airrep.runtime.artifacts import json_digest, read_manifest


def truth(plan: SubsetPlan) -> np.ndarray:
    """Losses of a plan by instance, subset and query."""
    queries = len(plan.query_rows(0))
    return np.random.default_rng(0).random((len(plan), plan.subset_count, queries)).astype(np.float32)


def rows(plan: SubsetPlan, losses: np.ndarray) -> list[dict[str, Any]]:
    """The same as rows, queries by their ids, in no order."""
    ids = [[query.id for query in QUERIES.take(plan.query_rows(i))] for i in range(len(plan))]
    found = [
        {"subset": f"{i}-{j}", "query": ids[i][q], "loss": float(losses[i, j, q])}
        for i, j, q in np.ndindex(losses.shape)
    ]
    return [found[row] for row in np.random.default_rng(1).permutation(len(found))]


def write(path: Path, lines: list[Any]) -> Path:
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n\n")
    return path


def taken(plan: SubsetPlan, path: Path, out: Path, **options: Any) -> Labels:
    return import_labels(plan, TRAIN, QUERIES, path, out, **options)


def test_rows_and_arrays_give_the_labels_that_they_hold(tmp_path: Path, plan: SubsetPlan) -> None:
    losses = truth(plan)
    np.save(tmp_path / "losses.npy", losses)
    of_rows = taken(plan, write(tmp_path / "losses.jsonl", rows(plan, losses)), tmp_path / "rows", lm="mine")
    of_array = taken(plan, tmp_path / "losses.npy", tmp_path / "array", lm="mine")
    for labels in (of_rows, of_array):
        assert labels.complete
        assert not labels.quarantined
        for i in range(len(plan)):
            np.testing.assert_array_equal(labels.losses(i)[0], losses[i].T)
            assert labels.base_losses(i) is None
        assert labels.state["lm"]["name"] == "mine"
        assert labels.state["fine_tune"] == {"trainer": "imported"}
        labels.verify()
        instances = gather([str(labels.path)], [TRAIN, QUERIES])
        np.testing.assert_array_equal(instances[1].losses, losses[1].T)
    lineage = label_lineage([str(tmp_path / "rows")], [str(tmp_path / "array")])  # one LM: they may be used together
    assert lineage["lm"] == "mine"


def test_an_import_is_repeated_without_a_change_and_another_refused(tmp_path: Path, plan: SubsetPlan) -> None:
    path = write(tmp_path / "losses.jsonl", rows(plan, truth(plan)))
    taken(plan, path, tmp_path / "labels")
    before = visible(tmp_path / "labels")
    taken(plan, path, tmp_path / "labels")
    assert visible(tmp_path / "labels") == before
    write(path, rows(plan, truth(plan) + 1))
    with pytest.raises(ArtifactError, match="another losses"):
        taken(plan, path, tmp_path / "labels")


def test_losses_before_and_seeds_are_taken(tmp_path: Path, plan: SubsetPlan) -> None:
    losses = truth(plan)
    more = [{**row, "seed": 1, "loss": row["loss"] + 2} for row in rows(plan, losses)]
    queries = losses.shape[2]
    before = [{"subset": f"{i}-before", "query": q, "loss": i + q} for i in range(2) for q in range(queries)]
    path = write(tmp_path / "losses.jsonl", [*rows(plan, losses), *more, *before])
    labels = taken(plan, path, tmp_path / "labels", seeds=2)
    np.testing.assert_array_equal(labels.base_losses(1), 1 + np.arange(queries, dtype=np.float32))
    np.testing.assert_allclose(labels.losses(0)[1] - labels.losses(0)[0], 2, rtol=1e-5)


@pytest.mark.parametrize("given", [0, 1])
def test_losses_before_are_those_of_every_instance_with_these_queries(tmp_path: Path, given: int) -> None:
    drawn = {"instances": 2, "train_count": 30, "query_count": None, "subsets": 5, "size": 6}
    plan = sample(TRAIN, tmp_path / "plan", drawn, QUERIES)
    assert np.array_equal(plan.query_rows(0), plan.query_rows(1))
    losses = truth(plan)
    before = [{"subset": f"{given}-before", "query": q, "loss": q + 0.5} for q in range(losses.shape[2])]
    labels = taken(plan, write(tmp_path / "losses.jsonl", [*rows(plan, losses), *before]), tmp_path / "labels")
    for i in range(2):
        np.testing.assert_array_equal(labels.base_losses(i), 0.5 + np.arange(losses.shape[2], dtype=np.float32))


def test_one_instance_takes_plain_numbers_and_a_flat_array(tmp_path: Path) -> None:
    plan = make_plan(tmp_path / "one", instances=1)
    losses = truth(plan)
    flat = [{"subset": j, "query": q, "loss": float(losses[0, j, q])} for _, j, q in np.ndindex(losses.shape)]
    first = taken(plan, write(tmp_path / "losses.jsonl", flat), tmp_path / "a")
    np.save(tmp_path / "losses.npy", losses[0].astype(np.float64))
    second = taken(plan, tmp_path / "losses.npy", tmp_path / "b")
    np.testing.assert_array_equal(first.losses(0), second.losses(0))


def test_a_lacking_subset_is_told_and_may_be_done_without(tmp_path: Path, plan: SubsetPlan) -> None:
    kept = [row for row in rows(plan, truth(plan)) if row["subset"] != "1-3"]
    path = write(tmp_path / "losses.jsonl", kept)
    with pytest.raises(DataError, match=r"has no losses for 1 of 10 fine-tunes; the first is subset 1-3"):
        taken(plan, path, tmp_path / "labels")
    assert not list((tmp_path / "labels").glob("[!.]*"))
    labels = taken(plan, path, tmp_path / "labels", partial=True)
    assert [str(entry.place) for entry in labels.quarantined] == ["instance 1, subset 3, seed 0"]
    assert np.isnan(labels.losses(1)[0, :, 3]).all()


@pytest.mark.parametrize("shape", ["(-1,)", "(2**70,)", "('a',)", f"({2**70}, 3)", "(1e3,)", "(True,)"])
def test_an_array_with_a_damaged_shape_is_refused_in_one_line(shape: str, tmp_path: Path, plan: SubsetPlan) -> None:
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    content = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text
    (tmp_path / "losses.npy").write_bytes(content + bytes(64))
    with pytest.raises(DataError, match=r"^.*losses\.npy: (is not an array that|has shape)[^\n]*\.$"):
        taken(plan, tmp_path / "losses.npy", tmp_path / "labels")


def test_lms_of_one_short_name_are_two(tmp_path: Path, plan: SubsetPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs call their folders alike, and owners their models."""
    monkeypatch.chdir(tmp_path)
    folders = [tmp_path / run / "checkpoint-500" for run in "AB"]
    for folder in folders:
        folder.mkdir(parents=True)
    names = [*map(str, folders), "orgA/model", "orgB/model", "model", "A/checkpoint-500", None]
    path = write(tmp_path / "losses.jsonl", rows(plan, truth(plan)))
    states = [taken(plan, path, tmp_path / f"labels-{k}", lm=name).state["lm"] for k, name in enumerate(names)]
    shown = ["checkpoint-500"] * 2 + ["model"] * 3 + ["checkpoint-500", "another trainer's"]
    assert [state["name"] for state in states] == shown
    prints = [state["fingerprint"] for state in states]
    assert prints[5] == prints[0]
    assert len(set(prints)) == 6
    for number in (4, 6):  # as labels that were made before have it
        old = json_digest({"kind": "LM of another trainer", "name": shown[number]})
        assert prints[number] == old
    with pytest.raises(ArtifactError, match="labels-1: .* accept all labels: --set mixed=true"):
        label_lineage([str(tmp_path / "labels-0")], [str(tmp_path / "labels-1")])


BAD = [
    ([{"subset": "2-0", "query": 0, "loss": 1}], 'there is no subset "2-0". Write INSTANCE-SUBSET'),
    ([{"subset": "0-05", "query": 0, "loss": 1}], "there is no subset"),
    ([{"subset": "0-٣", "query": 0, "loss": 1}], "there is no subset"),
    ([{"subset": 0, "query": 0, "loss": 1}], "there is no subset 0."),
    ([{"subset": None, "query": 0, "loss": 1}], "there is no subset null."),
    ([{"subset": ["0-0"] * 10**5, "query": 0, "loss": 1}], 'there is no subset ["0-0", '),
    ([{"subset": "0-0", "query": "x" * 10**5, "loss": 1}], 'there is no query "xxx'),
    ([{"subset": "0-0", "query": -1, "loss": 1}], "there is no query -1."),
    ([{"subset": "0-0", "query": True, "loss": 1}], "there is no query true."),
    ([{"subset": "0-0", "query": 0}], "loss is null, but must be a finite number"),
    ([{"subset": "0-0", "query": 0, "loss": float("nan")}], "loss is NaN, but must be a finite number"),
    ([{"subset": "0-0", "query": 0, "loss": float("inf")}], "loss is Infinity, but must be a finite number"),
    ([{"subset": "0-0", "query": 0, "loss": "1"}], 'loss is "1", but must be a finite number'),
    ([{"subset": "0-0", "query": 0, "loss": True}], "loss is true, but must be a finite number"),
    ([{"subset": "0-0", "query": 0, "loss": 10**400}], "must be a finite number"),
    ([{"subset": "0-0", "query": 0, "loss": 1}] * 2, "gives the loss of query 0 of subset 0-0 a second time"),
    ([{"subset": "0-0", "query": 0, "loss": 1, "seed": 1}], "seed is 1, but must be from 0 to 0"),
    ([{"subset": "0-0", "query": 0, "loss": 1}], "lacks 3 of 4 losses of subset 0-0; the first is that of query 1"),
    ([3], "is not a JSON object with subset, query and loss"),
    ([], "has no losses for 10 of 10 fine-tunes; the first is subset 0-0"),
]


@pytest.mark.parametrize(("lines", "reason"), BAD, ids=[reason[:30] for _, reason in BAD])
def test_bad_rows_are_refused_in_one_line(lines: list[Any], reason: str, tmp_path: Path, plan: SubsetPlan) -> None:
    path = write(tmp_path / "losses.jsonl", lines)
    with pytest.raises(DataError) as caught:
        taken(plan, path, tmp_path / "labels")
    message = str(caught.value)
    assert message.startswith(str(path))
    assert reason in message
    assert "\n" not in message
    assert len(message) < 600
    assert not list((tmp_path / "labels").glob("[!.]*"))


@pytest.mark.parametrize(
    "content",
    [
        *(b"{", b"\xff\xfe\x00", b"[" * 10**5, b"null", b" " * 2**21 + b"1", b"\x93NUMPY", b"\x93NUMPY\x09\x09"),
        *(b"\x93NUMPY\x01\x00" + rest for rest in (b"\xff\xff{", b"\x10\x00((((((((((((((((", b"\x04\x00{1:\n")),
    ],
)
def test_a_file_of_something_else_is_refused(content: bytes, tmp_path: Path, plan: SubsetPlan) -> None:
    (tmp_path / "losses").write_bytes(content)
    with pytest.raises(DataError, match=r"losses(:1)?: is not (valid JSON|an array)"):
        taken(plan, tmp_path / "losses", tmp_path / "labels")


def test_arrays_that_do_not_fit_are_refused(tmp_path: Path, plan: SubsetPlan) -> None:
    losses, path = truth(plan), tmp_path / "losses.npy"
    spoilt = losses.copy()
    spoilt[1, 2, 3] = np.nan
    bad = {
        "has shape": [losses[0], losses[:, :4], losses.T, np.float32(1)],
        "the loss of query 3 of subset 1-2 is nan": [spoilt],
        "holds": [losses.astype("S4"), losses > 1, losses.astype(complex)],
        "without pickle": [losses.astype(object)],
    }
    for reason, arrays in bad.items():
        for array in arrays:
            np.save(path, array, allow_pickle=True)
            with pytest.raises(DataError, match=reason):
                taken(plan, path, tmp_path / "labels")
    with pytest.raises(AirRepError, match=r"cannot be read \(No such file"):
        taken(plan, tmp_path / "none.npy", tmp_path / "labels")


def test_files_hold_the_examples_of_the_plan(tmp_path: Path, plan: SubsetPlan) -> None:
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


def test_files_of_another_plan_are_not_overwritten(tmp_path: Path, plan: SubsetPlan) -> None:
    write_subset_files(plan, TRAIN, QUERIES, tmp_path / "files")
    other = make_plan(tmp_path / "two", seed=1)
    with pytest.raises(ArtifactError, match="another plan"):
        write_subset_files(other, TRAIN, QUERIES, tmp_path / "files")
    write_subset_files(other, TRAIN, QUERIES, tmp_path / "files", replace=True)
    with pytest.raises(DataError, match="was drawn from other train data"):
        write_subset_files(other, QUERIES, QUERIES, tmp_path / "more")
