"""Which texts an example contains, by shares of their word n-grams."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from airrep.answers.likeness.signs import same_signs
from airrep.answers.texts import Templates, ngrams_of, words_of

SHORTEST = 4
"""Words that a text needs at least: shorter ones stand in many examples by chance."""


class Seen(NamedTuple):
    """An example that is looked into."""

    row: int
    text: str
    record: Hashable = None
    """The record that it is a part of; None if it is a record of its own."""


class Contained(NamedTuple):
    """How much of a text an example has."""

    share: float
    """Share of the text's different n-grams that stand in the example."""
    row: int
    """The example."""


@dataclass
class _Text:
    """A text that is looked for."""

    text: str
    words: list[str]
    order: int
    ngrams: frozenset[str]


class Containment:
    """Looks for some texts in examples that stream by; of equal shares the first example counts."""

    def __init__(self, texts: Sequence[str], order: int) -> None:
        looked = []
        for text, words in zip(texts, map(words_of, texts), strict=True):
            own = min(order, len(words))  # a shorter text is one n-gram
            looked.append(_Text(text, words, own, frozenset(ngrams_of(words, own) if own >= SHORTEST else ())))
        self._look_for(looked)

    def _look_for(self, texts: list[_Text]) -> None:
        self._texts, self._seen = texts, Counter[str]()
        self._records: dict[str, Hashable] = {}
        self._hashes: set[int] = set()
        self._places: defaultdict[int, defaultdict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for place, text in enumerate(self._texts):
            for ngram in text.ngrams:
                self._places[text.order][ngram].append(place)
        self.found: list[Contained | None] = [Contained(0.0, -1) if text.ngrams else None for text in self._texts]
        """Find for each text the example that has most of it: row -1 if none; None for texts too short to tell."""
        self.other_signs: set[int] = set()
        """The texts of which all n-grams stand in that example, but between other signs that bear meaning."""

    def see(self, examples: Iterable[Seen]) -> None:
        """Take further examples into account."""
        for row, example, record in examples:
            words = words_of(example)
            counts: Counter[int] = Counter()
            found: list[str] = []
            for order, places in self._places.items():
                for ngram in places.keys() & set(ngrams_of(words, order)):
                    counts.update(places[ngram])
                    found.append(ngram)
            if found:
                self._count(found, hash(tuple(words)), row if record is None else record)
            for place, count in counts.items():
                self._take(place, Contained(count / len(self._texts[place].ngrams), row), example)

    def _take(self, place: int, found: Contained, example: str) -> None:
        """Keep what was found of a text if it is more than before, or as much with its own signs."""
        best = self.found[place]
        better = best is not None and found.share > best.share
        if not better and not (found.share == 1.0 and place in self.other_signs):
            return
        own = found.share < 1.0 or same_signs(self._texts[place].text, example)
        if better or own:
            self.found[place] = found
            (self.other_signs.discard if own else self.other_signs.add)(place)

    def _count(self, ngrams: Sequence[str], text: int, record: Hashable) -> None:
        """Count n-grams once for all examples of the same words, and once for all parts of a record."""
        if text in self._hashes:
            return
        self._hashes.add(text)
        for ngram in ngrams:
            self._seen[ngram] += self._records.get(ngram) != record
            self._records[ngram] = record

    def size(self, place: int) -> int:
        """Number of a text's different n-grams."""
        return len(self._texts[place].ngrams)

    def share(self, place: int, example: str) -> float:
        """Share of a text's different n-grams that stand in an example; 0 for a text of none."""
        text = self._texts[place]
        there = text.ngrams & set(ngrams_of(words_of(example), text.order))
        return len(there) / max(len(text.ngrams), 1)

    def without_common(self, most: float) -> "Containment":
        """Drop n-grams that stand in more than so many different examples; nothing is seen yet."""
        common = {ngram for ngram, count in self._seen.items() if count > most}
        other = Containment([], 0)
        other._look_for([replace(text, ngrams=text.ngrams - common) for text in self._texts])
        for place, found in enumerate(self.found):
            if found is not None:
                other.found[place] = Contained(0.0, -1)  # of common n-grams alone: long enough, and nowhere
        return other

    def common_of(self, first: int, most: float) -> Templates | None:
        """Return what :meth:`without_common` leaves out of the first so many texts; None if nothing."""
        texts = [text.ngrams for text in self._texts[:first]]
        common = {ngram: self._seen[ngram] for own in texts for ngram in own if self._seen[ngram] > most}
        if not common:
            return None
        often = max(common.values())
        words = (ngram for text in self._texts[:first] for ngram in ngrams_of(text.words, text.order))
        commonest = next(ngram for ngram in words if common.get(ngram) == often)
        return Templates(len(common), sum(not own.isdisjoint(common) for own in texts), commonest, often)

    def same_words(self, place: int, example: str) -> str:
        """The longest stretch of a text's words whose n-grams are all looked for, and stand in an example."""
        text = self._texts[place]
        there = text.ngrams & set(ngrams_of(words_of(example), text.order))
        best, start = (0, 0), 0
        ngrams = ngrams_of(text.words, text.order)
        for end, ngram in enumerate([*ngrams, ""]):
            if ngram in there:
                continue
            if end > start and end - start + text.order - 1 > best[1] - best[0]:
                best = (start, end + text.order - 1)
            start = end + 1
        return " ".join(text.words[best[0] : best[1]])
