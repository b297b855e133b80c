"""Records with their places."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

from airrep.errors import DataError


class RecordSource(NamedTuple):
    """Raw records, each with the number of its line, row or record, from 1 on.

    A DataError in the place of a record is a record that could not be read.
    """

    name: str
    unit: Literal["line", "row", "record", "example"]
    records: Iterator[tuple[int, object]]
    placed: Callable[[int], str] | None = None
    """Position of a record in several files; records are numbered across them."""
    apart: tuple[str, ...] = ()
    """Files of a folder that are not read, each with why."""

    def place(self, number: int) -> str:
        """Return where a record stands, for an error message."""
        if self.placed is not None:
            return self.placed(number)
        return f"{self.name}:{number}" if self.unit == "line" else f"{self.name}: {self.unit} {number}"

    def short_place(self, number: int) -> str | None:
        """Return where a record stands, without the folders that lead there; None where no file or data set has it."""
        whole = self.place(number)
        if self.placed is not None:  # the name is that of the folder
            short = whole.removeprefix(self.name).lstrip("/\\")
        elif self.unit in ("line", "row"):
            short = whole[max(self.name.rfind("/"), self.name.rfind("\\")) + 1 :]
        else:
            return None
        return short.replace(": ", " ", 1)

    def number(self, number: int) -> str:
        """Return where a record stands, beside another of this source."""
        return f"{self.unit} {number}" if self.placed is None else self.placed(number)


def check_columns(names: Sequence[str], where: str) -> None:
    """Refuse a table in which two columns have one name: one of them would be lost."""
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise DataError(f'{where}: the column "{twice[0]}" occurs twice; unique names are expected. Rename one')
