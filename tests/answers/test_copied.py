"""Words of answers that stand in the data word for word: against a search of every stretch in every text."""

import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from worlds.commands import Run

import airrep
from airrep.answers.copied import LEAST, copied
from airrep.answers.verdict import top
from airrep.corpus.corpus import Corpus, Example
from airrep.corpus.places import Span
from airrep.index.index import Index

TEXTS = [
    ("Say it", "The old bridge was opened in the year 1931, by night."),
    ("Who opened in the year 1931 what?", "Nobody knows."),
    ("Say more", "It WAS   opened\nin the (year) 1931; the old bridge was."),
    ("Other", "was opened in a year"),
    ("Émigrés", "Ils ont été là où l'été était beau, était beau."),
    ("中文", "那座古老的桥是一九三一年建成的。"),
]
ANSWER = "I say the old bridge was opened in the year 1931. Ils ont été là où l'été fut."


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    corpus = Corpus.from_records([{"prompt": one, "response": other} for one, other in TEXTS])
    return airrep.build_index(corpus, tmp_path_factory.mktemp("copied") / "index", "ngram")


def naive(answer: str) -> dict[str, set[int]]:
    """Rows that hold each stretch of words that lies in no longer one that some text holds."""
    mine = re.findall(r"\w+", answer.lower())
    texts = [(row, re.findall(r"\w+", text.lower())) for row, pair in enumerate(TEXTS) for text in pair]
    held: dict[tuple[int, int], set[int]] = {}
    for first, last in combinations(range(len(mine) + 1), 2):
        for row, words in texts:
            runs = (words[n : n + last - first] for n in range(len(words)))
            if last - first >= LEAST and mine[first:last] in runs:
                held.setdefault((first, last), set()).add(row)
    inside = {(a, b) for a, b in held for c, d in held if (a, b) != (c, d) and c <= a and b <= d}
    return {" ".join(mine[first:last]): rows for (first, last), rows in held.items() if (first, last) not in inside}


def told(found: tuple[airrep.index.results.hits.Copied, ...]) -> dict[str, set[int]]:
    return {" ".join(re.findall(r"\w+", one.text.lower())): {place.row for place in one.places} for one in found}


@pytest.mark.parametrize(
    "answer", [ANSWER, "Was opened in the year 1931 was opened in a year", "opened in", "L'été était"]
)
def test_the_longest_stretches_are_those_of_a_search_of_all(index: Index, answer: str) -> None:
    (found,) = copied(index, [Example("?", answer)], index.live)
    assert told(found) == naive(answer)
    assert [one.words for one in found] == sorted((one.words for one in found), reverse=True)
    for one in found:
        assert one.examples == len(one.places)
        assert " ".join(answer[one.query.start : one.query.stop].split()) == one.text
        for place in one.places:
            text = getattr(index.example(place.row), place.place.field)[place.place.start : place.place.stop]
            assert re.findall(r"\w+", text.lower()) == re.findall(r"\w+", one.text.lower())


def test_signs_of_scripts_without_spaces_are_words(index: Index) -> None:
    (found,) = copied(index, [Example("?", "听说那座古老的桥是一九三二年建成的")], index.live)
    assert [(one.text, one.query, one.examples) for one in found] == [
        ("那座古老的桥是一九三", Span("response", 2, 12), 1)
    ]


def test_a_span_tells_of_what_touches_it_and_a_filter_counts(index: Index) -> None:
    start = ANSWER.index("1931")
    asked = [Example("?", ANSWER, span=(start, start + 4)), Example("?", ANSWER, span=(0, 1))]
    (one,), none = copied(index, asked, index.live)
    assert one.text.endswith("1931")
    assert none == ()
    keep = np.arange(index.rows) > 0
    (found,) = copied(index, [asked[0]], keep)
    assert [place.row for place in found[0].places] == [2]


def test_top_tells_what_is_copied_where_reasons_are_asked_for(index: Index, tmp_path: Path, run: Run) -> None:
    found = top(index, Example("?", ANSWER), k=2, why=True)
    assert found[0].copied is not None
    assert found[0].copied[0].words == 9
    found.save(tmp_path / "run")
    assert type(found).read(tmp_path / "run")[0].copied == found[0].copied
    assert top(index, Example("?", ANSWER), k=2)[0].copied is None
    assert "copied" not in top(index, Example("?", ANSWER), k=2).to_dict()["queries"][0]
    words = ("top", str(index.path), "--prompt", "?", "--response", ANSWER, "--why", "-k", "1")
    shown = run(*words).out
    wanted = r"Copied: “the old bridge was opened in the year 1931” 9 words, in 1 example: (#\d|row 0)"
    assert re.search(wanted, " ".join(shown.split()))
