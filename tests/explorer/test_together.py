"""Questions that wait together: one pass over the index serves them, and none harms another."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import airrep
from airrep.answers import chance
from airrep.corpus.corpus import Corpus
from airrep.errors import AirRepError
from airrep.explorer import explorer as served
from airrep.explorer import questions
from airrep.explorer.explorer import Explorer
from airrep.explorer.requests import ExampleRequest, TopRequest
from airrep.explorer.turns import Busy, Left, Shared, Turns


def failing() -> None:
    raise ValueError("this one alone")


async def gone() -> bool:
    return True


@pytest.mark.parametrize("ahead_fails", [False, True])
def test_those_who_wait_share_a_turn_and_nothing_else(ahead_fails: bool) -> None:
    together: list[list[str]] = []
    hold, others = threading.Event(), object()

    def ahead(_: object, asked: Sequence[str]) -> None:
        together.append(list(asked))
        if ahead_fails:
            raise RuntimeError

    async def ask() -> list[Any]:
        turns = Turns(1, 20)

        def take(name: str, work: Callable[[], Any], left: Any = None, of: object = None) -> "asyncio.Task[Any]":
            return asyncio.create_task(turns.take(work, left, Shared(ahead, of, name)))

        first = take("first", hold.wait)
        await asyncio.sleep(0)  # it has the only turn now
        waiting = [take(name, lambda name=name: name.upper()) for name in "abc"]
        plain = asyncio.create_task(turns.take(lambda: "plain"))
        waiting += [take("bad", failing), take("left", failing, gone), take("other", lambda: "O", of=others)]
        dropped = take("dropped", failing)
        await asyncio.sleep(0)
        dropped.cancel()
        await asyncio.sleep(0)
        hold.set()
        return await asyncio.gather(first, *waiting, plain, return_exceptions=True)

    first, *answers, bad, left, other, plain = asyncio.run(ask())
    assert together == [["a", "b", "c", "bad"]], "one turn for those of a kind who are still there"
    assert (first, answers, other, plain) == (True, ["A", "B", "C"], "O", "plain")
    assert isinstance(bad, ValueError)
    assert isinstance(left, Left)


def test_a_question_that_waits_too_long_is_told_so_and_forgotten() -> None:
    hold = threading.Event()

    async def ask() -> Any:
        turns = Turns(1, 1, patience=0.05)
        first = asyncio.create_task(turns.take(hold.wait))
        await asyncio.sleep(0)
        second = asyncio.create_task(turns.take(failing))
        await asyncio.sleep(0)
        with pytest.raises(Busy, match="are waiting already"):
            await turns.take(failing)
        with pytest.raises(Busy, match="still running"):
            await second
        hold.set()
        return await first, await turns.take(lambda: "next")

    assert asyncio.run(ask()) == (True, "next")


def top_requests(queries: Corpus) -> list[TopRequest | ExampleRequest]:
    """Questions with settings of their own, some of them wrong."""
    texts = [{"prompt": one.prompt, "response": one.response} for one in queries]
    plain = [{"query": one, "count": n + 1, "start": n} for n, one in enumerate(texts)]
    filtered = [{**one, "where": 'source == "books"'} for one in plain[:3]]
    others = [
        {"query": texts[0], "least": True}, {"query": texts[1], "facets": {"source": ["web"]}},
        {"query": {**texts[2], "better": "another answer"}}, {"query": texts[3], "where": "nonsense ="},
        {"query": texts[3], "where": 'source == "nowhere"'}, {"query": {"prompt": "p", "response": " "}},
        {"query": {"key": "unknown"}}, {"query": texts[4], "index": 7},
    ]  # fmt: skip
    made: list[TopRequest | ExampleRequest] = [TopRequest.model_validate(one) for one in plain + filtered + others]
    return [*made, ExampleRequest.model_validate({"row": 3, "query": texts[4]}), ExampleRequest(row=2)]


def answered(explorer: Explorer, asked: TopRequest | ExampleRequest) -> Any:
    try:
        return questions.top(explorer, asked) if isinstance(asked, TopRequest) else questions.example(explorer, asked)
    except AirRepError as error:
        return str(error)


@pytest.mark.parametrize("recipe", [None, "text"])
def test_answers_made_together_are_those_made_alone(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    corpus: Corpus,
    index: airrep.Index,
    queries: Corpus,
    recipe: str | None,
) -> None:
    if recipe is not None:
        index = airrep.build_index(corpus, tmp_path / recipe, recipe=recipe, shard_rows=16)
    requests, passes = top_requests(queries), list[int]()
    alone = [answered(Explorer(index), one) for one in requests]
    explorer, ends_of = Explorer(index), served.ends_of

    def counted(asked: Any, *how: Any) -> Any:
        passes.append(len(asked))
        return ends_of(asked, *how)

    monkeypatch.setattr(served, "ends_of", counted)
    questions.rank_together(explorer, requests)
    assert sorted(passes) == [3, 5], "a pass for each filter of several questions, each query once"
    together = [answered(explorer, one) for one in requests]
    told = [[{**one, "helped": None, "harmed": None, "queries": None} if "hits" not in one else one
             for one in some if isinstance(one, dict)] for some in (alone, together)]  # fmt: skip
    assert told[0] == told[1]
    assert [one for one in alone if isinstance(one, str)] == [one for one in together if isinstance(one, str)]
    assert len(passes) < 2 + len(requests)


def test_the_first_question_finds_what_verdicts_compare(monkeypatch: pytest.MonkeyPatch, index: airrep.Index) -> None:
    explorer = Explorer(index)
    explorer.prepare()

    def late(*_: object) -> None:
        raise AssertionError("measured while somebody waits")

    monkeypatch.setattr(chance, "_measured", late)
    found = questions.top(explorer, TopRequest.model_validate({"query": {"prompt": "p", "response": "answer 3"}}))
    assert found["verdict"] is not None
