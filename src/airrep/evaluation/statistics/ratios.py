"""Intervals of ratios."""

import math


def fieller(above: float, below: float, halves: tuple[float, float], shared: float = 0.0) -> tuple[float, float] | None:
    """The interval of a / b by Fieller's theorem: all ρ at which a − ρ b is not told apart from 0.

    With h_a and h_b the half widths of the intervals of a and b, and c their covariance times the square of the same
    quantile, the ends are

        (a b − c ± √((a b − c)² − (a² − h_a²)(b² − h_b²))) / (b² − h_b²).

    Args:
        above: a.
        below: b.
        halves: h_a and h_b.
        shared: c; 0 for independent errors.

    Returns:
        The ends; None where the interval of b holds 0, as the ratio then has no bounded interval.
    """
    room = below**2 - halves[1] ** 2
    if room <= 0:
        return None
    middle = above * below - shared
    root = math.sqrt(max(0.0, middle**2 - (above**2 - halves[0] ** 2) * room))
    return (middle - root) / room, (middle + root) / room


def paired_ratio(
    one: tuple[float, float], other: tuple[float, float], difference_half: float
) -> tuple[float, tuple[float, float]] | None:
    """The ratio of two values that share their errors, with its interval (:func:`fieller`).

    What they share follows from the interval of their difference: 2 c = h_a² + h_b² − h_d².

    Args:
        one: value and half width of the interval of a.
        other: likewise of b.
        difference_half: half the width of the interval of a − b.

    Returns:
        a / b and its interval; None where a or b is not above 0, or the interval of b holds 0.
    """
    if one[0] <= 0 or other[0] <= 0:
        return None
    shared = (one[1] ** 2 + other[1] ** 2 - difference_half**2) / 2
    ends = fieller(one[0], other[0], (one[1], other[1]), shared)
    return None if ends is None else (one[0] / other[0], ends)
