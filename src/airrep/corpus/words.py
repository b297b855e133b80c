"""Words of texts, of scripts with spaces between them and without."""

import re

UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
"""Signs of scripts that put no space between words, as a set of a regular expression: kana, Han, Thai, Lao, Khmer,
Burmese. Each is read as a word of its own."""
WORD = re.compile(rf"[{UNSPACED}]|(?:(?![{UNSPACED}])\w)+")
