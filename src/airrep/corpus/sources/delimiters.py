"""The delimiter of a table in text, told by its first lines."""

import re

from airrep.errors import DataError

_SIGNS = (",", ";", "\t", "|")
_QUOTED = re.compile('"[^"]*"')
"""A cell in quotes, or a part of one between doubled quotes; its delimiters are text."""


def delimiter_of(header: str, row: str, own: str, name: str) -> str:
    """The sign that separates the cells of a table.

    It is the file's own where the header has it and the first row as often; else the only other one that stands in
    both as often; else the file's own where the header has it at all; else the only other one of the header.

    Args:
        header: the first line.
        row: the second line, or nothing.
        own: the delimiter that files of this suffix have.
        name: of the file, for errors.

    Raises:
        DataError: several signs may be the delimiter.
    """
    in_header, in_row = _QUOTED.sub("", header), _QUOTED.sub("", row)
    present = [sign for sign in _SIGNS if sign in in_header]
    even = [sign for sign in present if in_header.count(sign) == in_row.count(sign)]
    if own in even or not present:
        return own
    if len(even) == 1:
        return even[0]
    if own in present:
        return own
    if len(present) > 1:
        signs = " or ".join("a tab" if sign == "\t" else f"'{sign}'" for sign in even or present)
        raise DataError(f"{name}:1: {signs} may separate the cells; one sign is expected. Save it with commas")
    return present[0]
