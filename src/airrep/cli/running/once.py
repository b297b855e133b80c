"""Commands: errors in one line, dropped names, records of results."""

import re
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from airrep import dropped
from airrep.cli.options import note
from airrep.errors import ArtifactError, ConfigError

UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # it has no public name in Typer
PROGRAM = "airrep"
HELP_ALL = "--help-all"


class OneLineGroup(TyperGroup):
    """All commands; a line that cannot be a command is told like every other error, not in a box."""

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

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words; a group hides nothing, so all of its help is its help."""
        return super().parse_args(ctx, ["--help"] if args[:1] == [HELP_ALL] else args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command of a name.

        Raises:
            UsageError: it was dropped; the error has what to type instead.
        """
        words = " ".join([*ctx.command_path.split()[1:], *args[:1]])
        told = dropped.instead_of(dropped.COMMANDS, words) if args and args[0] not in self.commands else None
        if told is not None:
            raise UsageError(told)
        return super().resolve_command(ctx, args)


def _tell_usage(error: Any) -> None:
    """Tell what is wrong and where help is; nothing where the help itself was printed."""
    if type(error).__name__ == "NoArgsIsHelpError":
        return
    command = PROGRAM if error.ctx is None else error.ctx.command_path
    where = command.removeprefix(PROGRAM).strip()
    told = _instead(error) or error.format_message()
    text = " ".join(told.split()).removesuffix(".")
    note(f"{PROGRAM}: error: {where}{': ' if where else ''}{text}. See: {command} --help")


def _instead(error: Any) -> str | None:
    """What to type in place of an option that was dropped; a setting only where the command has it."""
    told = dropped.instead_of(dropped.OPTIONS, getattr(error, "option_name", None) or "")
    setting = re.search(r"--set \w+=(?=VALUE)", told or "")
    known = getattr(getattr(error.ctx, "command", None), "help", None) or ""
    return told if setting is None or setting[0] in known else None


class OnceCommand(TyperCommand):
    """A command that refuses what would otherwise be dropped without a word: all but the last value of an option.

    Of ``--queries`` where queries are an argument it says so.
    """

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help: short, with an example; or all options, where these were asked for."""
        from airrep.cli.running.shown import SHORT

        short = SHORT.get(" ".join(ctx.command_path.split()[1:]))
        if short is None or ctx.meta.get(HELP_ALL):
            super().format_help(ctx, formatter)
            return
        wanted = {f"--{name}" for name in short.options.split()} | {f"-{name}" for name in short.options.split()}
        others: list[Any] = [
            one for one in self.params if one.param_type_name == "option" and not (one.required or {*one.opts} & wanted)
        ]
        text, self.help = self.help or "", (self.help or "").split("\n\n")[0]
        for one in others:
            one.hidden = True
        super().format_help(ctx, formatter)
        for one in others:
            one.hidden = False
        self.help = text
        more = f"{len(others)} more option{'s' if len(others) > 1 else ''}"
        typer.echo(short.example + (f"\n\n{HELP_ALL} lists {more}." if others else ""))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command line.

        Raises:
            ConfigError: an option that takes one value is given twice, or an argument is given as an option.
        """
        if ctx.resilient_parsing:  # a shell asks how a line may go on
            return super().parse_args(ctx, args)
        if HELP_ALL in args:
            ctx.meta[HELP_ALL] = True
            typer.echo(ctx.get_help())
            ctx.exit()
        if ctx.info_name != "push" and any("hf://" in word for word in args):
            from airrep.runtime.remote.hub import pinned_in

            args = [pinned_in(word) for word in args]  # the whole command reads one commit, and tells which
        ctx.meta["words"] = [*ctx.command_path.split()[1:], *args]
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
                    f"{ctx.info_name}: {option} is not an option; expected {usage}. Leave out the name, and give "
                    "only the value in this place."
                )


class RecordedCommand(OnceCommand):
    """A command that adds itself to the history of the artifact which it made or changed."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; its line is written when it has ended well, or has made something."""
        artifact = self._made(ctx)
        if artifact is None:
            return super().invoke(ctx)
        from airrep.cli.running import history  # here, since --help must load little

        before, replaces, ended = history.state_of(artifact), "replace" in ctx.params, False
        written = history.written(artifact)
        try:
            result = super().invoke(ctx)
            ended = True
            return result
        finally:  # also where a reader of stdout stopped early: what was made before is made
            if ended or history.written(artifact) != written:
                with suppress(OSError, ArtifactError):  # a read-only artifact that was found finished stays as it is
                    history.record(artifact, ctx.meta["words"], replaces=replaces, before=before)

    def _made(self, ctx: Any) -> Path | None:
        """The directory that the command makes or changes; None if it does neither."""
        from airrep.runtime.remote.places import url_of

        outs = [one.name for one in self.params if "--out" in one.opts]
        named = ctx.params.get("path" if ctx.info_name in ("append", "delete") else next(iter(outs), ""))
        if not isinstance(named, str | Path):
            return None
        if url_of(named) is None:
            return Path(named)
        from airrep.runtime.artifacts.making import real_path

        return real_path(named)
