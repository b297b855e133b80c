"""Punctuation and symbols that distinguish texts of the same words."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache

from airrep.answers.texts import words_of
from airrep.corpus.words import INVISIBLE, Words

_PROSE = r".,;:?!'\"\-‐‑‒–—―¡¿…、。「」『』《》〈〉・،؛؟۔।॥՝՜՞։՛־׀׃፡።፣፤\0-\x1f\x7f-\x9f"
"""Punctuation as a regular-expression set; writers vary it freely, so it alone does not distinguish texts."""
_TELLS = rf"[^\w\s{_PROSE}]"
"""Pattern of all other signs: brackets, operators, currencies, arrows, emoji."""
_DASH = "[-‐‒–]"
_IN_PROSE = (
    _TELLS,
    r"(?<=\d)[.,:](?=\d)|(?<![\w.])\.(?=\d)",  # 1.5, 10:30, .5
    rf"{_DASH}(?=\d|\.\d|{_TELLS})|(?<!\w)—(?=\d)",  # -5, 5-10, ->, -(
    r"(?<!\w)(?<!\w[-‐])[-‐](?=\w)|(?<!\w)–(?=[^\W_](?!\w))",  # -x, --force
    r"(?<=\w)[-‐](?=\w)(?!(?<=[^\W\d_][^\W\d_].)[^\W\d_]{2})",  # x-y, but not twenty-five
    r"(?<=(?<!\w)\w)–(?=\w(?!\w))",
    rf"(?:(?<=\d )|(?<=(?<!\w)\w )|(?<=[)\]] )){_DASH}(?= (?:\d|\w(?!\w)|[(\[]))",  # 7 - 5, x - y
    r"!(?=[=(\[{]|\.\w)|(?<!\w)!(?=[\w$~!&])",  # !=, !x
    r"(?<=(?<!\w)[\db-hj-zB-HJ-Z])!|(?<=(?<!\w)\d\d)!|(?<=(?<!\w)\d\d\d)!|(?<=[)\]])!",  # 5!, n!
    r"[,:](?=[)\]])|(?<=\[):",  # (1,), a[1:]
)
"""Patterns of signs that carry meaning in any text."""
_IN_CODE = (*_IN_PROSE, r"\"|(?<!\w)'|'(?!\w)|-(?!\s)|(?<=[\"']):|[.,;:?!](?!\s|[.,;:?!]*\s*\Z)")
"""Patterns for a line of a program or a formula: also quotes, and punctuation without a space behind it."""
_SIGNS = {code: Words(signs=True, rest="|".join(signs)) for code, signs in ((False, _IN_PROSE), (True, _IN_CODE))}
_CODE = re.compile(
    r"[={}\[\]<>\\|]|\w\((?!s\))|;\s*\Z|\$[^\W\d]"  # x = f(y); $HOME
    r"|\A\s*(?:\"[^\"]*\"|'[^']*'|(?:- )?[a-z_][\w.-]*)\s*:\s*[\"'\[{|>]"  # version: "3"
    r"|\A\s*[a-z]\w*(?: -\w+)* [\"']"  # echo "a b"
)
"""Pattern of signs that lines of a program or a formula have, and prose rarely has."""
_OPENS = re.compile(r"[:{(\[]\s*\Z")
"""Pattern of the end of a line after which a block is indented."""
_SAME = str.maketrans(
    dict.fromkeys("“”„‟«»〝〞〟״", '"')
    | dict.fromkeys("‘’‚‛‹›´׳", "'")
    | dict.fromkeys("‐‑‒–—−", "-")
    | {"〜": "~", "⁄": "/"}
)
"""Variants of a sign, mapped to one form; dashes are mapped only after their meaning is known."""
_QUOTES = {sign: same for sign, same in _SAME.items() if same in "\"'"}
_UNSEEN = re.compile(rf"(\U0001f3f4[\U000e0020-\U000e007f]+)|[{INVISIBLE}]")
"""Pattern of invisible characters; the group keeps those that spell a flag, such as England's."""


def signs_of(text: str) -> str:
    """Return the signs of a text that carry meaning, in order; a space stands for each word, tabs for indentation.

    Example:
        >>> signs_of("If (x < 5), then ... well-known - or not")
        ' ( < )     '
    """
    return "".join(" " if _is_word(token) else token for token in _tokens(text))


def same_signs(text: str, other: str) -> bool:
    """Return False only if the words of *text* stand in *other* one after another, with other signs between them."""
    inside, whole = ([f" {' '.join(cut(one))} " for one in (text, other)] for cut in (words_of, _tokens))
    if inside[0] == inside[1]:
        return whole[0] == whole[1]
    return inside[0] not in inside[1] or whole[0] in whole[1]


def shown(text: str) -> str:
    """Return a text as it looks, in one width: without invisible characters, and with "^" before exponents."""
    if not text.isascii():
        raised, numbers = _other_digits()
        text = numbers.sub("¦", raised.sub("^", _UNSEEN.sub(r"\1", text).translate(_QUOTES)))
    return unicodedata.normalize("NFKC", text)


@cache
def _other_digits() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return patterns of places before raised characters, and between plain and other digits, such as fractions."""
    raised = [sign for sign in map(chr, range(0xA0, 0x20000)) if unicodedata.decomposition(sign).startswith("<super>")]
    numbers = (sign for sign in map(chr, range(0xA0, 0x20000)) if unicodedata.category(sign) == "No")
    other = f"[{''.join(sign for sign in numbers if unicodedata.decomposition(sign) and sign not in raised)}]"
    return re.compile(f"(?=[{''.join(raised)}])"), re.compile(rf"(?<=\d)(?={other})|(?<={other})(?=\d)")


def _tokens(text: str) -> Iterator[str]:
    """Yield words in lower case, signs that carry meaning, and indentations of a program, in order."""
    lines = [line for line in shown(text).splitlines() if line.strip()]
    for line, depth in zip(lines, _depths(lines), strict=True):
        if depth:
            yield "\t" * depth
        for token in _SIGNS[_CODE.search(line) is not None].findall(line):
            yield token.casefold() if _is_word(token) else token.translate(_SAME)


def _is_word(token: str) -> bool:
    return token[0] == "_" or token[0].isalnum()


def _depths(lines: Sequence[str]) -> list[int]:
    """Return each line's depth of indentation; all 0 if no line of a program is indented. One space does not count."""
    widths = [len(line) - len(line.lstrip()) for line in (line.expandtabs() for line in lines)]
    heads = zip(widths, lines, ["", *lines], strict=False)
    if not any(width > 1 and (_CODE.search(line) or _OPENS.search(before)) for width, line, before in heads):
        return [0] * len(lines)
    depths, blocks = [], [1]
    for width in widths:
        while len(blocks) > 1 and width < blocks[-1]:
            blocks.pop()
        if width > blocks[-1]:
            blocks.append(width)
        depths.append(len(blocks) - 1)
    return depths
