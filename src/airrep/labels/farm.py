"""Fine-tune the target LM on every subset and record the losses."""

import json
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from airrep.corpus.corpus import Corpus, of_answers
from airrep.corpus.inputs import CorpusLike, as_corpus
from airrep.errors import LM, ConfigError, DataError, TrainingError, many, need
from airrep.labels.fine_tuner import FineTuner, LabelSetup, Learner, load_first, rendering_of
from airrep.labels.labels import Labels
from airrep.labels.ledger import (
    GROWING,
    KIND,
    LabelRequest,
    Ledger,
    QueryLosses,
    holding,
    is_label_file,
    seal_labels,
    tidy,
    training_part,
    waiting_lock,
)
from airrep.labels.plan import LabelTask, SubsetPlan, list_tasks, members_of, open_plan, used_examples
from airrep.lm.settings import FineTuneSettings, LmSettings
from airrep.runtime.artifacts import MANIFEST, REQUEST, real_path
from airrep.runtime.engine import Engine, InProcess, Outcome, Share, check_retries
from airrep.runtime.metering import OnProgress, teller
from airrep.runtime.publishing import append_line, writing
from airrep.runtime.ray_engine import make_engine
from airrep.runtime.remote.outputs import Mirror

PlanLike: TypeAlias = SubsetPlan | str | Path
"""Subsets, or their directory."""
Outcomes: TypeAlias = Generator[Outcome[LabelTask, QueryLosses], None, None]


@dataclass(frozen=True)
class TaskReport:
    """Report of one task that has ended."""

    name: str
    """Name such as ``"instance 0, subset 17, seed 0"``."""
    done: int
    """Number of tasks of this part that are finished or given up."""
    total: int
    """Number of tasks of this part."""
    seconds: float
    """Wall seconds in its worker."""
    left: float | None
    """Estimated seconds until the last task ends; None before a fine-tune has ended."""
    error: str | None
    """Reason why the task was given up; None if it was not."""


def label(
    plan: PlanLike,
    train: CorpusLike,
    queries: CorpusLike | None,
    lm: "LmSettings | Mapping[str, Any] | str | Path | Callable[[], Learner[Any]]",
    fine_tune: FineTuneSettings | Mapping[str, Any] | None,
    out: str | Path,
    *,
    seeds: int = 1,
    part: str | None = None,
    engine: Engine | str | None = None,
    retries: int = 2,
    partial: bool = False,
    retry_quarantined: bool = False,
    progress: OnProgress | None = None,
    on_task: Callable[[TaskReport], None] | None = None,
) -> Labels:
    """Fine-tune the target LM on every subset and record the loss of every query.

    Each (subset, seed) is a task, and so is the evaluation of the LM before any fine-tune. The result of a task is one
    file, named by a digest of everything that decides the losses; after an interruption, the same call does only the
    missing tasks. On the CPU, every engine writes the same bytes, except in ``times*.jsonl``.

    Args:
        plan: the subsets, or their directory.
        train: the data that the subsets were drawn from, in any form that :func:`airrep.build_index` takes.
        queries: the data that the queries were drawn from; None when that is *train*.
        lm: the target LM: its folder or Hub id, or settings with it; or a function that loads one, called once in each
            worker.
        fine_tune: settings of the fine-tunes, or a dict of some of them; None takes the paper's.
        out: the label directory to make, or to resume.
        seeds: number of fine-tunes of each subset, in different orders of data.
        part: ``"3/10"`` does every tenth task, from the third on; parts share a directory or are copied into one.
        engine: where tasks run: ``"local"``, ``"ray"`` or an engine; in this process if None.
        retries: number of times that a failed task is tried again.
        partial: finish without the tasks that were given up; their losses are NaN.
        retry_quarantined: try tasks again that were given up in an earlier run.
        progress: called with the numbers of ended tasks and of all tasks.
        on_task: called with a report of each task that has ended.

    Raises:
        ConfigError: a value is not allowed.
        DataError: the corpora are not the plan's, or the LM cannot read an example of the plan.
        ArtifactError: *out* holds other labels, another process writes there, or labels cannot be written.
        TrainingError: every fine-tune failed, or workers cannot be started.

    Example:
        >>> plan = airrep.open("runs/subsets")
        >>> labels = airrep.label(plan, train, None, "MODEL", {"epochs": 1}, "runs/new-labels")
        >>> labels.complete
        True
    """
    if not callable(lm):
        need("airrep.label", "lm", *LM)
    data = LabelData.given(plan, train, queries)
    learner = lm if callable(lm) else LmSettings.named(lm).before()
    tuning = FineTuneSettings.given(fine_tune, "fine_tune")
    farm = _Farm(learner, make_engine(engine) or InProcess(), tuning, data)
    source = LossSource(farm.origin, farm.outcomes, farm.check)
    return make_labels(source, data, out, LabelRun(seeds, part, retries, partial, retry_quarantined, progress, on_task))


class LabelData(NamedTuple):
    """Subsets, and the corpora that they and their queries were drawn from."""

    plan: SubsetPlan
    train: Corpus
    queries: Corpus

    @classmethod
    def given(cls, plan: PlanLike, train: CorpusLike, queries: CorpusLike | None) -> "LabelData":
        """Take data in any form; without *queries*, queries come from *train*. Errors are those of :func:`label`."""
        plan = plan if isinstance(plan, SubsetPlan) else open_plan(plan)
        train = as_corpus(train)
        queries = None if queries is None else as_corpus(queries, "queries", spanned=True)
        plan.check_corpora(train, queries)
        return cls(plan, train, of_answers(train if queries is None else queries))


class LossSource(NamedTuple):
    """Source of losses: airrep's fine-tunes, another trainer's command, or a file of losses."""

    origin: Mapping[str, Any]
    """``lm``, ``precision`` and ``fine_tune``, which decide losses together with the texts; JSON values."""
    outcomes: Callable[[list[LabelTask], int], Outcomes]
    """Function that does tasks, each with at most a given number of retries."""
    check: Callable[[list[LabelTask]], None] | None = None
    """Function that refuses tasks that cannot be done, before anything is written."""


@dataclass(frozen=True)
class LabelRun:
    """Arguments of :func:`label` that do not change the losses of a task."""

    seeds: int = 1
    part: str | None = None
    retries: int = 2
    partial: bool = False
    retry_quarantined: bool = False
    progress: OnProgress | None = None
    on_task: Callable[[TaskReport], None] | None = None


def make_labels(source: LossSource, data: LabelData, out: str | Path, run: LabelRun) -> Labels:
    """Fill a label directory with losses from a source; errors are those of :func:`label`."""
    if run.seeds < 1:
        raise ConfigError(f"seeds={run.seeds}: must be 1 or more. Correct the value.")
    check_retries(run.retries)  # the engine would check only after files were written
    share = Share.parse(run.part or "1/1", "--part")
    request = _request(source, data, run.seeds)
    folder = make_folder(out)
    with holding(folder, share):
        mirror = Mirror(folder, is_label_file, (REQUEST,))
        mirror.pull()
        filling = _Filling(folder, request, share, mirror)
        todo = filling.begin(source, run.retry_quarantined)
        clock = TaskProgress(len(filling.share), len(filling.share) - len(todo), run.progress, run.on_task)
        if todo:
            filling.record(source.outcomes(todo, run.retries), clock)
        filling.finish(run.partial)
    return Labels(folder)


def _request(source: LossSource, data: LabelData, seeds: int) -> LabelRequest:
    """Make the request for labels with *seeds* fine-tunes of each subset."""
    sampling = data.plan.settings.model_dump(mode="json")
    decisive = {
        "kind": KIND,
        **source.origin,
        "train": data.train.fingerprint,
        "queries": data.queries.fingerprint,
        "sampling": {name: value for name, value in sampling.items() if name not in GROWING},
    }
    counts = {name: sampling[name] for name in GROWING if sampling.get(name) is not None} | {"seeds": seeds}
    return LabelRequest(decisive, counts, data.plan, list_tasks(*data, training_part(decisive), seeds))


def make_folder(out: str | Path) -> Path:
    """Make a directory if it does not exist; return its path."""
    folder = real_path(out)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


class _Farm:
    """The LM, the engine that runs its fine-tunes, and their data."""

    def __init__(
        self, lm: LmSettings | Callable[[], Learner[Any]], engine: Engine, fine_tune: FineTuneSettings, data: LabelData
    ) -> None:
        first = load_first(lm, engine)
        self._loaded: Learner[Any] | None = first.lm
        self._engine, self._here, self._data = engine, first.here, data
        self._setup = LabelSetup(first.load, fine_tune, data.train, data.queries, first.lm.fingerprint, data.plan)
        known = {"name": first.name, "fingerprint": first.lm.fingerprint, **first.lm.reading}
        tuning, rendering = fine_tune.model_dump(mode="json"), rendering_of(first.lm, data.train, data.queries)
        self.origin: dict[str, Any] = {"lm": known, "precision": first.precision, "fine_tune": tuning, **rendering}

    def check(self, tasks: Sequence[LabelTask]) -> None:  # noqa: ARG002
        """Refuse, before the first fine-tune, examples of the plan that the LM cannot read."""
        assert self._loaded is not None
        plan, train, _ = self._data
        if (check := getattr(self._loaded, "check_learnable", None)) is not None:  # a custom learner may lack it
            check(train.take(members_of(plan, len(train))), str(plan.path))
        examples = used_examples(*self._data)
        refused = self._loaded.unusable(examples)
        if refused:
            raise DataError(
                f"{self._data.plan.path}: the LM {self.origin['lm']['name']} cannot use {len(refused):,} of its "
                f"{many(len(examples), 'example')}. The first: {refused[min(refused)]} Remove these examples from the "
                "data, and run `airrep sample` again."
            )

    def outcomes(self, tasks: list[LabelTask], retries: int) -> Outcomes:
        # Hold the LM no longer: if workers load their own, this one's memory is freed.
        loaded, self._loaded = self._loaded, None
        if loaded is None or not self._here:
            return self._engine.run(self._setup, tasks, retries)
        return self._engine.run(lambda: FineTuner(loaded, self._setup), tasks, retries)


class TaskProgress:
    """Reports progress, with an estimate of the time left."""

    def __init__(
        self, total: int, done: int, progress: OnProgress | None, on_task: Callable[[TaskReport], None] | None
    ) -> None:
        self._total, self._now, self._tuned = total, done, 0
        self._progress, self._on_task = teller(progress, "fine-tunes"), on_task
        self._begun: float | None = None
        self._progress(done, total)

    def tell(self, name: str, outcome: Outcome[Any, Any], *, tuned: bool) -> None:
        """Report one more task that has ended; *tuned*: it was a fine-tune, not a mere evaluation."""
        if self._begun is None:
            self._begun = time.monotonic() - outcome.seconds
        self._now += 1
        self._tuned += tuned
        self._progress(self._now, self._total)
        if self._on_task is not None:
            # Loading the LM does not count for the rate, nor do tasks that only evaluate, which are quick.
            remaining, elapsed = self._total - self._now, time.monotonic() - self._begun
            rate = elapsed / self._tuned if self._tuned else None
            left = 0.0 if not remaining else None if rate is None else remaining * rate
            self._on_task(TaskReport(name, self._now, self._total, outcome.seconds, left, outcome.error))


class _Filling:
    """One part of a label directory while it is being made."""

    def __init__(self, folder: Path, request: LabelRequest, part: Share, mirror: Mirror) -> None:
        self._folder, self._mirror, self._request, self._part = folder, mirror, request, part
        self._ledger = Ledger(folder, request.settings)
        self._sealed: Labels | None = None
        self.share = request.tasks[part.part]

    def begin(self, source: LossSource, retry_quarantined: bool) -> list[LabelTask]:
        """Check and claim the directory; return the tasks of this part that are still to be done."""
        with waiting_lock(self._folder):
            self._request.check(self._folder)
        self._ledger.check_settings()
        self._ledger.sweep()
        if (self._folder / MANIFEST).is_file():
            self._sealed = Labels(self._folder)
            self._sealed.verify()
        left = {task.key: task for task in self.share if self._read(task) is None}
        todo = [task for task in left.values() if retry_quarantined or self._ledger.quarantined(task) is None]
        if todo and source.check is not None:
            source.check(todo)
        # Claimed only after all checks: a refused command leaves nothing in a directory.
        with waiting_lock(self._folder):
            self._request.claim(self._folder)
        self._mirror.push()
        return todo

    def _read(self, task: LabelTask) -> QueryLosses | None:
        found = self._ledger.read(task.key, len(self._request.plan.query_rows(task.place.instance)))
        return self._sealed.read(task.key) if found is None and self._sealed is not None else found

    def record(self, outcomes: Outcomes, clock: TaskProgress) -> None:
        times = self._folder / ("times.jsonl" if self._part.of == 1 else f"times-{self._part.name}.jsonl")
        with closing(outcomes):
            for outcome in outcomes:
                task = outcome.task
                if outcome.value is not None:
                    written = self._ledger.write(task.key, outcome.value)
                else:
                    written = self._ledger.give_up(task, outcome.error or "", outcome.attempts)
                self._mirror.push([written.relative_to(self._folder).as_posix()])
                line = {
                    "task": str(task.place),
                    "key": task.key,
                    "seconds": round(outcome.seconds, 3),
                    "cpu": round(outcome.cpu_seconds, 3),
                    "attempts": outcome.attempts,
                    "error": outcome.error,
                }
                append_line(times, json.dumps(line, ensure_ascii=False))
                clock.tell(str(task.place), outcome, tuned=task.place.subset is not None)

    def finish(self, partial: bool) -> None:
        """Seal the directory if the tasks of all parts are finished; with *partial*, some may be given up."""
        self._mirror.push()
        self._mirror.pull()  # what other machines have made since
        self._refuse_failure()
        with waiting_lock(self._folder):
            if (self._folder / MANIFEST).is_file():  # another part may have sealed it since
                self._sealed = Labels(self._folder)
            unfinished = [task for task in self._request.tasks if self._read(task) is None]
            given_up, sealed = self._ledger.given_up(unfinished), self._sealed
            wanted = self._request.state["keys"]
            if sealed is not None and sealed.state["keys"] == wanted and sealed.quarantined == given_up:
                tidy(self._ledger, self._request, given_up)
            elif not unfinished or (partial and len(given_up) == len(unfinished)):
                seal_labels(self._ledger, self._request, self._read, given_up)
            self._mirror.push()
            self._mirror.finish()

    def _refuse_failure(self) -> None:
        """Raise TrainingError if every fine-tune of this part failed and no other part has a finished one."""
        tuned = [task for task in self.share if task.place.subset is not None]
        failed = self._ledger.given_up(task for task in tuned if self._read(task) is None)
        if not tuned or len(failed) < len(tuned):
            return
        if all(task.place.subset is None or self._read(task) is None for task in self._request.tasks):
            raise TrainingError(
                f"{self._folder}: all fine-tunes failed ({len(tuned):,}). The first error: {failed[0].reason} "
                "Change the settings and give another path, or run again with --set retry_quarantined=true."
            )
