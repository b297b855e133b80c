"""The contract of attribution methods: encode examples, ask queries."""

import hashlib
import re
import shutil
import tempfile
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
from airrep.errors import ConfigError, DataError, NotFittedError
from airrep.runtime.metering import OnProgress as OnProgress
from airrep.runtime.metering import teller
from airrep.runtime.settings import Settings
from airrep.scoring.asked import Asked, Kept
from airrep.scoring.pooling import Pool, Pooling, PoolLike
from airrep.scoring.products import ask
from airrep.shapes import Float64
from airrep.sparse import SparseRows, taken

OnRows = Callable[[int], None]
"""Callback: how many more rows are done."""

TOLERANCE = 2
"""Factor by which groups may be smaller or larger than those trained on without a caution."""

S = TypeVar("S", bound=Settings)
T = TypeVar("T")


def count_rows(total: int, progress: OnProgress | None, done: int = 0, stage: str = "encoding") -> OnRows:
    """A callback that adds up further rows, beginning with *done*, and reports the sum to *progress*."""
    tell = teller(progress, stage)

    def on_rows(more: int) -> None:
        nonlocal done
        done += more
        if tell is not None:
            tell(done, total)

    return on_rows


@dataclass(frozen=True)
class TrainedGroups:
    """The groups that features were trained to score."""

    pool: Pool
    smallest: int
    """Members."""
    largest: int
    """Members."""

    def caution(self, sizes: Sequence[int], pool: str) -> str:
        """A sentence of caution for scores of other groups; empty for groups like these."""
        if pool != self.pool:
            return f"The encoder was trained for {self.pool} pooling, not {pool}."
        if not sizes or (self.smallest <= TOLERANCE * min(sizes) and max(sizes) <= TOLERANCE * self.largest):
            return ""
        return (
            f"These groups have {span(min(sizes), max(sizes))} members, but the encoder was trained on groups of "
            f"{span(self.smallest, self.largest)}. Read these scores with care."
        )


def span(least: int, most: int) -> str:
    """Two numbers as "3 to 5", or one where they are equal."""
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


class Attributor(ABC):
    """A method of training data attribution.

    :meth:`encode` makes what an index keeps of training examples, and :meth:`ask` what queries ask of that: scores of
    examples and of groups, higher = more helpful. Most methods have two feature maps and a pool: the score of example z
    on query x is ⟨φ_query(x), φ_train(z)⟩, and a group score pools those of its members. Such a method needs
    :meth:`encode_train` alone, or :meth:`encode_queries` as well. Others give ``encode`` and ``ask`` themselves.

    Features are float32, one row for each example: a dense array ``(rows, d)`` or a CSR matrix. They depend on the
    example alone (and on what :meth:`fit` learnt), never on the other examples of the call, its order or its size.
    Before :meth:`fit`, a method that learns from the training corpus raises NotFittedError from all that need it.

    Example:
        >>> method = airrep.make_attributor("tfidf")
        >>> isinstance(method, airrep.Attributor), method.name
        (True, 'tfidf')
    """

    name: ClassVar[str]
    """The method's name, as users type it."""
    units: ClassVar[str] = "inner product of features"
    """Unit of a score, as results tell it."""
    reads_spans: ClassVar[bool] = False
    """True if queries may have spans (:attr:`airrep.Example.span`); those of other methods are refused."""
    leads: ClassVar[bool] = False
    """True if it leaves losses of its LM for other methods of a sum, and so comes before them."""
    reads_pairs: ClassVar[bool] = False
    """True if it compares the responses of a preference pair by itself. Features of a pair are those of its chosen
    response less those of the rejected one, where it does not."""
    pool: ClassVar[Pool]
    """The method's own pool for group scores."""

    @property
    def own_pool(self) -> Pool:
        """The pool that suits these features: the method's, unless they were trained for another."""
        return self.pool if self.trained_groups is None else self.trained_groups.pool

    @property
    def own_temperature(self) -> float:
        """The temperature that suits these features, where :attr:`own_pool` is attention."""
        return 1.0

    @property
    def symmetric(self) -> bool:
        """Tell whether queries are encoded as training examples are, so that order-k pools have a meaning."""
        return type(self).encode_queries is Attributor.encode_queries

    def pooling(self, pool: PoolLike | None = None, temperature: float = 1.0) -> Pooling:
        """A pool for these features: the method's own when None, at its own temperature if that is 1.

        Raises:
            ConfigError: there is no such pool or temperature, or it needs a symmetric method.
        """
        if pool is None:
            pool, temperature = self.own_pool, self.own_temperature if temperature == 1 else temperature
        pooling = Pooling.parse(pool, temperature)
        if pooling.kind == "order" and not self.symmetric:
            raise ConfigError(
                f"pool '{pooling}': needs a method that encodes queries like training examples; {self.name} does not. "
                "Use sum, mean, attention or signed-attention."
            )
        if pooling.kind == "ngram-lm" and self.pool != "ngram-lm":
            raise ConfigError(f"pool 'ngram-lm': needs counts of n-grams, but {self.name} has none. Use method ngram.")
        return pooling

    @property
    def trained_groups(self) -> TrainedGroups | None:
        """The groups whose scores the features were trained for, where that is known."""
        return None

    @property
    @abstractmethod
    def settings(self) -> Settings:
        """The settings it was made with."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """64 hex digits: equal exactly when features are made in the same way, and pooled so if settings name one."""

    @property
    def features_fingerprint(self) -> str:
        """As :attr:`fingerprint`, whatever the pool: that of a channel, which has a pool of its own."""
        return self.fingerprint

    @property
    def execution(self) -> Mapping[str, str]:
        """Facts of the computation that touch features' last digits, such as the precision."""
        return {}

    def load(self) -> Mapping[str, str]:
        """Load the model now, where there is one; returns :attr:`execution`, which it decides."""
        return self.execution

    @property
    def caution(self) -> str:
        """A sentence of caution for readers of its scores; empty if there is none."""
        return ""

    def float_noise(self, train: Corpus) -> Mapping[str, float]:  # noqa: ARG002
        """How near the features of a few examples are to those in float32: ``cosine``, ``rank_correlation``.

        Empty where they are computed in float32, and for most methods.
        """
        return {}

    def fit(self, train: Corpus) -> None:
        """Learn from the training corpus what the features need; most methods need nothing."""

    def unusable(self, examples: Sequence[Example]) -> Mapping[int, str]:  # noqa: ARG002
        """Row and reason of each example that the method cannot read, and so refuses."""
        return {}

    def rendering(self, examples: Iterable[Example]) -> Mapping[str, str]:  # noqa: ARG002
        """Facts of how these examples are read that the fingerprint does not tell; empty for most methods and data.

        The examples may be iterated over several times.
        """
        return {}

    def encode(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> Encoded:
        """Return what an index keeps of each example, by channel; a method that is no sum of channels is one itself.

        Raises:
            ConfigError: the method made no row of features for each example.
        """
        found = self._of_sides(self.encode_train, examples, on_rows)
        factors = self.factors(examples)
        return {self.name: found if factors is None else self.times(found, factors)}

    def factors(self, examples: Sequence[Example]) -> Float64[np.ndarray, " rows"] | None:  # noqa: ARG002
        """Return what the features of training examples are multiplied by; None: 1, as for most data.

        Raises:
            DataError: the loss of the fine-tune cannot learn an example.
        """
        return None

    def times(self, features: Features, factors: Float64[np.ndarray, " rows"]) -> Features:
        """Features of examples, each row times a factor of its own."""
        if isinstance(features, np.ndarray):
            found: np.ndarray = features * factors.astype(features.dtype)[:, None]
            return found
        return features.scaled(factors)

    def _of_sides(
        self,
        encode: Callable[[Sequence[Example], OnRows | None], Features],
        examples: Sequence[Example],
        on_rows: OnRows | None,
        call: str = "encode_train",
    ) -> Features:
        """Features of examples, of pairs those of the chosen response less those of the rejected one."""
        if self.reads_pairs or not has_pairs(examples):
            return checked_rows(self.name, encode(examples, on_rows), len(examples), call)
        sides = [example.sides for example in examples]
        others = {row: other for row, (_, other) in enumerate(sides) if other is not None}
        chosen = checked_rows(self.name, encode([side for side, _ in sides], on_rows), len(sides), call)
        rejected = checked_rows(self.name, encode(list(others.values()), None), len(others), call)
        return self.less(chosen, rejected, np.array(list(others), np.int64))

    def less(self, chosen: Features, rejected: Features, rows: Rows) -> Features:
        """Features of examples, those of some *rows* less what is rejected there."""
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
        """Return what queries ask of what is kept of training examples; *channel* is the name under which that is kept.

        Raises:
            ConfigError: the method made no row of features for each query.
        """
        found = self._of_sides(self.encode_queries, queries, on_rows, "encode_queries")
        return ask(found, kept.blocks(channel or self.name), self.pooling())

    def encode_train(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> Features:  # noqa: ARG002
        """φ_train of each example, ``(rows, d)``."""
        raise ConfigError(f"{self.name}: the class must define encode_train, or both encode and ask.")

    def encode_queries(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> Features:
        """φ_query of each example, ``(rows, d)``; φ_train where a method does not tell the two apart."""
        return self.encode_train(examples, on_rows)

    def places(self, example: Example) -> Places | None:  # noqa: ARG002
        """Where the features of an example stand in its texts; None where features are not those of words."""
        return None

    def tokens(self, query: Example, examples: Sequence[Example]) -> list[TokenProducts] | None:  # noqa: ARG002
        """The score of each training example for a query, by pairs of their tokens; None where a method has none.

        All pairs of an example add up to its score. Methods with :meth:`places` need not give it: an index works theirs
        out of these.

        Raises:
            ConfigError: a part of the score has no tokens.
        """
        return None

    def save_state(self, folder: Path) -> None:
        """Write into *folder* what :meth:`fit` learnt; most methods have nothing to write."""

    def load_state(self, folder: Path) -> None:
        """Read back what :meth:`save_state` wrote."""


def checked_rows(method: str, features: Any, rows: int, call: str = "encode_train") -> Features:
    """Features that a method made of some rows, those of SciPy as rows of airrep's own.

    Raises:
        ConfigError: they are no features of these rows.
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
    """Refuse queries with a span where a method, or a channel that counts, scores whole answers alone (ConfigError)."""
    parts = zip(method.parts, method.counted, strict=True) if isinstance(method, SeveralMethods) else [(method, True)]
    blind = [part.name for part, counts in parts if counts and not part.reads_spans]
    spanned = next((one for one in queries if one.span is not None), None)
    if blind and spanned is not None:
        raise ConfigError(
            f"query '{spanned.id}' has a marked span, but {blind[0]} scores only whole answers. Remove the span, or "
            "ask an index built with other methods."
        )


class BrokenMethodError(ConfigError):
    """A method gives something else than it is to give."""


def bad_method(method: str, call: str, found: str, expected: str) -> BrokenMethodError:
    """The error of a method that gives something else than it is to give."""
    return BrokenMethodError(f"{method}: {call} returned {found}; expected {expected}. Correct the method.")


class SlowFit(Attributor):
    """A method whose :meth:`fit` takes long, and so reports progress."""

    @abstractmethod
    def fit(self, train: Corpus, progress: OnProgress | None = None) -> None:
        """Learn from the training corpus what the features need."""


def fit_method(attributor: Attributor, train: Corpus, progress: OnProgress | None = None) -> None:
    """Let any method learn from the training corpus; one that takes long reports progress.

    One that does not compare the responses of pairs learns from both as from examples.
    """
    train = train if attributor.reads_pairs else both_sides(train)
    if isinstance(attributor, SlowFit):
        attributor.fit(train, progress)
    else:
        attributor.fit(train)


def usable(method: Attributor, corpus: Corpus, what: str) -> Corpus:
    """The examples that a method can read; errors call the corpus *what* (DataError: there are none)."""
    refused = method.unusable(corpus)
    if len(refused) == len(corpus):
        raise DataError(f"{what}: no example can be read. The first one: {refused[0]} Check the data and the model.")
    return corpus.without(refused)


def sentences(text: str) -> list[str]:
    """The sentences of a caution, so that what several methods share is told once."""
    return [one for one in re.split(r"(?<=\.) ", text) if one]


def sample_of(train: Corpus, size: int, seed: int) -> Corpus:
    """So many examples of a corpus, drawn by the seed and their texts; all if there are no more.

    Neither which they are nor in which order they stand depends on the order of the corpus.
    """
    seen: Counter[bytes] = Counter()
    keys = []
    for text in train.content_hashes.tolist():
        keys.append(hashlib.sha256(b"%d %s %d" % (seed, text, seen[text])).digest())  # equal texts are drawn one by one
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
    """A method that reads the features of others."""

    reads_pairs = True  # or its parts do

    @property
    @abstractmethod
    def parts(self) -> Sequence[Attributor]:
        """The other methods."""

    def unusable(self, examples: Sequence[Example]) -> Mapping[int, str]:
        return {row: reason for part in self.parts for row, reason in part.unusable(examples).items()}

    def rendering(self, examples: Iterable[Example]) -> Mapping[str, str]:
        return {name: value for part in self.parts for name, value in part.rendering(examples).items()}

    @property
    def counted(self) -> tuple[bool, ...]:
        """Tell whether each of them counts; what a weight of 0 leaves out need not be computed."""
        return (True,) * len(self.parts)

    @property
    def execution(self) -> Mapping[str, str]:
        return {
            f"{number}.{name}": value for number, one in enumerate(self.parts) for name, value in one.execution.items()
        }

    def load(self) -> Mapping[str, str]:
        for one in self.parts:
            one.load()
        return self.execution

    def float_noise(self, train: Corpus) -> Mapping[str, float]:
        """That of the method with the most."""
        found = [noise for one in self.parts if (noise := one.float_noise(train))]
        return min(found, key=lambda noise: min(noise.values()), default={})

    def fit(self, train: Corpus, progress: OnProgress | None = None) -> None:
        """Let every one learn what it needs from the training corpus."""
        for one in self.parts:
            fit_method(one, train, progress)

    def in_turn(self, numbers: Sequence[int], on_rows: OnRows | None) -> list[tuple[int, OnRows | None]]:
        """Numbers of some methods in the order in which they encode, each with its callback.

        Those that lead come first. Rows count as done with the last of them, or with the last method if none leads.
        """
        leading = [number for number in numbers if self.parts[number].leads]
        order = leading + [number for number in numbers if number not in leading]
        telling = (leading or order)[-1:]
        return [(number, on_rows if number in telling else None) for number in order]

    def save_state(self, folder: Path) -> None:
        """Write the state of each, its files named after its number."""
        for number, one in enumerate(self.parts):
            with tempfile.TemporaryDirectory() as own:
                one.save_state(Path(own))
                for path in Path(own).iterdir():
                    shutil.copyfile(path, folder / f"{number}-{path.name}")

    def load_state(self, folder: Path) -> None:
        for number, one in enumerate(self.parts):
            prefix = f"{number}-"
            paths = [path for path in folder.iterdir() if path.name.startswith(prefix)]
            if paths:  # most methods have no state, and are given none
                with tempfile.TemporaryDirectory() as own:
                    for path in paths:
                        shutil.copyfile(path, Path(own) / path.name.removeprefix(prefix))
                    one.load_state(Path(own))
