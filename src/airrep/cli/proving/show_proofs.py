"""Print proofs and judgements."""

from rich.markup import escape

from airrep.answers.proof import ProofResult
from airrep.cli.show.console import out, print_table, printable
from airrep.cli.show.evaluations import print_correlations
from airrep.planning.judge import Judgement
from airrep.reports.answers import answer_tables


def print_proof(found: ProofResult) -> None:
    """Print the verdict, and the effects behind it."""
    table = answer_tables(found)[0]
    print_table(table)
    out().print(f"[dim]{escape(printable(table.caption))}[/]", highlight=False, soft_wrap=True)
    say_verdict(found.sentence)


def print_judgement(found: Judgement) -> None:
    """Print the table of an evaluation, and the verdict."""
    print_correlations(found.evaluation)
    say_verdict(found.sentence)


def say_verdict(sentence: str) -> None:
    """Print the sentence that a command ends with."""
    out().print(f"[bold]{escape(printable(sentence))}[/]", highlight=False, soft_wrap=True)
