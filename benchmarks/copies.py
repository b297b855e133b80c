"""Do `airrep clean` and `airrep audit` tell copies from texts that differ in a sign?

Run as ``python benchmarks/copies.py``. 200 pairs of texts in five languages: 100 differ in what nobody sees, or in
typography alone, in 20 ways, and are copies; 100 differ in a sign that bears meaning, in 20 ways, and are none. All are
in one index for `clean`; for `audit` the first of each pair are the training data, and the second the items, which are
copies if they are "contained". All pairs are of the kinds that the rules were made for, so this says whether the rules
do as they say, not how often your data breaks them.
"""

import unicodedata
from collections.abc import Callable, Iterator
from tempfile import TemporaryDirectory
from typing import NamedTuple

import airrep
from airrep.corpus.corpus import Example

FRAMES = (
    'What they told "all of us" today - and well, we believed it - is: {}, if it\'s true.',
    'Was man "uns allen" heute früh sagte - und wir glaubten es - ist dies: {}, wenn\'s stimmt.',
    'उन्होंने "हम सब" से आज जो कहा - और हमने माना - वह यह है: {}, यदि सच हो।',
    'ما قيل "لنا جميعا" صباح اليوم - وقد صدقناه - هو هذا: {}, إن صحّ الخبر.',
    'Что "нам всем" сказали сегодня утром - и мы поверили - это вот: {}, если правда.',
)
SAID = ("nothing", "(almost) nothing", "5-10 of them", "«x = 5»", "❤️ and 1.5 %")
"""Texts of copies, one in each language."""


def wide(text: str) -> str:
    """Letters and digits of ASCII in their full width."""
    return "".join(chr(ord(sign) + 0xFEE0) if sign.isascii() and sign.isalnum() else sign for sign in text)


COPIES: dict[str, Callable[[str], str]] = {
    "capitals": str.upper,
    "other end": lambda text: text[:-1] + "!",
    "no end": lambda text: text[:-1],
    "curly quotes": lambda text: text.replace('"', "“", 1).replace('"', "”"),
    "angle quotes": lambda text: text.replace('"', "«", 1).replace('"', "»"),
    "curly apostrophe": lambda text: text.replace("'", "’"),
    "em dash": lambda text: text.replace(" - ", " — "),
    "en dash": lambda text: text.replace(" - ", " – "),
    "no comma": lambda text: text.replace(",", ""),
    "ellipsis": lambda text: text[:-1] + "…",
    "two spaces": lambda text: text.replace(" - ", "  -  "),
    "no-break space": lambda text: text.replace(" ", "\u00a0"),
    "broken lines": lambda text: text.replace(" - ", " -\r\n"),
    "space at the end": lambda text: f" {text} \n",
    "zero-width space": lambda text: text.replace(" ", " \u200b", 3),
    "soft hyphen": lambda text: f"{text[:3]}\u00ad{text[3:]}",
    "byte order mark": lambda text: f"\ufeff{text}",
    "direction marks": lambda text: f"\u202b{text}\u202c",
    "decomposed": lambda text: unicodedata.normalize("NFD", text),
    "full width": wide,
}
OTHERS: dict[str, tuple[str, str]] = {
    "face": ("it was good 😍", "it was good 😡"),
    "check mark": ("test ✅ build ✅", "test ✅ build ❌"),
    "stars": ("★★★★★", "★★☆☆☆"),
    "flag": ("🇩🇪 wins", "🇫🇷 wins"),
    "place of a sign": ("20€ or 30", "20 or 30€"),
    "currency": ("€5", "£5"),
    "per cent": ("5%", "5‰"),
    "exponent": ("2³ + 1", "23 + 1"),
    "base": ("10₂", "102"),
    "fraction": ("1½", "11/2"),
    "factorial": ("5! + 3", "5 + 3"),
    "negation": ("if (!a && b)", "if (a && !b)"),
    "logic": ("¬p ∧ q", "¬p ∨ q"),
    "unequal": ("x != y", "x = y"),
    "minus": ("–5 degrees", "5 degrees"),
    "decimals": ("1.5 m", "1,5 m"),
    "quotes of a program": ('print("name")', "print(name)"),
    "quotes of JSON": ('{"a": "1"}', '{"a": 1}'),
    "indentation": ("\nif a:\n    b()\n    c()\n", "\nif a:\n    b()\nc()\n"),
    "vowel signs": ("लड़का দিন கல் كَتَبَ", "लड़की দান கால் كُتِبَ"),
}


class Pair(NamedTuple):
    """Two texts."""

    name: str
    first: str
    second: str
    copy: bool


def pairs() -> Iterator[Pair]:
    """All pairs."""
    for place, frame in enumerate(FRAMES):
        for name, change in COPIES.items():
            yield Pair(name, frame.format(SAID[place]), change(frame.format(SAID[place])), True)
        for name, (one, other) in OTHERS.items():
            yield Pair(name, frame.format(one), frame.format(other), False)


def main() -> None:
    """Print precision and recall, and the pairs that are told wrongly."""
    made = list(pairs())
    first = [Example(f"Question {n}", pair.first, f"{n}") for n, pair in enumerate(made)]
    second = [Example(f"Question {n}", pair.second, f"{n} again") for n, pair in enumerate(made)]
    with TemporaryDirectory() as folder:
        both = airrep.Corpus.from_examples([*first, *second])
        found = airrep.clean(airrep.build_index(both, f"{folder}/both", "tfidf"), kinds="duplicate").findings
        cleaned = {one.example.id for one in found if f"'{one.example.id.removesuffix(' again')}'" in one.reason}
        data = airrep.build_index(airrep.Corpus.from_examples(first), f"{folder}/first", "tfidf")
        items = [one for one in airrep.audit(data, second).items if one.verdict == "contained"]
        audited = {one.item.id for one in items if one.text and f"{one.text.example.id} again" == one.item.id}
    print(f"{'':<10}{'told':>6}{'precision':>11}{'recall':>8}")
    for command, told in (("clean", cleaned), ("audit", audited)):
        is_told = [one.id in told for one in second]
        right = sum(pair.copy and said for pair, said in zip(made, is_told, strict=True))
        print(f"{command:<10}{sum(is_told):>6}{right / max(sum(is_told), 1):>11.2f}{right / 100:>8.2f}")
        wrong = [pair.name for pair, said in zip(made, is_told, strict=True) if pair.copy != said]
        print(f"  wrong: {', '.join(sorted(wrong)) or 'none'}")


if __name__ == "__main__":
    main()
