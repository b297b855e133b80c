"""Indexes of methods that keep no features: every question has the answer that stored features give."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from worlds.small_world import HashAttributor, make_corpus
from worlds.tiny_lms import tiny_lm

import airrep
from airrep.attributors.base import OnRows, sample_of
from airrep.attributors.conformance import check_attributor
from airrep.attributors.direct import DirectAttributor, InMemory, RecentScores
from airrep.attributors.recipes import read_channels
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import ArtifactError, ConfigError
from airrep.explorer.explorer import ServedIndex
from airrep.index.contrast import Question
from airrep.labels.labels import LabelledInstance
from airrep.runtime.seeding import stream
from airrep.runtime.settings import Settings
from airrep.scoring.asked import score_all
from airrep.scoring.groups import Groups
from airrep.scoring.topk import top_k


class DirectHash(DirectAttributor):
    """The scores of :class:`HashAttributor`, as its index stores features, without features."""

    name = "direct_hash"
    pool = "attention"

    def __init__(self) -> None:
        self.inside = HashAttributor()
        self.passed: list[tuple[str, int]] = []

    @property
    def settings(self) -> Settings:
        return Settings()

    @property
    def fingerprint(self) -> str:
        return self.inside.fingerprint

    def score(self, train: Sequence[Example], queries: Sequence[Example], on_rows: OnRows | None = None) -> np.ndarray:
        self.passed += [(one.id, len(queries)) for one in train]
        if on_rows is not None:
            on_rows(len(train))
        stored = self.inside.encode_train(train).astype(np.float16).astype(np.float64)
        found: np.ndarray = stored @ self.inside.encode_queries(queries).astype(np.float64).T
        return found.astype(np.float32)


@pytest.fixture
def direct(tmp_path: Path, corpus: Corpus) -> airrep.Index:
    return airrep.build_index(corpus, tmp_path / "direct", DirectHash(), shard_rows=16)


def passed(index: airrep.Index) -> list[tuple[str, int]]:
    assert isinstance(index.attributor, DirectHash)
    return index.attributor.passed


def test_the_attributor_keeps_its_promises() -> None:
    check_attributor(DirectHash)


def test_top_and_scores(index: airrep.Index, direct: airrep.Index, queries: Corpus) -> None:
    for asked in ({"k": 7}, {"k": 3, "least": True}, {"k": 4, "where": "year > 2001"}):
        for one, other in zip(index.top(queries, **asked), direct.top(queries, **asked), strict=True):
            assert [hit.row for hit in one] == [hit.row for hit in other]
            np.testing.assert_allclose([hit.score for hit in one], [hit.score for hit in other], rtol=1e-5)
    found, expected = (one.scores(queries) for one in (direct, index))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_a_query_is_scored_once(direct: airrep.Index, queries: Corpus) -> None:
    direct.top(queries[:3])
    assert passed(direct) == [(f"e{n}", 3) for n in range(50)]
    direct.top(queries[0])
    direct.group_scores(queries[:2], by="source")
    assert len(passed(direct)) == 50
    direct.top(queries)
    assert passed(direct)[50:] == [(f"e{n}", 2) for n in range(50)]


def test_scores_of_old_questions_are_dropped_and_never_missed(
    direct: airrep.Index, queries: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct, "_recent", RecentScores(3 * direct.rows))
    first = direct.ask(queries[:2])
    wanted = [hit.score for hit in direct.top(queries[0])]
    for query in queries[2:5]:
        direct.top(query)
    scores = score_all(first)  # what was asked keeps its own
    assert sorted(scores[0], reverse=True)[: len(wanted)] == pytest.approx(wanted)
    seen = len(passed(direct))
    direct.top(queries)  # more than are held, all of one question
    assert len(passed(direct)) == seen + 50
    assert [hit.score for hit in direct.top(queries[0])] == wanted


def test_threads_keep_each_other_s_scores(
    direct: airrep.Index, queries: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airrep.index.index.HELD", 1)
    asked = direct.ask(queries[:2])
    other = threading.Thread(target=lambda: direct.top(queries[2:5]))
    other.start()
    other.join()
    assert top_k(asked, 1).scores.shape == (2, 1)


def test_a_served_index_keeps_the_scores_of_its_file(
    direct: airrep.Index, queries: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airrep.index.index.HELD", 1)
    served, file = ServedIndex(direct), Question(list(queries))
    wanted = [served.score_row(served.ask(queries[:1]), 3), served.score_row(served.ask_file(file), 3)]
    served.top(queries[4:7])
    assert served.score_row(served.ask(queries[:1]), 3) == wanted[0]
    served.top(Corpus.from_examples([Example("a", "typed in", "query")]))
    np.testing.assert_array_equal(served.score_row(served.ask_file(file), 3), wanted[1])


@pytest.mark.parametrize("pool", [None, "sum", "mean", "attention", "signed-attention"])
def test_groups_and_what_if(index: airrep.Index, direct: airrep.Index, queries: Corpus, pool: str | None) -> None:
    one, other = (each.group_scores(queries, by="source", pool=pool) for each in (index, direct))
    np.testing.assert_allclose(other.scores, one.scores, rtol=1e-4, atol=1e-5)
    one, other = (each.what_if(queries, remove="source == 'forum'", pool=pool) for each in (index, direct))
    np.testing.assert_allclose(other.change, one.change, rtol=1e-3, atol=1e-5)


def test_select_top_and_mix(index: airrep.Index, direct: airrep.Index, queries: Corpus) -> None:
    picked = [[pick.row for pick in airrep.select(each, queries, 9)] for each in (index, direct)]
    assert picked[0] == picked[1]
    told = [airrep.top(each, queries, k=4) for each in (index, direct)]
    for one, other in zip(*told, strict=True):
        assert [hit.row for hit in one] == [hit.row for hit in other]
    mixed = [airrep.mix(each, queries, top=0.2).sources for each in (index, direct)]
    assert [(one.name, one.weight) for one in mixed[0]] == [(one.name, one.weight) for one in mixed[1]]


def test_append_delete_compact_verify_and_reopen(index: airrep.Index, direct: airrep.Index, queries: Corpus) -> None:
    more = make_corpus(9, "more")
    for each in (index, direct):
        each.append(more)
        each.delete(["e3", "more2"])
    one, other = (airrep.Index(each.path, each.attributor) for each in (index, direct))
    assert [[hit.example.id for hit in hits] for hits in one.top(queries, k=57)] == [
        [hit.example.id for hit in hits] for hits in other.top(queries, k=57)
    ]
    assert "e3" not in {name for name, _ in passed(other)[-57:]}
    other.compact()
    other = airrep.Index(direct.path, direct.attributor)
    assert [hit.example.id for hit in other.top(queries[0], k=57)] == [
        hit.example.id for hit in one.top(queries[0], k=57)
    ]
    assert other.empty == 0
    other.verify()


def test_both_sides_at_once(index: airrep.Index, corpus: Corpus, queries: Corpus) -> None:
    method = DirectHash()
    asked = method.ask(queries, InMemory.of(method, corpus))
    np.testing.assert_allclose(score_all(asked), index.scores(queries), rtol=1e-5, atol=1e-5)


def test_diversity_needs_features(direct: airrep.Index, queries: Corpus) -> None:
    with pytest.raises(ConfigError, match="direct_hash stores no features"):
        airrep.select(direct, queries, 5, diversity=0.5)


def test_evaluation_is_that_of_stored_features(index: airrep.Index, direct: airrep.Index, queries: Corpus) -> None:
    generator = np.random.default_rng(0)
    subsets = Groups.from_lists({str(n): np.sort(generator.choice(50, 9, replace=False)) for n in range(12)})
    losses = generator.normal(size=(5, 12)).astype(np.float32)
    asked = (make_corpus(5, "tuned"), queries)
    instances = [LabelledInstance(str(n), make_corpus(50), one, subsets, losses) for n, one in enumerate(asked)]
    found = airrep.evaluate_lds([index, direct], instances[1:], tune=instances[:1], resamples=20, names=["a", "b"]).rows
    assert found[0].value == pytest.approx(found[1].value, abs=1e-3)


@pytest.fixture(scope="module")
def lm(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_lm(tmp_path_factory.mktemp("direct") / "lm"))


def channels(lm: str, relative: bool) -> dict[str, Any]:
    ekfac = {"method": "ekfac", "settings": {"lm": lm, "precision": "float32"}, "weight": 2.0, "name": "gradients"}
    counts = {"method": "ngram", "settings": {"tokenizer": "words"}, "name": "counts"}
    return {"channels": [counts, {**ekfac, "relative": relative}, {"method": "tfidf", "weight": 0.5, "name": "words"}]}


def singles(folder: Path, corpus: Corpus, settings: dict[str, Any]) -> list[airrep.Index]:
    """An index of each channel's method."""
    return [
        airrep.build_index(corpus, folder / one["name"], one["method"], settings=one.get("settings", {}))
        for one in settings["channels"]
    ]


def test_a_channel_may_keep_no_features(tmp_path: Path, lm: str, corpus: Corpus, queries: Corpus) -> None:
    settings = channels(lm, relative=False)
    airrep.build_index(corpus, tmp_path / "sum", "channels", settings=settings, shard_rows=16)
    index = airrep.Index(tmp_path / "sum")
    parts, weights = singles(tmp_path, corpus, settings), (1.0, 2.0, 0.5)
    single = [part.scores(queries) for part in parts]
    for place, hits in enumerate(index.top(queries, 4, why=True)):
        for hit in hits:
            assert sum(hit.why.channels.values()) == pytest.approx(hit.score, rel=1e-4, abs=1e-6)
            for scores, weight, own in zip(single, weights, hit.why.channels.values(), strict=True):
                assert own == pytest.approx(weight * scores[place, hit.row], rel=1e-3, abs=1e-6)
    found = index.group_scores(queries, by="source", why=True)
    for part, weight, own in zip(parts, weights, found.channels.values(), strict=True):
        np.testing.assert_allclose(own, weight * part.group_scores(queries, by="source").scores, rtol=1e-3, atol=1e-5)
        assert own.std() > 0
    np.testing.assert_allclose(sum(found.channels.values()), found.scores, rtol=1e-4, atol=1e-5)


def test_both_readings_of_gradients_stand_in_one_sum(tmp_path: Path, lm: str, corpus: Corpus, queries: Corpus) -> None:
    whole = read_channels("lm-whole")
    recipes = {
        "none": "text",
        "logra": "lm",
        "both": "lm-whole",
        "ekfac": [one for one in whole if one.method != "logra"],
    }
    read = {"lm": lm, "precision": "float32"}
    indexes = {
        how: airrep.build_index(corpus, tmp_path / how, recipe=recipe, settings=read) for how, recipe in recipes.items()
    }
    found = {how: one.group_scores(queries, by="source", why=True) for how, one in indexes.items()}
    parts = found["both"].channels
    np.testing.assert_allclose(sum(parts.values()), found["both"].scores, rtol=1e-4, atol=1e-5)
    text = found["none"].scores
    for how, name in (("logra", "gradients"), ("ekfac", "whole gradients")):
        np.testing.assert_allclose(parts[name], found[how].scores - text, rtol=1e-3, atol=1e-4)
        assert parts[name].std() > 0
    for hits in indexes["both"].top(queries, 4, why=True):
        for hit in hits:
            assert sum(hit.why.channels.values()) == pytest.approx(hit.score, rel=1e-4, abs=1e-5)


def test_a_channel_that_learns_slowly_reports_it(tmp_path: Path, lm: str, corpus: Corpus) -> None:
    seen: list[tuple[int, int]] = []
    chosen = {"channels": [{"method": "tfidf"}, {"method": "logra", "settings": {"lm": lm, "rank": 2, "sample": 7}}]}
    airrep.build_index(corpus, tmp_path / "sum", "channels", settings=chosen, progress=lambda *one: seen.append(one))
    totals = [total for _, total in seen]
    assert totals[0] == 7
    assert (7, 7) in seen
    assert seen[-1] == (50, 50)


def test_a_channel_without_weight_is_not_computed(
    tmp_path: Path, lm: str, corpus: Corpus, queries: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = channels(lm, relative=True)
    airrep.build_index(corpus, tmp_path / "sum", "channels", settings=settings)
    monkeypatch.setattr("airrep.attributors.gradient.ekfac.EkfacAttributor.score", lambda *_: pytest.fail("asked"))
    text = {"channels": [settings["channels"][0], settings["channels"][2]]}
    index = airrep.Index(tmp_path / "sum", airrep.make_attributor("channels", text))
    expected = airrep.build_index(corpus, tmp_path / "text", "channels", settings=text)
    scores = [each.group_scores(queries, by="source").scores for each in (index, expected)]
    np.testing.assert_allclose(*scores, rtol=1e-5)


def test_a_relative_channel_may_keep_no_features(tmp_path: Path, lm: str, corpus: Corpus, queries: Corpus) -> None:
    """Whatever the size of its scores, they come in at the deviation of the others, less what those say."""
    settings = channels(lm, relative=True)
    airrep.build_index(corpus, tmp_path / "sum", "channels", settings=settings, shard_rows=16)
    index = airrep.Index(tmp_path / "sum")
    drawn = np.array(
        [corpus.ids.to_pylist().index(one) for one in sample_of(corpus, 256, 0).ids.to_pylist()]
    )  # all 50, in their order
    members = [drawn[stream(0, "channels", "groups", n).permutation(50)[:12]] for n in range(64)]
    parts = singles(tmp_path, corpus, settings)
    counts, gradients, words = (part.group_scores(queries, members).scores.astype(np.float64) for part in parts)
    others = counts + 0.5 * words
    shared = [np.corrcoef(ours, theirs)[0, 1] for ours, theirs in zip(others, gradients, strict=True)]
    sizes = (1 - np.array(shared)) * others.std(axis=1) / gradients.std(axis=1)
    found = index.group_scores(queries, by="source", why=True).channels
    alone = parts[1].group_scores(queries, by="source").scores
    np.testing.assert_allclose(found["gradients"], 2 * sizes[:, None] * alone, rtol=2e-3, atol=1e-6)
    kept = tmp_path / "sum" / "state" / "reference.jsonl"
    kept.write_bytes(b"{" * kept.stat().st_size)
    with pytest.raises(ArtifactError, match=r"reference.jsonl: was altered"):
        airrep.Index(tmp_path / "sum").top(queries, 1)
