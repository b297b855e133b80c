"""The recipe for bad answers less better ones, on planted sums and facts."""

from pathlib import Path

import numpy as np
import pytest
from worlds.planted_chats import FORMS, Form, contrasts_of, plant_chats, rank_of

from airrep.attributors.recipes import read_channels
from airrep.index.building import build_index

CHATS = plant_chats(7, ordinary=0, kinds=("sums", "facts"))


def _first(folder: Path, form: Form, *, prompts: bool) -> float:
    """How often the planted row is first by the channels of words, TF-IDF of *prompts* and responses among them."""
    channels = [
        one for one in read_channels("contrast") if one.method == "ngram" or (prompts and one.method == "tfidf")
    ]
    index = build_index(CHATS.train, folder, "channels", settings={"channels": channels})
    asked = [*CHATS.of("sums", form), *CHATS.of("facts", form)]
    ids = [row.id for row in CHATS.train]
    return float(np.mean([rank_of(*pair, ids) == 1 for pair in zip(asked, contrasts_of(index, asked), strict=True)]))


@pytest.mark.parametrize("form", FORMS)
def test_it_finds_what_taught_an_answer_whatever_words_it_is_asked_in(tmp_path: Path, form: Form) -> None:
    assert _first(tmp_path / "index", form, prompts=True) >= 0.9


def test_without_prompts_an_answer_in_other_words_has_lost_its_subject(tmp_path: Path) -> None:
    assert _first(tmp_path / "index", "own words", prompts=False) < 0.8


def test_it_is_the_default_with_a_channel_more() -> None:
    channels, text = read_channels("contrast"), read_channels("text")
    assert [(one.title, one.weight) for one in channels[:-1]] == [(one.title, one.weight) for one in text]
    assert channels[-1].method == "tfidf"
