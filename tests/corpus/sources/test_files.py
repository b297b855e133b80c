"""Files and folders of every kind, whole and broken, as `read_corpus` meets them."""

import contextlib
import gzip
import importlib
import io
import json
import sys
import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airrep.corpus.corpus import Corpus, read_corpus
from airrep.errors import ConfigError, DataError, MissingExtraError

ROWS = [
    {"prompt": "What is 1+1?", "response": "2", "label": "sum"},
    {"prompt": 'Say "hi",\nthen stop', "response": "hi\t‖ é", "label": "talk"},
    {"prompt": "third", "response": "3"},
]


class Input:
    """Standard input of some bytes."""

    def __init__(self, content: bytes) -> None:
        self.buffer = io.BytesIO(content)


def lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def cell(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def table(delimiter: str, rows: list[dict[str, Any]] = ROWS) -> bytes:
    header = ["prompt", "response", "label"]
    body = [delimiter.join(cell(row.get(name, "")) for name in header) for row in rows]
    return "\n".join([delimiter.join(header), *body, ""]).encode()


def parquet(rows: list[dict[str, Any]] | pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(rows), sink)
    return sink.getvalue().to_pybytes()


def ipc(rows: list[dict[str, Any]], new: Any = pa.ipc.new_file) -> bytes:
    sink, whole = pa.BufferOutputStream(), pa.Table.from_pylist(rows)
    with new(sink, whole.schema) as writer:
        writer.write_table(whole, max_chunksize=2)
    return sink.getvalue().to_pybytes()


TWICE = pa.table([["p"], ["one"], ["other"]], names=["prompt", "response", "response"])


FORMATS: dict[str, bytes] = {
    "jsonl": lines(ROWS), "ndjson": lines(ROWS).replace(b"\n", b"\r\n\n"), "json": json.dumps(ROWS, indent=2).encode(),
    "objects.json": lines(ROWS), "csv": table(","), "tsv": table("\t"), "parquet": parquet(ROWS), "feather": ipc(ROWS),
    "arrow": ipc(ROWS), "stream.arrow": ipc(ROWS, pa.ipc.new_stream),
}  # fmt: skip


def zstandard(content: bytes) -> bytes:
    return pa.Codec("zstd").compress(content, asbytes=True)


PACKED: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.compress, ".zst": zstandard}


def write(path: Path, content: bytes | str) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize("packed", PACKED)
@pytest.mark.parametrize("suffix", FORMATS)
def test_every_format_gives_the_same_corpus(suffix: str, packed: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"data.{suffix}{packed}", PACKED[packed](FORMATS[suffix]))
    corpus = read_corpus(path)
    assert [example.prompt for example in corpus] == [row["prompt"] for row in ROWS]
    assert corpus == Corpus.from_records(ROWS)


def test_suffixes_in_capitals_and_several_members(tmp_path: Path) -> None:
    path = write(tmp_path / "DATA.JSONL.GZ", b"".join(gzip.compress(lines([row]), mtime=0) for row in ROWS))
    assert read_corpus(str(path)) == Corpus.from_records(ROWS)


@pytest.mark.parametrize("suffix", ["jsonl", "json", "csv"])
def test_a_byte_order_mark_is_no_part_of_the_text(suffix: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"data.{suffix}", b"\xef\xbb\xbf" + FORMATS[suffix])
    assert read_corpus(path) == Corpus.from_records(ROWS)


def test_an_empty_cell_in_quotes_is_an_empty_prompt_before_a_response_alone(tmp_path: Path) -> None:
    rows = '"","Once."\n"2+2?","4"\n'
    assert [one.prompt for one in read_corpus(write(tmp_path / "o.csv", f"prompt,response\n{rows}"))] == ["", "2+2?"]
    with pytest.raises(DataError, match=r"missing.csv:2: prompt is empty or null"):
        read_corpus(write(tmp_path / "missing.csv", 'prompt,response\n,"Once."\n'))
    (other,) = read_corpus(write(tmp_path / "other.csv", 'prompt,response,text,label\n"","","Twice.",""\n'))
    assert (other.response, other.label) == ("Twice.", None)


def test_separators_of_lines_in_unicode_do_not_end_a_line(tmp_path: Path) -> None:
    rows = [{"prompt": "a\u2028b\x85c", "response": "d\x0be"}]
    for suffix, content in (("jsonl", lines(rows)), ("csv", table(",", rows))):
        assert read_corpus(write(tmp_path / f"data.{suffix}", content))[0].prompt == "a\u2028b\x85c"


@pytest.mark.parametrize("suffix", ["jsonl", "json", "csv", "parquet"])
def test_texts_of_more_than_a_megabyte(suffix: str, tmp_path: Path) -> None:
    rows = [{"prompt": f'{number} "quoted",\n' * 100_000, "response": "r" * 1_500_000} for number in range(2)]
    made = {"jsonl": lines(rows), "json": json.dumps(rows).encode(), "csv": table(",", rows), "parquet": parquet(rows)}
    assert read_corpus(write(tmp_path / f"data.{suffix}", made[suffix])) == Corpus.from_records(rows)


def test_json_longer_than_what_is_read_at_once(tmp_path: Path) -> None:
    rows = [{"prompt": f"{number} " * 50, "response": "r\n" * 40} for number in range(6000)]
    path = write(tmp_path / "data.json", json.dumps(rows, indent=1))
    assert read_corpus(path) == Corpus.from_records(rows)
    path.write_text(path.read_text().replace('"prompt": "5999', '"prompt" "5999'))
    with pytest.raises(DataError, match=r"data.json:23999: not JSON .Expecting ':' delimiter"):
        read_corpus(path)


def test_numbers_in_csv_stay_text(tmp_path: Path) -> None:
    corpus = read_corpus(write(tmp_path / "data.csv", 'prompt,response,id,year\n007,"1,5",07,2020\n'))
    assert corpus[0].to_dict() == {"id": "07", "prompt": "007", "response": "1,5", "year": "2020"}


@pytest.mark.parametrize("sign", [";", "\t", "|", ","])
@pytest.mark.parametrize("suffix", ["csv", "tsv", "csv.gz"])
def test_the_delimiter_is_told_by_the_first_lines(sign: str, suffix: str, tmp_path: Path) -> None:
    content = table(sign)
    packed = gzip.compress(content, mtime=0) if suffix.endswith("gz") else content
    assert read_corpus(write(tmp_path / f"data.{suffix}", packed)) == Corpus.from_records(ROWS)


def test_other_signs_in_names_and_texts_are_text(tmp_path: Path) -> None:
    for content in (
        'prompt;"response";"note, long"\na, b; c, d; e\n',
        "prompt;response;note, long\na, b; c, d;e\n",
        "prompt|response|note; or, more\na|c|e\n",
    ):
        (example,) = read_corpus(write(tmp_path / "data.csv", content))
        assert (example.prompt, len(example.metadata)) == (content.split("\n")[1][: len(example.prompt)], 1)
    (example,) = read_corpus(write(tmp_path / "data.csv", "text\na|b;c\n"))
    assert example.response == "a|b;c"


@pytest.mark.parametrize(
    ("content", "prompt"),
    [
        ('prompt,response,a;b\n"one; with\ncommas; more",b,c\n', "one; with\ncommas; more"),
        ('prompt;response\n"one, with\ncommas, more";b\n', "one, with\ncommas, more"),
        ('"prompt";response;"no\nte, long"\na;b;c, d\n', "a"),
        ("\n\r\nprompt;response\n\na, c;b\n", "a, c"),
        ("prompt;response;a,b\nx;y;1,50\n", "x"),
        ('"prompt"\tresponse\tx,y\na, b\tc\td\n', "a, b"),
        ("sep=;\r\nprompt;response;a,b\nx, y;z;1\n", "x, y"),
        ('"sep=^"\nprompt^response\na, b^c\n', "a, b"),
        ('prompt;response\n5" disk, say;b\n', '5" disk, say'),
        ('prompt;response\n"' + "a, b\n" * 300 + '";b\n', "a, b\n" * 300),
    ],
)
def test_the_delimiter_is_told_by_the_first_records(content: str, prompt: str, tmp_path: Path) -> None:
    assert read_corpus(write(tmp_path / "data.csv", content))[0].prompt == prompt


def test_lines_are_counted_from_before_what_tells_the_delimiter(tmp_path: Path) -> None:
    for content in ("sep=;\nprompt;response\na\n", '\n"prompt"\na,b\n'):
        with pytest.raises(DataError, match=r"data.csv:3: has (1 cell|2 cells), but"):
            read_corpus(write(tmp_path / "data.csv", content))
    for content, message in (("\na;b|c\n1;2|3\n", "2: .*';' or"), ("\na,a\n1,2\n", '2: the column "a" occurs')):
        with pytest.raises(DataError, match=f"data.csv:{message}"):
            read_corpus(write(tmp_path / "data.csv", content))


def test_csv_quotes_inside_an_unquoted_cell_are_text(tmp_path: Path) -> None:
    corpus = read_corpus(write(tmp_path / "data.tsv", 'prompt\tresponse\nthe 5" disk\the said "no"\n'))
    assert (corpus[0].prompt, corpus[0].response) == ('the 5" disk', 'he said "no"')


GOOD = '{"prompt": "p", "response": "r"}\n'
BAD_FILES: list[tuple[str, bytes | str, str]] = [
    ("empty.jsonl", "", "empty.jsonl: holds no records"),
    ("empty.json", "", "empty.json: holds no records"),
    ("empty.csv", "", "empty.csv: holds no records"),
    ("header.csv", "prompt,response\n", "header.csv: holds no records"),
    ("array.json", "[ ]", "array.json: holds no records"),
    ("empty.parquet", "", "empty.parquet: cannot be read as Parquet"),
    ("blank.jsonl", "\n \n\t\n", "blank.jsonl: holds no records"),
    ("a.jsonl", GOOD + "\n{prompt", r"a.jsonl:3: not JSON \(Expecting property name .* at character 2\)"),
    ("a.jsonl", '{"prompt": "p', r"a.jsonl:1: not JSON \(Unterminated string"),
    ("a.jsonl", GOOD.strip() + GOOD, r"a.jsonl:1: not JSON \(extra data at character 33\)"),
    ("a.jsonl", GOOD + "[1]", "a.jsonl:2: the record is a list"),
    ("a.jsonl", GOOD + '{"texts": "x"}', "a.jsonl:2: no prompt and response"),
    ("a.jsonl", '{"prompt": "p", "response": "\\ud83d"}', r"a.jsonl:1: response holds a lone surrogate .*\\ud83d"),
    ("a.jsonl", GOOD + '{"prompt": "p", "response": "r", "x": NaN}', r"a.jsonl:2: not JSON \(NaN is not valid JSON"),
    (
        "a.jsonl",
        GOOD + '{"prompt": "p", "response": "r", "response": "s"}',
        r'a.jsonl:2: not JSON \(the key "response" occurs twice in one object',
    ),
    ("a.json", '[{"prompt": "p", "response": "r", "x": {"y": 1, "y": 1}}]', 'a.json:1: .*the key "y" occurs twice'),
    ("a.jsonl", '{"prompt": "p", "response": "r", "x": 1e999}', 'a.jsonl:1: field "x" is not valid JSON'),
    ("a.jsonl", '{"prompt": ' + "[" * 100_000, r"a.jsonl:1: not JSON \(nested too deeply\)"),
    ("a.jsonl", GOOD.encode() + b'{"prompt": "\xff"}', "a.jsonl:2: byte 13 of the line is not UTF-8"),
    ("a.jsonl", GOOD.encode("utf-16"), "a.jsonl: .*UTF-16, but must be UTF-8"),
    ("a.csv", "prompt,response\na,b\n".encode("utf-16"), "a.csv: .* UTF-16, but must be UTF-8"),
    ("a.csv", "prompt,response\na,b\n".encode("utf-16-le"), "a.csv: .* UTF-16LE, .* iconv -f UTF-16LE -t UTF-8 FILE"),
    ("a.json", f"[{GOOD}]".encode("utf-32"), "a.json: .* UTF-32, but must be UTF-8"),
    (
        "a.jsonl",
        '{"prompt": "Le café est fermé", "response": "r"}\n'.encode("cp1252"),
        "a.jsonl:1: byte 19 of .*perhaps Windows-1252",
    ),
    ("a.csv", "prompt,response\na,It’s a naïve one\n".encode("cp1252"), "a.csv:2: response holds .*Windows-1252"),
    ("a.csv", "prompt,response,x\na,b,Größe\n".encode("cp1252"), 'a.csv:2: field "x" holds .*perhaps Windows-1252'),
    ("a.csv", "prompt,response\na,Привет\n".encode("cp1251"), "a.csv:2: response holds [^.]*expected"),
    ("a.json", "[1, 2]", "a.json:1: the record is a number"),
    ("a.json", '"text"', r"a.json:1: not JSON \(starts with '\"'\); an array of objects is expected"),
    ("a.json", '[\n{"prompt": "p",\n}]', r"a.json:3: not JSON \(Expecting property name"),
    ("a.json", '[\n{"prompt": "p", "response": "r"}', r"a.json:2: not JSON \(the array does not end\)"),
    ("a.json", f"[{GOOD}{GOOD}]", r"a.json:2: not JSON \(a comma or \] is missing\)"),
    ("a.json", f"[{GOOD}]\n]", r"a.json:3: not JSON \(text after the array\)"),
    ("a.json", '{"data": []}', "a.json:1: no prompt and response"),
    ("a.json", '[{"prompt": NaN}]', "a.json:1: not JSON .NaN is not valid JSON"),
    (
        "a.json",
        b'[\n{"prompt": "p\xff", "response": "r"}]',
        "a.json:2: prompt holds a lone surrogate or a byte that is not",
    ),
    ("a.csv", "prompt,response\na,b\na\n", "a.csv:3: has 1 cell, but the header has 2 columns"),
    ("a.csv", 'prompt,response\n"a\nb",b\na,b,c\n', "a.csv:4: has 3 cells, but the header has 2 columns"),
    ("a.csv", "prompt,response\n,b\n", "a.csv:2: prompt is empty or null"),
    ("a.csv", "prompt,prompt\nc,d\n", 'a.csv:1: the column "prompt" occurs twice'),
    ("a.csv", 'prompt,response\na,b\n"c,d\ne,f\n', "a.csv:3: a quoted cell is never closed"),
    ("a.csv", "a;b|c\n1;2|3\n", r"a.csv:1: the delimiter is unclear.*';' or '\|'"),
    ("a.csv", "a\tb|c\n\n", r"a.csv:1: the delimiter is unclear.*a tab or '\|'"),
    ("a.csv", "a;b,c\nc,d\n", "a.csv:2: no prompt and response"),
    ("a.csv", '"asked; short"\nx\n', "a.csv:2: .*the fields asked"),  # a sign in a quoted name separates nothing
    ("a.csv", 'prompt,response\n"a"b,c\n', "a.csv:2: text follows a closing quote"),
    ("a.csv", b"prompt,response\na,\xff\n", "a.csv:2: response holds a lone surrogate or a byte that is not UTF-8"),
    ("a.csv", b"prompt,response\na,b\0\n", "a.csv:2: response holds a NUL character"),
    ("a.parquet", parquet(ROWS)[:300], "a.parquet: cannot be read as Parquet"),
    ("a.parquet", parquet([{"prompt": 1, "response": "r"}]), "a.parquet: row 1: prompt is a number"),
    ("a.parquet", parquet(TWICE), 'a.parquet: the column "response" occurs twice'),
    (
        "a.parquet",
        parquet([{"prompt": "p", "response": "r", "x": b"\xff"}]),
        'a.parquet: row 1: field "x" is not valid JSON',
    ),
    ("a.jsonl.gz", gzip.compress(lines(ROWS * 50), mtime=0)[:60], r"a.jsonl.gz: cannot be read to its end \(Truncated"),
    ("a.csv.gz", gzip.compress(table(","), mtime=0)[:60], r"a.csv.gz: cannot be read to its end \(Truncated"),
    ("a.jsonl.zst", zstandard(lines(ROWS))[:60], r"a.jsonl.zst: cannot be read to its end \(Truncated"),
    (
        "a.parquet.gz",
        gzip.compress(parquet(ROWS), mtime=0)[:300],
        r"a.parquet.gz: cannot be read to its end \(Truncated",
    ),
    ("a.jsonl.gz", GOOD, "a.jsonl.gz: cannot be read to its end"),
    ("a.txt", GOOD, "a.txt: the suffix is not known"),
    ("a.gz", GOOD, "a.gz: the suffix is not known"),
]


@pytest.mark.parametrize(("name", "content", "message"), BAD_FILES)
def test_refuses_bad_files(name: str, content: bytes | str, message: str, tmp_path: Path) -> None:
    path = write(tmp_path / name, content)
    with pytest.raises(DataError, match=message) as error:
        read_corpus(path)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_refuses_parquet_that_unpacks_to_too_much(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pack = gzip.compress if suffix == "gz" else zstandard
    path = write(tmp_path / f"a.parquet.{suffix}", pack(parquet(ROWS)))
    assert len(read_corpus(path)) == len(ROWS)
    monkeypatch.setattr("airrep.corpus.sources.files._LARGEST_UNPACKED", len(parquet(ROWS)) - 1)
    with pytest.raises(DataError, match=r"more than 0 MiB.* Decompress the file"):
        read_corpus(path)


def test_refuses_a_parquet_file_with_a_damaged_page(tmp_path: Path) -> None:
    content = bytearray(parquet([{"prompt": f"p{number}" * 9, "response": "r"} for number in range(2000)]))
    content[40:400] = bytes(360)
    with pytest.raises(DataError, match=r"a.parquet: cannot be read"):
        read_corpus(write(tmp_path / "a.parquet", bytes(content)))


def test_refuses_what_is_missing_or_has_no_splits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    for missing in ("no.jsonl", "data/no.jsonl", "data/train"):  # a name inside an existing folder is no Hub id
        with pytest.raises(DataError, match=rf"^{missing}: no such file or folder\. .*\.$"):
            read_corpus(missing)
    path = write(tmp_path / "a.jsonl", GOOD)
    with pytest.raises(ConfigError, match="a.jsonl: split='test' was given"):
        read_corpus(path, split="test")
    with pytest.raises(ConfigError, match="a.jsonl: config='de' was given"):
        read_corpus(path, config="de")


def test_refuses_a_file_it_may_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    path = write(tmp_path / "a.jsonl", GOOD)
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(DataError, match=r"a.jsonl: cannot be read \(Permission denied\)"):
        read_corpus(path)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two saved datasets: `one`, without splits, and `two`, with the splits train and test."""
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    folder = tmp_path_factory.mktemp("saved")
    whole = datasets.Dataset.from_list(ROWS)
    whole.save_to_disk(str(folder / "one"))
    datasets.DatasetDict({"train": whole, "test": whole.select([2])}).save_to_disk(str(folder / "two"))
    return folder


def test_reads_a_saved_dataset(saved: Path) -> None:
    assert read_corpus(saved / "one") == read_corpus(saved / "two") == Corpus.from_records(ROWS)
    assert read_corpus(saved / "two", split="test") == Corpus.from_records(ROWS[2:])


def test_names_the_splits_there_are(saved: Path) -> None:
    with pytest.raises(DataError, match="two: has no split 'dev'"):
        read_corpus(saved / "two", split="dev")
    with pytest.raises(ConfigError, match=r"one: split='dev' was given, but the folder has no splits"):
        read_corpus(saved / "one", split="dev")


def test_refuses_a_damaged_saved_dataset(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "dataset_info.json").write_text("{}")
    with pytest.raises(DataError, match="cannot be read as a saved dataset"):
        read_corpus(tmp_path)
    (tmp_path / "dataset_dict.json").write_text("{}")
    with pytest.raises(DataError, match=r"dataset_dict.json.* cannot be read"):
        read_corpus(tmp_path)


def test_reads_a_hub_dataset(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets, asked = importlib.import_module("datasets"), []
    files: dict[str, Any] = {}

    def load(name: str, config: str | None, split: str) -> object:
        asked.append((name, config, split))
        if split == "dev":
            raise ValueError("Unknown split \"dev\". Should be one of\n['train'].")
        found = datasets.load_from_disk(str(saved / "one"))
        found.info.download_checksums = dict(files)
        return found

    monkeypatch.setattr(datasets, "load_dataset", load)
    assert read_corpus("org/name") == Corpus.from_records(ROWS)
    assert read_corpus("org/name").reading.hub == ()
    files.update({f"hf://datasets/org/name@{'0a' * 20}/{part}.parquet": {} for part in "ab"})
    assert read_corpus("org/name").reading.hub == (f"org/name@{'0a' * 20}",)
    files[f"hf://datasets/org/name@{'0b' * 20}/c.parquet"] = {}
    assert read_corpus("org/name").reading.hub == ()
    told = r"org/name: no such file, and .*'dev' .* cannot be loaded .*one of \['train'\]"
    with pytest.raises(DataError, match=told):
        read_corpus("org/name", split="dev")
    with pytest.raises(DataError, match=r"'dev' of config 'de' .* cannot be loaded"):
        read_corpus("org/name", split="dev", config="de")
    assert asked[3:] == [("org/name", None, "train"), ("org/name", None, "dev"), ("org/name", "de", "dev")]


def test_names_the_extra_that_datasets_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dataset_info.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "datasets", None)
    for path in (tmp_path, "org/name"):
        with pytest.raises(MissingExtraError, match=r"needs an optional dependency.*pip install 'airrep\[datasets\]'"):
            read_corpus(path)


@given(st.sampled_from(["jsonl", "json", "csv", "tsv"]), st.binary(max_size=60), st.integers(0, 200), st.booleans())
@settings(max_examples=150, deadline=None)
def test_altered_text_files_are_read_or_refused(suffix: str, noise: bytes, place: int, skip: bool) -> None:
    content = FORMATS[suffix]
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder, f"a.{suffix}"), content[:place] + noise + content[place + len(noise) :])
        with contextlib.suppress(DataError):
            assert len(read_corpus(path, skip_invalid=skip)) > 0


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "jsonl.gz", "jsonl.zst", "parquet.zst"])
def test_no_file_cut_short_is_read(suffix: str, tmp_path: Path) -> None:
    content = PACKED["." + suffix.split(".")[1]](FORMATS[suffix.split(".")[0]]) if "." in suffix else FORMATS[suffix]
    for size in range(0, len(content), max(1, len(content) // 40)):
        with pytest.raises(DataError, match=r"cannot be read|holds no records"):
            read_corpus(write(tmp_path / f"a.{suffix}", content[:size]))


LONG = "x" * (40 << 20)
LONG_FILES = {
    "a.jsonl": '{"prompt": "a", "response": "' + LONG + '"}\n{"prompt": "a", "response": "b"}\n',
    "a.json": '[{"prompt": "a", "response": "' + LONG + '"}]',
    "a.csv": f"prompt,response\na,{LONG}\n",
    "b.csv": 'prompt,response\na,"' + f"{LONG[: 1 << 16]}\n" * 640 + '"\n',
    "a.txt": LONG,
}


@pytest.mark.parametrize("name", LONG_FILES)
@pytest.mark.parametrize("packed", ["", ".gz"])
def test_a_record_longer_than_the_limit_is_refused_in_little_memory(tmp_path: Path, name: str, packed: str) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    path = folder / f"{name}{packed}"
    path.write_bytes(gzip.compress(LONG_FILES[name].encode(), 1) if packed else LONG_FILES[name].encode())
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=r"is longer than 1 MiB, .* raise the limit with longest_line"):
            read_corpus(folder if name == "a.txt" else path, longest_line=1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16 << 20
    if name == "a.jsonl":
        assert len(read_corpus(path, longest_line=1, skip_invalid=True)) == 1
        assert len(read_corpus(path)) == 2
    with pytest.raises(ConfigError, match="longest_line=0: must be 1 or more"):
        read_corpus(path, longest_line=0)


def test_json_lines_come_from_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rows.jsonl").write_bytes(lines(ROWS))
    monkeypatch.setattr("sys.stdin", Input(lines(ROWS)))
    assert read_corpus("-") == read_corpus(tmp_path / "rows.jsonl")
    with pytest.raises(DataError, match=r"^-: holds no records"):  # what was read once is gone
        read_corpus("-")
    monkeypatch.setattr("sys.stdin", Input(lines(ROWS) + b"{"))
    with pytest.raises(DataError, match=r"^-:4: "):
        read_corpus("-")
