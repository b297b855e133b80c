"""The two parts of a run: a teacher's labels, then losses."""

from collections.abc import Sequence
from dataclasses import dataclass

from airrep.labels.teaching import Teaching
from airrep.runtime.seeding import stream_seed
from airrep.training.examples import Taught
from airrep.training.settings import TrainingSettings
from airrep.training.train_batches import Batches


@dataclass(frozen=True, eq=False)
class Phase:
    """Steps on labels of one kind, with their own warm-up, schedule and moments."""

    taught: Sequence[Taught]
    settings: TrainingSettings
    """With the steps and learning rates of this part."""
    batches: Batches

    @classmethod
    def of_labels(cls, taught: Sequence[Taught], settings: TrainingSettings) -> "Phase":
        """Steps on real labels."""
        return cls(taught, settings, _batches(taught, settings, settings.subsets_per_step, settings.seed))

    @classmethod
    def of_teaching(cls, taught: Sequence[Taught], settings: TrainingSettings, teaching: Teaching) -> "Phase":
        """Steps on a teacher's labels."""
        head, rate = settings.head_learning_rate, settings.learning_rate * teaching.rate
        changes = {
            "steps": teaching.steps,
            "learning_rate": rate,
            "head_learning_rate": None if head is None else head * teaching.rate,
        }
        drawn = teaching.subsets_per_step(settings.subsets_per_step)
        seed = stream_seed(settings.seed, "teacher")
        return cls(taught, settings.model_copy(update=changes), _batches(taught, settings, drawn, seed))

    def pooled(self, instance: int) -> TrainingSettings:
        """Settings with the pool of an instance: of single examples every pool is their score, and the mean stays
        exact however much scores differ.
        """
        single = (self.taught[instance].subsets.sizes == 1).all()
        return self.settings.model_copy(update={"pool": "mean"}) if single else self.settings


def _batches(taught: Sequence[Taught], settings: TrainingSettings, subsets: int | Sequence[int], seed: int) -> Batches:
    return Batches(
        [instance.usable_queries for instance in taught],
        [instance.usable_subsets for instance in taught],
        settings.queries_per_step,
        subsets,
        seed,
    )
