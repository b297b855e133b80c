"""Nearest examples of an answer, compared with those of answers that nothing taught.

The share of an example says how far its score lies on the way from the mean score (0) to the score of a copy of the
answer (1). The package brings made-up questions and answers: invented people, places, recipes, sums and programs, in
several languages. No data taught them, so the shares of their nearest examples show what arises by chance.
"""

import json
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache
from math import erfc, log, log10, sqrt
from pathlib import Path

import numpy as np

from airrep.answers.spread import SAMPLE, Ends, Leaders, Moments, Spread, ends_of, evenly
from airrep.arrays import Mask, Rows
from airrep.attributors.direct import InMemory, is_direct
from airrep.corpus.corpus import Example
from airrep.errors import ArtifactError, ConfigError, DataError
from airrep.index.contrast import Question
from airrep.index.index import Index
from airrep.index.results.hits import Kind
from airrep.runtime.artifacts import canonical_json, json_digest
from airrep.runtime.remote import places
from airrep.runtime.remote.outputs import write_output
from airrep.scoring.asked import Asked, stream_scores
from airrep.scoring.contrast import contrast_scores

TEXTS = Path(__file__).parents[1] / "data" / "outside.jsonl"
STANDS_OUT, WEAK = 0.01, 0.05
"""Chances below which an example stands out, or is at least weak evidence."""
COUNTED, ALIKE = 100, 0.7
"""COUNTED: most examples that are counted. ALIKE: one counts if its share is at least this part of the greatest."""
MANY = 10
"""This many examples with similar shares are a pattern of the data."""
LEAST_SHARE = 1e-3
"""Shares are clipped to at least this and at most 1 minus this, so that their log odds are finite."""
LEAST_DEVIATION = 0.4
"""Least deviation of log odds: the few texts cannot show that an index varies less."""
ROWS, GROWTH = 20_000, 0.35
"""Most rows that are scored for these texts; each further factor of ten adds the second number to the log odds."""
RARE = 0.25
"""Ten similar examples count only if the chance of the first is at most this."""
SHORTEST, LONGEST = 3, 300
"""Lengths of answers, in characters, are clipped to this range."""
LEAST_CHANCE = 1e-4
"""Least chance that is reported: the few texts cannot show a smaller one."""
VERSION = 2
"""Version of the computation; cached numbers of other versions are not read."""


def kind_of(chance: float) -> Kind:
    """Return the kind of the verdict at this chance."""
    return "stands out" if chance < STANDS_OUT else "weak" if chance < WEAK else "nothing"


@dataclass(frozen=True)
class Nearest:
    """The examples that come nearest to each of q answers."""

    rows: Rows
    """``(q,)``: the row with the greatest share."""
    shares: np.ndarray
    """``(q,)``: the greatest share."""
    tenth: np.ndarray
    """``(q,)``: the tenth greatest share; the least one if there are fewer rows."""
    alike: np.ndarray
    """``(q,)``: how many rows have at least 0.7 times the greatest share; no more than 100 are counted."""
    deviations: np.ndarray
    """``(q,)``: standard deviations by which the score, or contrast, of that row lies above the mean of all rows."""
    spread: Spread
    """Mean and deviation of the scores, or contrasts, of all rows."""


def nearest(index: Index, question: Question, asked: Asked, keep: Mask, ends: Ends | None = None) -> Nearest:
    """Find the kept rows nearest to each answer; *asked* holds the answers and, after them, the better answers.

    *ends* are the ends of the rankings if they are known already; they are not used with better answers.
    """
    own = _own_scores(index, question, asked)[:, None]
    if question.better is not None:
        return _in_place(len(question.queries), asked, keep, own)
    found = ends or ends_of(asked, keep, COUNTED, both=False)
    rows, scores = found.rows[0][:, :COUNTED], found.scores[0][:, :COUNTED]
    return _nearest(rows, _share(scores, found.sampled[:, None], own), scores, found.spread)


def _in_place(count: int, asked: Asked, keep: Mask, own: np.ndarray) -> Nearest:
    """Find the rows nearest to each answer but not to its better answer; *asked* holds the answers first."""
    sample = [scores for _, scores in stream_scores(asked, evenly(keep, SAMPLE))]
    mean = np.concatenate(sample, axis=1).mean(axis=1, keepdims=True)
    moments, leaders = Moments(count), Leaders(count, COUNTED)
    for rows, scores in stream_scores(asked, keep):
        shares = _share(scores[:count], mean[:count], own[:count])
        # Contrasts are rounded to float32, as ContrastAsked rounds them.
        values = contrast_scores(scores[:count], scores[count:]).astype(np.float32).astype(np.float64)
        contrast = (part[:count] - part[count:] for part in (scores, mean, own))
        moments.see(values)
        leaders.see(rows, np.minimum(shares, _share(*contrast)), values)
    return _nearest(*leaders.found(), moments.spread)


def _nearest(rows: Rows, shares: np.ndarray, values: np.ndarray, spread: Spread) -> Nearest:
    """Summarise the first rows of each answer, their shares, and their scores or contrasts, each ``(q, k)``."""
    first = shares[:, :1]
    alike = ((shares >= ALIKE * first) & (first > 0)).sum(axis=1)
    tenth = shares[:, min(MANY, shares.shape[1]) - 1]
    return Nearest(rows[:, 0], first[:, 0], tenth, alike, spread.effects(values[:, :1])[:, 0], spread)


def _own_scores(index: Index, question: Question, asked: Asked) -> np.ndarray:
    """Score a copy of each answer, as a training example: for the answer, and then for the better one, ``(e,)``."""
    attributor, answers = index.attributor, [one.whole for one in question.queries]
    if index.asking:  # some trainers learn more of a row than its answer
        answers = list(map(index.as_trained, answers))
    copies = asked.over(InMemory.of(attributor, answers), attributor.name)
    own = np.concatenate([scores for _, scores in stream_scores(copies)], axis=1)
    every = np.arange(len(own))
    return own[every, every % len(answers)]


def _share(scores: np.ndarray, mean: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Return (score − mean) / (own − mean), *own* being a copy's score; 0 where a copy scores no more than the mean."""
    width = own - mean
    apart = width > 1e-9 * (np.abs(own) + np.abs(mean))
    return np.divide(scores - mean, width, out=np.zeros_like(scores), where=apart)


@dataclass(frozen=True)
class Shares:
    """Normal distribution of the log odds of shares; its middle is linear in the logarithm of the answer's length.

    Examples come near to a short answer, such as "Yes.", more easily than to a long one.
    """

    middle: float
    slope: float
    """At most 0."""
    deviation: float
    """Deviation of the upper half, which alone decides the chances."""

    @classmethod
    def of(cls, shares: np.ndarray, letters: np.ndarray) -> "Shares":
        """Fit the slope by least squares, and the middle and the deviation by the median and the upper quantiles."""
        odds = np.array([_log_odds(share) for share in shares.tolist()])
        sizes = np.array([_size(count) for count in letters.tolist()])
        slope = min(0.0, float(np.polyfit(sizes, odds, 1)[0]))
        middle, some, most = np.quantile(odds - slope * sizes, [0.5, 0.84, 0.95]).tolist()
        deviation = max(some - middle, (most - middle) / 1.645, LEAST_DEVIATION)
        return cls(round(middle, 4), round(slope, 4), round(deviation, 4))

    def chance(self, share: float, letters: int) -> float:
        """Return the chance of a share at least as great as this one, for an answer of *letters* characters."""
        above = _log_odds(share) - self.middle - self.slope * _size(letters)
        return max(LEAST_CHANCE, 0.5 * erfc(above / self.deviation / sqrt(2)))


@dataclass(frozen=True)
class Chances:
    """Distributions of the shares of the examples nearest to answers that nothing taught."""

    first: Shares
    """Share of the nearest example."""
    tenth: Shares
    """Share of the tenth nearest example."""

    def chance(self, first: float, tenth: float, letters: int) -> float:
        """Return the chance of shares at least as great as these, for an answer of *letters* characters.

        Ten examples with similar shares are a pattern of the data even if the first share alone is not rare enough: one
        great share often arises by chance, ten seldom do. Since shared words of a prompt can make ten examples similar,
        the first must be rather rare too, and ten alone never make a verdict better than weak.
        """
        found = self.first.chance(first, letters)
        if tenth < ALIKE * first or found > RARE:
            return found
        return min(found, max(STANDS_OUT, 2 * self.tenth.chance(tenth, letters)))


DIRECT = Chances(Shares(-1.8, -0.45, 1.0), Shares(-2.8, -0.4, 0.8))
"""For methods that store no features, which would take long to score these texts: cautious values, near those measured
with whole EK-FAC gradients together with text."""


def chances_of(index: Index, *, contrast: bool) -> Chances | None:
    """Measure the shares for answers that nothing taught, once for each index; None if it cannot score new texts."""
    if is_direct(index.attributor):
        return DIRECT
    key = {"index": index.fingerprint, "texts": json_digest(_records()), "contrast": contrast, "version": VERSION}
    path = places.cache() / "verdicts" / f"{json_digest(key)[:32]}.json"
    with suppress(OSError, ValueError, TypeError, KeyError):
        value = json.loads(path.read_bytes())
        return Chances(Shares(**value["first"]), Shares(**value["tenth"]))
    with suppress(ConfigError, DataError):  # raised by methods that score only queries that they know
        found = _measured(index, contrast)
        with suppress(ArtifactError):  # work without a cache that cannot be written
            write_output(path, canonical_json(asdict(found)))
        return found
    return None


def _measured(index: Index, contrast: bool) -> Chances:
    records = _records()
    answers = [Example(one["prompt"], one["response"]) for one in records]
    better = tuple(Example(one["prompt"], one["other"]) for one in records)
    question = index.question(answers, better if contrast else None)
    found = nearest(index, question, index.ask(question), evenly(index.live, ROWS))
    letters, more = np.array([len(one.response) for one in answers]), GROWTH * log10(max(1.0, len(index) / ROWS))
    first, tenth = (Shares.of(shares, letters) for shares in (found.shares, found.tenth))
    return Chances(replace(first, middle=first.middle + more), replace(tenth, middle=tenth.middle + more))


@cache
def _records() -> list[dict[str, str]]:
    return [json.loads(line) for line in TEXTS.read_text(encoding="utf-8").splitlines()]


def _log_odds(share: float) -> float:
    inside = min(max(share, LEAST_SHARE), 1 - LEAST_SHARE)
    return log(inside / (1 - inside))


def _size(letters: int) -> float:
    return log(min(max(letters, SHORTEST), LONGEST))
