"""A public check that an attributor keeps the promises of its interface."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import numpy as np

from airrep.arrays import Encoded, Features, numbers_of
from airrep.attributors.base import Attributor, BrokenMethodError
from airrep.attributors.direct import DirectAttributor, InMemory
from airrep.attributors.precomputed import PrecomputedAttributor
from airrep.corpus.corpus import Corpus, Example
from airrep.corpus.views import seen_text
from airrep.errors import AirRepError, NotFittedError
from airrep.runtime.settings import Settings
from airrep.scoring.asked import Asked, score_all
from airrep.scoring.group_scores import group_scores
from airrep.scoring.groups import Groups
from airrep.scoring.pooling import Pool
from airrep.sparse import SparseRows

TOLERANCE = 1e-3
"""Largest change of a feature in another batch, relative to the largest feature; covers the rounding of bfloat16."""

AGREEMENT = 0.9999
"""Least correlation of a query's scores by two builds that must agree, such as with the corpus in another order."""


def check_attributor(make: Callable[[], Attributor]) -> None:
    """Check that an attribution method keeps the promises that indexes, scores and evaluations rely on.

    Args:
        make: returns a new attributor, always made in the same way: a class, or a function.

    Raises:
        AssertionError: a promise is broken; the message says which.

    Example:
        >>> airrep.check_attributor(lambda: airrep.make_attributor("tfidf"))  # silent: it keeps the promises
    """
    train = _corpus()
    with _promise("a new attributor"):
        _require(callable(make), f"got a {type(make).__name__}, not a class or a function that makes an attributor")
        attributor = make()
        kind = type(attributor).__name__
        _require(isinstance(attributor, Attributor), f"a {kind} was made, not an airrep.Attributor")
        _check_identity(attributor)
    with _promise("encode before fit, which must work or raise NotFittedError,"), suppress(NotFittedError):
        make().encode(train)
    with _promise("fit(train)"):
        attributor.fit(train)
    with _promise("encode(examples, on_rows)"):
        encoded = attributor.encode(train, _ignore)
    for features in _kept(encoded):
        _check_kind(features, len(train))
    with _promise("ask(queries, kept, on_rows)"):
        asked = attributor.ask(train, InMemory(encoded, train), _ignore)
    _require(len(asked) == len(train), f"ask was given {len(train)} queries, but returned {len(asked)}")
    with _promise("encode of no examples, of one, or of all in reverse order"):
        _check_independence(attributor, train, encoded)
    with _promise("scoring of all queries, or of one"):
        _check_queries(attributor, asked, train, encoded)
    with _promise("fingerprint"):
        _check_fingerprint(make, attributor, train)
    with _promise("save_state, then load_state"):
        _check_state(make, attributor, encoded, train)
    with _promise("places(example)"):
        _check_places(attributor, encoded, train)
    if isinstance(attributor, DirectAttributor):
        with _promise("score(train, queries)"):
            _check_scores(make, attributor, train)
    with _promise("fit on the corpus in another order"):
        _check_order(make, attributor, train)
    with _promise("fit on another corpus"):
        _check_learnt(make, attributor, train)


class _BrokenPromiseError(AssertionError):
    """A promise is broken; the message says which."""


@contextmanager
def _promise(what: str) -> Iterator[None]:
    """Report any failure as a broken promise, unless airrep itself refuses data, files or settings."""
    try:
        yield
    except _BrokenPromiseError:
        raise
    except BrokenMethodError as error:
        raise _BrokenPromiseError(f"check_attributor: {error}") from error
    except Exception as error:
        if isinstance(error, AirRepError) and not isinstance(error, NotFittedError):
            raise
        raise _BrokenPromiseError(f"check_attributor: {what} failed with {type(error).__name__}: {error}") from error


def _ignore(rows: int) -> None:
    """Take the count of rows that are done."""


def _check_scores(make: Callable[[], Attributor], attributor: DirectAttributor, train: Corpus) -> None:
    """Check that scores of a method without features depend only on the two examples and on what it learnt."""
    scores = attributor.score(train, train, _ignore)
    _require(isinstance(scores, np.ndarray), f"scores are a {type(scores).__name__}, not an array")
    _require(
        scores.shape == (len(train), len(train)), f"scores are {scores.shape} for {len(train)} examples and queries"
    )
    _require(scores.dtype == np.float32, f"scores are {scores.dtype}, not float32")
    _require(bool(np.isfinite(scores).all()), "scores are not all finite")
    alone = np.concatenate([attributor.score([example], train) for example in train])
    _require(_close(alone, scores), "scores depend on the other training examples of the call")
    apart = np.concatenate([attributor.score(train, [query]) for query in train], axis=1)
    _require(_close(apart, scores), "scores depend on the other queries of the call")
    _require(_close(attributor.score(train[::-1], train)[::-1], scores), "scores depend on the order of the examples")
    _require(attributor.score([], train).shape == (0, len(train)), "scores of no examples have a wrong shape")
    other = make()
    assert isinstance(other, DirectAttributor)
    with TemporaryDirectory() as folder:
        attributor.save_state(Path(folder))
        other.load_state(Path(folder))
    _require(_close(other.score(train, train), scores), "load_state changes the scores")


def _corpus() -> Corpus:
    """A few examples as in real data: short, long, other scripts, emoji, repeats."""
    texts = [
        ("What is 2 + 2?", "4"),
        ("Name a colour.", "Blue."),
        ("Name a colour.", "Blue."),
        ("Übersetze: Guten Morgen", "Good morning ☀️"),
        ("写一首诗", "春眠不觉晓"),
        ("Count. " * 400, "One, two, three. " * 100),
        ("Why is the sky blue?\n\n\tExplain.", "Rayleigh scattering: short waves scatter more."),
        ("Name a fruit.", "An apple is a fruit that is red or green, and blue is a colour."),
    ]
    return Corpus.from_examples(
        Example(prompt, response, id=f"example-{number}") for number, (prompt, response) in enumerate(texts)
    )


def _check_identity(attributor: Attributor) -> None:
    name, settings = attributor.name, attributor.settings
    _require(isinstance(name, str) and name.isidentifier(), f"name {name!r} is not one word")
    _require(attributor.pool in get_args(Pool), f"pool {attributor.pool!r} does not exist")
    kind = type(settings).__name__
    _require(isinstance(settings, Settings), f"settings are a {kind}, not an airrep.runtime.settings.Settings")
    _require(settings == type(settings)(**settings.model_dump()), "settings change in model_dump()")


def _kept(encoded: Encoded) -> list[Features]:
    return [features for features in encoded.values() if features is not None]


def _check_queries(attributor: Attributor, asked: Asked, train: Corpus, encoded: Encoded) -> None:
    """Check that a query's scores do not depend on the other queries of the call."""
    scores = score_all(asked)
    _require(scores.shape == (len(train), len(train)), f"scores are {scores.shape} for {len(train)} examples each")
    alone = np.concatenate([score_all(attributor.ask([one], InMemory(encoded, train))) for one in train])
    size = max(float(np.abs(scores).max()), 1e-30)
    _require(bool(np.abs(alone - scores).max() <= TOLERANCE * size), "scores depend on the other queries of the call")


def _check_kind(features: Features, rows: int) -> None:
    known = isinstance(features, np.ndarray | SparseRows)
    _require(known, f"features are a {type(features).__name__}, not an array or a csr_array")
    _require(len(features.shape) == 2, f"features are of shape {features.shape}, not (rows, columns)")
    _require(features.shape[0] == rows, f"{features.shape[0]} rows of features for {rows} examples")
    _require(features.dtype == np.float32, f"features are {features.dtype}, not float32")
    _require(bool(np.isfinite(numbers_of(features)).all()), "features are not all finite")


def _check_independence(attributor: Attributor, train: Corpus, encoded: Encoded) -> None:
    """Check that features depend on the example alone, and that the same call gives the same bytes."""
    empty, again = attributor.encode([]), attributor.encode(train)
    alone = [attributor.encode([example]) for example in train]
    backwards = attributor.encode(list(train)[::-1])
    for name, features in encoded.items():
        if features is None:
            continue
        none, same, back = (_part(one, name) for one in (empty, again, backwards))
        _require(none.shape == (0, features.shape[1]), f"features of no examples have shape {none.shape}")
        _require(_same(same, features), "two equal calls give different features")
        apart = all(_close(_part(one, name), features[[row]]) for row, one in enumerate(alone))
        _require(apart, "features depend on the other examples of the call")
        _require(_close(back[::-1], features), "features depend on the order of the examples")
        _require(_close(features[[1]], features[[2]]), "equal texts have different features")


def _part(encoded: Encoded, channel: str) -> Features:
    features = encoded.get(channel)
    _require(features is not None, f"features of the channel '{channel}' are missing")
    assert features is not None
    return features


def _check_fingerprint(make: Callable[[], Attributor], attributor: Attributor, train: Corpus) -> None:
    digits = attributor.fingerprint
    _require(isinstance(digits, str) and len(digits) == 64, f"the fingerprint is {digits!r}, not 64 hex digits")
    other = make()
    other.fit(train)
    _require(other.fingerprint == digits, "two attributors made in the same way have different fingerprints")


def _check_learnt(make: Callable[[], Attributor], attributor: Attributor, train: Corpus) -> None:
    """Fit on a corpus that shares some words, and check that the fingerprint differs if features or scores do."""
    texts = [("Name a fruit.", "A pear, a plum."), ("Name a planet.", "Mars is red."), ("Where?", "Where the sky is.")]
    more = [Example(prompt, response, id=f"other-{number}") for number, (prompt, response) in enumerate(texts)]
    other = make()
    try:
        other.fit(Corpus.from_examples([*train[:4], *more]))
        told = other.fingerprint != attributor.fingerprint
        same = told or all(map(_same, _outcome(other, train), _outcome(attributor, train)))
    except AirRepError:  # features that were given, or fitted elsewhere, belong to one corpus
        return
    _require(same, "fit on another corpus changes the features, but not the fingerprint")


def _check_order(make: Callable[[], Attributor], attributor: Attributor, train: Corpus) -> None:
    """Fit on the corpus in another order, and check that scores agree; precomputed features need their own order."""
    if isinstance(attributor, PrecomputedAttributor):
        return
    other = make()
    try:
        other.fit(Corpus.from_examples(list(train)[::-1]))
        found = single_scores(other, train, train)
    except AirRepError:  # features that were given, or fitted elsewhere, belong to one corpus
        return
    _require(agree(found, single_scores(attributor, train, train)), "scores depend on the order of the corpus")


def single_scores(attributor: Attributor, train: Sequence[Example], queries: Sequence[Example]) -> np.ndarray:
    """Score each training example as a group of one, by the method's own pool, ``(q, n)``."""
    asked = attributor.ask(queries, InMemory.of(attributor, train))
    return group_scores(asked, Groups.from_lists({str(row): [row] for row in range(len(train))}))


def agree(scores: np.ndarray, others: np.ndarray) -> bool:
    """Return whether scores of two builds, ``(q, n)``, correlate by at least :data:`AGREEMENT` for each query."""
    one, other = (each - each.mean(axis=1, keepdims=True) for each in (scores.astype(float), others.astype(float)))
    sizes = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    alike = np.abs(one - other).max(axis=1, initial=0) <= 1e-6 * np.abs(others).max(axis=1, initial=0)
    return bool((alike | ((one * other).sum(axis=1) >= AGREEMENT * sizes)).all())


def _outcome(attributor: Attributor, train: Corpus) -> list[Features]:
    """Return the features of all channels, and the scores, of some examples."""
    kept = InMemory.of(attributor, train)
    return [*_kept(kept.encoded), score_all(attributor.ask(train, kept))]


def _check_state(make: Callable[[], Attributor], attributor: Attributor, encoded: Encoded, train: Corpus) -> None:
    other = make()
    with TemporaryDirectory() as folder:
        attributor.save_state(Path(folder))
        other.load_state(Path(folder))
    _require(other.fingerprint == attributor.fingerprint, "save_state and load_state change the fingerprint")
    again = other.encode(train)
    same = all(_same(_part(again, name), part) for name, part in encoded.items() if part is not None)
    _require(same, "load_state changes the features")


def _same(one: Features, other: Features) -> bool:
    return one.shape == other.shape and _greatest(_difference(one, other)) == 0


def _close(one: Features, other: Features) -> bool:
    return bool(_greatest(_difference(one, other)) <= TOLERANCE * max(_greatest(other), 1e-30))


def _difference(one: Any, other: Any) -> Features:
    """Subtract features of the same kind."""
    return one - other


def _greatest(features: Features) -> float:
    """Return the largest absolute feature; sparse rows may be too wide to make them dense."""
    return float(np.abs(numbers_of(features)).max(initial=0))


def _require(holds: bool, problem: str) -> None:
    if not holds:
        raise _BrokenPromiseError(f"check_attributor: {problem}")


def _check_places(attributor: Attributor, encoded: Encoded, train: Corpus) -> None:
    part = encoded.get(attributor.name)
    for row, example in enumerate(train):
        places = attributor.places(example)
        if places is None:
            return
        assert isinstance(part, SparseRows), "places need sparse features"
        own = part.indices[part.indptr[row] : part.indptr[row + 1]]
        _require(bool(np.isin(places.columns, own).all()), f"places of '{example.id}' are not those of its features")
        inside = (places.starts >= 0) & (places.starts < places.stops)
        inside &= places.stops <= len(seen_text(example, "whole"))
        _require(bool(inside.all()), f"places of '{example.id}' are not all within its texts")
