"""What answers that no data taught come to: computed once, kept, and never in the way."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from worlds.small_world import HashAttributor, make_corpus

import airrep
from airrep.answers.chance import DIRECT, TEXTS, Chances, Shares, chances_of, evenly, kind_of
from airrep.arrays import DenseFeatures
from airrep.attributors.base import OnRows
from airrep.attributors.direct import DirectAttributor
from airrep.corpus.corpus import Example
from airrep.errors import DataError


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AIRREP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_texts_are_encoded_once_for_an_index(cache: Path, index: airrep.Index) -> None:
    assert isinstance(index.attributor, HashAttributor)
    before = len(index.attributor.encoded)
    first = chances_of(index, contrast=False)
    lines = len(TEXTS.read_text(encoding="utf-8").splitlines())
    assert len(index.attributor.encoded) == before + 2 * lines
    again = airrep.Index(index.path, HashAttributor())
    assert chances_of(again, contrast=False) == first
    assert not isinstance(again.attributor, HashAttributor) or not again.attributor.encoded
    assert len(list(cache.rglob("*.json"))) == 1


def test_other_rows_and_contrasts_are_measured_anew(cache: Path, index: airrep.Index) -> None:
    first = chances_of(index, contrast=False)
    assert chances_of(index, contrast=True) != first
    index.append(make_corpus(30, "n"))
    assert chances_of(airrep.Index(index.path, HashAttributor()), contrast=False) != first
    assert len(list(cache.rglob("*.json"))) == 3


def test_what_was_kept_and_is_broken_is_measured_anew(cache: Path, index: airrep.Index) -> None:
    first = chances_of(index, contrast=False)
    for text in ("", "[1]", '{"first": {}}'):
        next(cache.rglob("*.json")).write_text(text)
        assert chances_of(index, contrast=False) == first


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="there are no such files")
def test_an_unwritable_cache_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: airrep.Index) -> None:
    (tmp_path / "file").write_text("no folder")
    first = chances_of(index, contrast=False)
    monkeypatch.setenv("AIRREP_CACHE", str(tmp_path / "file"))
    assert chances_of(index, contrast=False) == first


def test_some_rows_of_many_stand_for_all(cache: Path, index: airrep.Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """More rows come nearer by chance than those that were asked."""
    whole = chances_of(index, contrast=False)
    monkeypatch.setattr("airrep.answers.chance.ROWS", 5)
    monkeypatch.setenv("AIRREP_CACHE", str(cache / "other"))
    part = chances_of(index, contrast=False)
    assert whole is not None
    assert part is not None
    keep = evenly(index.live, 5)
    assert np.flatnonzero(keep).tolist() == [0, 12, 24, 36, 49]
    assert part.first.middle != whole.first.middle


class Forgetful(HashAttributor):
    """Knows its own examples alone."""

    def encode_train(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> DenseFeatures:
        if any(not one.prompt.startswith("question") for one in examples):
            raise DataError("unseen")
        return super().encode_train(examples, on_rows)


def test_a_method_that_knows_its_own_queries_alone_has_none(cache: Path, tmp_path: Path) -> None:
    index = airrep.build_index(make_corpus(20), tmp_path / "own", Forgetful())
    assert chances_of(index, contrast=False) is None
    assert not cache.exists()


class Passing(DirectAttributor, HashAttributor):  # type: ignore[misc]
    """Scores examples as they pass."""

    name = "passing"

    def score(self, train: Sequence[Example], queries: Sequence[Example], on_rows: OnRows | None = None) -> np.ndarray:
        raise AssertionError("texts were scored")


def test_methods_that_keep_no_features_are_not_asked(tmp_path: Path) -> None:
    index = airrep.build_index(make_corpus(20), tmp_path / "direct", Passing())
    assert chances_of(index, contrast=True) is DIRECT


def test_chances_fall_with_shares_and_rise_for_short_answers() -> None:
    shares, letters = np.linspace(0.02, 0.3, 64), np.tile([4, 30, 60, 200], 16)
    short = np.where(letters < 10, shares * 2, shares)
    known = Shares.of(short, letters)
    chances = [known.chance(share, 30) for share in (0.0, 0.1, 0.3, 0.6, 1.0, 1.5)]
    assert chances == sorted(chances, reverse=True)
    assert chances[0] > 0.9
    assert chances[-1] == 1e-4
    pairs = zip(short.tolist(), letters.tolist(), strict=True)
    assert np.mean([known.chance(*pair) < 0.05 for pair in pairs]) <= 0.06
    assert known.chance(0.3, 4) > known.chance(0.3, 300) == known.chance(0.3, 10_000)
    assert Shares.of(shares, letters[::-1] * 0 + np.arange(64)).slope == 0


def test_ten_alike_make_a_verdict_weak_at_most() -> None:
    known = Chances(Shares(-1.0, 0.0, 1.0), Shares(-3.0, 0.0, 0.5))
    assert known.chance(0.2, 0.2, 9) == known.first.chance(0.2, 9) > 0.3
    assert known.chance(0.5, 0.1, 9) == known.first.chance(0.5, 9) > 0.1
    assert kind_of(known.chance(0.5, 0.4, 9)) == "weak"
    assert known.chance(1.0, 0.9, 9) == known.first.chance(1.0, 9) < 0.01


def test_texts_have_answers_that_differ() -> None:
    records = [json.loads(line) for line in TEXTS.read_text(encoding="utf-8").splitlines()]
    assert len(records) >= 50
    assert all(one["response"].strip() and one["response"] != one["other"] for one in records)
    assert len({(one["prompt"], one["response"]) for one in records}) == len(records)
