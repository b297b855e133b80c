"""Exports of an index: read back by pyarrow and pandas, whole or not there, at bounded memory."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from worlds.commands import Run
from worlds.small_world import HashAttributor, make_corpus

import airrep
from airrep.answers.mix import write_axolotl
from airrep.corpus.corpus import Corpus, Example
from airrep.corpus.originals import take_records
from airrep.errors import ArtifactError, ConfigError, MissingExtraError
from airrep.index import export
from airrep.index.encoding import without_texts
from airrep.index.export import FORMATS, RECORDS, export_index
from airrep.index.rows import IndexRows

TEXTS = ["id", "prompt", "response", "label", "source"]
HOSTILE = ("=HYPERLINK('x')", "+1", "-5", "@SUM(A1)", "\tx", 'a "b", c\nd\re', "Ünï ☀️ 春", "'=x", " =x")


def hostile_corpus() -> Corpus:
    """Texts that CSV and spreadsheets stumble over, and metadata of every type."""
    metadata = [
        {"n": 1, "x": 1, "flag": True, "mixed": 1, "big": 1},
        {"n": -(2**40), "x": 1.5, "flag": False, "mixed": "one", "big": 2**70},
        {"n": None, "list": [1, "=2"], "deep": {"a": [1]}, "Row": "r", "text": "t", "a.b": "dot"},
        {"vector": "v", "id": "own id", "=cmd": "=1", "": "empty", "metadata_id": "taken"},
    ]
    return Corpus.from_examples(
        Example(
            prompt=text,
            response=text,
            id=f"{text}{number}",
            label=text,
            source="-web" if number else None,
            metadata=metadata[number] if number < len(metadata) else {},
        )
        for number, text in enumerate(HOSTILE)
    )


@pytest.fixture
def hostile(tmp_path: Path) -> airrep.Index:
    """An index of such texts, in shards of 3."""
    return airrep.build_index(hostile_corpus(), tmp_path / "hostile", HashAttributor(), shard_rows=3)


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of two rows."""
    monkeypatch.setattr(export, "PIECE_ROWS", 2)


def test_parquet_has_examples_metadata_and_vectors(index: airrep.Index, tmp_path: Path) -> None:
    made = export_index(index, tmp_path / "out.parquet")
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.column_names == ["row", *TEXTS, "year", "vector"] == list(made.columns)
    assert (made.rows, made.width) == (50, 16)
    examples = [index.example(row) for row in range(50)]
    for name in TEXTS:
        assert table[name].to_pylist() == [getattr(example, name) for example in examples]
    assert table["year"].to_pylist() == [example.metadata["year"] for example in examples]
    stored = np.concatenate([shard.features()[index.method] for shard in index.shards])
    vectors = np.stack(pd.read_parquet(tmp_path / "out.parquet")["vector"].to_numpy())
    assert vectors.dtype == np.float32
    assert np.array_equal(vectors, stored)
    told = json.loads(table.schema.metadata[b"airrep"])
    assert told == {"airrep": airrep.__version__, "index": index.fingerprint, "method": "hash"}


def test_deleted_rows_and_others_than_the_filters_are_left_out(index: airrep.Index, tmp_path: Path) -> None:
    now = index.delete(["e3", "e20"])
    made = export_index(now, tmp_path / "o.parquet", where='label == "label 0"', vectors=False)
    rows = pq.read_table(tmp_path / "o.parquet")["row"].to_pylist()
    assert rows == [row for row in range(0, 50, 3) if row not in (3, 20)]
    assert (made.rows, made.width, "vector" in made.columns) == (len(rows), 0, False)
    with pytest.raises(ConfigError, match="no example matches"):
        export_index(now, tmp_path / "none.parquet", where='label == "none"')
    with pytest.raises(ConfigError, match='there is no field "labl"'):
        export_index(now, tmp_path / "none.parquet", where='labl == "none"')
    assert not (tmp_path / "none.parquet").exists()


def test_parquet_keeps_every_text_and_every_type(hostile: airrep.Index, small_pieces: None, tmp_path: Path) -> None:
    export_index(hostile, tmp_path / "o.parquet")
    table = pq.read_table(tmp_path / "o.parquet")
    corpus = hostile_corpus()
    assert table["response"].to_pylist() == [example.response for example in corpus]
    types = {field.name: field.type for field in table.schema}
    names = {"n": pa.int64(), "x": pa.float64(), "flag": pa.bool_()}
    assert {name: types[name] for name in names} == names
    assert table["n"].to_pylist()[:3] == [1, -(2**40), None]
    assert table["x"].to_pylist()[:2] == [1.0, 1.5]
    assert table["mixed"].to_pylist()[:2] == ["1", "one"]
    assert table["big"].to_pylist()[:2] == ["1", str(2**70)]
    assert table["list"].to_pylist()[2] == '[1, "=2"]'
    assert table["deep"].to_pylist()[2] == '{"a": [1]}'
    assert table["metadata_Row"].to_pylist()[2] == "r"
    assert (table["metadata_text"][2].as_py(), table["metadata_vector"][3].as_py()) == ("t", "v")
    assert {table[name][3].as_py() for name in ("metadata_id", "metadata_metadata_id")} == {"own id", "taken"}
    assert table["metadata_"].to_pylist()[3] == "empty"
    assert table["a.b"].to_pylist()[2] == "dot"
    assert len({name.casefold() for name in table.column_names}) == len(table.column_names)


@pytest.mark.parametrize(
    ("values", "kind", "read"),
    [
        ([2**53 + 1, 1], pa.int64(), [2**53 + 1, 1]),
        ([2**53 + 1, 0.5], pa.large_string(), ["9007199254740993", "0.5"]),
        ([2**53, 0.5], pa.float64(), [2.0**53, 0.5]),
    ],
)
def test_whole_numbers_stay_whole(tmp_path: Path, values: list[float], kind: Any, read: list[Any]) -> None:
    """Beside fractions a column of floats would round those above 2^53."""
    rows = Corpus.from_examples(Example("p", "r", str(n), metadata={"n": n}) for n in values)
    index = airrep.build_index(rows, tmp_path / "index", HashAttributor())
    column = pq.read_table(export_index(index, tmp_path / "out.parquet").path).column("n")
    assert (column.type, column.to_pylist()) == (kind, read)


def test_embedding_atlas_gets_one_text_and_a_vector(hostile: airrep.Index, tmp_path: Path) -> None:
    export_index(hostile, tmp_path / "o.parquet", "embedding-atlas")
    frame = pd.read_parquet(tmp_path / "o.parquet")
    assert list(frame["text"][:2]) == ["=HYPERLINK('x')\n\n=HYPERLINK('x')", "+1\n\n+1"]
    assert all(isinstance(vector, np.ndarray) and vector.shape == (16,) for vector in frame["vector"])


def test_methods_that_count_words_have_no_vectors(tmp_path: Path) -> None:
    index = airrep.build_index(make_corpus(30), tmp_path / "words", "tfidf")
    assert export_index(index, tmp_path / "o.parquet").width == 0
    mixed = [{"method": "tfidf"}, {"method": "airrep", "settings": {"encoder": "untrained"}}]
    index = airrep.build_index(make_corpus(6), tmp_path / "mixed", settings={"channels": mixed})
    assert {one.kind for one in index.channels} == {"dense", "postings"}
    assert export_index(index, tmp_path / "p.parquet").width == 384, "the dense ones alone"
    stored = index.shards[0].features()["airrep"]
    assert np.array_equal(np.stack(pd.read_parquet(tmp_path / "p.parquet")["vector"].to_numpy()), stored)


def test_csv_cells_are_no_formulas(hostile: airrep.Index, small_pieces: None, tmp_path: Path) -> None:
    made = export_index(hostile, tmp_path / "o.csv", "csv")
    frame = pd.read_csv(tmp_path / "o.csv", keep_default_na=False, dtype=str)
    assert "vector" not in frame.columns
    cells = [*frame.columns, *(cell for name in (*TEXTS, "list", "mixed", "metadata_id") for cell in frame[name])]
    assert not [cell for cell in cells if cell[:1] in ("=", "+", "@", "-", "\t", "\r")]
    assert frame["response"].tolist()[:6] == [f"'{text}" for text in HOSTILE[:5]] + [HOSTILE[5]]
    assert frame["response"].tolist()[7:] == ["'=x", " =x"]
    assert "'=cmd" in frame.columns
    assert frame["n"].tolist()[:2] == ["1", str(-(2**40))], "numbers stay numbers"
    assert made.guarded >= 5 * 4 + 1
    assert export_index(hostile, tmp_path / "again.csv", "csv").guarded == made.guarded
    assert (tmp_path / "again.csv").read_bytes() == (tmp_path / "o.csv").read_bytes()


@pytest.mark.parametrize("exact", [True, False])
def test_csv_of_texts_alone_is_read_back(exact: bool, tmp_path: Path) -> None:
    records = [{"text": "Once, upon a time."}, {"prompt": "2+2?", "response": "4"}, {"text": 'The "end".'}]
    index = airrep.build_index(records, tmp_path / "index", airrep.make_attributor("tfidf"))
    export_index(index, tmp_path / "o.csv", "csv", exact=exact)
    again = airrep.build_index(tmp_path / "o.csv", tmp_path / "again", airrep.make_attributor("tfidf"))
    found = [[(one.id, one.prompt, one.response) for one in made.examples(range(3))] for made in (index, again)]
    assert found[0] == found[1]
    assert [one[1] for one in found[0]] == ["", "2+2?", ""]


def test_exact_csv_keeps_every_text_and_tells_none_from_empty(hostile: airrep.Index, tmp_path: Path) -> None:
    made = export_index(hostile, tmp_path / "o.csv", "csv", exact=True)
    parse = pyarrow.csv.ParseOptions(newlines_in_values=True)
    convert = pyarrow.csv.ConvertOptions(
        column_types=dict.fromkeys(TEXTS, pa.string()), strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    table = pyarrow.csv.read_csv(tmp_path / "o.csv", parse_options=parse, convert_options=convert)
    corpus = hostile_corpus()
    for name in TEXTS:
        assert table[name].to_pylist() == [getattr(example, name) for example in corpus], name
    assert made.guarded == 0
    again = airrep.read_corpus(tmp_path / "o.csv")
    assert [one.response for one in again] == [one.response for one in corpus]
    with pytest.raises(ConfigError, match="exact: works only with csv"):
        export_index(hostile, tmp_path / "p", "parquet", exact=True)


def test_too_many_fields_are_one_column(hostile: airrep.Index, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(export, "MOST_FIELDS", 3)
    export_index(hostile, tmp_path / "o.parquet")
    table = pq.read_table(tmp_path / "o.parquet")
    assert table.column_names == ["row", *TEXTS, "metadata", "vector"]
    assert [json.loads(text or "{}") for text in table["metadata"].to_pylist()] == [
        dict(example.metadata) for example in hostile_corpus()
    ]


def test_nothing_is_overwritten_and_nothing_half_written_looks_finished(
    index: airrep.Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "deep" / "o.parquet"
    export_index(index, out)
    before = out.read_bytes()
    with pytest.raises(ArtifactError, match="exists already; nothing is overwritten"):
        export_index(index, out)
    export_index(index, out, replace=True)
    assert out.read_bytes() == before, "the same index, the same bytes"
    with pytest.raises(ArtifactError, match="is not a file, so it is not replaced"):
        export_index(index, out.parent, replace=True)

    def breaks(self: object) -> Iterator[pa.RecordBatch]:
        yield next(whole(self))
        raise OSError(28, "No space left on device")

    whole = export.ExportedColumns.batches
    monkeypatch.setattr(export.ExportedColumns, "batches", breaks)
    for to, name in (("parquet", "o.parquet"), ("csv", "o.csv")):
        with pytest.raises(ArtifactError, match="cannot be written: the disk is full"):
            export_index(index, out.with_name(name), to, replace=True)
    assert out.read_bytes() == before
    assert sorted(path.name for path in out.parent.iterdir()) == ["o.parquet"]


def test_a_format_that_does_not_exist_and_lance_without_its_package(
    index: airrep.Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="format 'excel': does not exist; expected one of .*lance, records"):
        export_index(index, tmp_path / "o", "excel")
    with pytest.raises(ConfigError, match="take_records"):
        export_index(index, tmp_path / "o", RECORDS)
    monkeypatch.setitem(sys.modules, "lance", None)
    with pytest.raises(MissingExtraError, match=r"Install it with: pip install 'airrep\[lance\]'"):
        export_index(index, tmp_path / "o", "lance")
    assert not (tmp_path / "o").exists()


LANCE = """
import sys
import lance
import pyarrow.parquet
from worlds.small_world import HashAttributor

import airrep
from airrep.errors import ArtifactError
from airrep.index.export import export_index

index, out = airrep.Index(sys.argv[1], HashAttributor()), sys.argv[2]
export_index(index, out, "lance")
pyarrow.parquet.write_table(lance.dataset(out).to_table(), sys.argv[3])
try:
    export_index(index, out, "lance")
except ArtifactError as error:
    print(error)
export_index(index, out, "lance", where='source == "-web"', replace=True)
print(lance.dataset(out).count_rows())
"""
"""Runs in a process of its own: after an import of lance, a process can no longer be forked, as other tests do."""


def test_lance(hostile: airrep.Index, tmp_path: Path) -> None:
    if find_spec("lance") is None:
        pytest.skip("needs the package pylance")
    read = tmp_path / "read.parquet"
    command = [sys.executable, "-c", LANCE, str(hostile.path), str(tmp_path / "o.lance"), str(read)]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert ran.returncode == 0, ran.stderr
    table = pq.read_table(read)
    assert table["response"].to_pylist() == [example.response for example in hostile_corpus()]
    assert table["a_b"].to_pylist()[2] == "dot"
    assert np.array_equal(np.array(table["vector"].to_pylist(), np.float32), _stored(hostile))
    refused, rows = ran.stdout.splitlines()
    assert "exists already" in refused
    assert int(rows) == len(HOSTILE) - 1


def test_a_folder_that_is_no_lance_dataset_is_not_replaced(index: airrep.Index, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(export, "need", lambda *_: None)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(ArtifactError, match="is not a Lance dataset, so it is not replaced"):
        export_index(index, tmp_path / "mine", "lance", replace=True)
    assert (tmp_path / "mine" / "thesis.txt").exists()


def _stored(index: airrep.Index) -> np.ndarray:
    return np.concatenate([np.asarray(shard.features()[index.method]) for shard in index.shards])


def test_rows_are_written_some_at_a_time(index: airrep.Index, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(export, "PIECE_ROWS", 7)
    columns = export.ExportedColumns(index, index.mask())
    assert [batch.num_rows for batch in columns.batches()] == [7, 7, 2, 7, 7, 2, 7, 7, 2, 2]
    monkeypatch.setattr(export, "PIECE_NUMBERS", 16 * 3)
    assert max(batch.num_rows for batch in columns.batches()) == 3
    told: list[tuple[int, int | None]] = []
    export_index(index, tmp_path / "o.parquet", progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (50, 50)
    assert [done for done, _ in told] == sorted({done for done, _ in told})


def test_an_index_that_was_altered_is_refused(index: airrep.Index, tmp_path: Path) -> None:
    next(index.path.rglob("examples.arrow")).write_bytes(b"x" * 10)
    with pytest.raises(ArtifactError):
        export_index(IndexRows(index.path), tmp_path / "o.parquet")
    assert not list(tmp_path.glob("o.parquet*"))


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.chdir(tmp_path)
    airrep.build_index(hostile_corpus(), "i", HashAttributor())

    def export(words: str) -> tuple[int, str]:
        ran = run("export", *words.split())
        return ran.status, ran.err

    status, told = export("i --to embedding-atlas --out o.parquet")
    assert status == 0, told
    assert "o.parquet: 9 examples" in told
    assert "embedding-atlas o.parquet --text text --vector vector" in told
    assert "each got a ' before it" in export("i --to csv --out o.csv")[1]
    assert export("i --to csv --out o.csv")[0] == 1
    assert export("i --to csv --out o.csv --set exact=true --replace")[0] == 0
    assert export("i --to excel --out o.x") == (
        1,
        f"airrep: error: format 'excel': does not exist; expected one of {', '.join(FORMATS)}. Choose one.\n",
    )
    assert "expected a directory that airrep wrote" in export("nowhere --to csv --out o.y")[1]
    assert not (tmp_path / "i" / ".steps.jsonl").exists()


@pytest.mark.parametrize(
    ("to", "name", "expected"),
    [("csv", "x.parquet", "x.csv"), ("parquet", "x.CSV", "x.parquet"), ("embedding-atlas", "x.csv.gz", "x.parquet")],
)
def test_another_format_is_refused(hostile: airrep.Index, tmp_path: Path, to: str, name: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=f"a file of format {to} cannot .*a name such as {expected}"):
        export_index(hostile, tmp_path / name, to)
    assert not (tmp_path / name).exists()
    assert export_index(hostile, tmp_path / "export.of.mine", to).rows


def test_messages_come_back_from_an_export(tmp_path: Path) -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": {"x": None}}}
    said = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "", "tool_calls": [call]}]
    corpus = Corpus.from_records([{"id": "m", "messages": said}, {"id": "p", "prompt": "a", "completion": "b"}])
    index = airrep.build_index(corpus, tmp_path / "index", HashAttributor())
    export_index(index, tmp_path / "out.parquet", vectors=False)
    chats = [one.chat for one in airrep.read_corpus(tmp_path / "out.parquet")]
    assert chats == [{"messages": said}, {"form": "joined"}]


def test_texts_that_were_left_out_get_no_column(hostile: airrep.Index, tmp_path: Path) -> None:
    (tmp_path / "changed").mkdir()
    without_texts(hostile, tmp_path / "changed")
    shutil.copytree(hostile.path, tmp_path / "bare")
    shutil.copytree(tmp_path / "changed", tmp_path / "bare", dirs_exist_ok=True)
    bare = airrep.Index(tmp_path / "bare", HashAttributor()).delete([0])  # a change keeps that they were left out
    found = pq.read_table(export_index(bare, tmp_path / "out.parquet").path)
    assert found.column_names == ["row", "id", "label", "source", "vector"]
    assert found["id"].to_pylist() == [one.id for one in hostile_corpus()[1:]]
    with pytest.raises(ConfigError, match="bare: has no texts"):
        export_index(bare, tmp_path / "map.parquet", "embedding-atlas")
    picks = airrep.select(bare, hostile_corpus()[:2], 2).save(tmp_path / "picks.jsonl")
    assert not any({"prompt", "response"} & json.loads(line).keys() for line in picks.read_text("utf-8").splitlines())
    records = [one.to_dict() for one in hostile_corpus()]
    assert len(list(take_records(records, picks))) == 2
    mixed = airrep.mix(bare, hostile_corpus()[:2], "label", top=1)
    with pytest.raises(ConfigError, match="bare: its texts were left out"):
        write_axolotl(mixed, bare, tmp_path / "axolotl")
