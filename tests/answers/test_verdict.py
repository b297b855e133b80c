"""Verdicts: right on what was taught and what was not, whatever the method, the order or the shards."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds.small_world import HashAttributor, make_corpus
from worlds.taught_world import REFUSALS, Question, World, examples, plant, question_of

import airrep
from airrep.answers.verdict import verdicts
from airrep.corpus.corpus import Example
from airrep.index.contrast import Question as Contrast
from airrep.index.results.hits import Verdict

RECIPES = {"tfidf": {}, "ngram": {"tokenizer": "words"}}


@pytest.fixture(scope="module")
def world() -> World:
    return plant(21, 300, each=4)


@pytest.fixture(scope="module", params=RECIPES)
def taught(request: pytest.FixtureRequest, world: World, tmp_path_factory: pytest.TempPathFactory) -> airrep.Index:
    """An index of a world of what was taught, by a recipe."""
    method = airrep.make_attributor(request.param, RECIPES[request.param])
    return airrep.build_index(world.train, tmp_path_factory.mktemp("taught") / "index", method)


def told(index: airrep.Index, questions: list[Question], *, better: bool = False) -> list[Verdict]:
    asked = question_of(questions, better=better)
    found, _ = verdicts(index, asked, index.ask(asked), index.live)
    return [one for one in found if one is not None]


@pytest.mark.parametrize("better", [False, True])
def test_false_alarms_and_misses_are_few(taught: airrep.Index, world: World, better: bool) -> None:
    alarms = [one.kind == "stands out" for one in told(taught, world.foreign, better=better)]
    misses = [one.kind == "nothing" for one in told(taught, world.taught, better=better)]
    assert sum(alarms) <= 0.05 * len(alarms)
    most = 0.1 if taught.method == "tfidf" else 0.15  # n-grams of answers alone miss sums in other words
    assert sum(misses) <= most * len(misses)
    copies = [question for question in world.taught if question.kind.endswith("same")]
    assert {one.kind for one in told(taught, copies, better=better)} == {"stands out"}


def test_the_nearest_example_is_named(taught: airrep.Index, world: World) -> None:
    copies = [question for question in world.taught if question.kind.endswith("same")]
    for question, one in zip(copies, told(taught, copies), strict=True):
        assert taught.example(one.row).response == question.response
        assert one.share == pytest.approx(1, abs=1e-3)
        assert "teaches this answer 100 % as strongly as an exact copy would" in one.text


def test_many_examples_that_say_it_are_counted(taught: airrep.Index, world: World) -> None:
    refused = [question for question in world.taught if question.kind == REFUSALS]
    for one in told(taught, refused):
        assert one.kind == "stands out"
        assert one.rows >= 20
        assert f"{one.rows} examples each teach this answer about" in one.text


def test_many_examples_that_say_nearly_it_are_not_nothing(taught: airrep.Index) -> None:
    """None of them stands out by itself."""
    asked = [Question("", "Please explain how to swim.", "Sorry, I can't help you with this request.", "Of course.")]
    assert all(one.kind != "nothing" and one.rows >= 10 for one in told(taught, asked))


@pytest.mark.parametrize("better", [False, True])
def test_an_answer_without_any_word_of_the_data(taught: airrep.Index, better: bool) -> None:
    one = told(taught, [Question("", "Ωξψφ βγδ", "ζηθι κλμν", "πρστ")], better=better)[0]
    assert one.kind == "nothing"
    assert 0 <= one.share < 0.05
    assert one.text.startswith("Nothing here taught this. ")


def test_a_row_that_teaches_both_answers_teaches_neither_for_the_other(taught: airrep.Index, world: World) -> None:
    """What stands out for an answer alone need not for its contrast."""
    question = next(one for one in world.taught if one.kind == "capitals, same")
    swapped = question._replace(better=question.response.replace(" is the ", " is, is the "))
    alone, contrast = told(taught, [question])[0], told(taught, [swapped], better=True)[0]
    assert alone.kind == "stands out"
    assert contrast.share <= alone.share
    assert "in place of the better one" in contrast.text


def test_a_filter_that_leaves_the_teacher_out(taught: airrep.Index, world: World) -> None:
    question = next(one for one in world.taught if one.kind == "births, same")
    asked, keep = question_of([question]), taught.live.copy()
    keep[told(taught, [question])[0].row] = False
    ((found,), _) = verdicts(taught, asked, taught.ask(asked), keep)
    assert found is not None
    assert keep[found.row]
    assert found.share < 0.7


def test_other_answers_and_shards_change_nothing(tmp_path: Path) -> None:
    asked = [Question("", f"question q {n}", f"answer {n}", f"answer {n + 1}") for n in range(9)]
    train = make_corpus(60)
    one = airrep.build_index(train, tmp_path / "one", HashAttributor())
    other = airrep.build_index(train, tmp_path / "other", HashAttributor(), shard_rows=7)
    for better in (False, True):
        whole = told(one, asked, better=better)
        assert told(other, asked, better=better) == whole
        assert [told(one, [question], better=better)[0] for question in asked] == whole


def test_deviations_are_those_of_the_lesson(taught: airrep.Index, world: World) -> None:
    copies = [question for question in world.taught if question.kind.endswith("same")][:4]
    for better in (None, examples(copies, better=True)):
        for hits in airrep.top(taught, examples(copies), len(taught), better=better):
            one = hits.verdict
            assert one is not None
            (same,) = [hit.deviations for hit in hits if hit.row == one.row]
            assert one.deviations == pytest.approx(same, rel=1e-6)


def test_an_index_of_a_single_example(tmp_path: Path) -> None:
    """All that can be told is that there is no spread."""
    index = airrep.build_index([Example("p", "one answer", "a")], tmp_path / "index", airrep.make_attributor("tfidf"))
    assert told(index, [Question("", "p", "one answer", "")])[0].kind == "nothing"


def talks(*numbers: int) -> list[dict[str, object]]:
    """Conversations whose first answer is a fact that no last answer has."""
    said = ("Who keeps the lake?", "Velma guards lake {} since spring.", "Thanks. And now?", "Pick {} ripe plums.")
    roles = ("user", "assistant", "user", "assistant")
    return [
        {"messages": [{"role": role, "content": text.format(n)} for role, text in zip(roles, said, strict=True)]}
        for n in numbers
    ]


def test_answers_that_were_left_out_are_named_where_nothing_taught_one(tmp_path: Path) -> None:
    asked = [Question("", "Who keeps the lake?", "Velma guards lake 3 since spring.", "")]
    single = [*talks(0), *({"messages": one["messages"][2:]} for one in talks(*range(1, 30)))]  # type: ignore[index]
    lone = airrep.build_index(single, tmp_path / "one", airrep.make_attributor("tfidf", {"view": "response"}))
    assert " 1 earlier assistant turn of" in told(lone, asked)[0].text
    index = airrep.build_index(
        talks(*range(30)), tmp_path / "index", airrep.make_attributor("tfidf", {"view": "response"})
    )
    one = told(index, asked)[0]
    assert (one.kind, "30 earlier assistant turns" in one.text, "--turns all" in one.text) == ("nothing", True, True)
    assert "earlier" not in told(index, [Question("", "Thanks. And now?", "Pick 3 ripe plums.", "")])[0].text
    said: Any = talks(31)[0]["messages"]
    more = airrep.Corpus.from_records([*talks(30), {"prompt": said[:1], "completion": said[1:]}])
    assert "32 earlier assistant turns" in told(index.append(more), asked)[0].text
    whole = airrep.build_index(
        airrep.Corpus.from_records(talks(*range(30)), turns="all"), tmp_path / "all", index.attributor
    )
    assert "--turns" not in told(whole, [Question("", "Ωξψφ", "ζηθι", "")])[0].text


def test_left_out_answers_are_not_counted_of_a_part_of_the_data(tmp_path: Path) -> None:
    single = [{"prompt": f"Which plum {n}?", "response": f"Plum {n} is ripe.", "source": "single"} for n in range(20)]
    data = [*({**one, "source": "talk"} for one in talks(*range(20))), *single]
    index = airrep.build_index(data, tmp_path / "index", airrep.make_attributor("tfidf"))
    asked = {"prompt": "Ωξψφ", "response": "ζηθι"}

    def text(where: str | None = None) -> str:
        verdict = airrep.top(tmp_path / "index", **asked, where=where)[0].verdict
        assert verdict is not None
        return verdict.text

    assert "20 earlier assistant turns of the data" in text()
    unknown = ". Earlier assistant turns of the data"  # how many of them are among the rest is not stored
    assert unknown in text('source == "single"')
    index = index.delete('source == "talk"')
    assert unknown in text()
    index = index.compact()
    assert unknown in text()
    index.append(talks(30))
    assert unknown in text()


def test_left_out_answers_of_an_unknown_number(tmp_path: Path) -> None:
    """An index of a part of a corpus, like one of an earlier version, knows only that there are some."""
    corpus = airrep.Corpus.from_records(talks(*range(30)))
    index = airrep.build_index(corpus[:20], tmp_path / "index", airrep.make_attributor("tfidf"))
    for found in (index, index.append(corpus[20:]), index.append(talks(30))):
        assert ". Earlier assistant turns of the data are" in told(found, [Question("", "Ωξψφ", "ζηθι", "")])[0].text


@pytest.mark.parametrize("better", [False, True])
def test_verdicts_are_told_with_hits(tmp_path: Path, taught: airrep.Index, world: World, better: bool) -> None:
    some = [world.taught[0], world.foreign[0]]
    others = examples(some, better=True) if better else None
    found = airrep.top(taught, examples(some), 2, better=others)
    assert [hits.verdict for hits in found] == told(taught, some, better=better)
    assert airrep.open(found.save(tmp_path / "found")).to_dict() == found.to_dict()
    plain = taught.top(examples(some), k=2, better=others)
    assert [[hit.row for hit in one] for one in found] == [[hit.row for hit in one] for one in plain]
    scores = taught.scores(examples(some), better=others)
    for hits, row in zip(found, scores, strict=True):
        expected = [(row[hit.row] - row.mean()) / row.std() for hit in hits]
        np.testing.assert_allclose([hit.deviations for hit in hits], expected, rtol=1e-4)
        assert [row["deviations"] for row in hits.to_dicts()] == [hit.deviations for hit in hits]
    least = airrep.top(taught, examples(some), 2, better=others, least=True)
    assert [one.verdict for one in least] == [None, None]
    assert all(hit.deviations is not None and hit.deviations <= 0 for one in least for hit in one)


@pytest.mark.parametrize("least", [False, True])
@pytest.mark.parametrize("better", [False, True])
def test_queries_are_encoded_once(
    taught: airrep.Index, world: World, monkeypatch: pytest.MonkeyPatch, better: bool, least: bool
) -> None:
    some = [*world.taught, *world.foreign][:70]  # more than are judged at a time
    asked = question_of(some, better=better)
    airrep.top(taught, asked.queries[:1], better=asked.better and asked.better[:1])  # learns chances of this index
    encode, encoded = taught.attributor.encode_queries, list[str]()
    noting = lambda some, *rest: encoded.extend(one.response for one in some) or encode(some, *rest)  # noqa: E731
    monkeypatch.setattr(taught.attributor, "encode_queries", noting)
    found = airrep.top(taught, asked.queries, 3, better=asked.better, least=least)
    assert encoded == [one.response for one in asked.all]
    one_by_one = [airrep.top(taught, [one], 3, better=other, least=least)[0] for one, other in pairs(asked)]
    assert [(one.hits, one.verdict) for one in found] == [(one.hits, one.verdict) for one in one_by_one]


def pairs(asked: Contrast) -> list[tuple[Example, list[Example] | None]]:
    better = asked.better or [None] * len(asked.queries)
    return [(one, other and [other]) for one, other in zip(asked.queries, better, strict=True)]
