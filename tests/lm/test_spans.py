"""Losses of a part of an answer: those of its tokens, by the number of all."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from worlds.tiny_lms import CHAT, tiny_lm, tiny_tokenizer

from airrep.corpus.corpus import Example
from airrep.errors import DataError
from airrep.lm.model import load_lm
from airrep.lm.settings import LmSettings

ANSWER = "It is 108 m. So\n\nlong."
CUTS = (0, 5, 8, 13, 15, len(ANSWER))


@pytest.mark.parametrize("chat", [None, CHAT])
def test_losses_of_spans_are_those_of_their_tokens_and_add_up(tmp_path: Path, chat: str | None) -> None:
    lm = load_lm(tiny_lm(tmp_path / "lm", tokenizer=tiny_tokenizer(chat=chat)))
    parts = [Example("How long?", ANSWER, span=pair) for pair in itertools.pairwise(CUTS)]
    documents = lm.tokenise([Example("How long?", ANSWER), *parts, Example("Other", "text")])
    whole, *found, _ = lm.losses(documents)
    assert sum(found) == pytest.approx(whole, abs=1e-5)
    (each,) = lm.token_losses(documents.take([2]))  # of which a share was asked
    assert found[1] == pytest.approx(float((each * documents.shares_of(2)).sum()) / len(each), abs=1e-6)
    assert np.array_equal(documents.take([3, 0]).shares_of(0), documents.shares_of(3))
    assert (documents.shares_of(6) == 1).all()
    assert lm.key(parts[0]) != lm.key(parts[1])


def test_a_span_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    settings = LmSettings.of({"lm": tiny_lm(tmp_path / "lm"), "max_tokens": 40, "cut": "end"})
    lm = load_lm(settings)
    with pytest.raises(DataError, match="its span lies behind the tokens that are read"):
        lm.tokenise([Example("Ask", f"{ANSWER} {ANSWER}", span=(36, 40))])
