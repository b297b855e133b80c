"""A map of examples in two dimensions, and clusters of similar examples."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from airrep.arrays import Rows
from airrep.errors import ConfigError, has, need
from airrep.index.rows import IndexRows
from airrep.scoring.groups import Groups

FITTED = 50_000
"""Most examples that UMAP and k-means are fitted to; a map places others between their nearest."""
WIDTH, WIDEST = 50, 1024
"""Most principal components that UMAP reads, and widest vectors that they are computed from."""
NEAREST = 3
"""Number of placed examples between which another example is placed."""
BATCH = 4096


@dataclass(frozen=True, eq=False)
class Layout:
    """Positions of examples on a map."""

    places: np.ndarray
    """``(rows, 2)`` float32, nearly all from −1 to 1; deleted rows too."""
    how: str
    """How they were placed, in words."""


def dense_channel(index: IndexRows) -> str:
    """Return the channel whose vectors make a map: the narrowest dense channel.

    ConfigError: no channel stores vectors.
    """
    dense = sorted((one.dimension, one.name) for one in index.channels if one.kind == "dense" and one.dimension > 1)
    if not dense:
        raise ConfigError(
            f"{index.path}: has no embeddings to make a map or clusters from. Build the index again with --recipe "
            "text, or without --recipe and --method."
        )
    return dense[0][1]


def vectors(index: IndexRows, channel: str) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield vectors of unit length, float32, in batches; a random projection narrows vectors wider than WIDEST."""
    mixing: np.ndarray | None = None
    for shard in index.shards:
        for first in range(0, shard.rows, BATCH):
            inside = np.arange(first, min(first + BATCH, shard.rows))
            part: Any = shard.features(inside, [channel])[channel]
            if part.shape[1] > WIDEST:
                if mixing is None:
                    mixing = np.random.default_rng(0).standard_normal((part.shape[1], WIDEST), np.float32)
                part = part @ mixing
            lengths = np.linalg.norm(part, axis=1, keepdims=True)
            start = shard.start + first
            yield slice(start, start + len(inside)), part / np.maximum(lengths, 1e-12)


def sample_of(index: IndexRows, most: int) -> Rows:
    """Draw *most* rows at random from those that are not deleted, ascending; all if there are no more."""
    live = np.flatnonzero(index.live)
    return live if len(live) <= most else np.sort(np.random.default_rng(0).choice(live, most, replace=False))


def lay_out(index: IndexRows) -> Layout:
    """Place all examples by UMAP of their principal components; without umap-learn, by the first two components."""
    channel = dense_channel(index)
    reduced, width = _components(index, channel)
    if not has("umap"):
        how = "the first two principal components (pip install 'airrep[map]' for a map by UMAP)"
        return Layout(_scaled(reduced[:, :2]), f"{how} of {channel}, {width} numbers")
    import umap

    rows = sample_of(index, FITTED)
    fitted = umap.UMAP(n_components=2, random_state=0, n_jobs=1).fit_transform(reduced[rows])
    places = np.empty((index.rows, 2), np.float32)
    for first in range(0, index.rows, BATCH):
        part = reduced[first : first + BATCH]
        places[first : first + len(part)] = _between(part, reduced[rows], fitted) if len(rows) < index.rows else 0
    places[rows] = fitted
    more = "" if len(rows) == len(index) else f"; {len(rows):,} examples were fitted, others lie between neighbours"
    return Layout(_scaled(places), f"UMAP of {channel}, {width} numbers{more}")


def _components(index: IndexRows, channel: str) -> tuple[np.ndarray, int]:
    """Return the first principal components of all vectors, ``(rows, ≤ 50)`` float32, and the vectors' width."""
    total, products, count = np.zeros(1), np.zeros((1, 1)), 0
    live = index.live
    for rows, part in vectors(index, channel):
        own = part[live[rows]].astype(np.float64)
        total, products, count = total + own.sum(axis=0), products + own.T @ own, count + len(own)
    mean = total / count
    _, directions = np.linalg.eigh(products / count - np.outer(mean, mean))
    first = directions[:, ::-1][:, : max(2, min(WIDTH, len(mean)))]
    first = first * np.where(first[np.abs(first).argmax(axis=0), np.arange(first.shape[1])] < 0, -1, 1)
    reduced = np.empty((index.rows, first.shape[1]), np.float32)
    for rows, part in vectors(index, channel):
        reduced[rows] = (part - mean) @ first
    return reduced, len(mean)


def _between(part: np.ndarray, known: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return the mean position of the nearest placed examples, weighted by inverse squared distance."""
    far = (known**2).sum(axis=1)[None] - 2 * part @ known.T
    nearest = np.argpartition(far, min(NEAREST, far.shape[1] - 1), axis=1)[:, :NEAREST]
    gaps = np.take_along_axis(far, nearest, axis=1) + (part**2).sum(axis=1, keepdims=True)
    weights = 1 / np.maximum(gaps, 1e-6)
    return (places[nearest] * weights[:, :, None]).sum(axis=1) / weights.sum(axis=1, keepdims=True)


def _scaled(places: np.ndarray) -> np.ndarray:
    """Centre and scale positions so that nearly all lie within 1 of 0."""
    low, high = np.quantile(places, [0.002, 0.998], axis=0)
    half = max(float((high - low).max()) / 2, 1e-12)
    return np.asarray((places - (low + high) / 2) / half, np.float32)


CLUSTER = "cluster"
"""Name by which groups, filters and colours refer to clusters, unless a field has this name."""
FEWEST, MOST = 4, 12
"""Least and greatest number of clusters; between them, a quarter of the square root of the number of examples."""
READ, LONGEST, NAMED = 200, 2000, 3
"""Examples of a cluster whose words are counted, characters read of each text, and words in a name."""
_WORD = re.compile(r"[^\W\d_]{3,}")


@dataclass(frozen=True, eq=False)
class Clusters:
    """A cluster for each row."""

    names: tuple[str, ...]
    codes: np.ndarray
    """``(rows,)`` int16: index into :attr:`names` for each row, deleted rows too."""

    def groups(self, index: IndexRows) -> Groups:
        """Return the clusters as groups of the rows that are not deleted."""
        return groups_of(self.names, self.codes, index)


def groups_of(names: Sequence[str], codes: np.ndarray, index: IndexRows) -> Groups:
    """Group the rows that are not deleted by *codes*, each row's index into *names*; leave out empty groups."""
    live = np.flatnonzero(index.live)
    own = codes[live]
    counts = np.bincount(own, minlength=len(names))
    known = tuple(name for name, count in zip(names, counts, strict=True) if count)
    return Groups(known, live[np.argsort(own, kind="stable")], np.concatenate([[0], np.cumsum(counts[counts > 0])]))


def find_clusters(index: IndexRows) -> Clusters:
    """Cluster all examples by k-means on their vectors; the same index gives the same clusters.

    ConfigError: the index stores no vectors. MissingExtraError: scikit-learn is not installed.
    """
    channel = dense_channel(index)
    need("clusters", "evaluation", "sklearn")
    from sklearn.cluster import MiniBatchKMeans

    rows = sample_of(index, FITTED)
    known = np.concatenate([part[np.isin(np.arange(at.start, at.stop), rows)] for at, part in vectors(index, channel)])
    wanted = min(int(np.clip(np.sqrt(len(index)) / 4, FEWEST, MOST)), len(np.unique(known, axis=0)))
    model = MiniBatchKMeans(wanted, random_state=0, n_init=3, batch_size=4096).fit(known)
    codes = np.empty(index.rows, np.int16)
    for at, part in vectors(index, channel):
        codes[at] = model.predict(part)
    order = np.argsort(-np.bincount(codes[index.live], minlength=wanted), kind="stable")  # the largest first
    codes = np.argsort(order).astype(np.int16)[codes]
    return Clusters(_names(index, codes, wanted), codes)


def _names(index: IndexRows, codes: np.ndarray, count: int) -> tuple[str, ...]:
    """Name clusters by the words that most distinguish them; by a number if there are no such words."""
    draw = np.random.default_rng(0).permutation(np.flatnonzero(index.live))
    words: list[Counter[str]] = []
    for code in range(count):
        own = np.sort(draw[codes[draw] == code][:READ])
        found = Counter[str]()
        for example in index.examples(own):
            found.update(set(_WORD.findall(f"{example.prompt[-LONGEST:]} {example.response[:LONGEST]}".casefold())))
        words.append(found)
    everywhere = Counter[str]()
    for found in words:
        everywhere.update(found)
    told = [_telling(found, everywhere) for found in words]
    return tuple(
        f"{number}. {', '.join(some)}" if some else f"{CLUSTER} {number}" for number, some in enumerate(told, 1)
    )


def _telling(own: Counter[str], everywhere: Counter[str]) -> Sequence[str]:
    """Return the most typical words of a cluster: frequent in it, rare elsewhere, and in at least two examples."""
    often = [
        (count * np.log1p(count / (everywhere[word] - count + 1)), word) for word, count in own.items() if count > 1
    ]
    return [word for _, word in sorted(often, key=lambda pair: (-pair[0], pair[1]))[:NAMED]]
