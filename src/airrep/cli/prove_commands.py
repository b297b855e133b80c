"""Commands that fine-tune to answer: prove."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from airrep.answers.proof import ProofResult
from airrep.cli import options
from airrep.cli.flags import SettingsFlags
from airrep.cli.options import note
from airrep.cli.running.history import record
from airrep.cli.show.console import out, print_table, printable
from airrep.cli.show.evaluations import print_correlations
from airrep.errors import LM, ArtifactError, ConfigError, need
from airrep.planning.judge import Judgement
from airrep.reports.answers import answer_tables

if TYPE_CHECKING:
    from airrep.index.index import Index
    from airrep.index.rows import RowsLike


app = typer.Typer()
ProofFlags = Annotated[
    Mapping[str, Any],
    SettingsFlags("airrep.evaluation.prove:ProofSettings", ("seeds",), ("context", "seed"), mode="own"),
]
OutOption = Annotated[
    Path | None, typer.Option(metavar="RUN", help="Directory for all results. Default: a new one beside the index.")
]


@dataclass(frozen=True)
class NamedRows:
    """Options that name the rows to leave out."""

    rows: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="Id of a row to leave out. Separate several by commas, or repeat the option."),
    ] = None
    file: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="File that names the rows to leave out: JSONL with a field id, or a file written by `top --json`, "
            "`select` or the page of `airrep serve`.",
        ),
    ] = None
    where: Annotated[str | None, "Leave out the rows that match this filter, such as 'source == \"forum\"'."] = None

    def of(self, index: "Index") -> "RowsLike | Path":
        """The rows as :func:`airrep.prove` takes them (ConfigError: none are named, or in two ways)."""
        given = [one for one in (self.rows, self.file, self.where) if one]
        if len(given) != 1:
            raise ConfigError(
                f"prove: {len(given) or 'no'} options name the rows to test. Give exactly one of --rows ID, --where "
                "FILTER and --from FILE. To test the whole index, give --budget TIME instead."
            )
        return self.file or self.where or self._ids(index, self.rows or [])

    @staticmethod
    def _ids(index: "Index", texts: list[str]) -> list[str]:
        """Ids as they are typed: a text that is none may be several with commas between them."""
        known = index.find(texts)
        return [one for text in texts for one in ([text] if text in known else text.split(","))]


@app.command("prove")
def prove_command(
    ctx: typer.Context,
    path: options.IndexArgument,
    lm: options.LmOption,
    reading: options.ReadingOptions,
    queries: Annotated[
        str | None, typer.Argument(metavar="QUERIES", help=f"Answers to explain. {options.DATA_HELP}")
    ] = None,
    *,
    naming: NamedRows,
    budget: Annotated[
        str | None,
        "Time limit, such as 30m or 2h. With a time limit, airrep tests how well the whole index predicts losses on "
        "your queries, and does not test single rows.",
    ] = None,
    prompt: Annotated[str | None, "Prompt of a query that you type, instead of a file (QUERIES)."] = None,
    response: Annotated[str | None, "The answer to --prompt that you want to explain."] = None,
    better: options.BetterOption = None,
    proof: ProofFlags,
    computing: options.ComputeOptions,
    configuring: options.TuningOptions,
    running: options.EngineOptions,
    retries: options.RetriesOption = 2,
    out: OutOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Fine-tune with and without some rows, and say whether they taught an answer. Random rows are the control.

    --set changes settings of the fine-tuning, such as --set learning_rate=1e-4. Use the settings that your model was
    trained with. To go on after an interruption, or to add --seeds, run the same command again.

    With --budget, airrep tests whether the index can be trusted on your queries. It fine-tunes the LM on as many random
    subsets of the data as the time allows. It then compares how well the index, n-gram counts, TF-IDF, gradients and
    random scores predict the losses.
    """
    need("airrep prove", "lm", *LM)
    from airrep.cli.show.learning import TaskMeter
    from airrep.evaluation.prove import prove
    from airrep.index.index import Index
    from airrep.planning.budget import parse_duration
    from airrep.planning.judge import judge

    seconds = None if budget is None else parse_duration(budget)
    idle = sorted({"rows", "file", "where", "seeds", "context", "retries"} & options.typed(ctx))
    if seconds is not None and idle:
        flag = options.flag_of(ctx, idle[0]).replace("--file", "--from")
        raise ConfigError(f"prove: {flag} tests rows, but --budget tests the whole index. Leave out one of them.")
    index = Index(path)
    asked, others = options.QueryOptions(
        path=path, reading=reading, queries=queries, prompt=prompt, response=response, better=better
    ).question(index)
    model, tuning = configuring.of_lm(lm, computing, reading=reading)
    how: Any = {"fine_tune": tuning, "out": out, "engine": running.make(), "tell": note, "on_task": TaskMeter()}
    made: ProofResult | Judgement
    if seconds is not None:
        made = judge(index, asked, model, budget=seconds, better=others, seed=proof["seed"], **how)
    else:
        made = prove(index, naming.of(index), asked, model, others, **proof, retries=retries, **how)
    _record(ctx, made)
    options.show(made, print_judgement if seconds is not None else print_proof, as_json)


def _record(ctx: typer.Context, made: ProofResult | Judgement) -> None:
    """Record the command in the directory of its result, if it can be written to."""
    assert made.path is not None
    with suppress(OSError, ArtifactError):  # as for other commands: what was found or made is shown all the same
        record(made.path, ctx.meta["words"], replaces=False, before=None)


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
