"""Scripts without spaces between words are read sign by sign, where that is set; other texts as before."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds.commands import runner
from worlds.small_world import make_corpus

import airrep
from airrep.attributors.methods import make_attributor
from airrep.attributors.text.tokens import WORDS, tokenizer_of
from airrep.corpus.corpus import Corpus, Example
from airrep.corpus.words import Words

METHODS = {"tfidf": {"view": "response"}, "bm25": {}, "ngram": {}, "dsir": {"view": "response"}}
RELATED, OTHER = "公园里的樱花都开了，很多人去拍照。", "银行的利率下降了，所以有人买房子。"
ASKED = "樱花开了吗"


def parts(features: Any) -> list[np.ndarray]:
    return [features] if isinstance(features, np.ndarray) else [features.indptr, features.indices, features.data]


@pytest.mark.parametrize("name", METHODS)
def test_what_shares_signs_comes_first(name: str, tmp_path: Path) -> None:
    data = Corpus.from_examples([Example("a", OTHER, "other"), Example("b", RELATED, "related")])
    index = airrep.build_index(data, tmp_path / "index", name, settings={**METHODS[name], "signs": True})
    first, second = index.top(Example("c", ASKED))
    assert (first.example.id, first.score > second.score) == ("related", True)
    told = index.top(Example("c", ASKED), k=1, why=True)[0].why
    assert told is not None
    assert any(set(word.text) & set("樱花开了") for word in told.same_words), told.same_words


@pytest.mark.parametrize("name", METHODS)
def test_texts_with_spaces_have_the_same_features(name: str) -> None:
    english = [*make_corpus(20), Example("Ünï_x 1.5", "don't — C'est “là”, ok? 한국어 말", "odd")]
    found = []
    for signs in (False, True):
        method = make_attributor(name, {**METHODS[name], "signs": signs})
        method.fit(Corpus.from_examples(english))
        found.append([*parts(method.encode_train(english)), *parts(method.encode_queries(english))])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", METHODS)
def test_indexes_from_before_read_as_they_did(name: str) -> None:
    """Their manifests know no such setting, and their fingerprints are those of methods that have none."""
    assert "signs" not in make_attributor(name, METHODS[name]).settings.model_dump(mode="json")
    assert make_attributor(name, {"signs": True}).settings.model_dump(mode="json")["signs"] is True


def test_the_command_says_where_words_have_no_spaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = runner(capsys, monkeypatch)
    rows = [{"prompt": "a", "response": text} for text in (RELATED, OTHER, "an English one", "one more, 春 in it")]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = "2 responses have no spaces between words"
    for method in METHODS:
        assert said in run("index", "rows.jsonl", "--method", method, "--out", method).err
        again = run("index", "rows.jsonl", "--method", method, "--set", "signs=true", "--out", f"{method} signs")
        assert (again.status, said in again.err) == (0, False)
    assert said not in run("index", "rows.jsonl", "--method", "ngram", "--set", "tokenizer=subwords", "--out", "x").err


def test_words_of_mixed_texts() -> None:
    assert Words(signs=True).findall("GPT4模型 foo_bar สวัสดี、カナ 한국어") == [
        "GPT4", "模", "型", "foo_bar", *"สวัสดี", "カ", "ナ", "한국어",
    ]  # fmt: skip
    split, _ = tokenizer_of(WORDS, signs=True)
    assert [len(found) for found in split(["樱花 ok.", "樱花", "ok"])] == [4, 2, 1]
    places = split.find("a樱花。")
    assert list(zip(places.starts.tolist(), places.stops.tolist(), strict=True)) == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert split(["a樱花。"]).numbers.tolist() == places.numbers.tolist()
