"""Data selection, judged by what a fine-tuned LM then answers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from airrep.attributors.base import OnProgress
from airrep.corpus.inputs import CorpusLike, as_corpus
from airrep.errors import DataError, TrainingError
from airrep.evaluation.given import IndexesLike, named_indexes
from airrep.evaluation.result import ANSWERS, Evaluation, Row, plain
from airrep.evaluation.select.answers import Answerer, AnswerFiles, AnsweringSetup, Job, list_jobs, unigram_f1, words
from airrep.evaluation.select.competitors import Competitor, Contest, SelectSettings
from airrep.evaluation.statistics.means import TaskResamples, task_means
from airrep.labels.farm import TaskProgress, TaskReport
from airrep.labels.fine_tuner import load_first, rendering_of
from airrep.lm.settings import FineTuneSettings, LmSettings
from airrep.runtime.artifacts.digests import json_digest
from airrep.runtime.artifacts.manifests import LOCK, REQUEST
from airrep.runtime.engine import Engine, InProcess, check_retries
from airrep.runtime.publishing import write_file, writing
from airrep.runtime.ray_engine import make_engine
from airrep.runtime.stage import Stage

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

    Each index selects by min-rank (:func:`airrep.scoring.min_rank.min_rank`). The LM, fine-tuned from its base weights
    on the selection alone, answers the prompts of the task's queries, and
    :func:`airrep.evaluation.select.answers.unigram_f1` compares each answer with the query's response. F1 is averaged
    over the queries of a task, then over tasks. No text of a query is selected by any competitor.

    Args:
        indexes: of the same training examples, or their paths, each alone or as ``(name, index)``. The others are
            compared with the first.
        queries: prompts to answer, with reference responses and tasks.
        lm: the target LM: its folder or Hub id, or settings with it; or a function that loads one, called once in each
            worker.
        settings: numbers of examples, and competitors; or a dict of some of these settings.
        fine_tune: settings of the fine-tunes, or a dict of some of them; None: the paper's of labels.
        selecting: queries of the same tasks to select by; the queries themselves if None, as in the paper, so that
            selection sees the references of the test.
        out: where the evaluation will be written; finished answers are kept beside it, in ``OUT.partial``, until then.
            The same call resumes with the missing answers. On the CPU, every engine gives the same values.
        engine: where fine-tunes run: ``"local"``, ``"ray"`` or an engine; in this process if None.
        retries: number of times that a failed fine-tune is tried again.
        partial: finish without the fine-tunes that failed; their queries are left out of that competitor.
        replace: replace another request's unfinished work beside *out*.
        on_task: told about each fine-tune.

    Raises:
        ConfigError: a setting that does not fit, or fewer than 0 retries.
        DataError: other examples in some index, a query without task, or a text that the LM cannot read.
        ArtifactError: another process writes there, another request was left unfinished there, or answers cannot be
            kept.
        TrainingError: a fine-tune failed and *partial* is false; or all of a competitor did.

    Example:
        >>> settings = {"count": 5, "max_new_tokens": 4}
        >>> from airrep.evaluation.select.select import evaluate_selection
        >>> found = evaluate_selection([("tfidf", index)], queries, "MODEL", settings, {"epochs": 1})
        >>> [row.name for row in found.rows]
        ['tfidf', 'random', 'none']
    """
    check_retries(retries)
    contest = Contest(
        named_indexes(indexes, "evaluate select"),
        as_corpus(queries, "queries"),
        None if selecting is None else as_corpus(selecting, "selecting"),
        SelectSettings.given(settings),
    )
    model = lm if callable(lm) else LmSettings.named(lm)
    tuning = FineTuneSettings.given(fine_tune, "fine_tune")
    study = DataSelection(contest, model, tuning, make_engine(engine))
    return study.run(out, retries=retries, partial=partial, replace=replace, on_task=on_task)


@contextmanager
def _kept(out: str | Path | None, request: Mapping[str, Any], *, replace: bool) -> Iterator[AnswerFiles]:
    """Folder of answers until the evaluation is written, locked by this process."""
    if out is None:
        with TemporaryDirectory() as folder:
            yield AnswerFiles(Path(folder))
        return
    made = "an unfinished evaluation made"
    # Answers of another request stay: each is named by all that decides it.
    stage = Stage(out, Evaluation.kind, made, request, replace, _holds_work, keep=(ANSWERS,))
    with stage.resuming() as working:
        _bring(stage.path / ANSWERS, working / ANSWERS)
        yield AnswerFiles(working / ANSWERS)


def _holds_work(working: Path) -> bool:
    """True if the folder holds more than the lock, the request and empty folders."""
    others = (child for child in working.iterdir() if child.name not in (LOCK, REQUEST))
    return any(child.is_file() or any(child.iterdir()) for child in others)


def _bring(old: Path, new: Path) -> None:
    """Copy the answers of an evaluation that was finished without some."""
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
        """Load the LM; the contest has refused data and settings that cannot be."""
        self._contest, self._fine_tune = contest, fine_tune
        self._engine = engine or InProcess()
        self._loaded, self._load, name, precision, self._here = load_first(lm, self._engine)
        self._lm = {"name": name, "fingerprint": self._loaded.fingerprint}
        training = {
            "lm": self._lm["fingerprint"],
            "precision": precision,
            "fine_tune": self._fine_tune.model_dump(mode="json"),
            "max_new_tokens": contest.settings.max_new_tokens,
            **rendering_of(self._loaded, contest.train, contest.tasks.queries),
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
        """Select, fine-tune, ask, compare; arguments as for :func:`evaluate_selection`, *progress* is told about
        selections."""
        check_retries(retries)
        with _kept(out, self.request, replace=replace) as files:
            competitors = self._contest.competitors(self._training, progress)
            jobs = list_jobs(choice for competitor in competitors for choice in competitor.choices)
            failed = self._answer(jobs, files, retries, on_task)
            if failed and not partial:
                raise TrainingError(
                    f"evaluate select: fine-tunes failed ({len(failed)}), the first: {failed[0]} What is finished is "
                    "kept beside --out. Run the same command again, or pass --partial to leave them out."
                )
            rows = f1_rows(self._contest, competitors, files)
        tasks = self._contest.tasks
        facts = {
            **self._contest.facts(),
            "lm": self._lm,
            "fine_tune": self._fine_tune.model_dump(mode="json"),
            "fine_tunes": sum(len(job.tuned.train) > 0 for job in jobs),
            "failed": failed,
        }
        keys = tuple((task, query.id) for task, query in zip(tasks.of_each, tasks.queries, strict=True))
        return Evaluation("select", rows, keys, self.subject, facts=facts, request=self.request)

    def _answer(self, jobs: Sequence[Job], files: AnswerFiles, retries: int, on_task: OnTask | None) -> list[str]:
        """Do all jobs whose answers are not there yet; why each that failed did."""
        missing = [
            Job(job.tuned, left)
            for job in jobs
            if (left := tuple(choice for choice in job.choices if files.read(choice) is None))
        ]
        self._check_readable(missing)
        loaded, texts = self._loaded, (self._contest.train, self._contest.tasks.queries)
        longest = self._contest.settings.max_new_tokens
        setup = AnsweringSetup(self._load, self._fine_tune, *texts, loaded.fingerprint, longest)
        work = (lambda: setup.worker(loaded)) if self._here else setup
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
        """Let the LM read every example that it is to be fine-tuned on, before the first fine-tune."""
        rows = np.unique(np.concatenate([np.empty(0, np.int64), *(job.tuned.train for job in jobs)]))
        examples = self._contest.train.take(rows)
        refused = self._loaded.unusable(examples)
        if refused:
            raise DataError(
                f"evaluate select: {len(refused):,} of the {len(examples):,} selected examples cannot be used with the "
                f"LM {self._lm['name']}; the first: {refused[min(refused)]} Leave such examples out of the indexes, or "
                "choose others with --where."
            )


def f1_rows(contest: Contest, competitors: Sequence[Competitor], files: AnswerFiles) -> tuple[Row, ...]:
    """One row for each competitor, compared with the first (TrainingError: all fine-tunes of one failed)."""
    references, rows = [query.response for query in contest.tasks.queries], list[Row]()
    for competitor in competitors:
        values, wordless = _f1(competitor, references, files)
        rows.append(_row(contest, competitor, values, wordless, rows[0] if rows else None))
    return tuple(rows)


def _f1(competitor: Competitor, references: Sequence[str], files: AnswerFiles) -> tuple[np.ndarray, float]:
    """Mean F1 of each query over the repetitions that succeeded, NaN without one; and the share of wordless answers."""
    found: dict[int, list[float]] = {}
    wordless: list[bool] = []
    for choice in competitor.choices:
        answers = files.read(choice)
        for row, answer in [] if answers is None else zip(choice.queries.tolist(), answers, strict=True):
            found.setdefault(row, []).append(unigram_f1(answer, references[row]))
            wordless.append(not words(answer))
    if not found:
        raise TrainingError(f"{competitor.name}: every fine-tune failed; expected some that did not. Look at why.")
    values = np.array([np.mean(found[row]) if row in found else np.nan for row in range(len(references))])
    return values, float(np.mean(wordless))


def _row(contest: Contest, competitor: Competitor, values: np.ndarray, wordless: float, first: Row | None) -> Row:
    settings, tasks = contest.settings, tuple(contest.tasks.of_each)
    # Across tasks the interval is of other tasks, within of these tasks with other queries.
    across, within = (TaskResamples(tasks, level, settings.resamples, settings.seed) for level in (True, False))
    value, interval = across.estimate(values)
    gap, inner = (None if first is None else each.difference(values, first.per_query) for each in (across, within))
    more = {
        "by_task": task_means(values, tasks),
        "same_task_share": competitor.same_task_share,
        "wordless_answers": wordless,
        "these_tasks": plain({"interval": within.estimate(values).interval, "minus_first": inner and inner._asdict()}),
    }
    return Row(
        competitor.name,
        competitor.method,
        value,
        interval,
        values,
        difference=gap,
        cost=competitor.cost,
        caution=competitor.caution,
        more=more,
    )
