"""Clusters of examples that are alike, with names from their words."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from airrep.answers.likeness.layout import dense_channel, sample_of, vectors
from airrep.errors import need
from airrep.index.rows import IndexRows
from airrep.scoring.groups import Groups

CLUSTER = "cluster"
"""Name by which groups, filters and colours ask for clusters, where no field has it."""
FITTED = 50_000
"""Examples from which the centres are learnt."""
FEWEST, MOST = 4, 12
"""Clusters; between them a quarter of the root of the number of examples."""
READ, LONGEST, NAMED = 200, 2000, 3
"""Examples of a cluster whose words are counted, characters of each, and words of a name."""
_WORD = re.compile(r"[^\W\d_]{3,}")


@dataclass(frozen=True, eq=False)
class Clusters:
    """A cluster for each row."""

    names: tuple[str, ...]
    codes: np.ndarray
    """``(rows,)`` int16: the number of each row's name, deleted rows too."""

    def groups(self, index: IndexRows) -> Groups:
        """The clusters as groups of the rows that are not deleted."""
        live = np.flatnonzero(index.live)
        codes = self.codes[live]
        counts = np.bincount(codes, minlength=len(self.names))
        names = tuple(name for name, count in zip(self.names, counts, strict=True) if count)
        ends = np.concatenate([[0], np.cumsum(counts[counts > 0])])
        return Groups(names, live[np.argsort(codes, kind="stable")], ends)


def find_clusters(index: IndexRows) -> Clusters:
    """Cluster all examples by k-means on their vectors; the same index gives the same clusters.

    Raises:
        ConfigError: the index keeps no vectors.
        MissingExtraError: scikit-learn is not installed.
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
    order = np.argsort(-np.bincount(codes[index.live], minlength=wanted), kind="stable")  # the largest is the first
    codes = np.argsort(order).astype(np.int16)[codes]
    return Clusters(_names(index, codes, wanted), codes)


def _names(index: IndexRows, codes: np.ndarray, count: int) -> tuple[str, ...]:
    """Names of clusters: the words that most tell one from the others; a number where there are none."""
    live = np.flatnonzero(index.live)
    draw = np.random.default_rng(0).permutation(live)
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
    """The words of one cluster that count most: frequent here, rare elsewhere; none that one example alone has."""
    often = [
        (count * np.log1p(count / (everywhere[word] - count + 1)), word) for word, count in own.items() if count > 1
    ]
    return [word for _, word in sorted(often, key=lambda pair: (-pair[0], pair[1]))[:NAMED]]
