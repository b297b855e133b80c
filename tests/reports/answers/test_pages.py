"""Pages of answers, from Python: same bytes, whole texts, one line of error."""

from dataclasses import replace
from pathlib import Path

import pytest
from worlds.small_world import make_corpus

import airrep
from airrep.answers.audit import SameMeaning, SameText
from airrep.corpus.corpus import Example
from airrep.reports.answers.pages import write_answer_report


def test_the_same_answers_give_the_same_bytes(index: airrep.Index, tmp_path: Path) -> None:
    queries = make_corpus(4, "q")
    answers = [airrep.explain(index, queries, k=2), airrep.mix(index, queries), airrep.top_of_set(index, queries)]
    first = write_answer_report(answers, tmp_path / "a.html", title="Mine").read_bytes()
    for number, answer in enumerate(answers):
        answer.write(tmp_path / str(number))
    read = write_answer_report([tmp_path / str(n) for n in range(3)], tmp_path / "b.html", title="Mine").read_bytes()
    assert first == read
    page = first.decode()
    assert "<title>Mine</title>" in page
    assert page.count("<figure") == 4 + 1 + 1
    assert "<script" not in page
    lesson = answers[0].answers[0].lessons[0]
    assert f"{lesson.example.prompt} → {lesson.example.response}" in page


def test_an_item_alike_in_meaning_is_shown_with_what_it_is_like(index: airrep.Index, tmp_path: Path) -> None:
    (item,) = airrep.audit(index, [Example("what is asked", "what is said", "item")]).items
    words = SameText("item", 0.06, "six words", 1, Example("few", "same words", "words"))
    meaning = SameMeaning(0.99, 2, Example("nearly", "the same", "alike"))
    found = airrep.audit(index, [item.item])
    told = replace(found, items=(replace(item, verdict="alike in meaning", text=words, meaning=meaning),))
    page = write_answer_report([told], tmp_path / "a.html").read_text()
    assert "like alike: nearly" in page
    assert "six words" not in page


def test_what_is_no_answer_is_told(index: airrep.Index, tmp_path: Path) -> None:
    with pytest.raises(airrep.errors.ConfigError, match="is of kind 'index'; expected answers alone"):
        write_answer_report([index.path], tmp_path / "a.html")
    with pytest.raises(airrep.errors.ConfigError, match="no answers"):
        write_answer_report([], tmp_path / "a.html")
    assert not (tmp_path / "a.html").exists()
