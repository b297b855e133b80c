"""Answers of an LM that is fine-tuned on selections; unigram F1."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from airrep.arrays import Rows
from airrep.corpus.corpus import Example
from airrep.corpus.words import Words, plain
from airrep.labels.fine_tuner import D, Learner, Tuner, WorkerSetup
from airrep.runtime.artifacts.digests import canonical_json, json_digest
from airrep.runtime.publishing import write_file, writing


class Answerer(Learner[D], Protocol[D]):
    """A target LM that answers; :class:`airrep.lm.model.TargetLM` is one."""

    def generate(self, examples: Sequence[Example], max_new_tokens: int, /) -> list[str]:
        """Answer the examples' prompts, always with the most likely next token."""


class Choice(NamedTuple):
    """One competitor's selection for one task, and the queries to answer after fine-tuning on it."""

    name: str
    """Title to show, such as ``"tfidf, task math, seed 0"``."""
    train: Rows
    """Rows of the training corpus, ascending; none for the LM as it is."""
    seed: int
    """Seed of the fine-tune; fixes the order of its data."""
    queries: Rows
    """Rows of the task's queries."""
    key: str
    """16 hex digits: equal keys give equal answers."""


class Job(NamedTuple):
    """One fine-tune, with the choices of its examples and seed that need answers."""

    tuned: Choice
    choices: tuple[Choice, ...]


def list_jobs(choices: Iterable[Choice]) -> list[Job]:
    """One job for each set of examples and seed, with every choice of a different key."""
    found: dict[tuple[bytes, int], dict[str, Choice]] = {}
    for choice in choices:
        found.setdefault((choice.train.tobytes(), choice.seed), {}).setdefault(choice.key, choice)
    return [Job(next(iter(each.values())), tuple(each.values())) for each in found.values()]


@dataclass(frozen=True)
class AnsweringSetup(WorkerSetup[Answerer[Any]]):
    """Settings and texts from which a worker makes its :class:`Answering`."""

    max_new_tokens: int

    def worker(self, lm: Answerer[Any]) -> "Answering":
        return Answering(lm, self)


class Answering(Tuner[Answerer[Any], AnsweringSetup]):
    """Fine-tunes on one selection after another, and answers after each."""

    def __call__(self, job: Job) -> list[list[str]]:
        """Answers to the queries of each choice of a job; errors as of :meth:`tuned`."""
        queries, longest = self.setup.queries, self.setup.max_new_tokens
        with self.tuned(job.tuned.name, job.tuned.train, job.tuned.seed) as lm:
            return [lm.generate(queries.take(choice.queries), longest) for choice in job.choices]


class AnswerFiles:
    """Finished answers in a directory, one small file for each fine-tune and task, named by its choice's key.

    A file holds the answers and a checksum over them and its key; whatever does not fit is taken for missing.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder  # made with the first answers

    def read(self, choice: Choice) -> list[str] | None:
        """The answers, or None where there is no complete file of them."""
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


_WORDS = Words()


def unigram_f1(answer: str, reference: str) -> float:
    """Agreement of two texts in their words, in any order: between 0 and 1, higher = better.

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
    """Count each word of a text."""
    return Counter(_WORDS.findall(plain(text).lower()))
