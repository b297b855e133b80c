"""Evaluations of one subject as one."""

from dataclasses import replace

from airrep.errors import ConfigError
from airrep.evaluation.comparison import Named, compare_evaluations
from airrep.evaluation.result import Difference, Evaluation


def join_evaluations(runs: Named) -> list[tuple[str, Evaluation]]:
    """Put the rows of runs of one measure, subject and tags into one evaluation, called like the first of them.

    Differences of rows are then to the first row of all, tested as `airrep compare` tests them. Facts and noise
    ceiling are those of the first run.

    Args:
        runs: evaluations with their names; those that share these with no other stay as they are.

    Returns:
        Names and evaluations, in the order of the first of each.

    Raises:
        ConfigError: two runs to be joined have a row of one name.
        DataError: two rows without a query that counts for both.
        ArtifactError: a run without the matrices that its rows are paired from.
    """
    found: dict[tuple[object, ...], list[tuple[str, Evaluation]]] = {}
    for name, run in runs:
        found.setdefault((run.measure, run.subject, *sorted(run.tags.items())), []).append((name, run))
    return [(same[0][0], _join(same) if len(same) > 1 else same[0][1]) for same in found.values()]


def _join(runs: Named) -> Evaluation:
    _check_names(runs)
    first = runs[0][1]
    gaps = {
        pair.one: Difference(pair.difference, pair.interval, pair.p_value)
        for pair in compare_evaluations(runs, first.rows[0].name).pairs
    }
    rows = [row for _, run in runs for row in run.rows]
    matrices, before = dict(first.matrices), 0
    for _, run in runs:
        for name, matrix in run.matrices.items():
            row, _, instance = name.partition("/")
            if row != "losses":
                matrices[f"{int(row) + before}/{instance}"] = matrix
        before += len(run.rows)
    return replace(
        first,
        rows=tuple(replace(row, difference=gaps.get(row.name)) for row in rows),
        command=" && ".join(run.command for _, run in runs if run.command),
        matrices=matrices,
    )


def _check_names(runs: Named) -> None:
    """Refuse two rows of one name in different runs."""
    known: dict[str, str] = {}
    for name, run in runs:
        for row in run.rows:
            if row.name in known:
                raise ConfigError(
                    f"--join: {known[row.name]} and {name} were judged on the same and both have a row called "
                    f"'{row.name}'; expected different names. Leave one of these runs out, or write NAME=INDEX when "
                    "you evaluate."
                )
        known |= {row.name: name for row in run.rows}
