"""Bad less good: one question for hits, groups, what-ifs, selections, mixes and harm, by text, field or file."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds.small_world import make_corpus, stored_scores

import airrep
from airrep.answers.reading import read_result
from airrep.answers.together import top_of_set
from airrep.corpus.corpus import Example
from airrep.errors import AirRepError, ConfigError
from airrep.index.contrast import Question, answered
from airrep.index.results.kinds import GroupResult, TopResult, WhatIfResult
from airrep.scoring.contrast import contrast_scores

CHANNELS = [{"method": "tfidf", "name": "terms"}, {"method": "ngram", "settings": {"tokenizer": "words"}}]


def pairs(count: int = 5) -> tuple[airrep.Corpus, airrep.Corpus]:
    bad = make_corpus(count, "q")
    return bad, airrep.Corpus.from_examples(Example(one.prompt, f"better {one.response}", f"g{one.id}") for one in bad)


@pytest.fixture(params=["hash", "tfidf", "channels"])
def asked(request: pytest.FixtureRequest, tmp_path: Path, index: airrep.Index, corpus: airrep.Corpus) -> airrep.Index:
    """Indexes of dense features, of sparse ones, and of channels."""
    if request.param == "hash":
        return index
    settings: dict[str, Any] = {"channels": CHANNELS} if request.param == "channels" else {}
    return airrep.build_index(corpus, tmp_path / "other", airrep.make_attributor(request.param, settings))


def contrasts(index: airrep.Index, bad: airrep.Corpus, good: airrep.Corpus) -> np.ndarray:
    """All scores for the answers less those for the better ones, by asking for all rows of each."""
    found = np.zeros((2, len(bad), len(index)))
    for place, queries in enumerate((bad, good)):
        for number, hits in enumerate(index.top(queries, k=len(index))):
            for hit in hits:
                found[place, number, hit.row] = hit.score
    return contrast_scores(found[0], found[1])


def test_top_ranks_by_the_contrast_of_both_scores(asked: airrep.Index) -> None:
    bad, good = pairs()
    expected = contrasts(asked, bad, good)
    result = asked.top(bad, k=50, better=good)
    for number, hits in enumerate(result):
        assert hits.better == good[number]
        scores = [hit.score for hit in hits]
        assert scores == sorted(scores, reverse=True)
        np.testing.assert_allclose(scores, expected[number][[hit.row for hit in hits]], atol=2e-5)
    assert "better" in result.provenance.units
    least = asked.top(bad, k=50, better=good, least=True)
    np.testing.assert_allclose([hit.score for hit in least[0]], [hit.score for hit in result[0]][::-1], atol=2e-6)


@pytest.mark.parametrize("pool", [None, "mean", "sum"])
def test_groups_and_what_ifs_are_the_difference_of_both(asked: airrep.Index, pool: str | None) -> None:
    bad, good = pairs()
    result = asked.group_scores(bad, by="source", pool=pool, better=good, why=True)
    one, other = (asked.group_scores(queries, by="source", pool=pool).scores for queries in (bad, good))
    np.testing.assert_allclose(result.scores, one - other, rtol=1e-5, atol=1e-5)
    assert result.channels is not None
    np.testing.assert_allclose(sum(result.channels.values()), result.scores, rtol=1e-5, atol=1e-5)
    changed = asked.what_if(bad, remove='source == "forum"', pool=pool, better=good)
    parts = [asked.what_if(queries, remove='source == "forum"', pool=pool) for queries in (bad, good)]
    np.testing.assert_allclose(changed.change, parts[0].change - parts[1].change, rtol=1e-9, atol=1e-9)
    assert result.better == changed.better == tuple(good)


def test_a_removal_by_order_is_contrasted_once(index: airrep.Index) -> None:
    bad, good = pairs()
    changed = index.what_if(bad, remove='source == "forum"', pool="order-1", better=good)
    parts = [index.what_if(queries, remove='source == "forum"', pool="order-1") for queries in (bad, good)]
    np.testing.assert_allclose(changed.change, parts[0].change - parts[1].change, rtol=1e-4, atol=1e-6)


def test_what_is_selected_teaches_the_good_and_not_the_bad(asked: airrep.Index) -> None:
    bad, good = pairs(1)
    expected = -contrasts(asked, bad, good)[0]
    picks = airrep.select(asked, bad, count=9, better=good)
    np.testing.assert_allclose([pick.score for pick in picks], np.sort(expected)[::-1][:9], atol=2e-5)
    few = airrep.select(asked, bad, count=9, better=good, by="source", most=4)
    np.testing.assert_allclose([pick.score for pick in few], expected[[pick.row for pick in few]], atol=2e-5)


def test_rows_that_teach_a_worse_answer_are_not_selected(tmp_path: Path) -> None:
    """A wrong row about one sum is near to the right answers of all others."""
    right = [Example(f"What is {n} plus {n}?", f"The sum is {2 * n}.", f"right{n}", source="book") for n in range(20)]
    wrong = [Example(f"What is {n} plus {n}?", f"The sum is {2 * n + 1}.", f"w{n}", source="forum") for n in range(20)]
    talk = [Example(f"Tell me of town {n}", f"It has {n} mills", source=("book", "forum")[n % 2]) for n in range(40)]
    index = airrep.build_index([*right, *wrong, *talk], tmp_path / "index", "tfidf")
    bad = [Example(one.prompt, one.response) for one in wrong]
    good = [Example(one.prompt, one.response) for one in right]
    chosen = {pick.example.id for pick in airrep.select(index, bad, count=20, better=good)}
    assert not chosen & {one.id for one in wrong}
    assert len(chosen & {one.id for one in right}) >= 15
    weights = {one.name: one.weight for one in airrep.mix(index, bad, better=good, top=0.05).sources}
    assert weights["book"] > 0.75
    scores = index.group_scores(bad, by="source", better=good)
    assert scores.names[int(scores.scores.mean(axis=0).argmax())] == "forum"
    assert index.what_if(bad, remove='source == "forum"', better=good).change.mean() < 0
    with pytest.raises(ConfigError, match="count"):
        airrep.select(index, bad, count=75, better=good)


def test_sets_ask_what_taught_the_answers(index: airrep.Index) -> None:
    bad, good = pairs()
    expected = contrast_scores(stored_scores(index, bad), stored_scores(index, good))
    effects = (expected - expected.mean(axis=1, keepdims=True)) / expected.std(axis=1, keepdims=True)
    together = top_of_set(index, bad, k=5, better=good)
    np.testing.assert_allclose([hit.score for hit in together.hits], np.sort(effects.mean(axis=0))[::-1][:5], rtol=1e-5)


def test_a_mix_weighs_what_teaches_the_better_answers(index: airrep.Index) -> None:
    bad, good = pairs()
    expected = contrast_scores(stored_scores(index, good), stored_scores(index, bad))
    named = [index.example(row).source for row in range(50)]
    effects = (expected - expected.mean(axis=1, keepdims=True)) / expected.std(axis=1, keepdims=True)
    worse = (effects.min(axis=0) <= -2) & (-effects.min(axis=0) >= effects.max(axis=0))
    assert worse.any()
    count = round(0.2 * sum(name is not None for name in named))
    rows = [row for row, name in enumerate(named) if name is not None and not worse[row]]
    best = [sorted(rows, key=lambda row: -one[row])[:count] for one in expected]
    shares = {name: np.mean([[named[row] == name for row in some] for some in best]) for name in ("books", "forum")}
    found = airrep.mix(index, bad, better=good, top=0.2)
    assert {one.name: pytest.approx(one.weight) for one in found.sources} == shares


def test_clean_finds_what_taught_many_answers(tmp_path: Path) -> None:
    rows = [Example(f"What is {n} plus 1?", f"It is {n + 1}.") for n in range(30)]
    wrong = [Example(f"What is {n} plus 1?", "Surely a banana.", f"wrong{n}") for n in range(3)]
    made = airrep.build_index([*rows, *wrong], tmp_path / "index", "tfidf")
    bad = [Example(f"What is {n} plus 1?", "Surely a banana.") for n in range(40, 46)]
    good = [Example(f"What is {n} plus 1?", f"It is {n + 1}.") for n in range(40, 46)]
    found = airrep.clean(made, bad, better=good, kinds="harmful")
    assert {finding.example.id for finding in found.findings} == {"wrong0", "wrong1", "wrong2"}
    assert not airrep.clean(made, bad, kinds="harmful").findings
    with pytest.raises(ConfigError, match="clean: better answers .*without queries"):
        airrep.clean(made, better=good, kinds="harmful")


def test_better_answers_come_as_text_field_list_or_examples(index: airrep.Index) -> None:
    bad, good = pairs()
    by_prompt = index.top(bad, k=3, better=good)
    fields = [{**one.to_dict(), "good": other.response} for one, other in zip(bad, good, strict=True)]
    ways: list[tuple[Any, Any]] = [
        (fields, "good"),
        (bad, [other.response for other in good]),
        (bad, list(reversed(list(good)))),
        (bad, [other.to_dict() for other in good]),
    ]
    for queries, better in ways:
        found = index.top(queries, k=3, better=better)
        assert [[(hit.row, hit.score) for hit in hits] for hits in found] == [
            [(hit.row, hit.score) for hit in hits] for hits in by_prompt
        ]
    alone = index.top(bad[0], k=3, better=good[0].response)
    assert [hit.row for hit in alone] == [hit.row for hit in by_prompt[0]]


@pytest.mark.parametrize(
    ("better", "named"),
    [
        ("good", "not a field"), (["one", "two"], "2 better answers for 5"), ([Example("question q 0", "x")], "q1"),
        (["x"], "1 better answer for 5"), ("year", "q0"), ([], "better"),
    ],
)  # fmt: skip
def test_better_answers_that_do_not_fit_are_refused_in_one_line(index: airrep.Index, better: Any, named: str) -> None:
    with pytest.raises(AirRepError, match=named) as caught:
        index.group_scores(pairs()[0], by="source", better=better)
    assert "\n" not in str(caught.value)


def test_an_answer_is_no_better_than_itself(index: airrep.Index) -> None:
    bad, _ = pairs(2)
    for ask in (index.top, airrep.top.__get__(index)):
        with pytest.raises(ConfigError, match="the same text"):
            ask(bad[0], better=f" {bad[0].response} ")
    with pytest.raises(ConfigError, match="blank"):
        index.top(bad[0], better="  ")


def test_channels_tell_what_each_gave_to_a_contrast(tmp_path: Path) -> None:
    made = airrep.make_attributor("channels", {"channels": CHANNELS})
    index = airrep.build_index(make_corpus(30), tmp_path / "channels", made)
    bad, good = [Example("question e 3", "answer 21")], [Example("question e 3", "answer 7")]
    for hit in index.top(bad, k=5, better=good, why=True)[0]:
        assert hit.why is not None
        assert sum(hit.why.channels.values()) == pytest.approx(hit.score, rel=1e-5)
    assert index.top(bad, k=1, better=good, why=True)[0][0].why.same_words  # type: ignore[union-attr]


def test_results_keep_the_better_answers(tmp_path: Path, index: airrep.Index) -> None:
    bad, good = pairs()
    made = (
        index.top(bad, k=2, better=good),
        index.group_scores(bad, by="source", better=good),
        index.what_if(bad, remove='source == "forum"', better=good),
    )
    for number, result in enumerate(made):
        read = read_result(result.save(tmp_path / str(number)))
        assert read.to_dict() == json.loads(json.dumps(result.to_dict()))
        if isinstance(read, TopResult):
            assert [hits.better for hits in read] == list(good)
        else:
            assert isinstance(read, GroupResult | WhatIfResult)
            assert read.better == tuple(good)
    plain = index.top(bad, k=2)
    assert "better" not in plain.to_dict()["queries"][0]
    assert read_result(plain.save(tmp_path / "plain")).to_dict() == plain.to_dict()


def test_another_answer_follows_the_same_messages() -> None:
    messages = [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "Is it late?"},
        {"role": "assistant", "content": "", "tool_calls": [{"name": "clock"}]},
        {"role": "tool", "content": "noon"},
        {"role": "assistant", "content": "Yes."},
    ]
    example = Example("p", "Yes.", chat={"messages": messages, "tools": [{"name": "clock"}], "asked": -3})
    other = answered(example, "No.")
    assert (other.prompt, other.response) == ("p", "No.")
    said = [*messages[:2], {"role": "assistant", "content": "No."}]
    assert other.chat == {"messages": said, "tools": [{"name": "clock"}]}
    question = Question.of([example], "No.")
    assert question.better is not None
    assert question.better[0].chat == other.chat
    assert answered(Example("p", "a", chat={"form": "joined"}), "b").chat == {"form": "joined"}
