"""Tables of comparisons and diagnoses."""

from typing import cast

from airrep.evaluation.comparison import ComparedPair, Comparison
from airrep.evaluation.diagnosis.diagnosis import Diagnosis
from airrep.evaluation.result import Difference, Measure
from airrep.reports.evaluation_tables import ABOVE, BELOW, LEVEL, WORDS, gap_texts
from airrep.reports.tables import (
    NOTHING,
    PAGE,
    SIGNED,
    Cell,
    Line,
    Style,
    Table,
    label_of,
    p_number,
)
from airrep.scoring.pooling import pooling_text


def comparison_table(name: str, comparison: Comparison) -> Table:
    """Differences and p-values of a comparison: one line for each pair of rows."""
    measure = cast(Measure, comparison.measure)
    drawn = measure in ("lds", "loo")  # the others compare without draws
    draws = f" {comparison.resamples:,} bootstrap draws." if drawn else ""
    caption = (
        f"{WORDS[measure].heading}. Difference × 100 of the first less the second, paired on the same queries, with "
        f"95 % intervals; two-sided p-values for a difference of 0, also adjusted for all pairs here (Holm).{draws} "
        "Ratio: of the first to the second, with Fieller's interval. "
        f"{ABOVE} or {BELOW}: above or below by an adjusted p-value under 0.05."
    )
    columns = ("First", "Second", "Difference", "p", "p, adjusted", "Ratio")
    lines = tuple(map(_pair_line, comparison.pairs))
    return Table(f"Comparison: {name}", columns, lines, caption, _made_by(comparison.command))


def _pair_line(pair: ComparedPair) -> Line:
    one, other, gap, ends, p_value, adjusted, ratio, ratio_ends = pair_texts(pair, PAGE)
    mark = "" if pair.adjusted >= LEVEL else ABOVE if pair.difference > 0 else BELOW
    return Line(
        Cell(one),
        (Cell(other), Cell(gap, ends, mark=mark), Cell(p_value), Cell(adjusted), Cell(ratio or NOTHING, ratio_ends)),
    )


def pair_texts(pair: ComparedPair, style: Style) -> tuple[str, ...]:
    """Texts of a pair: rows, difference × 100, p-values, ratio; intervals behind what they are of."""
    known = pair.ratio is not None and pair.ratio_interval is not None
    ratio = (f"{pair.ratio:.2f}", style.interval(pair.ratio_interval, "{:.2f}".format)) if known else ("", "")
    tested = gap_texts(Difference(pair.difference, pair.interval, pair.p_value), style)
    return (pair.one, pair.other, *tested, p_number(pair.adjusted), *ratio)


def comparison_tables(comparison: Comparison) -> tuple[Table, Table]:
    """Rows, best first, and pairs of a comparison for the terminal: each number in a column of its own."""
    heads = ("row", "method", "pool", f"{comparison.measure.upper()} × 100", "95 % interval", "run")
    rows = (
        (
            *(row.name, row.method, pooling_text(row.pool, row.temperature)),
            *(SIGNED.hundred(row.value), SIGNED.interval(row.interval), row.run),
        )
        for row in comparison.rows
    )
    columns = ("row", "minus", "difference × 100", "95 % interval", "p", "p adjusted", "ratio", "95 % interval")
    pairs = (pair_texts(pair, SIGNED) for pair in comparison.pairs)
    return Table.of_texts(heads, rows), Table.of_texts(columns, pairs)


def _made_by(command: str) -> tuple[str, ...]:
    return (command,) if command else ()


def findings_table(name: str, diagnosis: Diagnosis) -> Table:
    """Each finding of a diagnosis with its advice."""
    keys = ("name", "level", "number", "verdict", "about", "advice")
    rows = ([str(getattr(one, key)) for key in keys] for one in diagnosis.findings)
    return Table.of_texts(
        ("Finding", *map(label_of, keys[1:])),
        rows,
        title=f"Diagnosis: {name}",
        caption=diagnosis.sentence,
        commands=_made_by(diagnosis.command),
    )
