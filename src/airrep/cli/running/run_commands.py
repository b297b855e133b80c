"""The command that replays a whole run: run."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()


@app.command("run")
def run_command(
    ctx: typer.Context,
    path: Annotated[Path, typer.Argument(metavar="CONFIG", help="YAML file with steps.")],
    listing: Annotated[bool, typer.Option("--list", help="Print the commands for a shell, and run nothing.")] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Another value, as STEP.OPTION=VALUE: top.k=5, 2.k=5; may be repeated."),
    ] = None,
) -> None:
    """Run the steps of a config, one after the other; those that are done already are passed over.

    A config is YAML: 'steps:' with a list of commands and their options. `airrep show DIR --config` prints the one
    that makes a directory. All steps are checked before the first runs. Paths begin in the folder of the config.
    """
    from airrep.cli.running.config import read_config
    from airrep.cli.running.replay import Replay
    from airrep.cli.running.steps import Commands, shell_line

    commands = Commands.of(ctx)
    config = read_config(path).changed(settings or ())
    config.check(commands)
    if listing:
        for step in config.steps:
            typer.echo(shell_line(commands.words(step.step)))
    else:
        Replay(config, commands, ctx.find_root()).run()
