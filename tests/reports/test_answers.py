"""Pages of answers, from Python: same bytes, whole texts, one line of error."""

from dataclasses import replace
from pathlib import Path

import pytest
from worlds.small_world import make_corpus

import airrep
from airrep.answers.audit import SameMeaning, SameText
from airrep.answers.together import top_of_set
from airrep.corpus.corpus import Example
from airrep.errors import ArtifactError, ConfigError
from airrep.reports.tables import signed


def test_the_same_answers_give_the_same_bytes(index: airrep.Index, tmp_path: Path) -> None:
    queries = make_corpus(4, "q")
    answers = [airrep.mix(index, queries), top_of_set(index, queries)]
    first = airrep.write_report(answers, tmp_path / "a.html", title="Mine").read_bytes()
    for number, answer in enumerate(answers):
        answer.save(tmp_path / str(number))
    read = airrep.write_report([tmp_path / str(n) for n in range(2)], tmp_path / "b.html", title="Mine").read_bytes()
    assert first == read
    page = first.decode()
    assert "<title>Mine</title>" in page
    assert page.count("<figure") == 2
    assert "<script" not in page
    first_hit = answers[1].hits[0]
    assert f"{first_hit.example.prompt} → {first_hit.example.response}" in page


def test_write_report_takes_answers_and_their_paths(index: airrep.Index, tmp_path: Path) -> None:
    answer = top_of_set(index, make_corpus(2, "q"), k=2)
    path = answer.save(tmp_path / "run")
    wanted = airrep.write_report([answer], tmp_path / "wanted.html", title="Mine").read_bytes()
    for number, given in enumerate((answer, [answer], path, [str(path)])):
        assert airrep.write_report(given, tmp_path / f"{number}.html", title="Mine").read_bytes() == wanted
    assert "Look." in airrep.write_report(answer, tmp_path / "noted.html", notes=["Look."]).read_text()
    top = index.top(make_corpus(2, "q"), k=2)
    with pytest.raises(ConfigError, match="^report: results of .*airrep what-if"):
        airrep.write_report([top, path], tmp_path / "both.html")


def test_an_item_alike_in_meaning_is_shown_with_what_it_is_like(index: airrep.Index, tmp_path: Path) -> None:
    (item,) = airrep.audit(index, [Example("what is asked", "what is said", "item")]).items
    words = SameText("item", 0.06, "six words", 1, Example("few", "same words", "words"))
    meaning = SameMeaning(0.99, 2, Example("nearly", "the same", "alike"))
    found = airrep.audit(index, [item.item])
    told = replace(found, items=(replace(item, verdict="alike in meaning", text=words, meaning=meaning),))
    page = airrep.write_report([told], tmp_path / "a.html").read_text()
    assert "like alike: nearly" in page
    assert "six words" not in page


def test_what_is_no_answer_is_told(index: airrep.Index, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="kind 'index'"):
        airrep.write_report([index.path], tmp_path / "a.html")
    assert not (tmp_path / "a.html").exists()


def test_answers_of_two_indexes_say_whose_they_are(index: airrep.Index, corpus: airrep.Corpus, tmp_path: Path) -> None:
    words = airrep.build_index(corpus, tmp_path / "words", "tfidf")
    queries = make_corpus(2, "q")
    page = airrep.write_report([top_of_set(one, queries, k=1) for one in (index, words)], tmp_path / "a.html")
    for one in (index, words):
        assert f": {one.method}, index {one.provenance().index[:12]}" in page.read_text()


def test_small_scores_are_not_shown_as_nothing() -> None:
    shown = [signed(value) for value in (6.68e-6, -6.68e-6, 0.0, 0.0005, 1.5)]
    assert shown == ["+6.7e-06", "-6.7e-06", "+0.000", "+0.001", "+1.500"]


def test_answers_of_two_signs_each_say_their_own(index: airrep.Index, tmp_path: Path) -> None:
    queries = make_corpus(2, "q")
    better = [Example(query.prompt, "rather this") for query in queries]
    explained, mixed = top_of_set(index, queries, better=better, k=1), airrep.mix(index, queries, better=better)
    assert explained.provenance.sign != mixed.provenance.sign
    page = airrep.write_report([explained, mixed], tmp_path / "both.html").read_text()
    for answer in (explained, mixed):
        assert page.count(answer.provenance.sign) == 1
        alone = airrep.write_report([answer], tmp_path / f"{answer.kind}.html").read_text()
        assert f"<dt>Sign</dt><dd>{answer.provenance.sign}</dd>" in alone
