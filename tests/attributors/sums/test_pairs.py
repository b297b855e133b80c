"""Pairs of answers whose channels weigh alike."""

from typing import Any

import numpy as np
import pytest

from airrep.attributors.base import Attributor
from airrep.attributors.direct import InMemory
from airrep.attributors.methods import make_attributor
from airrep.attributors.sums.channels import ChannelsAttributor
from airrep.corpus.corpus import Corpus, Example
from airrep.scoring.asked import Asked, SumAsked, even_pairs, score_all

WORDS = ["ab", "cd", "ef", "gh", "ij", "kl", "mn", "op", "qr", "st", "uv"]
TRAIN = Corpus.from_examples(
    Example(f"p{n}", " ".join(WORDS[(n * k * k + k) % 11] for k in range(2, 7)), str(n)) for n in range(60)
)
ANSWERS = [Example("p", "ab cd ef gh", "a"), Example("q", "kl mn", "b")]
BETTER = [Example("p", "ab cd st", "a-better"), Example("q", "uv op ij ab", "b-better")]
PLAIN = {"method": "ngram", "settings": {"tokenizer": "words"}}
SPARSE, DENSE = ({"method": one, "relative": True, "weight": 0.7} for one in ("tfidf", "airrep"))


def _fitted(*channels: dict[str, Any]) -> ChannelsAttributor:
    method = make_attributor("channels", {"channels": channels})
    assert isinstance(method, ChannelsAttributor)
    method.fit(TRAIN)
    return method


def _asked(method: Attributor) -> Asked:
    return method.ask([*ANSWERS, *BETTER], InMemory.of(method, TRAIN))


@pytest.mark.parametrize("relative", [SPARSE, DENSE])
def test_both_answers_of_a_pair_count_a_relative_channel_at_the_mean_of_their_weights(relative: dict[str, Any]) -> None:
    method, plain = _fitted(PLAIN, relative), make_attributor(relative["method"])
    plain.fit(TRAIN)
    asked = _asked(method)
    found = even_pairs(asked)
    assert isinstance(asked, SumAsked)
    assert isinstance(found, SumAsked)
    own = asked.weights
    assert np.abs(np.log(own[:2, 1] / own[2:, 1])).min() > 0.05  # the weights of the answers differ
    common = np.sqrt(own[:2, 1] * own[2:, 1])
    np.testing.assert_allclose(found.weights[:, 1], [*common, *common])
    single = score_all(_asked(plain))
    expected = score_all(asked) + (found.weights[:, 1] - own[:, 1])[:, None] * single
    np.testing.assert_allclose(score_all(found), expected, rtol=1e-4, atol=1e-6)


def test_without_relative_channels_weights_stay_as_they_are() -> None:
    asked = _asked(_fitted(PLAIN, {"method": "tfidf", "weight": 0.3}))
    found = even_pairs(asked)
    assert isinstance(asked, SumAsked)
    assert isinstance(found, SumAsked)
    np.testing.assert_allclose(found.weights, asked.weights, rtol=1e-15)
