"""Words of texts, of scripts with spaces between them and without."""

import re

UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
"""Signs of scripts that put no space between words, as a set of a regular expression: kana, Han, Thai, Lao, Khmer,
Burmese. Each is read as a word of its own."""
LETTERS = rf"[^\W{UNSPACED}]"
"""One letter, digit or underscore of the other scripts."""
WORD = re.compile(rf"[{UNSPACED}]|{LETTERS}+")
_SIGN = re.compile(f"[{UNSPACED}]")
_ENOUGH = 0.25
"""Share of a text's signs from which on it is of such a script."""


def unspaced(text: str) -> bool:
    """Whether a text is of a script that puts no space between words, a quarter of its signs at least."""
    return _SIGN.search(text) is not None and len(_SIGN.findall(text)) >= _ENOUGH * len(text)
