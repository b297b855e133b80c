"""Commands that say what is wrong with their options: given twice, or arguments."""

import re
from collections import Counter
from typing import Any

from typer.core import TyperCommand

from airrep.errors import ConfigError


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
