"""The interface of attribution methods: encode training examples, score them for queries."""

import hashlib
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from airrep.arrays import Encoded, Features, Rows
from airrep.attributors.by_token import TokenProducts
from airrep.corpus.corpus import Corpus, Example
from airrep.corpus.places import Places
from airrep.corpus.views import both_sides, has_pairs
from airrep.errors import ConfigError, DataError, NotFittedError, many
from airrep.runtime.metering import OnProgress as OnProgress
from airrep.runtime.metering import teller
from airrep.runtime.settings import Settings
from airrep.scoring.asked import Asked, Kept
from airrep.scoring.pooling import Pool, Pooling, PoolLike
from airrep.scoring.products import ask
from airrep.shapes import Float64
from airrep.sparse import SparseRows, taken

OnRows = Callable[[int], None]
"""Callback that receives the number of further rows that are done."""

TOLERANCE = 2
"""Groups that are smaller or larger than those trained on by more than this factor get a warning."""

S = TypeVar("S", bound=Settings)
T = TypeVar("T")


def count_rows(total: int, progress: OnProgress | None, done: int = 0, stage: str = "encoding") -> OnRows:
    """Return a callback that adds further rows to *done* and reports the sum, out of *total*, to *progress*."""
    tell = teller(progress, stage)

    def on_rows(more: int) -> None:
        nonlocal done
        done += more
        tell(done, total)

    return on_rows


@dataclass(frozen=True)
class TrainedGroups:
    """The groups that features were trained to score."""

    pool: Pool
    smallest: int
    """Members of the smallest group."""
    largest: int
    """Members of the largest group."""

    def caution(self, sizes: Sequence[int], pool: str) -> str:
        """Return a warning if groups of these *sizes*, pooled by *pool*, differ from these; empty otherwise."""
        if pool != self.pool:
            return f"The encoder was trained for groups scored with --pool {self.pool}, not {pool}."
        if not sizes or (self.smallest <= TOLERANCE * min(sizes) and max(sizes) <= TOLERANCE * self.largest):
            return ""
        return (
            f"These groups have {span(min(sizes), max(sizes))} members, but the encoder was trained on groups of "
            f"{span(self.smallest, self.largest)}. Read these scores with care."
        )


def span(least: int, most: int) -> str:
    """Return "3 to 5" for 3 and 5, and a single number if both are equal."""
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


class Attributor(ABC):
    """A method of training data attribution.

    :meth:`encode` computes what an index stores of training examples. :meth:`ask` scores the stored examples, and
    groups of them, for queries; higher = more helpful. Most methods have two feature maps and a pool: the score of
    example z on query x is ⟨φ_query(x), φ_train(z)⟩, and a group score pools the scores of its members. For such a
    method define :meth:`encode_train`, and :meth:`encode_queries` if φ_query is another map. Other methods override
    ``encode`` and ``ask``.

    Features are float32, one row for each example: a dense array ``(rows, d)`` or a CSR matrix. They depend on the
    example alone (and on what :meth:`fit` learnt), never on the other examples of the call or their order. A method
    that learns from the training corpus raises NotFittedError from every call that needs :meth:`fit` first.

    Example:
        >>> method = airrep.make_attributor("tfidf")
        >>> isinstance(method, airrep.Attributor), method.name
        (True, 'tfidf')
    """

    name: ClassVar[str]
    """The method's name, as users type it."""
    units: ClassVar[str] = "inner product of features"
    """Unit of a score, as shown with results."""
    reads_spans: ClassVar[bool] = False
    """True if queries may have spans (:attr:`airrep.Example.span`); otherwise a query with a span is refused."""
    leads: ClassVar[bool] = False
    """True if other channels reuse the token losses that it computes with its LM, so that it must encode first."""
    reads_pairs: ClassVar[bool] = False
    """True if the method reads a preference pair as a whole. If False, features of a pair are those of the chosen
    response minus those of the rejected response."""
    pool: ClassVar[Pool]
    """The method's own pool for group scores."""
    feature_scale: float = 1.0
    """Factor on training features that query features are divided by, so that scores stay the same."""

    @property
    def own_pool(self) -> Pool:
        """The pool that suits these features: the method's, unless they were trained for another."""
        return self.pool if self.trained_groups is None else self.trained_groups.pool

    @property
    def own_temperature(self) -> float:
        """The temperature that suits these features if :attr:`own_pool` is attention."""
        return 1.0

    @property
    def symmetric(self) -> bool:
        """True if queries are encoded as training examples, but for :attr:`feature_scale`: order-k pools need it."""
        return type(self).encode_queries is Attributor.encode_queries

    def pooling(self, pool: PoolLike | None = None, temperature: float = 1.0) -> Pooling:
        """Return a pool for these features; None: the method's own, at its own temperature if *temperature* is 1.

        Raises:
            ConfigError: the pool or temperature does not exist, or the pool does not suit this method.
        """
        if pool is None:
            pool, temperature = self.own_pool, self.own_temperature if temperature == 1 else temperature
        pooling = Pooling.parse(pool, temperature)
        if pooling.kind == "order" and not self.symmetric:
            raise ConfigError(
                f"pool '{pooling}' (a way to score a group of examples) needs a method that encodes queries in the "
                f"same way as training examples, but {self.name} does not. Use sum, mean, attention or "
                "signed-attention."
            )
        if pooling.kind == "ngram-lm" and self.pool != "ngram-lm":
            raise ConfigError(
                f"pool 'ngram-lm' (a way to score a group): needs counts of n-grams, but {self.name} has none. Use "
                "method ngram."
            )
        return pooling

    @property
    def trained_groups(self) -> TrainedGroups | None:
        """The groups whose scores the features were trained for; None if they were not, or that is not known."""
        return None

    @property
    @abstractmethod
    def settings(self) -> Settings:
        """The settings that the method was made with."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """64 hex digits, equal exactly when features are computed, and by default pooled, in the same way."""

    @property
    def features_fingerprint(self) -> str:
        """The :attr:`fingerprint` without the pool, for a channel, whose recipe names the pool."""
        return self.fingerprint

    @property
    def execution(self) -> Mapping[str, str]:
        """Facts of the computation that change only the last digits of features, such as the precision."""
        return {}

    def load(self) -> Mapping[str, str]:
        """Load the model now, if the method has one, and return :attr:`execution`, which depends on it."""
        return self.execution

    @property
    def caution(self) -> str:
        """A warning for readers of the scores; empty if there is none."""
        return ""

    def float_noise(self, train: Corpus) -> Mapping[str, float]:  # noqa: ARG002
        """Compare a few examples' features with float32: ``cosine``, ``rank_correlation``; empty for most methods."""
        return {}

    def fit(self, train: Corpus) -> None:
        """Learn from the training corpus what the features need; most methods need nothing."""

    def unusable(self, examples: Sequence[Example]) -> Mapping[int, str]:  # noqa: ARG002
        """Return the row of each example that the method cannot read, with the reason."""
        return {}

    def rendering(self, examples: Iterable[Example]) -> Mapping[str, str]:  # noqa: ARG002
        """Return how these examples are read, as far as the fingerprint does not cover it; empty for most methods.

        The examples may be iterated over several times.
        """
        return {}

    def encode(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> Encoded:
        """Return the features that an index stores, by channel; a single method is one channel of its own name.

        Raises:
            ConfigError: the method did not return one row of features for each example.
        """
        found = self._of_sides(self.encode_train, examples, on_rows)
        factors = self.factors(examples)
        return {self.name: found if factors is None else self.times(found, factors)}

    def factors(self, examples: Sequence[Example]) -> Float64[np.ndarray, " rows"] | None:  # noqa: ARG002
        """Return a factor for the features of each training example; None, as for most data, stands for 1.

        Raises:
            DataError: an example cannot be trained on with the loss of the fine-tune.
        """
        return None

    def times(self, features: Features, factors: Float64[np.ndarray, " rows"]) -> Features:
        """Multiply each row of features by its factor."""
        if isinstance(features, np.ndarray):
            return features * factors.astype(features.dtype)[:, None]
        return features.scaled(factors)

    def _of_sides(
        self,
        encode: Callable[[Sequence[Example], OnRows | None], Features],
        examples: Sequence[Example],
        on_rows: OnRows | None,
        call: str = "encode_train",
    ) -> Features:
        """Encode examples; a pair by its chosen response minus its rejected one, unless :attr:`reads_pairs`."""
        if self.reads_pairs or not has_pairs(examples):
            return checked_rows(self.name, encode(examples, on_rows), len(examples), call)
        sides = [example.sides for example in examples]
        others = {row: other for row, (_, other) in enumerate(sides) if other is not None}
        chosen = checked_rows(self.name, encode([side for side, _ in sides], on_rows), len(sides), call)
        rejected = checked_rows(self.name, encode(list(others.values()), None), len(others), call)
        return self.less(chosen, rejected, np.array(list(others), np.int64))

    def less(self, chosen: Features, rejected: Features, rows: Rows) -> Features:
        """Subtract the features of rejected responses from *rows* of *chosen*; the other rows stay."""
        if isinstance(chosen, np.ndarray):
            assert isinstance(rejected, np.ndarray)
            found = chosen.copy()
            found[rows] -= rejected
            return found
        assert isinstance(rejected, SparseRows)
        ends = np.zeros(chosen.shape[0] + 1, np.int64)
        ends[rows + 1] = rejected.lengths
        return chosen - SparseRows(rejected.data, rejected.indices, np.cumsum(ends), chosen.shape)

    def ask(
        self, queries: Sequence[Example], kept: Kept, on_rows: OnRows | None = None, channel: str | None = None
    ) -> Asked:
        """Return an object that scores stored training examples for the queries.

        *channel* is the name that *kept* stores their features under; by default the method's name.

        Raises:
            ConfigError: the method did not return one row of features for each query.
        """
        found = self._of_sides(self.encode_queries, queries, on_rows, "encode_queries")
        return ask(found, kept.blocks(channel or self.name), self.pooling(), scale=self.feature_scale)

    def encode_train(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> Features:  # noqa: ARG002
        """φ_train of each example, ``(rows, d)``."""
        raise ConfigError(f"{self.name}: the class must define encode_train, or both encode and ask.")

    def encode_queries(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> Features:
        """φ_query of each example, ``(rows, d)``; by default the same as φ_train."""
        return self.encode_train(examples, on_rows)

    def places(self, example: Example) -> Places | None:  # noqa: ARG002
        """Return where the words behind each feature stand in an example's texts; None if features count no words."""
        return None

    def tokens(self, query: Example, examples: Sequence[Example]) -> list[TokenProducts] | None:  # noqa: ARG002
        """Split each training example's score for a query over pairs of their tokens; None if the method cannot.

        The pairs of an example add up to its score. A method with :meth:`places` need not define this: an index splits
        the score by these places.

        Raises:
            ConfigError: a part of the score belongs to no token.
        """
        return None

    def save_state(self, folder: Path) -> None:
        """Write into *folder* what :meth:`fit` learnt; most methods have nothing to write."""

    def load_state(self, folder: Path) -> None:
        """Read back what :meth:`save_state` wrote."""


def checked_rows(method: str, features: Any, rows: int, call: str = "encode_train") -> Features:
    """Check features that a method returned for *rows* examples; SciPy matrices become :class:`SparseRows`.

    ConfigError: they are not numbers of shape ``(rows, d)``.
    """
    found: Any = taken(features)
    if not isinstance(found, np.ndarray | SparseRows) or len(found.shape) != 2 or found.dtype.kind not in "fiub":
        shape = tuple(getattr(found, "shape", ()))
        what = f"a {type(found).__name__}{f' {shape} of {found.dtype}' if shape else ''}"
        raise bad_method(method, call, what, "a NumPy array or scipy.sparse.csr_array of numbers with shape (rows, d)")
    if found.shape[0] != rows:
        raise bad_method(method, call, f"{found.shape[0]} rows for {rows} examples", "one row for each example")
    return found


def check_spans_read(method: Attributor, queries: Sequence[Example]) -> None:
    """Refuse a query with a span if the method, or a channel with a weight, scores only whole answers (ConfigError)."""
    blind = [part.name for part in counted_parts(method) if not part.reads_spans]
    spanned = next((one for one in queries if one.span is not None), None)
    if blind and spanned is not None:
        raise ConfigError(
            f"query '{spanned.id}' has a marked span, but {blind[0]} scores only whole answers. Remove the span, or "
            "ask an index built with other methods."
        )


class BrokenMethodError(ConfigError):
    """A method returned something that breaks its interface."""


def bad_method(method: str, call: str, found: str, expected: str) -> BrokenMethodError:
    """Return the error for a method whose *call* returned *found* instead of *expected*."""
    return BrokenMethodError(f"{method}: {call} returned {found}; expected {expected}. Correct the method.")


class SlowFit(Attributor):
    """A method whose :meth:`fit` takes long, and so reports progress."""

    @abstractmethod
    def fit(self, train: Corpus, progress: OnProgress | None = None) -> None:
        """Learn from the training corpus what the features need."""


def fit_method(attributor: Attributor, train: Corpus, progress: OnProgress | None = None) -> None:
    """Fit a method on the training corpus; a :class:`SlowFit` reports progress.

    A method that does not read pairs as a whole learns from both responses, as from two examples.
    """
    train = train if attributor.reads_pairs else both_sides(train)
    if isinstance(attributor, SlowFit):
        attributor.fit(train, progress)
    else:
        attributor.fit(train)


def usable(method: Attributor, corpus: Corpus, what: str, skip: bool = True) -> Corpus:
    """Return the examples that a method can read (DataError: none, or not all without *skip*; *what* names them)."""
    refused = method.unusable(corpus)
    if refused and not skip:
        raise DataError(
            f"{what}: cannot use {len(refused):,} of {many(len(corpus), 'example')}. The first: "
            f"{refused[min(refused)]} `airrep append --skip-invalid` leaves such examples out."
        )
    if len(refused) == len(corpus):
        raise DataError(f"{what}: no example can be read. First problem: {refused[0]} Check the data and the model.")
    return corpus.without(refused)


def sentences(text: str) -> list[str]:
    """Split a warning into sentences, so that a sentence that several methods share is shown once."""
    return [one for one in re.split(r"(?<=\.) ", text) if one]


def sample_of(train: Corpus, size: int, seed: int) -> Corpus:
    """Draw *size* examples of a corpus by the seed and their texts; return all if there are fewer.

    Neither the choice nor its order depends on the order of the corpus.
    """
    seen: Counter[bytes] = Counter()
    keys = []
    for text in train.content_hashes.tolist():
        keys.append(hashlib.sha256(b"%d %s %d" % (seed, text, seen[text])).digest())  # seen: equal texts differ
        seen[text] += 1
    return train.take(np.array(sorted(range(len(train)), key=keys.__getitem__)[:size], np.int64))


class MethodAttributor(Attributor, Generic[S]):
    """A method of airrep's own, made with its settings."""

    def __init__(self, settings: S) -> None:
        self._settings = settings

    @property
    def settings(self) -> S:
        return self._settings

    def check_fitted(self, learnt: T | None) -> T:
        """Return what :meth:`fit` learnt, or raise NotFittedError where that is None."""
        if learnt is None:
            raise NotFittedError(
                f"{self.name}: has not seen the training corpus. Call fit(train) first, or build an index."
            )
        return learnt


class SeveralMethods(MethodAttributor[S], SlowFit):
    """A method that combines several others."""

    @property
    @abstractmethod
    def parts(self) -> Sequence[Attributor]:
        """The other methods."""

    @property
    @abstractmethod
    def counted(self) -> Sequence[bool]:
        """For each of :attr:`parts`, False if its weight is 0, so that it need not be computed."""


def parts_of(method: Attributor) -> Sequence[Attributor]:
    """Return the methods that a method combines, or the method alone."""
    return method.parts if isinstance(method, SeveralMethods) else (method,)


def counted_parts(method: Attributor) -> list[Attributor]:
    """Return :func:`parts_of` a method without those of weight 0."""
    if not isinstance(method, SeveralMethods):
        return [method]
    return [part for part, counts in zip(method.parts, method.counted, strict=True) if counts]
