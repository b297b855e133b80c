"""The delimiter of a table in text, told by its first records."""

import re
from collections.abc import Iterator

from airrep.corpus.schemas.forms import CHATS, PAIRS
from airrep.errors import DataError

_SIGNS = (",", ";", "\t", "|")
_QUOTED = re.compile(r'(?:^|(?<=[,;\t|]))"[^"]*(?:""[^"]*)*("|\Z)')
"""A cell in quotes, of which the last may be missing; its delimiters are text. Other quotes are text themselves."""
_DECLARED = re.compile(r'"?sep=([^"\r\n])"?\r?\n?')
"""The line by which Excel is told the delimiter."""
_NAMES = frozenset(
    [*(name for pair in PAIRS for name in pair), *CHATS, "chosen", "rejected", "text", "id", "label", "source"]
)
"""Names that a header may be told by."""
_MOST_LINES, _MOST_CHARACTERS = 200, 1 << 20


def delimiter_of(lines: Iterator[str], own: str, name: str) -> tuple[str, list[str]]:
    """The sign that separates the cells of a table, and the lines that were read to tell it.

    A line such as ``sep=;`` before the header says it. Else the first two records tell: a sign may be the one if both
    have it as often or, where there is no such sign, if the header has it. Of several, that one is taken which makes
    the most known names of the header, two at least; else the file's own; else there must be one only.

    Args:
        lines: of the table, from its first on.
        own: the delimiter that files of this suffix have.
        name: of the file, for errors.

    Returns:
        The delimiter, and the lines to be read before those that are left; one that says ``sep=`` is now blank.

    Raises:
        DataError: several signs may be the delimiter.
    """
    read: list[str] = []
    header = _next_record(lines, read)
    if declared := _DECLARED.fullmatch(header):
        return declared[1], [*read[:-1], "\n"]
    number = next((number for number, line in enumerate(read, 1) if line.strip("\r\n")), 1)
    return _told(header, _next_record(lines, read), own, f"{name}:{number}"), read


def _next_record(lines: Iterator[str], read: list[str]) -> str:
    """The next record that is not blank, with all lines over which its quoted cells go; "" if there is none.

    If a quote is not closed within bounds, it is the first of the lines. What is read is added to *read*.
    """
    record = ""
    while len(read) < _MOST_LINES and len(record) < _MOST_CHARACTERS and (line := next(lines, "")):
        read.append(line)
        record += line if record or line.strip("\r\n") else ""
        if record and not _is_open(record):
            return record
    return record[: record.find("\n") + 1] or record


def _is_open(record: str) -> bool:
    """Whether a quoted cell has no end."""
    return any(not cell[1] for cell in _QUOTED.finditer(record))


def _told(header: str, row: str, own: str, place: str) -> str:
    """The delimiter by the first two records."""
    in_header, in_row = _QUOTED.sub("", header), _QUOTED.sub("", row)
    present = [sign for sign in _SIGNS if sign in in_header]
    likely = [sign for sign in present if in_header.count(sign) == in_row.count(sign)] or present
    if len(likely) < 2:
        return likely[0] if likely else own
    known = {sign: _names_known(header, sign) for sign in likely}
    best = max(known.values())
    if best > 1 and list(known.values()).count(best) == 1:  # one name alone may be a part of a longer one
        return max(known, key=known.__getitem__)
    if own in present:
        return own
    signs = " or ".join("a tab" if sign == "\t" else f"'{sign}'" for sign in likely)
    raise DataError(f"{place}: {signs} may separate the cells; one sign is expected. Save it with commas")


def _names_known(header: str, sign: str) -> int:
    """How many cells of a header are known names, in quotes or without."""
    cells = header.rstrip("\r\n").split(sign)
    return sum(cell in _NAMES or (cell[:1] == cell[-1:] == '"' and cell[1:-1] in _NAMES) for cell in cells)
