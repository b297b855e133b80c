"""The likely encoding of text that is not UTF-8, and how to convert it."""

_STARTS = (
    (b"\xff\xfe\0\0", "UTF-32"),
    (b"\0\0\xfe\xff", "UTF-32"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
)
"""Byte order marks; that of UTF-32 begins with one of UTF-16."""
_TYPOGRAPHIC = frozenset("‘’‚“”„–—…•·€£¥¢©®™°«»‹›¡¿§¶´ª\xba²³¹¼½¾×÷±\xa0")
_WESTERN = 4
"""No more than one letter in so many has an accent in Western texts, single words aside; Cyrillic has none without."""


def wide_encoding(start: bytes) -> str | None:
    """UTF-16 or UTF-32 by a file's first four bytes; None for what may be UTF-8."""
    marked = next((name for mark, name in _STARTS if start.startswith(mark)), None)
    if marked is not None or len(start) < 4:
        return marked
    zeros = [byte == 0 for byte in start]  # of ASCII each character has a byte that is 0
    if zeros == [False, True, False, True]:
        return "UTF-16LE"
    return "UTF-16BE" if zeros == [True, False, True, False] else None


def conversion(encoding: str) -> str:
    """What to do with a file of an encoding."""
    return f"Convert it: iconv -f {encoding} -t UTF-8 FILE > NEW"


def remedy(raw: bytes) -> str:
    """What to do with a file that holds these bytes, some of which are not UTF-8; empty if that cannot be told."""
    try:
        text = raw.decode("cp1252")
    except UnicodeDecodeError:  # five bytes stand for nothing
        return ""
    beyond = [character for character in text if not character.isascii()]
    accented = sum(character.isalpha() for character in beyond)
    if any(not (character.isalpha() or character in _TYPOGRAPHIC) for character in beyond):
        return ""
    if accented > max(3, sum(map(str.isalpha, text)) // _WESTERN):
        return ""
    return f"The file is perhaps Windows-1252. {conversion('WINDOWS-1252')}"


def remedy_of_text(text: str) -> str:
    """As :func:`remedy`, of text that has surrogates for the bytes that are not UTF-8."""
    try:
        return remedy(text.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:  # other surrogates stand for no byte
        return ""
