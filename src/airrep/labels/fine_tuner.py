"""The worker that fine-tunes an LM on one subset after another."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from airrep.arrays import Rows
from airrep.corpus.corpus import Corpus, Example
from airrep.errors import ArtifactError, TrainingError
from airrep.labels.ledger import QueryLosses
from airrep.labels.plan import LabelTask, SubsetPlan, fine_tune_seed
from airrep.lm.settings import FineTuneSettings, LmSettings
from airrep.runtime.engine import Engine, InProcess
from airrep.shapes import Float32

if TYPE_CHECKING:
    from airrep.lm.model import TargetLM

D = TypeVar("D")
L = TypeVar("L", bound="Learner[Any]")
S = TypeVar("S", bound="WorkerSetup[Any]")


class Learner(Protocol[D]):
    """Interface of a target LM for labels; :class:`airrep.lm.model.TargetLM` is one."""

    @property
    def name(self) -> str:
        """Hub id, or path of its folder."""

    @property
    def fingerprint(self) -> str:
        """64 hex digits over everything that decides its losses."""

    @property
    def reading(self) -> Mapping[str, Any]:
        """Settings of how the LM reads examples, by name; part of the fingerprint, and named in errors."""

    def unusable(self, examples: Sequence[Example], /) -> Mapping[int, str]:
        """Map the row of each example that :meth:`tokenise` refuses to the reason, which names the example."""

    def tokenise(self, examples: Sequence[Example], /) -> D:
        """Return examples as token ids."""

    def fine_tune(self, documents: D, settings: FineTuneSettings, seed: int, /) -> object:
        """Train in place."""

    def losses(self, documents: D, /) -> Float32[np.ndarray, " rows"]:
        """Return the loss of each row, in mean nats per response token."""

    def reset(self) -> None:
        """Put the base weights back."""


@dataclass(frozen=True)
class LoadLm:
    """Loads the target LM of some settings."""

    settings: LmSettings

    def __call__(self) -> "TargetLM":
        from airrep.lm.model import load_lm

        return load_lm(self.settings)


class FirstLoad(NamedTuple, Generic[L]):
    """The target LM, loaded in this process before any work."""

    lm: L
    load: Callable[[], L]
    """Function that loads the LM in a worker."""
    name: str
    """Hub id, or the last part of a folder's path: results may be published, and paths are private."""
    precision: str
    here: bool
    """True if tasks run in this process, so that they use :attr:`lm`."""


def load_first(lm: LmSettings | Callable[[], L], engine: Engine) -> FirstLoad[L]:
    """Load the target LM; on the CPU if the engine has workers, since they need the device."""
    load: Any = _loader(lm) if isinstance(lm, LmSettings) else lm
    here, precision = isinstance(engine, InProcess), "float32"
    first = load
    if isinstance(load, LoadLm):
        precision = load.settings.precision
        first = load if here else LoadLm(load.settings.model_copy(update={"device": "cpu"}))
    loaded = first()
    name = Path(loaded.name).name if Path(loaded.name).is_absolute() else loaded.name
    return FirstLoad(loaded, load, name, precision, here)


def _loader(lm: LmSettings) -> LoadLm:
    """Return a loader for all workers, with the precision that this machine chooses, so that all use the same one."""
    if lm.precision != "auto":
        return LoadLm(lm)
    from airrep.runtime.devices import resolve_device, resolve_precision

    precision = resolve_precision("auto", resolve_device(lm.device))
    return LoadLm(lm.model_copy(update={"precision": precision}))


def rendering_of(lm: Learner[Any], *corpora: Corpus) -> Mapping[str, str]:
    """Return how prompts are read where the LM's fingerprint does not cover it; see :meth:`TargetLM.rendering`."""
    tell = getattr(lm, "rendering", None)  # a custom learner may lack it
    return {} if tell is None else {name: value for one in corpora for name, value in tell(one).items()}


@dataclass(frozen=True)
class WorkerSetup(Generic[L]):
    """Loads the LM in a worker, and makes the function that does tasks there."""

    load: Callable[[], L]
    fine_tune: FineTuneSettings
    train: Corpus
    queries: Corpus
    fingerprint: str
    """Expected fingerprint of the LM."""

    worker: ClassVar[type[Any]]
    """Type of the function that does tasks; it is made from a loaded LM and this setup."""

    def __call__(self) -> Any:
        """Load the LM and return the function that does tasks (ArtifactError: this worker loaded another LM)."""
        lm = self.load()
        if lm.fingerprint != self.fingerprint:
            raise ArtifactError(
                f"lm {lm.name}: a worker and the main process loaded different LMs (fingerprints {lm.fingerprint[:12]} "
                f"and {self.fingerprint[:12]}). Put the same files on every machine."
            )
        return self.worker(lm, self)


class Tuner(Generic[L, S]):
    """Fine-tunes one LM on one set of examples after another; the base weights are put back before each."""

    def __init__(self, lm: L, setup: S) -> None:
        self.lm, self.setup = lm, setup

    @contextmanager
    def tuned(self, name: str, rows: Rows, seed: int) -> Iterator[L]:
        """Yield the LM after one fine-tune, or the base LM if there are no rows (TrainingError: it cannot be tuned)."""
        try:
            self.lm.reset()
            if len(rows):
                documents = self.lm.tokenise(self.setup.train.take(rows))
                self.lm.fine_tune(documents, self.setup.fine_tune, seed)
            yield self.lm
        except MemoryError as error:
            raise TrainingError(f"{name}: there is not enough memory. Use fewer workers.") from error


class FineTuner(Tuner[Learner[Any], "LabelSetup"]):
    """Does label tasks: the losses of queries after a fine-tune on a subset."""

    _tokenised: tuple[int, Any] | None = None

    def __call__(self, task: LabelTask) -> QueryLosses:
        """Return the losses of queries after one fine-tune; errors are those of :meth:`tuned`."""
        plan, place = self.setup.plan, task.place
        rows = np.empty(0, np.int64) if place.subset is None else plan.subset_rows(place.instance, place.subset)
        with self.tuned(str(place), rows, fine_tune_seed(plan, place)) as lm:
            losses = lm.losses(self._queries(place.instance))
        if not np.isfinite(losses).all():
            raise TrainingError(f"{place}: the loss of a query is not finite. Lower the learning rate.")
        return np.ascontiguousarray(losses, np.float32)

    def _queries(self, number: int) -> Any:
        # Tasks come instance by instance, so the queries of one are tokenised once.
        if self._tokenised is None or self._tokenised[0] != number:
            rows = self.setup.plan.query_rows(number)
            self._tokenised = (number, self.lm.tokenise(self.setup.queries.take(rows)))
        return self._tokenised[1]


@dataclass(frozen=True)
class LabelSetup(WorkerSetup[Learner[Any]]):
    """Loads the LM in a worker, for label tasks."""

    plan: SubsetPlan
    worker = FineTuner
