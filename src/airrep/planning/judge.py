"""Judge an index by fine-tunes on random subsets, against methods that cost little."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from airrep.arrays import DenseFeatures
from airrep.attributors.base import Attributor, OnRows
from airrep.corpus.corpus import Corpus, Example
from airrep.encoder.folders import DEFAULT
from airrep.errors import LM, AirRepError, ArtifactError, ConfigError, DataError, many, need
from airrep.evaluation.lds import Contender, LdsStudy, RowFinder
from airrep.evaluation.result import Evaluation, Row, caution_on
from airrep.evaluation.statistics.labels import REMEDY, Moved, moved
from airrep.index.building import build_index
from airrep.index.contrast import Better, Question
from airrep.index.index import Index, IndexLike, Queries, as_index
from airrep.labels.farm import TaskReport, label
from airrep.labels.labels import LabelledInstance
from airrep.labels.plan import SamplingSettings, SubsetPlan, open_plan
from airrep.labels.sampling import draw_rows, sample
from airrep.lm.settings import FineTuneSettings, LmSettings
from airrep.planning.budget import (
    GRADIENTS,
    MOST_POOL,
    MOST_WEIGHING_QUERIES,
    SAFETY,
    SIZES,
    AtHand,
    Costs,
    measure_machine,
    parse_duration,
)
from airrep.runtime.artifacts import MANIFEST, beside, json_digest
from airrep.runtime.engine import Engine, LocalProcesses
from airrep.runtime.metering import cores, hours_line
from airrep.runtime.ray_engine import make_engine
from airrep.runtime.remote.places import here_only
from airrep.runtime.seeding import stream
from airrep.runtime.settings import Settings
from airrep.scoring.groups import Groups

if TYPE_CHECKING:
    from airrep.lm.model import TargetLM

SUBSETS, LABELS, RIVALS, EVALUATION = "subsets", "labels", "rivals", "evaluation"
"""Names in the directory of a judgement."""
MOST_EXAMPLES = 20_000
"""Most training examples of an index that pools are drawn from."""
GRADIENTS_TOO = "with-gradients"
"""Name of an empty file, which is there if gradients are a rival."""
Tell = Callable[[str], None]

LEAST_SUBSETS, WISHED_SUBSETS, MOST_SUBSETS = 20, 100, 300
"""Fewest subsets for a verdict, number above which larger subsets are preferred to more, and most subsets."""
LEAST_EXAMPLES = 30
"""Fewest training examples: with less, subsets would hardly differ."""
POOL = 3
"""Least size of a pool, in multiples of the subset size, so that subsets differ."""
TEXT_RIVALS = 3
"""Time of the methods of words for a text, in multiples of the time to encode it."""
GRADIENT_SHARE = 0.2
"""Share of the budget that gradients of the LM may take as a rival."""
LOGRA, CHANCE = "gradients (LoGra)", "random scores"
METHODS = {"counting": "ngram", "TF-IDF": "tfidf", LOGRA: "logra"}
NUMBERS = 64
"""Random numbers for each text."""
Verdict = Literal["better", "as good", "worse", "not shown", "not judged"]
"""In order: better than the best rival; predicts, but is not shown to be better; a rival is better; not shown to
predict; not judged, since the fine-tunes hardly moved the losses."""
JUDGEMENT = "judgement"
"""Key of the sentence in the facts of the evaluation."""


@dataclass(frozen=True, eq=False)
class Judgement:
    """Judgement: can an index's scores be trusted on the user's data?"""

    verdict: Verdict
    sentence: str
    """The verdict in words."""
    evaluation: Evaluation
    """LDS of the index and its rivals; the index is the first row."""
    path: Path
    """Directory of the evaluation, which `airrep report` reads."""

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON object: the evaluation's, with the verdict."""
        told = {"kind": JUDGEMENT, "verdict": self.verdict, "sentence": self.sentence, "path": str(self.path)}
        return {**told, **self.evaluation.to_dict()}

    def __repr__(self) -> str:
        return f"Judgement({self.verdict!r}: {self.sentence})"

    def _repr_html_(self) -> str:
        from html import escape

        return f"<p><b>{escape(self.sentence)}</b></p>"


class JudgingPlan(NamedTuple):
    """Sizes of the draw, number of fine-tunes, and whether gradients are a rival."""

    size: int
    pool: int
    subsets: int
    gradients: bool
    seconds: float
    """Seconds of the whole plan by the clock, as measured."""
    least: float
    """Seconds for the fewest subsets."""

    def sampling(self, seed: int) -> SamplingSettings:
        """Return the settings of the draw; all queries are taken."""
        return SamplingSettings(
            instances=1, train_count=self.pool, query_count=None, subsets=self.subsets, size=self.size, seed=seed
        )


def fit_budget(hand: AtHand, queries: int) -> JudgingPlan:
    """Plan the most subsets up to ``WISHED_SUBSETS``, then larger ones, then more (ConfigError: no plan fits)."""
    check_examples(hand.examples)
    fitting = [plan for plan in _plans(hand, queries) if plan.subsets >= LEAST_SUBSETS]
    if not fitting:
        raise _too_short(hand, queries)
    return max(fitting, key=lambda plan: (min(plan.subsets, WISHED_SUBSETS), plan.size, plan.subsets))


def _plans(hand: AtHand, queries: int) -> list[JudgingPlan]:
    sizes = [size for size in SIZES if POOL * size <= hand.examples] or [hand.examples // POOL]
    return [_of_size(size, hand, queries) for size in sizes]


def _least(hand: AtHand, queries: int) -> float:
    return min(plan.least for plan in _plans(hand, queries))


def _too_short(hand: AtHand, queries: int) -> ConfigError:
    minutes = math.ceil(_least(hand, queries) / 60) + 1
    return ConfigError(
        f"budget: only {max(0.0, hand.seconds):.0f} seconds are left, too few for {LEAST_SUBSETS} small fine-tunes on "
        f"this machine. Give at least {minutes} minutes, more workers or a smaller language model."
    )


def _of_size(size: int, hand: AtHand, queries: int) -> JudgingPlan:
    """Plan as many subsets of *size* as there is time for, with losses of *queries* texts after each."""
    pool, one = min(hand.examples, MOST_POOL * size), hand.one(size, queries) / hand.workers
    texts = TEXT_RIVALS * hand.costs.encode * (pool + queries)
    gradients = GRADIENTS * hand.costs.fine_tune * (pool + queries)
    has_gradients = gradients <= GRADIENT_SHARE * hand.seconds
    fixed = texts + gradients * has_gradients
    subsets = max(0, min(MOST_SUBSETS, int((SAFETY * hand.seconds - fixed) / one)))
    least = (LEAST_SUBSETS * one + texts) / SAFETY
    return JudgingPlan(size, pool, subsets, has_gradients, subsets * one + fixed, least)


def check_examples(examples: int) -> None:
    """Raise ConfigError if there are too few examples for any budget."""
    if examples < LEAST_EXAMPLES:
        raise ConfigError(
            f"judge: the index has {many(examples, 'example')} to fine-tune on, but at least {LEAST_EXAMPLES} are "
            "needed. Examples that are also queries do not count. Use an index of more examples."
        )


def judge(
    index: IndexLike,
    queries: Queries,
    lm: "LmSettings | Mapping[str, Any] | str | Path",
    *,
    budget: str | float = "30m",
    better: Better | None = None,
    fine_tune: FineTuneSettings | Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    engine: Engine | str | None = None,
    seed: int = 0,
    tell: Tell | None = None,
    on_task: Callable[[TaskReport], None] | None = None,
) -> Judgement:
    """Judge whether an index's scores predict what fine-tunes do to these queries, within a time budget.

    Measures this machine; draws as many random subsets of the index's examples as fit the data and the budget;
    fine-tunes the LM on each; compares the index by LDS with n-gram counts, TF-IDF, gradients if there is time, and
    random scores. After an interruption the same call resumes.

    Args:
        index: the index to judge, which holds the training examples; or its path.
        queries: the answers that the index is judged on.
        lm: the target LM before its training: its folder or Hub id, or settings with it.
        budget: the time by the clock, such as ``"30m"``, or seconds.
        better: better answers, as in :meth:`airrep.Index.top`. Then the score for each answer minus the score for its
            better answer is judged, by the difference of their losses.
        fine_tune: and *engine*, *on_task*: as for :func:`airrep.label`.
        out: and *seed*, *tell*: as for :func:`airrep.prove`.

    Raises:
        ConfigError: too little time, too few examples, no query that the LM can read, or an invalid value.
        ArtifactError: the directory holds something else.
        TrainingError: all fine-tunes failed.

    Example:
        >>> found = airrep.judge(index, queries, "MODEL", budget="2m", out="runs/judged")
        >>> found.path.name, found.evaluation.measure
        ('evaluation', 'lds')
    """
    need("airrep.judge", "lm", *LM)
    index = as_index(index, "judge")
    seconds = parse_duration(budget) if isinstance(budget, str) else float(budget)
    if not 0 < seconds < float("inf"):
        raise ConfigError(f"budget={budget}: must be a time above 0, such as '30m' or a number of seconds.")
    question = index.question(queries, better)
    model, tuning = LmSettings.named(lm).before(), FineTuneSettings.given(fine_tune, "fine_tune")
    asked = [one.reading_hash for one in question.all]
    parts = [index.fingerprint, asked, model.model_dump(mode="json"), tuning.model_dump(mode="json"), seed]
    folder = beside(index.path, "judged") / json_digest(parts)[:8] if out is None else Path(out)
    out, tell = here_only(folder, "an index is judged"), tell or (lambda _: None)
    return _Judging(index, question, model, tuning, out, make_engine(engine), seed, tell, on_task).run(seconds)


@dataclass(frozen=True)
class Asked:
    """Texts whose losses are measured, each once, and the rows of answers and better answers among them."""

    corpus: Corpus
    answers: Sequence[int]
    better: Sequence[int] | None

    @classmethod
    def of(cls, question: Question, refused: Mapping[int, str], most: int, seed: int) -> "Asked":
        """Take the texts of a question that the LM can read: at most *most* answers, drawn at random, none twice."""
        q, others = len(question.queries), question.better
        seen: dict[tuple[str, str], int] = {}
        for place, answer in enumerate(question.queries):
            key = answer.reading_hash, "" if others is None else others[place].reading_hash
            if place not in refused and (others is None or q + place not in refused):
                seen.setdefault(key, place)
        places = np.array(sorted(seen.values()), np.int64)
        if len(places) > most:
            places = np.sort(stream(seed, "judge", "queries").choice(places, most, replace=False))
        answers = [question.queries[place] for place in places]
        wanted = None if others is None else [others[place] for place in places]
        texts: dict[str, Example] = {}
        for example in [*answers, *(wanted or ())]:
            texts.setdefault(example.reading_hash, example)
        number = {key: row for row, key in enumerate(texts)}
        corpus = Corpus.from_examples(replace(one, id=str(row)) for row, one in enumerate(texts.values()))
        better = None if wanted is None else [number[one.reading_hash] for one in wanted]
        return cls(corpus, [number[one.reading_hash] for one in answers], better)

    def judged(self, instance: LabelledInstance) -> LabelledInstance:
        """Return the instance; with better answers, its losses are the answers' minus the better answers' losses."""
        if self.better is None:
            return instance
        rows, base = list(self.answers), instance.base_losses
        one, other = instance.losses[rows], instance.losses[list(self.better)]
        before = None if base is None else base[rows] - base[list(self.better)]
        queries = self.corpus.take(np.unique(rows))
        if len(queries) < len(rows):  # one answer beside several better ones
            queries = Corpus.from_examples(replace(self.corpus[row], id=str(n)) for n, row in enumerate(rows))
        return replace(instance, queries=queries, losses=one - other, base_losses=before, by_seed=None)

    @property
    def question(self) -> Question:
        """The question that each index is asked."""
        answers = tuple(self.corpus[row] for row in self.answers)
        return Question(answers, None if self.better is None else tuple(self.corpus[row] for row in self.better))


class ContrastStudy(LdsStudy):
    """LDS of scores for answers minus scores for better answers."""

    question: Question

    def contender(self, name: str, index: Index) -> Contender:
        pooling, finder = index.attributor.pooling(self.pool, self.temperature), RowFinder(index, self.scored)
        asked = index.ask(self.question)
        scores = [self.question.less_better(finder.score(instance, pooling, asked)) for instance in self.scored]
        sizes = [size for instance in self.scored for size in instance.subsets.sizes.tolist()]
        return Contender(name, index, pooling, scores, sizes)


def study_of(asked: Asked, named: Sequence[tuple[str, Index]], instance: LabelledInstance) -> LdsStudy:
    """Return the evaluation of indexes on an instance's answers, or on their differences to better answers."""
    if asked.better is None:
        return LdsStudy(named, [instance])
    study = ContrastStudy(named, [asked.judged(instance)])
    study.question = asked.question
    return study


def _varies(asked: Asked, named: tuple[str, Index], instance: LabelledInstance) -> bool:
    """Return True if, for some query, the index's scores differ between subsets."""
    scores = study_of(asked, [named], instance).contender(*named).scores
    return any(bool(np.ptp(one, axis=1).any()) for one in scores)


@dataclass(frozen=True)
class _Judging:
    """One index, one LM, one directory; all work in the directory can be resumed."""

    index: Index
    question: Question
    lm: LmSettings
    tuning: FineTuneSettings
    out: Path
    engine: Engine | None
    seed: int
    tell: Tell
    on_task: Callable[[TaskReport], None] | None

    def run(self, seconds: float) -> Judgement:
        from airrep.lm.model import load_lm

        begun = time.monotonic()
        lm = load_lm(self.lm)
        asked = self._asked(lm.unusable(self.question.all))
        corpus = self._corpus(asked.corpus)
        begun_before = (self.out / SUBSETS / MANIFEST).is_file()
        costs = None if begun_before else self._measured(corpus, len(asked.corpus), lm, seconds + begun)
        train = self._train(corpus, lm)
        del lm
        plan, gradients = self._drawn(train, asked, costs, seconds + begun)
        tuned, told = (self.lm, self.tuning, self.out / LABELS), self.on_task
        labels = label(plan, train, asked.corpus, *tuned, engine=self.engine, partial=True, on_task=told)
        (instance,) = labels.instances(train, asked.corpus, partial=True)
        return self._judged(asked, instance, gradients)

    @property
    def _named(self) -> tuple[str, Index]:
        return f"this index ({self.index.method})", self.index

    def _judged(self, asked: Asked, instance: LabelledInstance, gradients: bool) -> Judgement:
        self.tell("comparing the index with other methods")
        own, lm = self.index.method, self.lm if gradients else None
        named = [self._named]
        for rival in build_rivals(instance.train, self.out / RIVALS, lm, own, self.tell):
            if _varies(asked, rival, instance):
                named.append(rival)
            else:
                self.tell(f"{rival[0]} is left out: for these queries it gives all subsets the same score")
        moving = moved([instance])
        try:
            found = study_of(asked, named, instance).run()
        except DataError as error:
            if moving is None or not moving.hardly:
                raise
            raise DataError(
                f"judge: {moving.sentence}. So small a change cannot show how good the index is. {REMEDY}"
            ) from error
        verdict, sentence = verdict_of(found, moving)
        found = replace(found, facts={**found.facts, JUDGEMENT: sentence})
        path = found.save(self.out / EVALUATION, replace=True)
        self.tell(f"written to {path}; next: airrep report {path} --out judged.html")
        return Judgement(verdict, sentence, found, path)

    def _asked(self, refused: Mapping[int, str]) -> Asked:
        """Return the queries that the LM can read, at most ``MOST_WEIGHING_QUERIES`` (ConfigError: there are none)."""
        count = len(self.question.queries)
        if refused:
            first = refused[min(refused)]
            self.tell(
                f"{many(len(refused), 'query', 'queries')} left out, because the LM cannot read the whole text; "
                f"the first: {first}"
            )
        asked = Asked.of(self.question, refused, MOST_WEIGHING_QUERIES, self.seed) if len(refused) < count else None
        if asked is None or not asked.answers:
            reason = next(iter(refused.values()), "")
            raise ConfigError(f"judge: the LM cannot read any of {many(count, 'query', 'queries')}. A reason: {reason}")
        if len(asked.answers) < count:
            self.tell(
                f"airrep uses {len(asked.answers):,} of {count:,} queries: each text once, and at most "
                f"{MOST_WEIGHING_QUERIES}"
            )
        return asked

    def _corpus(self, queries: Corpus) -> Corpus:
        """Return the index's examples that are not queries, at most ``MOST_EXAMPLES``."""
        rows = np.flatnonzero(self.index.live)
        if len(rows) > MOST_EXAMPLES:
            drawn = stream(self.seed, "judge", "examples").choice(rows, MOST_EXAMPLES, replace=False)
            rows = np.sort(drawn)
        corpus = Corpus.from_examples(self.index.examples(rows))
        corpus = corpus.take(np.flatnonzero(~np.isin(corpus.content_hashes, queries.content_hashes)))
        check_examples(len(corpus))
        return corpus

    def _train(self, corpus: Corpus, lm: "TargetLM") -> Corpus:
        """Return the examples that can be drawn, because the LM can read them."""
        refused = lm.unusable(corpus)
        if refused:
            first = refused[min(refused)]
            self.tell(
                f"{many(len(refused), 'example')} left out, because the LM cannot read the whole text; the "
                f"first: {first}"
            )
        usable = corpus.without(refused)
        check_examples(len(usable))
        return usable

    def _check_scores(self, asked: Asked, train: Corpus, chosen: JudgingPlan) -> None:
        """Raise ConfigError, before hours are spent, if the index scores all subsets alike for these queries."""
        rows = draw_rows(train, chosen.sampling(self.seed), asked.corpus)
        groups = Groups.from_lists({str(number): one for number, one in enumerate(rows["members"])})
        blank = np.zeros((len(asked.corpus), len(groups)), np.float32)
        instance = LabelledInstance("0", train.take(rows["train"][0]), asked.corpus, groups, blank)
        if not _varies(asked, self._named, instance):
            raise ConfigError(
                f"judge: {self.index.path} gives all examples the same score for these queries, so its scores cannot "
                "be tested. Give queries that are closer to the data, or another index."
            )

    def _measured(self, corpus: Corpus, queries: int, lm: "TargetLM", end: float) -> Costs:
        """Measure this machine (ConfigError: the time until *end* is too short, which is checked as early as possible).

        The check counts every example, also those that the LM cannot read: reading them all may take long.
        """

        def check(least: Costs, likely: Costs) -> None:
            hand = self._at_hand(end, least, len(corpus))
            if _least(hand, queries) > hand.seconds:
                raise _too_short(hand._replace(costs=likely), queries)

        self.tell("measuring this machine")
        return measure_machine(corpus, lm, self.tuning, DEFAULT, self.seed, check)

    def _at_hand(self, end: float, costs: Costs, examples: int) -> AtHand:
        at_once = self.engine.workers if isinstance(self.engine, LocalProcesses) else 1
        workers = min(at_once, cores())  # more workers are not faster
        return AtHand(end - time.monotonic(), costs, examples, workers, self.tuning.epochs)

    def _drawn(self, train: Corpus, asked: Asked, costs: Costs | None, end: float) -> tuple[SubsetPlan, bool]:
        """Return an earlier run's subsets, or draw subsets that fit the time; also True if gradients are a rival."""
        folder, queries = self.out / SUBSETS, asked.corpus
        if costs is None:
            plan = open_plan(folder)
            if (plan.train_fingerprint, plan.query_fingerprint) != (train.fingerprint, queries.fingerprint):
                raise ArtifactError(
                    f"{self.out}: holds results for other examples or queries, which are not overwritten. Give "
                    "another --out."
                )
            self.tell(
                f"{self.out}: goes on with the {plan.subset_count} subsets of an earlier run, whatever the budget. To "
                "start anew, give another --out"
            )
            return plan, (self.out / GRADIENTS_TOO).is_file()
        chosen = fit_budget(self._at_hand(end, costs, len(train)), len(queries))
        self._check_scores(asked, train, chosen)
        hours = hours_line(chosen.subsets, chosen.seconds, measured="on a few examples")
        self.tell(
            f"{many(chosen.subsets, 'random subset')} of {chosen.size:,} examples each, drawn from {chosen.pool:,}; "
            f"losses are measured on {many(len(queries), 'text')}; {hours}; results are kept in {self.out}"
        )
        plan = sample(train, folder, chosen.sampling(self.seed), queries)
        if chosen.gradients:
            (self.out / GRADIENTS_TOO).touch()
        return plan, chosen.gradients


class RandomScores(Attributor):
    """Scores without information: products of random vectors, one for each text."""

    name = "random"
    pool = "mean"

    @property
    def settings(self) -> Settings:
        return Settings()

    @property
    def fingerprint(self) -> str:
        return json_digest("random scores")

    def encode_train(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> DenseFeatures:
        if on_rows is not None:
            on_rows(len(examples))
        drawn = [stream(0, "random scores", one.content_hash).standard_normal(NUMBERS) for one in examples]
        return np.array(drawn, np.float32).reshape(len(examples), NUMBERS)


def build_rivals(pool: Corpus, out: Path, lm: LmSettings | None, own: str, tell: Tell) -> list[tuple[str, Index]]:
    """Build indexes of the same examples by methods that cost little; report and leave out those that fail.

    Gradients are a rival only with an *lm*. *own*, the method of the index that is judged, is not a rival.
    """
    wanted: dict[str, str | Attributor] = {name: method for name, method in METHODS.items() if method != own}
    if lm is None and LOGRA in wanted:
        del wanted[LOGRA]
        tell(f"{LOGRA} is left out: its gradients would take more than a fifth of the time budget")
    found = []
    for name, method in {**wanted, CHANCE: RandomScores()}.items():
        try:
            settings = _settings(lm) if name == LOGRA and lm is not None else None
            folder = out / (method if isinstance(method, str) else method.name)
            found.append((name, build_index(pool, folder, method, settings=settings)))
        except AirRepError as error:
            tell(f"{name} is left out: {error}")
    return found


def _settings(lm: LmSettings) -> dict[str, Any]:
    from airrep.attributors.settings import LograSettings

    own = lm.model_dump(exclude_unset=True, exclude={"checkpointing"})
    return {"store": "none", **{name: value for name, value in own.items() if name in LograSettings.model_fields}}


def verdict_of(evaluation: Evaluation, moved: Moved | None) -> tuple[Verdict, str]:
    """Return the verdict on the first row, and its sentence."""
    first, *others = evaluation.rows
    if moved is not None and moved.hardly:
        hardly = f"{moved.sentence}. So small a change cannot show how good the index is. {REMEDY}"
        return "not judged", f"Nothing can be judged on your data: {hardly}"
    caution = caution_on(evaluation.distinct_queries)
    few = f" ({many(evaluation.distinct_queries, 'query', 'queries')}: {caution})" if caution else ""
    best = max((row for row in others if row.name != CHANCE), key=lambda row: row.value, default=None)
    verdict, told = _against(first, best)
    return verdict, f"On your data {told}.{few}"


def _against(own: Row, rival: Row | None) -> tuple[Verdict, str]:
    lds = f"(LDS {own.value * 100:z.0f}, {_ends(*own.interval)})"
    if rival is not None and rival.difference is not None:
        other, gap = f"{rival.value * 100:z.0f}", rival.difference
        low, high = gap.interval  # of the rival's value minus the index's
        if low > 0:
            told = f"{rival.name} ({other}) predicts fine-tunes better than this index {lds}, by "
            instead = f"do not trust its scores here, or build it with --method {METHODS.get(rival.name, rival.name)}"
            return "worse", f"{told}{_gap(gap.value, low, high)}: {instead}"
    if own.interval[0] <= 0:
        told = f"this index is not shown to predict fine-tunes at all {lds}: do not trust its scores here"
        shown = rival is not None and rival.interval[0] > 0
        able = f"; {rival.name} is shown to predict them (LDS {rival.value * 100:z.0f})" if rival and shown else ""
        return "not shown", f"{told}{able}"
    if rival is None or rival.difference is None:
        return "as good", f"this index predicts fine-tunes {lds}: trust its top rows and its group scores"
    told, ahead = f"this index predicts fine-tunes {lds}", _gap(-gap.value, -high, -low)
    if high < 0:
        best = f"better than the best other method, {rival.name} ({other})"
        return "better", f"{told}, {best}, by {ahead}: trust its top rows and its group scores"
    than = f"but is not shown to be better than {rival.name} ({other}; difference {ahead})"
    return "as good", f"{told}, {than}: trust it no more than {rival.name}"


def _gap(value: float, low: float, high: float) -> str:
    return f"{value * 100:z.0f} ({_ends(low, high)})"


def _ends(low: float, high: float) -> str:
    return f"{low * 100:z.0f} to {high * 100:z.0f}"
