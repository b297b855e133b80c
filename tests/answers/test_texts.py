"""Parts of one record have one key; all other examples have their own."""

import random

import airrep
from airrep.answers.texts import RecordKeys
from airrep.corpus.corpus import Corpus, Example

TALK = ["Hello there", "Hi, what is it?", "How far is it?", "Four miles.", "And back?", "Four again."]


def chat(talk: list[str], system: str | None = None, **own: str) -> dict[str, object]:
    said = [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(talk)]
    return {"messages": [*([{"role": "system", "content": system}] if system else []), *said], **own}


def groups(examples: Corpus | list[Example]) -> list[int]:
    keys = RecordKeys()
    found = [keys.of(example) for example in examples]
    return [found.index(key) for key in found]


def test_turns_of_a_chat_have_one_key_with_and_without_ids() -> None:
    for ids in ({"id": "a/b"}, {}):
        records = [chat(TALK, **ids), chat(TALK[2:]), chat(TALK, "Be brief."), chat(TALK[:2])]
        corpus = airrep.Corpus.from_records(records, turns="all")
        assert groups(corpus) == [0, 0, 0, 3, 3, 5, 5, 5, 8]
    shuffled = list(corpus)
    random.Random(1).shuffle(shuffled)
    assert len(set(groups(shuffled))) > 4  # hashes tell nothing; only neighbours are joined


def test_turns_with_pasted_transcripts_have_one_key() -> None:
    pasted = "User: a\nAssistant: b\nUser: c"
    records = [
        chat([first, "As said:\nUser: a", "Why?", "So."], system) for first in ("a", pasted) for system in ("s", None)
    ]
    assert groups(airrep.Corpus.from_records(records, turns="all")) == [0, 0, 2, 2, 4, 4, 6, 6]


def test_responses_of_a_pair_have_one_key_with_and_without_ids() -> None:
    pair = {"prompt": "Why?", "chosen": "Because it is so.", "rejected": "Because it is."}
    for ids in ([{"id": "x"}, {"id": "y"}], [{}, {}]):
        corpus = airrep.Corpus.from_records([{**pair, **own} for own in ids], preferences="both")
        assert groups(corpus) == [0, 0, 2, 2]


def test_ids_with_a_slash_alone_tell_of_no_record() -> None:
    examples = [Example("p", "r", "a/1"), Example("p", "r", "a/2"), Example("p", "r", "a/3", metadata={"turn": 4})]
    assert groups(examples) == [0, 1, 2]
