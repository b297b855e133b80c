"""Data selection, judged by what a fine-tuned LM then answers."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Protocol

import numpy as np

from airrep.corpus.corpus import Example
from airrep.corpus.inputs import CorpusLike, as_corpus
from airrep.corpus.words import Words, plain
from airrep.errors import DataError, TrainingError
from airrep.evaluation.contest import Choice, Competitor, Contest, SelectSettings
from airrep.evaluation.given import IndexesLike, named_indexes
from airrep.evaluation.result import ANSWERS, Evaluation, Row, as_json
from airrep.evaluation.statistics.means import TaskResamples, task_means
from airrep.labels.farm import TaskProgress, TaskReport
from airrep.labels.fine_tuner import D, Learner, Tuner, WorkerSetup, load_first, rendering_of
from airrep.lm.settings import FineTuneSettings, LmSettings
from airrep.runtime.artifacts import LOCK, REQUEST, canonical_json, json_digest
from airrep.runtime.engine import Engine, InProcess, check_retries
from airrep.runtime.metering import OnProgress
from airrep.runtime.publishing import write_file, writing
from airrep.runtime.ray_engine import make_engine
from airrep.runtime.stage import Stage

_WORDS = Words()


class Answerer(Learner[D], Protocol[D]):
    """A target LM that answers prompts, such as :class:`airrep.lm.model.TargetLM`."""

    def generate(self, examples: Sequence[Example], max_new_tokens: int, /) -> list[str]:
        """Answer the examples' prompts, always with the most likely next token."""


OnTask = Callable[[TaskReport], None]
LoadLike = LmSettings | Callable[[], Answerer[Any]]
LmLike = LoadLike | Mapping[str, Any] | str | Path


def evaluate_selection(
    indexes: IndexesLike,
    queries: CorpusLike,
    lm: LmLike,
    settings: SelectSettings | Mapping[str, Any] | None = None,
    fine_tune: FineTuneSettings | Mapping[str, Any] | None = None,
    *,
    selecting: CorpusLike | None = None,
    out: str | Path | None = None,
    engine: Engine | str | None = None,
    retries: int = 2,
    partial: bool = False,
    replace: bool = False,
    on_task: OnTask | None = None,
) -> Evaluation:
    """Select examples for each task, fine-tune the LM on them, and measure its answers to the task's queries.

    Each index selects by min-rank (:func:`airrep.scoring.topk.min_rank`). The LM, fine-tuned from its base weights
    on the selection alone, answers the prompts of the task's queries, and :func:`unigram_f1` compares each answer with
    the query's response. F1 is averaged over the queries of a task, then over tasks. No competitor selects a query.

    Args:
        indexes: indexes of the same training examples, or their paths, each alone or as ``(name, index)``. The others
            are compared with the first.
        queries: prompts to answer, with reference responses and tasks.
        settings: numbers of examples, and competitors; or a dict of some of these settings.
        selecting: queries of the same tasks to select by; if None, as in the paper, the queries and their references.
        out: where the evaluation will be written; ``OUT.partial`` keeps answers until then, and the same call resumes.
        partial: finish without the fine-tunes that failed; their queries are left out of that competitor.
        replace: replace another request's unfinished work beside *out*.
        lm: and *fine_tune*, *engine*, *retries*, *on_task*: as for :func:`airrep.label`.

    Raises:
        ConfigError: a setting that does not fit, or fewer than 0 retries.
        DataError: other examples in some index, a query without task, or a text that the LM cannot read.
        ArtifactError: another process writes there, another request is unfinished there, or answers cannot be kept.
        TrainingError: a fine-tune failed and *partial* is false; or all fine-tunes of a competitor failed.

    Example:
        >>> settings = {"count": 5, "max_new_tokens": 4}
        >>> from airrep.evaluation.select import evaluate_selection
        >>> found = evaluate_selection([("tfidf", index)], queries, "MODEL", settings, {"epochs": 1})
        >>> [row.name for row in found.rows]
        ['tfidf', 'random', 'none']
    """
    check_retries(retries)
    contest = Contest(
        named_indexes(indexes, "evaluate"),
        as_corpus(queries, "queries"),
        None if selecting is None else as_corpus(selecting, "selecting"),
        SelectSettings.given(settings),
    )
    model = lm if callable(lm) else LmSettings.named(lm)
    tuning = FineTuneSettings.given(fine_tune, "fine_tune")
    study = DataSelection(contest, model, tuning, make_engine(engine))
    return study.run(out, retries=retries, partial=partial, replace=replace, on_task=on_task)


class Job(NamedTuple):
    """One fine-tune, and the choices that need answers after it."""

    tuned: Choice
    choices: tuple[Choice, ...]


def list_jobs(choices: Iterable[Choice]) -> list[Job]:
    """Make one job for each set of examples and seed, with its choices of different keys."""
    found: dict[tuple[bytes, int], dict[str, Choice]] = {}
    for choice in choices:
        found.setdefault((choice.train.tobytes(), choice.seed), {}).setdefault(choice.key, choice)
    return [Job(next(iter(each.values())), tuple(each.values())) for each in found.values()]


class Answering(Tuner[Answerer[Any], "AnsweringSetup"]):
    """Fine-tunes on one selection after another, and answers the queries of each choice of a job."""

    def __call__(self, job: Job) -> list[list[str]]:
        queries, longest = self.setup.queries, self.setup.max_new_tokens
        with self.tuned(job.tuned.name, job.tuned.train, job.tuned.seed) as lm:
            return [lm.generate(queries.take(choice.queries), longest) for choice in job.choices]


@dataclass(frozen=True)
class AnsweringSetup(WorkerSetup[Answerer[Any]]):
    """Settings and texts from which a worker makes its :class:`Answering`."""

    max_new_tokens: int
    worker = Answering


class AnswerFiles:
    """Finished answers in a directory, one small file for each fine-tune and task, named by its choice's key.

    A file holds the answers and a checksum over them and its key; a file that does not fit counts as missing.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder  # the first answers make it

    def read(self, choice: Choice) -> list[str] | None:
        """Return the answers, or None if there is no complete file of them."""
        try:
            record = json.loads(self._path(choice.key).read_bytes())
            answers, checksum = record["answers"], record["sha256"]
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
        whole = checksum == json_digest([choice.key, answers]) and len(answers) == len(choice.queries)
        return answers if whole else None

    def write(self, choice: Choice, answers: Sequence[str]) -> None:
        """Keep answers: a reader sees all of the file or none."""
        path = self._path(choice.key)
        with writing(path):
            self._folder.mkdir(parents=True, exist_ok=True)
        record = {"answers": list(answers), "sha256": json_digest([choice.key, list(answers)])}
        write_file(path, canonical_json(record))

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.json"


@contextmanager
def kept_answers(
    out: str | Path | None, request: Mapping[str, Any], *, replace: bool, keep: Sequence[str] = ()
) -> Iterator[Path]:
    """Lock the folder of answers until the evaluation is written; parts of another request named in *keep* stay."""
    if out is None:
        with TemporaryDirectory() as folder:
            yield Path(folder)
        return
    made = "an unfinished evaluation made"
    stage = Stage(out, Evaluation.kind, made, request, replace, _holds_work, keep=keep)
    with stage.resuming() as working:
        _bring(stage.path / ANSWERS, working / ANSWERS)
        yield working / ANSWERS


def _holds_work(working: Path) -> bool:
    """Return True if the folder holds more than the lock, the request and empty folders."""
    others = (child for child in working.iterdir() if child.name not in (LOCK, REQUEST))
    return any(child.is_file() or any(child.iterdir()) for child in others)


def _bring(old: Path, new: Path) -> None:
    """Copy the answers of an evaluation that was finished without some of them."""
    with writing(new):
        for file in sorted(old.glob("*.json")):
            if not (new / file.name).exists():
                new.mkdir(exist_ok=True)
                write_file(new / file.name, file.read_bytes())


class DataSelection:
    """A checked evaluation by selection; :attr:`request` holds everything that decides its answer."""

    def __init__(
        self, contest: Contest, lm: LoadLike, fine_tune: FineTuneSettings, engine: Engine | None = None
    ) -> None:
        """Load the LM; the contest has checked data and settings."""
        self._contest, self._fine_tune = contest, fine_tune
        self._engine = engine or InProcess()
        self._loaded, self._load, name, precision, self._here = load_first(lm, self._engine)
        self._lm = {"name": name, "fingerprint": self._loaded.fingerprint}
        training = {
            "lm": self._lm["fingerprint"],
            "precision": precision,
            "fine_tune": self._fine_tune.model_dump(mode="json"),
            "max_new_tokens": contest.settings.max_new_tokens,
            **rendering_of(self._loaded, contest.train, contest.queries),
        }
        subject = {**training, **contest.subject}
        self._training = json_digest(training)
        self.subject = json_digest({"measure": "select", **subject})
        self.request: Mapping[str, Any] = {
            "measure": "select",
            "indexes": [index.fingerprint for _, index in contest.indexes],
            **subject,
            "settings": contest.settings.model_dump(mode="json"),
        }

    def run(
        self,
        out: str | Path | None = None,
        *,
        retries: int = 2,
        partial: bool = False,
        replace: bool = False,
        progress: OnProgress | None = None,
        on_task: OnTask | None = None,
    ) -> Evaluation:
        """Select, fine-tune, ask, compare; arguments as for :func:`evaluate_selection`, *progress* is called
        during selection."""
        check_retries(retries)
        # Answers of another request stay valid: the name of each covers all that decides it.
        with kept_answers(out, self.request, replace=replace, keep=(ANSWERS,)) as folder:
            files = AnswerFiles(folder)
            competitors = self._contest.competitors(self._training, progress)
            jobs = list_jobs(choice for competitor in competitors for choice in competitor.choices)
            failed = self._answer(jobs, files, retries, on_task)
            if failed and not partial:
                raise TrainingError(
                    f"evaluate: fine-tunes failed ({len(failed)}), the first: {failed[0]} What is finished is kept "
                    "beside --out. Run the same command again, or pass --partial to leave out what failed."
                )
            references, rows = [query.response for query in self._contest.queries], list[Row]()
            for competitor in competitors:
                found = _f1(competitor, references, files)
                rows.append(_row(self._contest, competitor, *found, rows[0] if rows else None))
        facts = {
            **self._contest.facts(),
            "lm": self._lm,
            "fine_tune": self._fine_tune.model_dump(mode="json"),
            "fine_tunes": sum(len(job.tuned.train) > 0 for job in jobs),
            "failed": failed,
        }
        keys = tuple(
            (task, query.id) for task, query in zip(self._contest.task_of_each, self._contest.queries, strict=True)
        )
        return Evaluation("select", tuple(rows), keys, self.subject, facts=facts, request=self.request)

    def _answer(self, jobs: Sequence[Job], files: AnswerFiles, retries: int, on_task: OnTask | None) -> list[str]:
        """Do all jobs whose answers are missing; return the error of each job that failed."""
        missing = [
            Job(job.tuned, left)
            for job in jobs
            if (left := tuple(choice for choice in job.choices if files.read(choice) is None))
        ]
        self._check_readable(missing)
        loaded, texts = self._loaded, (self._contest.train, self._contest.queries)
        longest = self._contest.settings.max_new_tokens
        setup = AnsweringSetup(self._load, self._fine_tune, *texts, loaded.fingerprint, longest)
        work = (lambda: setup.worker(loaded, setup)) if self._here else setup
        failed, clock = [], TaskProgress(len(jobs), len(jobs) - len(missing), None, on_task)
        with closing(self._engine.run(work, missing, retries)) as outcomes:
            for outcome in outcomes:
                job = outcome.task
                if outcome.value is None:
                    failed.append(f"{job.tuned.name}: {outcome.error}")
                else:
                    for choice, answers in zip(job.choices, outcome.value, strict=True):
                        files.write(choice, answers)
                clock.tell(job.tuned.name, outcome, tuned=len(job.tuned.train) > 0)
        return sorted(failed)

    def _check_readable(self, jobs: Sequence[Job]) -> None:
        """Refuse, before the first fine-tune, examples that the LM cannot read (DataError)."""
        rows = np.unique(np.concatenate([np.empty(0, np.int64), *(job.tuned.train for job in jobs)]))
        examples = self._contest.train.take(rows)
        refused = self._loaded.unusable(examples)
        if refused:
            raise DataError(
                f"evaluate: {len(refused):,} of the {len(examples):,} selected examples cannot be used with the "
                f"LM {self._lm['name']}; the first: {refused[min(refused)]} Remove these examples from the indexes, or "
                "leave them out with --where."
            )


def _f1(competitor: Competitor, references: Sequence[str], files: AnswerFiles) -> tuple[np.ndarray, float]:
    """Return each query's mean F1 over successful repetitions, NaN without any, and the share of wordless answers.

    TrainingError: all fine-tunes of the competitor failed.
    """
    found: dict[int, list[float]] = {}
    wordless: list[bool] = []
    for choice in competitor.choices:
        answers = files.read(choice)
        for row, answer in [] if answers is None else zip(choice.queries.tolist(), answers, strict=True):
            found.setdefault(row, []).append(unigram_f1(answer, references[row]))
            wordless.append(not words(answer))
    if not found:
        raise TrainingError(f"{competitor.name}: every fine-tune failed. Run without --partial to see a reason.")
    values = np.array([np.mean(found[row]) if row in found else np.nan for row in range(len(references))])
    return values, float(np.mean(wordless))


def _row(contest: Contest, competitor: Competitor, values: np.ndarray, wordless: float, first: Row | None) -> Row:
    settings, tasks = contest.settings, tuple(contest.task_of_each)
    # The interval "across" is for other tasks, "within" for other queries of these tasks.
    across, within = (TaskResamples(tasks, level, settings.resamples, settings.seed) for level in (True, False))
    gap, inner = (None if first is None else each.difference(values, first.per_query) for each in (across, within))
    more = {
        "by_task": task_means(values, tasks),
        "same_task_share": competitor.same_task_share,
        "wordless_answers": wordless,
        "these_tasks": as_json(
            {"interval": within.estimate(values).interval, "minus_first": inner and inner._asdict()}
        ),
    }
    return Row(
        competitor.name,
        competitor.method,
        *across.estimate(values),
        values,
        difference=gap,
        cost=competitor.cost,
        caution=competitor.caution,
        more=more,
    )


def unigram_f1(answer: str, reference: str) -> float:
    """Measure how far two texts agree in their words, in any order: between 0 and 1, higher = better.

    Words are what is left of the lower-case text when it is split at every character that is no letter with its
    marks, digit or underscore (Unicode's). With c = Σ_w min(count of w in either), F1 is 2c / (words of both). Texts
    without any word score 1 if they are equal, spaces around them aside, and 0 if not; if one alone has no word, 0.
    """
    given, wanted = words(answer), words(reference)
    if not given and not wanted:
        return float(answer.strip() == reference.strip())
    common = sum((given & wanted).values())
    return 2 * common / (given.total() + wanted.total())


def words(text: str) -> Counter[str]:
    return Counter(_WORDS.findall(plain(text).lower()))
