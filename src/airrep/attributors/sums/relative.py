"""Relative weights of channels, from their scores of random groups of training examples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from airrep.arrays import Features
from airrep.attributors.direct import InMemory, RecentScores
from airrep.attributors.recipes import Channel
from airrep.corpus.corpus import Corpus, Example, read_corpus
from airrep.errors import ArtifactError, DataError
from airrep.runtime.artifacts import json_digest
from airrep.runtime.seeding import stream
from airrep.scoring.asked import Asked
from airrep.scoring.group_scores import group_scores, pooled_features
from airrep.scoring.groups import Groups
from airrep.scoring.products import DenseAsked
from airrep.sparse import SparseRows

REFERENCE, GROUPS, MEMBERS = 256, 64, 16
"""Number of examples, of groups drawn from them, and of members of a group, if there are enough examples."""
FEW = 32
"""Examples that a channel with candidates scores, to measure its scores' size and how well others predict them."""
LEAST_APART = 1e-3
"""Least value of the factor 1 − ρ: pools divide by factors, so none may be 0."""
ALIKE = 1e-6
"""Scores count as equal if their deviation is at most this part of the largest score: float32 shows no more."""
HELD = 2**22
"""Most cached scores of the examples, for methods that store no features: 16 MiB."""
KEY, EXAMPLES = "reference.txt", "reference.jsonl"


@dataclass(frozen=True, eq=False)
class Reference:
    """Some training examples: their features in every channel, and their texts for methods that store no features."""

    parts: Mapping[str, Features | None]
    key: str
    """Digest of the examples."""
    examples: Sequence[Example] | None = None
    """The examples themselves; None if every channel stores features."""

    @classmethod
    def of(cls, encoded: Mapping[str, Features | None], examples: Corpus) -> "Reference":
        """Make a reference of examples; *encoded* holds their features by channel."""
        direct = any(part is None for part in encoded.values())  # else texts stay out of the index
        return cls(encoded, json_digest([one.reading_hash for one in examples]), examples if direct else None)

    @cached_property
    def kept(self) -> InMemory:
        """The examples in the form that queries are scored against."""
        return InMemory(self.parts, self.examples, RecentScores(HELD))

    @cached_property
    def few(self) -> "Reference":
        """The first few examples, which were drawn at random: for methods that are slow to score each example."""
        parts = {name: None if part is None else part[:FEW] for name, part in self.parts.items()}
        return Reference(parts, self.key, self.examples and self.examples[:FEW])

    @cached_property
    def _groups(self) -> Groups:
        rows = self.kept.spans[0].rows
        members = max(1, min(MEMBERS, rows // 4))
        drawn = (stream(0, "channels", "groups", number).permutation(rows)[:members] for number in range(GROUPS))
        return Groups.from_lists({str(number): row for number, row in enumerate(drawn)})

    def scores(self, asked: Mapping[str, Asked]) -> np.ndarray:
        """Score the groups in each channel, ``(channels, q, groups)``; other queries do not change a query's scores."""
        found = np.empty((len(asked), len(next(iter(asked.values()))), GROUPS))
        for place, (channel, one) in enumerate(asked.items()):
            here = one.over(self.kept, channel)
            # One by one: products of several differ in their last digits.
            if isinstance(here, DenseAsked) and here.pooling.linear:
                pooled = pooled_features(here.blocks, self._groups, here.pooling)
                found[place] = [(pooled @ query).astype(np.float32) for query in here.queries.astype(np.float64)]
                continue
            for row in range(len(here)):
                found[place, row] = group_scores(here.chosen(np.array([row])), self._groups)[0]
        return found

    def save(self, folder: Path) -> None:
        for number, part in enumerate(self.parts.values()):
            if isinstance(part, np.ndarray):
                np.save(folder / f"reference-{number}.npy", part)
            elif part is not None:
                # names and order are SciPy's
                rows: Any = {"format": np.array(b"csr"), "indices": part.indices, "indptr": part.indptr}
                rows |= {"data": part.data, "shape": np.array(part.shape)}
                np.savez_compressed(folder / f"reference-{number}.npz", **rows)
        if self.examples is not None:
            Corpus.from_examples(self.examples).to_jsonl(folder / EXAMPLES)
        (folder / KEY).write_text(self.key, encoding="ascii")

    @classmethod
    def load(cls, folder: Path, channels: Sequence[str]) -> "Reference | None":
        """Read what :meth:`save` wrote; None if the folder holds no reference."""
        if not (folder / KEY).is_file():
            return None
        parts = {name: _loaded(folder / f"reference-{number}") for number, name in enumerate(channels)}
        return cls(parts, (folder / KEY).read_text(encoding="ascii"), _examples(folder / EXAMPLES))


def _examples(path: Path) -> Corpus | None:
    try:
        return read_corpus(path) if path.is_file() else None
    except DataError as error:
        raise ArtifactError(f"{error} The file was altered. Build the index again with --replace.") from error


def _loaded(path: Path) -> Features | None:
    dense, thin = path.with_suffix(".npy"), path.with_suffix(".npz")
    if not dense.is_file() and not thin.is_file() and path.with_name(EXAMPLES).is_file():
        return None  # of a method that keeps no features
    try:
        if dense.is_file():
            return np.load(dense, allow_pickle=False)
        with np.load(thin, allow_pickle=False) as parts:
            found = SparseRows(parts["data"], parts["indices"], parts["indptr"], parts["shape"])
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        raise ArtifactError(f"{path}.*: cannot be read ({error}). Build the index again with --replace.") from error
    return found


def relative_weights(channels: Sequence[Channel], scores: np.ndarray) -> np.ndarray:
    """Return the factor of each channel's scores for each query, ``(q, channels)`` float64.

    The factor is the weight w, or w (1 − ρ(x)) σ(x) / σ_c(x) for a relative channel. Over the groups, σ(x) is the
    deviation of the weighted sum of the channels that are not relative, σ_c(x) the channel's own, and ρ(x) their
    correlation: where both agree, the sum needs little of this channel. A deviation of 0 counts as 1, and ρ as 0 then.
    At least one of *channels* must not be relative; *scores* are ``(channels, q, groups)``, without weights.
    """
    weights = np.array([one.weight for one in channels])
    relative = np.array([one.relative for one in channels])
    whole = np.tensordot(np.where(relative, 0.0, weights), scores, axes=1)
    own, others = _deviation(whole)[None], _deviation(scores)
    both = [each - each.mean(axis=-1, keepdims=True) for each in (whole[None], scores)]
    products, both_sizes = (both[0] * both[1]).mean(axis=-1), own * others
    correlation = np.divide(products, both_sizes, out=np.zeros_like(products), where=both_sizes > 0)
    sizes = np.where(own > 0, own, 1.0) / np.where(others > 0, others, 1.0)
    sizes = np.maximum(1 - correlation, LEAST_APART) * sizes
    factors: np.ndarray = np.where(relative[:, None], sizes, 1.0) * weights[:, None]
    return np.ascontiguousarray(factors.T)


def _deviation(scores: np.ndarray) -> np.ndarray:
    """Return the deviation over the groups; 0 where scores differ by rounding alone."""
    found: np.ndarray = scores.std(axis=-1)
    return np.where(found > ALIKE * np.abs(scores).max(axis=-1), found, 0.0)
