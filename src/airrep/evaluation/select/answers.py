"""Fine-tune one LM on one selection after another; let it answer."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from airrep.arrays import Rows
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import TrainingError
from airrep.labels.fine_tuner import Learner, check_same, loader
from airrep.lm.settings import FineTuneSettings, LmSettings
from airrep.runtime.artifacts import canonical_json, json_digest, write_file, writing

D = TypeVar("D")
KEY_DIGITS = 16


class Answerer(Learner[D], Protocol[D]):
    """A target LM that answers; :class:`airrep.lm.model.TargetLM` is one."""

    def generate(self, examples: Sequence[Example], max_new_tokens: int, /) -> list[str]:
        """Answer the examples' prompts, always with the most likely next token."""


@dataclass(frozen=True)
class LoadAnswerer:
    """Loads the target LM of some settings."""

    settings: LmSettings

    def __call__(self) -> Answerer[Any]:
        from airrep.lm.model import load_lm

        return load_lm(self.settings)

    @property
    def anywhere(self) -> "LoadAnswerer":
        """The same, for asking what it is on a machine without its device."""
        return LoadAnswerer(self.settings.model_copy(update={"device": "cpu"}))


def answerer(lm: LmSettings) -> LoadAnswerer:
    """What loads the LM in every worker, with the precision that this machine would choose."""
    return LoadAnswerer(loader(lm).settings)


@dataclass(frozen=True)
class Questions:
    """The queries of one task, to be answered by one fine-tuned LM."""

    task: str
    rows: Rows
    """Of the queries."""
    key: str
    """16 hex digits: equal keys give equal answers."""


@dataclass(frozen=True, eq=False)
class Job:
    """One fine-tune and the answers after it."""

    name: str
    """For people, such as ``"tfidf, task math, seed 0"``."""
    train: Rows
    """Rows of the training examples; none for the LM as it is."""
    seed: int
    """Of the fine-tune; fixes the order of its data."""
    questions: tuple[Questions, ...]


@dataclass(frozen=True)
class AnsweringSetup:
    """Makes, in a worker, what does the jobs."""

    load: Callable[[], Answerer[Any]]
    fine_tune: FineTuneSettings
    max_new_tokens: int
    train: Corpus
    queries: Corpus
    fingerprint: str
    """Of the LM that is expected."""

    def __call__(self) -> "Answering":
        """Load the LM.

        Raises:
            ArtifactError: it is another one here.
        """
        lm = self.load()
        check_same(lm, self.fingerprint)
        return Answering(lm, self)


class Answering:
    """Fine-tunes one LM on one selection after another; the base weights are put back before each."""

    def __init__(self, lm: Answerer[Any], setup: AnsweringSetup) -> None:
        self._lm = lm
        self._setup = setup

    def __call__(self, job: Job) -> list[list[str]]:
        """The answers to each task's queries after one fine-tune.

        Raises:
            TrainingError: the loss is not finite, or memory is short.
        """
        try:
            return self._answers(job)
        except MemoryError as error:
            raise TrainingError(f"{job.name}: there is not enough memory. Take fewer workers.") from error

    def _answers(self, job: Job) -> list[list[str]]:
        setup = self._setup
        self._lm.reset()
        if len(job.train):
            documents = self._lm.tokenise(setup.train.take(job.train))
            self._lm.fine_tune(documents, setup.fine_tune, job.seed)
        asked = (setup.queries.take(each.rows) for each in job.questions)
        return [self._lm.generate(queries, setup.max_new_tokens) for queries in asked]


class AnswerFiles:
    """Finished answers, one small file for each fine-tune and task, named by what decides them.

    A file holds the answers and a checksum over them and its key; whatever does not fit is taken for missing.
    """

    def __init__(self, folder: Path) -> None:
        """Look into a directory, which need not be there."""
        self._folder = folder

    def read(self, questions: Questions) -> list[str] | None:
        """The answers, or None where there is no whole file of them."""
        try:
            record = json.loads(self._path(questions.key).read_bytes())
            answers, checksum = record["answers"], record["sha256"]
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
        whole = checksum == json_digest([questions.key, answers]) and len(answers) == len(questions.rows)
        return answers if whole else None

    def write(self, questions: Questions, answers: Sequence[str]) -> None:
        """Keep answers: a reader sees all of the file or none.

        Raises:
            ArtifactError: the operating system refused.
        """
        path = self._path(questions.key)
        with writing(path):
            self._folder.mkdir(parents=True, exist_ok=True)
        record = {"answers": list(answers), "sha256": json_digest([questions.key, list(answers)])}
        write_file(path, canonical_json(record))

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.json"


def answers_key(settings: str, train: Sequence[str], seed: int, queries: Sequence[str]) -> str:
    """The key of some answers.

    Args:
        settings: digest of the LM, its fine-tuning and the length of answers.
        train: content hashes of the training examples, in the order in which the LM is given them.
        seed: of the fine-tune.
        queries: content hashes of the queries, in order.
    """
    return json_digest([settings, list(train), seed if train else None, list(queries)])[:KEY_DIGITS]
