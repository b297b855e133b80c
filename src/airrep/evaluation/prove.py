"""Fine-tune with and without the named rows; say what that did."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from airrep.answers.proof import UNITS, Effect, Effects, NamedRow, ProofResult, Proved, Verdict
from airrep.arrays import Rows
from airrep.corpus.corpus import Corpus, Example
from airrep.corpus.originals import hits_in
from airrep.errors import LM, ArtifactError, ConfigError, DataError, many, need
from airrep.evaluation.statistics.labels import REMEDY, Moved
from airrep.evaluation.statistics.means import CONFIDENCE
from airrep.index.contrast import Better, Question
from airrep.index.index import Index, IndexLike, Queries, as_index
from airrep.index.results.result import RESULTS
from airrep.index.rows import RowsLike
from airrep.labels.farm import TaskReport, label
from airrep.labels.fine_tuner import Learner
from airrep.labels.plan import SamplingSettings, SubsetPlan, open_plan, write_plan
from airrep.lm.settings import FineTuneSettings, LmSettings
from airrep.runtime.artifacts import MANIFEST, REQUEST, beside, json_digest, read_manifest
from airrep.runtime.engine import Engine
from airrep.runtime.remote.places import here_only
from airrep.runtime.seeding import stream
from airrep.runtime.settings import Settings
from airrep.shapes import Bool, Float

PROOF, LABELS, SUBSETS = "proof", "labels", "subsets"
"""Parts of a proof's directory: the result, the losses behind it, the subsets that were fine-tuned on."""
MOST_OTHERS = 20_000
"""Most other examples that contexts and random rows are drawn from."""
FAR_MORE = 3.0
"""Ratio of the named rows' share of a fine-tune to their share of the data, above which the result has a caution."""
LEFT_OVER = 2
"""Least number of other examples for each named row, so that random rows differ from repeat to repeat."""
OnTask = Callable[[TaskReport], None]
LmLike = LmSettings | Callable[[], Learner[Any]]


class ProofSettings(Settings):
    """Settings of a proof."""

    seeds: int = Field(default=6, ge=2)
    """Number of repeats; each takes three fine-tunes. Each has its own context, random rows and order of data."""
    context: int = Field(default=500, ge=1)
    """Number of random training examples in each fine-tune besides the named rows; all examples if there are fewer."""
    seed: int = Field(default=0, ge=0)
    """Random seed."""


def prove(
    index: IndexLike,
    rows: RowsLike | PathLike[str],
    answers: Example | Queries,
    lm: "LmSettings | Mapping[str, Any] | str | Path | Callable[[], Learner[Any]]",
    better: Better | None = None,
    *,
    seeds: int = 6,
    context: int = 500,
    seed: int = 0,
    fine_tune: FineTuneSettings | Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    engine: Engine | str | None = None,
    retries: int = 2,
    tell: Callable[[str], None] | None = None,
    on_task: OnTask | None = None,
) -> ProofResult:
    """Fine-tune the target LM with and without some training examples, and say what that did to answers.

    A repeat has three fine-tunes with one seed: on a random context with the named rows and as many random rows, on the
    same without the named rows, and on the same without the random rows. Random rows are about as long as the named
    rows and, if there are enough, from the same sources. The effect of the named rows must exceed that of other random
    rows (:func:`effects_of`). After an interruption, or with more seeds, the same call resumes.

    Args:
        index: the index that holds the examples; or its path. Its scores are not used.
        rows: the rows to leave out, as :meth:`airrep.Index.what_if` takes them: row numbers, ids, or a filter; or the
            path of a file that names them, such as what the page or ``airrep top --json`` wrote.
        answers: prompts with the answers that the rows may have taught.
        lm: the target LM before its training: its folder or Hub id, or settings with it.
        better: better answers, as in :meth:`airrep.Index.top`; the verdict is then on the difference of the losses.
        seeds: and *context*, *seed*: as in :class:`ProofSettings`.
        out: the directory of all results; None: one beside the index, named by a digest of the arguments.
        tell: callback that receives a line on each thing that is being done.
        fine_tune: and *engine*, *retries*, *on_task*: as for :func:`airrep.label`.

    Raises:
        ConfigError: no row, an unknown row, too many rows, no better answer to a prompt, or an invalid value.
        DataError: a named row or an answer that the LM cannot read.
        ArtifactError: the directory holds something else.
        TrainingError: all fine-tunes failed.

    Example:
        >>> found = airrep.prove(index, ["e1", "e2"], queries[0], "MODEL", seeds=2, out="runs/proof")
        >>> found.repeats, len(found.rows)
        (2, 2)
    """
    if not callable(lm):
        need("airrep.prove", "lm", *LM)
    index, chosen = as_index(index, "prove"), ProofSettings.of({"seeds": seeds, "context": context, "seed": seed})
    named = named_rows(index, rows)
    question = index.question(answers, better, "answers")
    learner = lm if callable(lm) else LmSettings.named(lm).before()
    tuning = FineTuneSettings.given(fine_tune, "fine_tune")
    case = _Case(index, named, question, learner, tuning, chosen, tell or (lambda _: None))
    folder = case.default_folder() if out is None else Path(out)
    return case.run(here_only(folder, "a proof is made"), engine, retries, on_task)


NEAR = 20
"""Fewest other examples, nearest in length, from which one is drawn for each named row."""
ENOUGH = 5
"""Least other examples of a source, for each of its named rows, for draws within the source."""
ANY = ""
"""Stands for all sources together."""
FEWEST_DRAWS, ROWS_DRAWN = 8, 2000
"""Fewest draws, and how many rows in all, from which their overlap is counted."""


class Matching:
    """Draws for each named example a random other one: of its source, if that has enough, and about as long."""

    def __init__(self, named: Sequence[Example], others: Sequence[Example]) -> None:
        """Sort the others by length; an example with the text of a named example is never drawn."""
        texts = {one.content_hash for one in named}
        lengths = np.array([_length(one) for one in others])
        order = np.argsort(lengths, kind="stable")
        allowed = order[[others[row].content_hash not in texts for row in order]]
        sources = np.array([others[row].source or ANY for row in allowed], dtype=object)
        counts = Counter(one.source or ANY for one in named)
        self._rows = {ANY: allowed}
        for source, count in counts.items():
            rows = allowed[sources == source]
            if source != ANY and len(rows) >= ENOUGH * count:
                self._rows[source] = rows
        self._lengths, self._count = {source: lengths[rows] for source, rows in self._rows.items()}, len(others)
        self._wanted = [(_length(one), source if (source := one.source or ANY) in self._rows else ANY) for one in named]
        self._own = {source: np.sort([n for n, of in self._wanted if of == source]) for source in self._rows}
        self._near = {wanted: self._enough(*wanted) for wanted in set(self._wanted)}

    def _enough(self, length: int, source: str) -> int:
        """Count the nearest rows to draw from: at least :data:`LEFT_OVER` for each named row as near as they are."""
        lengths, own, near = self._lengths[source], self._own[source], NEAR
        place = int(np.searchsorted(lengths, length))
        while near < len(lengths):
            far = np.sort(np.abs(lengths[max(0, place - near) : place + near] - length))[near - 1]
            rivals = np.searchsorted(own, length + far, side="right") - np.searchsorted(own, length - far)
            if LEFT_OVER * rivals <= near:
                return near
            near = LEFT_OVER * int(rivals)
        return max(NEAR, len(lengths))

    @property
    def enough(self) -> bool:
        """True if draws can differ: there are more other examples than named ones."""
        return len(self._rows[ANY]) > len(self._wanted)

    @property
    def overlap(self) -> float:
        """Share of a draw that another draw has too, from simulated draws."""
        count, counts = len(self._wanted), np.zeros(self._count)
        draws = max(FEWEST_DRAWS, ROWS_DRAWN // count)
        for number in range(draws):
            counts[self.draw(stream(0, "prove", "overlap", number))] += 1
        return float(counts @ (counts - 1)) / (count * draws * (draws - 1))

    def draw(self, generator: np.random.Generator) -> Rows:
        """Draw rows of the others, ascending, as many as there are named examples."""
        free, drawn = np.ones(self._count, bool), []
        for length, source in self._wanted:
            near = self._nearest(source, length, self._near[length, source], free)
            drawn.append(int(generator.choice(near if len(near) else self._nearest(ANY, length, NEAR, free))))
            free[drawn[-1]] = False
        return np.sort(np.array(drawn, np.int64))

    def _nearest(self, source: str, length: int, near: int, free: Bool[np.ndarray, " n"]) -> Rows:
        """Return the *near* free rows of a source around a length: half of them shorter, or fewer if there are few."""
        rows, place, reach = self._rows[source], int(np.searchsorted(self._lengths[source], length)), near
        while True:  # look no further than needed: most rows around are free
            shorter, longer = (part[free[part]] for part in (rows[max(0, place - reach) : place], rows[place:][:reach]))
            if min(len(shorter), len(longer)) >= near or reach >= len(rows):
                break
            reach *= 4
        first = len(shorter) - min(len(shorter), max(near // 2, near - len(longer)))
        return np.concatenate([shorter[first:], longer])[:near]


def _length(example: Example) -> int:
    return len(example.prompt) + len(example.response)


WHOLE, WITHOUT_NAMED, WITHOUT_RANDOM = range(3)
"""Subsets of each repeat: context, named and random rows; without the named rows; without the random rows."""


@dataclass(frozen=True)
class Trial:
    """Subsets to fine-tune on, and queries to ask after it.

    The train corpus has the others twice, and the named rows last. A context is drawn from the first copy, random rows
    from the second, so that random rows lie behind the context, as the named rows do. The two fine-tunes without one of
    them have the same context at the same places, then the named rows in one and the random rows in the other.
    """

    named: tuple[Example, ...]
    others: tuple[Example, ...]
    asked: tuple[Example, ...]
    context: int
    """Most examples of each context."""
    seed: int

    @cached_property
    def train(self) -> Corpus:
        return _numbered((*self.others, *self.others, *self.named))

    @cached_property
    def queries(self) -> Corpus:
        return _numbered(self.asked)

    @property
    def sized(self) -> int:
        """Number of examples that each context has."""
        return min(self.context, len(self.others) - len(self.named))

    def plan(self, out: Path, repeats: int) -> SubsetPlan:
        """Write the subsets of all repeats; a repeat does not depend on how many there are."""
        m, k, matching = len(self.others), len(self.named), Matching(self.named, self.others)
        train: list[Rows] = []
        members: list[Rows] = []
        for repeat in range(repeats):
            random = matching.draw(stream(self.seed, "prove", "random", repeat))
            left = np.setdiff1d(np.arange(m), random)
            context = stream(self.seed, "prove", "context", repeat).choice(left, self.sized, replace=False)
            train.append(np.concatenate([np.sort(context), m + random, 2 * m + np.arange(k)]))
            places = np.arange(self.sized + 2 * k)
            cut = self.sized + k
            members += [places, places[:cut], np.concatenate([places[: self.sized], places[cut:]])]
        counts = {"instances": repeats, "train_count": None, "query_count": None, "subsets": 3, "size": self.sized + k}
        settings = SamplingSettings.of({"kind": "paired", **counts, "seed": self.seed}).model_dump(mode="json")
        request = {"train": self.train.fingerprint, "queries": self.queries.fingerprint, "settings": settings}
        _refuse_other(out, request)
        rows = {"train": train, "queries": [np.arange(len(self.asked))] * repeats, "members": members}
        write_plan(out, request, rows, replace=True)
        return open_plan(out)


def _refuse_other(out: Path, request: Mapping[str, Any]) -> None:
    """Refuse to replace subsets that fine-tunes of another proof used (ArtifactError)."""
    labels = out.parent / LABELS
    if not (labels / REQUEST).is_file() or not (out / MANIFEST).is_file():
        return
    old = read_manifest(out, SUBSETS)["request"]
    was, now = old["settings"], request["settings"]
    differ = {
        "rows or training examples": old["train"] != request["train"],
        "answers": old["queries"] != request["queries"],
        "values of context or seed": (was["size"], was["seed"]) != (now["size"], now["seed"]),
    }
    for what in (name for name, holds in differ.items() if holds):
        raise ArtifactError(f"{out.parent}: holds a proof with other {what}, which is kept. Give another --out.")
    if was["instances"] > now["instances"] and (labels / MANIFEST).is_file():
        raise ArtifactError(
            f"{out.parent}: holds a proof of {was['instances']} repeats. Give --seeds {was['instances']} or more, or "
            "another --out."
        )


def _numbered(examples: Sequence[Example]) -> Corpus:
    """Make a corpus of examples, some of which may share an id."""
    return Corpus.from_examples(replace(one, id=str(number)) for number, one in enumerate(examples))


PLAIN = 0.05
"""Nats per token from which on two decimals are shown; below, three."""


def effects_of(losses: Float[np.ndarray, "n 3"], overlap: float) -> Effects:
    """Compute effects on a loss, or a difference of losses, from its values after the fine-tunes of each repeat.

    If the named rows were just another set, the mean d̄ of the n repeats' differences would vary by that set itself, the
    same in all repeats, and by the mean over the random sets. *overlap* (o) is the share of its rows that a random set
    has in common with another one: the sets vary less from repeat to repeat, by the factor 1 − o, and what they share
    moves their mean. So the interval is d̄ ± t s √((1 + o) / (1 − o) + 1/n), with Student's t of n − 1 degrees of
    freedom. It is that of one further set; that of a mean would in the end exclude 0 for any set. Subsets are in the
    order of :data:`WHOLE`.
    """
    named = losses[:, WITHOUT_NAMED] - losses[:, WHOLE]
    random = losses[:, WITHOUT_RANDOM] - losses[:, WHOLE]
    difference = losses[:, WITHOUT_NAMED] - losses[:, WITHOUT_RANDOM]
    n = len(losses)
    of_set = float(np.sqrt((1 + overlap) / (1 - overlap) + 1 / n))
    return Effects(_around(named, n**-0.5), _around(random, of_set), _around(difference, of_set))


def _around(values: Float[np.ndarray, " n"], factor: float) -> Effect:
    """Return the mean, and *factor* deviations times Student's t on both sides."""
    from scipy import stats

    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1)) * float(np.std(values, ddof=1)) * factor
    mean = float(np.mean(values))
    return Effect(mean, mean - half, mean + half)


def verdict_of(effects: Effects, moved: Moved) -> Verdict:
    """Conclude from the effects, and from how far the fine-tunes moved the answers' losses at all."""
    if effects.difference.low > 0 and effects.without_named.low > 0:
        return "taught"
    if effects.difference.high < 0 and effects.without_named.high < 0:
        return "held back"
    return "not moved" if moved.hardly else "not shown"


def sentence_of(
    verdict: Verdict, loss: Effects, contrast: Effects | None, rows: int, answers: int, moved: Moved
) -> str:
    these = "this row" if rows == 1 else f"these {rows:,} rows"
    random = "1 random row" if rows == 1 else f"{rows:,} random rows"
    answer = "the answer's loss" if answers == 1 else f"the loss of the {answers:,} answers"
    told = (
        f"Without {these} {answer} {_changes(loss.without_named)}; without {random} it {_changes(loss.without_random)}"
    )
    it = "the answer" if answers == 1 else "the answers"
    if contrast is not None:
        it += f" in place of the better one{'s' * (answers > 1)}"
        verb = "lose" if contrast.without_named.value >= 0 else "gain"
        falls = f"the answer {verb}s" if answers == 1 else f"the {answers:,} answers {verb}"
        told = (
            f"Without {these} {falls} {_number(contrast.without_named, told=True)} against the better "
            f"one{'s' * (answers > 1)}; without {random} {_number(contrast.without_random)} (changes of the loss "
            f"alone: {_number(loss.without_named)} and {_number(loss.without_random)})"
        )
    which = "this row" if rows == 1 else "these rows"
    end = {
        "taught": f"{which} taught {it}",
        "held back": f"{which} kept the model from {it}",
        "not shown": f"random rows do as much, so it is not shown that {which} taught {it}",
        "not moved": (
            f"nothing is shown, since the fine-tunes hardly changed the loss ({moved.before:.2f} before, "
            f"{moved.after:.2f} after). {REMEDY.rstrip('.')}"
        ),
    }[verdict]
    return f"{told}: {end}."


def _changes(effect: Effect) -> str:
    return f"{'rises' if effect.value >= 0 else 'falls'} by {_number(effect, told=True)}"


def _number(effect: Effect, *, told: bool = False) -> str:
    """Format a value with its ends; if the sentence has *told* a fall already, all signs are reversed."""
    value, low, high = effect.value, effect.low, effect.high
    if told and value < 0:
        value, low, high = -value, -high, -low
    digits = 2 if max(abs(value), abs(low), abs(high)) >= PLAIN else 3
    return f"{value:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


@dataclass(frozen=True)
class _Case:
    """Rows and answers of one proof, checked."""

    index: Index
    named: Rows
    question: Question
    lm: LmLike
    tuning: FineTuneSettings
    settings: ProofSettings
    tell: Callable[[str], None]

    def default_folder(self) -> Path:
        """Return a folder beside the index, named by the question, so that the same command resumes there."""
        lm = self.lm.model_dump(mode="json") if isinstance(self.lm, LmSettings) else None
        parts = [self.index.fingerprint, self.named.tolist(), [one.reading_hash for one in self.question.all], lm]
        parts += [self.tuning.model_dump(mode="json"), self.settings.context, self.settings.seed]
        return beside(self.index.path, "proofs") / json_digest(parts)[:8]

    def run(self, out: Path, engine: Engine | str | None, retries: int, on_task: OnTask | None) -> ProofResult:
        trial, cautions = self._trial()
        matching, count = Matching(trial.named, trial.others), len(trial.named)
        if not matching.enough:
            raise ConfigError(
                f"prove: {many(count, 'named row is', 'named rows are')} compared with random rows, but too few of the "
                f"{len(trial.others):,} remaining rows have a text that differs from the named rows. Name fewer rows."
            )
        self.tell(
            f"running {3 * self.settings.seeds:,} fine-tunes in sets of three. The three of a set read the same "
            f"{trial.sized:,} random rows, and in addition: the {many(count, 'row')} to test, as many other random "
            f"rows, or both. Results are kept in {out}"
        )
        plan, texts = trial.plan(out / SUBSETS, self.settings.seeds), (trial.train, trial.queries)
        running: dict[str, Any] = {"engine": engine, "retries": retries, "on_task": on_task}
        labels = label(plan, *texts, self.lm, self.tuning, out / LABELS, **running)
        instances = labels.instances(*texts)
        losses, base = np.array([one.losses for one in instances], np.float64), instances[0].base_losses
        assert base is not None
        made = self._result(losses, base.astype(np.float64), matching.overlap, trial)
        made = replace(made, cautions=tuple(cautions), lm=labels.state["lm"]["name"])
        path = made.save(out / PROOF, replace=True)
        self.tell(f"written to {path}; next: airrep report {path} --out proof.html")
        return replace(made, path=path)

    def _trial(self) -> tuple[Trial, list[str]]:
        mask = self.index.live.copy()
        mask[self.named] = False
        others = np.flatnonzero(mask)
        if len(others) > MOST_OTHERS:
            drawn = stream(self.settings.seed, "prove", "others").choice(others, MOST_OTHERS, replace=False)
            others = np.sort(drawn)
        named, rest = (tuple(self.index.examples(rows)) for rows in (self.named, others))
        lm = self._loaded()
        for what, examples in (("a named row", named), ("an answer", tuple(self.question.all))):
            for reason in lm.unusable(examples).values():
                raise DataError(f"prove: the LM cannot read {what}: {reason} Leave it out.")
        refused = lm.unusable(rest)
        readable = tuple(one for row, one in enumerate(rest) if row not in refused)
        trial = Trial(named, readable, tuple(self.question.all), self.settings.context, self.settings.seed)
        return trial, self._cautions(trial, len(refused))

    def _loaded(self) -> Learner[Any]:
        if not isinstance(self.lm, LmSettings):
            return self.lm()
        from airrep.lm.model import load_lm

        return load_lm(self.lm)

    def _cautions(self, trial: Trial, refused: int) -> list[str]:
        texts = {one.content_hash for one in trial.named}
        copies = sum(one.content_hash in texts for one in trial.others)
        share, of_all = len(trial.named) / (trial.sized + 2 * len(trial.named)), len(trial.named) / len(self.index)
        told = {
            f"{many(copies, 'other example has', 'other examples have')} the text of a named row and can teach it when "
            "that row is left out: name all examples with this text": copies > 0,
            f"the named rows are {share:.1%} of a fine-tune here, but {of_all:.2%} of the data: in a training on all "
            "the data they do less": share > FAR_MORE * of_all,
            f"other examples left out, since the LM cannot read them: {refused:,}": refused > 0,
        }
        return [text for text, holds in told.items() if holds]

    def _result(self, losses: np.ndarray, base: np.ndarray, overlap: float, trial: Trial) -> ProofResult:
        """Make the result from losses ``(repeats, answers and better answers, 3)``, without cautions and LM name."""
        asked, better = self.question.queries, self.question.better
        q = len(asked)
        answers, whole = losses[:, :q], losses[:, :q, WHOLE]
        gaps = None if better is None else answers - losses[:, q:]
        queries = tuple(
            Proved(
                one,
                None if better is None else better[place],
                float(base[place]),
                float(whole[:, place].mean()),
                effects_of(answers[:, place], overlap),
                None if gaps is None else effects_of(gaps[:, place], overlap),
            )
            for place, one in enumerate(asked)
        )
        loss = effects_of(answers.mean(axis=1), overlap)
        contrast = None if gaps is None else effects_of(gaps.mean(axis=1), overlap)
        change = float(np.abs(whole.mean(axis=0) - base[:q]).mean())
        moved = Moved(float(base[:q].mean()), float(whole.mean()), change)
        verdict = verdict_of(contrast or loss, moved)
        return ProofResult(
            sentence=sentence_of(verdict, loss, contrast, len(self.named), q, moved),
            verdict=verdict,
            rows=tuple(map(NamedRow, self.named.tolist(), trial.named)),
            queries=queries,
            loss=loss,
            contrast=contrast,
            before=moved.before,
            after=moved.after,
            repeats=self.settings.seeds,
            context=trial.sized,
            examples=len(self.index),
            lm="",
            fine_tune=self.tuning.model_dump(mode="json"),
            cautions=(),
            provenance=replace(self.index.provenance(), units=UNITS, sign="above 0 = less likely without the rows"),
        )


def named_rows(index: Index, rows: RowsLike | PathLike[str]) -> Rows:
    """Return rows of an index, ascending, each once; *rows* may be the path of a file that names them.

    ConfigError: there are none, a row does not exist, or too few others are left. DataError: a bad file.
    """
    found = _of_file(index, Path(rows)) if isinstance(rows, PathLike) else index.check_rows(rows)
    if not len(found):
        raise ConfigError("prove: no rows are named. Name at least one: by its id, with a filter or in a file.")
    gone = found[~index.live[found]]
    if len(gone):
        raise ConfigError(f"{index.path}: row {gone[0]} was deleted. Leave it out, or add the example again.")
    named = np.unique(found)
    others = len(index) - len(named)
    if others < LEFT_OVER * len(named):
        raise ConfigError(
            f"prove: to compare {many(len(named), 'named row')} with random rows, at least {LEFT_OVER * len(named):,} "
            f"other rows are needed, but the index has {others:,}. Name fewer rows."
        )
    return named


def _of_file(index: Index, path: Path) -> Rows:
    """Read the rows that a file names: JSON lines of ids or records, or a result of `top` or `explain`."""
    file = path / RESULTS if (path / MANIFEST).is_file() else path
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{path}: cannot be read as a list of rows ({type(error).__name__}). Give JSON lines with an id each, or a "
            "result of `airrep top`."
        ) from None
    ids: list[str] = []
    for where, value in _values(text, path):
        named = _ids_of(value)
        if named is None:
            raise DataError(
                f"{where}: names no example. Give a file that `airrep top --json`, `airrep select` or the page of "
                '`airrep serve` wrote, or JSON lines such as {"id": "e1"}.'
            )
        ids += named
    if not ids:
        raise ConfigError(f"{path}: names no rows. Put a JSON object with an id on each line.")
    return index.rows_of(list(dict.fromkeys(ids)))


def _values(text: str, path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the JSON values of a file with their places: those of one JSON text, or one from each line."""
    whole = _json(text)
    if whole is not None:
        yield from ((str(path), one) for one in (whole if isinstance(whole, list) else [whole]))
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield f"{path}, line {number}", _json(line)


def _json(text: str) -> Any:
    """Parse a JSON value; None for any other text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _ids_of(value: Any) -> list[str] | None:
    """Return the ids that a value names: itself, a record's id, or those of a result's hits; none for a kept record."""
    if isinstance(value, Mapping) and "id" in value:
        if value.get("decision") == "keep":
            return []
        value = value["id"]
    return [value] if isinstance(value, str) else [id_ for id_, _ in hits_in(value)] or None
