"""Fine-tune one LM on one subset after another."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import numpy as np
from jaxtyping import Float32

from airrep.arrays import Rows
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import ArtifactError, TrainingError
from airrep.labels.ledger import QueryLosses
from airrep.labels.plan import SubsetPlan
from airrep.labels.tasks import LabelTask, fine_tune_seed
from airrep.lm.settings import FineTuneSettings, LmSettings

if TYPE_CHECKING:
    from airrep.lm.model import TargetLM

D = TypeVar("D")
L = TypeVar("L", bound="Learner[Any]")
S = TypeVar("S", bound="WorkerSetup[Any]")


class Learner(Protocol[D]):
    """What the farm asks of a target LM; :class:`airrep.lm.model.TargetLM` is one."""

    @property
    def name(self) -> str:
        """What people call it."""

    @property
    def fingerprint(self) -> str:
        """64 hex digits over all that decides its losses."""

    @property
    def reading(self) -> Mapping[str, Any]:
        """Settings of how it reads examples, part of the fingerprint; by name, for a refusal to tell."""

    def unusable(self, examples: Sequence[Example], /) -> Mapping[int, str]:
        """Row and reason of each example that :meth:`tokenise` refuses; the reason names the example."""

    def tokenise(self, examples: Sequence[Example], /) -> D:
        """Examples as token ids."""

    def fine_tune(self, documents: D, settings: FineTuneSettings, seed: int, /) -> object:
        """Train in place."""

    def losses(self, documents: D, /) -> Float32[np.ndarray, " rows"]:
        """Mean nats per response token, row by row."""

    def reset(self) -> None:
        """Put the base weights back."""


@dataclass(frozen=True)
class LoadLm:
    """Loads the target LM of some settings."""

    settings: LmSettings

    def __call__(self) -> "TargetLM":
        from airrep.lm.model import load_lm

        return load_lm(self.settings)

    @property
    def anywhere(self) -> "LoadLm":
        """The same, for asking what it is on a machine without its device."""
        return LoadLm(self.settings.model_copy(update={"device": "cpu"}))


def loader(lm: LmSettings) -> LoadLm:
    """What loads the LM in every worker, with the precision that this machine would choose."""
    if lm.precision != "auto":
        return LoadLm(lm)
    from airrep.runtime.devices import resolve_device, resolve_precision

    precision = resolve_precision("auto", resolve_device(lm.device))
    return LoadLm(lm.model_copy(update={"precision": precision}))


@dataclass(frozen=True)
class WorkerSetup(ABC, Generic[L]):
    """Makes, in a worker, what fine-tunes and measures."""

    load: Callable[[], L]
    fine_tune: FineTuneSettings
    train: Corpus
    queries: Corpus
    fingerprint: str
    """Of the LM that is expected."""

    def __call__(self) -> Callable[[Any], Any]:
        """Load the LM.

        Raises:
            ArtifactError: it is another one here.
        """
        lm = self.load()
        if lm.fingerprint != self.fingerprint:
            raise ArtifactError(
                f"lm {lm.name}: is another one in a worker ({lm.fingerprint[:12]}; expected {self.fingerprint[:12]}). "
                "Put the same files on every machine."
            )
        return self.worker(lm)

    @abstractmethod
    def worker(self, lm: L) -> Callable[[Any], Any]:
        """What does the tasks, with an LM that is loaded."""


class Tuner(Generic[L, S]):
    """Fine-tunes one LM on one set of examples after another; the base weights are put back before each."""

    def __init__(self, lm: L, setup: S) -> None:
        """Take an LM that is loaded."""
        self.lm, self.setup = lm, setup

    @contextmanager
    def tuned(self, name: str, rows: Rows, seed: int) -> Iterator[L]:
        """The LM after one fine-tune; as it is, where there are no rows to train on.

        Raises:
            TrainingError: the loss is not finite, or memory is short, then or while it is measured.
        """
        try:
            self.lm.reset()
            if len(rows):
                documents = self.lm.tokenise(self.setup.train.take(rows))
                self.lm.fine_tune(documents, self.setup.fine_tune, seed)
            yield self.lm
        except MemoryError as error:
            raise TrainingError(f"{name}: there is not enough memory. Take fewer workers.") from error


@dataclass(frozen=True)
class Setup(WorkerSetup[Learner[Any]]):
    """Makes, in a worker, what does the tasks of labels."""

    plan: SubsetPlan

    def worker(self, lm: Learner[Any]) -> "FineTuner":
        return FineTuner(lm, self)


class FineTuner(Tuner[Learner[Any], Setup]):
    """Losses after one fine-tune on a subset after another."""

    _asked: tuple[int, Any] | None = None

    def __call__(self, task: LabelTask) -> QueryLosses:
        """The losses after one fine-tune.

        Raises:
            TrainingError: a loss is not finite, or memory is short.
        """
        plan, place = self.setup.plan, task.place
        rows = np.empty(0, np.int64) if place.subset is None else plan.subset_rows(place.instance, place.subset)
        with self.tuned(str(place), rows, fine_tune_seed(plan, place)) as lm:
            losses = lm.losses(self._queries(place.instance))
        if not np.isfinite(losses).all():
            raise TrainingError(f"{place}: the loss of a query is not finite. Lower the learning rate.")
        return np.ascontiguousarray(losses, np.float32)

    def _queries(self, number: int) -> Any:
        """The queries of an instance as token ids, kept until another instance's are asked for."""
        if self._asked is None or self._asked[0] != number:
            rows = self.setup.plan.query_rows(number)
            self._asked = (number, self.lm.tokenise(self.setup.queries.take(rows)))
        return self._asked[1]
