"""Tables of comparisons and diagnoses, and of what a page is made from."""

from collections.abc import Mapping
from typing import Any

from airrep.evaluation.result import Measure
from airrep.reports.evaluation_tables import ABOVE, BELOW, WORDS
from airrep.reports.sources import Source, Sources
from airrep.reports.tables import NOTHING, Cell, Line, Table, hundred, interval_text, label_of, p_number, span_text


def sources_table(sources: Sources) -> Table:
    """Each evaluation: what it was called, on what it stands, and the command that made it."""
    lines = tuple(_source_line(source) for source in sources.evaluations)
    columns = ("Run", "Measure", "Tags", "Queries", "Left out", "Subsets", "Noise ceiling", "Command")
    return Table("Runs that this page is made from", columns, lines, words=True)


def _source_line(source: Source) -> Line:
    made = source.evaluation
    tags = ", ".join(f"{name}={value}" for name, value in made.tags.items())
    counts = (
        f"{len(made.queries):,}",
        span_text(*source.dropped),
        NOTHING if source.subsets is None else f"{source.subsets:,}",
    )
    cells = (made.measure, tags or NOTHING, *counts, hundred(made.ceiling), made.command or NOTHING)
    return Line(Cell(source.name), tuple(map(Cell, cells)))


def diagnosis_tables(sources: Sources) -> list[Table]:
    """What `airrep diagnose` found, worst first; and diagnoses among the facts of evaluations."""
    found = [_findings(name, value) for name, value in sources.diagnoses]
    told = [(one, value) for one in sources.evaluations if (value := one.evaluation.facts.get("diagnosis"))]
    for source, value in told:
        made = (source.evaluation.command,) if source.evaluation.command else ()
        whole = isinstance(value, Mapping) and "findings" in value
        found.append(
            _findings(source.role, value, made) if whole else plain_table(f"Diagnosis: {source.role}", value, made)
        )
    return found


def comparison_table(name: str, value: Mapping[str, Any]) -> Table:
    """What `airrep compare` found: one line for each pair of rows."""
    made = (str(value["command"]),) if value.get("command") else ()
    lines = [_pair_line(pair) for pair in value.get("pairs", ())]
    measure: Measure = value["measure"]
    drawn = measure in ("lds", "loo") and value.get("resamples")  # the others compare without draws
    draws = f" {value['resamples']:,} bootstrap draws." if drawn else ""
    caption = (
        f"{WORDS[measure].heading}. Difference × 100 of the first less the second, paired on the same queries, with "
        f"95 % intervals; two-sided p-values for a difference of 0, also adjusted for all pairs here (Holm).{draws} "
        "Ratio: of the first to the second, with Fieller's interval. "
        f"{ABOVE} or {BELOW}: above or below by an adjusted p-value under 0.05."
    )
    columns = ("First", "Second", "Difference", "p", "p, adjusted", "Ratio")
    return Table(f"Comparison: {name}", columns, tuple(lines), caption, made)


def _pair_line(pair: Mapping[str, Any]) -> Line:
    gap, p_value, adjusted = pair["difference"], pair["p_value"], pair["adjusted"]
    mark = "" if adjusted >= 0.05 else ABOVE if gap > 0 else BELOW
    shown = Cell(hundred(gap), interval_text(pair["interval"]), mark=mark)
    numbers = (Cell(p_number(p_value)), Cell(p_number(adjusted)), _ratio_cell(pair))
    return Line(Cell(pair["one"]), (Cell(pair["other"]), shown, *numbers))


def _ratio_cell(pair: Mapping[str, Any]) -> Cell:
    ratio, ends = pair.get("ratio"), pair.get("ratio_interval")
    return Cell(NOTHING) if ratio is None or ends is None else Cell(f"{ratio:.2f}", f"[{ends[0]:.2f}, {ends[1]:.2f}]")


_FINDING = ("level", "number", "verdict", "about", "advice")


def _findings(name: str, value: Mapping[str, Any], made: tuple[str, ...] = ()) -> Table:
    lines = [
        Line(Cell(str(one.get("name", ""))), tuple(Cell(str(one.get(key, ""))) for key in _FINDING))
        for one in value.get("findings", ())
    ]
    columns = ("Finding", *(label_of(key) for key in _FINDING))
    command = value.get("command") or ""
    text = str(value.get("sentence", ""))
    return Table(f"Diagnosis: {name}", columns, tuple(lines), text, (command,) if command else made, words=True)


def plain_table(title: str, value: Any, made: tuple[str, ...] = ()) -> Table:
    """Any JSON value as names and values; nested names are joined by dots."""
    lines = tuple(Line(Cell(label_of(name)), (Cell(text),)) for name, text in _flat(value))
    return Table(title, ("", "Value"), lines, "", made, words=True)


def _flat(value: Any, name: str = "") -> list[tuple[str, str]]:
    if isinstance(value, Mapping):
        return [pair for key, part in value.items() for pair in _flat(part, f"{name}.{key}" if name else str(key))]
    if isinstance(value, list | tuple) and any(isinstance(part, Mapping | list | tuple) for part in value):
        return [pair for number, part in enumerate(value, 1) for pair in _flat(part, f"{name} {number}".strip())]
    if isinstance(value, list | tuple):
        return [(name, ", ".join(_word(part) for part in value))]
    return [(name, _word(value))]


def _word(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: NOTHING}[value]
    if isinstance(value, float):
        return f"{value:,.4g}".replace("-", "−")
    return f"{value:,}" if isinstance(value, int) else str(value)
