"""Select: diverse, within quotas and budgets, against a plain greedy choice."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from worlds.small_world import make_corpus
from worlds.tiny_bert import tiny_folder

import airrep
from airrep.corpus.corpus import Example
from airrep.errors import ConfigError
from airrep.index import selection
from airrep.index.selection import CANDIDATES, value_of


def ranking(index: airrep.Index, queries: airrep.Corpus) -> list[int]:
    return [pick.row for pick in airrep.select(index, queries, len(index))]


def stored(index: airrep.Index) -> np.ndarray:
    features = np.concatenate([np.asarray(block.features, np.float64) for block in index.blocks(index.method)])
    return features / np.linalg.norm(features, axis=1, keepdims=True)


@pytest.mark.parametrize("diversity", [0.0, 0.2, 0.5, 0.9])
def test_diversity_equals_a_plain_greedy_choice(index: airrep.Index, diversity: float) -> None:
    queries = make_corpus(3, "q")
    order, units, count = ranking(index, queries), stored(index), 4
    candidates, chosen, redundancies = order[: CANDIDATES * count], [], []
    for _ in range(count):
        best = None
        for place, row in enumerate(candidates):
            if row in chosen:
                continue
            alike = max([0.0, *(float(units[row] @ units[other]) for other in chosen)])
            worth = 1 - np.log(1 + place) / np.log(1 + len(index))
            score = (1 - diversity) * worth - diversity * alike
            if best is None or score > best[0] + 1e-9:
                best = (score, row, alike)
        assert best is not None
        chosen.append(best[1])
        redundancies.append(best[2])
    found = airrep.select(index, queries, count, diversity=diversity, tokens=10**9)
    assert [pick.row for pick in found] == chosen
    if diversity:
        np.testing.assert_allclose([pick.redundancy for pick in found], redundancies, atol=1e-5)
    else:
        assert chosen == order[:count]
        assert {pick.redundancy for pick in found} == {None}


@pytest.mark.parametrize("kept", ["tfidf", "airrep"])
def test_channels_without_weight_do_not_tell_what_is_alike(tmp_path: Path, kept: str) -> None:
    encoder = str(tiny_folder(tmp_path / "encoder"))
    corpus, queries = make_corpus(40), make_corpus(3, "q")
    made = [
        {"method": "tfidf"},
        {"method": "ngram"},
        {"method": "airrep", "settings": {"encoder": encoder}},
        {"method": "airrep", "settings": {"encoder": encoder, "view": "response"}},
    ]
    recipe = [next(one for one in made if one["method"] == kept)]
    built = airrep.build_index(corpus, tmp_path / "all", "channels", settings={"channels": made})
    alone = airrep.build_index(corpus, tmp_path / "one", "channels", settings={"channels": recipe})
    asked = airrep.Index(built.path, airrep.make_attributor("channels", {"channels": recipe}))
    found, wanted = (airrep.select(one, queries, 8, diversity=0.5) for one in (asked, alone))
    assert [pick.row for pick in found] == [pick.row for pick in wanted]
    np.testing.assert_allclose([a.redundancy for a in found], [a.redundancy for a in wanted], atol=1e-5)


def test_diversity_leaves_out_repeats(tmp_path: Path) -> None:
    """Of 30 copies of the best example one is enough; words alone, so features are sparse."""
    copies = [Example("where is the big river", f"in the north {'!' * n}", f"copy{n}") for n in range(30)]
    others = [Example(f"where is the river number {n}", f"place {n}", f"o{n}") for n in range(20)]
    corpus = airrep.Corpus.from_examples([*copies, *others])
    queries = [Example("where is the big river", "in the north", "q")]
    for method in ("tfidf", "channels"):
        channels = {"channels": [{"method": "tfidf"}]} if method == "channels" else {}
        attributor = airrep.make_attributor(method, channels)
        index = airrep.build_index(corpus, tmp_path / method, attributor, shard_rows=16)
        plain = airrep.select(index, queries, 10)
        assert all(pick.example.id.startswith("copy") for pick in plain)
        diverse = airrep.select(index, queries, 10, diversity=0.6)
        assert diverse[0].example.id == "copy0"
        assert sum(pick.example.id.startswith("copy") for pick in diverse) == 1


def test_quotas_hold_and_the_best_within_them_are_picked(index: airrep.Index) -> None:
    queries = make_corpus(3, "q")
    order = ranking(index, queries)
    found = airrep.select(index, queries, 12, by="label", most=4)
    taken: Counter[str | None] = Counter()
    expected = []
    for row in order:
        label = index.example(row).label
        if taken[label] < 4:
            expected.append(row)
            taken[label] += 1
    assert [pick.row for pick in found] == expected
    named = airrep.select(index, queries, 17, by="source", most={"forum": 1, "books": 0})
    assert Counter(pick.example.source for pick in named) == {"forum": 1, None: 16}


def test_quotas_that_cannot_be_met_are_told(index: airrep.Index) -> None:
    queries = make_corpus(3, "q")
    with pytest.raises(ConfigError, match="select: the quotas allow no example"):
        airrep.select(index, queries, count=1, by="source", most=0)
    with pytest.raises(ConfigError, match=r"count is 13, but the quotas \(at most 4 of each label\) allow only 12 of"):
        airrep.select(index, queries, 13, by="label", most=4)
    with pytest.raises(ConfigError, match=r"the quotas \(by source\) allow only \d+ of .*, or raise the quotas"):
        airrep.select(index, queries, len(index), by="source", most={"forum": 1})
    with pytest.raises(ConfigError, match=rf"only {len(index)} examples can be chosen"):
        airrep.select(index, queries, len(index) + 1, by="label", most=len(index))
    with pytest.raises(ConfigError, match="has no field 'tag'"):
        airrep.select(index, queries, 3, by="tag", most=4)


def test_budgets_end_before_they_are_exceeded(index: airrep.Index) -> None:
    queries = make_corpus(3, "q")
    order = ranking(index, queries)

    def words(row: int) -> int:
        example = index.example(row)
        return len(example.prompt.split()) + len(example.response.split())

    for budget in (5, 23, 60, 10**6):
        found = airrep.select(index, queries, tokens=budget, tokenizer="words")
        total, expected = 0, []
        for row in order:
            total += words(row)
            if total > budget:
                break
            expected.append(row)
        assert [pick.row for pick in found] == expected
        assert [pick.tokens for pick in found] == [words(row) for row in expected]
    assert len(airrep.select(index, queries, 2, tokens=10**6)) == 2
    with pytest.raises(ConfigError, match="the first example has 5 tokens, the budget is 4"):
        airrep.select(index, queries, tokens=4, tokenizer="words")
    with pytest.raises(ConfigError, match="tokenizer works only with tokens"):
        airrep.select(index, queries, 2, tokenizer="words")


def test_what_was_asked_for_stands_beside_the_reason(index: airrep.Index, tmp_path: Path) -> None:
    queries = make_corpus(3, "q")
    plain, rich = (airrep.select(index, queries, 3, **more) for more in ({}, {"diversity": 0.1, "tokens": 999}))
    assert list(plain[0].to_dict()["selected_by"]) == ["query", "rank", "score", "row"]
    assert list(rich[0].to_dict()["selected_by"]) == ["query", "rank", "score", "row", "redundancy", "tokens"]
    assert len(airrep.read_corpus(rich.write(tmp_path / "picked.jsonl"))) == 3


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"diversity": 1.0}, "diversity is 1.0"),
        ({"diversity": float("nan")}, "diversity is nan"),
        ({"by": "source"}, "by=.* and most=.* only together"),
        ({"most": 3}, "by=.* and most=.* only together"),
        ({"by": "source", "most": -1}, "the quota of each value is negative"),
        ({"by": "source", "most": {"forum": -1}}, "the quota of 'forum' is negative"),
        ({"by": "source", "most": {"Forum": 1}}, "a quota of 1 for source 'Forum', but no example"),
        ({"tokens": 0}, "the budget is 0 tokens"),
        ({"count": "3"}, "select: count is '3', but must be a whole number"),
        ({"count": 3.0, "diversity": 0.5}, r"select: count is 3\.0, but must be a whole number"),
        ({"where": 3}, "where: is 3, but must be text"),
        ({"count": None}, "give a count, a budget of tokens, or both"),
        ({"tokens": 9, "tokenizer": "/nowhere"}, "tokenizer"),
    ],
)
def test_bad_questions_are_told(index: airrep.Index, more: dict[str, object], words: str) -> None:
    with pytest.raises(airrep.AirRepError, match=words):
        airrep.select(index, make_corpus(3, "q"), **{"count": 3, **more})


def test_values_fall_with_the_logarithm_of_the_place() -> None:
    np.testing.assert_allclose(value_of(np.array([0, 9, 99]), 99), [1, 0.5, 0])


def test_a_budget_reads_more_candidates_as_it_needs_them(index: airrep.Index, monkeypatch: pytest.MonkeyPatch) -> None:
    queries = make_corpus(3, "q")
    wanted = airrep.select(index, queries, tokens=10**6, tokenizer="words")
    monkeypatch.setattr(selection, "FIRST", 1)
    monkeypatch.setattr(selection, "CANDIDATES", 2)
    assert airrep.select(index, queries, tokens=10**6, tokenizer="words") == wanted
    asked: list[int] = []
    inside = selection.Chooser._grow
    monkeypatch.setattr(selection.Chooser, "_grow", lambda self, count: (asked.append(count), inside(self, count))[1])
    airrep.select(index, queries, tokens=23, tokenizer="words")
    assert max(asked) < len(index), "no more than the budget asks for"
