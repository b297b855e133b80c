"""The command that tells why an LDS is low."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from airrep.cli.options import (
    DATA_HELP,
    PoolOption,
    Reading,
    ReplaceOption,
    TemperatureOption,
    note,
    open_index,
    print_json,
    shared_options,
)

CHOICE_HELP = "Directories that `airrep label` wrote; DIR#0,3-5 takes some instances of one."

app = typer.Typer()


@app.command()
@shared_options
def diagnose(
    labels: Annotated[list[str], typer.Argument(metavar="LABELS...", help=CHOICE_HELP)],
    reading: Reading,
    data: Annotated[
        list[str] | None, typer.Option("--data", help=f"The data of the labels; may be repeated. {DATA_HELP}")
    ] = None,
    index: Annotated[
        list[Path] | None, typer.Option("--index", help="An index whose scores are looked at too; may be repeated.")
    ] = None,
    pool: PoolOption = None,
    temperature: TemperatureOption = 1.0,
    partial: Annotated[bool, typer.Option("--partial", help="Accept unfinished labels.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")] = False,
    out: Annotated[Path | None, typer.Option(help="Also write the findings here.", metavar="RUN")] = None,
    replace: ReplaceOption = False,
) -> None:
    """Why an LDS is low: spread, noise and overlap of the labels, and what an index's scores make of them.

    Each finding has its number, a verdict and a paragraph of advice in docs/diagnosis.md.
    """
    from airrep.cli.show.diagnosis_console import print_diagnosis
    from airrep.evaluation.diagnosis.diagnosis import diagnose as look
    from airrep.evaluation.diagnosis.diagnosis import find_diagnosis, request_of, seconds_of_fine_tunes
    from airrep.evaluation.result import command_line
    from airrep.labels.gather import gather

    instances = gather(labels, [reading.read(path) for path in data or ()], partial=partial, read=reading.read)
    indexes = [open_index(path) for path in index or ()]
    found = None
    if out is not None and not replace:
        found = find_diagnosis(out, request_of(instances, indexes, pool, temperature))
    if found is not None:
        note(f"{out}: was finished already")
    else:
        seconds = seconds_of_fine_tunes([choice.partition("#")[0] for choice in labels])
        command = command_line(sys.argv[1:])
        found = look(instances, indexes, pool, temperature, seconds=seconds, command=command)
        if out is not None:
            found.write(out, replace=replace)
            note(f"{out}: written")
    if as_json:
        print_json(found.to_dict())
    else:
        print_diagnosis(found)
