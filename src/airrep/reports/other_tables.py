"""Tables of comparisons and diagnoses."""

from typing import cast

from airrep.evaluation.comparison import ComparedPair, Comparison
from airrep.evaluation.diagnosis.diagnosis import Diagnosis
from airrep.evaluation.result import Difference, Measure
from airrep.reports.evaluation_tables import ABOVE, BELOW, LEVEL, WORDS, gap_texts
from airrep.reports.tables import (
    NOTHING,
    Cell,
    Line,
    Table,
    hundred,
    interval,
    label_of,
    p_number,
)
from airrep.scoring.pooling import pooling_text


def comparison_tables(name: str, comparison: Comparison) -> tuple[Table, Table]:
    """A comparison: its rows, best first, and a line for each pair with difference, p-values and ratio."""
    measure = cast(Measure, comparison.measure)
    drawn = measure in ("lds", "loo")  # the others compare without draws
    draws = f" {comparison.resamples:,} bootstrap draws." if drawn else ""
    caption = (
        f"{WORDS[measure].heading}. Difference × 100 of the first less the second, paired on the same queries, with "
        f"95 % intervals; two-sided p-values for a difference of 0, also adjusted for all pairs here (Holm).{draws} "
        "Ratio: of the first to the second, with Fieller's interval. "
        f"{ABOVE} or {BELOW}: above or below by an adjusted p-value under 0.05."
    )
    rows = (
        Line(
            Cell(row.name, ", ".join(filter(None, [row.method, pooling_text(row.pool, row.temperature)]))),
            (Cell(hundred(row.value), interval(row.interval)), Cell(row.run)),
        )
        for row in comparison.rows
    )
    pairs, made = tuple(map(_pair_line, comparison.pairs)), _made_by(comparison.command)
    columns = ("First", "Second", "Difference × 100", "p", "p, adjusted", "Ratio")
    head = ("Row", f"{WORDS[measure].short} × 100", "Run")
    return (
        Table(
            ": ".join(filter(None, ("Rows compared", name))),
            head,
            tuple(rows),
            "Best first, with 95 % intervals.",
            made,
        ),
        Table(": ".join(filter(None, ("Comparison", name))), columns, pairs, caption, made),
    )


def _pair_line(pair: ComparedPair) -> Line:
    gap, ends, p_value = gap_texts(Difference(pair.difference, pair.interval, pair.p_value))
    mark = "" if pair.adjusted >= LEVEL else ABOVE if pair.difference > 0 else BELOW
    known = pair.ratio is not None and pair.ratio_interval is not None
    ratio = Cell(f"{pair.ratio:.2f}", interval(pair.ratio_interval, "{:.2f}".format)) if known else Cell(NOTHING)
    tested = (Cell(gap, ends, mark=mark), Cell(p_value), Cell(p_number(pair.adjusted)), ratio)
    return Line(Cell(pair.one), (Cell(pair.other), *tested))


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
