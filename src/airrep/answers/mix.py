"""How to mix sources for a target: weights with intervals."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import yaml

from airrep.answers.answer import Answer
from airrep.answers.texts import kept_values
from airrep.attributors.base import OnProgress
from airrep.errors import ConfigError, DataError
from airrep.index.contrast import Better
from airrep.index.index import IndexLike, Queries, as_index
from airrep.index.results.provenance import ZERO, Provenance
from airrep.runtime.seeding import stream
from airrep.scoring.asked import Asked, stream_scores
from airrep.scoring.contrast import without_worse
from airrep.scoring.topk import top_k
from airrep.sparse import SparseRows

RESAMPLES = 1000
LEAST, ALIKE = 0.025, 1e-9
"""Chance at each end of an interval; shares that differ by no more are equal."""
DECIMALS = 4
"""Digits of weights in configurations."""
TIED = 1e-6
"""Scores that differ by less, relatively, are ties."""
_NUMBERS = ("examples", "share", "weight", "low", "high", "lift")
UNITS = "share of the examples that help most"


@dataclass(frozen=True)
class SourceWeight:
    """One source, and what it gives to the target."""

    name: str
    examples: int
    share: float
    """Its share of all examples that have a source."""
    weight: float
    """Its share of the examples that help most, mean over the queries; all weights add up to 1."""
    low: float
    """Lower end of the 95 % interval, of resampled queries."""
    high: float
    """Upper end."""

    @property
    def lift(self) -> float:
        """Weight by share: above 1, the target asks for more of it than there is."""
        return self.weight / self.share


@dataclass(frozen=True, repr=False)
class MixResult(Answer):
    """Weights of sources for a target, the greatest first."""

    by: str
    sources: tuple[SourceWeight, ...]
    queries: int
    top: int
    """Examples that count as helping most, for each query."""
    provenance: Provenance
    where: str | None = None
    """The filter of the examples that counted."""
    without: int = 0
    """Examples without the field: they count for no source, and are in no weight."""
    kind: ClassVar[str] = "mix"

    def _records(self) -> Iterator[dict[str, Any]]:
        for source in self.sources:
            yield {self.by: source.name, **{name: getattr(source, name) for name in _NUMBERS}}

    def to_dict(self) -> dict[str, Any]:
        values = super().to_dict()
        for told, source in zip(values["sources"], self.sources, strict=True):
            told["lift"] = source.lift
        return values

    def to_yaml(self) -> str:
        """The weights as YAML: ``by``, and ``weights`` by name."""
        return yaml.safe_dump({"by": self.by, "weights": self._rounded()}, sort_keys=False, allow_unicode=True)

    def to_llama_factory(self) -> str:
        """Arguments of LLaMA-Factory that mix data sets called like the sources; they are defined in dataset_info.json.

        Raises:
            ConfigError: a name has a comma, which separates names there.
        """
        weights = {name: weight for name, weight in self._rounded().items() if weight > 0}
        bad = next((name for name in weights if "," in name or name != name.strip()), None)
        if bad is not None:
            raise ConfigError(f"mix: the source '{bad}' has a comma or outer spaces, which separate names. Rename it.")
        arguments = {
            "dataset": ",".join(weights),
            "mix_strategy": "interleave_under",
            "interleave_probs": ",".join(f"{weight:.{DECIMALS}f}" for weight in weights.values()),
        }
        return yaml.safe_dump(arguments, sort_keys=False, allow_unicode=True, width=10**6)

    def _rounded(self) -> dict[str, float]:
        """Weights of few digits that add up to 1; the greatest takes what rounding left."""
        weights = {source.name: round(source.weight, DECIMALS) for source in self.sources}
        first = self.sources[0].name
        weights[first] = round(1 - sum(weights[name] for name in weights if name != first), DECIMALS)
        return weights


def mix(
    index: IndexLike,
    queries: Queries,
    by: str = "source",
    *,
    better: Better | None = None,
    top: float = 0.01,
    where: str | None = None,
    seed: int = 0,
    progress: OnProgress | None = None,
) -> MixResult:
    """Weights of the sources for a target: each one's share of the examples that help a query most.

    For each query the K examples of greatest score count, K being the share *top* of those that have a source; where
    the K-th score is that of several examples, all of these count in equal parts. A weight is the mean over the
    queries, so it adds up to 1 with the others; its interval is that of 1,000 resamples of the queries. Examples
    without a source are left out, and counted in the result.

    Args:
        index: the index of all sources together; or its path.
        queries: examples of the target.
        by: the field that names the source.
        better: better answers to the queries' prompts, as for :meth:`airrep.Index.top`: then the examples count that
            teach these most in place of the queries' answers, but those that teach a bad answer more than any good one
            (:func:`airrep.scoring.contrast.without_worse`).
        top: the share of the examples that count for a query, 0 to 1.
        where: a filter; only examples that fulfil it count.
        seed: of the resamples.
        progress: called with the number of encoded queries.

    Raises:
        ConfigError: an unknown field, fewer than two sources, or a bad share or filter.

    Example:
        >>> weights = airrep.mix(index, queries, by="source")
        >>> sorted(one.name for one in weights.sources)
        ['books', 'forum']
    """
    index = as_index(index)
    if not (isinstance(top, float | int | np.floating) and 0 < top <= 1):
        raise ConfigError(f"mix: the share of examples that count is {top}; expected above 0 and at most 1. Change it.")
    keep = index.mask(where)
    named = kept_values(index, keep, by)
    names = sorted({name for name in named if name is not None})
    if len(names) < 2:
        raise ConfigError(f"mix: the field '{by}' has {len(names)} values; expected two or more. Name another field.")
    number = {name: code for code, name in enumerate(names)}
    codes = np.full(index.rows, -1)
    codes[keep] = [-1 if name is None else number[name] for name in named]
    question = index.question(queries, better)
    asked = question.ranked(index.ask(question, progress), towards=True)
    sizes = np.bincount(codes[codes >= 0], minlength=len(names))
    if better is not None:
        codes[~without_worse(asked, keep)] = -1
    count = min(max(1, round(top * int(sizes.sum()))), int((codes >= 0).sum()))
    if not count:
        raise DataError("mix: all examples teach a worse answer more than a better one; expected others. Give others.")
    shares = _shares(asked, codes, len(names), count)
    weights = _weights(names, sizes, shares, seed)
    provenance = replace(question.told(index.provenance(), towards=True), units=UNITS)
    return MixResult(by, weights, len(shares), count, provenance, where, named.count(None))


def _shares(asked: Asked, codes: np.ndarray, sources: int, count: int) -> np.ndarray:
    """Each source's share of the *count* rows of greatest score, ``(q, sources)``."""
    keep = codes >= 0
    best = top_k(asked, count, keep=keep).scores.astype(np.float64)
    if not best.any():
        raise DataError(f"mix: {ZERO}; expected some that do. Give other queries, or another index.")
    least, near = best[:, -1:], TIED**2 * np.abs(best).max(axis=1, keepdims=True)  # the latter where least is about 0
    above, tied = np.zeros((2, len(asked), sources))
    for rows, scores in stream_scores(asked, keep):
        members = SparseRows.of(np.eye(sources)[codes[rows]]).T
        equal = np.isclose(scores, least, rtol=TIED, atol=near)
        above += (members @ ((scores > least) & ~equal).T.astype(np.float64)).T
        tied += (members @ equal.T.astype(np.float64)).T
    left = count - above.sum(axis=1, keepdims=True)
    shares: np.ndarray = (above + left * tied / tied.sum(axis=1, keepdims=True)) / count
    return shares


def _weights(names: list[str], sizes: np.ndarray, shares: np.ndarray, seed: int) -> tuple[SourceWeight, ...]:
    weights, q = shares.mean(axis=0), len(shares)
    counts = stream(seed, "mix").multinomial(q, np.full(q, 1 / q), size=RESAMPLES)
    apart = (counts @ shares / q - weights) * np.sqrt(q / max(1, q - 1))  # draws alone vary by (q - 1) / q too little
    low, high = (weights + np.quantile(apart, [0.025, 0.975], axis=0)).clip(0.0, 1.0)
    # Where all queries agree no draw varies: the exact interval of a share stands for it.
    known = LEAST ** (1 / q) * np.isclose(shares, shares[0], rtol=0, atol=ALIKE).all(axis=0)
    low = np.where(known > 0, known * weights, low)
    high = np.where(known > 0, known * weights + 1 - known, high)
    order = np.argsort(-weights, kind="stable").tolist()
    total = sizes.sum()
    return tuple(
        SourceWeight(
            names[one],
            int(sizes[one]),
            float(sizes[one] / total),
            float(weights[one]),
            float(low[one]),
            float(high[one]),
        )
        for one in order
    )
