"""The verdict on each answer: whether an example stands out as what taught it."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from airrep.answers.chance import COUNTED, MANY, Nearest, chances_of, kind_of, nearest
from airrep.answers.copied import with_copied
from airrep.answers.spread import Ends, Spread, beside_spread, spread_of
from airrep.arrays import Mask
from airrep.attributors.base import OnProgress
from airrep.corpus.corpus import Example
from airrep.corpus.inputs import given_or_typed
from airrep.corpus.records import Reading
from airrep.corpus.schemas.forms import EARLIER
from airrep.errors import ConfigError, DataError
from airrep.index.contrast import Better, Question
from airrep.index.index import Index, IndexLike, Queries, as_index
from airrep.index.results.hits import Hits, Kind, Verdict
from airrep.index.results.kinds import TopResult
from airrep.index.rows import TEXTS
from airrep.index.why import check_tokens
from airrep.scoring.asked import Asked
from airrep.scoring.blocks import at_most

TOGETHER = 64
"""Answers judged at a time."""
OPENINGS: Mapping[Kind, str] = {"stands out": "Stands out", "weak": "Weak", "nothing": "Nothing here taught this"}


def top(
    index: IndexLike,
    queries: Example | Queries | None = None,
    k: int = 10,
    *,
    better: Better | None = None,
    prompt: str | None = None,
    response: str | None = None,
    least: bool = False,
    where: str | None = None,
    why: bool = False,
    tokens: bool = False,
    progress: OnProgress | None = None,
) -> TopResult:
    """Find the training examples that taught each answer most, with a verdict: did anything in the data teach it?

    Hits are those of :meth:`airrep.Index.top`. Each hit also says how many standard deviations its score lies above the
    mean of the examples that pass the filter. The most harmful examples get no verdict.

    Args:
        index: the index to ask; or its path.
        queries: prompts with the answers to explain; or pass a single one as *prompt* and *response*.
        k: how many training examples to return for each answer; all, if fewer pass the filter.
        better: better answers: a text, the name of a field of the queries' records, or examples with the same prompts.
            Then examples rank first that taught the answer instead of the better one.
        prompt: the prompt of a single answer to explain.
        response: that answer, instead of *queries*.
        least: rank the most harmful examples first.
        where: as for :meth:`airrep.Index.top`, like *why*, *tokens* and *progress*.

    Raises:
        ConfigError: k is below 1, there is no answer, an answer lacks its better answer, the filter is invalid or
            matches no example, or *tokens* is set and no channel can score tokens.

    Example:
        >>> (found,) = airrep.top(index, prompt="question 3", response="answer 3", k=2)
        >>> [hit.rank for hit in found]
        [1, 2]
    """
    index = as_index(index)
    question, keep = index.question(given_or_typed(queries, prompt, response), better), index.kept(where)
    k = at_most("top: k", k, int(keep.sum()))
    if tokens:
        check_tokens(index.attributor)
    asked = index.ask(question, progress)
    found = index.top_of(question, asked, keep, k, least=least, why=why, tokens=tokens)
    if (why or tokens) and index.manifest.get(TEXTS, True):
        found = replace(found, queries=with_copied(index, found.queries, keep))
    if least:
        return beside_spread(found, spread_of(question.ranked(asked), keep))
    told = list[Hits]()
    for start in range(0, len(found), TOGETHER):
        places = slice(start, start + TOGETHER)
        better, chosen = question.better, np.arange(len(question.queries))[places]
        part = Question(question.queries[places], None if better is None else better[places])
        own = asked.chosen(chosen if better is None else np.concatenate([chosen, chosen + len(question.queries)]))
        judged, spread = verdicts(index, part, own, keep)
        beside = beside_spread(found[places], spread or spread_of(part.ranked(own), keep))
        told += [replace(hits, verdict=one) for hits, one in zip(beside, judged, strict=True)]
    return replace(found, queries=tuple(told))


def verdicts(
    index: Index, question: Question, asked: Asked, keep: Mask, ends: Ends | None = None
) -> tuple[list[Verdict | None], Spread | None]:
    """Judge each answer; also return mean and deviation of the numbers that rank all kept rows, None if not computed.

    An answer with a span gets None: chances hold for whole answers, and examples come near to a few words more easily.
    All answers get None if the method cannot score new texts. *ends*: see :func:`airrep.answers.chance.nearest`.
    """
    contrast = question.better is not None
    spanned = [answer.span is not None for answer in question.queries]
    known = None if all(spanned) else chances_of(index, contrast=contrast)
    if known is None:
        return [None] * len(spanned), None
    try:
        found = nearest(index, question, asked, keep, ends)
    except (ConfigError, DataError):  # the method cannot score a copy of an answer: it is not one of the examples that
        # it knows, or lacks what the loss of the fine-tune reads, such as a rejected response or a reward
        return [None] * len(spanned), None
    letters = [len(answer.response) for answer in question.queries]
    chances = map(known.chance, found.shares.tolist(), found.tenth.tolist(), letters)
    # Of which examples earlier turns were left out is not stored, so their number says nothing of a part of the data.
    whole = keep.all() and "compacted" not in index.manifest["corpora"][0]
    read = index.reading if whole else replace(index.reading, earlier_turns=0)
    judged = (_verdict(found, place, chance, read, contrast=contrast) for place, chance in enumerate(chances))
    return [None if part else one for part, one in zip(spanned, judged, strict=True)], found.spread


def _verdict(found: Nearest, place: int, chance: float, read: Reading, *, contrast: bool) -> Verdict:
    columns = (found.shares, found.tenth, found.deviations, found.rows, found.alike)
    share, tenth, deviations, row, alike = (column[place].item() for column in columns)
    kind = kind_of(chance)
    text = _words(kind, chance, share, tenth if alike >= MANY and kind != "nothing" else None, alike, contrast)
    if kind != "stands out" and EARLIER in "".join(read.forms):  # an answer that was left out may have taught it
        count = f"{read.earlier_turns:,} earlier" if read.earlier_turns else "Earlier"
        told = "turns of the data are not examples here. To add them"
        if read.earlier_turns == 1:
            told = "turn of the data is not an example here. To add it"
        text += f" {count} assistant {told}, build the index with --turns all."
    # Numbers are reported in float32, as elsewhere: its digits do not depend on shards and on other answers.
    near, apart = float(np.float32(max(share, 0.0))), float(np.float32(deviations))
    return Verdict(kind, round(chance, 4), near, apart, row, alike, text)


def _words(kind: Kind, chance: float, share: float, tenth: float | None, alike: int, contrast: bool) -> str:
    """Put the verdict in plain words; *tenth* is the share that ten or more examples reach, None if there are fewer."""
    if share <= 0:
        return f"Nothing here taught this. No example teaches this answer{' in place of the better one' * contrast}."
    place = " in place of the better one," if contrast else ""
    percent = f"{max(1, round(100 * (share if tenth is None else tenth)))} %"
    said = f"The closest example teaches this answer{place} {percent}"
    if tenth is not None:
        said = f"{alike}{' or more' if alike >= COUNTED else ''} examples each teach this answer{place} about {percent}"
    often = "fewer than 1" if kind == "stands out" else round(100 * chance)
    return (
        f"{OPENINGS[kind]}. {said} as strongly as an exact copy would. Where nothing taught an answer, an example this "
        f"close turns up in {often} of 100 cases."
    )
