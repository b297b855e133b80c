"""Numbers as texts."""


def signed(value: float, digits: int = 3) -> str:
    """A number with its sign and so many decimals; with an exponent where they would all be 0 and it is not."""
    shown = f"{value:+.{digits}f}"
    return f"{value:+.1e}" if value and not shown.strip("+-0.") else shown


def unsigned(value: float, digits: int = 3) -> str:
    """The same of a number that has no sign, such as a deviation."""
    return signed(value, digits).removeprefix("+")
