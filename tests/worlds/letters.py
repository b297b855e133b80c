"""Four hundred examples of single letters."""

from airrep.corpus.corpus import Corpus, Example

LETTERS = "abcdefghijklmnop"
TEXTS = Corpus.from_examples(
    Example(
        " ".join(LETTERS[number // 16**k % 16] for k in range(2 + number % 7)), LETTERS[number // 256], f"e{number}"
    )
    for number in range(400)
)
