"""What every attribution method is to the rest."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from airrep.arrays import Features
from airrep.config import Settings
from airrep.corpus import Corpus, Example
from airrep.pooling import Pool

OnRows = Callable[[int], None]
"""Told how many more rows are done."""

OnProgress = Callable[[int, int | None], None]
"""Told how many rows are done, and how many there are in all where that is known."""


def count_rows(total: int, progress: OnProgress | None, done: int = 0) -> OnRows:
    """Add up what is told of more rows, and tell the sum."""

    def on_rows(more: int) -> None:
        nonlocal done
        done += more
        if progress is not None:
            progress(done, total)

    return on_rows


class Attributor(ABC):
    """A method of training data attribution, as two feature maps and a pool.

    The influence score of a training example z on a query x is ⟨φ_query(x), φ_train(z)⟩, higher = more helpful.
    A group score pools the scores of the group's members.

    Features are float32, one row for each example: a dense array ``(rows, d)`` or a CSR matrix. They depend on the
    example alone (and on what :meth:`fit` learnt), never on the other examples of the call, its order or its size.
    """

    name: ClassVar[str]
    """What users type to choose the method."""
    pool: ClassVar[Pool]
    """The method's own pool for group scores."""

    @property
    @abstractmethod
    def settings(self) -> Settings:
        """The settings it was made with."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """64 hex digits: equal exactly when the features are made in the same way.

        Raises:
            NotFittedError: the method learns from the training corpus and has not seen it.
        """

    @property
    def execution(self) -> Mapping[str, str]:
        """How features are computed, where that touches their last digits: the precision, say."""
        return {}

    @property
    def caution(self) -> str:
        """What readers of its scores should be told, in one sentence; empty if nothing."""
        return ""

    def fit(self, train: Corpus) -> None:
        """Learn from the training corpus what the features need; most methods need nothing."""

    @abstractmethod
    def encode_train(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> Features:
        """φ_train of each example, ``(rows, d)``.

        Raises:
            NotFittedError: the method learns from the training corpus and has not seen it.
        """

    def encode_queries(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> Features:
        """φ_query of each example, ``(rows, d)``; φ_train where a method does not tell the two apart.

        Raises:
            NotFittedError: the method learns from the training corpus and has not seen it.
        """
        return self.encode_train(examples, on_rows)

    def save_state(self, folder: Path) -> None:
        """Write into *folder* what :meth:`fit` learnt; most methods have nothing to write."""

    def load_state(self, folder: Path) -> None:
        """Read back what :meth:`save_state` wrote."""
