"""N-grams of token numbers, hashed one by one with Python's whole numbers."""

from collections.abc import Iterator, Sequence

WHOLE = 2**64


def mixed(code: int) -> int:
    """SplitMix64."""
    code = (code + 0x9E3779B97F4A7C15) % WHOLE
    code = ((code ^ (code >> 30)) * 0xBF58476D1CE4E5B9) % WHOLE
    code = ((code ^ (code >> 27)) * 0x94D049BB133111EB) % WHOLE
    return code ^ (code >> 31)


def ngrams(tokens: Sequence[int], orders: Sequence[int], skip: bool = False) -> Iterator[tuple[int, int]]:
    """Column of each n-gram of one text, and the place of its last token, the end being one; none without a token."""
    series = [0, *tokens, 1]
    kinds = [(order, list(range(order))) for order in orders] + ([(3, [0, 2])] if skip else [])
    for place, (length, members) in enumerate(kinds if len(tokens) else []):
        for start in range(1 if length == 1 else 0, len(series) - length + 1):
            code = 0
            for member in members:
                code = mixed(code ^ int(series[start + member]))
            yield 1 + place * 2**26 + (code >> 38), start + length - 2


def columns(tokens: Sequence[int], orders: Sequence[int], skip: bool = False) -> list[int]:
    """Columns of all n-grams, repeats included."""
    return [column for column, _ in ngrams(tokens, orders, skip)]
