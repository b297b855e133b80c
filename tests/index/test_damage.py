"""Damage to an index: told by the file's name when a question reads it, whatever the bit."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from worlds.small_world import HashAttributor, make_corpus

import airrep
from airrep.errors import ArtifactError
from airrep.index.shards import SHARD
from airrep.runtime.artifacts import canonical_json, describe_files, json_digest, read_manifest, write_manifest

QUERIES = make_corpus(3, "q")


def flip(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def ask_all(path: Path) -> None:
    """Texts, scores and filters of the whole index."""
    index = airrep.Index(path, HashAttributor())
    index.top(QUERIES, k=len(index))
    index.group_scores(QUERIES, by="source", pool="attention")
    index.where("year > 2001")


@pytest.mark.parametrize(
    ("name", "value"), [("settings", ""), ("request", []), ("fields", "year"), ("corpora", {}), ("corpora", [True])]
)
def test_a_manifest_with_another_kind_of_value_is_refused(index: airrep.Index, name: str, value: object) -> None:
    manifest = {**read_manifest(index.path), name: value}
    write_manifest(index.path, manifest.pop("kind"), manifest)
    with pytest.raises(ArtifactError, match=r"manifest\.json: does not have the form"):
        airrep.Index(index.path)


@pytest.mark.parametrize("name", ["examples.arrow", "features.npy", "codes.npy", "scales.npy", "bounds.npy", SHARD])
def test_a_flipped_bit_of_a_shard_is_told(index: airrep.Index, name: str) -> None:
    path = next((index.path / "shards").glob(f"0000000016-*/**/{name}"))
    chosen, whole = random.Random(name), path.read_bytes()
    for _ in range(8):  # tests/hostile has many more
        flip(path, chosen.randrange(8 * len(whole)))
        with pytest.raises(ArtifactError, match=name.split(".")[0]) as told:
            ask_all(index.path)
        assert "\n" not in str(told.value)
        path.write_bytes(whole)
    ask_all(index.path)


def test_a_flipped_bit_of_the_deleted_rows_is_told(index: airrep.Index) -> None:
    index.delete([1, 17])
    path = next(index.path.glob("deleted-*.npy"))
    flip(path, -1)
    with pytest.raises(ArtifactError, match="deleted-.*: was altered"):
        ask_all(index.path)


def test_a_search_by_codes_checks_only_the_features_that_it_ranks(index: airrep.Index) -> None:
    query = make_corpus(50)[3]
    for path in (index.path / "shards").glob("0000000048-*/*/features.npy"):
        flip(path, -1)
    opened = airrep.Index(index.path, HashAttributor())
    assert opened.top(query, k=1)[0].row == 3
    with pytest.raises(ArtifactError, match="features"):
        opened.top(query, k=50)


def forged(index: Path, name: str, content: bytes) -> None:
    """Give a file of the first shard other bytes, with checksums that fit: what no honest program wrote."""
    folder = next((index / "shards").glob("0000000000-*"))
    (folder / name).write_bytes(content)
    record = json.loads((folder / SHARD).read_bytes())
    record["files"] |= describe_files(folder, [name])
    (folder / SHARD).write_bytes(canonical_json(record))
    manifest = read_manifest(index)
    manifest["shards"][0]["digest"] = json_digest(record)
    manifest["files"] |= describe_files(index, [f"shards/{folder.name}/{each}" for each in (name, SHARD)])
    write_manifest(index, manifest.pop("kind"), manifest)


def with_offset(path: Path) -> bytes:
    """The examples with one offset beyond the texts."""
    content = bytearray(path.read_bytes())
    at = content.find(np.array([0, 2, 4, 6], "<i8").tobytes())  # of the ids e0, e1, e2
    assert at > 0
    content[at + 8 : at + 16] = (1 << 40).to_bytes(8, "little")
    return bytes(content)


def with_null(path: Path) -> bytes:
    table = pa.ipc.open_file(path).read_all()
    table = table.set_column(1, table.schema.field(1), pa.nulls(len(table), pa.large_string()))
    return in_arrow(table)


def in_arrow(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def shorter(path: Path) -> bytes:
    return in_arrow(pa.ipc.open_file(path).read_all().slice(1))


def other_columns(path: Path) -> bytes:
    return in_arrow(pa.table({"id": ["e0"] * 16}))


@pytest.mark.parametrize("change", [with_offset, with_null, shorter, other_columns])
def test_forged_examples_are_refused(index: airrep.Index, change: Callable[[Path], bytes]) -> None:
    path = next((index.path / "shards").glob("0000000000-*/examples.arrow"))
    forged(index.path, path.name, change(path))
    with pytest.raises(ArtifactError, match="examples.arrow: (cannot be read|was altered)"):
        ask_all(index.path)


@pytest.mark.parametrize("name", ["features", "codes", "scales", "bounds"])
def test_arrays_of_other_shapes_are_refused(index: airrep.Index, name: str) -> None:
    path = next((index.path / "shards").glob(f"0000000000-*/*/{name}.npy"))
    array = np.load(path)
    np.save(path, array[:-1])
    forged(index.path, f"{path.parent.name}/{path.name}", path.read_bytes())
    with pytest.raises(ArtifactError, match="was altered"):
        ask_all(index.path)
