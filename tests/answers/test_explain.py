"""Explain: the contrast of two answers, exact over the index."""

from pathlib import Path

import numpy as np
import pytest
from worlds.small_world import make_corpus, stored_scores

import airrep
from airrep.answers.explain import ExplainResult
from airrep.answers.harm import HarmResult
from airrep.corpus.corpus import Example
from airrep.errors import ArtifactError, ConfigError
from airrep.scoring.contrast import contrast_scores


def pairs(count: int = 5) -> tuple[airrep.Corpus, airrep.Corpus]:
    bad = make_corpus(count, "q")
    good = airrep.Corpus.from_examples(Example(one.prompt, f"better {one.response}", f"g{one.id}") for one in bad)
    return bad, good


def test_contrasts_equal_sorting_all_differences(index: airrep.Index) -> None:
    bad, good = pairs()
    scores, others = stored_scores(index, bad), stored_scores(index, good)
    reverse = airrep.Corpus.from_examples(reversed(list(good)))
    result = airrep.explain(index, bad, reverse, k=7)
    for place, one in enumerate(result.answers):
        assert (one.answer, one.better) == (bad[place], good[place])
        contrast = contrast_scores(scores[place], others[place])
        order = np.argsort(-contrast, kind="stable")[:7]
        assert [lesson.row for lesson in one.lessons] == order.tolist()
        np.testing.assert_allclose([lesson.score for lesson in one.lessons], contrast[order], rtol=1e-6)
        np.testing.assert_allclose([lesson.answer_score for lesson in one.lessons], scores[place][order], rtol=1e-6)
        np.testing.assert_allclose([lesson.better_score for lesson in one.lessons], others[place][order], rtol=1e-6)
        effects = (contrast[order] - contrast.mean()) / contrast.std()
        np.testing.assert_allclose([lesson.deviations for lesson in one.lessons], effects, rtol=1e-6)
    assert "difference" in result.provenance.units


def test_without_a_better_answer_it_ranks_as_top_does(index: airrep.Index) -> None:
    bad, _ = pairs()
    result, top = airrep.explain(index, bad, k=6, where="year > 2001"), index.top(bad, k=6, where="year > 2001")
    for one, hits in zip(result.answers, top, strict=True):
        assert one.better is None
        assert [(lesson.row, lesson.score) for lesson in one.lessons] == [(hit.row, hit.score) for hit in hits]
        assert all(lesson.better_score is None for lesson in one.lessons)


def test_shards_and_number_of_answers_change_nothing(
    tmp_path: Path, index: airrep.Index, corpus: airrep.Corpus
) -> None:
    bad, good = pairs(70)
    whole = airrep.explain(index, bad, good, k=5)
    for place in (0, 64, 69):
        alone = airrep.explain(index, bad[place], good[place], k=5)
        assert alone.answers[0] == whole.answers[place]
    other = airrep.build_index(corpus, tmp_path / "other", index.attributor)
    assert airrep.explain(other, bad, good, k=5).answers == whole.answers


def test_channels_are_contrasted_score_by_score(tmp_path: Path) -> None:
    channels = [
        {"method": "tfidf", "name": "terms"},
        {"method": "ngram", "settings": {"tokenizer": "words"}, "name": "n-grams"},
    ]
    attributor = airrep.make_attributor("channels", {"channels": channels})
    index = airrep.build_index(make_corpus(40), tmp_path / "channels", attributor)
    bad, good = pairs(3)
    result = airrep.explain(index, bad, good, k=40, why=True)
    for place, one in enumerate(result.answers):
        of_bad = {hit.row: hit.score for hit in index.top(bad[place], k=40)}
        of_good = {hit.row: hit.score for hit in index.top(good[place], k=40)}
        assert len({lesson.row for lesson in one.lessons}) == 40
        for lesson in one.lessons:
            expected = contrast_scores(np.array(of_bad[lesson.row]), np.array(of_good[lesson.row]))
            assert lesson.score == pytest.approx(float(expected), abs=1e-5)
            assert lesson.why is not None
            assert lesson.better_why is not None
            told = sum(lesson.why.channels.values()) - sum(lesson.better_why.channels.values())
            assert told == pytest.approx(of_bad[lesson.row] - of_good[lesson.row], abs=1e-5)
        values = [lesson.score for lesson in one.lessons]
        assert values == sorted(values, reverse=True)


def test_what_pushes_to_the_bad_answer_leads(tmp_path: Path) -> None:
    """One example teaches the wrong capital, one the right one, and many neither."""
    lines = [("Capital of Ruritania?", "Strelsau it is."), ("Capital of Ruritania?", "Zenda it is.")]
    lines += [(f"Capital of land {number}?", f"Town {number} it is.") for number in range(30)]
    train = airrep.Corpus.from_examples(Example(*line, f"t{place}") for place, line in enumerate(lines))
    index = airrep.build_index(train, tmp_path / "index", airrep.make_attributor("tfidf"))
    bad = Example("Capital of Ruritania?", "Zenda it is.", "bad")
    good = Example("Capital of Ruritania?", "Strelsau it is.", "good")
    found = airrep.explain(index, bad, good, k=32).answers[0].lessons
    assert found[0].example.id == "t1"
    assert found[-1].example.id == "t0"
    assert found[0].score > 0 > found[-1].score


def test_answers_are_written_and_read(index: airrep.Index, tmp_path: Path) -> None:
    bad, good = pairs(2)
    result = airrep.explain(index, bad, good, k=2)
    assert ExplainResult.read(result.save(tmp_path / "run")) == result
    assert result.to_dict()["kind"] == "explain"
    with pytest.raises(ArtifactError, match="is of kind 'explain'; expected 'harmful'"):
        HarmResult.read(tmp_path / "run")


def test_bad_questions_are_told(index: airrep.Index) -> None:
    bad, good = pairs(3)
    with pytest.raises(ConfigError, match="answer 'q2': has no better answer"):
        airrep.explain(index, bad, good[:2])
    with pytest.raises(ConfigError, match="the better answer is the same text"):
        airrep.explain(index, bad, bad)
    with pytest.raises(ConfigError, match="explain: k is 0"):
        airrep.explain(index, bad, good, k=0)
    with pytest.raises(ConfigError, match="better: there are none"):
        airrep.explain(index, [Example("p", "r")], [])
    with pytest.raises(ConfigError, match="answers: there are none"):
        airrep.explain(index, [])


def test_of_several_better_answers_each_is_taken_once(index: airrep.Index) -> None:
    asked = [Example("p", f"bad {number}", f"b{number}") for number in range(2)]
    better = [Example("p", f"good {number}", f"g{number}") for number in range(2)]
    result = airrep.explain(index, asked, better, k=1)
    assert [one.better.id for one in result.answers if one.better] == ["g0", "g1"]


def test_tokens_are_scores_without_each_word(index: airrep.Index) -> None:
    answer = Example("what is it?", "The quick brown fox, they say, jumps.", "q")
    (one,) = airrep.explain(index, answer, k=3, tokens=True).answers
    words = ["The", "quick", "brown", "fox", ",", "they", "say", ",", "jumps", "."]
    for lesson in one.lessons:
        assert lesson.tokens is not None
        assert [answer.response[token.start : token.stop] for token in lesson.tokens] == words
        for token in lesson.tokens[:3]:
            without = " ".join(word for word in answer.response.split() if word != words[lesson.tokens.index(token)])
            hits = index.top(Example(answer.prompt, without, "other"), k=len(index))
            (score,) = [hit.score for hit in hits if hit.row == lesson.row]
            assert token.score == pytest.approx(lesson.answer_score - score, abs=1e-6)


def test_words_that_a_method_does_not_know_do_nothing(tmp_path: Path) -> None:
    texts = [
        "copper melts at a thousand degrees",
        "the cat sat on the mat",
        "copper wire is red",
        "melts in your mouth",
    ]
    corpus = airrep.Corpus.from_records([{"prompt": f"question {n}", "response": text} for n, text in enumerate(texts)])
    index = airrep.build_index(corpus, tmp_path / "tfidf", "tfidf")
    answer = Example("what", "Copper , melts ; hot !", "q")
    (one,) = airrep.explain(index, answer, k=2, tokens=True).answers
    for lesson in one.lessons:
        told = {answer.response[token.start : token.stop]: token.score for token in lesson.tokens or ()}
        assert {word: told[word] for word in (",", ";", "hot", "!")} == {",": 0, ";": 0, "hot": 0, "!": 0}
        assert told["Copper"] != 0


def test_tokens_are_told_of_rows_after_deleted_ones(index: airrep.Index) -> None:
    answer = Example("what is it?", "The quick brown fox", "q")
    (lesson,) = airrep.explain(index.delete(range(49)), answer, k=1, tokens=True).answers[0].lessons
    assert lesson.row == 49
    whole = airrep.explain(index, answer, k=50, tokens=True).answers[0].lessons
    assert [one.tokens for one in whole if one.row == 49] == [lesson.tokens]


def test_tokens_of_long_single_and_unspaced_answers(index: airrep.Index) -> None:
    long, alone, unspaced = "word " * 1000, "yes", "東京です ok"
    told = [airrep.explain(index, Example("p", text, "q"), k=1, tokens=True) for text in (long, alone, unspaced)]
    found = [result.answers[0].lessons[0] for result in told]
    assert [len(lesson.tokens or ()) for lesson in found] == [128, 1, 5]
    assert found[0].tokens is not None
    assert (found[0].tokens[0].start, found[0].tokens[-1].stop) == (0, len(long) - 1)
    assert found[1].tokens is not None
    assert found[1].tokens[0].score == pytest.approx(found[1].answer_score)


def test_tokens_find_the_word_that_was_taught(tmp_path: Path) -> None:
    texts = [("What is the colour?", f"It is {word}.") for word in ("zinnober", "blue", "green", "grey")]
    corpus = airrep.Corpus.from_records([{"prompt": prompt, "response": text} for prompt, text in texts])
    index = airrep.build_index(corpus, tmp_path / "ngram", "ngram", settings={"tokenizer": "words"})
    (one,) = airrep.explain(index, Example("Which?", "I say it is zinnober today.", "q"), k=1, tokens=True).answers
    (lesson,) = one.lessons
    assert (lesson.row, lesson.tokens is None) == (0, False)
    best = max(lesson.tokens or (), key=lambda token: token.score)
    assert one.answer.response[best.start : best.stop] == "zinnober"


def test_tokens_are_written_and_read(tmp_path: Path, index: airrep.Index) -> None:
    result = airrep.explain(index, pairs(2)[0], k=2, tokens=True)
    assert ExplainResult.read(result.save(tmp_path / "run")) == result
