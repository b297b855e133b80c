"""Answers beside better ones on the page, the verdict, the sum of all queries, and the command of a proof."""

import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import airrep
from airrep.answers.spread import top_beside_spread
from airrep.cli import app as cli
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import AirRepError, ConfigError
from airrep.explorer import questions, requests
from airrep.explorer.explorer import Explorer
from airrep.scoring.asked import stream_scores

ANSWER, BETTER = Example("question e 9", "answer 4", "query"), "answer 5"
TYPED = requests.QueryRef(prompt=ANSWER.prompt, response=ANSWER.response, better=BETTER)


@pytest.fixture
def words(corpus: Corpus, tmp_path: Path) -> airrep.Index:
    return airrep.build_index(corpus, tmp_path / "words", "tfidf")


@pytest.fixture
def pairs(queries: Corpus) -> Corpus:
    return Corpus.from_examples(
        Example(one.prompt, one.response, one.id, metadata={"good": f"rather {place}"})
        for place, one in enumerate(queries)
    )


RELATIVE = [{"method": "ngram", "settings": {"tokenizer": "words"}}, {"method": "tfidf", "relative": True}]
"""Each query weighs the second channel by itself, both answers of a pair alike."""


@pytest.fixture(params=["hash", "tfidf", "relative channels"])
def asked(
    request: pytest.FixtureRequest, index: airrep.Index, words: airrep.Index, corpus: Corpus, tmp_path: Path
) -> airrep.Index:
    if request.param == "relative channels":
        return airrep.build_index(corpus, tmp_path / "relative", "channels", settings={"channels": RELATIVE})
    return index if request.param == "hash" else words


def test_a_better_answer_that_is_typed_in_makes_every_answer_a_contrast(asked: airrep.Index) -> None:
    explorer = Explorer(asked)
    better = [Example(ANSWER.prompt, BETTER, "good")]
    for least in (False, True):
        told = questions.top(explorer, requests.TopRequest(query=TYPED, least=least, start=3, count=9))["hits"]
        expected = asked.top([ANSWER], 12, better=better, least=least)[0][3:]
        assert [(hit["row"], hit["rank"]) for hit in told] == [(hit.row, hit.rank) for hit in expected]
        np.testing.assert_allclose([hit["score"] for hit in told], [hit.score for hit in expected], rtol=1e-4)
        scores = asked.scores([ANSWER], better=better)[0]
        np.testing.assert_allclose([hit["score"] for hit in told], scores[[hit["row"] for hit in told]], rtol=1e-4)
    hits = airrep.top(asked, [ANSWER], 5, better=better)[0]
    rows = [hit.row for hit in hits]
    whole = asked.ask(asked.question([ANSWER], better))
    both = np.concatenate([scores for _, scores in stream_scores(whole)], axis=1)
    numbers = {
        "deviations": [hit.deviations for hit in hits],
        "answer_score": both[0, rows],  # both answers of a pair weigh each channel alike
        "better_score": both[1, rows],
    }
    told = questions.top(explorer, requests.TopRequest(query=TYPED, count=5))
    assert told["query"]["better"] == BETTER
    for name, expected_numbers in numbers.items():
        np.testing.assert_allclose([hit[name] for hit in told["hits"]], expected_numbers, rtol=1e-4, atol=1e-6)
    groups = asked.group_scores([ANSWER], by="source", better=better)
    found = questions.groups(explorer, requests.GroupRequest(query=TYPED, by="source"))
    assert {one["value"]: one["score"] for one in found["groups"]} == pytest.approx(dict(groups.ranked(0)))
    change = asked.what_if([ANSWER], remove=[1, 2], better=better)
    basket = questions.what_if(explorer, requests.WhatIfRequest(query=TYPED, rows=[1, 2]))
    assert basket["change"] == pytest.approx(float(change.change[0]))
    assert found["better"]
    assert basket["better"]


def test_one_example_and_a_query_asked_before_keep_the_better_answer(words: airrep.Index) -> None:
    explorer = Explorer(words)
    hit = questions.top(explorer, requests.TopRequest(query=TYPED, count=1))["hits"][0]
    questions.top(explorer, requests.TopRequest(query=TYPED.model_copy(update={"better": None})))
    whole = questions.example(explorer, requests.ExampleRequest(row=hit["row"], query=TYPED))
    for name in ("score", "deviations", "answer_score", "better_score"):
        assert whole[name] == pytest.approx(hit[name], rel=1e-4)
    plain, contrast = questions.list_queries(explorer, requests.ListRequest())["asked"]
    assert (contrast["better"], "better" in plain) == (BETTER, False)
    again = questions.top(explorer, requests.TopRequest(query=requests.QueryRef(key=contrast["key"]), count=1))
    assert again["hits"] == [hit]
    of_queries = sorted(one["score"] for one in whole["helped"])
    assert of_queries == pytest.approx(sorted([whole["score"], whole["answer_score"]]), rel=1e-4)


def test_better_answers_of_the_file_are_taken_with_its_queries(words: airrep.Index, pairs: Corpus) -> None:
    explorer = Explorer(words, pairs, None, "good")
    explorer.prepare()
    listed = questions.list_queries(explorer, requests.ListRequest(text="rather 2"))["queries"]
    assert [(one["number"], one["better"]) for one in listed] == [(2, "rather 2")]
    told = questions.top(explorer, requests.TopRequest(query=requests.QueryRef(number=2), count=4))
    expected = words.top(pairs, 4, better="good")[2]
    assert [hit["row"] for hit in told["hits"]] == [hit.row for hit in expected]
    assert questions.about(explorer)["better"]
    with pytest.raises(ConfigError, match="a better answer .* is missing"):
        Explorer(words, pairs, None, pairs[:2])


@pytest.mark.parametrize("better", [" ", ANSWER.response, f" {ANSWER.response}\n"])
def test_a_better_answer_that_says_nothing_new_is_one_line(words: airrep.Index, better: str) -> None:
    with pytest.raises(AirRepError, match="better answer") as told:
        query = TYPED.model_copy(update={"better": better})
        questions.top(Explorer(words), requests.TopRequest(query=query))
    assert "\n" not in str(told.value)


def test_the_verdict_is_that_of_top(words: airrep.Index) -> None:
    explorer = Explorer(words)
    for ref, better in (
        (TYPED, [Example(ANSWER.prompt, BETTER, "good")]),
        (TYPED.model_copy(update={"better": None}), None),
    ):
        told = questions.top(explorer, requests.TopRequest(query=ref))
        expected = airrep.top(words, [ANSWER], better=better)[0].verdict
        assert expected is not None
        assert told["verdict"] == {"kind": expected.kind, "text": expected.text}
    assert questions.top(explorer, requests.TopRequest(query=TYPED, least=True))["verdict"] is None


@pytest.mark.parametrize("better", [None, "good"])
def test_the_sum_of_all_queries_is_that_of_the_index(words: airrep.Index, pairs: Corpus, better: str | None) -> None:
    told = questions.summary(Explorer(words, pairs, None, better), requests.SummaryRequest())
    expected = top_beside_spread(words, pairs, 20, better).in_common()
    assert [(one["row"], one["queries"]) for one in told["first"]] == [(one.row, one.queries) for one in expected.first]
    assert sum(count for _, count in told["shares"]["label"]) == len(told["first"]) == len(expected.first)
    with pytest.raises(ConfigError, match="summary: "):
        questions.summary(Explorer(words), requests.SummaryRequest())


def proof(explorer: Explorer, **basket: Any) -> dict[str, Any]:
    return questions.prove(explorer, requests.WhatIfRequest(query=TYPED, **basket))


def test_the_command_of_a_proof_names_what_is_ticked(words: airrep.Index) -> None:
    explorer = Explorer(words)
    told = proof(explorer, rows=[5, 1])
    expected = ["airrep", "prove", str(words.path), "--rows", "e1", "--rows", "e5", "--lm", "MODEL"]
    asked = ["--prompt", ANSWER.prompt, "--response", ANSWER.response, "--better", BETTER]
    assert shlex.split(told["command"]) == [*expected, *asked]
    both = proof(explorer, rows=[5, 1], facets={"source": ["forum"]})
    assert both["examples"] == len(np.union1d(words.where(source="forum"), [1, 5]))
    with pytest.raises(ConfigError, match="none are chosen"):
        proof(explorer)
    with pytest.raises(ConfigError, match="row 1: "):
        proof(Explorer(words.delete([1])), rows=[1])


def test_many_ticked_examples_are_named_by_a_file(words: airrep.Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "NAMED", 2)
    told = proof(Explorer(words), rows=[1, 2, 3])
    assert (told["ids"], told["file"]) == (["e1", "e2", "e3"], "basket.jsonl")
    assert "--from basket.jsonl" in told["command"]
    assert "--rows" not in told["command"]


def test_texts_with_quotes_and_lines_are_one_argument(words: airrep.Index) -> None:
    odd = TYPED.model_copy(update={"prompt": 'it\'s\n$(echo 1) `ls` "x" 😀'})
    told = questions.prove(Explorer(words), requests.WhatIfRequest(query=odd, rows=[1]))
    assert odd.prompt in shlex.split(told["command"])


def test_system_prompts_are_folded_in_lists_and_places_told(tmp_path: Path) -> None:
    record = (
        '{"messages": [%s{"role": "user", "content": "which 😀 zebra?"}, {"role": "assistant", "content": "none"}]}\n'
    )
    system = '{"role": "system", "content": "be 😀 polite"}, '
    (tmp_path / "train.jsonl").write_text(record % system + record.replace("none", "a car") % "")
    index = airrep.build_index(airrep.read_corpus(tmp_path / "train.jsonl"), tmp_path / "i", "bm25")
    query = requests.QueryRef(prompt="zebra", response="none")
    hit = questions.top(Explorer(index), requests.TopRequest(query=query, count=1))["hits"][0]
    assert hit["prompt"].endswith("User: which 😀 zebra?")
    assert "polite" not in hit["prompt"]
    assert hit["place"] == "train.jsonl:1"
    whole = questions.example(Explorer(index), requests.ExampleRequest(row=hit["row"], query=query))
    units = whole["prompt"].encode("utf-16-le")
    assert units[2 * whole["system"] :].decode("utf-16-le") == "User: which 😀 zebra?"


def test_better_answers_of_the_command_belong_to_queries(index: airrep.Index) -> None:
    result = CliRunner().invoke(cli.app, ["serve", str(index.path), "--better", "chosen"])
    assert isinstance(result.exception, ConfigError)
    assert str(result.exception).startswith("serve: --better needs --queries")
