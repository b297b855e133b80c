"""Attribution by a counting language model over the n-grams of responses."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
from scipy import sparse

from airrep.arrays import SparseFeatures
from airrep.attributors.base import MethodAttributor, OnRows
from airrep.attributors.settings import TOKENIZERS, NgramSettings
from airrep.attributors.text.columns import COLUMNS, LENGTH, Counted, count_ngrams, ngram_places, order_of
from airrep.attributors.text.expected import unexpected
from airrep.attributors.text.learnt import LearntTokens, chat_of
from airrep.attributors.text.tokens import BehindSpace, FoundTokens, Split, TokenBatch, mark_copied, tokenizer_of
from airrep.corpus.corpus import Corpus, Example
from airrep.corpus.places import Places
from airrep.corpus.views import seen_text, seen_texts
from airrep.errors import ConfigError
from airrep.lm.settings import LmSettings
from airrep.runtime.artifacts.digests import json_digest
from airrep.scoring.pooling import Pool

if TYPE_CHECKING:
    from airrep.lm.model import TargetLM

LM_SETTINGS = ("lm", "base", "merged", "device", "precision", "max_tokens", "cut", "template", "batch_tokens")
"""Settings that say which LM weighs tokens, and how it computes."""
TOGETHER = 4096
"""Examples whose n-grams are counted at a time."""


class Background(NamedTuple):
    """Counts of n-grams in the training corpus."""

    columns: np.ndarray
    """``(k,)`` int32, ascending: the columns of n-grams that occur twice or more."""
    counts: np.ndarray
    """``(k,)`` int64 of each."""
    totals: np.ndarray
    """``(orders, 2)`` int64: n-grams of each order in all, and how many different ones."""

    def frequency(self, columns: np.ndarray, smoothing: float) -> np.ndarray:
        """Relative frequencies, smoothed; an n-gram that is not listed counts as one that occurs once."""
        counts = np.ones(len(columns))
        if len(self.columns):
            place = np.minimum(np.searchsorted(self.columns, columns), len(self.columns) - 1)
            counts = np.where(self.columns[place] == columns, self.counts[place], 1)
        # An order that the corpus has no n-gram of counts as if it had one, so that it may come with appended examples.
        whole, different = self.totals[order_of(columns)].clip(min=1).T
        return np.asarray((counts + smoothing) / (whole + smoothing * different))


class NgramAttributor(MethodAttributor[NgramSettings]):
    """A language model that counts: how much likelier S makes the n-grams of the query's response.

    f(x, S) = Σ_g c_x(g)/|x| · log[(1 − λ) + λ p_S(g)/b(g)] − Σ_g c_x(g)/|x| · log(1 − λ), where g runs over the n-grams
    of all orders, c counts them, b is their frequency in the training corpus and p_S that in the group, in which an
    example of |z| tokens weighs |z|^length. Pairs with a gap, if counted, are an order of their own, whose gains are
    multiplied by the setting ``skip``. It is the gain in log likelihood of a language model that is told what S
    says, less that of an empty S, which is the same for all groups. The sums are inside the logarithm, so a second
    example that says the same adds less.

    With an ``lm``, c(g) sums 1 − p over the places of g, p being the probability that this LM gives the last token of g
    there: what it knows already is not learnt from S, and what it expects of x is no gain. So is the gradient of a
    token's loss by its logit. b stays the plain frequency.

    φ_train(z) holds log(1 + λ/(1−λ) · p_z(g)/b(g)), and in the first column |z|^length, for the pool ``ngram-lm``;
    φ_query(x) holds c_x(g)/|x|. So a score is that of a group of one.
    """

    name = "ngram"
    pool: ClassVar[Pool] = "ngram-lm"

    def __init__(self, settings: NgramSettings | None = None) -> None:
        super().__init__(settings or NgramSettings())
        self._background: Background | None = None

    @cached_property
    def _tokenizer(self) -> tuple[Split, str]:
        split, digest = tokenizer_of(self._settings.tokenizer, self._settings.signs)
        return (BehindSpace(split) if self._settings.space else split), digest

    @cached_property
    def _learnt(self) -> LearntTokens | None:
        """The tokens that a trainer learns, where those of a model are counted that has a chat template."""
        named = self._settings
        if not named.rendered or named.tokenizer in TOKENIZERS or (named.lm and not named.counts_tokens_of_lm):
            return None
        chat = chat_of(named) if named.lm is None else self.lm.chat
        return None if chat is None or chat.plain is not None else LearntTokens(chat, self._tokenizer[0])

    @cached_property
    def lm(self) -> "TargetLM":
        """The language model that weighs tokens, loaded when it is first needed; only with the setting ``lm``."""
        from airrep.lm.model import shared_lm  # torch, which counting alone does not need

        named = self._settings.model_dump(include=set(LM_SETTINGS))
        return shared_lm(LmSettings.of({name: value for name, value in named.items() if value is not None}))

    @property
    def execution(self) -> Mapping[str, str]:
        return {} if self._settings.lm is None else {"precision": self.lm.execution.precision}

    @property
    def symmetric(self) -> bool:
        return False

    @property
    def fingerprint(self) -> str:
        learnt = sha256()
        for part in self._fitted():
            learnt.update(np.ascontiguousarray(part).tobytes())
        settings = self._settings.model_dump(exclude={"tokenizer", "rendered", *LM_SETTINGS})
        known = {"settings": settings, "tokenizer": self._tokenizer[1], "learnt": learnt.hexdigest()}
        if self._settings.lm is not None:
            known["lm"] = self.lm.fingerprint
        if self._learnt is not None:  # without a chat template the tokens are those of the texts
            known["rendered"] = self._learnt.reading
        return json_digest({"method": self.name, **known})

    def unusable(self, examples: Sequence[Example]) -> Mapping[int, str]:
        if self._settings.lm is not None:
            return self.lm.unusable(examples)
        return {} if self._learnt is None else self._learnt.chat.refused(examples)

    def rendering(self, examples: Iterable[Example]) -> Mapping[str, str]:
        return {} if self._settings.lm is None else self.lm.rendering(examples)

    def fit(self, train: Corpus) -> None:
        """Count the n-grams of the training corpus.

        Raises:
            ConfigError: no example has a token in the view, or there is no such LM.
            DataError: the LM cannot read an example.
        """
        if self._settings.lm is not None:
            self.lm.check_readable(train, self.name)
        columns, counts = _added_up((counted.columns, counted.counts) for counted in self._counted(train))
        if len(columns) == 0:
            raise ConfigError(
                f"ngram: no training example has a token in the view '{self._settings.view}'; expected at least one. "
                "Take another view, or another method."
            )
        order, kinds = order_of(columns), self._settings.kinds
        totals = np.stack([np.bincount(order, counts, kinds), np.bincount(order, minlength=kinds)], axis=1)
        often = counts > 1  # the others, which are most, need not be listed
        self._background = Background(columns[often], counts[often], totals.astype(np.int64))

    def encode_train(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> SparseFeatures:
        known, settings = self._fitted(), self._settings
        share = settings.mix / (1 - settings.mix)
        parts = []
        for counted in self._counted(examples, self._settings.lm is not None):
            frequency = known.frequency(counted.columns, settings.smoothing)
            gains = np.log1p(share * counted.shares / frequency)
            weights = np.where(counted.lengths > 0, counted.lengths**settings.length, 0.0)
            # The length comes before each row's n-grams, so that columns ascend.
            data = np.insert(gains, counted.ends[:-1], weights)
            columns = np.insert(counted.columns, counted.ends[:-1], LENGTH)
            ends = counted.ends + np.arange(len(counted.ends))
            parts.append(sparse.csr_array((data, columns, ends), shape=(len(ends) - 1, COLUMNS)))
            if on_rows is not None:
                on_rows(len(ends) - 1)
        return _stacked(parts)

    def encode_queries(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> SparseFeatures:
        """φ_query: the share of each n-gram in the query's tokens, pairs with a gap weighed; 0 for the length."""
        self._fitted()
        parts = []
        for counted in self._counted(examples, self._settings.lm is not None):
            rows = len(counted.lengths)
            gap = order_of(counted.columns) == len(self._settings.orders)
            weights = np.where(gap, self._settings.skip, 1.0) * counted.shares
            parts.append(sparse.csr_array((weights, counted.columns, counted.ends), shape=(rows, COLUMNS)))
            if on_rows is not None:
                on_rows(rows)
        return _stacked(parts)

    def places(self, example: Example) -> Places:
        self._fitted()
        settings = self._settings
        text = seen_text(example, settings.view)
        (found,) = self._found([example]) if self._learnt else [self._tokenizer[0].find(text if text.strip() else "")]
        found = found._replace(numbers=self._marked(TokenBatch.of([found.numbers]), [example]).numbers)
        return Places.of(example, settings.view, *ngram_places(found, settings.orders, settings.skip > 0))

    def _counted(self, examples: Sequence[Example], weighed: bool = False) -> Iterator[Counted]:
        """Counts of n-grams, some examples at a time; *weighed* by the LM."""
        orders, skip = self._settings.orders, self._settings.skip > 0
        for start in range(0, len(examples), TOGETHER):
            some = examples[start : start + TOGETHER]
            tokens, weights = self._weighed(some) if weighed else (self._tokens(some), None)
            yield count_ngrams(tokens, orders, skip, weights)

    def _weighed(self, examples: Sequence[Example]) -> tuple[TokenBatch, list[np.ndarray]]:
        """Numbers of the tokens of each example's response, and what each of them and the end count."""
        found = self._found(examples)
        own = [self._learnt is not None and self._learnt.chat.writes(one) for one in examples]
        tokens = self._marked(TokenBatch.of([one.numbers for one in found]), examples)
        return tokens, unexpected(self.lm, examples, found, own)

    def _found(self, examples: Sequence[Example]) -> list[FoundTokens]:
        """The tokens of each response with their places."""
        if self._learnt is not None:
            return self._learnt.find(examples)
        return [self._tokenizer[0].find(one.response) for one in examples]

    def _tokens(self, examples: Sequence[Example]) -> TokenBatch:
        """Numbers of the tokens that a view shows of each example."""
        if self._learnt is not None:
            return TokenBatch.of([own.numbers for own in self._learnt.find(examples)])
        texts = seen_texts(examples, self._settings.view)
        return self._marked(self._tokenizer[0]([text if text.strip() else "" for text in texts]), examples)

    def _marked(self, tokens: TokenBatch, examples: Sequence[Example]) -> TokenBatch:
        """The same, words that the prompt has as one mark if these are copied."""
        copied, signs = self._settings.copied, self._settings.signs
        return mark_copied(tokens, seen_texts(examples, "prompt"), signs) if copied else tokens

    def save_state(self, folder: Path) -> None:
        known = self._fitted()
        for name, part in known._asdict().items():
            np.save(folder / f"{name}.npy", part)

    def load_state(self, folder: Path) -> None:
        self._background = Background(
            *(np.load(folder / f"{name}.npy", allow_pickle=False) for name in Background._fields)
        )

    def _fitted(self) -> Background:
        return self.check_fitted(self._background)


def _added_up(parts: Iterable[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """N-grams, ascending, and how often they occur in all parts.

    Parts are merged when they are of like size, so that none is sorted again for every few examples.
    """
    held: list[tuple[np.ndarray, np.ndarray]] = []
    for part in parts:
        held.append(_merged([part]))
        while len(held) > 1 and 2 * len(held[-1][0]) > len(held[-2][0]):
            held.append(_merged([held.pop(), held.pop()]))
    return _merged(held)


def _merged(parts: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    found = np.concatenate([np.empty(0, np.int32), *(columns for columns, _ in parts)])
    columns, place = np.unique(found, return_inverse=True)
    counts = np.bincount(place, np.concatenate([np.empty(0), *(counts for _, counts in parts)]), len(columns))
    return columns.astype(np.int32), counts.astype(np.int64)


def _stacked(parts: Sequence[SparseFeatures]) -> SparseFeatures:
    """Features of several batches, float32 CSR."""
    if not parts:
        return sparse.csr_array(np.empty((0, COLUMNS), np.float32))
    whole: SparseFeatures = sparse.vstack(parts, format="csr").astype(np.float32)
    return whole
