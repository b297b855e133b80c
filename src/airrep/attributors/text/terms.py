"""Places of scikit-learn's terms in a text."""

import re

from sklearn.feature_extraction.text import CountVectorizer

from airrep.corpus.corpus import Example
from airrep.corpus.places import Places, lower_case
from airrep.corpus.views import View, seen_text
from airrep.corpus.words import LETTERS, UNSPACED


def term_pattern(signs: bool) -> str:
    """What a term's words are: two letters or more, as scikit-learn has them; and single *signs* of other scripts."""
    return rf"[{UNSPACED}]|{LETTERS}{{2,}}" if signs else r"(?u)\b\w\w+\b"


def term_places(example: Example, view: View, vectorizer: CountVectorizer) -> Places:
    """Where the terms of a fitted vectorizer stand in the text that a view shows; it splits words and lowers them."""
    low, origin = lower_case(seen_text(example, view))
    words = list(re.compile(vectorizer.token_pattern).finditer(low))
    columns, starts, stops = [], [], []
    for length in range(1, vectorizer.ngram_range[1] + 1):
        for first in range(len(words) - length + 1):
            term = " ".join(word[0] for word in words[first : first + length])
            column = vectorizer.vocabulary_.get(term)
            if column is not None:
                columns.append(int(column))
                starts.append(int(origin[words[first].start()]))
                stops.append(int(origin[words[first + length - 1].end() - 1]) + 1)
    return Places.of(example, view, columns, columns, starts, stops)
