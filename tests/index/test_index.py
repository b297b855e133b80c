"""Index: built, resumed, asked, changed, verified."""

import json
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from reference import group_influence
from reference.pooling import pool_attention
from scipy import sparse
from worlds.small_world import HashAttributor, make_corpus, tree

import airrep
from airrep.answers.together import top_of_set
from airrep.arrays import DenseFeatures
from airrep.attributors.base import OnProgress, OnRows, SlowFit, count_rows
from airrep.attributors.methods import make_attributor
from airrep.errors import ArtifactError, ConfigError, DataError
from airrep.index.encoding import without_texts
from airrep.index.results.result import Provenance
from airrep.index.rows import IndexRows
from airrep.runtime.artifacts import MANIFEST, locked, read_manifest, write_manifest
from airrep.scoring.asked import score_blocks
from airrep.scoring.contrast import contrast_scores


def features(corpus: airrep.Corpus) -> np.ndarray:
    return HashAttributor().encode_train(corpus).astype(np.float64)


def test_top_equals_sorting_all_scores(index: airrep.Index, corpus: airrep.Corpus, queries: airrep.Corpus) -> None:
    scores = features(queries) @ features(corpus).T
    for least in (False, True):
        result = index.top(queries, k=7, least=least)
        for row, hits in zip(scores, result, strict=True):
            order = np.argsort(row if least else -row, kind="stable")[:7]
            assert [hit.row for hit in hits] == order.tolist()
            np.testing.assert_allclose([hit.score for hit in hits], row[order], rtol=2e-3)
            assert [hit.rank for hit in hits] == list(range(1, 8))
            assert [hit.example for hit in hits] == [corpus[int(number)] for number in order]


def test_results_know_where_they_come_from(index: airrep.Index, queries: airrep.Corpus) -> None:
    single = index.top(queries[0], k=2)
    assert single.provenance == Provenance("hash", index.fingerprint, rows=50)
    assert single.provenance.sign == "higher = more helpful"
    assert single.query == queries[0]
    assert index.group_scores(queries, "source").provenance.pool == "attention"
    assert index.group_scores(queries, "source", "sum").provenance.pool == "sum"


def test_group_scores_are_their_definition(index: airrep.Index, corpus: airrep.Corpus, queries: airrep.Corpus) -> None:
    scores = features(queries) @ features(corpus).T
    labels = [example.label for example in corpus]
    result = index.group_scores(queries, "label")
    assert result.names == ("label 0", "label 1", "label 2")
    assert sum(result.sizes) == 50
    for group, name in enumerate(result.names):
        members = [row for row, label in enumerate(labels) if label == name]
        expected = [pool_attention(row[members]) for row in scores]
        np.testing.assert_allclose(np.asarray(result)[:, group], expected, rtol=5e-3)
    assert [name for name, _ in result.ranked(0)] == [
        result.names[group] for group in np.argsort(-result.scores[0], kind="stable")
    ]


@pytest.mark.parametrize(("pool", "temperature"), [("mean", 1.0), ("attention", 3.0)])
def test_any_pool_can_be_asked_for(
    index: airrep.Index, corpus: airrep.Corpus, queries: airrep.Corpus, pool: str, temperature: float
) -> None:
    result = index.group_scores(queries, {"a": range(0, 50, 3), "b": [7, 8]}, pool, temperature=temperature)
    scores = features(queries) @ features(corpus).T
    for group, rows in enumerate(([*range(0, 50, 3)], [7, 8])):
        for i, of_query in enumerate(scores[:, rows].tolist()):
            expected = np.mean(of_query) if pool == "mean" else pool_attention(of_query, temperature)
            np.testing.assert_allclose(result.scores[i, group], expected, rtol=5e-3, atol=5e-3)
    told = temperature if pool == "attention" else None
    assert (result.provenance.pool, result.provenance.temperature) == (pool, told)


def test_order_k_counts_no_deleted_examples(index: airrep.Index, corpus: airrep.Corpus, queries: airrep.Corpus) -> None:
    index.delete([1, 2])
    smaller, members = airrep.Index(index.path, HashAttributor()), [[0, 3, 4], list(range(10, 20))]
    result = smaller.group_scores(queries, members, "order-2")
    stored = features(corpus).astype(np.float16)
    expected = group_influence.group_scores(features(queries), stored, members, 48, 2)
    np.testing.assert_allclose(result.scores, expected, rtol=1e-4, atol=1e-6)
    assert result.provenance.pool == "order-2"
    assert result.provenance.units == "increase of the query's loss if the group were removed"
    assert result.provenance.caution == (
        "Scores of order-2 are in units of the loss only if features are H^(-1/2)·gradient."
    )


def test_order_k_of_a_removal_is_its_own_score(index: airrep.Index, queries: airrep.Corpus) -> None:
    removed = index.where(source="forum")
    result = index.what_if(queries, remove=removed, pool="order-3")
    expected = index.group_scores(queries, {"forum": removed}, "order-3").scores[:, 0]
    np.testing.assert_array_equal(result.before, np.zeros(len(queries)))
    np.testing.assert_array_equal(result.change, -expected)
    assert result.provenance.units == "minus increase of the query's loss if the group were removed"
    wide = index.what_if(queries, keep=removed, pool="order-3").provenance.caution
    assert wide.endswith("For groups of half the examples or more the series may not converge: use order-inf.")


class TwoSided(HashAttributor):
    """Encodes queries in another way than training examples."""

    name = "two-sided"

    def encode_queries(self, examples: Sequence[airrep.Example], on_rows: OnRows | None = None) -> DenseFeatures:
        return -self.encode_train(examples, on_rows)


def test_order_k_is_refused_where_queries_are_encoded_in_another_way(
    tmp_path: Path, corpus: airrep.Corpus, queries: airrep.Corpus
) -> None:
    assert (TwoSided().symmetric, HashAttributor().symmetric) == (False, True)
    index = airrep.build_index(corpus, tmp_path / "sides", TwoSided())
    for ask in (
        lambda: index.group_scores(queries, "source", "order-1"),
        lambda: index.what_if(queries, remove=[1], pool="order-inf"),
    ):
        with pytest.raises(ConfigError, match="pool 'order-(1|inf)' .*two-sided does not. Use sum,"):
            ask()
    assert index.group_scores(queries, "source", "mean").scores.shape == (len(queries), 3)


@pytest.mark.parametrize(
    ("pool", "temperature", "message"),
    [
        (None, None, "temperature is None"),
        (3, 1.0, "pool 3: .* does not exist; expected one of sum, mean"),
        ("order-2", 1.0, "group 'all': has all 50 training examples, but --pool order-2"),
    ],
)
def test_bad_pools_are_told(
    index: airrep.Index, queries: airrep.Corpus, pool: Any, temperature: Any, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        index.group_scores(queries, {"all": range(50)}, pool, temperature=temperature)


def test_groups_may_be_given_in_any_form(index: airrep.Index, queries: airrep.Corpus) -> None:
    rows = {"a": [0, 5, 9], "b": [1, 2]}
    by_rows = index.group_scores(queries, rows)
    by_ids = index.group_scores(queries, {name: [f"e{row}" for row in members] for name, members in rows.items()})
    by_lists = index.group_scores(queries, list(rows.values()))
    np.testing.assert_array_equal(by_rows.scores, by_ids.scores)
    np.testing.assert_array_equal(by_rows.scores, by_lists.scores)
    assert by_lists.names == ("0", "1")
    years = index.group_scores(queries, "year")
    assert years.names == ("2000", "2001", "2002", "2003", "2004")
    assert index.group_scores(queries, "source").names == ("forum", "books", "(none)")


def test_what_if_is_after_minus_before(index: airrep.Index, queries: airrep.Corpus) -> None:
    removed = index.where(source="forum")
    kept = np.setdiff1d(np.arange(50), removed)
    result = index.what_if(queries, remove=removed)
    groups = index.group_scores(queries, {"all": np.arange(50), "kept": kept}).scores
    np.testing.assert_allclose(result.change, groups[:, 1] - groups[:, 0], atol=5e-6)  # those are float32
    np.testing.assert_array_equal(np.asarray(result), np.asarray(index.what_if(queries, keep=kept)))
    assert (result.removed, result.kept) == (len(removed), len(kept))


def test_where_filters(index: airrep.Index, corpus: airrep.Corpus, queries: airrep.Corpus) -> None:
    assert index.where(source="forum").tolist() == list(range(0, 50, 3))
    assert index.where('label == "label 1" and year >= 2003').tolist() == [
        row for row in range(50) if row % 3 == 1 and row % 5 >= 3
    ]
    hits = index.top(queries[0], k=5, where='source == "books"')
    assert {hit.example.source for hit in hits} == {"books"}
    with pytest.raises(ConfigError, match="flavour"):
        index.where('flavour == "sweet"')


@pytest.mark.parametrize(
    ("shard_rows", "message"), [(0, "it must be at least 1"), ("30", "whole number"), (2.5, "whole number")]
)
def test_a_shard_of_no_whole_number_of_examples_is_refused(
    tmp_path: Path, corpus: airrep.Corpus, shard_rows: Any, message: str
) -> None:
    with pytest.raises(ConfigError, match=f"shard_rows.*{message}"):
        airrep.build_index(corpus, tmp_path / "index", HashAttributor(), shard_rows=shard_rows)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("least", "shards"), [(13, 13), (5, 7), (3, 4), (1, 4)])
def test_a_larger_corpus_gets_larger_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, corpus: airrep.Corpus, least: int, shards: int
) -> None:
    for name, value in {"SHARD_ROWS": 4, "LARGEST": 16, "SHARDS": least}.items():
        monkeypatch.setattr(f"airrep.index.building.{name}", value)
    made = airrep.build_index(corpus, tmp_path / "index", HashAttributor()).shards
    assert len(made) == shards
    assert {shard.rows for shard in made[:-1]} == {{13: 4, 7: 8, 4: 16}[shards]}


@pytest.mark.parametrize("shard_rows", [1, 7, 50, 4096])
def test_scores_do_not_depend_on_shards(
    tmp_path: Path, index: airrep.Index, corpus: airrep.Corpus, queries: airrep.Corpus, shard_rows: int
) -> None:
    other = airrep.build_index(corpus, tmp_path / "other", HashAttributor(), shard_rows=shard_rows)
    for mine, theirs in zip(index.top(queries, k=50), other.top(queries, k=50), strict=True):
        assert [(hit.row, hit.score) for hit in mine] == [(hit.row, hit.score) for hit in theirs]
    expected = index.group_scores(queries, "label").scores
    np.testing.assert_allclose(other.group_scores(queries, "label").scores, expected, rtol=1e-5)
    blocks = dict(score_blocks(other.ask(queries), block_rows=3))
    whole = np.concatenate([blocks[start] for start in sorted(blocks)], axis=1)
    np.testing.assert_allclose(whole, index.scores(queries), atol=1e-5)


def test_scores_are_an_array_of_all_rows(index: airrep.Index, queries: airrep.Corpus) -> None:
    scores = index.scores(queries)
    assert (scores.shape, scores.dtype) == ((5, 50), np.float32)
    for found, row in zip(index.top(queries, k=50), scores, strict=True):
        assert [hit.score for hit in found] == pytest.approx([float(row[hit.row]) for hit in found], rel=1e-6, abs=1e-6)
    np.testing.assert_allclose(index.scores(queries[2]), scores[2:3], atol=1e-5)
    better = [f"better {n}" for n in range(5)]
    others = [airrep.Example(query.prompt, text) for query, text in zip(queries, better, strict=True)]
    expected = contrast_scores(scores, index.scores(others))
    np.testing.assert_allclose(index.scores(queries, better=better), expected, rtol=1e-4, atol=1e-4)

    fewer = index.delete([3, 17]).scores(queries)
    assert np.flatnonzero(np.isnan(fewer).all(axis=0)).tolist() == [3, 17]
    kept = ~np.isnan(fewer)
    np.testing.assert_array_equal(fewer[kept], scores[kept])


def test_scores_follow_the_rows_when_they_are_reordered(
    tmp_path: Path, index: airrep.Index, corpus: airrep.Corpus, queries: airrep.Corpus
) -> None:
    backwards = airrep.build_index(corpus.take(np.arange(50)[::-1]), tmp_path / "b", HashAttributor(), shard_rows=16)
    mine = {hit.example.id: hit.score for hit in index.top(queries[0], k=50)}
    assert mine == {hit.example.id: hit.score for hit in backwards.top(queries[0], k=50)}


def test_whole_numbers_of_numpy_are_whole_numbers(tmp_path: Path, corpus: airrep.Corpus) -> None:
    index = airrep.build_index(corpus, tmp_path / "one", HashAttributor(), shard_rows=16)
    other = airrep.build_index(corpus, tmp_path / "other", HashAttributor(), shard_rows=np.int64(16))  # type: ignore[arg-type]
    assert tree(index.path) == tree(other.path)
    expected = index.where(year=2001)
    np.testing.assert_array_equal(index.where(year=np.int64(2001)), expected)
    np.testing.assert_array_equal(index.where(year=np.array([2001])), expected)


def test_building_again_changes_nothing(tmp_path: Path, index: airrep.Index, corpus: airrep.Corpus) -> None:
    before = tree(index.path)
    again = HashAttributor()
    airrep.build_index(corpus, index.path, again, shard_rows=16)
    assert again.encoded == []
    assert tree(index.path) == before


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"train": make_corpus(49)}, "corpus"),
        ({"method": HashAttributor("other")}, "attributor"),
        ({"shard_rows": 17}, "shard_rows"),
    ],
)
def test_other_inputs_are_refused_by_name(index: airrep.Index, corpus: airrep.Corpus, change, named: str) -> None:
    arguments = {"train": corpus, "method": HashAttributor(), "shard_rows": 16} | change
    before = tree(index.path)
    with pytest.raises(ArtifactError, match=rf"made with another {named} .*nothing is overwritten\. .*--replace"):
        airrep.build_index(out=index.path, **arguments)
    assert tree(index.path) == before
    replaced = airrep.build_index(out=index.path, replace=True, **arguments)
    assert len(replaced) == len(arguments["train"])
    replaced.verify()


class Interrupted(Exception):
    """Stands for a kill."""


class FragileAttributor(HashAttributor):
    """Fails after some shards."""

    def __init__(self, shards: int) -> None:
        super().__init__()
        self.left = shards

    def encode_train(self, examples, on_rows=None):
        self.left -= 1
        if self.left < 0:
            raise Interrupted
        return super().encode_train(examples, on_rows)


def test_interrupted_build_goes_on_where_it_stopped(tmp_path: Path, index: airrep.Index, corpus: airrep.Corpus) -> None:
    out = tmp_path / "other"
    with pytest.raises(Interrupted):
        airrep.build_index(corpus, out, FragileAttributor(2), shard_rows=16)
    assert not out.exists()
    with pytest.raises(ArtifactError, match="is unfinished"):
        airrep.Index(out)
    rest = HashAttributor()
    airrep.build_index(corpus, out, rest, shard_rows=16)
    assert rest.encoded == [f"e{row}" for row in range(32, 50)]
    assert tree(out) == tree(index.path)


def test_a_build_that_failed_before_a_first_shard_stands_in_nobodys_way(tmp_path: Path, corpus: airrep.Corpus) -> None:
    with pytest.raises(Interrupted):
        airrep.build_index(corpus, tmp_path / "index", FragileAttributor(0), shard_rows=16)
    assert (tmp_path / "index.partial").is_dir()
    assert len(airrep.build_index(corpus[:20], tmp_path / "index", HashAttributor(), shard_rows=8)) == 20


def test_unfinished_build_of_other_data_is_not_mixed_in(tmp_path: Path, corpus: airrep.Corpus) -> None:
    out = tmp_path / "other"
    with pytest.raises(Interrupted):
        airrep.build_index(corpus, out, FragileAttributor(2), shard_rows=16)
    with pytest.raises(ArtifactError, match="holds an unfinished index of other data or settings"):
        airrep.build_index(make_corpus(20, "x"), out, HashAttributor(), shard_rows=16)
    built = airrep.build_index(make_corpus(20, "x"), out, HashAttributor(), shard_rows=16, replace=True)
    assert len(list((out / "shards").iterdir())) == 2
    built.verify()


def test_a_damaged_shard_of_a_build_is_made_again(tmp_path: Path, index: airrep.Index, corpus: airrep.Corpus) -> None:
    out = tmp_path / "other"
    with pytest.raises(Interrupted):
        airrep.build_index(corpus, out, FragileAttributor(2), shard_rows=16)
    flip(next((tmp_path / "other.partial/shards").glob("0000000016-*/*/features.npy")), -1)
    airrep.build_index(corpus, out, HashAttributor(), shard_rows=16)
    assert tree(out) == tree(index.path)


def flip(path: Path, position: int, bits: int = 1) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= bits
    path.write_bytes(content)


def test_append_delete_compact(index: airrep.Index, corpus: airrep.Corpus, queries: airrep.Corpus) -> None:
    more = make_corpus(20, "more")
    grown = index.append(more)
    assert (len(grown), grown.rows) == (70, 70)
    assert grown.example(50) == more[0]
    assert len(index) == 50
    smaller = grown.delete(grown.where(source="forum"))
    assert len(smaller) == 70 - 17 - 7
    assert all(hit.example.source != "forum" for hit in smaller.top(queries[0], k=len(smaller)))
    scores = {hit.example.id: hit.score for hit in smaller.top(queries[0], k=len(smaller))}
    compacted = smaller.compact()
    assert compacted.rows == len(compacted) == len(smaller)
    assert {hit.example.id: hit.score for hit in compacted.top(queries[0], k=len(compacted))} == scores
    assert len(list((index.path / "shards").iterdir())) == 3
    assert list(index.path.glob("deleted-*")) == []
    compacted.verify()


def test_append_twice_adds_once(index: airrep.Index) -> None:
    more = make_corpus(20, "more")
    first = index.append(more)
    before = tree(index.path)
    assert len(first.append(more)) == 70
    assert tree(index.path) == before
    told = r"example 'e0' is already in the index, but not all of these 60 examples are \(row 0\)"
    with pytest.raises(DataError, match=told):
        first.append(make_corpus(60))
    changed = airrep.Corpus.from_examples([airrep.Example("other", "text", id="e3")])
    with pytest.raises(DataError, match=r"example 'e3' is already in the index with other texts"):
        first.append(changed)
    assert tree(index.path) == before


def test_interrupted_append_leaves_the_index_whole(index: airrep.Index) -> None:
    more = make_corpus(40, "more")
    before = index.top(more[0], k=3)
    with pytest.raises(Interrupted):
        airrep.Index(index.path, FragileAttributor(2)).append(more)
    now = airrep.Index(index.path, HashAttributor())
    now.verify()
    assert now.top(more[0], k=3) == before
    rest = HashAttributor()
    airrep.Index(index.path, rest).append(more)
    assert len(rest.encoded) == 10  # the last of three shards; the first fills up the small one before it


def test_deleted_examples_may_come_back(index: airrep.Index) -> None:
    smaller = index.delete(index.rows_of(["e1", "e2"]))
    with pytest.raises(ConfigError, match="has no example with id 'e1'"):
        smaller.rows_of(["e1"])
    again = smaller.append(make_corpus(3)[1:])
    assert again.rows_of(["e1"]).tolist() == [50]
    with pytest.raises(ConfigError, match="must keep at least one example"):
        again.delete(range(again.rows))


def test_where_fewer_fulfil_the_filter_all_are_given(index: airrep.Index, queries: airrep.Corpus) -> None:
    every = index.top(queries[0], k=1000)
    assert len(every) == len(index)
    some = index.where('source == "books"')
    found = index.top(queries[0], k=len(some) + 1, where='source == "books"')
    assert sorted(hit.row for hit in found) == some.tolist()
    for ask in (top_of_set, airrep.top):
        result = ask(index, queries, k=1000)
        assert result.to_dict() == ask(index, queries, k=len(index)).to_dict()


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ('source == "Boks"', "Did you mean 'books'?"),
        ('label == "label 0" and source in ["zzz"]', "source holds (books|forum), (books|forum)."),
        ("year > 3000", "year holds [0-9]+, "),
        ('year > 3000 and source == "Boks"', "Did you mean 'books'?"),
        ('source != "Books" and source == "zzz"', "source holds (books|forum), "),
        ('not (source not in ["Boks"])', "Did you mean 'books'?"),
        ('not (source != "books") and source != "books"', "Choose another filter"),
        ('source == "books" and source == "forum"', "Choose another filter"),
    ],
)
def test_a_filter_that_nothing_matches_names_what_is_there(index: airrep.Index, where: str, told: str) -> None:
    asks = (index.top, partial(airrep.top, index), partial(top_of_set, index), partial(airrep.audit, index))
    for ask in asks:
        with pytest.raises(ConfigError, match=f"no example matches. {told}".replace("?", "[?]")):
            ask([index.example(0)], where=where)  # type: ignore[operator]
    with pytest.raises(ConfigError, match=told.replace("?", "[?]")):
        index.check_rows(where)


def test_bad_questions_are_told(index: airrep.Index, queries: airrep.Corpus) -> None:
    asks: tuple[tuple[Callable[[], object], str], ...] = (
        (lambda: index.top(queries, k=0), "top: k is 0; expected at least 1"),
        (lambda: index.top(queries, k=1.5), r"top: k is 1\.5, but must be a whole number"),
        (lambda: index.top([], k=1), "queries: is empty"),
        (lambda: index.example(50), "has no row 50; expected 0 to 49"),
        (
            lambda: index.group_scores(queries, "flavour"),
            "has no field 'flavour'; it has id, prompt, response, label, source, year",
        ),
        (lambda: index.group_scores(queries, 3), "groups is 3; it must be a field"),  # type: ignore[arg-type]
        (lambda: index.top(queries, where=3), "where: is 3, but must be text"),  # type: ignore[call-overload]
        (lambda: index.what_if(queries), "what_if: pass exactly one"),
        (lambda: index.what_if(queries, remove=[]), "what_if: this would remove no examples"),
        (lambda: index.what_if(queries, remove=np.arange(50)), "what_if: this would remove all examples"),
        (lambda: index.delete([4]).group_scores(queries, {"a": [3, 4]}), "row 4 was deleted"),
    )
    for ask, told in asks:
        with pytest.raises(ConfigError, match=told):
            ask()


def test_rows_may_be_masks_or_ids_but_nothing_else(index: airrep.Index, queries: airrep.Corpus) -> None:
    rows = index.where(source="forum")
    expected = index.what_if(queries, remove=rows).change
    mask = index.mask(source="forum")
    ids = [index.example(int(row)).id for row in rows]
    for same in (mask, ids, rows.tolist(), iter(rows.tolist())):
        np.testing.assert_array_equal(index.what_if(queries, remove=same).change, expected)
    for wrong in ([1.7], np.array([True, False]), [[1, 2]]):
        with pytest.raises(ConfigError, match="rows must be a list of row numbers"):
            index.what_if(queries, remove=wrong)
    with pytest.raises(ConfigError, match=r"rows of ids, call rows_of\(\[id, \.\.\.\]\)"):
        index.example("e1")  # type: ignore[arg-type]
    assert index.example(np.int64(1)).id == "e1"  # type: ignore[arg-type]
    assert index.delete(mask).deleted.tolist() == rows.tolist()


def test_whole_numbers_that_are_ids_of_other_rows_are_refused(tmp_path: Path) -> None:
    records = [{"id": 10 + n, "prompt": f"question {n}", "response": f"answer {n}"} for n in range(12)]
    index = airrep.build_index(records, tmp_path / "index", HashAttributor(), shard_rows=5)
    told = r"index: 10 can mean row 10 or the id of row 0\..* text \('10'\), or pass row numbers as a NumPy array"
    for asked in ([10, 11], pd.Series([11, 10]), range(12), [np.int64(10)]):
        with pytest.raises(ConfigError, match=told if not isinstance(asked, pd.Series) else "or the id of row"):
            index.what_if("a", remove=asked)
    with pytest.raises(ConfigError, match=told):
        index.group_scores("a", {"one": [10]})
    with pytest.raises(ConfigError, match="21 can mean row 21 or the id of row 11"):
        index.delete([21])
    by_ids = index.what_if("a", remove=["10", "11"]).change[0]
    assert by_ids == index.what_if("a", remove=[0, 1]).change[0]  # no ids
    assert index.what_if("a", remove=np.array([10, 11])).change[0] != by_ids
    smaller = index.delete(["10"])
    with pytest.raises(ConfigError, match="or the id of row 0"):
        smaller.delete([10])
    assert index.example(10).id == "20"
    alike = airrep.build_index([{**one, "id": n} for n, one in enumerate(records)], tmp_path / "b", HashAttributor())
    assert alike.delete([3]).deleted.tolist() == [3]  # the id of the same row


def test_queries_may_be_any_examples(index: airrep.Index, queries: airrep.Corpus) -> None:
    expected = index.group_scores(queries, "label").scores
    np.testing.assert_array_equal(index.group_scores(list(queries), "label").scores, expected)
    np.testing.assert_allclose(index.group_scores(queries[0], "label").scores, expected[:1], rtol=1e-5)
    assert index.group_scores([queries[0], queries[0]], "label").scores.shape == (2, 3)


def test_rows_of_an_old_opening_are_not_deleted_by_mistake(index: airrep.Index) -> None:
    other = airrep.Index(index.path, HashAttributor()).delete(range(20))
    assert len(index.delete([30])) == 29
    other.compact()
    before = tree(index.path)
    with pytest.raises(ArtifactError, match=r"was compacted or built anew since it was opened.*Open it again"):
        index.delete([25])
    assert tree(index.path) == before


def test_reader_of_a_compacted_index_is_told_to_open_it_again(index: airrep.Index, queries: airrep.Corpus) -> None:
    index.delete(range(20))
    old = airrep.Index(index.path, HashAttributor())
    old.compact()
    with pytest.raises(ArtifactError, match="replaced while it was open"):
        old.top(queries, k=1)


def test_leftovers_of_an_interrupted_change_go_with_the_next(index: airrep.Index) -> None:
    """A kill may fall after a change has taken effect and before its leftovers are gone."""
    for change in (
        lambda index: index.compact(),
        lambda index: index.delete([]),
        lambda index: index.append(make_corpus(50)),
    ):
        before = tree(index.path)
        (index.path / "shards" / "0000000999-superseded").mkdir()
        (index.path / "deleted-0.npy").write_bytes(b"superseded")
        change(index)
        assert tree(index.path) == before
        assert len(list((index.path / "shards").iterdir())) == 4


def test_foreign_files_among_the_shards_do_no_harm(index: airrep.Index) -> None:
    (index.path / "shards" / ".DS_Store").write_text("not ours")
    assert len(index.delete([1])) == 49


def test_altered_sparse_index_is_an_error_and_not_a_crash(tmp_path: Path, queries: airrep.Corpus) -> None:
    index = airrep.build_index(make_corpus(20), tmp_path / "tfidf", "tfidf")
    flip(next((index.path / "shards").glob("*/*/indices.npy")), -1, 0x40)
    with pytest.raises(ArtifactError, match="was altered after it was written"):
        airrep.Index(index.path).top(queries, k=1)


def test_wrong_kinds_of_arguments_are_told(index: airrep.Index, corpus: airrep.Corpus, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="settings: cannot be combined with an Attributor"):
        airrep.build_index(corpus, tmp_path / "a", HashAttributor(), settings={"seed": 1})


def test_another_attributor_is_refused(index: airrep.Index, queries: airrep.Corpus) -> None:
    with pytest.raises(ArtifactError, match=r"was built with another model or other settings .*--replace"):
        airrep.Index(index.path, HashAttributor("other")).top(queries, k=1)
    with pytest.raises(ConfigError, match=r"was built by 'hash', which airrep does not know"):
        airrep.Index(index.path).top(queries, k=1)


def test_what_is_no_attributor_is_refused(index: airrep.Index) -> None:
    with pytest.raises(ConfigError, match="index: attributor is 'hash'; it must be an Attributor, or None"):
        airrep.Index(index.path, "hash")  # type: ignore[arg-type]


def test_errors_of_an_own_method_are_not_told_as_damage(tmp_path: Path, corpus: airrep.Corpus) -> None:
    class Learning(HashAttributor):
        def save_state(self, folder: Path) -> None:
            (folder / "learnt.txt").write_text("much")

        def load_state(self, folder: Path) -> None:
            raise TypeError("a bug of its own")

    airrep.build_index(corpus, tmp_path / "own", Learning())
    with pytest.raises(TypeError, match="a bug of its own"):
        airrep.Index(tmp_path / "own", Learning()).top("a", 1)


def test_an_open_index_stays_the_same_in_another_working_directory(
    tmp_path: Path, corpus: airrep.Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "there")
    airrep.build_index(make_corpus(5, "other"), "index", "tfidf")  # another one under the same name
    monkeypatch.chdir(tmp_path / "here")
    built = airrep.build_index(corpus, "index", "tfidf", shard_rows=20)
    opened, expected = airrep.Index("index"), airrep.Index("index").top("answer 14", 3)
    half = airrep.Index("index")
    assert half.rows_of(["e1"]) == [1]
    assert str(opened.path) == "index"
    assert repr(opened).startswith("Index('index', ")
    monkeypatch.chdir(tmp_path / "there")
    for index in (built, opened, half):
        assert index.top("answer 14", 3) == expected
        assert index.path == tmp_path / "here" / "index"
    index = opened.append(make_corpus(3, "more")).delete(["e1"])
    monkeypatch.chdir(tmp_path / "here")
    assert (len(index), str(opened.path)) == (52, "index")
    index.verify()


def test_truncated_file_is_found_at_opening(index: airrep.Index) -> None:
    path = next((index.path / "shards").glob("*/*/features.npy"))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ArtifactError, match=r"features\.npy: has \d+ bytes; expected \d+"):
        airrep.Index(index.path)


def test_newer_format_is_refused(index: airrep.Index) -> None:
    path = index.path / MANIFEST
    path.write_text(path.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(ArtifactError, match="was written by a newer airrep .in format 2; this version reads up to 1"):
        airrep.Index(index.path)


def test_two_writers(index: airrep.Index, corpus: airrep.Corpus, tmp_path: Path) -> None:
    with locked(index.path), pytest.raises(ArtifactError, match="another process is writing there"):
        index.append(make_corpus(3, "more"))
    (tmp_path / "new.partial").mkdir()
    with locked(tmp_path / "new.partial"), pytest.raises(ArtifactError, match="another process is writing there"):
        airrep.build_index(corpus, tmp_path / "new", HashAttributor())


BAD_FEATURES = {
    r"15 rows for 16 examples; expected one row for each example": lambda made: made[:-1],
    r"17 rows for 16 examples": lambda made: np.vstack([made, made[:1]]),
    r"a list; expected a NumPy array or scipy.sparse.csr_array of numbers with shape \(rows, d\)": lambda made: (
        made.tolist()
    ),
    r"a Tensor \(16, 16\) of torch.float32; expected a NumPy": lambda made: torch.tensor(made),
    r"a csc_array \(16, 16\) of float32; expected a NumPy": lambda made: sparse.csc_array(made),
    r"a ndarray \(256,\) of float32; expected a NumPy": lambda made: made.ravel(),
    r"a ndarray \(16, 16\) of object; expected a NumPy": lambda made: made.astype(object),
    "dense features of width 18; expected dense features of width 17": lambda made: np.pad(
        made, ((0, 0), (0, int(made[0, 0] * 2**14) % 2 + 1))
    ),
}


@pytest.mark.parametrize("told", BAD_FEATURES)
def test_features_of_another_form_are_refused_at_once(told: str, tmp_path: Path, corpus: airrep.Corpus) -> None:
    class Bad(HashAttributor):
        def encode_train(self, examples, on_rows=None):
            return BAD_FEATURES[told](super().encode_train(examples))

    with pytest.raises(ConfigError, match=f"^hash: encode_train returned {told}.* Correct the method"):
        airrep.build_index(corpus[:32], tmp_path / "bad", Bad(), shard_rows=16)
    assert not (tmp_path / "bad").exists()


@pytest.mark.parametrize("told", list(BAD_FEATURES)[:-1])
def test_features_of_queries_of_another_form_are_refused(
    told: str, index: airrep.Index, queries: airrep.Corpus, corpus: airrep.Corpus
) -> None:
    class Bad(HashAttributor):
        def encode_queries(self, examples, on_rows=None):
            return BAD_FEATURES[told](super().encode_queries(examples))

    asked = airrep.Index(index.path, Bad())
    with pytest.raises(ConfigError, match=f"^hash: encode_queries returned {told}.* Correct the method"):
        asked.top(corpus[:16], 3)


def test_features_of_another_width_are_refused_in_appends_and_later_builds(
    tmp_path: Path, corpus: airrep.Corpus
) -> None:
    class Other(HashAttributor):
        width = 16

        def encode_train(self, examples, on_rows=None):
            if self.width == 0:
                raise MemoryError
            made = super().encode_train(examples)[:, : self.width]
            self.width = self.next
            return made

    method, told = Other(), "dense features of width 8; expected dense features of width 16, as for earlier examples"
    method.next = 0
    with pytest.raises(MemoryError):
        airrep.build_index(corpus, tmp_path / "one", method, shard_rows=16)
    method.width = method.next = 8
    with pytest.raises(ConfigError, match=told):
        airrep.build_index(corpus, tmp_path / "one", method, shard_rows=16)
    method.width = method.next = 16
    index = airrep.build_index(corpus, tmp_path / "one", method, shard_rows=16)
    method.width = method.next = 8
    with pytest.raises(ConfigError, match=told):
        index.append(make_corpus(3, "more"))


@pytest.mark.parametrize(
    ("kept", "loud"), [(np.asarray, np.inf), (sparse.csr_array, np.nan), (sparse.csr_array, np.inf)]
)
def test_features_that_their_kind_cannot_hold_are_refused(
    tmp_path: Path, corpus: airrep.Corpus, kept: Callable[[np.ndarray], Any], loud: float
) -> None:
    class Loud(HashAttributor):
        def encode_train(self, examples, on_rows=None):
            features = super().encode_train(examples)
            features[3, 0] = loud
            return kept(features)

    most = "65504" if kept is np.asarray else r"3\.40282e\+38"
    with pytest.raises(DataError, match=f"example 'e3': a feature is not finite or exceeds {most}"):
        airrep.build_index(corpus, tmp_path / "loud", Loud())
    assert not (tmp_path / "loud").exists()


def test_empty_corpus_is_refused(tmp_path: Path, corpus: airrep.Corpus) -> None:
    with pytest.raises(DataError, match="the corpus is empty"):
        airrep.build_index(corpus[:0], tmp_path / "none", HashAttributor())


def test_progress_counts_every_row(tmp_path: Path, corpus: airrep.Corpus) -> None:
    seen: list[tuple[int, int]] = []
    note = lambda *counts: seen.append(counts)  # noqa: E731
    airrep.build_index(corpus, tmp_path / "a", HashAttributor(), shard_rows=16, progress=note)
    assert seen == [(16, 50), (32, 50), (48, 50), (50, 50)]


class SlowAttributor(HashAttributor, SlowFit):
    """Reads the training corpus example by example."""

    def fit(self, train: airrep.Corpus, progress: OnProgress | None = None) -> None:
        on_rows = count_rows(len(train), progress)
        for _ in train:
            on_rows(1)


def test_progress_counts_what_a_slow_fit_reads(tmp_path: Path, corpus: airrep.Corpus) -> None:
    seen: list[tuple[int, int]] = []
    slow = SlowAttributor()
    before = set(vars(slow))
    airrep.build_index(corpus, tmp_path / "a", slow, progress=lambda *counts: seen.append(counts))
    assert seen == [(row, 50) for row in range(1, 51)] + [(50, 50)]
    assert set(vars(slow)) == before


def test_rows_are_read_without_an_attributor_or_torch(index: airrep.Index) -> None:
    code = (
        "import sys; from airrep.index.rows import IndexRows; rows = IndexRows(sys.argv[1]);"
        "groups = rows.groups('label'); print(rows, rows.example(3).id, len(rows.where('label == \"label 1\"')),"
        "*groups.names, file=sys.stderr); print(*sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(index.path)], capture_output=True, text=True, check=True)
    loaded = ran.stdout.split()
    assert {"torch", "sklearn", "transformers"}.isdisjoint(loaded)
    assert not any(name.startswith("airrep.attributors") for name in loaded)
    found = f"IndexRows({str(index.path)!r}, method='hash', examples=50) e3 17 label 0 label 1 label 2"
    assert ran.stderr.strip() == found


class NearlyAlike(HashAttributor):
    """Features whose scores share a large common part, and differ little."""

    def encode_train(self, examples, on_rows=None):
        features = super().encode_train(examples, on_rows) / 100
        features[:, 0] = 8.0
        return features


@pytest.mark.parametrize("pool", ["mean", "attention", "signed-attention"])
def test_what_one_of_many_changes_is_told_to_its_digits(tmp_path: Path, pool: str) -> None:
    corpus, queries = make_corpus(20_000), make_corpus(2, "q")
    index = airrep.build_index(corpus, tmp_path / "alike", NearlyAlike())
    train = np.concatenate([shard.features()[index.method] for shard in index.shards]).astype(np.float64)
    scores = index.attributor.encode_queries(queries).astype(np.float64) @ train.T
    size = {"mean": 0 * scores, "attention": abs(scores), "signed-attention": scores}[pool]
    weights = np.exp(size - size.max(axis=1, keepdims=True))
    everything = (weights * scores).sum(axis=1) / weights.sum(axis=1)
    for row in (7, 11_111):
        others = weights.sum(axis=1) - weights[:, row]
        expected = weights[:, row] * (everything - scores[:, row]) / others  # the member's own contribution
        for found in (
            index.what_if(queries, remove=[row], pool=pool),
            index.what_if(queries, keep=np.delete(np.arange(20_000), row), pool=pool),
        ):
            np.testing.assert_allclose(found.change, expected, rtol=1e-4)
            found.save(tmp_path / "kept", replace=True)
            np.testing.assert_array_equal(airrep.open(tmp_path / "kept").change, found.change)


@pytest.mark.parametrize("method", ["tfidf", "bm25", "dsir", "ngram", "channels"])
def test_one_attributor_serves_two_indexes(tmp_path: Path, queries: airrep.Corpus, method: str) -> None:
    """What was learnt from the second corpus does not answer for the first."""
    data = (make_corpus(12), make_corpus(17, "z"))
    recipe = [{"method": "ngram"}, {"method": "tfidf", "weight": 0.5}]
    shared = make_attributor(method, {"channels": recipe} if method == "channels" else {})
    indexes = [airrep.build_index(one, tmp_path / f"{n}", shared) for n, one in enumerate(data)]
    alone = [airrep.Index(tmp_path / f"{n}").top(queries, 5) for n in range(2)]
    for index, wanted in [*zip(indexes, alone, strict=True)] * 2:
        assert [*index.top(queries, 5).rows()] == [*wanted.rows()]


def test_a_filter_means_the_same_however_rows_are_cut(tmp_path: Path) -> None:
    """Values of another type are unequal, in a shard of their own too; a type that no row has is an error."""
    records = [{"prompt": "", "response": f"text {n}", "year": 2000 + n} for n in range(6)]
    late: list[dict[str, object]] = [{"prompt": "", "response": "a", "year": "2024"}]
    mixed = [*records, *late, {"prompt": "", "response": "b", "year": None}, {"prompt": "", "response": "c"}]
    for shard_rows in (3, 100):
        index = airrep.build_index(mixed, tmp_path / f"{shard_rows}", HashAttributor(), shard_rows=shard_rows)
        assert index.where("year > 2003").tolist() == [4, 5]
        assert index.where('year == "2024"').tolist() == [6]
        assert index.where('"02" in year').tolist() == [6]
        assert index.where(year=[2001, "2024"]).tolist() == [1, 6]
        assert index.where("year is None").tolist() == [7, 8]
        with pytest.raises(ConfigError, match="year holds numbers, text and is compared with True"):
            index.where("year == True")
    index = airrep.build_index(records, tmp_path / "grown", HashAttributor(), shard_rows=100)
    index = index.append([{**late[0], "id": "late"}])
    assert index.where("year > 2003").tolist() == [4, 5]


def test_an_index_sent_to_another_process_knows_its_ids(index: airrep.Index, tmp_path: Path) -> None:
    name, rows = index.example(1).id, IndexRows(index.path)
    assert rows.rows_of([name]).tolist() == [1]
    (tmp_path / "sent").write_bytes(pickle.dumps(rows))
    code = "import pickle, sys; print(pickle.load(open(sys.argv[1], 'rb')).rows_of([sys.argv[2]])[0])"
    told = [sys.executable, "-c", code, str(tmp_path / "sent"), name]
    for seed in ("1", "2"):  # Python salts hashes by it
        salted = {**os.environ, "PYTHONHASHSEED": seed}
        assert subprocess.run(told, capture_output=True, text=True, check=True, env=salted).stdout.strip() == "1"


def test_names_of_groups_are_texts(index: airrep.Index, queries: airrep.Corpus, tmp_path: Path) -> None:
    found = index.group_scores(queries, {1: [0, 1], ("a", 2): [2]})  # type: ignore[arg-type]
    found.save(tmp_path / "result.json")
    assert found.names == airrep.open(tmp_path / "result.json").names == ("1", "('a', 2)")
    with pytest.raises(ConfigError, match="groups: the names 1 and '1' are the same text"):
        index.group_scores(queries, {1: [0], "1": [1, 2]})  # type: ignore[dict-item]


@pytest.mark.parametrize("text", ["\ud800", airrep.Example("p", "\ud800"), [airrep.Example("\ud800", "r")]])
def test_half_a_character_is_refused_in_a_query(index: airrep.Index, text: object) -> None:
    with pytest.raises(DataError, match=r"queries(\[0\])?: (prompt|response) holds a lone surrogate .* at character 1"):
        index.top(text, 1)  # type: ignore[call-overload]


def test_more_is_read_as_the_index_was(tmp_path: Path) -> None:
    records = [{"q": f"question {n}", "a": f"answer {n}", "id": str(n)} for n in range(8)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records[:4]))
    (tmp_path / "more.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records[4:6]))
    corpus = airrep.read_corpus(tmp_path / "train.jsonl", prompt_field="q", response_field="a")
    index = airrep.build_index(corpus[:3], tmp_path / "index", "tfidf")  # a part is read as the whole
    assert index.reading.options == {"prompt_field": "q", "response_field": "a"}
    index = index.append(tmp_path / "more.jsonl").append(records[6:])
    assert [index.example(row).prompt for row in range(7)] == [f"question {n}" for n in (0, 1, 2, 4, 5, 6, 7)]
    index = index.append(airrep.Corpus.from_records([{"prompt": "p", "response": "r"}]))
    index = index.append([airrep.Example("p", "s")])
    assert len(index) == 9
    with pytest.raises(DataError, match='the prompt field "q" is missing. This record has the fields prompt, response'):
        index.append([{"prompt": "p", "response": "t"}])


def test_records_of_queries_are_read_as_the_trainer_that_the_index_was_read_with(tmp_path: Path) -> None:
    record = {"instruction": "Add.", "input": "1 1", "output": "2"}
    rows = [{**record, "id": f"a{number}", "input": f"{number} {number}"} for number in range(4)]
    index = airrep.build_index(airrep.Corpus.from_records(rows, trained_with="axolotl"), tmp_path / "i", "tfidf")
    asked = index.top(rows[:1], k=1)[0]
    assert (asked.query.prompt, asked.query.chat) == (index.example(0).prompt, index.example(0).chat)
    talk = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    (one,) = index.top([{"messages": talk * 2}], k=1)  # of a conversation its last answer is asked about
    assert one.query.response == "b"
    assert airrep.build_index(rows, tmp_path / "plain", "tfidf").top(rows[:1], k=1)[0].query.prompt == "Add.\n\n0 0"


@pytest.mark.parametrize("form", ["joined", "alpaca", "mixed", "messages"])
def test_typed_queries_are_read_in_the_form_of_all_training_rows(tmp_path: Path, form: str) -> None:
    texts = [(f"Add {number} and {number}.", f"{2 * number}") for number in range(6)]
    rows = [{"prompt": asked, "completion": said} for asked, said in texts]
    if form == "alpaca":
        inputs = {4: "4 4", 5: "5 5"}
        rows = [{"instruction": ask, "input": inputs.get(n, ""), "output": said} for n, (ask, said) in enumerate(texts)]
    talks = [[{"role": "user", "content": asked}, {"role": "assistant", "content": said}] for asked, said in texts]
    if form in ("mixed", "messages"):
        talking = 1 if form == "mixed" else 6
        rows = [{"messages": talk} for talk in talks[:talking]] + rows[: 6 - talking]
    trainer = "axolotl" if form == "alpaca" else None
    index = airrep.build_index(airrep.Corpus.from_records(rows, trained_with=trainer), tmp_path / "i", "tfidf")
    stored = list(index.examples(np.arange(6)))
    typed = [airrep.Example(one.prompt, one.response) for one in stored]
    records = [{"prompt": one.prompt, "response": one.response} for one in stored]
    for ways in (typed, airrep.Corpus.from_examples(typed), records):
        found = [one.chat for one in index.question(ways).queries]
        if form in ("joined", "alpaca"):
            assert found == [one.chat for one in stored]
            assert (found[0] or {})["form"] == "joined"
        else:
            assert found == [None] * 6
    better = index.question(typed[:1], "wrong").better or ()
    assert [one.chat for one in better] == [stored[0].chat if form in ("joined", "alpaca") else None]
    noted = [{**one, "better_answer": "wrong", "gold": 3} for one in records]  # a field beside does not change the form
    assert [one.chat for one in index.question(noted, "better_answer").queries] == found
    (tmp_path / "bare").mkdir()
    without_texts(index, tmp_path / "bare")
    for bare in (index.rendered, read_manifest(tmp_path / "bare")["rendered"]):
        assert bare["form"] == ("joined" if form in ("joined", "alpaca") else None)
        assert (bare["preamble"], bare["whole"]) == (form == "alpaca", False)
    (talk,) = index.question(airrep.Corpus.from_records([{"messages": talks[0]}])).queries  # messages stay messages
    assert "form" not in (talk.chat or {})


def test_a_query_as_a_training_example_is_read_as_the_trainer_reads_rows(tmp_path: Path) -> None:
    talk = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    rows = [{"messages": [{"role": "user", "content": f"a{n}"}, talk[1]]} for n in range(3)] + [{"text": "b"}]
    index = airrep.build_index(airrep.Corpus.from_records(rows, trained_with="trl"), tmp_path / "i", "tfidf")
    for row in range(4):
        stored = index.example(row)
        (query,) = index.question(stored).queries
        assert "learn" not in (query.chat or {})
        assert index.as_trained(query) == stored
    typed = index.as_trained(airrep.Example("a", "b"))
    assert typed.chat == {"messages": talk, "learn": "all"}
    joined = airrep.Example("a", "b", chat={"form": "joined"})
    assert index.as_trained(joined) == joined
    said = [{"role": "assistant", "content": "some answer"}]  # trl learns of these rows the completion alone
    completed = airrep.Corpus.from_records([{"prompt": talk[:1], "completion": said}], trained_with="trl")
    answers = airrep.build_index(completed, tmp_path / "j", "tfidf")
    assert answers.as_trained(airrep.Example("a", "b")) == airrep.Example("a", "b")


def test_an_index_of_an_earlier_version_is_told_to_be_built_again(index: airrep.Index) -> None:
    manifest = read_manifest(index.path)
    earlier = {**manifest, "layout": "dense", "dimension": 32}
    del earlier["channels"]
    write_manifest(index.path, earlier.pop("kind"), earlier)
    again = f"earlier version; build it again: airrep index DATA --out {index.path} --method hash --replace"
    with pytest.raises(ArtifactError, match=re.escape(again)):
        airrep.Index(index.path)
    shown = subprocess.run([sys.executable, "-m", "airrep", "show", index.path], capture_output=True, text=True)
    assert (shown.returncode, shown.stderr.count("\n")) == (1, 1)
    assert again in shown.stderr


@pytest.mark.parametrize("method", ["channels", "bm25", "dsir"])
def test_an_index_answers_alike_just_built_found_again_and_opened(method: str, tmp_path: Path) -> None:
    train, how = make_corpus(40), {} if method == "channels" else {"method": method}
    ways = [airrep.build_index(train, tmp_path / "i", **how) for _ in range(2)] + [airrep.open(tmp_path / "i")]
    first, *others = [[(hit.row, hit.score) for hit in way.top(train[:1], k=40)[0].hits] for way in ways]
    assert first == others[0] == others[1]
