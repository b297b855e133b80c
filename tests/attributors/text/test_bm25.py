"""BM25 against its formula, written out."""

import math
from pathlib import Path

import numpy as np
import pytest

from airrep.attributors.settings import Bm25Settings
from airrep.attributors.text.bm25 import Bm25Attributor
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import ConfigError
from airrep.index.building import build_index

RESPONSES = ["red red green", "green blue", "blue blue blue sky over sea", "yellow"]
TRAIN = Corpus.from_examples([Example("p", text, id=str(n)) for n, text in enumerate(RESPONSES)])


def bm25(query: str, text: str, k: float = 1.2, b: float = 0.75) -> float:
    """Lucene's, over RESPONSES."""
    documents = [one.split() for one in RESPONSES]
    mean, words, total = sum(map(len, documents)) / len(documents), text.split(), 0.0
    for term in query.split():
        having = sum(term in one for one in documents)
        if having:
            weight = math.log(1 + (len(documents) - having + 0.5) / (having + 0.5))
            count = words.count(term)
            total += weight * count / (count + k * (1 - b + b * len(words) / mean))
    return total


@pytest.mark.parametrize("changes", [{}, {"saturation": 0.1}, {"saturation": 2.0, "length": 0.0}])
def test_scores_are_those_of_the_formula(changes: dict[str, float]) -> None:
    method = Bm25Attributor(Bm25Settings(**changes))
    method.fit(TRAIN)
    asked = ["blue green", "red red sky", "nothing here"]
    queries = method.encode_queries([Example("p", text, id=text) for text in asked])
    found = queries @ method.encode_train(TRAIN).T
    settings = method.settings
    wanted = [[bm25(query, text, settings.saturation, settings.length) for text in RESPONSES] for query in asked]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_an_appended_example_is_scored_by_the_first_corpus(tmp_path: Path) -> None:
    index = build_index(TRAIN, tmp_path / "index", method="bm25")
    more = index.append(Corpus.from_examples([Example("p", "blue green new", id="more")]))
    (best, *_) = more.top([Example("p", "green", id="q")], 1)[0].hits
    rows = {hit.example.id: hit.score for hit in more.top([Example("p", "blue", id="q")], 5)[0].hits}
    assert rows["more"] == pytest.approx(bm25("blue", "blue green"), rel=0.2)
    assert best.example.id in ("1", "more")


def test_a_corpus_without_words_is_refused() -> None:
    with pytest.raises(ConfigError, match="no training example has a word in the view 'response'"):
        Bm25Attributor().fit(Corpus.from_examples([Example("p", "!", id="0")]))
