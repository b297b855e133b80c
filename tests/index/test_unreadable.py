"""Examples that a language model cannot read: an error, or left out and told."""

import json
from pathlib import Path

import pytest
from worlds.commands import Run
from worlds.small_world import make_corpus
from worlds.tiny_lms import tiny_lm

import airrep
from airrep.attributors.methods import make_attributor
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import DataError
from airrep.index.sharing import build_part, join_parts

LONG = Example("a", "word " * 4000, "too long")
LONGER = Example("a", "word " * 5000, "longer")


@pytest.fixture
def lm(tmp_path: Path) -> str:
    return tiny_lm(tmp_path / "lm")


def some(*more: Example) -> Corpus:
    return Corpus.from_examples([*make_corpus(5), *more])


@pytest.mark.parametrize("method", ["rds", "ngram", "logra"])
def test_they_are_left_out_where_that_is_asked_for(tmp_path: Path, lm: str, method: str) -> None:
    settings = {"lm": lm, "device": "cpu", **({"rank": 2} if method == "logra" else {})}
    data = some(LONG, LONGER)
    with pytest.raises(DataError, match=f'{method}: the LM cannot read 2 of 7 examples. .*"too long"'):
        airrep.build_index(data, tmp_path / "index", method, settings=settings)
    index = airrep.build_index(data, tmp_path / "index", method, settings=settings, skip_invalid=True)
    plain = airrep.build_index(some(), tmp_path / "plain", method, settings=settings)
    assert index.manifest["request"] == plain.manifest["request"]
    assert index.top("answer 1", k=5) == plain.top("answer 1", k=5)
    more = Corpus.from_examples([LONG, Example("b", "c", "short")])
    with pytest.raises(DataError):
        index.append(more)
    assert [index.append(more, skip_invalid=True).example(row).id for row in (4, 5)] == [data[4].id, "short"]
    with pytest.raises(DataError, match=r"append: no example can be read. First problem: .*\"too long\""):
        index.append(Corpus.from_examples([LONG]), skip_invalid=True)


def test_a_sum_leaves_out_what_one_of_its_channels_cannot_read(lm: str) -> None:
    channels = [{"method": "ngram", "settings": {"lm": lm, "device": "cpu"}}, {"method": "tfidf"}]
    assert list(make_attributor("channels", {"channels": channels}).unusable(some(LONG))) == [5]
    assert make_attributor("channels", {"channels": channels[1:]}).unusable(some(LONG)) == {}
    assert list(make_attributor("influence", {"lm": lm, "device": "cpu"}).unusable(some(LONG))) == [5]


def test_parts_leave_out_the_same(tmp_path: Path, lm: str) -> None:
    settings = {"lm": lm, "device": "cpu"}
    data = Corpus.from_examples([LONG, *some()])
    parts = [
        build_part(data, tmp_path / str(n), f"{n}/2", "rds", settings=settings, skip_invalid=True, shard_rows=2).path
        for n in (1, 2)
    ]
    joined = join_parts(parts, tmp_path / "joined")
    assert [joined.example(row).id for row in range(len(joined))] == [one.id for one in some()]


def test_the_commands_say_how_many(tmp_path: Path, lm: str, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.chdir(tmp_path)
    for name, data in {"data": some(LONG), "more": Corpus.from_examples([LONGER, Example("b", "c", "short")])}.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(one.to_dict()) + "\n" for one in data))
    asked = ("index", "data.jsonl", "--out", "index", "--method", "rds", "--lm", lm, "--device", "cpu")
    assert run(*asked).status == 1
    ran = run(*asked, "--skip-invalid")
    assert "index: 1 example left out, because the language model cannot read the whole text" in ran.err
    assert "built: 5 examples" in ran.err
    ran = run("append", "index", "more.jsonl", "--skip-invalid")
    assert (ran.status, "1 example added, 6 in all" in ran.err) == (0, True)
