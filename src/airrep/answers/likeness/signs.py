"""Signs that tell texts of the same words apart."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache

from airrep.answers.texts import words_of
from airrep.corpus.words import INVISIBLE, Words

_PROSE = r".,;:?!'\"\-‐‑‒–—―¡¿…、。「」『』《》〈〉・،؛؟۔।॥՝՜՞։՛־׀׃፡።፣፤\0-\x1f\x7f-\x9f"
"""Punctuation as a set of a regular expression: by itself it makes no other text, as it is set and left out at will."""
_TELLS = rf"[^\w\s{_PROSE}]"
"""All other signs: brackets, operators, currencies, arrows, emoji."""
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
"""Signs that bear meaning in any text."""
_IN_CODE = (*_IN_PROSE, r"\"|(?<!\w)'|'(?!\w)|-(?!\s)|(?<=[\"']):|[.,;:?!](?!\s|[.,;:?!]*\s*\Z)")
"""Those of a line of a program or a formula: quotes too, and punctuation without a space behind it."""
_SIGNS = {code: Words(signs=True, rest="|".join(signs)) for code, signs in ((False, _IN_PROSE), (True, _IN_CODE))}
_CODE = re.compile(
    r"[={}\[\]<>\\|]|\w\((?!s\))|;\s*\Z|\$[^\W\d]"  # x = f(y); $HOME
    r"|\A\s*(?:\"[^\"]*\"|'[^']*'|(?:- )?[a-z_][\w.-]*)\s*:\s*[\"'\[{|>]"  # version: "3"
    r"|\A\s*[a-z]\w*(?: -\w+)* [\"']"  # echo "a b"
)
"""Signs that a line of a program or a formula has, and a line of prose rarely has."""
_OPENS = re.compile(r"[:{(\[]\s*\Z")
"""The end of a line whose block is indented."""
_SAME = str.maketrans(
    dict.fromkeys("“”„‟«»〝〞〟״", '"')
    | dict.fromkeys("‘’‚‛‹›´׳", "'")
    | dict.fromkeys("‐‑‒–—−", "-")
    | {"〜": "~", "⁄": "/"}
)
"""Forms of one sign; dashes are made the same once it is known what they mean."""
_QUOTES = {sign: same for sign, same in _SAME.items() if same in "\"'"}
_UNSEEN = re.compile(rf"(\U0001f3f4[\U000e0020-\U000e007f]+)|[{INVISIBLE}]")
"""Invisible characters; those that spell a flag (England's, say) are kept."""


def signs_of(text: str) -> str:
    """The signs of a text that bear meaning, in their order; a space stands for each word, tabs for an indentation.

    Example:
        >>> signs_of("If (x < 5), then ... well-known - or not")
        ' ( < )     '
    """
    return "".join(" " if _is_word(token) else token for token in _tokens(text))


def same_signs(text: str, other: str) -> bool:
    """True unless the words of a text stand in another, one after the other, with other signs there."""
    inside, whole = ([f" {' '.join(cut(one))} " for one in (text, other)] for cut in (words_of, _tokens))
    if inside[0] == inside[1]:
        return whole[0] == whole[1]
    return inside[0] not in inside[1] or whole[0] in whole[1]


def shown(text: str) -> str:
    """A text as it is seen, any width: without what is invisible, and exponents apart from the digits before them."""
    if not text.isascii():
        raised, numbers = _other_digits()
        text = numbers.sub("¦", raised.sub("^", _UNSEEN.sub(r"\1", text).translate(_QUOTES)))
    return unicodedata.normalize("NFKC", text)


@cache
def _other_digits() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Places before what is raised; and between plain digits and others: fractions, in circles, below the line."""
    raised = [sign for sign in map(chr, range(0xA0, 0x20000)) if unicodedata.decomposition(sign).startswith("<super>")]
    numbers = (sign for sign in map(chr, range(0xA0, 0x20000)) if unicodedata.category(sign) == "No")
    other = f"[{''.join(sign for sign in numbers if unicodedata.decomposition(sign) and sign not in raised)}]"
    return re.compile(f"(?=[{''.join(raised)}])"), re.compile(rf"(?<=\d)(?={other})|(?<={other})(?=\d)")


def _tokens(text: str) -> Iterator[str]:
    """Words in lower case, signs that bear meaning, and the indentations of a program, in order."""
    lines = [line for line in shown(text).splitlines() if line.strip()]
    for line, depth in zip(lines, _depths(lines), strict=True):
        if depth:
            yield "\t" * depth
        for token in _SIGNS[_CODE.search(line) is not None].findall(line):
            yield token.casefold() if _is_word(token) else token.translate(_SAME)


def _is_word(token: str) -> bool:
    return token[0] == "_" or token[0].isalnum()


def _depths(lines: Sequence[str]) -> list[int]:
    """How deep each line is indented; all 0 where no line of a program is. One space is none."""
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
