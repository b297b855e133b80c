"""What tells texts of the same words apart, and what does not."""

import pytest

from airrep.answers.likeness.duplicates import find_duplicates
from airrep.answers.likeness.signs import same_signs, signs_of

FLAG, END = "\U0001f3f4", "\U000e007f"
OTHERS = (
    ("it was good 😍", "it was good 😡"), ("👍🏽 ok", "👍 ok"), ("🇩🇪 wins", "🇫🇷 wins"),
    (f"{FLAG}\U000e0065\U000e006e\U000e0067{END} wins", f"{FLAG}\U000e0073\U000e0063\U000e0074{END} wins"),
    ("1️⃣ first", "1 first"), ("😍 one, two", "one, 😍 two"), ("★★★★★ for it", "★☆☆☆☆ for it"), ("costs €5", "costs £5"),
    ("costs 20€ or 20", "costs 20 or 20€"), ("-$5 in all", "$5 in all"), ("5%", "5‰"), ("2³ + 1", "23 + 1"),
    ("x² + y²", "x² + y2"), ("10₂ is", "10² is"), ("log₂8 is", "log28 is"), ("1½ cups", "11/2 cups"),
    ("2① of", "21 of"), ("5! + 3", "5 + 3"), ("n! is even", "n is even"), ("!x && y", "x && !y"), ("¬p", "p"),
    ("x != y", "x = y"), ("println!(x)", "println(x)"), ("it was –5 degrees", "it was 5 degrees"),
    ("it was −5 degrees", "it was 5 degrees"), ("a\n–x + 3", "a\nx + 3"), ("7 - 5", "7 5"), ("x - y", "x y"),
    ("x-y", "x y"), ("i -= 1", "i = 1"), ("a->b", "a>b"), ("rm -r x", "rm r x"),
    ("grew by .5 percent", "grew by 5 percent"), ("1.5 or so", "1,5 or so"), ("at 10:30", "at 10.30"),
    ("a[1:]", "a[1]"), ("(1,)", "(1)"), ("C++", "C#"), ("a ∧ b", "a ∨ b"), ("a and (b or c)", "(a and b) or c"),
    ('print("name")', "print(name)"), ('echo "$HOME"', "echo '$HOME'"), ('version: "3"', "version: 3"),
    ('  "a": "1",\n  "b": 2', '  "a": 1,\n  "b": 2'), ("if a:\n    b\n    c", "if a:\n    b\nc"),
    ("for a in b:\n  for c in d:\n    e\n    f", "for a in b:\n  for c in d:\n    e\n  f"),
    ("a:\n\tb = 1\n\tc = 2", "a:\n\tb = 1\nc = 2"), ("5′ tall", "5″ tall"),
)  # fmt: skip
SAME = (
    ("It's 'fine', he said.", "It’s ‘fine’, he said"), ('He said "no" to her', "He said «no» to her"),
    ("don't go", "don´t go"), ("Well - I think so", "Well — I think so!"), ("Well - I think so", "Well–I think so…"),
    ("word--word", "word—word"), ("twenty-five men", "Twenty‑five men"), ("Paris–London line", "Paris-London line"),
    ("5–10 men", "5-10 men"), ("5−3", "5-3"), ("Stop!", "STOP."), ("in 2020!", "in 2020."),
    ("Wait, what?", "wait what"), ("¿Qué tal? ¡Hola!", "Qué tal. Hola"), ("「你好」，他说。", "“你好”,他说"),
    ("ＡＢＣ１２３！", "abc123!"), ("½ cup", "1/2 cup"), ("H₂O is wet", "H2O is wet"),
    ("a\u200bb soft", "ab so\u00adft"), ("\ufeffHello you", "Hello\u2060 you"),
    ("a \u202bword\u202c here", "a word here"), ("❤️ it", "❤ it"), ("👩\u200d💻 ok", "👩💻 ok"),
    ("می\u200cخواهم من", "میخواهم من"), ("क्\u200dष है", "क्ष है"),
    ("caf\u00e9 l\u00e0", "CAFE\u0301 la\u0300"), ("a\u00a0b\u3000c", "a b  c "), ("a b\r\nc \r\n", "a b\nc"),
    ("a b\nc d e", "a b c d\ne"), ("x = 1;  \n\n y", "x = 1;\ny"), ("if a:\n    b\n    c", "if a:\n\tb\n\tc"),
    ("  Once upon a time he\nwent", "Once upon a time he\nwent"), ("f(x) = “a”.", 'f(x) = "a"'),
)  # fmt: skip


def told(one: str, other: str) -> list[tuple[int, int, float]]:
    return [tuple(found) for found in find_duplicates([one, other], 0.8).duplicates]


@pytest.mark.parametrize("length", [0, 60])
@pytest.mark.parametrize(("one", "other"), OTHERS)
def test_what_differs_in_signs_that_bear_meaning_is_no_copy(one: str, other: str, length: int) -> None:
    rest = "".join(f"\nand word{number}" for number in range(length))
    assert told(one + rest, other + rest) == []
    assert not same_signs(one + rest, other + rest)


@pytest.mark.parametrize(("one", "other"), SAME)
def test_what_differs_in_typography_or_the_invisible_is_a_copy(one: str, other: str) -> None:
    assert told(one, other) == [(1, 0, 1.0)]
    assert same_signs(one, other)
    assert same_signs(other, one)


def test_signs_alone_are_compared_as_they_are_seen() -> None:
    found = find_duplicates(["...", "…\u200b", "???", "★☆", "★★", "★\ufe0f☆"], 0.8).duplicates
    assert [(one.place, one.first) for one in found] == [(1, 0), (5, 3)]


def test_a_text_inside_another_has_its_signs_there() -> None:
    whole = "Intro. Is 7 - 5 less than 3? It is."
    assert same_signs("7 - 5 less than 3", whole)
    assert not same_signs("7 + 5 less than 3", whole)
    assert same_signs("7 + 5 or less than 3", whole)  # of other words: these tell


def test_signs_stand_between_their_words() -> None:
    assert signs_of("a (b) c") == " ( ) "
    assert signs_of("if a:\n  b = 1\n  c") == "  \t = \t "
