"""Which rows of the data each step of a trainer saw."""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from torch.utils.data import IterableDataset


class RecordedBatches:
    """A batch sampler that remembers what it yields, in order; all else is that of the one inside.

    A data loader asks it in this process, whatever its workers do, and ahead of the step that uses a batch: so what it
    yielded waits here until :meth:`next_rows` takes it.
    """

    def __init__(self, inside: Iterable[list[int]]) -> None:
        self.inside = inside
        self._waiting: deque[list[int]] = deque()
        self._skip = 0

    def __iter__(self) -> Iterator[list[int]]:
        self._waiting.clear()  # of an epoch that ended early
        skip, self._skip = self._skip, 0
        for number, batch in enumerate(self.inside):
            if number >= skip:  # a resumed trainer asks for these and drops them
                self._waiting.append([int(row) for row in batch])
            yield batch

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
    """Let a data loader record its batches; None if it reads a stream, whose rows have no numbers."""
    while hasattr(loader, "base_dataloader"):  # accelerate puts one around another, which does the work
        loader = loader.base_dataloader
    batches = getattr(loader, "batch_sampler", None)
    if batches is None or isinstance(getattr(loader, "dataset", None), IterableDataset):
        return None
    if isinstance(batches, RecordedBatches):  # training began anew, with a smaller batch say
        return batches
    found = RecordedBatches(batches)
    object.__setattr__(loader, "batch_sampler", found)  # DataLoader forbids it, as another order could result
    return found
