"""Commands that tell in one line what is wrong with their options."""

import re
import sys
from collections import Counter
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from airrep.cli.options import note
from airrep.cli.running.steps import PROGRAM, UsageError, usage_text
from airrep.errors import ConfigError

INSTEAD = {"plan": "airrep index DATA --out INDEX --dry-run (also label, train and adapt --dry-run)"}
"""What to type in place of a command that is gone, for one version."""


class OneLineGroup(TyperGroup):
    """All commands; a line that cannot be a command is told like every other error, not in a box."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command of a line (ConfigError for one that is gone)."""
        if args and args[0] in INSTEAD:
            raise ConfigError(f"{args[0]}: this command is gone. Type: {INSTEAD[args[0]]}")
        return super().resolve_command(ctx, args)

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        """Run a command; in standalone mode end the program, of such a line with status 2."""
        extra["standalone_mode"] = False
        if not standalone_mode:
            return super().main(*args, **extra)
        try:
            ended = super().main(*args, **extra)
        except UsageError as error:
            _tell_usage(error)
            sys.exit(2)
        except typer.Abort:
            sys.exit(1)
        sys.exit(ended if isinstance(ended, int) else 0)


def _tell_usage(error: Any) -> None:
    """Tell what is wrong and where help is; nothing where the help itself was printed."""
    if type(error).__name__ != "NoArgsIsHelpError":
        command = PROGRAM if error.ctx is None else error.ctx.command_path
        where = command.removeprefix(PROGRAM).strip()
        note(f"{PROGRAM}: error: {where}{': ' if where else ''}{usage_text(error, command)}")


class OnceCommand(TyperCommand):
    """A command that refuses what would otherwise be dropped without a word: all but the last value of an option.

    Of ``--queries`` where queries are an argument it says so.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command line.

        Raises:
            ConfigError: an option that takes one value is given twice, or an argument is given as an option.
        """
        if ctx.resilient_parsing:  # a shell asks how a line may go on
            return super().parse_args(ctx, args)
        try:
            _, _, given = self.make_parser(ctx).parse_args(list(args))  # it takes them out of the list
        except Exception as error:  # of click's, or of typer's copy of it
            self._refuse_flag(ctx, getattr(error, "option_name", None))
            raise
        for option, count in Counter(given).items():
            several = getattr(option, "multiple", True) or getattr(option, "is_flag", False)
            if count > 1 and not several:
                name = max(option.opts, key=len)
                raise ConfigError(
                    f"{ctx.info_name}: {name} is given {count} times, and one value counts; expected it once. "
                    "Leave the others out."
                )
        return super().parse_args(ctx, args)

    def _refuse_flag(self, ctx: Any, option: str | None) -> None:
        for argument in self.params:
            named = re.sub("[^a-z]", "", (argument.metavar or argument.name).lower())  # "{INDEX...}" is --index
            if argument.param_type_name == "argument" and option == f"--{named}":
                usage = " ".join([ctx.command_path, *self.collect_usage_pieces(ctx)])
                raise ConfigError(
                    f"{ctx.info_name}: {option} is no option; expected {usage}. Give the value alone, at its place."
                )
