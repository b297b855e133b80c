"""A public check that an attributor keeps its contract."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import numpy as np
from scipy import sparse

from airrep.arrays import Features, MixedFeatures, numbers_of
from airrep.attributors.base import Attributor
from airrep.attributors.direct import DirectAttributor
from airrep.corpus.corpus import Corpus, Example
from airrep.corpus.views import seen_text
from airrep.errors import NotFittedError
from airrep.scoring.pooling import Pool

TOLERANCE = 1e-3
"""Largest change of features with the batch, relative to the largest: rounding, in bfloat16 too."""


def check_attributor(make: Callable[[], Attributor]) -> None:
    """Check that an attribution method keeps the promises that index, scores and evaluation rely on.

    Args:
        make: makes a new attributor, always in the same way.

    Raises:
        AssertionError: a promise is broken; the message says which.

    Example:
        >>> airrep.check_attributor(lambda: airrep.make_attributor("tfidf"))  # silent: it keeps the promises
    """
    train = _corpus()
    attributor = make()
    _check_identity(attributor)
    _check_unfitted(make())
    attributor.fit(train)
    features = attributor.encode_train(train)
    _check_features(attributor, train, features)
    _check_independence(attributor, train, features)
    _check_fingerprint(make, attributor, train)
    _check_state(make, attributor, features, train)
    _check_places(attributor, features, train)
    if isinstance(attributor, DirectAttributor):
        _check_scores(make, attributor, train)


def _check_scores(make: Callable[[], Attributor], attributor: DirectAttributor, train: Corpus) -> None:
    """Scores of a method without features depend on the two examples alone, and on what it learnt."""
    scores = attributor.score(train, train)
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
    _require(attributor.score([], train).shape == (0, len(train)), "scores of no examples have another shape")
    if attributor.kept:
        _check_kept(attributor, train, scores)
    other = make()
    assert isinstance(other, DirectAttributor)
    with TemporaryDirectory() as folder:
        attributor.save_state(Path(folder))
        other.load_state(Path(folder))
    _require(_close(other.score(train, train), scores), "loading changes the scores")


def _check_kept(attributor: DirectAttributor, train: Corpus, scores: np.ndarray) -> None:
    """What is kept of an example depends on it alone, and gives its scores."""
    kept = attributor.keep(train)
    _require(kept.shape == (len(train), attributor.kept), f"what is kept has the shape {kept.shape}")
    _require(kept.dtype == np.float16, f"what is kept is {kept.dtype}, not float16")
    _require(bool(np.isfinite(kept).all()), "what is kept is not all finite")
    parts = [attributor.keep([example]) for example in train]
    _require(_close(attributor.score_kept(parts, train), scores), "what is kept gives other scores")


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
    _require(attributor.name.isidentifier(), f"name {attributor.name!r} is not one word")
    _require(attributor.pool in get_args(Pool), f"pool {attributor.pool!r} does not exist")
    _require(attributor.settings == type(attributor.settings)(**attributor.settings.model_dump()), "settings change")


def _check_unfitted(attributor: Attributor) -> None:
    """An attributor either needs no fit, or says that it does."""
    with suppress(NotFittedError):
        attributor.encode_train(_corpus())


def _check_features(attributor: Attributor, train: Corpus, features: Features) -> None:
    _require(features.shape[0] == len(train), f"{features.shape[0]} rows of features for {len(train)} examples")
    _require(features.dtype == np.float32, f"features are {features.dtype}, not float32")
    _require(
        isinstance(features, np.ndarray | sparse.csr_array | MixedFeatures), f"features are a {type(features).__name__}"
    )
    _require(bool(np.isfinite(numbers_of(features)).all()), "features are not all finite")
    queries = attributor.encode_queries(train)
    _require(queries.shape == features.shape, f"queries are {queries.shape}, training features {features.shape}")
    empty = attributor.encode_train([])
    _require(empty.shape == (0, features.shape[1]), f"features of no examples are {empty.shape}")


def _check_independence(attributor: Attributor, train: Corpus, features: Features) -> None:
    """Features depend on the example alone, and the same call gives the same bytes."""
    _require(_same(attributor.encode_train(train), features), "the same call gives other features")
    alone = [attributor.encode_train([example]) for example in train]
    apart = all(_close(one, features[[row]]) for row, one in enumerate(alone))
    _require(apart, "features depend on the other examples of the call")
    backwards = attributor.encode_train(list(train)[::-1])[::-1]
    _require(_close(backwards, features), "features depend on the order of the examples")
    _require(_close(features[[1]], features[[2]]), "equal texts have different features")


def _check_fingerprint(make: Callable[[], Attributor], attributor: Attributor, train: Corpus) -> None:
    other = make()
    other.fit(train)
    _require(len(attributor.fingerprint) == 64, "the fingerprint is not 64 hex digits")
    _require(other.fingerprint == attributor.fingerprint, "two attributors made alike have different fingerprints")


def _check_state(make: Callable[[], Attributor], attributor: Attributor, features: Features, train: Corpus) -> None:
    other = make()
    with TemporaryDirectory() as folder:
        attributor.save_state(Path(folder))
        other.load_state(Path(folder))
    _require(other.fingerprint == attributor.fingerprint, "saving and loading what was learnt changes the fingerprint")
    _require(_same(other.encode_train(train), features), "loading changes the features")


def _same(one: Features, other: Features) -> bool:
    return one.shape == other.shape and _greatest(_difference(one, other)) == 0


def _close(one: Features, other: Features) -> bool:
    return bool(_greatest(_difference(one, other)) <= TOLERANCE * max(_greatest(other), 1e-30))


def _difference(one: Any, other: Any) -> Features:
    """Features less others of the same kind."""
    difference: Features = one - other
    return difference


def _greatest(features: Features) -> float:
    """Greatest size of a feature; rows of sparse ones may be too wide to be made dense."""
    return float(np.abs(numbers_of(features)).max(initial=0))


def _require(holds: bool, problem: str) -> None:
    if not holds:
        raise AssertionError(f"check_attributor: {problem}")


def _check_places(attributor: Attributor, features: Features, train: Corpus) -> None:
    part = features.sparse if isinstance(features, MixedFeatures) else features
    for row, example in enumerate(train):
        places = attributor.places(example)
        if places is None:
            return
        assert not isinstance(part, np.ndarray), "places: are for sparse features alone"
        own = part.indices[part.indptr[row] : part.indptr[row + 1]]
        assert np.isin(places.columns, own).all(), f"places: '{example.id}' has columns that are not its features'"
        inside = (places.starts >= 0) & (places.starts < places.stops)
        inside &= places.stops <= len(seen_text(example, "whole"))
        assert inside.all(), f"places: '{example.id}' has one outside its texts"
