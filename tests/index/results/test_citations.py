"""Citations: what is told of an example's origin, and what is said not to be recorded."""

import hashlib
from typing import Any

import pytest

from airrep.corpus.corpus import Example, left_out
from airrep.corpus.records import content_hash
from airrep.errors import ConfigError
from airrep.index.results.citations import FIELDS, as_croissant, checked, cite, license_of, unknown
from airrep.index.results.result import CorpusPart, Made

COMMIT = "0123456789abcdef" * 2 + "01234567"
BUILT, ADDED, TWICE = CorpusPart("a" * 64, 10), CorpusPart("b" * 64, 5), CorpusPart("b" * 64, 5, appends=2)


def made(*corpora: CorpusPart, hub: tuple[str, ...] = ()) -> Made:
    return Made(corpora or (BUILT,), "c" * 64, "0.1.0", hub)


def example(place: str | None = "train.jsonl:7", **fields: Any) -> Example:
    return Example("Who won?", "Nobody yet.", "e1", place=place, **fields)


def test_a_citation_tells_where_an_example_stands() -> None:
    told = cite(example(source="forum", metadata={"License": "cc-by-4.0"}), 3, "f" * 64, made())
    digest = hashlib.sha256(b"Who won?\0Nobody yet.").hexdigest()
    assert (told.dataset, told.line, told.row, told.source) == ("train.jsonl", 7, 3, "forum")
    assert (told.license, told.sha256, told.corpus, told.revision) == ("cc-by-4.0", digest, "a" * 64, None)
    assert told.missing == ("revision",)
    assert digest.startswith(content_hash("Who won?", "Nobody yet."))


@pytest.mark.parametrize(
    ("place", "hub", "corpora", "row", "expected"),
    [
        ("chats row 4", (f"org/chats@{COMMIT}",), (BUILT,), 3, ("org/chats", 4, COMMIT, "a" * 64)),
        ("saved row 4", (f"org/chats@{COMMIT}",), (BUILT,), 3, ("org/chats", 4, COMMIT, "a" * 64)),
        ("more.jsonl:2", (f"org/chats@{COMMIT}",), (BUILT, ADDED), 12, ("more.jsonl", 2, None, "b" * 64)),
        ("chats row 4", (f"org/chats@{COMMIT}",), (BUILT, ADDED, ADDED), 12, ("org/chats", 4, COMMIT, None)),
        ("more.jsonl:2", (), (BUILT, TWICE), 12, ("more.jsonl", 2, None, None)),
        ("chats row 4", (f"org/chats@{COMMIT}", f"us/chats@{COMMIT}"), (BUILT,), 3, ("chats", 4, None, "a" * 64)),
        ("notes/a.txt", (), (BUILT,), 3, ("notes/a.txt", None, None, "a" * 64)),
        (None, (), (BUILT,), 3, (None, None, None, "a" * 64)),
    ],
    ids=[
        "hub", "saved", "appended", "several appends", "appends that share an entry", "which of two", "a file of text",
        "from memory",
    ],
)  # fmt: skip
def test_what_may_be_another_is_not_told(
    place: str | None, hub: tuple[str, ...], corpora: tuple[CorpusPart, ...], row: int, expected: tuple[Any, ...]
) -> None:
    told = cite(example(place), row, "f" * 64, made(*corpora, hub=hub))
    assert (told.dataset, told.line, told.revision, told.corpus) == expected


def test_nothing_is_made_up() -> None:
    hidden = Example("", left_out("e1"), "e1", place="train.jsonl:7")
    told = [cite(hidden, 3, "f" * 64, made()), cite(example(), 3, "f" * 64, None)]
    assert [one.missing for one in told] == [
        ("revision", "source", "license", "sha256"),
        ("revision", "corpus", "source", "license"),
    ]
    assert unknown(told) == "Not recorded: revision (2), source (2), license (2), sha256 (1), corpus (1)."
    assert checked(told[0], "0" * 64, "the data").check == "not checked"
    assert checked(told[1], told[1].sha256, "the data").check == "unchanged"
    changed = checked(told[1], "0" * 64, "the data")
    assert checked(changed, told[1].sha256, "others").check == "the texts differ in the data"


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"meta": {"LICENCE": "mit"}, "rights": ""}, "mit"),
        ({"license": ["mit", "apache-2.0"]}, '["mit", "apache-2.0"]'),
        ({"licenses": "a", "license": "b"}, "b"),
        ({"license": None, "licensed": "yes"}, None),
    ],
)
def test_a_licence_is_told_as_the_data_have_it(metadata: dict[str, Any], expected: str | None) -> None:
    assert license_of(metadata) == expected


def test_the_document_is_croissant() -> None:
    rows = [cite(example(metadata={"license": "mit"}), 3, "f" * 64, made(hub=(f"org/chats@{COMMIT}",)))]
    document = as_croissant(rows)
    assert document["conformsTo"] == "http://mlcommons.org/croissant/1.1"
    assert document["isBasedOn"] == [
        {
            "@type": "sc:Dataset",
            "name": "org/chats",
            "license": ["mit"],
            "version": COMMIT,
            "url": f"https://huggingface.co/datasets/org/chats/tree/{COMMIT}",
            "identifier": f"sha256:{'a' * 64}",
        }
    ]
    (records,) = document["recordSet"]
    keys = {field["@id"] for field in records["field"]}  # Croissant wants each record to have each field
    assert [set(record) for record in records["data"]] == [keys]
    assert keys == {f"citations/{name}" for name in FIELDS}
    assert as_croissant(rows) == document
    with pytest.raises(ConfigError, match="citations is empty"):
        as_croissant([])
