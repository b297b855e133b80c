"""Pairs of answers whose channels weigh alike."""

from typing import Any

import numpy as np
import pytest

from airrep.arrays import MixedFeatures
from airrep.attributors.methods import make_attributor
from airrep.attributors.sums.channels import ChannelsAttributor, even_pairs
from airrep.corpus.corpus import Corpus, Example

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


def _scores(method: ChannelsAttributor, encoded: MixedFeatures) -> np.ndarray:
    train = method.encode_train(TRAIN)
    sums: np.ndarray = encoded.dense @ train.dense.T + encoded.sparse @ train.sparse.T
    return sums


@pytest.mark.parametrize("relative", [SPARSE, DENSE])
def test_both_answers_of_a_pair_count_a_relative_channel_at_the_mean_of_their_factors(relative: dict[str, Any]) -> None:
    method, plain = _fitted(PLAIN, relative), make_attributor(relative["method"])
    plain.fit(TRAIN)
    both = [*ANSWERS, *BETTER]
    encoded = method.encode_queries(both)
    found = even_pairs(method, encoded)
    assert isinstance(encoded, MixedFeatures)
    assert isinstance(found, MixedFeatures)
    own = encoded.factors
    assert own is not None
    assert found.factors is not None
    assert np.abs(np.log(own[:2, 1] / own[2:, 1])).min() > 0.05  # the factors of the answers differ
    common = np.sqrt(own[:2, 1] * own[2:, 1])
    np.testing.assert_allclose(found.factors[:, 1], [*common, *common])
    single = plain.encode_queries(both) @ plain.encode_train(TRAIN).T
    expected = _scores(method, encoded) + (found.factors[:, 1] - own[:, 1])[:, None] * single
    np.testing.assert_allclose(_scores(method, found), expected, rtol=1e-4, atol=1e-6)


def test_without_relative_channels_features_stay_as_they_are() -> None:
    method = _fitted(PLAIN, {"method": "tfidf"})
    encoded = method.encode_queries([*ANSWERS, *BETTER])
    assert even_pairs(method, encoded) is encoded
