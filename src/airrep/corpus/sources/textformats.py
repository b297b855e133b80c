"""Parses JSON Lines, JSON and CSV into records with their line numbers.

Each parser yields ``(line, record)`` with the line on which the record starts. A record that cannot
be read is yielded as a DataError if the rest of the file is readable; otherwise the DataError is raised.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import IO, Literal, NamedTuple, TextIO

from airrep.corpus.schemas.forms import CHATS, PAIRS
from airrep.corpus.schemas.values import remedy
from airrep.errors import DataError, many

Numbered = Iterator[tuple[int, object]]
"""Records, or DataErrors in place of unreadable records, each with its line or row number."""

_BOM = b"\xef\xbb\xbf"
_SPACE = " \t\n\r"
_BLANK = re.compile(f"[{_SPACE}]*")
_QUOTED = re.compile(r'[^"]*(?:""[^"]*)*')
_BUFFER = 1 << 20


class RecordSource(NamedTuple):
    """Raw records, each with the number of its line, row or record, from 1 on.

    A DataError in the place of a record is a record that could not be read.
    """

    name: str
    unit: Literal["line", "row", "record", "example"]
    records: Iterator[tuple[int, object]]
    placed: Callable[[int], str] | None = None
    """Function from a record's number to its place, for several files whose records are numbered through."""
    apart: tuple[str, ...] = ()
    """Files of a folder that are not read, each with the reason."""
    hub: str | None = None
    """Name of a data set of the Hub and the commit that was read, as ``owner/name@commit``."""

    def place(self, number: int) -> str:
        """Return where a record stands, for an error message."""
        if self.placed is not None:
            return self.placed(number)
        return f"{self.name}:{number}" if self.unit == "line" else f"{self.name}: {self.unit} {number}"

    def short_place(self, number: int) -> str | None:
        """Return where a record stands, without parent folders; None if it is not from a file or data set."""
        whole = self.place(number)
        if self.placed is not None:  # self.name is the folder
            short = whole.removeprefix(self.name).lstrip("/\\")
        elif self.unit in ("line", "row"):
            short = whole[max(self.name.rfind("/"), self.name.rfind("\\")) + 1 :]
        else:
            return None
        return short.replace(": ", " ", 1)

    def number(self, number: int) -> str:
        """Return where a record stands, for a message that already names this source."""
        return f"{self.unit} {number}" if self.placed is None else self.placed(number)


def check_columns(names: Sequence[str], where: str) -> None:
    """Raise DataError if two columns of a table have the same name, since one would be lost."""
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise DataError(f'{where}: the column "{twice[0]}" occurs twice; unique names are expected. Rename one.')


def _refuse(literal: str) -> object:
    raise ValueError(f"{literal} is not valid JSON; write null instead")


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return an object from its keys and values; ValueError for a repeated key, whose first value would be lost."""
    values = dict(pairs)
    if len(values) != len(pairs):
        counts = Counter(key for key, _ in pairs)
        twice = next(key for key, count in counts.items() if count > 1)
        raise ValueError(f"the key {json.dumps(twice[:80])} occurs twice in one object; remove one")
    return values


_DECODER = json.JSONDecoder(parse_constant=_refuse, object_pairs_hook=_object)


def too_long(longest: int) -> DataError:
    """Return the error for a record of more than *longest* bytes or characters."""
    return DataError(
        f"is longer than {longest >> 20:,} MiB, the limit for one record. Correct the file, or raise the limit with "
        "longest_line."
    )


def json_lines(stream: IO[bytes], longest: int) -> Numbered:
    """Yield the record of each line that is not blank; a DataError for a line of more than *longest* bytes."""
    for number, line in enumerate(iter(lambda: stream.readline(longest + 1), b""), 1):
        if len(line) > longest:
            while line and not line.endswith(b"\n"):
                line = stream.readline(_BUFFER)
            yield number, too_long(longest)
            continue
        content = line.removeprefix(_BOM) if number == 1 else line
        if not content.isspace():
            yield number, _parse_line(content)


def text_lines(stream: TextIO, name: str, longest: int) -> Iterator[str]:
    """Yield lines; raise DataError for a line of more than *longest* characters."""
    for number, line in enumerate(iter(lambda: stream.readline(longest + 1), ""), 1):
        if len(line) > longest:
            raise DataError(f"{name}:{number}: {too_long(longest)}")
        yield line


def json_value(text: str) -> object:
    """Parse a JSON text; ValueError if it is not valid."""
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {_reason(error)}") from None


def _parse_line(line: bytes) -> object:
    """Return the value of one line, or a DataError."""
    try:
        text = line.decode().strip(_SPACE)
        value, end = _DECODER.raw_decode(text)
        if end < len(text):
            return DataError(f"not JSON (extra data at character {end + 1}); one JSON object per line is expected.")
        return value
    except UnicodeDecodeError as error:
        what_to_do = remedy(line) or "Save the file as UTF-8."
        return DataError(f"byte {error.start + 1} of the line is not UTF-8; UTF-8 is expected. {what_to_do}")
    except (ValueError, RecursionError) as error:
        return DataError(f"not JSON ({_reason(error)}); one JSON object per line is expected.")


def _reason(error: ValueError | RecursionError) -> str:
    """Return why a text is not JSON, with a position counted in the text itself."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg.removesuffix(' at')} at character {error.pos + 1}"
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)


_TOKEN = 16
"""Longest word or escape of JSON, in characters; an error this near the end may come from a token that is cut."""


class _Scanner:
    """Reads JSON values one after another from a text stream; memory holds about one value at a time."""

    def __init__(self, stream: TextIO, name: str, longest: int) -> None:
        self._stream, self._name, self._longest = stream, name, longest
        self._buffer, self._position, self._ended = "", 0, False
        self.line = 1

    def _move(self, position: int) -> None:
        """Advance, counting lines."""
        self.line += self._buffer.count("\n", self._position, position)
        self._position = position

    def _more(self) -> bool:
        """Drop the consumed text and read on; return True if there was more."""
        rest = self._buffer[self._position :]
        if len(rest) > self._longest:
            raise DataError(f"{self._name}:{self.line}: {too_long(self._longest)}")
        added = self._stream.read(max(_BUFFER, len(rest)))  # double each time, so a long value is parsed few times
        self._buffer, self._position, self._ended = rest + added, 0, not added
        return not self._ended

    def peek(self) -> str:
        """Skip white space and return the next character, or "" at the end."""
        while True:
            space = _BLANK.match(self._buffer, self._position)
            self._move(space.end() if space else self._position)
            if self._position < len(self._buffer) or not self._more():
                return self._buffer[self._position : self._position + 1]

    def skip(self) -> None:
        self._move(self._position + 1)

    def value(self) -> object:
        """Return the value that starts at the current position."""
        while True:
            try:
                value, end = _DECODER.raw_decode(self._buffer, self._position)
            except json.JSONDecodeError as error:
                distance = error.pos - self._position  # reading on moves the position
                # More text can mend only an error near the end of the buffer, or a string that is not closed yet.
                cut = error.msg.startswith("Unterminated") or error.pos > len(self._buffer) - _TOKEN
                if not cut or not self._more():
                    self._move(self._position + distance)
                    raise self.error(error.msg) from None
            except (ValueError, RecursionError) as error:
                raise self.error(_reason(error)) from None
            else:
                if end < len(self._buffer) or not self._more():  # a number at the buffer's end may go on
                    self._move(end)
                    return value

    def error(self, reason: str) -> DataError:
        """Return the error for text that is not JSON at the current line."""
        return DataError(
            f"{self._name}:{self.line}: not JSON ({reason}); an array of objects is expected. "
            "Correct the file, or name it .jsonl if it holds one object per line."
        )


def json_array(stream: TextIO, name: str, longest: int) -> Numbered:
    """Yield the elements of a JSON array, or objects that follow each other without an array around them."""
    scanner = _Scanner(stream, name, longest)
    opening = scanner.peek()
    if opening not in ("[", "{", ""):
        raise scanner.error(f"starts with {opening!r}")
    while opening != "[" and scanner.peek():
        line = scanner.line
        yield line, scanner.value()
    if opening != "[":
        return
    scanner.skip()
    following = "," if scanner.peek() != "]" else "]"
    while following == ",":
        scanner.peek()
        line = scanner.line
        yield line, scanner.value()
        following = scanner.peek()
        if following not in (",", "]"):
            raise scanner.error("a comma or ] is missing" if following else "the array does not end")
        if following == ",":
            scanner.skip()
    scanner.skip()
    if scanner.peek():
        raise scanner.error("text after the array")


class _Empty(str):
    """An empty cell in quotes: as a prompt it is an empty text, and not a missing one."""

    __slots__ = ()


_EMPTY = _Empty()


def csv_records(lines: Iterable[str], name: str, delimiter: str, longest: int) -> Numbered:
    """Yield each row as a mapping from the header's names to its cells, as text; an empty cell is None.

    An empty prompt in quotes before a response is an empty text, as airrep exports an example without a prompt.
    Cells may be quoted (RFC 4180), and then hold delimiters, doubled quotes and line ends, at any length.
    """
    lines = iter(lines)
    delimiter, first = delimiter_of(lines, delimiter, name)
    rows = csv_rows(chain(first, lines), name, delimiter, longest)
    start, header = next(rows, (0, []))
    check_columns(header, f"{name}:{start}")
    for number, cells in rows:
        if len(cells) == len(header):
            row = {column: cell or None for column, cell in zip(header, cells, strict=True)}
            if row.get("response") and "prompt" in row and cells[header.index("prompt")] is _EMPTY:
                row["prompt"] = ""
            yield number, row
        else:
            told = f"has {many(len(cells), 'cell')}, but the header has {len(header)} columns"
            yield number, DataError(f"{told}. Put quotes around cells that hold the delimiter.")


def csv_rows(lines: Iterable[str], name: str, delimiter: str, longest: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each row that is not blank, with the line on which it starts."""
    numbered = enumerate(lines, 1)
    for number, line in numbered:
        if '"' in line:
            yield number, _quoted_row(line, numbered, f"{name}:{number}", delimiter, longest)
        elif row := _without_end(line):
            yield number, row.split(delimiter)


def _without_end(line: str) -> str:
    return line.removesuffix("\n").removesuffix("\r")


def _quoted_row(line: str, lines: Iterator[tuple[int, str]], place: str, delimiter: str, longest: int) -> list[str]:
    """Return the cells of a row that holds quotes, taking further lines while a quoted cell is open."""
    cells: list[str] = []
    while True:
        if line.startswith('"'):
            cell, line = _quoted_cell(line[1:], lines, place, longest)
            cell = cell or _EMPTY
        else:
            end = line.find(delimiter)
            cell = _without_end(line) if end < 0 else line[:end]
            line = line[len(cell) :]
        cells.append(cell)
        if not line.startswith(delimiter):
            break
        line = line[1:]
    if _without_end(line):
        raise DataError(f'{place}: text follows a closing quote. Inside a quoted cell, write every quote twice ("").')
    return cells


def _quoted_cell(line: str, lines: Iterator[tuple[int, str]], place: str, longest: int) -> tuple[str, str]:
    """Return the cell whose opening quote stands before ``line``, and what follows its closing quote."""
    parts, length = [], 0
    while True:
        inside = _QUOTED.match(line)
        end = inside.end() if inside else 0
        parts.append(line[:end])
        length += end
        if length > longest:
            raise DataError(f"{place}: {too_long(longest)}")
        if end < len(line):
            return "".join(parts).replace('""', '"'), line[end + 1 :]
        _, line = next(lines, (0, ""))
        if not line:
            raise DataError(f"{place}: a quoted cell is never closed. Add the closing quote.")


_SIGNS = (",", ";", "\t", "|")
_QUOTED_CELL = re.compile(r'(?:^|(?<=[,;\t|]))"[^"]*(?:""[^"]*)*("|\Z)')
"""A quoted cell, whose closing quote may be missing. Quotes elsewhere are plain text."""
_DECLARED = re.compile(r'"?sep=([^"\r\n])"?\r?\n?')
"""First line that declares the delimiter, as Excel reads it."""
_NAMES = frozenset(
    [*(name for pair in PAIRS for name in pair), *CHATS, "chosen", "rejected", "text", "id", "label", "source"]
)
"""Column names that identify a header."""
_MOST_LINES, _MOST_CHARACTERS = 200, 1 << 20


def delimiter_of(lines: Iterator[str], own: str, name: str) -> tuple[str, list[str]]:
    """Return the delimiter of a table, and the lines that were read to find it.

    A first line such as ``sep=;`` declares it and is returned blank. Otherwise the candidates are the delimiters that
    the first two records contain equally often or, if there are none, those in the header. Of several candidates, the
    one that gives the most known column names, at least two, wins; else *own*, if in the header; else DataError.
    """
    read: list[str] = []
    header = _next_record(lines, read)
    if declared := _DECLARED.fullmatch(header):
        return declared[1], [*read[:-1], "\n"]
    number = next((number for number, line in enumerate(read, 1) if line.strip("\r\n")), 1)
    return _told(header, _next_record(lines, read), own, f"{name}:{number}"), read


def _next_record(lines: Iterator[str], read: list[str]) -> str:
    """Return the next non-blank record with all lines of its quoted cells; its first line if a quote stays open."""
    record = ""
    while len(read) < _MOST_LINES and len(record) < _MOST_CHARACTERS and (line := next(lines, "")):
        read.append(line)
        record += line if record or line.strip("\r\n") else ""
        if record and all(cell[1] for cell in _QUOTED_CELL.finditer(record)):  # each quoted cell has an end
            return record
    return record[: record.find("\n") + 1] or record


def _told(header: str, row: str, own: str, place: str) -> str:
    """Return the delimiter found in the first two records; see :func:`delimiter_of`."""
    in_header, in_row = _QUOTED_CELL.sub("", header), _QUOTED_CELL.sub("", row)
    present = [sign for sign in _SIGNS if sign in in_header]
    likely = [sign for sign in present if in_header.count(sign) == in_row.count(sign)] or present
    if len(likely) < 2:
        return likely[0] if likely else own
    known = {}  # names in the header, quoted or not
    for sign in likely:
        cells = header.rstrip("\r\n").split(sign)
        known[sign] = sum(cell in _NAMES or (cell[:1] == cell[-1:] == '"' and cell[1:-1] in _NAMES) for cell in cells)
    best = max(known.values())
    if best > 1 and list(known.values()).count(best) == 1:  # one name alone may be a part of a longer one
        return max(known, key=known.__getitem__)
    if own in present:
        return own
    signs = " or ".join("a tab" if sign == "\t" else f"'{sign}'" for sign in likely)
    raise DataError(f"{place}: the delimiter is unclear: it may be {signs}. Save the file with commas.")
