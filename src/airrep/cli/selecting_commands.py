"""Commands that judge indexes by labels of data, and by fine-tuning on selections."""

from typing import Annotated

import typer

from airrep.cli.judging import IndexesArgument, Judging, open_named
from airrep.cli.options import (
    DATA_HELP,
    AddressOption,
    EngineOption,
    GpusOption,
    Reading,
    WhereOption,
    WorkersOption,
    make_engine,
    shared_options,
)

MOVED_HELP = "A setting of one index that is another now, as NAME:key=value: a moved model, say."

MovedOption = Annotated[list[str] | None, typer.Option("--set", help=MOVED_HELP)]
QueriesOption = Annotated[str, typer.Option("--queries", metavar="DATA", help=f"Queries. {DATA_HELP}")]


@shared_options
def classify(
    indexes: IndexesArgument,
    queries: QueriesOption,
    reading: Reading,
    judging: Judging,
    by: Annotated[str, typer.Option(help="Field that holds the class: label, source or a metadata field.")] = "label",
    vote: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Also the class that most of the top K have; may be repeated; 10 if not given."),
    ] = None,
    skip_unlabelled: Annotated[
        bool, typer.Option("--skip-unlabelled", help="Leave out queries without class, counted.")
    ] = False,
    where: WhereOption = None,
    moved: MovedOption = None,
) -> None:
    """How often the top training example has the query's label (identical-class test).

    A query never finds itself: training examples with its own texts are passed over. All indexes hold the same data.
    """
    from airrep.cli.show.console import Meter
    from airrep.cli.show.selecting_console import print_classification
    from airrep.evaluation.classify import Classification, ClassifySettings

    values = {"by": by, "where": where, "skip_unlabelled": skip_unlabelled}
    settings = ClassifySettings.of({**values, **({"votes": tuple(vote)} if vote else {})})
    asked = Classification(open_named(indexes, moved), reading.read(queries), settings)
    with Meter("ranking for queries") as meter:
        judging.deliver(asked.request, lambda: asked.run(meter), print_classification)


@shared_options
def select(
    indexes: IndexesArgument,
    queries: QueriesOption,
    lm: Annotated[str, typer.Option("--lm", help="Target LM: a folder or a Hub id.")],
    count: Annotated[int, typer.Option(min=1, help="Training examples selected for each task; the paper takes 1000.")],
    reading: Reading,
    judging: Judging,
    selecting: Annotated[
        str | None,
        typer.Option(metavar="DATA", help="Other queries of the same tasks to select by, so that none is tested on."),
    ] = None,
    by: Annotated[str, typer.Option(help="Field that holds the task: label, source or a metadata field.")] = "label",
    seeds: Annotated[int, typer.Option(min=1, help="Fine-tunes of each selection, averaged.")] = 1,
    random: Annotated[bool, typer.Option("--random/--no-random", help="Also examples at random.")] = True,
    full: Annotated[bool, typer.Option("--full/--no-full", help="Also all training examples.")] = False,
    none: Annotated[bool, typer.Option("--none/--no-none", help="Also the LM as it is.")] = True,
    where: WhereOption = None,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Most tokens of an answer.")] = 64,
    seed: Annotated[int, typer.Option(help="Of random examples and fine-tunes.")] = 0,
    workers: WorkersOption = None,
    engine: EngineOption = "local",
    address: AddressOption = None,
    gpus: GpusOption = 0,
    retries: Annotated[int, typer.Option(min=0, help="How often a failed fine-tune is tried again.")] = 2,
    partial: Annotated[bool, typer.Option("--partial", help="Finish without fine-tunes that failed.")] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="A setting of the fine-tuning or the LM, as key=value, such as learning_rate=1e-4."),
    ] = None,
    moved: Annotated[list[str] | None, typer.Option("--index-set", help=MOVED_HELP)] = None,
) -> None:
    """Select examples for each task, fine-tune the LM on them, and measure its answers: unigram F1.

    With --out, run it again after an interruption: it goes on with what is missing.
    """
    from airrep.cli.show.console import Meter
    from airrep.cli.show.learning import TaskMeter
    from airrep.cli.show.selecting_console import print_selection
    from airrep.evaluation.select.contest import SelectSettings
    from airrep.evaluation.select.select import DataSelection
    from airrep.lm.settings import FineTuneSettings, LmSettings, split_settings
    from airrep.runtime.settings import read_settings

    of_lm, of_tuning = split_settings(read_settings(None, settings or ()))
    values = {"count": count, "by": by, "seeds": seeds, "random": random, "full": full, "none": none}
    chosen = SelectSettings.of({**values, "where": where, "max_new_tokens": max_new_tokens, "seed": seed})
    asked = DataSelection(
        open_named(indexes, moved),
        reading.read(queries),
        LmSettings.of({**of_lm, "lm": lm}),
        chosen,
        FineTuneSettings.of(of_tuning),
        selecting=None if selecting is None else reading.read(selecting),
        engine=make_engine(engine, workers, address, gpus),
    )
    with Meter("selecting") as meter:
        judging.deliver(
            asked.request,
            lambda: asked.run(
                judging.run,
                retries=retries,
                partial=partial,
                replace=judging.replace,
                progress=meter,
                on_task=TaskMeter(),
            ),
            print_selection,
            partial=partial,
        )
