"""Examples nearest to an answer, and to answers that no data taught.

airrep brings some made-up questions with answers of many kinds: invented people, places, recipes, sums, programs,
several languages. No training data hold them, so the shares of what comes nearest to them in an index say how great a
share comes by chance, by this method and in these data.
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
"""At most so many examples are counted whose share is at least this part of the greatest."""
MANY = 10
"""So many alike are a pattern of the data."""
LEAST_SHARE = 1e-3
"""Shares are taken to lie so far from 0 and 1 at least."""
LEAST_DEVIATION = 0.4
"""No index is sure of less, whatever so few texts say."""
ROWS, GROWTH = 20_000, 0.35
"""At most so many rows are asked about these texts; of ten times as many the nearest has log odds so much higher."""
RARE = 0.25
"""Chance of a share that ten alike make more of."""
SHORTEST, LONGEST = 3, 300
"""Letters of an answer, as far as its length counts."""
LEAST_CHANCE = 1e-4
"""So few texts say nothing of lesser chances."""
VERSION = 1
"""Version of how the numbers are computed; others are not read."""


def kind_of(chance: float) -> Kind:
    """Return the kind of the verdict at this chance."""
    return "stands out" if chance < STANDS_OUT else "weak" if chance < WEAK else "nothing"


@dataclass(frozen=True)
class Nearest:
    """The examples that come nearest to each of q answers."""

    rows: Rows
    """``(q,)``: the row of the greatest share."""
    shares: np.ndarray
    """``(q,)``: its share."""
    tenth: np.ndarray
    """``(q,)``: the tenth greatest share; of fewer rows, the least."""
    alike: np.ndarray
    """``(q,)``: how many rows come about as near."""
    deviations: np.ndarray
    """``(q,)``: how far its score, or contrast, lies above the mean of all rows."""
    spread: Spread
    """Shares of the scores, or contrasts, of all rows."""


def nearest(index: Index, question: Question, asked: Asked, keep: Mask, ends: Ends | None = None) -> Nearest:
    """The kept rows that come nearest to each answer; *asked* is all that the question has.

    *ends* are both ends of its ranking where they are known, of a question without better answers.
    """
    own = _own_scores(index, question, asked)[:, None]
    if question.better is not None:
        return _in_place(len(question.queries), asked, keep, own)
    found = ends or ends_of(asked, keep, COUNTED, both=False)
    rows, scores = found.rows[0][:, :COUNTED], found.scores[0][:, :COUNTED]
    return _nearest(rows, _share(scores, found.sampled[:, None], own), scores, found.spread)


def _in_place(count: int, asked: Asked, keep: Mask, own: np.ndarray) -> Nearest:
    """The rows that come nearest to answers and not to the better ones, behind them."""
    sample = [scores for _, scores in stream_scores(asked, evenly(keep, SAMPLE))]
    mean = np.concatenate(sample, axis=1).mean(axis=1, keepdims=True)
    moments, leaders = Moments(count), Leaders(count, COUNTED)
    for rows, scores in stream_scores(asked, keep):
        shares = _share(scores[:count], mean[:count], own[:count])
        # Contrasts in float32, as blocks of them are.
        values = contrast_scores(scores[:count], scores[count:]).astype(np.float32).astype(np.float64)
        contrast = (part[:count] - part[count:] for part in (scores, mean, own))
        moments.see(values)
        leaders.see(rows, np.minimum(shares, _share(*contrast)), values)
    return _nearest(*leaders.found(), moments.spread)


def _nearest(rows: Rows, shares: np.ndarray, values: np.ndarray, spread: Spread) -> Nearest:
    """Return what is told of the first rows of each answer, ``(q, k)``, and of their scores, or contrasts."""
    first = shares[:, :1]
    alike = ((shares >= ALIKE * first) & (first > 0)).sum(axis=1)
    tenth = shares[:, min(MANY, shares.shape[1]) - 1]
    return Nearest(rows[:, 0], first[:, 0], tenth, alike, spread.effects(values[:, :1])[:, 0], spread)


def _own_scores(index: Index, question: Question, asked: Asked) -> np.ndarray:
    """Score a copy of each answer, as a training example, for the answer and for the better one, ``(e,)``."""
    attributor, answers = index.attributor, [one.whole for one in question.queries]
    copies = asked.over(InMemory.of(attributor, answers), attributor.name)
    own = np.concatenate([scores for _, scores in stream_scores(copies)], axis=1)
    every = np.arange(len(own))
    scores: np.ndarray = own[every, every % len(answers)]
    return scores


def _share(scores: np.ndarray, mean: np.ndarray, own: np.ndarray) -> np.ndarray:
    """How far scores are on the way from the mean to a copy's; 0 where a copy would score no more than the mean."""
    width = own - mean
    apart = width > 1e-9 * (np.abs(own) + np.abs(mean))
    shares: np.ndarray = np.divide(scores - mean, width, out=np.zeros_like(scores), where=apart)
    return shares


@dataclass(frozen=True)
class Shares:
    """Shares by their log odds: a normal distribution about a line in the logarithm of the answer's length.

    A short answer, such as "Yes.", is more easily come near to than a long one.
    """

    middle: float
    slope: float
    """At most 0."""
    deviation: float
    """Deviation of the upper half, the half that counts."""

    @classmethod
    def of(cls, shares: np.ndarray, letters: np.ndarray) -> "Shares":
        """The distribution about whose line some shares have their median and upper quantiles."""
        odds = np.array([_log_odds(share) for share in shares.tolist()])
        sizes = np.array([_size(count) for count in letters.tolist()])
        slope = min(0.0, float(np.polyfit(sizes, odds, 1)[0]))
        middle, some, most = np.quantile(odds - slope * sizes, [0.5, 0.84, 0.95]).tolist()
        deviation = max(some - middle, (most - middle) / 1.645, LEAST_DEVIATION)
        return cls(round(middle, 4), round(slope, 4), round(deviation, 4))

    def chance(self, share: float, letters: int) -> float:
        """Chance of a share as great as this one, for an answer of so many letters."""
        above = _log_odds(share) - self.middle - self.slope * _size(letters)
        return max(LEAST_CHANCE, 0.5 * erfc(above / self.deviation / sqrt(2)))


@dataclass(frozen=True)
class Chances:
    """Shares of what comes nearest to answers that nothing taught."""

    first: Shares
    """Scores of the nearest example."""
    tenth: Shares
    """Scores of the tenth nearest."""

    def chance(self, first: float, tenth: float, letters: int) -> float:
        """Chance of shares as great as these, for an answer of so many letters.

        Ten examples that come about as near are a pattern of the data even where the first is not near enough, since
        of one such share some come by chance, of ten few. As words of a prompt alone can make ten alike, the first must
        be rare too, and they make a verdict weak at most.
        """
        found = self.first.chance(first, letters)
        if tenth < ALIKE * first or found > RARE:
            return found
        return min(found, max(STANDS_OUT, 2 * self.tenth.chance(tenth, letters)))


DIRECT = Chances(Shares(-1.8, -0.45, 1.0), Shares(-2.8, -0.4, 0.8))
"""For methods that keep no features, whose scores of these texts would cost as much as many questions: about what whole
gradients by EK-FAC beside text come to, on the careful side."""


def chances_of(index: Index, *, contrast: bool) -> Chances | None:
    """Measure the scores of answers that nothing taught, once for each index; None if it cannot score them."""
    if is_direct(index.attributor):
        return DIRECT
    key = {"index": index.fingerprint, "texts": json_digest(_records()), "contrast": contrast, "version": VERSION}
    path = places.cache() / "verdicts" / f"{json_digest(key)[:32]}.json"
    with suppress(OSError, ValueError, TypeError, KeyError):
        value = json.loads(path.read_bytes())
        return Chances(Shares(**value["first"]), Shares(**value["tenth"]))
    with suppress(ConfigError, DataError):  # methods that know their own queries alone
        found = _measured(index, contrast)
        with suppress(ArtifactError):  # a cache that cannot be written is none
            write_output(path, canonical_json(asdict(found)))
        return found
    return None


def _measured(index: Index, contrast: bool) -> Chances:
    records = _records()
    answers = [Example(one["prompt"], one["response"]) for one in records]
    better = tuple(Example(one["prompt"], one["other"]) for one in records)
    question = Question(answers, better if contrast else None)
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
