"""Evaluation items that the training data contain, or nearly contain."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeAlias

from pydantic import Field, model_validator

from airrep.answers.likeness.neighbours import StoredMeaning
from airrep.answers.likeness.signs import same_signs
from airrep.answers.texts import RecordKeys, Templates, kept_examples, most_of_texts, ngrams_of, words_of
from airrep.arrays import ALIKE, Mask
from airrep.attributors.base import count_rows
from airrep.corpus.corpus import Example
from airrep.corpus.inputs import as_examples
from airrep.corpus.schemas.conversations import SYSTEM, folded
from airrep.errors import ConfigError
from airrep.index.index import Index, IndexLike, Queries, as_index
from airrep.index.results.hits import Record, fields_of
from airrep.index.results.result import Answer, Provenance
from airrep.runtime.metering import OnProgress
from airrep.runtime.settings import Settings

SHORTEST = 4
"""Fewest words of a text that is looked for: shorter texts stand in many examples by chance."""
FEW_ITEMS = 4
"""Stretches of words that more items than this and over half of all items have are instructions, not content."""


class Seen(NamedTuple):
    """A training example in which texts are looked for."""

    row: int
    text: str
    record: Hashable = None
    """Key of the record that the example is a part of; None if the example is a whole record."""


class Contained(NamedTuple):
    """How much of a text a training example contains."""

    share: float
    """Share of the text's different n-grams that stand in the example."""
    row: int
    """Row of the example; -1 if there is none."""


@dataclass
class _Text:
    """A text that is looked for, with its words and n-grams."""

    text: str
    words: list[str]
    order: int
    ngrams: frozenset[str]


class Containment:
    """Search for texts in a stream of examples; of examples with equal shares the first counts."""

    def __init__(self, texts: Sequence[str], order: int, shared: Set[str] = frozenset()) -> None:
        """*shared* n-grams do not count in a text that has others."""
        looked = []
        for text, words in zip(texts, map(words_of, texts), strict=True):
            own = min(order, len(words))  # a shorter text is one n-gram
            ngrams = frozenset(ngrams_of(words, own) if own >= SHORTEST else ())
            looked.append(_Text(text, words, own, ngrams - shared or ngrams))
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
        """For each text, the example that contains most of it, row -1 without one; None for a too short text."""
        self.other_signs: set[int] = set()
        """Places of texts whose n-grams all stand in that example, but with different signs that carry meaning."""

    def see(self, examples: Iterable[Seen]) -> None:
        """Search further examples."""
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
        """Keep an example if it contains more of a text than before, or all of the text with the same signs."""
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
        """Return the number of a text's different n-grams."""
        return len(self._texts[place].ngrams)

    def share(self, place: int, example: str) -> float:
        """Return the share of a text's different n-grams that stand in an example; 0 for a text without n-grams."""
        text = self._texts[place]
        there = text.ngrams & set(ngrams_of(words_of(example), text.order))
        return len(there) / max(len(text.ngrams), 1)

    def without_common(self, most: float) -> "Containment":
        """Return a new search, without n-grams that stand in more than *most* different examples."""
        common = {ngram for ngram, count in self._seen.items() if count > most}
        other = Containment([], 0)
        other._look_for([replace(text, ngrams=text.ngrams - common) for text in self._texts])
        for place, found in enumerate(self.found):
            if found is not None:
                other.found[place] = Contained(0.0, -1)  # long enough, though all n-grams are common
        return other

    def common_of(self, first: int, most: float) -> Templates | None:
        """Describe what :meth:`without_common` drops from the texts before place *first*; None if nothing."""
        texts = [text.ngrams for text in self._texts[:first]]
        common = {ngram: self._seen[ngram] for own in texts for ngram in own if self._seen[ngram] > most}
        if not common:
            return None
        often = max(common.values())
        words = (ngram for text in self._texts[:first] for ngram in ngrams_of(text.words, text.order))
        commonest = next(ngram for ngram in words if common.get(ngram) == often)
        return Templates(len(common), sum(not own.isdisjoint(common) for own in texts), commonest, often)

    def same_words(self, place: int, example: str) -> str:
        """Return the longest stretch of a text's words whose n-grams all stand in an example."""
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


Verdict: TypeAlias = Literal["contained", "nearly contained", "alike in meaning", "clean", "too short to tell"]
Part: TypeAlias = Literal["item", "prompt"]
_Found: TypeAlias = Literal["contained", "not contained", "too short"]


class AuditSettings(Settings):
    """Thresholds of an audit."""

    order: int = Field(8, ge=4)
    """Words of an n-gram; a shorter text is one n-gram, and texts of fewer than 4 words are not looked for."""
    contained: float = 0.95
    """Share from which on a text is contained: both of all n-grams, and of the n-grams outside templates."""
    nearly: float = 0.5
    """Share of the n-grams outside templates from which on a text is nearly contained."""
    cosine: float = Field(0.97, ge=-1, le=1, allow_inf_nan=False)
    """Cosine of embeddings from which on an item and an example are alike in meaning."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if not 0 < self.nearly <= self.contained <= 1:
            raise ConfigError(
                "audit: the settings 'nearly' and 'contained' must be shares with 0 < nearly <= contained <= 1."
            )
        return self


@dataclass(frozen=True)
class SameText:
    """The training example that contains most of an item's words."""

    part: Part
    """The whole item, or its prompt alone if the example contains a greater share of the prompt."""
    share: float
    """Share of n-grams that the example has: of all if the item is contained, else of those outside templates."""
    words: str
    """The longest common stretch of words, normalised."""
    row: int
    """Row number in the index."""
    example: Record


@dataclass(frozen=True)
class SameMeaning:
    """The training example nearest in meaning to an item."""

    cosine: float
    """Cosine of the embeddings."""
    row: int
    """Row number in the index."""
    example: Record


@dataclass(frozen=True)
class Audited:
    """Findings about one evaluation item."""

    item: Record
    verdict: Verdict
    text: SameText | None
    """None if no n-gram of the item was found, or the item is too short."""
    meaning: SameMeaning | None
    """None if the index holds no embeddings, or more than half of the item's text is unknown to the encoder."""


@dataclass(frozen=True, repr=False)
class AuditResult(Answer):
    """Findings about each evaluation item, in their order."""

    items: tuple[Audited, ...]
    settings: AuditSettings
    encoder: str | None
    """The encoder that compared meanings; None if the index holds no embeddings, so that only words were compared."""
    provenance: Provenance
    templates: Templates | None = None
    """Word stretches of the items that were ignored, because too many training examples have them."""
    not_judged: int = 0
    """Items not judged by meaning: the encoder knows less than half of the text, or of every example's text."""
    kind: ClassVar[str] = "audit"

    def _records(self) -> Iterator[dict[str, Any]]:
        for one in self.items:
            text, meaning = one.text, one.meaning
            yield {
                "item": one.item.id,
                "verdict": one.verdict,
                "share": text and text.share,
                "words": text and text.words,
                "row": text and text.row,
                "id": text and text.example.id,
                "cosine": meaning and meaning.cosine,
                "nearest row": meaning and meaning.row,
                "nearest id": meaning and meaning.example.id,
                **{name: value for name, value in fields_of(one.item).items() if name != "id"},
            }

    def count(self, verdict: Verdict) -> int:
        """Return the number of items with a verdict."""
        return sum(item.verdict == verdict for item in self.items)

    @property
    def leaks(self) -> list[Audited]:
        """Items that are contained, nearly contained, or alike in meaning, in their order."""
        return [item for item in self.items if item.verdict not in ("clean", "too short to tell")]


def audit(
    index: IndexLike,
    items: Queries,
    *,
    where: str | None = None,
    settings: AuditSettings | Mapping[str, Any] | None = None,
    progress: OnProgress | None = None,
) -> AuditResult:
    """Look for evaluation items in the training data, by words and by meaning.

    By words: the greatest share of different word 8-grams, of the whole item (prompt and response) or of its prompt
    alone, that one training example has; case and punctuation do not count. An item is only nearly contained if all its
    words stand there with different signs that carry meaning, such as `<` for `>`. N-grams of templates and system
    prompts, which stand in more than 10 different examples and in more than 0.5 % of all, are ignored: an item is
    contained only if the same example has most of its other n-grams too, or all of it. (Equal examples count once, and
    so do the parts of a record.) By meaning: the greatest cosine of embeddings, if the index has a sentence encoder;
    texts that are mostly unknown to the encoder are left out. All training examples are compared.

    An item's system prompt and tools do not count. If most of at least 5 items share a stretch of words, each item is
    compared with it and without it.

    Args:
        index: the index of the training data; or its path.
        items: evaluation items, with their reference answers.
        where: a filter; only training examples that match it are searched.
        settings: thresholds, as settings or a dict.
        progress: called with the number of training examples that were read.

    Raises:
        ConfigError: no item, no matching training example, or an invalid filter or threshold.

    Example:
        >>> found = airrep.audit(index, train[:2])
        >>> len(found.items)
        2
    """
    index = as_index(index, "audit")
    asked, keep = list(as_examples(items, "items", index.asking)), index.kept(where)
    chosen = AuditSettings.given(settings, "audit")
    looking = _Looking(index, asked, keep, chosen, progress)
    stored = StoredMeaning.of(index)
    nearest = [None] * len(asked) if stored is None else stored.nearest(asked, keep)
    audited = []
    for place, (item, found) in enumerate(zip(asked, nearest, strict=True)):
        meaning = None if found is None else SameMeaning(min(found[1], 1.0), found[0], index.example(found[0]))
        text, told = looking.same_text(place)
        audited.append(Audited(item, _verdict(text, told, meaning, chosen), text, meaning))
    encoder = None if stored is None else str(stored.encoder.settings.encoder)
    not_judged = 0 if stored is None else nearest.count(None)
    return AuditResult(tuple(audited), chosen, encoder, index.provenance(), looking.templates, not_judged)


def _verdict(text: SameText | None, found: _Found, meaning: SameMeaning | None, settings: AuditSettings) -> Verdict:
    if found == "contained":
        return "contained"
    if text is not None and text.share >= settings.nearly:  # 1 too: rare n-grams only
        return "nearly contained"
    if meaning is not None and meaning.cosine >= settings.cosine - ALIKE:
        return "alike in meaning"
    return "too short to tell" if found == "too short" and meaning is None else "clean"


class _Looking:
    """Search the kept examples of an index for the words of the items, then for the words of their prompts."""

    def __init__(
        self, index: Index, items: Sequence[Example], keep: Mask, settings: AuditSettings, progress: OnProgress | None
    ) -> None:
        self._index, self._count, self._settings = index, len(items), settings
        texts = [(folded(item.prompt).removeprefix(SYSTEM), item.response) for item in items]
        shared, looked = _shared(texts, settings.order), list[str]()
        # A copy may have what the items share, or not: each item is looked up with it, and without it.
        cut = [
            (_without(asked, shared, settings.order), _without(said, shared, settings.order)) for asked, said in texts
        ]
        for pairs in (texts, cut) if shared else (texts,):
            # A prompt alone must be long enough: many items share short prompts, such as "Is it true?".
            # A short question counts with its system prompt, which is a template if many examples have it.
            both = [(prompt, item.prompt) for (prompt, _), item in zip(pairs, items, strict=True)]
            prompts = [next((one for one in two if len(words_of(one)) >= settings.order), "") for two in both]
            looked += [*map("\n".join, pairs), *prompts]
        self._all = Containment(looked, settings.order, shared)
        count = int(keep.sum())
        on_rows, keys = count_rows(count, progress, stage="reading examples"), RecordKeys()
        for row, example in kept_examples(index, keep):
            self._all.see([Seen(row, _whole(example), keys.of(example))])
            on_rows(1)
        # Phrases of many examples, such as "answer with yes or no", would make items of one template look contained.
        self._rare = self._all.without_common(most_of_texts(count))
        self._rare.see(Seen(row, _whole(example)) for row, example in kept_examples(index, keep))
        self.templates = self._all.common_of(len(items), most_of_texts(count))

    def same_text(self, place: int) -> tuple[SameText | None, _Found]:
        """Return the example with most of an item's words, and the finding by words alone."""
        rare, places = self._rare, range(place, len(self._all.found), self._count)
        for prompt in places[1::2]:
            if 0 < rare.size(prompt) < min(self._settings.order, self._all.size(prompt)):
                rare.found[prompt] = None  # a short question after a long system prompt is too short
        contained = {one: found for one in places if (found := self._contained(one)) is not None}
        if contained:
            return self._most_of(self._all, contained), "contained"
        some = self._most_of(rare, {one: found for one in places if (found := rare.found[one]) is not None})
        return some, "too short" if rare.found[places[-2]] is None else "not contained"

    def _contained(self, place: int) -> Contained | None:
        """Return the example that has all of a text, with the same signs, or enough of all and of the rare n-grams."""
        best = self._all.found[place]
        if best is None or best.share < self._settings.contained:
            return None
        if best.share == 1.0:
            return None if place in self._all.other_signs else best
        for found in (best, self._rare.found[place]):
            if found is not None and found.row >= 0:
                example = _whole(self._index.example(found.row))
                share = self._all.share(place, example)
                if min(share, self._rare.share(place, example)) >= self._settings.contained:
                    return Contained(share, found.row)
        return None

    def _most_of(self, looked: Containment, found: Mapping[int, Contained]) -> SameText | None:
        """Return the example with the greatest share of one of an item's texts, by their places; None without any."""
        place = max(found, key=lambda one: found[one].share, default=-1)
        if place < 0 or found[place].row < 0:
            return None
        best = found[place]
        example = self._index.example(best.row)
        part: Part = "prompt" if place // self._count % 2 else "item"
        return SameText(part, best.share, looked.same_words(place, _whole(example)), best.row, example)


def _whole(example: Example) -> str:
    return f"{example.prompt}\n{example.response}"


def _shared(texts: Sequence[tuple[str, str]], order: int) -> Set[str]:
    """Return the n-grams that most items share, prompts and responses together."""
    different = {tuple(words_of("\n".join(text))) for text in texts}
    counts = Counter(ngram for words in different for ngram in set(ngrams_of(words, order)))
    return {ngram for ngram, count in counts.items() if count > max(FEW_ITEMS, len(different) / 2)}


def _without(text: str, shared: Collection[str], order: int) -> str:
    """Return a text without the stretches of *order* words in *shared*, but for parts between spaces that go on."""
    pieces = re.findall(r"\s*\S+", text) if shared else [text]
    words = [words_of(piece) for piece in pieces]
    ngrams = enumerate(ngrams_of([word for own in words for word in own], order))
    gone = {start + step for start, ngram in ngrams if ngram in shared for step in range(order)}
    kept, place, left_out = list[str](), 0, False
    for piece, own in zip(pieces, words, strict=True):
        left_out = gone.issuperset(range(place, place + len(own))) if own else left_out
        kept += [] if left_out else [piece]
        place += len(own)
    return "".join(kept)
