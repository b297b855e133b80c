"""Commands that answer questions: explain."""

from typing import Annotated

import typer

from airrep.cli import options
from airrep.cli.options import shared_options
from airrep.errors import ConfigError

app = typer.Typer()


@app.command("explain")
@shared_options
def explain_command(
    asking: options.QueryOptions,
    delivery: options.OutputOptions,
    better: Annotated[
        str | None, "A better response to --prompt; with QUERIES, a file of better answers to the same prompts."
    ] = None,
    k: Annotated[int, typer.Option("-k", help="How many training examples for each answer.")] = 10,
    where: options.WhereOption = None,
    why: Annotated[bool, "Tell what each channel gave to a score, and which words of both texts are the same."] = False,
) -> None:
    """Find the training examples that taught an answer; with --better, in place of a better one."""
    from airrep.answers.explain import explain
    from airrep.cli.show.answers import print_explained
    from airrep.cli.show.console import Meter
    from airrep.corpus.corpus import Corpus, Example

    delivery.check("explain")
    opened, asked = asking.index(), asking.asked()
    if better is None:
        others = None
    elif asking.queries is not None:
        others = asking.reading.read(better)
    elif asking.prompt is not None:
        others = Corpus.from_examples([Example(prompt=asking.prompt, response=better, id="better")])
    else:
        raise ConfigError("explain: --better needs --prompt and --response, or QUERIES. Give one of the two.")
    with Meter("encoding answers") as meter:
        result = explain(opened, asked, others, k, where=where, why=why, progress=meter)
    delivery.deliver(result, print_explained, written(delivery))


def written(delivery: options.OutputOptions) -> str:
    """What is told of an answer that was written."""
    return f"{delivery.run}: written"
