"""Print one table of the field: every method under each measure with its interval, and what it costs.

Usage: python experiments/field/table.py RESULTS

RESULTS holds the evaluations `part`, `outside` (programs of others, by the measure of `part`), `drop` and `trace`,
those that are there, and `costs.jsonl`.
"""

import json
import sys
from pathlib import Path

from airrep.evaluation.result import Evaluation, Row

HEADS = (
    "method",
    "1 % out, LDS",
    "drop 10, nats × 100",
    "facts, MRR",
    "recall@10",
    "tail patch, nats × 100",
    "index, CPU s",
    "top, CPU s",
    "bytes",
)

MEASURES = ("part", "outside", "drop", "trace")


def main() -> None:
    """Read what there is; print it as Markdown."""
    folder = Path(sys.argv[1])
    found = {name: Evaluation.read(folder / name) for name in MEASURES if (folder / name).is_dir()}
    rows = {name: {row.name: row for row in one.rows} for name, one in found.items()}
    for name, row in rows.pop("outside", {}).items():
        rows.setdefault("part", {}).setdefault(name, row)
    file = folder / "costs.jsonl"
    costs = {one["name"]: one for one in map(json.loads, file.read_text().splitlines())} if file.exists() else {}
    print("| " + " | ".join(HEADS) + " |")
    print("|---" * len(HEADS) + "|")
    for name in dict.fromkeys(name for one in rows.values() for name in one):
        traced = rows.get("trace", {}).get(name)
        more = {} if traced is None else traced.more
        cost = costs.get(name, {})
        cells = [name, *(_value(rows.get(measure, {}).get(name)) for measure in ("part", "drop", "trace"))]
        cells += [_more(more.get("recall@10")), _more(more.get("tail_patch"))]
        cells += [str(cost.get(key, "–")) for key in ("index_seconds", "top_seconds", "bytes")]
        print("| " + " | ".join(cells) + " |")
    if "part" in found:
        ceiling, ratio = found["part"].ceiling, found["part"].facts["signal_to_noise"]
        told = "unknown" if ceiling is None else f"{100 * ceiling:.1f}"
        print(f"\n1 % out: noise ceiling {told}, signal-to-noise ratio {round(ratio or 0.0, 2)}")


def _value(row: Row | None) -> str:
    return "–" if row is None else _number(row.value, row.interval)


def _more(told: dict | None) -> str:
    return "–" if told is None else _number(told["value"], told["interval"])


def _number(value: float, ends: tuple[float, float] | list[float]) -> str:
    return f"{100 * value:.1f} ({100 * ends[0]:.1f} to {100 * ends[1]:.1f})"


if __name__ == "__main__":
    main()
