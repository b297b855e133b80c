"""scikit-learn's terms: what their words are, and their places in a text."""

from typing import Any

from sklearn.feature_extraction.text import CountVectorizer

from airrep.corpus.corpus import Example
from airrep.corpus.places import Places, ends_in, lower_case
from airrep.corpus.views import View, seen_text
from airrep.corpus.words import Words, plain


def term_settings(signs: bool) -> dict[str, Any]:
    """How scikit-learn finds a term's words: of two letters or marks, or more; and single *signs* of other scripts."""
    return {"tokenizer": Words(signs, least=2).findall, "token_pattern": None, "preprocessor": _lower}


def _lower(text: str) -> str:
    return plain(text).lower()


def term_places(example: Example, view: View, vectorizer: CountVectorizer, signs: bool) -> Places:
    """Where the terms of a fitted vectorizer stand in the text that a view shows; it splits words and lowers them."""
    low, origin = lower_case(seen_text(example, view))
    words = list(Words(signs, least=2).finditer(low))
    columns, starts, ends = [], [], []
    for length in range(1, vectorizer.ngram_range[1] + 1):
        for first in range(len(words) - length + 1):
            term = " ".join(word[0] for word in words[first : first + length])
            column = vectorizer.vocabulary_.get(term)
            if column is not None:
                columns.append(int(column))
                starts.append(int(origin[words[first].start()]))
                ends.append(words[first + length - 1].end())
    return Places.of(example, view, columns, columns, starts, ends_in(origin, ends))
