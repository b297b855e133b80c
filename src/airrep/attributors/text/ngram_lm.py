"""Attribution by an n-gram language model, with an LM that may weight the tokens."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np

from airrep.arrays import Features, Rows, SparseFeatures
from airrep.attributors.base import MethodAttributor, OnRows
from airrep.attributors.language import heard_losses
from airrep.attributors.settings import TOKENIZERS, NgramSettings
from airrep.attributors.text.columns import (
    COLUMNS,
    LENGTH,
    Background,
    Counted,
    count_ngrams,
    ngram_columns,
    ngram_places,
    order_of,
    tally,
)
from airrep.attributors.text.tokens import (
    BehindSpace,
    FoundTokens,
    LearntTokens,
    Split,
    TokenBatch,
    chat_of,
    mark_copied,
    tokenizer_of,
)
from airrep.corpus.corpus import Corpus, Example, have_spans
from airrep.corpus.places import Places
from airrep.corpus.spans import shares
from airrep.corpus.views import chosen_sides, seen_text, seen_texts
from airrep.errors import ConfigError
from airrep.lm.settings import LmReading, LmSettings
from airrep.runtime.artifacts import json_digest
from airrep.scoring.pooling import Pool
from airrep.shapes import Float64
from airrep.sparse import SparseRows, below

if TYPE_CHECKING:
    from airrep.lm.chat import TokenPlaces
    from airrep.lm.model import TargetLM

    _Found: TypeAlias = tuple[list[np.ndarray], list[TokenPlaces]]


LM_SETTINGS = ("lm", "device", "precision", *LmReading.model_fields)
"""Settings of the LM that weights tokens."""
TOGETHER = 4096
"""Examples whose n-grams are counted at a time."""
_UNKNOWN = 1e3
"""Loss, in nats, that replaces one that is not finite: the LM does not expect the token at all."""
HELD_TOKENS = 2**26
"""Most bytes of tokens that are held between two readings of a corpus."""
HELD = 2**27
"""Most bytes of losses and places that are cached for other channels; the latest examples are always cached."""
OBJECTS = 512
"""Bytes of the Python objects around one example's numbers."""


class NgramAttributor(MethodAttributor[NgramSettings]):
    """A count-based language model: how much likelier S makes the n-grams of the query's response.

    f(x, S) = Σ_g c_x(g)/|x| · log[(1 − λ) + λ p_S(g)/b(g)] − Σ_g c_x(g)/|x| · log(1 − λ), where g runs over the n-grams
    of all orders, c counts them, b is their smoothed frequency in the training corpus and p_S their frequency in the
    group, in which an example of |z| tokens has the weight |z|^length. With ``skip``, pairs of tokens with one between
    them are a further order, whose gains are multiplied by this setting. f is the gain in log likelihood of a language
    model mixed with the counts of S, minus that of an empty S, which is the same for all groups. The sums are inside
    the logarithm, so a second example that says the same adds less.

    With an ``lm``, c(g) adds up 1 − p over the places of g, p being the probability that this LM gives the last token
    of g there: tokens that the LM expects already count little, in the query and in S. 1 − p is the size of the
    gradient of a token's loss with respect to its logit. b stays the plain frequency.

    φ_train(z) holds log(1 + λ/(1−λ) · p_z(g)/b(g)), and in the first column |z|^length, for the pool ``ngram-lm``;
    φ_query(x) holds c_x(g)/|x|. So the score of an example is that of a group of one.
    """

    name = "ngram"
    reads_spans = True
    pool: ClassVar[Pool] = "ngram-lm"
    symmetric = False

    def __init__(self, settings: NgramSettings | None = None) -> None:
        super().__init__(settings or NgramSettings())
        self._background: Background | None = None
        self._held: dict[str, TokenBatch] = {}
        """Tokens of parts of the corpus, from :meth:`fit` until :meth:`encode_train` takes them out."""

    @cached_property
    def _tokenizer(self) -> tuple[Split, str]:
        split, digest = tokenizer_of(self._settings.tokenizer, self._settings.signs)
        return (BehindSpace(split) if self._settings.space else split), digest

    @cached_property
    def _learnt(self) -> LearntTokens | None:
        """Finds the tokens that a trainer learns; None unless ``rendered`` is set and the model has a chat template."""
        named = self._settings
        if not named.rendered or named.tokenizer in TOKENIZERS or (named.lm and not named.counts_tokens_of_lm):
            return None
        chat = chat_of(named) if named.lm is None else self.lm.chat
        return None if chat is None or chat.plain is not None else LearntTokens(chat, self._tokenizer[0])

    @cached_property
    def lm(self) -> "TargetLM":
        """The language model that weights tokens, loaded when first needed; only with the setting ``lm``."""
        from airrep.lm.model import shared_lm  # here, since it loads torch, which counting does not need

        named = self._settings.model_dump(include=set(LM_SETTINGS))
        return shared_lm(LmSettings.of({name: value for name, value in named.items() if value is not None}))

    @property
    def execution(self) -> Mapping[str, str]:
        return {} if self._settings.lm is None else {"precision": self.lm.execution.precision}

    @property
    def fingerprint(self) -> str:
        learnt = sha256()
        for part in self.check_fitted(self._background):
            learnt.update(np.ascontiguousarray(part).tobytes())
        settings = self._settings.model_dump(exclude={"tokenizer", "rendered", *LM_SETTINGS})
        known = {"settings": settings, "tokenizer": self._tokenizer[1], "learnt": learnt.hexdigest()}
        if self._settings.lm is not None:
            known["lm"] = self.lm.fingerprint
        if self._learnt is not None:  # without a chat template, tokens come from the plain texts
            known["rendered"] = self._learnt.reading
        return json_digest({"method": self.name, **known})

    def unusable(self, examples: Sequence[Example]) -> Mapping[int, str]:
        if self._settings.lm is not None:
            return self.lm.unusable(chosen_sides(examples))
        return {} if self._learnt is None else self._learnt.chat.refused(chosen_sides(examples))

    def rendering(self, examples: Iterable[Example]) -> Mapping[str, str]:
        return {} if self._settings.lm is None else self.lm.rendering(examples)

    def fit(self, train: Corpus) -> None:
        """Count the n-grams of the training corpus.

        ConfigError: no example has a token in the view, or the LM does not exist.
        """
        if self._settings.lm is not None:
            self.lm.check_readable(train, self.name)
        found = tally(self._read(train), self._settings.kinds)
        if not found.totals.any():
            raise ConfigError(
                f"ngram: no training example has a token in the part that view={self._settings.view} reads. Set "
                "another view (whole, response or prompt), or use another method."
            )
        self._background = found

    def encode_train(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> SparseFeatures:
        known, settings = self.check_fitted(self._background), self._settings
        share = settings.mix / (1 - settings.mix)
        parts = []
        for counted in self._counted(examples, self._settings.lm is not None):
            frequency = known.frequency(counted.columns, settings.smoothing)
            gains = np.log1p(share * counted.shares / frequency)
            weights = np.where(counted.lengths > 0, counted.lengths**settings.length, 0.0)
            rows = np.arange(len(weights), dtype=np.int32)
            parts.append(
                SparseRows.from_cells(
                    np.concatenate([rows, counted.rows]),
                    np.concatenate([np.full(len(rows), LENGTH, np.int32), counted.columns]),
                    np.concatenate([weights, gains]).astype(np.float32),
                    (len(rows), COLUMNS),
                )
            )
            if on_rows is not None:
                on_rows(len(rows))
        return below(parts or [SparseRows.empty(0, COLUMNS)])

    def encode_queries(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> SparseFeatures:
        """φ_query: each n-gram's count over the query's tokens, pairs with a gap times ``skip``; no length column.

        For a query with a span, an n-gram counts by the share of it in the span; |x| stays that of the whole answer.
        """
        self.check_fitted(self._background)
        parts = []
        for counted in self._counted(examples, self._settings.lm is not None, have_spans(examples)):
            rows = len(counted.lengths)
            gap = order_of(counted.columns) == len(self._settings.orders)
            weights = (np.where(gap, self._settings.skip, 1.0) * counted.shares).astype(np.float32)
            parts.append(SparseRows.from_cells(counted.rows, counted.columns, weights, (rows, COLUMNS)))
            if on_rows is not None:
                on_rows(rows)
        return below(parts or [SparseRows.empty(0, COLUMNS)])

    def less(self, chosen: Features, rejected: Features, rows: Rows) -> Features:
        """Subtract gains of rejected responses; a pair keeps the length |z| of its chosen response."""
        assert isinstance(rejected, SparseRows)
        return super().less(chosen, rejected.where(rejected.indices != LENGTH), rows)

    def times(self, features: Features, factors: Float64[np.ndarray, " rows"]) -> Features:
        assert isinstance(features, SparseRows)
        found = super().times(features, factors)
        return features.with_data(np.where(features.indices == LENGTH, features.data, found.data))

    def places(self, example: Example) -> Places:
        self.check_fitted(self._background)
        settings, found = self._settings, self._placed(example)
        found = found._replace(numbers=self._marked(TokenBatch.of([found.numbers]), [example]).numbers)
        return Places.of(example, settings.view, *ngram_places(found, settings.orders, settings.skip > 0))

    def _placed(self, example: Example) -> FoundTokens:
        """Return the tokens of the text that the view shows, with their places in it."""
        text = seen_text(example, self._settings.view)
        return self._found([example])[0] if self._learnt else self._tokenizer[0].find(text if text.strip() else "")

    def _shares(self, example: Example) -> np.ndarray:
        """Return the share of each token, and of the end, in an example's span; ones without span or response."""
        found, text = self._placed(example), seen_text(example, self._settings.view)
        if example.span is None or self._settings.view == "prompt":
            return np.ones(len(found.numbers) + 1)
        before = len(text) - len(example.response)
        spans = tuple((start + before, stop + before) for start, stop in example.span)
        return shares(text, spans, *(np.append(part, len(text)) for part in (found.starts, found.stops)))

    def _counted(self, examples: Sequence[Example], weighed: bool = False, spanned: bool = False) -> Iterator[Counted]:
        """Count n-grams, some examples at a time; *weighed* by the LM, *spanned* by the share in spans."""
        orders, skip = self._settings.orders, self._settings.skip > 0
        for start in range(0, len(examples), TOGETHER):
            some = examples[start : start + TOGETHER]
            if weighed:
                tokens, weights = self._weighed(some)
            else:
                known = self._held.pop(some.fingerprint, None) if self._held and isinstance(some, Corpus) else None
                tokens, weights = self._tokens(some) if known is None else known, None
            yield count_ngrams(tokens, orders, skip, weights, list(map(self._shares, some)) if spanned else None)

    def _read(self, train: Corpus) -> Iterator[np.ndarray]:
        """Yield the columns of a corpus's n-grams; hold its tokens for :meth:`encode_train` while there is room."""
        orders, skip = self._settings.orders, self._settings.skip > 0
        self._held, left = {}, HELD_TOKENS
        for start in range(0, len(train), TOGETHER):
            some = train[start : start + TOGETHER]
            tokens = self._tokens(some)
            left -= tokens.numbers.nbytes + tokens.ends.nbytes
            # with an LM, encode_train needs places of tokens as well
            if left >= 0 and self._settings.lm is None and isinstance(some, Corpus):
                self._held[some.fingerprint] = tokens
            yield ngram_columns(tokens, orders, skip)

    def _weighed(self, examples: Sequence[Example]) -> tuple[TokenBatch, list[np.ndarray]]:
        """Return the tokens of each response, and the weight 1 − p of each token and of the end."""
        found = self._found(examples)
        own = [self._learnt is not None and self._learnt.chat.writes(one) for one in examples]
        tokens = self._marked(TokenBatch.of([one.numbers for one in found]), examples)
        return tokens, unexpected(self.lm, examples, found, own)

    def _found(self, examples: Sequence[Example]) -> list[FoundTokens]:
        """Return the tokens of each response with their places."""
        if self._learnt is not None:
            return self._learnt.find(examples)
        return [self._tokenizer[0].find(one.response) for one in examples]

    def _tokens(self, examples: Sequence[Example]) -> TokenBatch:
        """Return the tokens that the view shows of each example."""
        if self._learnt is not None:
            return TokenBatch.of([own.numbers for own in self._learnt.find(examples)])
        texts = seen_texts(examples, self._settings.view)
        return self._marked(self._tokenizer[0]([text if text.strip() else "" for text in texts]), examples)

    def _marked(self, tokens: TokenBatch, examples: Sequence[Example]) -> TokenBatch:
        """With ``copied``, replace words that the prompt has by one mark."""
        copied, signs = self._settings.copied, self._settings.signs
        return mark_copied(tokens, seen_texts(examples, "prompt"), signs) if copied else tokens

    def save_state(self, folder: Path) -> None:
        for name, part in self.check_fitted(self._background)._asdict().items():
            np.save(folder / f"{name}.npy", part)

    def load_state(self, folder: Path) -> None:
        self._background = Background(
            *(np.load(folder / f"{name}.npy", allow_pickle=False) for name in Background._fields)
        )


def unexpected(
    lm: "TargetLM", examples: Sequence[Example], found: Sequence[FoundTokens], own: Sequence[bool] = ()
) -> list[np.ndarray]:
    """Return 1 − p of each response's tokens and its end, p being the LM's probability of them, ``(t + 1,)`` each.

    *found* are the counted tokens. If these are not the LM's *own*, the loss of each LM token is divided equally among
    its characters that are not spaces, and a counted token has the sum of its characters' losses. ConfigError: the LM's
    tokenizer does not give places of tokens. DataError: the LM cannot read an example.
    """
    flags = own or [False] * len(examples)
    read = _remembered.setdefault(lm, _Memory()).found(lm, examples)  # other channels need not read again
    return [_misses(*row) for row in zip(examples, found, *read, flags, strict=True)]


class _Memory:
    """Cache of an LM's losses and places for lists of examples, of :data:`HELD` bytes; the latest list always fits.

    Only the same list is found again: in another batch the last digits of losses may differ, so that an index would
    depend on what was read before it.
    """

    def __init__(self) -> None:
        self._known: dict[str, _Found] = {}
        self._bytes = 0

    def found(self, lm: "TargetLM", examples: Sequence[Example]) -> "_Found":
        """Return losses that came with the gradients of all these examples, or cached ones, or read them now."""
        heard = heard_losses(lm).of([lm.key(example) for example in examples])
        if heard is not None:
            return heard, lm.chat.tokenise_with_places(examples)[1]
        asked = json_digest([example.reading_hash for example in examples])
        found = self._known.get(asked)
        if found is None:
            documents, places = lm.chat.tokenise_with_places(examples)
            found = lm.token_losses(documents), places
            self._keep(asked, found)
        return found

    def _keep(self, asked: str, found: "_Found") -> None:
        self._known[asked] = found
        self._bytes += _size(found)
        while self._bytes > HELD and len(self._known) > 1:
            self._bytes -= _size(self._known.pop(next(iter(self._known))))


def _size(found: "_Found") -> int:
    """Return the bytes of the arrays and of the objects around them."""
    parts = zip(*found, strict=True)
    return sum(OBJECTS + own.nbytes + places.starts.nbytes + places.stops.nbytes for own, places in parts)


_remembered: "WeakKeyDictionary[TargetLM, _Memory]" = WeakKeyDictionary()


def _misses(
    example: Example, found: FoundTokens, losses: np.ndarray, places: "TokenPlaces", own: bool = False
) -> np.ndarray:
    nats = np.where(np.isfinite(losses), losses, _UNKNOWN).astype(np.float64)
    if own:
        count = len(found.numbers)
        return _miss(np.append(nats[:count], nats[count:].sum()))
    until = np.concatenate([[0.0], np.cumsum(_spread(example.response, nats, places))])
    ending = nats[places.starts >= len(example.response)].sum()
    return _miss(np.append(until[found.stops] - until[found.starts], ending))


def _miss(nats: np.ndarray) -> np.ndarray:
    """Return 1 − p for losses −log p."""
    return np.asarray(-np.expm1(-np.maximum(nats, 0.0)))


def _spread(text: str, losses: np.ndarray, places: "TokenPlaces") -> np.ndarray:
    """Divide each token's loss equally among its characters, without spaces unless all are; ``(characters,)`` nats."""
    marks = np.fromiter((not letter.isspace() for letter in text), bool, len(text))
    before = np.concatenate([[0], np.cumsum(marks)])
    shared = np.zeros(len(text))
    for loss, start, stop in zip(losses, places.starts, places.stops, strict=True):
        count = before[stop] - before[start]
        if count:
            shared[start:stop] += marks[start:stop] * (loss / count)
        elif stop > start:
            shared[start:stop] += loss / (stop - start)
    return shared
