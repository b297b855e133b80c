"""Examples of single letters: four hundred, and ninety with a word."""

from airrep.corpus.corpus import Corpus, Example

LETTERS = "abcdefghijklmnop"
TEXTS = Corpus.from_examples(
    Example(
        " ".join(LETTERS[number // 16**k % 16] for k in range(2 + number % 7)), LETTERS[number // 256], f"e{number}"
    )
    for number in range(400)
)


def _worded(row: int) -> Example:
    """Letters, which a tiny encoder tells apart, and a word, which TF-IDF does."""
    alphabet = "abcdefghijklmnopqrstuvwxyz"
    text = " ".join(["answer question"[7 * (row % 2) :], *(alphabet[row * step % 26] for step in (1, 3, 7))])
    return Example(text + " :" * (row // 26), alphabet[row * 5 % 26], str(row))


WORDED = Corpus.from_examples(map(_worded, range(90)))
