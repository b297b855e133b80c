"""The command that makes results again: rerun."""

from pathlib import Path
from typing import Annotated

import typer

from airrep.cli.options import ReplaceOption, shared_options

app = typer.Typer()


@app.command("rerun")
@shared_options
def rerun_command(
    results: Annotated[list[Path], typer.Argument(metavar="RESULT...", help="Directories that commands wrote.")],
    replace: ReplaceOption = False,
) -> None:
    """Run the commands that made a result again, in the folders where they ran.

    Commands find what is finished. To make it anew, from data that have changed, say, add --replace. `airrep show
    RESULT` prints the commands.
    """
    from airrep.cli.running.history import run_again
    from airrep.runtime.artifacts.making import fetched

    for result in results:
        run_again(fetched(result, loose=True), replace=replace)
