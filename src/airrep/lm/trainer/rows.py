"""Which rows of the data each step of a trainer saw."""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from torch.utils.data import IterableDataset


class RecordedBatches:
    """A batch sampler that remembers what it yields, in order; all else is that of the one inside.

    A data loader asks it in this process, whatever its workers do, and ahead of the step that uses a batch: so what it
    yielded waits here until :meth:`next_rows` takes it.
    """

    def __init__(self, inside: Iterable[list[int]], numbers: Any = None) -> None:
        """*numbers* of the rows in the data as they were given, if the trainer left some out or moved them."""
        self.inside = inside
        self.numbers = numbers
        self._waiting: deque[list[int]] = deque()
        self._skip = 0

    def __iter__(self) -> Iterator[list[int]]:
        self._waiting.clear()  # of an epoch that ended early
        skip, self._skip = self._skip, 0
        for number, batch in enumerate(self.inside):
            if number >= skip:  # a resumed trainer asks for these and drops them
                self._waiting.append([self._number(row) for row in batch])
            yield batch

    def _number(self, row: int) -> int:
        return int(row) if self.numbers is None else int(self.numbers[row])

    def __len__(self) -> int:
        return len(self.inside)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        if name == "inside":
            raise AttributeError(name)
        return getattr(self.inside, name)

    def skip(self, count: int) -> None:
        """Leave out the first batches of the next pass."""
        self._skip = count

    def next_rows(self) -> list[int]:
        """Rows of the batch that was used next; none if it is not known."""
        return self._waiting.popleft() if self._waiting else []


def record_batches(loader: Any) -> RecordedBatches | None:
    """Let a data loader record its batches; None if it reads a stream, whose rows have no numbers.

    trl maps a data set, which keeps its rows and their order, and then drops some and may shuffle the others. datasets
    holds both as a list of rows that are left.
    """
    while hasattr(loader, "base_dataloader"):  # accelerate puts one around another, which does the work
        loader = loader.base_dataloader
    batches = getattr(loader, "batch_sampler", None)
    if batches is None or isinstance(getattr(loader, "dataset", None), IterableDataset):
        return None
    if isinstance(batches, RecordedBatches):  # training began anew, with a smaller batch say
        return batches
    found = RecordedBatches(batches, given_rows(loader.dataset))
    object.__setattr__(loader, "batch_sampler", found)  # DataLoader forbids it, as another order could result
    return found


def given_rows(dataset: Any) -> np.ndarray | None:
    """For each row of a data set of datasets, its row in the table that it was filtered or shuffled from; None: equal.

    Example:
        >>> import datasets
        >>> given_rows(datasets.Dataset.from_dict({"a": [1, 2, 3]}).filter(lambda row: row["a"] > 1)).tolist()
        [1, 2]
    """
    left = getattr(dataset, "_indices", None)  # nothing public tells it
    return None if left is None else np.asarray(left.column(0).to_numpy())


def rows_given(dataset: Any) -> int | None:
    """Rows of the table that a data set was filtered from; None where it has no length."""
    if given_rows(dataset) is not None:
        return len(dataset.data)
    return len(dataset) if hasattr(dataset, "__len__") else None
