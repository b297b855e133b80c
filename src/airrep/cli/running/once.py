"""Commands: errors in one line, dropped names, short help, records of results."""

import re
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from airrep.cli.options import note
from airrep.dropped import COMMANDS, OPTIONS, instead_of
from airrep.errors import ArtifactError, ConfigError, many

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
        """The command of a name (UsageError: it was dropped; the error has what to type instead)."""
        words = " ".join([*ctx.command_path.split()[1:], *args[:1]])
        told = instead_of(COMMANDS, words) if args and args[0] not in self.commands else None
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
    text = " ".join(told.split())
    text += "" if text.endswith((".", "?")) else "."
    note(f"{PROGRAM}: error: {where}{': ' if where else ''}{text} See: {command} --help")


def _instead(error: Any) -> str | None:
    """Return what to type in place of an option that was dropped; a setting only where the command has it."""
    told = instead_of(OPTIONS, getattr(error, "option_name", None) or "")
    setting = re.search(r"--set \w+=(?=VALUE)", told or "")
    known = getattr(getattr(error.ctx, "command", None), "help", None) or ""
    return told if setting is None or setting[0] in known else None


class OnceCommand(TyperCommand):
    """A command that refuses what would otherwise be dropped without a word: all but the last value of an option.

    Of ``--queries`` where queries are an argument it says so.
    """

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help: short, with an example; or all options, where these were asked for."""
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
        more = f"{many(len(others), 'more option')}"
        typer.echo(short.example + (f"\n\n{HELP_ALL} lists {more}." if others else ""))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command line.

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
                    f"{ctx.info_name}: {name} is given {count} times, but it takes only one value. Give it once."
                )
        return super().parse_args(ctx, args)

    def _refuse_flag(self, ctx: Any, option: str | None) -> None:
        for argument in self.params:
            named = re.sub("[^a-z]", "", (argument.metavar or argument.name).lower())  # "{INDEX...}" is --index
            if argument.param_type_name == "argument" and option == f"--{named}":
                usage = " ".join([ctx.command_path, *self.collect_usage_pieces(ctx)])
                raise ConfigError(
                    f"{ctx.info_name}: {option} is not an option, but an argument. Give its value without the name: "
                    f"{usage}"
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
        try:
            result = super().invoke(ctx)
            ended = True
            return result
        finally:  # also where a reader of stdout stopped early: what was made before is made
            if ended or history.state_of(artifact) != before:
                with suppress(OSError, ArtifactError):  # a read-only artifact that was found finished stays as it is
                    history.record(artifact, ctx.meta["words"], replaces=replaces, before=before and before[0])

    def _made(self, ctx: Any) -> Path | None:
        """The directory that the command makes or changes; None if it does neither."""
        from airrep.runtime.remote.places import url_of

        outs = [one.name for one in self.params if "--out" in one.opts]
        named = ctx.params.get("path" if ctx.info_name in ("append", "delete") else next(iter(outs), ""))
        if not isinstance(named, str | Path):
            return None
        if url_of(named) is None:
            return Path(named)
        from airrep.runtime.artifacts import real_path

        return real_path(named)


class Short(NamedTuple):
    """The parts of `--help` beside the arguments and the first sentence of the docstring."""

    options: str
    """Options, at most five, and those without which it does not run."""
    example: str
    """A command, and what it prints over the data of `airrep demo`."""


SHORT: Mapping[str, Short] = {
    "index": Short(
        "out recipe lm warmed set",
        """$ airrep index train.jsonl --out runs/index
runs/index: built: 2,000 examples, recipe text; next: airrep top runs/index QUERIES""",
    ),
    "append": Short(
        "set",
        """$ airrep append runs/index more.jsonl
runs/index: 50 examples added, 2,050 in all""",
    ),
    "delete": Short(
        "where id compact",
        """$ airrep delete runs/index --where 'source == "gsm8k"' --compact
runs/index: 410 examples deleted, 1,640 left
runs/index: 1,640 examples in 1 shards""",
    ),
    "export": Short(
        "to out where only data",
        """$ airrep export runs/index --to csv --out index.csv
index.csv: 2,000 examples, 6 columns""",
    ),
    "top": Short(
        "prompt response better k why",
        """$ airrep top runs/index --prompt "Can I eat zucchini raw?" --response "No, zucchini should be cooked before eating." -k 1
most helpful for query: Can I eat zucchini raw? → No, zucchini should be cooked before eating.
Stands out. The closest example teaches this answer 51 % as strongly as an exact copy would.
   Where nothing taught an answer, an example this close turns up in fewer than 1 of 100 cases.
#1 of 2,000 · train.jsonl:1537 · creak · label fact checking · +22.1 deviations · d1316064c52a6
   …
   → Zucchini is actually a member of the squash family and should be cooked before eating.""",  # noqa: E501
    ),
    "group": Short(
        "by better pool",
        """$ airrep group runs/index queries.jsonl --by source
┃ Group           ┃ Examples ┃ Mean score ┃ Spread ┃ Ranked first ┃ Above mean of ┃
│ 1. aqua         │ 400      │ +2.850     │ 2.444  │ 11 of 50     │ 20 of 50      │
│ 2. gsm8k        │ 400      │ +2.780     │ 1.502  │ 10 of 50     │ 22 of 50      │
…""",
    ),
    "what-if": Short(
        "remove keep better pool why",
        """$ airrep what-if runs/index queries.jsonl --remove 'source == "gsm8k"'
without source == "gsm8k": 400 examples left out, 1,600 kept
Mean change of the score over 50 queries: −0.132. The score falls for 17 (without these
examples, the data would teach the answer less) and rises for 33.""",
    ),
    "select": Short(
        "count out better where by",
        """$ airrep select runs/index queries.jsonl --count 100 --out picked.jsonl
picked.jsonl: 100 examples, the last at rank 3 for the query that ranks it best""",
    ),
    "serve": Short("queries better beside port host", "$ airrep serve runs/index --queries queries.jsonl"),
    "clean": Short(
        "kind lists label where",
        """$ airrep clean runs/index --kind duplicate
Duplicate: repeats an earlier example. 0 of 2,000 examples. …""",
    ),
    "audit": Short(
        "where out json wide replace",
        """$ airrep audit runs/index queries.jsonl
Evaluation items. 50 items: 41 clean, 4 nearly contained, 5 alike in meaning. …""",
    ),
    "mix": Short(
        "by better write",
        """$ airrep mix runs/index queries.jsonl
Weights of sources. Weight: share of the 20 examples that help a query most, mean of 50 queries.
┃ source       ┃ examples ┃ share ┃ weight ┃ 95 % interval  ┃ weight / share ┃
│ creak        │ 400      │ 20.0% │ 25.0%  │ 14.9% to 36.1% │ 1.25           │
…""",
    ),
    "report": Short("out replace", "$ airrep report runs/top --out page.html"),
    "show": Short("verify json k wide", "$ airrep show runs/index\n$ airrep show runs/index train.jsonl:12"),
    "demo": Short("out learn", "$ airrep demo"),
    "rerun": Short("replace", "$ airrep rerun runs/top --replace"),
    "prove": Short("lm rows where better budget", "$ airrep prove runs/index bad.jsonl --lm MODEL --rows e3,e4"),
    "sample": Short(
        "out subsets size queries instances",
        """$ airrep sample train.jsonl --instances 1 --subsets 100 --out runs/subsets
runs/subsets: 1 instance, each of 1,819 examples and 181 queries; 100 subsets of 363, …""",
    ),
    "label": Short("lm out queries seeds", "$ airrep label runs/subsets train.jsonl --lm MODEL --out runs/labels"),
    "warmup": Short(
        "lm out count training set", "$ airrep warmup train.jsonl --lm MODEL --count 100 --out runs/warmed"
    ),
    "push": Short("licence no-texts", "$ airrep push runs/index hf://me/my-index --licence cc-by-4.0"),
    "mcp": Short("port host", "$ airrep mcp runs/index                # an agent starts this, and asks over stdin"),
    "train": Short("data held-out out start steps", "$ airrep train runs/labels --data train.jsonl --out runs/encoder"),
    "adapt": Short("lm out budget labels queries", "$ airrep adapt train.jsonl --lm MODEL --budget 2h --out runs/mine"),
    "compare": Short("to out json replace", "$ airrep compare runs/lds-one runs/lds-two"),
    "evaluate": Short(
        "labels data queries by lm why",
        """$ airrep evaluate A=runs/index B=runs/other --labels L --data train.jsonl
$ airrep evaluate runs/index --queries queries.jsonl --by source
$ airrep evaluate runs/index --queries queries.jsonl --lm MODEL --count 1000""",
    ),
}
"""By the words of a command."""
