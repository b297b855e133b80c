"""Words of a text, sign by sign: what the patterns are held against."""

import re
import unicodedata

from airrep.corpus.words import INVISIBLE, UNSPACED


def plain_words(text: str, together: bool = False) -> list[str]:
    """Words with their marks, and other signs, each alone or those that stand *together*; equal words are equal."""
    found, before = list[str](), "space"
    for sign in unicodedata.normalize("NFC", without_hidden(text)):
        joins = is_mark(sign) and not re.match(f"[{UNSPACED}]", sign)  # of scripts without spaces each sign is a word
        kind = "word" if is_letter(sign) or (before == "word" and joins) else "sign"
        kind = "space" if sign.isspace() else kind
        if kind == before and (kind == "word" or (kind == "sign" and together)):
            found[-1] += sign
        elif kind != "space":
            found.append(sign)
        before = kind
    return found


def is_letter(sign: str) -> bool:
    """Whether it is a letter, a digit or an underscore."""
    return sign == "_" or sign.isalnum()


def is_mark(sign: str) -> bool:
    """Whether it is an accent or a vowel sign that can be seen."""
    return unicodedata.category(sign) in ("Mn", "Mc") and not is_invisible(sign)


def is_invisible(sign: str) -> bool:
    """Whether nobody sees it."""
    return re.match(f"[{INVISIBLE}]", sign) is not None


def without_hidden(text: str) -> str:
    """Without what is invisible in front of a letter or a mark."""
    shown, after = "", " "
    for sign in reversed(text):
        if is_invisible(sign) and (is_letter(after) or is_mark(after)):
            continue
        shown, after = sign + shown, sign
    return shown
