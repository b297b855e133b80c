"""Commands that refuse an option given twice where only one counts."""

from collections import Counter
from typing import Any

from typer.core import TyperCommand

from airrep.errors import ConfigError


class OnceCommand(TyperCommand):
    """A command that refuses what would otherwise be dropped without a word: all but the last value of an option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command line.

        Raises:
            ConfigError: an option that takes one value is given twice.
        """
        if ctx.resilient_parsing:  # a shell asks how a line may go on
            return super().parse_args(ctx, args)
        _, _, given = self.make_parser(ctx).parse_args(list(args))  # it takes them out of the list
        for option, count in Counter(given).items():
            several = getattr(option, "multiple", True) or getattr(option, "is_flag", False)
            if count > 1 and not several:
                name = max(option.opts, key=len)
                raise ConfigError(
                    f"{ctx.info_name}: {name} is given {count} times, and one value counts; expected it once. "
                    "Leave the others out."
                )
        return super().parse_args(ctx, args)
