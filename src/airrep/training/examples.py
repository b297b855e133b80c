"""Labelled instances as token ids, and the draws of them that steps see."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, overload

import numpy as np

from airrep.arrays import GroupScores, Rows
from airrep.corpus.corpus import Example
from airrep.corpus.views import View, seen
from airrep.encoder.networks.packed import Trainable
from airrep.encoder.tokens import check_texts
from airrep.errors import DataError, TrainingError, many
from airrep.evaluation.statistics.labels import Scale, normalise_losses
from airrep.labels.labels import LabelledInstance
from airrep.runtime.seeding import stream
from airrep.scoring.groups import Groups
from airrep.shapes import Int64
from airrep.training.linear.weights import GivenScores


class Texts(Sequence[Int64[np.ndarray, " length"]]):
    """Token ids of different texts, ``(t,)`` int32, laid end to end; ``(texts + 1,)`` places where each begins."""

    def __init__(self, ids: np.ndarray, offsets: Rows) -> None:
        self.ids, self.offsets, self.lengths = ids, offsets, np.diff(offsets)

    def __len__(self) -> int:
        return len(self.lengths)

    @overload
    def __getitem__(self, row: int) -> Int64[np.ndarray, " length"]: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[Int64[np.ndarray, " length"]]: ...
    def __getitem__(self, row: int | slice) -> Int64[np.ndarray, " length"] | Sequence[Int64[np.ndarray, " length"]]:
        """Return the ids of one text, int64, or a list of them for a slice."""
        if isinstance(row, slice):
            return [self[number] for number in range(*row.indices(len(self)))]
        return self.ids[self.offsets[row] : self.offsets[row + 1]].astype(np.int64)


@dataclass(frozen=True, eq=False)
class Prepared:
    """An instance whose examples are rows of :class:`Texts`."""

    name: str
    train: Rows
    """``(n,)`` the text of each example of the train pool; −1 if it is in no subset and so not encoded."""
    queries: Rows
    """``(q,)`` the text of each query."""
    subsets: Groups
    """``(m,)`` as rows of the train pool."""
    losses: GroupScores
    """``(q, m)``, NaN where missing."""
    given: GivenScores | None = field(default=None, kw_only=True)
    """``(c, q, m)`` group scores of the given channels, in units of their standard deviations."""

    @property
    def query_texts(self) -> list[int]:
        """The text of each query."""
        return [int(row) for row in self.queries]

    @property
    def texts(self) -> Rows:
        """All texts of the instance, ascending."""
        return np.unique(np.concatenate([self.queries, self.train[self.train >= 0]]))

    @property
    def usable_subsets(self) -> Rows:
        """Subsets with a loss."""
        return np.flatnonzero(~np.isnan(self.losses).all(axis=0))


@dataclass(frozen=True, eq=False)
class TaughtInstance(Prepared):
    """An instance to learn from."""

    labels: GroupScores
    """``(q, m)`` r̂, higher = better; NaN where missing or left out."""
    usable_queries: Rows
    """Queries whose loss varies."""

    @property
    def usable_subsets(self) -> Rows:
        """Subsets with a label."""
        return np.flatnonzero(~np.isnan(self.labels).all(axis=0))

    @property
    def widest(self) -> float:
        """Largest difference of two labels of a query."""
        known = self.labels[self.usable_queries]
        return float((np.nanmax(known, axis=1) - np.nanmin(known, axis=1)).max(initial=0.0))


def check_pairs(instances: Sequence[TaughtInstance], t_min: float) -> None:
    """Raise TrainingError if no two labels of a query are far enough apart to be ranked: no step would learn."""
    widest = max((one.widest for one in instances), default=t_min)
    if not widest >= t_min:
        names = ", ".join(one.name for one in instances)
        raise TrainingError(
            f"instance {names} (train/query split): the labels (scaled losses) of each query differ by at most "
            f"{widest:.2g}, but training needs differences of t_min={t_min:g} or more. Lower t_min, or measure more "
            "subsets."
        )


class Collector:
    """Collects the different texts of instances; the encoder renders the part of each example that *view* names."""

    def __init__(self, encoder: Trainable, view: View = "whole") -> None:
        self._encoder, self._view = encoder, view
        self._rows: dict[str, int] = {}

    def prepare(self, instance: LabelledInstance) -> Prepared:
        """Add the texts of an instance."""
        used = np.unique(instance.subsets.rows)
        train = np.full(len(instance.train), -1, np.int64)
        train[used] = self._add(instance.train.take(used), self._encoder.prompts.train)
        queries = self._add(instance.queries, self._encoder.prompts.query)
        return Prepared(instance.name, train, queries, instance.subsets, instance.losses)

    def prepare_taught(self, instance: LabelledInstance, scale: Scale) -> TaughtInstance:
        """Add the texts of an instance to learn from (TrainingError: its labels rank nothing)."""
        if len(instance.subsets) < 2:
            raise TrainingError(
                f"instance {instance.name} (train/query split): has only {many(len(instance.subsets), 'subset')}, but "
                "training compares the losses of at least two. Measure losses of more subsets."
            )
        try:
            made = normalise_losses(instance.losses, scale)
        except DataError as error:
            raise TrainingError(f"instance {instance.name} (train/query split): {error}") from error
        plain = self.prepare(instance)
        kept = np.flatnonzero(made.kept)
        return TaughtInstance(plain.name, plain.train, plain.queries, plain.subsets, plain.losses, made.labels, kept)

    def _add(self, examples: Iterable[Example], prompt: str) -> Rows:
        # No example of a corpus has a blank prompt or response, so every view shows something.
        texts = [prompt + self._encoder.render(seen(example, self._view)) for example in examples]
        check_texts(texts)
        return np.array([self._rows.setdefault(text, len(self._rows)) for text in texts], np.int64)

    def texts(self) -> Texts:
        """Return token ids of all texts so far."""
        sequences = self._encoder.token_ids(list(self._rows))
        offsets = np.cumsum([0, *map(len, sequences)], dtype=np.int64)
        ids = np.concatenate([np.empty(0, np.int64), *sequences]).astype(np.int32)
        return Texts(ids, offsets)


class StepDraw(NamedTuple):
    """The instance, queries and subsets of one step."""

    instance: int
    queries: Rows
    """Rows of the instance's queries, ascending."""
    subsets: Rows
    """Numbers of the instance's subsets, ascending."""


class Cycle:
    """Shuffled passes over some items, dealt out a fixed number at a time.

    Every item comes once in each pass, and no item twice in one deal: where a deal goes over the end of a pass, it
    takes from the next pass only what it does not hold yet. Shuffles come from the stream *name* of the seed.
    """

    def __init__(self, items: Rows, size: int, seed: int, *name: str | int) -> None:
        self._items, self._size = np.asarray(items, np.int64), min(size, len(items))
        self._seed, self._name = seed, name
        self._dealt, self._passes, self._left = 0, 0, self._items[:0]

    def deal(self, number: int) -> Rows:
        """Return the items of deal *number*, counted from 0, ascending; they depend on no earlier call."""
        if number < self._dealt:  # a deal depends on the deals before it: begin again
            self._dealt, self._passes, self._left = 0, 0, self._items[:0]
        while self._dealt < number:
            self._next()
        return np.sort(self._next())

    def _next(self) -> Rows:
        self._dealt += 1
        chosen, self._left = self._left[: self._size], self._left[self._size :]
        short = self._size - len(chosen)
        if not short:
            return chosen
        shuffled = stream(self._seed, *self._name, self._passes).permutation(self._items)
        self._passes += 1
        more = shuffled[~np.isin(shuffled, chosen)][:short]
        self._left = shuffled[~np.isin(shuffled, more)]
        return np.concatenate([chosen, more])


class Batches:
    """Draws of all steps: shuffled passes over instances and, within each, over its given *queries* and *subsets*."""

    def __init__(
        self, queries: Sequence[Rows], subsets: Sequence[Rows], queries_per_step: int, subsets_per_step: int, seed: int
    ) -> None:
        self._seed, self._count = seed, len(queries)
        self._queries = [Cycle(rows, queries_per_step, seed, "queries", i) for i, rows in enumerate(queries)]
        self._subsets = [Cycle(rows, subsets_per_step, seed, "subsets", i) for i, rows in enumerate(subsets)]

    def draw(self, step: int) -> StepDraw:
        """Return the draw of *step*, counted from 0; it depends on no earlier call."""
        turn, place = divmod(step, self._count)
        instance = int(stream(self._seed, "instances", turn).permutation(self._count)[place])
        return StepDraw(instance, self._queries[instance].deal(turn), self._subsets[instance].deal(turn))
