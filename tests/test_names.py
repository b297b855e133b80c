"""A mistyped name is answered with the nearest one, what is no index or no file with what to type, a caution once."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import airrep
from airrep.encoder.load import load_encoder
from airrep.errors import AirRepError, caution, near
from airrep.lm.settings import split_lm_settings

RECORDS = [
    {"id": f"e{i}", "prompt": f"q {i}", "response": f"answer number {i}", "source": "ab"[i % 2], "stars": i}
    for i in range(12)
]
MISTYPED: dict[str, tuple[Callable[[Any, Path], object], str]] = {
    "method": (lambda _, __: airrep.make_attributor("tfdif"), "tfidf"),
    "method in capitals": (lambda _, __: airrep.make_attributor("TF-IDF"), "tfidf"),
    "setting": (lambda _, __: airrep.make_attributor("ngram", {"tokeniser": "words"}), "tokenizer"),
    "setting of a fine-tune": (lambda _, __: split_lm_settings({"learning_rat": 1e-4}), "learning_rate"),
    "value of a setting": (lambda _, __: airrep.make_attributor("tfidf", {"view": "respons"}), "response"),
    "setting of an answer": (lambda index, _: airrep.audit(index, "answer", settings={"cosin": 0.9}), "cosine"),
    "pool": (lambda index, _: index.group_scores("answer", by="source", pool="atention"), "attention"),
    "pool without its dash": (lambda index, _: index.group_scores("answer", by="source", pool="order1"), "order-1"),
    "field of a filter": (lambda index, _: index.where('sorce == "a"'), "source"),
    "metadata in a filter": (lambda index, _: index.where("star > 3"), "stars"),
    "field of groups": (lambda index, _: index.group_scores("answer", by="sorce"), "source"),
    "field of a mixture": (lambda index, _: airrep.mix(index, "answer", by="soruce"), "source"),
    "kind of finding": (lambda index, _: airrep.clean(index, kinds=["duplicates"]), "duplicate"),
    "trainer": (lambda _, data: airrep.read_corpus(data, trained_with="axolotle"), "axolotl"),  # type: ignore[arg-type]
    "field of a record": (lambda _, data: airrep.read_corpus(data, prompt_field="promt"), "prompt"),
    "encoder": (lambda _, __: load_encoder("defualt"), "default"),
    "folder of an encoder": (lambda index, _: load_encoder(f"{index.path.parent}/train.jsnl"), "train.jsonl"),
    "turns": (lambda _, data: airrep.read_corpus(data, turns="lst"), "last"),  # type: ignore[arg-type]
    "data file": (lambda _, data: airrep.read_corpus(data.with_name("trian.jsonl")), "train.jsonl"),
    "index": (lambda index, _: airrep.Index(index.path.with_name("idnex")), "index"),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("names") / "train.jsonl"
    airrep.Corpus.from_records(RECORDS).to_jsonl(path)
    return path


@pytest.fixture(scope="module")
def index(data: Path) -> airrep.Index:
    return airrep.build_index(RECORDS, data.with_name("index"), "tfidf")


@pytest.mark.parametrize("what", MISTYPED)
def test_a_mistyped_name_is_answered_with_the_nearest(what: str, index: airrep.Index, data: Path) -> None:
    mistaken, meant = MISTYPED[what]
    with pytest.raises(AirRepError) as caught:
        mistaken(index, data)
    assert f"Did you mean '{meant}'?" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_name_that_is_near_none_is_not_guessed() -> None:
    assert near("zebra", ["tfidf", "ngram"], "See the list.") == "See the list."
    assert near("learning_rat", ["learning_rate"]) == near("Learning-Rat", ["learning_rate"])
    assert near(None, ["a"]) == near("", []) == "Choose one."
    with pytest.raises(AttributeError) as caught:
        airrep.buildindex  # noqa: B018
    assert (caught.value.name, caught.value.obj) == ("buildindex", airrep)  # from which Python tells the nearest


def test_data_where_an_index_is_expected_name_what_makes_one(data: Path, tmp_path: Path) -> None:
    (tmp_path / "some data").mkdir()
    (tmp_path / "some data" / "a.jsonl").write_text("{}")
    for place, shown in ((data, str(data)), (tmp_path / "some data", f"'{tmp_path}/some data'")):
        with pytest.raises(airrep.errors.ArtifactError) as caught:
            airrep.Index(str(place))
        assert f"airrep index {shown} --out" in str(caught.value)
        with pytest.raises(airrep.errors.ArtifactError, match="airrep index"):
            airrep.top(place, "answer")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    with pytest.raises(airrep.errors.ArtifactError, match="expected a directory that airrep wrote"):
        airrep.Index(tmp_path / "model")


def test_an_index_where_data_are_expected_is_told_so(index: airrep.Index, tmp_path: Path) -> None:
    for call in (lambda: airrep.read_corpus(index.path), lambda: airrep.build_index(index.path, tmp_path / "x")):
        with pytest.raises(airrep.errors.DataError, match="Give the data that it was made from"):
            call()


def test_a_name_is_not_near_for_its_ending(data: Path) -> None:
    with pytest.raises(airrep.errors.DataError, match="Check the path") as caught:
        airrep.read_corpus(data.with_name("nofile.jsonl"))
    assert "Did you mean" not in str(caught.value)


def test_a_manifest_where_an_index_is_expected_names_its_folder(index: airrep.Index) -> None:
    with pytest.raises(airrep.errors.ArtifactError, match=rf"Give .*{index.path}$"):
        airrep.Index(index.path / "manifest.json")


@pytest.mark.parametrize("text", ["What is 2+2?", "Is 1/2 more than 1/3?", "Paris", "two\nlines", "word " * 500])
def test_a_text_where_a_file_is_expected_names_what_takes_texts(text: str) -> None:
    with pytest.raises(AirRepError, match="--prompt and --response|too long for a path") as caught:
        airrep.read_corpus(text)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_word_without_quotes_in_a_filter_is_told_how_to_write_it(index: airrep.Index) -> None:
    with pytest.raises(airrep.errors.ConfigError, match='Put text in quotes: "a"'):
        index.where("source == a")


def test_a_caution_is_told_once_in_a_process(caplog: pytest.LogCaptureFixture) -> None:
    for text in ("lm a: odd", "lm a: odd", "lm b: odd, 100 % of it"):
        caution(logging.getLogger("airrep.lm"), text)
    assert [record.getMessage() for record in caplog.records] == ["lm a: odd", "lm b: odd, 100 % of it"]
