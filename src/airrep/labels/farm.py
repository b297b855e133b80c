"""Fine-tune the target LM on every subset and record the losses."""

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from airrep.corpus.corpus import Corpus
from airrep.corpus.inputs import CorpusLike, as_corpus
from airrep.errors import LM, ConfigError, DataError, TrainingError, need
from airrep.labels.fine_tuner import FineTuner, LabelSetup, Learner, load_first, rendering_of
from airrep.labels.labels import Labels
from airrep.labels.ledger import Ledger, Quarantined, QueryLosses, holding, waiting_lock
from airrep.labels.plan import LabelTask, SubsetPlan, list_tasks, open_plan, used_examples
from airrep.labels.request import GROWING, KIND, LabelRequest, is_label_file, seal_labels, tidy, training_part
from airrep.lm.settings import FineTuneSettings, LmSettings
from airrep.runtime.artifacts.making import real_path
from airrep.runtime.artifacts.manifests import MANIFEST, REQUEST
from airrep.runtime.engine import Engine, InProcess, Outcome, Share, check_retries
from airrep.runtime.metering import OnProgress, teller
from airrep.runtime.publishing import append_line, writing
from airrep.runtime.ray_engine import make_engine
from airrep.runtime.remote.outputs import Mirror

TIMES = "times"

PlanLike: TypeAlias = SubsetPlan | str | Path
"""Subsets, or the directory of them."""
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
    """Reason why it was given up; None if it was not."""


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

    Each (subset, seed) is a task, and so is the evaluation of the LM before any fine-tune. Its result is one file,
    named by a digest of everything that decides it; the same call after an interruption resumes with the tasks that
    are missing. On the CPU, every engine gives the same bytes, except in ``times*.jsonl``.

    Args:
        plan: the subsets, or their directory.
        train: the data that the subsets were drawn from, in any form that :func:`airrep.build_index` takes.
        queries: the data that the queries were drawn from; None when that is *train*.
        lm: the target LM: its folder or Hub id, or settings with it; or a function that loads one, called once in each
            worker.
        fine_tune: settings of the fine-tunes, or a dict of some of them; None takes the paper's.
        out: the directory.
        seeds: number of fine-tunes of each subset, in different orders of data.
        part: ``"3/10"`` does every tenth task, from the third on; parts share a directory or are copied into one.
        engine: where tasks run: ``"local"``, ``"ray"`` or an engine; in this process if None.
        retries: number of times that a failed task is tried again.
        partial: finish without the tasks that were given up; their losses are NaN.
        retry_quarantined: try tasks again that were given up in an earlier run.
        progress: called with the numbers of ended tasks and of all tasks.
        on_task: called with a report of each task that has ended.

    Raises:
        ConfigError: an impossible value.
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
    return make_labels(
        farm,
        data,
        out,
        seeds=seeds,
        part=part,
        retries=retries,
        partial=partial,
        retry_quarantined=retry_quarantined,
        progress=progress,
        on_task=on_task,
    )


@dataclass(frozen=True)
class LabelData:
    """Subsets, and the corpora that they and their queries were drawn from."""

    plan: SubsetPlan
    train: Corpus
    queries: Corpus

    @classmethod
    def given(cls, plan: PlanLike, train: CorpusLike, queries: CorpusLike | None) -> "LabelData":
        """Data in any form; without queries of their own, these are drawn from *train*; errors as of :func:`label`."""
        plan = plan if isinstance(plan, SubsetPlan) else open_plan(plan)
        train = as_corpus(train)
        queries = None if queries is None else as_corpus(queries, "queries")
        plan.check_corpora(train, queries)
        return cls(plan, train, train if queries is None else queries)


class LossSource(ABC):
    """Source of losses: airrep's fine-tunes, another trainer's command, or a file of losses."""

    @property
    @abstractmethod
    def origin(self) -> Mapping[str, Any]:
        """The LM, ``precision`` and ``fine_tune``, which decide losses beside the texts; JSON values."""

    @abstractmethod
    def check(self, tasks: Sequence[LabelTask]) -> None:
        """Refuse, before anything is written, tasks that cannot be done."""

    @abstractmethod
    def outcomes(self, tasks: list[LabelTask], retries: int) -> Outcomes:
        """Do tasks."""


def make_labels(
    source: LossSource,
    data: LabelData,
    out: str | Path,
    *,
    seeds: int = 1,
    part: str | None = None,
    retries: int = 0,
    partial: bool = False,
    retry_quarantined: bool = False,
    progress: OnProgress | None = None,
    on_task: Callable[[TaskReport], None] | None = None,
) -> Labels:
    """Fill a label directory with losses from a source; arguments and errors as of :func:`label`."""
    if seeds < 1:
        raise ConfigError(f"seeds={seeds}: expected 1 or more. Correct the value.")
    check_retries(retries)  # the engine would only after files were written
    share = Share.parse(part or "1/1", "--part")
    request = _request(source, data, seeds)
    folder = make_folder(out)
    with holding(folder, share):
        mirror = Mirror(folder, is_label_file, (REQUEST,))
        mirror.pull()
        run = _FarmRun(folder, request, share, mirror)
        todo = run.begin(retry_quarantined, source.check)
        clock = TaskProgress(len(run.share), len(run.share) - len(todo), progress, on_task)
        if todo:
            run.record(source.outcomes(todo, retries), clock)
        run.finish(partial)
    return Labels(folder)


def _request(source: LossSource, data: LabelData, seeds: int) -> LabelRequest:
    """The request for so many losses of each subset."""
    sampling = data.plan.settings.model_dump(mode="json")
    decisive = {
        "kind": KIND,
        **source.origin,
        "train": data.train.fingerprint,
        "queries": data.queries.fingerprint,
        "sampling": {name: value for name, value in sampling.items() if name not in GROWING},
    }
    counts = {name: sampling[name] for name in GROWING if sampling.get(name) is not None} | {"seeds": seeds}
    tasks = list_tasks(data.plan, data.train, data.queries, training_part(decisive), seeds)
    return LabelRequest(decisive, counts, data.plan, tasks)


def make_folder(out: str | Path) -> Path:
    """Make, or find, a directory."""
    folder = real_path(out)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


class _Farm(LossSource):
    """The LM, the engine that runs its fine-tunes, and their data."""

    def __init__(
        self,
        lm: "LmSettings | Callable[[], Learner[Any]]",
        engine: Engine,
        fine_tune: FineTuneSettings,
        data: "LabelData",
    ) -> None:
        loaded, load, name, self._precision, self._here = load_first(lm, engine)
        self._lm = {"name": name, "fingerprint": loaded.fingerprint, **loaded.reading}
        self._rendering = rendering_of(loaded, data.train, data.queries)
        self._setup = LabelSetup(load, fine_tune, data.train, data.queries, loaded.fingerprint, data.plan)
        self._engine = engine
        self._loaded: Learner[Any] | None = loaded

    @property
    def origin(self) -> dict[str, Any]:
        tuning = self._setup.fine_tune.model_dump(mode="json")
        return {"lm": self._lm, "precision": self._precision, "fine_tune": tuning, **self._rendering}

    def check(self, tasks: Sequence[LabelTask]) -> None:  # noqa: ARG002
        """Refuse, before the first fine-tune, examples of the plan that the LM cannot read."""
        assert self._loaded is not None
        setup = self._setup
        examples = used_examples(setup.plan, setup.train, setup.queries)
        refused = self._loaded.unusable(examples)
        if refused:
            raise DataError(
                f"{setup.plan.path}: {len(refused):,} of its {len(examples):,} examples cannot be used with the LM "
                f"{self._lm['name']}; the first: {refused[min(refused)]} Leave such examples out of the data and "
                "sample again."
            )

    def outcomes(self, tasks: list[LabelTask], retries: int) -> Outcomes:
        """Run tasks on the engine."""
        # Nothing else may hold the LM: where workers load their own, this one's memory is freed.
        loaded, self._loaded = self._loaded, None
        if loaded is None or not self._here:
            return self._engine.run(self._setup, tasks, retries)
        return self._engine.run(lambda: FineTuner(loaded, self._setup), tasks, retries)


class TaskProgress:
    """Reports progress, with an estimate of the time left."""

    def __init__(
        self, total: int, done: int, progress: OnProgress | None, on_task: Callable[[TaskReport], None] | None
    ) -> None:
        """Begin with *done* of *total* tasks, and report that to *progress*."""
        self._total, self._now = total, done
        self._tuned = 0
        self._progress, self._on_task = teller(progress, "fine-tunes"), on_task
        self._begun: float | None = None
        self._tell_progress()

    def _tell_progress(self) -> None:
        if self._progress is not None:
            self._progress(self._now, self._total)

    def tell(self, name: str, outcome: Outcome[Any, Any], *, tuned: bool) -> None:
        """Report one more task that has ended; *tuned*: it was a fine-tune, not a mere evaluation."""
        if self._begun is None:
            self._begun = time.monotonic() - outcome.seconds
        self._now += 1
        self._tuned += tuned
        self._tell_progress()
        if self._on_task is not None:
            left = self._left(time.monotonic() - self._begun)
            self._on_task(TaskReport(name, self._now, self._total, outcome.seconds, left, outcome.error))

    def _left(self, elapsed: float) -> float | None:
        # Loading the LM does not count for the rate, nor do tasks that only evaluate, which are quick.
        remaining = self._total - self._now
        if not remaining:
            return 0.0
        return remaining * elapsed / self._tuned if self._tuned else None


class _FarmRun:
    """One part of a label directory while it is being made."""

    def __init__(self, folder: Path, request: LabelRequest, part: Share, mirror: Mirror) -> None:
        self._folder = folder
        self._mirror = mirror
        self._request = request
        self._part = part
        self._ledger = Ledger(folder, request.settings, part)
        self._sealed: Labels | None = None
        self.share = request.tasks[part.part]

    def begin(self, retry_quarantined: bool, check: Callable[[list[LabelTask]], None]) -> list[LabelTask]:
        """Check and claim the directory; the tasks of this part that are still to be done."""
        # Claimed only after all checks: a refused command leaves nothing in a directory.
        todo = self._todo(retry_quarantined)
        if todo:
            check(todo)
        with waiting_lock(self._folder):
            self._request.claim(self._folder)
        self._mirror.push()
        return todo

    def _todo(self, retry_quarantined: bool) -> list[LabelTask]:
        with waiting_lock(self._folder):
            self._request.check(self._folder)
        self._ledger.check_settings()
        self._ledger.sweep()
        if (self._folder / MANIFEST).is_file():
            self._sealed = Labels(self._folder)
            self._sealed.verify()
        left = {task.key: task for task in self.share if self._read(task) is None}
        return [task for task in left.values() if retry_quarantined or self._ledger.quarantined(task) is None]

    def _read(self, task: LabelTask) -> QueryLosses | None:
        queries = len(self._request.plan.query_rows(task.place.instance))
        found = self._ledger.read(task.key, queries)
        if found is None and self._sealed is not None:
            return self._sealed.read(task.key)
        return found

    def record(self, outcomes: Outcomes, clock: TaskProgress) -> None:
        """Record each outcome when it comes."""
        with closing(outcomes):
            for outcome in outcomes:
                if outcome.value is not None:
                    written = self._ledger.write(outcome.task.key, outcome.value)
                else:
                    written = self._ledger.give_up(outcome.task, outcome.error or "", outcome.attempts)
                self._mirror.push([written.relative_to(self._folder).as_posix()])
                self._note_time(outcome)
                clock.tell(str(outcome.task.place), outcome, tuned=outcome.task.place.subset is not None)

    def _note_time(self, outcome: Outcome[LabelTask, QueryLosses]) -> None:
        suffix = "" if self._part.of == 1 else f"-{self._part.name}"
        path = self._folder / f"{TIMES}{suffix}.jsonl"
        line = {
            "task": str(outcome.task.place),
            "key": outcome.task.key,
            "seconds": round(outcome.seconds, 3),
            "cpu": round(outcome.cpu_seconds, 3),
            "attempts": outcome.attempts,
            "error": outcome.error,
        }
        append_line(path, json.dumps(line, ensure_ascii=False))

    def finish(self, partial: bool) -> None:
        """Seal the directory if all parts of it are there."""
        self._mirror.push()
        self._mirror.pull()  # what other machines have made since
        self._refuse_failure()
        with waiting_lock(self._folder):
            if (self._folder / MANIFEST).is_file():  # another part may have sealed it since
                self._sealed = Labels(self._folder)
            unfinished = [task for task in self._request.tasks if self._read(task) is None]
            given_up = self._ledger.given_up(unfinished)
            if self._is_sealed(given_up):
                tidy(self._ledger, self._request, given_up)
            elif not unfinished or (partial and len(given_up) == len(unfinished)):
                seal_labels(self._ledger, self._request, self._read, given_up)
            self._mirror.push()
            self._mirror.finish()

    def _is_sealed(self, given_up: list[Quarantined]) -> bool:
        """True if the manifest has the request, with the same tasks given up."""
        sealed, wanted = self._sealed, self._request.state["keys"]
        return sealed is not None and sealed.state["keys"] == wanted and sealed.quarantined == given_up

    def _refuse_failure(self) -> None:
        """Refuse to seal where every fine-tune of this part failed and no other part has one."""
        tuned, everywhere = _fine_tunes(self.share), _fine_tunes(self._request.tasks)
        failed = self._ledger.given_up(task for task in tuned if self._read(task) is None)
        if tuned and len(failed) == len(tuned) and all(self._read(task) is None for task in everywhere):
            raise TrainingError(
                f"{self._folder}: all {len(tuned)} fine-tunes failed, the first: {failed[0].reason} "
                "Change the settings and give another path, or run again with --retry-quarantined."
            )


def _fine_tunes(tasks: Sequence[LabelTask]) -> list[LabelTask]:
    """The tasks that are not mere evaluations."""
    return [task for task in tasks if task.place.subset is not None]
